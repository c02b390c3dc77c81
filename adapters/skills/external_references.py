"""Places outside a skill folder that its files name and run: a copy does not hold them, so nobody else may change them.

A virtual environment says where its interpreter is (`home` in pyvenv.cfg), where more modules are (`*.pth`, relative
ones too, and the finders of editable installs), and a script's first line says what runs it.
"""

import os
import re
import stat

from omac.adapters.linux.home import home_of
from omac.adapters.linux.host_programs import leads_through
from omac.adapters.skills.links import HOPS_MAX, Uncopyable, others_hold, parts_of
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import printable

OWN = "/\0"  # in the place of the skill folder's own path, which may hold blanks that end a word

_HOME = re.compile(rb"(?m)^[ \t]*home[ \t]*=[ \t]*(.+?)[ \t]*\r?$")
_QUOTED = re.compile(rb"""["'](/[^"'\n]*)["']""")
_INTERPRETER = re.compile(rb"#![ \t]*([^ \t\r\n]+)")
_EXEC = re.compile(rb"""'''exec' (?:"([^"\n]+)"|'([^'\n]+)'|([^"'\s]+))""")


def named_paths(relpath: str, head: bytes) -> list[str]:
    """The paths, relative ones from the skill's top, that the file at `relpath` names in the part that is relocated.

    That part is `head`, with OWN where it mentions the skill folder.
    """
    name = relpath.rpartition("/")[2]
    lines_named: list[bytes] = []
    if name == "pyvenv.cfg":
        lines_named = _HOME.findall(head)
    elif name.endswith(".pth"):
        lines = [line.strip() for line in re.split(rb"\r\n|\n|\r", head)]
        lines_named = [line for line in lines if line and not line.startswith((b"#", b"import ", b"import\t"))]
    elif name.startswith("__editable__"):
        lines_named = _QUOTED.findall(head)
    elif head.startswith(b"#!"):
        lines_named = _INTERPRETER.findall(head[: head.find(b"\n") + 1 or None])
        lines_named += [b"".join(ways) for ways in _EXEC.findall(head)]
    folder = os.path.dirname(relpath)
    return [os.path.join(folder, os.fsdecode(path)) for path in lines_named]


def require_unchangeable(source: str, relpath: str, paths: list[str]) -> None:
    """Raise Uncopyable when one of these paths is outside `source` and others than root, or an agent in the same
    project, can change it: as root an agent's files are root's as well."""
    project = _project_of(source)
    for named_path in paths:
        path = os.path.normpath(os.path.join(source, named_path.replace(OWN, source)))
        if below(path, source):
            continue
        try:
            fault = changeable(path)
            if fault is None and project and leads_through(path, (project,)):
                fault = f"lies in {printable(project)}, where an agent may change it"
        except OSError as error:
            fault = f"cannot be inspected ({error.strerror})"
        if fault:
            culprit = os.path.join(source, relpath)
            text = f"names {printable(path)}, which is not in the skill folder and {fault}: a copy would run that"
            raise Uncopyable(culprit, text, f"grep -n / {quoted(culprit)}  # keep it inside the folder")


def _project_of(source: str) -> str:
    """Return the project that a skill folder belongs to; empty for a skill of the user's own folders, or elsewhere."""
    above, folder = os.path.split(os.path.dirname(source))
    project, base = os.path.split(above)
    if folder != "skills" or not base.startswith(".") or project == os.path.realpath(home_of(os.environ)):
        return ""
    return project


def changeable(path: str) -> str | None:
    """Return why others than root could change what an absolute path leads to, or put something there; None if they
    cannot.

    Looked at step by step, for who can change a folder can put another link in the place of one. Raises OSError.
    """
    at, pending, hops = "/", parts_of(path)[::-1], 0
    fault = others_hold(os.lstat("/"))
    while pending and fault is None:
        part = pending.pop()
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return None  # nobody else can put anything there
        if stat.S_ISLNK(status.st_mode):
            hops += 1
            if hops > HOPS_MAX:
                return "is a link without end"
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            pending += parts_of(target)[::-1]
        else:
            at, fault = here, others_hold(status)
    return fault and (fault if at == path else f"is reached by {printable(at)}, which {fault}")
