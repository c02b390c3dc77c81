"""The refspecs that are allowed to a remote that was set inside (gitglossary(7), "refspec"). A fetch by them writes
below refs/remotes/REMOTE/, or tags by their own names. A push by them writes branches, tags, and refs/for/ of Gerrit.
"""

from __future__ import annotations

from omac.domain.git.refs import is_ref_name, is_remote_name

_EVERYTHING = "+refs/*:refs/*"
_TAGS = "refs/tags/"
_PUSHED_TO = ("refs/heads/", _TAGS, "refs/for/")  # the last is Gerrit's


def may_fetch(remote: str, value: str) -> bool:
    """Return whether a fetch by it writes below refs/remotes/REMOTE/, or tags by their own names, and git can read it.

    Elsewhere a fetch would write what no sandbox may, as refs/replace, or a branch of the host's.
    """
    source, colon, to = value.removeprefix("+").partition(":")
    if not colon:
        return _is_one(source.removeprefix("^")) and ("*" not in source or source.startswith("^"))
    is_own = to.startswith(f"refs/remotes/{remote}/") and is_remote_name(remote)
    is_tag = source == to and to.startswith(_TAGS)
    return _is_one(source) and _is_one(to) and source.count("*") == to.count("*") and (is_own or is_tag)


def may_push(value: str) -> bool:
    """Return whether a push by it writes branches and tags: where it goes may be a repository of the project."""
    source, colon, to = value.removeprefix("+").partition(":")
    if value in (":", "+:", "HEAD"):
        return True
    fine = _is_one(source) and (not colon or (_is_one(to) and source.count("*") == to.count("*")))
    return fine and (to or source).startswith(_PUSHED_TO)


def of_mirrors(pairs: list[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the settings that make a bare repository a mirror of its remotes, as `git clone --mirror` does: there is
    no worktree in which the refs would be obeyed."""
    settings = dict(pairs)
    if settings.get("core.bare") != "true" or "core.worktree" in settings:
        return frozenset()
    remotes = [key[7:-4] for key in settings if key.startswith("remote.") and key.endswith(".url")]
    return frozenset(
        pair
        for remote in filter(is_remote_name, remotes)
        for pair in ((f"remote.{remote}.mirror", "true"), (f"remote.{remote}.fetch", _EVERYTHING))
    )


def _is_one(side: str) -> bool:
    """Return whether git accepts a text as one side of a refspec: the name of a ref, or a part of one, with one `*` at
    the most."""
    return side not in ("", "@") and side.count("*") <= 1 and is_ref_name(f"refs/{side.replace('*', 'x')}")
