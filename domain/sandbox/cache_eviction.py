"""The tool caches of a host: what is known of each, and which of them are to go.

Rules

1. A cache in use stays, whatever is asked.
2. First goes what nobody will use again: its workdir is gone, or nothing names its workdir.
3. Then what was not used since a given moment.
4. Then, until the rest is small enough, the one that holds most for longest: bytes times time since its last use.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

Why = Literal["workdir gone", "no marker", "not used", "too much in all"]


class Cache(msgspec.Struct, frozen=True):
    """One cache. `workdir` is empty where no marker names it; `last_used` is in ns, UTC.

    `bytes` are those it takes on the disk; there are more of them where `counted` is false.
    """

    id: str
    workdir: str
    path: str
    bytes: int
    counted: bool
    last_used: int
    in_use: bool
    workdir_exists: bool


def to_go(caches: Iterable[Cache], now: int, not_used_since: int, bytes_max: int | None) -> list[tuple[Cache, Why]]:
    """The caches that are to go and why, in that order. `bytes_max` None: they may take any number of bytes."""
    going: list[tuple[Cache, Why]] = []
    staying: list[Cache] = []
    for cache in caches:
        if cache.in_use:
            staying.append(cache)
        elif not cache.workdir:
            going.append((cache, "no marker"))
        elif not cache.workdir_exists:
            going.append((cache, "workdir gone"))
        elif cache.last_used < not_used_since:
            going.append((cache, "not used"))
        else:
            staying.append(cache)
    total = sum(cache.bytes for cache in staying)
    free = [cache for cache in staying if not cache.in_use]
    free.sort(key=lambda cache: cache.bytes * max(now - cache.last_used, 1), reverse=True)
    for cache in free:
        if bytes_max is None or total <= bytes_max:
            break
        going.append((cache, "too much in all"))
        total -= cache.bytes
    return going
