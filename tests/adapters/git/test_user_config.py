"""adapters/git/user_config.py: a confined git knows the user's identity and no secret, by the git of this machine."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_sandbox import NOBODY, Box, box

from omac.adapters.git.user_config import FOLDER, INCLUDES_DEEP_MAX, agent_entry, entries
from omac.domain.git.config import parse
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import COPY, LINK

NO_IDENTITY = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"), "")
GIT = shutil.which("git") or "git"


@pytest.fixture(params=[0, NOBODY], ids=["root", "nobody"])
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a home and a repository, of root or of an unprivileged user."""
    with box(request.param) as made:
        assert made.host("git", "init", "-q", "-b", "main", ".").status == 0
        yield made


def _inside(world: Box, *command: str, options: tuple[str, ...] = (), **extra: str) -> str:
    """Return the output of a command in the sandbox, without an identity in its environment."""
    line = ("env", *(word for name in NO_IDENTITY for word in ("-u", name)), *command)
    done = world.run(*line, options=options, extra=extra)
    assert done.status == 0, done.err
    return done.out


def test_commits_are_by_the_user(world: Box) -> None:
    """Name, address, aliases and ignored files are as outside; settings changed inside do not change the host's."""
    config = (
        "[user]\n\tname = Ada\n\temail = ada@example.org\n"
        "[alias]\n\tci = commit -q\n[core]\n\texcludesFile = ~/.ignored\n"
    )
    config_file = world.give(world.home / ".gitconfig", config)
    world.give(world.home / ".ignored", "*.o\n")
    world.give(world.home / ".config/git/attributes", "*.bin binary\n")
    world.give(world.workdir / "a.o")
    world.give(world.workdir / "a.c", "int a;\n")
    script = "git add . && git ci -m one && git log --format='%an %ae' --name-only && git check-attr diff x.bin"
    assert _inside(world, "sh", "-c", script) == "Ada ada@example.org\n\na.c\nx.bin: diff: unset\n"
    _inside(world, "sh", "-c", "git config --global user.name Eve; git config --global alias.x '!id'; true")
    assert config_file.read_text() == config


def test_a_file_of_xdgs_and_a_link_to_dotfiles(world: Box) -> None:
    """Settings of both files hold, those in the home last; links are followed, and their targets stay hidden."""
    world.give(world.home / "dotfiles/git/config", "[user]\n\tname = Xdg\n\temail = x@example.org\n")
    world.give(world.home / "dotfiles/gitconfig", "[user]\n\tname = Home\n")
    (world.home / ".config").mkdir(exist_ok=True)
    os.chown(world.home / ".config", world.uid, world.uid)
    (world.home / ".config/git").symlink_to("../dotfiles/git")
    (world.home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    assert _inside(world, "git", "var", "GIT_AUTHOR_IDENT").startswith("Home <x@example.org>")
    assert "gitconfig" not in _inside(world, "sh", "-c", "ls ~/dotfiles ~/dotfiles/git")


def test_includes_and_their_conditions_hold(world: Box) -> None:
    """Includes work as outside, for each repository: relative, nested, conditional, overridden, missing."""
    config = (
        "[user]\n\tname = Ada\n\temail = home@example.org\n"
        "[include]\n\tpath = git/common\n\tpath = ~/git/missing\n"
        '[includeIf "gitdir:~/project/"]\n\tpath = ~/git/work\n'
        '[includeIf "gitdir:~/elsewhere/"]\n\tpath = ~/git/else\n'
        '[includeIf "gitdir:./project/**"]\n\tpath = ~/git/relative\n'
        '[includeIf "onbranch:main"]\n\tpath = git/branch\n'
        "[user]\n\tname = Last\n"
    )
    world.give(world.home / ".gitconfig", config)
    world.give(world.home / "git/common", "[include]\n\tpath = nested\n[a]\n\tcommon = 1\n\tlast = common\n")
    world.give(world.home / "git/nested", "[a]\n\tnested = 1\n\tlast = nested\n")
    world.give(world.home / "git/work", "[user]\n\temail = work@example.org\n\tname = Work\n")
    world.give(world.home / "git/else", "[user]\n\temail = else@example.org\n")
    world.give(world.home / "git/relative", "[a]\n\trelative = 1\n")
    world.give(world.home / "git/branch", "[a]\n\tbranch = 1\n")
    command = ["git", "config", "--includes", "--get-regexp", r"^(user|a)\."]
    outside = world.host(*command)
    assert {"a.nested 1", "a.relative 1", "a.branch 1", "user.email work@example.org"} <= set(outside.out.splitlines())
    assert _inside(world, *command) == outside.out
    repository = world.home / "elsewhere/repository"
    repository.mkdir(parents=True)
    for path in (repository, repository.parent):
        os.chown(path, world.uid, world.uid)
    assert world.host("git", "init", "-q", "-b", "other", str(repository)).status == 0
    outside = world.host(*command, cwd=repository)
    assert "user.email else@example.org" in outside.out
    done = world.run(*command, workdir=repository)
    assert done.out == outside.out, done.err


SECRETS = [
    ("http.https://example.org/.extraheader", "AUTHORIZATION: basic c2VjcmV0"),
    ("http.extraheader", "secret"),
    ("http.cookiefile", "/home/secret"),
    ("http.proxy", "http://ada:secret@proxy"),
    ("http.sslkey", "/home/secret"),
    ("remote.x.proxy", "http://ada:secret@proxy"),
    ("url.https://oauth2:secret@example.org/.insteadof", "https://example.org/"),
    ("url.https://secret@example.org/.insteadof", "gh:"),
    ("url.https://example.org/.pushinsteadof", "https://x:secret@example.org/"),
    ("url.ssh://git:secret@example.org/.insteadof", "x:"),
    ("credential.helper", "store --file secret"),
    ("credential.https://example.org.helper", "!echo password=secret"),
    ("core.askpass", "/home/secret"),
    ("core.sshcommand", "ssh -i secret"),
    ("core.fsmonitor", "/home/secret"),
    ("sendemail.smtppass", "secret"),
    ("imap.pass", "secret"),
    ("github.token", "secret"),
    ("github.oauth-token", "secret"),
    ("gitlab.example.org.private-token", "secret"),
    ("x.apikey", "secret"),
    ("x.client-secret", "secret"),
    ("alias.up", "!git push https://x:secret@example.org/a"),
]
HARMLESS = [
    ("user.name", "Ada"),
    ("http.sslverify", "false"),
    ("http.proxy", "http://proxy:3128"),
    ("url.git@example.org:.insteadof", "https://example.org/"),
    ("url.ssh://git@example.org/.insteadof", "https://example.org/"),
    ("remote.x.url", "https://example.org/a@b"),
    ("sendemail.smtpuser", "ada"),
    ("sendemail.smtpauth", "plain"),
    ("alias.token", "log"),
    ("pass.word", "x"),
    ("push.autosetupremote", "true"),
]


@pytest.mark.parametrize(("key", "value"), SECRETS)
def test_a_credential_stays_outside(tmp_path: Path, key: str, value: str) -> None:
    """A credential is left out, in the file itself and in an included one; the settings beside it are copied."""
    section, _, rest = key.partition(".")
    label, _, name = rest.rpartition(".")
    header = f'[{section} "{label}"]' if label else f"[{section}]"
    written = f'{header}\n\t{name} = "{value}"\n[user]\n\tname = Ada\n'
    (tmp_path / ".gitconfig").write_text(f"[include]\n\tpath = more\n{written}")
    (tmp_path / "more").write_text(written)
    made, _ = entries(str(tmp_path), {}, agent=True)
    assert len(made) == 2
    for entry in made:
        assert b"secret" not in entry.content
        assert b"Ada" in entry.content
        assert [pair[0] for pair in parse(entry.content.decode())] in (["user.name"], ["include.path", "user.name"])


@pytest.mark.parametrize(("key", "value"), HARMLESS)
def test_what_is_no_credential_arrives(tmp_path: Path, key: str, value: str) -> None:
    """Settings that only resemble a credential are copied."""
    subprocess.run([GIT, "config", "--file", str(tmp_path / ".gitconfig"), key, value], check=True, cwd="/")
    made, warnings = entries(str(tmp_path), {"PATH": "/usr/bin"}, agent=False)
    assert parse(made[0].content.decode()) == [(key, value)]
    assert warnings == []


def test_stored_credentials_are_not_there(world: Box) -> None:
    """The sandbox has neither git's own store of credentials nor the helper that would read it."""
    world.give(world.home / ".git-credentials", "https://ada:secret@example.org\n")
    world.give(world.home / ".config/git/credentials", "https://ada:secret@example.org\n")
    world.give(world.home / ".gitconfig", "[credential]\n\thelper = store\n[user]\n\tname = Ada\n")
    ask = [
        "sh",
        "-c",
        "printf 'protocol=https\\nhost=example.org\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>&1; true",
    ]
    assert "secret" in world.host(*ask).out  # the twin: outside it is answered
    assert "secret" not in _inside(world, *ask)
    assert "secret" not in _inside(world, "sh", "-c", "cat ~/.git-credentials ~/.config/git/* 2>/dev/null; true")


@pytest.mark.parametrize(
    ("config", "agent", "kept", "warned"),
    [
        ("[commit]\n\tgpgSign = true\n", False, False, True),
        ("[commit]\n\tgpgSign\n", True, False, True),
        ("[commit]\n\tgpgSign = false\n", False, False, False),
        ("[gpg]\n\tformat = ssh\n[tag]\n\tgpgSign = true\n", False, False, True),
        ("[gpg]\n\tformat = ssh\n[tag]\n\tgpgSign = true\n", True, True, False),
        ("[gpg]\n\tformat = openpgp\n[commit]\n\tgpgSign = true\n", True, False, True),
    ],
)
def test_what_cannot_be_signed_is_not_asked_for(
    tmp_path: Path, config: str, agent: bool, kept: bool, warned: bool
) -> None:
    """Commits are left unsigned, with a warning, where the key cannot be used: a commit that fails would be worse."""
    (tmp_path / ".gitconfig").write_text(config)
    made, warnings = entries(str(tmp_path), {}, agent=agent)
    assert (b"gpgsign" in made[0].content) == kept
    assert bool(warnings) == warned


@pytest.mark.skipif(not shutil.which("ssh-agent"), reason="openssh-client is not installed")
def test_the_agent_signs_a_commit(world: Box) -> None:
    """The SSH agent signs commits only where it is granted; the sandbox has just the public half of the key."""
    key = world.home / ".ssh/id_ed25519"
    world.give(key)
    key.unlink()
    assert world.host("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)).status == 0
    public = (world.home / ".ssh/id_ed25519.pub").read_text()
    world.give(world.home / "signers", f"ada@example.org {public}")
    config = (
        "[user]\n\tname = Ada\n\temail = ada@example.org\n\tsigningKey = ~/.ssh/id_ed25519\n"
        "[commit]\n\tgpgSign = true\n"
        '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tallowedSignersFile = ~/signers\n'
    )
    world.give(world.home / ".gitconfig", config)
    path = world.home / "agent.sock"
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL, user=world.uid or None,
        group=world.uid or None, extra_groups=world.extra_groups,
    )  # fmt: skip
    try:
        here = {"SSH_AUTH_SOCK": str(path)}
        for _ in range(200):
            if world.host("ssh-add", "-q", str(key), extra=here).status == 0:
                break
        commit = ["sh", "-c", "git commit -q --allow-empty -m one && git log -1 --format=%G?"]
        assert _inside(world, *commit, options=("--ssh-agent",), **here) == "G\n"
        assert _inside(world, *commit, SSH_AUTH_SOCK=str(path)) == "N\n"
        listing = ["sh", "-c", f"ls -A ~ {path.parent}; ls ~/.ssh 2>/dev/null; cat {key} 2>/dev/null; true"]
        assert "PRIVATE" not in _inside(world, *listing, options=("--ssh-agent",), **here)
        assert world.run("ssh-add", "-l", options=("--ssh-agent",), extra=here).status == 0
        assert world.run("ssh-add", "-l", extra=here).status != 0
    finally:
        agent.terminate()
        agent.wait()


def test_an_agent_that_is_not_the_users_is_refused(tmp_path: Path) -> None:
    """A missing socket, a plain file and another user's socket are refused; the user's own socket is granted alone."""
    path = tmp_path / "s"
    for environment, says in (({}, "is not set to a socket"), ({"SSH_AUTH_SOCK": str(path)}, "No such file")):
        with pytest.raises(Refusal, match=says):
            agent_entry(environment)
    path.write_text("x")
    with pytest.raises(Refusal, match="not a socket"):
        agent_entry({"SSH_AUTH_SOCK": str(path)})
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        entry = agent_entry({"SSH_AUTH_SOCK": str(path)})
        assert (entry.path, entry.source) == (str(path), str(path))
        link = tmp_path / "link"
        link.symlink_to(path)
        assert agent_entry({"SSH_AUTH_SOCK": str(link)}).source == str(path)
        os.chown(path, NOBODY, NOBODY)
        if os.geteuid() != NOBODY:
            with pytest.raises(Refusal, match="belongs to user"):
                agent_entry({"SSH_AUTH_SOCK": str(path)})


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("[core]\n\tpager = no-such-pager -x\n", False),
        ("[diff]\n\texternal = ~/bin/difftool\n", False),
        ("[pager]\n\tlog = false\n", True),
        ("[core]\n\tpager = cat\n", True),
    ],
)
def test_a_program_that_is_not_there_is_not_asked_for(tmp_path: Path, config: str, kept: bool) -> None:
    """A setting that names a missing program is left out with a warning, because git log and git diff would fail."""
    (tmp_path / ".gitconfig").write_text(config)
    made, warnings = entries(str(tmp_path), {"PATH": "/usr/bin:/bin"}, agent=False)
    assert bool(parse(made[0].content.decode())) == kept
    assert bool(warnings) != kept


def test_broken_and_endless_settings_are_told(tmp_path: Path) -> None:
    """Settings that git cannot read are left out, circular includes end, and special or huge files are not read."""
    config = tmp_path / ".gitconfig"
    config.write_text("[user\n")
    made, warnings = entries(str(tmp_path), {}, agent=False)
    assert (made, len(warnings)) == ([], 1)
    assert "line 1" in warnings[0]
    config.write_text(
        "[user]\n\tname = Ada\n[include]\n\tpath = .gitconfig\n\tpath = fifo\n\tpath = /dev/zero\n\tpath = big\n"
    )
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "big").write_bytes(b"#" * (1 << 20))
    made, warnings = entries(str(tmp_path), {}, agent=False)
    includes = [f"{FOLDER}/included-{number}" for number in range(INCLUDES_DEEP_MAX)]
    assert [entry.path for entry in made] == [*includes, str(config)]
    for entry, included in zip(made, [None, *includes], strict=True):
        following = [("include.path", included)] if included else []
        assert parse(entry.content.decode()) == [("user.name", "Ada"), *following]
    special = {f"{tmp_path}/{name} is left out: it is no file, too large, or one too many" for name in ("fifo", "big")}
    targets = (config, tmp_path / "fifo", "/dev/zero", tmp_path / "big")
    assert set(warnings) == special | {f"{path} is left out: it is included through too many files" for path in targets}


def test_an_include_cannot_show_other_files(tmp_path: Path) -> None:
    """A file without settings is not copied, even if git's settings include it or name it as a key."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n")
    (tmp_path / ".netrc").write_text("machine example.org login ada password secret\n")
    (tmp_path / ".gitconfig").write_text(
        "[include]\n\tpath = .ssh/id\n\tpath = .netrc\n[user]\n\tsigningKey = ~/.ssh/id\n[gpg]\n\tformat = ssh\n"
    )
    made, _ = entries(str(tmp_path), {}, agent=True)
    assert [entry.access for entry in made] == [COPY]
    assert not any(b"secret" in entry.content for entry in made)


def test_what_a_session_left_names_no_files(tmp_path: Path) -> None:
    """Settings in a folder that a sandbox can write count, but files elsewhere that they name are not copied."""
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "private").write_text("[a]\n\tb = secret\n")
    (project / "included").write_text(
        "[user]\n\tname = Ada\n[include]\n\tpath = ~/private\n[commit]\n\ttemplate = ~/private\n"
    )
    (tmp_path / "link").symlink_to("project/included")
    for name in ("project/included", "link"):
        (tmp_path / ".gitconfig").write_text(f"[include]\n\tpath = {name}\n")
        made, _ = entries(str(tmp_path), {}, agent=False, writable=(str(project),))
        assert b"Ada" in b"".join(entry.content for entry in made)
        assert b"secret" not in b"".join(entry.content for entry in made)
        made, _ = entries(str(tmp_path), {}, agent=False)  # the twin: elsewhere it is the user's own word
        assert b"secret" in b"".join(entry.content for entry in made)


def test_a_link_that_a_session_made_is_not_followed(tmp_path: Path) -> None:
    """A link in a folder of settings that an agent can write is not followed, for it could lead to a key."""
    folder = tmp_path / ".config/git"
    folder.mkdir(parents=True)
    (tmp_path / "key").write_text("secret")
    (folder / "ignore").symlink_to(tmp_path / "key")
    (folder / "config").write_text("[core]\n\texcludesFile = ~/.config/git/ignore\n")
    for writable, is_followed in (((str(tmp_path / ".config"),), False), ((), True)):
        made, warnings = entries(str(tmp_path), {}, agent=False, writable=writable)
        assert any(b"secret" in entry.content for entry in made) == is_followed
        assert bool(warnings) != is_followed


def test_what_the_settings_name_is_copied(tmp_path: Path) -> None:
    """Settings name copies of a template, a list of ignored files and certificates; a missing file stays named."""
    for name in ("t", "i", "c"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitconfig").write_text(
        "[commit]\n\ttemplate = ~/t\n[core]\n\texcludesFile = ~/i\n\tattributesFile = ~/gone\n"
        f'[http "https://x/"]\n\tsslCAInfo = {tmp_path}/c\n'
    )
    made, _ = entries(str(tmp_path), {}, agent=False)
    copies = {entry.path: entry.content for entry in made}
    pairs = dict(parse(copies.pop(f"{tmp_path}/.gitconfig").decode()))
    assert pairs["core.attributesfile"] == "~/gone"
    paths = [pairs["commit.template"], pairs["core.excludesfile"], pairs["http.https://x/.sslcainfo"]]
    assert [copies[path] for path in paths] == [b"t", b"i", b"c"]
    assert all(path.startswith(f"{FOLDER}/") for path in paths)


def test_another_file_instead_is_honoured(tmp_path: Path) -> None:
    """The file of GIT_CONFIG_GLOBAL is shown at the usual place, because the variable itself does not pass."""
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Usual\n")
    (tmp_path / "other").write_text("[user]\n\tname = Other\n")
    made, _ = entries(str(tmp_path), {"GIT_CONFIG_GLOBAL": f"{tmp_path}/other"}, agent=False)
    assert [(entry.path, b"Other" in entry.content) for entry in made] == [(f"{tmp_path}/.gitconfig", True)]
    assert entries(str(tmp_path), {"GIT_CONFIG_GLOBAL": "/dev/null"}, agent=False) == ([], [])
    assert not any(entry.access == LINK for entry in made)
