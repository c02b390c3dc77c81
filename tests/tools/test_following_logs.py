"""tools/cli/logs.py: what is added to a log, as `omac logs --follow` reads it."""

from pathlib import Path

import pytest

from omac.tools.cli import logs


def test_a_line_without_an_end_does_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a request can make a sidecar print is shown in parts, and what follows it too; nothing is read twice."""
    monkeypatch.setattr(logs, "LINE_BYTES_MAX", 8)
    log, offsets = tmp_path / "log", {"elsewhere": (1, 1)}

    def added(content: bytes) -> list[str]:
        with log.open("ab") as file:
            file.write(content)
        return [line for _ in range(5) for line in logs._added(str(log), offsets)]

    assert added(b"one\n\ntw") == ["one", ""]
    assert added(b"o\n") == ["two"]
    assert added(b"x" * 20) == ["xxxxxxxx", "xxxxxxxx"]
    assert added(b"\nend\n") == ["xxxx", "end"]
    log.write_bytes(b"new\n")
    assert added(b"") == ["new"]
