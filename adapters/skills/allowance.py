"""Bounds on all skills that one discovery finds together: each skill has bounds of its own, and a project many skills.

An agent may write as many skills as it likes, and sparse or linked files cost it nothing. Without these bounds the next
command in that project would parse and hash them for an hour.
"""

import os
import stat

from omac.adapters.skills.tree import walk
from omac.adapters.skills.yaml_file import YamlFileError, line_of, parse_counted, scalar_texts
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
                f"is not read: the skills hold more than {YAML_BYTES_MAX // 1024} KiB or {YAML_NODES_MAX} values of "
                "YAML in all; remove what does not belong",
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
        Raises OSError."""
        for folder, _, entries in walk(source, UNCOPIED_FOLDERS):
            for entry in entries:
                self._files_left -= 1
                status = os.lstat(entry.name, dir_fd=folder)
                self._bytes_left -= status.st_size if stat.S_ISREG(status.st_mode) else 0
            if self._files_left < 0 or self._bytes_left < 0:
                shown = printable(os.path.dirname(source))
                return (
                    f"{printable(source)} is not read: the skills in {shown}, and those before them, hold more than "
                    f"{FILES_MAX} files or {FILE_BYTES_MAX // 2**30} GiB in all; remove what does not belong"
                )
        return ""


class Allowance:
    """The allowances of one discovery: guides must not keep skills with a sidecar from being read."""

    def __init__(self) -> None:
        self.metas = YamlAllowance()
        self.guides = YamlAllowance()
        self.files = FilesAllowance()
