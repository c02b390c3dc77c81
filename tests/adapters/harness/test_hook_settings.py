"""adapters/harness/hook_settings.py: the files of agents, replaced whole, and never where somebody else leads to."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from omac.adapters.harness.hook_settings import BYTES_MAX, HookFile, change, harness_with_hook, of_project, of_user
from omac.domain.kernel.refusal import Refusal

CLAUDE, CODEX = harness_with_hook("claude"), harness_with_hook("codex")


def add(text: str) -> str:
    """An edit that can be seen."""
    return json.dumps({**json.loads(text), "added": 1})


def refusal(file: HookFile) -> Refusal:
    """Why it is not changed."""
    with pytest.raises(Refusal) as caught:
        change(file, add, create=True)
    return caught.value


def leftovers(folder: Path) -> list[str]:
    """What is in a folder beside the file."""
    return sorted(name for name in os.listdir(folder) if name not in ("settings.json", "hooks.json"))


def test_places(tmp_path: Path) -> None:
    """Where Claude Code and Codex look, and where their variables send them."""
    home = {"HOME": str(tmp_path)}
    assert of_user(*CLAUDE, home).path == f"{tmp_path}/.claude/settings.json"
    assert of_user(*CODEX, home).path == f"{tmp_path}/.codex/hooks.json"
    assert of_user(*CLAUDE, {**home, "CLAUDE_CONFIG_DIR": f"{tmp_path}/c"}).path == f"{tmp_path}/c/settings.json"
    assert of_user(*CODEX, {**home, "CODEX_HOME": f"{tmp_path}/c"}).path == f"{tmp_path}/c/hooks.json"
    assert of_project(CODEX[1], str(tmp_path)).path == f"{tmp_path}/.codex/hooks.json"
    with pytest.raises(Refusal, match="claude and codex"):
        harness_with_hook("pi")


@pytest.mark.parametrize("project", [True, False])
def test_new(tmp_path: Path, project: bool) -> None:
    """A file that is not there is made, the user's own for nobody else; nothing else stays beside it."""
    file = of_project(CLAUDE[1], str(tmp_path)) if project else of_user(*CLAUDE, {"HOME": str(tmp_path / "home")})
    assert not change(file, add, create=False)
    assert not os.path.exists(file.folder)
    assert change(file, add, create=True)
    assert json.loads(Path(file.path).read_text()) == {"added": 1}
    assert Path(file.path).stat().st_mode & 0o777 == (0o644 if project else 0o600)
    assert Path(file.folder).stat().st_mode & 0o777 == (0o755 if project else 0o700)
    assert leftovers(Path(file.folder)) == []
    assert not change(file, lambda text: text, create=True)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o400])
def test_there_already(tmp_path: Path, mode: int) -> None:
    """It is replaced, and keeps its mode; where the edit changes nothing it is not touched."""
    file = of_project(CLAUDE[1], str(tmp_path))
    path = Path(file.path)
    path.parent.mkdir()
    path.write_text('{"mine": 1}')
    path.chmod(mode)
    before = path.stat()
    assert not change(file, lambda text: text, create=True)
    assert path.stat().st_ino == before.st_ino
    assert change(file, add, create=False)
    assert json.loads(path.read_text()) == {"mine": 1, "added": 1}
    assert path.stat().st_mode & 0o777 == mode
    assert path.stat().st_ino != before.st_ino
    assert leftovers(path.parent) == []


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    """It counts as an empty object."""
    file = of_project(CLAUDE[1], str(tmp_path))
    Path(file.folder).mkdir()
    Path(file.path).write_text(" \n")
    assert change(file, add, create=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{\n  "a": 1,\n}', "line 3, column 1"),
        (b"// comment\n{}", "line 1, column 1"),
        (b"[" * 100_000, "nested too deep"),
        (b"\xff", "UTF-8"),
        (b" " * (BYTES_MAX + 1), "4 MiB"),
        (b"[]", "cannot be used"),
    ],
    ids=["comma", "comment", "deep", "bytes", "big", "list"],
)
def test_malformed(tmp_path: Path, content: bytes, says: str) -> None:
    """It is left as it is, and the refusal says where it is wrong."""
    file = of_project(CLAUDE[1], str(tmp_path))
    Path(file.folder).mkdir()
    Path(file.path).write_bytes(content)

    def edit(text: str) -> str:
        if isinstance(json.loads(text), list):
            raise ValueError("it is a list")
        return add(text)

    with pytest.raises(Refusal) as caught:
        change(file, edit, create=True)
    assert caught.value.reason == "settings-invalid"
    assert says in caught.value.message
    assert file.path in caught.value.message
    assert Path(file.path).read_bytes() == content
    assert leftovers(Path(file.folder)) == []


def test_a_link_of_the_user(tmp_path: Path) -> None:
    """People keep their files elsewhere: the link stays, what it leads to is changed."""
    real = tmp_path / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text("{}")
    named = tmp_path / ".claude" / "settings.json"
    named.parent.mkdir()
    named.symlink_to("../dotfiles/claude.json")
    assert change(of_user(*CLAUDE, {"HOME": str(tmp_path)}), add, create=True)
    assert named.is_symlink()
    assert json.loads(real.read_text()) == {"added": 1}
    real.unlink()
    with pytest.raises(Refusal, match="which does not exist"):
        of_user(*CLAUDE, {"HOME": str(tmp_path)})


def test_links_of_a_project(tmp_path: Path) -> None:
    """An agent may have made them: neither the file nor its folder is followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "settings.json").write_text("{}")
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").symlink_to(outside / "settings.json")
    file = of_project(CLAUDE[1], str(project))
    assert "is a link" in refusal(file).message
    (project / ".claude" / "settings.json").unlink()
    (project / ".claude").rmdir()
    (project / ".claude").symlink_to(outside)
    assert "in a folder that is a link" in refusal(file).message
    assert (outside / "settings.json").read_text() == "{}"


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe is not waited for, a folder not read."""
    file = of_project(CLAUDE[1], str(tmp_path))
    Path(file.folder).mkdir()
    os.mkfifo(file.path)
    assert "not a regular file" in refusal(file).message
    os.unlink(file.path)
    os.mkdir(file.path)
    assert refusal(file).reason in ("settings-invalid", "state-unusable")
    os.rmdir(file.path)
    assert change(file, add, create=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses(tmp_path: Path) -> None:
    """A file of another user is not replaced by one of ours."""
    file = of_user(*CLAUDE, {"HOME": str(tmp_path)})
    Path(file.folder).mkdir()
    Path(file.path).write_text("{}")
    os.chown(file.path, 65534, 65534)
    assert "belongs to user 65534" in refusal(file).message
    os.chown(file.path, 0, 0)
    assert change(file, add, create=True)


def test_changed_meanwhile(tmp_path: Path) -> None:
    """What the agent writes between our reading and our replacing is not lost."""
    file = of_project(CLAUDE[1], str(tmp_path))
    Path(file.folder).mkdir()
    Path(file.path).write_text("{}")

    def slow(text: str) -> str:
        Path(file.path).write_text('{"theirs": 1}')
        return add(text)

    with pytest.raises(Refusal) as caught:
        change(file, slow, create=True)
    assert caught.value.reason == "contention"
    assert json.loads(Path(file.path).read_text()) == {"theirs": 1}
    assert leftovers(Path(file.folder)) == []
    assert change(file, add, create=True)


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another omac that is at it is waited for, not for ever."""
    monkeypatch.setattr("omac.adapters.files.lock.FOLDER_WAIT_S", 0.05)
    file = of_project(CLAUDE[1], str(tmp_path))
    Path(file.folder).mkdir()
    held = os.open(file.folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert refusal(file).reason == "contention"
    os.close(held)
    assert change(file, add, create=True)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """It is said which."""
    (tmp_path / "home").touch()
    found = refusal(of_user(*CLAUDE, {"HOME": str(tmp_path / "home")}))
    assert found.reason == "state-unusable"
    assert f"{tmp_path}/home/.claude" in found.message
