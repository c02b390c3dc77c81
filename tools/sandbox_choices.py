"""What holds for one sandbox, of what was typed, what a profile says and what the settings say.

Settings and profiles are read only where there are any: reading them takes longer than all the rest.
"""

from __future__ import annotations

import os

from omac.domain import places
from omac.tools.sandbox_options import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.adapters.sandbox.profile import Profile
    from omac.tools.sandbox_options import Asked

SETTING_VARIABLES = ("OMAC_GIT_HOOKS", "OMAC_GIT_REFS", "OMAC_CACHE_REDIRECT_XDG")


class Choices:
    """Paths are canonical; `env` words are NAME or NAME=VALUE; `guard_scratch` is as in a PATH."""

    def __init__(self) -> None:
        self.backend = "auto"
        self.network = "host"
        self.ports: tuple[int, ...] = ()
        self.allow: list[str] = []
        self.read: list[str] = []
        self.deny: list[str] = []
        self.env: list[str] = []
        self.limits: dict[str, float] = {}
        self.ephemeral_cache = False
        self.redirect_xdg = False
        self.git_hooks = "deny"
        self.git_refs = "all"
        self.guard_scratch = ""
        self.warnings: tuple[str, ...] = ()


def choices_of(asked: Asked, host: Mapping[str, str], home: str, workdir: str) -> Choices:
    """What holds. Raises Refusal (misuse, settings-invalid)."""
    found = Choices()
    own = places.configuration(host, home) + "/settings.toml"
    project = workdir + "/.omac/settings.toml"
    if os.path.lexists(own) or os.path.lexists(project) or any(host.get(name) for name in SETTING_VARIABLES):
        from omac.tools.sandbox_settings import apply

        apply(found, host, workdir)
    if asked.profile:
        from omac.adapters.sandbox import profile

        _say(found, profile.read(asked.profile, host, home, workdir))
    found.backend = asked.backend or found.backend
    found.network = asked.network or found.network
    found.ports += tuple(int(port) for port in asked.open_ports)
    found.allow += [absolute(path, home) for path in asked.allow]
    found.read += [absolute(path, home) for path in asked.read]
    found.deny += [absolute(path, home) for path in asked.deny]
    found.env += asked.env
    if asked.limits:
        from omac.adapters.sandbox import limits

        found.limits |= limits.parse(asked.limits)
    found.ephemeral_cache = found.ephemeral_cache or asked.ephemeral_cache
    return found


def _say(found: Choices, said: Profile) -> None:
    """What a profile says."""
    found.backend = said.backend or found.backend
    found.network = said.network or found.network
    found.ports += said.ports
    found.allow += said.allow
    found.read += said.read
    found.deny += said.deny
    found.env += said.env
    found.limits |= said.limits
    found.git_hooks = said.git_hooks or found.git_hooks
    found.git_refs = said.git_refs or found.git_refs
    found.redirect_xdg = said.redirect_xdg or found.redirect_xdg
    found.warnings += said.warnings
