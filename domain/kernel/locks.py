"""File systems without locks, such as a network's: omac tells by locks which of its processes live."""

from __future__ import annotations

import errno

from omac.domain.kernel.refusal import Refusal, quoted

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def without_locks(folder: str) -> Refusal:
    """Return the refusal of a state directory or a journal in a folder whose file system has no locks."""
    message = f"the file system of {folder} has no locks, by which omac tells which of its processes live"
    fix = [f"findmnt --target {quoted(folder)}", "export OMAC_STATE_DIR=PATH  # on a disk of this machine"]
    return Refusal("state-unusable", message, fix=fix)
