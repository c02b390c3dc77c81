"""projections/evidence/explanation.py: the tree of causes and consequences around a record."""

from collections.abc import Collection, Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from omac.domain.directories.events import Activated
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId
from omac.projections.evidence.explanation import explain

STREAM = ids.access_stream(HostId("h"))


class Listed:
    """A journal in memory: pairs of causation and correlation, from position 1."""

    def __init__(self, *pairs: tuple[int | None, str | None]) -> None:
        self.records = [
            Recorded(position, STREAM, None, position, "r", "omac", correlation, causation, Activated())
            for position, (causation, correlation) in enumerate(pairs, 1)
        ]

    def at(self, position: int) -> Recorded | None:
        return self.records[position - 1] if 0 < position <= len(self.records) else None

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        causes = set(positions)
        for record in self.records:
            if record.causation in causes and record.causation < record.position:
                causes.add(record.position)
                yield record.position

    def history(self, stream: ids.StreamId) -> Sequence[Recorded]:
        return []

    def of_type(self, event: type[Event], after: int) -> Iterator[Recorded]:
        return (record for record in self.records[after:] if type(record.event) is event)

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        return [record.position for record in self.records if record.correlation == correlation][:limit]


def shape(journal: Listed, position: int, records_max: int = 200) -> tuple[list[tuple[int, int]], bool]:
    """Return position and depth of each record of an explanation, and whether it is cut."""
    explanation = explain(position, journal, records_max)
    assert explanation is not None
    return [(node.recorded.position, node.depth) for node in explanation.records], explanation.is_cut


def test_causes_and_consequences() -> None:
    """An explanation has all records that the first cause led to, below their causes, in order, and no others."""
    journal = Listed((None, None), (1, None), (None, None), (2, None), (1, None), (3, None))
    whole = [(1, 0), (2, 1), (4, 2), (5, 1)]
    assert shape(journal, 4) == shape(journal, 1) == (whole, False)
    assert shape(journal, 3) == ([(3, 0), (6, 1)], False)


def test_a_conversation() -> None:
    """Records of a conversation without a common cause stand beside each other."""
    assert shape(Listed((None, "c"), (None, "d"), (None, "c"), (3, None)), 1) == ([(1, 0), (3, 0)], False)


def test_no_record() -> None:
    """A position before the first record or behind the last has no explanation."""
    assert explain(0, Listed((None, None))) is explain(2, Listed((None, None))) is None


def test_it_is_bounded() -> None:
    """An explanation that is cut has the record and its causes in any case."""
    journal = Listed((None, None), *[(1, "c")] * 50, (2, "c"))
    records, is_cut = shape(journal, 52, 5)
    assert is_cut
    assert len(records) == 5
    assert {1, 2, 52} <= {position for position, _ in records}
    assert shape(Listed((None, None), *[(n, None) for n in range(1, 500)]), 400, 10)[1]


@given(st.lists(st.tuples(st.none() | st.integers(-1, 12), st.none() | st.sampled_from("cd")), min_size=1, max_size=12))
def test_any_causation_ends(pairs: list[tuple[int | None, str | None]]) -> None:
    """A damaged journal may name later positions as causes, or a record itself: each record comes once."""
    for position in range(1, len(pairs) + 1):
        records, _ = shape(Listed(*pairs), position)
        positions = [listed for listed, _ in records]
        assert position in positions
        assert len(set(positions)) == len(positions)
