"""The adapters of a sandbox, put together for `omac.services.sandbox`: the only module that knows both.

Adapters that few launches need are loaded when they are called.
"""

from __future__ import annotations

import os

from omac.adapters.caches import tree
from omac.adapters.files import journal_in_use
from omac.adapters.git import layout, user_config
from omac.adapters.git.launch_inspection import LaunchInspection, inspect_due
from omac.adapters.git.program import ConfigList
from omac.adapters.git.tree import walk
from omac.adapters.sandbox import backends, baseline, program, protected
from omac.adapters.sandbox.placeholders import Placeholders
from omac.domain.kernel import state_paths
from omac.domain.kernel.refusal import Refusal
from omac.tools.compose.clock import now_ns
from omac.tools.compose.settling_ports import SettlingAdapters
from omac.tools.hotpath import code_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from omac.adapters.git.tree import TreeContents
    from omac.adapters.linux.background import Background
    from omac.adapters.sandbox.limits import Enforcement, LaunchLimits
    from omac.adapters.sandbox.replaceable import Replaceable
    from omac.adapters.sandbox.vanishing import VanishingFolder
    from omac.domain.harness.harness import Harness
    from omac.domain.sandbox.confinement import Closing, Entry
    from omac.domain.sandbox.hidden_names import HiddenNames
    from omac.domain.sandbox.request import SandboxRequest
    from omac.journal.spool import Spool
    from omac.services.sandbox import ports

SPOOLED_MAX = 1_500  # records that wait, three of a launch: to take them in takes a second


class _Git:
    """git's files, around a launch."""

    list_config = staticmethod(ConfigList)
    leave_out = staticmethod(layout.leave_out)
    prepare = staticmethod(layout.prepare)
    discard = staticmethod(layout.discard)

    @staticmethod
    def walk(folder: str, entries_max: int, names: HiddenNames, left_out: Iterable[str]) -> TreeContents:
        return walk(folder, entries_max, names, frozenset(left_out))

    @staticmethod
    def lay_out(
        folder: str, request: SandboxRequest, home: str, found: TreeContents | None, listing: ConfigList | None,
        closed: Closing, obeyed: Sequence[str] | None = None,
    ) -> layout.Layout:  # fmt: skip
        choices, is_agents = layout.GitChoices(request.git_hooks, request.git_refs), obeyed is not None
        return layout.lay_out(
            folder, choices, home, found, config_list=listing, is_agents=is_agents, obeyed=obeyed or (), closed=closed
        )

    @staticmethod
    def unshare(objects: str) -> list[str]:
        from omac.adapters.git.shared_objects import unshare

        return unshare(objects)


class _Sandboxing:
    """Backends and limits."""

    chosen = staticmethod(backends.chosen)
    namespaced = staticmethod(backends.namespaced)
    placeholders = staticmethod(Placeholders)

    @staticmethod
    def enforcement(limits: Mapping[str, float], *, namespaced: bool) -> Enforcement:
        from omac.adapters.sandbox.limits import plan

        return plan(limits, namespaced=namespaced)

    @staticmethod
    def limited(enforcement: Enforcement, name: str) -> LaunchLimits:
        from omac.adapters.sandbox.limits import begin

        return begin(enforcement, name)

    @staticmethod
    def replaceable(files: Mapping[str, bytes]) -> Replaceable:
        from omac.adapters.git.pointers import CONFIG_BYTES_MAX
        from omac.adapters.sandbox.replaceable import Replaceable

        return Replaceable(files, CONFIG_BYTES_MAX)

    @staticmethod
    def vanishing(init: int, path: str, entries: Iterable[Entry], restored: Iterable[str]) -> VanishingFolder:
        from omac.adapters.sandbox.vanishing import VanishingFolder

        return VanishingFolder(init, path, entries, restored)


class SandboxAdapters(SettlingAdapters):
    """The adapters that a sandbox's policy and launch need, for an environment; `report` prints a line for a person."""

    base: ports.BasePort = baseline
    protected: ports.ProtectedPort = protected
    programs: ports.ProgramsPort = program
    caches: ports.CachesPort = tree
    user_config: ports.UserConfigPort = user_config
    git: ports.GitPort = _Git()
    sandboxing: ports.SandboxingPort = _Sandboxing()
    load = staticmethod(code_cache.load)
    stop_loading = staticmethod(code_cache.stop)
    now_ns = staticmethod(now_ns)
    user = staticmethod(os.geteuid)
    distrust = staticmethod(journal_in_use.distrust)

    def __init__(self, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        super().__init__(environment)
        self.state = os.path.realpath(state_paths.state(environment, self.home))
        self.report = report

    @property
    def hidden_files(self) -> ports.HiddenFilesPort:
        """Files that are hidden, as git has them; most launches ask only while the sandbox is built."""
        from omac.adapters.git import hidden_files

        return hidden_files

    def inspection(
        self, name: str, layouts: Sequence[layout.Layout], harness: Harness | None, *, fence: bool,
        record: ports.RecordInspected,
    ) -> LaunchInspection:  # fmt: skip
        """Return the inspection around a launch."""
        return LaunchInspection(
            name, layouts, self.state, now_ns(), fence=fence, report=self.report, record=record,
            unjudged=(os.path.realpath(tree.root_of(self.environment)),),
            files_of_settings=lambda project: baseline.files_of_settings(project, self.home, self.environment, harness),
        )  # fmt: skip

    def inspect_due(self, record: ports.RecordInspected) -> bool:
        """Inspect what launches that were killed have left; return whether nothing is left to inspect."""
        return inspect_due(self.state, self.report, record)

    def toolchains(self, folders: list[str], writable: list[str], entries: list[Entry]) -> list[Entry]:
        """The entries of toolchains in folders of PATH."""
        from omac.adapters.sandbox.toolchains import toolchain_entries

        return toolchain_entries(folders, self.environment, self.home, writable, entries)

    def spool(self, run: str = "") -> Spool:
        """Open the spool of the journal in use. Raises Refusal."""
        from omac.journal.spool import Spool

        journal = journal_in_use.journal_in_use(self.state, self.environment, run=run)
        return Spool(journal_in_use.spool_of(self.state, journal))

    def relieve_spool(self) -> None:
        """Have the journal in use take in what waits in its spool, where launches alone have filled that. What fails is
        left for the next command that needs the journal, which reports it."""
        from omac.journal.spool import waiting_in

        try:
            journal = journal_in_use.journal_in_use(self.state, self.environment)
            if len(waiting_in(journal_in_use.spool_of(self.state, journal))) >= SPOOLED_MAX:
                from omac.tools.compose.journals import take_in

                take_in(self.environment)
        except (Refusal, OSError):
            pass

    def journals(self) -> list[str]:
        """Return the journals that a variable or a run names."""
        return journal_in_use.journals(self.state, self.environment)

    def known_journals(self) -> dict[str, str]:
        """Return the journals that were ever used, each by the link that leads to it."""
        return journal_in_use.known_journals(self.state)

    def background(self, work: Callable[[], None]) -> Background:
        """Begin work in a thread."""
        from omac.adapters.linux.background import Background

        return Background(work)

    def new_id(self) -> str:
        """16 random hex digits."""
        return os.urandom(8).hex()

    def process(self) -> dict[str, object]:
        """Return the identity of this process, as records of launches have it."""
        from omac.adapters.linux import process_identity

        pid = os.getpid()
        return {"pid": pid, "start_ticks": process_identity.start_ticks(pid), "boot_id": process_identity.boot_id()}
