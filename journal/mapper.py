"""The codec as eventsourcing wants it: a Mapper with a closed registry instead of importable topics."""

from typing import Any

from eventsourcing.persistence import Mapper, StoredEvent

from omac.journal.codec import Codec, Versioned


class EventMapper(Codec, Mapper[str]):
    """Encodes and decodes events by the registry it is given. Raises Refusal for what it cannot read."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """Implement Mapper of eventsourcing.persistence: return a Versioned as it is stored."""
        kind, body = self.encode(domain_event.data)
        return StoredEvent(domain_event.originator_id, domain_event.originator_version, kind, body)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Implement Mapper of eventsourcing.persistence: return a stored event as a Versioned."""
        event = self.decode(stored_event.topic, stored_event.state)
        return Versioned(str(stored_event.originator_id), stored_event.originator_version, event)
