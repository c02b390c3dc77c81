"""domain/git/split_index.py: the two files of an index have the entries that git reads, and no other pair passes."""

import struct
import subprocess
from pathlib import Path

import pytest
from memory import with_peak

from omac.domain.git import split_index
from omac.domain.git.index import index_problem
from omac.domain.git.split_index import NotWhole, all_entries, shared_index, split_problem

SIZES = {"sha1": 20, "sha256": 32}


def git(folder: Path, *words: str, stdin: str = "") -> bytes:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
        cwd=folder,
        input=stdin.encode(),
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )
    return done.stdout


def made(folder: Path, version: str = "2", oid: str = "sha1") -> None:
    """Make a repository whose index is split, with entries that are replaced, deleted and added since."""
    git(folder, "init", "-q", f"--object-format={oid}")
    for key, value in (("index.version", version), ("splitIndex.maxPercentChange", "100"), ("gc.auto", "0")):
        git(folder, "config", key, value)
    for number in range(300):
        path = folder / f"d{number % 7}" / f"f{number:03}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    git(folder, "update-index", "--split-index")
    for number in (*range(5), *range(64, 200), 299):
        (folder / f"d{number % 7}" / f"f{number:03}").write_text("other")
    for name in ("a", "d3/between", "z"):
        (folder / name).write_text(name)
    git(folder, "add", "-A")
    git(folder, "rm", "-q", "--cached", *(f"d{number % 7}/f{number:03}" for number in range(210, 250)))
    blob = git(folder, "rev-parse", ":a").decode().strip()
    none = "0" * len(blob)
    stages = [f"0 {none}\td1/f001\n", *(f"100644 {blob} {stage}\td1/f001\n" for stage in (1, 2, 3))]
    git(folder, "update-index", "--index-info", stdin="".join(stages))


def parts(folder: Path, oid_bytes: int = 20) -> list[bytes]:
    index = (folder / ".git/index").read_bytes()
    name = shared_index(index, oid_bytes)
    assert name
    return [index, (folder / ".git" / name).read_bytes()]


@pytest.mark.parametrize("oid", SIZES)
@pytest.mark.parametrize("version", ["2", "4"])
def test_what_git_reads(tmp_path: Path, version: str, oid: str) -> None:
    """A split index has the entries that git lists, each with its name, before and after its tree is written."""
    made(tmp_path, version, oid)
    for is_whole in (False, True):
        if is_whole:
            git(tmp_path, "add", "d1/f001")
            git(tmp_path, "write-tree")
        files = parts(tmp_path, SIZES[oid])
        assert [index_problem(part, SIZES[oid]) for part in files] == ["", ""]
        assert split_problem(files, SIZES[oid]) == ""
        listed = git(tmp_path, "ls-files", "-s", "-z").split(b"\0")[:-1]
        read = [
            b"%06o %s %d\t%s" % (int.from_bytes(fields[:4], "big"), fields[4:-1].hex().encode(), fields[-1], name)
            for name, fields in all_entries(files, SIZES[oid])
        ]
        assert read == listed
    assert b"TREE" in files[0]


def test_trees_of_other_entries(tmp_path: Path) -> None:
    """Trees of other entries are a problem of a split index too, and so is a shared file that cannot be read."""
    made(tmp_path)
    git(tmp_path, "add", "d1/f001")
    tree = bytes.fromhex(git(tmp_path, "write-tree").decode())
    files = parts(tmp_path)
    assert split_problem(files, 20) == ""
    assert "other entries" in split_problem([files[0].replace(tree, b"\1" * 20), files[1]], 20)
    assert "cannot be read" in split_problem(files[:1], 20)
    assert "other entries" in split_problem([files[0], files[1].replace(b"\0\x07d2/f009\0", b"\0\x07d2/f00:\0")], 20)


def entry(name: bytes, stage: int = 0, mode: int = 0o100644) -> bytes:
    raw = (
        bytes(24) + struct.pack(">I", mode) + bytes(12) + b"o" * 20 + struct.pack(">H", len(name) | stage << 12) + name
    )
    return raw + bytes(8 - len(raw) % 8)


def index(*entries: bytes, link: bytes = b"", tree: bytes = b"") -> bytes:
    extensions = (b"link" + struct.pack(">I", len(link)) + link) if link else b""
    extensions += (b"TREE" + struct.pack(">I", len(tree)) + tree) if tree else b""
    return b"DIRC" + struct.pack(">II", 2, len(entries)) + b"".join(entries) + extensions + bytes(20)


def bitmap(*words: int) -> bytes:
    return struct.pack(f">II{len(words)}QI", 64, len(words), *words, 0)


NONE = bitmap(0)
ONE = bitmap(1 << 33, 1)  # the first of them
OID = b"\1" * 20
BASE = index(entry(b"a"), entry(b"c"), entry(b"c/d"))


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([index(link=OID), BASE], b"a c c/d"),
        ([index(entry(b"b"), link=OID + NONE + NONE), BASE], b"a b c c/d"),
        ([index(entry(b""), link=OID + NONE + ONE), BASE], b"a c c/d"),
        ([index(entry(b""), link=OID + ONE + ONE), BASE], b"c c/d"),
        ([index(entry(b"c"), link=OID + NONE + NONE), BASE], b"a c c/d"),
        ([index(entry(b"c"), link=OID), index(entry(b"c", 1), entry(b"c", 2), entry(b"d"))], b"c d"),
        ([index(entry(b"c", 1), link=OID), index(entry(b"c"), entry(b"d"))], b"c c d"),
    ],
)
def test_how_they_are_put_together(parts: list[bytes], names: bytes) -> None:
    assert b" ".join(name for name, _what in all_entries(parts, 20)) == names
    assert split_problem(parts, 20) == ""


@pytest.mark.parametrize(
    "parts",
    [
        [index(entry(b"b"), link=OID + NONE + ONE), BASE],  # a name where none may be
        [index(entry(b""), link=OID + NONE + NONE), BASE],  # none where one must be
        [index(link=OID + NONE + ONE), BASE],
        [index(link=OID + bitmap(1 << 33, 8) + NONE), BASE],  # the fourth of three
        [index(link=OID + bitmap(1 | 0xFFFFFFFF << 1) + NONE), BASE],
        [index(link=OID + NONE + bitmap(9 << 33)), BASE],
        [index(link=OID + NONE), BASE],
        [index(link=OID + bitmap(*[0] * 1000) + NONE), BASE],
        [index(entry(b"y"), entry(b"x"), link=OID), BASE],
        [index(link=OID), index(entry(b"b"), entry(b"a"))],
        [index(link=OID), index(entry(b"a"), entry(b"a"))],
    ],
)
def test_what_git_does_not_write(parts: list[bytes]) -> None:
    """A pair of files that git does not write is a problem, and its entries cannot be read. A few bytes that stand for
    many bits take little memory."""
    problem, peak = with_peak(lambda: split_problem(parts, 20))
    assert problem
    assert peak < 64 << 10
    with pytest.raises(NotWhole):
        list(all_entries(parts, 20))


def test_a_link_above_an_entry_of_the_other_file() -> None:
    assert "lies below a link" in split_problem([index(entry(b"c", mode=0o120000), link=OID), BASE], 20)
    assert split_problem([index(entry(b"b", mode=0o120000), link=OID), BASE], 20) == ""


def test_a_shared_index_of_no_name() -> None:
    """An index whose shared index has no name holds all entries for git: its trees are judged, and its entries have
    names."""
    tree = b"\x001 0\n" + OID
    assert "other entries" in index_problem(index(entry(b"a"), link=bytes(20), tree=tree))
    assert "no name" in index_problem(index(entry(b""), link=bytes(20)))
    assert index_problem(index(entry(b"a"), link=OID, tree=tree)) == ""
    assert shared_index(index(entry(b"a"), link=bytes(20)), 20) == ""
    assert index_problem(index(entry(b"a"), link=b"short"))


def test_trees_of_more_entries_than_one_file_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [index(link=OID, tree=b"\0-1 0\n"), BASE]
    assert split_problem(parts, 20) == ""
    monkeypatch.setattr(split_index, "INDEX_BYTES_MAX", sum(map(len, parts)) - 1)
    assert "than can be inspected" in split_problem(parts, 20)
