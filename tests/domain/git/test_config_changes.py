"""domain/git/config_changes.py: which settings made inside are set on the host."""

import pytest

from omac.domain.git.config_changes import CHANGES_MAX, REMOVED, STAYS, Branches, changes

HOST = """\
[core]
\trepositoryformatversion = 0
\thooksPath = .husky
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
    """The keys that come home and those that do not, where `added` is appended and a line is left out."""
    kept = "".join(line for line in HOST.splitlines(keepends=True) if not without or line.strip() != without)
    found = changes(HOST.encode(), (kept + added).encode(), BRANCHES)
    assert all(why in (STAYS, REMOVED) for _, why in found.refused)
    return [key for key, _ in found.wanted], [key for key, _ in found.refused]


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
    ],
)
def test_comes_home(added: str) -> None:
    """A new branch's, the own branch's, a new remote's, and what names neither program nor place."""
    wanted, refused = judged(added)
    assert wanted
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
    ],
)
def test_stays(added: str) -> None:
    """Another branch's, where a remote leads, what runs something, and the repository's format."""
    assert judged(added)[1]


@pytest.mark.parametrize(
    ("line", "home"), [("name = A", 1), ("hooksPath = .husky", 0), ("repositoryformatversion = 0", 0)]
)
def test_removed(line: str, home: int) -> None:
    """A setting that anybody may make may be removed by anybody, but for the repository's format."""
    assert len(judged("", without=line)[0]) == home


def test_a_branch_that_is_gone_loses_its_settings() -> None:
    """git removes them with the branch; of one that is still there, only the own one's may go."""
    content = HOST.replace('[branch "gone"]\n\tremote = origin\n', "").replace(
        '[branch "other"]\n\tremote = origin\n', ""
    )
    found = changes(HOST.encode(), content.encode(), BRANCHES)
    assert found.wanted == [("branch.gone.remote", [])]
    assert [key for key, _ in found.refused] == ["branch.other.remote"]


def test_branches_that_only_git_can_list() -> None:
    """Any branch but the own one may have been there."""
    unknown = Branches(None, {"main"}, None)
    added = '[branch "new"]\nremote = origin\n[branch "main"]\nrebase = true\n'
    found = changes(HOST.encode(), (HOST + added).encode(), unknown)
    assert [key for key, _ in found.wanted] == ["branch.main.rebase"]
    assert [key for key, _ in found.refused] == ["branch.new.remote"]


@pytest.mark.parametrize("after", ["[core\n", "x\n", "x = y\n"])
def test_a_text_that_git_could_not_read(after: str) -> None:
    """It is no configuration, so nothing of it counts."""
    with pytest.raises(ValueError, match=r"line 1|in no section"):
        changes(HOST.encode(), after.encode(), BRANCHES)


def test_bounded() -> None:
    """Each change costs a start of git, so there are at most so many."""
    added = "".join(f'[branch "b{number}"]\nrebase = true\n' for number in range(CHANGES_MAX + 5))
    found = changes(HOST.encode(), (HOST + added).encode(), BRANCHES)
    assert (len(found.wanted), len(found.refused)) == (CHANGES_MAX, 5)


def test_what_was_removed_is_told_as_that() -> None:
    """As by `git remote remove`: the host keeps its remote, and nobody is told that it was set."""
    found = changes(b'[remote "up"]\nurl = x\n', b'[remote "up"]\nurl = y\n', BRANCHES)
    assert found.refused == [("remote.up.url", STAYS)]
    assert changes(b'[remote "up"]\nurl = x\n', b"", BRANCHES).refused == [("remote.up.url", REMOVED)]


def test_where_the_hosts_submodule_leads_stays() -> None:
    """As for a remote: `git submodule update` would fetch from elsewhere, and nobody be told."""
    host = '[submodule "lib"]\nurl = https://a.example/lib\n'
    found = changes(host.encode(), host.replace("a.example", "b.example").encode(), BRANCHES)
    assert found.refused == [("submodule.lib.url", STAYS)]


def test_a_scheme_that_names_a_program() -> None:
    """`x://` has git run git-remote-x, as `x::` does."""
    assert judged('[remote "up"]\nurl = x://a\n') == ([], ["remote.up.url"])
    assert judged('[remote "up"]\nurl = ssh://a\n') == (["remote.up.url"], [])


@pytest.mark.parametrize("place", ["/home/me/private", "../private", "file:///home/me/private", "private"])
def test_a_place_on_this_machine(place: str) -> None:
    """A new remote leads to another machine, or where one of the host's does."""
    host = '[remote "up"]\nurl = /srv/up.git\n'
    new = f'{host}[remote "new"]\nurl = {place}\n'
    assert ("remote.new.url", STAYS) in changes(host.encode(), new.encode(), BRANCHES).refused
    module = f'{host}[submodule "new"]\nurl = {place}\n'
    assert changes(host.encode(), module.encode(), BRANCHES).refused == [("submodule.new.url", STAYS)]
    same = changes(host.encode(), new.replace(place, "/srv/up.git").encode(), BRANCHES)
    assert same.refused == []


@pytest.mark.parametrize("url", ["", "url = ../private\n", "url = ext::sh\n"])
def test_a_remote_without_a_url_that_comes_home(url: str) -> None:
    """Its name is a path to git, where a link may lie: neither it nor a branch's remote by its name comes home."""
    added = f'[branch "new"]\nremote = up\npushRemote = up\n[remote "up"]\n{url}fetch = refs/heads/x\nprune = true\n'
    assert judged(added)[0] == []
    assert judged('[branch "new"]\nremote = .\n')[1] == []


def test_a_remote_whose_url_is_one_change_too_many() -> None:
    """Nothing that names it comes home either."""
    added = "".join(f'[branch "b{number}"]\nremote = up\n' for number in range(CHANGES_MAX))
    assert judged(f'{added}[remote "up"]\nurl = ssh://a/b\n')[0] == []
