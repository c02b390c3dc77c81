"""The composition of a sandbox: what was asked, what the machine has and what omac guards, put together as one policy.

Later entries count more for the same path: the system, the agent's folders, the program itself, the working
directory, what was granted by name; then what nobody can grant away: credentials, git's own files, omac's own.
"""

from __future__ import annotations

import os

from omac.adapters.caches import tree
from omac.adapters.git import layout, user_config
from omac.adapters.git.program import ConfigList
from omac.adapters.linux import host_programs
from omac.adapters.linux.home import home_of
from omac.adapters.linux.resolve_symlinks import trail
from omac.adapters.sandbox import baseline, program, protected
from omac.adapters.sandbox.placeholders import Placeholders
from omac.domain.harness.table import harness_named
from omac.domain.kernel import state_paths
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Reason, Refusal, look_at
from omac.domain.sandbox import environment as variables
from omac.domain.sandbox import tool_cache
from omac.domain.sandbox.confinement import (
    COPY,
    DENY,
    PRIVATE,
    READ,
    REPLACEABLE,
    WRITE,
    Entry,
    Policy,
    governing,
    ordered,
)
from omac.domain.sandbox.hidden_names import HiddenNames
from omac.tools.compose.sandbox_choices import choices_of, refuse_links
from omac.tools.compose.sandbox_hidden import HiddenSearch
from omac.tools.hotpath.sandbox_options import unresolved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.adapters.caches.tree import ToolCache
    from omac.adapters.git.layout import Layout
    from omac.adapters.sandbox.limits import Enforcement
    from omac.tools.compose.sandbox_choices import Choices
    from omac.tools.hotpath.sandbox_options import SandboxRequest

RUN = "/run/omac"  # inside: what a server hands to its agent
TEMPORARY = "/tmp"  # noqa: S108  # inside: a folder of the sandbox's own
EPHEMERAL = "/run/omac/cache"
PATH_FOLDERS_MAX = 3  # that a warning names


class SandboxPlan:
    """Everything that is needed to launch, or to explain. `layouts` are by the folder they were found in; `backend` is
    what was asked for, or what is used instead; `exposed`: the program can write omac's own files;
    `config_lists` are git's settings, by folder."""

    __slots__ = (
        "argv",
        "backend",
        "cache",
        "choices",
        "config_lists",
        "enforcement",
        "exposed",
        "harness",
        "layouts",
        "placeholders",
        "policy",
        "search",
        "state",
    )

    def __init__(self, state: str, harness: str, choices: Choices) -> None:
        self.state = state
        self.harness = harness
        self.choices = choices
        self.backend = ""
        self.layouts: dict[str, Layout] = {}
        self.config_lists: dict[str, ConfigList] = {}
        self.placeholders = Placeholders(state)
        self.search = HiddenSearch(HiddenNames(env_files=not choices.allow_env_files, patterns=choices.deny_names))
        self.cache: ToolCache | None = None
        self.argv: list[str] = []
        self.exposed = False
        self.policy: Policy
        self.enforcement: Enforcement | None = None  # None: nothing is limited

    def use(self, backend: str) -> None:
        """Be for this backend: what enforces the limits depends on it. Raises Refusal (limit-unenforceable)."""
        self.backend = backend
        if self.choices.limits:
            from omac.adapters.sandbox import limits
            from omac.tools.compose.sandbox_backends import namespaced

            self.enforcement = limits.plan(self.choices.limits, namespaced=namespaced(backend))


def plan(asked: SandboxRequest, host: Mapping[str, str], listing: ConfigList | None = None) -> SandboxPlan:
    """The policy for what was asked, and what goes with it; `listing`, if any, is of git's settings in the working
    directory. Raises Refusal.

    Makes the tool cache and takes locks, unless this is only to be explained; nothing else is changed.
    """
    home = os.path.realpath(home_of(host))
    begun: dict[str, ConfigList] = {listing.folder: listing} if listing else {}
    try:
        trees = _trees(asked, home)
        for one in trees:
            if one not in begun and not _within(one, trees):
                begun[one] = ConfigList(one, host)  # git works meanwhile
        return _planned(asked, host, home, trees, begun)
    finally:
        for early in begun.values():
            early.discard()


def _planned(
    asked: SandboxRequest, host: Mapping[str, str], home: str, trees: list[str], begun: dict[str, ConfigList]
) -> SandboxPlan:
    """The same; `begun` is the listing of git's settings in each tree."""
    state = os.path.realpath(state_paths.state(host, home))
    made = SandboxPlan(state, asked.harness, choices_of(asked, host, home, trees))
    made.config_lists = begun
    if not asked.explain:
        made.placeholders.hold()
    granted = _granted(made.choices, home)
    for path in (*trees, *(one.path for one in granted)):
        _refuse_own(path, state, "omac's own and in no sandbox", "omac status")
        _refuse_own(path, tree.root_of(host), "where each project's tools have a cache of their own", "omac cache list")
    if not made.choices.ephemeral_cache:
        made.cache = (tree.cache_of if asked.explain else tree.open_cache)(trees[0], host)
    entries, warnings = _entries(asked, host, home, made, trees, granted)
    hidden = _hidden(host, state)
    entries += _held(entries, hidden)
    names = made.search.entries(entries, [one for layout in made.layouts.values() for one in layout.repositories])
    environment = _environment(asked, host, home, made, trees[0])
    made.use(made.choices.backend)
    made.policy = Policy(
        trees[0],
        ordered([*baseline.placed(entries), *names]),
        environment,
        hidden=hidden,
        network=made.choices.network,
        ports=made.choices.ports,
        limits=made.choices.limits,
        fence=tuple(path for one in made.layouts.values() for path in one.fence),
        warnings=(
            *made.choices.warnings,
            *warnings,
            *made.search.warnings(),
            *_untrusted(host, entries),
            *variables.told(environment),
        ),
    )
    return made


def _entries(
    asked: SandboxRequest, host: Mapping[str, str], home: str, made: SandboxPlan, trees: list[str], granted: list[Entry]
) -> tuple[list[Entry], list[str]]:
    """All entries, in the order in which they count, and what a person should know about them."""
    kept, warnings = _of_harness(asked, host, home)
    writable = [*trees, *(one.path for one in (*granted, *kept) if one.access == WRITE)]
    found = program.resolve(asked.command, host, trees[0], writable) if asked.command else None
    made.argv = list(found.argv) if found else []
    copies, told = user_config.entries(home, host, agent=asked.ssh_agent, writable=writable)
    entries = [*baseline.system_entries(host, os.geteuid(), writable), baseline.home_entry(home), *kept, *copies]
    entries += _handed_in(asked, host)
    entries += [Entry(one, WRITE, "--root" if at else "working directory") for at, one in enumerate(trees)]
    entries += granted
    entries += _caches(made, host)
    own = program.own_installation(host)
    dots = protected.dot_entries(home, entries)
    emptied = [*entries, *(Entry(one.path, PRIVATE, one.reason) for one in dots)]
    needed = [*(found.entries if found else ()), *own, *_toolchains(host, home, writable, emptied)]
    entries += [*dots, *baseline.uncovered(emptied, needed)]
    entries += protected.protected_entries(home, entries)
    exposed = baseline.exposed(own, entries)
    made.exposed = bool(exposed)
    warnings += [*told, *(found.warnings(entries) if found else ()), *exposed]
    trees_written = [*trees, *(one.path for one in granted if one.access == WRITE)]
    warnings += _add_git(made, entries, trees_written, kept, home)
    entries += [Entry(path, DENY, "--deny") for path in made.choices.deny]
    made.search.readable(entries, granted)
    warnings += [
        f"--deny {path} hides nothing: --deny works only on paths that exist at launch"
        for path in made.choices.deny
        if not os.path.lexists(path)
    ]
    configuration = os.path.realpath(state_paths.configuration(host, home))
    around = governing(entries, configuration)
    if around is not None and around.access == WRITE and os.path.isdir(os.path.dirname(configuration)):
        missing = "" if os.path.lexists(configuration) else "folder"
        entries.append(Entry(configuration, READ, "omac's own settings", made=missing))
    return entries, warnings


def _untrusted(host: Mapping[str, str], entries: list[Entry]) -> list[str]:
    """Return one line that names the folders of the user's PATH which the program can write; none without them.

    A folder that is not absolute is one of the project's, wherever in that a shell is.
    """
    writable = [entry.path for entry in entries if entry.access == WRITE and entry.source == entry.path]
    path = host.get("PATH") or variables.DEFAULT_PATH
    relative = [folder or "." for folder in path.split(":") if not folder.startswith("/")]
    folders = list(dict.fromkeys((*host_programs.untrusted_folders(path, writable), *relative)))
    if not folders:
        return []
    more = f" and {len(folders) - PATH_FOLDERS_MAX} more" if len(folders) > PATH_FOLDERS_MAX else ""
    named = ", ".join(folders[:PATH_FOLDERS_MAX]) + more
    return [f"PATH leads to {named}: the program can write there what your shell runs next; omac runs nothing of it"]


def _held(entries: list[Entry], hidden: tuple[str, ...]) -> list[Entry]:
    """The folders between what may be written and what is kept from it in there, bound onto themselves: a mount stays
    with what it is on, but not with its path, if a folder above can be moved away and another put in its place."""
    last = ordered(entries)
    named = {entry.path for entry in last}
    writable = tuple(entry.path + "/" for entry in last if entry.access == WRITE)
    kept = [path for path in (*hidden, *(one.path for one in last if one.access != WRITE)) if path.startswith(writable)]
    found: dict[str, Entry] = {}
    for path in kept:
        folder = os.path.dirname(path)
        while folder not in named and folder not in found:
            around = governing(last, folder)
            there = os.path.isdir(folder)
            if around is None or around.access != WRITE or not (there or path in hidden):
                break
            made = "" if there else "folder"
            found[folder] = Entry(folder, WRITE, "what is kept in it stays in its place", made=made)
            folder = os.path.dirname(folder)
    return list(found.values())


def _toolchains(host: Mapping[str, str], home: str, writable: list[str], entries: list[Entry]) -> list[Entry]:
    """What PATH names in the home."""
    folders = program.path_outside_system(host.get("PATH", ""))
    if not folders:
        return []
    from omac.adapters.sandbox.toolchains import toolchain_entries

    return toolchain_entries(folders, host, home, writable, entries)


def _of_harness(asked: SandboxRequest, host: Mapping[str, str], home: str) -> tuple[list[Entry], list[str]]:
    if not asked.harness:
        return [], []
    return baseline.harness_entries(harness_named(asked.harness), home, host)


def _handed_in(asked: SandboxRequest, host: Mapping[str, str]) -> list[Entry]:
    """Sockets and the token by which it reaches what is outside."""
    entries = [user_config.agent_entry(host)] if asked.ssh_agent else []
    if asked.control_token:
        entries.append(Entry(f"{RUN}/control.token", COPY, "the way to omac", content=_content(asked.control_token)))
    if asked.facade_socket:
        source = os.path.realpath(asked.facade_socket)
        entries.append(Entry(f"{RUN}/facade.sock", READ, "the way to the skills", source=source))
    return entries


def _caches(made: SandboxPlan, host: Mapping[str, str]) -> list[Entry]:
    """This project's tool cache, and no other's, whatever was granted around them."""
    if made.cache:
        return [*tree.entries(made.cache)]
    return [
        Entry(tree.root_of(host), DENY, "tool caches of other workdirs"),
        Entry(EPHEMERAL, PRIVATE, "tool caches, gone with the sandbox"),
    ]


def _granted(choices: Choices, home: str) -> list[Entry]:
    """What was granted by name. A path that a person typed must be there."""
    found = []
    for access, paths in ((READ, choices.read), (WRITE, choices.allow)):
        flag = "--allow" if access == WRITE else "--read"
        for path in paths:
            if not os.path.lexists(path):
                raise Refusal(
                    "directory-missing",
                    f"{flag} {path}: no such file or directory",
                    fix=[look_at(os.path.dirname(path))],
                )
            if path == "/":
                fix = ["omac sandbox run --explain -- true  # shows what is granted already"]
                raise Refusal(
                    "misuse", f"{flag} / would grant the whole file system: name the folders that it needs", fix=fix
                )
            if access == WRITE:
                _refuse_home(path, flag, home)
            found.append(Entry(path, access, flag))
    return found


def _add_git(made: SandboxPlan, entries: list[Entry], trees: list[str], agents: list[Entry], home: str) -> list[str]:
    """git's own files in everything that can be written, in what an agent keeps as well. Returns what a person should
    know."""
    kept = [one.path for one in agents if one.access == WRITE]
    obeyed = [one.path for one in agents if one.access == READ]
    warnings: list[str] = []
    asked = layout.GitChoices(made.choices.git_hooks, made.choices.git_refs, "shared")
    for one in trees:
        if one not in made.layouts and not _within(one, trees) and os.path.isdir(one):
            made.layouts[one] = layout.look(
                one, asked, home, made.search.look(one), config_list=made.config_lists.get(one)
            )
    for one in kept:
        if one not in made.layouts and not _within(one, [*kept, *trees]) and os.path.isdir(one):
            users = None if os.path.lexists(f"{one}/.git") else next(iter(made.config_lists.values()), None)
            made.layouts[one] = layout.look(one, asked, home, config_list=users, is_agents=True, obeyed=obeyed)
    for one, seen in made.layouts.items():
        for repository in seen.repositories:
            # A worktree beside its own clone: the clone's folder is there as a whole, with the clone's own pins.
            if any(one != other and below(repository.common, other) for other in made.layouts):
                layout.leave_out(seen, repository.common)
        own = {repository.git for other in made.layouts.values() for repository in other.repositories}
        entries += [entry for entry in seen.entries if entry.access != READ or entry.path not in own]
        warnings += seen.warnings
    if any(one.copies for one in made.layouts.values()):
        entries.append(Entry(REPLACEABLE, PRIVATE, "git: copies of settings, which git may write"))
    return warnings


def _within(one: str, trees: list[str]) -> bool:
    """Whether a folder lies in another of them, and is looked at from there."""
    return any(one != other and below(one, other) for other in trees)


def _environment(
    asked: SandboxRequest, host: Mapping[str, str], home: str, made: SandboxPlan, workdir: str
) -> dict[str, str]:
    auth = harness_named(asked.harness).auth_variables if asked.harness else ()
    cache = made.cache.path if made.cache else EPHEMERAL
    own = tool_cache.variables(cache, made.choices.redirect_xdg, ephemeral=made.cache is None)
    own |= {"HOME": home, "PWD": workdir, "TMPDIR": TEMPORARY, "OMAC_SANDBOX": "1", "OMAC_WORKDIR": workdir}
    if asked.control_token:
        own["OMAC_CONTROL_TOKEN_FILE"] = f"{RUN}/control.token"
    if asked.facade_socket:
        own["OMAC_SOCKET"] = f"{RUN}/facade.sock"
    if asked.ssh_agent:
        own["SSH_AUTH_SOCK"] = host["SSH_AUTH_SOCK"]
    if made.choices.guard_scratch:
        own["OMAC_GUARD_SCRATCH"] = made.choices.guard_scratch
    network = made.choices.network
    return variables.filtered(host, given=made.choices.env, auth=auth, additions=own, network=network)


def _hidden(host: Mapping[str, str], state: str) -> tuple[str, ...]:
    """What is omac's own, wherever it was put."""
    found = [state]
    for variable, endings in (("OMAC_JOURNAL", ("", "-wal", "-shm")), ("OMAC_VAULT_KEY_FILE", ("",))):
        if (path := host.get(variable, "")) and "://" not in path:
            found += [os.path.realpath(path) + ending for ending in endings]
    return tuple(found)


def _trees(asked: SandboxRequest, home: str) -> list[str]:
    """The canonical folders it may change, the working directory first."""
    typed = [(asked.workdir or ".", "--workdir"), *((root, "--root") for root in asked.roots)]
    walked = [(path, flag, *trail(unresolved(path, home))) for path, flag in typed]
    trees = [real for _, _, _, real in walked]
    for path, flag, links, real in walked:
        refuse_links(path, links, trees)
        if not os.path.isdir(real):
            reason: Reason = "not-a-directory" if os.path.lexists(real) else "directory-missing"
            raise Refusal(reason, f"{flag} {path}: no such directory: {real}", fix=[look_at(os.path.dirname(real))])
        _refuse_home(real, flag, home)
    return trees


def _refuse_home(path: str, flag: str, home: str) -> None:
    """Whoever can write to a home folder writes what its owner's shell runs next."""
    if below(home, path):
        what = "your home folder" if path == home else "above your home folder"
        raise Refusal(
            "misuse",
            f"{flag} {path} is {what}: an agent could change what your shell runs next",
            fix=["cd ~/projects/shop  # the project to work in", "omac sandbox run --workdir DIR -- make"],
        )


def _refuse_own(path: str, own: str, what: str, instead: str) -> None:
    if below(path, own):
        raise Refusal("misuse", f"{path} is in {own}, which is {what}", fix=[instead])


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 16)
