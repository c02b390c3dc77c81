"""The compiled code of what a launch loads, in one file: Python finds and reads eighty files for the eighty modules.

It is a cache as Python's own are (PEP 3147): it lies where they lie, is made anew by whoever finds it stale and can
write there, and is used while each source has the size and the time of change that it had (PEP 552). A stage of the
launch has a file: its modules are executed one after the other, each after those that it imports, so that an import
finds them loaded. What they are and in which order is noted when a stage is loaded without a file.

The file: Python's magic number, the length of the index in four bytes, the index, the code of all modules. Index and
code are marshalled, as Python does it, the code as one tuple: names that modules share are read once. The index begins
with a key, which says where the sources are found: a copy of an installation has another one.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER, PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _frozen_importlib import ModuleSpec
    from collections.abc import Sequence
    from io import FileIO
    from types import CodeType, ModuleType

    Entry = tuple[str, str, bool, int, int]  # name, source, whether a package, the source's change (ns) and size

PACKAGE = "omac."
_HEAD_BYTES = len(MAGIC_NUMBER) + 4
_MODULE = type(sys)
_HERE = os.path.dirname(__file__)
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # the folder that the package is in
_noted: list[_Stage] = []


def load(stage: str) -> None:
    """Load the modules of a stage, or note which are loaded from now on."""
    path = file_of(stage)
    if _loaded(path):
        stop()
        return
    if not _noted:
        sys.meta_path.insert(0, _Noting())
    _noted.append(_Stage(path))


def stop() -> None:
    """Note no more: what is loaded from now on differs from launch to launch."""
    if _noted:
        _noted.append(_Stage(""))


class Unnoted:
    """A time in which modules are loaded that only some launches need: no stage has them, or all launches would load
    them."""

    def __enter__(self) -> None:
        self._stage = _noted[-1] if _noted else None
        stop()

    def __exit__(self, *_: object) -> None:
        if self._stage is not None:
            _noted.append(self._stage)


def keep() -> None:
    """Write what was noted, where that is possible."""
    for stage in dict.fromkeys(_noted):
        if stage.path and not sys.dont_write_bytecode:
            stage.write()


class _Stage:
    """The modules loaded in a stage, each after those it imports; `path` is empty for a stage that is not noted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.modules: list[ModuleType] = []

    def write(self) -> None:
        """Replace the file; where that is not possible, leave it."""
        write(self.path, _ROOT, [module for module in self.modules if (module.__file__ or "").startswith(_ROOT)])


class _Noting:
    """A finder that finds what Python's own finds, and notes when that has been loaded (importlib.abc)."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        """Implement importlib.abc.MetaPathFinder: find a module as Python does, and note it once it is loaded."""
        spec = PathFinder.find_spec(name, path) if name.startswith(PACKAGE) else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                _noted[-1].modules.append(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _loaded(path: str) -> bool:
    """Load what a file holds; False where it is not there, of another Python, or older than a source."""
    held = read(path, _ROOT)
    for entry, code in held or ():
        _execute(entry, code)
    return held is not None


def read(path: str, key: str) -> list[tuple[Entry, CodeType]] | None:
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


def write(path: str, key: str, modules: Sequence[ModuleType]) -> None:
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


def _execute(entry: Entry, code: CodeType) -> None:
    """Make a module, unless it is there."""
    name, source, is_package = entry[:3]
    if name in sys.modules:
        return
    parent, _, own_name = name.rpartition(".")
    if parent not in sys.modules:  # the process that noted the stage had it before: a program that imported more
        __import__(parent)
    module = _MODULE(name)
    module.__file__ = source
    module.__package__ = name if is_package else parent
    if is_package:
        module.__path__ = [os.path.dirname(source)]
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)  # noqa: S102  # as Python does
    except BaseException:
        del sys.modules[name]
        raise
    setattr(sys.modules[parent], own_name, module)


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
