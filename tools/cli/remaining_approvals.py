"""The approvals by which a skill may run, once some of its registrations are gone."""

import contextlib
import os
from collections.abc import Collection
from typing import NamedTuple

import trio

from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import quoted
from omac.domain.skills.repository import is_repository
from omac.projections.status import RegistrationStatus
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import Candidate, SkillSearch, every
from omac.tools.compose.registered_skills import RegisteredSkill, Registry
from omac.tools.compose.repositories import repository_of
from omac.tools.compose.scope_options import Where, directory_of


class RemainingApproval(NamedTuple):
    """An approval that still holds, for the skill in the folder `source`; `shown` is its name for people, `revoke` the
    command that ends it."""

    source: str
    shown: str
    revoke: str


def remaining_approvals(
    where: Where, known: RegisteredSkill, ended: Collection[StreamId], registry: Registry, folders: SkillFolders
) -> list[RemainingApproval]:
    """Return the approvals by which a skill may run once the registrations `ended` are gone, for its code of now."""
    approvals: dict[StreamId, RemainingApproval] = {}
    for directory in _directories(where, known.status, registry):
        search = SkillSearch(directory, scope="workdir" if directory else "global")
        candidates: list[Candidate] = []
        with contextlib.suppress(OSError):  # a server cannot read its folder either
            candidates = trio.run(every, folders, search)
        named = [candidate for candidate in candidates if candidate.skill.name == known.status.skill]
        sources = {candidate.skill.source for candidate in named if candidate.skill.base == known.status.harness}
        for candidate in (candidate for candidate in named if candidate.skill.source in sources):
            for holding in registry.holding(candidate, folders):
                if holding.stream not in ended:
                    approvals.setdefault(holding.stream, _approval(candidate, holding))
    return list(approvals.values())


def _directories(where: Where, status: RegistrationStatus, registry: Registry) -> list[str]:
    """Return the directories that exist in which a skill to be forgotten may have another approval; "" is what all
    projects share."""
    if not is_repository(status.scope):
        return [status.dir] if not status.dir or os.path.isdir(status.dir) else []
    own = [known.status.dir for known in registry.known if known.status.skill == status.skill]
    paths = dict.fromkeys([directory_of(where), *own])
    parts = {path: repository_of(path) for path in paths if os.path.isdir(path)}
    return [path for path, part in parts.items() if part is not None and part.scope == status.scope]


def _approval(candidate: Candidate, holding: RegisteredSkill) -> RemainingApproval:
    """Return an approval of a skill as its report needs it."""
    by_repository = is_repository(holding.status.scope)
    shown = f"{candidate.skill.name} in {candidate.skill.source}"
    shown += f", as in every worktree of {holding.status.dir}" * by_repository
    revoke = f"omac revoke {quoted(candidate.skill.name)} {candidate.place.flags}{' --repository' * by_repository}"
    return RemainingApproval(candidate.skill.source, shown, revoke)
