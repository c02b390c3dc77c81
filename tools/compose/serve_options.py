"""The options of `omac serve` and `omac start`, as a typed request."""

import os
from collections.abc import Mapping

import msgspec

from omac.adapters.linux.home import home_of
from omac.domain.harness.harness import Harness
from omac.domain.kernel.paths import below
from omac.domain.sidecars.sidecar import RestartPolicy
from omac.tools.compose.agent_launch import AgentLaunch
from omac.tools.compose.tool_caches import cache_folders


class Address(msgspec.Struct, frozen=True):
    """A loopback address to listen on; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0


def flags_of(unapproved: str | None, audit: str | None, *, accept_changes: bool) -> dict[str, str | None]:
    """Return the settings that flags of `omac serve` and `omac start` stand for, by name."""
    drift = "accept" if accept_changes else None
    return {"serve.unapproved": unapproved, "serve.bundle_drift": drift, "serve.audit": audit}


class ServeOptions(msgspec.Struct, frozen=True):
    """The options of `omac serve`, or of `omac start`: then `beside` holds, and `workdirs` has one directory.

    Roots and workdirs, which are activated at once, are canonical; `launch` None: nothing is launched. Other omacs
    deliver checkpoints to `witness`, if it is set. `bridge_compat`: bridges that were written for the Go omac are
    served, without a token.
    """

    harness: Harness
    roots: tuple[str, ...]
    workdirs: tuple[str, ...] = ()
    launch: AgentLaunch | None = None
    beside: bool = False
    journal: str | None = None
    control: Address = Address()
    facade: Address = Address()
    witness: Address | None = None
    settings: dict[str, str | None] = {}  # by name: what was asked by flags
    restarts: RestartPolicy = RestartPolicy()
    bridge_compat: bool = False

    @property
    def sandboxed(self) -> str:
        """The directory that a sandbox is launched in; empty for none."""
        return self.launch.workdir if self.launch is not None and self.launch.request is not None else ""

    def writable(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the canonical folders that agents may change, as far as this is known before they begin.

        A root that holds the home is left out: no sandbox may write all of it.
        """
        home = os.path.realpath(home_of(environment))
        roots = tuple(root for root in self.roots if not below(home, root))
        return (*roots, *(self.launch.allowed if self.launch is not None else ()), *cache_folders(environment))
