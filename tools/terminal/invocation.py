"""The invocation at work: the environment and the streams that one call of omac was given.

Commands read and print through `current()`, never through the process, so that two calls in one process (in turn, or
in two threads) do not see each other. What forks or becomes another program (`start`, `serve`, `sandbox run`, `hook
pre-tool-use`) needs a process of its own all the same, and the current folder is the process's.
"""

import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TextIO

from omac.adapters.linux.home import home_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable_json

POSITION_DIGITS_MAX = 18


class Invocation(NamedTuple):
    """The inputs of a call. `stdin` None: it is closed. `has_terminal`: it may ask the process's own terminal.
    `words`: the command line, without the name of the program."""

    environment: Mapping[str, str]
    stdin: TextIO | None
    stdout: TextIO
    stderr: TextIO
    has_terminal: bool = False
    words: tuple[str, ...] = ()


_current: ContextVar[Invocation] = ContextVar("invocation")
_unwritten: ContextVar[list[OSError]] = ContextVar("unwritten")  # what writing data ahead of a message raised


def current() -> Invocation:
    """Return the invocation that the caller works for. Raises LookupError outside of one."""
    return _current.get()


def typed_with(options: str) -> str:
    """Return the command that was typed, with these options; see `with_options`."""
    from omac.tools.terminal.typed_command import with_options  # few commands propose one

    return with_options(current().words, options)


@contextmanager
def working_for(invocation: Invocation) -> Iterator[None]:
    """Make this the current invocation, for this thread and whatever it starts."""
    before, unwritten_before = _current.set(invocation), _unwritten.set([])
    try:
        yield
    finally:
        _unwritten.reset(unwritten_before)
        _current.reset(before)


def print_data(text: str) -> None:
    """Print a line for programs, as it is."""
    print(text, file=current().stdout)


def print_message(text: str) -> None:
    """Print a line for people to stderr, behind the data printed so far: both may go to one place. `require_written`
    raises the errors of that data, since a report ends no work."""
    try:
        current().stdout.flush()
    except OSError as error:
        _unwritten.get().append(error)
    print(text, file=current().stderr)


def require_written() -> None:
    """Write the data that was printed. Raises OSError, also for what could not be written ahead of a message."""
    current().stdout.flush()
    for error in _unwritten.get():
        raise error


def print_json(value: Any) -> None:  # Any: whatever msgspec encodes
    r"""Print a value as one line of JSON in which no terminal finds anything to obey; a msgspec.Raw is JSON already.

    A name of files that is no text is written with escapes such as \udcff, of which Python makes the name again."""
    import msgspec  # takes a quarter of the time of `omac version`, which prints its own

    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json

        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    print_data(printable_json(text))


def wait_for_more(seconds: float) -> None:
    """Wait before a command looks for more to print; what it has printed is read meanwhile, also behind a pipe. Raises
    BrokenPipeError as soon as nobody reads what it prints, as behind `| head -1`."""
    current().stdout.flush()
    if nobody_reads(current().stdout, seconds):
        raise BrokenPipeError


def nobody_reads(stream: TextIO, seconds: float) -> bool:
    """Wait until nobody reads a stream any more, a pipe or a terminal that hung up; return False after some seconds."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it is no file of the system's
        time.sleep(seconds)
        return False
    readers = select.poll()
    readers.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in readers.poll(seconds * 1000))


def expanded(path: str) -> str:
    """Return a path with a leading ~ replaced by the home folder of the invocation's environment."""
    if path == "~" or path.startswith("~/"):
        return home_of(current().environment) + path[1:]
    return os.path.expanduser(path)  # ~somebody, whom the user database knows


def is_position(text: str) -> bool:
    """Return whether a text is a number that a position can be; Python refuses to convert thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS_MAX


def parse_count(text: str, flag: str) -> int:
    """Return a number of lines. Raises Refusal (misuse)."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Refusal("misuse", f"{flag} takes a number of lines, not {text!r}", fix=[f"{flag} 20"])
    return int(text)


def require_one_of(choices: Sequence[str], word: str, flag: str) -> None:
    """Raise Refusal (misuse) for a word that the option `flag` does not take."""
    if word not in choices:
        from difflib import get_close_matches

        near = next(iter(get_close_matches(word[:40], choices, 1)), choices[0])
        raise Refusal("misuse", f"{flag} takes {', '.join(choices)}, not {word!r}", fix=[f"{flag} {near}"])
