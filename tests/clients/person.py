"""A person at a shell in a terminal of 80 columns, who types README's commands, and the output that the person sees."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pexpect

COLUMNS, ROWS = 80, 40
COMMAND_WITHIN_S = 60
PROMPT = "[shop {}]$ "  # what the shell shows, with the status of the command before
MODES = re.compile(r"\x1b\[\?\d+[hl]")  # an agent that ends shows the cursor again
PROMPTED = re.escape(PROMPT).replace(re.escape("{}"), r"(\d+)")


class Seen(NamedTuple):
    """A command that was typed, its exit status, and the lines that the terminal showed until the next prompt."""

    command: str
    status: int
    lines: list[str]


class Person:
    """A person at one shell; `seen` has all commands that were typed into it, with their output."""

    def __init__(self, shell: "pexpect.spawn[str]") -> None:
        self._shell = shell
        self.seen: list[Seen] = []

    def type(self, command: str, *answers: tuple[str, str]) -> Seen:
        """Type a command, and its answer to each question, of which a part is given; return it with its output."""
        self._shell.sendline(command)
        self._shell.expect_exact(f"{command}\r\n")
        text = ""
        for question, answer in answers:
            text += self._until(question) + question
            self._shell.sendline(answer)
        text += self._until("")
        lines = [line.rstrip() for line in MODES.sub("", text).replace("\r", "").split("\n")]
        assert isinstance(self._shell.match, re.Match)
        made = Seen(command, int(self._shell.match[1]), lines[:-1] if lines[-1] == "" else lines)
        self.seen.append(made)
        return made

    def _until(self, question: str) -> str:
        """Return the output before a question, or without one, before the next prompt."""
        which = self._shell.expect([re.escape(question), pexpect.TIMEOUT] if question else [PROMPTED, pexpect.TIMEOUT])
        text = str(self._shell.before)
        assert which == 0, f"not shown within {COMMAND_WITHIN_S} s: {question or 'a prompt'}; but: {text}"
        return text


@contextmanager
def person(within: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Person]:
    """Open a terminal with a shell in a folder; `within` is a command that runs another one. Both end with the block.

    The shell edits no lines: it shows each command as it was typed, without escapes.
    """
    line = [*within, "bash", "--norc", "--noprofile", "+o", "emacs"]
    variables = {**environment, "PS1": PROMPT.format("$?"), "TERM": "dumb"}
    shell = pexpect.spawn(
        line[0], line[1:], env=variables, cwd=str(folder), dimensions=(ROWS, COLUMNS),
        encoding="utf-8", codec_errors="backslashreplace", timeout=COMMAND_WITHIN_S,
    )  # fmt: skip
    try:
        shell.expect(PROMPTED)
        yield Person(shell)
    finally:
        shell.close(force=True)


def too_wide(lines: Sequence[str]) -> list[str]:
    """Return the lines that are wider than the terminal, but for single words and commands, which are to be pasted."""
    wide = [line for line in lines if len(line) > COLUMNS]
    return [line for line in wide if " " in line.strip().removeprefix("| ") and not line.lstrip().startswith("try: ")]
