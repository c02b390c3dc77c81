"""Folders of omac's own, of a journal and what lies beside it: made, and shown with the files that may be missing."""

import os

from omac.domain.kernel.refusal import KERNEL_MESSAGES, list_command, quoted

MORE_FILES = "ulimit -n 4096  # how many files a process may have open, in this shell; then the same command again"
FILES_LOW, BYTES_LOW = 100, 1 << 20  # a disk lacks the one where it still has the other


def make_private(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700 whatever the umask: who can change a folder above
    can replace what is below. Raises OSError."""
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        os.makedirs(folder, 0o700, exist_ok=True)


def draft_of(path: str) -> str:
    """Return the name of a file that this process writes before it replaces that at `path`."""
    return f"{path}.{os.getpid()}"


def sweep_drafts(folder: str) -> None:
    """Remove the drafts of killed processes in a folder. One of a process that cannot be seen is written again. Raises
    OSError."""
    for name in os.listdir(folder):
        _, _, pid = name.rpartition(".")
        if pid != name and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            os.unlink(os.path.join(folder, name))


def nearest_existing(path: str) -> str:
    """Return a path as an absolute one, or the nearest folder above it that exists."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def look_at(path: str) -> str:
    """The command that lists a path, or the nearest folder above it that exists."""
    return list_command(nearest_existing(path))


def own_home(path: str) -> list[str]:
    """The command that helps where a path lies in a folder of another user, as in the HOME that `sudo -u` keeps; else
    none."""
    there = nearest_existing(path)
    owner = os.lstat(there).st_uid
    return [f"export HOME=PATH  # one of your own: {there} belongs to user {owner}"] if owner != os.geteuid() else []


def lacks_files(folder: str) -> bool:
    """Return whether the disk of a folder has room, but hardly a file left that can be made."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return 0 <= disk.f_favail < FILES_LOW and disk.f_files > 0 and disk.f_bavail * disk.f_frsize >= BYTES_LOW


def elsewhere_command(error: OSError) -> str:
    """Return the command that keeps the state elsewhere than where it cannot be written. On a read-only disk the tool
    caches lie beside it, as a rule."""
    import errno  # errors alone need it

    caches = " XDG_CACHE_HOME=PATH" if error.errno == errno.EROFS else ""
    return f"export OMAC_STATE_DIR=PATH{caches}  # somewhere you can write"


def room_command(folder: str) -> str:
    """Return the command that shows the room of a disk: that of a folder, or of the nearest above it that exists."""
    there = nearest_existing(folder)
    return f"df {'-i' if lacks_files(there) else '-h'} {quoted(there)}"


def write_command(error: OSError, folder: str) -> str:
    """Return the command that shows why a file in a folder cannot be written: the disk is full, fails or takes no
    change, this process has too many files open, or else the modes."""
    import errno  # errors alone need it

    if error.errno == errno.EROFS:
        return f"findmnt --target {quoted(nearest_existing(folder))}  # how it is mounted"
    if error.errno == errno.EMFILE:
        return MORE_FILES
    if error.errno == errno.EIO:
        return KERNEL_MESSAGES
    return room_command(folder) if error.errno in (errno.ENOSPC, errno.EDQUOT) else look_at(folder)
