"""Planning: from the skills that were found to what shall run, what is answered with a reason, and how to mend it.

Rules

1. A skill whose omac.yaml cannot be read is broken, and says where and why.
2. A mount goes to the first skill that may run, else to the first that claims it: code that nobody approved takes no
   mount from code that somebody did. The others are broken and name that skill.
3. A skill that nobody registered is broken where finding does not register.
4. A skill runs that is approved here, or in exactly these files by repository (`domain/skills/repository.py`): by the
   latter where other files were approved here.
5. A skill nobody approved does not run, unless this run was started with `--unapproved allow`; then it gets nothing
   that was given to its name, and no declared variable of the host.
6. A value is the one given to the skill here, else the one by repository, else its `default`, else a variable of the
   host: for a secret that `env_passthrough` names too the one of that name, else the one of `default_from_env`. A skill
   that lacks a required value, or has one that its rules refuse, is pending and names it; it is not started.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from omac.domain.credentials.credential import Credential
from omac.domain.directories.directory import ActivationPlan, reload_command
from omac.domain.directories.events import MAX_BODY_BYTES, NOT_APPROVED, CallLimits, RouteStubbed, Skill
from omac.domain.kernel.refusal import quoted
from omac.domain.sidecars.sidecar import SidecarSpec, Variable
from omac.domain.skills.meta import MOUNT, Config, FoundSkill, Secret, SidecarMeta
from omac.domain.skills.registration import UNREADABLE, Code, Registration, closest
from omac.domain.skills.scope import SkillScope
from omac.domain.skills.values import ValueRefused, check_config, check_secret

Unapproved = Literal["refuse", "allow"]
Drift = Literal["refuse", "accept"]


class SkillPolicy(msgspec.Struct, frozen=True):
    """The rules by which a run treats code that nobody approved, code that changed since, and skills it meets for the
    first time."""

    unapproved: Unapproved = "refuse"
    bundle_drift: Drift = "refuse"
    auto_register: bool = True


class KnownSkill(msgspec.Struct, frozen=True):
    """The records of this host about a skill: its registration, and the values given to it here. `shared` and
    `shared_credential` are the same by repository; `repository` is the scope of that repository."""

    registration: Registration = Registration()
    credential: Credential = Credential()
    repository: str = ""
    shared: Registration = Registration()
    shared_credential: Credential = Credential()

    def by_repository(self, code: Code) -> Code | None:
        """The frozen code that is approved by repository for the files that were found last, if they are `code`."""
        found = self.registration.found
        return self.shared.covers(found) if found is not None and code.is_bundle(found) else None

    def may_run(self, code: Code, run: str) -> Code | None:
        """The frozen code that stands for `code` in this run; None when it is not approved."""
        return closest(self.registration.may_run(code, run), self.by_repository(code))

    def credential_for(self, code: Code) -> Credential:
        """The values that count for `code`."""
        return self.credential.over(self.shared_credential) if self.by_repository(code) else self.credential


class _Judged(msgspec.Struct, frozen=True):
    """A skill on its way into the plan. `code` is the frozen code that it may run; None: it is not approved."""

    skill: FoundSkill
    sidecar: SidecarMeta
    place: SkillScope
    code: Code | None
    given: Credential
    host: Mapping[str, str]
    found: Code | None
    repository: str = ""


def plan(
    skills: Sequence[FoundSkill],
    scope: SkillScope,
    known: Mapping[str, KnownSkill],
    policy: SkillPolicy,
    host: Mapping[str, str],
    run: str,
) -> ActivationPlan:
    """Return the plan of an activation of `scope` in this run. `known` is by skill name; `host` is omac's own
    environment."""
    result = ActivationPlan({}, {}, {}, {})
    owners = _owners(skills, known, run)
    for skill in skills:
        sidecar, mount = skill.sidecar, _mount(skill)
        taken = owners[mount] if mount and owners[mount] != skill.name else None
        own = "" if taken else mount
        result.skills[skill.name] = Skill(skill.name, skill.base, skill.source, skill.bundle_hash, own)
        recorded = known[skill.name]
        code = recorded.may_run(skill.code, run)
        if sidecar is None or skill.problem is not None:
            result.stubs[skill.name] = _broken(skill, own, skill.problem or "it has no sidecar", ())
        elif taken:
            result.stubs[skill.name] = _broken(skill, "", f"its mount {mount!r} is already that of {taken!r}", ())
        elif code is None and policy.unapproved == "refuse":
            result.stubs[skill.name] = _not_approved(skill, own, scope, recorded)
        else:
            credential = recorded.credential_for(skill.code) if code else Credential()
            repository = recorded.repository if recorded.by_repository(skill.code) else ""
            found = recorded.registration.found
            _add(result, _Judged(skill, sidecar, scope, code, credential, host, found, repository))
    return result


def _mount(skill: FoundSkill) -> str:
    if skill.sidecar:
        return skill.sidecar.mount
    return skill.name if MOUNT.fullmatch(skill.name) else ""


def _owners(skills: Sequence[FoundSkill], known: Mapping[str, KnownSkill], run: str) -> dict[str, str]:
    """Return the name of the skill that has each mount (rule 2), by mount."""
    owners: dict[str, str] = {}
    for skill in sorted(skills, key=lambda candidate: known[candidate.name].may_run(candidate.code, run) is None):
        owners.setdefault(_mount(skill), skill.name)
    return owners


def approve_command(skill: FoundSkill, scope: SkillScope, code: Code | None = None) -> str:
    """The command that approves this skill and this code: not one of another harness, nor what becomes of it later.
    `code` is what is recorded of it: its digest covers every file, where the bundle hash leaves some out."""
    known = code is not None and code.is_bundle(skill.code)
    digest = code.digest if code is not None and known and code.digest != UNREADABLE else ""
    return f"omac approve {quoted(skill.name)} {scope.flags} --hash {quoted(digest or skill.bundle_hash)}"


def unmet(sidecar: SidecarMeta, credential: Credential, host: Mapping[str, str]) -> dict[str, str]:
    """Required values that an approved skill lacks, and values that are refused: by name, what is wrong."""
    problems: dict[str, str] = {}
    for field in sidecar.fields:
        problem = _problem(field, credential, host, sidecar.host_variable(field, host))
        if problem is not None:
            problems[field.name] = problem
    return problems


def _problem(
    field: Secret | Config, credential: Credential, host: Mapping[str, str], variable: str | None
) -> str | None:
    from_host = host[variable] if variable else None
    try:
        if isinstance(field, Secret):
            if field.name in credential.secrets:
                return None
            if from_host is not None:
                check_secret(field, from_host)
        else:
            value = next(
                (v for v in (credential.config.get(field.name), field.default, from_host) if v is not None), None
            )
            if value is not None:
                check_config(field, value)
                return None
    except ValueRefused as refused:
        origin = f" (in ${variable})" if from_host is not None else ""
        return f"{refused.problem}{origin}"
    if field.required and from_host is None:
        return "its last writing was cut short" if field.name in credential.writing else "not set"
    return None


def _add(result: ActivationPlan, judged: _Judged) -> None:
    skill, sidecar = judged.skill, judged.sidecar
    host = judged.host if judged.code else {}
    missing = unmet(sidecar, judged.given, host)
    if missing:
        detail = ", ".join(f"{name} ({problem})" for name, problem in missing.items())
        # Without an approval nothing given would be used.
        fix = [] if judged.code else [approve_command(skill, judged.place, judged.found)]
        for field in sidecar.fields if judged.code else ():
            if field.name in missing:
                kind = "secrets" if isinstance(field, Secret) else "config"
                fix.append(f"omac {kind} set {quoted(skill.name)} {field.name} {judged.place.flags}")
        stub = RouteStubbed(
            skill.name, sidecar.mount, "pending-credentials", f"required values are missing or refused: {detail}",
            tuple(missing), tuple(fix),
        )  # fmt: skip
        result.stubs[skill.name] = stub
        return
    result.specs[skill.name] = _spec(judged)
    limits = sidecar.limits
    result.max_body_bytes[skill.name] = MAX_BODY_BYTES if limits.max_body_bytes is None else limits.max_body_bytes
    result.limits[skill.name] = CallLimits(
        limits.idle_timeout_secs or None, limits.total_timeout_secs, limits.concurrent_calls, limits.calls_per_second
    )


def _broken(skill: FoundSkill, mount: str, detail: str, fix: tuple[str, ...]) -> RouteStubbed:
    return RouteStubbed(skill.name, mount, "skill-broken", detail, (), fix or (skill.mend_command,))


def _not_approved(skill: FoundSkill, mount: str, scope: SkillScope, known: KnownSkill) -> RouteStubbed:
    registration, approved = known.registration, known.registration.approved
    if registration.found is None:
        detail = f"{NOT_APPROVED}: it is not registered on this machine, and discovery does not register it"
        return _broken(skill, mount, detail, (f"omac register {quoted(skill.name)} {scope.flags}",))
    if registration.found.digest == UNREADABLE and registration.found.is_bundle(skill.code):
        detail = f"{NOT_APPROVED}: it cannot be, since its folder holds something that no copy can (see: omac approve)"
        look = f"find {quoted(skill.source)} ! -type f ! -type d -ls"
        return _broken(skill, mount, detail, (look, reload_command(scope.workdir)))
    detail = f"{NOT_APPROVED}: no approval on this machine covers its code"
    if approved is not None and approved.is_bundle(skill.code):
        detail = f"{NOT_APPROVED}: it was approved without a copy of its code, by an earlier omac; approve it again"
    elif was := approved or known.shared.approved:
        there = f" in {was.source}" if approved and was.source != skill.source else ""
        before, now = drift(was, registration.found)
        if there and before == now:
            detail = (
                f"{NOT_APPROVED}: its files were approved in {was.source}; in {skill.source} they need approval again"
            )
            return _broken(skill, mount, detail, (approve_command(skill, scope, registration.found),))
        detail = (
            f"{NOT_APPROVED}: its code is not what was approved{there}; it needs approval again "
            f"(approved {before}, found {now})"
        )
        compare = f"omac diff {quoted(skill.name)} {scope.flags}"
        return _broken(skill, mount, detail, (compare, approve_command(skill, scope, registration.found)))
    return _broken(skill, mount, detail, (approve_command(skill, scope, registration.found),))


def drift(approved: Code, found: Code) -> tuple[str, str]:
    """The hashes of what was approved and of what is there, of one kind: the one that `--hash` of a fix has."""
    if approved.digest and found.digest not in ("", UNREADABLE):
        return approved.digest, found.digest
    return approved.bundle_hash, found.bundle_hash


def _spec(judged: _Judged) -> SidecarSpec:
    skill, sidecar, credential = judged.skill, judged.sidecar, judged.given
    secrets = {secret.name for secret in sidecar.secrets}  # of these, omac passes what it judged
    passthrough = tuple(name for name in sidecar.env_passthrough if name not in secrets)
    variables = []
    for secret in sidecar.secrets:
        stored = credential.secrets.get(secret.name)
        if stored is not None:
            variables.append(Variable(secret.name, secret=True, fingerprint=stored.fingerprint, store=stored.store))
        else:
            from_env = sidecar.host_variable(secret, judged.host) or secret.default_from_env
            variables.append(Variable(secret.name, None, from_env, secret=True))
    for config in sidecar.config:
        value = credential.config.get(config.name, config.default)
        variables.append(Variable(config.name, value, config.default_from_env))
    return SidecarSpec(
        skill.name, sidecar.mount, judged.place.workdir, skill.source, skill.skills_dir, skill.bundle_hash,
        judged.code is not None, sidecar.command, sidecar.health, passthrough, tuple(variables),
        judged.code.digest if judged.code else "", judged.code.interpreters if judged.code else None,
        judged.repository, judged.code.source if judged.code and judged.code.source != skill.source else "",
    )  # fmt: skip
