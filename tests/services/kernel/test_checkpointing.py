"""services/kernel/checkpointing.py: the checkpoints that a lasting run signs, and their times."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from contract.journals import PERSON, journal_at
from polling import until

from omac.domain.access import control, receipt, signing
from omac.domain.access.control import ControlCalled
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import Checkpoint, sign, verifier_of
from omac.services.kernel import checkpointing
from omac.services.kernel.checkpointing import Checkpointing, SignedNote
from omac.services.kernel.engine import Engine

HOST = HostId("host0001")


class Scene:
    """An engine that runs, and a key that signs when it exists."""

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
    """Each checkpoint names the one before; a checkpoint that counts nothing new is not recorded."""
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
    """The end of a run signs only where many events are not counted yet."""
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
    """A run signs after a number of events or after EVERY_S, and never where no event was recorded."""
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


async def test_receipts_alone_make_none_due(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts alone make no checkpoint due; the next one counts them, and so does one that many receipts make due."""
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.02)
    monkeypatch.setattr(checkpointing, "EVENTS_MAX", 6)
    monkeypatch.setattr(checkpointing, "LOOK_S", 0.01)

    async def receive(size: int) -> None:
        command = receipt.Receive("j", size, "ab", "a key", "a note", "a key" if size > 1 else "")
        await scene.engine.execute(receipt.AGGREGATE, ids.receipt_stream(HOST, "j"), command, PERSON)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.checkpoints.run)
        for size in (1, 2):
            await receive(size)
        await trio.sleep(0.2)
        assert scene.signed().size == 0
        await scene.call()
        await until(lambda: scene.signed().size == 3)
        for size in range(3, 8):
            await receive(size)
        await trio.sleep(0.2)
        assert scene.signed().size == 3
        await receive(8)
        await until(lambda: scene.signed().size == 10)
        nursery.cancel_scope.cancel()


async def test_a_key_that_is_rotated_meanwhile(scene: Scene) -> None:
    """A checkpoint by the old key is not recorded; the new key signs at once, and no checkpoint is called delayed."""
    old, new = (verifier_of("omac/host0001", bytes([number]) * 32) for number in (1, 2))
    await scene.call()
    seeds = iter((b"\1" * 32, b"\2" * 32))
    stream = ids.checkpoint_stream(HOST)
    rotation = signing.RecordRotation(old.text(), new.text(), "a note by both")
    await scene.engine.execute(signing.AGGREGATE, stream, rotation, PERSON)

    def sign_with_next() -> SignedNote:
        size = scene.engine.system.position
        return SignedNote(size, sign(Checkpoint("a" * 32, size, b"r" * 32, 7, 0), "omac/host0001", next(seeds)))

    scene.checkpoints = Checkpointing(scene.engine, sign_with_next)
    await scene.checkpoints.sign()
    assert (scene.signed().size, scene.signed().problem, scene.engine.system.position) == (2, "", 3)


async def test_a_moment_without_a_descriptor(scene: Scene) -> None:
    """omac goes on when the system lacks a descriptor for signing, and signs the next time."""
    problems = [OSError(errno.EMFILE, "Too many open files")]

    def sign() -> SignedNote:
        for problem in problems:
            raise problem
        return scene._sign()

    await scene.call()
    scene.checkpoints = Checkpointing(scene.engine, sign)
    await scene.checkpoints.sign()
    assert "Too many open files" in scene.signed().problem
    problems.clear()
    await scene.checkpoints.sign()
    assert (scene.signed().size, scene.signed().problem) == (2, "")


async def test_without_a_key(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A missing key is reported once, and the checkpoint is made up for when the key exists."""
    scene.is_locked = True
    await scene.call()
    await scene.checkpoints.sign()
    await scene.checkpoints.sign()
    assert [record.getMessage() for record in caplog.records] == ["no checkpoint is signed: there is no key"]
    assert (scene.signed().problem, scene.engine.system.position) == ("there is no key", 2)  # recorded once, too
    scene.is_locked = False
    await scene.checkpoints.sign()
    assert (scene.signed().size, scene.signed().problem) == (2, "")
