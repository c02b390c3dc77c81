"""The compiled code of what a command loads, in one file for each of its stages: to find and read a file for each
module takes a quarter of a start, and most of a launch.

It is a cache as Python's own are (PEP 3147): it lies where they lie, is made anew by whoever finds it stale and can
write there, and is used while each source has the size and the time of change that it had (PEP 552). Modules are what
they were: each is imported in its order, from the source that is named here, with Python's own loader. What they are is
noted when a stage is loaded without a file.

The file: Python's magic number, the length of the index in four bytes, the index, the code of all modules. Index and
code are marshalled, as Python does it, the code as one tuple: names that modules share are read once. The index begins
with a key, which says where the sources are found: a copy of an installation has another one.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _frozen_importlib import ModuleSpec
    from collections.abc import Sequence
    from io import FileIO
    from types import CodeType, ModuleType

    Entry = tuple[str, str, bool, int, int]  # name, source, whether a package, the source's change (ns) and size

PACKAGE = "omac."
_HEAD_BYTES = len(MAGIC_NUMBER) + 4
_HERE = os.path.dirname(__file__)
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # the folder that the package is in
_noted: list[_Stage] = []  # the last one is noted now, or none


def load(stage: str, *, libraries: bool = False) -> None:
    """Load the modules of a stage, or note which are loaded from now on: those of omac, with `libraries` all others
    too."""
    stop()
    if libraries and not (sys.flags.isolated and sys.flags.no_site):
        return  # modules of anybody may come first
    path, key = file_of(stage), "\0".join(sys.path) if libraries else _ROOT
    held = _read(path, key)
    if held is not None:
        _import(held)
    else:
        _noted.append(_Stage(path, key, "" if libraries else PACKAGE))
        _noted[-1].begin()


def stop() -> None:
    """Note no more: what is loaded from now on differs from launch to launch."""
    if _noted:
        _noted[-1].end()


class Unnoted:
    """A time in which modules are loaded that only some launches need: no stage has them, or all launches would load
    them."""

    def __enter__(self) -> None:
        self._stage = _noted[-1] if _noted and _noted[-1].is_open else None
        stop()

    def __exit__(self, *_: object) -> None:
        if self._stage is not None:
            self._stage.begin()


def keep() -> None:
    """Write what was noted, where that is possible."""
    stop()
    for stage in _noted:
        if not sys.dont_write_bytecode:
            stage.write()


class _Stage:
    """A stage without a file: the modules that are loaded between `begin` and `end`, whose names begin with
    `prefix`."""

    def __init__(self, path: str, key: str, prefix: str) -> None:
        self._path = path
        self._key = key
        self._prefix = prefix
        self._names: list[str] = []
        self._before: set[str] | None = None

    @property
    def is_open(self) -> bool:
        return self._before is not None

    def begin(self) -> None:
        self._before = set(sys.modules)

    def end(self) -> None:
        if self._before is not None:
            loaded = [name for name in list(sys.modules) if name not in self._before]
            self._names += [name for name in loaded if name.startswith(self._prefix)]
            self._before = None

    def write(self) -> None:
        """Replace the file; where that is not possible, leave it."""
        _write(self._path, self._key, [sys.modules[name] for name in self._names if name in sys.modules])


class _Finder:
    """A finder of the modules that a file holds (importlib.abc.MetaPathFinder)."""

    def __init__(self, held: list[tuple[Entry, CodeType]]) -> None:
        self._held = {entry[0]: (entry, code) for entry, code in held}

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        held = self._held.get(name)
        if held is None:
            return None
        (_, source, is_package, *_), code = held
        loader, search_paths = _Loader(name, source), [os.path.dirname(source)] if is_package else None
        loader.code = code
        return spec_from_file_location(name, source, loader=loader, submodule_search_locations=search_paths)


class _Loader(SourceFileLoader):
    """Python's own, which has read the code already."""

    code: CodeType

    def get_code(self, _name: str) -> CodeType:
        return self.code


def _import(held: list[tuple[Entry, CodeType]]) -> None:
    """Import the modules that a file holds, in their order."""
    finder = _Finder(held)
    sys.meta_path.insert(0, finder)
    try:
        for entry, _ in held:
            __import__(entry[0])
    finally:
        sys.meta_path.remove(finder)


def _read(path: str, key: str) -> list[tuple[Entry, CodeType]] | None:
    """Return what a file holds that was written with this key; None where it is not there, damaged, of another Python,
    or older than a source."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _held(file, key)
    except Exception:  # marshal raises anything for damaged content; the file is then written again
        return None


def _held(file: FileIO, key: str) -> list[tuple[Entry, CodeType]] | None:
    head = file.read(_HEAD_BYTES)
    index = file.read(int.from_bytes(head[len(MAGIC_NUMBER) :], "little"))
    if head[: len(MAGIC_NUMBER)] != MAGIC_NUMBER or not index:
        return None
    size: int
    entries: list[Entry]
    written_with, size, entries = marshal.loads(index)  # noqa: S302  # as Python does
    whole = len(head) + len(index) + size
    if written_with != key or os.fstat(file.fileno()).st_size != whole or not all(map(_is_fresh, entries)):
        return None
    return list(zip(entries, marshal.loads(file.read(size)), strict=True))  # noqa: S302


def _write(path: str, key: str, modules: Sequence[ModuleType]) -> None:
    """Write the code of those modules that Python has loaded from their sources; where that is not possible, leave the
    file as it is."""
    kept_modules = [kept for module in modules if (kept := _kept(module))]
    codes = marshal.dumps(tuple(code for _, code in kept_modules))
    index = marshal.dumps((key, len(codes), [entry for entry, _ in kept_modules]))
    head = MAGIC_NUMBER + len(index).to_bytes(_HEAD_BYTES - len(MAGIC_NUMBER), "little")
    made = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        with open(descriptor, "wb") as file:
            file.write(b"".join((head, index, codes)))
        os.replace(made, path)
    except BaseException as problem:  # Ctrl-C too leaves nothing
        try:
            os.unlink(made)
        except OSError:
            pass  # the folder is to be read only by now
        if not isinstance(problem, OSError):
            raise


def file_of(stage: str) -> str:
    """Return where the code of a stage lies: as Python's own, apart for each level of optimization."""
    level = f".opt-{sys.flags.optimize}" if sys.flags.optimize else ""
    return f"{_HERE}/__pycache__/{stage}.{sys.implementation.cache_tag}{level}.code"


def _is_fresh(entry: Entry) -> bool:
    try:
        seen = os.stat(entry[1])
    except OSError:
        return False
    return seen.st_mtime_ns == entry[3] and seen.st_size == entry[4]


def _kept(module: ModuleType) -> tuple[Entry, CodeType] | None:
    """Return the entry and the code of a module that Python has loaded from its source; None for any other module."""
    spec = getattr(module, "__spec__", None)
    if spec is None or type(spec.loader) is not SourceFileLoader or spec.origin is None:
        return None
    try:
        seen = os.stat(spec.origin)
        code = spec.loader.get_code(spec.name)
    except (OSError, ImportError, SyntaxError):
        return None
    if code is None:
        return None
    return (spec.name, spec.origin, spec.submodule_search_locations is not None, seen.st_mtime_ns, seen.st_size), code
