"""The index: a file that git writes passes in every version, and a path that leaves the worktree does not."""

import subprocess
from pathlib import Path

import pytest
from memory import with_peak
from tiers import everything

from omac.domain.git.index import index_problem
from omac.domain.git.place import SHA1_BYTES, SHA256_BYTES

OID = b"\x11" * SHA1_BYTES


def entry(name: bytes, mode: int = 0o100644) -> bytes:
    """Return an entry as versions 2 and 3 have it."""
    raw = b"\0" * 24 + mode.to_bytes(4, "big") + b"\0" * 12 + OID + min(len(name), 0xFFF).to_bytes(2, "big") + name
    return raw + b"\0" * (8 - len(raw) % 8)


def index(*entries: bytes, count: int = -1, extensions: bytes = b"", version: int = 2) -> bytes:
    """Return an index of version 2 or 3."""
    number = len(entries) if count < 0 else count
    return (
        b"DIRC" + version.to_bytes(4, "big") + number.to_bytes(4, "big") + b"".join(entries) + extensions + b"\0" * 20
    )


def extension(name: bytes, content: bytes) -> bytes:
    return name + len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    "name",
    [
        b"../../home/.profile", b"a/../b", b"/etc/passwd", b"a//b", b"./a", b"a/.", b"", b".git/hooks/post-checkout",
        b".GIT/config", b".Git", b"sub/.git/config", b"git~1/config", b".git /config", b".git./x", b".git::$INDEX/x",
        b"a\\.git\\config", b".g\xe2\x80\x8cit/config", b"\xef\xbb\xbf.git/x", b"sub/", b"..",
    ],
)  # fmt: skip
def test_a_path_that_leaves_the_worktree(name: bytes) -> None:
    """A path that leaves the worktree is a problem, and a path inside it is none."""
    assert index_problem(index(entry(b"README"), entry(name)))
    assert index_problem(index(entry(b"README"), entry(b"src/a"))) == ""


@pytest.mark.parametrize(
    "name",
    [b".gitignore", b".gitmodules", b"a.git", b"foo.git/x", b".github/x", b"a b", b"\xff", b"...", b"git~", b"a\\b"],
)
def test_an_ordinary_name(name: bytes) -> None:
    """An ordinary name is no problem, even if it looks odd."""
    assert index_problem(index(entry(name))) == ""


def packed_entry(stripped: int, added: bytes, length: int) -> bytes:
    """Return an entry as version 4 has it; `stripped` is below 128."""
    raw = b"\0" * 24 + (0o100644).to_bytes(4, "big") + b"\0" * 12 + OID + min(length, 0xFFF).to_bytes(2, "big")
    return raw + bytes([stripped]) + added + b"\0"


@pytest.mark.parametrize(
    ("problem", "entries"),
    [
        ("a name is longer than 4096 bytes", [packed_entry(0, b"a" * 4000, 4000), packed_entry(0, b"a" * 97, 4097)]),
        ("a name has more than 200 parts", [packed_entry(0, b"a/" * 200 + b"a", 401)]),
        pytest.param(
            "its names are longer than 167772160 bytes together",
            [packed_entry(0, b"a" * 4000, 4000), *[packed_entry(1, b"b", 4000)] * 42_000],
            marks=pytest.mark.full,
        ),
        ("", [packed_entry(0, b"a/" * 199 + b"a", 399), *[packed_entry(1, b"b", 399)] * 1_000]),
    ],
    ids=["one name", "parts", "all names", "within bounds"],
)
def test_a_short_file_with_long_names(problem: str, entries: list[bytes]) -> None:
    """Bounds hold for names that version 4 writes as a few bytes, so that a short file takes little memory."""
    content = index(*entries, version=4)
    found, peak = with_peak(lambda: index_problem(content))
    assert found == problem
    assert peak < 16 << 20


def test_a_link_above_an_entry() -> None:
    """A link above an entry is a problem: git checks the link out first, and would write the entry through it."""
    assert index_problem(index(entry(b"a", 0o120000), entry(b"a/b")))
    assert index_problem(index(entry(b"a", 0o160000), entry(b"a/b/c")))
    assert index_problem(index(entry(b".gitmodules", 0o120000)))
    assert index_problem(index(entry(b"a", 0o120000), entry(b"ab"))) == ""


def test_what_only_an_extension_allows() -> None:
    """A folder or an empty name needs the extension that allows it."""
    assert index_problem(index(entry(b"dir/", 0o040000)))
    assert index_problem(index(entry(b"dir/", 0o040000), extensions=extension(b"sdir", b""))) == ""
    assert index_problem(index(entry(b""), extensions=extension(b"link", OID))) == ""


@pytest.mark.parametrize(
    "content",
    [
        b"", b"DIRC", b"x" * 100, index(entry(b"a"), count=2), index(entry(b"a"), version=5), index(entry(b"a")) + b"x",
        index(entry(b"a"), extensions=extension(b"what", b"")), index(entry(b"a"), extensions=b"TREE\xff\xff\xff\xff"),
        index(entry(b"a"), extensions=extension(b"TREE", b"") * 2), index(entry(b"a", 0o020000)), index(b"\0" * 64),
        index(entry(b"a").replace(b"\0\1a", b"\0\2a")),
        index(entry(b"a"), extensions=extension(b"REUC", b"../x\0" + b"0\0" * 3)),
        index(entry(b"a"), extensions=extension(b"EOIE", b"\0\0\0\1" + b"\0" * 20)),
        index(entry(b"a"), extensions=extension(b"IEOT", b"\0\0\0\1" + b"\0\0\0\x10" + b"\0\0\0\1")),
    ],
)  # fmt: skip
def test_a_file_that_git_does_not_write(content: bytes) -> None:
    """A file that git does not write is a problem, and never an exception."""
    assert index_problem(content)


def made(folder: Path, *options: tuple[str, str], oid: str) -> Path:
    """Make a repository with an index of some kind, and return its git folder."""

    def git(*words: str) -> None:
        subprocess.run(
            ["git", *words],
            cwd=folder,
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )

    git("init", "-q", f"--object-format={oid}")
    for key, value in (("user.name", "A"), ("user.email", "a@b"), ("index.threads", "4"), *options):
        git("config", key, value)
    for number in range(120):
        path = folder / f"d{number % 7}" / f"e{number % 3}" / f".gitx{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    (folder / "link").symlink_to("d1")
    for name in ("foo", "foo.git", "n" * 200):
        (folder / name).write_text("x")
    git("add", "-A")
    git("commit", "-qm", "one")
    (folder / "d1" / "e1" / "new").write_text("1")
    git("add", "-N", "d1/e1/new")
    git("rm", "-q", "--cached", "d2/e2/.gitx2")
    return folder / ".git"


@pytest.mark.parametrize("oid", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("split", ["false", "true"])
@pytest.mark.parametrize("blocks", ["false", "true"])
def test_what_git_writes(tmp_path: Path, oid: str, version: str, split: str, blocks: str) -> None:
    """Every index of a real git passes, shared ones too, and none passes for the other kind of object ids."""
    options = (
        ("index.version", version),
        ("core.splitIndex", split),
        ("index.recordEndOfIndexEntries", blocks),
        ("index.recordOffsetTable", blocks),
    )
    git = made(tmp_path, *options, oid=oid)
    sizes = (SHA1_BYTES, SHA256_BYTES) if oid == "sha1" else (SHA256_BYTES, SHA1_BYTES)
    files = [path for path in git.iterdir() if path.name == "index" or path.name.startswith("sharedindex.")]
    assert len(files) >= (2 if split == "true" else 1)
    for path in files:
        assert index_problem(path.read_bytes(), sizes[0]) == "", path
        assert index_problem(path.read_bytes(), sizes[1]), path


def test_sparse(tmp_path: Path) -> None:
    """A sparse index passes, with its folders for files that are left out."""
    git = made(tmp_path, oid="sha1")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["git", "commit", "-qam", "2"], cwd=tmp_path, check=True, env=environment)
    subprocess.run(
        ["git", "sparse-checkout", "set", "--cone", "--sparse-index", "d1"], cwd=tmp_path, check=True, env=environment
    )
    content = (git / "index").read_bytes()
    assert b"sdir" in content
    assert index_problem(content) == ""


@pytest.mark.full
def test_every_byte_changed(tmp_path: Path) -> None:
    """An index with any one byte changed raises no exception."""
    content = bytearray((made(tmp_path, ("index.version", "4"), oid="sha1") / "index").read_bytes())
    for at in range(0, len(content), 3 if everything() else 11):
        byte = content[at]
        content[at] ^= 0xFF
        assert isinstance(index_problem(bytes(content)), str)
        content[at] = byte


def _packed(count: int, length: int, mode: int) -> bytes:
    """Return an index of version 4 whose names are all as long as the first one."""
    names = []
    for number in range(count):
        raw = b"\0" * 24 + mode.to_bytes(4, "big") + b"\0" * 12 + OID + min(length, 0xFFF).to_bytes(2, "big")
        names.append(raw + (b"\x06" if number else b"\0" + b"a" * (length - 6)) + b"%06d\0" % number)
    return b"DIRC" + (4).to_bytes(4, "big") + count.to_bytes(4, "big") + b"".join(names) + b"\0" * 20


@pytest.mark.parametrize(
    ("count", "length", "mode"),
    [
        pytest.param(3000, 1 << 19, 0o100644, id="long names"),
        pytest.param(60_000, 4000, 0o100644, id="many names", marks=pytest.mark.full),
        pytest.param(60_000, 4000, 0o120000, id="many links", marks=pytest.mark.full),
    ],
)
def test_names_that_a_few_bytes_stand_for(count: int, length: int, mode: int) -> None:
    """A short file with many or long names is refused, and takes little memory."""
    content = _packed(count, length, mode)
    problem, peak = with_peak(lambda: index_problem(content))
    assert "longer" in problem
    assert peak < 16 << 20
    assert index_problem(_packed(100, 400, mode)) == ""
