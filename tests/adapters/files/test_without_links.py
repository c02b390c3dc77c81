"""Paths are opened without following a link: by the system call, and by steps on a kernel without it."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omac.adapters.files import without_links


@pytest.fixture
def root() -> Iterator[int]:
    """Yield a descriptor of the host's root."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def by_steps(path: str, root: int) -> int:
    """Open a path as on a kernel without openat2."""
    return without_links.opened_by_steps(path.strip("/"), root)


@pytest.mark.parametrize("opened", [without_links.opened_without_links, by_steps])
def test_a_link_in_the_way(tmp_path: Path, root: int, opened: Callable[[str, int], int]) -> None:
    """A link on the way is refused; a link at the end is opened itself, and a path without a link is its folder."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "end").symlink_to("inner")
    for folder in (tmp_path / "real" / "inner", tmp_path / "real" / "end"):
        descriptor = opened(str(folder), root)
        status, mount = os.fstat(descriptor), without_links.mount_of(descriptor)
        os.close(descriptor)
        assert os.path.samestat(status, folder.lstat())
        assert str(mount) in {line.split(" ")[0] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    before = len(os.listdir("/proc/self/fd"))
    for path, code in (("link/inner", errno.ELOOP), ("real/end/x", errno.ELOOP), ("gone/x", errno.ENOENT)):
        with pytest.raises(OSError, match=os.strerror(code)):
            opened(f"{tmp_path}/{path}", root)
    assert len(os.listdir("/proc/self/fd")) == before
