"""Refs of a clone that were not a program's to change, with `git.refs = branch`: set back to what they were at launch.

Rules

1. What they were changed to is set aside as a ref, and so is what took their place, so no commit is lost.
2. Only refs that were there are read, and those that git has not beside them: a program can leave any number of others,
   and what git takes for no ref.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left

from omac.adapters.git.refs import OWN_ALWAYS, SET_ASIDE, applied, packed_of, text_of
from omac.adapters.git.repository import is_folder, mode_of
from omac.domain.git.grammar import is_oid
from omac.domain.kernel.refusal import Refusal


def set_back(git: str, before: dict[str, str], own: str) -> list[tuple[str, str]]:
    """Set refs of a git folder back to what they were `before`, but for `own` and new ones: (ref, what was done)."""
    try:
        packed = packed_of(git)
    except Refusal:
        return [(git, "its refs cannot be read, and were not set back")]
    return _SetBack(git, packed).run({name: value for name, value in before.items() if name not in (own, OWN_ALWAYS)})


class _SetBack:
    """The commands for git by which refs are set back, and what is to be said about each; `packed` is what the folder
    `git` has in packed-refs."""

    def __init__(self, git: str, packed: dict[str, str]) -> None:
        self._git = git
        self._packed = packed
        self._names = sorted(packed)
        self._commands: list[tuple[str, str]] = []
        self._notices: list[tuple[str, str]] = []
        self._removed: set[str] = set()

    def run(self, before: dict[str, str]) -> list[tuple[str, str]]:
        """Set back those that are not as before; return (ref, what was done, or could not be)."""
        for name, value in sorted(before.items()):
            new = self._value(name, len(value))
            if new != value:
                self._set(name, value, new)
        refusals = applied(self._git, self._commands, "could not be set back, or aside")
        refused = {name for name, _ in refusals}
        return [*(notice for notice in self._notices if notice[0] not in refused), *refusals]

    def _set(self, name: str, value: str, new: str) -> None:
        if new:
            self._commands.append((name, f"update {SET_ASIDE}{name[5:]} {new}"))
        for ref in _above(name):
            there = self._value(ref, len(value))
            if not is_folder(f"{self._git}/{ref}"):  # in which there may be others
                self._make_room(ref, is_kept=bool(there))
            if not there:
                self._remove_log(ref)
            self._remove(ref, there)
        self._make_room(name, is_kept=bool(new))
        for ref in self._below(name):
            self._remove(ref, self._packed[ref])  # of files that were there too, the folder has another name now
        self._commands.append((name, f"update {name} {value} {new or self._packed.get(name, '0' * len(value))}"))
        self._notices.append((name, ("was changed" if new else "was deleted") + " inside, and is set back"))

    def _value(self, name: str, digits: int) -> str:
        """Return the value of a ref now; empty: it has none, or its file names another one, or holds no value."""
        path = f"{self._git}/{name}"
        if not stat.S_ISREG(mode_of(path)):
            return self._packed.get(name, "")
        text = text_of(path)
        return text if is_oid(text) and len(text) == digits else ""

    def _remove(self, ref: str, value: str) -> None:
        """Set a ref aside that git cannot have beside the one that is set back."""
        if ref in self._removed or not value:
            return
        self._removed.add(ref)
        self._commands.append((ref, f"update {SET_ASIDE}{ref[5:]} {value}"))
        self._commands.append((ref, f"delete {ref} {value}"))
        self._notices.append((ref, "is new, and in the place of another; it is set aside"))

    def _make_room(self, name: str, *, is_kept: bool) -> None:
        """Put out of the way what keeps git from setting a ref: its lock, a folder, a file unless it is kept, and
        rights that the user lacks."""
        path = f"{self._git}/{name}"
        try:
            for kept in ("", "logs/"):
                for above in (*_above(name), name):
                    _permit(f"{self._git}/{kept}{above}")
            if mode_of(f"{path}.lock"):
                os.unlink(f"{path}.lock")
            if is_folder(path):
                os.rename(path, f"{path}.{os.urandom(4).hex()}")  # what is in it are refs all the same
            elif not is_kept and mode_of(path):
                os.unlink(path)
        except OSError:
            pass  # git will say so

    def _remove_log(self, ref: str) -> None:
        """Remove the log of what is no ref, in whose place the logs of others are: git would not set these."""
        try:
            if stat.S_ISREG(mode_of(f"{self._git}/logs/{ref}")):
                os.unlink(f"{self._git}/logs/{ref}")
        except OSError:
            pass  # git will say so

    def _below(self, name: str) -> list[str]:
        """Return the packed refs below a name."""
        names = self._names
        return names[bisect_left(names, f"{name}/") : bisect_left(names, f"{name}0")]  # "0" comes after "/"


def _above(name: str) -> list[str]:
    """Return the names above one, the first first."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _permit(path: str) -> None:
    """Let the user write a file, and change a folder, of the user's own. Raises OSError."""
    mode = mode_of(path)
    rights = 0o700 if stat.S_ISDIR(mode) else 0o600 if stat.S_ISREG(mode) else 0
    if mode & rights != rights:
        os.chmod(path, stat.S_IMODE(mode) | rights)
