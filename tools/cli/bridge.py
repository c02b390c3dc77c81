"""omac bridge: have agents that a person launches call omac, or no longer, and how each does; omac hook is a part."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from omac.domain.harness.harness import Harness
from omac.domain.harness.names import EXAMPLE, GUARDED, HOOKED_NAMES, listed
from omac.domain.kernel.refusal import Refusal, quoted
from omac.tools.compose import bridges
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

STATES = {
    "installed": "installed",
    "guard-only": "the write guard alone is installed",
    "not-installed": "not installed",
    "outdated": "outdated: another omac is called",
    "changed": "changed by hand since",
    "unreadable": "settings unreadable",
}


class Row(NamedTuple):
    """An agent and how it calls omac: a state of STATES, and one for each of its hooks."""

    harness: str
    state: str
    file: str
    hooks: Mapping[str, str]
    notes: Sequence[str]


def install(name: str | None, environment: Mapping[str, str]) -> int:
    """Have one agent, or each that is on PATH, call omac for its sessions and writes. Raises Refusal."""
    harnesses = [_named(name)] if name else _on_path(environment)
    return _each(harnesses, environment, _install)


def uninstall(name: str | None, environment: Mapping[str, str]) -> int:
    """Have one agent, or all, no longer call omac; the files are as they were before. Raises Refusal."""
    return _each([_named(name)] if name else bridges.bridged_harnesses(), environment, _uninstall)


def status(name: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show how each agent calls omac. Raises Refusal."""
    rows = [_row(harness, environment) for harness in ([_named(name)] if name else bridges.bridged_harnesses())]
    if as_json:
        for row in rows:
            print_json(row._asdict())
        return 0
    width = max(len(row.harness) for row in rows)
    for row in rows:
        print_line(f"{row.harness:<{width}}  {STATES[row.state]}")
        print_line(f"{'':<{width}}  {row.file}")
        for note in row.notes:
            print_line(f"{'':<{width}}  {note}")
        if row.state in ("outdated", "changed", "guard-only", "not-installed"):
            print_line(f"{'':<{width}}  try: omac bridge install {row.harness}")
    return 0


def install_guard(agent: str, project: bool, user: bool, environment: Mapping[str, str]) -> int:
    """Have an agent ask the write guard. Raises Refusal."""
    bridge_file = _guard_file("install", agent, project, user, environment)
    changed = bridges.change(bridge_file, bridges.with_guard, environment)
    print_folded(f"{bridge_file.file.path}: the write guard is {'called from now on' if changed else 'called already'}")
    _report_notes(bridge_file)
    if project:
        report("an agent can change its project's file; only your own (--user) is safe from it")
    return 0


def uninstall_guard(agent: str, project: bool, user: bool, environment: Mapping[str, str]) -> int:
    """Have an agent no longer ask the write guard. Raises Refusal."""
    bridge_file = _guard_file("uninstall", agent, project, user, environment)
    changed = GUARDED in bridges.find(bridge_file).states and bridges.change(
        bridge_file, bridges.without_guard, environment
    )
    print_folded(f"{bridge_file.file.path}: the write guard is {'no longer called' if changed else 'not called there'}")
    return 0


def _each(
    harnesses: list[Harness], environment: Mapping[str, str], act: Callable[[Harness, Mapping[str, str]], None]
) -> int:
    """Act on several, each on its own; with one a refusal is raised, with several it is reported."""
    status = 0
    for harness in harnesses:
        try:
            act(harness, environment)
        except Refusal as refusal:
            if len(harnesses) == 1:
                raise
            report(f"omac: {refusal.message}")
            report_fix(refusal.fix)
            status = refusal.exit_code
    return status


def _install(harness: Harness, environment: Mapping[str, str]) -> None:
    bridge_file = bridges.own_file(harness, program(), environment)
    changed = bridges.change(bridge_file, bridges.all_hooks, environment)
    print_folded(f"{bridge_file.file.path}: {harness.name} calls omac {'from now on' if changed else 'already'}")
    _report_notes(bridge_file)


def _uninstall(harness: Harness, environment: Mapping[str, str]) -> None:
    bridge_file = bridges.own_file(harness, program(), environment)
    changed = bool(bridges.find(bridge_file).states) and bridges.change(
        bridge_file, bridges.without_bridge, environment
    )
    state = "no longer calls omac" if changed else "does not call omac"
    if bridges.find(bridge_file).states:
        state = f"calls the write guard alone; omac hook uninstall {harness.name} removes it"
    print_folded(f"{bridge_file.file.path}: {harness.name} {state}")


def _row(harness: Harness, environment: Mapping[str, str]) -> Row:
    file = ""
    try:
        bridge_file = bridges.own_file(harness, program(), environment)
        file = bridge_file.file.path
        finding = bridges.find(bridge_file)
    except Refusal as refusal:
        return Row(harness.name, "unreadable", file, {}, [refusal.message])
    states = set(finding.states.values())
    if not states:
        state = "not-installed"
    elif "changed" in states:
        state = "changed"
    elif "outdated" in states:
        state = "outdated"
    elif set(finding.states) == {GUARDED}:
        state = "guard-only"
    else:
        state = "installed" if set(finding.states) == set(bridge_file.commands) else "changed"
    return Row(harness.name, state, file, finding.states, finding.notes)


def _report_notes(bridge_file: bridges.BridgeFile) -> None:
    for note in bridges.find(bridge_file).notes:
        report(f"omac: {bridge_file.file.path} {note}")
    if bridge_file.hook and bridge_file.hook.notice:
        report(bridge_file.hook.notice)


def _named(name: str) -> Harness:
    harnesses = bridges.bridged_harnesses()
    for harness in harnesses:
        if name in (harness.name, *harness.aliases):
            return harness
    known = listed(tuple(harness.name for harness in harnesses), "and")
    message = f"omac has no bridge for {name!r}; it has them for {known}"
    raise Refusal("misuse", message, fix=[f"omac bridge install {EXAMPLE}"])


def _on_path(environment: Mapping[str, str]) -> list[Harness]:
    harnesses = bridges.bridged_harnesses()
    present = [harness for harness in harnesses if shutil.which(harness.program, path=environment.get("PATH", ""))]
    if not present:
        known = listed(tuple(harness.name for harness in harnesses), "nor")
        fix = [f"omac bridge install {EXAMPLE}"]
        message = f"neither {known} is on PATH; name one to have it call omac all the same"
        raise Refusal("prerequisite-missing", message, fix=fix)
    return present


def _guard_file(verb: str, agent: str, project: bool, user: bool, environment: Mapping[str, str]) -> bridges.BridgeFile:
    if agent not in HOOKED_NAMES:
        message = f"omac has no hook for {agent!r}; it has them for {listed(HOOKED_NAMES, 'and')}"
        raise Refusal("misuse", message, fix=[f"omac hook {verb} {EXAMPLE}"])
    if project and user:
        raise Refusal("misuse", "--project and --user cannot be combined", fix=[f"omac hook {verb} {agent} --user"])
    harness = _named(agent)
    return bridges.project_file(harness, program()) if project else bridges.own_file(harness, program(), environment)


def program() -> str:
    """The absolute path of the omac that people call. Raises Refusal (prerequisite-missing)."""
    beside = os.path.join(os.path.dirname(sys.executable), "omac")
    for path in (sys.argv[0], beside):  # not the first on PATH, which may be an agent's
        if os.path.basename(path) == "omac" and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    message = "no program named omac is installed that an agent could call"
    raise Refusal("prerequisite-missing", message, fix=[f"ls -l {quoted(beside)}", "command -v omac"])
