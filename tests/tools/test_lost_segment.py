"""A sealed segment whose file is lost: omac goes on from the folded state, and reports the missing file."""

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from killed_restore import kill_restore
from real_omac import Done, Omac, curl
from tools.test_snapshots import called_often

FOLDER = "journal.db.segments"
WORD = "private-basket"


@pytest.fixture
def sealed(omac: Omac) -> Path:
    """The only segment of a host's journal. It holds an approval, a key and a checkpoint; more events follow it."""
    omac.approved("shop")
    omac.ok("start", "--workdir", str(omac.root / "shop"), "--", "echo", WORD)
    called_often(omac, 20)
    assert WORD in omac.ok("replay", "--at", "30")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    (segment,) = (omac.state / FOLDER).iterdir()
    return segment


@pytest.fixture
def lost(omac: Omac, sealed: Path) -> Path:
    """Move the segment's file elsewhere, and return the path where it was."""
    sealed.rename(omac.folder / sealed.name)
    return sealed


def put_back(omac: Omac, place: Path) -> None:
    (omac.folder / place.name).rename(place)


def assert_said_once(done: Done) -> None:
    """Assert that a warning or refusal names the missing file and the command that restores it once at most."""
    for text in ("is missing", "install -m 400"):
        assert (done.out + done.err).count(text) <= 1, (text, done)


@pytest.mark.full
def test_new_facts_are_recorded(omac: Omac, lost: Path) -> None:
    """Approvals, revocations, checkpoints and keys are still recorded without the segment. Verification and `omac
    doctor` report the missing file; with the file back, all verifies."""
    shop = omac.root / "shop"
    assert "echo" in omac.ok("approvals")
    (row,) = approvals(omac)
    assert row["since"] is None
    for words in (
        ("revoke", "echo"), ("approve", "echo"), ("checkpoint",), ("key", "rotate"), ("key", "move", "--to", "file"),
        ("settings", "set", "serve.bundle_drift", "accept"), ("status",), ("start", "--", "true"),
    ):  # fmt: skip
        done = omac.run(*words, cwd=shop)
        assert done.status == 0, done
    assert "install -m 400" in omac.run("doctor").out
    assert omac.run("doctor").status == 10
    omac.ok("checkpoint")
    done = omac.run("audit", "verify", "--json")
    assert done.status == 10
    (finding,) = json.loads(done.out)["findings"]
    assert (finding["kind"], finding["position"]) == ("segment-missing", 1)
    put_back(omac, lost)
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["checkpoints"]) == ([], 3)
    assert [row["since"] is None for row in approvals(omac)] == [False]


def test_a_change_behind_it_is_found(omac: Omac, lost: Path) -> None:
    """A lost segment hides no change of the events that the journal still has: these are verified all the same."""
    with contextlib.closing(sqlite3.connect(omac.state / "journal.db")) as database, database:
        (changed,) = database.execute("SELECT max(position) FROM event").fetchone()
        database.execute("UPDATE event SET at = at + 1 WHERE position = ?", (changed,))
    done = omac.run("audit", "verify", "--json")
    found = [(finding["kind"], finding["position"]) for finding in json.loads(done.out)["findings"]]
    assert (done.status, found) == (10, [("segment-missing", 1), ("altered", changed)])


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_restore_that_was_killed_keeps_the_other_segments(omac: Omac, tmp_path: Path, renamed: int) -> None:
    """The next restore puts the journal back as it was, keeps it with its remaining segments, and records the rotation
    of its key."""
    project, copy = omac.project("shop", "echo"), str(tmp_path / "copy.db")
    omac.approve(project, "echo")
    omac.ok("journal", "backup", copy)
    for _ in range(2):
        called_often(omac, 20)
        omac.ok("checkpoint")
        omac.ok("journal", "seal")
    omac.ok("key", "rotate")
    lost, remaining = sorted((omac.state / FOLDER).iterdir())
    lost.rename(omac.folder / lost.name)
    moves = 0

    def is_next(name: str) -> bool:
        nonlocal moves
        moves += "journal.db" in name and os.path.lexists(name)
        return moves > renamed

    kill_restore(omac, copy, is_next)
    assert "replaced since (1 time)" in omac.ok("journal", "restore", copy, "--yes")
    (segments,) = omac.state.glob("journal.db.before-restore-*.segments")
    assert [path.name for path in segments.iterdir()] == [remaining.name]
    (omac.folder / lost.name).rename(segments / lost.name)
    omac.ok("journal", "check", "--journal", str(segments).removesuffix(".segments"))


def approvals(omac: Omac) -> list[dict[str, object]]:
    return [json.loads(line) for line in omac.ok("approvals", "--json").splitlines()]


@pytest.mark.full
def test_a_server_records_accesses(omac: Omac, lost: Path) -> None:
    """A server serves approved skills and records each access, whether it starts without the file or loses it later."""
    serving = omac.serve()
    assert "is missing" in serving.said()
    base = serving.skill(omac.root / "shop")["base"]
    assert curl(f"{base}/whoami").status == 200
    put_back(omac, lost)
    lost.rename(omac.folder / lost.name)
    assert curl(f"{base}/whoami").status == 200
    assert serving.end() == 0
    put_back(omac, lost)
    assert [row["status"] for row in omac.audit("--path", "/whoami")][-2:] == [200, 200]
    omac.ok("audit", "verify")


@pytest.mark.full
def test_what_needs_its_events_names_it(omac: Omac, lost: Path) -> None:
    """Commands that need the segment's events name it and the command that restores it. They write no partial backup or
    export, and prune nothing."""
    for words in (
        ("audit",), ("audit", "-n", "2"), ("replay", "--at", "5"), ("audit", "explain", "3"), ("audit", "prove", "3"),
        ("export", "--out", str(omac.folder / "export")), ("journal", "backup", str(omac.folder / "backup.db")),
        ("journal", "prune", "--keep", "0s", "--yes"), ("journal", "stats"), ("journal", "check"),
    ):  # fmt: skip
        done = omac.run(*words)
        assert done.status == 10, (words, done)
        assert lost.name in done.out + done.err, (words, done)
        assert_said_once(done)
    assert not (omac.folder / "backup.db").exists()
    assert not (omac.folder / "export" / "manifest.json").exists()


def test_one_that_was_cut(omac: Omac, sealed: Path) -> None:
    """A truncated segment is treated like a missing one: commands do not read it, and states come from the snapshot."""
    sealed.chmod(0o600)
    sealed.write_bytes(sealed.read_bytes()[:-100])
    omac.ok("checkpoint")
    assert omac.run("doctor").status == 10
    omac.ok("revoke", "echo", cwd=omac.root / "shop")


@pytest.mark.full
def test_without_a_snapshot_nothing_is_guessed(omac: Omac, lost: Path) -> None:
    """Approvals are unknown without a snapshot: omac grants nothing, and names the command that restores the file."""
    for folder in (omac.state / "journals").glob("*.snapshots"):
        shutil.rmtree(folder)
    for words in (("approvals",), ("status",), ("start", "--", "true"), ("revoke", "echo"), ("approve", "echo")):
        done = omac.run(*words, cwd=omac.root / "shop")
        assert (done.status, "install -m 400" in done.err) == (10, True), (words, done)
        assert_said_once(done)
    put_back(omac, lost)
    omac.ok("status")  # whoever folds the segment leaves one
    lost.rename(omac.folder / lost.name)
    omac.ok("revoke", "echo", cwd=omac.root / "shop")


@pytest.mark.full
def test_what_it_has_is_erased(omac: Omac, lost: Path) -> None:
    """The erasure destroys the key, so values in the unread segment are gone as well. States are still known
    afterwards."""
    shop = str(omac.root / "shop")
    omac.ok("start", "--workdir", shop, "--", "true")
    erasure = json.loads(omac.ok("erase", shop, "--yes", "--json"))
    assert (erasure["erased"], erasure["unread_segments"]) == (True, [lost.name])
    omac.ok("approvals")
    put_back(omac, lost)
    omac.ok("audit", "verify")
    assert WORD not in omac.ok("audit", "--json") + omac.ok("replay", "--at", "30")
