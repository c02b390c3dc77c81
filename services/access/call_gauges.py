"""How many calls of a skill are under way, and how many may begin: gauges of one process, which no record keeps."""

import math
from collections.abc import Callable

from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute

ROUNDING_S = 1e-6  # of sums of fractions
IDLE_MAX = 1_000  # skills whose rate is remembered though none is under way

_Key = tuple[str, str]


class CallGauges:
    """Holds calls to the limits that their skills have. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._under_way: dict[_Key, int] = {}
        self._calls: dict[int, _Key] = {}  # by their records
        self._next: dict[_Key, float] = {}  # when the bucket of a skill would be full again (as GCRA has it)

    def check(self, route: ResolvedRoute) -> None:
        """Raise Refusal (too-many-calls) where one more call would be over a limit; else it counts for the rate."""
        limits, key = route.limits, _key(route)
        if limits.concurrent is not None and self._under_way.get(key, 0) >= limits.concurrent:
            raise _too_many(route, f"{limits.concurrent} calls of it are under way, its limit; try again")
        if limits.per_second is not None:
            now = self._clock()
            full_at = max(self._next.get(key, -math.inf), now) + 1 / limits.per_second
            if full_at > now + 1 + ROUNDING_S:
                raise _too_many(route, f"{limits.per_second} calls of it began within a second, its limit; try again")
            if len(self._next) >= IDLE_MAX:
                self._next = {one: at for one, at in self._next.items() if at > now}
            self._next[key] = full_at

    def reserve(self, route: ResolvedRoute) -> None:
        """A call is being recorded."""
        if route.limits.concurrent is not None:
            key = _key(route)
            self._under_way[key] = self._under_way.get(key, 0) + 1

    def begin(self, route: ResolvedRoute, access: int) -> None:
        """A call that was reserved has its record."""
        if route.limits.concurrent is not None:
            self._calls[access] = _key(route)

    def release(self, route: ResolvedRoute) -> None:
        """A call that was reserved was not recorded."""
        if route.limits.concurrent is not None:
            self._drop(_key(route))

    def end(self, access: int) -> None:
        """A call has its outcome."""
        key = self._calls.pop(access, None)
        if key is not None:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]


def _key(route: ResolvedRoute) -> _Key:
    """The skill, wherever it is called from: one that all directories share has one limit."""
    return route.streams[-1] if route.streams else route.dir, route.skill


def _too_many(route: ResolvedRoute, what: str) -> Refusal:
    fix = [f"omac show {route.skill}  # sidecar.limits of its omac.yaml"]
    return Refusal("too-many-calls", f"{route.skill}: {what}", fix=fix, skill=route.skill)
