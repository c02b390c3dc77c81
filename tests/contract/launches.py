"""Launches and denials for tests, spooled as programs spool them."""

from pathlib import Path
from typing import Any

from omac.journal.spool import Spool

REQUEST: dict[str, Any] = {
    "workdir": "/w/shop", "harness": "claude", "backend": "bubblewrap", "policy": "ab" * 32, "argv": ["npm", "test"],
    "network": "host", "pid": 42, "start_ticks": 7, "boot_id": "boot", "run": "",
}  # fmt: skip
REFUSED: dict[str, Any] = {
    "workdir": "/w/shop", "harness": "claude", "argv": ["npm"], "reason": "git-unsafe", "message": "no",
}  # fmt: skip
DENIED = {"harness": "claude", "tool": "Write", "path": "/w/x", "root": "/w/t", "probable": "/w/t/x", "session": "s1"}
AT = 1_700_000_000 * 10**9


class Program:
    """A program that spools; its clock ticks a second with every record."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(str(folder))
        self.at = AT

    def launch(self, launch: str, *steps: str, **other: Any) -> list[str]:
        """Spool the records of one launch up to the last of `steps`; return their paths."""
        fields: dict[str, dict[str, Any]] = {
            "launch-requested": REQUEST | other,
            "launched": {"pid": 43},
            "exited": {"status": 0, "findings": ["/w/shop/.git/hooks/x: a hook"], "lost": ""},
            "denied": REFUSED,
        }
        return [self.put(f"sandbox.{step}", fields[step], launch, n) for n, step in enumerate(steps, 1)]

    def deny(self, id_: str, **other: Any) -> str:
        """Spool a denial of the write guard; return its path."""
        return self.put("guard.denied", DENIED | other, id_, None)

    def put(self, kind: str, fields: dict[str, Any], id_: str, version: int | None, **other: Any) -> str:
        """Spool any record; return its path."""
        self.at += 10**9
        stream = "guard" if kind == "guard.denied" else f"sandbox/{id_}"
        actor = "agent" if kind == "guard.denied" else "person"
        envelope: dict[str, Any] = {"stream": stream, "at": self.at, "run": "", "actor": actor} | other
        return self.spool.append(kind, fields, version=version, id=id_, **envelope)


WHOLE = ("launch-requested", "launched", "exited")
