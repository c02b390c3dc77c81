"""Files of NAME=value lines, from a path or from the standard input, as a person gives them to a command."""

import os
import stat

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.values import ValueRefused, decoded, parse_lines
from omac.tools.compose.state import look_at
from omac.tools.terminal.invocation import expanded
from omac.tools.terminal.prompts import BYTES_MAX, read_stdin
from omac.tools.terminal.render import report, report_fix


def read_values(source: str, *, secret: bool) -> dict[str, str]:
    """The values in `source` ("-" is the standard input) by name; a file of secrets that others can read is told.
    Raises Refusal: misuse (it cannot be read), value-refused, which shows nothing of what is in it."""
    content = read_stdin() if source == "-" else _content(source, secret=secret)
    text = decoded(content)
    if text is None:
        raise Refusal("value-refused", f"{shown_source(source)} is not UTF-8 text; nothing was recorded")
    try:
        return parse_lines(text)
    except ValueRefused as refused:
        problem = f"{shown_source(source)}, {refused}"
    raise Refusal("value-refused", f"{problem}; nothing was recorded")


def shown_source(source: str) -> str:
    """Return the name of the source in messages."""
    return "the standard input" if source == "-" else _path(source)


def _content(source: str, *, secret: bool) -> bytes:
    path = _path(source)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise Refusal("misuse", f"{path} cannot be read: {error.strerror}", fix=[look_at(path)]) from None
    if secret and stat.S_ISREG(mode) and mode & 0o044:
        report(f"{path} holds secrets, but is readable by other users")
        report_fix([f"chmod 600 {quoted(path)}"])
    if len(content) > BYTES_MAX:
        raise Refusal("value-refused", f"{path} holds more than {BYTES_MAX} bytes")
    return content


def _path(source: str) -> str:
    return os.path.abspath(expanded(source))
