"""domain/sidecars/sidecar.py: the numbered rules, for every state, command and history."""

import itertools
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tables import deviations, failing
from tiers import examples

from omac.domain.kernel.event import Event
from omac.domain.kernel.hidden import Hidden
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import (
    BASE_VARIABLES,
    TABLE,
    Birth,
    Command,
    Exit,
    Exited,
    GaveUp,
    Healthy,
    ReportExit,
    ReportHealthy,
    ReportStarted,
    ReportStopped,
    ReportUnhealthy,
    RequestSpawn,
    RequestStop,
    Restart,
    RestartPolicy,
    RestartScheduled,
    Sidecar,
    SidecarSpec,
    SpawnRequested,
    Started,
    Status,
    Stopped,
    StopRequested,
    Unhealthy,
    Variable,
    environment,
)

SPEC = SidecarSpec("echo", "echo", "/w", "/w/.agents/skills/echo", "/w/.agents/skills", "sha256:1", True, ("run",))
BIRTH = Birth(42, 7, "boot", 40_000, True, "/log")
POLICY = RestartPolicy(base_ms=100, max_ms=350, limit=4, stable_ms=1_000)
EVENTS: tuple[Event, ...] = (
    SpawnRequested(SPEC, 1),
    Started(BIRTH),
    Healthy(),
    Unhealthy("500"),
    Exited(Exit(1), 5, "it fell"),
    RestartScheduled(2, 100),
    StopRequested("asked for"),
    Stopped(),
    GaveUp("too often"),
)
COMMANDS: tuple[Command, ...] = (
    RequestSpawn(SPEC, 1),
    ReportStarted(BIRTH),
    ReportHealthy(),
    ReportUnhealthy("500"),
    ReportExit(Exit(1), 5, "it fell", POLICY),
    ReportExit(Exit(signal=9), 2_000, "it lived", POLICY),
    Restart(),
    RequestStop("asked for"),
    ReportStopped(),
)


def fold(state: Sidecar, events: list[Event]) -> Sidecar:
    for event in events:
        state = sidecar.evolve(state, event)
    return state


def state_of(status: Status) -> Sidecar:
    return Sidecar(status, SPEC, 1, BIRTH if status in ("started", "healthy") else None, 0, 1)


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError."""
    states = {status: state_of(status) for status in get_args(Status)}
    assert deviations(sidecar.evolve, TABLE, states, EVENTS) == []


def test_the_table_leads_everywhere_and_back() -> None:
    """Every status can be reached from the beginning, and a status of rest from each."""
    reached: set[Status] = {"idle"}
    for _ in TABLE:
        reached |= {to for (status, _), to in TABLE.items() if status in reached}
    assert reached == set(get_args(Status))
    resting: set[Status] = {"idle", "gave_up"}
    for _ in TABLE:
        resting |= {status for (status, _), to in TABLE.items() if to in resting}
    assert resting == reached
    assert {event for _, event in TABLE} == {type(event) for event in EVENTS}


def test_every_decision_can_be_recorded() -> None:
    """The events that a command means can follow in every status."""

    def check(status: Status, command: Command) -> None:
        fold(state_of(status), sidecar.decide(command, state_of(status)))

    assert failing(check, itertools.product(get_args(Status), COMMANDS)) == []


def test_an_end_without_what_followed_it() -> None:
    """A repair may set aside the event after an exit. The cleanup of a dead run brings such a sidecar to rest all the
    same."""
    state = state_of("exited")
    for command in (RequestStop("omac was killed"), ReportStopped()):
        state = fold(state, sidecar.decide(command, state))
    assert (state.status, state.live, state.detail) == ("gave_up", False, "omac was killed")


@pytest.mark.parametrize(
    ("status", "command", "events"),
    [
        ("idle", RequestSpawn(SPEC, 3), [SpawnRequested(SPEC, 3)]),
        ("gave_up", RequestSpawn(SPEC, 3), [SpawnRequested(SPEC, 3)]),
        ("healthy", RequestSpawn(SPEC, 3), []),
        ("backoff", RequestSpawn(SPEC, 3), []),
        ("stopping", RequestSpawn(SPEC, 3), []),
        ("requested", ReportStarted(BIRTH), [Started(BIRTH)]),
        ("stopping", ReportStarted(BIRTH), [Started(BIRTH)]),
        ("idle", ReportStarted(BIRTH), []),
        ("backoff", ReportStarted(BIRTH), []),
        ("started", ReportHealthy(), [Healthy()]),
        ("stopping", ReportHealthy(), []),
        ("started", ReportUnhealthy("500"), [Unhealthy("500")]),
        ("stopping", ReportUnhealthy("500"), []),
        ("stopping", ReportExit(Exit(0), 5, "it ended", POLICY), [Exited(Exit(0), 5, "it ended")]),
        ("idle", ReportExit(Exit(0), 5, "it ended", POLICY), []),
        ("backoff", Restart(), [SpawnRequested(SPEC, 1, 1)]),
        ("stopping", Restart(), []),
        ("idle", RequestStop("x"), []),
        ("gave_up", RequestStop("x"), []),
        ("stopping", RequestStop("x"), []),
        *(
            (status, RequestStop("x"), [StopRequested("x")])
            for status in ("requested", "started", "healthy", "backoff")
        ),
        ("stopping", ReportStopped(), [Stopped()]),
        ("healthy", ReportStopped(), []),
    ],
)
def test_decisions(status: Status, command: Command, events: list[Event]) -> None:
    """Each command means these events in this status."""
    assert sidecar.decide(command, state_of(status)) == events


def test_failures_count_pauses_double_and_it_gives_up() -> None:
    """The delays double up to `max_ms`, for at most `limit` restarts in a row; then the sidecar gives up."""
    state, delays = Sidecar(), []
    state = fold(state, sidecar.decide(RequestSpawn(SPEC, 1), state))
    while state.status != "gave_up":
        state = fold(state, sidecar.decide(ReportStarted(BIRTH), state))
        state = fold(state, sidecar.decide(ReportExit(Exit(1), 999, "it fell", POLICY), state))
        if state.status == "backoff":
            delays.append(state.delay_ms)
            state = fold(state, sidecar.decide(Restart(), state))
    assert delays == [100, 200, 350, 350]
    assert (state.failures, state.birth) == (5, None)
    assert state.detail == "gave up after 5 failures in a row; the last: it fell"


def test_a_stable_process_resets_the_failures() -> None:
    """A failure counts as the first again when the process lived for `stable_ms`."""
    state = replace(state_of("healthy"), failures=4)
    stable = sidecar.decide(ReportExit(Exit(1), 1_000, "it fell", POLICY), state)
    assert stable[1] == RestartScheduled(2, 100)
    assert isinstance(sidecar.decide(ReportExit(Exit(1), 999, "it fell", POLICY), state)[1], GaveUp)


def test_a_limit_of_zero_gives_up_at_once() -> None:
    """A restart limit of 0 gives up at once, for problems that another try would not mend."""
    events = sidecar.decide(ReportExit(Exit(), 0, "changed", RestartPolicy(limit=0)), state_of("requested"))
    state = fold(state_of("requested"), events)
    assert (state.status, state.failures) == ("gave_up", 1)


def test_the_last_trouble_stays_known_until_it_is_healthy() -> None:
    """A sidecar that is starting again has the detail of its last failure until it is healthy."""
    state = fold(state_of("healthy"), [Exited(Exit(1), 5, "it fell"), RestartScheduled(2, 1)])
    state = fold(state, [SpawnRequested(SPEC, 1, 2), Started(BIRTH)])
    assert (state.detail, state.failures) == ("it fell", 1)
    assert fold(state, [Healthy()]).detail == ""


def test_nothing_identifies_a_process_that_is_gone() -> None:
    """A process is no longer identified after its exit, nor after its stop where the exit was not seen."""
    assert fold(state_of("healthy"), [Exited(Exit(1), 5)]).birth is None
    assert fold(state_of("healthy"), [StopRequested("x"), Stopped()]).birth is None


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(COMMANDS), max_size=60))
def test_the_rules_hold_in_every_history(commands: list[Command]) -> None:
    """Rules 1 to 5 hold after any sequence of commands: no command raises, no sidecar runs unasked, and a stop wins."""
    state, generation = Sidecar(), 0
    history: list[type[Event]] = []
    for command in commands:
        if isinstance(command, RequestSpawn):
            generation += 1
            command = replace(command, generation=generation)
        events = sidecar.decide(command, state)
        before, state = state, fold(state, events)
        for event in events:
            history.append(type(event))
            if isinstance(event, Started):
                assert before.status in ("requested", "stopping")
                assert SpawnRequested in history
            if before.status == "stopping":
                assert isinstance(event, Started | Exited | Stopped)
            if isinstance(event, SpawnRequested) and isinstance(command, RequestSpawn):
                assert (state.generation, state.failures, state.attempt) == (generation, 0, 1)
        if before.status == "stopping":
            assert state.status in ("stopping", "idle")
        assert state.live == (state.status not in ("idle", "gave_up"))
        assert (state.status in ("started", "healthy")) <= (state.birth is not None)
        assert state.status != "idle" or state.birth is None
        assert 0 <= state.failures <= POLICY.limit + 1
        if state.status == "backoff":
            assert state.delay_ms == min(POLICY.base_ms * 2 ** (state.failures - 1), POLICY.max_ms)
            assert state.attempt == state.failures + 1


HOST = {
    "PATH": "/bin",
    "LANG": "C.UTF-8",
    "HOME": "/home/u",
    "SSH_AUTH_SOCK": "/agent",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "GIVEN": "from the host",
    "EMPTY": "",
    "SIDECAR_PORT": "1",
    "OMAC_WORKDIR": "/etc",
}
OWN = {
    "SIDECAR_PORT": "5",
    "SIDECAR_SKILL": "echo",
    "OMAC_WORKDIR": "/w",
    "OMAC_HARNESS_SKILLS_DIR": ".agents/skills",
}
BASE = {"PATH": "/bin", "LANG": "C.UTF-8", "HOME": "/home/u", "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    ("approved", "passthrough", "variables", "more"),
    [
        (True, (), (), {}),
        (True, ("SSH_AUTH_SOCK", "ABSENT"), (), {"SSH_AUTH_SOCK": "/agent"}),
        (False, ("SSH_AUTH_SOCK",), (), {}),
        (True, (), (Variable("A", None, "GIVEN"),), {"A": "from the host"}),
        (True, (), (Variable("A", "own", "GIVEN"),), {"A": "own"}),
        (True, (), (Variable("A", "own", "ABSENT"),), {"A": "own"}),
        (True, (), (Variable("A", "own", "EMPTY"),), {"A": "own"}),
        (True, (), (Variable("A", "own"),), {"A": "own"}),
        (True, (), (Variable("A", "", None),), {"A": ""}),
        (True, (), (Variable("PYTHONUNBUFFERED", "0"),), {"PYTHONUNBUFFERED": "0"}),
        (True, (), (Variable("A", None, "ABSENT"),), {}),
        (False, (), (Variable("A", None, "GIVEN", secret=True),), {}),
        (False, (), (Variable("A", "own", "GIVEN"),), {"A": "own"}),
        (True, ("SIDECAR_PORT", "OMAC_WORKDIR"), (Variable("SIDECAR_SKILL", "root"),), {}),
    ],
)
def test_the_environment_holds_what_is_named_and_nothing_else(
    approved: bool, passthrough: tuple[str, ...], variables: tuple[Variable, ...], more: dict[str, str]
) -> None:
    """The environment has PATH and locale, what lets Python print at once, the variables that an approved skill
    declared, and omac's names, which override all."""
    spec = replace(SPEC, approved=approved, passthrough=passthrough, variables=variables)
    assert environment(spec, 5, HOST, {}) == BASE | more | OWN


@given(
    st.dictionaries(st.sampled_from([*BASE_VARIABLES, *HOST, "X", "Y"]), st.text(max_size=3)),
    st.lists(st.sampled_from(["X", "Y", "SSH_AUTH_SOCK"]), max_size=3),
    st.lists(st.builds(Variable, st.sampled_from(["A", "B"]), st.none() | st.just("own"), st.sampled_from(["X", "Y"]))),
)
def test_an_unapproved_skill_gets_nothing_of_the_host(
    host: dict[str, str], passthrough: list[str], variables: list[Variable]
) -> None:
    """An unapproved skill gets only the base variables, its own defaults and omac's names, whatever it declares."""
    spec = replace(SPEC, approved=False, passthrough=tuple(passthrough), variables=tuple(variables))
    values = environment(spec, 5, host, {"A": Hidden("given"), "B": Hidden("given")})
    assert {name: values.pop(name) for name in OWN} == OWN
    assert values.pop("PYTHONUNBUFFERED") == "1"
    for name, value in values.items():
        assert host[name] == value if name in BASE_VARIABLES else value == "own"
