"""`omac audit verify`: its report about a sound journal, and about a damaged one."""

import hashlib
import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from real_omac import Omac
from tools.test_repair_command import spoil
from tools.test_snapshots import called_often

from omac.domain.access.signing import CheckpointSigned
from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import Checkpoint, VerifierKey, sign
from omac.journal.consistency import proven_consistency
from omac.journal.leaves import Contents
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import MerkleTree, leaf_hash
from omac.journal.proof import proven
from omac.journal.reader import ReadJournal
from omac.services.kernel.checkpointing import WORTH


def test_verify_beside_a_server(omac: Omac) -> None:
    """A journal that a server uses verifies."""
    omac.online("shop")
    done = omac.run("audit", "verify")
    assert (done.status, done.err) == (0, "")
    figures = json.loads(omac.ok("audit", "verify", "--json", "--from", "2", "--to", "4"))
    assert figures["checked"] == 3
    assert figures["findings"] == []
    assert f"root {figures['root']}" in done.out or figures["size"] > 4
    assert json.loads(omac.ok("audit", "--json", "-n", "1"))


def test_verify_names_the_position(omac: Omac) -> None:
    """Verification finds an edit that decodes and that no other command can see; the exit code is 10."""
    omac.approved("shop")
    spoil(omac, "UPDATE event SET at = at + 1 WHERE position = 2")
    done = omac.run("audit", "verify")
    assert done.status == 10
    assert "position 2: its event is not what was recorded (altered)" in done.out
    assert "verified" not in done.out, "of a journal in which something is wrong"
    assert "from position 2 on" in done.err
    as_json = omac.run("audit", "verify", "--json")
    assert as_json.status == 10
    (finding,) = json.loads(as_json.out)["findings"]
    assert (finding["position"], finding["kind"]) == (2, "altered")


def test_verify_knows_the_mark(omac: Omac) -> None:
    """A journal whose end was cut with its leaves and tree is found by the mark in the state directory, as by every
    other command; so is another journal in its place. A copy elsewhere has no mark."""
    project, path = omac.project("shop", "echo"), omac.state / "journal.db"
    omac.approve(project, "echo")
    shutil.copy(path, path.with_name("earlier.db"))
    (head,) = [json.loads(omac.ok("audit", "verify", "--json"))["head"]]
    omac.ok("revoke", "echo", "--workdir", str(project))
    shutil.copy(path.with_name("earlier.db"), path)
    done = omac.run("audit", "verify")
    assert f"position {head + 1}: omac last saw it at position {head + 1}" in done.out
    assert done.status == 10
    for words in (("audit", "prove", "1"), ("journal", "backup", str(omac.root / "copy.db"))):
        refused = omac.run(*words)
        assert (refused.status, refused.out, "it is an older copy" in refused.err) == (10, "", True), refused
    assert not list(omac.root.glob("*copy.db*")), "neither the copy nor a part of it"
    assert omac.run("audit", "verify", "--journal", str(path.with_name("earlier.db"))).status == 0
    spoil(omac, f"UPDATE journal SET id = '{'0' * 32}'")
    done = omac.run("audit", "verify")
    assert (done.status, "omac last used another journal here" in done.out) == (10, True), done


def test_verify_takes_positions(omac: Omac) -> None:
    """A word that is no position is misuse."""
    omac.approved("shop")
    refused = omac.run("audit", "verify", "--from", "x")
    assert refused.status == 2
    assert "--from takes a position" in refused.err


def test_a_file_with_more_checkpoints_than_are_read(omac: Omac, tmp_path: Path) -> None:
    """A file with too many checkpoints is refused, because the latest would be left out. A line of any length is no
    checkpoint."""
    omac.approved("shop")
    file = tmp_path / "notes"
    file.write_text("".join(omac.ok("checkpoint") for _ in range(3)))
    with mock.patch("omac.tools.cli.checkpoint.NOTES_CHARACTERS_MAX", file.stat().st_size - 20):
        refused = omac.run("audit", "verify", "--checkpoint", str(file))
    assert (refused.status, "has more than" in refused.err, "split -C" in refused.err) == (2, True, True)
    omac.ok("audit", "verify", "--checkpoint", str(file))
    file.write_text("a" * 300_000)
    refused = omac.run("audit", "verify", "--checkpoint", str(file))
    assert (refused.status, "this is no checkpoint of omac" in refused.err) == (2, True)


def test_nothing_is_proven_by_leaves_that_are_none(omac: Omac, tmp_path: Path) -> None:
    """A number in the place of a hash, or a wrong size of the tree, makes proofs, checkpoints and exports fail with its
    name."""
    omac.approved("shop")
    old, new = tmp_path / "old", tmp_path / "new"
    for file in (old, new):
        file.write_text(omac.ok("checkpoint"))
    spoil(omac, "UPDATE leaf SET hash = 5 WHERE position > 1")
    for line in (
        ("audit", "prove", "1"), ("proof", "consistency", str(old), str(new)),
        ("export", "--out", str(tmp_path / "export"), "--kind", "access"),
    ):  # fmt: skip
        refused = omac.run(*line)
        assert refused.status == 10, refused
        assert "omac audit verify --journal" in refused.err
    for column, value in (("size", "1.5"), ("late", "'x'"), ("peaks", "'x'")):
        spoil(omac, f"UPDATE tree SET {column} = {value}")
        for command in ("checkpoint", "audit prove 1", "settings set serve.audit strict"):
            refused = omac.run(*command.split())
            assert refused.status == 10, refused
            assert "the tree of its leaves cannot be used" in refused.err


@pytest.mark.parametrize("line", [("audit", "verify"), ("journal", "prune", "--keep", "400d")])
def test_a_key_that_is_none(omac: Omac, tmp_path: Path, line: tuple[str, ...]) -> None:
    """A word that is no key is refused, even if no checkpoint needs a key; a key is accepted."""
    omac.ok("settings", "set", "serve.audit", "strict")
    file = tmp_path / "omac.key"
    file.write_text("a key")
    for key, why in (("nonsense", "'nonsense' is no verifier key"), (str(file), "cat")):
        done = omac.run(*line, "--key", key)
        assert (done.status, done.out, why in done.err) == (2, "", True), (key, done)
    key = omac.ok("key", "show").strip()
    assert not omac.events(CheckpointSigned)
    omac.ok(*line, "--key", key)
    assert omac.run(*line, "--key", key, "--key", "nonsense").status == 2
    omac.ok("checkpoint")
    assert omac.run(*line, "--key", "nonsense").status == 2
    omac.ok(*line, "--key", key)


@pytest.mark.parametrize("of", ["nonsense", "0" * 31])
def test_a_journal_that_is_none(omac: Omac, of: str) -> None:
    """A mistyped journal id is refused, and does not count as a journal without checkpoints."""
    omac.ok("settings", "set", "serve.audit", "strict")
    done = omac.run("checkpoint", "--received", "--of", of)
    assert (done.status, done.out, "takes the id of a journal" in done.err) == (2, "", True), done


@pytest.mark.parametrize("positions", [("--from", "3", "--to", "2"), ("--from", "9999999999999999999999")])
def test_positions_between_which_there_is_nothing(omac: Omac, positions: tuple[str, ...]) -> None:
    """An empty range of positions is refused, so that it does not pass for a range without findings."""
    omac.approved("shop")
    done = omac.run("audit", "verify", *positions)
    assert (done.status, "position" in done.err) == (2, True), done


def test_a_checkpoint_that_was_kept(omac: Omac, tmp_path: Path) -> None:
    """A kept checkpoint verifies a journal that has grown since, and shows that one was put back, with or without its
    key."""
    omac.approved("shop")
    shutil.copy(omac.state / "journal.db", tmp_path / "earlier.db")
    omac.ok("settings", "set", "secrets.store", "vault")
    file = tmp_path / "kept.txt"
    file.write_text(omac.ok("checkpoint"))
    key = omac.ok("key", "show").strip()
    assert json.loads(omac.ok("key", "show", "--json"))["key"] == key
    assert (omac.state / "signing.key").stat().st_mode & 0o777 == 0o600
    omac.ok("settings", "set", "secrets.store", "keychain")
    assert "verified" in omac.ok("audit", "verify", "--checkpoint", str(file))
    assert "verified" in omac.ok("audit", "verify", "--checkpoint", str(file), "--key", key)
    earlier = str(tmp_path / "earlier.db")
    assert "verified" in omac.ok("audit", "verify", "--journal", earlier)
    cut = omac.run("audit", "verify", "--journal", earlier, "--checkpoint", str(file))
    assert cut.status == 10
    assert "its end was cut (truncated)" in cut.out


def test_checkpoints_that_say_nothing_about_this_journal(omac: Omac, tmp_path: Path) -> None:
    """A checkpoint that was changed, is signed by another key, is of another journal or is none at all is refused."""
    omac.approved("shop")
    text = omac.ok("checkpoint")
    foreign = Checkpoint("0" * 32, 1, b"r" * 32, 1, 0)
    name = text.splitlines()[-1].split()[1]
    seed = bytes.fromhex((omac.state / "signing.key").read_text())
    for content, why in (
        (text.replace("late 0", "late 1"), "has not signed"),
        (sign(foreign, name, b"s" * 32), "has not signed"),
        (sign(foreign, name, seed), "is a checkpoint of journal 0000"),
        ("hello\n", "no checkpoint of omac"),
    ):
        (tmp_path / "c").write_text(content)
        refused = omac.run("audit", "verify", "--checkpoint", str(tmp_path / "c"))
        assert refused.status == 2
        assert why in refused.err
    refused = omac.run("audit", "verify", "--checkpoint", str(tmp_path / "none"))
    assert (refused.status, "cannot be read" in refused.err) == (2, True)
    refused = omac.run("audit", "verify", "--checkpoint", str(tmp_path / "c"), "--key", "x+y+z")
    assert (refused.status, "no verifier key" in refused.err) == (2, True)


def test_a_key_that_is_none_is_named(omac: Omac, tmp_path: Path) -> None:
    """A file name in place of a key is refused, and the proposed command reads the key from that file."""
    omac.approved("shop")
    file, bundle = tmp_path / "the key", tmp_path / "a bundle"
    file.write_text(omac.ok("key", "show"))
    omac.ok("checkpoint")
    report = omac.ok("export", "--out", str(bundle))
    assert f"omac export verify '{bundle}' --key KEY" in report
    for command in (("export", "verify", str(bundle)), ("proof", "verify", "x.json"), ("audit", "verify")):
        refused = omac.run(*command, "--key", str(file))
        assert refused.status == 2
        assert f"""  try: omac {shlex.join(command)} --key "$(cat '{file}')"\n""" in refused.err
        refused = omac.run(*command, "--key", "nonsense")
        assert (refused.status, "'nonsense' is no verifier key" in refused.err) == (2, True)
    omac.ok("export", "verify", str(bundle), "--key", file.read_text())


def test_a_proof_without_a_journal(omac: Omac, tmp_path: Path) -> None:
    """The public key alone verifies the proof of each event; a tampered proof is refused."""
    omac.approved("shop")
    key = omac.ok("key", "show").strip()
    size = json.loads(omac.ok("audit", "verify", "--json"))["size"]
    proof = tmp_path / "proof.json"
    for position in range(1, size + 1):
        proof.write_text(omac.ok("audit", "prove", str(position)))
        event = json.loads(omac.ok("proof", "verify", str(proof), "--key", key, "--json"))
        assert (event["position"], event["checkpoint"]["size"]) == (position, size)
        assert event["kind"] in omac.ok("proof", "verify", str(proof), "--key", key)
    text = json.loads(proof.read_text())
    tampered: list[object] = [
        text | {"position": 1},
        text | {"path": text["path"][:-1]},
        text | {"path": [*text["path"], text["path"][0]]},
        text | {"content": text["content"][:-8] + "AAAAAAA="},
        text | {"checkpoint": text["checkpoint"].replace("late 0", "late 1")},
        text | {"format": "omac-proof-2"},
        text | {"more": 1},
        [],
    ]
    for changed in tampered:
        proof.write_text(json.dumps(changed))
        refused = omac.run("proof", "verify", str(proof), "--key", key)
        assert refused.status == 2, changed
        assert "Traceback" not in refused.err
    refused = omac.run("audit", "prove", str(size + 1))
    assert (refused.status, "is not among" in refused.err) == (2, True)


def test_a_proof_names_the_fields(omac: Omac, tmp_path: Path) -> None:
    """A verified proof names the fields with a value, and writes times, as the audit and exports do, so that no journal
    is needed to read it."""
    omac.approved("shop")
    rows = omac.ok("audit", "--kind", "skill", "--json").splitlines()
    approved = next(row for row in map(json.loads, rows) if row["kind"] == "skill.approved")
    key, proof = omac.ok("key", "show").strip(), tmp_path / "proof.json"
    proof.write_text(omac.ok("audit", "prove", str(approved["position"])))
    verified = json.loads(omac.ok("proof", "verify", str(proof), "--key", key, "--json"))
    event = verified["event"]
    assert verified["at"] == approved["at"]
    assert re.fullmatch("20.*T.*Z", verified["checkpoint"]["at"])
    fields = omac.ok("proof", "verify", str(proof), "--key", key).splitlines()[2]
    assert fields.startswith(f"  source={approved['dir']}"), fields
    assert all((f" {name}=" in fields) == (value not in (None, "", [])) for name, value in event.items()), fields


@pytest.mark.full
def test_each_bit_of_a_proof(omac: Omac) -> None:
    """A proof with any one bit changed is refused."""
    omac.ok("settings", "set", "secrets.store", "vault")
    old, size = omac.ok("checkpoint"), json.loads(omac.ok("audit", "verify", "--json"))["size"]
    key = VerifierKey.parse(omac.ok("key", "show").strip())
    (omac.root / "old").write_text(old)
    (omac.root / "new").write_text(omac.ok("checkpoint"))
    event = omac.ok("audit", "prove", str(size)).strip().encode()
    continued = omac.ok("proof", "consistency", "old", "new").strip().encode()
    for text, verify in (
        (event, lambda text: proven(text, key)),
        (continued, lambda text: proven_consistency(text, [key])),
    ):
        verify(text)
        for bit in range(8 * len(text)):
            changed = bytearray(text)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Refusal):
                verify(bytes(changed))


def test_no_proof_of_what_was_changed(omac: Omac) -> None:
    """A changed event is not proven."""
    omac.approved("shop")
    spoil(omac, "UPDATE event SET at = at + 1 WHERE position = 2")
    refused = omac.run("audit", "prove", "2")
    assert refused.status == 10
    assert "position 2 is not what was recorded" in refused.err
    assert omac.ok("audit", "prove", "1")


def test_options_of_a_subcommand_go_behind_it(omac: Omac) -> None:
    """An option before `verify` is refused; the log would take it, and it would do nothing."""
    done = omac.run("audit", "--json", "verify")
    assert (done.status, "options of verify go behind it" in done.err) == (2, True)


@pytest.mark.full
def test_a_journal_of_an_earlier_omac(omac: Omac) -> None:
    """A journal of an earlier omac is not called damaged. The proposed command gives it its proofs, which count as
    late."""
    omac.approved("shop")
    path = omac.state / "journal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("DROP TABLE leaf; DROP TABLE tree")
        (events,) = connection.execute("SELECT position FROM head").fetchone()
    for command in (("audit", "verify"), ("checkpoint",), ("audit", "prove", "1")):
        done = omac.run(*command)
        assert (done.status, "have no proofs yet" in done.err) == (4, True)
    (fix,) = [line.removeprefix("  try: omac ") for line in done.err.splitlines() if "try:" in line]
    omac.ok(*shlex.split(fix, comments=True))
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["late"], verified["findings"]) == (events, [])


@pytest.mark.full
def test_a_run_leaves_a_checkpoint(omac: Omac) -> None:
    """A run that ends after many events signs the journal. That checkpoint shows when the history is rewritten
    later."""
    project = omac.approved("shop")
    omac.ok("start", "--", "true", cwd=project)
    assert "checkpoints" not in omac.ok("audit", "verify")
    called_often(omac, WORTH)
    omac.ok("start", "--", "true", cwd=project)
    assert "1 checkpoint in the journal holds" in omac.ok("audit", "verify")
    assert json.loads(omac.ok("audit", "verify", "--json"))["checkpoints"] == 1
    omac.ok("start", "--", "true", cwd=project)
    assert json.loads(omac.ok("audit", "verify", "--json"))["checkpoints"] == 1
    spoil(omac, "UPDATE event SET at = at + 1 WHERE position = 2")
    with closing(
        sqlite3.connect(omac.state / "journal.db", isolation_level=None, factory=JournalConnection)
    ) as connection:
        leaves = [leaf_hash(text or b"") for _, text in Contents(connection).between(0, 1_000_000)]
        tree = MerkleTree()
        tree.extend(leaves)
        connection.executemany(
            "UPDATE leaf SET hash = ? WHERE position = ?", [(leaf, at) for at, leaf in enumerate(leaves, 1)]
        )
        connection.execute("UPDATE tree SET peaks = ?", (b"".join(tree.peaks),))
    done = omac.run("audit", "verify")
    assert (done.status, "history was rewritten" in done.out) == (10, True), done


@pytest.mark.full
def test_checkpoints_of_another_host(omac: Omac, tmp_path: Path) -> None:
    """Checkpoints in a copy from another host count neither for nor against it until the user names their key."""
    project = omac.approved("shop")
    called_often(omac, WORTH)
    omac.ok("start", "--", "true", cwd=project)
    key = omac.ok("key", "show").strip()
    omac.ok("journal", "backup", str(tmp_path / "copy.db"))
    elsewhere = {"OMAC_STATE_DIR": str(tmp_path / "state")}
    done = omac.run("audit", "verify", "--journal", str(tmp_path / "copy.db"), extra=elsewhere)
    assert (done.status, "1 checkpoint is signed by a key that is not known here" in done.out) == (0, True), done
    done = omac.run("audit", "verify", "--journal", str(tmp_path / "copy.db"), "--key", key, extra=elsewhere)
    assert (done.status, "1 checkpoint in the journal holds" in done.out) == (0, True), done


def test_a_checkpoint_continues_another(omac: Omac, tmp_path: Path) -> None:
    """The proof that a checkpoint continues another is made from the journal, and verified without it by the public
    key."""
    omac.approved("shop")
    key = omac.ok("key", "show").strip()
    for name in ("old", "new"):
        (tmp_path / name).write_text(omac.ok("checkpoint"))
        omac.ok("settings", "set", "secrets.store", "vault")
    old, new, proof = str(tmp_path / "old"), str(tmp_path / "new"), tmp_path / "proof.json"
    proof.write_text(omac.ok("proof", "consistency", old, new))
    text = omac.ok("proof", "verify", str(proof), "--key", key)
    verified = json.loads(omac.ok("proof", "verify", str(proof), "--key", key, "--json"))
    assert verified["old"]["size"] < verified["new"]["size"]
    assert verified["old"]["at"] < verified["new"]["at"] < "3"
    assert f"at {verified['new']['size']} events begins with all {verified['old']['size']}" in text
    proof.write_text(proof.read_text().replace('"path":["', '"path":["A', 1))
    assert omac.run("proof", "verify", str(proof), "--key", key).status == 2
    refused = omac.run("proof", "consistency", new, old)
    assert (refused.status, "name the older first" in refused.err) == (2, True)
    refused = omac.run("proof", "consistency", old, str(tmp_path / "none"))
    assert (refused.status, "cannot be read" in refused.err) == (2, True)
    spoil(omac, "UPDATE leaf SET hash = zeroblob(32)")
    refused = omac.run("proof", "consistency", old, new)
    assert (refused.status, refused.out, "its leaves do not lead" in refused.err) == (10, "", True)


def test_a_checkpoint_that_was_kept_is_said_to_hold(omac: Omac, tmp_path: Path) -> None:
    """The report counts a kept checkpoint that the user names, and its position."""
    omac.approved("shop")
    file = tmp_path / "kept"
    file.write_text(omac.ok("checkpoint"))
    size = file.read_text().splitlines()[1]
    assert "that you kept" not in omac.ok("audit", "verify")
    done = omac.ok("audit", "verify", "--checkpoint", str(file))
    assert f"  1 checkpoint that you kept holds, up to position {size}\n" in done
    assert json.loads(omac.ok("audit", "verify", "--checkpoint", str(file), "--json"))["kept"] == 1


def test_a_checkpoint_is_recorded(omac: Omac) -> None:
    """Each checkpoint that `omac checkpoint` prints is recorded, verified with the journal, and names the previous
    one."""
    omac.approved("shop")
    notes = [omac.ok("checkpoint"), omac.ok("checkpoint")]
    sizes = [int(note.splitlines()[1]) for note in notes]
    assert sizes[1] == sizes[0] + 1  # it counts the first
    assert json.loads(omac.ok("audit", "verify", "--json"))["checkpoints"] == 2
    with closing(ReadJournal(str(omac.state / "journal.db"))) as journal:
        events = [recorded.event for recorded in journal.records() if isinstance(recorded.event, CheckpointSigned)]
    assert [event.note for event in events] == notes
    assert events[1].previous == hashlib.sha256(notes[0].encode()).hexdigest()


@pytest.mark.full
def test_a_journal_that_cannot_be_written_is_signed(omac: Omac) -> None:
    """The checkpoint of a journal that cannot be written is printed all the same, with a warning that it is not
    recorded."""
    omac.approved("shop")
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        done = omac.run("checkpoint")
    assert (done.status, "not recorded in the journal" in done.err, "  try: " in done.err) == (0, True, True), done
    assert done.out.startswith("omac/")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM leaf WHERE position = 3",
        "DROP TABLE leaf",
        "UPDATE tree SET size = size - 1",
        "INSERT INTO leaf SELECT max(position) + 1, zeroblob(32) FROM leaf",
    ],
)
def test_what_no_repair_mends_leads_to_a_backup(omac: Omac, tmp_path: Path, statement: str) -> None:
    """Damaged leaves and trees are not computed again: commands that need them name the verification and the
    restore."""
    omac.approved("shop")
    for value in ("vault", "keychain", "vault"):
        omac.ok("settings", "set", "secrets.store", value)
    omac.ok("checkpoint")
    omac.ok("settings", "set", "secrets.store", "keychain")
    spoil(omac, statement)
    verified = omac.run("audit", "verify")
    assert (verified.status, "omac journal restore BACKUP" in verified.err) == (10, True), verified
    for words in (("journal", "seal"), ("export", "--out", str(tmp_path / "bundle"))):
        done = omac.run(*words)
        if done.status:  # the tree itself may still do
            assert (done.status, "omac audit verify" in done.err) == (10, True), (words, done)
            assert ("journal repair" in done.err, "journal restore BACKUP" in done.err) == (False, True), (words, done)
