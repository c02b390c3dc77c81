"""services/settings/changes.py: the request is on record before the file is touched, and the outcome after."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from omac.domain.kernel import ids
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.setting import SettingChanged, SettingChangeFailed, SettingChangeRequested
from omac.domain.settings.settings import SETTINGS, Setting
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.services.kernel.opened import OpenedJournal
from omac.services.settings.changes import Change, change_setting

HOST = HostId("host0001")
STORE = SETTINGS["secrets.store"]


class File:
    """A settings file with one setting. `problem` is the error of a write; `seen` the journal's head just then."""

    origin = "user /f"

    def __init__(self, journal: Journal) -> None:
        self.present: str | None = None
        self.problem: BaseException | None = None
        self.seen: list[int] = []
        self._journal = journal
        self._asked: str | None = None

    @contextmanager
    def changing(self, asked: Setting, value: str | None) -> Iterator[Change | None]:
        """Yield a change to the value, if the file does not have it already."""
        self._asked = value
        yield None if value == self.present else self

    def write(self) -> None:
        """Write the value, unless `problem` prevents that."""
        self.seen.append(self._journal.store.head())
        if self.problem is not None:
            raise self.problem
        self.present = self._asked


@pytest.fixture
def journal(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """Yield an empty journal."""
    with closing(open_journal(path, "run1", clock)) as opened:
        yield opened


@pytest.fixture
def file(journal: Journal) -> File:
    """Return a settings file that sets nothing yet."""
    return File(journal)


def events(journal: Journal) -> list[Event]:
    """Return all recorded events; each is a person's change of the one setting."""
    records = list(journal.records())
    assert {(record.stream, record.actor) for record in records} <= {(ids.setting_stream(HOST, STORE.name), "person")}
    return [record.event for record in records]


REQUESTED = SettingChangeRequested(STORE.name, "vault", "user /f")
CHANGED = SettingChanged(STORE.name, "vault", "user /f")


async def test_a_change_is_requested_made_and_reported(journal: Journal, file: File) -> None:
    """A change is requested, made and reported, in this order; a value that the file has is not written again."""
    execution = OpenedJournal(journal, HOST)
    assert await change_setting(execution, file.changing, STORE, "vault")
    assert not await change_setting(execution, file.changing, STORE, "vault")
    assert (events(journal), file.seen, file.present) == ([REQUESTED, CHANGED], [1], "vault")


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), Refusal("state-unusable", "no")])
async def test_a_file_that_cannot_be_written(journal: Journal, file: File, problem: Exception) -> None:
    """The failure is recorded with its reason, and the caller gets it unchanged."""
    file.problem = problem
    with pytest.raises(type(problem)) as raised:
        await change_setting(OpenedJournal(journal, HOST), file.changing, STORE, "vault")
    assert raised.value is problem
    assert events(journal) == [REQUESTED, SettingChangeFailed(STORE.name, str(problem))]


@pytest.mark.parametrize("written", [True, False])
async def test_a_change_that_was_cut_short_is_closed_by_the_next(journal: Journal, file: File, written: bool) -> None:
    """The file's content decides which outcome of the change is recorded."""
    execution = OpenedJournal(journal, HOST)
    file.problem = KeyboardInterrupt()  # as good as a kill
    with pytest.raises(KeyboardInterrupt):
        await change_setting(execution, file.changing, STORE, "vault")
    file.problem = None
    file.present = "vault" if written else None
    assert await change_setting(execution, file.changing, STORE, "keychain")
    closed = CHANGED if written else SettingChangeFailed(STORE.name, "omac was killed before the file was written")
    assert [type(event) for event in events(journal)][2:] == [SettingChangeRequested, SettingChanged]
    assert events(journal)[:2] == [REQUESTED, closed]


async def test_without_a_record_nothing_is_written(
    journal: Journal, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that cannot be recorded is not made."""

    def refuse(*_: object, **__: object) -> None:
        raise Refusal("journal-unavailable", "the disk is full")

    monkeypatch.setattr(journal.store, "insert_events", refuse)
    with pytest.raises(Refusal, match="the disk is full"):
        await change_setting(OpenedJournal(journal, HOST), file.changing, STORE, "vault")
    assert (file.seen, file.present) == ([], None)
