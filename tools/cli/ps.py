"""omac ps and omac stop: the runs that live, of the same status that `omac status` shows, and the end of one."""

import os
import shlex
import signal
import time
from collections.abc import Mapping

from omac.domain.kernel.ids import RunId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import named
from omac.projections.status import DirectoryStatus, RunStatus, SkillStatus, Status, shown_problem
from omac.tools.cli.status import lives_now, status_now
from omac.tools.compose.processes import kill, turn_to_end
from omac.tools.compose.state import StateDir, began_at, is_living
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import report, say, show_columns
from omac.tools.terminal.timestamps import rfc3339, wall_clock

STOP_WITHIN_S = 20.0  # what takes longer goes on without being waited for
LOOK_EVERY_S = 0.05
HEADS = ("PID", "RUN", "AGENT", "SINCE", "PROJECT", "SKILLS")


def run(journal: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """List the runs that live, the oldest first. Raises Refusal."""
    status = _status(journal, environment)
    runs = sorted(status.runs, key=lambda one: one.start_ticks) if status else []
    if as_json:
        for document in [_document(one, status) for one in runs if status]:
            print_json(document)
    elif not runs:
        say("no run lives")
    elif status:
        show_columns([HEADS, *(_row(one, status) for one in runs)])
    return 0


def stop(name: str, journal: str | None, environment: Mapping[str, str]) -> int:
    """Ask a run to end, also one that Ctrl-Z stopped, and wait for its end; where another omac stop waits for it, wait
    with that. Raises Refusal."""
    status = _status(journal, environment)
    meant = [one for one in (status.runs if status else ()) if name in (one.run, str(one.pid))]
    if not meant:
        raise Refusal("misuse", f"no run that lives is called {name!r}", fix=["omac ps"])
    one = meant[0]
    if not one.boot_id or not is_living(one.pid, one.start_ticks, one.boot_id):
        message = f"the process of run {one.run} cannot be seen from here: another pid namespace hides it"
        raise Refusal("misuse", message, fix=[f"omac stop {one.run}  # where it was started"])
    with turn_to_end(StateDir.of(environment).run_path(RunId(one.run))) as is_first:
        if is_first:  # a second signal would kill what the first one asks to end
            kill(one.pid, one.start_ticks, signal.SIGTERM)
            kill(one.pid, one.start_ticks, signal.SIGCONT)  # a stopped one gets no other signal
        return _await_end(one)


def _await_end(one: RunStatus) -> int:
    """Wait until a run has ended, and say so; 1 if it takes too long."""
    deadline = time.monotonic() + STOP_WITHIN_S
    while is_living(one.pid, one.start_ticks, one.boot_id):
        if time.monotonic() > deadline:
            ending = f"omac: run {one.run} (pid {one.pid}) is still ending"
            report(f"{ending}; a second omac stop kills what it waits for")
            return 1
        time.sleep(LOOK_EVERY_S)
    say(f"run {one.run} has ended")
    return 0


def _status(journal: str | None, environment: Mapping[str, str]) -> Status | None:
    """Return the status of what lives, by the journal named or in use; None where none is named and none exists yet.
    Raises Refusal."""
    if journal is None and not os.path.lexists(StateDir.of(environment).journal_in_use(environment)):
        return None
    return lives_now(environment) if journal is None else status_now(journal, environment)[0]


def _directories(one: RunStatus, status: Status) -> list[DirectoryStatus]:
    return [directory for directory in status.directories if directory.run == one.run]


def _agent(one: RunStatus) -> str:
    """The agent that a run launched; of one without, that it serves others or runs a command."""
    if one.command == "serve":
        return f"{one.agent or 'none'} (server)"
    return one.agent or "none (command)"


def _row(one: RunStatus, status: Status) -> tuple[str, ...]:
    directories = [directory for directory in _directories(one, status) if directory.skills]
    is_named = [directory.dir for directory in directories] != list(one.roots)  # else PROJECT names it already
    skills = "; ".join(
        ", ".join(map(_skill, directory.skills)) + (f" in {named(directory.dir)}" if is_named else "")
        for directory in directories
    )
    since = wall_clock(began_at(one.start_ticks))
    return str(one.pid), one.run, _agent(one), since, shlex.join(one.roots), skills or "-"


def _skill(skill: SkillStatus) -> str:
    state, _ = shown_problem(skill.state, skill.detail)
    return skill.name if state == "ready" else f"{skill.name} ({state})"


def _document(one: RunStatus, status: Status) -> dict[str, object]:
    skills = [
        {"name": skill.name, "state": skill.state, "dir": directory.dir}
        for directory in _directories(one, status)
        for skill in directory.skills
    ]
    return {
        "pid": one.pid,
        "run": one.run,
        "command": one.command,
        "agent": one.agent or None,
        "since": rfc3339(began_at(one.start_ticks)),
        "roots": list(one.roots),
        "skills": skills,
    }
