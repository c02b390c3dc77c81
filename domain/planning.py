"""Planning: from the skills that were found to what shall run, what is answered with a reason, and how to mend it.

Rules

1. A skill whose omac.yaml cannot be read is broken, and says where and why.
2. Of two skills with one mount the later is broken and names the first.
3. A skill nobody approved does not run, unless this run was started with `--unapproved allow`; then it gets no
   declared variable of the host.
4. A skill that lacks a required value is pending and names what is missing; it is not started.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from omac.domain.directory import MAX_BODY_BYTES, Plan, RouteStubbed, Skill
from omac.domain.harness import DEFAULT_HARNESS
from omac.domain.registration import Code, Registration
from omac.domain.sidecar import SidecarSpec, Variable
from omac.domain.skill import MOUNT, Config, FoundSkill, Secret, SidecarMeta

Unapproved = Literal["refuse", "allow"]


def plan(
    found: Sequence[FoundSkill],
    workdir: str,
    harness: str,
    registrations: Mapping[str, Registration],
    unapproved: Unapproved,
    host: Mapping[str, str],
) -> Plan:
    """What an activation of `workdir` for `harness` wants.

    `registrations` by skill name; `host` is omac's own environment.
    """
    result = Plan({}, {}, {}, {})
    mounts: dict[str, str] = {}
    for skill in found:
        sidecar = skill.meta.sidecar if skill.meta else None
        mount = sidecar.mount if sidecar else skill.name if MOUNT.fullmatch(skill.name) else ""
        taken = mounts.get(mount) if mount else None
        own = "" if taken else mount
        result.skills[skill.name] = Skill(skill.name, skill.base, skill.source, skill.bundle_hash, own)
        approved = registrations[skill.name].approves(Code(skill.source, skill.bundle_hash))
        approve = approve_command(skill, workdir, harness)
        stub: RouteStubbed | None = None
        if sidecar is None or skill.problem is not None:
            stub = _broken(skill, own, skill.problem or "it has no sidecar", ())
        elif taken:
            stub = _broken(skill, "", f"its mount {mount!r} is already that of the skill {taken!r}", ())
        elif not approved and unapproved == "refuse":
            stub = _not_approved(skill, own, registrations[skill.name], approve)
        else:
            stub = _pending(skill, sidecar, host, None if approved else approve)
        if own:
            mounts[own] = skill.name
        if stub is not None:
            result.stubs[skill.name] = stub
        elif sidecar is not None:
            result.specs[skill.name] = _spec(skill, sidecar, workdir, approved)
            limit = sidecar.limits.max_body_bytes
            result.max_body_bytes[skill.name] = MAX_BODY_BYTES if limit is None else limit
    return result


def approve_command(skill: FoundSkill, workdir: str, harness: str) -> str:
    """The command that approves this skill and this code: not another that `harness` does not see, nor a later one."""
    named = "" if harness == DEFAULT_HARNESS.name else f" --harness {harness}"
    where = f"--workdir {shlex.quote(workdir)}{named}"
    return f"omac approve {shlex.quote(skill.name)} {where} --hash {shlex.quote(skill.bundle_hash)}"


def _broken(skill: FoundSkill, mount: str, detail: str, fix: tuple[str, ...]) -> RouteStubbed:
    if not fix:  # a problem of the folder of all skills has no omac.yaml of its own
        whole = skill.source == skill.skills_dir
        fix = (
            f"ls -la {shlex.quote(skill.source)}"
            if whole
            else f"${{EDITOR:-vi}} {shlex.quote(skill.source)}/omac.yaml",
        )
    return RouteStubbed(skill.name, mount, "skill-broken", detail, (), fix)


def _not_approved(skill: FoundSkill, mount: str, registration: Registration, approve: str) -> RouteStubbed:
    detail = "not host-approved: nobody has vouched for its code on this machine"
    if registration.approved is not None:
        detail = (
            f"not host-approved: its code is not what was approved (approved {registration.approved.bundle_hash} in "
            f"{registration.approved.source}, found {skill.bundle_hash} in {skill.source})"
        )
    return _broken(skill, mount, detail, (approve,))


def _pending(
    skill: FoundSkill, sidecar: SidecarMeta, host: Mapping[str, str], approve: str | None
) -> RouteStubbed | None:
    """`approve` is the command without which the skill gets nothing of the host; None: it is approved."""
    missing: list[str] = []
    fix: list[str] = []
    fields: tuple[Secret | Config, ...] = (*sidecar.secrets, *sidecar.config)
    for field in fields:
        default = field.default if isinstance(field, Config) else None
        given = not approve and field.default_from_env and host.get(field.default_from_env)
        if field.required and default is None and not given:
            missing.append(field.name)
            fix += _ways_to_give(skill, field, host, approve)
    if not missing:
        return None
    detail = f"required values are missing: {', '.join(missing)}"
    fix = list(dict.fromkeys(fix))
    return RouteStubbed(skill.name, sidecar.mount, "pending-credentials", detail, tuple(missing), tuple(fix))


def _ways_to_give(skill: FoundSkill, field: Secret | Config, host: Mapping[str, str], approve: str | None) -> list[str]:
    variable = field.default_from_env
    if not variable:
        return [f"${{EDITOR:-vi}} {shlex.quote(skill.source + '/omac.yaml')}  # give {field.name} a default_from_env"]
    fix = [approve] if approve else []
    if not host.get(variable):
        fix.append(f"export {variable}=...  # where omac serve is started, then start it again")
    return fix


def _spec(skill: FoundSkill, sidecar: SidecarMeta, workdir: str, approved: bool) -> SidecarSpec:
    secrets = [Variable(field.name, None, field.default_from_env, secret=True) for field in sidecar.secrets]
    config = [Variable(field.name, field.default, field.default_from_env) for field in sidecar.config]
    return SidecarSpec(
        skill.name,
        sidecar.mount,
        workdir,
        skill.source,
        skill.skills_dir,
        skill.bundle_hash,
        approved,
        sidecar.command,
        sidecar.health,
        sidecar.env_passthrough,
        (*secrets, *config),
    )
