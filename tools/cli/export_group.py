"""`omac export`: evidence taken out of the journal, and its verification."""

from typing import TYPE_CHECKING, Annotated

import typer

from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.audit_group import filtered
from omac.tools.cli.host_only import require_host
from omac.tools.cli.plain_typer import CommandGroup, Commands, JournalPath, Json
from omac.tools.terminal.invocation import current

if TYPE_CHECKING:
    from omac.tools.cli.audit_filters import Typed


class ExportGroup(CommandGroup):
    """A command of its own, with a subcommand."""

    usage = "--out FOLDER [OPTIONS] | verify FOLDER"


export_app = Commands(ExportGroup, no_args_is_help=False, invoke_without_command=True)


@export_app.callback()
@filtered
def export(
    *,
    context: typer.Context,
    out: Annotated[str | None, typer.Option(metavar="FOLDER", help="The folder to make.")] = None,
    form: Annotated[str, typer.Option("--format", help="jsonl, csv, cloudevents, ocsf or parquet.")] = "jsonl",
    redact: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Leave out these kinds or fields: secret,*.path")
    ] = None,
    typed: "Typed",
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Export events with all that proves them, for a verifier without the journal. Filters choose rows of omac audit,
    and the events that begin and end them are exported; without filters, all events. The record of the export and its
    manifest state the filters.

    \b
    omac export --out ~/evidence
    omac export --out ~/march --format csv --since 2026-03-01 --until 2026-03-31
    omac export verify ~/march --key "$(cat omac.key)"
    """
    if context.invoked_subcommand is not None:
        if any(value for name, value in context.params.items() if name not in ("context", "form")):
            raise Refusal("misuse", f"options of {context.invoked_subcommand} go behind it")
        return 0
    require_host("omac export", "Export evidence.", current().environment)
    from omac.tools.cli.export import ExportOptions
    from omac.tools.cli.export import run as make

    if out is None:
        raise Refusal("misuse", "--out is missing: the folder to make", fix=["omac export --out ~/evidence"])
    return make(ExportOptions(form, out, typed, redact, journal, json), current().environment)


@export_app.command("verify")
def export_verify(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="What omac export made.")],
    key: Annotated[list[str], typer.Option(metavar="KEY", help="A public key, from omac key show; repeat for more.")],
    json: Json = False,
) -> int:
    """Verify an export by a public key, without a journal; the exit code is 10 when it is not what was exported.

    The first key of a journal verifies what later ones signed: the export has the rotations that lead to them.

    \b
    omac export verify ~/march --key "$(omac key show)"  # where the journal is
    omac export verify ~/march --key "$(cat omac.key)"   # elsewhere
    """
    from omac.tools.cli.export import verify

    return verify(folder, tuple(key), json)
