"""What a sandbox would be given, for people and for programs, and the digest by which the journal knows it."""

from __future__ import annotations

import sys

from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.terminal_escaping import printable, printable_json
from omac.domain.sandbox.confinement import COPY, LINK
from omac.journal.spool import encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.tools.compose.sandbox_policy import SandboxPlan


def explain(plan: SandboxPlan, json: bool) -> int:
    """Print every path, its access and the reason; the exit code."""
    if json:
        _print(printable_json(encoded(_document(plan))))
        return 0
    from shlex import join

    policy = plan.policy
    _tell(f"workdir  {policy.workdir}")
    if plan.argv:
        _tell(f"command  {join(plan.argv)}")
    _tell(f"backend  {_backend(plan)}")
    ports = f"; listens on {', '.join(map(str, policy.ports))}" if policy.ports else ""
    _tell(f"network  {policy.network}{ports}")
    for name, by in _limits(plan).items():
        _tell(f"limit    {name}={_exactly(policy.limits[name])} by {by}")
    _tell(f"gets     {' '.join(sorted(policy.environment))}")
    _tell("")
    width = min(max((len(entry.path) for entry in policy.entries), default=0), 72)
    for entry in policy.entries:
        shown = f"{entry.path} -> {entry.target}" if entry.access == LINK else entry.path
        _tell(f"{entry.access:8} {shown:{width}}  {entry.reason}")
    for path in policy.hidden:
        _tell(f"{'never':8} {path:{width}}  omac's own")
    for warning in policy.warnings:
        _tell("")
        _tell(f"note: {warning}")
    return 0


def digest(plan: SandboxPlan) -> str:
    """The SHA-256 of a policy, 64 hex digits: of every path with its access, network, limits and names of variables."""
    return sha256_hex(encoded(_document(plan)).encode())


def _document(plan: SandboxPlan) -> dict[str, object]:
    policy = plan.policy
    return {
        "workdir": policy.workdir,
        "command": plan.argv,
        "harness": plan.harness,
        "backend": _backend(plan),
        "network": policy.network,
        "ports": list(policy.ports),
        "limits": {name: {"value": _exactly(policy.limits[name]), "by": by} for name, by in _limits(plan).items()},
        "environment": sorted(policy.environment),
        "paths": [
            {"path": entry.path, "access": entry.access, "reason": entry.reason}
            | ({"target": entry.target} if entry.access == LINK else {})
            | ({"sha256": sha256_hex(entry.content)} if entry.access == COPY else {})
            for entry in policy.entries
        ],
        "hidden": list(policy.hidden),
        "fence": list(policy.fence),
        "warnings": list(policy.warnings),
    }


def _exactly(amount: float) -> str:
    return str(int(amount)) if amount == int(amount) else str(amount)


def _limits(plan: SandboxPlan) -> dict[str, str]:
    """By what each limit is enforced."""
    return dict(plan.enforcement.by) if plan.enforcement else {}


def _tell(line: str) -> None:
    """For people: a path shows its control characters, and no terminal obeys them."""
    _print(printable(line))


def _print(line: str) -> None:
    """In UTF-8, whatever the locale."""
    sys.stdout.buffer.write(f"{line}\n".encode())


def _backend(plan: SandboxPlan) -> str:
    """The one that is used, where the choice is left to omac."""
    from omac.tools.compose.sandbox_backends import namespaced

    if namespaced(plan.backend):
        return "bubblewrap"
    return "landlock, weaker git" if plan.choices.weaker_git else "landlock"
