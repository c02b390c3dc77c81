"""Inserts many rows of a table with few statements.

The driver lets another thread run at each step of a statement, and then waits for the interpreter again. A statement of
many rows is one step: while SQLite inserts them, the Trio loop runs.
"""

from collections.abc import Sequence
from typing import Any

from omac.journal.log_connection import JournalConnection

ROWS = (128, 64, 32, 16, 8, 4, 2, 1)  # of one statement, the largest first; each is compiled once


class RowInsert:
    """The insert of `columns` of a table."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._width = len(columns)
        row = f"({', '.join('?' * len(columns))})"
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "  # noqa: S608  # our own names
        self._statements = [(rows, head + ", ".join([row] * rows)) for rows in ROWS]

    def insert(self, connection: JournalConnection, values: Sequence[Any]) -> None:
        """Insert rows, whose values follow one another in the order of the columns. Raises sqlite3.Error."""
        cursor, at = connection.cursor(), 0
        for rows, statement in self._statements:
            step = rows * self._width
            while len(values) - at >= step:
                cursor.execute(statement, values[at : at + step])
                at += step
