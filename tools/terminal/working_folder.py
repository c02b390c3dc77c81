"""The current directory of omac's process, which anybody may remove while a command runs."""

import os


def is_current(folder: str) -> bool:
    """Return whether a canonical path is that of the current directory; False where that was removed."""
    try:
        return os.path.realpath(".") == folder
    except FileNotFoundError:
        return False
