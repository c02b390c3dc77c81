"""The canonical path of a directory below the roots, found without telling anything about what lies elsewhere.

Rules

1. An agent chooses the path, and links below the roots. What it is told of a place outside the roots is the same
   whether something is there or not, whatever that is, and whoever may read it.
2. A link outside the roots is followed, since a person may have made one that leads into them; `..` is not: where a
   path comes back into the roots by it, its success would tell of what lies before.
3. The walk goes by descriptors. A folder that is swapped for a link meanwhile is not followed unseen.
"""

import errno
import os
from collections.abc import Sequence

from omac.adapters.files.descriptor import FOLDER_FLAGS
from omac.adapters.skills.paths import PASS_FLAGS
from omac.domain.kernel.exhaustion import is_exhaustion
from omac.domain.kernel.paths import below, below_any

PATH_BYTES_MAX = 4095  # PATH_MAX without its NUL
STEPS_MAX = 4096  # of a walk, with those that links add


class OutsideRootsError(Exception):
    """The path leads out of the roots, or cannot be followed there."""


def canonical_folder(path: str, roots: Sequence[str]) -> str:
    """Return the canonical path of the folder that an absolute path leads to; the roots are canonical. Raises
    OutsideRootsError, and OSError for what is wrong below a root."""
    walk = _Walk(roots)
    try:
        return walk.to(path)
    finally:
        walk.close()


class _Walk:
    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [root for root in roots if root.startswith("/")]
        self._walked = ""  # canonical, without a slash at its end
        self._folder = os.open("/", PASS_FLAGS)

    def close(self) -> None:
        os.close(self._folder)

    def to(self, path: str) -> str:
        parts = path.split("/")[::-1]  # what is still to be walked, the next one last
        steps = 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            steps += 1
            if part == "..":
                above = self._above()
                self._enter(os.open("/", PASS_FLAGS), "")
                parts += above.split("/")[::-1]
                continue
            here = f"{self._walked}/{part}"
            try:
                if steps > STEPS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = self._target(part)
                if target is None:
                    self._enter(os.open(part, PASS_FLAGS, dir_fd=self._folder), here)
                    continue
            except OSError as error:
                if not is_exhaustion(error):
                    self._require_inside(here)
                raise
            if target.startswith("/"):
                self._enter(os.open("/", PASS_FLAGS), "")
            parts += target.split("/")[::-1]
        walked = self._walked or "/"
        self._require_inside(walked)
        os.close(os.open(".", FOLDER_FLAGS, dir_fd=self._folder))
        return walked

    def _enter(self, folder: int, path: str) -> None:
        os.close(self._folder)
        self._folder, self._walked = folder, path

    def _target(self, part: str) -> str | None:
        """Return what a link says; None: it is no link."""
        try:
            return os.readlink(part, dir_fd=self._folder)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise

    def _above(self) -> str:
        """Return the folder around the present one (rule 2)."""
        here = self._walked or "/"
        if not self._is_inside(here) and not any(below(root, here) for root in self._roots):
            raise OutsideRootsError
        return os.path.dirname(here)

    def _require_inside(self, path: str) -> None:
        if not self._is_inside(path):
            raise OutsideRootsError from None

    def _is_inside(self, path: str) -> bool:
        return below_any(path, self._roots)
