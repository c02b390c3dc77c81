"""Every command of omac, by its words, as the help knows them."""

from collections.abc import Iterator
from typing import Any

import typer

from omac.tools.main import app


def _walk(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from _walk(subcommand, *words, name)


_EACH = dict(_walk(typer.main.get_command(app)))
ALL = {
    words: command
    for words, command in _EACH.items()
    if not hasattr(command, "commands") or (words and command.invoke_without_command)
}
GROUPS = {words: command for words, command in _EACH.items() if words not in ALL}


def required(command: Any) -> list[str]:
    """Return words in the place of the arguments and options that a command demands."""
    words = []
    for parameter in command.params:
        if parameter.required:
            words += [*(parameter.opts[:1] if parameter.param_type_name == "option" else ()), "x"]
    return words
