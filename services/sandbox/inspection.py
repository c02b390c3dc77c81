"""The inspection around a launch: what is there before, what is done when it has ended, and what is said of it.

A launch keeps a record of what is still to be inspected. What a launch that was killed has left is inspected before
the next one that overlaps, or by whoever calls `inspect_due`.
"""

from __future__ import annotations

from omac.domain.harness.table import harness_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omac.journal.spool import Spool
    from omac.services.sandbox.launch import LaunchRecords
    from omac.services.sandbox.policy import SandboxPlan
    from omac.services.sandbox.ports import DueRecords, Opaque, SandboxPorts

RECORDED_CHARACTERS_MAX = 8_000  # of a record, in which one may take six bytes


class LaunchInspection:
    """The inspection around one launch, with what it records. `findings` are what the end found."""

    def __init__(self, plan: SandboxPlan, records: LaunchRecords) -> None:
        self._ports = ports = plan.ports
        self._steps = steps = ports.inspections
        self._exposed = plan.exposed
        self._own = records
        self._name = name = records.id
        layouts = list(plan.layouts.values())
        self._harness = harness_named(plan.request.harness) if plan.request.harness else None
        self._records = steps.records(name, layouts, ports.now_ns(), fence=bool(plan.policy.fence))
        self._pending = steps.pending(ports.state)
        self.findings: list[str] = []
        self._watches: list[Opaque] = []
        self._flushing: list[Opaque] = []
        self._found_before: list[Opaque] = []
        self._unkept = ""  # why settings that the program wrote could not be kept

    def begin(self) -> bool:
        """Record the launch; return False where something was inspected first. The plan may then be out of date, so the
        launch is not recorded. Raises Refusal."""
        for number, record in enumerate(self._records):
            if due := self._pending.begin(record):
                if due.busy_place:
                    self._ports.report(f"waiting for the inspection of {due.busy_place}")
                    due.wait()
                else:
                    self._inspect(due)
                for begun in self._records[:number]:
                    self._end(begun)
                return False
        return True

    def note(self) -> None:
        """Record what is there. Raises OSError."""
        for record in self._records:
            record.named = self._named(record) | record.named
            is_whole, flushing = self._steps.note(record, self._pending)
            if not is_whole:
                self._ports.report(
                    f"{record.projects[0]} has more than can be noted now: the rest of it counts as new at the end"
                )
            self._flushing.append(flushing)

    def _named(self, record: Opaque) -> dict[str, str]:
        """Return the files in the projects of a record which settings name, with who obeys them."""
        ports = self._ports
        named: dict[str, str] = {}
        for project in record.projects:
            if project not in record.kept:
                named |= ports.base.files_of_settings(project, ports.home, ports.environment, self._harness)
        return named

    def load(self) -> None:
        """Load what the end takes, where the program can change that."""
        if self._exposed:
            self._steps.load()

    def begun(self, pid: int) -> None:
        """Record the process that the sandbox began with; what is there is on disk then. Raises OSError."""
        for flushing in self._flushing:
            flushing.wait()
        for record in self._records:
            self._pending.begun(record, pid)

    def watch(self) -> None:
        """Set aside what must not wait for the end, from now on: before the program can take what that needs."""
        self._steps.load_later()
        self._watches = [self._steps.watch(record, self._ports.state, self._name) for record in self._records]
        if not all(watch.is_watching for watch in self._watches):
            self._ports.report(
                "the kernel watches no more folders now: what git would run is set aside only at the end"
            )

    def ended(self, written: Callable[[str], bytes | None]) -> None:
        """Keep what the program has `written` into the sandbox's own copies of settings, by the path of each."""
        for record in self._records:
            self._steps.keep_written(record, written)
            try:
                self._pending.ended(record)
            except OSError as problem:  # such as a disk that the program has filled
                self._unkept = problem.strerror or str(problem)

    def end(self) -> list[str]:
        """Inspect what was left, or leave that to a launch that still lives; what a person should know. Raises
        Refusal."""
        self._found_before = [finding for watch in self._watches for finding in watch.end()]
        for record in self._records:
            if not self._end(record) and not record.kept:
                self._ports.report(
                    "another launch still runs there: when that one ends, what this one left is inspected"
                )
                if self._unkept:
                    self._ports.report(
                        f"git's settings that were made inside cannot be kept until then: {self._unkept}"
                    )
        if self._found_before:  # that one knows nothing of what was set aside while this one ran
            _report(self._ports, self._found_before, self._name)
            self.findings += map(str, self._found_before)
        return self.findings

    def _end(self, record: Opaque) -> bool:
        """Inspect what is due; False where that is left to another launch."""
        due = self._pending.end(record)
        if due:
            self._inspect(due)
        return due is not None

    def _inspect(self, due: DueRecords) -> None:
        with due as records:
            names = _launches(records) - {self._name}
            before = [*self._found_before, *self._steps.while_running(names, self._ports.state, records)]
            lines = _inspect(self._ports, records, self._name, before)
            self._found_before = []
            self.findings += lines
            if others := [record for record in records if record not in self._records]:
                _record(self._ports, others, lines, self._own.spool)


def inspect_due(ports: SandboxPorts) -> None:
    """Inspect what launches that were killed have left, record what was found, and remove what omac made for them.
    Raises Refusal."""
    pending = ports.inspections.pending(ports.state)
    while due := pending.due():
        with due as records:
            before = ports.inspections.while_running(_launches(records), ports.state, records)
            lines = _inspect(ports, records, records[0].name, before)
            _record(ports, records, lines, ports.spool())
    if pending.is_empty():  # else they may be pins of a sandbox that has not ended with its omac
        placeholders = ports.sandboxing.placeholders(ports.state)
        placeholders.hold()
        placeholders.end()


def first(findings: list[str]) -> list[str]:
    """Return as many findings as a record has room for."""
    room = RECORDED_CHARACTERS_MAX
    for at, finding in enumerate(findings):
        room -= min(len(finding), 4096)
        if room < 0:
            return [*findings[:at], f"{len(findings) - at} more"]
    return findings


def _inspect(ports: SandboxPorts, records: list[Opaque], name: str, before: list[Opaque]) -> list[str]:
    """Inspect what launches have left; what was found, a line each, after what was found `before`. `name` is that of
    the folder for what is set aside."""
    if not ports.inspections.projects(records):
        return []
    findings = [*before, *ports.inspections.inspect(records, name, ports.state, ports.report)]
    _report(ports, findings, name)
    return list(map(str, findings))


def _report(ports: SandboxPorts, findings: list[Opaque], name: str) -> None:
    for line in ports.inspections.lines(findings, name, ports.state):
        ports.report(line)


def _launches(records: list[Opaque]) -> set[str]:
    return {record.name.partition("-")[0] for record in records}


def _record(ports: SandboxPorts, records: list[Opaque], findings: list[str], spool: Spool) -> None:
    """Record what was inspected for launches that have ended before, if any."""
    if projects := ports.inspections.projects(records):
        fields = {"launches": sorted(_launches(records)), "projects": list(projects), "findings": first(findings)}
        spool.append(
            "sandbox.inspected", fields, stream="inspection", version=None, at=ports.now_ns(), run="", actor="omac",
            id=ports.new_id(),
        )  # fmt: skip
