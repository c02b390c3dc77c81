"""A disk that fails under the journal."""

import pytest
from real_omac import Omac


@pytest.mark.full
def test_a_flush_of_the_journal_fails(omac: Omac) -> None:
    """A disk that does not take what the journal writes is named as the kernel's to explain. Nothing is recorded, and
    the same command works once the disk does."""
    omac.ok("settings", "set", "git.refs", "branch")
    before = omac.events()
    faults = ("-P", f"{omac.state}/journal.db-wal", "-e", "inject=fsync,fdatasync:error=EIO")
    within = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", *faults)
    done = omac.process("settings", "set", "git.refs", "all", within=within)
    assert done.status == 5, done
    assert "disk I/O error" in done.err
    assert "  try: sudo dmesg | tail" in done.err
    assert omac.events() == before
    omac.ok("settings", "set", "git.refs", "all")
