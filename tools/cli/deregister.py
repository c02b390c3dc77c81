"""omac deregister: forget skills, and what was given to them if that is wanted; the folders of skills stay."""

import contextlib
import itertools
from collections.abc import Collection, Mapping
from typing import NamedTuple

import trio

from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, Credential
from omac.domain.harness.table import DEFAULT_HARNESS, harness_named
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.scope import SkillScope
from omac.services.credentials.values import Credentials
from omac.services.skills.resolution import every
from omac.tools.cli.approve import recorded
from omac.tools.cli.control import report_suspended
from omac.tools.cli.remaining_approvals import RemainingApproval, remaining_approvals
from omac.tools.cli.revoke import by_repository
from omac.tools.cli.vault import make_usable
from omac.tools.compose.command_context import Opened, opened
from omac.tools.compose.registered_skills import RegisteredSkill, Registry, prune_commands
from omac.tools.compose.scope_options import Where, directory_of, place_of, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.prompts import confirm
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

COMMAND = "omac deregister"


class DeregisterRequest(NamedTuple):
    skills: tuple[str, ...]
    where: Where
    purge_secrets: bool = False
    purge_fields: bool = False
    purge_defaults: bool = False
    prune: bool = False
    yes: bool = False
    journal: str | None = None

    def words(self) -> str:
        """The flags that a command has to repeat."""
        flags = {
            "--purge-secrets": self.purge_secrets,
            "--purge-fields": self.purge_fields,
            "--purge-defaults": self.purge_defaults,
            "--prune": self.prune,
            "--yes": self.yes,
        }
        return " ".join(flag for flag, is_set in flags.items() if is_set)


class Target(NamedTuple):
    """A skill to be forgotten. `known` None: it is not registered any more, and only has values.

    `base` is the base folder it is in; None: whichever.
    """

    skill: str
    place: SkillScope
    known: RegisteredSkill | None
    base: str | None

    @property
    def scope(self) -> str:
        """The key of its registration and its values."""
        return self.known.status.scope if self.known else self.place.scope


class ValuesToPurge(NamedTuple):
    """The values to delete of one skill. `left`: secrets whose earlier values stores may still hold; `defaults`: the
    names of its saved defaults."""

    scope: str
    skill: str
    base: str | None
    secrets: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()


def run(request: DeregisterRequest, environment: Mapping[str, str]) -> int:
    """Forget skills; 1 if a person would rather not. Raises Refusal; then nothing was changed."""
    _require_sense(request)
    if request.where.repository:  # what is proposed names the worktree, whatever folder it is typed in
        request = request._replace(where=request.where._replace(workdir=directory_of(request.where)))
    registry = Registry.read(environment, request.journal)
    targets = _resolve_targets(request, registry, environment)
    if not targets:
        print_folded(f"nothing to prune: the folder of each skill registered {place_of(request.where)} exists")
        report_fix(prune_commands(registry.known))
        return 0
    ended = {target.known.stream for target in targets if target.known is not None}
    folders = DiskSkillFolders(environment)
    remaining = [
        remaining_approvals(request.where, target.known, ended, registry, folders) if target.known is not None else []
        for target in targets
    ]
    with opened(environment, request.journal) as everything:
        purges = [_purge(request, target, everything.credentials) for target in targets]
        if not _confirmed(request, targets, purges, remaining):
            report("nothing was changed")
            return 1
        _require_stores(purges, everything)
        for target in targets:
            if target.known is not None:
                trio.run(everything.registering.deregister, target.known.stream)
        try:
            recorded(everything, lambda: _take(purges, everything.credentials))
        except Refusal as refusal:
            message = f"deregistered, but deleting its values failed: {refusal.message}"
            fix = [*refusal.fix, _again(request, targets)]
            raise Refusal(refusal.reason, message, fix=fix) from None
        kept = [_kept(request, target, everything.credentials) for target in targets]
    _report_done(targets, purges, remaining)
    for message, fix in dict(itertools.chain.from_iterable(kept)).items():
        report(message)
        report_fix(fix)
    report_suspended(environment)
    return 0


def _report_done(targets: list[Target], purges: list[ValuesToPurge], remaining: list[list[RemainingApproval]]) -> None:
    """Print what was deregistered and deleted, then the approvals that still hold, with the commands that end them."""
    reported: set[tuple[str, str]] = set()
    for target, purge, approvals in zip(targets, purges, remaining, strict=True):
        if target.known is not None and (folder := (target.scope, target.known.status.source)) not in reported:
            reported.add(folder)
            print_folded(f"deregistered: {target.skill} in {target.known.status.source}")
            if not target.known.gone:
                is_approved = any(approval.source == target.known.status.source for approval in approvals)
                state = "still approved" if is_approved else "not approved"
                print_line(f"  its folder still exists: a running server lists it again, as {state}")
        if names := (*purge.secrets, *purge.left, *purge.config):
            print_folded(f"  deleted: {', '.join(names)} of {purge.skill} for {target.place.shown}", 4)
        if purge.defaults:
            print_folded(f"  deleted defaults of {purge.skill}: {', '.join(purge.defaults)}", 4)
    for approval in dict.fromkeys(itertools.chain.from_iterable(remaining)):
        report(f"still approved: {approval.shown}; to end that approval:")
        report_fix([approval.revoke])


def _require_sense(request: DeregisterRequest) -> None:
    """Raise Refusal (misuse) for a command line that names nothing, or contradicts itself."""
    if not request.skills and not request.prune:
        raise Refusal(
            "misuse", "name a skill, or use --prune for every skill whose folder is gone", fix=["omac list --all"]
        )
    if request.prune and request.where.repository:
        raise Refusal("misuse", "--prune and --repository cannot be combined: name the skills", fix=["omac approvals"])


def _resolve_targets(request: DeregisterRequest, registry: Registry, environment: Mapping[str, str]) -> list[Target]:
    names = dict.fromkeys(request.skills)
    if request.where.repository:
        return _of_repository(request, registry)
    if request.prune:
        return _gone(request, registry, names)
    targets = []
    for name in names:
        matches = registry.named(request.where, name, COMMAND, request.words())
        if matches and matches[0].status.scope == ids.GLOBAL and not request.where.shared:
            words = [COMMAND, quoted(name), registry.place(matches[0]).flags, request.words()]
            message = f"{name} is not registered in {directory_of(request.where)}; a global skill of that name is"
            raise Refusal("skill-ambiguous", message, fix=[" ".join(word for word in words if word)], skill=name)
        only_values = None if matches else _only_values(request, registry, name)
        if not matches and only_values is None:
            raise _unregistered(request, registry, name, environment)
        targets += [only_values] if only_values else [_target(registry, registered) for registered in matches]
    return targets


def _of_repository(request: DeregisterRequest, registry: Registry) -> list[Target]:
    """Return the skills registered for each worktree of the repository, even one that is gone. Raises Refusal."""
    targets = []
    for name in request.skills:
        matches = by_repository(name, request.where, registry)
        if not matches:
            message = f"{name!r} is not registered for every worktree of a repository there"
            raise Refusal("skill-not-found", message, fix=["omac approvals"], skill=name)
        targets += [
            Target(name, SkillScope(registered.status.dir), registered, registered.status.harness)
            for registered in matches
        ]
    return targets


def _gone(request: DeregisterRequest, registry: Registry, names: Collection[str]) -> list[Target]:
    within = registry.within(request.where)
    gone = [registered for registered in within if registered.gone]
    for name in names:
        if not any(registered.status.skill == name for registered in gone):
            there = any(registered.status.skill == name for registered in within)
            how = "its folder is there" if there else "it is not registered there"
            raise Refusal("skill-not-found", f"{name!r} cannot be pruned: {how}", fix=["omac list --all"])
    return [_target(registry, registered) for registered in gone if not names or registered.status.skill in names]


def _target(registry: Registry, known: RegisteredSkill) -> Target:
    return Target(known.status.skill, registry.place(known), known, known.status.harness)


def _only_values(request: DeregisterRequest, registry: Registry, name: str) -> Target | None:
    """A skill that was forgotten before, and whose values shall be forgotten now; None if it has none."""
    harness = harness_named(request.where.harness) if request.where.harness else None
    skill_scope = SkillScope(
        "" if request.where.shared else directory_of(request.where), (harness or DEFAULT_HARNESS).name
    )
    whole = registry.credential(skill_scope.scope, name)
    base = next((base for base in harness.bases if _has(request, whole.of(base))), harness.base) if harness else None
    remembered = request.purge_defaults and _remembered(registry.credential(DEFAULTS, name))
    if _has(request, whole.of(base)) or remembered or (request.purge_secrets and whole.left):
        return Target(name, skill_scope, None, base)
    return None


def _has(request: DeregisterRequest, values: Credential) -> bool:
    """Return whether the skill has values that the request deletes."""
    return bool(
        (request.purge_secrets and (values.secrets or values.writing)) or (request.purge_fields and values.config)
    )


def _remembered(defaults: Credential) -> list[str]:
    """The names of what is remembered, was to be remembered, or is still in a store."""
    return sorted({*defaults.defaults, *defaults.writing, *defaults.left})


def _unregistered(request: DeregisterRequest, registry: Registry, name: str, environment: Mapping[str, str]) -> Refusal:
    """Return the refusal for a skill that is not registered. Where its folder exists, the refusal says that omac leaves
    folders alone."""
    folders = DiskSkillFolders(environment)
    there: list[str] = []
    with contextlib.suppress(Refusal):  # the directory itself may be gone
        search = search_of(request.where, folders)
        candidates = trio.run(lambda: every(folders, search, guidance=True))
        there = [candidate.skill.source for candidate in candidates if candidate.skill.name == name]
    if there:
        message = f"{name} in {there[0]} is not registered; omac leaves folders alone: remove it yourself"
        fix = ["omac list --all", f"ls -la {quoted(there[0])}"]
        return Refusal("skill-not-found", message, fix=fix, skill=name)
    where = "for all projects" if request.where.shared else f"in {directory_of(request.where)}"
    others = ", ".join(sorted({registered.status.skill for registered in registry.within(request.where)})) or "none"
    message = f"no skill {name!r} is registered {where}; registered are: {others}"
    return Refusal("skill-not-found", message, fix=["omac list --all"], skill=name)


def _purge(request: DeregisterRequest, target: Target, credentials: Credentials) -> ValuesToPurge:
    scope, skill = target.scope, target.skill
    values = credentials.values_of(scope, skill, target.base)
    secrets = {*values.secrets, *values.writing} if request.purge_secrets else set()
    return ValuesToPurge(
        scope, skill, target.base, tuple(sorted(secrets)),
        tuple(sorted(values.left.keys() - secrets)) if request.purge_secrets else (),
        tuple(sorted(values.config)) if request.purge_fields else (),
        tuple(_remembered(credentials.values_of(DEFAULTS, skill))) if request.purge_defaults else (),
    )  # fmt: skip


def _kept(request: DeregisterRequest, target: Target, credentials: Credentials) -> list[tuple[str, list[str]]]:
    """Return a message for each kind of values that stay, and the commands that delete them."""
    skill, place = quoted(target.skill), target.place.flags
    values = credentials.values_of(target.scope, target.skill, target.base)
    kinds = {"secrets": sorted({*values.secrets, *values.left}), "config": sorted(values.config)}
    names = list(itertools.chain.from_iterable(kinds.values()))
    flags = [flag for flag, kind in (("--purge-secrets", "secrets"), ("--purge-fields", "config")) if kinds[kind]]
    fix = [f"{COMMAND} {skill} {place} {' '.join(flags)}"]
    if request.where.repository:  # such values are found by the folder alone
        where = request.where.flags
        fix = [f"omac {kind} unset {skill} {' '.join(given)} {where}" for kind, given in kinds.items() if given]
    messages = [(f"still stored for {target.skill} of {target.place.shown}: {', '.join(names)}; to delete:", fix)]
    defaults = credentials.defaults(target.skill) if request.purge_secrets else {}
    secrets = sorted(name for name, default in defaults.items() if default.secret is not None)
    message = f"still saved defaults for skills named {target.skill}: {', '.join(secrets)}; to delete all of them:"
    return [
        *(messages if names else ()),
        *([(message, [f"{COMMAND} {skill} {place} --purge-defaults"])] if secrets else ()),
    ]


def _confirmed(
    request: DeregisterRequest,
    targets: list[Target],
    purges: list[ValuesToPurge],
    remaining: list[list[RemainingApproval]],
) -> bool:
    """Show what will be done, and ask. Raises Refusal (misuse) where nobody can be asked."""
    if request.yes:
        return True
    for target, purge, approvals in zip(targets, purges, remaining, strict=True):
        if target.known is not None:
            report(f"this deregisters {target.skill} in {target.known.status.source}, of {target.place.shown}")
            if target.known.status.approved_hash:
                follows = "" if approvals else ": it no longer runs, except under --unapproved allow"
                report(f"  this approval ends{follows}")
            for approval in approvals:
                report(f"  it stays approved: {approval.shown}", 4)
        for kind, names in (
            ("secrets", purge.secrets),
            ("earlier values", purge.left),
            ("settings", purge.config),
            ("defaults", purge.defaults),
        ):
            if names:
                report(f"  this deletes {kind} of {target.skill}: {', '.join(names)}", 4)
    again = _again(request._replace(yes=True), targets)
    return confirm("go on?", "no terminal to prompt on; nothing was changed", [again])


def _again(request: DeregisterRequest, targets: list[Target]) -> str:
    """Return the command that repeats the request for the same place."""
    scope_flags = {target.place.flags for target in targets}
    is_one = len(scope_flags) == 1 and not request.where.repository
    flags = scope_flags.pop() if is_one else request.where.flags
    words = [COMMAND, *map(quoted, request.skills), flags, request.words()]
    return " ".join(word for word in words if word)


def _require_stores(purges: list[ValuesToPurge], everything: Opened) -> None:
    """Raise Refusal unless every store that holds values to delete can be used."""
    needed: list[tuple[str, str, str]] = []
    for purge in purges:
        values = everything.credentials.values_of(purge.scope, purge.skill, purge.base)
        stores = values.left | {name: values.held[name] for name in purge.secrets}
        service = credential.service(purge.scope, purge.skill)
        needed += [(store, service, name) for name in (*purge.secrets, *purge.left) for store in stores[name]]
        held = everything.credentials.values_of(DEFAULTS, purge.skill).held
        service = credential.service(DEFAULTS, purge.skill)
        needed += [(store, service, name) for name in purge.defaults for store in held.get(name, ())]

    async def read() -> None:
        for store, service, name in needed:
            await everything.stores.read(store, service, [name])

    make_usable(everything.stores, {store for store, _, _ in needed})
    trio.run(read)


async def _take(purges: list[ValuesToPurge], credentials: Credentials) -> None:
    """Remove all of these values, whatever fails. Raises Refusal in the end."""
    refusals: list[Refusal] = []
    for purge in purges:
        try:
            if names := (*purge.secrets, *purge.left, *purge.config):
                await credentials.take(purge.scope, purge.skill, names, PERSON, purge.base)
        except Refusal as refusal:
            refusals.append(refusal)
        try:
            if purge.defaults:
                await credentials.purge(purge.skill, PERSON)
        except Refusal as refusal:
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
