"""The bundle hash of a folder on disk."""

import hashlib
import os
from collections.abc import Iterator, Mapping

from omac.adapters.skills.tree import BundleReader, read_link, walk
from omac.domain.skills.bundle import PRUNED_FOLDERS, code_hash, considered, unhashed

LINK = "\0link"  # no file name ends like this


def code_hash_of(source: str, known: Mapping[str, bytes]) -> str:
    """The hash of a skill's code; `known` files (SHA-256 by relpath) are not read again. Raises OSError."""
    return code_hash_from(_digests(source, known))


def code_hash_from(digests: Iterator[tuple[str, bytes]]) -> str:
    """Return the hash of a skill's code, from `(relpath, SHA-256)` of each file that counts, and `(relpath + LINK,
    SHA-256 of the target)` of each link."""
    files: list[tuple[str, bytes]] = []
    others: list[tuple[str, bytes]] = []
    for relpath, digest in digests:
        (files if considered(relpath) and not relpath.endswith(LINK) else others).append((relpath, digest))
    return code_hash(files, others)


def _digests(source: str, known: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    reader = BundleReader()
    for folder, below, entries in walk(source, PRUNED_FOLDERS):
        for entry in entries:
            relpath = below + entry.name
            if entry.is_symlink():
                target = read_link(folder, entry.name, os.path.join(source, relpath))
                yield relpath + LINK, hashlib.sha256(os.fsencode(target)).digest()
            elif entry.is_file(follow_symlinks=False) and (considered(relpath) or unhashed(relpath)):
                digest = known.get(relpath)
                yield relpath, digest or reader.digest(folder, entry.name, os.path.join(source, relpath))
