"""The form of omac.yaml: the keys of each section, with the types and bounds of their values.

msgspec holds a document against it. A field that is absent or null is None here; `omac.domain.skills.meta` has the
defaults. Types are strict, so that a slip is reported where it was made.
"""

import re
from typing import Annotated

import msgspec

from omac.domain.skills.meta import (
    HOST_VARIABLE,
    MOUNT,
    SKILL_NAME,
    TEXT,
    VARIABLE,
    HostVariable,
    Limits,
    Pattern,
    Secret,
    Text,
    Variable,
)
from omac.domain.skills.values import INTEGER_MAX

DELAY_MS_MAX = 600_000
ENTRIES_MAX = 4_096  # of a list

CONFIG_TYPE = r"\A(?:string|bool|int|enum)\Z"
HEALTH_PATH = r"\A/[!-~]*\Z"
VARIABLE_RULE = "must be 1 to 128 of {} and not begin with a digit"
RULES = {  # what an error says, after the text, of one that does not match the pattern
    TEXT: "holds NUL or an incomplete surrogate pair: remove it",
    SKILL_NAME.pattern: "must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit",
    MOUNT.pattern: "must be 1 to 63 of a-z 0-9 - and begin with a letter or digit",
    VARIABLE.pattern: VARIABLE_RULE.format("A-Z 0-9 _"),
    HOST_VARIABLE.pattern: VARIABLE_RULE.format("A-Z a-z 0-9 _"),
    CONFIG_TYPE: "must be one of string, bool, int, enum",
    HEALTH_PATH: 'must begin with "/" and hold only visible ASCII characters',
}

Word = Annotated[str, msgspec.Meta(pattern=TEXT, min_length=1)]
# Text, or a YAML number or truth value that someone wrote without quotes where its text is meant.
Scalar = bool | Annotated[int, msgspec.Meta(ge=-INTEGER_MAX - 1, le=INTEGER_MAX)] | Text
Delay = Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)]
Pause = Annotated[int, msgspec.Meta(ge=1, le=DELAY_MS_MAX)]
List = msgspec.Meta(max_length=ENTRIES_MAX)


class ConfigEntry(msgspec.Struct):
    """An entry of `sidecar.config`."""

    name: Variable
    description: Text | None = None
    type: Annotated[str, msgspec.Meta(pattern=CONFIG_TYPE)] | None = None
    required: bool | None = None
    default: Scalar | None = None
    default_from_env: HostVariable | None = None
    pattern: Pattern | None = None
    choices: Annotated[tuple[Scalar, ...], List] | None = None


class HealthSection(msgspec.Struct):
    """The section `sidecar.health`."""

    path: Annotated[str, msgspec.Meta(pattern=HEALTH_PATH)] | None = None
    initial_delay_ms: Delay | None = None
    timeout_ms: Pause | None = None
    interval_ms: Pause | None = None


class ScriptsSection(msgspec.Struct):
    """The section `sidecar.install_scripts`: a path for each platform."""

    macos: Text | None = None
    linux: Text | None = None
    wsl: Text | None = None


class SidecarSection(msgspec.Struct):
    """The section `sidecar`."""

    command: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1, max_length=ENTRIES_MAX)]
    mount: Annotated[str, msgspec.Meta(pattern=MOUNT.pattern)] | None = None
    env_passthrough: Annotated[tuple[HostVariable, ...], List] | None = None
    secrets: Annotated[tuple[Secret, ...], List] | None = None
    config: Annotated[tuple[ConfigEntry, ...], List] | None = None
    health: HealthSection | None = None
    limits: Limits | None = None
    install_scripts: ScriptsSection | None = None
    protocols: Annotated[tuple[Word, ...], List] | None = None


class SkillDocument(msgspec.Struct):
    """A whole omac.yaml."""

    name: Annotated[str, msgspec.Meta(pattern=SKILL_NAME.pattern)]
    version: Scalar | float | None = None
    description: Text | None = None
    sidecar: SidecarSection | None = None


SECTIONS: dict[str, type[msgspec.Struct]] = {  # by the dotted path, without indices
    "": SkillDocument,
    "sidecar": SidecarSection,
    "sidecar.secrets": Secret,
    "sidecar.config": ConfigEntry,
    "sidecar.health": HealthSection,
    "sidecar.limits": Limits,
    "sidecar.install_scripts": ScriptsSection,
}
UNREAD = ("type", "author", "dependencies")  # keys of the top level that skills have and omac does not use
REQUIRED = {
    "name": "is missing: give the skill a name",
    "sidecar.command": "must list the program to run and its arguments",
    "sidecar.secrets.name": "is missing: name the environment variable",
    "sidecar.config.name": "is missing: name the environment variable",
}
INDEX = re.compile(r"\[[0-9]+\]")


def without_indices(where: str) -> str:
    """Return the dotted path by which SECTIONS and REQUIRED know the field `where`."""
    return INDEX.sub("", where)


def below(where: str, key: str) -> str:
    """Return the dotted path of `key` in the section `where`; "" is the document itself."""
    return f"{where}.{key}" if where else key
