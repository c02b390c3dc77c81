"""Events as an Apache Parquet table, written in row groups as they come: memory holds one group.

It takes pyarrow, which the extra `omac[parquet]` brings. What it writes depends on its version, which `writer` names.
"""

import io
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.journal.bundle import LeafContent

ROWS = 10_000  # of a row group
NAMED = ("skill", "dir", "session", "method", "path", "reason")  # fields of events with columns of their own
DIRECTORIES = ("dir", "workdir", "root")  # the fields that hold an event's directory, by its path

Row = tuple[int, LeafContent | None, dict[str, Any]]  # position, content, the event's fields


def writer() -> str:
    """Return what writes Parquet here, with its version; empty where nothing does."""
    try:
        return f"pyarrow {metadata.version('pyarrow')}"
    except metadata.PackageNotFoundError:
        return ""


def require_parquet() -> None:
    """Raise Refusal (prerequisite-missing) where nothing writes Parquet."""
    if not writer():
        message = "--format parquet takes pyarrow, which is not installed: in the checkout, install omac with it"
        raise Refusal("prerequisite-missing", message, fix=["uv tool install '.[parquet]'", "pipx inject omac pyarrow"])


def parts_of(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield the parts of a file that has a row for each event; times are in UTC, to the microsecond."""
    import pyarrow as pa  # late: it is large, and not always there
    from pyarrow import parquet

    texts = ("kind", "stream", "run", "actor", "correlation", *NAMED, "event")
    moment = pa.timestamp("us", tz="UTC")
    fields = {"position": pa.int64(), "at": moment, "happened": moment, "version": pa.int64(), "causation": pa.int64()}
    fields |= {name: pa.string() for name in texts} | {"status": pa.int64(), "redacted": pa.bool_()}
    schema, sink = pa.schema(list(fields.items())), _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd", version="2.6") as file:
        columns: dict[str, list[Any]] = {name: [] for name in fields}
        for row in rows:
            for name, value in _cells(*row).items():
                columns[name].append(value)
            if len(columns["position"]) >= ROWS:
                file.write_table(pa.table(columns, schema=schema))
                yield sink.taken()
                columns = {name: [] for name in fields}
        if columns["position"]:
            file.write_table(pa.table(columns, schema=schema))
    yield sink.taken()


def _cells(position: int, content: LeafContent | None, fields: dict[str, Any]) -> dict[str, Any]:
    texts = {name: value if isinstance(value := fields.get(name), str) else None for name in NAMED}
    paths = (value for name in DIRECTORIES if isinstance(value := fields.get(name), str) and value.startswith("/"))
    texts["dir"] = next(paths, None)
    status = value if isinstance(value := fields.get("status"), int) else None
    of_content = {name: getattr(content, name, None) for name in OF_CONTENT}
    event = None if content is None else msgspec.json.encode(fields).decode()
    times = {name: None if (at := of_content[name]) is None else at // 1_000 for name in ("at", "happened")}
    return {
        "position": position, **of_content, **times, **texts,
        "status": status, "event": event, "redacted": content is None,
    }  # fmt: skip


class _Sink(io.RawIOBase):
    """A file that keeps what was written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        self._bytes += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._bytes

    def taken(self) -> bytes:
        """Return what was written since the last call, and forget it."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


OF_CONTENT = ("at", "happened", "kind", "stream", "version", "run", "actor", "correlation", "causation")
