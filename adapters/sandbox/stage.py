"""The last step inside a sandbox: what can be done only after bubblewrap has mounted, then the program itself.

Runs as `python -I -S` in every sandbox that needs it, so it imports next to nothing. It undoes what the way here left
behind: signals that omac blocked and Python changed, descriptors that bubblewrap inherited, a variable that Python set.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part: `signal` itself takes 4 ms to import
import errno
import os
import sys

from omac.adapters.sandbox.terminal import PASSED_ON, default

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence

CANNOT_RUN, NOT_FOUND = 126, 127  # as every shell says it
_SOURCE = "import sys; sys.path.append(sys.argv[1]); from omac.adapters.sandbox.stage import main; main(sys.argv[2:])"


def command(
    argv: Sequence[str],
    fence: tuple[str, ...],
    bind_ports: tuple[int | str, ...] | None = None,
    *,
    words: str = "",
    python: str = sys.executable,
) -> list[str]:
    """Return the command for bubblewrap that in the end runs `argv`; the words that the descriptor `words` reads, each
    but the first behind a NUL, where `argv` is empty. The first word is the program's path inside.

    `python` and omac's own installation must be readable inside. `fence` and `bind_ports` are for `landlock.fence`.
    Call this while signals are as they were when omac began.
    """
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    let_in = [str(int(signal)) for signal in PASSED_ON if signal not in blocked]
    home = __file__
    for _ in range(4):  # omac/adapters/sandbox/stage.py
        home = os.path.dirname(home)
    ports = "any" if bind_ports is None else ",".join(map(str, bind_ports))
    return [python, "-I", "-S", "-c", _SOURCE, home, ",".join(let_in), ports, words, str(len(fence)), *fence, *argv]


def main(arguments: list[str]) -> None:
    """Become the program, or end with CANNOT_RUN or NOT_FOUND and one line that says why."""
    let_in, ports, words, count = _numbers(arguments[0]), arguments[1], arguments[2], int(arguments[3])
    fence, argv = arguments[4 : count + 4], arguments[count + 4 :] or _read(int(words))
    default()
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, let_in)  # with what has come meanwhile
    _take_back_locale()
    if fence:
        from omac.adapters.sandbox.landlock import fence as raise_fence  # only where there is one: it takes 0.5 ms

        try:
            raise_fence(tuple(fence), None if ports == "any" else tuple(filter(None, ports.split(","))))
        except OSError as failure:
            _end(CANNOT_RUN, f"the fence around git's folders could not be set up (Landlock): {failure.strerror}")
    close_descriptors()
    try:
        os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as failure:
        _end(*_why(argv[0], failure))


def _read(descriptor: int) -> list[str]:
    with open(descriptor, "rb") as file:
        return os.fsdecode(file.read()).split("\0")


def _numbers(listed: str) -> list[int]:
    return [int(number) for number in listed.split(",") if number]


def close_descriptors() -> None:
    """Close all but the standard three. Raises OSError without /proc."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError as failure:  # the one that listed them is closed already
                if failure.errno != errno.EBADF:
                    raise


def _take_back_locale() -> None:
    """Python sets LC_CTYPE where the locale is C (PEP 538); the program gets it only if it was there before."""
    if os.environ.get("LC_CTYPE", "").replace("-", "").lower() in ("c.utf8", "utf8"):
        with open("/proc/self/environ", "rb") as first:
            environ = first.read()
        if not environ.startswith(b"LC_CTYPE=") and b"\0LC_CTYPE=" not in environ:
            del os.environ["LC_CTYPE"]


def _why(program: str, failure: OSError) -> tuple[int, str]:
    if failure.errno == errno.ENOENT:
        if os.path.lexists(program):
            return CANNOT_RUN, f"{program} cannot run: the interpreter or loader that it names is not in the sandbox"
        return NOT_FOUND, f"{program} is not in the sandbox"
    if failure.errno == errno.ENOEXEC:
        return CANNOT_RUN, f"{program} cannot run: it has no #! line and is no program for this machine"
    return CANNOT_RUN, f"{program} cannot run: {failure.strerror}"


def _end(status: int, message: str) -> None:
    os.write(2, b"omac: " + os.fsencode(message) + b"\n")
    os._exit(status)
