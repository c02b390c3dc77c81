"""The entry of the `omac` program: commands that must start within milliseconds are dispatched here, all others to
`omac.tools.main`.

`omac sandbox run` and `omac hook pre-tool-use` delay every command that an agent runs; loading the modules of the other
commands would take twenty times as long as their own work. They are too short-lived to need garbage collection.

All but `omac version` end without finalizing the interpreter: that would take 3 ms, and 50 with the modules of the
others.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than this whole module
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

GC_OBJECTS = 400_000  # twice what a server has loaded
PR_SET_DUMPABLE = 4
SWITCH_S = 0.0001  # a thread that waits for the disk goes on as soon as that is done


INTERRUPTED, MISSING, FILES_FAILED = 130, 4, 5  # as exit codes
NO_MEMORY = "the system refused what omac needs: no memory is left\n  try: ulimit -a  # the limits of this shell"


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    try:
        _begin()
    except KeyboardInterrupt:  # while it was loading
        os._exit(2 if sys.argv[1:3] == ["hook", "pre-tool-use"] else INTERRUPTED)
    except (ImportError, MemoryError, OSError) as problem:
        lacking = lacks_memory(problem)
        if isinstance(problem, OSError) and not lacking:
            raise
        os.write(2, f"omac: {NO_MEMORY if lacking else not_whole(problem)}\n".encode(errors="replace"))
        os._exit(2 if sys.argv[1:3] == ["hook", "pre-tool-use"] else FILES_FAILED if lacking else MISSING)


def lacks_memory(problem: BaseException) -> bool:
    """Return whether it says that no memory is left."""
    try:
        from omac.domain.kernel.exhaustion import is_out_of_memory
    except (ImportError, MemoryError, OSError) as other:
        return not isinstance(other, ImportError)
    return is_out_of_memory(problem)


def not_whole(problem: Exception) -> str:
    """Return in words that a part of omac cannot be loaded, and what mends that; it needs nothing else of omac."""
    return (
        f"its own code cannot be loaded ({problem}): it was installed again while this command ran, or is not whole\n"
        "  try: omac version  # then the same command again\n"
        "  try: uv tool install --reinstall .  # in the checkout"
    )


def _begin() -> None:
    if sys.argv[1:3] != ["sandbox", "run"]:  # which does so itself
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # what a parent left blocked: SIGTERM, or the end of a child
    match sys.argv[1:3]:
        case ["sandbox", "run"]:
            gc.disable()
            sys.setswitchinterval(SWITCH_S)
            from omac.tools.hotpath import code_cache

            code_cache.load("options")
            from omac.tools.hotpath import sandbox_run

            os._exit(sandbox_run.main(sys.argv[3:]))
        case ["hook", "pre-tool-use"]:
            gc.disable()
            try:
                from omac.tools.hotpath import code_cache

                code_cache.load("hook")
                from omac.tools.hotpath import guard_hook

                code_cache.stop()
            except BaseException as problem:  # agents take any status but 2 for consent
                os.write(2, f"omac: the write guard cannot be loaded: {problem}\n".encode(errors="replace"))
                os._exit(2)
            status = guard_hook.main(sys.argv[3:])
            try:
                code_cache.keep()
            finally:
                os._exit(status)
        case ["hook", "session-start" | "session-end" as verb]:
            gc.disable()
            from omac.tools.hotpath import session_hook

            os._exit(session_hook.main(verb, sys.argv[3:]))
        case ["__complete", shell]:  # a person is typing: nothing that was typed is run
            _complete(shell, sys.argv[3:])
        case ["version"] | ["--version"]:
            gc.disable()
            from omac.tools.terminal.version import VERSION

            try:
                os.write(1, f"omac {VERSION}\n".encode())
            except OSError:  # which the other way reports
                _everything_else()
        case _:
            _everything_else()


def _complete(shell: str, words: list[str]) -> NoReturn:
    """Print what may stand in place of the last word."""
    gc.disable()
    from omac.tools.main import complete

    try:
        sys.stdout.write("".join(f"{line}\n" for line in complete(shell, words, os.environ)))
        sys.stdout.flush()
    except Exception:
        os._exit(1)  # a person is typing: no message would help
    os._exit(0)


def _everything_else() -> NoReturn:
    """Run any other command line in this process; a plain one of `omac start` without loading Typer."""
    import datetime  # noqa: F401  # msgspec loads it without noticing a Ctrl-C, and would crash later (SIGSEGV)
    import io

    from omac.tools.hotpath.standard_streams import open_standard

    open_standard()
    _keep_memory_to_oneself()
    gc.set_threshold(GC_OBJECTS)  # what is imported stays: looking through it all the time takes a fifth of a start
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path need not be text
    stdout, stderr = sys.stdout, sys.stderr
    from omac.tools.cli.plain_start import plain_start

    plain = plain_start(sys.argv[1:], os.environ)
    try:
        if plain is not None:
            from omac.tools.terminal.carrying_out import carry_out
            from omac.tools.terminal.invocation import Invocation

            invocation = Invocation(os.environ, sys.stdin, stdout, stderr, True, tuple(sys.argv[1:]))
            status = carry_out(invocation, lambda: plain.run(os.environ))
        else:
            from omac.tools.main import main

            status = main(sys.argv[1:], os.environ, sys.stdin, stdout, stderr, has_terminal=True)
    except SystemExit as ended:  # by a signal at a prompt (terminal/prompts.py)
        status = int(ended.code or 0)
    for stream in (stdout, stderr):
        try:
            stream.flush()
        except OSError:
            pass  # nobody reads it any more
    os._exit(status)


def _keep_memory_to_oneself() -> None:
    """Have no core file made of this process, which may hold secrets, nor its memory read by other processes of this
    user (prctl(2)); programs that it starts are as they were."""
    from omac.adapters.linux.syscall import prctl

    try:
        prctl(PR_SET_DUMPABLE, 0)
    except (OSError, KeyError):
        pass  # another architecture
