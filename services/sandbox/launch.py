"""A launch: from a request to a program that ran in its sandbox, and the record of it.

1. The policy is computed; nothing has been changed yet.
2. What must be there to be pinned is made, and the sandbox is built, with the program held back.
3. `sandbox.launch-requested` is in the spool, and durable before the program is let go. What cannot be recorded is not
   launched.
4. When it and all it started have ended, what it left is inspected, and `sandbox.exited` says how it went.
"""

from __future__ import annotations

from omac.domain.harness.table import harness_named
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import PRIVATE, READ, WRITE, access_at
from omac.services.sandbox.policy import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.domain.sandbox.request import SandboxRequest
    from omac.journal.spool import Spool
    from omac.services.sandbox.policy import SandboxPlan
    from omac.services.sandbox.ports import (
        BackendPort,
        ConfigListing,
        GitLayout,
        HeldLimits,
        InspectionPort,
        LaunchedProgram,
        Opaque,
        ReplaceablePort,
        SandboxPorts,
        VanishingPort,
    )

BUILDS_MAX = 5  # of one launch: each commit beside it replaces files of git that it shows


def launch(typed: SandboxRequest, ports: SandboxPorts, listing: ConfigListing | None) -> int:
    """Run the program of a request in its sandbox to its end, and return its exit status; `listing` as of `plan`.
    Raises Refusal, OSError, and Interrupted for a signal before the program began."""
    while True:
        planned, listing = plan(typed, ports, listing), None
        launched = SandboxLaunch(planned)
        if launched.begin():
            break
        planned.placeholders.end()
    for warning in planned.policy.warnings:
        ports.report(warning)
    try:
        return launched.run()
    except Refusal as refusal:
        if refusal.reason != "sandbox-unavailable" or planned.request.backend != "auto":
            raise
        ports.report(refusal.message)
        return _launch_without_namespaces(planned, refusal)


def _launch_without_namespaces(planned: SandboxPlan, refusal: Refusal) -> int:
    """Launch with Landlock alone, where bubblewrap was refused."""
    try:
        planned.placeholders.hold()
        planned.use("landlock")
        launched = SandboxLaunch(planned)
        while not launched.begin():
            pass  # what was planned with is there
        return launched.run()
    except Refusal as second:
        from omac.domain.sandbox.doctor import LANDLOCK_ONLY  # late: it takes a millisecond

        fix = [command for command in refusal.fix if command != LANDLOCK_ONLY]  # which this was
        raise Refusal(second.reason, second.message, fix=(*fix, *second.fix)) from None


class SandboxLaunch:
    """A recorded launch."""

    def __init__(self, planned: SandboxPlan) -> None:
        self._plan = planned
        self._ports = planned.ports
        self._layouts = list(planned.layouts.values())
        self._harness = harness_named(planned.request.harness) if planned.request.harness else None
        self._began_ns = planned.ports.now_ns()
        self._records: LaunchRecords
        self._backend: BackendPort
        self._replaceable: ReplaceablePort | None = None
        self._vanishing: VanishingPort | None = None
        self._vanished: list[str] = []
        self._is_built = False
        self._inspection: InspectionPort
        self._requested = ""
        self._tracked: set[str] | None = None  # hidden files that were in an index at launch
        self._flushing: Opaque

    def begin(self) -> bool:
        """Choose the backend, and have an inspection wait for its end; False where another one had to be done first.
        Raises Refusal."""
        from omac.services.sandbox.inspection import record_inspected

        self._records = LaunchRecords(self._ports, self._plan.request.run)
        self._backend = self._ports.sandboxing.chosen(self._plan.request, self._plan.policy)
        self._inspection = self._ports.inspection(
            self._records.id,
            self._layouts,
            self._harness,
            fence=bool(self._plan.policy.fence),
            record=lambda *found: record_inspected(self._ports, self._records.spool, *found),
        )
        return self._inspection.begin()

    def run(self) -> int:
        """Record, run, inspect, record; the program's exit status. Raises Refusal, Interrupted."""
        from omac.services.sandbox.inspection import first

        try:
            status, findings = self._confined()
        except Refusal as refusal:
            self._record_denial(refusal)
            raise
        except BaseException as problem:
            if self._requested:
                lost = type(problem).__name__
                self._records.append("sandbox.exited", {"status": None, "findings": [], "lost": lost})
            raise
        try:
            ended = {"status": status, "findings": first(findings), "lost": "", "vanished": first(self._vanished)}
            self._records.append("sandbox.exited", ended)
        except Refusal as refusal:  # it has run: its status is what its caller waits for
            self._ports.report(
                f"the command ended with status {status}, but this could not be recorded: {refusal.message}"
            )
        return status

    def _confined(self) -> tuple[int, list[str]]:
        """Run it; its status, and what was found afterwards. Raises Refusal, Interrupted."""
        sandboxing, enforcement, held = self._ports.sandboxing, self._plan.enforcement, None
        try:
            if enforcement is not None:
                held = sandboxing.limited(enforcement, self._records.id)
            self._plan.placeholders.make(self._plan.policy)
            for layout in self._layouts:
                self._ports.git.prepare(layout)
            status = self._built_and_ran(held)
        finally:
            for folder in held.end() if held else ():
                self._ports.report(f"the cgroup {folder} still exists: a process in it has not ended")
            findings = self._clean_up()
        return status, findings

    def _built_and_ran(self, held: HeldLimits | None) -> int:
        """Build the sandbox, again where a file that it shows was replaced meanwhile, and run the program; its status.
        Raises as `_confined`."""
        builds = 0
        while True:
            builds += 1
            try:
                with self._backend.start(self._plan.policy, self._plan.argv, self._layouts) as program:
                    return self._ran(program, held)
            except Refusal as refusal:
                if refusal.reason != "path-changed" or self._is_built or builds == BUILDS_MAX:
                    raise

    def _ran(self, program: LaunchedProgram, held: HeldLimits | None) -> int:
        """Run a program that is held back to its end; its status."""
        if not self._requested:
            self._note()
        pid = self._await_built(program)
        if held:
            held.add(pid)
        if self._replaceable and not self._replaceable.install(pid):
            self._ports.report("git cannot change its settings in the sandbox on this kernel (Linux 5.6 lets it)")
        self._open_home(pid)
        self._inspection.watch()
        for link in self._plan.changeable_journals:
            self._ports.distrust(link)
        program.release()
        self._records.append("sandbox.launched", {"pid": pid}, durable=False)  # implied by what follows
        status = program.ended(self._inspection.settle)
        self._list_home()
        return status

    def _await_built(self, program: LaunchedProgram) -> int:
        """Wait for the sandbox and for what must be durable before the program begins; return the first process."""
        pid = program.built()
        self._flushing.wait()
        self._is_built = True
        self._inspection.begun(pid)
        return pid

    def _clean_up(self) -> list[str]:
        """Inspect what the program left, and remove what was made for it; what was found."""
        if self._vanishing:
            self._vanishing.close()
        if self._replaceable:
            if self._replaceable.is_installed:
                self._inspection.ended(self._replaceable.content)
            self._replaceable.close()
        try:
            for layout in self._layouts:
                self._end_of_git(layout)
            findings = self._inspection.end()
            for line in self._of_hidden_files():
                self._ports.report(line)
        finally:
            self._plan.placeholders.end()
        return findings

    def _open_home(self, pid: int) -> None:
        """Keep the sandbox's own home, where a run will report what was written there."""
        home, policy = self._ports.home, self._plan.policy
        is_own = any(entry.path == home and entry.access == PRIVATE for entry in policy.entries)
        if self._records.part_of and is_own and self._backend.name == "bubblewrap":
            restored = self._harness.restored if self._harness else ()
            self._vanishing = self._ports.sandboxing.vanishing(pid, home, policy.entries, restored)

    def _list_home(self) -> None:
        if self._vanishing:
            self._vanished = self._vanishing.names()

    def _end_of_git(self, layout: GitLayout) -> None:
        """Name hooks that were skipped; where nothing ran, remove what was made for it."""
        if not self._is_built:
            self._ports.git.discard(layout)
        elif (hooks := layout.skipped_hooks) and not self._shows(hooks.folder) and (line := hooks.warning()):
            self._ports.report(line)

    def _shows(self, folder: str) -> bool:
        """Return whether the program could read a folder."""
        return access_at(self._plan.policy.entries, self._ports.files.canonical(folder)) in (READ, WRITE)

    def _of_hidden_files(self) -> list[str]:
        from omac.services.sandbox.hidden import newly_tracked

        entries = self._plan.policy.entries
        now = self._ports.hidden_files.tracked(self._layouts, entries)
        return [
            *self._ports.hidden_files.added(self._layouts, entries, self._began_ns),
            *newly_tracked(now if self._tracked is None else self._tracked, now),
        ]

    def _note(self) -> None:
        """Record the request, and note the files that exist, while the sandbox is built and the program held back.
        Raises Refusal, OSError."""
        ports = self._ports
        ports.load("record")
        self._requested = requested = self._records.append("sandbox.launch-requested", self._request(), durable=False)
        spool = self._records.spool
        self._flushing = ports.background(lambda: spool.flush(requested))  # takes longer than all the rest of this
        ports.load("inspection")
        for folder in dict.fromkeys(folder for layout in self._layouts for folder in layout.objects):
            for line in ports.git.unshare(folder):
                ports.report(line)
        self._inspection.note()
        self._tracked = ports.hidden_files.tracked(self._layouts, self._plan.policy.entries)
        copies = [copy for layout in self._layouts for copy in layout.copies if not copy.place]
        if copies and self._backend.name == "bubblewrap":
            self._replaceable = ports.sandboxing.replaceable({copy.path: copy.before or b"" for copy in copies})
        ports.stop_loading()
        if self._plan.exposed:
            self._inspection.load()

    def _request(self) -> dict[str, object]:
        from omac.services.sandbox.explanation import digest

        policy = self._plan.policy
        return {
            **self._fields(),
            "backend": self._backend.name,
            "policy": digest(self._plan),
            "network": policy.network,
            "run": self._records.part_of,
            **self._ports.process(),
        }

    def _fields(self) -> dict[str, object]:
        """Return the fields that every record of a launch's begin has."""
        from omac.domain.kernel.redaction import redacted

        argv = list(redacted(self._plan.argv))
        return {"workdir": self._plan.policy.workdir, "harness": self._plan.request.harness, "argv": argv}

    def _record_denial(self, refusal: Refusal) -> None:
        fields = {**self._fields(), "reason": refusal.reason, "message": refusal.message}
        try:
            self._records.append("sandbox.denied", fields)
        except Refusal as unrecorded:
            if unrecorded.message != refusal.message:
                self._ports.report(f"this refusal could not be recorded: {unrecorded.message}")


class LaunchRecords:
    """The records of the launch `id`, in order; `part_of` is the omac run that it belongs to, empty for none."""

    def __init__(self, ports: SandboxPorts, part_of: str) -> None:
        self.id = ports.new_id()
        self.part_of = part_of
        self._ports = ports
        self._version = 0
        self._spool: Spool | None = None

    def append(self, kind: str, fields: Mapping[str, object], *, durable: bool = True) -> str:
        """Record an event and return what `flush` takes. Raises Refusal (journal-unavailable, state-unusable)."""
        self._version += 1
        return self.spool.append(
            kind, fields, stream=f"sandbox/{self.id}", version=self._version, at=self._ports.now_ns(),
            run=self.part_of or self.id, actor="person" if not self.part_of else "omac", id=self.id, durable=durable,
        )  # fmt: skip

    @property
    def spool(self) -> Spool:
        """Return the spool, the same for the whole launch, even if servers start or end meanwhile. Raises Refusal
        (state-unusable)."""
        if self._spool is None:
            self._spool = self._ports.spool(self.part_of)
        return self._spool
