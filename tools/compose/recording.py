"""Records of the journal's proofs that a person asks for: checkpoints, and changes of the signing key."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial

import trio

from omac.domain.access import signing
from omac.domain.access.signing import KeyLost, KeyRotated, RecordLoss, RecordRotation, key_id
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.services.kernel.checkpointing import record_checkpoint
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import carrying, keys_of
from omac.tools.compose.signing import KeyChange, Record, Signer
from omac.tools.compose.state import StateDir, host_id, is_living_run


def recorded_checkpoint(environment: Mapping[str, str], flag: str | None, signer: Signer) -> str:
    """Return the text of a checkpoint that was signed and recorded now. Raises Refusal."""
    signer.prepare()
    with carrying(environment, flag) as journal:
        note = trio.run(record_checkpoint, journal, signer.checkpoint, PERSON)
    return note.text


@contextmanager
def recording(environment: Mapping[str, str], flag: str | None) -> Iterator[Record]:
    """Yield what records changes of the key in the journal that a command means. Raises Refusal."""
    with carrying(environment, flag) as journal:

        def record(command: KeyChange) -> None:
            stream = ids.checkpoint_stream(journal.host)
            trio.run(journal.execute, signing.AGGREGATE, stream, command, PERSON)

        yield record


def recorded_again(state: StateDir, path: str, changes: Sequence[KeyRotated | KeyLost]) -> int:
    """Record the changes of the key that the copy of a journal at `path` lacks, as far as they follow the key that
    signed it last; return how many did. Raises Refusal."""
    from omac.journal.opening import open_journal

    recorded = 0
    # A copy has neither a mark nor a spool.
    opened = open_journal(
        path, secrets.token_hex(6), now_ns, is_living=partial(is_living_run, state), keys=keys_of(state, path)
    )
    with closing(opened):
        journal = OpenedJournal(opened, host_id(state))
        stream = ids.checkpoint_stream(journal.host)
        for change in changes:
            signer = journal.entry(signing.AGGREGATE, stream).state.key
            match change:
                case KeyRotated(old, new, note) if signer in (key_id(old), ""):  # "": nothing was signed
                    command: KeyChange = RecordRotation(old, new, note)
                case KeyLost(old, new, note) if old == signer:
                    command = RecordLoss(old, new, note)
                case _:
                    continue
            trio.run(journal.execute, signing.AGGREGATE, stream, command, PERSON)
            recorded += 1
    return recorded
