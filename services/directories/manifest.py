"""The manifest: a directory as its bridge sees it, its own skills and those that all directories share."""

from typing import Any

import msgspec

from omac.domain.access.control import Listener
from omac.domain.directories.directory import Directory
from omac.domain.kernel import ids
from omac.domain.skills.meta import in_variables
from omac.projections.access.routes import SHARED
from omac.projections.status import SkillStatus, skills_of
from omac.projections.system import System
from omac.services.directories.context import skills_context


class Reach(msgspec.Struct, frozen=True):
    """The addresses of the facade: `base` is "http://127.0.0.1:PORT", `socket` the path of its Unix socket.

    `inside` is the path of that socket as the inner command sees it; empty where the command cannot see it. `offline`:
    the inner command has no network, so that socket is its only way.
    """

    base: str
    socket: str
    inside: str = ""
    offline: bool = False

    def seen_by(self, listener: Listener) -> "Reach":
        """Return the addresses for a caller: an agent's bridge may be in a sandbox, every other caller is outside."""
        if listener == "bridge":
            return Reach(self.base, self.inside, offline=self.offline)
        return msgspec.structs.replace(self, offline=False)

    def socket_base(self, path: str) -> str:
        """The URL of a path by the Unix socket."""
        return f"http+unix://{self.socket.replace('%', '%25').replace('/', '%2F')}/{path}"


class Manifest(msgspec.Struct, frozen=True):
    """Each skill with its URLs, variables for the agent's shell, and `context`: the text for its model."""

    dir: str
    dir_token: str
    state: str
    skills: list[dict[str, Any]]  # the contract's skill objects: keys that do not apply are left out
    env: dict[str, str]
    context: str = ""


def as_compat(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as the Go omac writes one: states with hyphens, of which it has no `restarting`."""
    document: dict[str, Any] = msgspec.to_builtins(manifest)
    for skill in document["skills"]:
        skill["state"] = {"restarting": "ready"}.get(skill["state"], skill["state"].replace("_", "-"))
    return document


def manifest_of(system: System, namespace: ids.HostId, directory: Directory, token: str, reach: Reach) -> Manifest:
    """The manifest of a directory for whoever holds `token`.

    A skill of the directory hides a shared one of the same name; where only the mounts are the same, its flat variable
    is the directory's.
    """
    own = skills_of(system, namespace, directory)
    names = {skill.name for skill in own}
    skills = [*own, *(skill for skill in shared_skills(system, namespace) if skill.name not in names)]
    ready = [_path(skill) for skill in skills if skill.state == "ready"]
    env: dict[str, str] = {"OMAC_SKILLS": ",".join(ready)}
    named = [(skill, in_variables(skill.mount)) for skill in reversed(skills) if skill.mount]
    for skill, name in named:  # the directory's own come last, and stay
        env[f"OMAC_{name}_BASE"] = f"{reach.base}/{token}/{_path(skill)}"
    for skill, name in named:  # and the long names, whatever a mount is called
        long = f"OMAC_D_{token.upper()}_{name}_BASE" if skill.scope == "workdir" else f"OMAC_G_{name}_BASE"
        env[long] = f"{reach.base}/{token}/{_path(skill)}"
    skills_described = [described(skill, f"{token}/{_path(skill)}", reach) for skill in skills]
    sources = {name: skill.source for name, skill in directory.skills.items()}
    context = skills_context(skills, sources, directory.path, offline=reach.offline)
    return Manifest(directory.path, token, directory.status, skills_described, env, context)


def shared_skills(system: System, namespace: ids.HostId) -> tuple[SkillStatus, ...]:
    """The skills that all directories share, by name; none while they are not online."""
    shared = system.directories[ids.directory_stream(namespace, ids.GLOBAL)].state
    return skills_of(system, namespace, shared) if shared.reachable else ()


def described(skill: SkillStatus, path: str | None, reach: Reach) -> dict[str, Any]:
    """A skill as JSON has it; `path` is where the facade has it, None for whoever has no token."""
    document: dict[str, Any] = {"name": skill.name, "scope": skill.scope, "mount": skill.mount, "state": skill.state}
    if path is not None and skill.state in ("ready", "restarting"):
        document["base"] = f"{reach.base}/{path}"
        if reach.socket:
            document["socket_base"] = reach.socket_base(path)
    if skill.state != "ready":
        document["missing"] = list(skill.missing)
        document["fix"] = list(skill.fix)
        document["detail"] = skill.detail
    return document


def _path(skill: SkillStatus) -> str:
    return skill.mount if skill.scope == "workdir" else SHARED + skill.mount
