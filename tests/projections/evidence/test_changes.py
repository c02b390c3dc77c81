"""projections/evidence/changes.py: every change of trust is in the audit."""

from typing import Any

import pytest
from msgspec.structs import replace

from omac.domain.access.access import AccessCompleted, AccessRequested
from omac.domain.access.control import ControlCalled, ControlRefused
from omac.domain.credentials import credential
from omac.domain.directories.events import Activated, ActivationRequested, RouteStubbed
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import HostId, StreamId, TokenDigest
from omac.domain.settings.setting import SettingChanged, SettingChangeFailed, SettingChangeRequested
from omac.domain.sidecars.sidecar import (
    Birth,
    Exit,
    Exited,
    GaveUp,
    SidecarSpec,
    SpawnRequested,
    Started,
    StopRequested,
    Variable,
)
from omac.domain.skills import registration
from omac.journal.event_kinds import KIND_OF
from omac.projections.evidence.accesses import audit_rows
from omac.projections.evidence.changes import TrustChanges

HOST = HostId("host1")
SHOP = ids.workdir_id("/w/shop")
SILENT = (credential.SecretWriteRequested,)  # the way there; what came of it is told


def changes(history: Any) -> list[Any]:
    """Return the change of each record that has one."""
    fold = TrustChanges()
    return [change for recorded in history.records if (change := fold.of(recorded)) is not None]


def example(event: type[Event]) -> Event:
    """Return an event whose texts are its field names."""
    return event(*[name if name != "left" else () for name in event.__struct_fields__])


@pytest.mark.parametrize("event", [*registration.EVENTS, *credential.EVENTS])
def test_every_change_of_trust_is_reported(history: Any, event: type[Event]) -> None:
    """Each change of trust has its own kind, and the skill that it is about."""
    kind = "registration" if event in registration.EVENTS else "credential"
    tail = "agents/echo" if kind == "registration" else "echo"
    history.append(ids.StreamId(f"{kind}/{HOST}/{SHOP}/{tail}"), example(event))
    rows = changes(history)
    if event in SILENT:
        assert rows == []
        return
    (change,) = rows
    assert (change.kind, change.skill) == (KIND_OF[event], "echo")


def test_what_was_kept_from_running_is_refused(history: Any) -> None:
    """Drift is a refusal unless a run accepted it; so is a stub, a sidecar that gave up, a refused call, and a failed
    setting."""
    skill = ids.registration_stream(HOST, SHOP, "agents", "echo")
    history.append(ids.directory_stream(HOST, SHOP), ActivationRequested("/w/shop", "opencode", TokenDigest("t")))
    history.append(skill, registration.Drifted("/s", "2"), registration.Drifted("/s", "2", "d", "run1"))
    history.append(ids.directory_stream(HOST, SHOP), RouteStubbed("echo", "echo", "skill-broken", "planted"))
    history.append(ids.sidecar_stream(HOST, SHOP, "echo"), GaveUp("it fell"))
    history.log(ids.control_stream(HOST), ControlCalled("reload", "/w/shop", "tcp"))
    history.log(ids.control_stream(HOST), ControlRefused("activate", "/etc", "tcp", "outside-roots"))
    request = SettingChangeRequested("serve.unapproved", "allow", "user /f")
    for outcome in (
        SettingChanged("serve.unapproved", "allow", "user /f"),
        SettingChangeFailed("serve.unapproved", "no space left"),
    ):
        history.append(ids.setting_stream(HOST, "serve.unapproved"), request, outcome)
    history.log(StreamId(f"settings/{HOST}"), SettingChanged("serve.unapproved", None, "user /f"))  # an earlier omac
    history.append(ids.directory_stream(HOST, SHOP), Activated())
    assert [(change.kind, change.dir, change.skill, change.refused, change.reason) for change in changes(history)] == [
        ("skill.drifted", "/w/shop", "echo", True, "skill-changed"),
        ("skill.drifted", "/w/shop", "echo", False, None),
        ("route.stubbed", "/w/shop", "echo", True, "skill-broken"),
        ("sidecar.gave-up", "/w/shop", "echo", True, "sidecar-down"),
        ("control.called", "/w/shop", None, False, None),
        ("control.refused", "/etc", None, True, "outside-roots"),
        ("setting.changed", None, None, False, None),
        ("setting.change-failed", None, None, True, None),
        ("setting.changed", None, None, False, None),
    ]


def test_a_start_with_secrets(history: Any) -> None:
    """The start of a sidecar is in the audit where it was given secrets: one that failed gave none. A fold that goes on
    from its state knows what was requested before."""
    stream = ids.sidecar_stream(HOST, SHOP, "echo")
    token = Variable("TOKEN", secret=True, fingerprint="hmac:1", store="vault")
    with_secret = SidecarSpec("echo", "echo", "/w/shop", "/s", "/w", "b", True, ("x",), variables=(token,), digest="d")
    request, started = SpawnRequested(with_secret, 1), Started(Birth(1, 1, "boot", 1, True, "log"))
    history.append(stream, request, Exited(Exit(1), 0, ""), started, request, StopRequested("why"), started)
    history.append(stream, SpawnRequested(replace(with_secret, variables=()), 2), started)
    fold, rows = TrustChanges(), []
    for recorded in history.records:
        rows.append(fold.of(recorded))
        fold = TrustChanges(fold.paths(), fold.requested())
    assert [row is not None for row in rows] == [False] * 5 + [True, False, False]
    assert rows[5] is not None
    assert (rows[5].kind, rows[5].dir, rows[5].skill) == ("sidecar.started", "/w/shop", "echo")
    assert rows[5].detail == "TOKEN (hmac:1) of the vault, given to d"
    (row,) = audit_rows(history.records)
    assert (row.position, row.at) == (4, history.records[3].at), "an export has the request, which has the secrets"


def test_changes_are_rows_among_accesses(history: Any) -> None:
    """A change of trust is a row of the audit, with its actor, in its place among the accesses: after
    one that had begun, even if it ended later, and before the next."""
    accesses = ids.access_stream(HOST)
    begun = history.log(accesses, AccessRequested("/w/shop", "echo", "echo", None, "GET", "/before"))
    skill = ids.registration_stream(HOST, SHOP, "agents", "echo")
    history.append(skill, registration.Approved("/s", "sha256:1", "sha256:d"))
    history.log(accesses, AccessCompleted(begun, 200, 1, 2, 3))
    after = history.log(accesses, AccessRequested("/w/shop", "echo", "echo", None, "GET", "/after"))
    history.log(accesses, AccessCompleted(after, 200, 1, 2, 3))
    before_row, row, after_row = audit_rows(history.records)
    assert (before_row.path, after_row.path) == ("/before", "/after")
    assert (row.kind, row.outcome, row.actor, row.detail) == ("skill.approved", "done", "omac", "sha256:d in /s")
