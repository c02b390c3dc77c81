"""The contract of every recorder, whichever database it uses.

A test module subclasses RecorderContract and gives it a fixture `store`, which opens recorders on one and the same
empty store, here and in other processes.
"""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, Protocol, cast

import pytest
from eventsourcing.persistence import IntegrityError, StoredEvent

from omac.domain.kernel.event import Spooled
from omac.journal.judgement import Conflict, Conflicts, Envelope
from omac.journal.reader import Reader, StoredRow
from omac.journal.sql_recorder import SqlRecorder

AT = 1_700_000_000_000_000_000
HAMMERS = 2  # processes
BLOWS = 120  # transactions of each

Group = tuple[Sequence[StoredEvent], Envelope]  # of one caller
Results = Sequence[Sequence[int] | Conflict]


class Store(Protocol):
    """A store of one journal. `opening` opens a recorder on it and can be pickled for another process."""

    @property
    def opening(self) -> Callable[[], SqlRecorder]:
        """Return a function that opens a recorder."""


def log(stream: str, *bodies: bytes, kind: str = "thing.seen") -> list[StoredEvent]:
    """Return events of a log, which has no versions."""
    no_version = cast(int, None)  # the library has only versions that are numbers
    return [StoredEvent(stream, no_version, kind, body) for body in bodies]


def versions(stream: str, first: int, count: int = 1, kind: str = "thing.done") -> list[StoredEvent]:
    """Return `count` events of an aggregate from version `first` on; each body names stream and version."""
    return [StoredEvent(stream, n, kind, f"{stream}:{n}".encode()) for n in range(first, first + count)]


def positions(results: Results) -> list[list[int] | str]:
    """Return the outcome of each group: its positions, or "conflict"."""
    return ["conflict" if isinstance(result, Conflict) else list(result) for result in results]


def group(*parts: Sequence[StoredEvent], spooled: Spooled | None = None) -> Group:
    """Return one caller's events, of one or several streams, with their envelope."""
    return [event for part in parts for event in part], Envelope(AT, "run-1", "person", spooled=spooled)


def insert(recorder: SqlRecorder, groups: Sequence[Group]) -> list[Sequence[int] | Conflict]:
    """Append many callers' events at once, and again without those in conflict, until none is in conflict."""
    results: dict[int, Sequence[int] | Conflict] = {}
    while waiting := [number for number in range(len(groups)) if number not in results]:
        try:
            inserted = insert_once(recorder, [groups[number] for number in waiting])
        except Conflicts as conflicts:
            results |= {waiting[at]: conflict for at, conflict in conflicts.of_groups.items()}
            assert not results.keys().isdisjoint(waiting)
        else:
            results |= dict(zip(waiting, inserted, strict=True))
    return [results[number] for number in range(len(groups))]


def insert_once(recorder: SqlRecorder, groups: Sequence[Group]) -> list[Sequence[int]]:
    """Append many callers' events in one call, all or nothing; return the positions of each. Raises Conflicts."""
    events = [event for own, _ in groups for event in own]
    ids = iter(recorder.insert_events(events, groups=[(len(own), envelope) for own, envelope in groups]))
    return [[next(ids) for _ in own] for own, _ in groups]


def everything(recorder: SqlRecorder) -> list[StoredRow]:
    """Return all rows of a small store."""
    return list(recorder.select_notifications(1, 1_000_000))


def assert_whole(recorder: SqlRecorder, count: int) -> None:
    """Assert that the store holds positions 1 to `count`, each once, and reports that count."""
    assert [row.id for row in everything(recorder)] == list(range(1, count + 1))
    assert recorder.head() == count
    assert recorder.max_notification_id() == (count or None)


class RecorderContract:
    """The suite of the contract. Every test gets an empty store."""

    @pytest.fixture
    def open_recorder(self, store: Store) -> Iterator[Callable[[], SqlRecorder]]:
        """Yield a function that opens one more recorder on the store; all are closed after the test."""
        with ExitStack() as opened:

            def open_one() -> SqlRecorder:
                recorder = store.opening()
                opened.callback(recorder.close)
                return recorder

            yield open_one

    @pytest.fixture
    def recorder(self, open_recorder: Callable[[], SqlRecorder]) -> SqlRecorder:
        """Return a recorder on the empty store."""
        return open_recorder()

    # ---- positions ----

    def test_an_empty_store_has_no_position(self, recorder: SqlRecorder) -> None:
        """An empty store has the head 0, and gives the library None as its last position."""
        assert recorder.max_notification_id() is None
        assert_whole(recorder, 0)
        assert list(recorder.select_notifications(1, 10)) == []
        assert list(recorder.select_events("nobody")) == []

    def test_positions_are_gapless_in_the_order_of_groups(self, recorder: SqlRecorder) -> None:
        """Positions start at 1 and follow the groups, and within a group its events."""
        first = insert(recorder, [group(log("a", b"1", b"2")), group(log("b", b"3")), group(log("a", b"4"))])
        second = insert(recorder, [group(log("c", b"5"))])
        assert positions(first) == [[1, 2], [3], [4]]
        assert positions(second) == [[5]]
        assert [row.state for row in everything(recorder)] == [b"1", b"2", b"3", b"4", b"5"]
        assert_whole(recorder, 5)

    def test_an_empty_group_takes_no_position(self, recorder: SqlRecorder) -> None:
        """A caller with nothing to append gets nothing, and the others' positions stay gapless."""
        results = insert(recorder, [group(), group(log("a", b"1")), group(), group(log("a", b"2"))])
        assert positions(results) == [[], [1], [], [2]]
        assert positions(insert(recorder, [])) == []
        assert positions(insert(recorder, [group()])) == [[]]
        assert_whole(recorder, 2)

    def test_the_envelope_of_an_event_is_read_back(self, recorder: SqlRecorder) -> None:
        """Time, run, actor, correlation and causation are those of the group, also at the edge of 64 bits."""
        envelope = Envelope(2**63 - 1, "run-9", "bridge", "talk", 2**53 + 1, 5)
        insert(recorder, [group(versions("a", 1)), (log("b", b"x"), envelope)])
        assert everything(recorder) == [
            StoredRow(1, "a", 1, "thing.done", AT, "run-1", "person", None, None, b"a:1", None, None),
            StoredRow(2, "b", None, "thing.seen", 2**63 - 1, "run-9", "bridge", "talk", 2**53 + 1, b"x", None, 5),
        ]

    def test_recorded_time_never_runs_back(self, recorder: SqlRecorder) -> None:
        """The time of a group is raised to that of the group before, whatever the callers' clocks show."""
        for at in (AT, AT - 5, AT + 3):
            insert(recorder, [(log("a", b"x", b"y"), Envelope(at, "run", "omac", happened=7))])
        insert(recorder, [(log("a", b"x"), Envelope(at, "run", "omac")) for at in (AT + 9, 0, AT + 8, AT + 10)])
        assert [row.at - AT for row in everything(recorder)] == [0, 0, 0, 0, 3, 3, 9, 9, 9, 10]
        assert [row.happened for row in everything(recorder)] == [7] * 6 + [None] * 4

    def test_the_caller_gets_the_time_that_is_stored(self, recorder: SqlRecorder) -> None:
        """The caller's envelope afterwards has the stored time, as a reader finds it."""
        insert(recorder, [group(log("a", b"x"))])
        early = Envelope(1, "run", "omac")
        insert(recorder, [(log("a", b"y"), early)])
        assert early.at == everything(recorder)[-1].at == AT

    def test_rows_are_cut_at_both_ends(self, recorder: SqlRecorder) -> None:
        """Rows begin after a position, end at one, and are never more than asked for."""
        insert(recorder, [group(log("a", *(bytes([n]) for n in range(1, 11))))])

        def rows(after: int, limit: int, until: int | None = None) -> list[int]:
            notifications = recorder.select_notifications(after, limit, until, inclusive_of_start=False)
            return [row.id for row in notifications]

        assert rows(3, 4) == [4, 5, 6, 7]
        assert rows(3, 100, 5) == [4, 5]
        assert rows(10, 100) == []
        assert rows(0, 0) == []

    def test_a_moment_has_a_position(self, recorder: SqlRecorder) -> None:
        """A moment has the last position that was recorded by then; a clock that is set back changes nothing."""
        for at in (10, 30, 20):
            insert(recorder, [(log("a", b"x"), Envelope(at, "run-1", "person"))])
        with closing(Reader(recorder.path)) as reader:
            assert [reader.position_at(moment) for moment in (9, 10, 19, 20, 30, 2**63 - 1)] == [0, 1, 1, 1, 3, 3]

    # ---- conflicts ----

    def test_a_conflict_leaves_everything_as_it_was(self, recorder: SqlRecorder) -> None:
        """A call in conflict records nothing at all; its error names the groups in conflict and the reasons."""
        insert(recorder, [group(versions("a", 1))])
        before = everything(recorder)
        groups = [group(log("l", b"x")), group(versions("a", 1)), group(versions("b", 1)), group(versions("b", 1))]
        with pytest.raises(Conflicts) as conflicts:
            insert_once(recorder, groups)
        assert set(conflicts.value.of_groups) == {1, 3}
        assert str(conflicts.value.of_groups[1]) == "version 1 of a comes after version 1"
        assert str(conflicts.value.of_groups[3]) == "version 1 of b comes after version 1"
        assert not any(conflict.known for conflict in conflicts.value.of_groups.values())
        assert everything(recorder) == before
        assert_whole(recorder, 1)

    @pytest.mark.parametrize("version", [0, 3, 7, -1])
    def test_versions_have_no_gaps(self, recorder: SqlRecorder, version: int) -> None:
        """Version 2 follows version 1 in an old stream as in a new one; any other version is a conflict."""
        insert(recorder, [group(versions("a", 1))])
        assert positions(insert(recorder, [group(versions("a", version)), group(versions("b", version))])) == [
            "conflict", "conflict",
        ]  # fmt: skip
        split = versions("c", 1) + versions("c", 3)
        assert positions(insert(recorder, [group(split), group(versions("a", 2))])) == ["conflict", [2]]
        assert_whole(recorder, 2)

    def test_a_conflict_hits_only_its_group(self, recorder: SqlRecorder) -> None:
        """A group that lost the race for a version gets the error; all other groups are recorded, gapless."""
        insert(recorder, [group(versions("a", 1))])
        results = insert(
            recorder,
            [group(log("l", b"x")), group(versions("a", 1)), group(versions("a", 2)), group(versions("b", 1, 2))],
        )
        assert positions(results) == [[2], "conflict", [3], [4, 5]]
        assert_whole(recorder, 5)

    def test_a_group_is_all_or_nothing(self, recorder: SqlRecorder) -> None:
        """A group whose last event is in conflict is not recorded at all, in any stream."""
        insert(recorder, [group(versions("a", 1, 2))])
        results = insert(recorder, [group(log("l", b"lost"), versions("b", 1, 3), versions("a", 2))])
        assert positions(results) == ["conflict"]
        assert_whole(recorder, 2)
        assert list(recorder.select_events("b")) == []
        assert positions(insert(recorder, [group(versions("b", 1))])) == [[3]]

    def test_a_version_twice_in_one_batch(self, recorder: SqlRecorder) -> None:
        """Of two groups with the same version in one transaction the first is recorded, the second is in conflict."""
        results = insert(recorder, [group(versions("a", 1)), group(versions("a", 1)), group(log("l", b"x"))])
        assert positions(results) == [[1], "conflict", [2]]
        assert_whole(recorder, 2)

    def test_a_version_twice_in_one_group(self, recorder: SqlRecorder) -> None:
        """A group in conflict with itself is not recorded."""
        results = insert(recorder, [group(versions("a", 1), versions("a", 1)), group(versions("a", 1))])
        assert positions(results) == ["conflict", [1]]
        assert_whole(recorder, 1)

    def test_only_conflicts(self, recorder: SqlRecorder) -> None:
        """A transaction whose groups are all in conflict takes no position."""
        insert(recorder, [group(versions("a", 1))])
        assert positions(insert(recorder, [group(versions("a", 1))] * 3)) == ["conflict"] * 3
        assert positions(insert(recorder, [group(versions("a", 2))])) == [[2]]
        assert_whole(recorder, 2)

    def test_a_conflict_with_another_recorder(self, open_recorder: Callable[[], SqlRecorder]) -> None:
        """A version that another recorder committed is taken, although this one never saw it."""
        first, second = open_recorder(), open_recorder()
        insert(first, [group(versions("a", 1))])
        assert positions(insert(second, [group(versions("a", 1)), group(versions("a", 2))])) == ["conflict", [2]]
        with pytest.raises(IntegrityError):
            insert_once(first, [group(versions("a", 2))])
        assert_whole(first, 2)

    def test_logs_never_conflict(self, recorder: SqlRecorder) -> None:
        """Events without versions can be appended any number of times, also beside versions of the same stream."""
        results = insert(recorder, [group(log("a", b"same", b"same")), group(log("a", b"same"))])
        assert positions(results) == [[1, 2], [3]]
        assert positions(insert(recorder, [group(versions("a", 1)), group(log("a", b"same"))])) == [[4], [5]]
        assert [event.originator_version for event in recorder.select_events("a")] == [1]

    # ---- names ----

    def test_names_are_the_same_for_every_recorder(self, open_recorder: Callable[[], SqlRecorder]) -> None:
        """Two recorders that introduce and reuse the same streams, in turn, always mean the same stream."""
        first, second = open_recorder(), open_recorder()
        for turn in range(1, 4):
            insert(first, [group(versions("a", 2 * turn - 1), log(f"new-{turn}", b"one"))])
            insert(second, [group(log(f"new-{turn}", b"other"), versions("a", 2 * turn))])
        third = open_recorder()
        for recorder in (first, second, third):
            assert [event.originator_version for event in recorder.select_events("a")] == [1, 2, 3, 4, 5, 6]
            assert Counter(row.originator_id for row in everything(recorder)) == {
                "a": 6,
                "new-1": 2,
                "new-2": 2,
                "new-3": 2,
            }

    def test_ten_thousand_new_streams_at_once(self, recorder: SqlRecorder) -> None:
        """A transaction may introduce ten thousand new streams."""
        streams = [f"stream/{n}" for n in range(10_000)]
        insert(recorder, [group(versions(stream, 1)) for stream in streams])
        assert [row.originator_id for row in everything(recorder)] == streams

    def test_names_of_a_failed_transaction_are_forgotten(self, recorder: SqlRecorder) -> None:
        """A transaction that is rolled back leaves no name behind that a later one would rely on."""
        bad = log("fresh", b"fine"), log("fresher", cast(bytes, object()), kind="thing.odd")  # no database stores it
        with pytest.raises(Exception):  # noqa: B017, PT011  # which one depends on the database's driver
            insert(recorder, [group(*bad)])
        assert_whole(recorder, 0)
        insert(recorder, [group(log("fresher", b"1", kind="thing.odd")), group(log("fresh", b"2"))])
        assert [(row.originator_id, row.topic) for row in everything(recorder)] == [
            ("fresher", "thing.odd"),
            ("fresh", "thing.seen"),
        ]

    def test_names_of_a_group_in_conflict_can_be_used(self, recorder: SqlRecorder) -> None:
        """A stream first named by a group that lost can be appended to right away, in the same transaction too."""
        insert(recorder, [group(versions("a", 1))])
        results = insert(recorder, [group(versions("a", 1), log("fresh", b"no")), group(log("fresh", b"yes"))])
        assert positions(results) == ["conflict", [2]]
        assert [row.state for row in everything(recorder) if row.originator_id == "fresh"] == [b"yes"]

    @pytest.mark.parametrize(
        "text",
        ["", " ", "naïve/日本語/🦊", "a\0b", "a\0c", "%_'\";--", "\u202e", "e\u0301", "\u00e9", "A", "a", "x" * 65_536],
        ids=ascii,
    )
    def test_odd_texts(self, recorder: SqlRecorder, text: str) -> None:
        """A text comes back as it was given, in every field, and is not mistaken for a similar one."""
        decoys = ["a", "a\0b", "a\0c", "A", "e\u0301", "\u00e9", "x" * 65_535]
        insert(recorder, [group(log(decoy, b"decoy")) for decoy in decoys])
        envelope = Envelope(1, text, text, text)
        insert(recorder, [([StoredEvent(text, 1, text, b"body")], envelope)])
        row = everything(recorder)[-1]
        assert (row.originator_id, row.topic, row.run, row.actor, row.correlation) == (text,) * 5
        assert [event.state for event in recorder.select_events(text)] == [b"body"]

    @pytest.mark.parametrize("size", [0, 1, 65_536, 5_000_000])
    def test_bodies_of_any_size(self, recorder: SqlRecorder, size: int) -> None:
        """A body is bytes of any length and any value, NUL included."""
        body = (bytes(range(256)) * (size // 256 + 1))[:size]
        insert(recorder, [group(log("a", body))])
        assert everything(recorder)[0].state == body

    # ---- the library's reading ----

    def test_select_events(self, recorder: SqlRecorder) -> None:
        """A stream's events come in order of versions or backwards, within bounds and up to a limit."""
        insert(
            recorder,
            [group(versions("a", 1, 3)), group(versions("b", 1, 9)), group(versions("a", 4, 2), log("a", b"no"))],
        )

        def selected_versions(
            gt: int | None = None, lte: int | None = None, desc: bool = False, limit: int | None = None
        ) -> list[int]:
            events = recorder.select_events("a", gt=gt, lte=lte, desc=desc, limit=limit)
            assert all(event.originator_id == "a" and event.topic == "thing.done" for event in events)
            assert [event.state for event in events] == [f"a:{event.originator_version}".encode() for event in events]
            return [event.originator_version for event in events]

        assert selected_versions() == [1, 2, 3, 4, 5]
        assert selected_versions(gt=2) == [3, 4, 5]
        assert selected_versions(lte=2) == [1, 2]
        assert selected_versions(gt=1, lte=4) == [2, 3, 4]
        assert selected_versions(desc=True) == [5, 4, 3, 2, 1]
        assert selected_versions(limit=2) == [1, 2]
        assert selected_versions(desc=True, limit=2) == [5, 4]
        assert selected_versions(gt=1, lte=4, desc=True, limit=2) == [4, 3]
        assert selected_versions(gt=5) == []
        assert selected_versions(gt=0, lte=0) == []

    def test_select_notifications(self, recorder: SqlRecorder) -> None:
        """Rows of all streams come in order of positions, from (or after) a start to a stop, of the given topics."""
        insert(
            recorder,
            [
                group(log("a", b"1", kind="x.seen")),
                group(versions("b", 1, 2, kind="y.done")),
                group(log("a", b"4", b"5", kind="x.seen")),
                group(versions("c", 1, 1, kind="z.done")),
            ],
        )

        def selected_positions(start: int | None, limit: int = 10, **kwargs: Any) -> list[int]:
            return [n.id for n in recorder.select_notifications(start, limit, **kwargs)]

        assert selected_positions(None) == selected_positions(1) == selected_positions(0) == [1, 2, 3, 4, 5, 6]
        assert selected_positions(3) == [3, 4, 5, 6]
        assert selected_positions(3, inclusive_of_start=False) == [4, 5, 6]
        assert selected_positions(2, 2) == [2, 3]
        assert selected_positions(2, stop=4) == [2, 3, 4]
        assert selected_positions(7) == []
        assert selected_positions(1, topics=["x.seen"]) == [1, 4, 5]
        assert selected_positions(1, topics=["x.seen", "z.done"]) == [1, 4, 5, 6]
        assert selected_positions(2, 2, stop=5, topics=["x.seen", "y.done"], inclusive_of_start=False) == [3, 4]
        assert selected_positions(1, topics=["never.seen"]) == []
        third = recorder.select_notifications(3, 1)[0]
        assert (third.originator_id, third.originator_version, third.topic, third.state) == ("b", 2, "y.done", b"b:2")
        assert recorder.max_notification_id() == 6

    def test_insert_events(self, recorder: SqlRecorder) -> None:
        """The library's own method takes the groups as a keyword, returns positions, and raises on a conflict."""
        envelope = group()[1]
        assert list(recorder.insert_events(versions("a", 1, 2), groups=[(2, envelope)])) == [1, 2]
        with pytest.raises(IntegrityError):
            recorder.insert_events(versions("a", 2), groups=[(1, envelope)])
        assert list(recorder.insert_events([], groups=[(0, envelope)])) == []
        assert list(recorder.insert_events([], groups=[])) == []
        assert list(recorder.insert_events(versions("a", 3), groups=[(1, Envelope(AT + 7, "run-2", "omac"))])) == [3]
        assert [(row.at, row.run, row.actor) for row in everything(recorder)][2] == (AT + 7, "run-2", "omac")

    def test_insert_events_wants_to_know_who(self, recorder: SqlRecorder) -> None:
        """An append without an envelope, which names the actor, records nothing."""
        with pytest.raises(KeyError):
            recorder.insert_events(versions("a", 1))
        assert_whole(recorder, 0)

    # ---- files of a spool ----

    def test_a_spooled_file_is_recorded_once(self, open_recorder: Callable[[], SqlRecorder]) -> None:
        """A spooled file's name is stored in the transaction of its events; a second append is refused as known."""
        first, second = open_recorder(), open_recorder()
        file = Spooled("h", "f", "run-1", AT, frozenset({"f"}))
        assert positions(insert(first, [group(log("l", b"x"), spooled=file)])) == [[1]]
        for recorder in (first, second):
            with pytest.raises(Conflicts) as conflicts:
                insert_once(recorder, [group(log("l", b"y")), group(log("l", b"x"), spooled=file)])
            assert [(at, conflict.known) for at, conflict in conflicts.value.of_groups.items()] == [(1, True)]
        assert_whole(first, 1)

    def test_a_spooled_file_twice_in_one_batch(self, recorder: SqlRecorder) -> None:
        """The first group of a spooled file is recorded; the second is known already and harms no other group."""
        file = Spooled("h", "f", "run-1", AT, frozenset({"f"}))
        twice = [group(log("l", b"x"), spooled=file), group(log("l", b"x"), spooled=file), group(log("l", b"y"))]
        results = insert(recorder, twice)
        assert positions(results) == [[1], "conflict", [2]]
        assert isinstance(results[1], Conflict)
        assert results[1].known
        assert_whole(recorder, 2)

    def test_a_spooled_file_whose_events_cannot_follow_is_not_remembered(self, recorder: SqlRecorder) -> None:
        """A spooled file whose events are in conflict is not remembered and may be appended later."""
        file = Spooled("h", "f", "run-1", AT, frozenset({"f"}))
        assert positions(insert(recorder, [group(versions("a", 2), spooled=file)])) == ["conflict"]
        assert positions(insert(recorder, [group(versions("a", 1), spooled=file)])) == [[1]]

    def test_a_spooled_file_that_is_gone_is_forgotten(self, recorder: SqlRecorder) -> None:
        """A spooled file that is gone from its folder is forgotten; files of other hosts are unaffected."""

        def take(host: str, name: str, *present: str) -> list[list[int] | str]:
            file = Spooled(host, name, "run-1", AT, frozenset(present))
            return positions(insert(recorder, [group(log("l", b"x"), spooled=file)]))

        assert take("h", "f", "f", "g") == [[1]]
        assert take("other", "f", "f") == [[2]]
        assert take("h", "g", "g") == [[3]]
        assert take("h", "f", "f", "g") == [[4]]
        assert take("h", "g", "f", "g") == ["conflict"]
        assert take("other", "f", "f") == ["conflict"]

    def test_kinds_are_counted(self, recorder: SqlRecorder) -> None:
        """Kinds are listed with counts, most frequent first, and by name where equally frequent."""
        insert(recorder, [group(log("a", b"", b"", kind="b.b"), log("a", b"", kind="c.c"), log("a", b"", kind="a.a"))])
        with closing(Reader(recorder.path)) as reader:
            assert list(reader.kinds()) == [("b.b", 2), ("a.a", 1), ("c.c", 1)]

    def test_there_is_no_subscription(self, recorder: SqlRecorder) -> None:
        """A recorder refuses a subscription at once."""
        with pytest.raises(NotImplementedError):
            recorder.subscribe()

    # ---- more than one recorder ----

    def test_durable_after_reopening(self, store: Store) -> None:
        """The rows and the journal's name are the same after every recorder was closed and one is opened again."""
        first = store.opening()
        insert(first, [group(versions("a", 1, 3)), group(log("l", b"x"))])
        before, name = everything(first), first.journal_id()
        first.close()
        second = store.opening()
        try:
            assert everything(second) == before
            assert second.journal_id() == name
            assert positions(insert(second, [group(versions("a", 4))])) == [[5]]
        finally:
            second.close()

    def test_two_recorders_in_turn(self, open_recorder: Callable[[], SqlRecorder]) -> None:
        """Each of two recorders sees the other's commits at once and goes on where they ended."""
        recorders = open_recorder(), open_recorder()
        for turn in range(20):
            writer, reader = recorders[turn % 2], recorders[(turn + 1) % 2]
            assert positions(insert(writer, [group(log("a", b"x"))])) == [[turn + 1]]
            assert reader.head() == turn + 1
        assert_whole(recorders[0], 20)

    def test_processes_hammering_at_once(self, store: Store, recorder: SqlRecorder) -> None:
        """Processes that append at the same time lose nothing, repeat nothing, leave no gap, and share one stream."""
        context = multiprocessing.get_context("spawn")
        with context.Pool(HAMMERS) as pool:
            reports = pool.starmap_async(hammer, [(store.opening, f"hammer-{n}") for n in range(HAMMERS)]).get(60)
        rows = everything(recorder)
        assert_whole(recorder, sum(len(report) for report in reports))
        for number, report in enumerate(reports):
            own = [(row.id, row.state) for row in rows if row.run == f"hammer-{number}"]
            assert own == report, "each was told the positions at which its events stand"
        shared = recorder.select_events("shared")
        assert [event.originator_version for event in shared] == list(range(1, len(shared) + 1))
        logs = Counter(row.run for row in rows if row.originator_id == "log")
        assert logs == {f"hammer-{n}": 2 * BLOWS for n in range(HAMMERS)}


def hammer(opening: Callable[[], SqlRecorder], name: str) -> list[tuple[int, bytes]]:
    """Append to a log, to new streams, and to a stream that all processes want; return positions and bodies."""
    recorder = opening()
    done: list[tuple[int, bytes]] = []
    try:
        version = 1
        for blow in range(BLOWS):
            logged = log("log", f"{name}/{blow}/1".encode(), f"{name}/{blow}/2".encode())
            fresh = log(f"either/{blow}", f"{name}/{blow}/3".encode())
            contested = [StoredEvent("shared", version, "thing.done", f"{name}/{version}".encode())]
            groups: list[Group] = [(own, Envelope(1, name, "person")) for own in (logged, contested, fresh)]
            results = insert(recorder, groups)
            for (events, _), result in zip(groups, results, strict=True):
                if not isinstance(result, Conflict):
                    done += [(position, event.state) for position, event in zip(result, events, strict=True)]
            last = recorder.select_events("shared", desc=True, limit=1)
            version = last[0].originator_version + 1
    finally:
        recorder.close()
    return done
