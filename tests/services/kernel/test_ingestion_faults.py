"""services/kernel/ingestion.py: omac is killed, or the journal cannot be read, while the spool is ingested."""

import os
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from contract.launches import AT, WHOLE, Program

from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal.inbox import Inbox, Pass, open_pass
from omac.journal.opening import open_journal
from omac.journal.spool import REJECTED
from omac.services.kernel.ingestion import ingest, try_to_ingest
from omac.services.kernel.opened import OpenedJournal

HOST = HostId("host0001")
MANY = 300  # records, whose reading takes a while


@pytest.fixture
def taker(path: str) -> Any:
    """Yield an opened journal, as a command has it."""
    journal = open_journal(path, "taker", lambda: AT)
    yield OpenedJournal(journal, HOST)
    journal.close()


async def test_a_launch_that_is_recorded_is_never_set_aside(
    path: str, taker: OpenedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next ingestion only removes the files of a launch that were left when omac was killed."""
    folder = Path(path).parent / "spool"
    Program(folder).launch("aa", *WHOLE)

    def killed(_self: Pass, _names: Sequence[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pass, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            await ingest(Inbox(str(folder), HOST), taker)
    assert len(os.listdir(folder)) == 3
    assert await ingest(Inbox(str(folder), HOST), taker) == 0
    assert os.listdir(folder) == []


async def test_a_journal_that_cannot_be_read_meanwhile_is_a_refusal(
    path: str, taker: OpenedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that cannot follow is judged by the journal's state; if reading that fails, the file stays spooled."""
    folder = Path(path).parent / "spool"
    inbox, program = Inbox(str(folder), HOST), Program(folder)
    program.launch("aa", "denied")
    assert await ingest(inbox, taker) == 1
    program.put("sandbox.launched", {"pid": 43}, "aa", 2)
    answers = iter([True, False])
    entry = OpenedJournal.entry

    def unreadable(self: OpenedJournal, *of: Any) -> Any:
        if next(answers, False):
            return entry(self, *of)
        raise Refusal("journal-unavailable", "it cannot be read right now")

    with monkeypatch.context() as patch:
        patch.setattr(OpenedJournal, "entry", unreadable)
        await try_to_ingest(inbox, taker)
    assert len(inbox.names()) == 1
    await ingest(inbox, taker)
    assert (inbox.names(), len(os.listdir(folder / REJECTED))) == (frozenset(), 1)


@pytest.mark.full
def test_a_shortage_of_descriptors_rejects_nothing(path: str) -> None:
    """Records that cannot be opened for want of a descriptor stay in the spool, for the next time."""
    folder = Path(path).parent / "spool"
    inbox, program = Inbox(str(folder), HOST), Program(folder)
    for number in range(MANY):
        program.deny(f"d{number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    begun = open_pass(inbox, lambda: AT, 0)
    assert begun is not None

    def exhaust() -> None:
        time.sleep(0.002)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))

    exhausting = threading.Thread(target=exhaust)
    exhausting.start()
    try:
        with pytest.raises(Refusal, match="Too many open files"):
            _read_until_refused(begun)
    finally:
        exhausting.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (len(inbox.names()), inbox.rejected()) == (MANY, 0)
    assert len(begun.records()) == MANY
    begun.close()


def _read_until_refused(begun: Pass) -> None:
    while True:
        begun.records()
