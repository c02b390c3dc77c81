"""Settings of a repository that make git neither run a program nor read or write somewhere else.

A list of what is allowed: for a repository that nobody of the host has made, a setting that is not known is a danger.
"""

from __future__ import annotations

from omac.adapters.git import config
from omac.adapters.git.configured import general_key

_SECTIONS = frozenset(  # of keys without a subsection, but for branch
    "advice author branch color column commit committer extensions feature fetch index log maintenance merge pack pull"  # noqa: SIM905
    " push rebase rerere stash status tag user".split()
)
_CORE = frozenset(
    "abbrev autocrlf bare bigfilethreshold checkstat commentchar commitgraph compression eol filemode fscache"  # noqa: SIM905
    " hidedotfiles ignorecase logallrefupdates longpaths loosecompression multipackindex notesref"
    " precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion safecrlf"
    " sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache"
    " whitespace".split()
)
_REMOTE = frozenset(
    "url pushurl fetch push mirror tagopt prune prunetags skipdefaultupdate skipfetchall promisor"  # noqa: SIM905
    " partialclonefilter".split()
)
_SUBMODULE = frozenset(("url", "active", "branch", "ignore", "fetchrecursesubmodules"))
_UPDATES = ("checkout", "rebase", "merge", "none")
_GC = frozenset(
    ("auto", "autodetach", "autopacklimit", "packrefs", "pruneexpire", "reflogexpire", "worktreepruneexpire")
)
_LFS = {
    "clean": "git-lfs clean -- %f",
    "smudge": "git-lfs smudge -- %f",
    "process": "git-lfs filter-process",
    "required": "true",
}
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0", "")


def dangers(content: bytes, before: bytes = b"") -> list[str]:
    """The keys set in a configuration that are not known to be harmless and that `before` did not have so.

    `core.worktree` is among them: where it leads is for the caller to judge. A text that git could not read is one
    danger of its own.
    """
    try:
        pairs = config.parse(content.decode(errors="surrogateescape"))
        had = set(config.parse(before.decode(errors="surrogateescape")))
    except ValueError:
        return ["a text that is not a configuration"]
    return [key for key, value in pairs if (key, value) not in had and not harmless(key, value)]


def worktree_of(content: bytes) -> str:
    """What `core.worktree` says, or ""."""
    try:
        pairs = dict(config.parse(content.decode(errors="surrogateescape")))
    except ValueError:
        return ""
    return pairs.get("core.worktree", "")


def harmless(key: str, value: str) -> bool:
    """Whether a setting is known to run nothing and to lead nowhere."""
    general = general_key(key)
    section, _, name = general.partition(".")
    if section == "core":
        return name in _CORE or (name == "fsmonitor" and value.lower() in _BOOLEANS)
    if section == "remote":
        return name.startswith("*.") and name[2:] in _REMOTE and "::" not in value
    if section == "submodule":
        return (name.startswith("*.") and name[2:] in _SUBMODULE) or (
            name in ("active", "recurse", "*.update") and (name != "*.update" or value in _UPDATES)
        )
    if section == "gc":
        return name in _GC
    if section == "filter":
        return key.startswith("filter.lfs.") and _LFS.get(name[2:]) == value
    if section == "diff":
        return name in ("renames", "algorithm", "colormoved", "mnemonicprefix", "renamelimit", "submodule")
    return section in _SECTIONS and (section == "branch" or not name.startswith("*."))
