"""`omac audit`: accesses, launches and changes of trust; subcommands answer more about single records."""

from typing import TYPE_CHECKING, Annotated

import typer

from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.host_only import require_host
from omac.tools.cli.plain_typer import CommandGroup, Commands, JournalPath, Json, taking
from omac.tools.terminal.invocation import current, parse_count

if TYPE_CHECKING:
    from omac.tools.cli.audit_filters import Typed


class AuditGroup(CommandGroup):
    """A command of its own, with subcommands."""

    usage = "[OPTIONS] [COMMAND ...]"


audit_app = Commands(AuditGroup, no_args_is_help=False, invoke_without_command=True)


def _typed(
    skill: Annotated[str | None, typer.Option(help="Only this skill; '' for rows without one.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Only this directory and those below it.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session; '' for rows without one.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only this run; its id is in omac ps and --csv.")] = None,
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this agent; '' for rows without one.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Not before: 2026-11-21T14:00, 90s, 15m, 2h or 7d ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Not after; as --since. A date: to its end.")] = None,
    outcome: Annotated[str | None, typer.Option(help="completed, aborted, refused, open or done.")] = None,
    kind: Annotated[str | None, typer.Option(help="access, sandbox, guard, skill, secret, control and more")] = None,
    actor: Annotated[str | None, typer.Option(help="person, bridge, agent or omac.")] = None,
    status: Annotated[str | None, typer.Option(help="A status, as 404; a class, 5xx; or a range, 400-499.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this HTTP method.")] = None,
    path: Annotated[str | None, typer.Option(metavar="GLOB", help="Only these paths: '/v1/*'.")] = None,
    text: Annotated[str | None, typer.Option(help="Only rows with this text in their path, detail or names.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="POSITION", help="Not before this position.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="POSITION", help="Not after this position.")] = None,
) -> "Typed":
    """Return the filters of the audit, as typed."""
    from omac.tools.cli.audit_filters import Typed

    return Typed(
        skill, directory, session, actor, kind, outcome, status, method, path, text, since, until, first, last, run,
        client,
    )  # fmt: skip


filtered = taking("typed", _typed)


@audit_app.callback()
@filtered
def audit(
    context: typer.Context,
    typed: "Typed",
    lines: Annotated[
        str | None,
        typer.Option("-n", "--lines", metavar="N", help="Only the last N rows, also where --count-by counts."),
    ] = None,
    count_by: Annotated[
        str | None, typer.Option(metavar="FIELDS", help="Count accesses and changes: skill,session")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Resume behind it, by when rows ended; start: from the first.")
    ] = None,
    page: Annotated[str | None, typer.Option(metavar="N", help="With --after: at most N rows, then a cursor.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print rows as they end, until Ctrl-C.")] = False,
    journal: JournalPath = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    json: Json = False,
) -> int:
    """Show who used which skill, each access once, and who may: each change of trust, the newest last.

    \b
    omac audit --skill echo --since 1h
    omac audit -n 20 --follow
    omac audit --kind access --outcome refused --json
    omac audit --status 5xx --count-by skill,session
    omac audit --after start --page 1000 --json
    """
    if context.invoked_subcommand is not None:
        if any(value for name, value in context.params.items() if name != "context"):
            raise Refusal("misuse", f"options of {context.invoked_subcommand} go behind it")
        return 0
    require_host("omac audit", "Show who used which skill.", current().environment)
    from omac.tools.cli.audit import AuditRequest
    from omac.tools.cli.audit import run as show
    from omac.tools.cli.audit_filters import fields_of, form_of, query_of

    request = AuditRequest(
        query_of(typed), parse_count(lines, "--lines") if lines is not None else None, follow, journal,
        form_of(csv=csv, json=json), fields_of(count_by), after,
        parse_count(page, "--page") if page is not None else None,
    )  # fmt: skip
    return show(request, current().environment)


@audit_app.command("explain")
def audit_explain(
    position: Annotated[str, typer.Argument(metavar="POSITION", help="The position of a record.")],
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show what caused a record, what it caused, why a call was refused or cut off, which secrets the called sidecar
    had, and what else belongs to its conversation, as a tree.

    \b
    omac audit explain 120
    """
    from omac.tools.cli.audit_explain import run
    from omac.tools.cli.audit_filters import position_of

    return run(position_of(position, "omac audit explain"), journal, json, current().environment)
