"""The table in SECURITY.md of changes that no verification finds: each is made to a journal, with the stated result."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from contract.journals import called, commit_now, journal_at
from journal.damage import new_leaves
from real_omac import Omac, omac_in

from omac.domain.access.signing import CheckpointSigned, digest_of
from omac.domain.kernel.event import Draft
from omac.domain.kernel.ids import HostId, checkpoint_stream
from omac.journal.bundle import digest_of as digest_of_manifest
from omac.journal.bundle_verification import verify_bundle
from omac.journal.checkpoint import Checkpoint, current_checkpoint, sign, sign_note, verified, verifier_of
from omac.journal.codec import Codec
from omac.journal.proof import prove, proven
from omac.journal.reader import Reader
from omac.journal.signed_chain import chain_of
from omac.journal.verification import KeptRoot, verify
from omac.tools.compose.exporting import derived

HOST = HostId("host0001")
NAME, SEED = f"omac/{HOST}", b"k" * 32
KEY = verifier_of(NAME, SEED)
STREAM = checkpoint_stream(HOST)
SECURITY = Path(__file__).parents[2] / "SECURITY.md"
CALLS = 10  # events before each checkpoint


class Kept(NamedTuple):
    """A journal with two checkpoints, each at the position behind what it counts; the second was kept elsewhere."""

    path: Path
    second: Checkpoint


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def fill(path: Path, word: str, rounds: int) -> list[str]:
    """Append events and signed checkpoints of them; return these."""
    journal, notes, previous = journal_at(path), list[str](), ""
    for version in range(1, rounds + 1):
        commit_now(journal, [called(f"{word} {version} {number}") for number in range(CALLS)])
        notes.append(sign(current_checkpoint(str(path), version), NAME, SEED))
        event = CheckpointSigned(journal.store.head(), notes[-1], previous)
        commit_now(journal, [Draft(STREAM, version, event)])
        previous = digest_of(notes[-1])
    journal.close()
    return notes


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    path = tmp_path / "journal.db"
    notes = fill(path, "call", 2)
    return Kept(path, verified(notes[1], KEY))


def cut(kept: Kept) -> None:
    sql(kept.path, "DELETE FROM event WHERE position > 15")
    new_leaves(kept.path)


def rewrite(kept: Kept) -> None:
    """Change an event, and replace the checkpoints behind it by other events."""
    sql(kept.path, "UPDATE event SET at = at - 1 WHERE position = 5")
    plain = "(SELECT {0} FROM event WHERE position = 1)"
    values = ", ".join(f"{name} = {plain.format(name)}" for name in ("stream", "version", "kind", "body"))
    sql(kept.path, f"UPDATE event SET {values} WHERE position IN (11, 22)")
    new_leaves(kept.path)


def sign_anew(kept: Kept) -> None:
    """Replace the whole journal by another, signed as this one was."""
    name = journal_id(kept.path)
    for file in kept.path.parent.glob("journal.db*"):
        file.unlink()
    fill(kept.path, "other", 1)
    sql(kept.path, f"UPDATE journal SET id = '{name}'", "DELETE FROM event WHERE position > 10")
    new_leaves(kept.path)
    journal, previous = journal_at(kept.path), ""
    for version in (1, 2):
        note = sign(current_checkpoint(str(kept.path), version), NAME, SEED)
        commit_now(journal, [Draft(STREAM, version, CheckpointSigned(journal.store.head(), note, previous))])
        commit_now(journal, [called(f"other {version} {number}") for number in range(CALLS)])
        previous = digest_of(note)
    journal.close()


def add(kept: Kept) -> None:
    journal = journal_at(kept.path)
    commit_now(journal, [called("never happened")])
    journal.close()


def change_late(kept: Kept) -> None:
    """Change an event of a journal without leaves and checkpoints, and let the next opening make the leaves."""
    sql(kept.path, "DELETE FROM event WHERE position > 10", "UPDATE head SET position = 10")
    sql(kept.path, "DROP TABLE leaf", "DROP TABLE tree", "UPDATE event SET at = at - 1 WHERE position = 5")
    journal_at(kept.path).close()


def journal_id(path: Path) -> str:
    with closing(Reader(str(path))) as reader:
        return reader.journal_id()


def findings(path: Path, *roots: KeptRoot) -> bool:
    with closing(Reader(str(path), lenient=True)) as reader:
        chain = chain_of(reader, [KEY])
    return bool(verify(str(path), [*chain.roots, *roots], known=chain.findings).findings)


def root_of(checkpoint: Checkpoint) -> KeptRoot:
    return KeptRoot(checkpoint.size, checkpoint.root, checkpoint.late)


CHANGES: dict[str, Callable[[Kept], None]] = {
    "cuts its end off, with leaves, tree and checkpoints": cut,
    "changes events, computes all leaves again, and takes out the checkpoints behind": rewrite,
    "signs the checkpoints behind again, too, with the stolen key": sign_anew,
    "adds events, as omac would": add,
}
OTHERWISE = (
    "proves, or exports, events of another journal, signed with the stolen key",
    "changes events of an earlier omac before they get leaves",
    "leaves rows out of an export that its filters choose, with the key",
)


def table() -> dict[str, tuple[bool, bool]]:
    """Return the rows of SECURITY.md: whether a change is found without a kept checkpoint, and with one."""
    _, _, section = SECURITY.read_text().partition("### What no verification finds")
    rows = [line.strip("|").split("|") for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows[2:]]
    return {change: (not without.startswith("not"), not beside.startswith("not")) for change, without, beside in cells}


def test_each_row_of_the_table_is_done() -> None:
    """Each row of the table is done here, and none besides; none is found without a kept checkpoint."""
    assert table().keys() == {*CHANGES, *OTHERWISE}
    assert not any(without for without, _ in table().values())


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_found_as_its_row_reports(kept: Kept, what: str) -> None:
    """A change is found as its row reports, by the journal's own keys and checkpoints, and with one that was kept."""
    CHANGES[what](kept)
    assert (findings(kept.path), findings(kept.path, root_of(kept.second))) == table()[what]


def test_what_an_earlier_omac_recorded(kept: Kept) -> None:
    """A change from before the leaves, older than any checkpoint, is found as its row reports. Late leaves are
    counted."""
    change_late(kept)
    root = root_of(current_checkpoint(str(kept.path), 9))
    assert (findings(kept.path), findings(kept.path, root)) == table()[OTHERWISE[1]]
    assert verify(str(kept.path)).late == 10


def forge(kept: Kept, folder: Path) -> Path:
    """Make a journal of other events with the same id, and return its path."""
    path = folder / "journal.db"
    journal_at(path).close()
    sql(path, f"UPDATE journal SET id = '{journal_id(kept.path)}'")
    fill(path, "forged", 2)
    return path


def test_a_proof_of_another_journal(kept: Kept, tmp_path: Path) -> None:
    """A proof of another journal verifies by the stolen key, but its checkpoint is not of this journal."""
    path = forge(kept, tmp_path / "forged")
    checkpoint = current_checkpoint(str(path), 9)
    text = prove(str(path), 5, sign(checkpoint, NAME, SEED), checkpoint, (), Codec())
    assert proven(text, KEY).checkpoint.journal == journal_id(kept.path)
    assert (False, findings(kept.path, root_of(checkpoint))) == table()[OTHERWISE[0]]


def test_an_export_of_another_journal(kept: Kept, tmp_path: Path) -> None:
    """An export of another journal verifies by the stolen key, but its checkpoint is not of this journal."""
    thief, folder = tmp_path / "thief", tmp_path / "bundle"
    thief.mkdir()
    with omac_in(thief) as omac:
        forge(kept, omac.state)
        (omac.state / "host-id").write_text(HOST)
        (omac.state / "signing.key").write_text(SEED.hex())
        omac.ok("export", "--out", str(folder))
    bundle = verify_bundle(str(folder), [KEY], derived)
    assert (bundle.events > 2 * CALLS, bundle.flaws) == (True, ())
    checkpoint = verified((folder / "checkpoint.txt").read_text(), KEY)
    assert checkpoint.journal == journal_id(kept.path)
    assert (False, findings(kept.path, root_of(checkpoint))) == table()[OTHERWISE[0]]


def test_an_export_of_fewer_rows(kept: Kept, omac: Omac, tmp_path: Path) -> None:
    """An export that lacks a row of its filters verifies by the key that signed it, and its root is the journal's."""
    shutil.copy(kept.path, omac.state / "journal.db")
    (omac.state / "host-id").write_text(HOST)
    (omac.state / "signing.key").write_text(SEED.hex())
    folder = tmp_path / "bundle"
    omac.ok("export", "--out", str(folder), "--kind", "control", "--to", "9")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["filters"]["last"] = "20"
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sig").write_text(sign_note(digest_of_manifest(text), NAME, SEED))
    bundle = verify_bundle(str(folder), [KEY], derived)
    assert (bundle.events, bundle.flaws) == (9, ())
    assert table()[OTHERWISE[2]] == (False, False)  # the checkpoint is the journal's own
