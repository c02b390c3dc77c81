"""Refs and their logs: names and values that git writes (git-check-ref-format(1), gitrepository-layout(5)).

Each function takes what is in a file and returns why git would not have written it, or an empty text.
"""

from __future__ import annotations

from omac.domain.git.grammar import is_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OID_LENGTHS = (40, 64)
_HEX = b"0123456789abcdef"
_REFTABLE_STUB = b"this repository uses the reftable format\n"
_REPLACEMENTS = b"refs/replace/"
_FORBIDDEN_BYTES = bytes(range(0x21)) + b"~^:?*[\\\x7f"
_FORBIDDEN_PARTS = (b"..", b"//", b"@{", b"/.", b"./", b".lock/")


def is_ref_name(name: str) -> bool:
    """Return whether a full name is one that a ref can have; its first component is `refs`."""
    return _is_name(name.encode(errors="surrogatepass"))


def is_remote_name(name: str) -> bool:
    """Return whether git would give a remote this name, which git takes for no option: `git fetch --all` and `git
    maintenance` run `git fetch NAME` for each."""
    return not name.startswith("-") and is_ref_name(f"refs/remotes/{name}/x")


def _is_name(name: bytes) -> bool:
    if not name.startswith(b"refs/") or name.endswith((b".lock", b"/", b".")):
        return False
    return name.translate(None, _FORBIDDEN_BYTES) == name and not any(part in name for part in _FORBIDDEN_PARTS)


def _is_oid(text: bytes, digits: int = 0) -> bool:
    return len(text) in ((digits,) if digits else _OID_LENGTHS) and not text.strip(_HEX)


def head_problem(content: bytes) -> str:
    """`HEAD`: a branch, or an object id."""
    if _is_oid(content.removesuffix(b"\n")):
        return ""
    raw = content.removeprefix(b"ref:").lstrip(b" \t").rstrip()
    if not content.startswith(b"ref:") or raw.split() != [raw]:
        return "holds neither an object id nor the name of a ref"
    name = raw.decode(errors="surrogateescape")
    if raw.startswith(_REPLACEMENTS):
        return f"names {name[:100]!r}: a commit or a fetch would replace an object"
    return "" if name == "refs/heads/.invalid" or _is_name(raw) else f"names {name[:100]!r}, which is no ref"


def ref_problem(content: bytes) -> str:
    """A file below `refs`: an object id, or the name of another ref; or what stands where refs are kept as tables."""
    return "" if content == _REFTABLE_STUB else head_problem(content)


def oid_problem(content: bytes) -> str:
    """A file that holds one object id, like `ORIG_HEAD`."""
    return "" if _is_oid(content.removesuffix(b"\n")) else "does not hold an object id"


def oids_problem(content: bytes, digits: int) -> str:
    """A file that holds object ids of so many digits (0: of any), one a line, like `MERGE_HEAD` and `shallow`."""
    return "" if all(_is_oid(line, digits) for line in _lines(content)) else "does not hold object ids alone"


def fetched_problem(content: bytes) -> str:
    """`FETCH_HEAD`."""
    return "" if _are_lines(_is_fetched, content) else "is not what git fetch writes"


def log_problem(content: bytes) -> str:
    """A log of a ref: two object ids and a text, on each line."""
    return "" if _are_lines(_is_logged, content) else "is not a log of a ref"


def _is_fetched(line: bytes) -> bool:
    oid, _, rest = line.partition(b"\t")
    return _is_oid(oid) and rest.startswith((b"not-for-merge\t", b"\t"))


def _is_logged(line: bytes) -> bool:
    before, _, rest = line.partition(b" ")
    after, space, _ = rest.partition(b" ")
    return space != b"" and _is_oid(before) and _is_oid(after)


def packed_problem(content: bytes, digits: int) -> str:
    """`packed-refs`, with object ids of so many digits (0: of any): git stops at those of another length."""
    for line in _lines(content):
        oid, _, name = line.partition(b" ")
        if line[:1] in (b"", b"#") or (line[:1] == b"^" and _is_oid(line[1:], digits)):
            continue
        if not _is_oid(oid, digits) or not name:
            return "has a line that git does not write"
        if not _is_name(name):
            return f"has the name {name.decode(errors='surrogateescape')[:100]!r}"
    return ""


def tables_problem(content: bytes) -> str:
    """`reftable/tables.list`: names of tables in the same folder, one a line."""
    fine = all(is_table(line.decode(errors="replace")) for line in _lines(content))
    return "" if fine else "names more than tables of refs"


def packed_replacements(content: bytes) -> bool:
    """Return whether packed refs show one object for another."""
    return b" " + _REPLACEMENTS in content


def _are_lines(is_fine: Callable[[bytes], bool], content: bytes) -> bool:
    """Return whether each line is fine, and has an end. The content may be long: it is never held in memory twice."""
    return content[-1:] in (b"", b"\n") and all(map(is_fine, _lines(content)))


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines, without their ends, one at a time."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        yield content[start:end]
        start = end + 1
