"""`omac audit`: the log of accesses, launches and changes of trust; its subcommands answer more."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from omac.tools.cli.host_only import require_host
from omac.tools.cli.plain_typer import CommandGroup, Commands, JournalPath, Json
from omac.tools.terminal.invocation import current


class AuditGroup(CommandGroup):
    """A command of its own, with subcommands."""

    def collect_usage_pieces(self, ctx: Any) -> Sequence[str]:  # type: ignore[override]
        """Return what may stand behind it."""
        return ["[OPTIONS]"]


audit_app = Commands(AuditGroup, no_args_is_help=False, invoke_without_command=True)


@audit_app.callback()
def audit(
    context: typer.Context,
    skill: Annotated[str | None, typer.Option(help="Only this skill.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Only this directory and what is below it.")] = None,
    since: Annotated[str | None, typer.Option(help="Not before: 2026-11-21T14:00, 90s, 15m, 2h or 7d ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Not after; as --since.")] = None,
    outcome: Annotated[str | None, typer.Option(help="completed, aborted, refused, open or done.")] = None,
    kind: Annotated[str | None, typer.Option(help="access, sandbox, guard, skill, secret, control and more")] = None,
    lines: Annotated[str | None, typer.Option("-n", "--lines", metavar="N", help="Only the last N.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what ends from now on.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show who used which skill, each access once, and who may: each change of trust, the newest last.

    \b
    omac audit --skill echo --since 1h
    omac audit -n 20 --follow
    omac audit --kind access --outcome refused --json
    """
    if context.invoked_subcommand is not None:
        return 0
    require_host("omac audit", "Show who used which skill.", current().environment)
    from omac.tools.cli.audit import AuditRequest, Filter, run
    from omac.tools.terminal.invocation import parse_count

    wanted = Filter.of(skill, directory, since, until, outcome, kind, time.time_ns)
    count = parse_count(lines, "-n") if lines is not None else None
    return run(AuditRequest(wanted, count, follow, journal, json), current().environment)
