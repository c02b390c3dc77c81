"""The composition of a sandbox: what was asked, what the machine has and what omac guards, put together as one policy.

Later entries count more for the same path: the system, the agent's folders, the program itself, the working
directory, what was granted by name; then what nobody can grant away: credentials, git's own files, omac's own.
"""

from __future__ import annotations

from omac.domain.harness.table import harness_named
from omac.domain.kernel import state_paths
from omac.domain.kernel.paths import below, folder_of
from omac.domain.kernel.refusal import Reason, Refusal
from omac.domain.sandbox import environment as variables
from omac.domain.sandbox import tool_cache
from omac.domain.sandbox.briefing import VARIABLE, BriefingFacts, briefing
from omac.domain.sandbox.confinement import (
    ALLOWED,
    COPY,
    DENY,
    PRIVATE,
    READ,
    REPLACEABLE,
    WRITE,
    Closing,
    Entry,
    Policy,
    access_at,
    denials,
    ordered,
)
from omac.domain.sandbox.hidden_names import HiddenNames
from omac.services.sandbox.hidden import HiddenSearch
from omac.services.sandbox.own_paths import OwnPaths
from omac.services.sandbox.settled import (
    look_at,
    refuse_home,
    refuse_kernel,
    refuse_links,
    refuse_own,
    require_room,
    settled,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.sandbox.request import SandboxRequest
    from omac.services.sandbox.ports import ConfigListing, EnforcedLimits, GitLayout, SandboxPorts

RUN = "/run/omac"  # inside: what a server hands to its agent
TEMPORARY = "/tmp"  # noqa: S108  # inside: a folder of the sandbox's own
EPHEMERAL = "/run/omac/cache"
PATH_FOLDERS_MAX = 3  # that a warning names


class SandboxPlan:
    """A plan to launch a sandbox, or to explain it. `request` is settled; `layouts` are by the folder they were found
    in; `exposed`: the program can write omac's own files; `enforcement` None: nothing is limited;
    `changeable_journals` are links to those that are believed no more once the program begins."""

    def __init__(self, request: SandboxRequest, ports: SandboxPorts) -> None:
        self.request = request
        self.ports = ports
        self.layouts: dict[str, GitLayout] = {}
        self.placeholders = ports.sandboxing.placeholders(ports.state)
        names = HiddenNames(env_files=not request.allow_env_files, patterns=request.deny_names)
        self.search = HiddenSearch(names, ports)
        self.cache = ""  # the folder; empty: an ephemeral one
        self.argv: list[str] = []
        self.exposed = False
        self.changeable_journals: list[str] = []
        self.policy: Policy
        self.enforcement: EnforcedLimits | None = None

    def use(self, backend: str) -> None:
        """Set the backend: the enforcement of limits depends on it. Raises Refusal (limit-unenforceable)."""
        self.request.backend = backend
        if self.request.limits:
            sandboxing = self.ports.sandboxing
            namespaced = sandboxing.namespaced(backend)
            self.enforcement = sandboxing.enforcement(self.request.limits, namespaced=namespaced)


def plan(typed: SandboxRequest, ports: SandboxPorts, listing: ConfigListing | None = None) -> SandboxPlan:
    """The policy for what was asked, and what goes with it; `listing`, if any, is of git's settings in the working
    directory. Raises Refusal.

    Makes the tool cache and takes locks, unless this is only to be explained; nothing else is changed.
    """
    listings: dict[str, ConfigListing] = {listing.folder: listing} if listing else {}
    try:
        trees = _trees(typed, ports)
        for tree in trees:
            if tree not in listings and not _within(tree, trees):
                listings[tree] = ports.git.list_config(tree, ports.environment)  # git works meanwhile
        return _Composition(settled(typed, ports, trees), ports, trees, listings).plan()
    finally:
        for early in listings.values():
            early.discard()


class _Composition:
    """A policy while it is composed; `listings` are of git's settings, by folder."""

    def __init__(
        self, request: SandboxRequest, ports: SandboxPorts, trees: list[str], listings: dict[str, ConfigListing]
    ) -> None:
        self._request = request
        self._ports = ports
        self._host = ports.environment
        self._home = ports.home
        self._trees = trees
        self._listings = listings
        self._plan = SandboxPlan(request, ports)
        self._granted: list[Entry] = []

    def plan(self) -> SandboxPlan:
        """Return the whole of it. Raises Refusal."""
        made, request, ports = self._plan, self._request, self._ports
        if not request.explain:
            made.placeholders.hold()
        self._granted = self._grants()
        caches = ports.caches.root_of(self._host)
        own = OwnPaths(request, ports)
        for path in (*self._trees, *(entry.path for entry in self._granted)):
            for own_path in own.paths:
                refuse_own(path, own_path, "omac's own and in no sandbox", "omac status")
            refuse_own(path, caches, "where each project's tools have a cache of their own", "omac cache list")
        if not request.ephemeral_cache:
            find = ports.caches.path_of if request.explain else ports.caches.held_path
            made.cache = find(self._trees[0], self._host)
        entries, warnings = self._entries()
        own.refuse_writable(entries, self._trees)
        made.changeable_journals = own.changeable(entries, ports.known_journals())
        hidden = own.hidden(entries)
        entries += self._held(entries, hidden)
        require_room(self._granted, entries, ports)
        names = made.search.entries(
            entries,
            self._granted,
            [repository for layout in made.layouts.values() for repository in layout.repositories],
        )
        environment = self._environment()
        made.use(request.backend)
        made.policy = Policy(
            self._trees[0],
            ordered([*ports.base.placed(entries), *names]),
            environment,
            hidden=hidden,
            network=request.network,
            ports=tuple(request.open_ports),
            limits=request.limits,
            fence=tuple(path for layout in made.layouts.values() for path in layout.fence),
            warnings=(
                *request.warnings,
                *warnings,
                *made.search.warnings(),
                *self._untrusted(entries),
                *variables.warnings_of(environment, request.env, self._host),
            ),
        )
        return made

    def _entries(self) -> tuple[list[Entry], list[str]]:
        """All entries, in the order in which they count, and what a person should know about them."""
        made, request, ports, host = self._plan, self._request, self._ports, self._host
        home, granted, base, protected = self._home, self._granted, ports.base, ports.protected
        kept, warnings = self._of_harness()
        writable = [*self._trees, *(entry.path for entry in (*granted, *kept) if entry.access == WRITE)]
        command = ports.programs.resolve(request.command, host, self._trees[0], writable) if request.command else None
        made.argv = list(command.argv) if command else []
        copies, notices = ports.user_config.entries(home, host, agent=request.ssh_agent, writable=writable)
        entries = [
            *self._without_denied(base.system_entries(host, ports.user(), writable)),
            base.home_entry(home),
            *kept,
        ]
        entries += self._without_denied(copies) + self._handed_in()
        entries += [Entry(tree, WRITE, "--root" if at else "working directory") for at, tree in enumerate(self._trees)]
        entries += granted
        entries += self._caches(entries)
        own = ports.programs.own_installation(host)
        dots = protected.dot_entries(home, entries)
        emptied = [*entries, *(Entry(entry.path, PRIVATE, entry.reason) for entry in dots)]
        toolchains = self._without_denied(self._toolchains(writable, emptied))
        needed = [*(command.entries if command else ()), *own, *toolchains]
        entries += [*dots, *base.uncovered(emptied, needed)]
        entries += self._without_denied(protected.protected_entries(home, entries))
        linked, loose = protected.linked_entries(home, entries)
        entries += self._without_denied(linked)
        exposed = base.exposed(own, entries)
        made.exposed = bool(exposed)
        warnings += [*notices, *loose, *(command.warnings(entries) if command else ()), *exposed]
        entries += denials(request.deny)
        warnings += protected.second_names(entries)
        warnings += self._add_git(entries, kept)
        made.search.readable(entries, granted)
        return entries + self._configuration(entries), warnings

    def _configuration(self, entries: list[Entry]) -> list[Entry]:
        """omac's own settings, where they lie in what can be written."""
        files = self._ports.files
        configuration = files.canonical(state_paths.configuration(self._host, self._home))
        if access_at(entries, configuration) != WRITE or not files.is_folder(folder_of(configuration)):
            return []
        missing = "" if files.exists(configuration) else "folder"
        return [Entry(configuration, READ, "omac's own settings", made=missing)]

    def _untrusted(self, entries: list[Entry]) -> list[str]:
        """Return one line that names the folders of the user's PATH which the program can write; none without them.

        A folder that is not absolute is one of the project's, wherever in that a shell is.
        """
        writable = [entry.path for entry in entries if entry.access == WRITE and entry.source == entry.path]
        path = self._host.get("PATH") or variables.DEFAULT_PATH
        relative = [folder or "." for folder in path.split(":") if not folder.startswith("/")]
        folders = list(dict.fromkeys((*self._ports.files.untrusted_folders(path, writable), *relative)))
        if not folders:
            return []
        more = f" and {len(folders) - PATH_FOLDERS_MAX} more" if len(folders) > PATH_FOLDERS_MAX else ""
        named = ", ".join(folders[:PATH_FOLDERS_MAX]) + more
        return [
            f"PATH leads to {named}: the program can write there what your shell runs next; omac runs nothing of it"
        ]

    def _held(self, entries: list[Entry], hidden: tuple[str, ...]) -> list[Entry]:
        """The folders between what may be written and what is kept from it in there, bound onto themselves: a mount
        stays with what it is on, but not with its path, if a folder above is moved and another put in its place."""
        last = ordered(entries)
        named = {entry.path for entry in last}
        writable = tuple(entry.path + "/" for entry in last if entry.access == WRITE)
        kept = [
            path
            for path in (*hidden, *(entry.path for entry in last if entry.access != WRITE))
            if path.startswith(writable)
        ]
        held: dict[str, Entry] = {}
        for path in kept:
            folder = folder_of(path)
            while folder not in named and folder not in held:
                there = self._ports.files.is_folder(folder)
                if access_at(last, folder) != WRITE or not (there or path in hidden):
                    break
                made = "" if there else "folder"
                held[folder] = Entry(folder, WRITE, "what is kept in it stays in its place", made=made)
                folder = folder_of(folder)
        return list(held.values())

    def _toolchains(self, writable: list[str], entries: list[Entry]) -> list[Entry]:
        """Return entries for the toolchains in the folders of PATH outside the system."""
        folders = self._ports.programs.path_outside_system(self._host.get("PATH", ""))
        return self._ports.toolchains(folders, writable, entries) if folders else []

    def _without_denied(self, entries: list[Entry]) -> list[Entry]:
        """Return those of omac's own choice which are in no folder that the person denies."""
        trees = [Entry(tree, WRITE, "") for tree in self._trees]
        stated = [*trees, *self._granted, *denials(self._request.deny)]
        return [entry for entry in entries if access_at(stated, entry.path) != DENY]

    def _of_harness(self) -> tuple[list[Entry], list[str]]:
        if not self._request.harness:
            return [], []
        kept, warnings = self._ports.base.harness_entries(harness_named(self._request.harness), self._home, self._host)
        return self._without_denied(kept), warnings

    def _handed_in(self) -> list[Entry]:
        """Sockets and the token by which it reaches what is outside, and settings that nobody else may read."""
        request, ports = self._request, self._ports
        entries = [ports.user_config.agent_entry(self._host)] if request.ssh_agent else []
        for name, file, reason in (
            ("bridge.token", request.bridge_token, "the way to omac"),
            ("settings.json", request.agent_settings, "the agent's settings"),
        ):
            if file:
                entries.append(Entry(f"{RUN}/{name}", COPY, reason, content=ports.files.content(file)))
        for name, socket, reason in (
            ("bridge.sock", request.bridge_socket, "the way to omac"),
            ("facade.sock", request.facade_socket, "the way to the skills"),
        ):
            if socket:
                entries.append(Entry(f"{RUN}/{name}", READ, reason, source=ports.files.canonical(socket)))
        return entries

    def _caches(self, entries: list[Entry]) -> list[Entry]:
        """Return entries that grant this project's tool cache, and deny all others, whatever `entries` grant around
        them."""
        root, files, others = self._ports.caches.root_of(self._host), self._ports.files, "tool caches of other workdirs"
        if self._plan.cache:
            return [Entry(root, DENY, others), Entry(self._plan.cache, WRITE, "tool cache of the workdir")]
        can_make = access_at(entries, root) == WRITE and files.is_folder(folder_of(root))
        missing = "folder" if can_make and not files.exists(root) else ""
        return [
            Entry(root, DENY, others, made=missing),
            Entry(EPHEMERAL, PRIVATE, "tool caches, gone with the sandbox"),
        ]

    def _grants(self) -> list[Entry]:
        """Return entries for the paths granted by name. Raises Refusal: directory-missing (a typed path does not
        exist), misuse."""
        entries = []
        for access, paths in ((READ, self._request.read), (WRITE, self._request.allow)):
            flag = ALLOWED if access == WRITE else "--read"
            for path in paths:
                if not self._ports.files.exists(path):
                    message = f"{flag} {path}: no such file or directory"
                    raise Refusal("directory-missing", message, fix=[look_at(path, self._ports.files)])
                if path == "/":
                    fix = ["omac sandbox run --explain -- true  # shows what is granted already"]
                    raise Refusal(
                        "misuse", f"{flag} / would grant the whole file system: name the folders that it needs", fix=fix
                    )
                refuse_kernel(path, flag, access)
                if access == WRITE:
                    refuse_home(path, flag, self._home)
                entries.append(Entry(path, access, flag))
        return entries

    def _add_git(self, entries: list[Entry], agents: list[Entry]) -> list[str]:
        """git's own files in everything that can be written, in what an agent keeps as well. Returns what a person
        should know."""
        layouts, git, search, request = self._plan.layouts, self._ports.git, self._plan.search, self._request
        is_folder, exists = self._ports.files.is_folder, self._ports.files.exists
        trees = [*self._trees, *(entry.path for entry in self._granted if entry.access == WRITE)]
        kept = [entry.path for entry in agents if entry.access == WRITE]
        obeyed = [entry.path for entry in agents if entry.access == READ]
        for tree in trees:
            if tree not in layouts and not _within(tree, trees) and is_folder(tree):
                files = search.search(tree, is_granted=tree not in self._trees)
                listing, closed = self._listings.get(tree), Closing(entries, tree)
                layouts[tree] = git.lay_out(tree, request, self._home, files, listing, closed)
        for folder in kept:
            if folder not in layouts and not _within(folder, [*kept, *trees]) and is_folder(folder):
                users = None if exists(f"{folder}/.git") else next(iter(self._listings.values()), None)
                closed = Closing(entries, folder)
                files = search.search_agents(folder)
                layouts[folder] = git.lay_out(folder, request, self._home, files, users, closed, obeyed)
        warnings: list[str] = []
        for folder, layout in layouts.items():
            for repository in layout.repositories:
                # A worktree beside its own clone, or a project in an agent's folder: the innermost folder has the pins.
                if max([at for at in layouts if below(repository.common, at)], key=len, default=folder) != folder:
                    git.leave_out(layout, repository.common)
            own = {repository.git for other in layouts.values() for repository in other.repositories}
            entries += [entry for entry in layout.entries if entry.access != READ or entry.path not in own]
            warnings += layout.warnings
        if any(layout.copies for layout in layouts.values()):
            entries.append(Entry(REPLACEABLE, PRIVATE, "git: copies of settings, which git may write"))
        return warnings

    def _environment(self) -> dict[str, str]:
        made, request, host, workdir = self._plan, self._request, self._host, self._trees[0]
        auth = harness_named(request.harness).auth_variables(host) if request.harness else ()
        cache = made.cache or EPHEMERAL
        own = tool_cache.variables(cache, request.redirect_xdg, ephemeral=not made.cache)
        own |= {"HOME": self._home, "PWD": workdir, "TMPDIR": TEMPORARY, "OMAC_SANDBOX": "1", "OMAC_WORKDIR": workdir}
        if request.bridge_token:
            own["OMAC_CONTROL_TOKEN_FILE"] = f"{RUN}/bridge.token"
        if request.bridge_socket:
            own["OMAC_CONTROL_SOCKET"] = f"{RUN}/bridge.sock"
        if request.facade_socket:
            own["OMAC_SOCKET"] = f"{RUN}/facade.sock"
        if request.ssh_agent:
            own["SSH_AUTH_SOCK"] = host["SSH_AUTH_SOCK"]
        if request.run:  # by a server or a start: what it launches is told where it is
            kept, shown = bool(made.cache), request.allow_env_files
            ports = tuple(request.open_ports)
            own[VARIABLE] = briefing(BriefingFacts(tuple(self._trees), cache, kept, request.network, not shown, ports))
        if request.guard_scratch:
            own["OMAC_GUARD_SCRATCH"] = request.guard_scratch
        folders = [repository.git for layout in made.layouts.values() for repository in layout.repositories]
        given = (*variables.named_index(host, workdir, folders), *request.env)
        return variables.filtered(host, given=given, auth=auth, additions=own, network=request.network)


def _within(folder: str, trees: list[str]) -> bool:
    """Return whether a folder lies in another of `trees`, and so is inspected with that one."""
    return any(folder != other and below(folder, other) for other in trees)


def _trees(typed: SandboxRequest, ports: SandboxPorts) -> list[str]:
    """The canonical folders it may change, the working directory first."""
    files, home = ports.files, ports.home
    first = "--root" if typed.workdir in typed.roots else "--workdir"
    named = [(typed.workdir or ".", first), *((root, "--root") for root in typed.roots)]
    walked = [(path, flag, *files.resolve_symlinks(files.unresolved(path, home))) for path, flag in named]
    trees = [real for _, _, _, real in walked]
    for path, flag, links, real in walked:
        refuse_links(path, links, trees)
        if not files.is_folder(real):
            exists = files.exists(real)
            reason: Reason = "not-a-directory" if exists else "directory-missing"
            message = f"{flag} {path}: {'not a' if exists else 'no such'} directory: {real}"
            raise Refusal(reason, message, fix=[look_at(real, files)])
        refuse_kernel(real, flag, WRITE)
        refuse_home(real, flag, home)
    return trees
