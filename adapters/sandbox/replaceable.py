"""Files that stay as they are on the host, while a program inside can replace them: what it replaces is a copy.

Programs change a settings file by renaming another over it, which fails where the file is a mount (EBUSY, rename(2)).
git follows a link first, and renames beside what the link leads to. So a symbolic link is mounted on the file that is
pinned: it can be moved and removed as little as the pin, and leads to a copy in a folder of the sandbox's own. After
the end the copies are read from that folder, which is held open, and is gone with the launch.

bubblewrap mounts no links, so a child of omac enters the sandbox's namespaces and does it (open_tree(2),
move_mount(2)). Where the kernel cannot do it (before Linux 5.6), the pins stay without it.
"""

from __future__ import annotations

import errno
import fcntl
import os

from omac.adapters.files import atomic, bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.without_links import opened_without_links
from omac.adapters.linux.syscall import call
from omac.domain.sandbox.confinement import REPLACEABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "file"
_LINK = "link"
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # on every architecture
_SETNS = {"x86_64": 308, "aarch64": 268}
_CLONE_LINK = 1 | os.O_CLOEXEC | 0x100  # OPEN_TREE_CLONE, AT_SYMLINK_NOFOLLOW
_TO_AND_FROM_DESCRIPTORS = 0x04 | 0x40  # MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH
_NS_GET_USERNS = 0xB701
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000


class Replaceable:
    """The files of one launch: their content at its beginning, by path; none may become longer than `bytes_max`."""

    def __init__(self, files: Mapping[str, bytes], bytes_max: int) -> None:
        self._files = dict(files)
        self._bytes_max = bytes_max
        self._numbers = {path: str(number) for number, path in enumerate(files)}
        self._folder = -1
        self._child = 0

    @property
    def is_installed(self) -> bool:
        return self._folder >= 0

    def install(self, init: int) -> bool:
        """Make the copies, and the links to them, in the sandbox of the process `init`, before anything runs there.
        Returns False where the kernel cannot do it. Raises OSError."""
        self._folder = os.open(f"/proc/{init}/root{REPLACEABLE}", FOLDER_FLAGS)
        for path, content in self._files.items():
            self._copy(self._numbers[path], content)
        answer, of_child = os.pipe()
        with Descriptor(answer):
            self._child = os.fork()
            if not self._child:
                _mount_links(init, self._numbers, of_child)
            os.close(of_child)
            failed = (os.read(answer, 1) or bytes((errno.ECHILD,)))[0]  # sooner than the child's end
        if failed:
            self.close()
            if failed in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
                return False
            raise OSError(failed, os.strerror(failed))
        return True

    def content(self, path: str) -> bytes | None:
        """Return what the copy of a file holds now; None where it is gone, no file, or too long."""
        try:
            with Descriptor(os.open(self._numbers[path], FOLDER_FLAGS, dir_fd=self._folder)) as folder:
                return bounded.read(_NAME, self._bytes_max, dir_fd=folder)
        except OSError:
            return None

    def close(self) -> None:
        if self._child:
            os.waitpid(self._child, 0)
            self._child = 0
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _copy(self, number: str, content: bytes) -> None:
        os.mkdir(number, 0o700, dir_fd=self._folder)
        with Descriptor(os.open(number, FOLDER_FLAGS, dir_fd=self._folder)) as folder:
            os.symlink(f"{REPLACEABLE}/{number}/{_NAME}", _LINK, dir_fd=folder)
            atomic.create(_NAME, content, 0o644, dir_fd=folder)


def _mount_links(init: int, numbers: Mapping[str, str], answer: int) -> None:
    """Enter the namespaces of `init` in a child of omac, and mount. Answers with the number of an error, or 0."""
    code = errno.EINVAL
    try:
        setns = _SETNS[os.uname().machine]
        root = os.open(f"/proc/{init}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # setns finds another meanwhile
        mounts = os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        users = fcntl.ioctl(mounts, _NS_GET_USERNS)  # whose mounts they are: bubblewrap goes on to another namespace
        call(setns, users, _NEW_USERS)
        call(setns, mounts, _NEW_MOUNTS)
        for path, number in numbers.items():
            link = call(_OPEN_TREE, root, f"{REPLACEABLE[1:]}/{number}/{_LINK}".encode() + b"\0", _CLONE_LINK)
            there = opened_without_links(path, root)
            call(_MOVE_MOUNT, link, b"\0", there, b"\0", _TO_AND_FROM_DESCRIPTORS)
        code = 0
    except OSError as problem:
        code = problem.errno or errno.EINVAL
    finally:
        os.write(answer, bytes((code & 0xFF,)))
        os._exit(0)
