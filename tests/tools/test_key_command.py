"""`omac key` replaces the key that signs checkpoints, also a lost one, and moves it to the vault or the keychain."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from contract.journals import commit_now, journal_at
from killed_restore import kill_restore
from real_keyring import PrivateKeyring
from real_omac import Omac

from omac.adapters.credentials.stores import SecretStores
from omac.domain.access.signing import AGGREGATE, KeyLost, KeyRotated
from omac.domain.kernel.event import Draft
from omac.domain.kernel.ids import HostId, checkpoint_stream
from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import sign_note, verifier_of
from omac.journal.rotation import sign_loss, sign_rotation

# Each line of stdin is a command, which a fork runs: most of the time would be loading. The answer is its status.
KILLED = """
import json, os, signal, sys
import omac.tools.compose.recording, omac.tools.main
from omac.tools.entry import main
silent = open(os.devnull, "w")
omac.tools.main.main(("key", "show"), os.environ, sys.stdin, silent, silent)  # loads what commands load
left, folder = 0, sys.argv[1]
def count(event, given):
    global left
    if event in ("open", "os.rename", "os.link", "os.remove", "sqlite3.connect") and folder in str(given[0]):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
for line in sys.stdin:
    child = os.fork()
    if not child:
        left, *words = json.loads(line)
        sys.argv[:] = ["omac", *words]
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        signal.alarm(60)
        sys.addaudithook(count)
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def used(omac: Omac) -> Omac:
    """Return an omac with a journal."""
    omac.approved("shop")
    return omac


@pytest.fixture
def vault(used: Omac) -> Omac:
    """Return an omac with a journal and a vault, which opens by a key file."""
    path = used.folder / "vault.key"
    used.ok("vault", "init", "--key-file", str(path))
    used.environment["OMAC_VAULT_KEY_FILE"] = str(path)
    return used


def test_no_key_without_a_journal(omac: Omac) -> None:
    """A command that needs the key of a journal that does not exist is refused, and leaves nothing."""
    note = omac.folder / "note"
    note.write_text("")
    for words in (
        ("key", "show"), ("key", "show", "--journal", str(omac.folder / "other.db")), ("key", "rotate"),
        ("key", "move", "--to", "vault"), ("checkpoint",), ("export", "--out", str(omac.folder / "out")),
        ("audit", "prove", "1"), ("proof", "consistency", str(note), str(note)),
    ):  # fmt: skip
        done = omac.run(*words)
        assert (done.status, done.out) == (5, ""), done
        assert "no journal exists at " in done.err
        assert not list(omac.state.iterdir()), words


def key_of(omac: Omac) -> str:
    return omac.ok("key", "show").strip()


def shown(omac: Omac) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(omac.ok("key", "show", "--json"))
    return document


def verified(omac: Omac, *options: str) -> dict[str, Any]:
    """Return the report of `omac audit verify`, and check that it has no findings."""
    report: dict[str, Any] = json.loads(omac.ok("audit", "verify", "--json", *options))
    assert report["findings"] == []
    return report


def record(omac: Omac, event: KeyRotated | KeyLost) -> None:
    """Append an event to the chain that omac itself would not."""
    journal = journal_at(omac.state / "journal.db")
    stream = checkpoint_stream(HostId((omac.state / "host-id").read_text().strip()))
    state = journal.load(stream, AGGREGATE.initial, AGGREGATE.evolve)
    commit_now(
        journal, [Draft(stream, state.version + 1, type(event)(event.old, event.new, event.note, state.state.digest))]
    )
    journal.close()


def journal_id(omac: Omac) -> str:
    with closing(sqlite3.connect(omac.state / "journal.db")) as connection:
        ((identifier,),) = connection.execute("SELECT id FROM journal")
    return str(identifier)


def test_the_key_is_rotated(used: Omac, tmp_path: Path) -> None:
    """Old and new checkpoints hold by either key after a rotation; omac refuses to sign with the old key."""
    old, checkpoints = key_of(used), {"old": used.ok("checkpoint")}
    shutil.copy(used.state / "signing.key", tmp_path / "signing.key")
    new = json.loads(used.ok("key", "rotate", "--json"))
    assert (new["old"], new["key"]) == (old, key_of(used))
    assert (used.state / "signing.key").stat().st_mode & 0o777 == 0o600
    assert not (used.state / "signing.key.next").exists()
    checkpoints["new"] = used.ok("checkpoint")
    for name, text in checkpoints.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in checkpoints]
    for key in ((), ("--key", old), ("--key", new["key"])):
        for file in files:
            assert "2 checkpoints in the journal hold" in used.ok("audit", "verify", "--checkpoint", file, *key)
    (tmp_path / "proof").write_text(used.ok("proof", "consistency", *files))
    assert used.ok("proof", "verify", str(tmp_path / "proof"), "--key", old)
    refused = used.run("proof", "verify", str(tmp_path / "proof"), "--key", new["key"])
    assert (refused.status, "omac audit --kind key " in refused.err) == (2, True), "trust gets forward alone"
    assert old in used.ok("audit", "--kind", "key")
    assert used.ok("proof", "verify", str(tmp_path / "proof"), "--key", old, "--key", new["key"])
    assert any(json.loads(line)["kind"] == "key.rotated" for line in used.ok("audit", "--json").splitlines())
    shutil.copy(tmp_path / "signing.key", used.state / "signing.key")  # somebody puts the old one back
    for command in (("checkpoint",), ("key", "rotate"), ("key", "show")):
        done = used.run(*command)
        assert (done.status, done.out, "signs nothing in this journal" in done.err) == (5, "", True), done
    assert verified(used, "--key", old)["checkpoints"] == 2


def test_the_first_key_verifies_what_later_ones_signed(used: Omac, tmp_path: Path) -> None:
    """A journal, a proof and an export verify by the first key after three rotations, and not by a foreign key."""
    first = key_of(used)
    used.ok("checkpoint")
    for _ in range(3):
        used.ok("key", "rotate")
        used.ok("checkpoint")
    assert verified(used, "--key", first)["checkpoints"] == 4
    proof, folder = tmp_path / "proof.json", str(tmp_path / "export")
    proof.write_text(used.ok("audit", "prove", "1"))
    used.ok("export", "--out", folder)
    last, stranger = key_of(used), verifier_of("omac/x", b"x" * 32).text()
    for key in (first, last):
        assert "proven: position 1" in used.ok("proof", "verify", str(proof), "--key", key)
        assert "events verified" in used.ok("export", "verify", folder, "--key", key)
    assert used.ok("export", "verify", folder, "--key", stranger, "--key", first)
    assert used.run("proof", "verify", str(proof), "--key", stranger).status == 2
    refused = used.run("export", "verify", folder, "--key", stranger)
    assert (refused.status, "omac audit --kind key " in refused.err) == (10, True), refused
    content = json.loads(proof.read_text())
    for number, note in enumerate(content["rotations"]):  # also where the last key, which needs none, is trusted
        changed = note.replace("time 1", "time 2")
        rotations = [changed if other == number else kept for other, kept in enumerate(content["rotations"])]
        proof.write_text(json.dumps(content | {"rotations": rotations}))
        done = used.run("proof", "verify", str(proof), "--key", last)
        assert (done.status, f"rotation {number + 1} in it is not signed" in done.err) == (2, True), done
    proof.write_text(json.dumps(content | {"rotations": content["rotations"][1:]}))  # a link is missing
    assert used.run("proof", "verify", str(proof), "--key", first).status == 2


def test_a_rotation_that_was_forged(used: Omac, tmp_path: Path) -> None:
    """A rotation that the old key has not signed is refused, in a proof and in the journal, and ends its proofs."""
    first = key_of(used)
    used.ok("checkpoint")
    proof = json.loads(used.ok("audit", "prove", "1"))
    name, seed, journal = first.split("+")[0], b"e" * 32, journal_id(used)
    real = bytes.fromhex((used.state / "signing.key").read_text())
    evil = verifier_of(name, seed).text()
    note = sign_rotation(journal, 7, name, seed, seed).replace(f"old {evil}", f"old {first}")
    (used.state / "signing.key").write_text(seed.hex())
    record(used, KeyRotated(first, evil, note, ""))
    used.ok("checkpoint")  # by the thief, whose key it is now
    done = used.run("audit", "verify", "--key", first)
    assert (done.status, "have not both signed it" in done.out) == (10, True), done
    refused = used.run("audit", "prove", "1")
    assert (refused.status, "have not both signed it" in refused.err) == (10, True), refused
    proof["checkpoint"] = sign_note(proof["checkpoint"].rpartition("\n\n")[0] + "\n", name, seed)
    foreign = sign_rotation("0" * 32, 7, name, real, seed)  # of another journal, signed by both
    for rotations in ([note], [foreign], ["x"], []):
        (tmp_path / "proof").write_text(json.dumps(proof | {"rotations": rotations}))
        assert used.run("proof", "verify", str(tmp_path / "proof"), "--key", first).status == 2


@pytest.mark.full
def test_a_backup_from_before_a_rotation(used: Omac, tmp_path: Path) -> None:
    """A restored journal records later rotations again: it verifies by the first key, and the new one signs."""
    first, copy = used.ok("key", "show").strip(), str(tmp_path / "copy.db")
    used.ok("checkpoint")
    used.ok("journal", "backup", copy)
    for _ in range(2):
        used.ok("key", "rotate")
        used.ok("checkpoint")
    for _ in range(2):  # the second time from a journal that was restored
        assert "replaced since (2 times)" in used.ok("journal", "restore", copy, "--yes")
        for key in ((), ("--key", first)):
            report = json.loads(used.ok("audit", "verify", "--json", *key))
            assert (report["findings"], report["unknown_checkpoints"]) == ([], 0)
    used.ok("checkpoint")
    used.ok("key", "rotate")
    used.ok("audit", "verify", "--key", first)
    assert "replaced since (3 times)" in used.ok("journal", "restore", copy, "--yes")
    second = tmp_path / "other.db"
    used.ok("start", "--journal", str(second), "--", "true", cwd=used.root / "shop")
    report = used.ok("journal", "restore", copy, "--journal", str(second), "--yes")
    assert "replaced since" not in report


@pytest.mark.full
def test_a_backup_from_before_a_rotation_that_is_lost(used: Omac, tmp_path: Path) -> None:
    """A backup that is restored where the journal with a rotation is lost is verified with the key that it names."""
    first, copy = used.ok("key", "show").strip(), str(tmp_path / "copy.db")
    used.ok("checkpoint")
    used.ok("journal", "backup", copy)
    used.ok("key", "rotate")
    (used.state / "journal.db").write_bytes(b"")
    used.ok("journal", "restore", copy, "--yes")
    done = used.run("audit", "verify")
    assert done.status == 10
    name, digest, _ = first.split("+", 2)  # there may be more in the key itself
    assert f"its signer is {name}+{digest} (checkpoint-invalid)" in done.out
    assert "  try: omac audit verify --key KEY  # what omac key show printed when these were signed: " in done.err
    assert verified(used, "--key", first)["findings"] == []


@pytest.mark.full
def test_a_restore_killed_at_every_moment(used: Omac, tmp_path: Path) -> None:
    """A killed restore leaves the old journal, the restored one with its rotation, or none.

    Without a journal, the same restore typed again records the rotation of the key.
    """
    first, copy = used.ok("key", "show").strip(), str(tmp_path / "copy.db")
    used.ok("journal", "backup", copy)
    used.ok("key", "rotate")
    words, moment, lost = ("journal", "restore", copy, "--yes"), 0, 0
    with killing(used) as killed:
        while killed(moment := moment + 1, *words):
            done = used.run("checkpoint")
            if done.status:
                lost += 1
                assert "omac journal restore BACKUP" in done.err, done
                assert "replaced since (1 time)" in used.ok(*words)
                used.ok("checkpoint")
            assert verified(used, "--key", first)["unknown_checkpoints"] == 0
            for path in used.state.glob("journal.db.before-restore-*"):  # each of which a restore reads: more moments
                path.unlink()
    assert lost
    assert not list(used.state.glob("journal.db.restoring*"))


def restore_killed_of_before_a_rotation(used: Omac, tmp_path: Path) -> str:
    """Kill a restore once the journal is moved away and before the copy replaces it; return the backup."""
    copy = str(tmp_path / "copy.db")
    used.ok("journal", "backup", copy)
    used.ok("key", "rotate")
    kill_restore(used, copy, lambda name: name.endswith(".restoring"))
    assert "a restore of it was interrupted" in used.run("checkpoint").err
    return copy


def test_a_restore_killed_between_two_names(used: Omac, tmp_path: Path) -> None:
    """A restore after a killed one keeps the journal that was moved away, and records its rotation again."""
    copy = restore_killed_of_before_a_rotation(used, tmp_path)
    done = used.run("journal", "restore", copy, "--yes")
    assert f"the journal that it had moved away is {used.state}/journal.db again" in done.err
    assert f"the journal that it replaces is {used.state}/journal.db.before-restore-1\n" in done.out
    assert "replaced since (1 time)" in done.out
    used.ok("checkpoint")


def test_the_journal_that_a_killed_restore_moved_away_is_restored(used: Omac, tmp_path: Path) -> None:
    """A user can restore the journal that a killed restore moved away, and no copy of it stays."""
    restore_killed_of_before_a_rotation(used, tmp_path)
    moved = f"{used.state}/journal.db.before-restore-1"
    assert f"{used.state}/journal.db is restored to position" in used.ok("journal", "restore", moved, "--yes")
    used.ok("checkpoint")
    assert not list(used.state.glob("journal.db.before-restore-*"))


def test_a_key_that_is_lost(used: Omac, tmp_path: Path) -> None:
    """A lost key signs nothing until a new chain begins; only a checkpoint that the user kept connects both chains."""
    refused = used.run("key", "rotate", "--lost")
    assert (refused.status, "none is lost" in refused.err) == (2, True)
    old = key_of(used)
    (tmp_path / "before").write_text(used.ok("checkpoint"))
    refused = used.run("key", "rotate", "--lost")
    assert (refused.status, "is not lost" in refused.err) == (2, True)
    (used.state / "signing.key").unlink()
    for command in (("checkpoint",), ("key", "show"), ("key", "rotate"), ("audit", "prove", "1")):
        done = used.run(*command)
        assert (done.status, "omac key rotate --lost" in done.err) == (5, True), done
    assert not (used.state / "signing.key").exists()
    new = used.ok("key", "rotate", "--lost").strip()
    assert new == key_of(used) != old
    (tmp_path / "kept").write_text(used.ok("checkpoint"))
    refused = used.run("audit", "verify", "--checkpoint", str(tmp_path / "before"))
    assert (refused.status, "--key takes what it printed, and may be repeated" in refused.err) == (2, True)
    both = ("--key", old, "--key", new)
    assert verified(used, "--checkpoint", str(tmp_path / "before"), *both)["kept"] == 1
    report = verified(used)
    assert (report["checkpoints"], report["unknown_checkpoints"], len(report["breaks"])) == (1, 1, 1)
    assert "only a checkpoint from after it, kept elsewhere, gets across" in used.ok("audit", "verify")
    assert "a checkpoint that you kept counts it" in used.ok("audit", "verify", "--checkpoint", str(tmp_path / "kept"))
    assert verified(used, *both)["checkpoints"] == 2
    done = used.run("audit", "verify", "--key", old)
    assert (done.status, "a new chain begins" in done.out) == (10, True)
    used.ok("key", "rotate")
    assert verified(used, "--key", new)["breaks"] == report["breaks"]
    (row,) = [json.loads(line) for line in used.ok("audit", "--json", "--kind", "key.lost").splitlines()]
    assert "begins a new chain" in row["detail"]


def test_the_last_checkpoint_was_set_aside(used: Omac) -> None:
    """A chain whose last checkpoint was set aside goes on with its key; once the key is lost, a new chain begins."""
    used.ok("checkpoint")
    used.ok("checkpoint")
    with closing(sqlite3.connect(used.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("UPDATE event SET body = x'01' WHERE position = (SELECT max(position) FROM event)")
    used.ok("journal", "repair", "--yes")
    used.ok("checkpoint")
    assert verified(used)["checkpoints"] == 2
    (used.state / "signing.key").unlink()
    assert used.run("checkpoint").status == 5
    used.ok("key", "rotate", "--lost")
    used.ok("checkpoint")
    assert verified(used)["checkpoints"] == 1


@pytest.mark.full
def test_beside_a_server(vault: Omac) -> None:
    """A running server signs with the new key after a rotation and a move to the vault."""
    used = vault
    first, serving = key_of(used), used.serve()
    used.ok("checkpoint")
    used.ok("key", "rotate")
    used.ok("key", "move", "--to", "vault")
    from tools.test_snapshots import called_often

    from omac.services.kernel.checkpointing import WORTH

    called_often(used, WORTH)
    serving.call("reload")
    assert serving.end() == 0
    assert used.ok("audit", "--kind", "key")
    assert verified(used, "--key", first)["checkpoints"] == 2


def test_a_loss_that_was_forged(used: Omac) -> None:
    """The verification finds a forged loss that the new key has not signed, or that names the forger's own key."""
    used.ok("checkpoint")
    first = key_of(used)
    name, lost, seed = first.split("+")[0], "+".join(first.split("+")[:2]), b"e" * 32
    evil = verifier_of(name, seed)
    record(used, KeyLost(lost, evil.text(), sign_loss(journal_id(used), 7, lost, name, seed), ""))
    done = used.run("audit", "verify")
    assert (done.status, "a new chain begins" in done.out) == (10, True), done
    record(used, KeyLost("", first, sign_loss(journal_id(used), 7, "", name, seed), ""))
    done = used.run("audit", "verify")
    assert (done.status, "has not signed it" in done.out, "a new chain begins" in done.out) == (10, True, True), done


def test_each_journal_has_a_key(used: Omac, tmp_path: Path) -> None:
    """Each journal has a key: a rotation in one leaves the other's key, and a copy from before still verifies."""
    second = str(tmp_path / "other.db")
    used.ok("settings", "set", "secrets.store", "vault", extra={"OMAC_JOURNAL": second})
    used.ok("checkpoint")
    used.ok("checkpoint", "--journal", second)
    used.ok("journal", "backup", str(tmp_path / "copy.db"))
    before = used.ok("key", "show", "--journal", second)
    assert before.strip() != key_of(used)
    used.ok("key", "rotate")
    used.ok("checkpoint", "--journal", second)
    assert used.ok("key", "show", "--journal", second) == before
    assert verified(used, "--journal", second)["checkpoints"] == 2
    assert verified(used, "--journal", str(tmp_path / "copy.db"))["checkpoints"] == 1
    used.ok("key", "rotate", "--journal", second)
    assert verified(used, "--journal", second, "--key", before.strip())["checkpoints"] == 2


def test_a_journal_that_the_shared_key_signed(used: Omac, tmp_path: Path) -> None:
    """A journal that was signed with the key shared by the host goes on with a copy of that key."""
    second = tmp_path / "other.db"
    used.ok("settings", "set", "secrets.store", "vault", extra={"OMAC_JOURNAL": str(second)})
    used.ok("checkpoint", "--journal", str(second))
    (own,) = used.state.glob("signing-*.key")
    own.rename(used.state / "signing.key")
    first = used.ok("key", "show", "--journal", str(second))
    assert first.strip() == key_of(used)
    used.ok("key", "rotate", "--journal", str(second))
    assert key_of(used) == first.strip()
    assert verified(used, "--journal", str(second), "--key", first.strip())["checkpoints"] == 1


@contextmanager
def killing(omac: Omac) -> Iterator[Callable[..., bool]]:
    """Yield a function that runs a command, kills it before it touches the state directory for the nth time, and
    returns whether it was killed."""
    line = [sys.executable, "-c", KILLED, str(omac.state)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, env=omac.environment, cwd=omac.root, **pipes) as process:

        def killed(moment: int, *command: str) -> bool:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps([moment, *command]), file=process.stdin, flush=True)
            status = int(process.stdout.readline())
            assert status in (0, -signal.SIGKILL), status
            return status != 0

        yield killed


@pytest.mark.full
@pytest.mark.parametrize("store", ["file", "vault"])
@pytest.mark.parametrize("command", [("key", "rotate"), ("key", "rotate", "--lost"), ("key", "move", "--to", "vault")])
def test_killed_at_every_moment(vault: Omac, command: tuple[str, ...], store: str) -> None:
    """A command that is killed at any moment leaves one key, which signs and is printed; every checkpoint verifies."""
    vault.ok("key", "move", "--to", store)
    command = ("key", "move", "--to", "file") if "move" in command and store == "vault" else command
    first, signed, moment = key_of(vault), 1, 0
    vault.ok("checkpoint")
    is_lost = "--lost" in command
    with killing(vault) as killed:
        while True:
            moment += 1
            if is_lost:
                (vault.state / "signing.key").unlink(missing_ok=True)
            was_killed = killed(moment, *command)
            if is_lost and vault.run("key", "show").status:
                continue  # it was not recorded: the key is lost still
            before = key_of(vault)
            vault.ok("checkpoint")
            signed += 1
            assert key_of(vault) == before
            report = verified(vault, *(() if is_lost else ("--key", first)))
            assert report["checkpoints"] + report["unknown_checkpoints"] == signed
            if not was_killed:
                break
            if "move" in command:
                vault.ok("key", "move", "--to", store)
                lines = vault.ok("audit", "--json", "--kind", "key").splitlines()
                assert {json.loads(line)["kind"] for line in lines} <= {"key.moved"}
    assert moment > 10


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_rotation_that_was_killed(used: Omac, tmp_path: Path, is_recorded: bool) -> None:
    """`omac key show` after a killed rotation prints the key that signs: the new one if recorded, else the old."""
    used.ok("checkpoint")
    old, key = key_of(used), used.state / "signing.key"
    shutil.copy(key, tmp_path / "old")
    if is_recorded:
        new = json.loads(used.ok("key", "rotate", "--json"))["key"]
        key.rename(used.state / "signing.key.next")
        shutil.copy(tmp_path / "old", key)
    else:
        new, _ = old, (used.state / "signing.key.next").write_text("ab" * 32)
    assert verified(used)["checkpoints"] == 1
    assert key_of(used) == new
    used.ok("checkpoint")
    assert verified(used, "--key", old)["checkpoints"] == 2
    used.ok("key", "rotate")
    assert verified(used, "--key", old)["checkpoints"] == 2


def test_the_key_is_kept_in_the_vault(vault: Omac, tmp_path: Path) -> None:
    """A key in the vault signs as before and is in no file; while that is locked, omac verifies and signs nothing."""
    first = key_of(vault)
    seed = (vault.state / "signing.key").read_text()
    vault.ok("checkpoint")
    assert shown(vault)["store"] == "file"
    assert "is in the vault" in vault.run("key", "move", "--to", "vault").err
    assert (shown(vault)["store"], shown(vault)["key"]) == ("vault", first)
    vault.ok("key", "move", "--to", "vault")  # it is there: nothing is recorded
    (row,) = [json.loads(line) for line in vault.ok("audit", "--json", "--kind", "key").splitlines()]
    assert (row["kind"], row["actor"]) == ("key.moved", "person")
    assert row["detail"] == f"{'+'.join(first.split('+')[:2])} is kept in the vault"
    assert not [path for path in vault.state.iterdir() if path.is_file() and bytes.fromhex(seed) in path.read_bytes()]
    assert not [path for path in vault.state.iterdir() if path.is_file() and seed.encode() in path.read_bytes()]
    vault.ok("checkpoint")
    vault.ok("key", "rotate")
    vault.ok("checkpoint")
    assert shown(vault)["store"] == "vault"
    vault.ok("export", "--out", str(tmp_path / "export"))
    key_file = vault.environment.pop("OMAC_VAULT_KEY_FILE")
    assert verified(vault, "--key", first)["checkpoints"] == 3  # to verify takes no key that is private
    for command in (("checkpoint",), ("key", "rotate"), ("key", "move", "--to", "file")):
        assert vault.run(*command).status == 8
    vault.environment["OMAC_VAULT_KEY_FILE"] = key_file
    vault.ok("key", "move", "--to", "file")
    assert len((vault.state / "signing.key").read_text().strip()) == 64
    vault.ok("checkpoint")
    assert verified(vault, "--key", first)["checkpoints"] == 4
    refused = vault.run("key", "move", "--to", "attic")
    assert (refused.status, "--to takes file, vault, keychain" in refused.err) == (2, True)


@pytest.mark.full
def test_a_move_that_the_journal_does_not_take(vault: Omac) -> None:
    """The key stays in its store and signs if the journal cannot record its move."""
    with closing(sqlite3.connect(vault.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        done = vault.run("key", "move", "--to", "vault")
    assert (done.status, shown(vault)["store"]) == (5, "file"), done
    vault.ok("checkpoint")


def test_a_vault_that_is_lost(vault: Omac) -> None:
    """A key in a locked vault is not lost; a key is lost once its vault or the reference to that is gone."""
    vault.ok("key", "move", "--to", "vault")
    vault.ok("checkpoint")
    key_file = vault.environment.pop("OMAC_VAULT_KEY_FILE")
    done = vault.run("key", "rotate", "--lost")
    assert (done.status, "never to be opened again" in done.err) == (8, True)
    (vault.state / "vault").rename(vault.state / "away")
    vault.ok("key", "rotate", "--lost")
    assert shown(vault)["store"] == "file"
    (vault.state / "away").rename(vault.state / "vault")
    vault.environment["OMAC_VAULT_KEY_FILE"] = key_file
    vault.ok("key", "move", "--to", "vault")
    vault.environment.pop("OMAC_VAULT_KEY_FILE")
    (vault.state / "signing.key").unlink()
    vault.ok("key", "rotate", "--lost")
    assert len(verified(vault)["breaks"]) == 2


@pytest.mark.full
def test_a_vault_that_is_locked_delays_nothing(vault: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with a locked vault ends as usual; status and doctor report the delay until a checkpoint is signed."""
    from tools.test_snapshots import called_often

    from omac.services.kernel.checkpointing import WORTH

    vault.ok("key", "move", "--to", "vault")
    vault.ok("checkpoint")
    key_file = vault.environment.pop("OMAC_VAULT_KEY_FILE")
    called_often(vault, WORTH)
    vault.ok("start", "--", "true", cwd=vault.root / "shop")
    shown = vault.ok("status")
    assert "no checkpoint is signed since position" in shown
    assert "\n  try: omac checkpoint  # signs one now\n" in shown
    (delay,) = json.loads(vault.ok("status", "--json"))["unsigned"]
    assert delay["host"] == (vault.state / "host-id").read_text().strip()
    assert "locked" in delay["why"] or "key" in delay["why"]
    assert "no checkpoint is signed since position" in " ".join(vault.run("doctor").out.split())
    vault.environment["OMAC_VAULT_KEY_FILE"] = key_file
    vault.ok("start", "--", "true", cwd=vault.root / "shop")
    assert json.loads(vault.ok("status", "--json"))["unsigned"] == []
    report = verified(vault)
    assert (report["checkpoints"], report["size"] >= WORTH) == (2, True)


def doctored(house: Omac) -> list[dict[str, Any]]:
    """Return the findings of `omac doctor` about the key that signs."""
    document = json.loads(house.run("doctor", "--json").out)
    return [finding for finding in document["findings"] if finding["name"] == "signing key"]


def test_the_key_is_kept_in_the_keychain(used: Omac, keyring: PrivateKeyring) -> None:
    """A key in the keychain signs and is rotated there; while that is locked, `omac checkpoint` exits with 8.

    Moved back to a file, the key signs without the keychain.
    """
    first = key_of(used)
    used.ok("key", "move", "--to", "keychain")
    used.ok("checkpoint")
    used.ok("key", "rotate")
    used.ok("checkpoint")
    assert (shown(used)["store"], verified(used, "--key", first)["checkpoints"]) == ("keychain", 2)
    keyring.lock()
    assert (used.run("checkpoint").status, doctored(used)) == (8, [])
    assert verified(used)["checkpoints"] == 2
    assert os.path.exists(used.state / "signing.key")
    keyring.unlock()
    used.ok("key", "move", "--to", "file")
    keyring.lock()
    used.ok("checkpoint")
    assert (shown(used)["store"], verified(used, "--key", first)["checkpoints"]) == ("file", 3)


def test_a_keychain_that_ended_with_the_key(used: Omac, keyring: PrivateKeyring) -> None:
    """A key in a keychain whose daemon ended signs nothing, is neither rotated nor moved, and no vault is proposed in
    its place: the refusal names the key and its store. Once the daemon runs the key signs again."""
    first = key_of(used)
    used.ok("key", "move", "--to", "keychain")
    used.ok("checkpoint")
    keyring.stop()
    for words in (("checkpoint",), ("key", "rotate"), ("key", "move", "--to", "file"), ("key", "rotate", "--lost")):
        done = used.run(*words)
        assert (done.status, done.out, "vault" in done.err) == (8, "", False), done
        assert "is in the keychain: the system's keychain cannot be used: no Secret Service daemon" in done.err
        never = f"rm {used.state / 'signing.key'}  # where that is never to be opened again"
        assert f"try: {never if '--lost' in words else 'omac key rotate --lost  # if the key is gone'}" in done.err
    (finding,) = doctored(used)
    assert finding["level"] == "warn"
    assert "is in the keychain: the system's keychain cannot be used: no Secret Service daemon" in finding["says"]
    assert finding["fix"] == ["omac key rotate --lost  # if the key is gone"]
    keyring.start()
    assert doctored(used) == []
    used.ok("checkpoint")
    assert verified(used, "--key", first)["checkpoints"] == 2


def test_a_store_that_fails_behind_the_change(vault: Omac) -> None:
    """A store that ends before the old key is deleted from it: the refusal says which key signs, and where it is."""
    vault.ok("checkpoint")
    vault.ok("key", "move", "--to", "vault")

    async def fail(*_: object) -> None:
        raise Refusal("vault-unusable", "the vault is away")

    for words, change in ((("rotate",), " signs from now on"), (("move", "--to", "file"), "key is in the file now")):
        with mock.patch.object(SecretStores, "remove", fail):
            done = vault.run("key", *words)
        assert (done.status, done.out) == (8, ""), done
        assert f"{change}; but then: the vault is away" in done.err
    assert shown(vault)["store"] == "file"
    vault.ok("checkpoint")
    assert verified(vault)["checkpoints"] == 2


def test_a_store_that_ends_behind_its_write(vault: Omac) -> None:
    """A new key that a store took, and did not confirm, signs nothing; the next rotation deletes it there."""
    vault.ok("checkpoint")
    vault.ok("key", "move", "--to", "vault")
    write = SecretStores.write

    async def fail(*given: Any) -> None:
        await write(*given)
        raise Refusal("vault-unusable", "the vault is away")

    with mock.patch.object(SecretStores, "write", fail):
        assert vault.run("key", "rotate").status == 8
    vault.ok("key", "rotate")
    assert json.loads(vault.ok("vault", "status", "--json"))["names"] == 1
    vault.ok("checkpoint")
    assert verified(vault)["checkpoints"] == 2
