"""The tool caches of this user, for `omac cache`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from omac.adapters.caches import caches, tree
from omac.adapters.caches.caches import Caches as Caches


def open_caches(environment: Mapping[str, str], step: Callable[[int], None]) -> AbstractContextManager[Caches | None]:
    """Open all caches; None where there has never been one. `step` gets how many names were handled, now and then.

    Entering it raises Refusal (cache-unsafe).
    """
    return caches.opened(environment, step)


def cache_id(workdir: str) -> str:
    """Return the name of a project's cache."""
    return tree.identity_of(workdir)
