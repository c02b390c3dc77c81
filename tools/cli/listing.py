"""omac list and omac approvals: the skills that are there, and the code that is approved on this host."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from omac.domain.kernel.ids import GLOBAL
from omac.domain.kernel.refusal import quoted
from omac.domain.skills.registration import Registration
from omac.domain.skills.repository import is_repository
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import Candidate, SkillSearch, every
from omac.tools.cli.skill_notes import note_unknown_keys
from omac.tools.compose.registered_skills import RegisteredSkill, Registry, Standing, Times, prune_commands
from omac.tools.compose.scope_options import Where, at_once, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.invocation import current, print_json
from omac.tools.terminal.render import report, report_fix, show_columns
from omac.tools.terminal.timestamps import rfc3339, wall_clock_of
from omac.tools.terminal.working_folder import is_current

HEADS = ("NAME", "SCOPE", "MOUNT", "SECRETS", "STATE", "REGISTERED")
HASH_SHOWN = len("sha256:") + 12  # in columns; --json has all of it
APPROVAL_HEADS = ("SKILL", "SCOPE", "FOLDER", "SINCE", "CODE", "HASH", "SOURCE")


class SkillRow(msgspec.Struct, frozen=True):
    """A skill. `state` is approved, not approved, changed, not registered, broken or guidance; `detail` says why.

    `harness` is the base folder it lies in, `dir` is empty for one that all projects share. `repository` is the git
    common directory of the repository by which it is approved. `hidden`: in this project
    another of that name comes first. `secrets_from_host` come from variables of this environment where none is given.
    """

    name: str
    scope: str
    dir: str
    harness: str
    mount: str
    source: str
    bundle_hash: str
    state: str
    secrets: tuple[str, ...]
    secrets_given: tuple[str, ...]
    registered_at: str | None
    hidden: bool = False
    detail: str = ""
    secrets_from_host: tuple[str, ...] = ()
    repository: str = ""


class ApprovalRow(msgspec.Struct, frozen=True):
    """An approval. `code` says what the source folder holds now: ok, changed or gone; None: it was not looked at.
    `since` is None where the segment that has it cannot be read.

    `dir` is the project directory, empty for a skill that all projects share and for one of a repository.
    `repository` is the git common directory, for one that holds in each worktree of it.
    """

    scope: str
    skill: str
    harness: str
    bundle_hash: str
    digest: str
    source: str
    since: str | None
    code: str | None
    repository: str = ""
    dir: str = ""


def list_(where: Where, whole: bool, as_json: bool, journal: str | None, environment: Mapping[str, str]) -> int:
    """Show the skills of a project and those all share; with `whole` all registrations and guidance too. Raises
    Refusal."""
    folders = DiskSkillFolders(environment)
    search = search_of(where, folders)
    registry = Registry.read(environment, journal)
    candidates = at_once(every(folders, search, guidance=whole))
    listed = [_listed(candidate, registry, folders) for candidate in candidates]
    if whole:
        listed += _elsewhere(registry, search.workdir, folders)
    rows = _dated(listed, registry)
    own = {(row.name, row.dir) for row in rows if row.dir == search.workdir}
    rows = [
        msgspec.structs.replace(row, hidden=not row.dir and (row.name, search.workdir) in own)
        for row in sorted(rows, key=lambda row: (row.dir != search.workdir, row.dir, row.name, row.harness))
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        if where.workdir is None and not where.shared and not is_current(search.workdir):
            report(f"omac: in {search.workdir}, the project around the current directory")
        _show(rows, search.workdir)
    else:
        nor_shared = "" if where.workdir is not None else ", and none that all projects share"
        report("no skills that all projects share" if where.shared else f"no skills in {search.workdir}{nor_shared}")
    for candidate in candidates:
        note_unknown_keys(candidate.skill)
    known = registry.known if whole else registry.within(where)
    for registered in known:
        if registered.gone and not is_repository(registered.status.scope):
            report(f"stale: {registered.status.skill}: its folder {registered.status.source} is gone")
    report_fix(prune_commands(known))
    return 0


def approvals(as_json: bool, check: bool, journal: str | None, environment: Mapping[str, str]) -> int:
    """Show every approval of this host. Raises Refusal."""
    registry = Registry.read(environment, journal)
    approved = [registered for registered in registry.known if registered.state.approved is not None]
    now = at_once(_codes([registered.state for registered in approved], DiskSkillFolders(environment))) if check else {}
    dated = zip(approved, registry.times(approved), strict=True)
    rows = [_approval(registered, times, registry, now) for registered, times in dated]
    rows.sort(key=lambda row: (row.scope, row.skill, row.harness))
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        cells = [APPROVAL_HEADS]
        for row in rows:
            since, copy = wall_clock_of(row.since) if row.since else "-", row.digest[:HASH_SHOWN] or "no copy"
            cells.append((row.skill, row.scope, row.harness, since, row.code or "-", copy, row.source))
        show_columns(cells)
    else:
        report("nothing is approved")
    for registered in approved if check else ():
        _report_obstacle(registered, registry)
    report_fix(prune_commands(approved) if check else ())
    return 0


def _report_obstacle(registered: RegisteredSkill, registry: Registry) -> None:
    """Report an approval that lets nothing run, because its copy or its interpreter is not what was approved."""
    skill, flags, approved = registered.status.skill, registry.place(registered).flags, registered.state.approved
    workdir = "" if is_repository(registered.status.scope) else registered.status.dir
    if approved is not None and approved.digest and (obstacle := registry.obstacle(approved, workdir)):
        report(f"{skill} does not run: {obstacle}")
        if is_repository(registered.status.scope):
            report_fix(["omac trust --repository  # in a worktree of it: makes the copy again"])
        else:
            report_fix([f"omac approve {quoted(skill)} {flags} --hash {approved.digest}"])


class _Listed(NamedTuple):
    """A row, which has no time yet, and its registration; None without one."""

    row: SkillRow
    known: RegisteredSkill | None


def _dated(listed: Sequence[_Listed], registry: Registry) -> list[SkillRow]:
    """Return the rows with the times of their registrations, which are read together. Raises Refusal."""
    known = [entry.known for entry in listed if entry.known is not None]
    streams = [registered.stream for registered in known]
    times = dict(zip(streams, registry.times(known), strict=True))
    rows = []
    for row, registered in listed:
        at = times[registered.stream].registered if registered else 0
        rows.append(msgspec.structs.replace(row, registered_at=rfc3339(at)) if at else row)
    return rows


def _listed(candidate: Candidate, registry: Registry, folders: SkillFolders) -> _Listed:
    skill, skill_scope = candidate.skill, candidate.place
    sidecar = skill.sidecar
    standing = registry.standing(candidate, folders)
    state, detail = _state(candidate, standing)
    declared = tuple(secret.name for secret in sidecar.secrets) if sidecar else ()
    stored = standing.given.secrets
    absent = [secret for secret in (sidecar.secrets if sidecar else ()) if secret.name not in stored]
    from_host = tuple(
        secret.name for secret in absent if sidecar and sidecar.host_variable(secret, current().environment)
    )
    row = SkillRow(
        skill.name, skill.scope, skill_scope.workdir, skill.base, sidecar.mount if sidecar else "", skill.source,
        skill.bundle_hash, state, declared, tuple(name for name in declared if name in stored),
        None, detail=detail, secrets_from_host=from_host,
        repository=standing.repository.common if standing.repository else "",
    )  # fmt: skip
    return _Listed(row, standing.known)


def _state(candidate: Candidate, standing: Standing) -> tuple[str, str]:
    """Return the state of a skill in a word or two, and why."""
    skill, approved = candidate.skill, standing.approved
    if skill.problem is not None:
        return "broken", skill.problem
    if skill.sidecar is None:
        return "guidance", ""
    if standing.is_current:
        return "approved", ""
    is_own = standing.known is not None and standing.known.state.approved == approved
    if standing.obstacle and approved is not None:
        flags = candidate.place.flags if is_own else f"{candidate.place.flags} --repository"
        again = f"omac approve {quoted(skill.name)} {flags} --hash {approved.digest}"
        return "not approved", f"{standing.obstacle}; approve it again: {again}"
    if approved is None:
        return ("not approved" if standing.known else "not registered"), ""
    if not approved.digest and approved.is_bundle(skill.code):
        return "not approved", "the approved copy is missing"
    there, is_same = f" in {approved.source}", approved.bundle_hash == skill.bundle_hash
    if approved.source == skill.source or (is_same and not is_own):
        there = ""
    how = f"its files were approved{there}" if there and is_same else f"its files are not those approved{there}"
    return "changed", f"{how}; compare: omac diff {quoted(skill.name)} {candidate.place.flags}"


def _elsewhere(registry: Registry, workdir: str, folders: SkillFolders) -> list[_Listed]:
    """The registered skills of other directories, as they are now; without those whose folder is gone."""
    rows = []
    by_dir: dict[str, list[RegisteredSkill]] = {}
    for known in registry.known:
        scope = known.status.scope
        is_project = scope != GLOBAL and not is_repository(scope)
        if is_project and known.status.dir != workdir and not known.gone:
            by_dir.setdefault(known.status.dir, []).append(known)
    for directory, there in by_dir.items():
        elsewhere = at_once(every(folders, SkillSearch(directory, None, "workdir"))) if directory else []
        candidates = {(candidate.skill.base, candidate.skill.name): candidate for candidate in elsewhere}
        for known in there:
            candidate = candidates.get((known.status.harness, known.status.skill))
            rows.append(_listed(candidate, registry, folders) if candidate else _Listed(_lost(known), known))
    return rows


def _lost(known: RegisteredSkill) -> SkillRow:
    """Return the row of a registered skill whose folder exists, but no longer holds such a skill."""
    status = known.status
    scope = "global" if status.scope == GLOBAL else "workdir"
    return SkillRow(
        status.skill, scope, status.dir, status.harness, "", status.source, status.bundle_hash, "broken", (),
        status.secrets, None, detail="its folder holds no such skill any more",
    )  # fmt: skip


def _approval(registered: RegisteredSkill, times: Times, registry: Registry, now: Mapping[str, str]) -> ApprovalRow:
    approved = registered.state.approved
    assert approved is not None
    code = None
    if approved.source in now:
        digest = now[approved.source]
        code = digest if digest == "gone" else "ok" if digest == approved.bundle_hash else "changed"
    repository = registered.status.dir if is_repository(registered.status.scope) else ""
    scope = f"every worktree of {repository}" if repository else registry.place(registered).shown
    directory = "" if repository else registered.status.dir
    return ApprovalRow(
        scope, registered.status.skill, registered.status.harness, approved.bundle_hash, approved.digest,
        approved.source, rfc3339(times.approved) if times.approved else None, code, repository,
        directory,
    )  # fmt: skip


async def _codes(registrations: Iterable[Registration], folders: SkillFolders) -> dict[str, str]:
    """Return by source folder the hash of its present files; "gone" for a missing folder, "" for one that cannot be
    read."""
    digests: dict[str, str] = {}
    for registration in registrations:
        if registration.approved is not None:
            source = registration.approved.source
            try:
                digests[source] = await folders.bundle_hash(source)
            except (FileNotFoundError, NotADirectoryError):
                digests[source] = "gone"
            except OSError:
                digests[source] = ""
    return digests


def _show(rows: list[SkillRow], workdir: str) -> None:
    elsewhere = any(row.dir not in ("", workdir) for row in rows)
    are_alike = len({(row.name, row.dir) for row in rows}) < len(rows)  # the folder alone tells some from each other
    cells = [(*HEADS, *["DIRECTORY"] * elsewhere, *["FOLDER"] * are_alike)]
    for row in rows:
        from_host = f" ({len(row.secrets_from_host)} from host)" if row.secrets_from_host else ""
        has = len(row.secrets_given) + len(row.secrets_from_host)
        secrets = f"{has}/{len(row.secrets)}{from_host}" if row.state not in ("broken", "guidance") else "-"
        state = f"{row.state}, hidden by the project's" if row.hidden else row.state
        mount = f"/{row.mount}/" if row.mount else "-"
        at = wall_clock_of(row.registered_at) if row.registered_at else "-"
        scope = "repository" if row.repository else row.scope
        shown = (row.name, scope, mount, secrets, state, at)
        cells.append((*shown, *[row.dir or "-"] * elsewhere, *[row.harness] * are_alike))
    show_columns(cells)
    for row in rows:
        if row.detail:
            report(f"{row.name}: {row.detail}")
