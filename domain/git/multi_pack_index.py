"""The packs that a multi-pack-index names: git opens them, and deletes those that it needs no longer
(gitformat-pack(5), "multi-pack-index (MIDX) files have the following format").
"""

from __future__ import annotations

from omac.domain.git.grammar import is_pack

_HEADER_BYTES = 12
_CHUNK_BYTES = 12  # of the table: a name and an offset
_NOT_GITS = "is no index of packs that git writes"


def problem(content: bytes) -> str:
    """Return why git would not have written it, or an empty text."""
    if content[:4] != b"MIDX" or len(content) < _HEADER_BYTES:
        return "" if content[:4] in (b"RIDX", b"BITM") else _NOT_GITS
    chunks = [content[at : at + _CHUNK_BYTES] for at in _table(content)]
    named = [number for number, chunk in enumerate(chunks[:-1]) if chunk[:4] == b"PNAM"]
    if len(named) != 1:
        return _NOT_GITS
    start, end = (int.from_bytes(chunks[number][4:], "big") for number in (named[0], named[0] + 1))
    if not _HEADER_BYTES <= start <= end <= len(content):
        return _NOT_GITS
    names = content[start:end].rstrip(b"\0").split(b"\0")
    fine = all(name.endswith((b".idx", b".pack")) and is_pack(name.decode(errors="replace")) for name in names if name)
    return "" if fine else "names more than packs"


def _table(content: bytes) -> range:
    """Return the offsets of the lines of the table of chunks; the last line holds the end of the last chunk."""
    count = content[6] + 1
    return range(_HEADER_BYTES, _HEADER_BYTES + count * _CHUNK_BYTES, _CHUNK_BYTES)
