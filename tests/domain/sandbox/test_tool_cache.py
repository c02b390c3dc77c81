"""domain/sandbox/tool_cache.py: the name of a cache, and the variables that lead tools to it."""

import pytest

from omac.domain.kernel.ids import workdir_id
from omac.domain.sandbox.tool_cache import cache_id, is_cache_id, variables

TOLD = {
    "GOCACHE": "/c/go-build",
    "GOMODCACHE": "/c/go-mod",
    "NPM_CONFIG_CACHE": "/c/npm",
    "PIP_CACHE_DIR": "/c/pip",
    "CARGO_HOME": "/c/cargo",
    "UV_CACHE_DIR": "/c/uv",
    "OMAC_CACHE_DIR": "/c",
    "OMAC_CACHE_MODE": "persistent",
}


def test_the_name_is_the_beginning_of_the_workdir_id() -> None:
    """The name has twelve hex digits of the SHA-256 of the path, so that a workdir's cache keeps its name."""
    assert cache_id(workdir_id("/home/me/shop")) == "4a68c726aa05"
    assert is_cache_id(cache_id(workdir_id("/home/me/shop")))


@pytest.mark.parametrize(
    "name", ["", ".locks", ".trash", "0123456789a", "0123456789abc", "0123456789AB", "../456789abcd"]
)
def test_what_is_named_otherwise_is_no_cache(name: str) -> None:
    """A folder with another name is no cache, and is left alone."""
    assert not is_cache_id(name)


@pytest.mark.parametrize(
    ("redirect_xdg", "ephemeral", "others"),
    [
        (False, False, {}),
        (True, False, {"XDG_CACHE_HOME": "/c/xdg"}),
        (False, True, {"OMAC_CACHE_MODE": "ephemeral"}),
        (True, True, {"XDG_CACHE_HOME": "/c/xdg", "OMAC_CACHE_MODE": "ephemeral"}),
    ],
)
def test_variables(redirect_xdg: bool, ephemeral: bool, others: dict[str, str]) -> None:
    """Each tool has a folder of its own; all other programs get one only with `redirect_xdg`."""
    environment = variables("/c", redirect_xdg, ephemeral)
    assert environment == TOLD | others
    folders = [value for value in environment.values() if value.startswith("/c/")]
    assert len(set(folders)) == len(folders)
