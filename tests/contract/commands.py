"""Example commands for every aggregate, and a walk that drives `decide` through all states that they lead to."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from omac.domain.access import access, control, erasure, export, receipt, sealing, signing, witness
from omac.domain.credentials import credential
from omac.domain.directories import directory
from omac.domain.directories.events import RouteStubbed, Skill
from omac.domain.guard import denial
from omac.domain.harness import installation
from omac.domain.kernel import ids, run, set_aside
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import HostId, LaunchId, RunId, StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import inspection, launch
from omac.domain.settings import setting
from omac.domain.sidecars import sidecar
from omac.domain.skills import registration
from omac.domain.skills.meta import Health

HOST = HostId("host0001")
STATES_MAX = 300  # of one aggregate; its counters may make more
STEPS_MAX = 9  # commands in a row

WORKDIR = "/w/shop"
FOLDER = f"{WORKDIR}/.agents/skills"
CODE = registration.Code(f"{FOLDER}/echo", "sha256:1", "sha256:copy1")
CHANGED = registration.Code(f"{FOLDER}/echo", "sha256:2", "sha256:copy2")
SPEC = sidecar.SidecarSpec(
    "echo", "echo", WORKDIR, f"{FOLDER}/echo", FOLDER, "sha256:1", True, ("run", "${SIDECAR_PORT}"), Health(),
    ("PATH_EXTRA",), (sidecar.Variable("KEY", None, "HOST_KEY", True, "hmac:1", "vault"),), "sha256:copy1",
)  # fmt: skip
BIRTH = sidecar.Birth(42, 7, "boot", 40_000, True, "42.log")
ECHO = Skill("echo", "agents", f"{FOLDER}/echo", "sha256:1", "echo")
SLACK = Skill("slack", "agents", f"{FOLDER}/slack", "sha256:1", "slack")
STUB = RouteStubbed("slack", "slack", "pending-credentials", "KEY is missing", ("KEY",), ("omac secrets set",))
WHOLE = directory.ActivationPlan({"echo": ECHO}, {"echo": SPEC}, {"echo": 1_024})
PARTIAL = directory.ActivationPlan({"echo": ECHO, "slack": SLACK}, {"echo": SPEC}, {"echo": 1_024}, {"slack": STUB})
RUNS = {"echo": sidecar.Sidecar("healthy", SPEC, 1)}
FELL = {"echo": sidecar.Sidecar("gave_up", SPEC, 1, detail="it ended with 1")}
STORED = {"KEY": credential.Stored("hmac:1", "vault")}
LAUNCH = launch.LaunchRequested(WORKDIR, "claude", "bubblewrap", "ab" * 32, ("npm", "test"), "host", 42, 7, "boot")
STARTED = run.RunStarted("opencode", "0.1", 42, 7, "boot", ("/w",), {"approve": "ask", "drift": True})

BRIDGED = installation.BridgeChangeRequested(
    "claude", "/home/u/.claude/settings.json", ("SessionStart",), "ab", (1,), ('"hooks": {}',), ("/home/u/.claude",)
)

COMMANDS: dict[str, tuple[Any, ...]] = {
    "run": (run.Start(STARTED), run.Recover(run.RunRecovered("run2", 1, 2, 3)), run.Stop("asked to")),
    "directory": (
        directory.RequestActivation(WORKDIR, "opencode", TokenDigest("d" * 64)),
        directory.AdmitSession("s1", TokenDigest("e" * 64)),
        directory.AdmitSession("s2", TokenDigest("f" * 64)),
        directory.EndSession("s1"),
        directory.RequestReload(WORKDIR),
        directory.AdoptPlan(WHOLE),
        directory.AdoptPlan(PARTIAL),
        directory.AdoptPlan(directory.ActivationPlan()),
        directory.Settle(RUNS),
        directory.Settle(FELL),
        directory.Settle(RUNS),
        directory.Settle(FELL),
        directory.FailActivation("no such folder"),
        directory.RequestDeactivation("asked to"),
        directory.FinishDeactivation(),
    ),
    "registration": (
        registration.Discover(CODE, WORKDIR),
        registration.Discover(CHANGED, WORKDIR),
        registration.Accept(CHANGED, "run1"),
        registration.Register(CODE, WORKDIR),
        registration.Approve(CODE, WORKDIR),
        registration.Approve(CHANGED, WORKDIR),
        registration.Revoke("a person revoked it"),
        registration.Deregister(),
    ),
    "credential": (
        credential.RequestSecrets(STORED, "agents"),
        credential.GiveValues(STORED, {"LEVEL": "1"}, {"KEY": "sha256:1"}, "agents"),
        credential.GiveValues({}, {"LEVEL": "2"}),
        credential.TakeValues(("KEY", "LEVEL"), "agents"),
        credential.TakeValues(("LEVEL",)),
        credential.Erased("vault", ("KEY",)),
        credential.Mirror({"KEY": credential.Default("sha256:1", None, STORED["KEY"])}),
        credential.Mirror({"LEVEL": credential.Default("sha256:1", "1")}),
        credential.Purge(),
    ),
    "sidecar": (
        sidecar.RequestSpawn(SPEC, 1),
        sidecar.ReportStarted(BIRTH),
        sidecar.ReportHealthy(),
        sidecar.ReportUnhealthy("it answered 500"),
        sidecar.ReportExit(sidecar.Exit(1), 5, "it ended with 1", sidecar.RestartPolicy(limit=1)),
        sidecar.ReportExit(sidecar.Exit(), 0, "KEY is missing", missing=("KEY",), fix=("omac secrets set",)),
        sidecar.Restart(),
        sidecar.RequestStop("it is not wanted any more"),
        sidecar.ReportStopped(),
    ),
    "sandbox": (
        launch.Report(LAUNCH),
        launch.Report(launch.Launched(43)),
        launch.Report(launch.LaunchExited(0, ("/w/shop/.git/hooks/x: a hook",))),
        launch.Report(launch.Denied(WORKDIR, "claude", ("npm",), "git-unsafe", "no")),
        launch.Lose("the omac that launched it was killed"),
    ),
    "setting": (
        setting.RequestChange("secrets.store", "vault", "/home/u/settings.toml", None),
        setting.RequestChange("secrets.store", None, "/home/u/settings.toml", "vault"),
        setting.ReportChange(),
        setting.ReportFailure("the disk is full"),
    ),
    "bridge": (
        installation.RequestInstallation(BRIDGED, ""),
        installation.ReportInstalled(),
        installation.RequestInstallation(BRIDGED, "ab"),
        installation.ReportNotInstalled("the disk is full"),
    ),
    "access": (
        access.AccessRequested(WORKDIR, "echo", "echo", "s1", "GET", "/x"),
        access.AccessBatchRequested(WORKDIR, "echo", "echo", "s1", ("GET", "PUT"), ("/x", "/y")),
        access.AccessCompleted(1, 200, 0, 5, 1_000),
        access.AccessBatchCompleted((2, 2), (0, 1), (200, 404), (0, 7), (5, 6), (1_000, 2_000)),
        access.AccessBatchAborted((2, 3), (1, 0), ("client-gone", "x"), (None, 200), (0, 7), (5, 6), (None, 2_000)),
        access.AccessAborted(1, "client-gone"),
        access.AccessRefused(WORKDIR, None, "", None, "GET", "/x", 404, "unknown-mount"),
    ),
    "control": (
        control.ControlCalled("activate", WORKDIR, "socket"),
        control.ControlRefused("activate", WORKDIR, "tcp", "outside-roots", 3),
        control.VaultLocked("socket"),
    ),
    "checkpoint": (
        signing.RecordCheckpoint(1, "a note"),
        signing.RecordCheckpoint(5, "a later note"),
        signing.RecordRotation("h+1+a", "h+2+b", "a note by both"),
        signing.RecordLoss("h+2", "h+3+c", "a note by one"),
        signing.RecordDelay("the vault is locked"),
        signing.RequestKeyMove("h+3", "file", "vault"),
        signing.ReportKeyMoved("h+3", "vault"),
    ),
    "witness": (
        witness.ReportLapse(1, "syslog", "Connection refused"),
        witness.ReportDelivery(5, "journald"),
    ),
    "receipt": (
        receipt.Receive("j", 5, "ab", "h+1+a", "a note", ""),
        receipt.Receive("j", 5, "cd", "h+1+a", "a note of another root", "h+1+a"),
        receipt.Receive("j", 3, "ef", "h+1+a", "an older note", "h+1+a"),
        receipt.Receive("j", 9, "12", "h+2+b", "a later note", "h+1+a"),
    ),
    "segment": (
        sealing.RequestSeal(1, 7, "1-7.db"),
        sealing.ReportSealed(4096, "ab" * 32, "cd" * 32, "a note"),
        sealing.ReportSealFailure("the disk is full"),
        sealing.RequestSeal(8, 9, "8-9.db"),
        sealing.RequestPrune(1, 7, "1-7.pruned.db"),
        sealing.ReportPruned(4096, "ab" * 32, 5, "cd" * 32),
        sealing.ReportPruneFailure("the disk is full"),
    ),
    "subject": (
        erasure.RequestErasure(ids.workdir_id(WORKDIR), ("ab" * 8,)),
        erasure.RequestErasure(ids.workdir_id(WORKDIR), ("cd" * 8,)),
        erasure.ReportErased(),
    ),
    "export": (export.ExportCreated("csv", "/home/user/evidence", {"skill": "echo"}, ("secret",), 7),),
    "journal": (
        set_aside.PositionSetAside(7, "run.started", "run/host0001/r", "it cannot be decoded", "sha256:" + "ab" * 32),
        set_aside.PositionEmptied(),
        set_aside.PositionPruned(1, 2, 3, 4, 5, 6),
    ),
    "inspection": (inspection.Inspected(("00aa",), (WORKDIR,), ("/w/.git/hooks/x: new",)),),
    "guard": (denial.GuardDenied("claude", "Write", "/w/x", WORKDIR, "/w/shop/x", "s1"),),
}


class Step(NamedTuple):
    """A decision: the commands that led to the state, the state, the command, and the events that `decide` returned."""

    before: tuple[Any, ...]
    state: Any
    command: Any
    events: tuple[Event, ...]


def walk(aggregate: Aggregate[Any, Any]) -> Iterator[Step]:
    """Give every decision about the example commands, in every state they lead to, the nearest states first.

    Refused commands are skipped; an event that the fold rejects raises Refusal (unfoldable).
    """
    seen = {_form(aggregate.initial)}
    waiting: deque[tuple[tuple[Any, ...], Any]] = deque([((), aggregate.initial)])
    while waiting:
        before, state = waiting.popleft()
        for command in COMMANDS[aggregate.name]:
            try:
                events = tuple(aggregate.decided(command, state))
            except Refusal as refusal:
                if refusal.reason == "unfoldable":
                    raise
                continue
            yield Step(before, state, command, events)
            after = state
            for event in events:
                after = aggregate.evolve(after, event)
            if _form(after) not in seen and len(seen) < STATES_MAX and len(before) < STEPS_MAX:
                seen.add(_form(after))
                waiting.append(((*before, command), after))


def shortest(aggregate: Aggregate[Any, Any]) -> dict[type[Event], Sequence[Any]]:
    """Return, for every type of event that the walk meets, the fewest commands whose last one leads to it."""
    commands: dict[type[Event], Sequence[Any]] = {}
    for step in walk(aggregate):
        for event in step.events:
            commands.setdefault(type(event), (*step.before, step.command))
    return commands


def stream_of(aggregate: Aggregate[Any, Any], name: str) -> StreamId:
    """Return a stream of that aggregate, another one for every `name`; a log has only one."""
    workdir = ids.workdir_id(WORKDIR)
    streams: dict[str, Callable[[], StreamId]] = {
        "run": lambda: ids.run_stream(HOST, RunId(name)),
        "directory": lambda: ids.directory_stream(HOST, ids.workdir_id(name)),
        "registration": lambda: ids.registration_stream(HOST, workdir, "agents", name),
        "credential": lambda: ids.credential_stream(HOST, workdir, name),
        "sidecar": lambda: ids.sidecar_stream(HOST, workdir, name),
        "sandbox": lambda: ids.sandbox_stream(HOST, LaunchId(name)),
        "setting": lambda: ids.setting_stream(HOST, name),
        "bridge": lambda: ids.bridge_stream(HOST, name),
        "access": lambda: ids.access_stream(HOST),
        "control": lambda: ids.control_stream(HOST),
        "inspection": lambda: ids.inspection_stream(HOST),
        "guard": lambda: ids.guard_stream(HOST),
        "checkpoint": lambda: ids.checkpoint_stream(HostId(name)),
        "witness": lambda: ids.witness_stream(HostId(name)),
        "receipt": lambda: ids.receipt_stream(HOST, name),
        "segment": lambda: ids.segment_stream(HOST),
        "subject": lambda: ids.subject_stream(HOST, ids.workdir_id(name)),
        "export": lambda: ids.export_stream(HOST),
        "journal": lambda: ids.journal_stream(HOST),
    }
    return streams[aggregate.name]()


def _form(state: object) -> bytes:
    return msgspec.msgpack.encode(state)
