"""The tool caches of this user: for `omac cache`, and as folders that agents may write."""

import os
from collections.abc import Mapping

from omac.adapters.caches import caches, tree
from omac.adapters.caches.caches import Caches as Caches
from omac.domain.kernel.refusal import Refusal

open_caches = caches.opened
cache_id = tree.identity_of


def cache_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the canonical folder of all tool caches, which need not exist; none where no sandbox can have one."""
    try:
        return (os.path.realpath(tree.root_of(environment)),)
    except Refusal:
        return ()
