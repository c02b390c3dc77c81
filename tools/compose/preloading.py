"""Modules that a server needs at some time, loaded before it launches a program that could write them.

Where omac is installed in the very folder that the program may change (a checkout of omac itself, a virtual environment
in the project), a module loaded later could be the program's. Elsewhere each is loaded when it is needed.
"""

import importlib
import os
import sys
from collections.abc import Iterable

import omac
from omac.domain.kernel.paths import below

NEEDED_LATER = (
    "cryptography.exceptions", "cryptography.hazmat.backends.openssl", "cryptography.hazmat.primitives.ciphers.aead",
    "difflib", "encodings.idna", "omac.adapters.control.app", "omac.adapters.credentials.library_keychain",
    "omac.adapters.credentials.secret_service", "omac.journal.checkpoint", "re2", "ruamel.yaml", "tomlkit",
    "unicodedata",
)  # fmt: skip


def is_exposed(writable: Iterable[str]) -> bool:
    """Return whether a program that may change the canonical folders `writable` could change omac's own code, that of
    the libraries, or the interpreter."""
    package = os.path.dirname(omac.__file__)
    around = os.path.dirname(os.path.dirname(sys.executable))
    own = [package, around, sys.prefix, sys.base_prefix, *(entry.path for entry in os.scandir(package))]
    places = {os.path.realpath(path) for path in own}
    return any(below(place, folder) or below(folder, place) for place in places for folder in writable)


def load() -> None:
    """Load what is needed later."""
    for name in NEEDED_LATER:
        try:
            importlib.import_module(name)
        except ImportError:  # not installed here: then it is not loaded later either
            continue
