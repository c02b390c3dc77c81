"""The command that a script names in its first line, and the command behind env(1)."""

from __future__ import annotations

import os

from omac.adapters.files import bounded

INTERPRETERS_MAX = 4  # as the kernel: of a script, of that script's interpreter, ...
_LINE_BYTES_MAX = 256
_SPECIAL = frozenset("'\"\\$#")  # which `env -S` obeys
_OPTIONS_WITH_WORD = ("-u", "--unset", "-C", "--chdir", "-a", "--argv0")


def command_of(path: str) -> list[str]:
    """Return the interpreter that a script names, with the words that are given to it; empty if it is no script."""
    interpreter, _, word = _first_line(path).partition(" ")
    word = word.strip()
    if not interpreter:
        return []
    return [interpreter, *(word.split() if os.path.basename(interpreter) == "env" else [word] if word else [])]


def behind_env(words: list[str]) -> list[str]:
    """Return the command that env(1) runs, of its arguments; empty if it runs none."""
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-S", "--split-string"):
            return behind_env([part for argument in words[at + 1 :] for part in argument.split()])
        if word.startswith(("-S", "--split-string=")):
            rest = word.removeprefix("--split-string=").removeprefix("-S")
            return behind_env([*rest.split(), *words[at + 1 :]])
        if word.startswith("-v") and word.endswith("S"):
            return behind_env(words[at + 1 :])
        if word in _OPTIONS_WITH_WORD:
            at += 2
        elif word.startswith("-") or "=" in word:
            at += 1
        else:
            return words[at:]
    return []


def diverting(words: list[str], *, split: bool = False) -> str:
    """Return the argument by which env(1) would search its command elsewhere than where PATH leads, or that is not
    understood; empty without one. `split`: they come from one that env takes apart by rules of its own."""
    at = 0
    while at < len(words):
        word = words[at]
        if split and not _SPECIAL.isdisjoint(word):
            return word
        if word in ("-S", "--split-string", "-vS"):
            return diverting([part for argument in words[at + 1 :] for part in argument.split()], split=True)
        if word.startswith(("-S", "--split-string=")):
            rest = word.removeprefix("--split-string=").removeprefix("-S")
            return diverting([*rest.split(), *words[at + 1 :]], split=True)
        if word in ("-u", "--unset"):
            if words[at + 1 : at + 2] == ["PATH"]:
                return f"{word} PATH"
            at += 2
        elif word in ("-v", "--debug", "--") or (word.startswith("--unset=") and word != "--unset=PATH"):
            at += 1
        elif word.startswith(("-", "PATH=")):
            return word
        elif "=" in word:
            at += 1
        else:
            return ""
    return ""


def _first_line(path: str) -> str:
    """Return what follows "#!" in a script's first line; empty if it is no script."""
    try:
        start = bounded.read_start(path, _LINE_BYTES_MAX)
    except OSError:
        return ""
    if not start.startswith(b"#!"):
        return ""
    return os.fsdecode(start[2:].partition(b"\n")[0]).replace("\t", " ").strip()
