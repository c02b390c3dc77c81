"""domain/git/config_changes.py: the settings made in the sandbox that are set on the host."""

import pytest

from omac.domain.git.config_changes import CHANGES_MAX, REMOVED, STAYS, Branches, changes

HOST = """\
[core]
\trepositoryformatversion = 0
\thooksPath = .husky
[commit]
\tgpgSign = true
[remote "origin"]
\turl = git@example.org:x
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[branch "other"]
\tremote = origin
[branch "gone"]
\tremote = origin
[user]
\tname = A
"""
BRANCHES = Branches({"main", "other", "gone"}, {"main"}, {"main", "other", "new"})


def judged(added: str, *, without: str = "") -> tuple[list[str], list[str]]:
    """Return the keys that are copied back and those that are not, for HOST with `added` appended and a line left
    out."""
    config = "".join(line for line in HOST.splitlines(keepends=True) if not without or line.strip() != without)
    answer = changes(HOST.encode(), (config + added).encode(), BRANCHES)
    assert all(why in (STAYS, REMOVED) for _, why in answer.refused)
    return [key for key, _ in answer.wanted], [key for key, _ in answer.refused]


@pytest.mark.parametrize(
    "added",
    [
        '[branch "new"]\nremote = origin\n',
        '[branch "new"]\nremote = up\n[remote "up"]\nurl = git@example.org:y\nfetch = +refs/*:refs/remotes/up/*\n',
        '[branch "main"]\nmerge = refs/heads/dev\n',
        '[branch "main"]\nrebase = true\n',
        "[user]\nemail = a@example.org\n",
        "[extensions]\nworktreeConfig = true\n",
        '[submodule "lib"]\nactive = true\nurl = https://example.org/lib\n',
        "[remote]\npushDefault = origin\n",
        "[commit]\ngpgSign\n[push]\ngpgSign = if-asked\n[fetch]\nfsckObjects = yes\n",
    ],
)
def test_is_copied_back(added: str) -> None:
    """Settings of a new branch, the own branch or a new remote are copied back, and so are those that name no program
    and no location."""
    copied, refused = judged(added)
    assert copied
    assert not refused


@pytest.mark.parametrize(
    "added",
    [
        '[branch "other"]\nmerge = refs/heads/dev\n',
        '[branch "main"]\nremote = up\n[remote "up"]\nurl = https://example.org/y\n',
        '[branch "main"]\npushRemote = up\n',
        '[branch "new"]\nremote = https://example.org/y\n',
        '[remote "origin"]\nurl = https://example.org/y\n',
        '[remote "origin"]\nmirror = true\n',
        '[remote "up"]\nurl = ext::sh\n',
        '[remote "up"]\nurl = ssh://a/b\nfetch = +refs/x/*:refs/replace/*\n',
        '[remote "up"]\nurl = ssh://a/b\nmirror = true\n',
        "[remote]\npushDefault = up\n",
        "[core]\nhooksPath = .husky\n",
        "[core]\nbare = true\n",
        "[extensions]\nobjectFormat = sha256\n",
        "[extensions]\nworktreeConfig = false\n",
        "[commit]\ngpgSign = false\n",
        "[tag]\ngpgSign = true\ngpgSign = 0\n",
        "[merge]\nverifySignatures = off\n",
        "[transfer]\nfsckObjects = false\n",
        "[core]\nsharedRepository = group\n",
    ],
)
def test_stays(added: str) -> None:
    """Settings of another branch, of a remote's target, of programs, of the repository's format and rights are not
    copied back, nor are those that turn signing or verification off."""
    assert judged(added)[1]


@pytest.mark.parametrize(
    ("line", "home"),
    [("name = A", 1), ("hooksPath = .husky", 0), ("repositoryformatversion = 0", 0), ("gpgSign = true", 0)],
)
def test_removed(line: str, home: int) -> None:
    """An agent may remove any setting that it may make, except the repository's format, and signing."""
    assert len(judged("", without=line)[0]) == home


def test_a_branch_that_is_gone_loses_its_settings() -> None:
    """A branch that is gone loses its settings, as git removes them with it. Of the branches that exist, only the own
    one may lose any."""
    content = HOST.replace('[branch "gone"]\n\tremote = origin\n', "").replace(
        '[branch "other"]\n\tremote = origin\n', ""
    )
    answer = changes(HOST.encode(), content.encode(), BRANCHES)
    assert answer.wanted == [("branch.gone.remote", [])]
    assert [key for key, _ in answer.refused] == ["branch.other.remote"]


def test_branches_that_only_git_can_list() -> None:
    """Branches that only git can list count as having existed before, except the own one."""
    unknown = Branches(None, {"main"}, None)
    added = '[branch "new"]\nremote = origin\n[branch "main"]\nrebase = true\n'
    answer = changes(HOST.encode(), (HOST + added).encode(), unknown)
    assert [key for key, _ in answer.wanted] == ["branch.main.rebase"]
    assert [key for key, _ in answer.refused] == ["branch.new.remote"]


@pytest.mark.parametrize("after", ["[core\n", "x\n", "x = y\n"])
def test_a_text_that_git_could_not_read(after: str) -> None:
    """A text that git cannot read is refused, so none of its settings counts."""
    with pytest.raises(ValueError, match=r"line 1|in no section"):
        changes(HOST.encode(), after.encode(), BRANCHES)


def test_bounded() -> None:
    """Each value costs a start of git, so at most CHANGES_MAX of them are copied back."""
    added = "".join(f'[branch "b{number}"]\nrebase = true\n' for number in range(CHANGES_MAX + 5))
    answer = changes(HOST.encode(), (HOST + added).encode(), BRANCHES)
    assert (len(answer.wanted), len(answer.refused)) == (CHANGES_MAX, 5)
    many = "[push]\n" + "default = simple\n" * CHANGES_MAX
    assert changes(HOST.encode(), (HOST + "[commit]\nverbose\n" + many).encode(), BRANCHES).refused == [
        ("push.default", STAYS)
    ]


def test_a_removal_is_reported_as_removed() -> None:
    """A removed remote stays on the host, and the refusal reports it as removed, not as set (`git remote remove`)."""
    answer = changes(b'[remote "up"]\nurl = x\n', b'[remote "up"]\nurl = y\n', BRANCHES)
    assert answer.refused == [("remote.up.url", STAYS)]
    assert changes(b'[remote "up"]\nurl = x\n', b"", BRANCHES).refused == [("remote.up.url", REMOVED)]


def test_where_the_hosts_submodule_leads_stays() -> None:
    """A submodule of the host keeps its URL, as a remote does: `git submodule update` would silently fetch from
    elsewhere."""
    host = '[submodule "lib"]\nurl = https://a.example/lib\n'
    answer = changes(host.encode(), host.replace("a.example", "b.example").encode(), BRANCHES)
    assert answer.refused == [("submodule.lib.url", STAYS)]


def test_a_scheme_that_names_a_program() -> None:
    """A URL like `x://a` is not copied back: git runs git-remote-x for it, as for `x::`."""
    assert judged('[remote "up"]\nurl = x://a\n') == ([], ["remote.up.url"])
    assert judged('[remote "up"]\nurl = ssh://a\n') == (["remote.up.url"], [])


@pytest.mark.parametrize("url", ["/home/me/private", "../private", "file:///home/me/private", "private"])
def test_a_path_on_this_machine(url: str) -> None:
    """A new remote leads to another machine or to the target of a host's remote; any other local path is refused."""
    host = '[remote "up"]\nurl = /srv/up.git\n'
    new = f'{host}[remote "new"]\nurl = {url}\n'
    assert ("remote.new.url", STAYS) in changes(host.encode(), new.encode(), BRANCHES).refused
    module = f'{host}[submodule "new"]\nurl = {url}\n'
    assert changes(host.encode(), module.encode(), BRANCHES).refused == [("submodule.new.url", STAYS)]
    same = changes(host.encode(), new.replace(url, "/srv/up.git").encode(), BRANCHES)
    assert same.refused == []


@pytest.mark.parametrize("url", ["", "url = ../private\n", "url = ext::sh\n"])
def test_a_remote_without_a_url(url: str) -> None:
    """git takes the name of a remote without a URL for a path, where a link may lie. Neither that remote nor a branch's
    setting that names it is copied back."""
    added = f'[branch "new"]\nremote = up\npushRemote = up\n[remote "up"]\n{url}fetch = refs/heads/x\nprune = true\n'
    assert judged(added)[0] == []
    assert judged('[branch "new"]\nremote = .\n')[1] == []


def test_a_remote_whose_url_is_one_change_too_many() -> None:
    """A remote whose URL exceeds the bound is not copied back, and neither is any setting that names it."""
    added = "".join(f'[branch "b{number}"]\nremote = up\n' for number in range(CHANGES_MAX))
    assert judged(f'{added}[remote "up"]\nurl = ssh://a/b\n')[0] == []
