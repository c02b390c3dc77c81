"""Inserts many rows of a table with few statements.

The driver lets another thread run at each step of a statement, and then waits for the interpreter again. A statement of
many rows is one step: while SQLite inserts them, the Trio loop runs.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from omac.journal.schema import cursor_of

ROWS = (128, 64, 32, 16, 8, 4, 2, 1)  # of one statement, the largest first; each is compiled once


class RowInsert:
    """The insert of `columns` of a table, in the dialect of an engine.

    Given to the driver as it is: what Core does for each row costs three times what the database does.
    """

    def __init__(self, engine: sa.Engine, table: sa.Table, columns: Sequence[str]) -> None:
        one = sa.insert(table).compile(dialect=engine.dialect, column_keys=list(columns))
        assert tuple(one.positiontup or ()) == tuple(columns), "a dialect with positional parameters"
        head, values, row = str(one).partition(" VALUES ")
        self._width = len(columns)
        self._statements = [(rows, head + values + ", ".join([row] * rows)) for rows in ROWS]

    def insert(self, connection: sa.Connection, values: Sequence[Any]) -> None:
        """Insert rows, whose values follow one another in the order of the columns. Raises sqlite3.Error."""
        cursor, at = cursor_of(connection), 0
        for rows, statement in self._statements:
            step = rows * self._width
            while len(values) - at >= step:
                cursor.execute(statement, values[at : at + step])
                at += step
