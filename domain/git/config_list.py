"""The output of `git config --list --show-origin --show-scope -z` (git-config(1)): settings and their files."""

from __future__ import annotations

from omac.domain.kernel import PlainData


class GitSetting(PlainData):
    """`key` as git prints it; `value` is "true" where there is none. `scope` is "system", "global", "local",
    "worktree" or "command"; `file` is the path of its file as git names it, empty for a setting of a command line."""

    scope: str
    file: str
    key: str
    value: str


def parsed(listing: bytes) -> list[GitSetting]:
    """Return the settings of a listing, in order. Raises ValueError for one that was cut off."""
    fields = listing.decode(errors="surrogateescape").split("\0")
    if len(fields) % 3 != 1 or fields[-1]:
        raise ValueError("the listing of git's settings is not whole")
    settings = []
    for at in range(0, len(fields) - 1, 3):
        scope, origin, setting = fields[at : at + 3]
        key, has_value, value = setting.partition("\n")
        file = origin[5:] if origin.startswith("file:") else ""
        settings.append(GitSetting(scope, file, key, value if has_value else "true"))
    return settings
