"""omac config: what the settings of a skill are and where each comes from, and changing them."""

from collections.abc import Sequence

import msgspec
import trio

from omac.domain.credentials.credential import Credential
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import Config
from omac.domain.skills.values import ValueRefused, check_config, shown
from omac.services.credentials.values import Values
from omac.tools.cli.secrets import INPUT_BYTES_MAX, report_idle, report_stored, rows_of, source_of
from omac.tools.cli.skill_argument import OpenedSkill, SkillArgument, at_terminal, opened_skill, text_of
from omac.tools.terminal.invocation import current, print_data, print_json
from omac.tools.terminal.render import print_folded, print_line, show_columns

HEADS = ("name", "type", "value", "source", "description")


class ConfigRow(msgspec.Struct):
    """A setting and its value. `source`: stored, default, default_from_env:X, missing-required or missing-optional."""

    name: str
    type: str
    value: str | None
    source: str
    required: bool
    description: str


def show(request: SkillArgument, as_json: bool) -> int:
    """Show every setting of a skill, and of its secrets all but the values. Raises Refusal."""
    with opened_skill(request, "omac config show", []) as skill:
        values = skill.effective()
        rows = [_row(skill, field, values) for field in skill.sidecar.config]
        secrets = rows_of(skill)
    if as_json:
        document = {
            "skill": skill.name,
            "mount": skill.sidecar.mount,
            "workdir": skill.place.workdir,
            "config": rows,
            "secrets": [
                {name: getattr(row, name) for name in ("name", "fingerprint", "source", "required", "description")}
                for row in secrets
            ],
        }
        print_json(document)
        return 0
    print_folded(f"{skill.name} at /{skill.sidecar.mount} for {skill.place.shown}")
    lines = [
        (row.name, row.type, "-" if row.value is None else shown(row.value), row.source, row.description)
        for row in rows
    ]
    for secret in secrets:
        source = secret.store or secret.source
        lines.append((secret.name, "secret", secret.fingerprint, source, secret.description))
    if lines:
        show_columns([HEADS, *lines])
    return 0


def get(request: SkillArgument, name: str, as_json: bool) -> int:
    """Print the value of a setting, and nothing else. Raises Refusal (not-found) when it has none."""
    with opened_skill(request, "omac config get", [name]) as skill:
        row = _row(skill, skill.config(name), skill.effective())
    if as_json:
        print_json(row)
    elif row.value is None:
        fix = [skill.command("config", "set", name)]
        raise Refusal(
            "not-found", f"{name} of {skill.name} for {skill.place.shown} has no value", fix=fix, skill=skill.name
        )
    elif current().stdout.isatty():
        print_line(row.value)
    else:
        print_data(row.value)
    return 0


def set_(request: SkillArgument, name: str, value: str | None, as_json: bool) -> int:
    """Give a skill a setting; "-" reads it from stdin, None asks for it at a terminal. Raises Refusal."""
    with opened_skill(request, "omac config set", [name]) as skill:
        checked = _checked(skill, skill.config(name), value)
        skill.give(Values(config={name: checked}))
        if as_json:
            row = _row(skill, skill.config(name), skill.effective())
            print_json({"skill": skill.name, "workdir": skill.place.workdir, **msgspec.structs.asdict(row)})
        else:
            print_folded(f"{name} of {skill.name} for {skill.place.shown} is {shown(checked)}")
        report_idle(skill, "config", [name])
    return 0


def unset(request: SkillArgument, names: Sequence[str], as_json: bool) -> int:
    """Have settings of a skill say nothing of their own. Raises Refusal."""
    with opened_skill(request, "omac config unset", names) as skill:
        names, stored = list(dict.fromkeys(names)), skill.credential().config
        for name in names:
            if name not in stored:  # values that an earlier omac.yaml declared can be removed too
                skill.config(name)
        trio.run(skill.opened.credentials.take, skill.place.scope, skill.name, names, PERSON, skill.skill.base)
    report_stored(skill, "config", [name for name in names if name in stored], names, as_json)
    return 0


def _row(skill: OpenedSkill, field: Config, values: Credential) -> ConfigRow:
    """Return the row of a setting; the source of its value follows rule 6 of skill_plan.py."""
    stored = values.config.get(field.name)
    value = field.default if stored is None else stored
    source = "default" if stored is None and value is not None else source_of(skill, field, is_stored=value is not None)
    if value is None and (variable := skill.sidecar.host_variable(field, current().environment)):
        value = current().environment[variable]
    return ConfigRow(field.name, field.type, value, source, field.required, field.description)


def _checked(skill: OpenedSkill, field: Config, value: str | None) -> str:
    if value is None:
        return _ask_value(skill, field)
    again = skill.command("config", "set", field.name)
    if value == "-":
        from omac.tools.terminal.prompts import read_stdin

        at_terminal()
        text = text_of(read_stdin(INPUT_BYTES_MAX))
        if text is None:
            message = f"{skill.name}: {field.name}: is not UTF-8"
            raise Refusal("value-refused", message, fix=[again], skill=skill.name)
        value = text
    try:
        return check_config(field, value)
    except ValueRefused as error:
        raise skill.refused(error, again) from None


def _ask_value(skill: OpenedSkill, field: Config) -> str:
    from omac.tools.terminal.prompts import ask_config, can_ask

    value = ask_config(field) if can_ask() else None
    if value is None:
        message = f"{field.name} of {skill.name} needs a value, and no terminal to prompt on"
        raise Refusal("misuse", message, fix=[f"{skill.command('config', 'set', field.name, '-')}  # from stdin"])
    return value
