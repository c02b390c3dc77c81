"""A journal that another process makes, or moves away, while a command begins to use it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_omac import Omac


def after_first_look(monkeypatch: pytest.MonkeyPatch, path: Path, act: Callable[[], object]) -> None:
    """Have `act` called once, as soon as this process has asked for the status of a path."""
    acted: list[Path] = []

    def looking(status: Callable[..., Any]) -> Callable[..., Any]:
        def look(asked: Any, *values: Any, **named: Any) -> Any:
            try:
                return status(asked, *values, **named)
            finally:
                if asked == str(path) and not acted:
                    acted.append(path)
                    act()

        return look

    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, looking(getattr(os, name)))


@pytest.mark.parametrize(
    ("command", "status"), [("status", 5), ("audit", 5), ("checkpoint", 0), ("journal check", 0), ("list", 0)]
)
def test_first_use_at_once(command: str, status: int, omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that another process makes meanwhile is new, not lost: a command finds none yet, or uses it."""
    project = omac.project("shop")

    def use() -> None:
        done = omac.process("approve", "echo", "--workdir", str(project))
        assert done.status == 0, done

    after_first_look(monkeypatch, omac.state / "journal.db", use)
    done = omac.run(*command.split(), cwd=project)
    assert (omac.state / "journal.db").exists()
    assert (done.status, "is missing" in done.err) == (status, False), done


@pytest.mark.parametrize("command", ["status", "audit", "checkpoint", "journal check", "audit verify", "doctor"])
def test_moved_away_meanwhile(command: str, omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that a restore moves away after a command found it is gone for now, and no defect of omac's."""
    omac.approved("shop")
    journal = omac.state / "journal.db"
    journal.with_name("journal.db.restoring").touch()
    after_first_look(monkeypatch, journal, lambda: journal.rename(omac.state / "journal.db.before-restore-1"))
    done = omac.run(*command.split())
    assert (done.status, "is being restored" in done.err + done.out, "defect" in done.err) == (5, True, False), done
