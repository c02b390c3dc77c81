"""The commands that prove what the journal says: `omac audit verify|prove`, `omac proof|checkpoint|key`."""

from typing import Annotated

import typer

from omac.domain.kernel.refusal import Refusal
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
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Who signed it; this host, where you name none.")
    ] = None,
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

    request = VerifyRequest(first, last, tuple(checkpoint or ()), tuple(key or ()), journal, json)
    return run(request, current().environment)


def audit_prove(
    position: Annotated[str, typer.Argument(metavar="POSITION", help="Of the event.")], journal: JournalPath = None
) -> int:
    """Print the proof of one event, which omac proof verify verifies without the journal.

    \b
    omac audit prove 120 > proof.json
    """
    from omac.tools.cli.proof import prove

    return prove(position, journal, current().environment)


@proof_app.command("consistency")
def proof_consistency(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A checkpoint that you kept.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A later one.")],
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Who signed them; this host, where you name none.")
    ] = None,
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
    key: Annotated[list[str], typer.Option(metavar="KEY", help="A public key, from omac key show; repeat for more.")],
    json: Json = False,
) -> int:
    """Verify a proof by a public key, and print what it proves. Needs no journal.

    \b
    omac proof verify proof.json --key "$(omac key show)"  # where the journal is
    omac proof verify proof.json --key "$(cat omac.key)"   # elsewhere
    """
    from omac.tools.cli.proof import verify_proof

    return verify_proof(file, tuple(key), json)


def checkpoint(
    received: Annotated[
        bool, typer.Option("--received", help="Print those of other journals that were delivered here.")
    ] = False,
    of: Annotated[str | None, typer.Option(metavar="ID", help="With --received: of this journal alone.")] = None,
    journal: JournalPath = None,
) -> int:
    """Print how far the journal goes and the root of its proofs, signed: keep it where omac cannot write.

    \b
    omac checkpoint > /mnt/elsewhere/monday.txt
    omac checkpoint --received > others.txt      where other omacs deliver theirs
    """
    if received:
        from omac.tools.cli.received import run

        return run(of, journal, current().environment)
    if of is not None:
        raise Refusal("misuse", "--of works only with --received")
    from omac.tools.cli.checkpoint import show

    return show(journal, current().environment)


@key_app.command("show")
def key_show(journal: JournalPath = None, json: Json = False) -> int:
    """Print the public key that verifies checkpoints of the journal, and where the private key is.

    \b
    omac key show > omac.key
    """
    from omac.tools.cli.checkpoint import show_key

    return show_key(journal, json, current().environment)


@key_app.command("rotate")
def key_rotate(
    lost: Annotated[bool, typer.Option("--lost", help="The key is gone: begin a new chain, without it.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Sign with a new key from now on; the journal records it, signed by both, so the old public key leads to it.

    Where the old key is gone, nothing leads to the new one: hand it to those who verify the journal.

    \b
    omac key rotate
    omac key rotate --lost
    """
    from omac.tools.cli.checkpoint import rotate_key

    return rotate_key(lost, journal, json, current().environment)


@key_app.command("move")
def key_move(
    to: Annotated[str, typer.Option("--to", metavar="STORE", help="vault, keychain or file.")],
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Keep the private key in the vault, the keychain or a file. While that is locked, no checkpoint is signed.

    \b
    omac key move --to vault
    """
    from omac.tools.cli.checkpoint import move_key

    return move_key(to, journal, json, current().environment)
