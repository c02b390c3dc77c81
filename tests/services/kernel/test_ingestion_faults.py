"""services/kernel/ingestion.py: omac is killed, or the journal cannot be read, while the spool is ingested."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from contract.launches import AT, WHOLE, Program

from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal.inbox import Inbox, Pass
from omac.journal.opening import open_journal
from omac.journal.spool import REJECTED
from omac.services.kernel.ingestion import ingest, try_to_ingest
from omac.services.kernel.opened import OpenedJournal

HOST = HostId("host0001")


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
