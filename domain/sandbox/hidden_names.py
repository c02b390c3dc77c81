"""Names that a sandbox does not show, wherever they lie in what was granted.

Rules

1. Files of environment variables hold secrets by custom: they are hidden unless a person asks for them. One whose name
   ends as an example's does is shown.
2. A pattern of a person's hides files and folders by name; it has the wildcards of a shell.
"""

from __future__ import annotations

from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ENTRIES_MAX = 200_000  # of a folder that is searched
NAMES_SHOWN = 5  # of files in a message
ENV_FILES = frozenset((".env", ".envrc", ".dev.vars"))
ENV_PREFIXES = (".env.", ".env-", ".env_", ".env~", ".envrc.", ".dev.vars.")
EXAMPLES = ("dist", "example", "sample", "schema", "template", "tmpl", "tpl")  # what follows the last dot

MARKER = b"""\
# omac hides this file from the sandbox: it may hold secrets. Programs in the sandbox read this text instead.
# To show .env files and the like:  omac sandbox run --allow-env-files ...   (in a profile: allow_env_files = true)
# To show what --deny-name hides:   leave its pattern out   (in a profile: deny_names)
# To show this one:                 omac sandbox run --read PATH ...
"""
SOCKET_MARKER = b"""\
# omac hides a socket here: who connects to it acts by a program outside the sandbox.
# To show it:  omac sandbox run --allow PATH ...
"""
MARKER_OIDS = {  # git's names for it, by the bytes of an object id: SHA-1, SHA-256
    20: "8b9552e0b89d73b0f31ae278c8f43abf820df0ec",
    32: "c1b4b50564498f61276c86c5cc0e249bacc245fad4500d4db9850c2c8ea30f39",
}


def is_env_file(name: str) -> bool:
    """Return whether a file of this name holds environment variables, and is no example of one."""
    if name in ENV_FILES:
        return True
    return name.startswith(ENV_PREFIXES) and name.rpartition(".")[2] not in EXAMPLES


class HiddenNames:
    """The names that one sandbox does not show: `env_files`, and those that match a pattern of `patterns`."""

    def __init__(self, *, env_files: bool = True, patterns: Iterable[str] = ()) -> None:
        self.env_files = env_files
        self.patterns = tuple(patterns)
        self.matches: Callable[[str], object] | None = _matcher(self.patterns) if self.patterns else None


def check_pattern(pattern: str) -> None:
    """Raise Refusal (misuse) for a pattern that no name matches, or every one."""
    if "/" in pattern or pattern in (".", "..") or not pattern.strip("*"):
        why = (
            "is every name"
            if not pattern.strip("*")
            else "is not a file name; it takes names, which omac searches in every folder"
        )
        fix = ["omac sandbox run --deny-name '*.pem' -- COMMAND", "omac sandbox run --deny PATH -- COMMAND"]
        raise Refusal("misuse", f"--deny-name {pattern} {why}", fix=fix)


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    import re  # here, for only few ask for it
    from fnmatch import translate

    return re.compile("|".join(translate(pattern) for pattern in patterns)).match
