"""The commands that try a skill from the host: `omac url`, `omac env`, `omac call` and `omac logs`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import JournalPath, Json, Workdir
from omac.tools.compose.clock import now_ns
from omac.tools.terminal.invocation import current, parse_count

Skill = Annotated[str, typer.Argument(metavar="SKILL", help="The skill's name, or its mount.")]


def add_to(app: typer.Typer) -> None:
    for command in (call, url, env, logs):
        app.command()(command)


def call(
    skill: Skill,
    words: Annotated[list[str], typer.Argument(metavar="[METHOD] PATH", help="Such as /status, or POST /messages.")],
    data: Annotated[
        str | None, typer.Option("-d", "--data", metavar="DATA", help="The body: text, @FILE, or - for stdin.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="LINE", help="A header: NAME: VALUE; repeat for more.")
    ] = None,
    workdir: Workdir = None,
) -> int:
    """Send a request to a skill that runs, and print the answer.

    \b
    omac call echo /status
    omac call echo POST /echo -d '{"text": "hi"}'
    """
    from omac.tools.cli.calls import CallRequest, call
    from omac.tools.compose.scope_options import Where

    request = CallRequest(skill, tuple(words), Where(workdir), data, tuple(header or ()))
    return call(request, current().environment)


def url(skill: Skill, workdir: Workdir = None, json: Json = False) -> int:
    """Print the URL of a skill that runs; it holds a token, so keep it to yourself.

    \b
    omac url echo
    curl "$(omac url echo)/status"
    """
    from omac.tools.cli.calls import CallRequest, url
    from omac.tools.compose.scope_options import Where

    return url(CallRequest(skill, where=Where(workdir), json=json), current().environment)


def env(skill: Skill, workdir: Workdir = None, json: Json = False) -> int:
    """Print the variables by which an agent reaches a skill, for your shell.

    \b
    omac env echo
    eval "$(omac env echo)"
    """
    from omac.tools.cli.calls import CallRequest, env
    from omac.tools.compose.scope_options import Where

    return env(CallRequest(skill, where=Where(workdir), json=json), current().environment)


def logs(
    skill: Annotated[str | None, typer.Argument(metavar="SKILL", help="Only this skill.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print lines as they come, until Ctrl-C.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only of starts that ran after this time, or 90s, 15m, 2h ago.")
    ] = None,
    lines: Annotated[str, typer.Option("-n", "--lines", metavar="N", help="The last lines of each log.")] = "50",
    workdir: Workdir = None,
    shared: Annotated[bool, typer.Option("--global", help="Only the skills that all projects share.")] = False,
    journal: JournalPath = None,
) -> int:
    """Show what the sidecars of a project printed.

    \b
    omac logs slack
    omac logs -f --since 10m
    """
    from omac.tools.cli.logs import LogsRequest, run
    from omac.tools.compose.scope_options import Where
    from omac.tools.terminal.timestamps import parse_moment

    moment = parse_moment(since, now_ns, "--since") if since else None
    request = LogsRequest(skill, Where(workdir, shared), follow, moment, parse_count(lines, "--lines"), journal)
    return run(request, current().environment)
