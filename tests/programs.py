"""Programs that a test writes."""

import shlex
import sys
from pathlib import Path


def program_at(path: Path, text: str) -> Path:
    """Write a program, with the folders above it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python_at(path: Path, text: str) -> Path:
    """Write a program for this interpreter, as `program_at` does. A `#!` line could not hold an interpreter in a folder
    with a blank in its name."""
    return program_at(path, f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"\n' '''\n{text}")


def omac_at(path: Path) -> Path:
    """Write a program that is this omac, as `program_at` does."""
    return python_at(path, "from omac.tools.entry import main\nmain()\n")
