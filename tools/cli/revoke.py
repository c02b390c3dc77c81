"""omac revoke: end the approvals by which a skill runs in a directory, that by repository too."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import trio

from omac.domain.harness.table import harness_named
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.repository import is_repository
from omac.tools.cli.control import report_suspended
from omac.tools.compose.command_context import opened
from omac.tools.compose.registered_skills import RegisteredSkill, Registry
from omac.tools.compose.repositories import repository_of
from omac.tools.compose.scope_options import Where, directory_of, place_of
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded


class RevokeRequest(NamedTuple):
    """The command line, as typed. `where.repository`: the approval by repository only."""

    skill: str
    where: Where
    journal: str | None = None
    json: bool = False
    bundle_hash: str | None = None  # of omac approve, where it makes no sense


def run(request: RevokeRequest, environment: Mapping[str, str]) -> int:
    """Revoke by what is recorded: the folder may be gone. Raises Refusal: skill-not-found, skill-ambiguous."""
    if request.bundle_hash is not None:
        raise Refusal("misuse", "--revoke and --hash cannot be combined: --revoke ends the approval of any code")
    registry = Registry.read(environment, request.journal)
    targets = [
        registered for registered in by_repository(request.skill, request.where, registry) if registered.state.approved
    ]
    if not request.where.repository:
        own = registry.named(request.where, request.skill, "omac revoke")
        targets = [registered for registered in own if registered.state.approved] + targets or own[:1]
    if not targets:
        message = f"no skill {request.skill!r} is registered {place_of(request.where)}"
        raise Refusal("skill-not-found", message, fix=["omac approvals"], skill=request.skill)
    reported: set[tuple[str, str]] = set()
    for target in targets:
        with opened(environment, request.journal) as everything:
            changed = trio.run(everything.registering.revoke, target.stream)
        folder = (target.status.scope, target.status.source)
        if request.json or folder not in reported:
            _report(request, target, changed)
        reported.add(folder)
    report_suspended(environment)
    return 0


def by_repository(skill: str, where: Where, registry: Registry) -> list[RegisteredSkill]:
    """The registrations by repository that count in the directory; of a directory that is gone, those that were made
    there, and for that of a repository itself, its own."""
    if where.shared:
        return []
    directory = directory_of(where)
    part = repository_of(directory) if os.path.isdir(directory) else None
    bases = harness_named(where.harness).bases if where.harness else None

    def holds(registered: RegisteredSkill) -> bool:
        if part is not None:
            return registered.status.scope == part.scope or registered.status.dir == directory
        code = registered.state.approved or registered.state.found
        return registered.status.dir == directory or (code is not None and below(code.source, directory))

    return [
        registered
        for registered in registry.known
        if is_repository(registered.status.scope) and registered.status.skill == skill and holds(registered)
        and (bases is None or registered.status.harness in bases)
    ]  # fmt: skip


def _report(request: RevokeRequest, registered: RegisteredSkill, changed: bool) -> None:
    status = registered.status
    repository = status.dir if is_repository(status.scope) else ""
    if request.json:
        document = {
            "skill": status.skill,
            "dir": directory_of(request.where) if repository else status.dir,
            "repository": repository,
            "source": status.source,
            "bundle_hash": status.approved_hash,
            "digest": status.digest,
            "revoked": changed,
        }
        print_json(document)
        return
    where = f"every worktree of {repository}" if repository else status.source
    print_folded(f"{'no longer approved' if changed else 'was not approved'}: {status.skill} in {where}")
