"""The closed registry: every kind of event that can stand in a journal, its current version, and its past.

A stored row names its kind; only kinds listed here are ever decoded, and nothing a row says is imported or run.
Names are stable for ever. To change an event: append a field with a default, or raise the version and add an
upcaster from the previous one; stored bytes are never rewritten. A new kind or version is listed in
`SINCE`, with the next format, so that an omac that would misread it is not surprised by it (`journal/format.py`).
"""

from collections.abc import Callable
from typing import Any

from omac.domain.access import access, control, erasure, export, receipt, sealing, signing, witness
from omac.domain.credentials import credential
from omac.domain.directories import events
from omac.domain.guard import denial
from omac.domain.harness import installation
from omac.domain.kernel import run, set_aside
from omac.domain.kernel.event import Event
from omac.domain.sandbox import inspection, launch
from omac.domain.settings import setting
from omac.domain.sidecars import sidecar
from omac.domain.skills import registration

KINDS: dict[str, tuple[int, type[Event]]] = {
    "run.started": (1, run.RunStarted),
    "run.recovered": (1, run.RunRecovered),
    "run.stopped": (1, run.RunStopped),
    "directory.activation-requested": (1, events.ActivationRequested),
    "directory.session-admitted": (1, events.SessionAdmitted),
    "directory.session-ended": (1, events.SessionEnded),
    "directory.activated": (1, events.Activated),
    "directory.activated-partially": (1, events.ActivatedPartially),
    "directory.activation-failed": (1, events.ActivationFailed),
    "directory.reload-requested": (1, events.ReloadRequested),
    "directory.deactivation-requested": (1, events.DeactivationRequested),
    "directory.deactivated": (1, events.Deactivated),
    "skill.appeared": (1, events.SkillAppeared),
    "skill.planned": (1, events.SkillPlanned),
    "skill.vanished": (1, events.SkillVanished),
    "route.mounted": (1, events.RouteMounted),
    "route.stubbed": (1, events.RouteStubbed),
    "route.unmounted": (1, events.RouteUnmounted),
    "skill.auto-registered": (1, registration.AutoRegistered),
    "skill.registered": (1, registration.Registered),
    "skill.approved": (1, registration.Approved),
    "skill.approval-revoked": (1, registration.ApprovalRevoked),
    "skill.drifted": (1, registration.Drifted),
    "skill.deregistered": (1, registration.Deregistered),
    "secret.write-requested": (1, credential.SecretWriteRequested),
    "secret.written": (1, credential.SecretWritten),
    "secret.removed": (1, credential.SecretRemoved),
    "secret.erased": (1, credential.SecretErased),
    "config.written": (1, credential.ConfigWritten),
    "config.removed": (1, credential.ConfigRemoved),
    "default.mirrored": (1, credential.DefaultMirrored),
    "default.adopted": (1, credential.DefaultAdopted),
    "default.purged": (1, credential.DefaultPurged),
    "setting.change-requested": (1, setting.SettingChangeRequested),
    "setting.changed": (1, setting.SettingChanged),
    "setting.change-failed": (1, setting.SettingChangeFailed),
    "bridge.change-requested": (1, installation.BridgeChangeRequested),
    "bridge.changed": (1, installation.BridgeChanged),
    "bridge.change-failed": (1, installation.BridgeChangeFailed),
    "sidecar.spawn-requested": (1, sidecar.SpawnRequested),
    "sidecar.started": (1, sidecar.Started),
    "sidecar.healthy": (1, sidecar.Healthy),
    "sidecar.unhealthy": (1, sidecar.Unhealthy),
    "sidecar.exited": (1, sidecar.Exited),
    "sidecar.restart-scheduled": (1, sidecar.RestartScheduled),
    "sidecar.stop-requested": (1, sidecar.StopRequested),
    "sidecar.stopped": (1, sidecar.Stopped),
    "sidecar.gave-up": (1, sidecar.GaveUp),
    "access.requested": (1, access.AccessRequested),
    "access.batch-requested": (1, access.AccessBatchRequested),
    "access.completed": (1, access.AccessCompleted),
    "access.batch-completed": (1, access.AccessBatchCompleted),
    "access.aborted": (1, access.AccessAborted),
    "access.batch-aborted": (1, access.AccessBatchAborted),
    "access.refused": (1, access.AccessRefused),
    "control.called": (1, control.ControlCalled),
    "control.refused": (1, control.ControlRefused),
    "control.vault-locked": (1, control.VaultLocked),
    "sandbox.launch-requested": (1, launch.LaunchRequested),
    "sandbox.launched": (1, launch.Launched),
    "sandbox.exited": (1, launch.LaunchExited),
    "sandbox.denied": (1, launch.Denied),
    "guard.denied": (1, denial.GuardDenied),
    "sandbox.inspected": (1, inspection.Inspected),
    "checkpoint.signed": (1, signing.CheckpointSigned),
    "checkpoint.delayed": (1, signing.CheckpointDelayed),
    "checkpoint.witnessed": (1, witness.CheckpointWitnessed),
    "witness.failed": (1, witness.WitnessFailed),
    "checkpoint.received": (1, receipt.CheckpointReceived),
    "checkpoint.contested": (1, receipt.CheckpointContested),
    "key.rotated": (1, signing.KeyRotated),
    "key.lost": (1, signing.KeyLost),
    "key.move-requested": (1, signing.KeyMoveRequested),
    "key.moved": (1, signing.KeyMoved),
    "export.created": (1, export.ExportCreated),
    "segment.seal-requested": (1, sealing.SealRequested),
    "segment.sealed": (1, sealing.SegmentSealed),
    "segment.seal-failed": (1, sealing.SealFailed),
    "segment.prune-requested": (1, sealing.PruneRequested),
    "segment.pruned": (1, sealing.SegmentPruned),
    "segment.prune-failed": (1, sealing.PruneFailed),
    "subject.erasure-requested": (1, erasure.ErasureRequested),
    "subject.erased": (1, erasure.SubjectErased),
    "position.pruned": (1, set_aside.PositionPruned),
    "position.set-aside": (1, set_aside.PositionSetAside),
    "position.emptied": (1, set_aside.PositionEmptied),
}

# Kinds that record several of another kind together. What a person says of that kind means these, too.
TOGETHER: dict[str, str] = {
    "access.batch-requested": "access.requested",
    "access.batch-completed": "access.completed",
    "access.batch-aborted": "access.aborted",
}

# The format (schema) in which the current version of a kind came; a kind that is not listed is as old as the first.
SINCE: dict[str, int] = {
    "directory.session-ended": 2,
    "setting.change-requested": 2,
    "setting.change-failed": 2,
    "position.set-aside": 2,
    "position.emptied": 2,
    "skill.planned": 3,
    "control.vault-locked": 4,
    "bridge.change-requested": 4,
    "bridge.changed": 4,
    "bridge.change-failed": 4,
    "export.created": 5,
    "checkpoint.signed": 5,
    "checkpoint.delayed": 5,
    "checkpoint.witnessed": 5,
    "witness.failed": 5,
    "key.rotated": 5,
    "key.lost": 5,
    "segment.seal-requested": 6,
    "segment.sealed": 6,
    "segment.seal-failed": 6,
    "segment.prune-requested": 6,
    "segment.pruned": 6,
    "segment.prune-failed": 6,
    "position.pruned": 6,
    "checkpoint.received": 7,
    "checkpoint.contested": 7,
    "subject.erasure-requested": 8,
    "subject.erased": 8,
    "key.move-requested": 9,
    "key.moved": 9,
    "access.batch-requested": 10,
    "access.batch-completed": 10,
    "access.batch-aborted": 10,
}
ENCRYPTED = 8  # the format in which personal fields came to be encrypted, of whatever kind

FIRST_SCHEMA = 1  # of a new journal: its first events decide what it needs
SCHEMA = max(SINCE.values())  # the highest format that this omac understands

Upcaster = Callable[[list[Any]], list[Any]]  # the fields of one version, as stored, to those of the next

UPCASTERS: dict[tuple[str, int], Upcaster] = {}

KIND_OF: dict[type[Event], str] = {cls: kind for kind, (_, cls) in KINDS.items()}
