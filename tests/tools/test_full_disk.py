"""A full disk: commands that write report it, no event is lost, and the journal can still be read."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac, curl, omac_in
from tools.test_seal_command import folder, moment
from tools.test_snapshots import called_often

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
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Omac, Path]]:
    """Yield a host whose journal is sealed in part, with checkpoints behind that, and a copy of its state."""
    with omac_in(tmp_path_factory.mktemp("host")) as omac:
        omac.approve(omac.project("shop", "echo"), "echo")
        for number in range(3):
            called_often(omac, CALLS)
            omac.ok("checkpoint")
            if not number:
                omac.ok("journal", "seal", "--before", moment())
        omac.ok("journal", "backup", str(omac.folder / "backup.db"))
        copy = tmp_path_factory.mktemp("copy") / "state"
        shutil.copytree(omac.state, copy, symlinks=True)
        yield omac, copy


@contextmanager
def small_disk(omac: Omac, copy: Path) -> Iterator[Filled]:
    """Put the state on a small disk of its own, and yield a function that fills it with a file named ballast."""
    size = sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) // 1024 + 8_000
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(omac.state)), check=True)
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
            (omac.state / "ballast").unlink()
            require_whole(omac)
            if done.status:
                omac.ok(*line, cwd=omac.root / "shop")
            require_whole(omac)
            assert not [*folder(omac).glob("*.draft"), *omac.state.glob("*.restoring*"), *omac.state.glob(".omac-*")]
            require_no_drafts_of_marks(omac)
    assert refused or words == ("checkpoint",)  # which prints what it cannot record


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
