"""The records of one launch, in the spool of the journal that is in use when the first of them is made."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.journal.spool import Spool
    from omac.services.sandbox.ports import SandboxPorts


class LaunchRecords:
    """The records of the launch `id`, in order; `part_of` is the omac run that it belongs to, empty for none."""

    def __init__(self, ports: SandboxPorts, part_of: str) -> None:
        self.id = ports.new_id()
        self.part_of = part_of
        self._ports = ports
        self._version = 0
        self._spool: Spool | None = None

    def append(self, kind: str, fields: Mapping[str, object], *, durable: bool = True) -> str:
        """Record an event and return what `flush` takes. Raises Refusal (journal-unavailable, state-unusable)."""
        self._version += 1
        return self.spool.append(
            kind,
            fields,
            stream=f"sandbox/{self.id}",
            version=self._version,
            at=self._ports.now_ns(),
            run=self.part_of or self.id,
            actor="person" if not self.part_of else "omac",
            id=self.id,
            durable=durable,
        )

    @property
    def spool(self) -> Spool:
        """One for the whole launch, whichever server comes and goes meanwhile. Raises Refusal (state-unusable)."""
        if self._spool is None:
            self._spool = self._ports.spool(self.part_of)
        return self._spool
