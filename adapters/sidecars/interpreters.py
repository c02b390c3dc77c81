"""The programs of the host by which a sidecar runs: resolved at its approval, compared at each of its starts."""

import hashlib
import os
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.first_line import INTERPRETERS_MAX, behind_env, command_of, diverting
from omac.adapters.linux import host_programs
from omac.adapters.linux.home import home_of
from omac.domain.harness.commands import command_words, expanded, is_script
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills.interpreter import Interpreter
from omac.services.ports import InterpreterChanged, Interpreters

DIGEST_BYTES_MAX = 128 << 20  # what is larger is known by its device and inode

_digests: dict[tuple[int, int, int, int, int], str] = {}  # by device, inode, size, times of change: read once


class HostInterpreters(Interpreters):
    """Resolves as the port says; `writable` are canonical folders that agents may write, beside the skill's project."""

    def __init__(self, environment: Mapping[str, str], writable: Iterable[str] = ()) -> None:
        self._path = environment.get("PATH", os.defpath)
        self._writable = tuple(writable)

    async def resolve(self, command: Sequence[str], source: str, copy: str, workdir: str) -> tuple[Interpreter, ...]:
        from omac.services.kernel.threads import run_in_thread  # loads trio, which a comparison does without

        writable = (*self._writable, workdir) if workdir else self._writable
        return await run_in_thread(_resolve, command, source, copy, self._path, writable)


def trusted_path(spec: SidecarSpec, path: str, writable: Iterable[str]) -> str:
    """Return the PATH of a sidecar: that of the host, less the canonical folders `writable` and its own project, and so
    that each name leads to the program that was approved. Raises InterpreterChanged where one is not the same, or an
    agent may change a script that the command names."""
    writable_folders = (*writable, spec.workdir) if spec.workdir else tuple(writable)
    own = (spec.source, spec.copied_from)
    if spec.digest and (script := _changeable_script(spec.command, own, writable_folders)):
        raise InterpreterChanged(f"its script {script} can be changed by an agent")
    path = _trusted(path, writable_folders) or host_programs.SEARCHED
    for approved in spec.interpreters or ():
        _require_same(approved, path, writable_folders)
        if approved.path and "/" not in approved.name and host_programs.on_path(approved.name, path) != approved.path:
            path = f"{os.path.dirname(approved.path)}:{path}"
    return path


def interpreter_problem(approved: Iterable[Interpreter], path: str, writable: tuple[str, ...]) -> str:
    """Return which approved interpreter is no longer the same, as the start of a sidecar says it where agents may
    change the folders `writable` alone; "" for none."""
    trusted = _trusted(path, writable) or host_programs.SEARCHED
    try:
        for interpreter in approved:
            _require_same(interpreter, trusted, writable)
    except InterpreterChanged as changed:
        return str(changed)
    return ""


def _require_same(approved: Interpreter, path: str, writable: tuple[str, ...]) -> None:
    """Compare what was approved with what is there now. Raises InterpreterChanged."""
    if not approved.path:
        appeared = approved.name if "/" in approved.name else host_programs.on_path(approved.name, path)
        if appeared.startswith("/") and os.path.exists(appeared):
            raise InterpreterChanged(f"its interpreter {appeared} did not exist when it was approved")
        return
    if _is_changeable(approved.path, writable):
        raise InterpreterChanged(f"its interpreter {approved.path} can be changed by an agent")
    now = _identified(approved.name, approved.path)
    if not approved.is_same(now):
        problem = "is not there any more" if now is None else "is not the program that was approved"
        raise InterpreterChanged(f"its interpreter {approved.path} {problem}")


def _resolve(
    command: Sequence[str], source: str, copy: str, path: str, writable: tuple[str, ...]
) -> tuple[Interpreter, ...]:
    """Follow a command from its first word to what the kernel, or env(1), starts in the end."""
    if script := _changeable_script(command, (source,), writable):
        raise _changeable(source, script)
    interpreters: list[Interpreter] = []
    words = list(command)
    folder, real_copy = copy, os.path.realpath(copy)
    for _ in range(INTERPRETERS_MAX + 1):
        if not words or not words[0]:
            break
        name = words[0]
        program = _program(name, source, folder, path, writable)
        real = os.path.realpath(program) if program else ""
        if program and not interpreters and below(real, real_copy) and words == list(command):
            _require_executable(real, source + real.removeprefix(real_copy))
        if not program:
            interpreters.append(Interpreter(name))
            break
        if not below(real, real_copy):
            there = real if below(program, copy) else program
            interpreters.append(_identified(name, there) or Interpreter(name))
        if os.path.basename(program) == "env":
            _require_plain(words, source)
            words = behind_env(words[1:])
        else:
            words = command_of(real)
    return tuple(interpreters)


def _require_plain(words: list[str], source: str) -> None:
    """Return if env(1) runs the program that PATH leads to. Raises Refusal (skill-invalid): it would run another one
    than the person is shown."""
    if word := diverting(words[1:]):
        message = (
            f"{printable(source)} runs by {printable(shlex.join(words))}, where {printable(word)} may lead to another "
            "program than PATH does: name the program by its path, and set variables in its own code"
        )
        raise Refusal("skill-invalid", message, fix=[f"${{EDITOR:-vi}} {quoted(source)}/omac.yaml"])


def _require_executable(path: str, live: str) -> None:
    """Return if the program of the copy can be started; `live` is the file that it was copied from. Raises Refusal
    (skill-invalid)."""
    if not os.access(path, os.X_OK):
        message = f"{live} is the program of sidecar.command and not executable, so it could never start"
        raise Refusal("skill-invalid", message, fix=[f"chmod +x {quoted(live)}"])


def _program(name: str, source: str, copy: str, path: str, writable: tuple[str, ...]) -> str:
    """Return the path that a name leads to, empty where nothing is there. Raises Refusal (skill-invalid)."""
    if "/" in name:
        program = os.path.normpath(os.path.join(copy, name))
        if below(program, source):  # the copy stands for it
            program = copy + program.removeprefix(source)
        if not below(program, copy) and _is_changeable(program, writable):
            raise _changeable(source, program)
        return program if os.path.isfile(program) else ""
    return host_programs.on_path(name, _trusted(path, writable), writable)


def _trusted(path: str, writable: tuple[str, ...]) -> str:
    """Return a PATH less the folders that an agent may change."""
    return ":".join(
        folder for folder in host_programs.trusted_path(path, writable).split(":") if not _is_agents(folder)
    )


def _changeable_script(command: Sequence[str], own: tuple[str, ...], writable: tuple[str, ...]) -> str:
    """Return the absolute path of a script that a command names, an agent may change, and no copy holds: it lies in
    none of the folders `own`; "" for none."""
    variables = {"HOME": home_of(os.environ)}
    paths = (expanded(word.text, variables) for word in command_words({"command": list(command)}))
    outside = (path for path in paths if path and is_script(path) and not below_any(path, own))
    return next((path for path in outside if _is_changeable(path, writable)), "")


def _is_changeable(path: str, writable: tuple[str, ...]) -> bool:
    return host_programs.leads_through(path, writable) or _is_agents(path)


def _is_agents(path: str) -> bool:
    """Return whether an absolute path leads through a folder that an agent keeps in the home, and can change there."""
    home, variables = os.path.realpath(home_of(os.environ)), os.environ

    def leads_through(harness: Harness, names: Iterable[str]) -> bool:
        places = [os.path.realpath(harness.place_of(name, home, variables)) for name in names]
        return host_programs.leads_through(path, places)

    return any(
        leads_through(harness, harness.folders) and not leads_through(harness, (*harness.pinned, *harness.added_to))
        for harness in HARNESSES
    )


def _changeable(source: str, program: str) -> Refusal:
    return Refusal(
        "skill-invalid",
        f"{printable(source)} runs with {printable(program)}, which an agent may change: the changed program would get "
        "your secrets",
        fix=[f"ls -l {quoted(program)}", f"${{EDITOR:-vi}} {quoted(source)}/omac.yaml"],
    )


def _identified(name: str, path: str) -> Interpreter | None:
    """Return what identifies the file that `path` leads to; None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:  # it can be run, and not be read
        return _unread(name, path)
    except OSError:
        return None
    with Descriptor(descriptor):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        return Interpreter(name, path, status.st_dev, status.st_ino, _digest(descriptor, status))


def _unread(name: str, path: str) -> Interpreter | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Interpreter(name, path, status.st_dev, status.st_ino)


def _digest(descriptor: int, status: os.stat_result) -> str:
    """Return the SHA-256 of a file's content, empty where it is too large."""
    if status.st_size > DIGEST_BYTES_MAX:
        return ""
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _digests:
        with open(descriptor, "rb", closefd=False) as file:
            _digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _digests[key]
