"""`omac sandbox run`: from what a person typed to a program that ran in its sandbox, and the record of it.

1. The policy is computed; nothing has been changed yet.
2. What must be there to be pinned is made, and the sandbox is built, with the program held back.
3. `sandbox.launch-requested` is in the spool, and durable before the program is let go. What cannot be recorded is not
   launched.
4. When it and all it started have ended, what it left is inspected, and `sandbox.exited` says how it went.
"""

from __future__ import annotations

import os
import sys
import time

from omac.adapters.git.program import ConfigList
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable
from omac.tools.hotpath import code_cache
from omac.tools.hotpath.sandbox_options import help_text, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omac.adapters.git.layout import Layout
    from omac.adapters.linux.background import Background
    from omac.adapters.sandbox.limits import LaunchLimits
    from omac.adapters.sandbox.replaceable import Replaceable
    from omac.journal.spool import Spool
    from omac.tools.compose.sandbox_backends import Backend
    from omac.tools.compose.sandbox_inspection import Inspecting
    from omac.tools.compose.sandbox_policy import SandboxPlan
    from omac.tools.hotpath.sandbox_options import SandboxRequest


def main(words: list[str]) -> int:
    """Run the command line after `omac sandbox run`; the exit code."""
    from omac.adapters.sandbox.spawn import keep_descriptors_to_oneself
    from omac.adapters.sandbox.terminal import Interrupted

    _open_standard()
    keep_descriptors_to_oneself()
    try:
        asked = parse(words)
        if asked.help:
            return _told(lambda: print(help_text(), end=""))
        return _run(asked)
    except Refusal as refusal:
        return _refused(refusal)
    except OSError as problem:  # something was taken away, or is not to be read, between one look and the next
        where = f"{problem.filename}: " if problem.filename else ""
        message = f"the sandbox cannot be built: {where}{problem.strerror or problem}"
        return _refused(Refusal("sandbox-failed", message, fix=["omac sandbox doctor"]))
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except KeyboardInterrupt:
        return 130


def _open_standard() -> None:
    """A standard stream that is closed leads nowhere, before its number is given to something else."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None or sys.stderr is None:
        sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # for as long as the process
        sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _run(asked: SandboxRequest) -> int:
    host = dict(os.environ)
    listing: ConfigList | None = ConfigList(os.path.realpath(asked.workdir or "."), host)  # git works meanwhile
    code_cache.load("launch")
    from omac.tools.compose.sandbox_policy import plan

    if asked.run:
        from omac.adapters.sandbox.orphans import die_with_parent
        from omac.adapters.sandbox.terminal import ORPHANED

        die_with_parent(ORPHANED)  # the program ends, what it left is inspected
    if asked.explain:
        from omac.tools.compose.sandbox_explain import explain

        planned = plan(asked, host, listing)
        return _told(lambda: explain(planned, asked.json))
    while True:
        planned, listing = plan(asked, host, listing), None
        launch = SandboxLaunch(planned, asked.run)
        if launch.begin():
            break
        planned.placeholders.end()
    for warning in planned.policy.warnings:
        _say(warning)
    try:
        status = launch.run()
        if not asked.harness:  # which loads more, and takes its time anyway
            code_cache.keep()
        return status
    except Refusal as refusal:
        if refusal.reason != "sandbox-unavailable" or planned.backend != "auto":
            raise
        _say(refusal.message)
        return _run_second(planned, asked, refusal)


def _run_second(planned: SandboxPlan, asked: SandboxRequest, refusal: Refusal) -> int:
    """With Landlock alone, where bubblewrap was refused."""
    try:
        planned.placeholders.hold()
        planned.use("landlock")
        launch = SandboxLaunch(planned, asked.run)
        while not launch.begin():
            pass  # what was planned with is there
        return launch.run()
    except Refusal as second:
        raise Refusal(second.reason, second.message, fix=(*refusal.fix, *second.fix)) from None


class SandboxLaunch:
    """One launch, recorded. `part_of` is the id of the omac run it belongs to, empty for none."""

    def __init__(self, planned: SandboxPlan, part_of: str) -> None:
        self._plan = planned
        self._part_of = part_of
        self._id = os.urandom(8).hex()
        self._began_ns = time.time_ns()
        self._version = 0
        self._spool: Spool | None = None
        self._backend: Backend
        self._replaceable: Replaceable | None = None
        self._is_built = False
        self._inspecting: Inspecting
        self._requested = ""
        self._tracked: set[str] | None = None  # hidden files that were in an index at launch
        self._flushing: Background

    def begin(self) -> bool:
        """Choose the backend, and have an inspection wait for its end; False where another one had to be done first.

        Raises Refusal.
        """
        from omac.tools.compose import sandbox_backends
        from omac.tools.compose.sandbox_inspection import Inspecting

        self._backend = sandbox_backends.chosen(self._plan)
        self._inspecting = Inspecting(self._plan, self._id, _say, self._open_spool)
        return self._inspecting.begin()

    def run(self) -> int:
        """Record, run, inspect, record; the program's exit status. Raises Refusal, Interrupted."""
        from omac.tools.compose.sandbox_inspection import first

        try:
            status, findings = self._confined()
        except Refusal as refusal:
            self._record_denial(refusal)
            raise
        except BaseException as problem:
            if self._requested:
                self._record("sandbox.exited", {"status": None, "findings": [], "lost": type(problem).__name__})
            raise
        try:
            self._record("sandbox.exited", {"status": status, "findings": first(findings), "lost": ""})
        except Refusal as refusal:  # it has run: its status is what its caller waits for
            _say(f"the command ended with status {status}, but this could not be recorded: {refusal.message}")
        return status

    def _confined(self) -> tuple[int, list[str]]:
        """Run it; its status, and what was found afterwards. Raises Refusal, Interrupted."""
        held: LaunchLimits | None = None
        try:
            held = self._limited()
            self._plan.placeholders.make(self._plan.policy)
            self._prepare_git()
            limited = held.add if held else _unlimited

            def built(pid: int) -> None:
                self._flushing.wait()
                self._is_built = True
                self._inspecting.begun(pid)
                limited(pid)
                if self._replaceable and not self._replaceable.place(pid):
                    _say("git cannot change its settings in the sandbox on this kernel (Linux 5.6 lets it)")

            status = self._backend.run(self._plan, self._meanwhile, built, self._begun)
        finally:
            for folder in held.end() if held else ():
                _say(f"the cgroup {folder} still exists: a process in it has not ended")
            if self._replaceable:
                if self._replaceable.is_placed:
                    self._inspecting.ended(self._replaceable.content)
                self._replaceable.close()
            for layout in self._plan.layouts.values():
                self._end_of_git(layout)
            findings = self._inspecting.end()
            for line in self._of_hidden_files():
                _say(line)
            self._plan.placeholders.end()
        return status, findings

    def _end_of_git(self, layout: Layout) -> None:
        """Name hooks that were skipped; where nothing ran, remove what was made for it."""
        from omac.adapters.git.layout import discard

        if not self._is_built:
            discard(layout)
        elif layout.skipped_hooks and (line := layout.skipped_hooks.told()):
            _say(line)

    def _of_hidden_files(self) -> list[str]:
        from omac.tools.compose.sandbox_hidden import added, newly_tracked, tracked

        layouts, entries = self._plan.layouts.values(), self._plan.policy.entries
        now = tracked(layouts, entries)
        return [
            *added(layouts, entries, self._began_ns),
            *newly_tracked(now if self._tracked is None else self._tracked, now),
        ]

    def _limited(self) -> LaunchLimits | None:
        if self._plan.enforcement is None:
            return None
        from omac.adapters.sandbox.limits import begin

        return begin(self._plan.enforcement, self._id)

    def _request(self) -> dict[str, object]:
        from omac.adapters.linux import process_identity
        from omac.domain.kernel.redaction import redacted
        from omac.tools.compose.sandbox_explain import digest

        policy = self._plan.policy
        pid = os.getpid()
        return {
            "workdir": policy.workdir,
            "harness": self._plan.harness,
            "backend": self._backend.name,
            "policy": digest(self._plan),
            "argv": list(redacted(self._plan.argv)),
            "network": policy.network,
            "pid": pid,
            "start_ticks": process_identity.start_ticks(pid),
            "boot_id": process_identity.boot_id(),
            "run": self._part_of,
        }

    def _meanwhile(self) -> None:
        """While the sandbox is built, and held back: record the request, and note what is there. Raises Refusal,
        OSError."""
        code_cache.load("record")
        from omac.adapters.linux.background import Background

        self._requested = requested = self._record("sandbox.launch-requested", self._request(), durable=False)
        spool = self._open_spool()
        self._flushing = Background(lambda: spool.flush(requested))  # takes longer than all the rest of this
        code_cache.load("inspection")
        from omac.tools.compose.sandbox_hidden import tracked

        if any(layout.objects for layout in self._plan.layouts.values()):
            from omac.adapters.git.shared_objects import unshare

            for folder in dict.fromkeys(one for layout in self._plan.layouts.values() for one in layout.objects):
                for line in unshare(folder):
                    _say(line)
        self._inspecting.note()
        self._tracked = tracked(self._plan.layouts.values(), self._plan.policy.entries)
        copies = [copy for layout in self._plan.layouts.values() for copy in layout.copies if not copy.place]
        if copies and self._backend.name == "bubblewrap":
            from omac.adapters.git.pointers import CONFIG_BYTES_MAX
            from omac.adapters.sandbox.replaceable import Replaceable

            self._replaceable = Replaceable({copy.path: copy.before or b"" for copy in copies}, CONFIG_BYTES_MAX)
        from omac.adapters.git import quarantine, watch  # noqa: F401  # before a program runs that could change them

        code_cache.stop()

    def _begun(self, pid: int) -> None:
        self._record("sandbox.launched", {"pid": pid}, durable=False)  # a lost one is implied by what follows
        self._inspecting.watch()

    def _record_denial(self, refusal: Refusal) -> None:
        from omac.domain.kernel.redaction import redacted

        fields: dict[str, object] = {
            "workdir": self._plan.policy.workdir,
            "harness": self._plan.harness,
            "argv": list(redacted(self._plan.argv)),
            "reason": refusal.reason,
            "message": refusal.message,
        }
        try:
            self._record("sandbox.denied", fields)
        except Refusal as unrecorded:
            if unrecorded.message != refusal.message:
                _say(f"this refusal could not be recorded: {unrecorded.message}")

    def _record(self, kind: str, fields: dict[str, object], *, durable: bool = True) -> str:
        self._version += 1
        return self._open_spool().append(
            kind,
            fields,
            stream=f"sandbox/{self._id}",
            version=self._version,
            at=time.time_ns(),
            run=self._part_of or self._id,
            actor="person" if not self._part_of else "omac",
            id=self._id,
            durable=durable,
        )

    def _open_spool(self) -> Spool:
        """One for the whole launch, whichever server comes and goes meanwhile."""
        from omac.adapters.files.journal_in_use import journal_in_use, spool_of
        from omac.journal.spool import Spool

        if self._spool is None:
            journal = journal_in_use(self._plan.state, os.environ, run=self._part_of)
            self._spool = Spool(spool_of(self._plan.state, journal))
        return self._spool

    def _prepare_git(self) -> None:
        from omac.adapters.git.layout import prepare

        for layout in self._plan.layouts.values():
            prepare(layout)


def _refused(refusal: Refusal) -> int:
    """Say it; the exit code."""
    _say(refusal.message)
    for command in refusal.fix:
        _say_plainly(f"  try: {command}")
    return refusal.exit_code


def _told(tell: Callable[[], object]) -> int:
    """The exit code of printing something: 141 where nobody reads it any more."""
    try:
        tell()
        print(end="", flush=True)
    except BrokenPipeError:
        return 141
    return 0


def _unlimited(_pid: int) -> None:
    """Nothing was asked to be limited."""


def _say(text: str) -> None:
    _say_plainly(f"omac: {text}")


def _say_plainly(text: str) -> None:
    """To stderr, without what a terminal would obey."""
    shown = printable(text)
    try:
        sys.stderr.write(f"{shown}\n")
    except UnicodeEncodeError:
        sys.stderr.write(f"{shown.encode('ascii', 'backslashreplace').decode()}\n")
