"""The files a command needs to start: itself, the links that lead to it, its interpreter, and where it is installed.

Rules

1. A command is found as a shell finds it. What lies in the system's folders is there anyway.
2. A file in a `bin` folder belongs to the folder around that; one in `node_modules`, a virtual environment, a cellar
   or a version of a tool to that. What is too broad to be an installation, or has other things in it, is not shown:
   then it is the file alone.
3. Nothing that PATH names is shown for that reason, but toolchains (`toolchains.py`).
4. What lies where a sandbox can write may have been written by the last one. A link there, a first line or a
   `pyvenv.cfg` leads to the system, to what PATH has, and to a Python: of its installation `bin/python*` and
   `lib/pythonX.Y` are shown, and nothing else of the host.
"""

from __future__ import annotations

import os
import sys

import omac
from omac.adapters.files import bounded
from omac.adapters.files.first_line import INTERPRETERS_MAX, behind_env, command_of
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.adapters.sandbox.baseline import SYSTEM
from omac.adapters.sandbox.protected import contains_protected
from omac.domain.harness.table import install_hints
from omac.domain.kernel import PlainData
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.sandbox.confinement import LINK, READ, WRITE, Entry, access_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IN_SYSTEM = tuple(f"{folder}/" for folder in SYSTEM)
_PREFIX_PARTS_MIN = 2  # "/opt" is no installation, "/opt/tool" is
_BIN = ("bin", "sbin", "libexec", "shims")
_TREES = ("node_modules", ".pnpm", "Cellar")  # what lies in one needs what lies beside it
_SHARED_ROOTS = (".local", "go", ".cargo", ".bun", ".deno")  # of the home: their `bin` is for programs of all kinds
_VERSION = frozenset("0123456789.t")  # of a Python; "t" is a free-threaded one


class Program(PlainData):
    """A command that was found: `argv` with an absolute program, `entries` that show what it needs to start.

    `withheld` is what it leads to and rule 4 does not show.
    """

    argv: list[str]
    entries: list[Entry]
    withheld: list[str]

    def warnings(self, entries: Sequence[Entry]) -> list[str]:
        """Return warnings for the person who grants these `entries`: paths that were withheld and that the entries do
        not show either."""
        warnings = []
        for path in self.withheld:
            if access_at(entries, path) not in (READ, WRITE):
                warnings.append(
                    f"{self.argv[0]} leads to {path}, which is not shown for that; "
                    "if you installed it there, grant the folder with --read"
                )
        return warnings


def resolve(argv: Sequence[str], environment: Mapping[str, str], cwd: str, writable: Sequence[str] = ()) -> Program:
    """Return the program that starts `argv` in `cwd`, with the entries that it needs. `writable` are the folders,
    beside `cwd`, that a sandbox can write. Raises Refusal (command-not-found, command-not-executable, misuse)."""
    if not argv or not argv[0]:
        raise Refusal("misuse", "no command was given", fix=["omac sandbox run -- COMMAND"])
    needs = _Needs(environment, cwd, (cwd, *writable))
    path = needs.command(list(argv))
    return Program([path, *argv[1:]], needs.entries(), needs.withheld)


def own_installation(environment: Mapping[str, str]) -> list[Entry]:
    """omac's own files and those of its interpreter, so that it can be run inside."""
    package = os.path.dirname(omac.__file__)
    needs = _Needs(environment, "/", ())
    needs.reason = "omac itself"
    needs.show(package)
    with os.scandir(package) as listing:
        for item in listing:
            if item.is_symlink():  # a checkout that is installed as it is
                needs.show(item.path)
    around = os.path.dirname(os.path.dirname(sys.executable))
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix, around)):
        needs.prefix(prefix)
    needs.file(sys.executable, INTERPRETERS_MAX)
    script = _on_path("omac", environment.get("PATH", ""), "/")
    if script is not None and below_any(resolve_symlinks(script)[1], needs.shown):
        needs.show(script)
    return needs.entries()


def path_outside_system(path: str) -> list[str]:
    """The absolute folders of a PATH that are not the system's."""
    return [folder for folder in dict.fromkeys(path.split(":")) if folder[:1] == "/" and not _system(folder + "/")]


class _Needs:
    """The paths that a command needs, collected step by step."""

    def __init__(self, environment: Mapping[str, str], cwd: str, writable: Sequence[str]) -> None:
        self.reason = "the command"
        self.shown: dict[str, str] = {}  # canonical path -> reason
        self.links: dict[str, tuple[str, str]] = {}  # canonical path -> (target, reason)
        self.withheld: list[str] = []
        self._environment = environment
        self._cwd = resolve_symlinks(cwd)[1]
        self._writable = [resolve_symlinks(folder)[1] for folder in writable]
        self._home = resolve_symlinks(environment.get("HOME") or "/nonexistent")[1]

    def entries(self) -> list[Entry]:
        """Parents first, without what lies in something that is shown or can be written."""
        needed: list[Entry] = []
        for path in sorted(self.shown, key=len):
            if not below_any(path, self._writable) and not any(below(path, entry.path) for entry in needed):
                needed.append(Entry(path, READ, self.shown[path]))
        within = [entry.path for entry in needed]
        for path, (target, reason) in self.links.items():
            if not _system(path) and not below_any(path, (*self._writable, *within)):
                needed.append(Entry(path, LINK, reason, target=target))
        return needed

    def command(self, argv: list[str], depth: int = 0, doubtful: bool = False) -> str:
        """Note what a command needs; its absolute path. `doubtful`: a sandbox may have chosen it. Raises Refusal."""
        path = self._resolve(argv[0], depth)
        self.file(path, depth, doubtful and "/" in argv[0])
        if os.path.basename(path) == "env":
            inner = behind_env(argv[1:])
            if inner and depth < INTERPRETERS_MAX:
                self.command(inner, depth + 1, doubtful)
        return path

    def file(self, path: str, depth: int, doubtful: bool = False) -> None:
        """Note a program by its absolute path, with its installation and its interpreter."""
        links, real = resolve_symlinks(path)
        self._follow(path)
        doubtful = doubtful or any(below_any(link, self._writable) for link, _ in links)
        self._installation(real, doubtful)
        argv = command_of(real) if depth < INTERPRETERS_MAX else []
        if not argv:
            return
        self.reason = f"{os.path.basename(path)} runs by it"
        self.command(argv, depth + 1, doubtful or below_any(real, self._writable))

    def show(self, path: str) -> None:
        """Note a file or a folder as it is, with the links that lead to it."""
        real = self._follow(path)
        if not _system(real):
            self.shown.setdefault(real, self.reason)

    def prefix(self, folder: str) -> bool:
        """Note an installation's folder, unless it is too broad to be one; whether it was noted."""
        real = resolve_symlinks(folder)[1]
        if _system(real):
            return True
        shared = any(real == f"{self._home}/{name}" for name in _SHARED_ROOTS)
        broad = (
            real.count("/") < _PREFIX_PARTS_MIN
            or any(below(folder, real) for folder in self._writable)
            or contains_protected(real, self._home)
        )
        if shared or broad or not os.path.isdir(real):
            return False
        self.show(folder)
        return True

    def _resolve(self, name: str, depth: int) -> str:
        if "/" in name:
            path: str | None = name if name.startswith("/") else f"{self._cwd}/{name}"
        else:
            path = _on_path(name, self._environment.get("PATH", ""), self._cwd)
        if path is None or not os.path.exists(path):
            description = f"{self.reason.partition(' runs')[0]} needs {name}, which" if depth else f"{name}"
            where = "does not exist" if "/" in name else "is in no folder of PATH"
            fix = [*install_hints(os.path.basename(name)), f"command -v {quoted(name)}"]
            raise Refusal("command-not-found", f"{description} {where}", fix=fix)
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            raise Refusal("command-not-executable", f"{path} is not a program", fix=[list_command(path)])
        return path

    def _follow(self, path: str) -> str:
        links, real = resolve_symlinks(path)
        for link, target in links:
            self.links.setdefault(link, (target, self.reason))
        return real

    def _installation(self, real: str, doubtful: bool) -> None:
        """Note what a canonical file is a part of, or the file alone."""
        folder = os.path.dirname(real)
        around = os.path.dirname(folder)
        if _system(real):
            return
        self._base_of_venv(around)
        if below_any(real, self._writable):
            return
        if doubtful:
            if os.path.basename(folder) != "bin" or real not in self._python_alone(around):
                self.withheld.append(real)
            return
        parts = real.split("/")
        for at, part in enumerate(parts[:-1]):
            if part in _TREES:
                tree = "/".join(parts[: at if part == "Cellar" else at + 1])
                if self.prefix(tree):
                    return
                break
        if os.path.basename(real) in ("rustup", "rustup-init"):
            self.prefix(self._environment.get("RUSTUP_HOME") or f"{self._home}/.rustup")
        if os.path.basename(folder) in _BIN and self.prefix(around):
            return
        if below(real, "/opt") and self.prefix(folder):
            return
        self.show(real)

    def _base_of_venv(self, folder: str) -> None:
        """Note the interpreter's installation that a virtual environment was made from."""
        try:
            text = bounded.read_start(f"{folder}/pyvenv.cfg", 4096).decode("utf-8", "replace")
        except OSError:
            return
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home" and value.strip().startswith("/"):
                base = os.path.dirname(os.path.realpath(value.strip()))
                if below_any(resolve_symlinks(folder)[1], self._writable):
                    self._python_alone(base)
                else:
                    self.prefix(base)

    def _python_alone(self, base: str) -> list[str]:
        """Note a Python and its library, of an installation that an agent may have chosen; returns its programs.

        A link in there that leads out of it is the installation's, but shows nothing: an agent may have chosen that.
        """
        programs = [path for path in _entries(f"{base}/bin") if _is_python(path) and os.path.isfile(path)]
        if _system(base) or not programs:
            return []
        libraries = [path for path in _entries(f"{base}/lib") if _is_python(path) and "." in os.path.basename(path)]
        if not [path for path in libraries if self.prefix(path)]:
            return []
        for path in programs:
            self.show(path)
        for path in _entries(f"{base}/lib"):  # of an interpreter that was built with a shared library
            if path.startswith(f"{base}/lib/libpython3.") and ".so" in path and os.path.isfile(path):
                self.show(path)
        return programs


def _entries(folder: str) -> list[str]:
    """Return the canonical paths of what lies in a folder itself; links that lead elsewhere are left out."""
    try:
        paths = {resolve_symlinks(f"{folder}/{name}")[1] for name in os.listdir(folder)}
    except OSError:
        return []
    return sorted(path for path in paths if os.path.dirname(path) == folder)


def _is_python(path: str) -> bool:
    """Return whether a name is that of an interpreter or of its library: `python`, `python3`, `python3.11`."""
    name = os.path.basename(path)
    return name.startswith("python") and _VERSION.issuperset(name[len("python") :])


def _system(path: str) -> bool:
    return path.startswith(_IN_SYSTEM) or path in SYSTEM


def _on_path(name: str, folders: str, cwd: str) -> str | None:
    """The first program of that name, else the first file; None if there is neither."""
    otherwise = None
    for folder in folders.split(":"):
        path = f"{folder}/{name}" if folder.startswith("/") else f"{cwd}/{folder}/{name}"
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            otherwise = otherwise or path
    return otherwise
