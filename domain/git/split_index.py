"""An index that is two files: what has changed, and in `sharedindex.<oid>` the entries that it had when git last wrote
them all (gitformat-index(5), "Split index"; git-update-index(1), --split-index).

The extension `link` names the shared index, and has two bitmaps over its entries: of those that are deleted, and of
those that the first entries here replace, one for each bit, which have no names: theirs stay. What follows is added.
git keeps entries in the order of their names and stages, and looks them up by it. So what is not in order is not one
that git writes: what it would make of that is nothing to rely on.
"""

from __future__ import annotations

from itertools import islice

from omac.domain.git.grammar import INDEX_BYTES_MAX
from omac.domain.git.index import below_links, entries, extensions_of, is_split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_WORD_BYTES, _WORD_BITS = 8, 64
_WORDS_MIN = 64
_COUNT_AT = 8  # of the entries, in the header
_LINKS = (b"\0\0\xa0", b"\0\0\xe0")  # what the modes of links and submodules begin with
Entry = tuple[bytes, bytes]  # name, and mode, object id and stage


class NotWhole(Exception):
    """An index and its shared index do not fit; the text says why."""


def shared_index(content: bytes, oid_bytes: int) -> str:
    """Return the name of the file with the rest of an index; empty: all is in this one."""
    if b"link" not in content:
        return ""
    extensions = extensions_of(content, oid_bytes)
    return f"sharedindex.{extensions[b'link'][:oid_bytes].hex()}" if is_split(extensions, oid_bytes) else ""


def split_problem(indexes: Sequence[bytes], oid_bytes: int) -> str:
    """Return why an index and its shared index, where there is one to be read, are not what git writes: what
    `index_problem`, which finds no problem in either, cannot say of one alone."""
    if not indexes or not shared_index(indexes[0], oid_bytes):
        return ""
    tree = extensions_of(indexes[0], oid_bytes).get(b"TREE")
    if len(indexes) == 1:
        return "" if tree is None else "names trees of entries in a shared index that cannot be read"
    try:
        links = {hash(name) for name, fields in all_entries(indexes, oid_bytes) if fields.startswith(_LINKS)}
        problem = below_links((name for name, _fields in all_entries(indexes, oid_bytes)), links) if links else ""
        if problem or tree is None:
            return problem
        if sum(map(len, indexes)) > INDEX_BYTES_MAX:
            return "names trees of more entries than can be inspected"
        from omac.domain.git.cache_tree import tree_problem

        return tree_problem(tree, all_entries(indexes, oid_bytes), oid_bytes)
    except NotWhole as problem:
        return str(problem)


def all_entries(indexes: Sequence[bytes], oid_bytes: int) -> Iterator[Entry]:
    """Yield the entries of an index of one file or two, as `index.entries` does. Raises NotWhole."""
    if len(indexes) == 2:
        return _merged(indexes[0], indexes[1], oid_bytes)
    return entries(indexes[0], oid_bytes) if indexes else iter(())


def _merged(index: bytes, shared: bytes, oid_bytes: int) -> Iterator[Entry]:
    """Yield the entries of the shared index that are not deleted, and those that are added. An added entry replaces one
    of the same name and stage, and all of its name when it is no part of a conflict (git's add_index_entry)."""
    link = extensions_of(index, oid_bytes).get(b"link", b"")[oid_bytes:]
    count = int.from_bytes(shared[_COUNT_AT : _COUNT_AT + 4], "big")
    deleted, replaced = _bitmaps(link, count)
    changes = sum(1 for _ in _bits(replaced, count))
    kept = _kept(entries(shared, oid_bytes), _bits(deleted, count), _bits(replaced, count), entries(index, oid_bytes))
    added = _in_order(islice(entries(index, oid_bytes), changes, None))
    waiting = next(added, None)
    resolved = b""
    for name, fields in _in_order(kept):
        while waiting and (waiting[0], waiting[1][-1]) < (name, fields[-1]):
            resolved = waiting[0] if waiting[1][-1] == 0 else resolved
            yield waiting
            waiting = next(added, None)
        if name == resolved or (waiting and waiting[0] == name and waiting[1][-1] == fields[-1]):
            continue
        yield name, fields
    if waiting:
        yield waiting
    yield from added


def _kept(
    shared: Iterator[Entry], deleted: Iterator[int], replaced: Iterator[int], changes: Iterator[Entry]
) -> Iterator[Entry]:
    """The entries of a shared index that are not deleted, as they are now."""
    next_deleted, next_replaced = next(deleted, -1), next(replaced, -1)
    for number, (name, fields) in enumerate(shared):
        if number == next_replaced:
            next_replaced = next(replaced, -1)
            of_its_own, fields = next(changes, (b"none", b""))
            if of_its_own:
                raise NotWhole("an entry that replaces one of the shared index has a name")
        if number == next_deleted:
            next_deleted = next(deleted, -1)
        else:
            yield name, fields
    if next_deleted >= 0 or next_replaced >= 0:
        raise NotWhole("its extension link names entries that the shared index has not")


def _in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries unchanged. Raises NotWhole for an entry that does not come after the one before it."""
    last, stage = b"", -1
    for entry in entries:
        name, fields = entry
        if name < last or not name or (name == last and fields[-1] <= stage):
            raise NotWhole("its entries, or those of its shared index, are not in order")
        last, stage = name, fields[-1]
        yield entry


def _bitmaps(link: bytes, count: int) -> list[bytes]:
    """The words of the two bitmaps. Raises NotWhole where they are not ones of so many entries."""
    bitmaps = []
    at = 0
    for _ in range(2 if link else 0):
        size = int.from_bytes(link[at + 4 : at + 8], "big") * _WORD_BYTES  # after the number of bits
        bitmaps.append(link[at + 8 : at + 8 + size])
        at += 8 + size + 4  # the last is the place of a word, which a writer needs
        if size > _WORD_BYTES * (_WORDS_MIN + 4 * (count // _WORD_BITS)):
            raise NotWhole("its extension link is longer than the shared index asks for")
    if at != len(link):
        raise NotWhole("its extension link is not one that git writes")
    return bitmaps or [b"", b""]


def _bits(words: bytes, count: int) -> Iterator[int]:
    """The numbers of the bits that are set, of so many (gitformat-bitmap(5), appendix A): a word says how
    many words of the one bit or the other follow, and then how many that stand there as they are."""
    bit = at = 0
    while at < len(words):
        marker = int.from_bytes(words[at : at + _WORD_BYTES], "big")
        at += _WORD_BYTES
        after = bit + (marker >> 1 & 0xFFFFFFFF) * _WORD_BITS
        if at + (marker >> 33) * _WORD_BYTES > len(words) or (marker & 1 and after > count):
            raise NotWhole("its extension link is not one that git writes")
        if marker & 1:
            yield from range(bit, after)
        bit = after
        for _ in range(marker >> 33):
            word = int.from_bytes(words[at : at + _WORD_BYTES], "big")
            at += _WORD_BYTES
            while word:
                yield bit + (word & -word).bit_length() - 1
                word &= word - 1
            bit += _WORD_BITS
