"""A sidecar: the host-side process of one skill in one directory, kept alive until it is stopped or gives up."""

import msgspec

from omac.domain.skill import Health


class Variable(msgspec.Struct, frozen=True, array_like=True):
    """A declared variable and where its value comes from. Values of secrets are never recorded."""

    name: str
    default: str | None = None
    from_env: str | None = None
    secret: bool = False


class SidecarSpec(msgspec.Struct, frozen=True, array_like=True):
    """All that is needed to start a sidecar, again and again, without looking at the skill's files.

    `command` may contain ${SIDECAR_PORT}; `source` is the skill's folder (its working directory),
    `skills_dir` the folder above it, `passthrough` the host variables an approved skill may see.
    """

    skill: str
    mount: str
    workdir: str
    source: str
    skills_dir: str
    bundle_hash: str
    approved: bool
    command: tuple[str, ...]
    health: Health = Health()
    passthrough: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()


class Birth(msgspec.Struct, frozen=True, array_like=True):
    """What identifies a process beyond the reuse of its pid.

    `start_ticks` is field 22 of /proc/PID/stat (clock ticks after boot), `boot_id` the kernel's random boot id.
    `isolated` says whether it has a pid namespace of its own.
    """

    pid: int
    start_ticks: int
    boot_id: str
    port: int
    isolated: bool
    log: str


class Exit(msgspec.Struct, frozen=True, array_like=True):
    """How a process ended: `code`, or the number of the `signal` that killed it."""

    code: int | None = None
    signal: int | None = None


def environment(spec: SidecarSpec, port: int, host: dict[str, str]) -> dict[str, str]:
    """The whole environment of a sidecar, built from nothing but what is named here.

    `host` is omac's own environment: PATH and the locale come from it, and, for an approved skill only, what the
    skill declared. Nothing else does.
    """
    found = {name: host[name] for name in BASE_VARIABLES if name in host}
    if spec.approved:
        found |= {name: host[name] for name in spec.passthrough if name in host}
    for variable in spec.variables:
        value = host.get(variable.from_env) if variable.from_env and spec.approved else None
        value = value or variable.default
        if value is not None:
            found[variable.name] = value
    found |= {
        "SIDECAR_PORT": str(port),
        "SIDECAR_SKILL": spec.skill,
        "OMAC_WORKDIR": spec.workdir,
        "OMAC_HARNESS_SKILLS_DIR": spec.skills_dir,
    }
    return found


BASE_VARIABLES = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "TZ",
)
