"""domain/access/exchange.py: the numbered rules, for every state, event and history."""

import itertools
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import failing
from tiers import examples

from omac.domain.access.exchange import (
    ABORTED,
    ARROWS,
    BYTES,
    ENDS,
    REASONS,
    TABLE,
    ExchangeProgress,
    Kind,
    Status,
)
from omac.domain.kernel.refusal import Refusal

STATUSES: tuple[Status, ...] = get_args(Status)
KINDS: tuple[Kind, ...] = get_args(Kind)
BEGUN = ("answering", "ending", "joined")
PATHS: dict[Status, tuple[Kind, ...]] = {
    "connecting": (),
    "sending": ("connected",),
    "waiting": ("connected", "body-bytes", "body-sent"),
    "answering": ("connected", "body-sent", "answer-bytes"),
    "ending": ("connected", "body-sent", "answer-last"),
    "joined": ("connected", "body-sent", "switched"),
    "completed": ("connected", "body-sent", "answer-last", "answer-sent"),
    "completed_early": ("connected", "answer-last", "answer-sent-early"),
    "refused": ("connect-failed",),
    "broken_off": ("connected", "answer-bytes", "timed-out"),
    "abandoned": ("connected", "client-closed"),
}


OTHERS = ("connected", "body-sent", "switched", "both-finished")


def refusal_of(kind: Kind) -> Refusal | None:
    """Return the refusal that comes with an event; each kind of event has its own."""
    if kind in REASONS or kind in BYTES or kind.startswith("answer-") or kind in OTHERS:
        return None
    return Refusal("timeout", kind)


def progress_in(status: Status) -> ExchangeProgress:
    progress = ExchangeProgress(idle_s=300, answer_s=30, joined_idle_s=3600)
    for kind in PATHS[status]:
        progress.on(kind, refusal_of(kind))
    assert progress.status == status
    return progress


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError and changes nothing."""

    def check(status: Status, kind: Kind) -> None:
        progress = progress_in(status)
        if (status, kind) in TABLE:
            progress.on(kind, refusal_of(kind))
            assert progress.status == TABLE[status, kind]
        else:
            with pytest.raises(KeyError):
                progress.on(kind, refusal_of(kind))
            assert (progress.status, progress.reason) == (status, None)

    assert failing(check, itertools.product(STATUSES, KINDS)) == []
    assert len(TABLE) == sum(len(kinds) for *_, kinds in ARROWS), "an arrow contradicts another"


def test_the_table_leads_everywhere_and_to_an_end() -> None:
    """Every status can be reached from the beginning, an end from every status, and nothing leaves an end."""
    reached: set[Status] = {"connecting"}
    ending = set(ENDS)
    for _ in TABLE:
        reached |= {to for (status, _), to in TABLE.items() if status in reached}
        ending |= {status for (status, _), to in TABLE.items() if to in ending}
    assert reached == ending == set(STATUSES)
    assert {kind for _, kind in TABLE} == set(KINDS)
    assert all(TABLE[end, kind] == end for end in ENDS for kind in KINDS)


def test_a_fault_a_stop_a_cut_and_a_silence_end_every_exchange() -> None:
    """Rules 1 to 3: these events end every exchange under way, as `broken_off` from the first byte of the answer."""

    def check(status: Status, kind: Kind) -> None:
        before = "refused" if kind in ("cut", "timed-out") else "abandoned"
        assert TABLE[status, kind] == ("broken_off" if status in BEGUN else before)

    going_on = [status for status in STATUSES if status not in ENDS]
    assert failing(check, itertools.product(going_on, ("faulted", "stopped", "cut", "timed-out"))) == []


@pytest.mark.parametrize(
    ("kinds", "status", "reason", "code"),
    [
        (("connected", "body-sent", "answer-last", "answer-sent"), "completed", None, 200),
        (("connected", "answer-last", "answer-sent-early"), "completed_early", None, 200),
        (("connected", "answer-last", "client-closed", "answer-sent"), "completed", None, 200),
        (("connected", "answer-last", "client-lost"), "broken_off", "client-gone", 200),
        (("connected", "answer-bytes", "client-closed"), "broken_off", "client-gone", 200),
        (("connected", "client-closed"), "abandoned", "client-gone", None),
        (("connected", "body-refused"), "refused", "timeout", 504),
        (("connected", "answer-bytes", "body-refused"), "broken_off", "timeout", 200),
        (("connected", "client-closed", "timed-out"), "abandoned", "client-gone", None),
        (("connected", "cut", "answer-bytes"), "refused", "timeout", 504),
        (("connected", "body-sent", "switched", "answer-bytes", "both-finished"), "completed", None, 101),
        (("connected", "body-sent", "switched", "client-lost"), "broken_off", "client-gone", 101),
        (("stopped",), "abandoned", "stopping", None),
        (("connected", "answer-bytes", "faulted"), "broken_off", "upstream-error", 200),
    ],
)
def test_ends(kinds: tuple[Kind, ...], status: Status, reason: str | None, code: int | None) -> None:
    """An exchange whose skill answers 200 (101 if it switches) ends in this status, with this reason and this code."""
    progress = ExchangeProgress(idle_s=300, answer_s=30, joined_idle_s=3600)
    for kind in kinds:
        progress.on(kind, refusal_of(kind))
    assert (progress.status, progress.reason, progress.answer_status(101 if "switched" in kinds else 200)) == (
        status,
        reason,
        code,
    )


def test_an_event_without_its_refusal_completes_nothing() -> None:
    """An event without its refusal raises KeyError. The exchange then ends as faulted, with the reason
    upstream-error."""
    progress = progress_in("waiting")
    with pytest.raises(KeyError):
        progress.on("timed-out")
    progress.on("faulted")
    assert (progress.over, progress.reason) == (True, "upstream-error")


@pytest.mark.full
@settings(max_examples=examples(500))
@given(st.sampled_from(STATUSES), st.lists(st.sampled_from(KINDS), max_size=40))
def test_the_rules_hold_in_every_history(first: Status, kinds: list[Kind]) -> None:
    """Rules 1 to 4 hold after any sequence of events that can follow each other, also long after the end."""
    progress = ExchangeProgress(idle_s=300, answer_s=30, joined_idle_s=3600)
    end: tuple[Status, str | None, Refusal | None] | None = None
    body_sent = False
    for kind in (*PATHS[first], *kinds):
        before = progress.status
        if (before, kind) not in TABLE:
            continue
        refusal = refusal_of(kind)
        limit_s = progress.on(kind, refusal)
        fate = progress.status, progress.reason, progress.refusal
        assert progress.over == (progress.status in ENDS)
        if end is not None:
            assert (fate, limit_s) == (end, None)
            continue
        assert (progress.reason is not None) == (progress.status in ABORTED)
        assert (progress.refusal is not None) == (progress.status == "refused")
        body_sent |= kind == "body-sent"
        if progress.over:
            end = fate
            assert limit_s is None
            assert progress.refusal in (None, refusal)
            assert progress.status not in ("refused", "abandoned") or before not in BEGUN
            assert progress.status not in ("broken_off", "completed", "completed_early") or before in BEGUN
            assert (progress.answer_status(200) is None) == (progress.status == "abandoned")
        elif progress.status == "joined":
            assert limit_s == 3600
        elif kind in ("body-bytes", "answer-bytes", "answer-last"):
            assert limit_s == 300
        else:
            assert limit_s == (30 if kind == "body-sent" and before == "sending" else None)
        assert progress.status != "waiting" or body_sent
