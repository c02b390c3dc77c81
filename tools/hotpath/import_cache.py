"""The compiled code of what a start loads, in one file: to find and read five hundred modules takes a quarter of it.

It is a cache as that of `tools/hotpath/code_cache.py` is, for modules of whatever package, and imports are what they
were: they find their code here, in their order, each module from the source that is named here, with Python's own
loader. It counts for an interpreter that looks for modules where that did which wrote it.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

from omac.tools.hotpath import code_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _frozen_importlib import ModuleSpec
    from collections.abc import Sequence
    from types import CodeType

    from omac.tools.hotpath.code_cache import Entry


class ImportCache:
    """The code of a stage: of what is imported within this context."""

    def __init__(self, stage: str) -> None:
        self._path = code_cache.file_of(stage)
        self._key = "\0".join(sys.path)
        self._finder: _Finder | None = None
        self._wanted: list[str] = []

    def __enter__(self) -> ImportCache:
        if sys.flags.isolated and sys.flags.no_site:  # else modules of anybody may come first
            self._finder = _Finder(code_cache.read(self._path, self._key) or [])
            sys.meta_path.insert(0, self._finder)
        return self

    def __exit__(self, *_: object) -> None:
        if self._finder:
            sys.meta_path.remove(self._finder)
            if not self._finder.held and not sys.dont_write_bytecode:
                self._wanted = list(sys.modules)

    def keep(self) -> None:
        """Write what was loaded, where there was nothing, and where that is possible."""
        if self._wanted:
            code_cache.write(self._path, self._key, [sys.modules[name] for name in self._wanted if name in sys.modules])


class _Finder:
    """A finder of the modules that the cache holds (importlib.abc.MetaPathFinder)."""

    def __init__(self, held: list[tuple[Entry, CodeType]]) -> None:
        self.held = {entry[0]: (entry, code) for entry, code in held}

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        entry = self.held.get(name)
        if entry is None:
            return None
        (_, source, is_package, *_), code = entry
        loader, search_paths = _Loader(name, source), [os.path.dirname(source)] if is_package else None
        loader.code = code
        return spec_from_file_location(name, source, loader=loader, submodule_search_locations=search_paths)


class _Loader(SourceFileLoader):
    """Python's own, which has read the code already."""

    code: CodeType

    def get_code(self, _name: str) -> CodeType:
        return self.code
