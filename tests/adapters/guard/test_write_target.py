"""adapters/guard/write_target.py: links resolve as the kernel follows them, and checkouts are those that git finds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nested_worktree import Ground, ground

from omac.adapters.guard.write_target import LINKS_MAX, checkouts, common_folder, resolve_write_target, top_level
from omac.domain.guard.guard import Unclear


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    """Yield a repository with worktrees."""
    with ground() as made:
        yield made


def test_landing_is_where_the_kernel_goes(tmp_path: Path) -> None:
    """A write target is the result of realpath, for an existing path and for a new file in an existing folder."""
    folder = tmp_path.resolve()
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "file").touch()
    for name, target in {
        "l": "a/b",
        "a/up": "..",
        "abs": f"{folder}/a",
        "two": "l/../up/a",
        "new": "a/missing",
    }.items():
        (folder / name).symlink_to(target)
    for path in (
        "a",
        "l",
        "l/..",
        "l/../file",
        "a/up/l/x",
        "abs/b/../../new",
        "two/file",
        "new",
        "a//./b/",
        "l/../up/up",
    ):
        raw = os.fsencode(folder / "x")[:-1] + path.encode()
        assert resolve_write_target(raw) == os.path.realpath(raw), path
    assert resolve_write_target(b"/") == b"/"
    assert resolve_write_target(b"//../..") == b"/"


def test_what_is_missing(tmp_path: Path) -> None:
    """Names below a missing path or a file are taken as they are, and `..` after them is unclear."""
    folder = os.fsencode(tmp_path.resolve())
    (tmp_path / "file").touch()
    assert resolve_write_target(folder + b"/no/./such//folder") == folder + b"/no/such/folder"
    assert resolve_write_target(folder + b"/file/x") == folder + b"/file/x"
    for up in (b"/no/..", b"/file/x/..", b"/no/such/../folder"):
        with pytest.raises(Unclear):
            resolve_write_target(folder + up)


def test_chains(tmp_path: Path) -> None:
    """A chain of links is followed as far as the kernel follows it; one link more is unclear."""
    (tmp_path / "0").touch()
    for number in range(1, LINKS_MAX + 2):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    folder = os.fsencode(tmp_path.resolve())
    assert resolve_write_target(folder + b"/%d" % LINKS_MAX) == folder + b"/0"
    (tmp_path / str(LINKS_MAX)).read_bytes()
    with pytest.raises(OSError, match="symbolic"):
        (tmp_path / str(LINKS_MAX + 1)).read_bytes()
    with pytest.raises(Unclear):
        resolve_write_target(folder + b"/%d" % (LINKS_MAX + 1))


@pytest.mark.parametrize("path", [b"/proc", b"/proc/self/cwd", b"/dev/fd/0", b"/dev/stdin", b"/dev/null", b"/dev/zero"])
def test_what_is_no_file(path: bytes) -> None:
    """Links of /proc, which lead each process elsewhere, and devices, which keep no data, are unclear."""
    with pytest.raises(Unclear):
        resolve_write_target(path)


def test_top_level(place: Ground) -> None:
    """The top level is that of `git rev-parse --show-toplevel`, even through links; without git, the folder itself."""
    (place.worktree / "src" / "deep").mkdir()
    (place.folder / "link").symlink_to(place.worktree / "src")
    for folder in (
        place.main,
        place.main / "src",
        place.worktree,
        place.worktree / "src" / "deep",
        place.folder / "link",
    ):
        assert os.fsdecode(top_level(os.fsencode(folder))) == place.git("rev-parse", "--show-toplevel", cwd=folder)
    assert top_level(os.fsencode(place.outside)) == os.fsencode(place.outside)
    for none in (place.outside / "there", place.folder / "missing", Path("src")):
        with pytest.raises((Unclear, OSError)):
            top_level(os.fsencode(none))


def test_common_folder(place: Ground) -> None:
    """The common folder is that of `git rev-parse --git-common-dir` for each checkout; no repository has none."""
    for folder in (place.main, place.worktree, place.sibling):
        answer = place.git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=folder)
        assert common_folder(os.fsencode(folder)) == os.fsencode(answer)
    for name, content in {"odd": b"hello", "empty": b"", "lost": b"gitdir: /nowhere/x"}.items():
        (place.folder / name).mkdir()
        (place.folder / name / ".git").write_bytes(content)
    assert common_folder(os.fsencode(place.outside)) is None
    assert common_folder(os.fsencode(place.folder / "odd")) is None
    assert common_folder(os.fsencode(place.folder / "empty")) is None
    assert common_folder(os.fsencode(place.folder / "lost")) == b"/nowhere/x"


@pytest.mark.parametrize("said", [b"gitdir: " + b"a/" * 10_000, b"gitdir: a\0b", b"gitdir: /proc/self/cwd"])
def test_hostile_git_files(tmp_path: Path, said: bytes) -> None:
    """A `.git` that git would not have written is refused, not followed."""
    (tmp_path / ".git").write_bytes(said)
    with pytest.raises((Unclear, OSError)):
        common_folder(os.fsencode(tmp_path.resolve()))


def test_checkouts(place: Ground) -> None:
    """Checkouts around a folder are listed from the innermost, up to a given root."""
    worktree, main = os.fsencode(place.worktree), os.fsencode(place.main)
    assert list(checkouts(worktree + b"/src/x/y", b"/nowhere"))[:2] == [worktree, main]
    assert list(checkouts(worktree + b"/src/x/y", worktree)) == []
    assert list(checkouts(worktree + b"/src/x/y", main)) == [worktree]
