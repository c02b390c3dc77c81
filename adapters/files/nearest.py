"""The part of a path that exists, for a command which a person pastes to see why the rest cannot be made."""

import os


def nearest_existing(path: str) -> str:
    """Return an absolute path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
