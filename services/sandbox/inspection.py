"""The inspection of what launches that were killed have left, and the record of what is inspected for launches that
ended before."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.journal.spool import Spool
    from omac.services.sandbox.ports import SandboxPorts

RECORDED_CHARACTERS_MAX = 8_000  # of a record, in which one may take six bytes


def inspect_due(ports: SandboxPorts) -> None:
    """Inspect what launches that were killed have left, record what was found, and remove what omac made for them.
    Raises Refusal."""
    if ports.inspect_due(lambda *found: record_inspected(ports, ports.spool(), *found)):
        placeholders = ports.sandboxing.placeholders(ports.state)
        placeholders.hold()
        placeholders.end()


def record_inspected(
    ports: SandboxPorts, spool: Spool, launches: list[str], projects: tuple[str, ...], findings: list[str]
) -> None:
    """Record what was inspected, if anything, for launches that have ended before."""
    if projects:
        fields = {"launches": launches, "projects": list(projects), "findings": first(findings)}
        spool.append(
            "sandbox.inspected", fields, stream="inspection", version=None, at=ports.now_ns(), run="", actor="omac",
            id=ports.new_id(),
        )  # fmt: skip


def first(findings: list[str]) -> list[str]:
    """Return as many findings as a record has room for."""
    room = RECORDED_CHARACTERS_MAX
    for at, finding in enumerate(findings):
        room -= min(len(finding), 4096)
        if room < 0:
            return [*findings[:at], f"{len(findings) - at} more"]
    return findings
