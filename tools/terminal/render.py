"""What people see: plain text in columns, the same on a terminal and in a file."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.terminal_escaping import printable
from omac.projections.living import NOTHING_GONE, Gone
from omac.projections.status import Status, about_stream
from omac.projections.system import System
from omac.tools.terminal.invocation import current
from omac.tools.terminal.timestamps import rfc3339

AUDIT_FORM = "{:>9}  {:<27}  {:<9}  {:>6}  {:>10}  {:>9}  {:<7}  {}"
VALUE_MAX = 72  # characters of a field shown in a timeline


def show_status(status: Status, gone: Gone = NOTHING_GONE) -> None:
    """Directories with their skills, sidecars, what runs, and totals; `gone` is what ended without a record."""
    say(f"position {status.position}")
    for run in status.runs:
        where = f"roots {', '.join(run.roots)}" if run.command == "serve" else f"in {', '.join(run.roots)}"
        say(f"run {run.run}: omac {run.command} {run.harness}, version {run.version}, pid {run.pid}, {where}")
        if run.bridge_compat:
            say("  serves bridges of the Go omac, without a token (--bridge-compat)")
    if not status.directories:
        say("no directory is online")
    for directory in status.directories:
        say(f"{directory.dir}: {directory.state}")
        show_skills([msgspec.to_builtins(skill) for skill in directory.skills])
    if status.shared:
        say("shared by all projects:")
        show_skills([msgspec.to_builtins(skill) for skill in status.shared])
    for sidecar in status.sidecars:
        place = f"pid {sidecar.pid}, port {sidecar.port}, log {sidecar.log}" if sidecar.pid else sidecar.detail
        say(f"sidecar {sidecar.skill} of {sidecar.dir or 'all projects'}: {sidecar.state} ({place})")
    for sandbox in status.sandboxes:
        pid = f", pid {sandbox.pid}" if sandbox.pid else ""
        how = f"{sandbox.backend}, network {sandbox.network}{pid}"
        say(f"sandbox {sandbox.launch} in {sandbox.dir}: {sandbox.state} ({how})")
        say(f"  {shlex.join(sandbox.argv)}")
    _show_gone(gone)
    accesses = ", ".join(f"{count} {name}" for name, count in status.accesses.items())
    say(f"accesses: {accesses}")


def _show_gone(gone: Gone) -> None:
    for run in gone.runs:
        say(f"run {run.run}: omac {run.command} {run.harness} ended without a record (pid {run.pid} is gone)")
    for sidecar in gone.sidecars:
        say(f"sidecar {sidecar.skill} of {sidecar.dir or 'all projects'}: ended with its run")
    for sandbox in gone.sandboxes:
        say(f"sandbox {sandbox.launch} in {sandbox.dir}: ended without a record (pid {sandbox.launcher_pid} is gone)")
    if any(gone):
        say("  the next omac start or omac serve records these ends")


def show_registry(status: Status) -> None:
    """What this journal knows of each skill: whether its code may run, and what was given to it."""
    say("registry:")
    for one in status.registry:
        place = one.dir or ("all projects" if one.scope == "global" else one.scope)
        say(f"  {one.skill} of {place}: {'approved' if one.approved else 'not approved'}, {one.bundle_hash}")
        if one.approved_hash and not one.approved:
            say(f"    approved is {one.approved_hash}")
        given = [*one.secrets, *(f"{name}={value}" for name, value in one.config.items())]
        if given:
            say(f"    given: {', '.join(given)}")
    for skill, names in status.defaults.items():
        say(f"  saved defaults of {skill}: {', '.join(names)}")


def show_skills(skills: Sequence[Mapping[str, Any]]) -> None:
    """One line a skill, and below it what is missing and what mends it."""
    for skill in skills:
        mount = f"/{skill['mount']}" if skill["mount"] else "-"
        say(f"  {skill['name']:<20} {mount:<20} {skill['state']}")
        if skill.get("base"):
            say(f"    {skill['base']}")
        if skill.get("detail"):
            say(f"    {skill['detail']}")
        for command in skill.get("fix", ()):
            say(f"    try: {command}")


def show_audit(rows: Iterable[Mapping[str, Any]]) -> None:
    """One line an access, a launch, or a change of trust."""
    say(AUDIT_FORM.format("position", "at", "outcome", "status", "bytes", "seconds", "method", "what"))
    for row in rows:
        status = "-" if row["status"] is None else row["status"]
        duration = "-" if row["duration"] is None else f"{row['duration']:.3f}"
        session = f" session {row['session']}" if row["session"] else ""
        reason = f" ({row['reason']})" if row["reason"] else ""
        where = f" in {row['dir']}" if row["dir"] else ""
        if row["kind"] == "access":
            what = f"{row['skill'] or '?'}{row['path']}{where or ' in no directory'}{session}{reason}"
        else:
            what = f"{row['kind']} {row['skill'] or ''}{where}{session} by {row['actor']}{reason}: {row['detail']}"
        say(
            AUDIT_FORM.format(
                row["position"], row["at"], row["outcome"], status, row["bytes"], duration,
                row["method"] or "-", what,
            )
        )  # fmt: skip


def show_timeline(records: Iterable[Recorded], system: System) -> None:
    """The events that led to `system`, oldest first: what happened to whom, who asked, after which event."""
    from omac.journal.event_kinds import KIND_OF  # late: nothing else that is shown needs the journal

    say("events that led there:")
    for recorded in records:
        kind = KIND_OF[type(recorded.event)]
        why = f" after {recorded.causation}" if recorded.causation else ""
        fields = msgspec.structs.asdict(recorded.event).items()
        text = " ".join(f"{name}={_short(value)}" for name, value in fields if value not in (None, "", (), []))
        about = about_stream(system, recorded.stream)
        say(f"{recorded.position:>9}  {rfc3339(recorded.at)}  {kind:<32}  {about} (by {recorded.actor}{why}) {text}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 3] + "..."


def show_stats(figures: Mapping[str, Any]) -> None:
    """Size, span and kinds of a journal."""
    say(f"{figures['path']}: {figures['events']} events, {figures['bytes']} bytes, id {figures['id']}")
    say(f"from {figures['first_at'] or '-'} to {figures['last_at'] or '-'}")
    if any(figures["spool"].values()):
        say("spool: {waiting} records wait, {rejected} were set aside".format(**figures["spool"]))
    for kind, count in figures["kinds"].items():
        say(f"{count:>9}  {kind}")


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Rows as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def say(text: str) -> None:
    """Print a line; control characters, which a hostile name may hold, are shown and not obeyed."""
    print(printable(text), file=current().stdout)


def report(text: str) -> None:
    """Print a line, as `say` does, to stderr: it is for people, and no data."""
    print(printable(text), file=current().stderr)


def report_fix(commands: Iterable[str]) -> None:
    """Print the commands that mend what was reported."""
    for command in commands:
        report(f"  try: {command}")
