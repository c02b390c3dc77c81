"""A screen that is drawn again and again, as by `omac top`: its beginning, where the terminal has too few rows."""

import os
from collections.abc import Callable
from typing import TextIO

from omac.domain.kernel.sizes import counted
from omac.tools.terminal.collected import Collected
from omac.tools.terminal.columns import columns
from omac.tools.terminal.invocation import current, working_for
from omac.tools.terminal.render import terminal_width

CLEAR = "\x1b[H\x1b[2J"


def draw(show: Callable[[], None], whole: str) -> None:
    """Draw what `show` prints on the terminal; the command `whole` prints all of it."""
    terminal = current().stdout
    with Collected(terminal) as frame:
        with working_for(current()._replace(stdout=frame)):
            show()
        lines = frame.getvalue().removesuffix("\n").split("\n")
    terminal.write("".join((CLEAR, *(f"{line}\n" for line in _fitting(lines, terminal, whole)))))
    terminal.flush()


def _fitting(lines: list[str], terminal: TextIO, whole: str) -> list[str]:
    """Return the first lines that fit, and then how many follow; the cursor takes a row of its own."""
    width = terminal_width(terminal)
    try:
        room = os.get_terminal_size(terminal.fileno()).lines - 1
    except (OSError, ValueError):
        return lines
    taken, fits = 0, 0  # rows, and the lines that leave one of these for the last line
    for number, line in enumerate(lines, 1):
        taken += max(1, -(-columns(line) // width)) if width else 1
        if taken < room:
            fits = number
    if taken <= room or room < 1:
        return lines
    return [*lines[:fits], f"{counted(len(lines) - fits, 'more line')}: {whole}"]
