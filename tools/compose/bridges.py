"""omac's hooks and plugins in the settings of agents: found, put there, and taken out again, each change on record."""

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import omac
from omac.adapters.guard.write_target import top_level
from omac.adapters.harness import hook_text
from omac.adapters.harness.installing import BridgeFile as BridgeFile
from omac.adapters.harness.installing import BridgeFinding as BridgeFinding
from omac.adapters.harness.installing import Choice, planned
from omac.adapters.harness.installing import find as find
from omac.adapters.harness.plugin_text import installed_form
from omac.adapters.harness.settings_file import of_project, of_user
from omac.domain.guard.guard import Unclear
from omac.domain.harness.harness import Harness
from omac.domain.harness.names import BEGUN, ENDED, GUARDED, NAMES, load
from omac.domain.kernel.refusal import Refusal

PLUGIN_FILE = "omac.ts"
EVENTS = (GUARDED, BEGUN, ENDED)


def bridged_harnesses() -> list[Harness]:
    """Return the harnesses that omac can be called by from their own settings."""
    return [
        harness for harness in map(load, NAMES) if harness.hook or (harness.bridge and harness.bridge.plugin_folder)
    ]


def own_file(harness: Harness, program: str, environment: Mapping[str, str]) -> BridgeFile:
    """Return the person's own file by which a harness calls the omac at the path `program`. Raises Refusal."""
    if harness.hook is not None:
        commands = _commands(harness, program)
        return BridgeFile(harness.name, of_user(harness, harness.hook.file, environment), commands, harness.hook)
    assert harness.bridge is not None
    source = Path(os.path.dirname(omac.__file__), "adapters", "harness", harness.bridge.plugin).read_text()
    plugin = installed_form(source, hook_text.hook_command(program))
    file = of_user(harness, harness.bridge.plugin_folder + PLUGIN_FILE, environment)
    return BridgeFile(harness.name, file, dict.fromkeys(EVENTS, ""), plugin=plugin)


def project_file(harness: Harness, program: str) -> BridgeFile:
    """Return the settings file of the project around the current directory, for an agent with hooks. Raises Refusal
    (directory-missing)."""
    assert harness.hook is not None
    try:
        project = os.fsdecode(top_level(os.getcwdb()))
    except (Unclear, OSError) as problem:
        raise Refusal("directory-missing", f"the current directory: {problem}", fix=["pwd"]) from None
    file = of_project(harness.hook.file, project)
    return BridgeFile(harness.name, file, _commands(harness, program), harness.hook)


def change(bridge_file: BridgeFile, choice: Choice, environment: Mapping[str, str]) -> bool:
    """Have a file call omac for the hooks of a choice, and record it; False if it did already. Raises Refusal."""
    import trio  # what only shows the files does without

    from omac.services.harness.installation import change_installation
    from omac.tools.compose.journals import carrying

    find(bridge_file)  # nothing is made for a file that cannot be used
    with carrying(environment, None) as execution:
        return trio.run(change_installation, execution, bridge_file.file.path, partial(planned, bridge_file, choice))


def all_hooks(_present: Collection[str], _keeps_guard: bool) -> Collection[str]:
    """Choose every hook."""
    return EVENTS


def without_bridge(present: Collection[str], keeps_guard: bool) -> Collection[str]:
    """Choose the write guard where it was put there by itself, and else none."""
    return {GUARDED} if keeps_guard or set(present) == {GUARDED} else ()


def with_guard(present: Collection[str], _keeps_guard: bool) -> Collection[str]:
    """Choose the write guard beside what is there."""
    return {*present, GUARDED}


def without_guard(present: Collection[str], _keeps_guard: bool) -> Collection[str]:
    """Choose what is there without the write guard."""
    return {*present} - {GUARDED}


def _commands(harness: Harness, program: str) -> dict[str, str]:
    assert harness.hook is not None
    commands = hook_text.commands(program)
    return {event: commands[event] for event in EVENTS if event != ENDED or harness.hook.ends_sessions}
