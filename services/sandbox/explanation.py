"""The explanation of a sandbox, for people and for programs, and the digest by which the journal knows it."""

from __future__ import annotations

from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.terminal_escaping import printable, printable_json
from omac.domain.sandbox.confinement import COPY, LINK
from omac.journal.spool import encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.services.sandbox.policy import SandboxPlan


def explained(plan: SandboxPlan, *, launched: bool = False) -> str:
    """Return lines for people: every path, its access and the reason. No terminal obeys what they contain; the command
    is as it would be recorded. `launched`: the directory, the command and its variables are shown elsewhere."""
    from shlex import join

    from omac.domain.kernel.redaction import redacted

    policy = plan.policy
    lines = [] if launched else [f"workdir  {policy.workdir}"]
    if plan.argv and not launched:
        lines.append(f"command  {join(redacted(plan.argv))}")
    lines.append(f"backend  {_backend(plan)}")
    ports = f"; listens on {', '.join(map(str, policy.ports))}" if policy.ports else ""
    lines.append(f"network  {policy.network}{ports}")
    lines += [f"limit    {name}={_exactly(policy.limits[name])} by {by}" for name, by in _limits(plan).items()]
    lines += [*([] if launched else [f"gets     {' '.join(sorted(policy.environment))}"]), ""]
    width = min(max((len(entry.path) for entry in policy.entries), default=0), 72)
    for entry in policy.entries:
        shown = f"{entry.path} -> {entry.target}" if entry.access == LINK else entry.path
        lines.append(f"{entry.access:8} {shown:{width}}  {entry.reason}")
    lines += [f"{'never':8} {path:{width}}  omac's own" for path in policy.hidden]
    for warning in policy.warnings:
        lines += ["", f"note: {warning}"]
    return "".join(f"{printable(line)}\n" for line in lines)


def explained_as_json(plan: SandboxPlan) -> str:
    """Return the same as JSON, for programs."""
    return f"{printable_json(encoded(document_of(plan)))}\n"


def digest(plan: SandboxPlan) -> str:
    """The SHA-256 of a policy, 64 hex digits: of every path with its access, network, limits and names of variables."""
    return sha256_hex(encoded(document_of(plan)).encode())


def document_of(plan: SandboxPlan) -> dict[str, object]:
    """Return the same as data, as `explained_as_json` prints it."""
    policy = plan.policy
    return {
        "workdir": policy.workdir,
        "command": plan.argv,
        "harness": plan.request.harness,
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
    """Return the means by which each limit is enforced."""
    return dict(plan.enforcement.by) if plan.enforcement else {}


def _backend(plan: SandboxPlan) -> str:
    """The one that is used, where the choice is left to omac."""
    if plan.ports.sandboxing.namespaced(plan.request.backend):
        return "bubblewrap"
    return "landlock, weaker git" if plan.request.weaker_git else "landlock"
