"""tools/terminal/prompts.py: secrets are not echoed, and the terminal is left as it was."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from polling import eventually

SECRET = "xoxb-7f3a9c"
ASK = """
import os, sys, json
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import Config, Secret
from omac.tools.terminal.invocation import Invocation, working_for
from omac.tools.terminal.prompts import ask_config, ask_secret, can_ask, choose, confirm, read_stdin

def told(value):
    print(json.dumps(value.reveal() if hasattr(value, "reveal") else value), flush=True)

with working_for(Invocation(os.environ, sys.stdin, sys.stdout, sys.stderr, has_terminal=True)):
    try:
        told(eval(sys.argv[1]))
    except Refusal as refusal:
        print(f"{refusal.reason}: {refusal.message}", flush=True)
"""


class Person:
    """A user at the terminal of a process."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.terminal = terminal
        self.seen = b""
        self._answered = 0

    def sees(self, text: str, seconds: float = 30.0) -> None:
        """Wait until the text is on the screen, behind the last answer."""
        deadline = time.monotonic() + seconds
        while (at := self.seen.find(text.encode(), self._answered)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} within {seconds} s: {self.seen.decode()!r}"
            assert self._look(0.05) or self.process.poll() is None, f"ended without {text!r}: {self.seen.decode()!r}"
        self._answered = at + len(text)

    def types(self, keys: bytes) -> None:
        """Type keys."""
        while keys:
            keys = keys[os.write(self.terminal, keys[:512]) :]
            self._look(0)

    def echoes(self) -> bool:
        """Return whether the terminal shows typed keys."""
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def ends(self, seconds: float = 30.0) -> int:
        """Wait for the end of the process, and return its status."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs after {seconds} s: {self.seen.decode()!r}"
            self._look(0.02)
        while self._look(0):
            pass
        return self.process.returncode

    def _look(self, seconds: float) -> bool:
        """Read available output; return False if there is none."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self.terminal, 65536)
        except OSError:
            return False  # nobody has the other end open any more
        self.seen += chunk
        return bool(chunk)


@contextmanager
def at_terminal(folder: Path, question: str, stdin: int | None = None, *, controls: bool = True) -> Iterator[Person]:
    """Ask `question` at a terminal; its output goes to the files `out` and `err` in `folder`.

    `stdin` None: the terminal. `controls`: the terminal is also /dev/tty.
    """
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ours, theirs = pty.openpty()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", ASK, question],
            stdin=theirs if stdin is None else stdin,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            start_new_session=True,
            pass_fds=(theirs,),
            preexec_fn=(lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)) if controls else None,
        )
    try:
        yield Person(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(theirs)
        os.close(ours)


def told(folder: Path) -> str:
    """Return the result of the question."""
    return (folder / "out").read_text().strip()


def answer(folder: Path, question: str, *keys: bytes, prompt: str = "value") -> tuple[str, str]:
    """Return the result of a question and the screen; type these keys, one each time the prompt appears."""
    with at_terminal(folder, question) as person:
        for typed in keys:
            person.sees(prompt)
            person.types(typed)
        assert person.ends() == 0
        return told(folder), person.seen.decode()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (SECRET.encode() + b"\n", SECRET),
        (SECRET.encode() + b"\r", SECRET),
        (SECRET.encode() + b"\x04", SECRET),  # ^D
        (b"wrong\x15" + SECRET.encode() + b"\n", SECRET),  # ^U
        (SECRET.encode() + "äx".encode() + b"\x7f\x7f\n", SECRET),  # two backspaces
        (b"\x7f" + SECRET.encode() + b"\n", SECRET),
        (b" a b \n", " a b "),
        ("pässwörd\n".encode(), "pässwörd"),
        (b"x" * 20_000 + b"\n", "x" * 20_000),  # a terminal's own line has room for 4095
    ],
    ids=["enter", "return", "^D", "^U", "erased", "erased-nothing", "spaces", "utf-8", "long"],
)
def test_a_secret_is_typed_unseen(tmp_path: Path, keys: bytes, value: str) -> None:
    """A secret arrives whole and never appears on the screen, whatever keys are used."""
    import json

    out, screen = answer(tmp_path, "ask_secret(Secret('TOKEN', 'opens the door'))", keys)
    assert json.loads(out) == value
    assert "TOKEN (secret, required): opens the door" in screen
    assert value[:6] not in screen
    assert "wrong" not in screen


@pytest.mark.full
def test_the_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    """The terminal does not echo while a secret is typed. It echoes again after an answer, after ^C and ^\\, and after
    signals."""
    ends: list[tuple[bytes | signal.Signals, int]] = [
        (b"x\n", 0), (b"half\x03", -signal.SIGINT), (b"half\x1c", 131), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
    ]  # fmt: skip
    for end, status in ends:
        with at_terminal(tmp_path, "ask_secret(Secret('TOKEN'))") as person:
            person.sees("value")
            assert not person.echoes()
            if isinstance(end, signal.Signals):
                person.process.send_signal(end)
            else:
                person.types(end)
            assert person.ends() == status
            assert person.echoes()
            assert b"half" not in person.seen


def test_no_answer_is_suspended(tmp_path: Path) -> None:
    """^Z while a secret is typed counts as a control character, since a stopped omac would give the terminal back with
    an echo."""
    out, screen = answer(tmp_path, "ask_secret(Secret('TOKEN'))", b"ab\x1a\n", b"abc\n")
    assert out == '"abc"'
    assert "control characters" in screen


def test_what_is_left_of_a_paste_is_thrown_away(tmp_path: Path) -> None:
    """The second line of a secret is neither an answer to the next question nor left for the shell."""
    question = "[ask_secret(Secret('TOKEN')).reveal(), ask_config(Config('REGION'))]"
    with at_terminal(tmp_path, question) as person:
        person.sees("TOKEN")
        person.sees("value")
        person.types(b"first\nSECOND\nTHIRD\n")
        person.sees("REGION")
        person.sees("value")
        person.types(b"eu\n")
        assert person.ends() == 0
        assert told(tmp_path) == '["first", "eu"]'
        assert b"SECOND" not in person.seen
        assert not select.select([person.terminal], [], [], 0)[0]


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (b"one\ntwo\n\n", "one\ntwo"),
        (b"one\ntwo\x04\x04", "one\ntwo"),
        (b"one\n\x04", "one"),
        (b"one\n\n", "one"),
        (b"\n", None),
    ],
    ids=["empty line", "^D", "^D on a new line", "one line", "nothing"],
)
def test_a_secret_of_many_lines(tmp_path: Path, keys: bytes, value: str | None) -> None:
    """A secret of several lines ends with an empty line or ^D."""
    import json

    question = "ask_secret(Secret('PEM', multiline=True, required=False), instead='leaves it out')"
    out, screen = answer(tmp_path, question, keys)
    assert json.loads(out) == value
    assert "end it with an empty line or ^D" in screen
    assert "PEM (secret, optional)" in screen
    assert "Enter leaves it out" in screen


def test_three_tries(tmp_path: Path) -> None:
    """Each bad answer is explained without its value; the third is refused on stderr."""
    question = "ask_secret(Secret('TOKEN', pattern='^xoxb-'))"
    out, screen = answer(tmp_path, question, b"secret1\n", b"\n", b"secret2\n")
    assert out == "value-refused: TOKEN: 3 answers were refused; nothing was recorded"
    assert screen.count("does not match the pattern") == 1
    assert "is empty; 1 more try" in screen
    assert "it must match ^xoxb-" in screen
    refused = (tmp_path / "err").read_text()
    assert refused.startswith("refused: TOKEN: does not match the pattern")
    assert "secret" not in screen.replace("(secret, required)", "") + refused + out


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (b"\xff\xfe\n", "is not UTF-8"),
        (b"\x1b[Aab\n", "holds control characters"),
        (b"y" * 130_000 + b"\n", "is too long"),
    ],
    ids=["utf-8", "arrow", "long"],
)
def test_what_is_no_value(tmp_path: Path, keys: bytes, problem: str) -> None:
    """Input that is no value counts as a try."""
    out, screen = answer(tmp_path, "ask_secret(Secret('TOKEN'))", keys, b"good\n")
    assert out == '"good"'
    assert f"{problem}" in screen
    assert "2 more tries" in screen


def test_a_setting_is_asked_for_in_the_open(tmp_path: Path) -> None:
    """A setting is asked for with its type and choices. The answer is checked, normalized for the sidecar, and may be
    left out."""
    question = "ask_config(Config('MODE', 'how\\x1b[2J', 'enum', choices=('fast', 'slow')))"
    out, screen = answer(tmp_path, question, b"medium\n", b"\n", b"slow\n")
    assert out == '"slow"'
    assert "MODE (enum, required): how\\x1b[2J" in screen
    assert "\x1b" not in screen
    assert "one of: fast, slow" in screen
    assert "'medium' must be one of the choices" in screen
    assert "is required, but empty" in screen
    assert answer(tmp_path, "ask_config(Config('LIMIT', type='int'))", b"+07\n")[0] == '"7"'
    out, screen = answer(tmp_path, "ask_config(Config('LIMIT', type='int'), instead='takes 3')", b"\n")
    assert (out, "Enter takes 3" in screen) == ("null", True)


def test_nobody_answers_any_more(tmp_path: Path) -> None:
    """^D instead of an answer ends the question without a value."""
    for question in ("ask_secret(Secret('A'))", "ask_config(Config('A'))"):
        out, _ = answer(tmp_path, question, b"\x04")
        assert out == "prompt-ended: A: the input ended before an answer"


@pytest.mark.parametrize("controls", [True, False])
def test_a_terminal_that_hangs_up(tmp_path: Path, controls: bool) -> None:
    """A terminal that hangs up ends the question without a value; the end of its own terminal may end a process."""
    for question in ("ask_secret(Secret('A'))", "ask_config(Config('A'))"):
        with at_terminal(tmp_path, question, controls=controls) as person, open(os.devnull, "rb") as null:
            if controls:
                person.sees("value")
            else:
                eventually(lambda: "value" in (tmp_path / "err").read_text(), 30, "the question")
            person.types(b"half")
            os.dup2(null.fileno(), person.terminal)  # the terminal is closed
            outcome = (person.process.wait(30), told(tmp_path))
        hung_up = (0, "prompt-ended: A: the input ended before an answer")
        assert outcome == hung_up or (controls and outcome == (128 + signal.SIGHUP, ""))


@pytest.mark.full
def test_confirming(tmp_path: Path) -> None:
    """Only a clear yes confirms."""
    for keys, yes in ((b"y\n", True), (b"YES\n", True), (b"\n", False), (b"yellow\n", False), (b"\x04", False)):
        out, screen = answer(tmp_path, "confirm('go on?\\x07')", keys, prompt="[y/N]")
        assert out == ("true" if yes else "false")
        assert "go on?\\x07 [y/N]" in screen


def test_a_paste_is_no_answer(tmp_path: Path) -> None:
    """A line that is longer than the terminal takes is an unclear answer: it is a no, or asked again."""
    paste = b"x" * 5_000 + b"\n"
    assert answer(tmp_path, "confirm('go on?')", paste, prompt="[y/N]")[0] == "false"
    assert answer(tmp_path, "choose('go on?', 'yn')", paste, b"y\n", prompt="go on? ")[0] == '"y"'
    out, screen = answer(tmp_path, "ask_config(Config('A'))", paste, b"short\n")
    assert (out, "is too long to be typed: give it by a file" in screen) == ('"short"', True)


@pytest.mark.parametrize(
    ("question", "prompt", "echoes"),
    [("choose('go on?', 'yn')", "go on? ", True), ("ask_secret(Secret('TOKEN'))", "value", False)],
)
def test_a_question_is_asked_again_after_a_stop(tmp_path: Path, question: str, prompt: str, echoes: bool) -> None:
    """After omac was stopped, and goes on, the question is on the screen again; the terminal echoes as before it, and
    not as the shell left it."""
    with at_terminal(tmp_path, question) as person:
        person.sees(prompt)
        person.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, person.process.pid, os.WSTOPPED)
        modes = termios.tcgetattr(person.terminal)
        modes[3] ^= termios.ECHO
        termios.tcsetattr(person.terminal, termios.TCSANOW, modes)
        person.process.send_signal(signal.SIGCONT)
        person.sees(prompt)
        assert person.echoes() == echoes
        person.types(b"y\n")
        assert person.ends() == 0
    assert told(tmp_path) == '"y"'


@pytest.mark.parametrize(("keys", "answered"), [("yfqn", "q"), ("yn", "n")])
def test_the_end_of_the_input_quits(tmp_path: Path, keys: str, answered: str) -> None:
    """^D quits where a question offers that, and is a no elsewhere; the next output begins on a line of its own."""
    out, screen = answer(tmp_path, f"choose('go on?', '{keys}')", b"\x04", prompt="go on? ")
    assert (out, screen.endswith("go on? \r\n")) == (f'"{answered}"', True)


def test_with_a_pipe_the_terminal_is_asked(tmp_path: Path) -> None:
    """Input from a pipe is never an answer."""
    reader, writer = os.pipe()
    os.write(writer, b"from the pipe\n")
    os.close(writer)
    try:
        with at_terminal(tmp_path, "ask_secret(Secret('TOKEN'))", reader) as person:
            person.sees("value")
            person.types(b"typed\n")
            assert person.ends() == 0
    finally:
        os.close(reader)
    assert told(tmp_path) == '"typed"'


def test_a_terminal_that_is_only_the_standard_input(tmp_path: Path) -> None:
    """Without /dev/tty, omac asks on standard input; the question goes to stderr."""
    with at_terminal(tmp_path, "ask_secret(Secret('TOKEN'))", controls=False) as person:
        eventually(lambda: "value" in (tmp_path / "err").read_text(), 30, "the question")
        person.types(SECRET.encode() + b"\n")
        assert person.ends() == 0
        assert SECRET.encode() not in person.seen
    assert told(tmp_path) == f'"{SECRET}"'


@pytest.mark.full
def test_without_a_terminal(tmp_path: Path) -> None:
    """Questions without a terminal are refused; standard input can be read, up to a bound."""

    def run(question: str, stdin: bytes = b"") -> str:
        argv = [sys.executable, "-c", ASK, question]
        done = subprocess.run(argv, input=stdin, capture_output=True, start_new_session=True, timeout=30)
        return done.stdout.decode().strip()

    assert run("can_ask()") == "false"
    for question in ("ask_secret(Secret('A'))", "ask_config(Config('A'))", "confirm('?')"):
        assert run(question) == "misuse: no terminal to prompt on"
    assert run("read_stdin().decode()", b"all of it") == '"all of it"'
    assert run("read_stdin(4).decode()", b"12345") == "value-refused: the standard input holds more than 4 bytes"
