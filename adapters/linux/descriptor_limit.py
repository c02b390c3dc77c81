"""The number of files that this process may have open (getrlimit(2))."""

from __future__ import annotations


def raise_descriptor_limit(wanted: int) -> int:
    """Allow so many open files, or as many as the system lets this process have; returns how many."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
