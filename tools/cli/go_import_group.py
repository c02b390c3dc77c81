"""The command `omac import`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import JournalPath, Json
from omac.tools.terminal.invocation import current


def import_(
    workdir: Annotated[str | None, typer.Option("--workdir", metavar="DIR", help="The project directory.")] = None,
    harness: Annotated[str | None, typer.Option("--harness", help="Only skills that this coding agent sees.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    project_settings: Annotated[
        bool,
        typer.Option(
            "--project-settings",
            help="Import settings from the project's own file too, with --yes unreviewed. An agent may have written "
            "them to send secrets elsewhere.",
        ),
    ] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Import the skills, approvals, settings, secrets and sandbox profiles of the Go omac.

    It shows first what it would do, and asks. What is there already stays; the old files and entries stay too.

    \b
    omac import --dry-run
    omac import --workdir ~/projects/shop
    omac import --yes --project-settings
    """
    from omac.tools.cli.go_import import ImportRequest, run

    return run(
        ImportRequest(workdir, harness, dry_run, yes, project_settings, journal, json),
        current().environment,
    )
