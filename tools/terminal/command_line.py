"""A command line with other options: a correction that can be pasted as a whole. Refused launches load it."""

import re
import shlex
from collections.abc import Sequence

SHORT = {"--lines": "-n"}
OPTION = re.compile(r"(?:^|\s)(--[a-z][a-z-]*)(?=\s|$)")
REMARK = "  # "


def line_with(options: str, typed: Sequence[str]) -> str:
    """Return the command that was `typed`, with these options, such as `--from 3 --to 9`, in the places of those with
    their names, or behind the others. A value is shell text as it stands; a remark comes last."""
    words = [shlex.quote(word) for word in typed]
    end = words.index("--") if "--" in words else len(words)
    line, program = words[:end], words[end:]
    text, remark, says = options.partition(REMARK)
    _, *parts = OPTION.split(text)
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        _put(line, name, value.strip())
    return " ".join(["omac", *line, *program]) + remark + says


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
