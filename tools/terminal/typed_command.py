"""A command line as it was typed, with other options: a correction that can be pasted as a whole."""

import re
from collections.abc import Sequence
from itertools import pairwise

from omac.domain.kernel.refusal import quoted

SHORT = {"--lines": "-n"}
OPTION = re.compile(r"(?:^|\s)(--[a-z][a-z-]*)(?=\s|$)")
REMARK = "  # "
JOURNAL = "--journal"
OF_JOURNAL = (
    "journal", "register", "deregister", "approve", "revoke", "show", "diff", "trust", "secrets", "config", "list",
    "approvals",
)  # fmt: skip


def with_options(typed: Sequence[str], options: str) -> str:
    """Return the command with the words that were `typed`, with these options, such as `--from 3 --to 9`, in the places
    of those with their names, or behind the others. A value is shell text as it stands; a remark comes last."""
    words = [quoted(word) for word in typed]
    end = words.index("--") if "--" in words else len(words)
    line, program = words[:end], words[end:]
    text, remark, says = options.partition(REMARK)
    _, *parts = OPTION.split(text)
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        _put(line, name, value.strip())
    return " ".join(["omac", *line, *program]) + remark + says


def for_journal(typed: Sequence[str], command: str) -> str:
    """Return a command, about the journal that was typed if it is about one and names none: what would change or show
    approvals and values of that journal must not mean one's own."""
    line = [*typed[: typed.index("--")]] if "--" in typed else [*typed]
    named = [value for word, value in pairwise(line) if word == JOURNAL]
    named += [word.partition("=")[2] for word in line if word.startswith(f"{JOURNAL}=")]
    words = command.split(maxsplit=2)
    if not named or words[0] != "omac" or words[1:2] == [] or words[1] not in OF_JOURNAL or JOURNAL in command:
        return command
    text, remark, says = command.partition(REMARK)
    return f"{text} {JOURNAL} {quoted(named[-1])}{remark}{says}"


def _put(line: list[str], name: str, value: str) -> None:
    """Have a command line say this of an option, once; an option without a value is a flag."""
    if not value:
        line += [name] * (name not in line)
        return
    for at, word in enumerate(line):
        if word in (name, SHORT.get(name)):
            line[at : at + 2] = [word, value]
            return
        if word.startswith(f"{name}="):
            line[at] = f"{name}={value}"
            return
    line += [name, value]
