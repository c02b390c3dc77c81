"""omac secrets: giving secrets to a skill and taking them back. Nothing here shows a value."""

import contextlib
import shlex
from collections.abc import Collection, Mapping, Sequence

import msgspec
import trio

from omac.domain.kernel.event import PERSON
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import GLOBAL
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.meta import Config, Secret
from omac.domain.skills.scope import SkillScope
from omac.domain.skills.values import ValueRefused, check_secret
from omac.services.credentials.values import Values
from omac.tools.cli.control import report_suspended
from omac.tools.cli.skill_argument import OpenedSkill, SkillArgument, at_terminal, opened_skill, text_of
from omac.tools.cli.values_file import read_values, shown_source
from omac.tools.terminal.invocation import current, print_json
from omac.tools.terminal.render import print_folded, report, report_fix, show_columns

MISSING, FROM_HOST = "<missing>", "<host variable>"
INPUT_BYTES_MAX = 256 * 1024
HEADS = ("name", "required", "given", "store", "fingerprint", "description")


class SecretRow(msgspec.Struct):
    """A secret that a skill declares. `given` is yes, no, or remembered: the saved defaults have a value for it.

    `source` is stored, env_passthrough:X, default_from_env:X, missing-required or missing-optional.
    """

    name: str
    required: bool
    given: str
    store: str
    fingerprint: str
    description: str
    source: str


def set_(request: SkillArgument, name: str, rest: Sequence[str], as_json: bool) -> int:
    """Give a skill a secret, from a masked prompt or from stdin. Raises Refusal. `rest` is what else was on the command
    line: perhaps a secret, so that no error may repeat it."""
    name, equals, _ = name.partition("=")
    if equals or rest:
        message = (
            "the command line holds more than a skill and a name. Never put a secret there, where other programs can "
            "read it: type it when prompted, or pass it by stdin"
        )
        words = " ".join(filter(None, (shlex.join((request.skill, name)), request.where.flags)))
        raise Refusal("misuse", message, fix=[f"omac secrets set {words}"])
    with opened_skill(request, "omac secrets set", [name]) as skill:
        secret = skill.secret(name)
        _open_store(skill)
        _give(skill, {name: _value(skill, secret)}, as_json)
    return 0


def import_(request: SkillArgument, source: str, as_json: bool) -> int:
    """Give a skill the secrets in a file of NAME=value lines, all or none; "-" is stdin. Raises Refusal."""
    with opened_skill(request, "omac secrets import", ["--from", source]) as skill:
        values = _imported(skill, source)
        _open_store(skill)
        _give(skill, values, as_json)
    return 0


def list_(request: SkillArgument, as_json: bool) -> int:
    """Show which secrets a skill declares and which it was given; no store is asked. Raises Refusal."""
    with opened_skill(request, "omac secrets list", []) as skill:
        rows = rows_of(skill)
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        needed = {True: "yes", False: "no"}
        shown = [
            (row.name, needed[row.required], row.given, row.store or "-", row.fingerprint, row.description)
            for row in rows
        ]
        show_columns([HEADS, *shown])
    else:
        report(f"{skill.name} declares no secrets")
    return 0


def unset(request: SkillArgument, names: Sequence[str], as_json: bool) -> int:
    """Take secrets back from a skill: at once, also where its store cannot be reached. Raises Refusal."""
    with opened_skill(request, "omac secrets unset", names) as skill:
        names, values = list(dict.fromkeys(names)), skill.credential()
        stored, left = values.secrets | values.writing, values.left
        for name in names:
            if name not in {*stored, *left, *values.taken}:  # values that an earlier omac.yaml declared can be removed
                skill.secret(name)
        stores = {stored[name].store for name in names if name in stored}
        _take(skill, names, stores.union(*(left.get(name, ()) for name in names)))
        remembered = sorted(name for name in skill.opened.credentials.defaults(skill.name) if name in names)
        is_registered = skill.is_registered
    late = {name: left[name] for name in names if name in left and name not in stored}
    report_stored(skill, "secrets", [name for name in names if name in stored], names, as_json, late)
    if remembered and skill.place.scope != GLOBAL:
        document = ", ".join(remembered)
        purge = f"to deregister {skill.name}, and delete" if is_registered else "to delete"
        report(f"{document}: still a saved default for omac register --defaults; {purge} all saved defaults:")
        report_fix([f"omac deregister {quoted(skill.name)} {skill.place.flags} --purge-defaults"])
    report_suspended(current().environment)
    return 0


def _take(skill: OpenedSkill, names: Sequence[str], stores: Collection[str]) -> None:
    from omac.tools.cli.vault import make_usable

    try:
        with contextlib.suppress(Refusal):  # what cannot be opened is not waited for
            make_usable(skill.opened.stores, stores)
        trio.run(skill.opened.credentials.take, skill.place.scope, skill.name, names, PERSON, skill.skill.base)
    except Refusal as refusal:
        if any(name in skill.credential().secrets for name in names):
            raise
        where = " or ".join(sorted(stores)) or "store"
        message = f"{', '.join(names)}: revoked from {skill.name}, but deleting it from the {where} failed"
        fix = [*refusal.fix, skill.command("secrets", "unset", *names)]
        raise Refusal(refusal.reason, f"{message}: {refusal.message}", fix=fix, skill=skill.name) from None


def rows_of(skill: OpenedSkill) -> list[SecretRow]:
    """Every secret that a skill declares, as its sidecar would get it."""
    effective = skill.effective().secrets
    remembered = skill.opened.credentials.defaults(skill.name) if skill.place.scope != GLOBAL else {}
    rows = []
    for secret in skill.sidecar.secrets:
        stored = effective.get(secret.name)
        default = remembered.get(secret.name)
        could = default is not None and default.secret is not None
        source = source_of(skill, secret, is_stored=stored is not None)
        absent = MISSING if source.startswith("missing") else FROM_HOST
        rows.append(
            SecretRow(
                secret.name,
                secret.required,
                "yes" if stored else "remembered" if could else "no",
                stored.store if stored else "",
                stored.fingerprint if stored else absent,
                secret.description,
                source,
            )
        )
    return rows


def source_of(skill: OpenedSkill, field: Secret | Config, *, is_stored: bool) -> str:
    """Return the source of the value of a field without a `default`, as rule 6 of skill_plan.py decides it."""
    if is_stored:
        return "stored"
    if variable := skill.sidecar.host_variable(field, current().environment):
        passed = skill.sidecar.is_passed_through(field) and variable == field.name
        return f"{'env_passthrough' if passed else 'default_from_env'}:{variable}"
    return "missing-required" if field.required else "missing-optional"


def _value(skill: OpenedSkill, secret: Secret) -> Hidden:
    from omac.tools.terminal.prompts import ask_secret, read_stdin

    if at_terminal():
        value = ask_secret(secret)
        assert value is not None, "no question without an answer was asked"
        return value
    text = text_of(read_stdin(INPUT_BYTES_MAX))
    if text is None:
        message, again = (
            f"{secret.name}: is not UTF-8; nothing was stored",
            skill.command("secrets", "set", secret.name),
        )
        raise Refusal("value-refused", message, fix=[again], skill=skill.name)
    return _checked(skill, secret, text)


def _imported(skill: OpenedSkill, source: str) -> dict[str, Hidden]:
    again = skill.command("secrets", "import", "--from", quoted(source))
    if source == "-" and at_terminal():
        raise Refusal("misuse", "a terminal would show the secrets: import from a file, or from a pipe")
    lines = read_values(source, secret=True)
    if not lines:
        raise Refusal(
            "value-refused", f"{shown_source(source)} holds no NAME=value line", fix=[again], skill=skill.name
        )
    declared = [skill.secret(name) for name in lines]
    return {secret.name: _checked(skill, secret, lines[secret.name]) for secret in declared}


def _checked(skill: OpenedSkill, secret: Secret, text: str) -> Hidden:
    try:
        return check_secret(secret, text)
    except ValueRefused as error:
        raise skill.refused(error, skill.command("secrets", "set", secret.name)) from None


def _open_store(skill: OpenedSkill) -> None:
    """Choose the store that takes new values, before a person types one, and open it. Raises Refusal."""
    from omac.tools.cli.vault import make_usable

    make_usable(skill.opened.stores, {trio.run(skill.opened.stores.chosen)})


def _give(skill: OpenedSkill, values: dict[str, Hidden], as_json: bool) -> None:
    before = skill.credential().secrets
    try:
        store = skill.give(Values(values))
    except Refusal as refusal:
        if not refusal.reason.startswith(("vault-", "keychain-")):
            raise
        again = [skill.command("secrets", "set", name) for name in values]
        raise Refusal(refusal.reason, refusal.message, fix=[*refusal.fix, *again], skill=skill.name) from None
    stored = skill.credential().secrets
    where = f"the vault {skill.opened.stores.vault.path}" if store == "vault" else "the system's keychain"
    if as_json:
        for name in values:
            document = {
                "skill": skill.name, "workdir": skill.place.workdir, "name": name, "store": store,
                "fingerprint": stored[name].fingerprint,
            }  # fmt: skip
            print_json(document)
    else:
        print_folded(f"{', '.join(values)} of {skill.name} for {skill.place.shown}: kept in {where}")
    report_idle(skill, "secrets", values)
    if any(name in before and before[name].fingerprint != stored[name].fingerprint for name in values):
        report_suspended(current().environment)


def report_idle(skill: OpenedSkill, group: str, names: Collection[str]) -> None:
    """Report that the values wait for an approval, if the skill is not approved, and which of those by repository do
    not reach it in this worktree, which has or had values of its own."""
    here = SkillScope(skill.place.workdir, skill.place.harness)
    own = skill.opened.credentials.values_of(here.scope, skill.name, skill.skill.base)
    for name in names if skill.place.repository else ():
        if name in {*own.secrets, *own.config, *own.taken}:
            why = "was unset there" if name in own.taken else "has a value of its own there"
            report(f"{skill.name} in {here.workdir} does not receive this value: {name} {why}")
            report_fix([f"omac {group} set {quoted(skill.name)} {name} {here.flags}"])
    if command := skill.approve_command():
        report(f"{skill.name} is not approved: it receives its values after approval")
        report_fix([command])


def report_stored(
    skill: OpenedSkill,
    group: str,
    taken: Sequence[str],
    request: Sequence[str],
    as_json: bool,
    late: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Print which values were revoked, and which were revoked before and only now deleted from their stores (`late`);
    report which ones the skill still has by repository, and which required ones it now lacks."""
    effective = skill.effective()
    if as_json:
        print_json({"skill": skill.name, "workdir": skill.place.workdir, "unset": taken})
    else:
        for name in request:
            outcome = "is revoked from" if name in taken else "was not given to"
            if late and name in late:
                outcome = f"is deleted from the {' and the '.join(sorted(late[name]))}, and was revoked before from"
            print_folded(f"{name} {outcome} {skill.name} for {skill.place.shown}")
    by_repository = [name for name in request if name in {*effective.secrets, *effective.config}]
    if by_repository:
        report(f"{skill.name} still receives {', '.join(by_repository)}, given for every worktree of the repository")
        report_fix([f"{skill.command(group, 'unset', *by_repository)} --repository"])
    for field in skill.sidecar.fields:
        if (
            field.name in taken
            and field.required
            and not (field.default_from_env or skill.sidecar.is_passed_through(field))
            and not getattr(field, "default", None)
        ):
            report(f"{skill.name} needs {field.name}, and does not run without it")
            report_fix([skill.command(group, "set", field.name)])
