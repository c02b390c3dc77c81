"""What holds for one sandbox, of what was typed, what a profile says and what the settings say.

Settings and profiles are read only where there are any: reading them takes longer than all the rest.
"""

from __future__ import annotations

import os

from omac.adapters.linux.resolve_symlinks import trail
from omac.domain.kernel import state_paths
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, look_at
from omac.tools.hotpath.sandbox_options import absolute, unresolved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.adapters.sandbox.profile import Profile
    from omac.tools.hotpath.sandbox_options import SandboxRequest

SETTING_VARIABLES = ("OMAC_GIT_HOOKS", "OMAC_GIT_REFS", "OMAC_CACHE_REDIRECT_XDG")


class Choices:
    """Paths are canonical in the end; `env` words are NAME or NAME=VALUE; `guard_scratch` is as in a PATH."""

    def __init__(self) -> None:
        self.backend = "auto"
        self.network = "host"
        self.ports: tuple[int, ...] = ()
        self.allow: list[str] = []
        self.read: list[str] = []
        self.deny: list[str] = []
        self.deny_names: list[str] = []
        self.allow_env_files = False
        self.weaker_git = False
        self.env: list[str] = []
        self.limits: dict[str, float] = {}
        self.ephemeral_cache = False
        self.redirect_xdg = False
        self.git_hooks = "deny"
        self.git_refs = "all"
        self.guard_scratch = ""
        self.warnings: tuple[str, ...] = ()


def choices_of(asked: SandboxRequest, host: Mapping[str, str], home: str, trees: list[str]) -> Choices:
    """What holds, where the program may change `trees`, the first of which it works in.

    Raises Refusal: misuse, settings-invalid, unsafe-link.
    """
    workdir = trees[0]
    found = Choices()
    own = state_paths.configuration(host, home) + "/settings.toml"
    project = workdir + "/.omac/settings.toml"
    if os.path.lexists(own) or os.path.lexists(project) or any(host.get(name) for name in SETTING_VARIABLES):
        from omac.tools.compose.sandbox_settings import apply

        apply(found, host, workdir)
    if asked.profile:
        from omac.adapters.sandbox import profile

        _say(found, profile.read(asked.profile, host, home, workdir))
    found.backend = asked.backend or found.backend
    found.network = asked.network or found.network
    found.ports += tuple(int(port) for port in asked.open_ports)
    found.allow = _resolved([*found.allow, *asked.allow], home, trees)
    found.read = _resolved([*found.read, *asked.read], home, trees)
    found.deny = [absolute(path, home) for path in (*found.deny, *asked.deny)]
    found.deny_names += asked.deny_names
    found.weaker_git = asked.weaker_git
    found.allow_env_files = found.allow_env_files or asked.allow_env_files
    found.env += asked.env
    if asked.limits:
        from omac.adapters.sandbox import limits

        found.limits |= limits.parse(asked.limits)
    found.ephemeral_cache = found.ephemeral_cache or asked.ephemeral_cache
    return found


def refuse_links(path: str, links: list[tuple[str, str]], trees: list[str]) -> None:
    """A link in a folder that an agent may change could lead anywhere by now: it is not followed.

    `path` is as typed, `links` as of `trail`. Raises Refusal (unsafe-link).
    """
    for link, target in links:
        if any(below(link, tree) for tree in trees):
            raise Refusal(
                "unsafe-link",
                f"{path} leads through {link}, a link (to {target}) that a program in the sandbox could have made",
                fix=[f"{look_at(link)}  # to grant its target, name the target itself"],
            )


def _resolved(paths: list[str], home: str, trees: list[str]) -> list[str]:
    found = []
    for path in paths:
        links, real = trail(unresolved(path, home))
        refuse_links(path, links, trees)
        found.append(real)
    return found


def _say(found: Choices, said: Profile) -> None:
    """What a profile says."""
    found.backend = said.backend or found.backend
    found.network = said.network or found.network
    found.ports += said.ports
    found.allow += said.allow
    found.read += said.read
    found.deny += said.deny
    found.deny_names += said.deny_names
    found.allow_env_files = said.allow_env_files
    found.env += said.env
    found.limits |= said.limits
    found.git_hooks = said.git_hooks or found.git_hooks
    found.git_refs = said.git_refs or found.git_refs
    found.redirect_xdg = said.redirect_xdg or found.redirect_xdg
    found.warnings += said.warnings
