"""The status: the projected state of the whole system as one plain object, for people and programs.

The same at the same position, whether a running server is asked or the journal is replayed. It holds no token, and
nothing that is not in the journal.
"""

import msgspec

from omac.domain import ids
from omac.domain.directory import Directory
from omac.projections.routes import down_detail, reload_command
from omac.projections.system import System

STATE_OF = {"pending-credentials": "pending_credentials", "skill-broken": "broken"}


class SkillStatus(msgspec.Struct, frozen=True):
    """A skill of a directory: ready, pending_credentials, broken or restarting; `fix` can be pasted."""

    name: str
    scope: str
    mount: str
    state: str
    missing: tuple[str, ...]
    fix: tuple[str, ...]
    detail: str


class DirectoryStatus(msgspec.Struct, frozen=True):
    """A directory that is not offline."""

    dir: str
    state: str
    harness: str
    sessions: tuple[str, ...]
    skills: tuple[SkillStatus, ...]


class SidecarStatus(msgspec.Struct, frozen=True):
    """A sidecar that runs, is to run, or gave up; `failures` in a row."""

    dir: str
    skill: str
    state: str
    pid: int | None
    port: int | None
    log: str | None
    failures: int
    detail: str


class RegistrationStatus(msgspec.Struct, frozen=True):
    """A skill this host knows; `approved` says whether the code seen last may run."""

    scope: str
    harness: str
    skill: str
    source: str
    bundle_hash: str
    approved: bool


class RunStatus(msgspec.Struct, frozen=True):
    """An omac process that has not ended."""

    run: str
    harness: str
    version: str
    pid: int
    roots: tuple[str, ...]


class Status(msgspec.Struct, frozen=True):
    """Everything, at `position`. Counts of accesses and control calls are since the journal began."""

    position: int
    runs: tuple[RunStatus, ...]
    directories: tuple[DirectoryStatus, ...]
    sidecars: tuple[SidecarStatus, ...]
    registry: tuple[RegistrationStatus, ...]
    accesses: dict[str, int]
    control: dict[str, int]


def status_of(system: System) -> Status:
    """The status of the system as it is."""
    return Status(
        system.position,
        tuple(_runs(system)),
        tuple(_directories(system)),
        tuple(_sidecars(system)),
        tuple(_registry(system)),
        {
            "open": len(system.accesses.open),
            "completed": system.accesses.completed,
            "aborted": system.accesses.aborted,
            "refused": system.accesses.refused,
        },
        {"called": system.controls.called, "refused": system.controls.refused},
    )


def skills_of(system: System, host: ids.HostId, directory: Directory) -> tuple[SkillStatus, ...]:
    """The skills of a directory, by name."""
    return tuple(_skill(system, host, directory, name) for name in sorted(directory.skills))


def about_stream(system: System, stream: ids.StreamId) -> str:
    """What a stream is about, for people: names and paths instead of digests, as far as the system knows them."""
    parts = stream.split("/")
    match parts[0]:
        case "directory":
            return system.directories[stream].state.path or stream
        case "sidecar":
            spec = system.sidecars[stream].state.spec
            return f"{spec.skill} of {spec.workdir}" if spec else stream
        case "registration":
            code = system.registrations[stream].state.found
            return f"{parts[4]} in {code.source}" if code else parts[4]
        case "run":
            return f"run {parts[2]}"
        case log:
            return log


def _skill(system: System, host: ids.HostId, directory: Directory, name: str) -> SkillStatus:
    skill = directory.skills[name]
    route = directory.routes.get(name)
    if route is not None and route.why is not None:
        state, detail, missing, fix = STATE_OF[route.why], route.detail, route.missing, route.fix
        return SkillStatus(name, "workdir", skill.mount, state, missing, fix, detail)
    sidecar = system.sidecars[ids.sidecar_stream(host, ids.workdir_id(directory.path), name)].state
    if route is not None and sidecar.status == "healthy":
        return SkillStatus(name, "workdir", skill.mount, "ready", (), (), "")
    fix = (reload_command(directory.path),)
    return SkillStatus(name, "workdir", skill.mount, "restarting", (), fix, down_detail(sidecar))


def _runs(system: System) -> list[RunStatus]:
    found = []
    for stream, entry in sorted(system.runs.entries.items()):
        run = entry.state
        if run.status == "started":
            found.append(RunStatus(stream.split("/")[2], run.harness, run.version, run.pid, run.roots))
    return found


def _directories(system: System) -> list[DirectoryStatus]:
    found = []
    for stream, entry in system.directories.entries.items():
        directory, host = entry.state, ids.HostId(stream.split("/")[1])
        if directory.status != "offline":
            sessions = tuple(sorted(session for session in directory.tokens.values() if session is not None))
            skills = skills_of(system, host, directory)
            found.append(DirectoryStatus(directory.path, directory.status, directory.harness, sessions, skills))
    return sorted(found, key=lambda one: one.dir)


def _sidecars(system: System) -> list[SidecarStatus]:
    found = []
    for entry in system.sidecars.entries.values():
        sidecar = entry.state
        if sidecar.spec is not None and sidecar.status != "idle":
            birth = sidecar.birth
            pid, port, log = (birth.pid, birth.port, birth.log) if birth else (None, None, None)
            spec = sidecar.spec
            found.append(
                SidecarStatus(
                    spec.workdir, spec.skill, sidecar.status, pid, port, log, sidecar.failures, sidecar.detail
                )
            )
    return sorted(found, key=lambda one: (one.dir, one.skill))


def _registry(system: System) -> list[RegistrationStatus]:
    found = []
    for stream, entry in sorted(system.registrations.entries.items()):
        _, _, scope, harness, skill = stream.split("/")
        code = entry.state.found
        if code is not None:
            approved = entry.state.approves(code)
            found.append(RegistrationStatus(scope, harness, skill, code.source, code.bundle_hash, approved))
    return found
