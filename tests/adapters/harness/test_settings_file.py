"""adapters/harness/settings_file.py: files of agents are replaced whole, and never through a link of an agent."""

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from omac.adapters.harness.settings_file import BYTES_MAX, AgentFile, of_project, of_user, opened
from omac.domain.harness import claude, codex, opencode
from omac.domain.kernel.refusal import Refusal

CLAUDE, CODEX = ".claude/settings.json", ".codex/hooks.json"


def added(text: str | None) -> str:
    """Return the text with a visible addition."""
    return (text or "") + "added"


def change(file: AgentFile, edit: Callable[[str | None], str] = added) -> None:
    """Replace the file with the edit of its text."""
    with opened(file) as agent_file:
        agent_file.replace(edit(agent_file.text()).encode())


def refusal(file: AgentFile) -> Refusal:
    """Return the refusal of a change."""
    with pytest.raises(Refusal) as caught:
        change(file)
    return caught.value


def leftovers(folder: Path) -> list[str]:
    """Return the names in a folder beside the file."""
    return sorted(name for name in os.listdir(folder) if name not in ("settings.json", "hooks.json"))


def test_places(tmp_path: Path) -> None:
    """The path of each agent's settings is its default in the home, or the folder of its variable."""
    home = {"HOME": str(tmp_path)}
    moved = f"{tmp_path}/c"
    assert of_user(claude.HARNESS, CLAUDE, home).path == f"{tmp_path}/.claude/settings.json"
    assert of_user(codex.HARNESS, CODEX, home).path == f"{tmp_path}/.codex/hooks.json"
    assert of_user(claude.HARNESS, CLAUDE, {**home, "CLAUDE_CONFIG_DIR": moved}).path == f"{moved}/settings.json"
    assert of_user(codex.HARNESS, CODEX, {**home, "CODEX_HOME": moved}).path == f"{moved}/hooks.json"
    plugin = ".config/opencode/plugin/omac.ts"
    assert of_user(opencode.HARNESS, plugin, home).path == f"{tmp_path}/{plugin}"
    elsewhere = of_user(opencode.HARNESS, plugin, {**home, "XDG_CONFIG_HOME": moved})
    assert elsewhere.path == f"{moved}/opencode/plugin/omac.ts"
    assert of_project(CODEX, str(tmp_path)).path == f"{tmp_path}/.codex/hooks.json"


@pytest.mark.parametrize("project", [True, False])
def test_new(tmp_path: Path, project: bool) -> None:
    """A missing file is made, private if it is the user's own, and no other file stays beside it."""
    home = {"HOME": str(tmp_path)}
    file = of_project(CLAUDE, str(tmp_path)) if project else of_user(claude.HARNESS, CLAUDE, home)
    assert file.missing() == (file.path, file.folder)
    with opened(file) as agent_file:
        assert (agent_file.content, agent_file.text(), agent_file.digest) == (None, None, "")
    assert not os.path.exists(file.folder)
    change(file)
    assert Path(file.path).read_text() == "added"
    assert Path(file.path).stat().st_mode & 0o777 == (0o644 if project else 0o600)
    assert Path(file.folder).stat().st_mode & 0o777 == (0o755 if project else 0o700)
    assert leftovers(Path(file.folder)) == []
    assert file.missing() == ()
    with opened(file) as agent_file:
        agent_file.remove((file.folder,))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o400])
def test_there_already(tmp_path: Path, mode: int) -> None:
    """An existing file is replaced, and keeps its mode."""
    file = of_project(CLAUDE, str(tmp_path))
    path = Path(file.path)
    path.parent.mkdir()
    path.write_text("mine ")
    path.chmod(mode)
    before = path.stat()
    change(file)
    assert path.read_text() == "mine added"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.stat().st_ino != before.st_ino
    assert leftovers(path.parent) == []


@pytest.mark.parametrize(
    ("content", "says"), [(b"\xff", "UTF-8"), (b" " * (BYTES_MAX + 1), "4 MiB")], ids=["bytes", "big"]
)
def test_malformed(tmp_path: Path, content: bytes, says: str) -> None:
    """A malformed file is refused, and left as it is."""
    file = of_project(CLAUDE, str(tmp_path))
    Path(file.folder).mkdir()
    Path(file.path).write_bytes(content)
    refused = refusal(file)
    assert (refused.reason, says in refused.message, file.path in refused.message) == ("settings-invalid", True, True)
    assert Path(file.path).read_bytes() == content
    assert leftovers(Path(file.folder)) == []


def test_a_link_of_the_user(tmp_path: Path) -> None:
    """A user's link to another file in the home stays, and that file is changed; a link out of the home is refused."""
    home = tmp_path / "home"
    real = home / "dotfiles" / "claude.json"
    real.parent.mkdir(parents=True)
    real.write_text("mine ")
    link = home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to("../dotfiles/claude.json")
    environment = {"HOME": str(home)}
    change(of_user(claude.HARNESS, CLAUDE, environment))
    assert link.is_symlink()
    assert real.read_text() == "mine added"
    real.unlink()
    with pytest.raises(Refusal, match="which does not exist"):
        of_user(claude.HARNESS, CLAUDE, environment)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "settings.json").write_text("{}")
    link.unlink()
    link.symlink_to(outside / "settings.json")
    with pytest.raises(Refusal, match="within the home only") as caught:
        of_user(claude.HARNESS, CLAUDE, environment)
    assert caught.value.reason == "unsafe-link"
    link.unlink()
    link.parent.rmdir()
    link.parent.symlink_to(outside)
    with pytest.raises(Refusal, match="within the home only"):
        of_user(claude.HARNESS, CLAUDE, environment)
    assert of_user(claude.HARNESS, CLAUDE, {**environment, "CLAUDE_CONFIG_DIR": str(outside)}).folder == str(outside)


def test_a_home_that_is_a_link(tmp_path: Path) -> None:
    """A home that is a link counts as the folder that it leads to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    file = of_user(claude.HARNESS, CLAUDE, {"HOME": str(tmp_path / "home")})
    assert file.path == f"{tmp_path}/real/.claude/settings.json"


def test_links_of_a_project(tmp_path: Path) -> None:
    """Links of a project are refused, for the file and for its folder, because an agent may have made them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "settings.json").write_text("{}")
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").symlink_to(outside / "settings.json")
    file = of_project(CLAUDE, str(project))
    assert "is a link" in refusal(file).message
    (project / ".claude" / "settings.json").unlink()
    (project / ".claude").rmdir()
    (project / ".claude").symlink_to(outside)
    assert "in a folder that is a link" in refusal(file).message
    assert (outside / "settings.json").read_text() == "{}"


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe and a folder in place of the file are refused, without waiting."""
    file = of_project(CLAUDE, str(tmp_path))
    Path(file.folder).mkdir()
    os.mkfifo(file.path)
    refused = refusal(file)
    assert ("not a regular file" in refused.message, refused.fix) == (True, (f"ls -ld {file.folder} {file.path}",))
    os.unlink(file.path)
    os.mkdir(file.path)
    assert refusal(file).reason in ("settings-invalid", "state-unusable")
    os.rmdir(file.path)
    change(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses(tmp_path: Path) -> None:
    """A file of another user is refused, and not replaced."""
    file = of_user(claude.HARNESS, CLAUDE, {"HOME": str(tmp_path)})
    Path(file.folder).mkdir()
    Path(file.path).write_text("{}")
    os.chown(file.path, 65534, 65534)
    assert "belongs to user 65534" in refusal(file).message
    os.chown(file.path, 0, 0)
    change(file)


def replaced_meanwhile(file: AgentFile, verb: str) -> None:
    """Have the agent write the file between omac's reading and its writing."""

    def act() -> None:
        with opened(file) as agent_file:
            Path(file.folder).mkdir(exist_ok=True)
            Path(file.path).write_text("theirs")
            if verb == "replace":
                agent_file.replace(b"ours")
            else:
                agent_file.remove(())

    with pytest.raises(Refusal, match="just now") as caught:
        act()
    assert caught.value.reason == "contention"
    assert Path(file.path).read_text() == "theirs"


def test_changed_meanwhile(tmp_path: Path) -> None:
    """A file that the agent writes between omac's reading and its replacing is not lost."""
    file = of_project(CLAUDE, str(tmp_path))
    Path(file.folder).mkdir()
    Path(file.path).write_text("{}")

    replaced_meanwhile(file, "replace")
    Path(file.path).write_text("{}")
    replaced_meanwhile(file, "remove")
    Path(file.path).unlink()
    replaced_meanwhile(file, "replace")
    assert leftovers(Path(file.folder)) == []
    change(file)


def test_made_meanwhile(tmp_path: Path) -> None:
    """A file that the agent makes meanwhile, with its folder, is not lost."""
    file = of_project(CLAUDE, str(tmp_path))
    replaced_meanwhile(file, "replace")


def test_a_folder_that_goes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that another omac removes as soon as it is made, as the last hook goes, is named in the refusal."""
    file = of_project(CLAUDE, str(tmp_path))
    mkdir = os.mkdir

    def then_removed(path: str, mode: int) -> None:
        mkdir(path, mode)
        os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", then_removed)
    refused = refusal(file)
    assert (refused.reason, file.folder in refused.message) == ("state-unusable", True)


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change by another omac is waited for up to a bound, and then refused."""
    monkeypatch.setattr("omac.adapters.files.lock.OPENED_WAIT_S", 0.05)
    file = of_project(CLAUDE, str(tmp_path))
    Path(file.folder).mkdir()
    held = os.open(file.folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert refusal(file).reason == "contention"
    os.close(held)
    change(file)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A folder that cannot be made is named in the refusal."""
    (tmp_path / "home").touch()
    refused = refusal(of_user(claude.HARNESS, CLAUDE, {"HOME": str(tmp_path / "home")}))
    assert refused.reason in ("settings-invalid", "state-unusable")
    assert f"{tmp_path}/home/.claude" in refused.message
