"""Gauges of one process, which no record keeps: the number of a skill's calls under way, and how many may begin."""

import math
from collections.abc import Callable

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.domain.settings.owner_limits import ALL_CONCURRENT, ALL_PER_SECOND, OwnerLimits, how_to_change
from omac.projections.access.routes import ResolvedRoute

ROUNDING_S = 1e-6  # of sums of fractions
IDLE_MAX = 1_000  # skills whose rate is remembered though none is under way

_Key = tuple[str, str]
CountedFor = list[_Key]  # a skill with a limit, and all skills; empty once it is released
_ALL: _Key = ("", "")


class CallGauges:
    """Holds calls to the limits that their skills have, and all calls to those of the owner. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float], owner: OwnerLimits = OwnerLimits()) -> None:  # noqa: B008  # frozen
        self._clock = clock
        self._owner = owner
        self._bounds_all = owner.concurrent is not None or owner.per_second is not None
        self._under_way: dict[_Key, int] = {}
        self._calls: dict[int, CountedFor] = {}  # by their records
        self._next: dict[_Key, float] = {}  # when the bucket of a skill would be full again (as GCRA has it)

    def check(self, route: ResolvedRoute) -> None:
        """Raise Refusal (too-many-calls) where one more call would be over a limit; else it counts for the rates."""
        concurrent, per_second = route.limits.concurrent, route.limits.per_second
        if concurrent is None and per_second is None and not self._bounds_all:
            return
        key = _key(route)
        if concurrent is not None and self._under_way.get(key, 0) >= concurrent:
            usage = counted(concurrent, "call of it is", "calls of it are") + " under way"
            raise _too_many(route, usage, *route.limit("concurrent", concurrent))
        if self._owner.concurrent is not None and self._under_way.get(_ALL, 0) >= self._owner.concurrent:
            usage = counted(self._owner.concurrent, "call is", "calls are") + " under way"
            raise _too_many(route, usage, *_of_all(ALL_CONCURRENT))
        if per_second is None and self._owner.per_second is None:
            return
        now = self._clock()
        full_at, all_full_at = self._full_at(key, per_second, now), self._full_at(_ALL, self._owner.per_second, now)
        if per_second is not None and full_at > now + 1 + ROUNDING_S:
            usage = counted(per_second, "call of it", "calls of it") + " began within a second"
            raise _too_many(route, usage, *route.limit("per_second", per_second))
        if self._owner.per_second is not None and all_full_at > now + 1 + ROUNDING_S:
            usage = counted(self._owner.per_second, "call") + " began within a second"
            raise _too_many(route, usage, *_of_all(ALL_PER_SECOND))
        if len(self._next) >= IDLE_MAX:
            self._next = {route_key: at for route_key, at in self._next.items() if at > now}
        self._next |= {key: full_at} if per_second is not None else {}
        self._next |= {_ALL: all_full_at} if self._owner.per_second is not None else {}

    def _full_at(self, key: _Key, per_second: int | None, now: float) -> float:
        """Return when a bucket would be full again with one more call."""
        return -math.inf if per_second is None else max(self._next.get(key, -math.inf), now) + 1 / per_second

    def reserve(self, route: ResolvedRoute) -> CountedFor:
        """A call is being recorded; return what it counts for while it is under way: its skill and all skills, as far
        as they are limited."""
        if route.limits.concurrent is None and self._owner.concurrent is None:
            return []
        keys = [] if route.limits.concurrent is None else [_key(route)]
        if self._owner.concurrent is not None:
            keys.append(_ALL)
        for key in keys:
            self._under_way[key] = self._under_way.get(key, 0) + 1
        return keys

    def begin(self, keys: CountedFor, access: int) -> None:
        """A call that was reserved has its record."""
        if keys:
            self._calls[access] = keys

    def release(self, keys: CountedFor) -> None:
        """A call that was reserved was not recorded, or has ended before. May be called twice."""
        for key in keys:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
        keys.clear()

    def end(self, access: int) -> None:
        """A call has its outcome."""
        if self._calls:
            self.release(self._calls.pop(access, []))


def _key(route: ResolvedRoute) -> _Key:
    """The skill, wherever it is called from: one that all directories share has one limit."""
    return route.streams[-1] if route.streams else route.dir, route.skill


def _of_all(setting: str) -> tuple[str, str]:
    return "the limit of your settings for all skills", how_to_change(setting)


def _too_many(route: ResolvedRoute, usage: str, whose: str, fix: str) -> Refusal:
    return Refusal("too-many-calls", f"{route.skill}: {usage}, {whose}; try again", fix=[fix], skill=route.skill)
