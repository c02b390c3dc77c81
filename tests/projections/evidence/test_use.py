"""projections/evidence/use.py: the calls, the denials and the vanished files of one run."""

from typing import Any

from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRefused, AccessRequested
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId, LaunchId
from omac.domain.sandbox.launch import LaunchExited, LaunchRequested
from omac.projections.evidence.use import Calls, RunUse

HOST = HostId("host1")


def test_calls_denials_and_what_is_gone(history: Any) -> None:
    """The use of a run has only that run's records; a refusal without a skill does not count."""
    accesses, guard = ids.access_stream(HOST), ids.guard_stream(HOST)
    history.append(accesses, AccessRequested("/w", "echo", "echo", None, "GET", "/a"))
    history.append(accesses, AccessRequested("/w", "echo", "echo", None, "GET", "/b"))
    history.append(accesses, AccessCompleted(1, 200, 0, 0, 1), AccessAborted(2, "client-gone"))
    history.append(accesses, AccessAborted(2, "again"))
    history.append(accesses, AccessRequested("/w", "echo", "echo", None, "GET", "/c"))
    history.append(accesses, AccessCompleted(6, 503, 0, 0, 1))
    history.append(accesses, AccessRefused("/w", "mail", "mail", None, "GET", "/", 503, "pending-credentials", 3))
    history.append(accesses, AccessRefused(None, None, "x", None, "GET", "/", 404, "unknown-mount"))
    history.append(
        guard, GuardDenied("claude", "Write", "/x", "/w", count=2), GuardDenied("claude", "Write", "/y", "/w")
    )
    launch = LaunchRequested("/w", "", "bubblewrap", "ab" * 32, ("sh",), "host", 1, 2, "boot")
    history.append(
        ids.sandbox_stream(HOST, LaunchId("aa")), launch, LaunchExited(0, (), "", ("/h/x", "/h/y", "2948 more"))
    )
    run = history.records[0].run
    use, unused = RunUse(run), RunUse("another")
    for recorded in history.records:
        use.apply(recorded)
        unused.apply(recorded)
    assert use.calls == {"echo": Calls(3, 1, 0, 1), "mail": Calls(3, 0, 3)}
    assert (use.writes_denied, use.last_denied, use.vanished) == (3, "/y", ("/h/x", "/h/y"))
    assert use.vanished_more == 2948
    assert (use.is_empty, unused.is_empty) == (False, True)
