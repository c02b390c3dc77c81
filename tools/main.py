"""The `omac` command: each subcommand parses, calls one service, renders, and chooses the exit code.

Data goes to stdout, everything else to stderr. Heavy imports happen inside the commands that need them.
"""

import functools
import io
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TextIO

import typer

from omac.tools.cli import (
    audit_group,
    bridge_group,
    cache_group,
    export_group,
    go_import_group,
    journal_group,
    proof_group,
    running_group,
    sandbox_group,
    skill_group,
    skills_group,
    try_group,
    values_group,
)
from omac.tools.cli.host_only import require_host
from omac.tools.cli.plain_typer import DIRECTORY_HELP, CommandGroup, Commands, JournalPath, Json
from omac.tools.terminal.carrying_out import INTERRUPTED, carry_out
from omac.tools.terminal.invocation import Invocation, current, working_for


class Root(CommandGroup):
    """All commands, the ones that people need first at the top."""

    sections: ClassVar[Sequence[tuple[str, Sequence[str]]]] = (
        (
            "Run agents",
            (
                "start",
                "continue",
                "resume",
                "serve",
                "sandbox run",
                "ps",
                "top",
                "stop",
                "activate",
                "deactivate",
                "reload",
            ),
        ),
        (
            "Skills",
            ("list", "trust", "register", "approve", "revoke", "approvals", "deregister", "show", "diff", "skill"),
        ),
        ("Try a skill", ("call", "url", "env", "logs")),
        ("Values", ("secrets", "config", "vault", "unlock")),
        ("Records", ("status", "audit", "replay", "export", "erase", "journal", "checkpoint", "proof", "key")),
        (
            "Set-up",
            (
                "doctor",
                "sandbox doctor",
                "settings",
                "bridge",
                "hook",
                "cache",
                "import",
                "completion",
                "man",
                "help",
                "version",
            ),
        ),
    )


app = Commands(
    Root,
    name="omac",
    no_args_is_help=False,
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Run coding agents, their skills' sidecars, and account for every access.

\b
Examples:
  omac start claude                        an agent in this directory
  omac sandbox run -- npm test             any command, in a sandbox
  omac register slack                      approve a skill and set its values
  omac secrets set slack TOKEN             give one secret
  omac serve --no-inner --root ~/projects  serve many projects
  omac status                              what is online
  omac audit --since 1h                    who used which skill
  omac replay --at 120                     the state as it was at position 120

Bare `omac` shows where a project stands; `omac help COMMAND` explains a command.""",
)


def main(
    argv: Sequence[str],
    environment: Mapping[str, str],
    stdin: TextIO | None,
    stdout: TextIO,
    stderr: TextIO,
    *,
    has_terminal: bool = False,
) -> int:
    """Run a command line, without the program's name, and return its exit code; every refusal ends here, as text.
    `has_terminal`: questions may be asked at the terminal of this process."""
    invocation = Invocation(environment, stdin, stdout, stderr, has_terminal, tuple(argv))
    return carry_out(invocation, functools.partial(_run, argv))


def _run(argv: Sequence[str]) -> int:
    command = _command()
    try:
        with command.make_context("omac", list(argv)) as context:
            status = command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def complete(shell: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return what may stand in place of the last of `words`, for a shell (`omac completion`)."""
    from omac.tools.cli.completion import answer

    with working_for(Invocation(environment, None, io.StringIO(), io.StringIO())):
        return answer(_command(), shell, words, environment)


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from omac.tools.terminal.version import show

        raise typer.Exit(show(as_json=False))


Directory = Annotated[str | None, typer.Argument(help=DIRECTORY_HELP)]
Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
]


@app.callback()
def root(context: typer.Context, version: Version = False) -> int | None:
    """The options that go before a command; without one, where the project stands."""
    if context.invoked_subcommand is not None:
        return None
    from omac.tools.cli.overview import run

    require_host("omac", "Show where the project stands, and what comes next.", current().environment)
    return run(current().environment)


running_group.add_to(app)


@app.command()
def activate(directory: Directory = None, json: Json = False) -> int:
    """Ask the running server to bring a directory online, and show its skills.

    \b
    omac activate ~/projects/shop
    """
    from omac.tools.cli.control import run
    from omac.tools.compose.scope_options import project_here

    return run("activate", directory or project_here(), json, current().environment)


@app.command()
def deactivate(directory: Directory = None, json: Json = False) -> int:
    """Ask the running server to take a directory offline.

    \b
    omac deactivate ~/projects/shop
    """
    from omac.tools.cli.control import run
    from omac.tools.compose.scope_options import project_here

    return run("deactivate", directory or project_here(), json, current().environment)


@app.command()
def reload(
    directory: Directory = None,
    restart: Annotated[
        list[str] | None, typer.Option(metavar="SKILL", help="Restart its sidecar, too: one that hangs.")
    ] = None,
    shared: Annotated[bool, typer.Option("--global", help="The global skills instead.")] = False,
    json: Json = False,
) -> int:
    """Have the running server reload a directory's skills; its tokens stay. One that is offline is activated.

    A sidecar goes on where nothing of its skill changed; --restart replaces it all the same.

    \b
    omac reload
    omac reload --restart slack
    """
    from omac.tools.cli.control import run
    from omac.tools.compose.scope_options import project_here

    return run("reload", None if shared else directory or project_here(), json, current().environment, restart)


skills_group.add_to(app)
try_group.add_to(app)
app.add_typer(skill_group.skill_app, name="skill")
values_group.add_to(app)
app.command("import")(go_import_group.import_)
app.add_typer(sandbox_group.sandbox_app, name="sandbox")
app.command("doctor")(sandbox_group.doctor_of_all)
app.add_typer(bridge_group.bridge_app, name="bridge")
app.add_typer(sandbox_group.hook_app, name="hook")
app.add_typer(cache_group.cache_app, name="cache")
app.add_typer(audit_group.audit_app, name="audit")
audit_group.audit_app.command("verify")(proof_group.audit_verify)
audit_group.audit_app.command("prove")(proof_group.audit_prove)
app.add_typer(proof_group.proof_app, name="proof")
app.add_typer(export_group.export_app, name="export")
app.command("checkpoint")(proof_group.checkpoint)
app.add_typer(proof_group.key_app, name="key")
app.add_typer(journal_group.journal_app, name="journal")


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show runs, directories that are online, and failures: from the server, else from the journal."""
    from omac.tools.cli.status import run
    from omac.tools.cli.status import watch as watch_

    return watch_(journal, json, current().environment) if watch else run(journal, json, current().environment)


@app.command()
def replay(
    at: Annotated[str, typer.Option(metavar="POSITION|TIME", help="A position, or a time as for audit --since.")],
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show the state as it was, and the events that led there.

    \b
    omac replay --at 120
    omac replay --at 2026-11-21T14:00 --json
    """
    from omac.tools.cli.replay import run

    return run(at, journal, json, current().environment)


@app.command()
def erase(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A project directory, or its workdir id.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Destroy the key of a directory's personal fields: paths of requests, sessions, command lines, findings. They are
    gone for good; events, proofs and checkpoints stay.

    \b
    omac erase ~/projects/shop
    """
    from omac.tools.cli.erase import EraseOptions, run

    return run(EraseOptions(directory, yes, journal, json), current().environment)


@app.command()
def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> int:
    """Print the completions for a shell: commands, options, skills, harnesses, names of secrets.

    \b
    omac completion bash > ~/.local/share/bash-completion/completions/omac
    omac completion zsh > ~/.zfunc/_omac      # in a folder of $fpath
    omac completion fish > ~/.config/fish/completions/omac.fish
    """
    from omac.tools.cli.completion import script

    return script(shell)


@app.command()
def man(
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Such as start, or secrets set.")] = None,
) -> int:
    """Print the manual page of omac or of a command, made of its help, in roff.

    \b
    omac man start | man -l -
    """
    from omac.tools.cli.manual import run

    return run(_command(), words or [])


@app.command("help")
def help_(
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Such as start, or secrets set.")] = None,
) -> int:
    """Explain a command, or list them all.

    \b
    omac help start
    omac help secrets set
    """
    return _run([*(words or ()), "--help"])


@app.command()
def version(json: Json = False) -> int:
    """Print the version."""
    from omac.tools.terminal.version import show

    return show(json)
