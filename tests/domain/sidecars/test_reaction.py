"""domain/sidecars/reaction.py: the effect that a sidecar calls for, in every state."""

import itertools
from typing import get_args

import pytest

from omac.domain.sidecars.reaction import (
    AwaitEnd,
    AwaitHealth,
    AwaitRestart,
    Effect,
    End,
    ReportLost,
    Spawn,
    StopGracefully,
    react,
)
from omac.domain.sidecars.sidecar import Sidecar, SidecarSpec, Status
from omac.domain.skills.meta import Health

SPEC = SidecarSpec("echo", "echo", "/w", "/s/echo", "/s", "sha256:1", True, ("run",), Health("/up"))


def sidecar(status: Status) -> Sidecar:
    return Sidecar(status, SPEC, 1, delay_ms=250)


@pytest.mark.parametrize(
    ("status", "has_process", "effect"),
    [
        ("requested", False, Spawn(SPEC)),
        ("requested", True, Spawn(SPEC)),
        ("started", True, AwaitHealth(Health("/up"))),
        ("started", False, ReportLost()),
        ("healthy", True, AwaitEnd()),
        ("healthy", False, ReportLost()),
        ("exited", False, ReportLost()),
        ("backoff", True, AwaitRestart(250)),
        ("backoff", False, AwaitRestart(250)),
        ("stopping", True, StopGracefully()),
        ("stopping", False, StopGracefully()),
    ],
)
def test_each_state_calls_for_one_effect(status: Status, has_process: bool, effect: Effect) -> None:
    assert react(sidecar(status), has_process=has_process, is_revoked=False) == effect


def test_a_revoked_sidecar_ends_in_any_state() -> None:
    """A revoked sidecar ends at once in any state, or in its grace once its stop is recorded."""
    for status, has_process in itertools.product(get_args(Status), (True, False)):
        effect = react(sidecar(status), has_process=has_process, is_revoked=True)
        assert effect == (StopGracefully() if status == "stopping" else End()), status


def test_what_was_never_asked_for_is_not_started() -> None:
    assert react(Sidecar("requested"), has_process=False, is_revoked=False) == ReportLost()
