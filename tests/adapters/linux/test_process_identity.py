"""The identity of a process, which distinguishes two processes of one pid, from the real /proc."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from polling import eventually

from omac.adapters.linux import process_identity
from omac.adapters.linux.process import living
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


def test_a_process_lives_without_its_first_thread() -> None:
    """The kernel calls a process a zombie whose first thread alone has ended."""
    script = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as child:
        eventually(lambda: stat_fields(child.pid)[0] == b"Z", 20.0, "the first thread to end")
        ticks = start_ticks(child.pid)
        assert ticks is not None
        assert is_living(child.pid, ticks, boot_id())
        assert living(child.pid, ticks)
        child.kill()


HIDING = """\
sleep 60 &
mount -t proc -o hidepid=$1 proc /proc && exec setpriv --reuid=1 --regid=1 --clear-groups "$2" - $!
"""
UNSEEN = """
import ctypes, signal, sys, time
reader, writer = os.pipe()
child, other = os.fork(), int(sys.argv[1])
if not child:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE, as omac does
    os.write(writer, b"x")
    time.sleep(60)
os.read(reader, 1)
print([stat_fields(child), is_living(child, 1, boot_id()), is_living(child, 1, "another boot")])
print([stat_fields(other), is_living(other, 1, boot_id()), is_living(2**22 - 1, 1, boot_id())])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(is_living(child, 1, boot_id()))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can mount a /proc that hides")
@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_process_that_proc_hides(hidepid: str) -> None:
    """A process of this user that /proc hides, as it hides omac, lives until it is reaped; others are not seen."""
    source = Path(process_identity.__file__).read_text() + UNSEEN  # which that user may not read
    line = ["unshare", "-mpf", "sh", "-c", HIDING, "sh", hidepid, os.path.realpath(sys.executable)]
    done = subprocess.run(line, input=source, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[[], True, False]", "[[], False, False]", "False"], done
