"""`omac journal prune`: contents are dropped, proofs and state stay."""

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_omac import Omac, curl, omac_in
from tools.test_seal_command import Killed, files, folder, moment, reset, sql
from tools.test_snapshots import called_often

from omac.journal import segment as segment_module
from omac.journal.segment import Segment, SegmentError, digest_of_file, missing_segments
from omac.tools.compose.searched_audit import INDEXED_FROM

BATCHES = 3
CALLED = 40


@pytest.fixture(scope="module")
def original(house: Omac, tmp_path_factory: pytest.TempPathFactory) -> tuple[Omac, list[str], Path]:
    """A host with segments, the times behind each, and a copy of its state: calls, an access that never ended, denials,
    runs, launches, and approvals that came and went."""
    project = house.project("shop", "echo")
    times = []
    for number in range(BATCHES):
        house.approve(project, "echo")
        called_often(house, CALLED)
        serving = house.serve()
        base = serving.activate(project)["skills"][0]["base"]
        curl(f"{base}/echo/private-{number}")
        curl(f"{base.rsplit('/', 1)[0]}/nowhere/x")
        assert serving.end() == 0
        house.ok("start", "--", "true", cwd=project)
        house.ok("revoke", "echo", cwd=project)
        house.ok("checkpoint")
        times.append(moment())
        house.ok("journal", "seal")
    house.approve(project, "echo")
    called_often(house, CALLED)
    shutil.rmtree(house.state / "run")  # sockets, which cannot be copied
    copy = tmp_path_factory.mktemp("copy") / "state"
    shutil.copytree(house.state, copy, symlinks=True)
    return house, times, copy


@pytest.fixture
def host(original: tuple[Omac, list[str], Path]) -> Omac:
    """Return that host, reset to its state at the beginning."""
    omac, _, copy = original
    reset(omac, copy)
    return omac


def pruned(omac: Omac, *options: str) -> list[dict[str, int]]:
    segments: list[dict[str, int]] = json.loads(omac.ok("journal", "prune", *options, "--yes", "--json"))["pruned"]
    return segments


def head(omac: Omac) -> int:
    position: int = json.loads(omac.ok("status", "--json"))["position"]
    return position


def last_sealed(omac: Omac) -> list[int]:
    return [int(path.name[13:25]) for path in files(omac)]


def sound(omac: Omac) -> dict[str, object]:
    """Return the report of a verification that finds nothing."""
    omac.ok("journal", "check")
    verified: dict[str, object] = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["checked"]) == ([], verified["size"])
    return verified


@pytest.mark.full
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.lists(st.integers(0, BATCHES - 1), min_size=1, max_size=3).map(sorted),
    snapshots=st.booleans(),
    data=st.data(),
)
def test_state_and_proofs_stay(
    original: tuple[Omac, list[str], Path], order: list[int], snapshots: bool, data: st.DataObject
) -> None:
    """A prune keeps every state, row and proof byte for byte, from the last pruned position on."""
    omac, times, copy = original
    reset(omac, copy)
    until = head(omac)
    ends = last_sealed(omac)
    end = ends[order[-1]]
    at = sorted({end, until, *data.draw(st.lists(st.integers(end, until), max_size=4))})

    def told() -> list[str]:
        if not snapshots:
            shutil.rmtree(omac.state / "journals", ignore_errors=True)
        rows = omac.ok("audit", "--json", "--from", str(end + 1), "--to", str(until))
        return [
            *(omac.ok("replay", "--at", str(position), "--json") for position in at),
            rows,
            omac.ok("approvals", "--json"),
            omac.ok("audit", "explain", str(until), "--json"),
        ]

    old, new = omac.folder / "old", omac.folder / "new"
    proof = omac.folder / "proof.json"
    proof.write_text(omac.ok("audit", "prove", "3"))
    old.write_text(omac.ok("checkpoint"))
    called_often(omac, 2)
    new.write_text(omac.ok("checkpoint"))
    before, consistency = told(), omac.ok("proof", "consistency", str(old), str(new))
    for number in order:
        pruned(omac, "--before", times[number])
    assert told() == before
    assert omac.ok("proof", "consistency", str(old), str(new)) == consistency
    omac.ok("proof", "verify", str(proof), "--key", omac.ok("key", "show").strip())
    omac.ok("audit", "verify", "--checkpoint", str(old))
    assert sound(omac)["pruned"]
    assert [path.name.endswith(".pruned.db") for path in files(omac)] == [
        number <= order[-1] for number in range(BATCHES)
    ]


@pytest.mark.full
def test_what_ended_long_ago(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs and launches that the state has already forgotten are dropped whole."""
    with omac_in(tmp_path_factory.mktemp("long")) as omac:
        project = omac.approved("shop")
        for number in range(80):
            omac.ok("start", "--", "true", cwd=project)
            if number in (2, 75, 79):
                omac.ok("checkpoint")
                omac.ok("journal", "seal")
        until = head(omac)
        state = omac.ok("replay", "--at", str(until), "--json")
        assert pruned(omac, "--before", moment())[1]["dropped"]["run.started"] > 5  # type: ignore[index]
        shutil.rmtree(omac.state / "journals")
        assert omac.ok("replay", "--at", str(until), "--json") == state
        sound(omac)


def test_the_audit_says_what_it_lacks(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """An answer of the audit that reaches back to pruned events says so, beside its rows; any other does not."""
    _, times, _ = original
    assert "pruned" not in host.run("audit", "--count-by", "skill").err
    last = pruned(host, "--before", times[0])[-1]["last"]
    text = f"positions 1 to {last} were pruned on "
    for words in (("--count-by", "skill"), ("--json",), ("--after", "start", "--json"), ("--since", "7d")):
        assert text in host.run("audit", *words).err, words
    for words in (("--from", str(last + 1)), ("--since", times[0]), ("-n", "1")):
        assert text not in host.run("audit", *words).err, words


def test_what_is_gone(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """The command announces what it will drop, and needs --yes. Dropped contents are in no file afterwards; commands
    that need them print the date of the prune."""
    host.ok("audit", "--path", "/echo/*")
    done = host.run("journal", "prune", "--before", original[1][0])
    assert (done.status, "access.requested" in done.out, "for good" in done.out) == (2, True, True), done
    assert "--yes" in done.err
    assert not any(path.name.endswith(".pruned.db") for path in files(host))
    (segment,) = pruned(host, "--before", original[1][0])
    assert segment["dropped"]["access.requested"] == CALLED + 1  # type: ignore[index]
    for path in [host.state / "journal.db", *files(host), *(host.state / "journals").rglob("*")]:
        if path.is_file():
            assert b"private-0" not in path.read_bytes()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    position = str(segment["first"] + 5)
    for command in (
        ("replay", "--at", position),
        ("audit", "prove", str(_dropped(host))),
        ("audit", "explain", str(_dropped(host))),
    ):
        done = host.run(*command)
        assert (done.status, f"were pruned on {day}" in done.err, "Traceback" in done.err) == (1, True, False), done
    assert host.run("replay", "--at", original[1][0].replace(original[1][0][:4], "2000")).status == 1
    assert "private-1" in host.ok("audit", "--json", "--path", "/echo/*")
    row = host.audit("--kind", "segment")[-1]
    assert (row["kind"], "contents of" in row["detail"]) == ("segment.pruned", True)


def _dropped(omac: Omac) -> int:
    """Return a position whose contents are gone."""
    with closing(sqlite3.connect(f"file:{files(omac)[0]}?immutable=1", uri=True)) as connection:
        row = connection.execute("SELECT position FROM pruned").fetchone()
    return int(row[0])


def test_nothing_to_prune(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """Young segments and segments that are already pruned are left as they are."""
    assert "nothing is pruned" in host.ok("journal", "prune", "--keep", "400d")
    assert len(pruned(host, "--before", original[1][1])) == 2
    assert pruned(host, "--before", original[1][1]) == []
    assert host.run("journal", "prune", "--yes").status == 2
    assert len(pruned(host, "--keep", "0s")) == 1
    sound(host)


def test_the_proposed_seal_makes_the_prune_possible(omac: Omac) -> None:
    """A prune without a segment of that time proposes the seal of that time alone, and none where nothing is as old,
    or no checkpoint is."""
    omac.approved("shop")
    assert "try:" not in omac.ok("journal", "prune", "--before", moment())
    omac.ok("checkpoint")
    assert "try:" not in omac.ok("journal", "prune", "--keep", "400d")
    until = moment()
    omac.ok("checkpoint")
    (proposed,) = re.findall("try: omac (.*?)  #", omac.ok("journal", "prune", "--before", until))
    omac.ok(*shlex.split(proposed))
    assert len(pruned(omac, "--before", until)) == 1


def test_what_was_dropped_ends_its_segment(omac: Omac) -> None:
    """Segments in which nothing that is kept follows what was dropped are checked as any other."""
    dropped: object = {"access.requested": 5, "access.completed": 5}
    omac.approved("shop")
    for _ in range(2):
        called_often(omac, 5)
        omac.ok("checkpoint")
        omac.ok("journal", "seal")
    assert [segment["dropped"] for segment in pruned(omac, "--keep", "0s")] == [dropped, dropped]
    sound(omac)


def test_the_index_of_the_audit_goes_with_the_contents(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prune that ends early leaves no index of the audit, which has rows of what it dropped until then. One that was
    in use meanwhile does not count any more."""
    omac.approved("shop")
    called_often(omac, INDEXED_FROM // 2)
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    assert omac.audit("--kind", "access", "-n", "1")
    (index,) = (omac.state / "journals").glob("*.audit")
    kept = Path(shutil.copy(index, omac.folder))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(STEPS["before the old file goes"], killed)
    with pytest.raises(Killed):
        omac.run("journal", "prune", "--keep", "0s", "--yes")
    assert not index.exists()
    kept.rename(index)
    assert omac.audit("--kind", "access") == []


def test_what_nobody_signed_is_not_pruned(host: Omac) -> None:
    """A journal that another key signed, and one with changed events, are not pruned."""
    key = host.state / "signing.key"
    private = key.read_text()
    key.unlink()
    done = host.run("journal", "prune", "--keep", "0s", "--yes")
    assert (done.status != 0, "has not signed" in done.err) == (True, True), done
    assert "--key KEY" in done.err
    key.write_text(private)
    path = files(host)[0]
    path.chmod(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE event SET at = at + 1 WHERE position = 4")
    done = host.run("journal", "prune", "--keep", "0s", "--yes")
    assert (done.status, any(file.name.endswith(".pruned.db") for file in files(host))) == (10, False), done
    assert ("journal repair" in done.err, f"{path.name} (positions" in done.err) == (False, True), done


def test_what_a_lost_key_signed(host: Omac) -> None:
    """A journal signed by a lost key is pruned once the user names its public key; any other key is refused."""
    public = host.ok("key", "show").strip()
    (host.state / "signing.key").unlink()
    host.ok("key", "rotate", "--lost")
    prune = ("journal", "prune", "--keep", "0s", "--yes")
    for words in (prune, (*prune, "--key", host.ok("key", "show").strip())):
        done = host.run(*words)
        assert (done.status, "cannot be pruned" in done.err, "--key KEY" in done.err) == (2, True, True), done
    assert "pruned up to position" in host.ok(*prune, "--key", public)
    host.ok("audit", "verify")


@pytest.mark.full
def test_what_another_host_sealed(host: Omac, tmp_path: Path) -> None:
    """A journal that was restored on another host is pruned there once the user names the key of the former one."""
    public, backup, here = (
        host.ok("key", "show").strip(),
        str(tmp_path / "b.db"),
        {"OMAC_STATE_DIR": str(tmp_path / "s")},
    )
    host.ok("journal", "backup", backup)
    host.ok("journal", "restore", backup, extra=here)
    host.ok("checkpoint", extra=here)
    host.ok("journal", "seal", extra=here)
    prune = ("journal", "prune", "--keep", "0s", "--yes")
    done = host.run(*prune, extra=here)
    assert (done.status, "cannot be pruned: the key omac/" in done.err) == (2, True), done
    assert f"  try: omac {' '.join(prune)} --key KEY  # the public key of then: " in done.err
    assert f"pruned up to position {head(host)};" in host.ok(*prune, "--key", public, extra=here)
    assert json.loads(host.ok("audit", "verify", "--json", extra=here))["findings"] == []
    host.ok("journal", "check", extra=here)


@pytest.mark.full
def test_it_goes_on(host: Omac) -> None:
    """A pruned journal takes approvals, calls, seals, exports, backups and a restore."""
    project = host.root / "shop"
    until = head(host)
    host.ok("replay", "--at", str(until), "--json")
    pruned(host, "--keep", "0s")
    host.approve(project, "echo")
    serving = host.serve()
    base = serving.activate(project)["skills"][0]["base"]
    assert curl(f"{base}/echo/x").status == 200
    assert host.process("checkpoint").status == 0
    assert host.process("journal", "seal").status == 0
    assert host.process("journal", "prune", "--keep", "0s", "--yes").status == 0
    assert curl(f"{base}/echo/x").status == 200
    assert serving.end() == 0
    host.ok("start", "--", "true", cwd=project)
    sound(host)
    bundle = host.folder / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    host.ok("export", "--out", str(bundle))
    host.ok("export", "verify", str(bundle), "--key", host.ok("key", "show").strip())
    backup = host.folder / "copy.db"
    backup.unlink(missing_ok=True)
    shutil.rmtree(f"{backup}.segments", ignore_errors=True)
    host.ok("journal", "backup", str(backup))
    host.ok("journal", "check", "--journal", str(backup))
    host.ok("journal", "restore", str(backup), "--yes")
    sound(host)


STEPS = {
    "before the file": "omac.tools.compose.pruning.written_pruned",
    "in the file": "omac.journal.segment._flush",
    "before its name": "omac.journal.segment_writing.publish",
    "before the record": "omac.domain.access.sealing.ReportPruned",
    "before the list": "omac.journal.sql_recorder.list_pruned",
    "before the old file goes": "omac.tools.compose.pruning.withdraw",
}


@pytest.mark.parametrize("step", STEPS)
def test_it_ends_at_any_step(
    original: tuple[Omac, list[str], Path], host: Omac, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A killed prune has dropped the contents or left them there, and the next prune undoes or finishes it."""
    until = head(host)
    state = host.ok("replay", "--at", str(until), "--json")

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(STEPS[step], killed)
        with pytest.raises(Killed):
            host.run("journal", "prune", "--before", original[1][0], "--yes")
    assert host.ok("replay", "--at", str(until), "--json") == state
    sound(host)
    host.ok("journal", "prune", "--before", original[1][0], "--yes")
    assert [path.name.endswith(".pruned.db") for path in files(host)] == [True, False, False]
    assert not list(folder(host).glob("*.draft"))
    assert host.ok("replay", "--at", str(until), "--json") == state
    assert sound(host)["pruned"]


@pytest.mark.full
def test_killed_at_random_moments(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """A kill -9 during a prune keeps the state, and damages nothing."""
    until = head(host)
    state = host.ok("replay", "--at", str(until), "--json")
    for number in range(10):
        started = host.start("journal", "prune", "--before", original[1][number % BATCHES], "--yes")
        time.sleep(0.3 + 0.05 * number)
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
        assert host.ok("replay", "--at", str(until), "--json") == state
        sound(host)
    host.ok("journal", "prune", "--keep", "0s", "--yes")
    assert all(path.name.endswith(".pruned.db") for path in files(host))
    assert len(files(host)) == BATCHES
    sound(host)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk(host: Omac) -> None:
    """A prune on a full disk drops nothing, and the failure is recorded."""
    aside = host.folder / "aside"
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder(host), aside)
    room = (sum(path.stat().st_size for path in aside.iterdir()) + 16_384) // 1024
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={room}k", "tmpfs", str(folder(host))), check=True)
    try:
        for path in aside.iterdir():
            shutil.copy(path, folder(host))
        done = host.run("journal", "prune", "--keep", "0s", "--yes")
        assert (done.status, "df -h" in done.err) == (5, True), done
        sound(host)
    finally:
        subprocess.run(("umount", str(folder(host))), check=True)
    assert host.audit("--kind", "segment")[-1]["kind"] == "segment.prune-failed"
    pruned(host, "--keep", "0s")
    sound(host)


@pytest.mark.full
def test_beside_who_reads(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """Audits, verifications, checks, backups, exports and approvals beside a prune succeed, or ask the user to try
    again."""
    until = head(host)
    state = host.ok("replay", "--at", str(until), "--json")
    commands = ("audit verify", "journal check", "audit --json", "approvals", "journal backup {}", "approve echo",
                "export --out {}")  # fmt: skip
    results: list[tuple[str, int, str]] = []
    ended = threading.Event()

    def repeat(number: int, command: str) -> None:
        count = 0
        while not ended.is_set():
            count += 1
            words = command.format(host.folder / f"copy-{number}-{count}.db").split()
            done = host.process(*words, cwd=host.root / "shop")
            results.append((command, done.status, done.out[-300:] + done.err))

    threads = [threading.Thread(target=repeat, args=pair) for pair in enumerate(commands)]
    for thread in threads:
        thread.start()
    try:
        for number in range(BATCHES):
            assert host.process("journal", "prune", "--before", original[1][number], "--yes").status == 0
            assert host.process("checkpoint").status == 0
            assert host.process("journal", "seal").status == 0
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert {command for command, _, _ in results} == set(commands)
    wrong = [
        result
        for result in results
        if result[1] != 0 and not (result[1] == 5 and "the same command again" in result[2])
    ]
    assert not wrong
    assert host.ok("replay", "--at", str(until), "--json") == state
    sound(host)


@pytest.mark.parametrize("step", ["_size", "open_segment"])
def test_between_two_steps_of_reading(step: str, host: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is pruned after a check found or opened it, and before it is read, asks for the same command
    again."""
    taken, pruned_at = getattr(segment_module, step), list[bool]()

    def then_pruned(*values: Any) -> Any:
        result = taken(*values)
        if not pruned_at:
            pruned_at.append(True)
            assert host.process("journal", "prune", "--keep", "0s", "--yes").status == 0
        return result

    monkeypatch.setattr(segment_module, step, then_pruned)
    done = host.run("journal", "check")
    assert (done.status, "was pruned while this command read it" in done.err) == (5, True), done
    assert "the same command again" in done.err
    assert host.run("journal", "check").status == 0


@pytest.mark.parametrize("command", ["doctor", "status", "approve echo"])
def test_pruned_once_listed(command: str, host: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is pruned after a command listed it, and before the command looked for its file, is not
    missing."""

    def then_pruned(journal: str, segments: Sequence[Segment]) -> Iterator[SegmentError]:
        assert host.process("journal", "prune", "--keep", "0s", "--yes").status == 0
        return missing_segments(journal, segments)

    monkeypatch.setattr("omac.journal.reader.missing_segments", then_pruned)
    done = host.run(*command.split(), cwd=host.root / "shop")
    assert ("is missing" in done.err + done.out, "not whole" in done.err + done.out) == (False, False), done


def test_a_prune_that_nobody_recorded(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """Verification and check find events that were taken out of a segment and passed off as pruned."""
    pruned(host, "--before", original[1][0])
    path = files(host)[0]
    path.chmod(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("DELETE FROM event WHERE position = (SELECT max(position) FROM event)")
    size, digest = path.stat().st_size, digest_of_file(str(path))
    sql(host, f"UPDATE segment SET bytes = {size}, sha256 = '{digest}' WHERE first = 1")
    for command in ("audit verify", "journal check"):
        done = host.run(*command.split())
        assert (done.status, "segment-altered" in done.out, "Traceback" in done.err) == (10, True, False), done
        assert ("omac journal restore BACKUP" in done.err, "install" in done.err) == (True, False), done


def test_a_pruned_segment_that_is_missing(host: Omac) -> None:
    """Commands name a missing pruned segment as any other."""
    pruned(host, "--keep", "0s")
    files(host)[1].unlink()
    for command in ("audit verify", "journal check", "audit --json", "journal seal"):
        done = host.run(*command.split())
        assert (done.status, "Traceback" in done.err) == (10, False), (command, done)
        assert "pruned.db" in done.out + done.err
