"""Commands as a person pastes them into a shell."""

import os
import subprocess


def words_of(line: str) -> list[str]:
    """Return the words that bash reads in a line of plain words."""
    printed = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    return [os.fsdecode(word) for word in printed.split(b"\0")[:-1]]
