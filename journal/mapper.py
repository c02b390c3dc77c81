"""The codec as eventsourcing wants it: a Mapper with a closed registry instead of importable topics."""

from typing import Any

from eventsourcing.persistence import Mapper, StoredEvent

from omac.journal.codec import Codec, Versioned


class EventMapper(Codec, Mapper[str]):
    """Encodes and decodes events by the registry it is given. Raises Refusal for what it cannot read."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """See eventsourcing.persistence.Mapper; takes a Versioned."""
        kind, body = self.encode(domain_event.data)
        return StoredEvent(domain_event.originator_id, domain_event.originator_version, kind, body)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """See eventsourcing.persistence.Mapper; returns a Versioned."""
        event = self.decode(stored_event.topic, stored_event.state)
        return Versioned(str(stored_event.originator_id), stored_event.originator_version, event)
