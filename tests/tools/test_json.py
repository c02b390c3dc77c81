"""`--json` escapes names that an agent chose, so that a terminal obeys none and programs get them whole."""

import json
import logging
from io import StringIO

import pytest
from real_omac import Omac
from real_sandbox import box

from omac.tools.terminal.carrying_out import _warn_on_stderr
from omac.tools.terminal.invocation import Invocation, working_for

HOSTILE = "a\u009b31m\u202eb\u2028\u0085\x7f"  # C1 controls, a direction, line ends, DEL


COMMANDS = (
    "status --json",
    "activate {} --json",
    "list --json --workdir {}",
    "approvals --json",
    "audit --json",
    "audit explain 5 --json",
    "replay --at 5 --json",
    "cache list --json",
    "settings show --json",
)


@pytest.mark.full
def test_no_command_prints_what_a_terminal_obeys(omac: Omac) -> None:
    """A project's name is escaped in the output of each command, and whole for a program that decodes it."""
    project = omac.approved(HOSTILE)
    omac.serve()
    assert omac.run("activate", str(project)).status == 0
    matches = 0
    for command in COMMANDS:
        done = omac.run(*(word.format(project) for word in command.split()))
        assert done.status == 0, done
        assert [char for char in done.out if not char.isprintable() and char != "\n"] == [], command
        matches += sum(
            str(project) in json.dumps(json.loads(line), ensure_ascii=False) for line in done.out.splitlines()
        )
    assert matches >= 2


def test_explain_prints_nothing_a_terminal_obeys() -> None:
    """`omac sandbox run --explain --json`, which has an encoder of its own, escapes a project's name too."""
    with box() as world:
        hostile = world.home / HOSTILE
        hostile.mkdir(parents=True)
        done = world.host(*world.omac("sandbox", "run", "--explain", "--json", "--workdir", str(hostile), "--", "true"))
        assert done.out.rstrip("\n").isprintable()
        assert json.loads(done.out)["workdir"] == str(hostile)


def test_a_warning_is_shown_and_not_obeyed() -> None:
    """A warning escapes names, since it can name a file that an agent made."""
    _warn_on_stderr()
    streams = StringIO(), StringIO()
    with working_for(Invocation({}, None, *streams)):
        logging.getLogger("omac.x").warning("%s is odd", HOSTILE)
    assert streams[1].getvalue() == "omac: a\\x9b31m\\u202eb\\u2028\\x85\\x7f is odd\n"
