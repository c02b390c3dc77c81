"""Approval: a person vouches for the code of one skill, as it is now, on this host."""

import shlex
from collections.abc import Sequence
from functools import partial

from omac.domain import ids, registration
from omac.domain.harness import DEFAULT_HARNESS
from omac.domain.ids import HostId
from omac.domain.recorded import Cause
from omac.domain.refusal import Refusal
from omac.domain.registration import Code, Registration
from omac.domain.skill import FoundSkill
from omac.journal.application import Journal
from omac.services.ports import SkillFolders


async def find_skill(folders: SkillFolders, workdir: str, bases: Sequence[str], name: str) -> FoundSkill:
    """The skill of that name in a directory. Raises Refusal: skill-not-found, skill-invalid."""
    found = await folders.discover(workdir, bases)
    for skill in found:
        if skill.name == name:
            if skill.problem is not None:
                raise Refusal("skill-invalid", f"{name} cannot be approved: {skill.problem}")
            return skill
    looked = ", ".join(f"{workdir}/.{base}/skills" for base in bases)
    there = ", ".join(skill.name for skill in found) or "none"
    harness = "" if bases[0] == DEFAULT_HARNESS.base else f" --harness {bases[0]}"
    where = f"--workdir {shlex.quote(workdir)}{harness}"
    fix = [f"omac approve {skill.name} {where}" for skill in found if skill.problem is None]
    message = f"no skill {name!r} with a sidecar in {looked}; there are: {there}"
    raise Refusal("skill-not-found", message, fix=fix or [f"ls -la {shlex.quote(workdir)}/.{bases[-1]}/skills"])


def approve(journal: Journal, host: HostId, workdir: str, skill: FoundSkill) -> bool:
    """Record the approval, in the calling thread. False: exactly this code was approved already."""
    stream = ids.registration_stream(host, ids.workdir_id(workdir), skill.base, skill.name)
    command = registration.Approve(Code(skill.source, skill.bundle_hash))
    decide = partial(registration.decide, command)
    return bool(journal.execute(stream, Registration(), registration.evolve, decide, Cause("person")))
