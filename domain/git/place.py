"""A git folder as the judges of its files see it."""

from __future__ import annotations

SHA1_BYTES, SHA256_BYTES = 20, 32  # of object ids


class JudgedFolder:
    """The folder that a judged file lies in, with the questions that a judge asks about it. Paths are as git reads them
    there."""

    oid_bytes = SHA1_BYTES  # 0: nobody knows
    is_in_use = False  # the program is at work there: git's own lock would be in its way

    def holds(self, path: str) -> bool:
        """Return whether a path, of which not all need be there, leads into the project, as git follows it now."""
        raise NotImplementedError

    def reaches(self, path: str, *, beside: str) -> bool:
        """Return whether a path that is relative to `beside` in the git folder leads into the project, to what is
        there, past no link."""
        raise NotImplementedError

    def is_own_worktree(self, path: str) -> bool:
        """Return whether a path leads to a folder of the project whose `.git` is, or names, this git folder."""
        raise NotImplementedError

    def is_named_by(self, path: str) -> bool:
        """Return whether the file at a path, which no sandbox can write, names this git folder as its own."""
        raise NotImplementedError

    def is_common(self, path: str) -> bool:
        """Return whether a path leads to the common folder of this admin folder."""
        raise NotImplementedError

    def has_entries(self, paths: frozenset[bytes]) -> bool:
        """Return whether the index has all these paths, and no link lies on the way to one: then none can be checked
        out there either."""
        raise NotImplementedError

    def leads_past_link(self, path: str) -> bool:
        """Return whether a path of the settings leads to something, but past a link, and did not at launch."""
        raise NotImplementedError

    def has(self, name: str) -> bool:
        """Return whether the git folder has an entry of a name."""
        raise NotImplementedError
