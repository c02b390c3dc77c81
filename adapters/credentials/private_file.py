"""Files that nobody else may read: their owner and rights are checked before their content is used."""

import os
import stat

from omac.adapters.credentials.vault_format import HiddenBytes
from omac.adapters.files import bounded
from omac.domain.kernel.refusal import Refusal, list_command, quoted


def read_private(path: str, label: str, bytes_max: int, *, handed_over: bool = False) -> HiddenBytes:
    """Return the content of a file that only this user can read; errors call the file `label`.

    A credential that systemd has `handed_over` (systemd.exec(5)) may be root's, readable through an access list, whose
    mask then shows as rights of the group. A link is not followed, and a FIFO or device is not waited for. Raises
    FileNotFoundError, Refusal (vault-unusable).
    """
    try:
        _require_regular(path, label, os.lstat(path))
        content, status = bounded.read_with_status(path, bytes_max)  # it may have become something else since
        hidden = HiddenBytes(content)
        del content
    except FileNotFoundError:
        raise
    except bounded.TooLarge:
        message = f"{label} {path} is larger than {bytes_max} bytes"
        raise Refusal("vault-unusable", message, fix=[list_command(path)]) from None
    except OSError as error:
        message = f"{label} {path} cannot be read: {error.strerror}"
        raise Refusal("vault-unusable", message, fix=[list_command(path)]) from None
    _require_private(path, label, status, handed_over)
    return hidden


def require_private_folder(path: str) -> None:
    """Raise Refusal (vault-unusable) if another user, except root, can replace files in a folder; FileNotFoundError if
    the folder is missing."""
    status = os.stat(path)
    if status.st_uid not in (os.geteuid(), 0):
        message = f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()})"
        raise Refusal("vault-unusable", message, fix=[list_command(path)])
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise Refusal("vault-unusable", f"{path} is writable by other users", fix=[f"chmod 700 {quoted(path)}"])


def _require_regular(path: str, label: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        message = f"{label} {path} is {kind}; put the file itself in its place"
        raise Refusal("vault-unusable", message, fix=[list_command(path)])


def _require_private(path: str, label: str, status: os.stat_result, handed_over: bool) -> None:
    roots = handed_over and status.st_uid == 0
    if status.st_uid != os.geteuid() and not roots:
        who = f"user {status.st_uid}, not to you ({os.geteuid()})"
        raise Refusal("vault-unusable", f"{label} {path} belongs to {who}", fix=[list_command(path)])
    if status.st_mode & (0o007 if roots else 0o077):
        message = f"{label} {path} is accessible to other users"
        raise Refusal("vault-unusable", message, fix=[f"chmod 600 {quoted(path)}"])
