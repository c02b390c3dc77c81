"""The forms in which git reads the value of a setting (git-config(1), "Values"). A value of another form stops each
command that reads the setting, often all commands. So a setting that somebody else made is of its type, and of a size
that git can work with.
"""

from __future__ import annotations

from omac.domain.git.refs import is_ref_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Allowed: TypeAlias = Callable[[str], bool]

_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0", "")
_INTEGER_MAX = 2**31 - 1
_DIGITS_MAX = 12
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def is_boolean(value: str) -> bool:
    """Return whether git reads it as true or false."""
    return value.lower() in _BOOLEANS


def one_of(*values: str) -> Allowed:
    """Return a judge that allows these values."""
    return lambda value: value in values


def matching(pattern: str) -> Allowed:
    """Return a judge that allows what a pattern matches as a whole."""

    def is_matched(value: str) -> bool:
        import re  # here: it takes longer to load than most configurations to judge, and they need no pattern

        return re.fullmatch(pattern, value) is not None

    return is_matched


def word_of(others: str) -> Allowed:
    """Return a judge that allows "." and what begins with a letter or a digit, and has such and `others` in it."""
    characters = _ALPHANUMERIC | frozenset(others)
    return lambda value: value == "." or (value[:1] in _ALPHANUMERIC and characters.issuperset(value))


def between(least: int, most: int) -> Allowed:
    """Return a judge that allows whole numbers, also with a unit (k, m, g)."""

    def is_between(value: str) -> bool:
        unit = value[-1:] if value[-1:] in _UNITS else ""
        number = value[: len(value) - len(unit)]
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            return False
        return least <= int(number) * _UNITS[unit] <= most

    return is_between


def _list_of(words: str) -> str:
    return rf"(?:{words})(?:[ ,]+(?:{words}))*"


_UNIT_OF_TIME = r"(?:second|minute|hour|day|week|month|year)s?"
TYPES: dict[str, Allowed] = {
    "BOOLEAN": is_boolean,
    "BIG": between(1 << 20, 1 << 50),  # of a smaller file git would show no changes
    "BRANCH": lambda value: value.startswith("refs/heads/") and is_ref_name(value),
    "COLUMNS": matching(_list_of("always|never|auto|column|row|plain|nodense|dense")),
    "COUNT": between(0, _INTEGER_MAX),
    "CONTEXT": between(0, 10_000),
    "DATE": matching(  # no %n: a line of its own, where git writes the date into a list of commands
        r"(?:auto:)?(?:default|human|iso(?:8601)?(?:-strict)?|local|normal|raw|relative|rfc(?:2822)?|short|unix)"
        r"(?:-local)?|format(?:-local)?:(?:[ A-Za-z0-9,./:_+-]|%[aAbBcdDeFHIjmMpSTuUyYzZ])+"
    ),
    "DIRSTAT": matching(_list_of("changes|lines|files|cumulative|noncumulative|[0-9]{1,2}(?:[.][0-9])?")),
    "EXPIRY": matching(rf"never|now|all|[0-9]{{1,4}}[. ]{_UNIT_OF_TIME}(?:[. ]ago)?|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}"),
    "EXPIRY_LATE": matching(  # two weeks at the least, git's own prunes by that: what is lost can be found again
        r"never|(?:[2-9]|[1-9][0-9]{1,3})[. ]weeks(?:[. ]ago)?|[1-9][0-9]{0,3}[. ](?:month|year)s?(?:[. ]ago)?"
        r"|(?:1[4-9]|[2-9][0-9]|[1-9][0-9]{2,3})[. ]days(?:[. ]ago)?"
    ),
    "FILE": matching(r"(?!.*\.\.)[A-Za-z0-9._][A-Za-z0-9._/ -]*"),  # below the worktree
    "GLOB": matching(r"[^\x00-\x1f]*"),
    "HIDDEN": matching(r"!?\^?refs(?:/[^\s~^:?*\[\\]*)?"),
    "LEVEL": between(-1, 9),
    "LIMIT": between(0, 1 << 50),
    "MOVED": matching(
        "no|allow-indentation-change|" + _list_of("ignore-space-at-eol|ignore-space-change|ignore-all-space")
    ),
    "NAME": matching(r"[^\x00-\x1f]*[^\x00-\x20.,:;<>\"\\'][^\x00-\x1f]*"),  # git takes the others off, and needs one
    "NOTES": matching(r"refs/notes/[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*"),
    "NOTES_OF": matching(r"refs/notes/[A-Za-z0-9_*-]+(?:/[A-Za-z0-9_*-]+)*"),
    "SIZE": between(1, 1 << 50),
    "SORT": matching(
        r"-?(?:(?:version|v):)?(?:refname|objectname|objectsize|objecttype|authordate|committerdate|creatordate"
        r"|taggerdate|authorname|committername|taggername|authoremail|committeremail|taggeremail|subject)"
    ),
    "TEXT": lambda value: "\0" not in value,
    "THREADS": between(0, 256),
    "WHITESPACE": matching(
        r"(?!(?=.*(?<!-)tab-in-indent).*(?<!-)indent-with-non-tab)"  # git stops where it is to enforce both
        + _list_of(
            "-?(?:trailing-space|space-before-tab|indent-with-non-tab|tab-in-indent|blank-at-eol|blank-at-eof|cr-at-eol)"
            "|tabwidth=[1-9][0-9]?"
        )
    ),
    "WINDOW": between(0, 4095),
    "WORD": word_of("._/+-"),
    "WORKTREE_PATHS": matching(r"\.|[A-Za-z0-9_][A-Za-z0-9_./*-]*"),
    "WS_ERRORS": matching(_list_of("all|default|none|old|new|context")),
}
