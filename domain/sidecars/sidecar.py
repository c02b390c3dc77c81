"""A sidecar: the host-side process of one skill in one directory, kept alive until it is stopped or gives up.

Rules

1. A process is started only in `requested`, so only after `sidecar.spawn-requested` is durable.
2. Whatever ends unasked is started again, after a pause that doubles, at most `RestartPolicy.limit` times in a
   row; a process that lived for `stable_ms` has earned a clean slate. After that the sidecar gives up.
3. A stop wins over everything: what is reported while stopping is recorded and changes nothing but the facts.
4. `stopped` is recorded when nothing of the process is left, never before.
5. A new spawn request begins a new generation: the activation or reload that wanted it.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.hidden import Hidden
from omac.domain.skills.interpreter import Interpreter
from omac.domain.skills.meta import Health


class Variable(msgspec.Struct, frozen=True, array_like=True):
    """A declared variable and where its value comes from: the text `default`, the host's variable `from_env`, or, with
    a `fingerprint`, the secret in `store`. Values of secrets are never recorded.
    """

    name: str
    default: str | None = None
    from_env: str | None = None
    secret: bool = False
    fingerprint: str = ""
    store: str = ""


class SidecarSpec(msgspec.Struct, frozen=True, array_like=True):
    """The data by which a sidecar is started, again and again, without reading the skill's files.

    `command` may contain ${SIDECAR_PORT}; `source` is the skill's folder, `skills_dir` the folder above it,
    `passthrough` the host variables an approved skill may see. `digest` addresses the approved copy that the sidecar
    runs from. It is empty for a skill that nobody approved, which runs from `source`. `workdir` is empty for a shared
    skill. `interpreters` are the programs of the host that were approved with the skill; None: the ones on PATH.
    `repository` is the scope of the repository by which the skill is approved, if it is approved by one. `copied_from`
    is the folder of which the approved copy was made, where that is not `source`.
    """

    skill: str
    mount: str
    workdir: str
    source: str
    skills_dir: str
    bundle_hash: str
    approved: bool
    command: tuple[str, ...]
    health: Health = Health()
    passthrough: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    digest: str = ""
    interpreters: tuple[Interpreter, ...] | None = None
    repository: str = ""
    copied_from: str = ""

    @property
    def stored(self) -> dict[str, dict[str, str]]:
        """The secrets it needs from stores: by store, names with the fingerprints that their values must have."""
        by_store: dict[str, dict[str, str]] = {}
        for variable in self.variables:
            if variable.fingerprint:
                by_store.setdefault(variable.store, {})[variable.name] = variable.fingerprint
        return by_store


class Birth(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a process beyond the reuse of its pid.

    `start_ticks` is field 22 of /proc/PID/stat (clock ticks after boot), `boot_id` the kernel's random boot id.
    `isolated`: the process has a pid namespace of its own.
    """

    pid: int
    start_ticks: int
    boot_id: str
    port: int
    isolated: bool
    log: str


class Exit(msgspec.Struct, frozen=True, array_like=True):
    """The end of a process: its exit `code`, or the number of the `signal` that killed it."""

    code: int | None = None
    signal: int | None = None


def environment(spec: SidecarSpec, port: int, host: Mapping[str, str], secrets: Mapping[str, Hidden]) -> dict[str, str]:
    """The whole environment of a sidecar, built from nothing but what is named here.

    `host` is omac's own environment: the base variables come from it, and, for an approved skill only, what the
    skill declared. Nothing else does. `secrets` are values from stores, which only an approved skill gets.
    """
    variables = UNBUFFERED | {name: host[name] for name in BASE_VARIABLES if name in host}
    if spec.approved:
        variables |= {name: host[name] for name in spec.passthrough if name in host}
    for variable in spec.variables:
        value = variable.default
        if value is None and spec.approved and variable.from_env:
            value = host.get(variable.from_env) or None
        if spec.approved and variable.name in secrets:
            value = secrets[variable.name].reveal()
        if value is not None:
            variables[variable.name] = value
    skills_dir = spec.skills_dir.removeprefix(f"{spec.workdir}/") if spec.workdir else spec.skills_dir
    variables |= {"SIDECAR_PORT": str(port), "SIDECAR_SKILL": spec.skill, "OMAC_HARNESS_SKILLS_DIR": skills_dir}
    return variables | ({"OMAC_WORKDIR": spec.workdir} if spec.workdir else {})


LOCALE = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "TZ")
BASE_VARIABLES = ("PATH", "HOME", "USER", "TMPDIR", *LOCALE)
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # Python would keep what it prints to a log, and lose it at SIGTERM


Status = Literal["idle", "requested", "started", "healthy", "exited", "backoff", "stopping", "gave_up"]


class SpawnRequested(Event, frozen=True):
    """The sidecar shall run. `generation` is that of the directory's activation; `attempt` counts from 1."""

    spec: SidecarSpec
    generation: int
    attempt: int = 1


class Started(Event, frozen=True):
    """The process exists."""

    birth: Birth


class Healthy(Event, frozen=True):
    """The sidecar answered its health probe on its own port."""


class Unhealthy(Event, frozen=True):
    """The sidecar did not become healthy in time; `detail` is what was seen. It will be ended."""

    detail: str


class Exited(Event, frozen=True):
    """The sidecar ended, or could not be started at all (neither code nor signal); `uptime_ms` counts from its
    start."""

    exit: Exit
    uptime_ms: int
    detail: str = ""


class RestartScheduled(Event, frozen=True):
    """The sidecar will be started again in `delay_ms`."""

    attempt: int
    delay_ms: int


class StopRequested(Event, frozen=True):
    """The sidecar shall end; `why` is the reason in a few words."""

    why: str


class Stopped(Event, frozen=True):
    """The sidecar has stopped, and nothing of it is left."""


class GaveUp(Event, frozen=True):
    """The sidecar failed too often, or cannot be started until something is changed; a reload tries again. `missing`
    names values that could not be read, and `fix` are the commands that mend it."""

    detail: str
    missing: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()


class Sidecar(msgspec.Struct, frozen=True):
    """The state of a sidecar for decisions. `failures` counts unrequested ends in a row, `detail` describes the last
    one; `has_run` is whether there was a process since it was last wanted.

    `missing` and `fix` are those of the last `GaveUp`.
    """

    status: Status = "idle"
    spec: SidecarSpec | None = None
    generation: int = 0
    birth: Birth | None = None
    failures: int = 0
    attempt: int = 0
    delay_ms: int = 0
    detail: str = ""
    missing: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    has_run: bool = False

    @property
    def live(self) -> bool:
        """Return whether the sidecar runs, or will run without another request."""
        return self.status not in ("idle", "gave_up")


TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("idle", SpawnRequested): "requested",
    ("gave_up", SpawnRequested): "requested",
    ("backoff", SpawnRequested): "requested",
    ("requested", Started): "started",
    ("requested", Exited): "exited",
    ("requested", StopRequested): "stopping",
    ("started", Healthy): "healthy",
    ("started", Unhealthy): "started",
    ("started", Exited): "exited",
    ("started", StopRequested): "stopping",
    ("healthy", Exited): "exited",
    ("healthy", StopRequested): "stopping",
    ("exited", RestartScheduled): "backoff",
    ("exited", GaveUp): "gave_up",
    ("backoff", StopRequested): "stopping",
    ("stopping", Started): "stopping",
    ("stopping", Exited): "stopping",
    ("stopping", Stopped): "idle",
}


class RestartPolicy(msgspec.Struct, frozen=True):
    """The policy for restarts of a sidecar: pauses double from `base_ms` to `max_ms`, for at most `limit` failures in a
    row. An end after `stable_ms` counts as the first failure again."""

    base_ms: int = 250
    max_ms: int = 30_000
    limit: int = 5
    stable_ms: int = 60_000


class RequestSpawn(msgspec.Struct, frozen=True):
    """Command: run it."""

    spec: SidecarSpec
    generation: int


class ReportStarted(msgspec.Struct, frozen=True):
    """Command: the process exists."""

    birth: Birth


class ReportHealthy(msgspec.Struct, frozen=True):
    """Command: the probe succeeded."""


class ReportUnhealthy(msgspec.Struct, frozen=True):
    """Command: the probe failed for good."""

    detail: str


class ReportExit(msgspec.Struct, frozen=True):
    """Command: the process ended, or could not be started; `missing` and `fix` as in `GaveUp`."""

    exit: Exit
    uptime_ms: int
    detail: str
    policy: RestartPolicy = RestartPolicy()
    missing: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()


class Restart(msgspec.Struct, frozen=True):
    """Command: the pause is over."""


class RequestStop(msgspec.Struct, frozen=True):
    """Command: end it."""

    why: str


class ReportStopped(msgspec.Struct, frozen=True):
    """Command: nothing of it is left."""


Command = (
    RequestSpawn | ReportStarted | ReportHealthy | ReportUnhealthy | ReportExit | Restart | RequestStop | ReportStopped
)


def decide(command: Command, state: Sidecar) -> list[Event]:
    """The events that `command` means in `state`; none when it comes too late to matter."""
    match command:
        case RequestSpawn(spec, generation):
            return [] if state.live else [SpawnRequested(spec, generation)]
        case ReportStarted(birth):
            return [Started(birth)] if state.status in ("requested", "stopping") else []
        case ReportHealthy():
            return [Healthy()] if state.status == "started" else []
        case ReportUnhealthy(detail):
            return [Unhealthy(detail)] if state.status == "started" else []
        case ReportExit():
            return _decide_exit(command, state)
        case Restart():
            if state.status != "backoff" or state.spec is None:
                return []
            return [SpawnRequested(state.spec, state.generation, state.attempt)]
        case RequestStop(why):
            if state.status == "exited":  # what was decided with its end was set aside by a repair
                return [GaveUp(why)]
            return [StopRequested(why)] if state.live and state.status != "stopping" else []
        case ReportStopped():
            return [Stopped()] if state.status == "stopping" else []


def _decide_exit(command: ReportExit, state: Sidecar) -> list[Event]:
    if state.status not in ("requested", "started", "healthy", "stopping"):
        return []
    exited = Exited(command.exit, command.uptime_ms, command.detail)
    if state.status == "stopping":
        return [exited]
    if command.missing:  # trying again would not help
        return [exited, GaveUp(command.detail, command.missing, command.fix)]
    failures = 1 if command.uptime_ms >= command.policy.stable_ms else state.failures + 1
    if command.policy.limit == 0:  # nor here
        return [exited, GaveUp(command.detail, (), command.fix)]
    if failures > command.policy.limit:
        detail = f"gave up after {failures} failures in a row; the last: {command.detail}"
        return [exited, GaveUp(detail, (), command.fix)]
    delay_ms = min(command.policy.base_ms * 2 ** (failures - 1), command.policy.max_ms)
    return [exited, RestartScheduled(failures + 1, delay_ms)]


def evolve(state: Sidecar, event: Event) -> Sidecar:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case SpawnRequested(spec, generation, attempt):
            last = state if state.status == "backoff" else Sidecar()
            return Sidecar(
                status, spec, generation, None, last.failures, attempt, 0, last.detail, has_run=last.has_run,
            )  # fmt: skip
        case Started(birth):
            return replace(state, status=status, birth=birth, has_run=True)
        case Healthy():
            return replace(state, status=status, detail="")
        case Exited(_, _, detail):
            return replace(state, status=status, birth=None, detail=detail)
        case RestartScheduled(attempt, delay_ms):
            return replace(state, status=status, failures=attempt - 1, attempt=attempt, delay_ms=delay_ms)
        case Unhealthy(detail):
            return replace(state, status=status, detail=detail)
        case GaveUp(detail, missing, fix):
            return replace(state, status=status, failures=state.failures + 1, detail=detail, missing=missing, fix=fix)
        case Stopped():
            return replace(state, status=status, birth=None)
        case _:
            return replace(state, status=status)


EVENTS: tuple[type[Event], ...] = tuple(dict.fromkeys(event for _, event in TABLE))
AGGREGATE = Aggregate("sidecar", Sidecar(), decide, evolve, EVENTS)
