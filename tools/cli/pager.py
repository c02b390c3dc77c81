"""A long text in the person's pager, one screen after the other; a short one, or one for a program, is printed."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from omac.tools.compose.host_programs import find_program
from omac.tools.terminal.collected import Collected
from omac.tools.terminal.invocation import current, working_for

ROWS = 24  # of a terminal that does not say
ROWS_KEPT = 2  # for the question that follows
PAGER = "less"


@contextmanager
def paged() -> Iterator[None]:
    """Collect what is printed to stdout meanwhile, and show it in the pager if it is longer than the terminal."""
    invocation = current()
    collected = Collected(invocation.stdout)
    with working_for(invocation._replace(stdout=collected)):
        yield
    text = collected.getvalue()
    command = _pager() if invocation.stdout.isatty() and text.count("\n") > _rows() - ROWS_KEPT else []
    if not command:
        invocation.stdout.write(text)
        invocation.stdout.flush()
        return
    invocation.stdout.flush()
    environment = {**invocation.environment, "LESSSECURE": "1"}  # nothing that is shown may run anything
    interrupted = signal.signal(signal.SIGINT, lambda *_: None)  # the pager's to obey: killed, it leaves no echo
    try:
        subprocess.run(command, input=text.encode(errors="backslashreplace"), env=environment, check=False)
    finally:
        signal.signal(signal.SIGINT, interrupted)


def _pager() -> list[str]:
    """The words of $PAGER, else of less, whose program no agent can have put there; [] where there is none."""
    words = [PAGER]
    with suppress(ValueError):  # of a quotation without an end
        words = shlex.split(current().environment.get("PAGER", "")) or words
    program = words[0] if words[0].startswith("/") else find_program(os.path.basename(words[0]))
    return [program, *words[1:]] if program and os.access(program, os.X_OK) else []


def _rows() -> int:
    try:
        return os.get_terminal_size(current().stdout.fileno()).lines or ROWS
    except (OSError, ValueError):
        return ROWS
