"""Prunes of journals with random histories: the state stays, whatever is dropped."""

import itertools
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from projections.conftest import History
from projections.test_system import grow
from tiers import examples

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessCompleted,
)
from omac.domain.kernel.event import Cause, Draft
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.journal.verification import verify
from omac.projections.snapshot import encoded
from omac.projections.system import System
from omac.tools.cli.checkpoint import keys_in, signer_for
from omac.tools.compose.pruning import pruning
from omac.tools.compose.recording import recorded_checkpoint
from omac.tools.compose.sealing import SealRequest, seal

STEPS = 1_200  # of which more runs come than a state remembers


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4).map(sorted),
    prunes=st.lists(st.integers(0, 4), min_size=1, max_size=3).map(sorted),
)
@pytest.mark.full
def test_the_state_stays(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[float], prunes: list[int]
) -> None:
    """A prune keeps the state to the byte, at the end of the pruned part and at every later position, and damages
    nothing."""
    folder = tmp_path_factory.mktemp("pruned")
    environment = {"OMAC_STATE_DIR": str(folder)}
    keys = partial(keys_in, keys=(), environment=environment)
    ends = _recorded(folder, environment, seed, cuts)
    path = str(folder / "journal.db")
    with closing(ReadJournal(path)) as journal:
        head = journal.store.head()
        segments = journal.store.segments()
        states = _states(journal, [segment.last for segment in segments] + [head])
    assert [segment.last for segment in segments] == ends
    for number in prunes:
        moment = segments[min(number, len(segments) - 1)].last
        with pruning(None, keys, environment) as work:
            for planned in work.plan(_moment(path, moment)):
                work.perform(planned)
    with closing(ReadJournal(path)) as journal:
        last, _ = journal.store.pruned_to()
        positions = [position for position in states if position >= last]
        assert _states(journal, positions) == {position: states[position] for position in positions}
    verified = verify(path)
    assert (verified.findings, verified.pruned > 0) == ((), True)


def _recorded(folder: Path, environment: dict[str, str], seed: int, cuts: list[float]) -> list[int]:
    """Record a random history, sealed where it is cut; return where segments end."""
    records = grow(History(), seed, STEPS)
    positions: dict[int, int] = {}
    ends: list[int] = []
    bounds = [0, *sorted({int(len(records) * cut) for cut in cuts}), len(records)]
    for start, end in itertools.pairwise(bounds):
        with closing(open_journal(str(folder / "journal.db"), "run1", time.time_ns)) as journal:
            head, groups = journal.store.head(), []
            for number, record in enumerate(records[start:end], head + 1):
                positions[record.position] = number
                event = record.event
                match event:
                    case AccessCompleted() | AccessAborted():
                        event = replace(event, request=positions[event.request])
                    case AccessBatchCompleted() | AccessBatchAborted():
                        event = replace(event, request=tuple(positions[request] for request in event.request))
                    case _:
                        pass
                draft = Draft(record.stream, record.version, event)
                groups.append(journal.group([draft], journal.envelope(Cause("omac"))))
            journal.commit(groups)
        if end < len(records):
            recorded_checkpoint(environment, None, signer_for(None, environment))
            sealed = seal(SealRequest(None, None), partial(keys_in, keys=(), environment=environment), environment)
            assert sealed.segment is not None
            ends.append(sealed.segment.last)
    return ends


def _states(journal: ReadJournal, positions: list[int]) -> dict[int, bytes]:
    system, states = System(), {}
    for record in journal.records(0, max(positions)):
        system.apply(record)
        if system.position in positions:
            states[system.position] = encoded(system)
    return states


def _moment(path: str, position: int) -> int:
    """Return the time just before the event behind a position."""
    with closing(ReadJournal(path)) as journal:
        following = next(iter(journal.records(position, position + 1)), None)
    assert following is not None
    return following.at - 1
