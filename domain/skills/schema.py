"""The JSON schema of omac.yaml, for editors: made of the types that omac holds a file against.

It knows keys, types and bounds. Rules between fields, such as a name that is declared twice, are `omac skill check`'s.
"""

from typing import Any

import msgspec

from omac.domain.skills.document import CONFIG_TYPE, SECTIONS, UNREAD, SkillDocument
from omac.domain.skills.meta import TEXT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CHOICES = {CONFIG_TYPE: ["string", "bool", "int", "enum"]}  # patterns that list words
DESCRIPTIONS = {  # by the dotted path, as in SECTIONS
    "name": "The skill's name, under which people approve it.",
    "version": "Yours to choose. Quote it, or YAML may read 1.10 as a number.",
    "description": "One line for people who read a list of skills. Agents read the description in SKILL.md.",
    "sidecar": "What omac runs on the host for this skill. Without it, SKILL.md is all there is.",
    "sidecar.command": "The program and its arguments; no shell takes part. It starts in the skill's folder and "
    "listens on 127.0.0.1 at the port in SIDECAR_PORT.",
    "sidecar.mount": "The first part of the path, and the middle of the variable that agents use: mount echo gives "
    "$OMAC_ECHO_BASE. The default is the skill's name.",
    "sidecar.env_passthrough": "Variables of the host that the sidecar gets once it is approved.",
    "sidecar.secrets": "Credentials, which only the sidecar gets, as environment variables.",
    "sidecar.config": "Settings, whose values anybody may see, as environment variables.",
    "sidecar.health": "How omac learns that the sidecar is ready.",
    "sidecar.limits": "What one call may cost.",
    "sidecar.install_scripts": "A script for each platform that installs what the sidecar needs. omac names it, and "
    "does not run it.",
    "sidecar.protocols": "Protocols that the sidecar speaks beside HTTP. omac does not read this.",
    "sidecar.secrets.name": "The environment variable.",
    "sidecar.secrets.description": "Shown to the person who is asked for the value.",
    "sidecar.secrets.required": "Whether the skill waits for a value; true by default.",
    "sidecar.secrets.pattern": "A regular expression (RE2) that the whole value must match.",
    "sidecar.secrets.default_from_env": "A variable of the host that fills in where no value is stored.",
    "sidecar.secrets.multiline": "Whether the value has several lines, as a key in PEM form has.",
    "sidecar.config.name": "The environment variable.",
    "sidecar.config.description": "Shown to the person who is asked for a value.",
    "sidecar.config.type": "The kind of value; an enum also lists its choices.",
    "sidecar.config.required": "Whether the skill waits for a value; true by default.",
    "sidecar.config.default": "The value where none is given.",
    "sidecar.config.default_from_env": "A variable of the host that fills in after the default.",
    "sidecar.config.pattern": "A regular expression (RE2) that the whole value must match.",
    "sidecar.config.choices": "The values of an enum.",
    "sidecar.health.path": "omac sends GET to this path until the answer is 2xx; /status by default.",
    "sidecar.health.initial_delay_ms": "The pause before the first try.",
    "sidecar.health.timeout_ms": "How long the sidecar may take; 5000 by default.",
    "sidecar.health.interval_ms": "The longest pause between two tries; 500 by default.",
    "sidecar.limits.max_body_bytes": "The largest request body; 10 MiB by default.",
    "sidecar.limits.idle_timeout_secs": "How long a call may be silent; 300 by default, 30 until the answer begins.",
    "sidecar.limits.total_timeout_secs": "How long a call may take; no limit by default.",
    "sidecar.limits.concurrent_calls": "How many calls may be under way at once; no limit by default.",
    "sidecar.limits.calls_per_second": "How many calls may begin in a second; no limit by default.",
    "sidecar.install_scripts.macos": "A path in the skill's folder.",
    "sidecar.install_scripts.linux": "A path in the skill's folder.",
    "sidecar.install_scripts.wsl": "A path in the skill's folder.",
}


def schema() -> dict[str, Any]:
    """Return the schema. A key that omac does not know is an error in it: omac itself ignores and reports that."""
    (reference,), definitions = msgspec.json.schema_components([SkillDocument], ref_template="#/$defs/{name}")
    for section, form in SECTIONS.items():
        definition = definitions[form.__name__]
        properties = definition["properties"]
        required = definition.get("required", [])
        for name, before in properties.items():
            path = f"{section}.{name}" if section else name
            value = _portable(before)
            value.pop("default", None)  # it says null; descriptions tell more
            if name not in required:
                value = _or_null(value)
            properties[name] = {"description": DESCRIPTIONS[path]} | value
        definition["additionalProperties"] = False
    definitions[SkillDocument.__name__]["properties"] |= dict.fromkeys(UNREAD, True)
    return {"$schema": DIALECT, "title": "omac.yaml"} | dict(reference) | {"$defs": definitions}


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    """Allow null, which means the same as a key that is absent."""
    choices = value.get("anyOf", [value])
    return {"anyOf": choices if {"type": "null"} in choices else [*choices, {"type": "null"}]}


def _portable(value: Any) -> Any:
    """Return a schema with the patterns that other languages know as well."""
    if isinstance(value, list):
        return [_portable(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: _portable(item) for name, item in value.items()}
    pattern = made.pop("pattern", None)
    if pattern in CHOICES:
        made["enum"] = CHOICES[pattern]
    elif pattern is not None and pattern != TEXT:  # that text is what JSON can hold anyway
        made["pattern"] = f"^{pattern.removeprefix(chr(92) + 'A').removesuffix(chr(92) + 'Z')}$"
    return made
