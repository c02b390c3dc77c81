"""The tool caches of this user, for `omac cache`."""

from omac.adapters.caches import caches, tree
from omac.adapters.caches.caches import Caches as Caches

open_caches = caches.opened
cache_id = tree.identity_of
