"""The output for people: plain text in columns, the same on a terminal and in a file."""

import os
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.redaction import ERASED
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import named, printable
from omac.domain.skills.registration import shown_hash
from omac.domain.skills.repository import is_repository
from omac.projections.evidence.launches import short_detail
from omac.projections.living import NOTHING_GONE, Gone
from omac.projections.status import DirectoryStatus, RunStatus, Status, about_stream
from omac.projections.system import System
from omac.tools.terminal.columns import columns, cut, folded, padded
from omac.tools.terminal.invocation import current, print_message
from omac.tools.terminal.named_fields import named_fields
from omac.tools.terminal.skill_problems import problem_of
from omac.tools.terminal.timestamps import wall_clock, wall_clock_of
from omac.tools.terminal.typed_command import for_journal

AUDIT_FORM = "{position:>9}  {at:<19}  {outcome:<9}  {status:>6}  {bytes:>10}  {seconds:>9}  {method:<7}  {what}"
NARROW_AUDIT_FORM = "{position:>8}  {at:<19}  {outcome:<9}  {status:>6}  {what}"
NARROW_AUDIT_HANG = 7  # a digest of 71 columns fits behind it, and behind a mark
AUDIT_WIDE = 120  # columns in which the whole form fits
VALUE_MAX = 72  # characters of a field shown in a timeline


def show_status(status: Status, gone: Gone = NOTHING_GONE, missing: Container[str] = ()) -> None:
    """Directories with their skills, sidecars, what runs, and totals; `gone` is what ended without a record, `missing`
    are directories that do not exist any more."""
    print_line(f"position {status.position}")
    for run in status.runs:
        roots = ", ".join(map(named, run.roots))
        where = f"roots {roots}" if run.command == "serve" else f"in {roots}"
        print_folded(f"run {run.run}: {_call(run)}, version {run.version}, pid {run.pid}, {where}")
        if run.bridge_compat:
            print_folded("  serves bridges of the Go omac, without a token (--bridge-compat)", 4)
        if run.sandbox:
            print_folded(f"  launches with {run.sandbox}", 4)
        if run.audit == "buffered":
            print_folded("  calls go ahead of their records: a kill loses up to a second (--audit buffered)", 4)
    _show_directories(status, missing)
    if status.shared:
        print_line("shared by all projects:")
        show_skills([msgspec.to_builtins(skill) for skill in status.shared], "")
    for sidecar in status.sidecars:
        process = f"pid {sidecar.pid}, port {sidecar.port}, log {sidecar.log}" if sidecar.pid else sidecar.detail
        print_folded(f"sidecar {sidecar.skill} of {_project_name(sidecar.dir)}: {sidecar.state} ({process})")
    for sandbox in status.sandboxes:
        pid = f", pid {sandbox.pid}" if sandbox.pid else ""
        how = f"{sandbox.backend}, network {sandbox.network}{pid}"
        print_folded(f"sandbox {sandbox.launch} in {named(sandbox.dir)}: {sandbox.state} ({how})")
        print_folded(f"  {shlex.join(sandbox.argv)}", 4)
    _show_gone(gone)
    for delay in status.unsigned:
        print_folded(f"no checkpoint is signed since position {delay.signed}: {delay.why}")
        print_line("  try: omac checkpoint  # signs one now")
    for lapse in status.unwitnessed:
        print_folded(f"no checkpoint is delivered to a witness since position {lapse.witnessed}: {lapse.why}")
        print_line("  try: omac doctor  # which witness it is, and what to do")
    for erasure in status.unerased:
        print_folded(f"an erasure is not finished, of the directory with workdir id {erasure.workdir}")
        print_line(f"  try: omac erase {erasure.workdir}  # goes on with it")
    accesses = ", ".join(f"{count} {name}" for name, count in status.accesses.items())
    print_folded(f"accesses: {accesses}")


def _show_directories(status: Status, missing: Container[str]) -> None:
    if not status.directories:
        print_line("no directory is online")
    several = {path for path, count in Counter(directory.dir for directory in status.directories).items() if count > 1}
    for directory in status.directories:
        by = f" in run {directory.run}" if directory.dir in several else ""
        print_folded(f"{named(directory.dir)}: {directory.state}{by}")
        skills = [msgspec.to_builtins(skill) for skill in directory.skills]
        if directory.dir in missing:
            _show_missing(directory, status.runs)
            skills = [skill | {"fix": ()} for skill in skills]  # no command finds them there
        show_skills(skills, directory.dir)


def _show_missing(directory: DirectoryStatus, runs: Sequence[RunStatus]) -> None:
    print_folded("  the directory was moved or removed, and is still online", 4)
    is_served = any(run.run == directory.run and run.command == "serve" for run in runs)
    print_line(f"  try: omac deactivate {quoted(directory.dir)}" if is_served else f"  try: omac stop {directory.run}")


def _project_name(directory: str) -> str:
    return named(directory) if directory else "all projects"


def _call(run: RunStatus) -> str:
    return f"omac {run.command} {run.agent}" if run.agent else f"omac {run.command} ({run.harness} skills)"


def _show_gone(gone: Gone) -> None:
    for run in gone.runs:
        print_folded(f"run {run.run}: {_call(run)} ended without a record (pid {run.pid} is gone)")
    for sidecar in gone.sidecars:
        print_folded(f"sidecar {sidecar.skill} of {_project_name(sidecar.dir)}: ended with its run")
    for sandbox in gone.sandboxes:
        where = f"sandbox {sandbox.launch} in {named(sandbox.dir)}"
        print_folded(f"{where}: ended without a record (pid {sandbox.launcher_pid} is gone)")
    if any(gone):
        print_line("  the next omac start or omac serve on their host records these ends")


def show_registry(status: Status) -> None:
    """Print the registered skills of this journal: whether the code of each may run, and the values given to it."""
    if status.registry or status.defaults:
        print_line("registry:")
    for entry in status.registry:
        scope = named(entry.dir) if entry.dir else "all projects" if entry.scope == "global" else entry.scope
        scope = f"every worktree of {scope}" if is_repository(entry.scope) else scope
        approved = shown_hash(entry.approved_hash, entry.digest)
        state = f"approved, {approved}" if entry.approved else f"not approved, {shown_hash(entry.bundle_hash, '')}"
        print_folded(f"  {entry.skill} of {scope}: {state}")
        if entry.approved_hash and not entry.approved:
            print_folded(f"    approved is {approved}", 6)
        values = [*entry.secrets, *(f"{name}={value}" for name, value in entry.config.items())]
        if values:
            print_folded(f"    given: {', '.join(values)}", 6)
    for skill, names in status.defaults.items():
        print_folded(f"  saved defaults of {skill}: {', '.join(names)}")


def show_skills(skills: Sequence[Mapping[str, Any]], workdir: str) -> None:
    """Print a line for each skill of a directory, and below it the problem and the commands that mend it."""
    for skill in skills:
        mount = f"/{skill['mount']}" if skill["mount"] else "-"
        state, detail, fix = problem_of(skill, workdir, current().stdout)
        print_folded(f"  {skill['name']:<20} {mount:<20} {state}", 4)
        if skill.get("base"):
            print_folded(f"    {skill['base']}")
        if skill.get("repository"):
            print_folded(f"    approved for every worktree of {skill['repository']}", 4)
        if detail:
            print_folded(f"    {detail}", 4)
        for command in fix:
            print_line(f"    try: {for_journal(current().words, command)}")


def show_audit(rows: Iterable[Mapping[str, Any]], *, headed: bool = True) -> None:
    """Print a line for each access, launch, or change of trust; on a narrow terminal without bytes and seconds."""
    width = terminal_width()
    is_narrow = width is not None and width < AUDIT_WIDE
    form, hang = (NARROW_AUDIT_FORM, NARROW_AUDIT_HANG) if is_narrow else (AUDIT_FORM, 0)
    names = ("position", "at", "outcome", "status", "bytes", "seconds", "method", "what")
    if headed:
        print_line(form.format(**dict(zip(names, names, strict=True))))
    for row in rows:
        status = "-" if row["status"] is None else row["status"]
        duration = "-" if row["duration"] is None else f"{row['duration']:.3f}"
        client = f" for {row['client']}" if row.get("client") else ""
        session = client + (f" session {named(row['session'])}" if row["session"] else "")
        reason = f" ({row['reason']})" if row["reason"] else ""
        where = f" in {named(row['dir'])}" if row["dir"] else ""
        if row["kind"] == "access":
            path = f" {ERASED}" if row["path"] == ERASED else row["path"]
            times = f", {row['count']} times" if row["count"] > 1 else ""
            summary = f"{row['skill'] or '?'}{path}{where or ' in no directory'}{session}{reason}{times}"
        else:
            skill = f" {row['skill']}" if row["skill"] else ""
            detail = short_detail(row["detail"]) if row["kind"] == "sandbox" else row["detail"]
            shown = f": {detail}" if detail else ""
            summary = f"{row['kind']}{skill}{where}{session} by {row['actor']}{reason}{shown}"
        if is_narrow and row["method"]:
            summary = f"{row['method']} {summary}"
        values = (row["position"], wall_clock_of(row["at"]), row["outcome"], status, row["bytes"], duration)
        print_folded(form.format(**dict(zip(names, (*values, row["method"] or "-", summary), strict=True))), hang)


def show_timeline(records: Iterable[Recorded], system: System) -> None:
    """The events that led to `system`, oldest first: what happened to whom, who asked, after which event."""
    from omac.journal.event_kinds import KIND_OF  # late: nothing else that is shown needs the journal

    print_line("events that led there:")
    for recorded in records:
        kind = KIND_OF[type(recorded.event)]
        why = f" after {recorded.causation}" if recorded.causation else ""
        text = shown_fields(recorded.event)
        about = about_stream(system, recorded.stream)
        line = f"{recorded.position:>9}  {wall_clock(recorded.at)}  {kind:<32}  {about}"
        print_folded(f"{line} (by {recorded.actor}{why}) {text}".rstrip(), 11)


def shown_fields(event: msgspec.Struct, *, whole: bool = False) -> str:
    """Return the fields of an event that hold something, cut to what fits a line of a timeline unless `whole`."""
    return " ".join(f"{name}={_shown(value, whole=whole)}" for name, value in _fields(event))


def report_cut(records: Iterable[Recorded], journal_path: str | None) -> None:
    """Print how to see the values that `shown_fields` cut, if it cut some of these records."""
    for recorded in records:
        if any(len(_text(value)) > VALUE_MAX for _, value in _fields(recorded.event)):
            report(f"values that end in ... are cut; those of position {recorded.position} in full:")
            report_fix([with_journal(f"omac audit explain {recorded.position}", journal_path)])
            return


def with_journal(command: str, journal_path: str | None) -> str:
    """Return a command for the journal that was named, if one was."""
    return f"{command} --journal {quoted(journal_path)}" if journal_path is not None else command


def _fields(event: msgspec.Struct) -> list[tuple[str, object]]:
    fields = msgspec.structs.asdict(event).items()
    return [(name, value) for name, value in fields if value not in (None, "", (), [])]


def _shown(value: object, *, whole: bool) -> str:
    text = _text(value)
    short = text if whole or len(text) <= VALUE_MAX else text[: VALUE_MAX - 3] + "..."
    return named(short) if isinstance(value, str) else short


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(named_fields(value)).decode()


def show_stats(figures: Mapping[str, Any]) -> None:
    """Size, span and kinds of a journal."""
    size = f"{counted(figures['events'], 'event')}, {figures['bytes']} bytes"
    print_folded(f"{figures['path']}: {size}, id {figures['id']}")
    first, last = (wall_clock_of(at) if at else "-" for at in (figures["first_at"], figures["last_at"]))
    print_line(f"from {first} to {last}")
    if figures["segments"]:
        print_folded(f"{counted(figures['segments'], 'sealed segment')}, up to position {figures['sealed_to']}")
    if any(figures["spool"].values()):
        waiting, rejected = figures["spool"]["waiting"], figures["spool"]["rejected"]
        set_aside = counted(rejected, "was set aside", "were set aside")
        print_folded(f"spool: {counted(waiting, 'record waits', 'records wait')}, {set_aside}")
    for kind, count in figures["kinds"].items():
        print_line(f"{count:>9}  {kind}")


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Rows as wide as they need to be, below the heads that come first; on a terminal that is narrower, a row is a
    paragraph: its first cell, then the others by their heads."""
    shown = [list(map(printable, row)) for row in rows]
    widths = [max(map(columns, column)) for column in zip(*shown, strict=True)]
    width = terminal_width()
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        heads = [head.lower() for head in shown[0]]
        for row in shown[1:]:
            print_folded(row[0])
            pairs = zip(heads[1:], row[1:], strict=True)
            print_folded("  " + ", ".join(f"{head} {cell}" for head, cell in pairs), 2)
        return
    for row in shown:
        print_line("  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_folded(text: str, hang: int = 2) -> None:
    """Print a line, on a terminal that is narrower in several, which are indented by `hang`, and marked."""
    width = terminal_width()
    for line in [text] if width is None else folded(printable(text), width, hang):
        print_line(line)


def lines_of_file(text: str, mark: str) -> list[str]:
    """Return a line of a file as it is printed: on a terminal that is narrower in several, as `cut` has them."""
    width = terminal_width()
    return [printable(text)] if width is None else cut(printable(text), width, mark)


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return how many columns the terminal has that `stream` is, stdout if none is named; None for a file or a program,
    which get whole lines."""
    stream = stream or current().stdout
    if not stream.isatty():
        return None
    columns = current().environment.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and len(columns) <= 9 and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def print_line(text: str) -> None:
    """Print a line; control characters, which a hostile name may hold, are shown and not obeyed."""
    print(printable(text), file=current().stdout)


def report(text: str, hang: int = 2) -> None:
    """Print a line, as `print_folded` does, to stderr: it is for people, and no data."""
    width, text = terminal_width(current().stderr), printable(text)
    for line in [text] if width is None else folded(text, width, hang):
        report_whole(line)


def report_whole(text: str) -> None:
    """Print a line that stays one, to be copied, to stderr; where nobody reads that any more, what is done goes on."""
    try:
        print_message(printable(text))
    except OSError:
        pass


def report_fix(commands: Iterable[str]) -> None:
    """Print the commands that mend what was reported, in the journal that was typed."""
    for command in commands:
        report_whole(f"  try: {for_journal(current().words, command)}")
