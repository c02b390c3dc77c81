"""The part of git that a sandbox needs, and the part that it must not get: computed from the workdir's files, before
anything is mounted.

`lay_out` reads and changes nothing. When the policy is about to be enforced, `prepare` makes the session's copy of
refs, and `copy_back` ends it. `repository.py` has the rules about which files of git are believed, `folders.py`
those about what is granted, `refs.py` those about packed refs, `inspection.py` those about what no mount can prevent.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import around, config_targets, pointers, program, refs, reftable
from omac.adapters.git.config_copies import ConfigCopy
from omac.adapters.git.folders import SHARED, Folders
from omac.adapters.git.pins import Pins
from omac.adapters.git.repository import BARE, LINKED, PLAIN, Repository, identify, mode_of
from omac.adapters.git.skipped_hooks import SkippedHooks
from omac.adapters.git.tree import TreeContents, walk
from omac.domain.git.folder import ADMIN, WHOLE, Folder
from omac.domain.kernel import PlainData
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.confinement import DENY, LINK, READ, WRITE, Closing, Entry
from omac.domain.sandbox.hidden_names import ENTRIES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

REPOSITORIES_MAX = 100  # nested ones whose files are pinned; all are inspected at the end
NONE_CLOSED = Closing()


BY_GIT = "git, as its settings name it,"  # obeys a file
BEHIND_A_LINK = "is behind a link that was not there"


class GitChoices(PlainData):
    """The settings `git.hooks` and `git.refs`."""

    hooks: str = "deny"
    refs: str = "all"


class Narrowed:
    """The refs of a git folder at launch, with `git.refs = branch`, and `own`, the branch that may change."""

    def __init__(self, refs_then: dict[str, str], own: str) -> None:
        self.refs = refs_then
        self.own = own


class Layout:
    """The git part of a policy.

    `entries` come beside the workdir's own; in the folders of `fence` no link, FIFO or socket may be made; `warnings`
    are for a person; loose objects in the folders `objects` are to be unshared. The rest is for `prepare` and the
    inspection at the end: `repositories` that were found, the git `folders` that the program can write, by path, those
    `narrowed` to one branch, the paths in the workdir and in `folders` that are `closed` to the program, those that
    settings name, with who obeys them (`named`), and the `sessions` of refs.
    `agents`: it is not of a project, but of a folder that an agent keeps in the home.
    """

    def __init__(self, workdir: str) -> None:
        self.workdir = workdir
        self.agents = False
        self.copies: list[ConfigCopy] = []
        self.entries: tuple[Entry, ...] = ()
        self.fence: tuple[str, ...] = ()
        self.objects: tuple[str, ...] = ()
        self.closed: tuple[str, ...] = ()
        self.named: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        self.repositories: list[Repository] = []
        self.folders: dict[str, Folder] = {}
        self.narrowed: dict[str, Narrowed] = {}
        self.sessions: list[refs.Session] = []
        self.skipped_hooks: SkippedHooks | None = None


def lay_out(
    workdir: str,
    choices: GitChoices,
    home: str,
    contents: TreeContents | None = None,
    *,
    config_list: program.ConfigList | None = None,
    is_agents: bool = False,
    obeyed: Sequence[str] = (),
    closed: Closing = NONE_CLOSED,
) -> Layout:
    """The layout of a canonical workdir; `contents` is what `tree.walk` finds there, where that is known already,
    and `config_list` has been begun there, or for what is no repository elsewhere. No checkout may write what is
    `obeyed`: paths that others than git read, and the policy pins. Nothing is granted where `closed` returns an access:
    there the rest of the policy decides.

    Raises Refusal: git-unsafe, git-unsupported; nothing is changed.
    """
    layout = Layout(workdir)
    layout.agents = is_agents
    pins = Pins(workdir)
    folders = Folders(pins, choices.hooks)
    config_list = config_list or program.ConfigList(workdir, {**os.environ, "HOME": home})
    try:
        own = identify(workdir, workdir)
        if own is not None:
            _require_settings(own)
        listing = config_list.read()
    finally:
        config_list.discard()
    users = config_targets.users(listing, workdir, home)
    warnings = [*users.warnings, *_pin_for_those_around(folders, users, workdir, home)]
    _pin_configured(folders, users, workdir, home)
    if own is None:
        warnings += around.warnings(workdir) if not is_agents else []
    else:
        warnings += _add(layout, folders, own, choices, users, home)
        _pin_configured(folders, config_targets.of_repository(listing, workdir), workdir, home)
        _skip_hooks(layout, own, config_targets.hooks_folder(listing, workdir, home), choices)
    contents = contents or walk(workdir)
    if not contents.complete:
        warnings.append(f"{workdir} has more than {ENTRIES_MAX} files: repositories among the rest are not protected")
    nested: list[str] = []
    if own is None or own.kind != BARE:
        nested += [root for root in contents.worktrees if not closed(f"{root}/.git")]
        nested += [root for root in contents.bare if not closed(root)]
    if len(nested) > REPOSITORIES_MAX:
        warnings.append(
            f"{workdir} has {len(nested)} repositories in it: {REPOSITORIES_MAX} are protected while it runs, "
            "the others are inspected when it ends"
        )
    for root in nested[:REPOSITORIES_MAX]:
        warnings += _add_nested(layout, folders, pins, root, choices, users, home)
    _inspected(layout, folders, pins, obeyed)
    _narrow(layout, folders, choices)
    _fill(layout, pins, folders, closed)
    layout.warnings = (*warnings, *folders.warnings)
    return layout


def _fill(layout: Layout, pins: Pins, folders: Folders, closed: Closing) -> None:
    """Give a layout its entries, and the rest that is by path: where the rest of the policy decides, only entries that
    deny what can be read there, and links, which show nothing."""
    decided = [(entry, closed(entry.path)) for entry in pins.entries.values()]
    layout.entries = tuple(
        entry
        for entry, access in decided
        if not access or entry.access == LINK or (access == READ and entry.access == DENY)
    )
    layout.closed = (*closed.paths, *(admin for admin in folders.others if admin not in folders.admins))
    layout.folders = {path: folder for path, folder in layout.folders.items() if not closed(path)}
    layout.fence = tuple(path for path in folders.fence if not closed(path))
    layout.objects = tuple(path for path in folders.objects if not closed(path))
    layout.copies = [copy for copy in (*layout.copies, *folders.copies) if not closed(copy.path)]


def _require_settings(repository: Repository) -> None:
    """Raise Refusal (git-unsafe) where a path that git reads for its settings is no file, or too long: git would wait
    for a FIFO for ever."""
    pointers.read(f"{repository.git}/HEAD", pointers.BYTES_MAX)
    for path in (f"{repository.common}/config", f"{repository.git}/config.worktree"):
        pointers.read(path, pointers.CONFIG_BYTES_MAX)


def leave_out(layout: Layout, common: str) -> None:
    """Remove from a layout all that lies in `common`, a shared git folder that another layout grants as a whole."""
    layout.entries = tuple(entry for entry in layout.entries if not below(entry.path, common))
    layout.fence = tuple(path for path in layout.fence if not below(path, common))
    layout.copies = [copy for copy in layout.copies if not below(copy.path, common)]
    layout.sessions = [session for session in layout.sessions if session.common != common]
    layout.folders = {path: folder for path, folder in layout.folders.items() if not below(path, common)}


def prepare(layout: Layout) -> None:
    """Make what the session needs of its own, after the `made` paths and before the mounts. Raises Refusal (git-unsafe)
    where it cannot be made."""
    for session in layout.sessions:
        try:
            refs.open_session(session)
        except OSError as error:
            raise pointers.unsafe(f"{session.folder} cannot be made: {error.strerror}") from None


def discard(layout: Layout) -> None:
    """Remove what `prepare` made, where the program never ran."""
    for session in layout.sessions:
        refs.discard(session)


def copy_back(
    sessions: Sequence[refs.Session], narrowed: Mapping[str, Narrowed], copies: Sequence[ConfigCopy] = ()
) -> list[tuple[str, str]]:
    """Do on the host, after the inspection, what was done to copies of settings and refs, and set back what was not to
    be changed. Return (ref or setting, what was not done or not allowed)."""
    from omac.adapters.git.git_place import led_to

    refusals: list[tuple[str, str]] = []
    gits = {*(session.common for session in sessions), *narrowed, *(copy.git for copy in copies)}
    left_out = "changes of its refs and settings were not copied back"
    lost = sorted(git for git in gits if led_to(git) != git)
    unchanged = {copy.git for copy in copies if copy.git != copy.common and copy.after == copy.before}
    unchanged -= {*narrowed, *(os.path.dirname(session.folder) for session in sessions)}
    for git in lost:
        if git in unchanged and not os.path.lexists(git):
            continue  # another worktree, which a person removed: there is nothing to copy back
        refusals.append((git, f"{BEHIND_A_LINK if os.path.lexists(git) else 'was moved or removed'}: {left_out}"))

    def is_left(*paths: str) -> bool:
        return not any(below_any(path, lost) for path in paths)

    sessions = [session for session in sessions if is_left(session.common, session.folder)]
    copies = [copy for copy in copies if is_left(copy.git, copy.path)]
    for copy in copies:
        copy.collect()  # it goes with the session's folder
    for session in sessions:
        refusals += [(f"{session.common}: {ref}", refusal) for ref, refusal in refs.copy_back(session)]
    for git, before in narrowed.items():
        from omac.adapters.git.set_back import set_back  # seldom needed

        if is_left(git):
            refusals += [(f"{git}: {ref}", refusal) for ref, refusal in set_back(git, before.refs, before.own)]
    for copy in copies:
        refusals += [(f"{copy.path}: {key}", refusal) for key, refusal in copy.copy_back()]
    return refusals


def _add(
    layout: Layout,
    folders: Folders,
    repository: Repository,
    choices: GitChoices,
    users: config_targets.TargetSettings,
    home: str,
) -> list[str]:
    """The entries of one repository; returns warnings. Raises Refusal."""
    workdir = layout.workdir
    common, git = repository.common, repository.git
    settings = config_targets.TargetSettings()
    settings.add(f"{common}/config", home)
    settings.add(f"{git}/config.worktree", home)
    is_reftable = reftable.is_used(settings.pairs)
    if is_reftable:
        reftable.require_git(common)
    if repository.kind == LINKED and not below(common, workdir):
        session = next((known for known in layout.sessions if known.common == common), None)
        if session is None:
            session = refs.session_of(common, git, narrowed=choices.refs == "branch")
            layout.sessions.append(session)
            layout.copies.append(ConfigCopy(f"{common}/config", git, common, f"{session.folder}/config"))
        folders.linked(git, common, session.folder, refs=session.narrowed)
    else:
        folders.whole_folder(common, outside=not below(common, workdir))
        if is_reftable:
            folders.warnings.append(reftable.NO_COMMITS.format(common))
    if repository.kind not in (PLAIN, BARE):
        folders.pin_pointer(repository.dot)
    settings.pairs += users.pairs
    _pin_configured(folders, settings, repository.root, home)
    layout.repositories.append(repository)
    return settings.warnings


def _add_nested(
    layout: Layout,
    folders: Folders,
    pins: Pins,
    root: str,
    choices: GitChoices,
    users: config_targets.TargetSettings,
    home: str,
) -> list[str]:
    """The entries of a repository in the workdir, or a pin where what it says cannot be trusted; returns warnings."""
    before = (dict(pins.entries), folders.state(), list(layout.sessions), list(layout.copies))
    try:
        repository = identify(root, layout.workdir)
        if repository is None:
            return []
        if layout.agents and not below(repository.common, layout.workdir):
            folders.pin_pointer(repository.dot)  # a worktree of some project that the agent has made for itself
            return []
        return _add(layout, folders, repository, choices, users, home)
    except Refusal as refusal:
        pins.entries, state, layout.sessions, layout.copies = before
        folders.restore(state)
        held = f"{root}/.git" if mode_of(f"{root}/.git") else root
        if not os.path.islink(held):
            pins.pin(held, "git: what it says cannot be trusted")
        # An agent's worktree outlives its project, and gets nothing anyway: that is no news at every launch.
        is_worktree = layout.agents and stat.S_ISREG(mode_of(f"{root}/.git"))
        return [] if is_worktree else [f"nothing is granted for {root}: {refusal.message}"]


def _pin_configured(folders: Folders, settings: config_targets.TargetSettings, root: str, home: str) -> None:
    """Pin what settings make git run or read in the tree. Raises Refusal."""
    for path, made, why in config_targets.targets(settings, root, home):
        folders.in_tree(path, made, why)


def _pin_for_those_around(folders: Folders, users: config_targets.TargetSettings, workdir: str, home: str) -> list[str]:
    """Pin what repositories around the workdir make git run or read there; returns warnings. Raises Refusal."""
    warnings: list[str] = []
    for root, common, settings in around.repositories(workdir, home):
        settings.pairs += users.pairs
        _pin_configured(folders, settings, root, home)
        folders.hook_links(f"{common}/hooks")
        warnings += settings.warnings
    return warnings


def _skip_hooks(layout: Layout, own: Repository, named: str, choices: GitChoices) -> None:
    """Remember hooks that do not run inside; those in the workdir do, and in other places they are not there."""
    if named and not below(named, layout.workdir):
        layout.skipped_hooks = SkippedHooks(named, own, f"--read {quoted(named)}")
    elif not named and choices.hooks == "deny":
        layout.skipped_hooks = SkippedHooks(f"{own.common}/hooks", own, "omac settings set git.hooks read")


def _inspected(layout: Layout, folders: Folders, pins: Pins, obeyed: Iterable[str]) -> None:
    """Add the git folders that are inspected by themselves: those in another one are by way of it; and what settings
    name. No checkout may write that, nor what is `obeyed`."""
    roots: dict[str, str] = {}
    for repository in layout.repositories:
        # a git folder in its own worktree is found a second time, as a bare one
        roots.setdefault(repository.git, repository.root)
    gits = (*folders.whole, *folders.admins, *(session.common for session in layout.sessions))
    pinned = (entry.path for entry in pins.entries.values() if entry.access != WRITE)
    named = [path for path in pinned if not path.endswith("/.git") and not below_any(path, gits)]
    layout.named = dict.fromkeys(named, BY_GIT)
    kept = (*obeyed, *layout.named)
    layout.named |= dict.fromkeys(folders.absent, BY_GIT)

    def within(root: str) -> tuple[str, ...]:
        return tuple(path[len(root) + 1 :] for path in kept if path.startswith(f"{root}/"))

    for git in folders.whole:
        root = roots.get(git, os.path.dirname(git))
        layout.folders[git] = Folder(WHOLE, root, git, pinned=within(root))
    for session in layout.sessions:
        layout.folders[session.common] = Folder(
            WHOLE, "", session.common, only=(*SHARED, "objects", "logs", "refs", "worktrees")
        )
    for git in folders.admins:
        common = next((repository.common for repository in layout.repositories if repository.git == git), "")
        if common:
            layout.folders[git] = Folder(ADMIN, roots[git], common, pinned=within(roots[git]))


def _narrow(layout: Layout, folders: Folders, choices: GitChoices) -> None:
    """Remember, with `git.refs = branch`, the refs that the sandbox can write: they are set back at the end."""
    if choices.refs != "branch":
        return
    for git in folders.whole:
        layout.narrowed[git] = Narrowed(refs.direct_refs(git), refs.own_branch(git, git))
