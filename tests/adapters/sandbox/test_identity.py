"""A path's device and inode, without following a link: by the system call, and by steps where there is none."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omac.adapters.sandbox import bubblewrap, identity
from omac.domain.confinement import WRITE, Entry, Policy
from omac.domain.refusal import Refusal


@pytest.fixture
def root() -> Iterator[int]:
    """The host's root."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def by_steps(path: str, root: int) -> os.stat_result:
    """The way of a kernel without openat2."""
    descriptor = identity.opened_by_steps(path.strip("/"), root)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("look", [identity.status_without_links, by_steps])
def test_a_link_in_the_way(tmp_path: Path, root: int, look: Callable[[str, int], os.stat_result]) -> None:
    """It is refused wherever it stands; at the end it is found itself; without one the folder is found."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "end").symlink_to("inner")
    assert os.path.samestat(look(f"{tmp_path}/real/inner", root), os.stat(tmp_path / "real" / "inner"))
    assert os.path.samestat(look(f"{tmp_path}/real/end", root), os.lstat(tmp_path / "real" / "end"))
    before = len(os.listdir("/proc/self/fd"))
    for path, code in (("link/inner", errno.ELOOP), ("real/end/x", errno.ELOOP), ("gone/x", errno.ENOENT)):
        with pytest.raises(OSError, match=os.strerror(code)):
            look(f"{tmp_path}/{path}", root)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_above_what_is_mounted(tmp_path: Path) -> None:
    """The folder that a link leads to has what is looked for, and is not taken for it."""
    (tmp_path / "precious" / "inner").mkdir(parents=True)
    granted = tmp_path / "granted"
    (granted / "inner").mkdir(parents=True)
    policy = Policy(str(granted / "inner"), (Entry(str(granted / "inner"), WRITE, "--root"),), {})
    seen = os.stat(granted / "inner")
    assert bubblewrap.bound(policy) == {str(granted / "inner"): (seen.st_dev, seen.st_ino)}
    expected = bubblewrap.bound(policy)
    bubblewrap.check("/", expected)
    granted.rename(tmp_path / "aside")
    granted.symlink_to(tmp_path / "precious")
    for attempt in (lambda: bubblewrap.bound(policy), lambda: bubblewrap.check("/", expected)):
        with pytest.raises(Refusal, match="a link stands in its way") as caught:
            attempt()
        assert caught.value.reason == "path-changed"
