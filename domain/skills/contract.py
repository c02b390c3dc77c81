"""The contract of omac.yaml: which documents state a skill, and the error that names the field of one that does not.

`omac.domain.skills.document` says what each field may hold; what relates several of them is checked here.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from omac.domain.skills.document import RULES, ConfigEntry, ScriptsSection, SidecarSection, SkillDocument
from omac.domain.skills.meta import MOUNT, Config, ConfigType, Health, Limits, Meta, MetaError, SidecarMeta
from omac.domain.skills.patterns import PatternError, check_pattern
from omac.domain.skills.unknown_keys import without_unknown_keys
from omac.domain.skills.values import ValueRefused, check_config, shown

# Names that belong to omac, and those by which a value would become code in every process that sees it.
RESERVED_VARIABLES = frozenset({"SIDECAR_PORT", "SIDECAR_SKILL"})
RESERVED_PREFIXES = ("OMAC_", "LD_", "DYLD_")
SEARCHED = "PATH"  # the folders of the programs that were approved; env_passthrough may name it, and has omac's value


def parse_meta(document: object) -> Meta:
    """The Meta that a decoded omac.yaml states, with every default filled in and every bound checked.

    A field that is absent or null takes its default; unknown keys are ignored and listed. Raises MetaError for the
    first field that breaks the contract.
    """
    known, unknown_keys = without_unknown_keys(document)
    try:
        written = msgspec.convert(known, SkillDocument)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        from omac.domain.skills.document_error import translated  # here, for few documents need it

        raise translated(error, known) from None
    return Meta(
        name=written.name,
        version="" if written.version is None else _as_text(written.version),
        description=written.description or "",
        sidecar=None if written.sidecar is None else _sidecar(written.sidecar, written.name),
        unknown_keys=unknown_keys,
    )


def _sidecar(written: SidecarSection, skill_name: str) -> SidecarMeta:
    if written.mount is None and not MOUNT.fullmatch(skill_name):
        rule = f"the name {shown(skill_name)} cannot serve as the mount: give a mount, which {RULES[MOUNT.pattern]}"
        raise MetaError("sidecar.mount", rule)
    _check_names(written)
    for i, secret in enumerate(written.secrets or ()):
        _check_pattern(f"sidecar.secrets[{i}]", secret.pattern)
    return SidecarMeta(
        command=written.command,
        mount=skill_name if written.mount is None else written.mount,
        env_passthrough=written.env_passthrough or (),
        secrets=written.secrets or (),
        config=tuple(_config(f"sidecar.config[{i}]", entry) for i, entry in enumerate(written.config or ())),
        health=Health(**_given(written.health)),
        limits=written.limits or Limits(),
        install_scripts=_install_scripts(written.install_scripts),
        protocols=written.protocols or (),
    )


def _check_names(written: SidecarSection) -> None:
    """Return if each variable of the sidecar's environment is free and declared once. Only a secret may be in
    env_passthrough too: then the host's variable fills in where no value is stored."""
    declared: dict[str, str] = {}
    for where, name in _declarations(written):
        if name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIXES):
            raise MetaError(where, f"{name} is set by omac or changes how programs are loaded: choose another name")
        if name == SEARCHED and not where.startswith("sidecar.env_passthrough"):
            raise MetaError(where, "PATH is set by omac, to the programs that were approved: choose another name")
        if name in declared and not _is_fallback(declared[name], where):
            raise MetaError(where, f"{name} is declared already, as {declared[name]}: remove one of the two")
        declared[name] = where


def _is_fallback(first: str, second: str) -> bool:
    return first.startswith("sidecar.env_passthrough") and second.startswith("sidecar.secrets")


def _declarations(written: SidecarSection) -> Iterator[tuple[str, str]]:
    for index, name in enumerate(written.env_passthrough or ()):
        yield f"sidecar.env_passthrough[{index}]", name
    for index, secret in enumerate(written.secrets or ()):
        yield f"sidecar.secrets[{index}].name", secret.name
    for index, config in enumerate(written.config or ()):
        yield f"sidecar.config[{index}].name", config.name


def _config(where: str, written: ConfigEntry) -> Config:
    kind = cast("ConfigType", written.type or "string")  # the form allows no other
    choices = tuple(map(_as_text, written.choices or ()))
    _check_pattern(where, written.pattern)
    if written.pattern is not None and kind != "string":
        raise MetaError(f"{where}.pattern", f"is only for settings of type string, and this one is {_a(kind)}")
    _check_choices(f"{where}.choices", kind, choices)
    fields = _given(written) | {"type": kind, "choices": choices}
    default = fields.pop("default", None)
    config = Config(**fields)
    if default is None:
        return config
    try:
        return msgspec.structs.replace(config, default=check_config(config, _as_text(default)))
    except ValueRefused as refused:
        raise MetaError(f"{where}.default", refused.problem) from None


def _check_choices(where: str, kind: ConfigType, choices: tuple[str, ...]) -> None:
    if kind == "enum" and not choices:
        raise MetaError(where, "is missing: an enum lists the values to choose from")
    if kind != "enum" and choices:
        raise MetaError(where, f"is only for settings of type enum, and this one is {_a(kind)}")
    if "" in choices or len(set(choices)) != len(choices):
        raise MetaError(where, "must be different from each other, and none of them empty")


def _check_pattern(where: str, pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise MetaError(f"{where}.pattern", f"{shown(pattern)} {error}") from None


def _install_scripts(written: ScriptsSection | None) -> dict[str, str]:
    scripts: dict[str, str] = _given(written)
    for platform, script in scripts.items():
        # It is printed for a person to run: what is shown has to be a file of this skill, in plain sight.
        if not script or not script.isprintable() or script.startswith("/") or ".." in script.split("/"):
            raise MetaError(
                f"sidecar.install_scripts.{platform}", f"{shown(script)} must be a path inside the skill folder"
            )
    return scripts


def _given(written: msgspec.Struct | None) -> dict[str, Any]:  # Any: the fields differ in type
    """Return the fields of a section that have a value; the others take their default."""
    if written is None:
        return {}
    return {key: value for key, value in msgspec.structs.asdict(written).items() if value is not None}


def _as_text(value: bool | float | str) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _a(kind: ConfigType) -> str:
    return f"an {kind}" if kind in ("int", "enum") else f"a {kind}"
