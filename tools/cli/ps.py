"""omac ps and omac stop: the runs that live, of the same status that `omac status` shows, and the end of one."""

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
from omac.tools.compose.state import StateDir, began_at, is_hidden, is_living
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_line, report, show_columns
from omac.tools.terminal.timestamps import rfc3339, wall_clock

STOP_WITHIN_S = 20.0  # what takes longer goes on without being waited for
REPORTS_AFTER_S = 1.0
LOOK_EVERY_S = 0.05
HEADS = ("PID", "RUN", "AGENT", "SINCE", "PROJECT", "SKILLS")


def run(journal: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """List the runs that live, the oldest first. Raises Refusal."""
    status = _status(journal, environment)
    runs = sorted(status.runs, key=lambda run_status: run_status.start_ticks)
    if as_json:
        for run_status in runs:
            print_json(_document(run_status, status))
    elif not runs:
        print_line("no run lives")
    else:
        show_columns([HEADS, *(_row(run_status, status) for run_status in runs)])
    return 0


def stop(name: str, journal: str | None, environment: Mapping[str, str]) -> int:
    """Ask a run to end, also one that Ctrl-Z stopped, and wait for its end; where another omac stop waits for it, wait
    with that. Raises Refusal."""
    runs = _status(journal, environment).runs
    matches = [run_status for run_status in runs if name in (run_status.run, str(run_status.pid))]
    if not matches:
        raise Refusal("misuse", f"no run that lives is called {name!r}", fix=["omac ps"])
    run_status = matches[0]
    if not run_status.boot_id or not is_living(run_status.pid, run_status.start_ticks, run_status.boot_id):
        message = f"the process of run {run_status.run} cannot be seen from here: another pid namespace hides it"
        raise Refusal("misuse", message, fix=[f"omac stop {run_status.run}  # where it was started"])
    with turn_to_end(StateDir.of(environment).run_path(RunId(run_status.run))) as is_first:
        if is_first:  # a second signal would kill what the first one asks to end
            _require_seen(run_status)
            kill(run_status.pid, run_status.start_ticks, signal.SIGTERM)
            kill(run_status.pid, run_status.start_ticks, signal.SIGCONT)  # a stopped one gets no other signal
        return _await_end(run_status)


def _require_seen(run_status: RunStatus) -> None:
    """Raise Refusal (misuse) where /proc hides the process, which a signal by its pid alone might miss."""
    if is_hidden(run_status.pid):
        why = "omac signals no process by its pid alone"
        message = f"/proc, mounted with hidepid, hides the process of run {run_status.run}: {why}"
        raise Refusal("misuse", message, fix=[f"kill {run_status.pid}  # ends it in order"])


def _await_end(run_status: RunStatus) -> int:
    """Wait until a run has ended, and say so, also that this takes a while; 1 if it takes too long."""
    begun, is_reported = time.monotonic(), False
    ending = f"omac: run {run_status.run} (pid {run_status.pid}) is still ending"
    while is_living(run_status.pid, run_status.start_ticks, run_status.boot_id):
        waited = time.monotonic() - begun
        if waited > STOP_WITHIN_S:
            report(f"{ending}; a second omac stop kills what it waits for")
            return 1
        if waited > REPORTS_AFTER_S and not is_reported:
            report(f"{ending}: waits for that, {STOP_WITHIN_S:.0f} s at most")
            is_reported = True
        time.sleep(LOOK_EVERY_S)
    print_line(f"run {run_status.run} has ended")
    return 0


def _status(journal: str | None, environment: Mapping[str, str]) -> Status:
    """Return the status of what lives, by the journal named or in use. Raises Refusal."""
    return lives_now(environment) if journal is None else status_now(journal, environment)[0]


def _directories(run_status: RunStatus, status: Status) -> list[DirectoryStatus]:
    return [directory for directory in status.directories if directory.run == run_status.run]


def _agent(run_status: RunStatus) -> str:
    """The agent that a run launched; of one without, that it serves others or runs a command."""
    if run_status.command == "serve":
        return f"{run_status.agent or 'none'} (server)"
    return run_status.agent or "none (command)"


def _row(run_status: RunStatus, status: Status) -> tuple[str, ...]:
    directories = [directory for directory in _directories(run_status, status) if directory.skills]
    is_named = [directory.dir for directory in directories] != list(run_status.roots)  # else PROJECT names it already
    skills = "; ".join(
        ", ".join(map(_skill, directory.skills)) + (f" in {named(directory.dir)}" if is_named else "")
        for directory in directories
    )
    since = wall_clock(began_at(run_status.start_ticks))
    return str(run_status.pid), run_status.run, _agent(run_status), since, shlex.join(run_status.roots), skills or "-"


def _skill(skill: SkillStatus) -> str:
    state, _ = shown_problem(skill.state, skill.detail)
    return skill.name if state == "ready" else f"{skill.name} ({state})"


def _document(run_status: RunStatus, status: Status) -> dict[str, object]:
    skills = [
        {"name": skill.name, "state": skill.state, "dir": directory.dir}
        for directory in _directories(run_status, status)
        for skill in directory.skills
    ]
    return {
        "pid": run_status.pid,
        "run": run_status.run,
        "command": run_status.command,
        "agent": run_status.agent,
        "since": rfc3339(began_at(run_status.start_ticks)),
        "roots": list(run_status.roots),
        "skills": skills,
    }
