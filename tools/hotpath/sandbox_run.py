"""`omac sandbox run`: from words, or a request on a descriptor, to the use case, and from its end to an exit code."""

from __future__ import annotations

import os
import sys
from errno import EAGAIN, EDQUOT, EIO, ENOMEM, ENOSPC

from omac.adapters.git.program import ConfigList
from omac.domain.kernel.refusal import COUNT_PROCESSES, LIST_LIMITS, Refusal, quoted
from omac.domain.kernel.terminal_escaping import SHOWN, printable
from omac.tools.hotpath import code_cache
from omac.tools.hotpath.sandbox_options import COMMAND, help_text, parse
from omac.tools.hotpath.standard_streams import open_standard

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal

    from omac.domain.sandbox.request import SandboxRequest
else:
    import _signal

SANDBOX = 7  # the exit code of what a sandbox refuses
PROGRAM_SHOWN = 100  # characters of a program's own words that a proposed command repeats
REQUEST_DESCRIPTOR = "--request-descriptor"  # what omac start and omac serve hand in: no option of a person's


class Unasked(Exception):
    """The omac above has ended before it asked for a sandbox."""


def main(words: list[str]) -> int:
    """Run the command line after `omac sandbox run`; the exit code."""
    from omac.adapters.sandbox.spawn import withhold_descriptors
    from omac.adapters.sandbox.terminal import Interrupted

    open_standard()
    typed = ["sandbox", "run", *words]
    try:
        withhold_descriptors()
        handed_in = words[:1] == [REQUEST_DESCRIPTOR] and words[1:]
        if not handed_in:  # else that omac has done so, and Ctrl-C stays blocked for now
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # what a parent left blocked
        request = _handed_in(words[1], typed) if handed_in else parse(words)
        if request.help:
            return _printed(help_text())
        return _run(request)
    except Refusal as refusal:
        return _refused(refusal, typed)
    except OSError as problem:  # something was taken away, or is not to be read, between one look and the next
        return _refused(_unbuilt(problem), typed)
    except Unasked:
        return 1
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except KeyboardInterrupt:
        return 130


def _unbuilt(problem: OSError) -> Refusal:
    try:
        os.getcwd()
    except FileNotFoundError:
        return Refusal("directory-missing", "the current directory was removed", fix=["cd"])
    where = f"{problem.filename}: " if problem.filename else ""
    message = f"the sandbox cannot be built: {where}{problem.strerror or problem}"
    if problem.errno == EAGAIN:  # fork(2): a limit of processes
        return Refusal("sandbox-failed", message, fix=[COUNT_PROCESSES])
    if problem.errno == ENOMEM:
        return Refusal("sandbox-failed", message, fix=[LIST_LIMITS])
    if problem.errno in (ENOSPC, EDQUOT, EIO):
        from omac.journal.folders import write_command

        return Refusal("sandbox-failed", message, fix=[write_command(problem, os.path.dirname(problem.filename or ""))])
    return Refusal("sandbox-failed", message, fix=["omac sandbox doctor"])


def _handed_in(descriptor: str, typed: list[str]) -> SandboxRequest:
    """Read the request of the parent omac, as JSON, and return it. Its environment replaces that of this process, and
    the words that were `typed` there replace those here. Modules of a launch are loaded before the request is awaited.
    Raises Refusal (misuse), Unasked."""
    from json import loads

    from omac.adapters.sandbox.orphans import die_with
    from omac.adapters.sandbox.terminal import ORPHANED
    from omac.domain.sandbox.request import request_of

    try:
        with open(int(descriptor), "rb") as file:
            _load()
            content = file.read()
        if not content:
            raise Unasked
        document = loads(content)
        typed[:] = document.get("typed", typed)
        request = request_of(document["request"])
        if not request.command or not all(isinstance(word, str) for word in request.command):
            raise ValueError("no command")
        if request.run:
            die_with(document["by"], ORPHANED)  # the program ends, what it left is inspected
        os.environ.clear()
        os.environ.update(document["environment"])
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGINT])  # see WaitingSandbox
        return request
    except (OSError, ValueError, AttributeError, TypeError, LookupError):
        raise Refusal("misuse", f"{REQUEST_DESCRIPTOR} names no request of omac start or omac serve") from None


def _load() -> None:
    """Load what a launch takes, once."""
    if "omac.services.sandbox.launch" in sys.modules:
        return
    code_cache.load("launch")
    from omac.services.sandbox import launch, policy  # noqa: F401
    from omac.tools.compose import sandbox_ports  # noqa: F401


def _run(request: SandboxRequest) -> int:
    host = dict(os.environ)
    listing = ConfigList(os.path.realpath(request.workdir or "."), host)  # git works meanwhile
    _load()
    from omac.services.sandbox.launch import launch
    from omac.services.sandbox.policy import plan
    from omac.tools.compose.sandbox_ports import SandboxAdapters

    columns = _columns()
    if columns:  # now: what the end takes is loaded before a program could change it
        import unicodedata  # noqa: F401

        from omac.tools.terminal.columns import folded  # noqa: F401

    def report(text: str) -> None:
        _print_error(text, columns)

    ports = SandboxAdapters(host, report)
    if request.explain:
        from omac.services.sandbox.explanation import explained, explained_as_json

        planned = plan(request, ports, listing)
        return _printed((explained_as_json if request.json else explained)(planned))
    status = launch(request, ports, listing)
    if not request.harness:  # which loads more, and takes its time anyway
        code_cache.keep()
    if not request.run:  # else its omac does so
        ports.relieve_spool()
    return status


def _refused(refusal: Refusal, typed: list[str]) -> int:
    """Print the refusal, with its options in the command line that was typed, where nothing in that is wrong; return
    the exit code."""
    _print_error(refusal.message, _columns())
    for command in _mends(refusal, typed):
        options, separator, remark = command.removeprefix(f"{COMMAND} ").partition(" -- COMMAND")
        if separator and options.startswith("--") and refusal.reason != "misuse":
            from omac.tools.terminal.typed_command import with_options  # late: few launches are refused

            at = typed.index("--") + 1 if "--" in typed else len(typed)
            command = with_options([*typed[:at], *_shown_program(typed)], options + remark)
        elif command.startswith("--"):
            command = f"{COMMAND} {command} -- make"
        _print_whole(f"  try: {command}")
    return refusal.exit_code


def _mends(refusal: Refusal, typed: list[str]) -> list[str]:
    """The commands that a refusal proposes. Inside another sandbox, what mends the host is out of reach, and the
    program can run as it is."""
    if os.environ.get("OMAC_SANDBOX") != "1" or refusal.exit_code != SANDBOX:
        return list(refusal.fix)
    program = " ".join(map(quoted, _shown_program(typed)))
    nested = [command for command in refusal.fix if command.startswith(f"{COMMAND} -")]
    return [*nested, f"{program}  # as it is: the sandbox around it confines it already"]


def _shown_program(typed: list[str]) -> list[str]:
    """The program that was typed and its words, or COMMAND where they are long."""
    words = typed[typed.index("--") + 1 :] if "--" in typed else []
    return ["COMMAND"] if len(" ".join(words)) > PROGRAM_SHOWN or "\n" in "".join(words) else words


def _printed(text: str) -> int:
    """The exit code of printing a text in UTF-8, whatever the locale: 141 where nobody reads it any more."""
    try:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    except BrokenPipeError:
        return 141
    except OSError as problem:
        _print_error(f"the output cannot be written: {problem.strerror}")
        return 1
    return 0


def _print_error(text: str, columns: int = 0) -> None:
    """Print a line, folded to `columns`, those that the terminal had before a program could change them: a name with
    blanks does not go on at the left edge, as if it were a line of omac's. Nothing that a program left set hides it."""
    line = printable(f"omac: {text}")
    if columns:
        from omac.tools.terminal.columns import folded

        line = "\n".join(folded(line, min(columns, _columns() or columns), 2))
        line = SHOWN * (os.environ.get("TERM", "dumb") != "dumb") + line
    _write(line)


def _columns() -> int:
    """The columns of the terminal that stderr is; 0: it is none."""
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return 0


def _print_whole(text: str) -> None:
    """Write a text to stderr, without characters that a terminal would obey."""
    _write(printable(text))


def _write(shown: str) -> None:
    """Print a line to stderr. Where nobody reads that any more, it leads nowhere from now on: what the end of a launch
    has to do is done, and its status passed on."""
    try:
        try:
            sys.stderr.write(f"{shown}\n")
        except UnicodeEncodeError:
            sys.stderr.write(f"{shown.encode('ascii', 'backslashreplace').decode()}\n")
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
