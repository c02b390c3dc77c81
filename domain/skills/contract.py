"""The contract of omac.yaml: which documents state a skill, and the error that names the field of one that does not.

Types are strict, so that a slip is reported where it was made; unknown keys are ignored, so that a skill written for a
later omac keeps working.
"""

import re
from typing import TypeVar, get_args

from msgspec.structs import replace

from omac.domain.credentials.patterns import PatternError, check_pattern
from omac.domain.credentials.values import ValueRefused, check_config, has_64_bits, is_text, shown
from omac.domain.skills.skill import (
    HOST_VARIABLE,
    MOUNT,
    SKILL_NAME,
    VARIABLE,
    Config,
    ConfigType,
    Health,
    Limits,
    Meta,
    MetaError,
    Secret,
    SidecarMeta,
)

DELAY_MS_MAX = 600_000
BODY_BYTES_MAX = 2**40
IDLE_SECS_MAX = 2**31 - 1

# Names that belong to omac, and those by which a value would become code in every process that sees it.
RESERVED_VARIABLES = frozenset({"SIDECAR_PORT", "SIDECAR_SKILL"})
RESERVED_PREFIXES = ("OMAC_", "LD_", "DYLD_")
INSTALL_PLATFORMS = ("macos", "linux", "wsl")

Bound = TypeVar("Bound", int, None)


def parse_meta(document: object) -> Meta:
    """The Meta that a decoded omac.yaml states, with every default filled in and every bound checked.

    A field that is absent or null takes its default. Raises MetaError for the first field that breaks the contract.
    """
    top = _Section(document, "")
    name = top.text("name")
    if name is None:
        raise MetaError("name", "is missing: give the skill a name")
    if not SKILL_NAME.fullmatch(name):
        raise MetaError("name", f"{shown(name)} must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")
    sidecar = top.section("sidecar")
    return Meta(
        name=name,
        version=top.scalar("version", fractions=True) or "",
        description=top.text("description") or "",
        sidecar=None if sidecar is None else _sidecar(sidecar, name),
    )


def _sidecar(section: "_Section", skill_name: str) -> SidecarMeta:
    command = section.texts("command")
    if not command:
        raise MetaError(section.at("command"), "must list the program to run and its arguments")
    mount = section.text("mount")
    if not MOUNT.fullmatch(skill_name if mount is None else mount):
        rule = "must be 1 to 63 of a-z 0-9 - and begin with a letter or digit"
        if mount is None:
            rule = f"the name {shown(skill_name)} cannot serve as the mount: give a mount, which {rule}"
        raise MetaError(section.at("mount"), rule if mount is None else f"{shown(mount)} {rule}")
    names = _Names()
    passed = tuple(
        names.declare(where, _as_text(where, value), HOST_VARIABLE) for where, value in section.items("env_passthrough")
    )
    return SidecarMeta(
        command=command,
        mount=skill_name if mount is None else mount,
        env_passthrough=passed,
        secrets=tuple(_secret(item, names) for item in section.sections("secrets")),
        config=tuple(_config(item, names) for item in section.sections("config")),
        health=_health(section.section("health")),
        limits=_limits(section.section("limits")),
        install_scripts=_install_scripts(section.section("install_scripts")),
        protocols=section.texts("protocols"),
    )


def _secret(section: "_Section", names: "_Names") -> Secret:
    return Secret(
        name=names.declare(section.at("name"), section.text("name")),
        description=section.text("description") or "",
        required=section.flag("required", default=True),
        pattern=_pattern(section),
        default_from_env=_host_variable(section),
        multiline=section.flag("multiline", default=False),
    )


def _config(section: "_Section", names: "_Names") -> Config:
    name = names.declare(section.at("name"), section.text("name"))
    kind = _config_type(section)
    pattern = _pattern(section)
    if pattern is not None and kind != "string":
        raise MetaError(section.at("pattern"), f"is only for settings of type string, and this one is {_a(kind)}")
    choices = tuple(_as_scalar(where, value) for where, value in section.items("choices"))
    if kind == "enum" and not choices:
        raise MetaError(section.at("choices"), "is missing: an enum lists the values to choose from")
    if kind != "enum" and choices:
        raise MetaError(section.at("choices"), f"is only for settings of type enum, and this one is {_a(kind)}")
    if "" in choices or len(set(choices)) != len(choices):
        raise MetaError(section.at("choices"), "must be different from each other, and none of them empty")
    config = Config(
        name=name,
        description=section.text("description") or "",
        type=kind,
        required=section.flag("required", default=True),
        default_from_env=_host_variable(section),
        pattern=pattern,
        choices=choices,
    )
    return _checked_default(section, config)


def _config_type(section: "_Section") -> ConfigType:
    text = section.text("type")
    kind: ConfigType
    for kind in get_args(ConfigType):
        if text == kind:
            return kind
    if text is None:
        return "string"
    raise MetaError(section.at("type"), f"{shown(text)} must be one of string, bool, int, enum")


def _checked_default(section: "_Section", config: Config) -> Config:
    """`config` with its default, which is held to the same rules as any other value."""
    default = section.scalar("default")
    if default is None:
        return config
    try:
        return replace(config, default=check_config(config, default))
    except ValueRefused as refused:
        raise MetaError(section.at("default"), refused.problem) from None


def _health(section: "_Section | None") -> Health:
    usual = Health()
    if section is None:
        return usual
    path = section.text("path")
    if path is not None and not re.fullmatch(r"/[!-~]*", path):
        raise MetaError(section.at("path"), f'{shown(path)} must begin with "/" and hold only visible ASCII characters')
    return Health(
        path=usual.path if path is None else path,
        initial_delay_ms=section.integer("initial_delay_ms", 0, DELAY_MS_MAX, usual.initial_delay_ms),
        timeout_ms=section.integer("timeout_ms", 1, DELAY_MS_MAX, usual.timeout_ms),
        interval_ms=section.integer("interval_ms", 1, DELAY_MS_MAX, usual.interval_ms),
    )


def _limits(section: "_Section | None") -> Limits:
    if section is None:
        return Limits()
    return Limits(
        max_body_bytes=section.integer("max_body_bytes", 0, BODY_BYTES_MAX, None),
        idle_timeout_secs=section.integer("idle_timeout_secs", 0, IDLE_SECS_MAX, None),
    )


def _install_scripts(section: "_Section | None") -> dict[str, str]:
    scripts: dict[str, str] = {}
    if section is None:
        return scripts
    for platform in INSTALL_PLATFORMS:
        script = section.text(platform)
        if script is None:
            continue
        # It is printed for a person to run: what is shown has to be a file of this skill, in plain sight.
        if not script or not script.isprintable() or script.startswith("/") or ".." in script.split("/"):
            raise MetaError(section.at(platform), f"{shown(script)} must be a path inside the skill folder")
        scripts[platform] = script
    return scripts


def _pattern(section: "_Section") -> str | None:
    pattern = section.text("pattern")
    if pattern is None:
        return None
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise MetaError(section.at("pattern"), f"{shown(pattern)} {error}") from None
    return pattern


def _host_variable(section: "_Section") -> str | None:
    name = section.text("default_from_env")
    if name is not None:
        _check_variable(section.at("default_from_env"), name, HOST_VARIABLE)
    return name


def _check_variable(where: str, name: str, form: re.Pattern[str]) -> None:
    if not form.fullmatch(name):
        letters = "A-Z 0-9 _" if form is VARIABLE else "A-Z a-z 0-9 _"
        raise MetaError(where, f"{shown(name)} must be 1 to 128 of {letters} and not begin with a digit")


class _Names:
    """The environment variables a sidecar asks for so far: each belongs to one declaration only."""

    def __init__(self) -> None:
        self._where: dict[str, str] = {}

    def declare(self, where: str, name: str | None, form: re.Pattern[str] = VARIABLE) -> str:
        if name is None:
            raise MetaError(where, "is missing: name the environment variable")
        _check_variable(where, name, form)
        if name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIXES):
            raise MetaError(where, f"{name} is set by omac or changes how programs are loaded: choose another name")
        if name in self._where:
            raise MetaError(where, f"{name} is declared already, as {self._where[name]}: remove one of the two")
        self._where[name] = where
        return name


class _Section:
    """A mapping of the document and the dotted path that leads to it; "" is the document itself."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise MetaError(where, f"must be a mapping of keys to values, not {_kind(value)}")
        self._values: dict[object, object] = value
        self._where = where

    def at(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else _as_text(self.at(key), value)

    def scalar(self, key: str, *, fractions: bool = False) -> str | None:
        value = self._values.get(key)
        if fractions and isinstance(value, float):
            return str(value)
        return None if value is None else _as_scalar(self.at(key), value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise MetaError(self.at(key), f"must be true or false, not {_kind(value)}")
        return value

    def integer(self, key: str, low: int, high: int, default: Bound) -> int | Bound:
        value = self._values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise MetaError(self.at(key), f"must be a whole number, not {_kind(value)}")
        if not low <= value <= high:
            raise MetaError(self.at(key), f"must be from {low} to {high}")
        return value

    def items(self, key: str) -> list[tuple[str, object]]:
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise MetaError(self.at(key), f"must be a list, not {_kind(value)}")
        return [(f"{self.at(key)}[{index}]", item) for index, item in enumerate(value)]

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(_as_text(where, item, empty=False) for where, item in self.items(key))

    def section(self, key: str) -> "_Section | None":
        value = self._values.get(key)
        return None if value is None else _Section(value, self.at(key))

    def sections(self, key: str) -> "list[_Section]":
        return [_Section(item, where) for where, item in self.items(key)]


def _as_text(where: str, value: object, *, empty: bool = True) -> str:
    if not isinstance(value, str):
        quoted = ": put it in quotes" if isinstance(value, (bool, int, float)) else ""
        raise MetaError(where, f"must be text, not {_kind(value)}{quoted}")
    if not value and not empty:
        raise MetaError(where, "must not be empty")
    if not is_text(value):
        raise MetaError(where, f"{shown(value)} holds NUL or an incomplete surrogate pair: remove it")
    return value


def _as_scalar(where: str, value: object) -> str:
    """Text, or a YAML number or truth value that someone wrote without quotes where its text is meant."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not has_64_bits(value):
            raise MetaError(where, "is a number beyond 64 bits")
        return str(value)
    return _as_text(where, value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def _a(kind: ConfigType) -> str:
    return f"an {kind}" if kind in ("int", "enum") else f"a {kind}"
