"""adapters/sandbox/profile.py: a user's files that list the grants and settings of a sandbox."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_sandbox import NOBODY, box
from tiers import examples

from omac.adapters.sandbox.profile import FOLDER, read
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.request import SandboxRequest

FULL = {
    "allow": ["~/data"],
    "read": ["$TOOLS/sdk", "${TOOLS}", "/usr/share"],
    "deny": ["~/data/keys"],
    "deny_names": ["*.pem"],
    "allow_env_files": True,
    "env": {"A": "1", "B": True},
    "network": "none",
    "open_ports": [3000, 65535],
    "backend": "bubblewrap",
    "limits": {"pids": 500, "memory": "4G", "cpu": 1.5, "files": 4096},
    "git": {"hooks": "read", "refs": "branch"},
    "cache": {"redirect_xdg": True},
}
FULL_TOML = """
allow = ["~/data"]
read = ["$TOOLS/sdk", "${TOOLS}", "/usr/share"]
deny = ["~/data/keys"]
deny_names = ["*.pem"]
allow_env_files = true
env = { A = "1", B = true }
network = "none"
open_ports = [3000, 65535]
backend = "bubblewrap"
[limits]
pids = 500
memory = "4G"
cpu = 1.5
files = 4096
[git]
hooks = "read"
refs = "branch"
[cache]
redirect_xdg = true
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create a home with a folder of profiles, a project, data and tools."""
    made = tmp_path / "home"
    for folder in (f".config/omac/{FOLDER}", "project", "data/keys", "tools/sdk"):
        (made / folder).mkdir(parents=True)
    return made


def _write(home: Path, name: str, text: str) -> Path:
    path = home / ".config/omac" / FOLDER / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(("name", "text"), [("x.toml", FULL_TOML), ("x.json", json.dumps(FULL))])
def test_both_forms_say_the_same(home: Path, name: str, text: str) -> None:
    """Profiles in TOML and JSON mean the same, by name and by path, with home and variables filled in."""
    path = _write(home, name, text)
    for reference in ("x", str(path)):
        request = read(reference, {"TOOLS": str(home / "tools")}, str(home), str(home / "project"))
        assert request.allow == [str(home / "data")]
        assert request.read == [str(home / "tools/sdk"), str(home / "tools"), "/usr/share"]
        assert request.deny == [str(home / "data/keys")]
        assert (request.deny_names, request.allow_env_files) == (["*.pem"], True)
        assert request.env == ["A=1", "B"]
        assert (request.network, request.backend, request.open_ports) == ("none", "bubblewrap", [3000, 65535])
        assert request.limits == {"pids": 500, "memory": 4 * 2**30, "cpu": 1.5, "files": 4096}
        assert (request.git_hooks, request.git_refs, request.redirect_xdg) == ("read", "branch", True)
        assert request.warnings == []


@pytest.mark.parametrize("text", ["", "# nothing", 'env = ["A", "B=2"]'])
def test_what_is_not_said_stays_open(home: Path, text: str) -> None:
    """Keys that a profile leaves out stay open, for flags and settings to decide."""
    _write(home, "x.toml", text)
    request = read("x", {}, str(home), str(home / "project"))
    assert (request.network, request.backend, request.git_hooks, request.git_refs, request.redirect_xdg) == (
        "",
        "",
        "",
        "",
        False,
    )
    assert request.env == (["A", "B=2"] if "env" in text else [])
    assert (request.allow, request.open_ports, request.limits) == ([], [], {})


def test_paths_that_are_not_there_are_told(home: Path) -> None:
    """A missing path is skipped with a warning, as a profile serves several machines; a denial of it stays."""
    _write(home, "x.toml", 'allow = ["~/gone"]\nread = ["$NOTHING/x", "~/data"]\ndeny = ["~/later"]')
    request = read("x", {}, str(home), str(home / "project"))
    assert (request.allow, request.read, request.deny) == ([], [str(home / "data")], [str(home / "later")])
    assert len(request.warnings) == 2


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.toml", "a = \n", "line 1"),
        ("x.toml", "read = ['a']\nalow = []\n", r":2: unknown key alow; did you mean allow\?"),
        ("x.toml", "[git]\n\nhook = 'read'\n", r":3: unknown key git.hook; did you mean hooks\?"),
        ("x.toml", "network = 'filtered'", ":1: network takes host or none, not filtered"),
        ("x.toml", "network = true", "not bool"),
        ("x.toml", "\nopen_ports = [0]", ":2: open_ports takes"),
        ("x.toml", "open_ports = [true]", "open_ports takes"),
        ("x.toml", 'open_ports = ["9-8"]', "and ranges"),
        ("x.toml", "open_ports = 3000", "open_ports takes"),
        ("x.toml", "allow = '~/x'", "takes a list of texts"),
        ("x.toml", "allow = ['data']", "begins with /, ~/"),
        ("x.toml", "allow = ['']", "takes a list of texts"),
        ("x.toml", "env = { A = 1 }", "takes a text, or true"),
        ("x.toml", "git = 1", "git is a table"),
        ("x.toml", "[limits]\npids = 'many'", ":2: "),
        ("x.toml", "[limits]\npids = true", ":2: limits.pids takes a number"),
        ("x.toml", "[limits]\nmemory = '1G,cpu=1'", "limits.memory takes"),
        ("x.toml", "[cache]\nredirect_xdg = 'yes'", ":2: cache.redirect_xdg takes true or false"),
        ("x.toml", "x = " + "[" * 2000, "profiles/x.toml"),
        ("x.json", "{", r"x.json:1: .* column"),
        ("x.json", '{\n  "netwrk": "none"\n}', ":2: unknown key netwrk"),
        ("x.json", '{"read": [], "read": []}', "given twice"),
        ("x.json", r'{"read": ["/\ud800"]}', "takes a list of texts"),
        ("x.json", "[]", "not a table of settings"),
        ("x.json", "[" * 100_000, "larger than|nested too deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(home: Path, name: str, text: str, says: str) -> None:
    """A refusal names the file, the line if there is one, a likely correction, and a command for the file."""
    path = _write(home, name, text)
    with pytest.raises(Refusal, match=says) as caught:
        read("x", {}, str(home), str(home / "project"))
    assert caught.value.reason == "settings-invalid"
    assert any(str(path) in fix for fix in caught.value.fix)


def test_a_name_that_is_not_there_is_answered_with_those_that_are(home: Path) -> None:
    """The refusal of an unknown profile lists the profiles that exist and suggests a similar name."""
    _write(home, "work.toml", "")
    with pytest.raises(Refusal, match=r"no profile named wrok.*did you mean work\?"):
        read("wrok", {}, str(home), str(home / "project"))
    with pytest.raises(Refusal, match=r"known: work"):
        read("zzz", {}, str(home), str(home / "project"))
    with pytest.raises(Refusal, match="cannot be read: No such file"):
        read("./zzz.toml", {}, str(home), str(home / "project"))
    elsewhere = home / "elsewhere/omac" / FOLDER
    elsewhere.mkdir(parents=True)
    (elsewhere / "work.json").write_text('{"network": "none"}')
    (elsewhere / "work.json").chmod(0o600)
    assert (
        read("work", {"XDG_CONFIG_HOME": str(home / "elsewhere")}, str(home), str(home / "project")).network == "none"
    )


def test_the_first_profile_gets_its_folder(home: Path) -> None:
    """The proposed commands work where no profile has ever been: they make the folder."""
    environment = {"XDG_CONFIG_HOME": str(home / "none"), "EDITOR": "touch", "PATH": os.environ["PATH"]}
    inside = home / "project/p.toml"
    inside.touch(0o600)
    for name in ("work", str(inside)):
        with pytest.raises(Refusal) as caught:
            read(name, environment, str(home), str(home / "project"))
        subprocess.run(["sh", "-c", caught.value.fix[0]], env=environment, check=True)
        (home / "none/omac" / FOLDER / f"{Path(name).stem}.toml").unlink()
        (home / "none/omac" / FOLDER).rmdir()


def test_no_profile_comes_from_the_project(home: Path) -> None:
    """The project, where an agent writes, has no profiles: no file in it, no link in it and no link into it counts."""
    project = home / "project"
    inside = project / "p.toml"
    inside.write_text("network = 'host'")
    inside.chmod(0o600)
    outside = _write(home, "good.toml", "network = 'none'")
    (project / "link.toml").symlink_to(outside)
    (outside.parent / "bad.toml").symlink_to(inside)
    for name in (str(inside), str(project / "link.toml"), f"{project}/../project/p.toml", "bad"):
        with pytest.raises(Refusal, match="an agent may have written it"):
            read(name, {}, str(home), str(project))
    assert read("good", {}, str(home), str(project)).network == "none"  # the twin
    assert read(str(inside), {}, str(home), str(home / "data")).network == "host"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_others_do_not_decide(home: Path, mode: int) -> None:
    """A profile that another user owns or can write is refused."""
    path = _write(home, "x.toml", "")
    assert read("x", {}, str(home), str(home / "project")).allow == []
    path.chmod(mode)
    with pytest.raises(Refusal, match="is writable by other users") as caught:
        read("x", {}, str(home), str(home / "project"))
    assert caught.value.fix == (f"chmod 600 {path}",)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        with pytest.raises(Refusal, match="belongs to user"):
            read("x", {}, str(home), str(home / "project"))


@pytest.mark.parametrize("made", ["fifo", "folder", "large"])
def test_what_is_no_ordinary_file_is_refused_at_once(home: Path, made: str) -> None:
    """A profile that is a FIFO, a folder or too large is refused without waiting and without endless reading."""
    path = home / ".config/omac" / FOLDER / "x.toml"
    match made:
        case "fifo":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir()
        case _:
            path.write_text("#" * 100_000)
            path.chmod(0o600)
    with pytest.raises(Refusal, match=r"it is not a regular file|it is larger than 65536 bytes"):
        read("x", {}, str(home), str(home / "project"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("\ud800"), st.lists, max_leaves=4
    )
)
@settings(max_examples=examples(60))
def test_any_value_is_understood_or_refused(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    """Any value of any key yields a request or a refusal."""
    top = tmp_path_factory.mktemp("profile")
    for key in FULL:
        path = top / f"{key}.json"
        path.write_text(json.dumps({key: value}))
        path.chmod(0o600)
        with contextlib.suppress(Refusal):
            assert isinstance(read(str(path), {}, str(top), "/nowhere"), SandboxRequest)


def test_flags_come_after_the_profile() -> None:
    """A profile takes effect in a real sandbox, and a flag widens or changes it."""
    with box(NOBODY) as world:
        world.give(world.home / "data/x", "data")
        world.give(world.home / "more/x", "more")
        text = 'read = ["~/data"]\nenv = { A = "1" }\n'
        world.give(world.home / f".config/omac/{FOLDER}/work.toml", text)
        script = 'cat ~/data/x; echo "$A"; cat ~/more/x'
        assert world.run("sh", "-c", script, options=("--profile", "work")).out == "data1\n"
        more = ("--profile", "work", "--env", "A=2", "--read", str(world.home / "more"))
        assert world.run("sh", "-c", script, options=more).out == "data2\nmore"
