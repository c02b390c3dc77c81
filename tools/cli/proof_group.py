"""The commands that prove what the journal says: `omac audit verify`, `omac checkpoint`, `omac key`."""

import time
from typing import Annotated

import typer

from omac.tools.cli.plain_typer import Commands, JournalPath, Json
from omac.tools.terminal.invocation import current

key_app = Commands(help="The key that signs checkpoints of the journal.")


def audit_verify(
    first: Annotated[str | None, typer.Option("--from", metavar="POSITION", help="Not before this position.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="POSITION", help="Not after this position.")] = None,
    checkpoint: Annotated[
        list[str] | None, typer.Option("--checkpoint", metavar="FILE", help="A checkpoint that you kept.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Who signed it; this host, where you name none.")] = None,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Verify each event against its proof; the exit code is 10 when one is not what was recorded.

    \b
    omac audit verify
    omac audit verify --checkpoint /mnt/elsewhere/monday.txt
    omac audit verify --from 1000 --to 2000 --json
    """
    from omac.tools.cli.verify import VerifyRequest, run

    request = VerifyRequest(first, last, tuple(checkpoint or ()), key, journal, json)
    return run(request, current().environment)


def checkpoint(journal: JournalPath = None) -> int:
    """Print how far the journal goes and the root of its proofs, signed: keep it where omac cannot write.

    \b
    omac checkpoint > /mnt/elsewhere/monday.txt
    """
    from omac.tools.cli.checkpoint import show

    return show(journal, current().environment, time.time_ns)


@key_app.command("show")
def key_show(json: Json = False) -> int:
    """Print the public key that verifies checkpoints of this host."""
    from omac.tools.cli.checkpoint import show_key

    return show_key(json, current().environment)
