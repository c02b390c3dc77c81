"""Ports: what the services ask of the outside world. Adapters implement these protocols; nothing else is shared."""

from collections.abc import Sequence
from typing import Protocol

from omac.domain.sidecar import Birth, Exit, SidecarSpec
from omac.domain.skill import FoundSkill, Health


class SpawnFailed(Exception):
    """The operating system would not start the sidecar; the text says why and what to do."""


class ProbeFailed(Exception):
    """The sidecar did not become healthy in time; the text says what was seen."""


class SidecarProcess(Protocol):
    """A sidecar that runs. All its processes end when it is stopped, and when omac dies."""

    @property
    def birth(self) -> Birth:
        """What identifies it on this host."""

    async def probe(self, health: Health) -> None:
        """Return once it answers 2xx on its own port and owns that port. Raises ProbeFailed."""

    def listens(self) -> bool:
        """Whether it, and nobody else, still listens on its port."""

    async def wait(self) -> Exit:
        """Return when it has ended; any number of tasks may wait, and cancelling a wait leaves it running."""

    async def stop(self, grace_ms: int) -> Exit:
        """SIGTERM, `grace_ms` later SIGKILL; return when nothing of it is left."""


class SidecarHost(Protocol):
    """Starts sidecars, and ends those that an earlier run left behind."""

    async def spawn(self, label: str, spec: SidecarSpec) -> SidecarProcess:
        """Start it on a free loopback port; `label` names its log file. Raises SpawnFailed."""

    async def end_orphan(self, birth: Birth) -> bool:
        """Kill what `birth` identifies, wrappers and children included; False if it was already gone."""


class SkillFolders(Protocol):
    """Project directories and the skills in them, on disk."""

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        """The canonical path of a directory under one of `roots` (canonical too).

        Raises Refusal: bad-request, directory-missing, not-a-directory, outside-roots.
        """

    async def discover(self, workdir: str, bases: Sequence[str]) -> list[FoundSkill]:
        """Skills with a sidecar (an omac.yaml), first hit per name wins, in the order of `bases`."""

    async def bundle_hash(self, source: str) -> str:
        """The bundle hash of a skill folder as it is now. Raises OSError."""
