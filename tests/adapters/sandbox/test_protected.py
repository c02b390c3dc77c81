"""adapters/sandbox/protected.py: paths that a broad grant does not include."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_sandbox import NOBODY, Box, box

from omac.adapters.sandbox import protected
from omac.adapters.sandbox.protected import NAMES, SOCKETS, contains_protected, linked_entries, protected_entries
from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, PRIVATE, READ, WRITE, Entry, governing, ordered


@pytest.fixture(params=[0, NOBODY], ids=["root", "nobody"])
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a home and a project, once of root's and once of an unprivileged user's."""
    with box(request.param) as made:
        yield made


def test_a_socket_that_anybody_may_make_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to itself, or into a project, in the place of a socket in /tmp hinders no launch, and denies no more."""
    project = tmp_path / "project"
    project.mkdir()
    for target in ("socket", project):
        link = tmp_path / "socket"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        monkeypatch.setattr(protected, "SOCKETS", (str(link),))
        denied = protected_entries(str(tmp_path / "home"), [Entry(str(tmp_path), WRITE, "x")])
        assert [entry.path for entry in denied if entry.path != str(link)] == []


def test_files_of_an_agent_do_not_end_the_search_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that an agent has filled hides no socket of the host from the search: past its bound a grant is refused.

    Else an agent that may write in /tmp would meet the socket of tmux in its next launch.
    """
    monkeypatch.setattr(protected, "TEMPORARY", (str(tmp_path),))
    (tmp_path / "tmux-0").mkdir()
    for number in range(6_000):
        (tmp_path / str(number)).touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/tmux-0/default")
        denied = protected_entries("/nowhere", [Entry(str(tmp_path), WRITE, "x")])
        assert f"{tmp_path}/tmux-0" in [entry.path for entry in denied]
        monkeypatch.setattr(protected, "TEMPORARY_ENTRIES_MAX", 6_001)
        with pytest.raises(Refusal, match="too many to find the sockets") as caught:
            protected_entries("/nowhere", [Entry(str(tmp_path), WRITE, "x")])
        assert caught.value.reason == "policy-too-large"


def test_files_in_an_agents_own_folder_do_not_end_the_search_for_links(tmp_path: Path) -> None:
    """An agent that fills its own folder of settings does not keep those of other programs from being pinned."""
    home, project = tmp_path / "home", tmp_path / "dotfiles"
    project.mkdir()
    names = [f"program{number}" for number in range(20)]
    for name in names:
        (project / name).touch()
        (home / ".config" / name).mkdir(parents=True)
        (home / ".config" / name / "settings").symlink_to(project / name)
    (home / ".config/opencode").mkdir()
    for number in range(protected.SETTINGS_ENTRIES_MAX):
        (home / ".config/opencode" / str(number)).touch()
    entries, _ = linked_entries(str(home), [Entry(str(project), WRITE, "x")])
    assert {entry.path for entry in entries} == {str(project / name) for name in names}


def test_a_broad_grant_shows_no_credentials(world: Box) -> None:
    """A grant of the configuration folder includes no tokens, neither their names nor their contents."""
    world.give(world.home / ".config/gh/hosts.yml", "oauth_token: secret")
    world.give(world.home / ".config/tool/settings", "ordinary")
    world.give(world.home / ".config/git/credentials", "secret")
    script = "cat ~/.config/tool/settings; ls -A ~/.config/gh; cat ~/.config/gh/hosts.yml ~/.config/git/credentials"
    done = world.run("sh", "-c", script, options=("--read", str(world.home / ".config")))
    assert done.out == "ordinary"
    options = ("--read", str(world.home / ".config"), "--read", str(world.home / ".config/gh/hosts.yml"))
    assert world.run("cat", str(world.home / ".config/gh/hosts.yml"), options=options).out == "oauth_token: secret"


def test_a_link_to_credentials_leads_nowhere(world: Box) -> None:
    """The target of a link from a protected path into a granted folder is denied."""
    secret = world.give(world.home / "shared/keys/id", "secret")
    (world.home / ".ssh").symlink_to("shared/keys")
    script = f"cat {secret}; cat ~/shared/plain"
    world.give(world.home / "shared/plain", "ordinary")
    assert world.run("sh", "-c", script, options=("--read", str(world.home / "shared"))).out == "ordinary"
    (world.home / ".ssh").unlink()
    assert world.run("sh", "-c", script, options=("--read", str(world.home / "shared"))).out == "secretordinary"


def test_every_place_is_denied_below_the_home(tmp_path: Path) -> None:
    """A grant of the home, to read or to write, denies every protected path in it; without one nothing is denied."""
    home = tmp_path / "ada"
    for name in NAMES:
        (home / name).mkdir(parents=True, exist_ok=True)
    for access in (READ, WRITE):
        for grant in (home, tmp_path, Path("/")):
            denied = {entry.path for entry in protected_entries(str(home), [Entry(str(grant), access, "")])}
            assert denied >= {f"{home}/{name}" for name in NAMES}
    assert protected_entries(str(home), [Entry(str(home), PRIVATE, ""), Entry("/w", WRITE, "")]) == []


@pytest.mark.parametrize("path", ["/run/docker.sock", "/run/user", "/run/dbus", "/tmp/.X11-unix"])
def test_sockets_of_others_are_denied(path: str) -> None:
    """Sockets by which programs outside can be made to act are denied, unless a grant names them."""
    assert path in SOCKETS
    folder = os.path.dirname(path)
    assert path in {entry.path for entry in protected_entries("/home/ada", [Entry(folder, READ, "")])}
    entries = [Entry(folder, READ, ""), Entry(path, READ, "")]
    assert path not in {entry.path for entry in protected_entries("/home/ada", entries)}


@pytest.mark.parametrize(
    ("granted", "denied"),
    [
        ([".config"], True),
        ([".config/gh"], False),
        ([".config/gh/hosts.yml"], False),
        ([".config", ".config/gh"], False),
        (["project"], False),
    ],
)
def test_who_names_a_place_gets_it(tmp_path: Path, granted: list[str], denied: bool) -> None:
    """A grant of a protected path, or of a path in it, is valid; a grant of a folder around it does not include it."""
    home = str(tmp_path)
    (tmp_path / ".config/gh").mkdir(parents=True)
    entries = ordered([Entry(home, PRIVATE, ""), *(Entry(f"{home}/{path}", READ, "") for path in granted)])
    protected = protected_entries(home, entries)
    assert (f"{home}/.config/gh" in {entry.path for entry in protected}) == denied
    decides = governing(ordered([*entries, *protected]), f"{home}/.config/gh/hosts.yml")
    assert decides is not None
    assert (decides.access == DENY) == denied


def test_one_agents_login_is_not_anothers(tmp_path: Path) -> None:
    """The folders of every harness are protected; a session has only those of its own, which are named."""
    paths = {f"{tmp_path}/{path.rstrip('/')}" for harness in HARNESSES for path in harness.folders}
    for path in paths:
        Path(path).mkdir(parents=True)
    entries = [Entry(str(tmp_path), READ, ""), Entry(f"{tmp_path}/.claude", WRITE, "")]
    denied = {entry.path for entry in protected_entries(str(tmp_path), entries)}
    assert paths - denied == {f"{tmp_path}/.claude"}


@pytest.mark.parametrize(
    ("folder", "contains"),
    [
        ("/", True),
        ("/home", True),
        ("/home/ada", True),
        ("/home/ada/.config", True),
        ("/home/ada/.local/share", True),
        ("/home/ada/.ssh/deep", True),
        ("/home/ada/.local/share/claude/versions", False),
        ("/home/ada/.nvm", False),
        ("/opt/tool", False),
    ],
)
def test_a_folder_with_such_a_place_is_known(folder: str, contains: bool) -> None:
    """A folder around, at or in a protected path is recognized, whether it exists or not."""
    assert contains_protected(folder, "/home/ada") == contains
