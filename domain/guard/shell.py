"""Patches in a shell command: the folders that their relative paths may start from, and whether the shell expands them.

Rules

1. A `cd` is understood where it is a command of its own with one plain folder, in a list of commands at the top level.
   It has happened for certain where only `&&` leads from it to the patch; else the folder before it counts as well.
2. Any other word by which a shell changes its folder, and what could hide one, leaves the folder unknown.
3. A shell expands a patch unless it is quoted, or is a whole argument.
"""

from __future__ import annotations

from posixpath import join

from omac.domain.guard.guard import PATCH_BEGINS

PATCH_ENDS = "*** end patch"

EXPANDED = "$`\\"  # what a shell makes something else of, unless it is in single quotes
MOVING = frozenset(("cd", "chdir", "popd", "pushd"))
UNREADABLE = frozenset(("builtin", "command", "eval"))  # what they run is in their words
FOLDER_OPTIONS = frozenset(("-C", "-D", "--chdir"))  # of what runs another command: env, sudo
SEPARATORS = ("&&", "||", ";", "\n", "|", "&")
_TO_SPACES = dict.fromkeys(map(ord, "(){}'\"!=<>"), " ")


def patch_bases(text: str, base: str, tools: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that the patches' relative paths may start from; none: that cannot be said. `tools` are the
    programs that apply a patch, in lower case."""
    folders: dict[str, None] = {}
    bases: tuple[str, ...] = (base,)
    for stretch in _between(text, tools):
        bases = () if stretch is None else _moved(bases, stretch)
        if not bases:
            return ()
        folders |= dict.fromkeys(bases)
    return tuple(folders)


def is_expanded(text: str, arguments: tuple[str, ...]) -> bool:
    """Return whether a shell could expand the text of a patch in this command. `arguments` are the texts that the
    command is made of."""
    if any(argument.lstrip().lower().startswith(PATCH_BEGINS) for argument in arguments):
        return False
    lower, begins = text.lower(), -1
    while (begins := lower.find(PATCH_BEGINS, begins + 1)) >= 0:
        before = text[:begins]
        if before.count('"') % 2:
            return True
        if before.endswith("'"):
            if before.endswith("$'"):
                return True
            continue
        documents = before.rstrip(" \t\n").rpartition("\n")[2].split("<<")[1:]
        if not documents or not all(document.lstrip("- \t")[:1] in ("'", '"', "\\") for document in documents):
            return True
    return False


def _between(text: str, tools: tuple[str, ...]) -> list[str | None]:
    """Return what stands before each patch, after the one before it; None: where that ends cannot be said."""
    lower = text.lower()
    texts: list[str | None] = []
    begins, end = lower.find(PATCH_BEGINS), 0
    while begins >= 0:
        tool = max(lower.rfind(tool, end, begins) for tool in tools)
        texts.append(text[end : tool if tool >= 0 else begins])
        following = lower.find(PATCH_BEGINS, begins + 1)
        ends = lower.find(PATCH_ENDS, begins)
        if following >= 0 and not begins < ends < following:
            return [*texts, None]
        begins, end = following, ends + len(PATCH_ENDS)
    return texts


def _moved(bases: tuple[str, ...], before: str) -> tuple[str, ...]:
    """Return the folders that commands before a patch may lead to from `bases`; none: that cannot be said."""
    commands = _commands(before)
    last = len(commands) - 1
    for number, (command, separator) in enumerate(commands):
        words = command.split()
        if words[:1] == ["cd"]:
            folder = _plain_folder(command.strip()[2:].strip())
            around = (commands[number - 1][1] if number else "", separator)
            if folder is None or number == last or any(operator in ("|", "||", "&") for operator in around):
                return ()
            certain = all(operator in ("&&", "|") for _, operator in commands[number:last])
            after = tuple(join(base, folder) for base in bases)
            bases = after if certain else tuple(dict.fromkeys((*bases, *after)))
        elif _is_unreadable(command, words, at_end=number == last):
            return ()
    return bases


def _is_unreadable(command: str, words: list[str], *, at_end: bool) -> bool:
    """Return whether a command that is no plain `cd` could still change the folder."""
    if not words:
        return False
    bare = command.translate(_TO_SPACES).split()
    if not MOVING.isdisjoint(bare) or (bare[:1] and bare[0] in UNREADABLE):
        return True
    if any(char in words[0] for char in EXPANDED + "'\"*?[") or any(word.startswith("#") for word in words):
        return True
    if at_end:
        return not FOLDER_OPTIONS.isdisjoint(word.partition("=")[0] for word in words)
    return _is_open(command)


def _is_open(command: str) -> bool:
    """Return whether a command ends within quotes or an escape: then the text that ended it was no separator."""
    quote, escaped = "", False
    for char in command:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return bool(quote) or escaped


def _plain_folder(word: str) -> str | None:
    """Return the folder that is the argument of a `cd`; None where a shell makes something else of it."""
    special = EXPANDED + "'\"~*?[{(<>#= \t"
    if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"":
        word, special = word[1:-1], EXPANDED + "'\"~"
    if not word or word[0] == "-" or any(char in special for char in word):
        return None
    return word


def _commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a list, each with the separator behind it, which the last has not."""
    commands: list[tuple[str, str]] = []
    begins = position = 0
    while position < len(text):
        separator = next((operator for operator in SEPARATORS if text.startswith(operator, position)), "")
        if separator:
            commands.append((text[begins:position], separator))
            begins = position + len(separator)
        position += len(separator) or 1
    return [*commands, (text[begins:], "")]
