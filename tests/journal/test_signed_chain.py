"""journal/signed_chain.py: the checkpoints that a journal has of itself, and the changes that they reveal."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from contract.journals import called, commit_now, journal_at
from journal.damage import new_leaves

from omac.domain.access.signing import AGGREGATE, CheckpointSigned, KeyRotated, SignedChain, digest_of
from omac.domain.kernel.event import Draft, Event, Latest
from omac.domain.kernel.ids import HostId, checkpoint_stream
from omac.journal.application import Journal
from omac.journal.checkpoint import VerifierKey, current_checkpoint, sign, verifier_of
from omac.journal.reader import Reader, ReadJournal
from omac.journal.repair import Repair
from omac.journal.rotation import is_rotation, sign_rotation
from omac.journal.signed_chain import chain_of
from omac.journal.verification import verify
from omac.projections.system import System

NAME, SEED = "omac/host1", b"k" * 32
STREAM = checkpoint_stream(HostId("host1"))


class Signed(NamedTuple):
    """A journal with three checkpoints, and the key that signed them."""

    path: Path
    key: VerifierKey
    positions: tuple[int, ...]

    def change(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def findings(self, key: VerifierKey | None = None) -> list[tuple[int, str]]:
        with closing(Reader(str(self.path), lenient=True)) as reader:
            chain = chain_of(reader, [key or self.key])
        verified = verify(str(self.path), chain.roots, known=chain.findings)
        return [(finding.position, finding.kind) for finding in verified.findings]


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Signed]:
    path = tmp_path / "journal.db"
    journal = journal_at(path)
    previous, positions = "", []
    for version in (1, 2, 3):
        commit_now(journal, [called(f"{version}-{number}") for number in range(10)])
        note = sign(current_checkpoint(str(path), version), NAME, SEED)
        event = CheckpointSigned(journal.store.head(), note, previous)
        commit_now(journal, [Draft(STREAM, version, event)])
        positions.append(journal.store.head())
        previous = digest_of(note)
    journal.store.checkpoint()
    yield Signed(path, verifier_of(NAME, SEED), tuple(positions))
    journal.close()


def test_a_journal_that_is_whole(signed: Signed) -> None:
    """Each checkpoint of a whole journal counts as a kept root, and nothing is found."""
    with closing(Reader(str(signed.path))) as reader:
        chain = chain_of(reader, [signed.key])
    assert ([root.size for root in chain.roots], chain.unknown, chain.findings) == ([10, 21, 32], 0, ())
    assert signed.findings() == []


@pytest.mark.parametrize(("position", "first"), [(1, 1), (10, 1), (15, 11), (30, 22)])
def test_a_change_with_new_leaves(signed: Signed, position: int, first: int) -> None:
    """A change with new leaves, which is invisible without a checkpoint, is found as a rewrite behind the last
    checkpoint that holds."""
    signed.change(f"UPDATE event SET at = at - 1 WHERE position = {position}")
    new_leaves(signed.path)
    assert signed.findings()[0] == (first, "rewritten")
    assert {kind for _, kind in signed.findings()} == {"rewritten"}


def body_of(signed: Signed, position: int) -> bytes:
    with closing(sqlite3.connect(signed.path)) as connection:
        ((body,),) = connection.execute("SELECT body FROM event WHERE position = ?", (position,))
    return bytes(body)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "the root": lambda body: body.replace(b"late 0", b"late 1"),
    "the signature": lambda body: body.replace(b"\xe2\x80\x94 omac/host1 ", b"\xe2\x80\x94 omac/host1 A"[:-1] + b"B"),
    "the digest before": lambda body: body[:-4] + b"0000",
    "all of it": lambda _: b"\x01\x90",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_checkpoint_is_changed(signed: Signed, what: str) -> None:
    """A changed checkpoint is invalid, also with new leaves."""
    position = signed.positions[1]
    body = CHANGES[what](body_of(signed, position))
    with closing(sqlite3.connect(signed.path, isolation_level=None)) as connection:
        connection.execute("UPDATE event SET body = ? WHERE position = ?", (body, position))
    new_leaves(signed.path)
    assert (position, "checkpoint-invalid") in signed.findings()


def test_a_checkpoint_is_taken_out(signed: Signed) -> None:
    """A checkpoint whose predecessor was taken out is invalid, since it names one that is missing."""
    position = signed.positions[1]
    (kind, body) = ("SELECT kind FROM event WHERE position = 1", "SELECT body FROM event WHERE position = 1")
    signed.change(f"UPDATE event SET kind = ({kind}), body = ({body}) WHERE position = {position}")
    new_leaves(signed.path)
    findings = signed.findings()
    assert (signed.positions[2], "checkpoint-invalid") in findings


def test_by_a_key_that_is_not_known(signed: Signed) -> None:
    """Checkpoints of another host than the key's are neither trusted nor findings. Those of the same name that the key
    has not signed are invalid."""
    foreign = verifier_of("omac/host2", SEED)
    with closing(Reader(str(signed.path))) as reader:
        chain = chain_of(reader, [foreign])
    assert (chain.roots, chain.unknown, chain.findings) == ((), 3, ())
    assert {kind for _, kind in signed.findings(verifier_of(NAME, b"o" * 32))} == {"checkpoint-invalid"}


def test_a_checkpoint_that_a_repair_set_aside(signed: Signed) -> None:
    """A checkpoint that a repair set aside is the only one that is lost: those after it still fold, and still hold."""
    position = signed.positions[1]
    signed.change(f"UPDATE event SET body = x'01' WHERE position = {position}")
    assert (position, "checkpoint-invalid") in signed.findings()
    repair = Repair(str(signed.path), HostId("host1"), "r", lambda: 1, lambda: System().apply, lambda *_: False)
    assert [damage.position for damage in repair.perform()] == [position]
    assert signed.findings() == []
    with closing(Reader(str(signed.path))) as reader:
        assert [root.size for root in chain_of(reader, [signed.key]).roots] == [10, 32]


def test_keys_that_are_rotated(signed: Signed) -> None:
    """Each key counts for its own time; a rotation of other keys, or without the signatures of both, does not hold."""
    later, stolen = b"l" * 32, b"s" * 32
    new = verifier_of(NAME, later)

    def commit(event: Event) -> int:
        journal = journal_at(signed.path)
        state = replayed(journal)
        commit_now(journal, [Draft(STREAM, state.version + 1, event)])
        position = journal.store.head()
        journal.close()
        return position

    def replayed(journal: Journal) -> Latest[SignedChain]:
        return journal.load(STREAM, AGGREGATE.initial, AGGREGATE.evolve)

    def checkpoint(seed: bytes) -> CheckpointSigned:
        journal = journal_at(signed.path)
        size, digest = journal.store.head(), replayed(journal).state.digest
        journal.close()
        return CheckpointSigned(size, sign(current_checkpoint(str(signed.path), 9), NAME, seed), digest)

    with closing(Reader(str(signed.path))) as reader:
        journal_id = reader.journal_id()
    last = digest_of(checkpoints(signed)[-1].note)
    note = sign_rotation(journal_id, 7, NAME, SEED, later)
    forged = sign_rotation(journal_id, 7, NAME, stolen, later)
    assert is_rotation(note, journal_id, signed.key, new)
    for text in (forged, note.replace("time 7", "time 8"), "\n".join(note.split("\n")[:-2]) + "\n", ""):
        assert not is_rotation(text, journal_id, signed.key, new)
    assert not is_rotation(note, "0" * 32, signed.key, new)
    commit(KeyRotated(signed.key.text(), new.text(), note, last))
    commit(checkpoint(later))
    for key in (signed.key, new):
        assert signed.findings(key) == []
        with closing(Reader(str(signed.path))) as reader:
            chain = chain_of(reader, [key])
        assert (len(chain.roots), set(chain.keys)) == (4, {signed.key.text(), new.text()})
    position = commit(checkpoint(SEED))  # by the key that was replaced
    assert signed.findings() == [(position, "checkpoint-invalid")]
    again = verifier_of(NAME, stolen)
    position = commit(KeyRotated(new.text(), again.text(), forged, digest_of(checkpoints(signed)[-1].note)))
    assert (position, "checkpoint-invalid") in signed.findings()
    commit(checkpoint(stolen))
    with closing(Reader(str(signed.path))) as reader:
        assert again.text() not in chain_of(reader, [signed.key]).keys


@pytest.mark.parametrize(
    "damage", ["UPDATE event SET body = x'01' WHERE position = {}", "DELETE FROM event WHERE position = {}"]
)
def test_a_rotation_that_is_damaged_is_what_is_named(signed: Signed, damage: str) -> None:
    """A damaged rotation is the finding; checkpoints before it, which the present key cannot verify, are not."""
    later = b"l" * 32
    journal = journal_at(signed.path)
    state = journal.load(STREAM, AGGREGATE.initial, AGGREGATE.evolve)
    note = sign_rotation(journal.store.journal_id(), 7, NAME, SEED, later)
    event = KeyRotated(signed.key.text(), verifier_of(NAME, later).text(), note, state.state.digest)
    commit_now(journal, [Draft(STREAM, state.version + 1, event)])
    position = journal.store.head()
    note = sign(current_checkpoint(str(signed.path), 9), NAME, later)
    state = journal.load(STREAM, AGGREGATE.initial, AGGREGATE.evolve)
    commit_now(journal, [Draft(STREAM, state.version + 1, CheckpointSigned(position, note, state.state.digest))])
    journal.close()
    assert signed.findings(verifier_of(NAME, later)) == []
    signed.change(damage.format(position))
    assert signed.findings(verifier_of(NAME, later))[0][0] == position
    repair = Repair(str(signed.path), HostId("host1"), "r", lambda: 10**6, lambda: System().apply, lambda *_: False)
    assert [damage.position for damage in repair.perform()] == [position]
    assert signed.findings(verifier_of(NAME, later)) == []
    with closing(Reader(str(signed.path))) as reader:
        chains = [chain_of(reader, [key]) for key in (verifier_of(NAME, later), signed.key)]
    assert [(len(chain.roots), chain.unknown, len(chain.findings)) for chain in chains] == [(1, 3, 0), (3, 0, 1)]


def checkpoints(signed: Signed) -> list[CheckpointSigned]:
    """Return the checkpoints in the journal."""
    with closing(ReadJournal(str(signed.path))) as journal:
        return [record.event for record in journal.records() if isinstance(record.event, CheckpointSigned)]
