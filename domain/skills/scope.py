"""A place: where a skill belongs and who sees it, and how a command line says so."""

import shlex

import msgspec

from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.kernel import ids
from omac.domain.kernel.ids import WorkdirId


class SkillScope(msgspec.Struct, frozen=True):
    """`workdir` is a canonical directory, or empty for skills shared by all; `harness` the agent that looks there."""

    workdir: str
    harness: str = DEFAULT_HARNESS.name

    @property
    def scope(self) -> WorkdirId:
        """The key of registrations and credentials here."""
        return ids.scope_of(self.workdir)

    @property
    def shown(self) -> str:
        """For people."""
        return self.workdir or "all projects"

    @property
    def where(self) -> str:
        """What a command needs to mean this directory, or what all share, whichever harness looks."""
        return f"--workdir {shlex.quote(self.workdir)}" if self.workdir else "--global"

    @property
    def flags(self) -> str:
        """What a command needs to mean this place, and no other harness's, ready to be pasted."""
        return f"{self.where} --harness {self.harness}"
