"""Bounds on all skills that one discovery finds together: each skill has bounds of its own, and a project many skills.

An agent may write as many skills as it likes, and sparse or linked files cost it nothing. Without these bounds the next
command in that project would parse and hash them for an hour.
"""

import errno
import os
import stat
from contextlib import suppress

from omac.adapters.skills.tree import BUNDLE_ENTRIES_MAX, walk
from omac.adapters.skills.yaml_file import YamlFileError, line_of, parse_counted, scalar_texts
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.bundle import UNCOPIED_FOLDERS

YAML_BYTES_MAX = 1024 * 1024
YAML_NODES_MAX = 25_000
FILES_MAX = 400_000
FILE_BYTES_MAX = 4 * 2**30


class YamlAllowance:
    """The bytes and values of YAML that one discovery still parses."""

    def __init__(self) -> None:
        self._bytes_left = YAML_BYTES_MAX
        self._nodes_left = YAML_NODES_MAX

    def parse(self, content: bytes, shown: str) -> object:
        """Return the one document in `content`, as `parse_yaml`. Raises YamlFileError, also where the files before it
        have used up the allowance."""
        if not self._takes(content):
            raise YamlFileError(
                shown,
                f"is not read: the skills found so far hold more than {YAML_BYTES_MAX // 1024} KiB or "
                f"{YAML_NODES_MAX} values of YAML in all; remove what does not belong",
            )
        document, nodes = parse_counted(content, shown)
        self._nodes_left -= nodes
        if isinstance(document, YamlFileError):
            raise document
        return document

    def line_of(self, content: bytes, field: str) -> int | None:
        """Return the line of a field, as the function of that name; None where the allowance is used up."""
        return line_of(content, field) if self._takes(content) else None

    def scalar_texts(self, content: bytes, field: str) -> list[str | None] | None:
        """Return the items of a list, as the function of that name; None where the allowance is used up."""
        return scalar_texts(content, field) if self._takes(content) else None

    def _takes(self, content: bytes) -> bool:
        """Count the bytes of a document; return whether the allowance had as many."""
        self._bytes_left -= len(content)
        return self._bytes_left >= 0 and self._nodes_left >= 0


class FilesAllowance:
    """The files, and the bytes in them, that one discovery still lets be hashed."""

    def __init__(self) -> None:
        self._files_left = FILES_MAX
        self._bytes_left = FILE_BYTES_MAX

    def problem_of(self, source: str) -> str:
        """Count all that a copy of the canonical `source` would hold; return why it is not read, or an empty text.
        Faults of single files are for those who read them. Raises OSError where descriptors or memory ran out."""
        try:
            for folder, _, entries in walk(source, UNCOPIED_FOLDERS):
                for entry in entries:
                    self._count(folder, entry.name)
                if self._is_used_up():
                    break
        except OSError as error:
            raise_exhaustion(error)
            self._files_left -= BUNDLE_ENTRIES_MAX if error.errno == errno.EFBIG else 0
        if not self._is_used_up():
            return ""
        return (
            f"{printable(source)} is not read: the skills found so far hold more than {FILES_MAX} files or "
            f"{FILE_BYTES_MAX // 2**30} GiB in all; remove what does not belong"
        )

    def _count(self, folder: int, name: str) -> None:
        self._files_left -= 1
        with suppress(FileNotFoundError):  # an editor's leavings come and go
            status = os.lstat(name, dir_fd=folder)
            self._bytes_left -= status.st_size if stat.S_ISREG(status.st_mode) else 0

    def _is_used_up(self) -> bool:
        return self._files_left < 0 or self._bytes_left < 0


class Allowance:
    """The allowances of one discovery: guides must not keep skills with a sidecar from being read."""

    def __init__(self) -> None:
        self.metas = YamlAllowance()
        self.guides = YamlAllowance()
        self.files = FilesAllowance()
