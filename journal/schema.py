"""The tables of a journal, and how they are made.

One row of `event` is one event; `name` interns the texts that repeat (streams, kinds, runs, actors); `head` holds the
last position, advanced in the same transaction as the events. `happened` is for an event that happened before it was
recorded at `at`; `sealed` has encrypted fields (`journal/commitments.py`); `leaf` is not used. The leaves of
the events are in a table of their own, with their `tree` (`journal/leaves.py`).
`spooled` remembers which files of a spool (by its host) are in the journal already, for as long as they are still
there. `opened` lists the runs that have the journal open, `set_aside` keeps the rows that a repair replaced. `segment`
lists the files that the oldest events were moved to, `sealed_version` the last version of each stream in them.

`journal.schema` is the lowest format that understands every event of the journal (`journal/format.py`).

SQLAlchemy Core describes them, whatever the database. It takes a quarter of a start to load, so it is loaded where a
table is made, and nowhere else.
"""

import sqlite3

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from omac.journal.file import VERSION_INDEX

METADATA = sa.MetaData()

sa.Table(
    "journal",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("schema", sa.Integer, nullable=False),
)
sa.Table(
    "name",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text, nullable=False, unique=True),
)
sa.Table(
    "head",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
)
EVENT = sa.Table(
    "event",
    METADATA,
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("stream", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer),
    sa.Column("kind", sa.Integer, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("run", sa.Integer, nullable=False),
    sa.Column("actor", sa.Integer, nullable=False),
    sa.Column("correlation", sa.Text),
    sa.Column("causation", sa.BigInteger),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("leaf", sa.LargeBinary),
    sa.Column("happened", sa.BigInteger),
)
sa.Table(
    "leaf",
    METADATA,
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
sa.Table(
    "tree",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("peaks", sa.LargeBinary, nullable=False),
    sa.Column("late", sa.BigInteger, nullable=False),
)
sa.Table(
    "spooled",
    METADATA,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
)
sa.Table(
    "opened",
    METADATA,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("start_ticks", sa.BigInteger, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("schema", sa.Integer, nullable=False),
)
sa.Table(
    "set_aside",
    METADATA,
    sa.Column("record", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("stream", sa.Text),
    sa.Column("version", sa.Integer),
    sa.Column("kind", sa.Text),
    sa.Column("at", sa.BigInteger),
    sa.Column("run", sa.Text),
    sa.Column("actor", sa.Text),
    sa.Column("correlation", sa.Text),
    sa.Column("causation", sa.BigInteger),
    sa.Column("body", sa.LargeBinary),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("leaf", sa.LargeBinary),
    sa.Column("happened", sa.BigInteger),
)
sa.Table(
    "segment",
    METADATA,
    sa.Column("first", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("pruned", sa.BigInteger, nullable=False),
)
sa.Table(
    "sealed_version",
    METADATA,
    sa.Column("stream", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
)
# Logs without versions (accesses) do not pay for the index that guards aggregates.
VERSIONS = sa.Index(
    VERSION_INDEX, EVENT.c.stream, EVENT.c.version, unique=True, sqlite_where=EVENT.c.version.is_not(None)
)


def create_missing(connection: sqlite3.Connection) -> None:
    """Make the tables that are not there, each with its index, in a transaction. Raises sqlite3.Error."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in METADATA.sorted_tables:
        if table.name not in there:
            connection.execute(_statement(CreateTable(table)))
            if table is EVENT:
                create_version_index(connection)


def create_version_index(connection: sqlite3.Connection) -> None:
    """Make the index that guards the versions of streams. Raises sqlite3.Error: they are not unique."""
    connection.execute(_statement(CreateIndex(VERSIONS)))


def _statement(element: ExecutableDDLElement) -> str:
    return str(element.compile(dialect=sqlite.dialect()))
