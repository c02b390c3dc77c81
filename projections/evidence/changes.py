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
from omac.domain.kernel.ids import GLOBAL, key_of
from omac.domain.kernel.run import RunStarted
from omac.domain.kernel.set_aside import PositionSetAside
from omac.domain.kernel.terminal_escaping import named
from omac.domain.sandbox.inspection import Inspected
from omac.domain.settings.setting import SettingChanged, SettingChangeFailed
from omac.domain.sidecars.sidecar import GaveUp, SpawnRequested
from omac.domain.skills import registration
from omac.domain.skills.repository import is_repository

OUTSIDE = "outside-worktree"


class TrustChange(NamedTuple):
    """A change of trust. `refused`: something was kept from happening, for `reason`."""

    kind: str
    dir: str | None
    skill: str | None
    refused: bool
    reason: str | None
    detail: str
    session: str | None = None


class TrustChanges:
    """Tells of each event whether it is a change of trust, and of whom."""

    def __init__(self, paths: Mapping[str, str | None] | None = None) -> None:
        self._paths: dict[str, str | None] = {GLOBAL: None, credential.DEFAULTS: None, **(paths or {})}

    def state(self) -> dict[str, str | None]:
        """Return the paths that are known, to begin with another time."""
        return dict(self._paths)

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
                return None
            case registration.Registered() | registration.AutoRegistered() if event.workdir:
                self._paths[scope] = event.workdir
            case _:
                pass
        described = _described(event)
        if described is None:
            return None
        kind, refused, reason, detail = described
        if is_repository(scope):
            where = self._paths.get(scope)
            detail += f"{', ' if detail else ''}for every worktree of {named(where) if where else 'a repository'}"
        match event:
            case ControlCalled(_, directory, _, session):
                return TrustChange(kind, directory or None, None, refused, reason, detail, session)
            case (
                ControlRefused(dir=directory) | Inspected(projects=(directory, *_)) | RunStarted(roots=(directory, *_))
            ):
                return TrustChange(kind, directory or None, None, refused, reason, detail)
            case GuardDenied():
                return TrustChange(kind, event.root or None, None, refused, reason, detail, event.session)
            case (
                Inspected()
                | SettingChanged()
                | SettingChangeFailed()
                | VaultLocked()
                | BridgeChanged()
                | BridgeChangeFailed()
                | ExportCreated()
                | KeyRotated()
                | KeyLost()
                | KeyMoved()
                | CheckpointDelayed()
                | WitnessFailed()
                | CheckpointContested()
                | SegmentSealed()
                | SealFailed()
                | SegmentPruned()
                | PruneFailed()
                | PositionSetAside()
            ):
                return TrustChange(kind, None, None, refused, reason, detail)
            case RouteStubbed(skill):
                return TrustChange(kind, self._paths.get(scope), skill, refused, reason, detail)
            case _:  # an erasure is of no skill
                return TrustChange(kind, self._paths.get(scope), key.name or None, refused, reason, detail)


def _described(event: Event) -> tuple[str, bool, str | None, str] | None:
    """Kind, whether it was refused, the reason, and what there is to say; None for what is no change of trust."""
    match event:
        case RunStarted(policy={"sandbox": options}):
            agent = f" {event.policy['agent']}" if "agent" in event.policy else ""
            return "run.started", False, None, f"omac {event.command}{agent} with {options}"
        case registration.AutoRegistered(source, bundle_hash, _, digest):
            return (
                "skill.auto-registered",
                False,
                None,
                _code(source, bundle_hash, digest),
            )
        case registration.Registered(source, bundle_hash, _, digest):
            return "skill.registered", False, None, _code(source, bundle_hash, digest)
        case registration.Approved(source, bundle_hash, digest):
            return "skill.approved", False, None, _code(source, bundle_hash, digest)
        case registration.ApprovalRevoked(why):
            return "skill.approval-revoked", False, None, why
        case registration.Deregistered():
            return "skill.deregistered", False, None, ""
        case registration.Drifted(source, bundle_hash, digest, accepted_by):
            detail = _code(source, bundle_hash, digest)
            if accepted_by:
                return "skill.drifted", False, None, f"accepted by run {accepted_by}: {detail}"
            return "skill.drifted", True, "skill-changed", detail
        case _:
            return _described_call(event)


def _code(source: str, bundle_hash: str, digest: str) -> str:
    return f"{registration.shown_hash(bundle_hash, digest)} in {named(source)}"


def _described_call(event: Event) -> tuple[str, bool, str | None, str] | None:
    match event:
        case RouteStubbed(_, _, why, detail):
            return "route.stubbed", True, why, detail
        case GaveUp(detail):
            return "sidecar.gave-up", True, "sidecar-down", detail
        case ControlCalled(action, _, listener, session):
            of_session = " of the session" if session is not None else ""
            return "control.called", False, None, f"{action}{of_session} by {listener}"
        case VaultLocked(listener):
            return "control.vault-locked", False, None, f"the key of the vault is forgotten, by {listener}"
        case ControlRefused(action, _, listener, reason, count):
            times = f", {count} times" if count > 1 else ""
            return "control.refused", True, reason, f"{action or 'unknown'} by {listener}{times}"
        case GuardDenied():
            return _described_denial(event)
        case Inspected(launches, _, findings):
            listed = f"; found: {', '.join(findings)}" if findings else ""
            return "sandbox.inspected", False, None, f"what was left by {', '.join(launches)}{listed}"
        case SettingChangeFailed(name, why):
            return "setting.change-failed", True, None, f"{name}: {why}"
        case SettingChanged(name, value):
            return "setting.changed", False, None, f"{name} = {value}" if value is not None else f"{name} unset"
        case BridgeChangeFailed(harness, file, why):
            return "bridge.change-failed", True, None, f"{harness} in {named(file)}: {why}"
        case BridgeChanged(harness, file, events):
            return (
                "bridge.changed",
                False,
                None,
                f"{harness} calls omac for {', '.join(events) or 'nothing'} by {named(file)}",
            )
        case _:
            return _described_value(event)


def _described_denial(event: GuardDenied) -> tuple[str, bool, str | None, str]:
    suggestion = f", {named(event.probable)} was probably meant" if event.probable else ""
    claimed = ", as claimed from inside" if event.origin == "bridge" else ""
    claimed += f", {event.count} times" if event.count > 1 else ""
    if not event.path:
        return "guard.denied", True, None, f"a call that could not be understood{claimed}"
    return (
        "guard.denied",
        True,
        OUTSIDE,
        f"{named(event.tool)} of {named(event.harness)} to {named(event.path)}{suggestion}{claimed}",
    )


def _described_value(event: Event) -> tuple[str, bool, str | None, str] | None:
    match event:
        case credential.SecretWritten(name, fingerprint, store, base):
            return "secret.written", False, None, f"{name} ({fingerprint}) in the {store}{_for(base)}"
        case credential.SecretRemoved(name):
            return "secret.removed", False, None, name
        case credential.SecretErased(name, store):
            return "secret.erased", False, None, f"{name} from the {store}"
        case credential.ConfigWritten(name, value, base):
            return "config.written", False, None, f"{name} = {value}{_for(base)}"
        case credential.ConfigRemoved(name):
            return "config.removed", False, None, name
        case credential.DefaultMirrored(name, code):
            return "default.mirrored", False, None, f"{name}, given to {code or 'no known code'}"
        case credential.DefaultAdopted(name, code):
            return "default.adopted", False, None, f"{name}, given to {code or 'no known code'}"
        case credential.DefaultPurged(name):
            return "default.purged", False, None, name
        case ExportCreated():
            return _described_export(event)
        case KeyRotated() | KeyLost() | KeyMoved() | CheckpointDelayed() | WitnessFailed() | CheckpointContested():
            return _described_signing(event)
        case SegmentSealed() | SealFailed() | SegmentPruned() | PruneFailed() | SubjectErased() | PositionSetAside():
            return _described_retention(event)
        case _:
            return None


def _described_signing(
    event: KeyRotated | KeyLost | KeyMoved | CheckpointDelayed | WitnessFailed | CheckpointContested,
) -> tuple[str, bool, str | None, str]:
    match event:
        case KeyRotated(old, new):
            return "key.rotated", False, None, f"{old} gave way to {new}"
        case KeyLost(old, new):
            return "key.lost", False, None, f"{old} is lost; {new} begins a new chain"
        case KeyMoved(key, store):
            return "key.moved", False, None, f"{key} is kept in the {store}"
        case CheckpointDelayed(why):
            return "checkpoint.delayed", True, None, why
        case WitnessFailed(size, name, why):
            return "witness.failed", True, None, f"{name} did not get the checkpoint of {size} events: {why}"
        case CheckpointContested(journal, size, _, _, received):
            difference = f"{size} events" if size < received else "another root"
            return (
                "checkpoint.contested",
                True,
                None,
                f"journal {journal} shows {difference}; it had {received} when it was last seen here",
            )


def _described_retention(
    event: SegmentSealed | SealFailed | SegmentPruned | PruneFailed | SubjectErased | PositionSetAside,
) -> tuple[str, bool, str | None, str]:
    match event:
        case SubjectErased(workdir):
            return "subject.erased", False, None, f"the key of directory {workdir} is destroyed"
        case PositionSetAside(position, kind, stream, why):
            location = f"position {position}, {kind or 'of no kind'} in {stream or 'no stream'}"
            return "position.set-aside", False, None, f"{location}: {why}"
        case SegmentSealed(first, last, file):
            return "segment.sealed", False, None, f"positions {first} to {last} in {file}, SHA-256 {event.sha256}"
        case SegmentPruned(first, last, file):
            detail = f"the contents of {event.dropped} events of positions {first} to {last}; the rest is in {file}"
            return "segment.pruned", False, None, detail
        case PruneFailed(why):
            return "segment.prune-failed", True, "prune-failed", why
        case SealFailed(why):
            return "segment.seal-failed", True, "seal-failed", why


def _described_export(event: ExportCreated) -> tuple[str, bool, str | None, str]:
    of = f" of {', '.join(f'{name} {value}' for name, value in event.filters.items())}" if event.filters else ""
    without = f", without the content of {', '.join(event.redacted)}" if event.redacted else ""
    detail = f"{event.events} events{of} as {event.format} to {event.folder}{without}"
    return "export.created", False, None, detail


def _for(base: str) -> str:
    return f", for .{base}/skills" if base else ""
