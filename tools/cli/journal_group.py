"""The commands about the journal's file: `omac journal path`, `stats`, `check`, `repair`, `seal`, `prune`, `backup`,
`restore`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import Commands, JournalPath, Json
from omac.tools.terminal.invocation import current, print_data

journal_app = Commands(help="Show, check, repair, seal, prune, copy and restore the journal.")

Before = Annotated[str | None, typer.Option("--before", metavar="WHEN", help="Events of that time or before.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@journal_app.command("path")
def journal_path(journal: JournalPath = None) -> int:
    """Print where the journal is."""
    from omac.tools.compose.state import StateDir

    print_data(StateDir.of(current().environment).journal_in_use(current().environment, journal))
    return 0


@journal_app.command("stats")
def journal_stats(journal: JournalPath = None, json: Json = False) -> int:
    """Show how much is in the journal, and of what."""
    from omac.tools.cli.journal import stats

    return stats(journal, json, current().environment)


@journal_app.command("check")
def journal_check(journal: JournalPath = None, json: Json = False) -> int:
    """Check every position of the journal; the exit code is 10 when one is damaged. Works beside a server.

    \b
    omac journal check
    """
    from omac.tools.cli.repair import check

    return check(journal, json, current().environment)


@journal_app.command("repair")
def journal_repair(
    position: Annotated[
        list[str] | None, typer.Option("--position", metavar="POSITION", help="Only this, and what follows it.")
    ] = None,
    journal: JournalPath = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, and change nothing.")] = False,
    yes: Yes = False,
) -> int:
    """Set damaged positions aside, so that the journal can be used again. Their bytes are kept, and events say so.

    \b
    omac journal repair --dry-run
    omac journal repair --position 120
    """
    from omac.tools.cli.repair import RepairRequest, positions_of, repair

    return repair(RepairRequest(positions_of(position or ()), journal, dry_run, yes), current().environment)


@journal_app.command("seal")
def journal_seal(
    before: Before = None,
    keep: Annotated[str | None, typer.Option("--keep", metavar="AGE", help="All but events of that age.")] = None,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Move the oldest events, up to a signed checkpoint, into a read-only file. All commands still read them.

    \b
    omac journal seal --keep 400d
    """
    from omac.tools.cli.seal import run

    return run(before, keep, journal, json, current().environment)


@journal_app.command("prune")
def journal_prune(
    keep: Annotated[str | None, typer.Option("--keep", metavar="AGE", help="All but events of that age.")] = None,
    before: Before = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A public key that signed before it was lost.")
    ] = None,
    yes: Yes = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Drop the contents of old sealed events, and keep their proofs and what omac's state follows from.

    \b
    omac journal prune --keep 400d
    """
    from omac.tools.cli.prune import run

    return run(keep, before, tuple(key or ()), yes, journal, json, current().environment)


@journal_app.command("backup")
def journal_backup(
    target: Annotated[str, typer.Argument(metavar="PATH", help="The new file.")],
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Copy the journal to a new file, also while a server uses it.

    \b
    omac journal backup ~/journal-2026-11-22.db
    """
    from omac.tools.cli.backup import backup

    return backup(target, journal, json, current().environment)


@journal_app.command("restore")
def journal_restore(
    source: Annotated[str, typer.Argument(metavar="PATH", help="A backup.")],
    journal: JournalPath = None,
    yes: Yes = False,
) -> int:
    """Replace the journal by a backup, and keep the replaced one beside it. No server may run.

    \b
    omac journal restore ~/journal-2026-11-22.db
    """
    from omac.tools.cli.backup import restore

    return restore(source, journal, yes, current().environment)
