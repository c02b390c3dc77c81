"""The commands that prove what the journal says: `omac audit verify|prove`, `omac proof|checkpoint|key`."""

import time
from typing import Annotated

import typer

from omac.tools.cli.plain_typer import Commands, JournalPath, Json
from omac.tools.terminal.invocation import current

proof_app = Commands(help="Proofs, verified without a journal.")
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


def audit_prove(
    position: Annotated[str, typer.Argument(metavar="POSITION", help="Of the event.")], journal: JournalPath = None
) -> int:
    """Print the proof of one event, which omac proof verify verifies without the journal.

    \b
    omac audit prove 120 > proof.json
    """
    from omac.tools.cli.proof import prove

    return prove(position, journal, current().environment, time.time_ns)


@proof_app.command("consistency")
def proof_consistency(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A checkpoint that you kept.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A later one.")],
    key: Annotated[list[str] | None, typer.Option(help="Who signed them; this host, where you name none.")] = None,
    journal: JournalPath = None,
) -> int:
    """Print the proof that a checkpoint continues an older one, with every event of it.

    \b
    omac proof consistency monday.txt friday.txt > week.json
    omac proof verify week.json --key "$(cat omac.key)"
    """
    from omac.tools.cli.proof import prove_consistency

    return prove_consistency(old, new, tuple(key or ()), journal, current().environment)


@proof_app.command("verify")
def proof_verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A proof.")],
    key: Annotated[list[str], typer.Option(help="A public key, from omac key show.")],
    json: Json = False,
) -> int:
    """Verify a proof by a public key, and print what it proves. Needs no journal.

    \b
    omac proof verify proof.json --key "$(cat omac.key)"
    """
    from omac.tools.cli.proof import verify_proof

    return verify_proof(file, tuple(key), json)


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
