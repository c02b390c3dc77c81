"""Which directory, scopes and harness the flags of a command mean, also where nothing is on disk any more."""

import os
from collections.abc import Sequence

from omac.domain import ids
from omac.domain.harness import DEFAULT_HARNESS, HARNESSES
from omac.domain.ids import WorkdirId
from omac.tools.opened import Where


def directory_of(where: Where) -> str:
    """The directory that is meant, whether it is there or not, without links."""
    return os.path.realpath(os.path.expanduser(where.workdir or "."))


def scopes_of(where: Where) -> frozenset[WorkdirId]:
    """The scopes that are meant."""
    if where.shared:
        return frozenset({ids.GLOBAL})
    own = ids.workdir_id(directory_of(where))
    return frozenset({own} if where.workdir is not None else {own, ids.GLOBAL})


def harness_of(base: str, others: Sequence[str] = ()) -> str:
    """A harness that sees what lies in the folder `base`; `others` are bases with a skill of the same name."""
    for harness in HARNESSES:
        if harness.base == base or (base == harness.bases[-1] and harness.base not in others):
            return harness.name
    return DEFAULT_HARNESS.name
