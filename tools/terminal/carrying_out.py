"""Carrying out a command line for an invocation: every refusal, and what nobody foresaw, ends here, as text."""

import contextlib
import errno
import functools
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar

import omac
from omac.domain.kernel.exhaustion import is_exhaustion
from omac.domain.kernel.refusal import KERNEL_MESSAGES, LIST_LIMITS, Refusal, problem_of
from omac.domain.kernel.terminal_escaping import printable
from omac.journal.folders import MORE_FILES
from omac.tools.entry import FILES_FAILED, MISSING, NO_MEMORY, lacks_memory, not_whole
from omac.tools.terminal.invocation import (
    Invocation,
    current,
    nobody_reads,
    print_message,
    require_written,
    typed_with,
    working_for,
)

INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell says it of a program that SIGPIPE ended
LISTERS = {"SKILL": "omac list  # the skills here", "RUN": "omac ps  # the runs that live"}  # by what is missing

_warned: ContextVar[set[str]] = ContextVar("warned")  # what this invocation warned of `once`


def carry_out(invocation: Invocation, command: Callable[[], int]) -> int:
    """Run `command`, whose exit code it returns, for an invocation; return the exit code of a failure otherwise."""
    with working_for(invocation):
        _warn_on_stderr()
        _warned.set(set())
        try:
            status = _report(removed) if (removed := _removed_folder()) else command()
            require_written()
        except KeyboardInterrupt:
            status = INTERRUPTED
        except BrokenPipeError:
            status = BROKEN_PIPE
        except OSError as error:
            hung_up = error.errno == errno.EIO and nobody_reads(invocation.stdout, 0)
            status = BROKEN_PIPE if hung_up else _report(_removed_folder() or error)  # removed meanwhile
        except Exception as error:
            status = BROKEN_PIPE if _is_unread(error, invocation) else _report(error)
        except BaseExceptionGroup as problems:
            if problems.subgroup(KeyboardInterrupt) is None:
                raise
            status = INTERRUPTED  # within tasks
    return status


def _is_unread(error: Exception, invocation: Invocation) -> bool:
    """Return whether tasks ended because nobody reads what they print any more."""
    if not isinstance(error, ExceptionGroup):
        return False
    outputs = error.subgroup(lambda each: isinstance(each, OSError) and each.errno in (errno.EPIPE, errno.EIO))
    return outputs is not None and nobody_reads(invocation.stdout, 0)


class _ToCaller(logging.Handler):
    """Writes each warning to the stderr of the invocation that it arose in; one with the attribute `once` not again."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(LookupError, OSError, ValueError):  # a thread that outlived its invocation
            if getattr(record, "once", False):
                if record.getMessage() in _warned.get():
                    return
                _warned.get().add(record.getMessage())
            print_message(self.format(record))


class _Printable(logging.Formatter):
    """Names the program, not its part, ahead of a message, and escapes control characters: it can name what an agent
    made."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging names it so
        """Format the line, without a traceback that follows it."""
        return printable(f"{record.name.partition('.')[0]}: {record.message}")


@functools.cache
def _warn_on_stderr() -> None:
    handler = _ToCaller(logging.WARNING)
    handler.setFormatter(_Printable())
    logging.getLogger().addHandler(handler)


def _removed_folder() -> Refusal | None:
    """Return a refusal where the current directory was removed, since relative paths mean nothing there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return Refusal("directory-missing", "the current directory was removed", fix=["cd"])
    return None


def _report(error: Exception) -> int:
    while isinstance(error, ExceptionGroup) and error.split(Refusal)[1] is None:
        error = error.exceptions[0]  # several refusals at once: the first says enough
    if isinstance(error, Refusal):
        from omac.tools.terminal.render import report, report_fix

        warning = next((text for text in _warned.get() if text.startswith(error.message)), "")
        if not warning:
            report(f"omac: {error.message}")
        report_fix(_whole(command) for command in error.fix if not warning.endswith(command))
        return error.exit_code
    show = getattr(error, "show", None)  # click's own usage errors
    if show is not None:
        if type(error).__name__ != "NoArgsIsHelpError":  # whose message is a help: lines, which quote no word
            error.message = printable(getattr(error, "message", ""))  # type: ignore[attr-defined]
        show(file=current().stderr)
        _show_example(error)
        return 2
    return _report_defect(error)


def _whole(fix: str) -> str:
    """Return a command that can be pasted: options alone stand for what was typed, with these."""
    return typed_with(fix) if fix.startswith("--") else fix


def _show_example(error: Exception) -> None:
    """Print the correction that the error has, or the first example of the command's help, where an argument is
    missing, with the command that lists what can be named."""
    from omac.tools.terminal.render import report_fix

    if corrections := getattr(error, "fix", ()):
        report_fix(map(_whole, corrections))
        return
    command = getattr(getattr(error, "ctx", None), "command", None)
    if type(error).__name__ != "MissingParameter" or command is None:
        return
    lines = [line.strip() for line in (command.help or "").splitlines()]
    examples = [line.partition("  ")[0] for line in lines if line.startswith("omac ")]  # without what it is for
    lister = LISTERS.get(str(getattr(getattr(error, "param", None), "metavar", None)))
    report_fix([*examples[:1], *filter(None, [lister])])


def _own_file() -> tuple[int, ...]:
    """The identity of omac's first file: another installation has another; none while one is under way."""
    try:
        status = os.stat(omac.__file__)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns


_OWN = _own_file()


def _report_defect(error: Exception) -> int:
    """Report an unforeseen error in a sentence; its trace goes to a file, for the report of the defect. Where omac was
    installed again meanwhile, its parts do not fit together: report that, by nothing that is still to be loaded."""
    while isinstance(error, ExceptionGroup):  # a refusal among others, such as "omac is stopping", is their consequence
        error = (error.split(Refusal)[1] or error).exceptions[0]
    if lacks_memory(error):
        print_message(f"omac: {NO_MEMORY}")
        return FILES_FAILED
    if isinstance(error, ImportError) or not _OWN or _own_file() != _OWN:
        print_message(f"omac: {not_whole(error)}")
        return MISSING
    import tempfile
    import traceback

    from omac.tools.terminal.render import report, report_fix

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        report(f"omac: no space is left for {error.filename or 'the output'}")
        report_fix(["df -h"])
        return 1
    if isinstance(error, OSError) and is_exhaustion(error):
        report(f"omac: the system refused what omac needs: {problem_of(error)}")
        report_fix([MORE_FILES if error.errno == errno.EMFILE else LIST_LIMITS])
        return FILES_FAILED
    if isinstance(error, OSError) and error.errno == errno.EIO:
        report(f"omac: the disk failed: {problem_of(error)}")
        report_fix([KERNEL_MESSAGES])
        return FILES_FAILED
    report(f"omac: failed unexpectedly ({type(error).__name__}): this is a defect of omac")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="omac-failure-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
    except OSError:
        traceback.print_exception(error, file=current().stderr)
    else:
        report_fix([f"less {file.name}  # and report it"])
    return 1
