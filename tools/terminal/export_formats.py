"""The forms in which exported events are read: JSON lines, CSV and CloudEvents. Each line follows from one event."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from omac.journal.bundle import EventContent
from omac.journal.codec import Codec
from omac.tools.terminal.csv import csv_line
from omac.tools.terminal.timestamps import rfc3339

Format = Literal["jsonl", "csv", "cloudevents"]
FILES: dict[Format, str] = {
    "jsonl": "events.jsonl", "csv": "events.csv", "cloudevents": "events.cloudevents.jsonl",
}  # fmt: skip
COLUMNS = ("position", "at", "kind", "stream", "version", "run", "actor", "correlation", "causation", "event")
_codec = Codec()


def lines_of(form: Format, journal: str, events: Iterable[EventContent]) -> Iterator[bytes]:
    """Yield the lines of the data file, each with its end. Raises Refusal for an event that this omac cannot read."""
    write: Callable[[dict[str, Any]], bytes]
    match form:
        case "csv":
            yield csv_line(COLUMNS).encode()
            write = _csv
        case "cloudevents":

            def write(record: dict[str, Any]) -> bytes:
                return _json(_cloud_event(record, journal))

        case "jsonl":
            write = _json
    for event in events:
        yield write(_record(event))


def _record(taken: EventContent) -> dict[str, Any]:
    content = taken.content
    if content is None:
        return {"position": taken.position, "redacted": True}
    event = _codec.decode(content.kind, content.body)
    fields = {name: msgspec.to_builtins(getattr(event, name)) for name in event.__struct_fields__}
    names = ("version", "correlation", "causation")
    optional = {name: value for name in names if (value := getattr(content, name)) is not None}
    happened = {"happened": rfc3339(content.happened)} if content.happened is not None else {}
    return {
        "position": content.position, "at": rfc3339(content.at), "kind": content.kind, "stream": content.stream,
        "run": content.run, "actor": content.actor, **optional, **happened, "event": fields,
    }  # fmt: skip


def _json(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _csv(record: dict[str, Any]) -> bytes:
    cells = [record.get(name) for name in COLUMNS[:-1]]
    event = "redacted" if "redacted" in record else msgspec.json.encode(record["event"]).decode()
    return csv_line((*cells, event)).encode()


def _cloud_event(record: dict[str, Any], journal: str) -> dict[str, Any]:
    """As of the JSON format of CloudEvents 1.0."""
    head = {"specversion": "1.0", "id": str(record["position"]), "source": f"urn:omac:journal:{journal}"}
    if "redacted" in record:
        return {**head, "type": "omac.redacted"}
    data = {name: value for name, value in record.items() if name not in ("position", "at", "kind", "stream")}
    return {
        **head, "type": f"omac.{record['kind']}", "time": record["at"], "subject": record["stream"],
        "datacontenttype": "application/json", "data": data,
    }  # fmt: skip
