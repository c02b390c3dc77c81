"""The witness that the settings mean, and the notes for it."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from omac.adapters.files.note_file import NoteFile
from omac.adapters.linux.system_log import JOURNALD, SYSLOG, JournaldWitness, SyslogWitness, present
from omac.adapters.settings.files import read_user
from omac.domain.access import signing, witness
from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.settings import Resolved, resolve
from omac.journal.codec import Codec
from omac.journal.reader import Reader, recorded
from omac.services.kernel.witnessing import Witness
from omac.tools.compose.journals import read_if_any, system_of
from omac.tools.compose.signing import Signer
from omac.tools.compose.state import StateDir, host_id


class FoundWitness(NamedTuple):
    """The witness that keeps checkpoints ("" for none), whether the settings refuse any, and the outcome of the last
    deliveries. `is_emptied`: its file is without the last of them. `file` is where it keeps them, or where the token of
    one elsewhere is; "" for none."""

    name: str
    is_refused: bool
    state: witness.Witnessed
    is_emptied: bool = False
    file: str = ""

    @property
    def is_contested(self) -> bool:
        """Return whether a witness has seen more of this journal, or another one: a backup was restored, maybe."""
        from omac.adapters.http.remote_witness import CONTESTED

        return self.state.problem.startswith(CONTESTED)


def found_witness(environment: Mapping[str, str], state: StateDir) -> FoundWitness:
    """Return what is known of the witness, as far as settings and journal can be read: other findings tell of these."""
    delivered = witness.Witnessed()
    resolved = resolve({}, {}, None, None)
    try:
        resolved = resolve({}, environment, None, read_user(environment))
        with read_if_any(state, state.journal_in_use(environment)) as journal:
            if journal is not None and os.path.exists(state.path):
                delivered = system_of(journal, state).of(witness.AGGREGATE)[ids.witness_stream(host_id(state))].state
    except Refusal:
        pass
    means = witness_of(resolved)
    name = means.name if means else ""
    is_emptied = isinstance(means, NoteFile) and delivered.witness == name and means.lacks(delivered.size)
    is_remote = "://" in name
    file = resolved["journal.witness_token"].value if is_remote else name if name.startswith("/") else ""
    return FoundWitness(name, resolved["journal.witness"].value == "none", delivered, is_emptied, file)


def witness_of(resolved: Mapping[str, Resolved], signer: Signer | None = None) -> Witness | None:
    """Return who is meant by the settings; None for nobody. `signer` is the key of the journal, to deliver by HTTP."""
    match resolved["journal.witness"].value:
        case "none":
            return None
        case "journald":
            return JournaldWitness()
        case "syslog":
            return SyslogWitness()
        case "auto":
            if present(JOURNALD):
                return JournaldWitness()
            return SyslogWitness() if present(SYSLOG) else None
        case path if path.startswith("/"):
            return NoteFile(path)
        case url:
            from omac.adapters.http.remote_witness import RemoteWitness  # few have one, and it takes 3 ms to load

            return RemoteWitness(url, resolved["journal.witness_token"].value, partial(_proof, signer))


def _proof(signer: Signer | None) -> tuple[str, Sequence[str]]:
    assert signer is not None, "only a run delivers"
    return signer.public(), signer.rotations()


def last_note(path: str, host: HostId) -> str:
    """Return the note of the last checkpoint that a host recorded in the journal at `path`; "" where there is none.
    Raises Refusal."""
    with closing(Reader(path)) as reader:
        for row in reader.newest_first(ids.checkpoint_stream(host)):
            event = recorded(path, Codec(), row).event
            if isinstance(event, signing.CheckpointSigned):
                return event.note
    return ""
