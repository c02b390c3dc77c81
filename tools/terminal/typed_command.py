"""The command line as it was typed, with other options."""

from omac.tools.terminal.command_line import line_with
from omac.tools.terminal.invocation import current


def typed_with(options: str) -> str:
    """Return the command of the current invocation with these options, as of `line_with`."""
    return line_with(options, current().words)
