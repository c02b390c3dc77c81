"""Starting a process from the event loop's own thread, plainly or in a pid namespace that bubblewrap builds.

1. `bwrap --die-with-parent` sets PR_SET_PDEATHSIG, which fires when the *thread* that forked ends, not the process
   (prctl(2)). A worker thread ends when it has been idle for some seconds, and would take the sidecar with it. So
   nothing here runs in a worker thread.
2. bubblewrap is a chain of processes: the outer one (our child), the init of the new pid namespace (pid 1 inside),
   and the program. When omac dies, the outer one is killed, then the init, and with an init its whole namespace:
   wrappers, background children and daemons included (pid_namespaces(7)).
3. The namespace hides nothing of the file system and of the network; it bounds the *life* of a sidecar only.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

import msgspec
import trio

from omac.adapters.linux import process

NAMESPACE = ("--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--cap-drop", "ALL")
INFO_WITHIN_S = 5.0
_INFO_BYTES_MAX = 4096


class NoNamespace(Exception):
    """bubblewrap ended, or said nothing, before the namespace stood."""


class _Info(msgspec.Struct):
    """What bubblewrap writes to --info-fd; `child-pid` is the namespace's init as the host sees it."""

    child_pid: int = msgspec.field(name="child-pid")


def start(
    argv: Sequence[str], environment: Mapping[str, str], folder: str, output: int, pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a session leader with stdin from /dev/null, stdout and stderr to `output`, and no other descriptor.

    Must be called in a Trio task (rule 1). Raises OSError, ValueError.
    """
    assert trio.lowlevel.in_trio_task(), "a process must be spawned from the event loop's own thread"
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=dict(environment),
        close_fds=True,
        pass_fds=pass_fds,
        start_new_session=True,
    )


async def start_in_namespace(
    bwrap: str, argv: Sequence[str], environment: Mapping[str, str], folder: str, output: int
) -> tuple[subprocess.Popen[bytes], process.Stat | None]:
    """Start it in a pid namespace of its own; return the outer process and the init (None: ended already).

    Raises OSError, ValueError, NoNamespace; then nothing of it is left, as after a cancellation.
    """
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        line = [bwrap, *NAMESPACE, "--info-fd", str(writer), "--", *argv]
        try:
            outer = start(line, environment, folder, output, pass_fds=(writer,))
        finally:
            os.close(writer)
        try:
            return outer, _init(outer.pid, await _child_pid(reader))
        except BaseException:
            await destroy(outer)
            raise
    finally:
        os.close(reader)


async def destroy(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL a child of ours and reap it, whatever happens to the caller."""
    with trio.CancelScope(shield=True):
        child.kill()
        await reap(child)


async def reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child of ours to end, without blocking the loop; its Popen.returncode."""
    if child.poll() is None:
        descriptor = os.pidfd_open(child.pid)
        try:
            await process.wait_exit(descriptor)
        finally:
            os.close(descriptor)
    return child.wait()


async def _child_pid(reader: int) -> int:
    """Read bubblewrap's JSON, which arrives in pieces, until it is whole."""
    seen = b""
    with trio.move_on_after(INFO_WITHIN_S):
        while len(seen) < _INFO_BYTES_MAX:
            await trio.lowlevel.wait_readable(reader)
            piece = os.read(reader, _INFO_BYTES_MAX)
            if not piece:
                raise NoNamespace("bubblewrap ended before the sidecar started")
            seen += piece
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(seen, type=_Info).child_pid
    raise NoNamespace(f"bubblewrap did not report its pid namespace within {INFO_WITHIN_S:g} s")


def _init(outer: int, pid: int) -> process.Stat | None:
    # The outer process is ours and not reaped, so its pid is certain; a stranger with the init's pid is no child of it.
    found = process.stat(pid)
    return found if found and found.parent == outer else None
