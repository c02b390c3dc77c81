"""domain/git/refs.py: refs and their logs hold names and object ids of the forms that git writes."""

from collections.abc import Callable

import pytest

from omac.domain.git import refs

OID = b"a" * 40
LONG = b"b" * 64
BAD_NAMES = (
    b"HEAD", b"heads/x", b"../x", b"refs/heads/../x", b"refs/heads/a b", b"refs//x", b"refs/heads/x@{1}", b"refs/.x",
    b"refs/x./y", b"refs/x.lock", b"refs/x.lock/y", b"refs/heads/", b"refs/heads/x.", b"refs/x\x01", b"refs/x\x7f",
    b"refs/x~1", b"refs/x^", b"refs/x:y", b"refs/x?", b"refs/*", b"refs/x[", b"refs/x\\y",
)  # fmt: skip
Problem = Callable[[bytes], str]


def packed(content: bytes) -> str:
    return refs.packed_problem(content, 40)


FINE: dict[Problem, list[bytes]] = {
    refs.head_problem: [OID, LONG + b"\n", b"ref: refs/heads/x\n", b"ref:\trefs/heads/x", b"ref: refs/heads/.invalid"],
    refs.ref_problem: [OID + b"\n", b"ref: refs/heads/x\n", b"this repository uses the reftable format\n"],
    refs.oid_problem: [OID, LONG + b"\n"],
    refs.fetched_problem: [b"", OID + b"\tnot-for-merge\tbranch 'x'\n" + OID + b"\t\tbranch 'y'\n"],
    refs.log_problem: [b"", OID + b" " + OID + b" Ann <a@b> 1 +0000\tx\n"],
    packed: [b"", b"# pack-refs with: peeled\n" + OID + b" refs/tags/x\n^" + OID + b"\n\n"],
}
WRONG: dict[Problem, list[bytes]] = {
    refs.head_problem: [
        b"", b"x", OID[1:], OID.upper(), b"refs/heads/x", b"ref: ", b"ref: refs/heads/x y",
        *(b"ref: " + name for name in BAD_NAMES),
    ],
    refs.ref_problem: [b"", b"this repository\n", b"ref: refs/replace/" + OID],
    refs.oid_problem: [b"", OID + b"\n" + OID, b"ref: refs/heads/x\n"],
    refs.fetched_problem: [OID + b"\tmerge\tx\n", b"x\t\tx\n", OID + b"\t\tx"],
    refs.log_problem: [OID + b" " + OID + b"\n", OID + b" x y\n", b"x " + OID + b" y\n", OID + b" " + OID + b" x"],
    packed: [OID + b"\n", b"x refs/heads/x\n", b"^x\n", *(OID + b" " + name + b"\n" for name in BAD_NAMES)],
}  # fmt: skip


def pairs(contents: dict[Problem, list[bytes]]) -> list[tuple[Problem, bytes]]:
    return [(problem, content) for problem, each in contents.items() for content in each]


@pytest.mark.parametrize(("problem", "content"), pairs(FINE))
def test_what_git_writes_is_fine(problem: Problem, content: bytes) -> None:
    assert problem(content) == ""


@pytest.mark.parametrize(("problem", "content"), pairs(WRONG))
def test_another_form_is_a_problem(problem: Problem, content: bytes) -> None:
    """A name that leads out of `refs`, or that no git can read, is a problem, wherever it stands."""
    assert problem(content)
