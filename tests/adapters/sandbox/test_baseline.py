"""adapters/sandbox/baseline.py: a sandbox's view of the system, and of the files of its harness."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_sandbox import NOBODY, USERS, Box, box

from omac.adapters.sandbox import baseline
from omac.adapters.sandbox.baseline import exposed, harness_entries, placed, readable, system_entries, uncovered
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import HARNESSES, harness_named
from omac.domain.kernel.paths import below
from omac.domain.sandbox.confinement import DENY, LINK, PRIVATE, READ, WRITE, Entry, governing


@pytest.fixture(params=USERS, ids=lambda uid: "nobody" if uid else "root")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a home and a project, once of root's and once of an unprivileged user's."""
    with box(request.param) as made:
        yield made


def test_the_system_is_there_and_stays_as_it_is(world: Box) -> None:
    """Programs run, names and zones resolve, and nothing of the system can be changed."""
    script = (
        "set -e; /bin/ls / >/dev/null; test -r /etc/passwd; readlink -f /etc/localtime /etc/resolv.conf >/dev/null;"
        "cat /etc/resolv.conf >/dev/null; ! touch /usr/x /etc/x /x 2>/dev/null; ls -A /tmp ~ /run"
    )
    done = world.run("sh", "-c", script)
    assert done.status == 0, done.err
    names = done.out.split()
    assert "project" in names
    assert world.top.name not in os.listdir("/proc/self")  # a name of ours
    assert set(os.listdir("/tmp")) - set(names)  # the host's is another


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what only root may read")
def test_what_only_root_may_read_stays_unread_by_root() -> None:
    """A sandbox denies root passwords and host keys, which it could open as their owner without any capability."""
    with open("/etc/shadow", "rb") as file:
        assert file.read()  # the twin: as root, outside
    with box(0) as world:
        done = world.run("sh", "-c", "cat /etc/shadow || ls /etc/ssl/private; cat /etc/passwd >/dev/null && echo fine")
    assert "fine" in done.out
    assert "root:" not in done.out
    denied = {entry.path for entry in system_entries({}, 0) if entry.access == DENY}
    assert "/etc/shadow" in denied
    assert not {entry.path for entry in system_entries({}, NOBODY) if entry.access == DENY}
    assert not any(os.stat(path).st_mode & 0o004 for path in denied)


DEEP = """\
mount -t tmpfs tmpfs /usr/local/etc && cd /usr/local/etc && mkdir -p tool/main tool/closed && chmod 700 tool/closed
echo hidden > tool/main/key; chmod 600 tool/main/key; echo hidden > tool/closed/key; echo fine > tool/main/conf
cd "$1"; shift; exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what only root may read")
def test_what_only_root_may_read_deeper_down() -> None:
    """A sandbox of root shows no file below a folder of settings that other users may not read, and those beside it."""
    with box(0) as world:
        line = world.omac("sandbox", "run", "--", "grep", "-rhs", ".", "/usr/local/etc")
        done = world.host("unshare", "--mount", "sh", "-c", DEEP, "sh", str(world.workdir), *line)
    assert done.out == "fine\n", done


def test_settings_of_the_system_that_were_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound of a search, folders are denied as a whole, the deepest."""
    for path in ("a/b/c", "d"):
        (tmp_path / path).mkdir(parents=True, mode=0o755)
    monkeypatch.setattr(baseline, "SETTINGS_OF_SYSTEM", (str(tmp_path), str(tmp_path / "missing")))
    assert not any(entry.access == DENY for entry in system_entries({}, 0))
    monkeypatch.setattr(baseline, "ENTRIES_MAX", 3)
    assert [entry.path for entry in system_entries({}, 0) if entry.access == DENY] == [str(tmp_path / "a/b")]


def test_home_and_temporary_folders_are_its_own(world: Box) -> None:
    """The home's files are missing inside, and files written to /tmp, /run or the home are gone with the sandbox."""
    world.give(world.home / ".ssh/id_ed25519", "private")
    world.give(world.home / ".cache/x", "cached")
    left = (world.home / ".bashrc", Path("/tmp/omac-left"), Path("/run/omac-left"))
    script = "cat ~/.ssh/id_ed25519 ~/.cache/x; for path; do echo a > $path; cat $path; done"
    done = world.run("sh", "-c", script, "sh", *map(str, left))
    assert done.out == "a\n" * 3
    assert not [path for path in left if path.exists()]
    done = world.run("sh", "-c", "cat ~/.ssh/id_ed25519", options=("--read", str(world.home / ".ssh")))
    assert done.out == "private"  # the twin: who names it gets it


def test_certificates_that_variables_name_can_be_read(world: Box) -> None:
    """A certificate that a variable names is readable wherever it is, as programs behind a company's proxy need it."""
    file = world.give(world.home / "ca/ours.pem", "CERT")
    done = world.run("sh", "-c", 'cat "$SSL_CERT_FILE"; ls ~/ca', extra={"SSL_CERT_FILE": str(file)})
    assert done.out == "CERTours.pem\n"
    assert world.run("cat", str(file)).status != 0  # the twin: without the variable


def test_a_harness_keeps_its_login(world: Box) -> None:
    """Files that a harness writes to its own folders stay after the session; nothing else stays there."""
    script = "echo token > ~/.claude/.credentials.json; echo '{\"a\":1}' > ~/.claude.json"
    assert world.run("sh", "-c", script, options=("--harness", "claude")).status == 0
    assert (world.home / ".claude/.credentials.json").read_text() == "token\n"
    assert json.loads((world.home / ".claude.json").read_text()) == {"a": 1}
    assert sorted(os.listdir(world.home / ".claude")) == [".credentials.json"]


def test_a_harness_that_wrote_nothing_leaves_nothing(world: Box) -> None:
    """Folders and files that omac makes in order to pin them are gone after the session."""
    for harness in HARNESSES:
        assert world.run("true", options=("--harness", harness.name)).status == 0
    assert sorted(set(os.listdir(world.home)) - {".cache"}) == ["project"]


@pytest.mark.parametrize(("name", "file"), [("copilot", ".copilot/mcp-config.json"), ("pi", ".pi/agent/mcp.json")])
def test_a_list_of_servers_that_a_harness_lacks_is_empty(name: str, file: str) -> None:
    """A file of tool servers that is made for a session is one that the agent takes without a complaint."""
    with box(NOBODY) as world:
        done = world.run("sh", "-c", f"cat ~/{file}", options=("--harness", name))
    assert json.loads(done.out) == {"mcpServers": {}}


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_what_runs_code_later_cannot_be_planted(harness: Harness) -> None:
    """A session can neither change nor create a file that runs code later, nor move it away with its folder."""
    with box(NOBODY) as world:
        for relpath in harness.folders:
            (world.home / relpath).parent.mkdir(parents=True, exist_ok=True)
            if relpath.endswith("/"):
                (world.home / relpath).mkdir()
        pinned = [relpath for relpath in harness.pinned if "*" not in relpath]
        existing = next(
            relpath for relpath in pinned if not relpath.endswith(("/", "/.gitignore")) or "bin/" in relpath
        )
        if not existing.endswith("/"):
            world.give(world.home / existing, "{}\n")
        for file in world.home.rglob("*"):
            os.chown(file, NOBODY, NOBODY)
        before = _files(world.home)
        plants = []
        for relpath in (*pinned, *harness.added_to, *harness.apart):
            path = f"~/{relpath.rstrip('/')}"
            plants.append(f"echo evil > {path}; mkdir -p {path}; echo evil > {path}/evil.json; mv {path} {path}.old;")
            plants.append(f"rm -rf {path}; ln -s /tmp {path};")
        own = f"~/{harness.folders[0]}"
        done = world.run(
            "sh", "-c", f"{' '.join(plants)} echo kept > {own}/kept; ls -a ~", options=("--harness", harness.name)
        )
        after = _files(world.home)
        assert after.pop(str(world.home / harness.folders[0] / "kept")) == b"kept\n", done.err  # the twin
        assert after == before


def test_a_profile_of_settings_cannot_be_changed(world: Box) -> None:
    """Settings that Codex reads for a `--profile` of the person can be read, and neither changed nor replaced; so can
    a script that they name. Other files beside them can be changed."""
    hook = world.give(world.home / ".codex/notify.sh", "#!/bin/sh\n")
    profile = world.give(world.home / ".codex/work.config.toml", f'notify = ["{hook}"]\n')
    script = (
        "cat ~/.codex/work.config.toml; cd ~/.codex; for file in work.config.toml notify.sh history.jsonl; do "
        "echo evil > $file; mv $file $file.old; done"
    )
    done = world.run("sh", "-c", script, options=("--harness", "codex"))
    assert done.out == profile.read_text() == f'notify = ["{hook}"]\n', done
    assert hook.read_text() == "#!/bin/sh\n"
    assert (world.home / ".codex/history.jsonl.old").read_text() == "evil\n"  # the twin


def test_of_many_profiles_the_oldest_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound of pinned files, those that a session made later are left out."""
    monkeypatch.setattr(baseline, "ITEMS_MAX", 1)
    (tmp_path / ".codex").mkdir()
    old, new = (tmp_path / f".codex/{name}.config.toml" for name in ("work", "a"))
    old.touch()
    while not new.exists() or new.stat().st_ctime_ns == old.stat().st_ctime_ns:
        new.touch()
    entries, _ = harness_entries(harness_named("codex"), str(tmp_path), {})
    assert [entry.path for entry in entries if entry.path.endswith(".config.toml")] == [str(old)]


def test_a_variable_moves_what_a_harness_keeps(world: Box) -> None:
    """A variable such as CODEX_HOME moves the folder that is granted and pinned; the usual one is not there."""
    elsewhere = world.give(world.top / "elsewhere/codex/auth.json", "login").parent
    world.give(world.home / ".codex/auth.json", "old")
    script = 'cat "$CODEX_HOME/auth.json"; echo x > "$CODEX_HOME/config.toml" || echo pinned; ls ~/.codex'
    done = world.run(
        "sh", "-c", script, options=("--harness", "codex", "--env", "CODEX_HOME"), extra={"CODEX_HOME": str(elsewhere)}
    )
    assert done.out == "loginpinned\n"
    assert sorted(os.listdir(elsewhere)) == ["auth.json"]


def test_what_a_client_adds_is_gone_with_the_session(world: Box) -> None:
    """Codex can add its own skills at every start, but a session leaves none behind and changes none of the user's."""
    world.give(world.home / ".codex/skills/mine/SKILL.md", "mine")
    world.give(world.home / ".codex/skills/.system/x", "old")
    script = "cd ~/.codex/skills; rm -rf .system; mkdir .system evil; echo new > .system/x; cat .system/x mine/SKILL.md"
    done = world.run("sh", "-c", f"{script}; echo x > mine/SKILL.md; rm -rf mine; ls", options=("--harness", "codex"))
    assert done.out == "new\nmineevil\nmine\n"
    assert (world.home / ".codex/skills/.system/x").read_text() == "old"
    assert (world.home / ".codex/skills/mine/SKILL.md").read_text() == "mine"
    assert sorted(os.listdir(world.home / ".codex/skills")) == [".system", "mine"]


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("claude", ".claude/shell-snapshots/snapshot-bash-1.sh"),
        ("codex", ".codex/tmp/arg0/codex-arg0x/git"),
        ("opencode", ".local/share/opencode/snapshot/p/config"),
    ],
)
def test_what_another_session_runs_at_this_moment(world: Box, name: str, script: str) -> None:
    """A session neither sees nor changes scripts of an agent outside; its own are gone when it ends."""
    theirs = world.give(world.home / script, "theirs")
    own = theirs.with_name("own")
    folder = "/".join(script.split("/")[:-1])
    done = world.run(
        "sh", "-c", f"cd; cat {script}; mkdir -p {folder}; echo evil > {script}; echo own > {own}; cat {own}",
        options=("--harness", name),
    )  # fmt: skip
    assert done.out == "own\n"
    assert theirs.read_text() == "theirs"
    assert not own.exists()


def test_a_folder_behind_a_link_is_found(world: Box) -> None:
    """A harness's folder may be a link to another folder of the home; the link works inside too."""
    target = world.give(world.home / "dotfiles/claude/settings.json", "{}").parent
    (world.home / ".claude").symlink_to("dotfiles/claude")
    done = world.run(
        "sh", "-c", "echo x > ~/.claude/x && ls ~/.claude/; ls ~/dotfiles", options=("--harness", "claude")
    )
    assert "x" in done.out.split()
    assert "claude" in done.out.split()
    assert (target / "x").read_text() == "x\n"


def test_a_link_that_a_session_could_have_made_is_not_followed(tmp_path: Path) -> None:
    """A link that a session could have made is not followed, as it could lead to any file of the user's by now. omac
    warns about it, since no mount can hold it in its place."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to("../.ssh")
    entries, warnings = harness_entries(harness_named("claude"), str(tmp_path), {})
    assert not any(".ssh" in entry.path for entry in entries)
    assert len(warnings) == 1
    assert "skills is a link" in warnings[0]
    (tmp_path / ".claude/skills").unlink()
    assert harness_entries(harness_named("claude"), str(tmp_path), {})[1] == []


def test_nothing_is_made_outside_the_home(tmp_path: Path) -> None:
    """A link in the home, or a variable, that leads to a missing folder elsewhere makes no folder there."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".codex").symlink_to(tmp_path / "away/codex")
    for variables in ({}, {"CODEX_HOME": str(tmp_path / "away/codex")}):
        entries, _ = harness_entries(harness_named("codex"), str(home), variables)
        assert entries == []
    assert list(tmp_path.iterdir()) == [home]


ENTRIES = [Entry("/w", WRITE, ""), Entry("/h", PRIVATE, ""), Entry("/h/no", DENY, ""), Entry("/u", READ, "")]


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        (Entry("/opt/tool", READ, ""), True),
        (Entry("/h/tool", READ, ""), True),
        (Entry("/w/node_modules", READ, ""), False),  # it would pin what the person may change
        (Entry("/h/no/tool", READ, ""), False),  # it would show what the person denied
        (Entry("/u/lib", READ, ""), False),
        (Entry("/u/secret", DENY, ""), True),
        (Entry("/h/link", LINK, "", target="x"), True),
        (Entry("/u/link", LINK, "", target="x"), False),
    ],
)
def test_what_omac_grants_by_itself_yields_to_what_was_said(entry: Entry, kept: bool) -> None:
    """An entry of omac's own neither narrows a grant of the user's nor opens a denial."""
    assert [added.path for added in uncovered(ENTRIES, [entry])] == [entry.path] * kept


def test_omac_within_reach_is_told() -> None:
    """A warning names omac's own files in a folder that the program may write; elsewhere they are out of reach."""
    own = [Entry("/w/.venv", READ, ""), Entry("/opt/omac", READ, ""), Entry("/w/l", LINK, "", target="x")]
    assert ["/w/.venv" in warning for warning in exposed(own, ENTRIES)] == [True]


def test_certificates_are_no_way_into_the_home(tmp_path: Path) -> None:
    """A certificate variable that names the home, or a folder around it, shows nothing."""
    (tmp_path / "ca").mkdir()
    for path, expected in (
        ("", False),
        (".", False),
        ("..", False),
        ("ca", True),
        ("gone:" + str(tmp_path) + "/ca", True),
    ):
        entries = system_entries({"HOME": str(tmp_path), "SSL_CERT_DIR": f"{tmp_path}/{path}"}, NOBODY)
        assert [entry.path for entry in entries if below(entry.path, str(tmp_path.parent))] == [
            f"{tmp_path}/ca"
        ] * expected


def test_certificates_behind_a_link_of_the_projects_are_not_shown(tmp_path: Path) -> None:
    """A certificate's link in a writable folder is not followed, as a session could point it at a key; others are."""
    (tmp_path / "key").write_text("secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/ca.pem").symlink_to("../key")
    variables = {"HOME": str(tmp_path), "SSL_CERT_FILE": f"{tmp_path}/project/ca.pem"}
    for writable, expected in ((f"{tmp_path}/project", False), ("/w", True)):
        entries = system_entries(variables, NOBODY, (writable,))
        assert (f"{tmp_path}/key" in {entry.path for entry in entries}) == expected


def test_links_in_folders_that_are_shown_need_no_entry() -> None:
    """A link in a folder that is shown gets no entry: it is there, and making it again would fail."""
    links = [Entry("/w/l", LINK, "", target="x"), Entry("/h/l", LINK, "", target="x")]
    assert placed([*ENTRIES, *links])[-1].path == "/h/l"
    assert len(placed([*ENTRIES, *links])) == len(ENTRIES) + 1


def test_every_link_on_the_way_is_told(tmp_path: Path) -> None:
    """Each link on the way to a file gets an entry, through `..` and further links; a missing file gets none."""
    (tmp_path / "real/dir").mkdir(parents=True)
    (tmp_path / "real/dir/file").write_text("x")
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one/dir")
    entries = readable(str(tmp_path / "two/../dir/./file"), "")
    assert [(entry.path, entry.target) for entry in entries[:-1]] == [
        (str(tmp_path / "two"), str(tmp_path / "one/dir")),
        (str(tmp_path / "one"), "real"),
    ]
    assert (entries[-1].path, entries[-1].access) == (str(tmp_path / "real/dir/file"), READ)
    assert readable(str(tmp_path / "gone"), "") == []


def test_the_entries_decide_as_they_say() -> None:
    """The system's entries name each path once, and the deepest entry on the way to a path decides about it."""
    entries = system_entries(dict(os.environ), 0)
    assert len({entry.path for entry in entries}) == len(entries)
    shadow = governing(entries, "/etc/shadow")
    assert shadow is not None
    assert shadow.access == DENY


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, and the target of every link; leave out caches."""
    contents = {}
    for path in folder.rglob("*"):
        if ".cache" not in path.parts:
            contents[str(path)] = (
                os.readlink(path).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
            )
    return contents
