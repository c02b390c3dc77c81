"""The commands that prove what the journal says: `omac audit verify`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import JournalPath, Json
from omac.tools.terminal.invocation import current


def audit_verify(
    first: Annotated[str | None, typer.Option("--from", metavar="POSITION", help="Not before this position.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="POSITION", help="Not after this position.")] = None,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Verify each event against its proof; the exit code is 10 when one is not what was recorded.

    \b
    omac audit verify
    omac audit verify --from 1000 --to 2000 --json
    """
    from omac.tools.cli.verify import VerifyRequest, run

    return run(VerifyRequest(first, last, journal, json), current().environment)
