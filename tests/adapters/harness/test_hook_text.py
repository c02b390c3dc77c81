"""adapters/harness/hook_text.py: omac's hooks are recognized among other hooks, and fail as they should."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from programs import omac_at, program_at

from omac.adapters.harness.hook_text import commands, hook_command, is_off, is_same, states, with_hooks, without_hooks
from omac.domain.harness.names import BEGUN, ENDED, GUARDED

COMMANDS = commands("/opt/omac/bin/omac")
GUARD = COMMANDS[GUARDED]


def settings_with(**handler: object) -> str:
    """Return settings with a single handler for tools."""
    return json.dumps({"hooks": {GUARDED: [{"matcher": "Write|Edit", "hooks": [{"type": "command", **handler}]}]}})


@pytest.mark.parametrize("program", ["/a b/omac", "/a'b/omac", '/a"b/omac', "/plain/omac", "/$(x)/omac"])
def test_commands_are_known_again(program: str) -> None:
    """Commands are recognized with any path of the program; those of another path count as outdated."""
    for event, command in commands(program).items():
        assert shlex.quote(program) in command
        whole = json.dumps({"hooks": {event: [{"hooks": [{"type": "command", "command": command}]}]}})
        assert states(whole, commands(program), "Write") == {event: "current"}
        assert states(whole, COMMANDS, "Write") == {event: "outdated"}
        assert json.loads(without_hooks(whole)) == {}


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("/old/omac hook pre-tool-use", "outdated"),
        ("'/old place/omac' hook pre-tool-use || exit 2", "outdated"),
        ("/old/omac hook pre-tool-use --installed || exit 2", "outdated"),
        (GUARD, "current"),
        ("omac-like hook pre-tool-use", None),
        ("/x/omac hook pre-tool-use; rm x", None),
        ("echo omac hook pre-tool-used", None),
        ("/o/omac hook session-start", None),
        ("' hook pre-tool-use", None),
        ("x" * 100_000 + " /o/omac hook pre-tool-use", None),
        (5, None),
    ],
)
def test_which_are_omacs(command: object, state: str | None) -> None:
    """A hook is omac's by its command, which may be of an earlier omac."""
    hooks = states(settings_with(command=command), COMMANDS, "Write|Edit")
    assert hooks == ({GUARDED: state} if state else {})


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (settings_with(command=GUARD, timeout=90), "current"),
        (settings_with(command=GUARD).replace("Write|Edit", "*"), "current"),
        (settings_with(command=GUARD).replace("Write|Edit", ""), "current"),
        (settings_with(command=GUARD).replace("Write|Edit", "Write"), "changed"),
        (settings_with(command=GUARD, **{"async": True}), "changed"),
        (settings_with(command=GUARD, type="prompt"), "changed"),
    ],
)
def test_a_hook_that_does_not_do_its_work_is_changed(text: str, state: str) -> None:
    """A hook that runs asynchronously or for fewer tools is changed; more tools or a time-out are a user's choice."""
    assert states(text, COMMANDS, "Write|Edit") == {GUARDED: state}


def test_once_there_is_enough() -> None:
    """Hooks are not inserted beside existing hooks of omac, and a hook that occurs twice counts as changed."""
    with pytest.raises(ValueError, match="hooks of omac"):
        with_hooks(settings_with(command=GUARD), COMMANDS, "Write")
    handler = {"type": "command", "command": GUARD}
    twice = json.dumps({"hooks": {GUARDED: [{"matcher": "*", "hooks": [handler, handler]}]}})
    assert states(twice, COMMANDS, "Write|Edit") == {GUARDED: "changed"}
    assert without_hooks(twice) == "{}"


def test_neighbours_stay() -> None:
    """Hooks of others stay in the same group, list and object when omac's are removed."""
    theirs = '{"type": "command", "command": "echo"}'
    ours = f'{{"type": "command", "command": "{hook_command("/o/omac")} session-end"}}'
    for handlers in (f"{theirs}, {ours}", f"{ours}, {theirs}", f"{ours}, {theirs}, {ours}"):
        text = f'{{"hooks": {{"{ENDED}": [{{"hooks": [{handlers}], "x": 1}}], "Stop": []}}}}'
        rest = without_hooks(text)
        assert rest == f'{{"hooks": {{"{ENDED}": [{{"hooks": [{theirs}], "x": 1}}], "Stop": []}}}}'
        assert is_same(text, rest)
    assert not is_same(text, text.replace("echo", "ls"))
    assert not is_same(text, "{")


def test_off() -> None:
    """An agent may have a setting that disables all hooks; without such a setting they are never off."""
    assert is_off('{"disableAllHooks": true}', "disableAllHooks")
    assert not is_off("{}", "disableAllHooks")
    assert not is_off('{"": true, "disableAllHooks": true}', "")


@pytest.mark.parametrize("program", ["true", "false", "kill", "missing", "sleepy"])
@pytest.mark.parametrize("is_inside", [False, True])
def test_where_omac_does_not_start(tmp_path: Path, program: str, is_inside: bool) -> None:
    """An omac that ends with 0 lets a write pass, and so does a missing omac in a sandbox, where it is not shown.

    A session begins and ends in any case.
    """
    omac = tmp_path / "a folder" / "omac"
    omac.parent.mkdir()
    scripts = {"true": "exit 0", "false": "exit 1", "kill": "kill -9 $$", "sleepy": "exit 137"}
    if program in scripts:
        program_at(omac, f"#!/bin/sh\n{scripts[program]}\n")
    environment = {"PATH": os.environ["PATH"]} | ({"OMAC_SANDBOX": "1"} if is_inside else {})
    status = {
        event: subprocess.run(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, env=environment
        ).returncode
        for event, command in commands(str(omac)).items()
    }
    passes = program == "true" or (program == "missing" and is_inside)
    assert status == {GUARDED: 0 if passes else 2, BEGUN: 0, ENDED: 0}


def test_the_command_denies_where_python_does_not_start(tmp_path: Path) -> None:
    """The guard denies a write if the interpreter itself fails before it runs omac."""
    omac = omac_at(tmp_path / "omac")
    allowed = b'{"tool_name": "Read"}'
    call = ["sh", "-c", commands(str(omac))[GUARDED]]
    assert subprocess.run(call, input=allowed, timeout=30).returncode == 0
    folder = os.open("/", os.O_RDONLY)
    try:
        assert subprocess.run(call, stdin=folder, capture_output=True, timeout=30).returncode == 2
    finally:
        os.close(folder)
    broken = {**os.environ, "PYTHONHOME": "/nonexistent"}
    assert subprocess.run(call, input=allowed, env=broken, capture_output=True, timeout=30).returncode == 2
