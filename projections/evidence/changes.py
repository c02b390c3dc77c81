"""Changes of trust in the audit log: what was registered, approved, given, adopted, and what was kept from running.

A fold of its own beside accesses: it remembers which path a workdir id stands for, which the events themselves do not
repeat.
"""

from collections.abc import Mapping
from typing import NamedTuple

from omac.domain.access.control import ControlCalled, ControlRefused, VaultLocked
from omac.domain.access.erasure import SubjectErased
from omac.domain.access.export import ExportCreated
from omac.domain.access.receipt import CheckpointContested
from omac.domain.access.sealing import PruneFailed, SealFailed, SegmentPruned, SegmentSealed
from omac.domain.access.signing import CheckpointDelayed, KeyLost, KeyMoved, KeyRotated
from omac.domain.access.witness import WitnessFailed
from omac.domain.credentials import credential
from omac.domain.directories.events import ActivationRequested, RouteStubbed
from omac.domain.guard.denial import GuardDenied
from omac.domain.harness.installation import BridgeChanged, BridgeChangeFailed
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import GLOBAL, StreamId, key_of
from omac.domain.kernel.run import RunStarted
from omac.domain.kernel.set_aside import PositionSetAside
from omac.domain.kernel.terminal_escaping import named
from omac.domain.sandbox.inspection import Inspected
from omac.domain.settings.setting import SettingChanged, SettingChangeFailed
from omac.domain.sidecars.sidecar import Exited, GaveUp, SpawnRequested, Started, Stopped
from omac.domain.skills import registration
from omac.domain.skills.repository import is_repository
from omac.projections.evidence.given_secrets import shown_secrets

OUTSIDE = "outside-worktree"


class RequestedStart(NamedTuple):
    """The position and time (nanoseconds since 1970 UTC) of the request of a sidecar's start, and its secrets."""

    position: int
    at: int
    secrets: str


class TrustChange(NamedTuple):
    """A change of trust. `refused`: something was kept from happening, for `reason`. `begun` is the request of a start,
    which has the position of the change."""

    kind: str
    detail: str
    refused: bool = False
    reason: str | None = None
    dir: str | None = None
    skill: str | None = None
    session: str | None = None
    begun: RequestedStart | None = None


class TrustChanges:
    """Tells of each event whether it is a change of trust, and of whom."""

    def __init__(
        self, paths: Mapping[str, str | None] | None = None, requested: Mapping[StreamId, RequestedStart] | None = None
    ) -> None:
        self._paths: dict[str, str | None] = {GLOBAL: None, credential.DEFAULTS: None, **(paths or {})}
        self._requested = dict(requested or {})

    def paths(self) -> dict[str, str | None]:
        """Return the paths that are known, to begin with another time."""
        return dict(self._paths)

    def requested(self) -> dict[StreamId, RequestedStart]:
        """Return the starts with secrets that are under way, to begin with another time."""
        return dict(self._requested)

    def of(self, recorded: Recorded) -> TrustChange | None:
        """The change that an event is, if it is one. Takes events in their order."""
        event, key = recorded.event, key_of(recorded.stream)
        scope = key.scope
        match event:
            case ActivationRequested(path):
                self._paths[scope] = path or None
                return None
            case SpawnRequested(spec):
                self._paths[scope] = spec.workdir or None
                if secrets := shown_secrets(spec):
                    self._requested[recorded.stream] = RequestedStart(recorded.position, recorded.moment, secrets)
                return None
            case registration.Registered() | registration.AutoRegistered() if event.workdir:
                self._paths[scope] = event.workdir
            case _:
                pass
        change = self._described_start(recorded) or _described(event)
        if change is None:
            return None
        if is_repository(scope):
            where = self._paths.get(scope)
            every = f"for every worktree of {named(where) if where else 'a repository'}"
            change = change._replace(detail=f"{change.detail}, {every}" if change.detail else every)
        match event:
            case ControlCalled(dir=directory, session=session) | GuardDenied(root=directory, session=session):
                return change._replace(dir=directory or None, session=session)
            case (
                ControlRefused(dir=directory) | Inspected(projects=(directory, *_)) | RunStarted(roots=(directory, *_))
            ):
                return change._replace(dir=directory or None)
            case RouteStubbed(skill):
                return change._replace(dir=self._paths.get(scope), skill=skill)
            case _ if scope:  # an erasure is of no skill
                return change._replace(dir=self._paths.get(scope), skill=key.name or None)
            case _:
                return change

    def _described_start(self, recorded: Recorded) -> TrustChange | None:
        """The start of a sidecar that was given secrets."""
        match recorded.event:
            case Started() if (request := self._requested.pop(recorded.stream, None)) is not None:
                return TrustChange("sidecar.started", request.secrets, begun=request)
            case Exited() | Stopped() | GaveUp():  # it never started
                self._requested.pop(recorded.stream, None)
                return None
            case _:
                return None


def _described(event: Event) -> TrustChange | None:
    """The change that an event is, without its directory, skill and session; None for what is none."""
    match event:
        case RunStarted(policy={"sandbox": options}):
            agent = f" {event.policy['agent']}" if "agent" in event.policy else ""
            return TrustChange("run.started", f"omac {event.command}{agent} with {options}")
        case registration.AutoRegistered(source, bundle_hash, _, digest):
            return TrustChange("skill.auto-registered", _code(source, bundle_hash, digest))
        case registration.Registered(source, bundle_hash, _, digest):
            return TrustChange("skill.registered", _code(source, bundle_hash, digest))
        case registration.Approved(source, bundle_hash, digest):
            return TrustChange("skill.approved", _code(source, bundle_hash, digest))
        case registration.ApprovalRevoked(why):
            return TrustChange("skill.approval-revoked", why)
        case registration.Deregistered():
            return TrustChange("skill.deregistered", "")
        case registration.Drifted(source, bundle_hash, digest, accepted_by):
            detail = _code(source, bundle_hash, digest)
            if accepted_by:
                return TrustChange("skill.drifted", f"accepted by run {accepted_by}: {detail}")
            return TrustChange("skill.drifted", detail, refused=True, reason="skill-changed")
        case _:
            return _described_call(event)


def _code(source: str, bundle_hash: str, digest: str) -> str:
    return f"{registration.shown_hash(bundle_hash, digest)} in {named(source)}"


def _described_call(event: Event) -> TrustChange | None:
    match event:
        case RouteStubbed(_, _, why, detail):
            return TrustChange("route.stubbed", detail, refused=True, reason=why)
        case GaveUp(detail):
            return TrustChange("sidecar.gave-up", detail, refused=True, reason="sidecar-down")
        case ControlCalled(action, _, listener, session):
            of_session = " of the session" if session is not None else ""
            return TrustChange("control.called", f"{action}{of_session} by {listener}")
        case VaultLocked(listener):
            return TrustChange("control.vault-locked", f"the key of the vault is forgotten, by {listener}")
        case ControlRefused(action, _, listener, reason, count):
            times = f", {count} times" if count > 1 else ""
            return TrustChange(
                "control.refused", f"{action or 'unknown'} by {listener}{times}", refused=True, reason=reason
            )
        case GuardDenied():
            return _described_denial(event)
        case Inspected(launches, _, findings):
            listed = f"; found: {', '.join(findings)}" if findings else ""
            return TrustChange("sandbox.inspected", f"what was left by {', '.join(launches)}{listed}")
        case SettingChangeFailed(name, why):
            return TrustChange("setting.change-failed", f"{name}: {why}", refused=True)
        case SettingChanged(name, value):
            return TrustChange("setting.changed", f"{name} = {value}" if value is not None else f"{name} unset")
        case BridgeChangeFailed(harness, file, why):
            return TrustChange("bridge.change-failed", f"{harness} in {named(file)}: {why}", refused=True)
        case BridgeChanged(harness, file, events):
            return TrustChange(
                "bridge.changed", f"{harness} calls omac for {', '.join(events) or 'nothing'} by {named(file)}"
            )
        case _:
            return _described_value(event)


def _described_denial(event: GuardDenied) -> TrustChange:
    suggestion = f", {named(event.probable)} was probably meant" if event.probable else ""
    claimed = ", as claimed from inside" if event.origin == "bridge" else ""
    claimed += f", {event.count} times" if event.count > 1 else ""
    if not event.path:
        return TrustChange("guard.denied", f"a call that could not be understood{claimed}", refused=True)
    return TrustChange(
        "guard.denied",
        f"{named(event.tool)} of {named(event.harness)} to {named(event.path)}{suggestion}{claimed}",
        refused=True,
        reason=OUTSIDE,
    )


def _described_value(event: Event) -> TrustChange | None:
    match event:
        case credential.SecretWritten(name, fingerprint, store, base):
            return TrustChange("secret.written", f"{name} ({fingerprint}) in the {store}{_for(base)}")
        case credential.SecretRemoved(name):
            return TrustChange("secret.removed", name)
        case credential.SecretErased(name, store):
            return TrustChange("secret.erased", f"{name} from the {store}")
        case credential.ConfigWritten(name, value, base):
            return TrustChange("config.written", f"{name} = {value}{_for(base)}")
        case credential.ConfigRemoved(name):
            return TrustChange("config.removed", name)
        case credential.DefaultMirrored(name, code):
            return TrustChange("default.mirrored", f"{name}, given to {code or 'no known code'}")
        case credential.DefaultAdopted(name, code):
            return TrustChange("default.adopted", f"{name}, given to {code or 'no known code'}")
        case credential.DefaultPurged(name):
            return TrustChange("default.purged", name)
        case _:
            return _described_signing(event)


def _described_signing(event: Event) -> TrustChange | None:
    match event:
        case KeyRotated(old, new):
            return TrustChange("key.rotated", f"{old} gave way to {new}")
        case KeyLost(old, new):
            return TrustChange("key.lost", f"{old} is lost; {new} begins a new chain")
        case KeyMoved(key, store):
            return TrustChange("key.moved", f"{key} is kept in the {store}")
        case CheckpointDelayed(why):
            return TrustChange("checkpoint.delayed", why, refused=True)
        case WitnessFailed(size, name, why):
            return TrustChange(
                "witness.failed", f"{name} did not get the checkpoint of {size} events: {why}", refused=True
            )
        case CheckpointContested(journal, size, _, _, received):
            difference = f"{size} events" if size < received else "another root"
            return TrustChange(
                "checkpoint.contested",
                f"journal {journal} shows {difference}; it had {received} when it was last seen here",
                refused=True,
            )
        case _:
            return _described_retention(event)


def _described_retention(event: Event) -> TrustChange | None:
    match event:
        case ExportCreated():
            return _described_export(event)
        case SubjectErased(workdir):
            return TrustChange("subject.erased", f"the key of directory {workdir} is destroyed")
        case PositionSetAside(position, kind, stream, why):
            location = f"position {position}, {kind or 'of no kind'} in {stream or 'no stream'}"
            return TrustChange("position.set-aside", f"{location}: {why}")
        case SegmentSealed(first, last, file):
            return TrustChange("segment.sealed", f"positions {first} to {last} in {file}, SHA-256 {event.sha256}")
        case SegmentPruned(first, last, file):
            detail = f"the contents of {event.dropped} events of positions {first} to {last}; the rest is in {file}"
            return TrustChange("segment.pruned", detail)
        case PruneFailed(why):
            return TrustChange("segment.prune-failed", why, refused=True, reason="prune-failed")
        case SealFailed(why):
            return TrustChange("segment.seal-failed", why, refused=True, reason="seal-failed")
        case _:
            return None


def _described_export(event: ExportCreated) -> TrustChange:
    of = f" of {', '.join(f'{name} {value}' for name, value in event.filters.items())}" if event.filters else ""
    without = f", without the content of {', '.join(event.redacted)}" if event.redacted else ""
    detail = f"{event.events} events{of} as {event.format} to {event.folder}{without}"
    return TrustChange("export.created", detail)


def _for(base: str) -> str:
    return f", for .{base}/skills" if base else ""
