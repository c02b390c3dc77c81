"""Modules that a server needs at some time, loaded before it launches a program that could write them.

Where omac is installed in the very folder that the program may change (a checkout of omac itself, a virtual environment
in the project), a module loaded later could be the program's. Elsewhere only what a call of it needs is loaded.
"""

import importlib
import os
import sys
from collections.abc import Iterable

import omac
from omac.domain.kernel.paths import below

OF_A_CALL = ("omac.adapters.control.app", "encodings.idna")
OF_ALL = (
    "cryptography.exceptions", "cryptography.hazmat.backends.openssl", "cryptography.hazmat.primitives.ciphers.aead",
    "difflib", "omac.adapters.credentials.library_keychain", "omac.adapters.credentials.secret_service", "re2",
    "ruamel.yaml", "tomlkit",
)  # fmt: skip


def load(writable: Iterable[str]) -> None:
    """Load what is needed later, where a program may change the canonical folders `writable`."""
    around = os.path.dirname(os.path.dirname(sys.executable))
    own = [os.path.realpath(path) for path in (os.path.dirname(omac.__file__), around, sys.prefix, sys.base_prefix)]
    exposed = any(below(path, folder) for path in own for folder in writable)
    for name in (*OF_A_CALL, *(OF_ALL if exposed else ())):
        try:
            importlib.import_module(name)
        except ImportError:  # not installed here: then it is not loaded later either
            continue
