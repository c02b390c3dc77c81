"""The forms in which exported events are read: JSON lines, CSV, CloudEvents, OCSF and Parquet. What they say follows
from the events alone; of Parquet the bytes depend on what writes it, too (`writer_of`)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from omac.domain.kernel.event import Event
from omac.journal.bundle import EventContent
from omac.journal.openings import shown_event
from omac.tools.terminal import parquet
from omac.tools.terminal.csv import csv_line
from omac.tools.terminal.ocsf import OcsfObjects
from omac.tools.terminal.timestamps import rfc3339

Format = Literal["jsonl", "csv", "cloudevents", "ocsf", "parquet"]
FILES: dict[Format, str] = {
    "jsonl": "events.jsonl", "csv": "events.csv", "cloudevents": "events.cloudevents.jsonl",
    "ocsf": "events.ocsf.jsonl", "parquet": "events.parquet",
}  # fmt: skip
COLUMNS = (
    "position", "at", "kind", "stream", "version", "run", "actor", "correlation", "causation", "happened", "event",
)  # fmt: skip


def writer_of(form: str) -> str:
    """Return what decides the bytes of a form beside omac, with its version; empty where nothing does."""
    return parquet.writer() if form == "parquet" else ""


def require_writer(form: Format) -> None:
    """Raise Refusal (prerequisite-missing) for a form that cannot be written here."""
    if form == "parquet":
        parquet.require_parquet()


def parts_of(form: Format, journal: str, events: Iterable[EventContent]) -> Iterator[bytes]:
    """Yield the data file in parts: of a text each line, with its end. Raises Refusal for an unknown event."""
    write: Callable[[dict[str, Any]], bytes]
    match form:
        case "parquet":
            yield from parquet.parts_of((taken.position, taken.content, _fields(_event(taken))) for taken in events)
            return
        case "ocsf":
            yield from _ocsf(journal, events)
            return
        case "csv":
            yield csv_line(COLUMNS).encode()
            write = _csv
        case "cloudevents":

            def write(record: dict[str, Any]) -> bytes:
                return _json(_cloud_event(record, journal))

        case "jsonl":
            write = _json
    for taken in events:
        yield write(_record(taken, _event(taken)))


def _ocsf(journal: str, events: Iterable[EventContent]) -> Iterator[bytes]:
    objects = OcsfObjects(journal)
    for taken in events:
        event = _event(taken)
        if taken.content is not None and event is not None:
            yield from map(_json, objects.of(taken.content, event, _record(taken, event)))


def _event(taken: EventContent) -> Event | None:
    return None if taken.content is None else shown_event(taken.content.kind, taken.content.body, taken.openings)


def _fields(event: Event | None) -> dict[str, Any]:
    names = () if event is None else event.__struct_fields__
    return {name: msgspec.to_builtins(getattr(event, name)) for name in names}


def _record(taken: EventContent, event: Event | None) -> dict[str, Any]:
    content = taken.content
    if content is None:
        return {"position": taken.position, "redacted": True}
    names = ("version", "correlation", "causation")
    optional = {name: value for name in names if (value := getattr(content, name)) is not None}
    happened = {"happened": rfc3339(content.happened)} if content.happened is not None else {}
    return {
        "position": content.position, "at": rfc3339(content.at), "kind": content.kind, "stream": content.stream,
        "run": content.run, "actor": content.actor, **optional, **happened, "event": _fields(event),
    }  # fmt: skip


def _json(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _csv(record: dict[str, Any]) -> bytes:
    cells = [record.get(name) for name in COLUMNS[:-1]]
    event = "redacted" if "redacted" in record else msgspec.json.encode(record["event"]).decode()
    return csv_line((*cells, event)).encode()


def _cloud_event(record: dict[str, Any], journal: str) -> dict[str, Any]:
    """Return a record as an event in the JSON format of CloudEvents 1.0."""
    head = {"specversion": "1.0", "id": str(record["position"]), "source": f"urn:omac:journal:{journal}"}
    if "redacted" in record:
        return {**head, "type": "omac.redacted"}
    data = {name: value for name, value in record.items() if name not in ("position", "at", "kind", "stream")}
    return {
        **head, "type": f"omac.{record['kind']}", "time": record["at"], "subject": record["stream"],
        "datacontenttype": "application/json", "data": data,
    }  # fmt: skip
