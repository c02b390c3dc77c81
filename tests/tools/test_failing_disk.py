"""A disk that fails under the journal, a skill or a lock."""

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from polling import eventually
from real_omac import Answer, Omac, curl

from omac.services.access.recorder import RECORD_S

FAULTS = ("strace", "-f", "-qq", "-o", "/dev/null")


@pytest.mark.full
def test_a_flush_of_the_journal_fails(omac: Omac) -> None:
    """A disk that does not take what the journal writes is named as the kernel's to explain. Nothing is recorded, and
    the same command works once the disk does."""
    omac.ok("settings", "set", "git.refs", "branch")
    before = omac.events()
    faults = ("-P", f"{omac.state}/journal.db-wal", "-e", "inject=fsync,fdatasync:error=EIO")
    done = omac.process("settings", "set", "git.refs", "all", within=(*FAULTS, *faults))
    assert done.status == 5, done
    assert "disk I/O error" in done.err
    assert "  try: sudo dmesg | tail" in done.err
    assert omac.events() == before
    omac.ok("settings", "set", "git.refs", "all")


@pytest.mark.full
def test_a_skill_cannot_be_read(omac: Omac) -> None:
    """A skill on a disk that fails is refused with the command that shows what the kernel says, not with an editor."""
    omac.ok("skill", "new", "hello", cwd=omac.root)
    folder = omac.root / ".agents" / "skills" / "hello"
    for name in ("omac.yaml", "sidecar.py"):
        within = (*FAULTS, "-P", str(folder / name), "-e", "inject=read:error=EIO")
        done = omac.process("register", "hello", within=within, cwd=omac.root)
        assert (done.status, "Input/output error" in done.err) == (3, True), done
        assert done.err.endswith("\n  try: sudo dmesg | tail  # what the kernel says of the disk\n")


@pytest.mark.full
def test_a_close_fails(omac: Omac) -> None:
    """A disk that fails where omac closes a lock or a folder is reported as that, and is no defect of omac's."""
    omac.ok("skill", "new", "hello", cwd=omac.root)
    omac.ok("approve", "hello", cwd=omac.root)
    settings = f"{omac.environment['XDG_CONFIG_HOME']}/omac"
    os.makedirs(settings, exist_ok=True)
    omac.serve().end()
    for status, path, command, failure in (
        (5, f"{omac.state}/frozen/.lock", ("approve", "hello"), "cannot be used: Input/output error"),
        (5, f"{omac.state}/recovery.lock", ("serve", "--no-inner"), "omac: the disk failed: Input/output error"),
        (5, f"{omac.state}/run/current/lock", ("register", "hello"), "cannot be looked into: Input/output error"),
        (5, settings, ("settings", "set", "git.refs", "all"), "settings.toml cannot be written: Input/output error"),
        (7, f"{omac.state}/inspections/lock", ("sandbox", "run", "--", "true"), "cannot be built: Input/output error"),
    ):
        done = omac.process(*command, within=(*FAULTS, "-P", path, "-e", "inject=close:error=EIO"), cwd=omac.root)
        assert (done.status, failure in done.err) == (status, True), done
        assert "\n  try: sudo dmesg | tail  # what the kernel says of the disk\n" in done.err, done


@pytest.mark.full
def test_calls_that_a_stalled_journal_refuses(omac: Omac) -> None:
    """Each call that is refused while the journal takes no records is counted there later, with a body or without."""
    project = omac.approved("shop")
    base = str(omac.serve().skill(project)["base"])

    def call(body: tuple[str, ...]) -> Answer:
        return curl(*body, f"{base}/status")

    with (
        closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as writer,
        ThreadPoolExecutor() as pool,
    ):
        writer.execute("BEGIN IMMEDIATE")
        calls = [pool.submit(call, body) for body in ((), ("-d", "body"), ("-d", "body"))]
        assert [waiting.result().status for waiting in calls] == [503] * 3
        time.sleep(2 * RECORD_S)  # until the journal has refused all records, in two tries
        writer.execute("ROLLBACK")
    eventually(lambda: sum(row["count"] for row in omac.audit("--outcome", "refused")) == 3, 20.0, "the refusals")
    assert {row["reason"] for row in omac.audit()} == {"journal-unavailable"}
