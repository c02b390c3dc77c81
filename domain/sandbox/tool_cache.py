"""A workdir's tool cache: its name, and the variables by which build tools find it.

Rules

1. A workdir has one, named by the first digits of its workdir id; what one workdir's tools left never serves another's.
2. Only tools that can be told by a variable are told. XDG_CACHE_HOME redirects all the others too, also those that need
   what is in the person's own cache, so it is set only where that is wished.
3. An ephemeral one looks the same from inside, and is gone with the sandbox.
"""

from __future__ import annotations

ID_DIGITS = 12  # of the workdir id
FOLDERS = {
    "GOCACHE": "go-build",
    "GOMODCACHE": "go-mod",
    "NPM_CONFIG_CACHE": "npm",
    "PIP_CACHE_DIR": "pip",
    "CARGO_HOME": "cargo",
    "UV_CACHE_DIR": "uv",
}
XDG_VARIABLE, XDG_FOLDER = "XDG_CACHE_HOME", "xdg"
PERSISTENT, EPHEMERAL = "persistent", "ephemeral"

_DIGITS = frozenset("0123456789abcdef")


def cache_id(workdir_id: str) -> str:
    """The name of a workdir's cache; `workdir_id` is the SHA-256 of its canonical path, 64 hex digits."""
    return workdir_id[:ID_DIGITS]


def is_cache_id(name: str) -> bool:
    """Return whether a folder of this name may be a cache."""
    return len(name) == ID_DIGITS and _DIGITS.issuperset(name)


def variables(folder: str, redirect_xdg: bool, ephemeral: bool = False) -> dict[str, str]:
    """Return the variables of a sandbox's environment for the cache in `folder`. The tools make their own folders below
    it."""
    variables_of_tools = {name: f"{folder}/{below}" for name, below in FOLDERS.items()}
    if redirect_xdg:
        variables_of_tools[XDG_VARIABLE] = f"{folder}/{XDG_FOLDER}"
    variables_of_tools["OMAC_CACHE_DIR"] = folder
    variables_of_tools["OMAC_CACHE_MODE"] = EPHEMERAL if ephemeral else PERSISTENT
    return variables_of_tools
