"""domain/sandbox/cache_eviction.py: the caches to evict, the reasons and the order."""

import pytest

from omac.domain.sandbox.cache_eviction import Cache, to_go

DAY = 86_400 * 10**9
NOW = 100 * DAY


def cache(
    name: str, size: int = 1, age: int = 0, *, workdir: str = "/w", exists: bool = True, used: bool = False
) -> Cache:
    """Return a cache of `size` bytes, last used `age` days ago."""
    return Cache(name, workdir, f"/c/{name}", size, True, NOW - age * DAY, used, exists)


@pytest.mark.parametrize(
    ("caches", "bytes_max", "going"),
    [
        ([cache("a")], None, []),
        ([cache("a", age=30)], None, []),  # not longer than that
        ([cache("a", age=31)], None, [("a", "not used")]),
        ([cache("a", exists=False)], None, [("a", "workdir gone")]),
        ([cache("a", workdir="", exists=False)], None, [("a", "no marker")]),
        ([cache("a", age=31, exists=False, used=True)], 0, []),  # in use
        ([cache("a", 5), cache("b", 5)], 10, []),
        ([cache("a", 5, 1), cache("b", 6, 1)], 10, [("b", "too much in all")]),
        ([cache("a", 5, 20), cache("b", 6, 2)], 10, [("a", "too much in all")]),
        ([cache("a", 5, 3), cache("b", 5), cache("c", 5, 1)], 9, [(item, "too much in all") for item in ("a", "c")]),
        ([cache("a", 50, 31), cache("b", 5, 2)], 10, [("a", "not used")]),  # what went by age makes room
        ([cache("a", 50, used=True), cache("b", 5, 2)], 10, [("b", "too much in all")]),  # what is in use counts
        ([cache("a", 0), cache("b", 1)], 0, [("b", "too much in all")]),
    ],
)  # fmt: skip
def test_what_goes(caches: list[Cache], bytes_max: int | None, going: list[tuple[str, str]]) -> None:
    """Caches without a project go first, then unused ones, then those that held the most for longest; never one in
    use."""
    evictions = to_go(caches, NOW, NOW - 30 * DAY, bytes_max)
    assert [(item.id, why) for item, why in evictions] == going
