"""tools/terminal/render.py: the text that people see."""

from typing import Any

import msgspec
import pytest

from omac.domain.access.access import AccessRequested
from omac.domain.directories.events import ActivationRequested
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.projections.status import (
    DirectoryStatus,
    RegistrationStatus,
    RunStatus,
    SandboxStatus,
    SidecarStatus,
    SkillStatus,
    Status,
    status_of,
)
from omac.projections.system import System
from omac.tools.terminal.render import show_audit, show_registry, show_skills, show_stats, show_status, show_timeline
from omac.tools.terminal.timestamps import wall_clock, wall_clock_of

Capture = pytest.CaptureFixture[str]


REGISTERED = RegistrationStatus(
    "scope", "agents", "echo", "/s", "sha256:1", True, "/w", "sha256:1", "sha256:d", ("KEY",), {"MODE": "fast"}, 3
)


AT = wall_clock_of("2026-11-21T14:00:00.000000Z")


def shown(capsys: Capture) -> list[str]:
    out, err = capsys.readouterr()
    assert err == ""
    return [line.rstrip() for line in out.splitlines()]


def test_an_empty_status(capsys: Capture) -> None:
    """An empty status states that nothing is online, and is not an empty output."""
    show_status(status_of(System()))
    assert shown(capsys) == [
        "position 0",
        "no directory is online",
        "accesses: 0 open, 0 completed, 0 aborted, 0 refused",
    ]


def test_a_status(capsys: Capture) -> None:
    """The status has runs, directories with their skills and fixes, and sidecars with their process or their
    problem."""
    skills = (
        SkillStatus("echo", "workdir", "echo", "ready", (), (), ""),
        SkillStatus("mail", "workdir", "", "broken", (), ("omac reload /w",), "its mount is taken"),
    )
    status = Status(
        7,
        (RunStatus("r1", "opencode", "1.0", 42, ("/w", "/v")),),
        (
            DirectoryStatus("/v", "active", "opencode", (), ()),
            DirectoryStatus("/w", "active_partial", "opencode", ("s1",), skills, "r1"),
            DirectoryStatus("/w", "active", "opencode", (), (), "r2"),
        ),
        (SkillStatus("weather", "global", "weather", "ready", (), (), ""),),
        (
            SidecarStatus("/w", "echo", "healthy", 43, 40_000, "/log", 0, ""),
            SidecarStatus("/w", "mail", "backoff", None, None, None, 2, "it fell"),
        ),
        (
            SandboxStatus("aa", "/w", "claude", "bubblewrap", "host", "launched", 44, ("sh", "-c", "echo a")),
            SandboxStatus("bb", "/v", "", "landlock", "none", "requested", None, ("true",)),
        ),
        (
            REGISTERED,
            msgspec.structs.replace(REGISTERED, dir="", scope="global", approved=False, bundle_hash="sha256:2"),
        ),
        {"echo": ("KEY",)},
        {},
        {"open": 1, "completed": 2, "aborted": 0, "refused": 0},
        {"called": 0, "refused": 0},
        {"denied": 0},
    )
    show_status(status)
    assert shown(capsys) == [
        "position 7",
        "run r1: omac serve (opencode skills), version 1.0, pid 42, roots /w, /v",
        "/v: active",
        "/w: active_partial in run r1",
        "  echo                 /echo                ready",
        "  mail                 -                    broken",
        "    its mount is taken",
        "    try: omac reload /w",
        "/w: active in run r2",
        "shared by all projects:",
        "  weather              /weather             ready",
        "sidecar echo of /w: healthy (pid 43, port 40000, log /log)",
        "sidecar mail of /w: backoff (it fell)",
        "sandbox aa in /w: launched (bubblewrap, network host, pid 44)",
        "  sh -c 'echo a'",
        "sandbox bb in /v: requested (landlock, network none)",
        "  true",
        "accesses: 1 open, 2 completed, 0 aborted, 0 refused",
    ]
    show_registry(status)
    assert shown(capsys) == [
        "registry:",
        "  echo of /w: approved, sha256:d",
        "    given: KEY, MODE=fast",
        "  echo of all projects: not approved, sha256:2 (of the code alone)",
        "    approved is sha256:d",
        "    given: KEY, MODE=fast",
        "  saved defaults of echo: KEY",
    ]


def test_a_manifests_skills_are_shown_with_their_urls(capsys: Capture) -> None:
    """Skills of a manifest are listed with their URLs; keys that do not apply may be missing."""
    show_skills([{"name": "echo", "mount": "echo", "state": "ready", "base": "http://127.0.0.1:1/t/echo"}], "/p")
    assert shown(capsys)[1] == "    http://127.0.0.1:1/t/echo"


def test_a_skill_that_starts_needs_no_command(capsys: Capture) -> None:
    """A skill that starts is listed without a command, because it only needs a moment."""
    starts = {"state": "restarting", "detail": "its sidecar is starting", "fix": ["omac logs echo --workdir /p"]}
    show_skills([{"name": "echo", "mount": "echo", **starts}], "/p")
    state, *why = shown(capsys)
    assert (state.split(), why) == (["echo", "/echo", "starting"], ["    its sidecar does not answer yet"])


def audit_row(**fields: Any) -> dict[str, Any]:
    row = {
        "position": 3, "at": "2026-11-21T14:00:00.000000Z", "dir": "/w", "skill": "echo", "session": None,
        "method": "GET", "path": "/x", "status": 200, "bytes": 12, "bytes_in": 0, "duration": 0.25,
        "outcome": "completed", "reason": None, "kind": "access", "actor": "agent", "detail": "",
        "count": 1,
    }  # fmt: skip
    return row | fields


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, f"        3  {AT}  completed     200          12      0.250  GET      echo/x in /w"),
        (
            {"session": "s1", "outcome": "aborted", "status": None, "duration": None, "reason": "omac-killed"},
            f"        3  {AT}  aborted         -          12          -  GET      "
            "echo/x in /w session s1 (omac-killed)",
        ),
        (
            {"dir": "/w/a by person: approved", "session": "s for omac"},
            f"        3  {AT}  completed     200          12      0.250  GET      "
            "echo/x in '/w/a by person: approved' session 's for omac'",
        ),
        (
            {"dir": None, "skill": None, "path": "", "outcome": "refused", "status": 404, "reason": "unknown-mount"},
            f"        3  {AT}  refused       404          12      0.250  GET      ? in no directory (unknown-mount)",
        ),
        (
            {
                "kind": "skill.drifted",
                "actor": "omac",
                "outcome": "refused",
                "status": None,
                "duration": None,
                "method": "",
                "path": "",
                "bytes": 0,
                "reason": "skill-changed",
                "detail": "sha256:2",
            },
            f"        3  {AT}  refused         -           0          -  -        "
            "skill.drifted echo in /w by omac (skill-changed): sha256:2",
        ),
        (
            {"kind": "skill.deregistered", "actor": "person", "outcome": "done", "status": None, "duration": None}
            | {"method": "", "path": "", "bytes": 0},
            f"        3  {AT}  done            -           0          -  -        "
            "skill.deregistered echo in /w by person",
        ),
    ],
)
def test_an_access_is_a_line(capsys: Capture, fields: dict[str, Any], expected: str) -> None:
    """An access is a line, below a line that names the columns."""
    show_audit([audit_row(**fields)])
    head, line = shown(capsys)
    assert head.split() == ["position", "at", "outcome", "status", "bytes", "seconds", "method", "what"]
    assert line == expected


def record(position: int, stream: str, event: Any, causation: int | None = None) -> Recorded:
    version = None if stream.startswith("access") else 1
    return Recorded(position, StreamId(stream), version, 0, "r", "person", None, causation, event)


def test_a_timeline(capsys: Capture) -> None:
    """A line has position, time, kind, subject, actor and cause of an event; fields without a value are left out."""
    records = [
        record(1, "directory/h/abc", ActivationRequested("/w/" + "x" * 100, "opencode", TokenDigest("d"))),
        record(2, "access/h", AccessRequested("/w", "e", "e", None, "GET", "/"), 1),
    ]
    show_timeline(records, System().replay(records))
    path = "/w/" + "x" * 66 + "..."
    assert shown(capsys) == [
        "events that led there:",
        f"        1  {wall_clock(0)}  directory.activation-requested    /w/{'x' * 100} (by person) "
        f"path={path} harness=opencode digest=d",
        f"        2  {wall_clock(0)}  access.requested                  access (by person after 1) "
        "dir=/w skill=e mount=e method=GET path=/",
    ]


@pytest.mark.parametrize("first", ["2026-11-21T14:00:00.000000Z", None])
def test_stats(capsys: Capture, first: str | None) -> None:
    """The statistics have totals, segments, spool and kinds, and also work for an empty journal."""
    kinds = {"access.requested": 4} if first else {}
    show_stats({
        "path": "/j.db", "id": "abc", "bytes": 9, "events": 4, "first_at": first, "last_at": first, "kinds": kinds,
        "spool": {"waiting": 2 if first else 0, "rejected": 0}, "segments": 3 if first else 0, "sealed_to": 2,
    })  # fmt: skip
    lines = shown(capsys)
    assert lines[:2] == ["/j.db: 4 events, 9 bytes, id abc", f"from {AT if first else '-'} to {AT if first else '-'}"]
    sealed, spool = "3 sealed segments, up to position 2", "spool: 2 records wait, 0 were set aside"
    assert lines[2:] == ([sealed, spool, "        4  access.requested"] if first else [])


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb", "a\\nb"),
        ("\u202ecod", "\\u202ecod"),
        ("\udcff", "\\udcff"),
        ("läden", "läden"),
    ],
)
def test_a_hostile_name_is_shown_and_not_obeyed(capsys: Capture, hostile: str, harmless: str) -> None:
    """Names come from agents: they can neither change the screen nor forge a line."""
    show_audit([audit_row(path=hostile, dir="/w")])
    lines = shown(capsys)
    assert len(lines) == 2
    assert f"echo{harmless} in /w" in lines[1]


def test_what_is_shown_was_projected(capsys: Capture) -> None:
    """A status that came as JSON from a server is printed like one that was folded here."""
    status = status_of(System())
    show_status(status)
    folded = shown(capsys)
    show_status(msgspec.json.decode(msgspec.json.encode(status), type=Status))
    assert shown(capsys) == folded
