"""Checking a skill folder for its author: every problem that would keep it from being approved, started or found."""

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from omac.adapters.files import bounded
from omac.adapters.files.first_line import behind_env, command_of
from omac.adapters.skills.discovery import META_FILE, discover, workdir_roots
from omac.adapters.skills.guide_file import GUIDE_FILE, guide_problems
from omac.adapters.skills.links import Uncopyable
from omac.adapters.skills.paths import open_folder
from omac.adapters.skills.reading import read_tree
from omac.adapters.skills.yaml_file import YamlFileError, line_of, parse_yaml, read_yaml_bytes
from omac.domain.harness.commands import SCRIPTS
from omac.domain.harness.harness import SHARED_BASE
from omac.domain.harness.table import BASES
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.document import below
from omac.domain.skills.meta import Meta, SidecarMeta
from omac.domain.skills.problems import problems_of
from omac.domain.skills.unknown_keys import explain, without_unknown_keys

ALMOST = {META_FILE: ("omac.yaml", "omac.yml"), GUIDE_FILE: ("skill.md",)}  # in lower case: names that are not read
CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "-m"})  # the word behind one is code, or no file
PORT_VARIABLES = ("$SIDECAR_PORT", "${SIDECAR_PORT}")
FIRST_LINE_BYTES_MAX = 256  # as the kernel


class _Declared(NamedTuple):
    """The name of a skill, or that of its folder, and its mount: None without a sidecar, or with a wrong omac.yaml."""

    name: str
    mount: str | None


def skills_below(directory: str) -> list[str]:
    """Return the skill folders to check: the canonical directory itself, or those of the project that it is."""
    if _has(directory, GUIDE_FILE):
        return [directory]
    folders: dict[str, str] = {}  # by real folder: an agent's own folder may be a link to the shared one
    for base in BASES:
        folder = os.path.join(directory, f".{base}", "skills")
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        paths = [os.path.join(folder, name) for name in names if not name.startswith(".")]
        for path in paths:
            if _is_skill(path):
                folders.setdefault(os.path.realpath(path), path)
    return list(folders.values()) or ([directory] if _is_skill(directory) else [])


def undiscovered(directory: str) -> dict[str, tuple[str, str]]:
    """Return name and problem of each skill, or folder of skills, that is not discovered in a canonical project, by its
    path."""
    found = discover(workdir_roots(directory, BASES), lambda source, files: "", guidance=True)
    return {skill.source: (skill.name, skill.problem) for skill in found if skill.problem is not None}


class Neighbours:
    """Skills by name and mount, each read once: `sources`, which are canonical folders, and the skills beside them."""

    def __init__(self, sources: Sequence[str]) -> None:
        folders = dict.fromkeys(os.path.dirname(source) for source in sources)
        beside = [path for folder in folders for path in _skills_in(folder)]
        self._declared = {path: _declared(path) for path in dict.fromkeys((*sources, *beside))}

    def lookalikes(self, source: str) -> list[str]:
        """Return the problem with each skill whose name only case tells from that of `source`: of two such skills, one
        is not used."""
        name, problems = self._declared[source].name, []
        for path, (other, _) in self._declared.items():
            if other != name and other.casefold() == name.casefold():
                problem = f"the name {name} differs only in case from {other}, which {path} has; rename one of the two"
                problems.append(printable(problem))
        return problems

    def namesakes(self, source: str) -> list[str]:
        """Return the problem with each skill of the same folder that has the name of `source`: the first is used."""
        name, problems = self._declared[source].name, []
        for path, (other, _) in self._declared.items():
            is_beside = path != source and os.path.dirname(path) == os.path.dirname(source)
            if other == name and is_beside and not os.path.samefile(path, source):
                first = min(path, source)
                problem = f"{name} is also the name of {path}; only {first} is used: rename one of the two"
                problems.append(printable(f"{META_FILE}: name: {problem}"))
        return problems

    def shared_mounts(self, source: str) -> list[str]:
        """Return the problem with each skill that an agent sees together with `source` and that has its mount: of two
        such skills, one is not mounted."""
        name, mount = self._declared[source]
        problems = []
        for path, (other, mounted) in self._declared.items():
            shared = mounted == mount and mount is not None and other.casefold() != name.casefold()
            if shared and _seen_together(source, path):
                problem = f"{mount!r} is also the mount of {other}, which {path} has; change one of the two"
                problems.append(printable(f"{META_FILE}: sidecar.mount: {problem}"))
        return problems


def _seen_together(source: str, other: str) -> bool:
    """Return whether one agent sees both skills: every agent sees those of the shared folder beside its own."""
    beside = {os.path.dirname(source), os.path.dirname(other)}
    return len(beside) == 1 or any(folder.endswith(f"/.{SHARED_BASE}/skills") for folder in beside)


def _skills_in(folder: str) -> list[str]:
    """Return the skills with an omac.yaml in a folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [path for name in names if not name.startswith(".") and _has(path := os.path.join(folder, name), META_FILE)]


def _declared(source: str) -> _Declared:
    document = document_of(source)
    name = document.get("name")
    _, meta = problems_of(document)
    mount = meta.sidecar.mount if meta is not None and meta.sidecar is not None else None
    return _Declared(name if isinstance(name, str) else os.path.basename(source), mount)


def document_of(source: str) -> dict[object, object]:
    """Return the omac.yaml of a skill, empty where it cannot be read."""
    document: object = None
    with suppress(OSError, YamlFileError), open_folder(source) as folder:
        document = parse_yaml(read_yaml_bytes(META_FILE, folder, META_FILE), META_FILE)
    return document if isinstance(document, dict) else {}


def check_skill(source: str, search: str) -> list[str]:
    """Return each problem of the skill in the canonical folder `source`, with file and line; `search` is the PATH on
    which its program must be. Raises OSError."""
    problems: list[str] = []
    name, meta, line = os.path.basename(source), None, None
    with open_folder(source) as folder:
        entries = set(os.listdir(folder))
        if META_FILE in entries:
            declared, meta, line = _check_meta(folder, problems)
            name = declared or name
        else:
            problems += _unread(META_FILE, entries)
        if GUIDE_FILE in entries:
            problems += guide_problems(folder, name)
        else:
            missing = f"{GUIDE_FILE}: is missing, so agents cannot discover the skill"
            problems += _unread(GUIDE_FILE, entries) or [missing]
    if meta is not None and meta.sidecar is not None:
        problems += _check_command(source, meta.sidecar, line, search)
        for platform, script in meta.sidecar.install_scripts.items():
            if not os.path.isfile(os.path.join(source, script)):
                problems.append(
                    f"{META_FILE}: sidecar.install_scripts.{platform}: {script} is no file in the skill's folder"
                )
    try:
        read_tree(source)
    except Uncopyable as error:
        problems.append(f"{os.path.relpath(str(error.filename), source)}: {error.strerror}")
    return [printable(problem) for problem in problems]


def _check_meta(folder: int, problems: list[str]) -> tuple[str, Meta | None, int | None]:
    """Note the problems of omac.yaml; return the name that it declares, what it means if there are none, and the line
    of its command."""
    try:
        content = read_yaml_bytes(META_FILE, folder, META_FILE)
        document = parse_yaml(content, META_FILE)
    except YamlFileError as error:
        problems.append(str(error))
        return "", None, None
    errors, meta = problems_of(document)
    located = [(line_of(content, error.field), str(error)) for error in errors]
    for key in without_unknown_keys(document)[1]:
        location = below(key.where, key.key) if key.key else key.where
        located.append((line_of(content, location), explain(key).removeprefix("omac.yaml has ")))
    for line, text in sorted(located, key=lambda item: item[0] or 0):
        problems.append(str(YamlFileError(META_FILE, text, line)))
    declared = document.get("name") if isinstance(document, dict) else None
    return declared if isinstance(declared, str) else "", meta, line_of(content, "sidecar.command")


def _check_command(source: str, sidecar: SidecarMeta, line: int | None, search: str) -> list[str]:
    """Return what the command, which is at `line`, names and the folder or the PATH lacks: its program, or the script
    that it runs; and a variable that no shell replaces in it."""

    def problem_with(word: str, problem: str) -> str:
        return str(YamlFileError(META_FILE, f"sidecar.command: {word} {problem}", line))

    program, *words = sidecar.command
    named = [program] if "/" in program and not program.startswith("/") else []
    code = [word for before, word in pairwise(words) if before in CODE_OPTIONS]
    named += [word for word in words if not word.startswith("-") and word not in code][:1]
    problems = []
    if "/" not in program and shutil.which(program, path=search) is None:
        problems.append(problem_with(program, "is in no folder of PATH: install it"))
    if program.startswith("/") and not os.path.isfile(program):
        problems.append(problem_with(program, "does not exist"))
    if any(variable in word for word in words if word not in code for variable in PORT_VARIABLES):
        problems.append(
            problem_with("$SIDECAR_PORT", "stays as it is, for no shell takes part: read it in the program")
        )
    for word in named:
        path = os.path.join(source, word)
        is_program = word == program
        if word.startswith("/") or not (is_program or word.endswith(SCRIPTS)):
            continue
        if not os.path.isfile(path):
            problems.append(problem_with(word, "is no file in the skill's folder"))
        elif is_program and not os.stat(path).st_mode & stat.S_IXUSR:
            problems.append(problem_with(word, f"is not executable: chmod +x {quoted(word)}"))
        elif is_program and (problem := _interpreter_problem(path, search)):
            problems.append(f"{word}, line 1: {problem}")
    return problems


def _interpreter_problem(path: str, search: str) -> str:
    """Return why this machine cannot run what the first line of a script names, empty where it can."""
    start = bounded.read_start(path, FIRST_LINE_BYTES_MAX).partition(b"\n")[0]
    if start.startswith(b"#!") and start.endswith(b"\r"):
        return "ends with a carriage return, which becomes a part of the interpreter's name: remove it"
    interpreter = command_of(path)
    if interpreter and os.path.basename(interpreter[0]) == "env" and os.path.isfile(interpreter[0]):
        interpreter = behind_env(interpreter[1:])
    if not interpreter:
        return ""
    program = interpreter[0]
    if program.startswith("/"):
        return "" if os.path.isfile(program) else f"{program} does not exist: install it, or name another interpreter"
    if "/" in program or shutil.which(program, path=search) is not None:
        return ""
    return f"{program} is in no folder of PATH: install it"


def _unread(file: str, entries: Iterable[str]) -> list[str]:
    """Return the problem with each of a folder's entries that is called almost like `file`."""
    return [f"{entry}: is not read; rename it {file}" for entry in sorted(entries) if entry.lower() in ALMOST[file]]


def _is_skill(folder: str) -> bool:
    """Return whether a folder holds a file of a skill, or one that is called almost like it."""
    if _has(folder, META_FILE) or _has(folder, GUIDE_FILE):
        return True
    try:
        entries = os.listdir(folder)
    except OSError:
        return False
    return any(_unread(file, entries) for file in ALMOST)


def _has(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))
