"""adapters/files/bounded.py: reads do not wait, follow no link unless asked, and stop at their bound."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from omac.adapters.files import bounded


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_content_within_the_bound(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert bounded.read(str(tmp_path / "file"), 10) == b"x" * size
    content, status = bounded.read_with_status(str(tmp_path / "file"), 10)
    assert (content, status.st_size) == (b"x" * size, size)


def test_a_file_beyond_the_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(bounded.TooLarge, match="larger than 10 bytes"):
        bounded.read(str(tmp_path / "file"), 10)
    assert bounded.read_start(str(tmp_path / "file"), 10) == b"x" * 10


def test_a_file_without_a_known_size_is_bounded_as_well() -> None:
    assert bounded.read("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(bounded.TooLarge):
        bounded.read("/proc/self/status", 20)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.close()


@pytest.mark.parametrize(
    ("make", "error"), [(fifo, bounded.NotRegular), (Path.mkdir, bounded.NotRegular), (unix_socket, OSError)]
)
def test_what_is_not_a_regular_file(tmp_path: Path, make: Callable[[Path], None], error: type[OSError]) -> None:
    make(tmp_path / "odd")
    with pytest.raises(error):
        bounded.read(str(tmp_path / "odd"), 10)


def test_a_link_is_followed_on_request_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic link"):
        bounded.read(str(tmp_path / "link"), 10)
    assert bounded.read(str(tmp_path / "link"), 10, follow=True) == b"x"


def test_a_name_in_an_open_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert bounded.read("file", 10, dir_fd=folder) == b"x"
        with pytest.raises(FileNotFoundError):
            bounded.read("none", 10, dir_fd=folder)
    finally:
        os.close(folder)
