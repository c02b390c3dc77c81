"""Refs and their logs: names and values that git writes (git-check-ref-format(1), gitrepository-layout(5)).

Each function takes what is in a file and returns why git would not have written it, or an empty text.
"""

from __future__ import annotations

import re

from omac.domain.git.grammar import is_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_OID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_OID_LINE = rb"%s\n?" % _OID
_SYMBOLIC = rb"ref:[ \t]*([^\s]+)\s*"
_PACKED_LINE = rb"(%s) ([^\n]+)|\^%s|#[^\n]*" % (_OID, _OID)
_LOG_LINE = rb"%s %s [^\n]*" % (_OID, _OID)
_FETCHED_LINE = rb"%s\t(?:not-for-merge)?\t[^\n]*" % _OID
_REFTABLE_STUB = b"this repository uses the reftable format\n"
_FORBIDDEN = r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|//|@\{|/\.|\./|\.lock/"


def is_ref_name(name: str) -> bool:
    """Return whether a full name is one that a ref can have; its first component is `refs`."""
    return name.startswith("refs/") and not name.endswith((".lock", "/", ".")) and re.search(_FORBIDDEN, name) is None


def head_problem(content: bytes) -> str:
    """`HEAD`: a branch, or an object id."""
    return _value_problem(content)


def ref_problem(content: bytes) -> str:
    """A file below `refs`: an object id, or the name of another ref; or what stands where refs are kept as tables."""
    return "" if content == _REFTABLE_STUB else _value_problem(content)


def oid_problem(content: bytes) -> str:
    """A file that holds one object id, like `ORIG_HEAD`."""
    return "" if re.fullmatch(_OID_LINE, content) else "does not hold an object id"


def oids_problem(content: bytes) -> str:
    """A file that holds object ids, one a line, like `MERGE_HEAD` and `shallow`."""
    fine = all(re.fullmatch(_OID, line) for line in _lines(content))
    return "" if fine else "does not hold object ids alone"


def fetched_problem(content: bytes) -> str:
    """`FETCH_HEAD`."""
    return "" if _are_lines(_FETCHED_LINE, content) else "is not what git fetch writes"


def log_problem(content: bytes) -> str:
    """A log of a ref: two object ids and a text, on each line."""
    return "" if _are_lines(_LOG_LINE, content) else "is not a log of a ref"


def packed_problem(content: bytes) -> str:
    """`packed-refs`: no replacement of objects is among them."""
    for line in _lines(content):
        if not line:
            continue
        match = re.fullmatch(_PACKED_LINE, line)
        if match is None:
            return "has a line that git does not write"
        if match[2] is not None and not is_ref_name(name := match[2].decode(errors="surrogateescape")):
            return f"has the name {name[:100]!r}"
    return ""


def tables_problem(content: bytes) -> str:
    """`reftable/tables.list`: names of tables in the same folder, one a line."""
    fine = all(is_table(line.decode(errors="replace")) for line in _lines(content))
    return "" if fine else "names more than tables of refs"


def packed_replacements(content: bytes) -> bool:
    """Return whether packed refs show one object for another."""
    return b" refs/replace/" in content


def _are_lines(pattern: bytes, content: bytes) -> bool:
    """Whether each line is of a pattern, and has an end. The file may be long: it is never held in memory twice."""
    matches = re.compile(pattern).fullmatch
    return content[-1:] in (b"", b"\n") and all(matches(line) for line in _lines(content))


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines, without their ends, one at a time."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield content[start:end]
        start = end + 1


def _value_problem(content: bytes) -> str:
    match = re.fullmatch(_SYMBOLIC, content)
    if match is None:
        return "" if re.fullmatch(_OID_LINE, content) else "holds neither an object id nor the name of a ref"
    name = match[1].decode(errors="surrogateescape")
    return "" if name == "refs/heads/.invalid" or is_ref_name(name) else f"names {name[:100]!r}, which is no ref"
