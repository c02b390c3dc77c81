"""`omac journal backup` and `omac journal restore`, and a journal that was lost: nothing begins over in silence."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
from contract.media import needs_bubblewrap, read_only
from killed_restore import Killed
from polling import eventually
from real_omac import Omac

BACKUPS = "omac.tools.compose.backups"


def position(omac: Omac) -> int:
    """How far the journal goes."""
    return int(json.loads(omac.ok("journal", "check", "--json"))["position"])


def test_from_loss_back_to_work(omac: Omac, tmp_path: Path) -> None:
    """A backup beside a server; the journal gone: every command refuses, until it is restored."""
    project = omac.project("shop", "echo")
    serving = omac.serve()
    omac.approve(project, "echo")
    copy = tmp_path / "copy.db"
    made = json.loads(omac.ok("journal", "backup", str(copy), "--json"))
    assert made["path"] == str(copy)
    refused = omac.run("journal", "restore", str(copy), "--yes")
    assert refused.status == 5
    assert f"pid {serving.process.pid}" in refused.err
    serving.end()
    assert position(omac) > made["position"]
    (omac.state / "journal.db").unlink()
    approve = ("approve", "echo", "--workdir", str(project))
    read = (("status",), ("audit",), ("approvals",), ("audit", "verify"), ("journal", "check"), ("key", "show"))
    proven = (("checkpoint",), ("audit", "prove", "1"), ("journal", "backup", str(tmp_path / "other.db")))
    for command in (*read, *proven, ("journal", "seal"), ("serve", "--no-inner"), approve):
        done = omac.run(*command)
        assert done.status == 10, (command, done)
        assert "missing or empty" in done.err
        assert "try: omac journal restore BACKUP" in done.err
    assert not (omac.state / "journal.db").exists()
    assert "is restored to position" in omac.ok("journal", "restore", str(copy))
    assert position(omac) == made["position"]
    assert "echo" in omac.ok("approvals")
    assert [skill["name"] for skill in omac.serve().activate(project)["skills"]] == ["echo"]


@needs_bubblewrap
def test_a_folder_of_segments_that_cannot_be_moved(omac: Omac, tmp_path: Path) -> None:
    """Another disk is mounted there, say: the restore is refused, and the journal is where it was."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    omac.ok("revoke", "echo", cwd=project)
    before = position(omac)
    segments = str(omac.state / "journal.db.segments")
    mounted = ("bwrap", "--dev-bind", "/", "/", "--bind", segments, segments)
    done = omac.run("journal", "restore", str(copy), "--yes", within=mounted)
    assert (done.status, segments in done.err, "busy" in done.err) == (5, True, True), done
    assert position(omac) == before
    omac.ok("audit", "verify")
    names = sorted(path.name for path in omac.state.iterdir())
    assert not [name for name in names if "restor" in name], names
    omac.ok("journal", "restore", str(copy), "--yes")
    assert position(omac) < before


@needs_bubblewrap
def test_a_state_that_cannot_be_written(omac: Omac, tmp_path: Path) -> None:
    """A copy on read-only media is verified and proven like any other: the key is there, and is not changed."""
    omac.approve(omac.project("shop", "echo"), "echo")
    key = omac.ok("key", "show")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    within = read_only(omac.state)
    assert omac.process("key", "show", within=tuple(within)).out == key
    proof = omac.process("audit", "prove", "1", within=tuple(within))
    assert proof.status == 0, proof
    (tmp_path / "proof").write_text(proof.out)
    omac.ok("proof", "verify", str(tmp_path / "proof"), "--key", key.strip())
    assert omac.process("checkpoint", within=tuple(within)).status == 0
    for words in (("rotate",), ("rotate", "--lost"), ("move", "--to", "vault")):
        done = omac.process("key", *words, within=tuple(within))
        assert (done.status != 0, "Traceback" in done.err, "defect" in done.err) == (True, False, False), done
    assert omac.ok("key", "show") == key


def test_restoring_over_later_events(omac: Omac, tmp_path: Path) -> None:
    """What the backup lacks is named; it is given up only by --yes, and kept beside."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    again = omac.run("journal", "backup", str(copy))
    assert again.status == 2
    assert "exists already" in again.err
    before = position(omac)
    omac.ok("approve", "echo", "--revoke", "--workdir", str(project))
    later = position(omac)
    asked = omac.run("journal", "restore", str(copy))
    assert asked.status == 2
    assert f"{later - before} later position" in asked.err
    assert "a revocation among them is undone" in asked.err
    assert position(omac) == later
    done = omac.ok("journal", "restore", str(copy), "--yes")
    assert position(omac) == before
    kept = done.splitlines()[1].rpartition(" ")[2]
    assert json.loads(omac.ok("journal", "check", "--json", "--journal", kept))["position"] == later


def test_a_backup_that_is_not_there(omac: Omac, tmp_path: Path) -> None:
    """It is named as such, with the folder to look into, and nothing is changed."""
    omac.approve(omac.project("shop", "echo"), "echo")
    before = position(omac)
    done = omac.run("journal", "restore", str(tmp_path / "nope.db"))
    assert done.status == 5
    assert f"no backup exists at {tmp_path}/nope.db" in done.err
    assert f"try: ls -l {tmp_path}" in done.err
    assert position(omac) == before


def test_an_old_copy_put_back_by_hand(omac: Omac, tmp_path: Path) -> None:
    """A revocation is not undone by copying a file: the older journal is refused, by reader and writer."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    shutil.copy(omac.state / "journal.db", tmp_path / "old.db")
    omac.ok("approve", "echo", "--revoke", "--workdir", str(project))
    shutil.copy(tmp_path / "old.db", omac.state / "journal.db")
    for command in (("approvals",), ("serve", "--no-inner")):
        done = omac.run(*command)
        assert done.status == 10, (command, done)
        assert "older copy" in done.err


def test_a_plain_copy_beside_an_idle_server(omac: Omac, tmp_path: Path) -> None:
    """Shortly after the last event the file alone holds everything."""
    project = omac.project("shop", "echo")
    serving = omac.serve()
    omac.approve(project, "echo")
    serving.activate(project)
    copy = tmp_path / "copy.db"

    def whole() -> bool:
        copy.unlink(missing_ok=True)
        shutil.copy(omac.state / "journal.db", copy)
        checked = omac.run("journal", "check", "--json", "--journal", str(copy))
        return checked.status == 0 and json.loads(checked.out)["position"] == position(omac)

    eventually(whole, 15, "a plain copy holds everything")


def test_no_backup_to_restore(omac: Omac, tmp_path: Path) -> None:
    """What is no journal is not restored, and said to be none."""
    text = tmp_path / "text"
    text.write_text("not a journal, " * 100)
    for source, status in ((text, 10), (tmp_path / "nothing", 5)):
        done = omac.run("journal", "restore", str(source))
        assert done.status == status, done
    assert not (omac.state / "journal.db").exists()


def test_a_backup_that_was_killed_is_none(omac: Omac, tmp_path: Path) -> None:
    """Nothing has its name until the keys lie beside it; the next one of that name says what is in its way."""
    omac.approve(omac.project("shop", "echo"), "echo")
    omac.ok("start", "--workdir", str(omac.root / "shop"), "--", "true")
    copy = tmp_path / "copy.db"
    kill, left = mock.patch(f"{BACKUPS}.keep_all", side_effect=Killed), mock.patch(f"{BACKUPS}.discard")
    with kill, left, pytest.raises(Killed):
        omac.run("journal", "backup", str(copy))
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy.db.unfinished"]
    again = omac.run("journal", "backup", str(copy))
    assert again.status == 2
    assert f"rm -rf {copy}.unfinished {copy}.unfinished.segments" in again.err
    (tmp_path / "copy.db.unfinished").unlink()
    omac.ok("journal", "backup", str(copy))
    assert sorted(file.name for file in tmp_path.glob("copy*")) == ["copy.db", "copy.db.keys"]
