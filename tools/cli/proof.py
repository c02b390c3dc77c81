"""omac audit prove, omac proof consistency and omac proof verify: the proofs that need no journal to be checked."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import named
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal import consistency
from omac.journal.checkpoint import Checkpoint, VerifierKey, current_checkpoint, sign
from omac.journal.event_kinds import KINDS
from omac.journal.proof import BYTES_MAX, ProvenEvent, proven
from omac.journal.proof import prove as proof_of
from omac.journal.reader import Reader
from omac.tools.cli.checkpoint import keys_in, read_note, signed_by, signer_for, typed_keys
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import codec_of, mark_of, path_in_use
from omac.tools.compose.state import StateDir, look_at
from omac.tools.terminal.invocation import expanded, is_position, print_data, print_json
from omac.tools.terminal.render import print_folded, print_line
from omac.tools.terminal.timestamps import rfc3339


def prove(position: str, journal_path: str | None, environment: Mapping[str, str]) -> int:
    """Print the proof of an event. Raises Refusal."""
    if not is_position(position):
        raise Refusal("misuse", f"a position is a number from 1, not {position!r}", fix=["omac audit --json"])
    state, signer = StateDir.of(environment), signer_for(journal_path, environment)
    with closing(Reader(signer.path, mark_of(state, signer.path))) as reader:
        codec = codec_of(state, reader)
    checkpoint = current_checkpoint(signer.path, now_ns())
    signer.require_sound_and_open()
    note = sign(checkpoint, *signer.key())
    print_data(proof_of(signer.path, int(position), note, checkpoint, signer.rotations(), codec).decode())
    return 0


def prove_consistency(
    old: str, new: str, keys: Sequence[str], journal_path: str | None, environment: Mapping[str, str]
) -> int:
    """Print the proof that the checkpoint in file `new` continues that in `old`. Raises Refusal."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, journal_path)
    known = keys_in(path, keys, environment)
    notes = read_note(old), read_note(new)
    for file, note in zip((old, new), notes, strict=True):
        signed_by(file, note, *known)
    rotations = signer_for(path, environment).rotations()
    print_data(consistency.prove_consistency(path, *notes, known, rotations).decode())
    return 0


def verify_proof(file: str, keys: Sequence[str], as_json: bool) -> int:
    """Print what a proof proves. Raises Refusal."""
    known = typed_keys(keys)
    path = os.path.abspath(expanded(file))
    try:
        with open(path, "rb") as content:
            text = content.read(BYTES_MAX)
    except OSError as error:
        message = f"the proof {file} cannot be read: {error.strerror}"
        raise Refusal("misuse", message, fix=[look_at(path)]) from None
    if _form(text) == consistency.FORMAT:
        _show_consistency(consistency.proven_consistency(text, known), as_json)
    else:
        _show_event(text, known, as_json)
    return 0


def _form(text: bytes) -> str:
    """The form that a proof says it has; "" for what says none."""
    try:
        return msgspec.json.decode(text, type=_Form).format
    except UNDECODABLE:
        return ""


class _Form(msgspec.Struct, frozen=True):
    """The field that all proofs have in common."""

    format: str


def _show_event(text: bytes, known: Sequence[VerifierKey], as_json: bool) -> None:
    event = proven(text, *known)
    content, checkpoint = event.content, event.checkpoint
    if as_json:
        shown = msgspec.structs.asdict(content) | {"body": event.body, "checkpoint": _data(checkpoint)}
        del shown["sealed"]
        times = {"at": rfc3339(content.at), "happened": None if content.happened is None else rfc3339(content.happened)}
        print_json(shown | times | {"is_late": event.is_late, "event": _fields(event)})
        return
    print_folded(f"proven: position {content.position} of {checkpoint.size} in journal {checkpoint.journal}")
    print_folded(f"  {rfc3339(content.at)} {content.kind} by {content.actor} in {content.stream}", 4)
    print_folded(f"  {_shown(event)}", 4)
    if event.is_late:
        print_line("  its proof was made later than it was recorded")


def _fields(event: ProvenEvent) -> dict[str, Any] | None:
    """The fields of an event by their names; None for a kind that is not known here."""
    kind = event.content.kind
    names = KINDS[kind][1].__struct_fields__ if kind in KINDS else ()
    if not isinstance(event.body, list) or len(event.body) > len(names):
        return None
    return dict(zip(names, event.body, strict=False))


def _shown(event: ProvenEvent) -> str:
    """All fields that hold something, by their names where these are known."""
    fields = _fields(event)
    if fields is None:
        return json.dumps(event.body, default=str)
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items() if value not in (None, "", []))


def _word(value: object) -> str:
    return named(value) if isinstance(value, str) else json.dumps(value, default=str)


def _show_consistency(proven_: consistency.Continuation, as_json: bool) -> None:
    old, new = proven_
    if as_json:
        print_json({"old": _data(old), "new": _data(new)})
        return
    size = counted(new.size, "event")
    print_folded(f"proven: journal {new.journal} at {size} begins with all {old.size} of the old checkpoint")
    for checkpoint in proven_:
        print_folded(f"  {rfc3339(checkpoint.at)} {counted(checkpoint.size, 'event')}, root {checkpoint.root.hex()}", 4)


def _data(checkpoint: Checkpoint) -> dict[str, object]:
    return checkpoint._asdict() | {"at": rfc3339(checkpoint.at), "root": checkpoint.root.hex()}
