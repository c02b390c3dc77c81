"""Ports: what the services ask of the outside world. Adapters implement these protocols; nothing else is shared."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from omac.domain.directories.skill_plan import SkillPolicy
from omac.domain.kernel.hidden import Hidden
from omac.domain.sidecars.sidecar import Birth, Exit, SidecarSpec
from omac.domain.skills.interpreter import Interpreter
from omac.domain.skills.meta import FoundSkill, Health
from omac.domain.skills.repository import WorktreeFolder


class SpawnFailed(Exception):
    """The operating system would not start the sidecar; the text says why and what to do."""


class InterpreterChanged(SpawnFailed):
    """A program of the host by which a sidecar runs is not what was approved; the text says which, and how."""


class ProbeFailed(Exception):
    """The sidecar did not become healthy in time; the text says what was seen."""


class SidecarProcess(Protocol):
    """A sidecar that runs. All its processes end when it is stopped, and when omac dies."""

    @property
    def birth(self) -> Birth:
        """The process's identity on this host."""

    async def probe(self, health: Health) -> None:
        """Return once it answers 2xx on its own port and owns that port. Raises ProbeFailed."""

    def listens(self) -> bool:
        """Return whether the sidecar, and no other process, still listens on its port, or will again."""

    def is_kept_from_writing(self) -> bool:
        """Return whether its output ends with the complaint that a file system, as that of its copy, is read-only."""

    async def wait(self) -> Exit:
        """Return when it has ended; any number of tasks may wait, and cancelling a wait leaves it running."""

    async def stop(self, grace_ms: int) -> Exit:
        """SIGTERM, `grace_ms` later SIGKILL; return when nothing of it is left."""


class SidecarHost(Protocol):
    """Starts sidecars, and ends those that an earlier run left behind."""

    async def spawn(self, label: str, spec: SidecarSpec, folder: str, secrets: Mapping[str, Hidden]) -> SidecarProcess:
        """Start it in `folder` on a free loopback port, with `secrets` in its environment and nobody else's. `label`
        names its log file. Raises SpawnFailed, InterpreterChanged."""

    async def end_orphan(self, birth: Birth) -> bool:
        """Kill what `birth` identifies, wrappers and children included; False if it was already gone."""

    async def end_unbuilt(self) -> int:
        """Kill what is left of sidecars whose omac was killed before there was a birth to report; return how many."""


class SkillFolders(Protocol):
    """Project directories and the skills in them, on disk."""

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        """The canonical path of a directory under one of `roots` (canonical too). Raises Refusal: bad-request,
        directory-missing, not-a-directory (these three below the roots only, or for the text alone), outside-roots,
        which is the same for whatever lies there."""

    async def discover(self, workdir: str, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        """Skills of a project, first hit per name wins, in the order of `bases`.

        Those with a sidecar (an omac.yaml); with `guidance` also those that are nothing but a SKILL.md.
        """

    async def discover_global(self, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        """Skills of this user, shared by all projects, in the same way: their `scope` is "global"."""

    async def bundle_hash(self, source: str) -> str:
        """The bundle hash of a skill folder as it is now. Raises OSError."""

    async def digest(self, source: str) -> str:
        """The digest over every file of a skill folder as it is now: that of a copy frozen now. Raises OSError."""


class Repositories(Protocol):
    """The git repositories that project directories are worktrees of."""

    async def of(self, workdir: str) -> WorktreeFolder | None:
        """The part of a repository that a canonical directory is; None where it is none, or only claims to be."""


class Policies(Protocol):
    """The policies by which skills are treated."""

    async def policy(self, workdir: str) -> SkillPolicy:
        """Return the policy in this directory: that of this run, narrowed by the project.

        The empty path means the skills that all directories share.
        """


class Frozen(msgspec.Struct, frozen=True):
    """An approved copy: the bundle hash of what was copied, and the digest over every file, which addresses it."""

    bundle_hash: str
    digest: str


class CopyDamaged(Exception):
    """An approved copy is not there, or not what its digest says; the text tells which file."""


class FrozenSkills(Protocol):
    """Read-only copies of approved skills, in the state directory, addressed by digest."""

    async def freeze(self, source: str) -> Frozen:
        """Copy a skill folder as it is now; nothing is copied twice. Raises Refusal (skill-invalid) naming the file
        that cannot be in a copy, OSError."""

    async def checked(self, digest: str, source: str) -> str:
        """The path of the copy made of `source`, found unchanged. Raises CopyDamaged, OSError."""


class Interpreters(Protocol):
    """The programs of the host by which sidecars run."""

    async def resolve(self, command: Sequence[str], source: str, copy: str, workdir: str) -> tuple[Interpreter, ...]:
        """Return those by which `command` runs in `copy`, the approved copy of `source`, in the order of their start.
        None of them comes from a folder that an agent of `workdir` may write. Raises Refusal (skill-invalid)."""


class VaultKeys(Protocol):
    """The key of the vault in the memory of this process."""

    def give_vault_key(self, key: bytes) -> None:
        """Keep it. Raises Refusal (vault-key-wrong)."""

    def renew_vault_key(self, key: bytes) -> None:
        """Keep it in place of one that was given; where none was, nothing. Raises Refusal (vault-key-wrong)."""

    def forget_vault_key(self) -> bool:
        """Forget the one that was given; whether there was one."""

    def opened_by(self) -> str:
        """Return the means that opens the vault at any time, such as a key file; empty where none does."""


class Secrets(Protocol):
    """Stores for the values of secrets: "keychain" (the system's) and "vault" (omac's own encrypted file).

    A value is found by store, service ("omac/<workdir id>/<skill>", "omac/<skill>" or "omac/__defaults__/<skill>") and
    name. Every method raises Refusal (keychain-locked, keychain-unavailable, keychain-timeout, keychain-failed,
    vault-locked, vault-key-wrong, vault-unusable, vault-damaged) whose `fix` says how to mend it; none prompts.
    """

    async def chosen(self) -> str:
        """The store that takes new values on this machine."""

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        """The values of these names, read together; what is not there is left out."""

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        """Keep these values, in place of earlier ones."""

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        """Forget these values; what is not there is no error."""
