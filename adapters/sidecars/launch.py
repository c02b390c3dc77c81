"""Starting a process from the event loop's own thread, plainly or in a pid namespace that bubblewrap builds.

1. `bwrap --die-with-parent` sets PR_SET_PDEATHSIG, which fires when the *thread* that forked ends, not the process
   (prctl(2)). A worker thread ends when it has been idle for some seconds, and would take the sidecar with it. So
   nothing here runs in a worker thread.
2. bubblewrap is a chain of processes: the outer one (our child), the init of the new pid namespace (pid 1 inside),
   and the program. When omac dies, the outer one is killed, then the init, and with an init its whole namespace:
   wrappers, background children and daemons included (pid_namespaces(7)).
3. The init asks for that signal only after it has started its first process, some 2 ms after the namespace's birth, and
   does not look whether its parent is still there: if omac is killed in between, all of it lives on. So the first
   process is a shell that waits for a line from us, given when the init has asked. Without omac there is no line, and
   the shell ends; with it, it becomes the program. And bubblewrap reports into a file, not a pipe: writing to a pipe
   without a reader would end the outer process while the init waits for it, for ever. So it does where the outer
   process is killed in the millisecond in which it sets the namespace up: recovery ends that (`is_unbuilt`).
4. The namespace hides nothing of the file system and of the network; it bounds the *life* of a sidecar only.
5. The program's variables reach bubblewrap through a file (--args), not through its own environment or arguments: both
   can be read in /proc for as long as bubblewrap lives, and secrets are for the program alone.
"""

import contextlib
import io
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import trio

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux import process

NAMESPACE = ("--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--cap-drop", "ALL")
# "$@" is the program; its stdin is not ours to give before the line has come.
GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "omac-gate")
REAP_S = 5.0  # for a killed process to end
BUILD_WITHIN_S = 5.0
_INFO_BYTES_MAX = 4096
_PAUSE_S = 0.0005


class SidecarProgram(NamedTuple):
    """A program to run in `folder`. `read_only` keeps it from changing `folder`, as any user."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    read_only: bool = False


class NoNamespace(Exception):
    """bubblewrap ended, or said nothing, before the namespace stood."""


class _Info(msgspec.Struct):
    """The report that bubblewrap writes to --info-fd; `child-pid` is the namespace's init as the host sees it."""

    child_pid: int = msgspec.field(name="child-pid")


def start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    output: int,
    *,
    stdin: int = subprocess.DEVNULL,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a session leader with stdout and stderr to `output`, and no descriptor that is not named here.

    Must be called in a Trio task (rule 1). Raises OSError, ValueError.
    """
    assert trio.lowlevel.in_trio_task(), "a process must be spawned from the event loop's own thread"
    return subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=dict(environment),
        close_fds=True,
        pass_fds=pass_fds,
        start_new_session=True,
    )


async def start_in_namespace(
    bwrap: str, program: SidecarProgram, output: int
) -> tuple[subprocess.Popen[bytes], process.Stat]:
    """Start it in a pid namespace of its own; return the outer process and the init. Raises OSError, ValueError,
    NoNamespace; then nothing of it is left, as after a cancellation."""
    with _file("bwrap-info") as info, _file("bwrap-args") as more, _pipe() as (gate_reader, gate):
        os.write(more, _more_arguments(program))
        os.lseek(more, 0, os.SEEK_SET)
        line = command_line(bwrap, info, more)
        with gate_reader:
            outer = start(
                [*line, *program.argv], {}, program.folder, output, stdin=gate_reader.fileno(), pass_fds=(info, more)
            )
        init: process.Stat | None = None
        try:
            with trio.fail_after(BUILD_WITHIN_S):
                init = await _init(outer, info)
                await _bound(init)
            gate.write(b"\n")
        except trio.TooSlowError:
            await _clear(outer, init)
            raise NoNamespace(f"bubblewrap did not build its pid namespace within {BUILD_WITHIN_S:g} s") from None
        except BaseException:
            await _clear(outer, init)
            raise
        return outer, init


def command_line(bwrap: str, info: int, more: int) -> list[str]:
    """Return what bubblewrap is started with, up to the program; `info` and `more` are descriptors."""
    return [bwrap, *NAMESPACE, "--info-fd", str(info), "--args", str(more), "--", *GATE]


def is_unbuilt(pid: int) -> bool:
    """Return whether a process is an init that waits for ever, because its outer process is gone: one of this user with
    the command line from above, the first in a pid namespace, which has started nothing."""
    try:
        words = _words(pid)
        line = command_line(words[0], 0, 0) if words else []
        if not words or ["0" if word.isdigit() else word for word in words[: len(line)]] != line:
            return False
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(row.split(":", 1) for row in file if ":" in row)
        parent = int(status["PPid"])
        return (
            os.path.samefile(f"/proc/{pid}/exe", words[0])
            and int(status["Uid"].split()[0]) == os.getuid()
            and status.get("NSpid", "").split()[1:][-1:] == ["1"]
            and parent > 0  # else it is outside of this pid namespace, and may live
            and _words(parent) != words  # the outer process has the same
            and not process.descendants(pid)
        )
    except OSError:  # what cannot be read may live
        return False


async def destroy(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL a child of ours and reap it, whatever happens to the caller; one that the kernel holds is left behind."""
    child.kill()
    with trio.move_on_after(REAP_S, shield=True):
        await reap(child)


async def reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child of ours to end, without blocking the loop, and without a descriptor: there may be none left; its
    Popen.returncode."""
    while (code := child.poll()) is None:  # noqa: ASYNC110  # no event tells of it
        await trio.sleep(_PAUSE_S)
    return code


def _words(pid: int) -> list[str]:
    """The command line of a process; none when there is none, or it is a zombie. Raises OSError: it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


async def _clear(outer: subprocess.Popen[bytes], init: process.Stat | None) -> None:
    # First the init: it may not be bound to the outer process yet.
    if init:
        process.kill(init.pid, init.start_ticks, signal.SIGKILL)
    await destroy(outer)
    for entry in process.everyone() if init is None else ():  # one that was not reported may wait for the outer process
        if is_unbuilt(entry.pid):
            process.kill(entry.pid, entry.start_ticks, signal.SIGKILL)


async def _init(outer: subprocess.Popen[bytes], info: int) -> process.Stat:
    """The namespace's init, as soon as bubblewrap's report, which it writes in pieces, is whole."""
    while outer.poll() is None:
        with contextlib.suppress(msgspec.DecodeError):
            report = msgspec.json.decode(os.pread(info, _INFO_BYTES_MAX, 0), type=_Info)
            init = process.stat(report.child_pid)
            # The outer process is ours and not reaped, so its pid is certain; a stranger would have another parent.
            if init and init.parent == outer.pid:
                return init
        await trio.sleep(_PAUSE_S)
    raise NoNamespace("bubblewrap ended before the sidecar started")


async def _bound(init: process.Stat) -> None:
    """Return once the init has asked to die with its parent (rule 3).

    With a child, the first thing it sleeps on is wait(2), and it asks before that. The kernel shows the request itself
    to nobody else.
    """
    while process.living(init.pid, init.start_ticks):
        # In this order: before it has a child, the init sleeps in other places too.
        if process.descendants(init.pid) and (now := process.stat(init.pid)) and now.state == "S":
            return
        await trio.sleep(_PAUSE_S)
    raise NoNamespace("bubblewrap ended before the sidecar started")


def _more_arguments(program: SidecarProgram) -> bytes:
    """Arguments as bubblewrap reads them from a file: each ended by NUL."""
    words = ["--ro-bind", program.folder, program.folder] if program.read_only else []
    for name, value in program.environment.items():
        words += ["--setenv", name, value]
    if any("\0" in word for word in words):
        raise ValueError("a variable holds NUL")
    return b"".join(os.fsencode(word) + b"\0" for word in words)


@contextlib.contextmanager
def _file(name: str) -> Iterator[int]:
    with Descriptor(os.memfd_create(name)) as descriptor:
        yield descriptor


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[io.FileIO, io.FileIO]]:
    """The two ends of a pipe, unbuffered and close-on-exec; both are closed at the end, if not before."""
    reader, writer = os.pipe()
    with io.FileIO(reader, "r") as first, io.FileIO(writer, "w") as second:
        yield first, second
