"""adapters/guard/calls.py: one call of omac comes and goes, and what others wrote stays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omac.adapters.guard.calls import are_off, command, with_call, without_calls

SAID = command("/opt/omac/bin/omac")
OURS: dict[str, Any] = {"matcher": "Write|Edit", "hooks": [{"type": "command", "command": SAID}]}
THEIRS: dict[str, Any] = {"matcher": "Write", "hooks": [{"type": "command", "command": "omac-like hook pre-tool-use"}]}
OTHERS = {"model": "x", "hooks": {"PreToolUse": [THEIRS], "Stop": [{"hooks": []}]}, "env": {"A": "1"}}


def test_command() -> None:
    """A path with blanks is one word; where omac does not start, the call is denied all the same."""
    assert command("/a b/omac") == "'/a b/omac' hook pre-tool-use || exit 2"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"hooks": {}},
        {"hooks": {"PreToolUse": []}},
        {"hooks": {"Stop": []}},
        OTHERS,
        {"a": [1.5, None, {"é": "\u2028"}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_coming_and_going(document: dict[str, Any], indent: Any) -> None:
    """It comes once, in the last place; going, it leaves what was there before."""
    text = json.dumps(document, indent=indent)
    after = with_call(text, "Write|Edit", SAID)
    found = json.loads(after)
    assert found["hooks"]["PreToolUse"][-1] == OURS
    assert with_call(after, "Write|Edit", SAID) == after
    assert list(found)[: len(document)] == list(document)
    back = json.loads(without_calls(after))
    assert back == {
        key: value for key, value in document.items() if key != "hooks" or value not in ({}, {"PreToolUse": []})
    }
    if document.get("hooks", {}).get("PreToolUse") or (document and "hooks" not in document):
        assert without_calls(after) == text
    assert without_calls(text) == text


@pytest.mark.parametrize(
    "handler",
    [
        {"type": "command", "command": "/old/omac hook pre-tool-use"},
        {"type": "command", "command": command("/old place/omac")},
        {"type": "command", "command": SAID, "async": True},
        {"command": SAID},
    ],
    ids=str,
)
def test_renewed(handler: dict[str, Any]) -> None:
    """A call of an omac that was elsewhere, or one that nobody waits for, is replaced; its neighbours stay."""
    neighbour = {"type": "command", "command": "echo"}
    for handlers in ([handler], [handler, neighbour], [neighbour, handler, handler]):
        text = json.dumps({"hooks": {"PreToolUse": [{"matcher": "Write|Edit", "hooks": handlers, "x": 1}, THEIRS]}})
        groups = json.loads(with_call(text, "Write|Edit", SAID))["hooks"]["PreToolUse"]
        kept = [{"matcher": "Write|Edit", "hooks": [neighbour], "x": 1}] if neighbour in handlers else []
        assert groups == [*kept, THEIRS, OURS]


@pytest.mark.parametrize("matcher", ["*", "", None, "Write|Edit"])
def test_enough(matcher: str | None) -> None:
    """A call that somebody set up for more tools, or with a time-out, is left as it is."""
    handler = {"type": "command", "command": SAID, "timeout": 90}
    group = {"hooks": [handler]} if matcher is None else {"matcher": matcher, "hooks": [handler]}
    text = json.dumps({"hooks": {"PreToolUse": [group]}})
    assert with_call(text, "Write|Edit", SAID) == text


def test_too_few_tools() -> None:
    """A call for fewer tools is not enough."""
    text = json.dumps(
        {"hooks": {"PreToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": SAID}]}]}}
    )
    assert json.loads(with_call(text, "Write|Edit", SAID)) == {"hooks": {"PreToolUse": [OURS]}}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "5",
        '{"hooks": []}',
        '{"hooks": {"PreToolUse": {}}}',
        '{"hooks": {"PreToolUse": [5]}}',
        '{"hooks": {"PreToolUse": [{"hooks": 5}]}}',
        '{"hooks": {}, "hooks": {}}',
        '{"hooks": {"PreToolUse": [], "PreToolUse": []}}',
    ],
)
def test_another_form(text: str) -> None:
    """Settings that are not understood are not changed."""
    with pytest.raises(ValueError, match=r"\w"):
        with_call(text, "Write", SAID)
    with pytest.raises(ValueError, match=r"\w"):
        without_calls(text)


def test_off() -> None:
    """An agent can have all hooks off, if it has a setting for that."""
    assert are_off('{"disableAllHooks": true}', "disableAllHooks")
    assert not are_off("{}", "disableAllHooks")
    assert not are_off('{"": true, "disableAllHooks": true}', "")


@pytest.mark.parametrize("program", ["true", "false", "kill", "missing", "sleepy"])
def test_the_command_denies_where_omac_does_not_start(tmp_path: Path, program: str) -> None:
    """Only an omac that ends with 0 lets a call pass: one that is gone, broken or killed does not."""
    omac = tmp_path / "a folder" / "omac"
    omac.parent.mkdir()
    scripts = {"true": "exit 0", "false": "exit 1", "kill": "kill -9 $$", "sleepy": "exit 137"}
    if program in scripts:
        omac.write_text(f"#!/bin/sh\n{scripts[program]}\n")
        omac.chmod(0o755)
    done = subprocess.run(["sh", "-c", command(str(omac))], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert done.returncode == (0 if program == "true" else 2)


def test_the_command_denies_where_python_does_not_start(tmp_path: Path) -> None:
    """The interpreter itself gives up over some things, long before omac is asked."""
    omac = tmp_path / "omac"
    omac.write_text(f"#!{sys.executable}\nfrom omac.tools.entry import main\nmain()\n")
    omac.chmod(0o755)
    allowed = b'{"tool_name": "Read"}'
    call = ["sh", "-c", command(str(omac))]
    assert subprocess.run(call, input=allowed, timeout=30).returncode == 0
    folder = os.open("/", os.O_RDONLY)
    try:
        assert subprocess.run(call, stdin=folder, capture_output=True, timeout=30).returncode == 2
    finally:
        os.close(folder)
    broken = {**os.environ, "PYTHONHOME": "/nonexistent"}
    assert subprocess.run(call, input=allowed, env=broken, capture_output=True, timeout=30).returncode == 2
