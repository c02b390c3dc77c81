"""The judges of what may be in a git folder, by the names that the grammar gives them (grammar.py).

A judge takes a file's content, what it held at launch, and the folder it lies in, and returns what is the matter with
it, or an empty text. A mender takes the same and returns the content that may stay.
"""

from __future__ import annotations

from omac.domain.git import config_allowlist, multi_pack_index, operations, refs, refspecs
from omac.domain.git.config import parse, render
from omac.domain.git.index import index_problem
from omac.domain.git.place import JudgedFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    Judge: TypeAlias = Callable[[bytes, bytes, JudgedFolder], str]
    Mend: TypeAlias = Callable[[bytes, bytes, JudgedFolder], bytes]

_ELSEWHERE = "core.worktree, to a folder that is not the repository's own"
_REPOSITORIES = (
    ("/.git/HEAD",),
    ("/HEAD", "/objects", "/refs"),
)  # what one has; a later launch finds it pinned in its place
_PLACES_MAX = 100  # that are looked up
_PARTIAL = ", without which this clone lacks objects (git fetch --refetch brings them)"


def config(content: bytes, before: bytes, folder: JudgedFolder) -> str:
    """A configuration: settings by name, of those that name no program and no place."""
    try:
        keys = [key for key, _value, fine in _judged(content, before, folder) if not fine]
    except ValueError:
        return "sets a text that is not a configuration"
    if not keys:
        return ""
    named = [_ELSEWHERE if key == "core.worktree" else key[:100] for key in dict.fromkeys(keys)]
    is_partial = any(key.startswith("remote.") and key.endswith(".promisor") for key in keys)
    return f"sets {', '.join(named[:5])}{_PARTIAL if is_partial else ''}"


def _judged(content: bytes, before: bytes, folder: JudgedFolder) -> list[tuple[str, str, bool]]:
    """Return each setting of a configuration, and whether it may stay. Raises ValueError for a configuration that git
    could not read."""
    pairs = parse(content.decode(errors="surrogateescape"))
    had = set(parse(before.decode(errors="surrogateescape")))
    mirrors = refspecs.of_mirrors(pairs)
    ours = frozenset() if folder.is_in_use else _of_the_project(pairs, folder)

    def is_fine(key: str, value: str) -> bool:
        if key == "core.worktree":
            return _may_stay(value, before, folder)
        new = (key, value) in mirrors or config_allowlist.allowed(key, value)
        leads_out = not folder.is_in_use and config_allowlist.leads_out(key, value, ours.__contains__)
        return (key, value) in had or (new and not leads_out)

    if folder.is_in_use:  # git writes the settings of a new clone one after the other: where they lead is judged later
        return [(key, value, is_fine(key, value)) for key, value in pairs]
    remotes = config_allowlist.remotes_of(pair for pair in pairs if is_fine(*pair))
    return [(key, value, is_fine(key, value) and not _lacks_remote(key, value, had, remotes)) for key, value in pairs]


def _lacks_remote(key: str, value: str, had: set[tuple[str, str]], remotes: Collection[str]) -> bool:
    return (key, value) not in had and config_allowlist.lacks_remote(key, value, remotes)


def _of_the_project(pairs: list[tuple[str, str]], folder: JudgedFolder) -> frozenset[str]:
    """The URLs of remotes and submodules that are repositories of the project, among the first `_PLACES_MAX`."""
    urls = dict.fromkeys(value for key, value in pairs if config_allowlist.leads_out(key, value, lambda _: False))
    return frozenset(url for url in list(urls)[:_PLACES_MAX] if _is_of_the_project(url, folder))


def _is_of_the_project(url: str, folder: JudgedFolder) -> bool:
    """Return whether git takes an absolute path for a repository of the project, past no link, whatever suffix git
    tries."""
    path = url.removeprefix("file://").removesuffix("/.").rstrip("/")
    if not path.startswith("/") or (path != url and "%" in path) or not folder.reaches(path, beside=""):
        return False
    if not folder.holds(f"{path}/.."):  # a project as a whole, whose git folder no sandbox can take away
        return folder.reaches(f"{path}/.git", beside="")
    is_one = any(all(folder.reaches(f"{path}{name}", beside="") for name in names) for names in _REPOSITORIES)
    return is_one and all(folder.holds(f"{path}{suffix}") for suffix in ("/.git", ".git", ".git/.git"))


def _may_stay(worktree: str, before: bytes, folder: JudgedFolder) -> bool:
    """Return whether `core.worktree` leads to the repository's own worktree, or is unchanged and leads past no new
    link."""
    was_there = worktree == config_allowlist.worktree_of(before) and not folder.leads_past_link(worktree)
    return folder.is_own_worktree(worktree) or was_there


def without_problems(content: bytes, before: bytes, folder: JudgedFolder) -> bytes:
    """Return the settings that are allowed, and those that were there."""
    try:
        kept = [(key, value) for key, value, fine in _judged(content, before, folder) if fine]
        return render(kept).encode(errors="surrogateescape")
    except ValueError:
        return before


def index(content: bytes, _before: bytes, folder: JudgedFolder) -> str:
    """An index."""
    if not folder.oid_bytes:
        return "cannot be read: the settings do not say how long an object id is"
    return index_problem(content, folder.oid_bytes)


def autostash(content: bytes, _before: bytes, folder: JudgedFolder) -> str:
    """`MERGE_AUTOSTASH`: changes that git applies when a merge is committed."""
    if not folder.has("MERGE_HEAD"):
        return "would be applied by the next commit, without a merge"
    return refs.oid_problem(content)


def empty(content: bytes, before: bytes, _folder: JudgedFolder) -> str:
    """A file that only the host may write, and that omac itself makes, without content, to pin it for another
    launch."""
    return "" if not content and not before else "is new or changed"


def graph(_content: bytes, _before: bytes, _folder: JudgedFolder) -> str:
    """A commit graph. git shows the difference of two commits by the trees that it names, and merges others."""
    return "is new or changed, and could show a commit as another (git commit-graph write makes one again)"


def own_common(content: bytes, _before: bytes, _folder: JudgedFolder) -> str:
    """`commondir` of a folder that is its own common folder."""
    return "" if content.strip() == b"." else "takes the settings from elsewhere"


def commondir(content: bytes, _before: bytes, folder: JudgedFolder) -> str:
    """`commondir` of an admin folder."""
    path = content.rstrip(b"\r\n").decode(errors="surrogateescape")
    return "" if "\n" not in path and folder.is_common(path) else "takes the settings from elsewhere"


def gitdir(content: bytes, before: bytes, folder: JudgedFolder) -> str:
    """`gitdir` of an admin folder: the worktree's `.git`."""
    path = content.rstrip(b"\r\n").decode(errors="surrogateescape")
    fine = "\n" not in path and path.endswith("/.git") and (folder.holds(path) or folder.is_named_by(path))
    problem = "names a worktree outside the project (git worktree prune removes what is left of it)"
    return "" if fine or content == before else problem


def alternates(content: bytes, before: bytes, folder: JudgedFolder) -> str:
    """Other places for objects."""
    lines = [line for line in content.split(b"\n") if line and not line.startswith(b"#")]
    had = set(before.split(b"\n"))
    for line in lines:
        path = line.decode(errors="surrogateescape")
        is_quoted = line.startswith(b'"')  # then git ends it at the closing quote, and takes the rest for another one
        fine = not is_quoted and path.endswith("/objects") and folder.reaches(path, beside="objects")
        if line not in had and not fine:
            return f"takes objects from {path[:200]!r}"
    return ""


def conflicts(content: bytes, before: bytes, folder: JudgedFolder) -> str:
    """`MERGE_RR`: conflicts, and files of the worktree."""
    if problem := operations.conflicts_problem(content, before):
        return problem
    paths = operations.conflict_paths(content)
    return "" if folder.has_entries(frozenset(paths)) else "names a file that is not in the index"


def todo_without_commands(content: bytes, before: bytes, _folder: JudgedFolder) -> bytes:
    """Return the steps without commands that were not there."""
    return operations.without_commands(content, before)


def ref_path(path: str) -> str:
    """The path of a ref, or of the log of one."""
    name = path.removeprefix("logs/")
    return "" if name == "HEAD" or refs.is_ref_name(name) else "is not the name of a ref"


def _plain(judge: Callable[[bytes], str]) -> Judge:
    return lambda content, _before, _folder: judge(content)


def _of_oids(judge: Callable[[bytes, int], str]) -> Judge:
    return lambda content, _before, folder: judge(content, 2 * folder.oid_bytes)


def _changing(judge: Callable[[bytes, bytes], str]) -> Judge:
    return lambda content, before, _folder: judge(content, before)


JUDGES: dict[str, Judge] = {
    "alternates": alternates,
    "any": _plain(lambda _content: ""),
    "apply": _changing(operations.apply_problem),
    "autostash": autostash,
    "author": _changing(operations.author_problem),
    "commondir": commondir,
    "config": config,
    "conflicts": conflicts,
    "empty": empty,
    "fetched": _plain(refs.fetched_problem),
    "gitdir": gitdir,
    "graph": graph,
    "hook": _changing(operations.hook_problem),
    "head": _plain(refs.head_problem),
    "index": index,
    "log": _plain(refs.log_problem),
    "name": _changing(operations.name_problem),
    "names": _changing(operations.names_problem),
    "number": _changing(operations.number_problem),
    "oid": _plain(refs.oid_problem),
    "oids": _of_oids(refs.oids_problem),
    "options": _changing(operations.options_problem),
    "own_common": own_common,
    "pack_names": _plain(multi_pack_index.problem),
    "packed": _of_oids(refs.packed_problem),
    "quoted": _changing(operations.quoted_problem),
    "ref": _plain(refs.ref_problem),
    "signing": _changing(operations.signing_problem),
    "strategy": _changing(operations.strategy_problem),
    "strategy_options": _changing(operations.strategy_options_problem),
    "tables": _plain(refs.tables_problem),
    "terms": _changing(operations.terms_problem),
    "todo": _changing(operations.todo_problem),
}
CLEANERS: dict[str, Mend] = {"todo_without_commands": todo_without_commands, "without_problems": without_problems}
PATH_JUDGES: dict[str, Callable[[str], str]] = {"ref_path": ref_path}
