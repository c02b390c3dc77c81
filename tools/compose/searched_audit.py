"""The rows of the audit that a query wants: by the index where one helps, else from the journal, with equal results."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter

import msgspec

from omac.domain.kernel.set_aside import PositionSetAside
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal.audit_index import (
    BROKEN,
    AuditIndex,
    IndexedRow,
    IndexProgress,
    damaged_row,
    delete_index,
    is_damage,
)
from omac.journal.mark import Mark
from omac.journal.reader import ReadJournal
from omac.projections.evidence.accesses import (
    AuditFold,
    AuditLog,
    AuditLogState,
    AuditRow,
    PlacedRow,
    ended_rows,
    request_order,
)
from omac.projections.evidence.audit_query import AuditQuery
from omac.tools.compose.state import StateDir
from omac.tools.terminal.version import VERSION

INDEXED_FROM = 5_000  # events; reading fewer takes no longer than an index
BATCH = 50_000
TOLD_EVERY = 1_000
ALL_TIMES = -(2**63), 2**63 - 1
_encode = msgspec.msgpack.Encoder().encode
_row_decoder = msgspec.msgpack.Decoder(AuditRow)
_state_decoder = msgspec.msgpack.Decoder(AuditLogState)


class SearchedAudit:
    """The audit of a journal up to position `head`, with an index in the state directory. `progress` gets how many
    events are indexed, of how many: the first of a large journal take long."""

    def __init__(
        self,
        journal: ReadJournal,
        state: StateDir,
        head: int,
        indexed_from: int = INDEXED_FROM,
        progress: Callable[[int, int], None] = lambda done, whole: None,
    ) -> None:
        self._progress = progress
        self._journal = journal
        self._head = head
        self._file = Mark.of(state.path, journal.store.path).file + ".audit"
        self._is_indexed = head >= indexed_from

    def rows(self, query: AuditQuery) -> Iterator[AuditRow]:
        """Yield the rows that are wanted, in the order of the audit. Raises Refusal."""
        last = 0
        if self._is_indexed and (query.is_selective or self._is_pruned()):
            try:
                for last, row in self._search(query, newest_first=False):  # noqa: B007  # where the index breaks
                    yield row
                return
            except BROKEN as error:
                self._drop(error)
        yield from self._scanned(query, last)

    def newest(self, query: AuditQuery, count: int) -> list[AuditRow]:
        """Return the last rows that are wanted, in the order of the audit. Raises Refusal."""
        if self._is_indexed:
            try:
                return [row for _, row in islice(self._search(query, newest_first=True), count)][::-1]
            except BROKEN as error:
                self._drop(error)
        kept: list[AuditRow] = []
        for row in self._scanned(query):
            kept.append(row)
            if len(kept) > 2 * count + 1_000:
                del kept[: len(kept) - count]
        return kept[len(kept) - count :] if count < len(kept) else kept

    def ended(self, query: AuditQuery, after: int) -> Iterator[tuple[int, list[AuditRow]]]:
        """Yield the rows that are wanted and ended behind position `after`, by the positions of their ends, in order.
        Raises Refusal."""
        if self._is_indexed:
            try:
                for position, rows in self._search_ended(query, after):
                    after = position
                    yield position, rows
                return
            except BROKEN as error:
                self._drop(error)
        for position, rows in ended_rows(self._journal.records(0, self._head)):
            if position > after and (wanted := [row for row in rows if query.matches(row)]):
                yield position, wanted

    def fold(self) -> AuditFold:
        """Return the fold of all records up to the head. Raises Refusal."""
        if self._is_indexed:
            try:
                with self._index() as index:
                    return self._caught_up(index)[1].fold
            except BROKEN as error:
                self._drop(error)
        fold = AuditFold()
        for recorded in self._journal.records(0, self._head):
            fold.apply(recorded)
        return fold

    def forged_file(self) -> str:
        """Return the path of the index where it counts, and is not what the events give; "" where all is well. All are
        folded for it. Raises Refusal."""
        try:
            if not os.path.exists(self._file):
                return ""
            with self._index() as index:
                progress = index.progress()
                if progress is None or not self._counts(progress) or self._is_repaired_behind(progress):
                    return ""
                return "" if self._is_given(index, progress) or not os.path.exists(self._file) else self._file
        except BROKEN:
            return ""  # another process is at it, or the next to ask makes it again

    def _digest(self, position: int) -> bytes:
        return hashlib.sha256(_encode(self._journal.store.select(position - 1, 1, position))).digest()

    def _drop(self, error: Exception) -> None:
        """Delete an index that is damaged: the next to ask makes it again. One that is in use is left alone."""
        if is_damage(error):
            delete_index(self._file)

    def _is_given(self, index: AuditIndex, progress: IndexProgress) -> bool:
        log, stored = AuditLog(), index.rows(progress)
        for recorded in self._journal.records(0, progress.position):
            if any(next(stored, None) != _indexed(placed) for placed in log.apply(recorded)):
                return False
        return next(stored, None) is None and _state(progress.state) == log.state()

    def _is_repaired_behind(self, progress: IndexProgress) -> bool:
        return self._journal.store.repaired_at() > max(progress.position, progress.begun)

    def _counts(self, progress: IndexProgress) -> bool:
        """Return whether an index is of this journal, as far as it is: not ahead of it, nor of one that went on
        otherwise."""
        return progress.position <= self._head and progress.digest == self._digest(progress.position)

    def _is_pruned(self) -> bool:
        """Return whether rows may lie behind any number of positions that have none."""
        return any(segment.pruned for segment in self._journal.store.segments())

    def _scanned(self, query: AuditQuery, after: int = 0) -> Iterator[AuditRow]:
        """Yield the rows that are wanted, with a number behind `after`: a prune may have dropped some of before."""
        log = AuditLog()
        for recorded in self._journal.records(0, self._head):
            yield from (
                placed.row for placed in log.apply(recorded) if placed.number > after and query.matches(placed.row)
            )
        yield from filter(query.matches, log.rest())

    def _search(self, query: AuditQuery, *, newest_first: bool) -> Iterator[tuple[int, AuditRow]]:
        """Yield the rows that are wanted with their numbers; those of the rest have 0, and come when no row of the
        index does any more."""
        with self._index() as index:
            progress, log = self._caught_up(index)
            rest = [row for row in log.rest() if query.matches(row)]
            if newest_first:
                yield from ((0, row) for row in reversed(rest))
            times = None
            if query.since is not None or query.until is not None:
                times = query.since or ALL_TIMES[0], ALL_TIMES[1] if query.until is None else query.until
            for number, body in index.select(progress, _searched(query), times, newest_first=newest_first):
                if query.matches(row := _row(body)):
                    yield number, row
            if not newest_first:
                yield from ((0, row) for row in rest)

    def _search_ended(self, query: AuditQuery, after: int) -> Iterator[tuple[int, list[AuditRow]]]:
        with self._index() as index:
            progress, log = self._caught_up(index)
            waiting = sorted(
                ((placed.ended, placed.row) for placed in log.waiting() if placed.ended > after), key=itemgetter(0)
            )
            indexed = ((ended, _row(body)) for ended, body in index.select_ended(progress, _searched(query), after))
            for ended, group in groupby(merge(indexed, waiting, key=itemgetter(0)), key=itemgetter(0)):
                if wanted := [row for _, row in group if query.matches(row)]:
                    yield ended, sorted(wanted, key=request_order)

    def _index(self) -> closing[AuditIndex]:
        """The index, to be closed. Behind a prune that was killed it is another one: the rows of before are dropped."""
        store = self._journal.store
        return closing(AuditIndex(self._file, f"{VERSION}:{store.journal_id()}:{store.pruned_to()[0]}"))

    def _caught_up(self, index: AuditIndex) -> tuple[IndexProgress, AuditLog]:
        """Bring the index to the head, and return how far it is and the fold there."""
        before = index.progress()
        if (
            before is not None
            and self._head < before.position <= self._journal.store.head()
            and (before.digest == self._digest(before.position))
        ):
            raise BlockingIOError("another process has indexed what came meanwhile")
        if before is not None and not self._counts(before):
            before = None
        log = AuditLog(_state(before.state)) if before is not None else AuditLog()
        position, begun = (before.position, before.begun) if before is not None else (0, self._head)
        rows: list[IndexedRow] = []
        for recorded in self._journal.records(position, self._head):
            if isinstance(recorded.event, PositionSetAside) and recorded.position > begun:
                delete_index(self._file)  # a repair replaced a record that was indexed
                raise OSError("the journal was repaired")
            position = recorded.position
            if position % TOLD_EVERY == 0:
                self._progress(position, self._head)
            rows += map(_indexed, log.apply(recorded))
            if position % BATCH == 0:
                before, rows = self._append(index, before, rows, log, position, begun), []
        if before is None or position > before.position:
            before = self._append(index, before, rows, log, position, begun)
        return before, log

    def _append(
        self, index: AuditIndex, before: IndexProgress | None, rows: list[IndexedRow], log: AuditLog, position: int,
        begun: int,
    ) -> IndexProgress:  # fmt: skip
        after = IndexProgress(position, self._digest(position), begun, _encode(log.state()))
        if not index.append(before, rows, after):
            raise BlockingIOError("another process indexes")
        return after


def _row(body: bytes) -> AuditRow:
    """A row of the index. Raises what BROKEN has for one that is damaged."""
    try:
        return _row_decoder.decode(body)
    except UNDECODABLE as error:
        raise damaged_row(error) from error


def _state(body: bytes) -> AuditLogState:
    try:
        return _state_decoder.decode(body)
    except UNDECODABLE as error:
        raise damaged_row(error) from error


def _searched(query: AuditQuery) -> dict[str, str]:
    """The fields that the index knows, with the values that are wanted."""
    named = {"skill": query.skill or None, "session": query.session or None, "outcome": query.outcome}
    return {name: value for name, value in named.items() if value is not None}


def _indexed(placed: PlacedRow) -> IndexedRow:
    row = placed.row
    return IndexedRow(placed.number, placed.ended, row.at, row.skill, row.session, row.outcome, _encode(row))
