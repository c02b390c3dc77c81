"""Reading the front matter of a SKILL.md: the YAML between two lines of three hyphens, whoever wrote it."""

import os
from collections.abc import Callable

from omac.adapters.skills.allowance import YamlAllowance
from omac.adapters.skills.yaml_file import NOT_UTF8, YamlFileError, line_of, parse_yaml, read_yaml_bytes
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.guide import check_guide, parse_guide
from omac.domain.skills.meta import Guide

GUIDE_FILE = "SKILL.md"


def read_guide(folder: int, source: str, skill: str, allowance: YamlAllowance) -> Guide | None:
    """Return the guide in the SKILL.md of the open `folder`, whose path is `source`, for the skill called `skill`; None
    if no SKILL.md exists. It is read within the `allowance`.

    Any fault in the file is the Guide's `problem`, with file and line.
    """
    shown = printable(os.path.join(source, GUIDE_FILE))
    try:
        os.stat(GUIDE_FILE, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    try:
        front = _front_matter(read_yaml_bytes(GUIDE_FILE, folder, shown), shown)
        document = allowance.parse(front, shown)
    except YamlFileError as error:
        return Guide(problem=str(error))

    return parse_guide(document, skill, _finder(front, shown, allowance.line_of))


def guide_problems(folder: int, skill: str) -> list[str]:
    """Return each problem of the SKILL.md in an open folder, with line."""
    try:
        front = _front_matter(read_yaml_bytes(GUIDE_FILE, folder, GUIDE_FILE), GUIDE_FILE)
        return check_guide(parse_yaml(front, GUIDE_FILE), skill, _finder(front, GUIDE_FILE, line_of))[2]
    except YamlFileError as error:
        return [str(error)]


def _finder(front: bytes, shown: str, line_of: Callable[[bytes, str], int | None]) -> Callable[[str], str]:
    """Return what gives file and line of a field."""

    def where(field: str) -> str:
        line = line_of(front, field)
        return shown if line is None else f"{shown}, line {line}"

    return where


def _front_matter(content: bytes, shown: str) -> bytes:
    """The YAML, every line where it stands in the file. Raises YamlFileError where there is none."""
    lines = content.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != b"---":
        if lines and not _is_text(lines[0]):
            raise YamlFileError(shown, NOT_UTF8, 1)
        raise YamlFileError(shown, "has no front matter; begin it with ---, a name, a description, and ---", 1)
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            return b"\n" + b"".join(lines[1:number])
    raise YamlFileError(shown, "has front matter without an end; close it with a line of ---", 1)


def _is_text(line: bytes) -> bool:
    """Return whether a line is UTF-8; one of UTF-16 has zero bytes."""
    try:
        return "\0" not in line.decode()
    except UnicodeDecodeError:
        return False
