"""A skill: a folder with SKILL.md and, if it has a sidecar, omac.yaml; here are the types that such a file becomes.

`omac.domain.skills.contract.parse_meta` makes a `Meta` of the decoded document, or raises `MetaError`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from omac.domain.kernel.refusal import KERNEL_MESSAGES, quoted
from omac.domain.skills.patterns import PATTERN_CHARS_MAX
from omac.domain.skills.registration import Code

MOUNT = re.compile(r"\A[a-z0-9][a-z0-9-]{0,62}\Z")
VARIABLE = re.compile(r"\A[A-Z_][A-Z0-9_]{0,127}\Z")  # that omac sets
HOST_VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")  # that it finds, as in http_proxy
SKILL_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
NAME_FOR_EVERY_AGENT = re.compile(r"\A[a-z0-9]+(-[a-z0-9]+)*\Z")  # the form of agentskills.io, within SKILL_NAME

TEXT = r"\A[^\0\ud800-\udfff]*\Z"
BODY_BYTES_MAX = 2**40
IDLE_SECS_MAX = 2**31 - 1
CALLS_MAX = 1_000_000

Text = Annotated[str, msgspec.Meta(pattern=TEXT)]
Pattern = Annotated[str, msgspec.Meta(pattern=TEXT, max_length=PATTERN_CHARS_MAX)]
Variable = Annotated[str, msgspec.Meta(pattern=VARIABLE.pattern)]
HostVariable = Annotated[str, msgspec.Meta(pattern=HOST_VARIABLE.pattern)]
ConfigType = Literal["string", "bool", "int", "enum"]
ScopeKind = Literal["workdir", "global"]


def in_variables(mount: str) -> str:
    """Return a mount as the variables that agents use name it."""
    return mount.upper().replace("-", "_")


class MetaError(Exception):
    """omac.yaml breaks its contract: `field` says where (dotted path), `problem` says how."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Health(msgspec.Struct, frozen=True, array_like=True):
    """The probe that shows that a sidecar is ready: GET `path` until 2xx, for at most `timeout_ms`.

    `interval_ms` bounds the pause between two tries; the first pauses are shorter.
    """

    path: str = "/status"
    initial_delay_ms: int = 0
    timeout_ms: int = 5_000
    interval_ms: int = 500


class Limits(msgspec.Struct, frozen=True):
    """The limits that a skill sets for its calls. None means omac's own default."""

    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=BODY_BYTES_MAX)] | None = None
    idle_timeout_secs: Annotated[int, msgspec.Meta(ge=0, le=IDLE_SECS_MAX)] | None = None
    total_timeout_secs: Annotated[int, msgspec.Meta(ge=1, le=IDLE_SECS_MAX)] | None = None
    concurrent_calls: Annotated[int, msgspec.Meta(ge=1, le=CALLS_MAX)] | None = None
    calls_per_second: Annotated[int, msgspec.Meta(ge=1, le=CALLS_MAX)] | None = None


class Secret(msgspec.Struct, frozen=True):
    """A credential the sidecar wants in its environment, by name."""

    name: Variable
    description: Text = ""
    required: bool = True
    pattern: Pattern | None = None
    default_from_env: HostVariable | None = None
    multiline: bool = False


class Config(msgspec.Struct, frozen=True):
    """A setting the sidecar wants in its environment."""

    name: str
    description: str = ""
    type: ConfigType = "string"
    required: bool = True
    default: str | None = None
    default_from_env: str | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()


class SidecarMeta(msgspec.Struct, frozen=True):
    """The `sidecar` section: what to run, where to mount it, what it needs."""

    command: tuple[str, ...]
    mount: str
    env_passthrough: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    config: tuple[Config, ...] = ()
    health: Health = Health()
    limits: Limits = Limits()
    install_scripts: dict[str, str] = {}
    protocols: tuple[str, ...] = ()

    @property
    def fields(self) -> "tuple[Secret | Config, ...]":
        """Every value it wants given: secrets, then settings."""
        return (*self.secrets, *self.config)

    def host_variable(self, field: "Secret | Config", host: Mapping[str, str]) -> str | None:
        """Return the variable of `host` that fills in for a field without a value; None: there is none. A secret that
        `env_passthrough` names too is looked for under its own name first; an empty variable is none."""
        names = (field.name if self.is_passed_through(field) else None, field.default_from_env)
        return next((name for name in names if name and host.get(name)), None)

    def is_passed_through(self, field: "Secret | Config") -> bool:
        """Return whether the host's variable of the same name fills in for a field."""
        return isinstance(field, Secret) and field.name in self.env_passthrough


class UnknownKey(msgspec.Struct, frozen=True):
    """A key of omac.yaml that omac ignores: `where` is the dotted path of its section, `key` None for one not text."""

    where: str
    key: str | None


class Meta(msgspec.Struct, frozen=True):
    """A whole omac.yaml."""

    name: str
    version: str = ""
    description: str = ""
    sidecar: SidecarMeta | None = None
    unknown_keys: tuple[UnknownKey, ...] = ()


class Guide(msgspec.Struct, frozen=True):
    """The front matter of a SKILL.md; `problem` says what is wrong with it, if anything is."""

    name: str = ""
    description: str = ""
    problem: str | None = None


class FoundSkill(msgspec.Struct, frozen=True):
    """A skill folder with an omac.yaml as discovery saw it: `meta`, or the `problem` that keeps it from being read.

    `base` names the folder it was found under ("agents", or a harness: "opencode", "claude", ...), `skills_dir`
    is that folder's absolute path, `source` the skill's own, `bundle_hash` is "sha256:" and 64 hex digits. `scope` says
    whether it belongs to one project or to this user, `guide` what its SKILL.md says, if there is one.
    """

    name: str
    base: str
    skills_dir: str
    source: str
    bundle_hash: str = ""
    meta: Meta | None = None
    problem: str | None = None
    scope: ScopeKind = "workdir"
    guide: Guide | None = None

    @property
    def sidecar(self) -> SidecarMeta | None:
        """The sidecar of the skill, if it has one."""
        return self.meta.sidecar if self.meta else None

    @property
    def is_guidance(self) -> bool:
        """Return whether there is nothing to run: it can be read, and has no sidecar."""
        return self.problem is None and self.sidecar is None

    @property
    def mend_command(self) -> str:
        """The command for its problem, which is in omac.yaml unless it names something else."""
        if "Input/output error" in (self.problem or ""):  # EIO
            return KERNEL_MESSAGES
        is_in_meta = self.problem is None or "omac.yaml" in self.problem
        return f"${{EDITOR:-vi}} {quoted(self.source)}/omac.yaml" if is_in_meta else f"ls -la {quoted(self.source)}"

    @property
    def code(self) -> Code:
        """The code of the skill as it was found; no digest is taken."""
        return Code(self.source, self.bundle_hash)
