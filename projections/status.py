"""The status: the projected state of the whole system as one plain object, for people and programs.

The same at the same position, whether a running server is asked or the journal is replayed. It holds no token, and
nothing that is not in the journal.
"""

from collections.abc import Sequence

import msgspec

from omac.domain.credentials.credential import DEFAULTS
from omac.domain.directories.directory import Directory, commands_for
from omac.domain.directories.events import NOT_APPROVED
from omac.domain.kernel import ids
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.terminal_escaping import named
from omac.projections.access.routes import STARTING, down_detail
from omac.projections.evidence.unfinished import (
    DelayStatus,
    ErasureStatus,
    LapseStatus,
    delays_of,
    erasures_of,
    lapses_of,
)
from omac.projections.system import System

ALL = "all projects"
STATE_OF = {"pending-credentials": "pending_credentials", "skill-broken": "broken"}


class SkillStatus(msgspec.Struct, frozen=True):
    """A skill of a directory: ready, pending_credentials, broken or restarting, and stopping or stopped while its
    directory goes offline; `fix` can be pasted.

    `repository` is the git common directory of the repository by which it is approved, if it is by one.
    """

    name: str
    scope: str
    mount: str
    state: str
    missing: tuple[str, ...]
    fix: tuple[str, ...]
    detail: str
    repository: str = ""


class DirectoryStatus(msgspec.Struct, frozen=True):
    """A directory that is not offline; one that several runs have online is there for each, with the `run`."""

    dir: str
    state: str
    harness: str
    sessions: tuple[str, ...]
    skills: tuple[SkillStatus, ...]
    run: str = ""


class SidecarStatus(msgspec.Struct, frozen=True):
    """A sidecar of `run` that runs, is to run, or gave up; `failures` in a row.

    `start_ticks` and `boot_id` identify its process beyond the reuse of its pid (`domain/sidecars/sidecar.py: Birth`).
    """

    dir: str
    skill: str
    state: str
    pid: int | None
    port: int | None
    log: str | None
    failures: int
    detail: str
    run: str = ""
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""


class SandboxStatus(msgspec.Struct, frozen=True):
    """A launch whose end is not recorded yet; `pid` is that of the first process inside, None until it is known.

    `launcher_pid`, `start_ticks` and `boot_id` identify the omac process that launched it, for the run `run` if any.
    """

    launch: str
    dir: str
    harness: str
    backend: str
    network: str
    state: str
    pid: int | None
    argv: tuple[str, ...]
    run: str = ""
    launcher_pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""


class RegistrationStatus(msgspec.Struct, frozen=True):
    """A skill this host knows; `approved` says whether the code seen last may run.

    `dir` is empty for a skill that all directories share; `approved_hash` and `digest` are of the code that may run.
    `secrets` are names; `since` is the position of the registration's last change.
    """

    scope: str
    harness: str
    skill: str
    source: str
    bundle_hash: str
    approved: bool
    dir: str
    approved_hash: str
    digest: str
    secrets: tuple[str, ...]
    config: dict[str, str]
    since: int


class RunStatus(msgspec.Struct, frozen=True):
    """An omac process whose end is not recorded; `command` is "serve" or "start".

    `start_ticks` and `boot_id` identify the process beyond the reuse of its pid. `bridge_compat`: it serves bridges of
    the Go omac, without a token. `agent` is the name of the agent that it launches, empty for none and for a command.
    `audit` is strict where each call waits for its record, buffered where it may go ahead of it. `sandbox` has the
    options of the agent's sandbox, --no-sandbox where there is none, "" for the default.
    """

    run: str
    harness: str
    version: str
    pid: int
    roots: tuple[str, ...]
    command: str = "serve"
    start_ticks: int = 0
    boot_id: str = ""
    bridge_compat: bool = False
    agent: str = ""
    audit: str = "strict"
    sandbox: str = ""
    host: str = ""


class Status(msgspec.Struct, frozen=True):
    """The whole status, at `position`. Counts of accesses, control calls and guarded writes are since the journal
    began.

    `shared` are skills of all directories; `defaults` are the names of remembered values, by skill; `settings` are
    those that `omac settings` changed.
    """

    position: int
    runs: tuple[RunStatus, ...]
    directories: tuple[DirectoryStatus, ...]
    shared: tuple[SkillStatus, ...] = msgspec.field(name="global")
    sidecars: tuple[SidecarStatus, ...]
    sandboxes: tuple[SandboxStatus, ...]
    registry: tuple[RegistrationStatus, ...]
    defaults: dict[str, tuple[str, ...]]
    settings: dict[str, str | None]
    accesses: dict[str, int]
    control: dict[str, int]
    guard: dict[str, int]
    unsigned: tuple[DelayStatus, ...] = ()
    unwitnessed: tuple[LapseStatus, ...] = ()
    unerased: tuple[ErasureStatus, ...] = ()


def shown_problem(state: str, detail: str) -> tuple[str, str]:
    """Return the state of a skill and why, as people read them: code that nobody approved is not broken, and a sidecar
    that starts for the first time does not start again."""
    if detail == STARTING:
        return "starting", "its sidecar does not answer yet"
    if state == STATE_OF["skill-broken"] and detail.startswith(NOT_APPROVED):
        return "not approved", detail.removeprefix(NOT_APPROVED).lstrip(":, ")
    return state, detail


def status_of(system: System) -> Status:
    """The status of the system as it is."""
    return Status(
        system.position,
        tuple(_runs(system)),
        tuple(_directories(system)),
        tuple(_shared(system)),
        tuple(_sidecars(system)),
        tuple(_sandboxes(system)),
        tuple(registry_of(system)),
        _defaults(system),
        {ids.key_of(stream).name: entry.state.value for stream, entry in sorted(system.settings.entries.items())},
        {
            "open": len(system.accesses.open),
            "completed": system.accesses.completed,
            "aborted": system.accesses.aborted,
            "refused": system.accesses.refused,
        },
        {"called": system.controls.called, "refused": system.controls.refused},
        {"denied": system.guarded.denied},
        tuple(delays_of(system)),
        tuple(lapses_of(system)),
        tuple(erasures_of(system)),
    )


def narrowed(status: Status, roots: Sequence[str]) -> Status:
    """Return the part of a status for programs in directories below `roots`: these directories, and what all share.

    Settings, values, and the names of secrets of other directories are left out.
    """

    return msgspec.structs.replace(
        status,
        runs=tuple(run for run in status.runs if all(below_any(root, roots) for root in run.roots)),
        directories=tuple(directory for directory in status.directories if below_any(directory.dir, roots)),
        sidecars=tuple(
            msgspec.structs.replace(sidecar, log=None) for sidecar in status.sidecars if below_any(sidecar.dir, roots)
        ),
        registry=tuple(
            msgspec.structs.replace(registration, config={})
            for registration in status.registry
            if below_any(registration.dir, roots)
        ),
        sandboxes=tuple(sandbox for sandbox in status.sandboxes if below_any(sandbox.dir, roots)),
        defaults={},
        settings={},
        unsigned=(),
        unwitnessed=(),
        unerased=(),
    )


def skills_of(system: System, namespace: ids.HostId, directory: Directory) -> tuple[SkillStatus, ...]:
    """The skills of a directory, by name."""
    return tuple(_skill(system, namespace, directory, name) for name in sorted(directory.skills))


def about_stream(system: System, stream: ids.StreamId) -> str:
    """Return a name of a stream for people: names and paths instead of digests, as far as the system knows them."""
    key = ids.key_of(stream)
    match key.aggregate:
        case "directory":
            path = system.directories[stream].state.path
            return named(path) if path else ALL if key.scope == ids.GLOBAL else stream
        case "sidecar":
            spec = system.sidecars[stream].state.spec
            return f"{spec.skill} of {named(spec.workdir) if spec.workdir else ALL}" if spec else stream
        case "registration":
            code = system.registrations[stream].state.found
            return f"{key.name} in {named(code.source)}" if code else key.name
        case "credential":
            return f"values of {key.name} in {_scope_shown(system, key.scope)}"
        case "run":
            return f"run {key.name}"
        case "sandbox":
            launch = system.sandboxes[stream].state.launch
            return f"sandbox {key.name}{f' in {named(launch.workdir)}' if launch else ''}"
        case log:
            return log


def _skill(system: System, namespace: ids.HostId, directory: Directory, name: str) -> SkillStatus:
    skill = directory.skills[name]
    route = directory.routes.get(name)
    scope = "workdir" if directory.path else "global"
    if route is not None and route.why is not None:
        state, detail, missing, fix = STATE_OF[route.why], route.detail, route.missing, route.fix
        return SkillStatus(name, scope, skill.mount, state, missing, fix, detail)
    sidecar = system.sidecars[ids.sidecar_stream(namespace, ids.scope_of(directory.path), name)].state
    if directory.status == "deactivating":
        state = "stopping" if sidecar.live else "stopped"
        return SkillStatus(name, scope, skill.mount, state, (), (), "its directory goes offline")
    spec = directory.specs.get(name)
    repository = ""
    if spec is not None and spec.repository:
        stream = ids.registration_stream(ids.host_of(namespace), spec.repository, skill.base, name)
        repository = system.registrations[stream].state.workdir
    if route is not None and sidecar.status == "healthy":
        return SkillStatus(name, scope, skill.mount, "ready", (), (), "", repository)
    fix = commands_for(sidecar, name, directory.path)
    return SkillStatus(name, scope, skill.mount, "restarting", (), fix, down_detail(sidecar), repository)


def _runs(system: System) -> list[RunStatus]:
    runs = []
    for stream, entry in sorted(system.runs.entries.items()):
        run = entry.state
        if run.status == "started":
            runs.append(
                RunStatus(
                    ids.key_of(stream).name, run.harness, run.version, run.pid, run.roots, run.command,
                    run.start_ticks, run.boot_id, bool(run.policy.get("bridge_compat")),
                    str(run.policy.get("agent", "")), str(run.policy.get("audit", "strict")),
                    str(run.policy.get("sandbox", "")), ids.key_of(stream).host,
                )
            )  # fmt: skip
    return runs


def _directories(system: System) -> list[DirectoryStatus]:
    rows = []
    for stream, entry in system.directories.entries.items():
        directory = entry.state
        if directory.path and directory.status != "offline":
            sessions = tuple(sorted(session for session in directory.tokens.values() if session is not None))
            skills = skills_of(system, ids.key_of(stream).namespace, directory)
            rows.append(
                DirectoryStatus(directory.path, directory.status, directory.harness, sessions, skills, entry.run)
            )
    return sorted(rows, key=lambda row: row.dir)


def _sidecars(system: System) -> list[SidecarStatus]:
    rows = []
    for stream, entry in system.sidecars.entries.items():
        sidecar, key = entry.state, ids.key_of(stream)
        directory = system.directories[ids.directory_stream(key.namespace, key.workdir)].state
        is_wanted = directory.status != "offline" and key.name in directory.specs
        if sidecar.spec is not None and (sidecar.live or (sidecar.status == "gave_up" and is_wanted)):
            birth = sidecar.birth
            pid, port, log = (birth.pid, birth.port, birth.log) if birth else (None, None, None)
            spec = sidecar.spec
            rows.append(
                SidecarStatus(
                    spec.workdir, spec.skill, sidecar.status, pid, port, log, sidecar.failures, sidecar.detail,
                    entry.run, birth.start_ticks if birth else 0, birth.boot_id if birth else "", key.host,
                )
            )  # fmt: skip
    return sorted(rows, key=lambda row: (row.dir, row.skill))


def _sandboxes(system: System) -> list[SandboxStatus]:
    rows = []
    for stream, entry in system.sandboxes.entries.items():
        sandbox = entry.state
        if sandbox.live and sandbox.launch is not None:
            launch = sandbox.launch
            rows.append(
                SandboxStatus(
                    ids.key_of(stream).name, launch.workdir, launch.harness, launch.backend, launch.network,
                    sandbox.status, sandbox.pid, launch.argv, launch.run, launch.pid, launch.start_ticks,
                    launch.boot_id, ids.key_of(stream).host,
                )
            )  # fmt: skip
    return sorted(rows, key=lambda row: (row.dir, row.launch))


def registry_of(system: System) -> list[RegistrationStatus]:
    """Every skill that any host of this journal knows, by stream."""
    rows = []
    for stream, entry in sorted(system.registrations.entries.items()):
        key = ids.key_of(stream)
        state = entry.state
        if state.found is None:
            continue
        approved = state.approved
        credential = system.credentials[ids.credential_stream(key.host, key.scope, key.name)].state.of(key.base)
        rows.append(
            RegistrationStatus(
                key.scope, key.base, key.name, state.found.source, state.found.bundle_hash,
                approved is not None and approved.is_bundle(state.found), state.workdir,
                approved.bundle_hash if approved else "", approved.digest if approved else "",
                tuple(sorted(credential.secrets)), dict(sorted(credential.config.items())), entry.position,
            )
        )  # fmt: skip
    return rows


def _shared(system: System) -> list[SkillStatus]:
    skills: list[SkillStatus] = []
    for stream, entry in sorted(system.directories.entries.items()):
        if not entry.state.path and entry.state.reachable:
            skills += skills_of(system, ids.key_of(stream).namespace, entry.state)
    return list(dict.fromkeys(skills))  # each run has them; where they fare the same, they are told once


def _defaults(system: System) -> dict[str, tuple[str, ...]]:
    defaults = {}
    for stream, entry in sorted(system.credentials.entries.items()):
        if entry.state.defaults:
            defaults[ids.key_of(stream).name] = tuple(sorted(entry.state.defaults))
    return defaults


def _scope_shown(system: System, scope: str) -> str:
    if scope == ids.GLOBAL:
        return ALL
    if scope == DEFAULTS:
        return "the defaults"
    for stream, entry in system.registrations.entries.items():
        if ids.key_of(stream).scope == scope and entry.state.workdir:
            return entry.state.workdir
    return scope
