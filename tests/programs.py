"""Programs that a test writes."""

import sys
from pathlib import Path


def program_at(path: Path, text: str) -> Path:
    """Write a program, with the folders above it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def omac_at(path: Path) -> Path:
    """Write a program that is this omac, as `program_at` does."""
    return program_at(path, f"#!{sys.executable}\nfrom omac.tools.entry import main\nmain()\n")
