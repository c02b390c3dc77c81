"""adapters/files/atomic.py: a file is written as a whole or not at all, and no draft stays behind."""

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from contract.journals import run_python

from omac.adapters.files import atomic

LONG = os.urandom(3 << 20)
Write = Callable[[str, bytes], object]


@pytest.mark.parametrize("write", [atomic.create, atomic.publish, atomic.replace])
@pytest.mark.parametrize("content", [b"", b"x", LONG])
def test_a_new_file_is_private_and_whole(tmp_path: Path, write: Write, content: bytes) -> None:
    path = tmp_path / "file"
    write(str(path), content)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [atomic.create, atomic.publish])
@pytest.mark.parametrize("there", ["file", "link", "dangling"])
def test_what_is_there_stays(tmp_path: Path, write: Write, there: str) -> None:
    path = tmp_path / "file"
    (tmp_path / "other").write_text("old")
    if there == "file":
        path.write_text("old")
    else:
        path.symlink_to("other" if there == "link" else "none")
    with pytest.raises(FileExistsError) as raised:
        write(str(path), b"new")
    assert os.path.basename(raised.value.filename) == "file", "the error names what is there"
    assert (tmp_path / "other").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]


def test_a_new_file_has_a_name_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file gets its name once it is whole, for git in a sandbox may read settings that omac is just writing."""
    listings: list[list[str]] = []
    write = os.write

    def seen(descriptor: int, content: bytes) -> int:
        listings.append(os.listdir(tmp_path))
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", seen)
    atomic.create(str(tmp_path / "file"), b"content")
    assert (listings, os.listdir(tmp_path)) == ([[]], ["file"])


@pytest.mark.parametrize("write", [atomic.publish, atomic.replace])
def test_a_draft_has_a_name_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    """A draft that is killed while it is written or flushed leaves nothing: it may hold a key."""
    listings: list[list[str]] = []

    def seen(call: Callable[..., object], *arguments: object) -> object:
        listings.append(os.listdir(tmp_path))
        return call(*arguments)

    monkeypatch.setattr(os, "write", partial(seen, os.write))
    monkeypatch.setattr(os, "fsync", partial(seen, os.fsync))
    write(str(tmp_path / "file"), b"content")
    assert listings == [[], [], ["file"]]


KILLED = """
import os, sys
from omac.adapters.files import atomic
step = 0
def kill(event, arguments):
    global step
    if event in ("os.link", "os.rename", "os.remove"):
        step += 1
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
sys.addaudithook(kill)
atomic.publish(sys.argv[1], b"a key")
"""


def test_a_new_file_has_one_name_whenever_it_is_killed(tmp_path: Path) -> None:
    """A kill between two steps leaves no second name of a new file: nobody would know of that copy of a key."""
    for step in range(1, 9):
        done = run_python(KILLED, str(tmp_path / "file"), str(step))
        assert set(os.listdir(tmp_path)) <= {"file"}, step
        if done.returncode == 0:
            break
    assert (done.returncode, os.listdir(tmp_path)) == (0, ["file"]), done


@pytest.mark.parametrize("write", [atomic.create, atomic.publish, atomic.replace])
def test_a_file_system_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    opened = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    write(str(tmp_path / "file"), b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["file"]
    assert atomic.create(str(tmp_path / "other"), b"", 0o640).st_mode & 0o777 == 0o640


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("old")
    (tmp_path / "file").symlink_to("other")
    atomic.replace(str(tmp_path / "file"), b"new")
    assert (tmp_path / "other").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "file").lstat().st_mode) == 0o600


def refuse() -> None:
    raise PermissionError("changed meanwhile")


def test_a_refused_replacement_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(PermissionError, match="changed meanwhile"):
            atomic.replace_in(folder, "file", b"new", confirm=refuse)
    finally:
        os.close(folder)
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [atomic.publish, atomic.replace])
def test_a_full_disk_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "other").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == ["other"]
