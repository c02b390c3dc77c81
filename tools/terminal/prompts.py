"""Asking a person at the terminal: secrets without echo, settings in the open, and whether to go on.

What is typed is read from /dev/tty, else from a standard input that is a terminal; never from a pipe. What was typed
before a question, or after its answer, is thrown away: the rest of a paste is neither an answer nor a shell's command.
"""

import os
import re
import signal
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeVar

from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.meta import Config, Secret
from omac.domain.skills.values import VALUE_BYTES_MAX, ValueRefused, check_config, check_secret, decoded
from omac.tools.compose.terminals import launcher_at
from omac.tools.terminal.columns import folded
from omac.tools.terminal.invocation import current
from omac.tools.terminal.render import report, terminal_width

TRIES = 3
CHOICE = re.compile(r"\[(\w)\](\w*)")  # of a question: [y]es
BYTES_MAX = 4 * 1024 * 1024
LINE_BYTES_MAX = 4094  # of a line that the terminal itself edits; it drops the rest without a word
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # ^\\ would leave a terminal that does not echo
HANGUP_S = 0.1
END, ERASE, KILL = b"\x04", (b"\x7f", b"\x08"), b"\x15"

Answer = TypeVar("Answer")


def can_ask() -> bool:
    """Return whether a terminal is there to prompt on."""
    try:
        with _terminal():
            return True
    except Refusal:
        return False


def ask_secret(
    field: Secret, *, instead: str | None = None, check: Callable[[Secret, str], Hidden] = check_secret
) -> Hidden | None:
    """The secret that a person types, unseen. `instead` says what an empty answer means, which is then None. `check`
    returns the secret that a text is, or raises ValueRefused.

    Without `instead` there must be one. Raises Refusal: value-refused after TRIES answers, prompt-ended, misuse (no
    terminal).
    """
    how = "not shown; end it with an empty line or ^D" if field.multiline else "not shown"

    def answer(terminal: "PromptTerminal") -> Hidden | None:
        typed = _text(field.name, terminal.hidden(f"  value ({how}): ", field.multiline))
        if not typed and instead is not None:
            return None
        return check(field, typed)

    return _ask(field, "secret", instead, answer)


def ask_config(field: Config, *, instead: str | None = None) -> str | None:
    """The setting that a person types, as its sidecar will see it; the rest as for `ask_secret`."""

    def answer(terminal: "PromptTerminal") -> str | None:
        line = terminal.line("  value: ")
        if len(line) >= LINE_BYTES_MAX:
            raise ValueRefused(field.name, "is too long to be typed: give it by a file")
        typed = _text(field.name, [line])
        if not typed and instead is not None:
            return None
        if not typed:
            raise ValueRefused(field.name, "is required, but empty")
        return check_config(field, typed)

    return _ask(field, field.type, instead, answer)


def confirm(question: str, message: str = "no terminal to prompt on", fix: Sequence[str] = ("--yes",)) -> bool:
    """Ask a person, and return whether the answer is yes; an empty or an unclear answer is a no. Raises Refusal
    (misuse), with `message` and `fix`, without a terminal."""
    if not can_ask():
        raise Refusal("misuse", message, fix=fix)
    with _terminal() as terminal:
        try:
            return terminal.line(f"{printable(question)} [y/N] ").strip().lower() in (b"y", b"yes")
        except EOFError:
            return False


def choose(question: str, keys: str) -> str:
    """Return the one of `keys` that a person typed, alone or as the word that `question` has, such as [y]es; the last
    of them for an empty answer, and when several answers in a row are neither. The end of the input (^D) quits where
    `keys` has q, and is the last one otherwise. Raises Refusal (misuse) without a terminal."""
    words = {"": keys[-1], **dict(zip(keys, keys, strict=True))}
    words |= {key + rest: key for key, rest in CHOICE.findall(question)}
    with _terminal() as terminal:
        for _ in range(TRIES):
            try:
                typed = terminal.line(f"{printable(question)} ").strip().lower().decode(errors="replace")
            except EOFError:
                return "q" if "q" in keys else keys[-1]
            if typed in words:
                return words[typed]
            terminal.show(_lines([f"  type {', '.join(keys[:-1])} or {keys[-1]}"]))
    return keys[-1]


def read_stdin(bytes_max: int = BYTES_MAX) -> bytes:
    """Return all of the standard input. Raises Refusal (value-refused) when it is larger."""
    stdin = current().stdin
    content = b"" if stdin is None else stdin.buffer.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise Refusal("value-refused", f"the standard input holds more than {bytes_max} bytes")
    return content


def _ask(
    field: Secret | Config, kind: str, instead: str | None, answer: Callable[["PromptTerminal"], Answer]
) -> Answer:
    with _terminal() as terminal:
        terminal.show(_question(field, kind, instead))
        for left in reversed(range(TRIES)):
            try:
                return answer(terminal)
            except ValueRefused as refused:
                problem = refused.problem
            except EOFError:
                raise Refusal("prompt-ended", f"{field.name}: the input ended before an answer") from None
            if left:
                terminal.show(_lines([f"  {printable(problem)}; {counted(left, 'more try', 'more tries')}"]))
    report(f"refused: {field.name}: {problem}")
    raise Refusal("value-refused", f"{field.name}: {TRIES} answers were refused; nothing was recorded")


def _question(field: Secret | Config, kind: str, instead: str | None) -> str:
    """Return all that a person needs to know to answer. Text from the skill is printed, but its control characters are
    not obeyed."""
    need = "required" if field.required else "optional"
    lines = [f"{field.name} ({kind}, {need}){': ' if field.description else ''}{printable(field.description)}"]
    if isinstance(field, Config) and field.choices:
        lines.append(f"  one of: {', '.join(map(printable, field.choices))}")
    if field.pattern is not None:
        lines.append(f"  it must match {printable(field.pattern)}")
    if instead is not None:
        lines.append(f"  Enter {printable(instead)}")
    return _lines(lines)


def _lines(lines: Sequence[str]) -> str:
    """Lines as the terminal gets them, which fit it."""
    width = terminal_width()
    shown = lines if width is None else [part for line in lines for part in folded(line, width, 2)]
    return "".join(f"{line}\n" for line in shown)


def _text(name: str, lines: list[bytes]) -> str:
    """Return the typed lines as text. Raises ValueRefused, whose context has nothing of the value."""
    if sum(map(len, lines)) > VALUE_BYTES_MAX:
        raise ValueRefused(name, f"is too long: at most {VALUE_BYTES_MAX // 1024} KiB fit into a variable")
    text = decoded(b"\n".join(lines))
    if text is None:
        raise ValueRefused(name, "is not UTF-8")
    if any(ord(char) < 0x20 and char not in "\n\t" for char in text):
        raise ValueRefused(name, "holds control characters, as from arrow keys: type it again, or give it by a file")
    return text


@contextmanager
def _terminal() -> Iterator["PromptTerminal"]:
    """The terminal, for one question. Raises Refusal (misuse) where there is none."""
    if not current().has_terminal:
        raise Refusal("misuse", "no terminal to prompt on")
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        if not os.isatty(0):
            raise Refusal("misuse", "no terminal to prompt on") from None
        yield PromptTerminal(0, 2)
        return
    try:
        yield PromptTerminal(descriptor, descriptor)
    finally:
        os.close(descriptor)


class PromptTerminal:
    """A terminal that is read from `reader`; questions go to `writer`. Raises EOFError when nobody answers any more."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer

    def show(self, text: str) -> None:
        content = text.encode(errors="backslashreplace")
        with suppress(OSError):  # whoever hung up reads nothing
            while content:
                content = content[os.write(self._writer, content) :]

    def line(self, question: str) -> bytes:
        """A line that is seen as it is typed, and edited by the terminal; one of LINE_BYTES_MAX may be cut off."""
        with self._mode(question, seen=True):
            try:
                typed = self._read(LINE_BYTES_MAX + 2)
            except KeyboardInterrupt:
                self.show("\n")  # what is said of it, or the shell, begins on a line of its own
                raise
        if not typed:
            self.show("\n")  # ^D ends no line
            raise EOFError
        return typed.rstrip(b"\r\n")

    def hidden(self, question: str, multiline: bool) -> list[bytes]:
        """Read what a person types, without echo: one line, or lines up to an empty one. Raises Refusal (misuse) where
        a sandbox has the terminal, too."""
        self._require_alone()
        lines: list[bytes] = []
        with self._mode(question, seen=False):
            try:
                while True:
                    typed, ended = self._hidden_line(VALUE_BYTES_MAX + 1 - sum(map(len, lines)))
                    if ended and not typed and not lines:
                        raise EOFError
                    lines += [typed] if typed or not lines else []
                    if ended or not typed or not multiline:
                        return lines
            finally:
                self.show("\n")

    def _require_alone(self) -> None:
        """Raise Refusal (misuse) where a program in a sandbox could read what is typed: that of an omac which was
        suspended here, or runs in the background."""
        if (pid := launcher_at(self._reader)) is not None:
            message = f"a sandbox (omac, pid {pid}) has this terminal: programs in it could read what you type"
            raise Refusal("misuse", message, fix=["fg  # end it, or use another terminal"])

    def _hidden_line(self, bytes_max: int) -> tuple[bytes, bool]:
        """A line without its end, and whether ^D ended it; of what is too long, just enough to see that it is."""
        typed = bytearray()
        while byte := self._read(1):  # one at a time: what follows the line may be for somebody else
            if byte in (b"\n", b"\r", END):
                return bytes(typed), byte == END
            if byte in ERASE:
                while typed and typed.pop() & 0xC0 == 0x80:
                    pass  # the rest of one character
            elif byte == KILL:
                typed.clear()
            elif len(typed) < bytes_max:
                typed += byte
        raise EOFError

    def _read(self, size: int) -> bytes:
        try:
            return os.read(self._reader, size)
        except OSError:
            _await_hangup()
            return b""

    @contextmanager
    def _mode(self, question: str, *, seen: bool) -> Iterator[None]:
        """Ask, at a terminal that echoes and edits lines, or does neither, also after omac was stopped (^Z) and goes on
        (`fg`); in the end the terminal is as it was, whatever happens."""
        try:
            before = termios.tcgetattr(self._reader)
            wanted = termios.tcgetattr(self._reader)
            edited = termios.ICANON | termios.ECHO
            wanted[3] = wanted[3] | edited if seen else wanted[3] & ~(edited | termios.ECHONL | termios.IEXTEN)
            wanted[3] |= termios.ISIG
            wanted[0] |= termios.ICRNL
            if not seen:
                wanted[6][termios.VMIN], wanted[6][termios.VTIME] = 1, 0
                # A shell gives a job that was suspended its own idea of a terminal back, which echoes.
                wanted[6][termios.VSUSP] = bytes([os.fpathconf(self._reader, "PC_VDISABLE") & 0xFF])

            def ask_again(_number: int, _frame: object) -> None:
                with suppress(termios.error):  # stopped within, or hung up: who reads notices it
                    termios.tcsetattr(self._reader, termios.TCSAFLUSH, wanted)
                self.show(question)

            with _ended_by_exception(*ENDING), _handled(ask_again, signal.SIGCONT):
                try:
                    termios.tcsetattr(self._reader, termios.TCSAFLUSH, wanted)
                    self.show(question)
                    yield
                finally:
                    try:
                        termios.tcsetattr(self._reader, termios.TCSAFLUSH, before)
                    except termios.error:
                        _await_hangup()
        except termios.error:
            raise EOFError from None  # it hung up, or cannot hide what is typed


def _await_hangup() -> None:
    """Give SIGHUP, which ends omac, the time to come: where a terminal hangs up, Linux wakes who reads it first."""
    time.sleep(HANGUP_S)


def _ended_by_exception(*numbers: signal.Signals) -> AbstractContextManager[None]:
    """Let signals end omac with their status, but not before what is to be put right has been."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    return _handled(end, *numbers)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
