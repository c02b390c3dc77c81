"""A full disk: commands that write report it, no event is lost, and the journal can still be read."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contract.media import small_disk as bwrap_disk
from polling import eventually
from real_omac import COMMAND, Omac, curl
from tools.test_seal_command import folder, moment
from tools.test_snapshots import called_often
from valued_skill import typed

from omac.domain.sidecars.sidecar import Exited

CALLS = 200
WRITING = (
    ("journal", "seal"), ("journal", "prune", "--keep", "0s", "--yes"), ("journal", "backup", "{state}/copy.db"),
    ("journal", "restore", "{backup}", "--yes"), ("key", "rotate"), ("checkpoint",), ("approve", "echo"),
    ("export", "--out", "{state}/bundle"),
)  # fmt: skip
READING = (
    ("audit", "verify"),
    ("journal", "check"),
    ("audit", "--skill", "echo"),
    ("replay", "--at", "9"),
    ("status",),
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")

Filled = Callable[[int], None]  # the free space, in KiB, that is left


@pytest.fixture(scope="module")
def original(house: Omac, tmp_path_factory: pytest.TempPathFactory) -> tuple[Omac, Path]:
    """Return a host whose journal is sealed in part, with checkpoints behind that, and a copy of its state."""
    house.approved("shop")
    for number in range(3):
        called_often(house, CALLS)
        house.ok("checkpoint")
        if not number:
            house.ok("journal", "seal", "--before", moment())
    house.ok("journal", "backup", str(house.folder / "backup.db"))
    copy = tmp_path_factory.mktemp("copy") / "state"
    shutil.copytree(house.state, copy, symlinks=True)
    return house, copy


@contextmanager
def small_disk(omac: Omac, copy: Path, *options: str) -> Iterator[Filled]:
    """Put the state on a small disk of its own, and yield a function that fills it with a file named ballast."""
    size = sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) // 1024 + 8_000
    settings = ",".join((f"size={size}k", *options))
    subprocess.run(("mount", "-t", "tmpfs", "-o", settings, "tmpfs", str(omac.state)), check=True)
    try:
        shutil.copytree(copy, omac.state, symlinks=True, dirs_exist_ok=True)

        def fill(left_kib: int) -> None:
            disk = os.statvfs(omac.state)
            (omac.state / "ballast").write_bytes(bytes(disk.f_bavail * disk.f_frsize - left_kib * 1024))

        yield fill
    finally:
        subprocess.run(("umount", str(omac.state)), check=True)


def require_whole(omac: Omac) -> None:
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["checked"]) == ([], verified["size"])
    omac.ok("journal", "check")


def require_no_drafts_of_marks(omac: Omac) -> None:
    """Each process would leave one, under its pid."""
    assert not [*omac.state.glob("journals/*.[0-9]*")]


@pytest.mark.full
def test_calls_while_the_disk_is_full(original: tuple[Omac, Path]) -> None:
    """Calls that a full disk refuses are in the audit once there is room again, all of them."""
    omac, copy = original
    with small_disk(omac, copy) as fill:
        server = omac.serve()
        server.activate(omac.root / "shop")
        base = server.skill(omac.root / "shop")["base"]
        fill(0)
        answers = [curl(f"{base}/echo/{number}").status for number in range(100)]
        assert answers[-5:] == [503] * 5, answers
        (omac.state / "ballast").unlink()
        refused, reasons = answers.count(503), {"journal-unavailable", "state-unusable"}

        def counted() -> int:
            rows = omac.audit("--outcome", "refused")
            return sum(row["count"] for row in rows if row["reason"] in reasons and row["skill"] == "echo")

        try:
            eventually(lambda: counted() == refused, 25.0, f"{refused} refusals in the audit")
        finally:
            server.end()
        require_whole(omac)


@pytest.mark.full
def test_a_sidecar_that_ends_while_the_disk_is_full(original: tuple[Omac, Path]) -> None:
    """A server logs once that it cannot record the end of a sidecar, however often it tries, and records it later."""
    omac, copy = original
    with small_disk(omac, copy) as fill:
        server = omac.serve()
        server.activate(omac.root / "shop")
        (sidecar,) = json.loads(omac.ok("status", "--json"))["sidecars"]
        try:
            fill(0)
            os.kill(sidecar["pid"], signal.SIGKILL)
            time.sleep(3)  # it tries every 0.5 s
            assert server.said().count(" cannot be recorded yet: ") == 1, server.said()
            (omac.state / "ballast").unlink()
            eventually(lambda: omac.events(Exited), 10.0, "its end on record")
        finally:
            server.end()
        require_whole(omac)


def test_the_status_on_a_full_disk(original: tuple[Omac, Path]) -> None:
    """A status whose skills are ready says that nothing is forwarded while the disk is full."""
    omac, copy = original
    with small_disk(omac, copy) as fill:
        assert "is full (" not in omac.run("status").err
        fill(0)
        done = omac.run("status", "--json")
        says = f"omac: the disk of {omac.state} is full (0 B left): omac starts and forwards nothing\n"
        assert done.err.endswith(f"{says}  try: df -h {omac.state}\n"), done
        assert json.loads(done.out)["position"]


def test_the_status_on_a_disk_that_takes_no_change(omac: Omac) -> None:
    """A status is shown where what a launch left cannot be inspected, and says so."""
    project = omac.approved("shop")
    line = ("sandbox", "run", "--workdir", str(project), "--", "sh", "-c", "touch up; sleep 60")
    launched = omac.start(*line)
    eventually((project / "up").exists, 20.0, "the program")
    launched.end(signal.SIGKILL)
    eventually(lambda: not omac.left(), 10.0, "the end of its sandbox")
    subprocess.run(("mount", "--bind", omac.state, omac.state), check=True)
    try:
        subprocess.run(("mount", "-o", "remount,bind,ro", omac.state), check=True)
        done = omac.run("status")
        assert (done.status, "no directory is online" in done.out) == (0, True), done
        assert "omac: what ended launches left is not inspected: " in done.err
        assert f"  try: findmnt --target {omac.state}" in done.err
    finally:
        subprocess.run(("umount", "--lazy", omac.state), check=True)
    assert "is not inspected" not in omac.run("status").err


@pytest.mark.full
@pytest.mark.parametrize("words", WRITING, ids=lambda words: " ".join(words[:2]))
def test_writing(original: tuple[Omac, Path], words: tuple[str, ...]) -> None:
    """A command that lacks room reports that, and does its work once there is more."""
    omac, copy = original
    line = [word.format(state=omac.state, backup=omac.folder / "backup.db") for word in words]
    refused = 0
    for left_kib in (0, 8, 40, 80, 160, 320):
        with small_disk(omac, copy) as fill:
            fill(left_kib)
            done = omac.run(*line, cwd=omac.root / "shop")
            require_whole(omac)
            if done.status:
                refused += 1
                assert (done.status, "df -h" in done.err) == (5, True), (left_kib, done)
            assert not [*folder(omac).glob("*.draft")], (left_kib, done)  # it would fill the disk further
            (omac.state / "ballast").unlink()
            require_whole(omac)
            if done.status:
                omac.ok(*line, cwd=omac.root / "shop")
            require_whole(omac)
            assert not [*folder(omac).glob("*.draft"), *omac.state.glob("*.restoring*"), *omac.state.glob(".omac-*")]
            require_no_drafts_of_marks(omac)
    assert refused or words == ("checkpoint",)  # which prints what it cannot record


@pytest.mark.full
@pytest.mark.parametrize("words", [*WRITING, ("sandbox", "run", "--", "true")], ids=lambda words: " ".join(words[:2]))
def test_without_files(original: tuple[Omac, Path], words: tuple[str, ...]) -> None:
    """A command that lacks no room, but files, proposes the command that shows how many are left, and does its work
    once there are more."""
    omac, copy = original
    line = [word.format(state=omac.state, backup=omac.folder / "backup.db") for word in words]
    for left in range(4):
        with small_disk(omac, copy, "nr_inodes=500") as _:
            (omac.state / "ballast").mkdir()
            names = [omac.state / "ballast" / str(number) for number in range(os.statvfs(omac.state).f_favail)]
            for name in names:
                name.touch()
            for name in names[:left]:
                name.unlink()
            done = omac.run(*line, cwd=omac.root / "shop")
            if done.status:
                assert (done.status in (5, 7), f"  try: df -i {omac.state}" in done.err) == (True, True), (left, done)
            else:
                assert left or words == ("checkpoint",), done
            shutil.rmtree(omac.state / "ballast")
            require_whole(omac)
            if done.status:
                omac.ok(*line, cwd=omac.root / "shop")


FILES_LEFT_MAX = 30
FIRST = (
    ("approve", "echo"), ("vault", "init", "--key-file", "{state}/keys/vault"), ("start", "--", "true"),
    ("sandbox", "run", "--ephemeral-cache", "--", "true"),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("words", FIRST, ids=lambda words: " ".join(words[:2]))
def test_without_files_for_a_first_command(omac: Omac, words: tuple[str, ...]) -> None:
    """The first command on a host, whose disk has too few files left, proposes the command that shows how many, however
    far it came, and does its work once there are more."""
    project = omac.project("shop", "echo")
    line = [word.format(state=omac.state) for word in words]
    for left in range(FILES_LEFT_MAX):
        options = "size=16m,mode=700,nr_inodes=200"
        subprocess.run(("mount", "-t", "tmpfs", "-o", options, "tmpfs", omac.state), check=True)
        try:
            ballast = omac.state / "ballast"
            ballast.mkdir()
            for number in range(os.statvfs(omac.state).f_favail - left):
                (ballast / str(number)).touch()
            done = omac.run(*line, cwd=project)
            assert not done.status or f"  try: df -i {omac.state}" in done.err, (left, done)
            assert not [*omac.state.glob("run/.*")], (left, done)
            shutil.rmtree(ballast)
            if done.status:
                omac.ok(*line, cwd=project)
        finally:
            subprocess.run(("umount", omac.state), check=True)
        if not done.status:
            return
    pytest.fail(f"{words} never succeeded")


def test_a_disk_that_fills_before_skills_are_reviewed(omac: Omac) -> None:
    """A review that has no room for the copy of a skill fails, with the command that shows the disk; later it works."""
    project = omac.project("shop", "echo")
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=16m,mode=700,nr_inodes=200", "tmpfs", omac.state), check=True)
    try:
        omac.ok("hook", "install", "claude")
        ballast = omac.state / "ballast"
        ballast.mkdir()
        for number in range(os.statvfs(omac.state).f_favail - 3):
            (ballast / str(number)).touch()
        done = typed(omac, [], "trust", str(project))
        assert (done.status, f"  try: df -i {omac.state}" in done.out) == (1, True), done
        shutil.rmtree(ballast)
        answers = [("Approve it?", b"y\n"), ("ECHO_", b"\n"), ("ECHO_GREETING", b"\n")]
        done = typed(omac, answers, "trust", str(project))
        assert (done.status, "1 approved" in done.out) == (0, True), done
    finally:
        subprocess.run(("umount", omac.state), check=True)


@pytest.mark.parametrize("left_kib", [0, 16])
def test_reading(original: tuple[Omac, Path], left_kib: int) -> None:
    """A command that reads works on a full disk without room even for the index of a write-ahead log."""
    omac, copy = original
    with small_disk(omac, copy) as fill:
        before = [omac.ok(*words) for words in READING]
        shutil.rmtree(omac.state / "journals")
        fill(left_kib)
        assert [omac.ok(*words) for words in READING] == before
        done = omac.run("revoke", "echo", cwd=omac.root / "shop")
        assert (done.status, "df -h" in done.err) == (5, True), done
        require_no_drafts_of_marks(omac)


FILL = """
import os, sys, time
from contract.journals import commit_now
from omac.domain.access.access import AccessRefused
from omac.domain.kernel.event import Draft
from omac.domain.kernel.ids import HostId, access_stream
from omac.domain.kernel.refusal import Refusal
from omac.journal import store
from omac.journal.opening import open_journal
path = sys.argv[1]
if sys.argv[2:]:
    store.WAL_SHARE, store.WAL_PAGES = 1, 16_384  # as of an earlier omac
journal = open_journal(path, "r", time.time_ns)
refused = AccessRefused(None, None, "/" + "x" * 3_000, None, "GET", "", 404, "unknown-mount")
largest = 0
try:
    for _ in range(10_000):
        commit_now(journal, [Draft(access_stream(HostId("h")), None, refused)] * 20)
        largest = max(largest, os.path.getsize(path + "-wal"))
except Refusal:
    print(largest, os.path.getsize(path), flush=True)
os._exit(9)  # killed: the log stays
"""
DISK_BYTES = 12_000_000


def on_a_disk_of_its_own(omac: Omac, *earlier: str, then: str = "") -> tuple[int, int, str]:
    """Fill a small disk with a journal, without a pause, and run a shell script there; return the size of its log, at
    the most, its own size, and the rest that was printed. An `earlier` omac let the log take all of the disk."""
    disk = omac.folder / "disk"
    disk.mkdir()
    root = Path(__file__).parents[2]
    filling = shlex.join([sys.executable, "-c", FILL, f"{disk}/journal.db", *earlier])
    omac.environment |= {"PYTHONPATH": f"{root / 'src'}:{root / 'tests'}", "OMAC_JOURNAL": f"{disk}/journal.db"}
    command = [*bwrap_disk(disk, DISK_BYTES), "sh", "-c", f"{filling}; {then}"]
    done = subprocess.run(command, env=omac.environment, capture_output=True, text=True, cwd=omac.folder, timeout=60)
    first, _, rest = done.stdout.partition("\n")
    log, size = map(int, first.split())
    return log, size, rest + done.stderr


def test_the_log_of_a_journal_on_a_small_disk(omac: Omac) -> None:
    """The log takes a small part of a small disk while appends never pause, so that events can fill the rest."""
    log, size, _ = on_a_disk_of_its_own(omac)
    assert log < DISK_BYTES / 8
    assert size > DISK_BYTES * 0.8


BACK_TO_WORK = """
omac() { OMAC "$@"; }
mkdir OTHER
omac key rotate 2>said
cat said
sed -n 's/ *#.*//; s/^  try: //; 3,$p' said >again
. ./again
omac key rotate && omac audit verify
"""


@pytest.mark.full
def test_a_disk_that_is_full_of_the_log(omac: Omac) -> None:
    """A journal whose log fills its disk, which an earlier omac may have left, is refused with the commands that
    bring it back to work."""
    log, _, said = on_a_disk_of_its_own(omac, "earlier", then=BACK_TO_WORK.replace("OMAC", shlex.join(COMMAND)))
    assert log > DISK_BYTES / 2
    assert "MiB of it are its write-ahead log, which a copy does not need\n" in said
    assert "events verified" in said, said
