"""services/kernel/checkpointing.py: what a run that stays signs, and when."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from contract.journals import PERSON, journal_at
from polling import until

from omac.domain.access import control, signing
from omac.domain.access.control import ControlCalled
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.services.kernel import checkpointing
from omac.services.kernel.checkpointing import Checkpointing, SignedNote
from omac.services.kernel.engine import Engine

HOST = HostId("host0001")


class Scene:
    """An engine that runs, and a key that signs when it is there."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_locked = False
        self.checkpoints = Checkpointing(engine, self._sign)

    def _sign(self) -> SignedNote:
        if self.is_locked:
            raise Refusal("state-unusable", "there is no key")
        size = self.engine.system.position
        return SignedNote(size, f"a note of {size}")

    async def call(self, times: int = 1) -> None:
        fact = Addressed(control.AGGREGATE, ids.control_stream(HOST), ControlCalled("reload", "/w", "socket"))
        await self.engine.record([fact] * times, PERSON)

    def signed(self) -> signing.SignedChain:
        return self.engine.system.of(signing.AGGREGATE)[ids.checkpoint_stream(HOST)].state


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    journal = journal_at(tmp_path / "journal.db")
    engine = Engine(journal, HOST)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.keep_writing)
        yield Scene(engine)
        nursery.cancel_scope.cancel()
    journal.close()


async def test_each_names_the_one_before(scene: Scene) -> None:
    """And one that counts nothing new is not recorded."""
    await scene.call()
    await scene.checkpoints.sign()
    first = scene.signed()
    assert first == signing.SignedChain(1, signing.digest_of("a note of 1"))
    await scene.call()
    await scene.checkpoints.sign()
    assert scene.signed().size == 3
    position = scene.engine.system.position
    scene.checkpoints = Checkpointing(scene.engine, lambda: SignedNote(3, "again"))
    await scene.checkpoints.sign()
    assert scene.engine.system.position == position


async def test_when_a_run_ends(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where many events are not counted yet."""
    monkeypatch.setattr(checkpointing, "WORTH", 3)
    await scene.call(2)
    await scene.checkpoints.sign_last()
    assert scene.signed().size == 0
    await scene.call()
    await scene.checkpoints.sign_last()
    assert scene.signed().size == 3
    await scene.checkpoints.sign_last()
    assert scene.engine.system.position == 4


async def test_now_and_then(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many events, after one that waited for EVERY_S, and never where nothing was recorded."""
    monkeypatch.setattr(checkpointing, "EVENTS_MAX", 10)
    monkeypatch.setattr(checkpointing, "LOOK_S", 0.01)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.checkpoints.run)
        await scene.call(9)
        await trio.sleep(0.1)
        assert scene.signed().size == 0
        await scene.call()
        await until(lambda: scene.signed().size == 10)
        monkeypatch.setattr(checkpointing, "EVERY_S", 0.02)
        await scene.call()
        await until(lambda: scene.signed().size == 12)
        await trio.sleep(0.1)
        assert scene.engine.system.position == 13
        nursery.cancel_scope.cancel()


async def test_without_a_key(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported once, and made up for when the key is there."""
    scene.is_locked = True
    await scene.call()
    await scene.checkpoints.sign()
    await scene.checkpoints.sign()
    assert [record.getMessage() for record in caplog.records] == ["no checkpoint is signed: there is no key"]
    scene.is_locked = False
    await scene.checkpoints.sign()
    assert scene.signed().size == 1
