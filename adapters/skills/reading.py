"""Reading a whole skill folder once: the hashes of what was read, and where it goes meanwhile.

Sockets, FIFOs, devices and links that lead out raise Uncopyable, as does whatever cannot be read.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Protocol

from omac.adapters.skills.code_hash import LINK, code_hash_from
from omac.adapters.skills.external_references import OWN, named_paths, require_unchangeable
from omac.adapters.skills.links import Links, Uncopyable
from omac.adapters.skills.relocation import UNSPELT, WHOLE_BYTES_MAX, beginning, extent, is_whole, mentions_of
from omac.adapters.skills.tree import BundleReader, read_link, walk
from omac.domain.kernel.refusal import quoted
from omac.domain.skills.bundle import (
    PRUNED_FOLDERS,
    UNCOPIED_FOLDERS,
    TreeEntry,
    TreeFile,
    TreeFolder,
    TreeLink,
    TreeOrigin,
    considered,
    tree_digest,
    unhashed,
)


class SinkFailed(Exception):
    """The sink could not store what was read, for the reason `error`: the skill is not at fault."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Sink(Protocol):
    """A receiver of a tree while it is read. Its methods raise SinkFailed, and no OSError."""

    def enter(self, below: str) -> None:
        """Enter the folder `below` ("" or "a/b/"), which the next calls are about."""

    def folder(self, name: str) -> None:
        """Receive a folder of this name, in the folder that was entered."""

    def write(self, name: str, chunk: memoryview, first: bool) -> None:
        """A file's next bytes; of every file there are some, be it none at all."""


class Tree:
    """The files, the links (as they were) by relpath, and the folders of a tree that was read.

    `settled` has the links as a copy has them. `outside` maps the targets of links that lead out to their resolved
    paths. `carriers` are the files that mention `source` where it matters. `named` has the places that each file names
    to be run.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.files: dict[str, TreeFile] = {}
        self.folders: list[str] = []
        self.links: dict[str, str] = {}
        self.settled: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.carriers: list[str] = []
        self.named: dict[str, list[str]] = {}

    def digest(self) -> str:
        """The digest over every file."""
        return tree_digest(self._entries())

    def bundle_hash(self) -> str:
        """The bundle hash of the very same bytes."""
        return code_hash_from(self._code())

    def _entries(self) -> Iterator[TreeEntry]:
        yield from self.files.values()
        yield from (TreeFolder(relpath) for relpath in self.folders)
        yield from (TreeLink(relpath, target) for relpath, target in self.settled.items())
        if self.carriers:
            yield TreeOrigin(self.source)

    def _code(self) -> Iterator[tuple[str, bytes]]:
        for relpath, file in self.files.items():
            if considered(relpath) or unhashed(relpath):
                yield relpath, file.content
        for relpath, target in self.links.items():
            if PRUNED_FOLDERS.isdisjoint(relpath.split("/")[:-1]):
                yield relpath + LINK, hashlib.sha256(os.fsencode(target)).digest()


def read_tree(source: str, sink: Sink | None = None, forbidden: bytes | None = None) -> Tree:
    """Read all of the canonical `source`. Raises Uncopyable, SinkFailed.

    Uncopyable is also a file that mentions the path `forbidden` where mentions of `source` matter.
    """
    tree = Tree(source)
    try:
        _TreeReader(tree, sink, forbidden).read()
    except Uncopyable:
        raise
    except OSError as error:
        raise Uncopyable(str(error.filename or source), f"cannot be copied ({error.strerror})") from None
    links = Links(source, tree.files.keys(), tree.links)
    tree.settled = links.settle()
    for relpath, paths in sorted(tree.named.items()):
        if is_whole(relpath) or tree.files[relpath].executable:
            require_unchangeable(source, relpath, paths)
    tree.outside = links.outside
    return tree


class _TreeReader:
    def __init__(self, tree: Tree, sink: Sink | None, forbidden: bytes | None) -> None:
        self._tree = tree
        self._sink = sink
        self._forbidden = forbidden
        self._mentions = mentions_of(os.fsencode(tree.source))
        self._unspelt = UNSPELT.search(tree.source) is not None

    def read(self) -> None:
        reader = BundleReader()
        for folder, below, entries in walk(self._tree.source, UNCOPIED_FOLDERS):
            if self._sink:
                self._sink.enter(below)
            for entry in entries:
                relpath = below + entry.name
                path = os.path.join(self._tree.source, relpath)
                if entry.is_symlink():
                    self._tree.links[relpath] = read_link(folder, entry.name, path)
                elif entry.is_dir(follow_symlinks=False):
                    self._tree.folders.append(relpath)
                    if self._sink:
                        self._sink.folder(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    self._file(reader, folder, entry.name, relpath)
                else:
                    raise special(path, entry.stat(follow_symlinks=False).st_mode)

    def _file(self, reader: BundleReader, folder: int, name: str, relpath: str) -> None:
        path = os.path.join(self._tree.source, relpath)

        def each(chunk: memoryview, first: bool) -> memoryview:
            if first:
                self._inspect(relpath, path, beginning(relpath, chunk))
            if self._sink:
                self._sink.write(name, chunk, first)
            return chunk

        content, status = reader.read(folder, name, path, each)
        self._tree.files[relpath] = TreeFile(relpath, content, bool(status.st_mode & stat.S_IXUSR))

    def _inspect(self, relpath: str, path: str, start: bytes) -> None:
        """Note whether a file that begins with `start` must say another path in a copy."""
        whole = is_whole(relpath)
        if whole and len(start) > WHOLE_BYTES_MAX:
            text = f"is larger than {WHOLE_BYTES_MAX // 1024} KiB, too large for a file that holds paths"
            raise Uncopyable(path, text, _removal(path))
        if whole and self._unspelt:
            text = "is in a virtual environment below a path with quotes, backslashes, $ or control characters"
            raise Uncopyable(path, f"{text}; move the project")
        carried = start[: extent(relpath, start)]
        if self._forbidden is not None and self._forbidden in carried:
            raise Uncopyable(path, "mentions the folder of approved copies", _removal(path))
        if self._mentions.search(carried):
            self._tree.carriers.append(relpath)
        if paths := named_paths(relpath, self._mentions.sub(OWN.encode(), carried)):
            self._tree.named[relpath] = paths


_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def special(path: str, mode: int) -> Uncopyable:
    """Return the error for what is neither a file nor a folder nor a link."""
    kind = _SPECIAL.get(stat.S_IFMT(mode), "no regular file")
    return Uncopyable(path, f"is {kind}, and a copy has only files, folders and links", _removal(path))


def _removal(path: str) -> str:
    return f"rm {quoted(path)}"
