"""What tells two processes of one pid apart, asked of the real /proc."""

import os
import subprocess

from omac.adapters.linux.process_identity import boot_id, is_living, start_ticks, stat_fields


def test_a_boot_has_one_id() -> None:
    """The boot id is stable and looks like the UUID that the kernel makes."""
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36


def test_a_process_begins_once_and_after_its_parent() -> None:
    """Asked twice, a process began at the same tick, and no later than its child."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        mine, of_child = start_ticks(os.getpid()), start_ticks(child.pid)
        assert mine
        assert of_child
        assert mine == start_ticks(os.getpid())
        assert mine <= of_child
        assert stat_fields(child.pid)[1] == str(os.getpid()).encode()


def test_nobody_has_no_start() -> None:
    """A pid that nobody has is None, not an error; a reaped child is nobody."""
    child = subprocess.Popen(["true"])
    child.wait()
    assert start_ticks(child.pid) is None
    assert stat_fields(child.pid) == []


def test_a_process_is_known_by_pid_start_and_boot() -> None:
    """It lives until it ends, not until it is reaped; a stranger with its pid, or another boot's process, is not it."""
    with subprocess.Popen(["sleep", "60"]) as child:
        ticks, boot = start_ticks(child.pid), boot_id()
        assert ticks is not None
        assert is_living(child.pid, ticks, boot)
        assert not is_living(child.pid, ticks - 1, boot)
        assert not is_living(child.pid, ticks, "another boot")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_living(child.pid, ticks, boot)
    assert not is_living(child.pid, ticks, boot)
