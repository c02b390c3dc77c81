"""The identity of a process, which distinguishes two processes of one pid, from the real /proc."""

import os
import subprocess

from omac.adapters.linux.process_identity import boot_id, is_living, start_ticks, stat_fields


def test_a_boot_has_one_id() -> None:
    """The boot id is stable and looks like the UUID that the kernel makes."""
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36


def test_a_process_begins_once_and_after_its_parent() -> None:
    """A process has one start tick, which is not later than that of its child."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        own, of_child = start_ticks(os.getpid()), start_ticks(child.pid)
        assert own
        assert of_child
        assert own == start_ticks(os.getpid())
        assert own <= of_child
        assert stat_fields(child.pid)[1] == str(os.getpid()).encode()


def test_nobody_has_no_start() -> None:
    """A pid without a process, as of a reaped child, has no start, and is no error."""
    child = subprocess.Popen(["true"])
    child.wait()
    assert start_ticks(child.pid) is None
    assert stat_fields(child.pid) == []


def test_a_process_is_known_by_pid_start_and_boot() -> None:
    """A process lives until it ends, not until it is reaped; another start tick or boot means another process."""
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
