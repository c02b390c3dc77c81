"""domain/git/checkout.py: entries of an index that a checkout writes into git folders, in versions 2 and 4, in one part
or two."""

import struct
from collections.abc import Callable

import pytest

from omac.domain.git import checkout
from omac.domain.git.checkout import ObeyedPaths, git_folders, written
from omac.domain.git.index import index_problem

Build = Callable[..., bytes]


def version_2(*names: str) -> bytes:
    """Return an index with these entries, all of one blob."""
    out = b"DIRC" + struct.pack(">II", 2, len(names))
    for name in sorted(map(str.encode, names)):
        entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + b"o" * 20 + struct.pack(">H", len(name)) + name
        out += entry + bytes(8 - len(entry) % 8)
    return out + bytes(20)


def version_4(*names: str) -> bytes:
    """Return the same index in version 4, which writes each name as its difference from the one before."""
    out, last = b"DIRC" + struct.pack(">II", 4, len(names)), b""
    for name in sorted(map(str.encode, names)):
        same = next((at for at, pair in enumerate(zip(name, last, strict=False)) if pair[0] != pair[1]), 0)
        out += bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + b"o" * 20 + struct.pack(">H", len(name))
        out += bytes((len(last) - same,)) + name[same:] + b"\0"
        last = name
    return out + bytes(20)


BARE = ("a/HEAD", "a/config", "a/objects/x", "a/refs/heads/x")
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[bytes]]] = {  # entries, what is there, git folders
    "all of one": (BARE, (), {b"a"}),
    "deep down": (tuple(f"x/y/{name}" for name in BARE), (), {b"x/y/a"}),
    "with a link for its refs": (("a/HEAD", "a/objects/x", "a/refs"), (), {b"a"}),
    "with another common folder": (("a/HEAD", "a/commondir"), (), {b"a"}),
    "its HEAD is there": (("a/config", "a/objects/x", "a/refs/x"), ("a/HEAD",), {b"a"}),
    "its folders are there": (("a/HEAD", "a/config"), ("a/objects", "a/refs"), {b"a"}),
    "all is there, but its settings": (("a/config",), ("a/HEAD", "a/objects", "a/refs"), {b"a"}),
    "a file far down in one": (("a/b/c/d",), ("a/HEAD", "a/objects", "a/refs"), {b"a"}),
    "without refs": (("a/HEAD", "a/config", "a/objects/x"), (), set()),
    "without HEAD": (("a/config", "a/objects/x", "a/refs/x"), (), set()),
    "in two folders": (("a/HEAD", "b/objects/x", "b/refs/x"), (), set()),
    "the worktree itself": (("HEAD", "objects/x", "refs/x"), (), set()),
    "nothing of the kind": (("a/b", "src/objects/x", "src/refs.py"), (), set()),
}


@pytest.mark.parametrize("build", [version_2, version_4])
@pytest.mark.parametrize("name", CASES)
def test_git_folders(name: str, build: Build) -> None:
    names, existing, expected = CASES[name]
    content = build(*names)
    assert index_problem(content) == ""
    assert git_folders([content], 20, lambda path: path.decode() in existing) == expected


def test_in_two_parts() -> None:
    parts = [version_2("a/HEAD", "a/config"), version_2("a/objects/x", "a/refs/x")]
    assert git_folders(parts, 20, lambda _: False) == {b"a"}
    assert [git_folders([part], 20, lambda _: False) for part in parts] == [set(), set()]


@pytest.mark.parametrize("build", [version_2, version_4])
def test_what_is_written(build: Build) -> None:
    """A checkout writes entries at an obeyed path and below it, and those that replace a folder above one, each with
    mode, object id and stage."""
    content = build("a/x", "a/y/z", "ab/x", "b", "c/b", "d", "d2", "e")
    entries = list(written([content], 20, ObeyedPaths([b"a", b"b"], [b"d"])))
    assert sorted(name for name, _fields in entries) == [b"a/x", b"a/y/z", b"b", b"d"]
    assert {fields for _name, fields in entries} == {struct.pack(">I", 0o100644) + b"o" * 20 + b"\0"}
    for nothing in (ObeyedPaths([], []), ObeyedPaths([b"nowhere"], [b"c"]), ObeyedPaths([], [], [b"e"])):
        assert list(written([content], 20, nothing)) == []


def test_a_link_where_a_reached_path_is_expected() -> None:
    assert ObeyedPaths([], [], [b"e"]).has(b"e", b"\0\0\xa0\0" + b"o" * 20)


def test_more_than_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "ENTRIES_MAX", 2)
    monkeypatch.setattr(checkout, "FOLDERS_MAX", 2)
    with pytest.raises(checkout.TooMany):
        list(written([version_2("a/1", "a/2", "a/3")], 20, ObeyedPaths([b"a"], [])))
    with pytest.raises(checkout.TooMany):
        git_folders([version_2(*(f"{n}/{name}" for n in range(3) for name in BARE))], 20, lambda _: False)
    monkeypatch.setattr(checkout, "SEEN_MAX", 3)
    with pytest.raises(checkout.TooMany):
        git_folders([version_2("a/b/c/d/e")], 20, lambda _: False)


def test_the_digest_of_an_entry() -> None:
    """The digest of an entry is short, however long the name is, and differs for another name, mode, object or
    stage."""
    pairs = [(b"a" * 4096, b"1"), (b"b", b"1"), (b"b", b"2"), (b"a", b"12"), (b"2a", b"1")]
    digests = {checkout.digest_of(name, fields.ljust(25)) for name, fields in pairs}
    assert [len(digest) for digest in digests] == [checkout.DIGEST_BYTES] * len(pairs)
