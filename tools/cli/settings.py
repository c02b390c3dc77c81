"""omac settings: what each setting is and who said so, and changing the user's own."""

from collections.abc import Mapping

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.settings.settings import LATER, SETTINGS, Resolved, Setting, check_word, resolve, setting_named
from omac.tools.compose.scope_options import Where, directory_of
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded, print_line, report


def show(as_json: bool, show_origin: bool, workdir: str | None, environment: Mapping[str, str]) -> int:
    """Show every setting as it applies in a project directory. Raises Refusal."""
    from omac.tools.compose.settings import read_project, read_user

    project = read_project(directory_of(Where(workdir)))
    for warning in project.warnings:
        report(f"omac: {warning}")
    resolved = resolve({}, environment, project, read_user(environment))
    if as_json:
        for name, setting in resolved.items():
            document = {"name": name, **msgspec.to_builtins(setting), "meaning": SETTINGS[name].meaning}
            print_json(document)
    else:
        _show_table(resolved, show_origin)
    return 0


def set_(name: str, value: str, journal: str | None, environment: Mapping[str, str]) -> int:
    """Have the user's file say `value`, and record it. Raises Refusal."""
    setting = setting_named(name)
    if check_word(setting, value) in LATER:
        message = f"{setting.name} cannot be {value} yet: this omac cannot confine sidecars"
        raise Refusal("sandbox-unavailable", message, fix=[f"omac settings set {setting.name} {setting.default}"])
    return _change(setting, value, journal, environment)


def unset(name: str, journal: str | None, environment: Mapping[str, str]) -> int:
    """Have the user's file say nothing about a setting, and record it. Raises Refusal."""
    return _change(setting_named(name), None, journal, environment)


def _change(setting: Setting, value: str | None, journal: str | None, environment: Mapping[str, str]) -> int:
    from omac.tools.compose.settings import change_user_setting

    changed = change_user_setting(environment, journal, setting, value)
    if value is None:
        default = setting.default or "no value"
        print_folded(f"{setting.name}: yours is {'removed' if changed else 'not there'}; now {default} applies")
    else:
        print_folded(f"{setting.name} is {quoted(value)}{'' if changed else ' already'}: {setting.meaning}")
    report("a running server keeps the settings it started with")
    if environment.get(setting.variable):
        report(f"omac: {setting.variable} is in the environment, and overrides this there")
    return 0


def _show_table(resolved: Mapping[str, Resolved], show_origin: bool) -> None:
    names = max(map(len, resolved))
    values = max(len(setting.value) for setting in resolved.values())
    for name, setting in resolved.items():
        print_line(f"{name:<{names}}  {setting.value:<{values}}  {setting.origin if show_origin else ''}".rstrip())
        if show_origin:
            for line in setting.ignored:
                print_line(f"  {line}")
