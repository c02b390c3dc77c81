"""omac approve: look at a skill as it is now, and record its approval."""

import shlex
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

import trio

from omac.domain.directories.skill_plan import unmet
from omac.domain.kernel.refusal import Refusal, problem_of, quoted
from omac.domain.skills.meta import FoundSkill, SidecarMeta
from omac.domain.skills.registration import Code, shown_hash
from omac.journal.folders import write_command
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import Candidate, find
from omac.tools.cli.skill_notes import note_guide, note_unknown_keys
from omac.tools.compose.command_context import Opened, opened
from omac.tools.compose.registered_skills import Registry
from omac.tools.compose.scope_options import Where, for_repository, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded, print_line

Answer = TypeVar("Answer")


class ApproveRequest(NamedTuple):
    """The command line, as typed. `bundle_hash` None: whatever its code is now."""

    skill: str
    where: Where
    bundle_hash: str | None
    journal: str | None
    json: bool


def run(request: ApproveRequest, environment: Mapping[str, str]) -> int:
    """Approve a skill. Raises Refusal."""
    folders = DiskSkillFolders(environment)
    search = search_of(request.where, folders)
    words = "--repository" if request.where.repository else ""
    candidate = trio.run(find, folders, search, request.skill, "omac approve", words, request.bundle_hash)
    candidate = for_repository(candidate, request.where, f"omac approve {quoted(request.skill)}")
    command = f"omac approve {quoted(request.skill)} {candidate.place.flags}"
    digest = require_digest(folders, candidate, request.bundle_hash, command)
    with opened(environment, request.journal) as everything:
        before = everything.registering.known(candidate).approved
        changed = recorded(everything, lambda: everything.registering.approve(candidate, digest))
        approved = everything.registering.known(candidate).approved
        values = Registry.read(environment, request.journal).standing(candidate, folders).given
    assert approved is not None, "it has just been approved"
    sidecar = sidecar_of(candidate)
    gets = [secret.name for secret in sidecar.secrets if secret.name in values.secrets]
    gets += [field.name for field in sidecar.config if field.name in values.config]
    missing = unmet(sidecar, values, environment)
    _report(request, ApprovalResult(candidate, approved, before if changed else None, changed, gets, list(missing)))
    note_guide(candidate.skill)
    note_unknown_keys(candidate.skill)
    return 0


def require_digest(folders: SkillFolders, candidate: Candidate, expected: str | None, command: str) -> str | None:
    """The digest that the copy must have; None if any will do that has the bundle hash. `expected` is either of the
    two. Raises Refusal (skill-changed) for other code than was meant; `command` means the skill."""
    skill = candidate.skill
    if expected in (None, skill.bundle_hash):
        return None
    digest = digest_of(folders, skill)
    if expected == digest:
        return digest
    message = f"{skill.name} in {skill.source} does not match --hash: its hash is now {digest}"
    fix = [f"{command} --hash {digest}  # after you reviewed its code"]
    raise Refusal("skill-changed", message, fix=fix, skill=skill.name)


def digest_of(folders: SkillFolders, skill: FoundSkill) -> str:
    """The digest over every file of a skill as it is now. Raises Refusal (skill-invalid): it cannot be copied."""
    try:
        return trio.run(folders.digest, skill.source)
    except OSError as error:
        culprit = error.filename or skill.source
        raise Refusal("skill-invalid", f"{culprit} {error.strerror}", fix=getattr(error, "fix", ())) from None


def recorded(everything: Opened, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Do it; what the system refuses is said in omac's words. Raises Refusal."""
    everything.copying.restart()  # it was made before anybody was asked
    try:
        return trio.run(work)
    except OSError as error:
        message = f"the state directory {everything.state.path} cannot be used: {problem_of(error)}"
        raise Refusal("state-unusable", message, fix=[write_command(error, everything.state.path)]) from None
    finally:
        everything.copying.clear()


def sidecar_of(candidate: Candidate) -> SidecarMeta:
    """The sidecar of a skill that was found to have one."""
    assert candidate.skill.sidecar is not None
    return candidate.skill.sidecar


def granted(sidecar: SidecarMeta) -> list[str]:
    """Variables of the host that its sidecar may read."""
    return sorted(
        {*sidecar.env_passthrough, *(field.default_from_env for field in sidecar.fields if field.default_from_env)}
    )


class ApprovalResult(NamedTuple):
    """The result of an approval: `before` is the code approved until now, if that was other code; `gets` are the names
    of values given to the skill before, `missing` those that it needs and lacks."""

    candidate: Candidate
    approved: Code
    before: Code | None
    changed: bool
    gets: list[str]
    missing: list[str]


def _report(request: ApproveRequest, approval: ApprovalResult) -> None:
    skill, sidecar = approval.candidate.skill, sidecar_of(approval.candidate)
    repository = approval.candidate.place.repository
    if request.json:
        fields = {
            "skill": skill.name,
            "dir": approval.candidate.place.workdir,
            "repository": repository.common if repository else "",
            "source": skill.source,
            "bundle_hash": skill.bundle_hash,
            "digest": approval.approved.digest,
            "command": sidecar.command,
            "interpreters": [
                interpreter.path for interpreter in approval.approved.interpreters or () if interpreter.path
            ],
            "variables": granted(sidecar),
            "gets": approval.gets,
            "missing": approval.missing,
            "new": approval.changed,
        }
        print_json(fields)
        return
    before = approval.before
    is_same_code = before is not None and before.digest == approval.approved.digest
    again = f" again, {'with another interpreter' if is_same_code else 'other code'} than before" if before else ""
    print_folded(f"{f'approved{again}' if approval.changed else 'already approved'}: {skill.name} in {skill.source}")
    if repository:
        print_folded(f"  for the same files in {repository.shown}", 4)
    show_code(approval.approved, sidecar)
    show_interpreters(approval.approved)
    if before and not is_same_code:
        print_folded(f"  approved before: {shown_hash(before.bundle_hash, before.digest)}", 4)
    if approval.gets:
        print_line(f"  it receives values set before: {', '.join(approval.gets)}")
    if approval.missing:
        print_line(f"  it still needs: {', '.join(approval.missing)}")
        print_line(f"  try: omac register {quoted(skill.name)} {approval.candidate.place.flags}")


def show_interpreters(approved: Code, by: str = "by") -> None:
    """Print the programs of the host that were approved with it, behind the word `by`, and those that it lacks."""
    interpreters = [interpreter for interpreter in approved.interpreters or () if interpreter.path]
    if interpreters:
        print_folded(f"  {by} {', '.join(interpreter.path for interpreter in interpreters)}", 4)
    for program in approved.interpreters or ():
        if not program.path:
            lack = "does not exist" if "/" in program.name else "is in no folder of PATH that only you may change"
            print_folded(f"  {program.name} {lack}: install it, then approve again", 4)


def show_code(approved: Code, sidecar: SidecarMeta) -> None:
    """Print the hash of the approved code, its command, and the variables that it may read."""
    print_line(f"  {shown_hash(approved.bundle_hash, approved.digest)}")
    print_line(f"  it runs as you: {shlex.join(sidecar.command)}")
    if variables := granted(sidecar):
        print_line(f"  and may read these variables of yours: {', '.join(variables)}")
