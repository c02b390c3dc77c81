"""domain/git/cache_tree.py: the trees that an index claims are compared with its entries, in little memory."""

import struct
import subprocess
import tracemalloc
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import pytest
from programs import program_at

from omac.domain.git import cache_tree
from omac.domain.git.cache_tree import tree_problem
from omac.domain.git.index import entries, extensions_of, index_problem

SIZES = {"sha1": 20, "sha256": 32}
FILE = (0o100644).to_bytes(4, "big")
FOLDER = (0o040000).to_bytes(4, "big")
OID = b"\1" * 20


def git(folder: Path, *words: str) -> bytes:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    return done.stdout


def made(folder: Path, oid: str = "sha1", version: str = "2") -> None:
    git(folder, "init", "-q", f"--object-format={oid}")
    git(folder, "config", "index.version", version)
    for name in ("a-b/x", "a/b/c/d", "a/b/e", "a.b", "z/y/x", "z/y.x", "é/ü"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("a.b")
    program_at(folder / "tool", "")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")


def index_of(folder: Path) -> bytes:
    return (folder / ".git/index").read_bytes()


def changed_after(folder: Path) -> None:
    (folder / "a/b/e").write_text("other")
    git(folder, "add", "a/b/e")


def removed(folder: Path) -> None:
    git(folder, "rm", "-q", "-r", "a/b")


def intended(folder: Path) -> None:
    (folder / "z/new").write_text("")
    git(folder, "add", "-N", "z/new")
    git(folder, "write-tree")


def sparse(folder: Path) -> None:
    git(folder, "sparse-checkout", "set", "--cone", "--sparse-index", "z")
    assert b"sdir" in index_of(folder)


def conflict(folder: Path) -> None:
    git(folder, "checkout", "-q", "-b", "other")
    (folder / "z/y.x").write_text("theirs")
    git(folder, "commit", "-qam", "theirs")
    git(folder, "checkout", "-q", "-")
    (folder / "z/y.x").write_text("ours")
    git(folder, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        git(folder, "merge", "-q", "other")
    assert failed.value.returncode == 1


def submodule(folder: Path) -> None:
    git(folder, "clone", "-q", "--bare", ".", ".git/copy")
    git(folder, "submodule", "-q", "add", "./.git/copy", "z/sub")
    git(folder, "commit", "-qm", "two")


@pytest.mark.parametrize("then", [None, changed_after, removed, intended, sparse, conflict, submodule])
@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("oid", SIZES)
def test_what_git_writes(tmp_path: Path, oid: str, version: str, then: object) -> None:
    made(tmp_path, oid, version)
    if callable(then):
        then(tmp_path)
    content = index_of(tmp_path)
    assert b"TREE" in extensions_of(content, SIZES[oid])
    assert index_problem(content, SIZES[oid]) == ""


@pytest.mark.parametrize("then", [None, changed_after, removed, sparse])
def test_every_tree_that_is_claimed_is_compared(tmp_path: Path, then: object) -> None:
    """A claimed tree with another object id is a problem, and so is one with another count of entries."""
    made(tmp_path)
    if callable(then):
        then(tmp_path)
    content = index_of(tmp_path)
    tree = extensions_of(content, 20)[b"TREE"]
    index_entries = list(entries(content))
    assert tree_problem(tree, index_entries, 20) == ""
    trees = {bytes.fromhex(line.split()[2].decode()) for line in git(tmp_path, "ls-tree", "-rt", "HEAD").splitlines()}
    trees.add(bytes.fromhex(git(tmp_path, "rev-parse", "HEAD^{tree}").decode().strip()))
    claimed = [oid for oid in trees if oid in tree]
    assert claimed
    for oid in claimed:
        assert "other entries" in tree_problem(tree.replace(oid, b"\2" * 20), index_entries, 20)
    assert tree_problem(tree, index_entries[:-1], 20)


def one(name: bytes, mode: bytes = FILE, stage: int = 0) -> tuple[bytes, bytes]:
    return name, mode + OID + bytes((stage,))


def tree(*lines: bytes) -> bytes:
    data = b"".join(lines)
    return sha1(b"tree %d\0" % len(data) + data).digest()


A = tree(b"100644 a\0" + OID)
BELOW_D = tree(b"40000 d\0" + A)


@pytest.mark.parametrize(
    ("extension", "index_entries"),
    [
        (b"\x000 0\n" + tree(), []),
        (b"\x001 0\n" + A, [one(b"a")]),
        (b"\x00-1 0\n", [one(b"a")]),
        (b"\x001 1\n" + BELOW_D + b"d\x001 0\n" + A, [one(b"d/a")]),
        (b"\x001 1\n" + BELOW_D + b"d\x00-1 0\n", [one(b"d/a")]),
        (b"\x00-1 2\nd\x001 0\n" + A + b"e\x00-1 0\n", [one(b"c"), one(b"d/a")]),
        (b"\x00-1 1\nd\x001 0\n" + OID, [one(b"d/", FOLDER)]),
    ],
)
def test_trees_of_the_entries(extension: bytes, index_entries: list[tuple[bytes, bytes]]) -> None:
    assert tree_problem(extension, index_entries, 20) == ""


@pytest.mark.parametrize(
    ("extension", "index_entries", "problem"),
    [
        (b"\x001 0\n" + A, [one(b"b")], "other entries"),
        (b"\x001 0\n" + A, [one(b"a"), one(b"b")], "other entries"),
        (b"\x002 0\n" + A, [one(b"a")], "other entries"),
        (b"\x001 0\n" + A, [one(b"a", stage=1)], "other entries"),
        (b"\x00-1 1\nd\x001 0\n" + A, [one(b"a")], "other entries"),
        (b"\x00-1 1\ne\x001 0\n" + A, [one(b"d/a")], "other entries"),
        (b"\x00-1 1\nd\x001 0\n" + OID, [one(b"d/", FOLDER), one(b"d/x")], "other entries"),
        (b"\x00-1 1\nd\x001 0\n" + A, [one(b"d/a"), one(b"c")], "other entries"),
        (b"\x00-1 2\nd\x001 0\n" + A + b"d\x001 0\n" + A, [one(b"d/a")], "not one that git writes"),
        (b"x\x001 0\n" + A, [one(b"a")], "not one that git writes"),
        (b"\x00-1 1\nd/a\x001 0\n" + A, [one(b"d/a/a")], "not one that git writes"),
        (b"\x00-1 1\n\x001 0\n" + A, [one(b"a")], "not one that git writes"),
        (b"\x00-1 1\n", [], "not one that git writes"),
        (b"\x00-1 0\n-", [], "not one that git writes"),
        (b"\x001 0\n" + A[:-1], [one(b"a")], "not one that git writes"),
        (b"\x00one 0\n", [], "not one that git writes"),
        (b"", [], "not one that git writes"),
        (b"\x00-1 1\n" + b"d" * 4097 + b"\x00-1 0\n", [], "not one that git writes"),
    ],
)
def test_what_is_not_of_the_entries(extension: bytes, index_entries: list[tuple[bytes, bytes]], problem: str) -> None:
    assert problem in tree_problem(extension, index_entries, 20)


@pytest.mark.parametrize(("bound", "most"), [("CLAIMS_MAX", 1), ("LINES_BYTES_MAX", 28)])
def test_bounds(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    extension = b"\x001 1\n" + BELOW_D + b"d\x001 0\n" + A
    monkeypatch.setattr(cache_tree, bound, most)
    assert "more trees than can be inspected" in tree_problem(extension, [one(b"d/a")], 20)


def many() -> Iterator[tuple[bytes, bytes]]:
    for number in range(20_000):
        yield one(b"%06d/a" % number)


def claimed() -> bytes:
    below = b"".join(b"%06d\x001 0\n" % number + A for number in range(20_000))
    return b"\x00-1 20000\n" + below


def endless() -> bytes:
    return b"\x00-1 9000000\n" + b"".join(b"%07d\x00-1 0\n" % number for number in range(300_000))


@pytest.mark.full
def test_a_large_one_takes_little_memory() -> None:
    for extension, problem in ((claimed(), ""), (endless(), "more trees")):
        tracemalloc.start()
        try:
            answer = tree_problem(extension, many(), 20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert problem in answer
        assert bool(problem) == bool(answer)
        assert peak < 16 << 20


def test_an_index_with_trees_is_judged_as_a_whole() -> None:
    """The tree extension of a whole index file is compared with its entries."""
    name = b"a"
    raw = bytes(24) + FILE + bytes(12) + OID + struct.pack(">H", len(name)) + name
    raw += bytes(8 - len(raw) % 8)
    extension = b"\x001 0\n" + OID
    content = b"DIRC" + struct.pack(">II", 2, 1) + raw + b"TREE" + struct.pack(">I", len(extension)) + extension
    assert "other entries" in index_problem(content + bytes(20))
    assert index_problem((content + bytes(20)).replace(b"\x001 0\n" + OID, b"\x001 0\n" + A)) == ""
