"""The commands that run agents: `omac start` and `omac serve`, with the options of the sandbox that both take."""

import inspect
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omac.domain.harness.names import NAMES, listed
from omac.domain.kernel.refusal import quoted
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.cli.plain_typer import Command, JournalPath, Json, Workdir, taking
from omac.tools.hotpath.sandbox_options import OPTIONS, Option, parse_options
from omac.tools.terminal.invocation import current, parse_count

if TYPE_CHECKING:
    from omac.tools.cli.start import StartRequest

WORDS = "omac.words"  # in the context: what stands after --, None where nothing does

Agent = Annotated[str | None, typer.Argument(metavar="HARNESS", help=f"{listed(NAMES, 'or')}.")]
NoSandbox = Annotated[bool, typer.Option("--no-sandbox", help="Launch without a sandbox, with all your rights.")]
Unapproved = Annotated[str | None, typer.Option(metavar="HOW", help="Unapproved skills: refuse or allow.")]
BridgeCompat = Annotated[
    bool, typer.Option("--bridge-compat", help="Serve bridges written for the Go omac, without a token; this run only.")
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-skill-changes", help="Run approved skills whose code has changed; this run only.")
]


Audit = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="Calls: strict, each waits for its record, or buffered, a second ahead at most."),
]


Explain = Annotated[bool, typer.Option("--explain", help="Print what the agent would get; start nothing.")]
JsonOfExplanation = Annotated[bool, typer.Option("--json", help="With --explain: print it for programs.")]


class WithWords(Command):
    """A command line of omac's own words, then, after `--`, those of another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[WORDS] = args[at + 1 :] if at < len(args) else None
        try:
            return super().parse_args(ctx, args[:at])
        except Exception as error:
            if at == len(args) and not hasattr(error, "fix") and (fix := _with_dashes(ctx, args, error)):
                error.fix = [f"{fix}  # words of another program come after --"]  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORDS...]"]


def _with_dashes(ctx: Any, args: list[str], error: Exception) -> str:
    """Return the command line with `--` ahead of the words that are none of omac's; empty where all seem to be."""
    from omac.domain.harness.table import HARNESSES  # late: most command lines need none of them

    names = [name for harness in HARNESSES for name in (harness.name, *harness.aliases)]
    behind = next((at for at, word in enumerate(args, 1) if word in names), 0)  # behind the agent's name, if any
    if ctx.info_name in ("continue", "resume"):  # which take none
        before = args[: max(0, behind - 1)]
        args, behind = [*before, *args[behind:]], len(before)
    option = getattr(error, "option_name", "")
    is_word_next = behind < len(args) and not args[behind].startswith("-")
    begin_here = is_word_next and (behind or (ctx.info_name == "start" and shutil.which(args[0])))
    if option and not begin_here:
        first = next((at for at, word in enumerate(args) if word.startswith(option)), 0)
        is_others = ctx.info_name in ("continue", "resume") or 0 < behind <= first
    else:
        first = behind
        is_others = is_word_next and (bool(option) or "unexpected extra" in str(error))
    return " ".join([ctx.command_path, *map(quoted, args[:first]), "--", *map(quoted, args[first:])]) * is_others


def sandboxed(command: Callable[..., int]) -> Callable[..., int]:
    """Let a command take the options of the sandbox; its parameter `sandbox` gets them as a request."""
    name = f"omac {_name(command)}"

    def request(**values: Any) -> SandboxRequest:
        typed: list[str] = []
        for option, value in values.items():
            flag = f"--{option.replace('_', '-')}"
            for item in value if isinstance(value, list) else [value]:
                typed += [flag] if item is True else [flag, item] if item else []
        return parse_options(typed, name)

    options = [_parameter(option) for option in OPTIONS if option.shared]
    request.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # what `taking` reads
    return taking("sandbox", request)(command)


def _parameter(option: Option) -> inspect.Parameter:
    """The parameter that typer makes the option of; `omac sandbox run` checks its value by its own parser."""
    type_ = list[str] | None if option.repeats else str | None if option.takes else bool
    text = option.text[0].upper() + option.text[1:]
    declared = typer.Option(option.name, metavar=option.takes or None, help=f"{text}.")
    name = option.name.removeprefix("--").replace("-", "_")
    default = None if option.takes else False
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, declared]
    )


def add_to(app: typer.Typer) -> None:
    for command in (start, continue_, resume, serve):
        app.command(_name(command), cls=WithWords)(sandboxed(command))
    for listing in (ps, top, stop):
        app.command()(listing)


def _name(command: Callable[..., int]) -> str:
    return command.__name__.rstrip("_")


def _start_request(
    *,
    context: typer.Context,
    workdir: Workdir = None,
    no_sandbox: NoSandbox = False,
    unapproved: Unapproved = None,
    accept_skill_changes: AcceptChanges = False,
    bridge_compat: BridgeCompat = False,
    audit: Audit = None,
    explain: Explain = False,
    journal: JournalPath = None,
    json: JsonOfExplanation = False,
    sandbox: SandboxRequest,
) -> "StartRequest":
    """Return the request that the options of `omac start` make."""
    from omac.tools.cli.start import StartRequest

    return StartRequest(
        None, context.meta[WORDS], workdir, no_sandbox, sandbox, unapproved, accept_skill_changes, bridge_compat,
        audit, journal, explain, json,
    )  # fmt: skip


starting = taking("request", _start_request)


@starting
def start(*, harness: Agent = None, request: "StartRequest") -> int:
    """Run an agent, or any command, in one directory, with the directory's skills, in a sandbox.

    With a HARNESS, words after -- are arguments for that agent; without one, they are the command.

    \b
    omac start claude                               an agent
    omac start claude -- --resume                   with arguments of its own
    omac start claude --explain                     what it would be given
    omac start -- bash                              a shell
    omac start -- sh -c 'curl $OMAC_ECHO_BASE/hi'   use of a skill
    """
    from omac.tools.cli.start import run

    return run(request._replace(harness=harness), current().environment)


@starting
def continue_(
    *,
    session: Annotated[str | None, typer.Option("-s", "--session", metavar="ID", help="That session of it.")] = None,
    request: "StartRequest",
) -> int:
    """Start the agent that ran last in this project again, with its last session.

    Words after -- are further arguments for it.

    \b
    omac continue                     where it ended
    omac continue -s 0b3c             in the session that the agent calls so
    omac continue -- -p "and tests?"  with arguments of its own
    """
    from omac.tools.cli.resume import run

    return run("continue", request, session, current().environment)


@starting
def resume(request: "StartRequest") -> int:
    """Start the agent that ran last in this project again, and choose one of its sessions.

    The agent itself shows the list. Words after -- are further arguments for it.
    """
    from omac.tools.cli.resume import run

    return run("resume", request, None, current().environment)


def ps(journal: JournalPath = None, json: Json = False) -> int:
    """List the runs that live: each omac start and omac serve, with its skills.

    omac status shows them too, beside what is online and what failed.
    """
    from omac.tools.cli.ps import run

    return run(journal, json, current().environment)


def top(
    lines: Annotated[
        str | None, typer.Option("-n", "--lines", metavar="N", help="Show it N times, one second apart.")
    ] = None,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show how often agents call skills right now, by skill and session, until Ctrl-C ends it.

    Where the output is no terminal, it is shown once, unless --json or -n asks for more. FAILED are calls that were
    refused, cut off or answered with 5xx.

    \b
    omac top
    omac top --json          one object each second, until it is ended
    omac top -n 60 --json    the same, for a minute
    """
    from omac.tools.cli.top import run

    return run(journal, parse_count(lines, "--lines") if lines is not None else None, json, current().environment)


def stop(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or a pid, as omac ps lists them.")],
    journal: JournalPath = None,
) -> int:
    """End a run in order: its agent is asked to end, then its skills are stopped.

    \b
    omac stop 4711          by its pid
    omac stop 0b5c3a1f9e77  by its name
    """
    from omac.tools.cli.ps import stop as stop_

    return stop_(run, journal, current().environment)


def serve(
    *,
    context: typer.Context,
    harness: Agent = None,
    root: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="Directories below it may be activated.")
    ] = None,
    workdir: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="Activate these directories at once.")
    ] = None,
    no_inner: Annotated[bool, typer.Option("--no-inner", help="Launch no agent.")] = False,
    no_sandbox: NoSandbox = False,
    unapproved: Unapproved = None,
    accept_skill_changes: AcceptChanges = False,
    bridge_compat: BridgeCompat = False,
    audit: Audit = None,
    control_addr: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the control plane listens.")
    ] = "127.0.0.1:0",
    facade_addr: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the facade listens.")] = "127.0.0.1:0",
    witness_addr: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Keep the checkpoints of other omacs, delivered here.")
    ] = None,
    journal: JournalPath = None,
    json: Json = False,
    sandbox: SandboxRequest,
) -> int:
    """Serve the skills of many project directories, to an agent in a sandbox, until it ends or omac is stopped.

    With a HARNESS, words after -- are arguments for that agent; without one, they are the command. The agent may
    change what is below the roots.

    \b
    omac serve opencode --root ~/projects           an agent for many directories
    omac serve opencode -- --port 4096              with arguments of its own
    omac serve --root ~/projects -- bash            any other command
    omac serve --no-inner --json --root ~/projects  no agent
    """
    from omac.tools.cli.serve import ServeRequest, run

    request = ServeRequest(
        harness, context.meta[WORDS], root or [], workdir or [], no_inner, no_sandbox, sandbox, unapproved,
        accept_skill_changes, bridge_compat, audit, control_addr, facade_addr, witness_addr, journal, json,
    )  # fmt: skip
    return run(request, current().environment)
