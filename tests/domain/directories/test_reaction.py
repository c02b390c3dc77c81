"""domain/directories/reaction.py: transcripts of a directory, from recorded events to effects.

A transcript plays the reactor: it requests effects, performs them in the domain, and lets the sidecars fare as the test
defines, until no effect is left.
"""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.directories import directory, reaction
from omac.domain.directories.directory import ActivationPlan, AdoptPlan, Directory
from omac.domain.directories.events import (
    ActivationFailed,
    ActivationRequested,
    DeactivationRequested,
    ReloadRequested,
    RouteStubbed,
    Skill,
)
from omac.domain.directories.reaction import CommandSidecar, Effect, FindSkills, FinishDeactivating, SettleRoutes, react
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import (
    Birth,
    Exit,
    ReportExit,
    ReportHealthy,
    ReportStarted,
    ReportStopped,
    RequestSpawn,
    RequestStop,
    RestartPolicy,
    Sidecar,
    SidecarSpec,
)

ROUNDS_MAX = 100
BIRTH = Birth(1, 1, "boot", 4711, True, "/log")

Fare = Callable[[str, Sidecar], sidecar.Command | None]


def spec(skill: str, code: str = "1") -> SidecarSpec:
    return SidecarSpec(skill, skill, "/w", f"/s/{skill}", "/s", f"sha256:{code}", True, ("run",))


def plan_of(runs: str, stubs: str = "", code: str = "1") -> ActivationPlan:
    return ActivationPlan(
        {name: Skill(name, "agents", f"/s/{name}", f"sha256:{code}", name) for name in runs + stubs},
        {name: spec(name, code) for name in runs},
        dict.fromkeys(runs, 5),
        {name: RouteStubbed(name, name, "skill-broken", "not approved") for name in stubs},
    )


def well(_: str, state: Sidecar) -> sidecar.Command | None:
    """Return the report of a sidecar that does as requested."""
    match state.status:
        case "requested":
            return ReportStarted(BIRTH)
        case "started":
            return ReportHealthy()
        case "stopping":
            return ReportStopped()
        case _:
            return None


def badly(skill: str, state: Sidecar) -> sidecar.Command | None:
    """Return the report of a sidecar: "b" cannot be started and gives up, and the others do as requested."""
    if skill == "b" and state.status == "requested":
        return ReportExit(Exit(), 0, "no such program", RestartPolicy(limit=0))
    return well(skill, state)


class Transcript:
    """A directory and its sidecars; `done` lists the effects that were performed, in order."""

    def __init__(self, plan: ActivationPlan, fare: Fare = well) -> None:
        self.plan = plan
        self.fare = fare
        self.state = Directory()
        self.sidecars: dict[str, Sidecar] = {}
        self.done: list[Effect] = []
        self.record(ActivationRequested("/w", "opencode", TokenDigest("t")))

    def record(self, *events: Event) -> "Transcript":
        for event in events:
            self.state = directory.evolve(self.state, event)
        return self

    def run(self) -> list[Effect]:
        """Perform effects until none is left, and return them."""
        before = len(self.done)
        for _ in range(ROUNDS_MAX):
            effects = react(self.state, self._seen())
            self.done += effects
            for effect in effects:
                self._perform(effect)
            if not effects and not self._fare():
                return self.done[before:]
        raise AssertionError(f"no rest: {self.done[-3:]}")

    def _seen(self) -> Mapping[str, Sidecar]:
        names = {
            *self.state.routes,
            *self.state.specs,
            *(name for name, current in self.sidecars.items() if current.live),
        }
        return {name: self.sidecars.get(name, Sidecar()) for name in sorted(names)}

    def _perform(self, effect: Effect) -> None:
        match effect:
            case FindSkills():
                self._execute(AdoptPlan(self.plan))
            case CommandSidecar(skill, command):
                self._command(skill, command)
            case SettleRoutes():
                self._execute(directory.Settle(self._seen()))
            case FinishDeactivating():
                self._execute(directory.FinishDeactivation())

    def _execute(self, command: directory.Command) -> None:
        self.record(*directory.decide(command, self.state))

    def _command(self, skill: str, command: sidecar.Command) -> None:
        state = self.sidecars.get(skill, Sidecar())
        for event in sidecar.decide(command, state):
            state = sidecar.evolve(state, event)
        self.sidecars[skill] = state

    def _fare(self) -> bool:
        """Let each sidecar take one step; return whether any did."""
        steps = [(skill, self.fare(skill, state)) for skill, state in self.sidecars.items()]
        for skill, command in steps:
            if command is not None:
                self._command(skill, command)
        return any(command is not None for _, command in steps)


def test_an_activation() -> None:
    """An activation finds skills, requests their sidecars, and settles routes as these fare."""
    transcript = Transcript(plan_of("ab"))
    assert transcript.run() == [
        FindSkills(),
        CommandSidecar("a", RequestSpawn(spec("a"), 1)),
        CommandSidecar("b", RequestSpawn(spec("b"), 1)),
        SettleRoutes(),
    ]
    assert transcript.state.status == "active"


def test_nothing_to_run() -> None:
    """A directory without skills is active as soon as that is known."""
    transcript = Transcript(plan_of(""))
    assert transcript.run() == [FindSkills()]
    assert transcript.state.status == "active"


def test_a_sidecar_that_gives_up() -> None:
    """A sidecar that gives up is stubbed while the others come online; a reload tries it again."""
    transcript = Transcript(plan_of("ab"), badly)
    transcript.run()
    assert (transcript.state.status, transcript.state.routes["b"].why) == ("active_partial", "skill-broken")
    transcript.fare = well
    assert transcript.record(ReloadRequested()).run() == [
        FindSkills(),
        CommandSidecar("b", RequestSpawn(spec("b"), 2)),
        SettleRoutes(),
    ]
    assert transcript.state.status == "active"


def test_how_it_fared_before_does_not_count() -> None:
    """A sidecar that failed before the directory went offline is requested again, and the activation waits for it."""
    transcript = Transcript(plan_of("a"))
    transcript.sidecars["a"] = Sidecar("idle", spec("a"), 0, failures=2)
    transcript.record(*directory.decide(AdoptPlan(transcript.plan), transcript.state))
    assert react(transcript.state, transcript.sidecars) == [CommandSidecar("a", RequestSpawn(spec("a"), 1))]
    transcript.run()
    assert transcript.state.status == "active"


def test_a_plan_with_other_code_replaces() -> None:
    transcript = Transcript(plan_of("a"))
    transcript.run()
    transcript.plan = plan_of("a", code="2")
    assert transcript.record(ReloadRequested()).run() == [
        FindSkills(),
        CommandSidecar("a", RequestStop("it is replaced")),
        CommandSidecar("a", RequestSpawn(spec("a", "2"), 2)),
        SettleRoutes(),
    ]


def test_a_restart_replaces_what_did_not_change() -> None:
    """A reload that names a sidecar replaces it once, and leaves the others; the next replaces none."""
    transcript = Transcript(plan_of("ab"))
    transcript.run()
    assert transcript.record(ReloadRequested(("a",))).run() == [
        FindSkills(),
        CommandSidecar("a", RequestStop("it is replaced")),
        CommandSidecar("a", RequestSpawn(spec("a"), 2)),
        SettleRoutes(),
    ]
    assert transcript.state.status == "active"
    assert transcript.record(ReloadRequested()).run() == [FindSkills(), SettleRoutes()]


def test_a_restart_of_one_that_waits_to_be_tried_again() -> None:
    """A sidecar that failed and would be started again later is started now, and the reload waits for it."""
    transcript = Transcript(plan_of("a"))
    transcript.run()
    transcript._command("a", ReportExit(Exit(1), 5, "it crashed"))
    assert transcript.sidecars["a"].status == "backoff"
    transcript.record(ReloadRequested(("a",))).run()
    assert (transcript.state.status, transcript.sidecars["a"].status) == ("active", "healthy")
    assert transcript.sidecars["a"].generation == 2


def test_a_restart_of_what_does_not_run() -> None:
    """Only a sidecar that the plan names can be restarted; a refusal records nothing."""
    transcript = Transcript(plan_of("a", "c"))
    transcript.run()
    for unknown in ("c", "other"):
        with pytest.raises(Refusal, match=f"/w has no sidecar of {unknown}"):
            directory.decide(directory.RequestReload("/w", ("a", unknown)), transcript.state)


def test_what_is_gone_ends() -> None:
    transcript = Transcript(plan_of("ab"))
    transcript.run()
    transcript.plan = plan_of("a")
    assert CommandSidecar("b", RequestStop("it is no longer wanted")) in transcript.record(ReloadRequested()).run()
    assert not transcript.sidecars["b"].live


def test_the_end_of_a_directory() -> None:
    """A deactivation stops each sidecar once, and ends when none runs any more."""
    transcript = Transcript(plan_of("ab", "c"))
    transcript.run()
    assert transcript.record(DeactivationRequested("asked for")).run() == [
        CommandSidecar("a", RequestStop(reaction.OFFLINE)),
        CommandSidecar("b", RequestStop(reaction.OFFLINE)),
        FinishDeactivating(),
    ]
    assert transcript.state.status == "offline"


def test_a_plan_that_is_recorded_is_not_made_again() -> None:
    """An activation that is resumed halfway requests the sidecars of its recorded plan."""
    transcript = Transcript(plan_of("a"))
    transcript.record(*directory.decide(AdoptPlan(transcript.plan), transcript.state))
    assert react(transcript.state, {"a": Sidecar()}) == [CommandSidecar("a", RequestSpawn(spec("a"), 1))]


@pytest.mark.parametrize("end", [DeactivationRequested("asked for"), ActivationFailed("no such folder")])
def test_called_off_before_anything_ran(end: Event) -> None:
    transcript = Transcript(plan_of("a")).record(end)
    assert transcript.run() == [FinishDeactivating()]


NAMES = st.sampled_from(["", "a", "b", "ab", "abc"])
PLANS = st.builds(lambda runs, stubs, code: plan_of(runs, stubs.upper(), code), NAMES, NAMES, st.sampled_from("12"))


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(PLANS, st.sampled_from([well, badly]), NAMES), min_size=1, max_size=6))
def test_every_history_comes_to_rest(steps: list[tuple[ActivationPlan, Fare, str]]) -> None:
    """The sidecars that run at rest are the unbroken ones of the last plan, whatever was planned before; the end leaves
    none."""
    transcript = Transcript(plan_of(""))
    for plan, fare, restarts in steps:
        transcript.plan, transcript.fare = plan, fare
        transcript.run()
        transcript.record(ReloadRequested(tuple(restarts)))
        transcript.run()
        began = {
            skill for skill, current in transcript.sidecars.items() if current.generation == transcript.state.generation
        }
        assert began >= set(restarts) & set(plan.specs)
        assert transcript.state.status in ("active", "active_partial")
        running = {skill: current.spec for skill, current in transcript.sidecars.items() if current.live}
        broken = {skill for skill, route in transcript.state.routes.items() if route.why is not None}
        assert running == {skill: planned for skill, planned in plan.specs.items() if skill not in broken}
    transcript.record(DeactivationRequested("asked for")).run()
    assert transcript.state.status == "offline"
    assert not any(current.live for current in transcript.sidecars.values())
