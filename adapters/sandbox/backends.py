"""The backends of `omac sandbox run`: bubblewrap, or, where the kernel refuses what that needs, Landlock alone.

Landlock alone is never a silent second best: what it cannot keep is refused, and that it is used is said.
"""

from __future__ import annotations

import os
import sys

from omac.adapters.linux import host_programs
from omac.adapters.sandbox import landlock
from omac.adapters.sandbox.launch import Failed, HeldProgram, UnderBubblewrap
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, PRIVATE

SHOWN_MAX = 3  # parts of a policy that cannot be kept
MISSING = "bubblewrap is not installed"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from omac.domain.sandbox.confinement import Entry, Policy
    from omac.domain.sandbox.request import SandboxRequest

    class GitPart(Protocol):
        """The git part of a policy: its entries, and the repositories."""

        @property
        def entries(self) -> tuple[Entry, ...]: ...
        @property
        def repositories(self) -> Sequence[object]: ...


class Bubblewrap:
    """Namespaces, built by bubblewrap; with Landlock's network and scope rules, and the system call filter."""

    name = "bubblewrap"

    def __init__(self, program: str) -> None:
        self._program = program

    def start(self, policy: Policy, argv: Sequence[str], _layouts: Iterable[GitPart]) -> HeldProgram:
        """Return the program, to be entered. Raises Refusal, Interrupted, then and there."""
        return _Diagnosed(policy, argv, self._program, os.uname().machine)


class _Diagnosed(UnderBubblewrap):
    """A program whose sandbox, where it cannot be built, is refused with the reason."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        super().__exit__(kind, problem, trace)
        if isinstance(problem, Failed):
            from omac.adapters.sandbox.probes import why_bubblewrap_failed

            private = [entry.path for entry in self.policy.entries if entry.access == PRIVATE]
            raise why_bubblewrap_failed(self._bwrap, str(problem), private) from None


class LandlockOnly:
    """No namespaces: Landlock's rules for files, network and scope, and the system call filter. `is_substitute`: it
    stands in for bubblewrap, which is not installed."""

    def __init__(self, *, weaker_git: bool, is_substitute: bool = False) -> None:
        self._weaker_git = weaker_git
        self._is_substitute = is_substitute
        self.name = "landlock, weaker git" if weaker_git else "landlock"

    def start(self, policy: Policy, argv: Sequence[str], layouts: Iterable[GitPart]) -> HeldProgram:
        """Return the program, to be entered; `policy` is weakened where that was asked for. Raises Refusal."""
        from omac.adapters.sandbox.flattened import flattened, weakened
        from omac.adapters.sandbox.landlock_only import refusals
        from omac.adapters.sandbox.temporary_folder import TemporaryFolder
        from omac.adapters.sandbox.without_namespaces import WithoutNamespaces

        temporary = TemporaryFolder()
        try:
            if self._weaker_git:
                policy.entries = weakened(policy.entries, [entry for layout in layouts for entry in layout.entries])
            flat = flattened(policy, temporary.path)
            if problems := refusals(flat):
                fix = [*self._installed(), "omac sandbox doctor  # what bubblewrap needs on this machine"]
                if any(entry.access == DENY and entry.content for entry in flat.entries):
                    fix.append("omac sandbox run --allow-env-files -- COMMAND  # shows .env and the like")
                if not self._weaker_git and any(layout.repositories for layout in layouts):
                    fix.append("omac sandbox run --weaker-git -- COMMAND  # lets it change git's settings and hooks")
                more = f"; and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
                why = f"{MISSING}, and Landlock" if self._is_substitute else "Landlock"
                message = f"{why} alone cannot keep this: {'; '.join(problems[:SHOWN_MAX])}{more}"
                raise Refusal("sandbox-inexpressible", message, fix=fix)
            why = f"{MISSING}: " if self._is_substitute else ""
            sys.stderr.write(f"omac: {why}Landlock alone confines this; what it does not keep is in SECURITY.md\n")
            if self._weaker_git:
                sys.stderr.write(
                    "omac: --weaker-git: it can change git's settings and hooks, which are inspected when it ends: "
                    "run no git there meanwhile\n"
                )
            return WithoutNamespaces(flat, argv, temporary)
        except BaseException:
            temporary.remove()
            raise

    def _installed(self) -> list[str]:
        """Return the command that installs bubblewrap, where it is missed."""
        from omac.adapters.sandbox.probes import install_bubblewrap

        return [install_bubblewrap()] if self._is_substitute else []


Backend = Bubblewrap | LandlockOnly


def chosen(request: SandboxRequest, policy: Policy) -> Backend:
    """The backend for a settled request. Raises Refusal (sandbox-unavailable)."""
    if request.backend == "landlock":
        return LandlockOnly(weaker_git=request.weaker_git)
    if program := host_programs.find("bwrap"):
        _require_landlock(policy)
        return Bubblewrap(program)
    if request.backend == "auto":
        return LandlockOnly(weaker_git=request.weaker_git, is_substitute=True)
    from omac.adapters.sandbox.probes import install_bubblewrap

    raise Refusal("sandbox-unavailable", MISSING, fix=[install_bubblewrap(), "omac sandbox doctor"])


def namespaced(backend: str) -> bool:
    """Return whether the requested backend gives a program its own namespaces."""
    return backend == "bubblewrap" or (backend == "auto" and bool(host_programs.find("bwrap")))


def _require_landlock(policy: Policy) -> None:
    """Say what this kernel cannot keep out, where the policy counts on it."""
    abi = landlock.abi()
    if policy.fence and abi < landlock.FENCE_ABI:
        policy.fence = ()
        sys.stderr.write(
            "omac: on this kernel it can make links among git's files while it runs (Linux 5.19 can refuse that); "
            "they are set aside when it ends: run no git there meanwhile\n"
        )
    if policy.network == "none":
        return  # nothing of the host's network is there
    missing = []
    if abi < landlock.NETWORK_ABI:
        missing.append("it can listen on any TCP port (Linux 6.7 can refuse that)")
    if abi < landlock.SCOPE_ABI:
        missing.append("it can connect to abstract sockets of other programs (Linux 6.12 can refuse that)")
    if missing:
        sys.stderr.write(f"omac: on this kernel {'; '.join(missing)}; --network none keeps it from both\n")
