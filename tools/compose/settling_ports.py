"""The adapters that settle what is asked of a sandbox: settings, profiles, and paths as they are.

`omac start` settles a request, and leaves the rest to the sandbox's own process, which loads what that takes.
"""

from __future__ import annotations

import os

from omac.adapters.files import bounded
from omac.adapters.linux import host_programs
from omac.adapters.linux import resolve_symlinks as symlinks
from omac.adapters.linux.home import home_of
from omac.domain.kernel import state_paths
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.hotpath import code_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.services.sandbox import ports

SETTING_VARIABLES = (
    "OMAC_GIT_HOOKS", "OMAC_GIT_REFS", "OMAC_CACHE_REDIRECT_XDG", "OMAC_JOURNAL_WITNESS", "OMAC_JOURNAL_WITNESS_TOKEN",
)  # fmt: skip
CONTENT_BYTES_MAX = 2 << 20


class _Files:
    """Files of the host."""

    exists = staticmethod(os.path.lexists)
    is_folder = staticmethod(os.path.isdir)
    resolve_symlinks = staticmethod(symlinks.resolve_symlinks)
    unresolved = staticmethod(symlinks.unresolved)
    untrusted_folders = staticmethod(host_programs.untrusted_folders)

    @staticmethod
    def canonical(path: str) -> str:
        return os.path.realpath(path)

    @staticmethod
    def content(path: str) -> bytes:
        return bounded.read_start(path, CONTENT_BYTES_MAX)


class SettlingAdapters:
    """The adapters that settling a request needs, for an environment."""

    files: ports.FilesPort = _Files()

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.home = os.path.realpath(home_of(environment))

    def settings(self, workdir: str) -> SandboxRequest:
        """Return the request that the settings make. Without settings, nothing is loaded: reading them takes longer
        than all the rest."""
        own = state_paths.configuration(self.environment, self.home) + "/settings.toml"
        there = os.path.lexists(own) or os.path.lexists(workdir + "/.omac/settings.toml")
        if not there and not any(self.environment.get(name) for name in SETTING_VARIABLES):
            return SandboxRequest()
        with code_cache.Unnoted():
            from omac.tools.compose.sandbox_settings import request_of_settings

            return request_of_settings(self.environment, workdir)

    def profile(self, name: str, workdir: str) -> SandboxRequest:
        """Return the request that a profile makes. Raises Refusal (settings-invalid)."""
        with code_cache.Unnoted():
            from omac.adapters.sandbox.profile import read

            return read(name, self.environment, self.home, workdir)
