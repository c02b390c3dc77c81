import hashlib
import os
import random

import pytest

from omac.domain.skills.bundle import (
    TreeEntry,
    TreeFile,
    TreeFolder,
    TreeLink,
    TreeOrigin,
    bundle_hash,
    considered,
    tree_digest,
)


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


VECTOR = {"SKILL.md": b"# x\n", "omac.yaml": b"name: x\n", "scripts/run.sh": b"#!/bin/sh\n"}
VECTOR_HASH = "sha256:85f04c13356fac87ee084a85c2966bd27698b6e01164813371e86b6b831c5798"


@pytest.mark.parametrize(
    ("relpath", "expected"),
    [
        ("SKILL.md", True),
        ("scripts/run.sh", True),
        ("distribution/x", True),
        ("dist", True),  # a file of that name is no build folder
        ("dist/x", False),
        ("src/__pycache__/x.txt", False),
        (".git/config", False),
        (".gitignore", True),
        (".gitignore.swp", False),
        (".DS_Store", False),
        ("img/Thumbs.db", False),
        ("thumbs.db", True),
        ("a.pyc", False),
        ("a.PYC", True),
        ("notes~", False),
        (".pyc", True),
        ("~", True),
        ("deep/.swp", True),
        ("a.swp", False),
        ("a.swp/b", True),
    ],
)
def test_what_is_considered(relpath: str, expected: bool) -> None:
    """Caches, build output and editors' leftovers are no part of a skill; all other files are."""
    assert considered(relpath) is expected


def test_the_known_vector() -> None:
    """A bundle keeps the hash under which it was registered by other implementations."""
    files = VECTOR | {"dist/ignored": b"x", "a.pyc": b"x"}
    assert bundle_hash((path, digest(content)) for path, content in files.items() if considered(path)) == VECTOR_HASH


def test_order_of_the_walk_does_not_matter() -> None:
    """The hash depends on the files only, sorted bytewise over the whole path ("a-b" before "a/b" before "a0")."""
    paths = ["a0", "a/b", "a-b", "é", "Z", os.fsdecode(b"\xff")]
    pairs = [(path, digest(path.encode(errors="surrogateescape"))) for path in paths]
    ordered = sorted(pairs, key=lambda pair: os.fsencode(pair[0]))
    expected = hashlib.sha256(b"".join(os.fsencode(path) + b"\0" + sha + b"\0" for path, sha in ordered)).hexdigest()
    for seed in range(5):
        random.Random(seed).shuffle(pairs)
        assert bundle_hash(pairs) == f"sha256:{expected}"


@pytest.mark.parametrize(
    "changed",
    [
        VECTOR | {"omac.yaml": b"name: y\n"},
        VECTOR | {"new": b""},
        {("SKILL2.md" if path == "SKILL.md" else path): content for path, content in VECTOR.items()},
        {path: content for path, content in VECTOR.items() if path != "SKILL.md"},
    ],
    ids=["content", "added", "renamed", "removed"],
)
def test_any_change_shows(changed: dict[str, bytes]) -> None:
    """The hash covers the content, the names and the set of the files."""
    assert bundle_hash((path, digest(content)) for path, content in changed.items()) != VECTOR_HASH


TREE: tuple[TreeEntry, ...] = (
    TreeFile("a/run", digest(b"x"), True),
    TreeFile("a-b", digest(b""), False),
    TreeLink("a/link", "run"),
    TreeFolder("a"),
    TreeFolder("empty"),
)


def test_the_framing_of_the_tree_digest() -> None:
    """The framing of the digest is fixed, so that a later omac finds a copy of today."""

    def framed(text: bytes) -> bytes:
        return len(text).to_bytes(8, "big") + text

    records = [
        b"d" + framed(b"a"),
        b"f" + framed(b"a-b") + digest(b"") + b"\0",
        b"l" + framed(b"a/link") + framed(b"run"),
        b"f" + framed(b"a/run") + digest(b"x") + b"\1",
        b"d" + framed(b"empty"),
    ]
    expected = "sha256:" + hashlib.sha256(b"omac skill tree 1\n" + b"".join(records)).hexdigest()
    for seed in range(5):
        entries = list(TREE)
        random.Random(seed).shuffle(entries)
        assert tree_digest(entries) == expected


@pytest.mark.parametrize(
    "changed",
    [
        TREE[1:],
        (*TREE, TreeFolder("b")),
        (TreeFile("a/run", digest(b"y"), True), *TREE[1:]),
        (TreeFile("a/run", digest(b"x"), False), *TREE[1:]),
        (TreeFile("a/ru", digest(b"x"), True), *TREE[1:]),
        (*TREE[:2], TreeLink("a/link", "ru"), *TREE[3:]),
        (*TREE[:2], TreeLink("a/lin", "krun"), *TREE[3:]),
        (*TREE[:2], TreeFile("a/link", digest(b"run"), False), *TREE[3:]),
        (*TREE[:4], TreeLink("empty", "")),
        (*TREE, TreeOrigin("/a")),
        (*TREE[:4], TreeFolder(os.fsdecode(b"empt\xff"))),
    ],
)
def test_any_change_of_a_tree_shows(changed: tuple[TreeEntry, ...]) -> None:
    """The digest covers content, executable bits, links, empty folders, names and kinds."""
    assert tree_digest(changed) != tree_digest(TREE)


def test_each_origin_is_another() -> None:
    """Trees that mention themselves at different paths have different digests."""
    assert len({tree_digest((*TREE, TreeOrigin(source))) for source in ("/a", "/b", "")}) == 3


def test_a_tree_digest_is_no_bundle_hash() -> None:
    """A tree digest is no bundle hash even of an empty tree, so that neither can stand for the other."""
    assert tree_digest([]) != bundle_hash([])
