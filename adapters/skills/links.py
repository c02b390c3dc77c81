"""Links in a folder that is to be copied: which may come along, and what they say in the copy.

All but the last word is said about names that were read already, so that nothing that happens to the folder meanwhile
changes the judgement. What lies outside is believed only where no one but root can change it.
"""

import errno
import os
import stat
from collections.abc import Collection, Mapping

from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import printable

HOPS_MAX = 40  # as in the kernel: path_resolution(7)
STEPS_MAX = 20_000_000  # some seconds, for all links together; ten thousand ordinary ones take half a million
STEPS_OUTSIDE = 20_000  # for one that leads out, past PARTS_MAX folders at most


class Uncopyable(OSError):
    """Something that cannot be in an approved copy: `filename` is its path, `strerror` says why, `fix` what to do."""

    def __init__(self, path: str, problem: str, *fix: str) -> None:
        super().__init__(errno.EINVAL, problem, path)
        self.fix = fix


class Links:
    """The links of a tree: `links` has the text of each by relpath, `files` the relpaths of its regular files."""

    def __init__(self, source: str, files: Collection[str], links: Mapping[str, str]) -> None:
        self._source = source
        self._files = files
        self._links = links
        self._steps_left = STEPS_MAX
        self.outside: dict[str, str] = {}  # what the interpreters' links led to, by the path they said

    def settle(self) -> dict[str, str]:
        """The text of each link in the copy, by relpath. Raises Uncopyable for the first that leads out."""
        return {relpath: self._settled(relpath, target) for relpath, target in sorted(self._links.items())}

    def _settled(self, relpath: str, target: str) -> str:
        """A link that stays inside says where in relative words; an interpreter's says straight which."""
        folder = relpath.split("/")[:-1]
        inner = self._within_source(target)
        if self._stays(folder, target):
            return target if inner is None else "/".join([*[".."] * len(folder), *inner]) or "."
        target_path = os.path.join(self._source, *folder, target)
        resolved = self._interpreter(relpath, target, target_path)
        self.outside[target_path] = resolved
        return resolved

    def _within_source(self, target: str) -> list[str] | None:
        """The parts of an absolute path below the source; None for all others."""
        parts = parts_of(target)
        above = parts_of(self._source)
        return parts[len(above) :] if target.startswith("/") and parts[: len(above)] == above else None

    def _stays(self, folder: list[str], target: str) -> bool:
        """Return whether following a link never leaves the tree. Other links on the way that lead out do not count:
        each of them is judged by itself."""
        at, hops = list(folder), 0
        pending = self._turn(at, target)
        if pending is None:
            return False
        while pending:
            self._spend(len(at) + 1)
            part = pending.pop()
            if part == "..":
                if not at:
                    return False
                at.pop()
                continue
            at.append(part)
            here = "/".join(at)
            if here in self._files:
                return True  # nothing is below a file
            if here in self._links:
                hops += 1
                at.pop()
                inner = self._turn(at, self._links[here])
                if inner is None or hops > HOPS_MAX:
                    return True
                pending += inner
        return True

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise Uncopyable(self._source, "holds links that take too long to follow; remove some")

    def _turn(self, at: list[str], target: str) -> list[str] | None:
        """The parts to follow next, last one first; moves `at` to the top for an absolute path. None: leads out."""
        if not target.startswith("/"):
            return parts_of(target)[::-1]
        inner = self._within_source(target)
        if inner is None:
            return None
        at.clear()
        return inner[::-1]

    def _interpreter(self, relpath: str, target: str, target_path: str) -> str:
        """The resolved path of a virtual environment's interpreter that leads out. Raises Uncopyable for all others."""
        path = os.path.join(self._source, relpath)
        *above, folder, name = ["", *relpath.split("/")]
        venv = "/".join(above[1:])
        config = f"{venv}/pyvenv.cfg" if venv else "pyvenv.cfg"
        if folder != "bin" or not name.startswith("python") or config not in self._files:
            text = f"is a link to {printable(target)}, which is outside the skill folder"
            look = f"ls -l {quoted(path)}  # put the file itself in its place, or remove the link"
            raise Uncopyable(path, text, look)
        self._spend(STEPS_OUTSIDE)
        try:
            resolved = resolve_symlinks(target_path)[1]
            fault = "is in the skill folder itself" if below(resolved, self._source) else _untrusted(resolved)
        except OSError as error:
            resolved, fault = target_path, f"cannot be read ({error.strerror})"
        if fault:
            text = f"is a virtual environment's link to {printable(target)}, and {printable(resolved)} {fault}"
            rebuild = f"/usr/bin/python3 -m venv --clear {quoted(os.path.join(self._source, venv))}"
            raise Uncopyable(path, text, f"{rebuild}  # an interpreter that only root can change")
        return resolved


def still_leads(target_path: str, resolved: str) -> bool:
    """Return whether the link to a trusted interpreter still leads to `resolved`, and that is still to be trusted."""
    try:
        return resolve_symlinks(target_path)[1] == resolved and _untrusted(resolved) is None
    except OSError:
        return False


def _untrusted(resolved: str) -> str | None:
    """Return why someone other than root could change this program, by what it holds or by what its name leads to.

    Sticky folders are no exception: who may create a name there can do so before root does. Raises OSError.
    """
    status = os.lstat(resolved)
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        return "is no program"
    path = resolved
    while True:
        if fault := others_hold(os.lstat(path)):
            return fault if path == resolved else f"is in {printable(path)}, which {fault}"
        if path == "/":
            return None
        path = os.path.dirname(path)
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return "moves"


def others_hold(status: os.stat_result) -> str | None:
    """Return why others than root can change a file or folder; None if they cannot."""
    if status.st_uid != 0:
        return f"belongs to user {status.st_uid}, not to root"
    return "is writable by users other than root" if status.st_mode & 0o022 else None


def parts_of(path: str) -> list[str]:
    """The names in a path that lead somewhere."""
    return [part for part in path.split("/") if part not in ("", ".")]
