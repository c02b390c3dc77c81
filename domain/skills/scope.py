"""A place: where a skill belongs and who sees it, and how a command line says so."""

import msgspec

from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.kernel import ids
from omac.domain.kernel.ids import WorkdirId
from omac.domain.kernel.refusal import quoted
from omac.domain.skills.repository import WorktreeFolder


class SkillScope(msgspec.Struct, frozen=True):
    """`workdir` is a canonical directory, or empty for skills shared by all; `harness` the agent that looks there.

    With `repository`, of which `workdir` is a part, it stands for each worktree of that.
    """

    workdir: str
    harness: str = DEFAULT_HARNESS.name
    repository: WorktreeFolder | None = None

    @property
    def scope(self) -> WorkdirId:
        """The key of registrations and credentials here."""
        return self.repository.scope if self.repository else ids.scope_of(self.workdir)

    @property
    def dir(self) -> str:
        """The directory in records of this place: the project's, the git common directory of a repository, or "" for
        all projects."""
        return self.repository.common if self.repository else self.workdir

    @property
    def shown(self) -> str:
        """The name of this place for people."""
        return self.repository.shown if self.repository else self.workdir or "all projects"

    @property
    def where(self) -> str:
        """The options by which a command means this directory, or what all share, whichever the harness."""
        return f"--workdir {quoted(self.workdir)}" if self.workdir else "--global"

    @property
    def flags(self) -> str:
        """The options by which a command means this place, and no other harness's, ready to be pasted."""
        return f"{self.where} --harness {self.harness}{' --repository' if self.repository else ''}"
