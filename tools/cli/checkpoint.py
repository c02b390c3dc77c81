"""omac checkpoint, omac key show, omac audit prove and omac proof verify: what an outsider holds the journal to."""

import json
import os
from collections.abc import Callable, Mapping, Sequence

from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.checkpoint import TEXT_MAX, Checkpoint, VerifierKey, sign, standing, verified, verifier_of
from omac.journal.reader import ReadJournal
from omac.journal.verification import KeptRoot
from omac.tools.compose.journals import mark_of
from omac.tools.compose.signing import signing_key
from omac.tools.compose.state import StateDir, host_id
from omac.tools.terminal.invocation import expanded, print_data, print_json
from omac.tools.terminal.render import say
from omac.tools.terminal.timestamps import rfc3339


def show(journal_path: str | None, environment: Mapping[str, str], clock: Callable[[], int]) -> int:
    """Print the journal's checkpoint. Raises Refusal."""
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, journal_path)
    ReadJournal(path, mark_of(state, path)).close()  # an older copy of the journal is signed for nobody
    name, seed = _signing_key(state)
    print_data(sign(standing(path, clock()), name, seed).removesuffix("\n"))
    return 0


def prove(position: str, journal_path: str | None, environment: Mapping[str, str], clock: Callable[[], int]) -> int:
    """Print the proof of an event. Raises Refusal."""
    from omac.journal.proof import prove as proof_of

    if not position.isascii() or not position.isdigit():
        raise Refusal("misuse", f"a position is a number from 1, not {position!r}", fix=["omac audit --json"])
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, journal_path)
    checkpoint = standing(path, clock())
    note = sign(checkpoint, *_signing_key(state))
    print_data(proof_of(path, int(position), note, checkpoint).decode())
    return 0


def verify_proof(file: str, key: str, as_json: bool) -> int:
    """Print the event that a proof proves. Raises Refusal."""
    from omac.journal.proof import BYTES_MAX, proven

    known = VerifierKey.parse(key)
    path = os.path.abspath(expanded(file))
    try:
        with open(path, "rb") as content:
            text = content.read(BYTES_MAX)
    except OSError as error:
        raise Refusal(
            "misuse", f"the proof {file} cannot be read: {error.strerror}", fix=[f"ls -l {quoted(path)}"]
        ) from None
    event = proven(text, known)
    if as_json:
        checkpoint = event.checkpoint._asdict() | {"root": event.checkpoint.root.hex()}
        print_json(event._asdict() | {"checkpoint": checkpoint})
        return 0
    say(f"proven: position {event.position} of {event.checkpoint.size} in journal {event.checkpoint.journal}")
    say(f"  {rfc3339(event.at)} {event.kind} by {event.actor} in {event.stream}")
    say(f"  {json.dumps(event.body, default=str)}")
    if event.is_late:
        say("  its proof was made later than it was recorded")
    return 0


def show_key(as_json: bool, environment: Mapping[str, str]) -> int:
    """Print the public key that verifies checkpoints of this host. Raises Refusal."""
    state = StateDir.of(environment)
    key = verifier_of(*_signing_key(state))
    if as_json:
        print_json({"name": key.name, "key": key.text(), "kept_in": state.signing_key_path})
    else:
        print_data(key.text())
    return 0


def known_key(key: str | None, environment: Mapping[str, str]) -> VerifierKey:
    """Return the public key that is meant: that of this host where none is named. Raises Refusal."""
    return VerifierKey.parse(key) if key else verifier_of(*_signing_key(StateDir.of(environment)))


def kept_roots(
    files: Sequence[str], key: str | None, journal: str, journal_id: str, environment: Mapping[str, str]
) -> list[KeptRoot]:
    """Return the roots of checkpoints in files, signed by `key`, or by this host. Raises Refusal."""
    known = known_key(key, environment)
    roots = []
    for file in files:
        checkpoint = _read(file, known)
        if checkpoint.journal != journal_id:
            message = f"{file} is a checkpoint of journal {checkpoint.journal}; {journal} is journal {journal_id}"
            raise Refusal("misuse", message, fix=[f"head -1 {quoted(file)}"])
        roots.append(KeptRoot(checkpoint.size, checkpoint.root))
    return roots


def _read(file: str, key: VerifierKey) -> Checkpoint:
    path = os.path.abspath(expanded(file))
    try:
        with open(path, encoding="utf-8", errors="strict") as content:
            text = content.read(TEXT_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refusal("misuse", f"the checkpoint {file} cannot be read: {why}", fix=[f"ls -l {quoted(path)}"]) from None
    try:
        return verified(text, key)
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{file}: {refusal.message}", fix=refusal.fix) from None


def _signing_key(state: StateDir) -> tuple[str, bytes]:
    return signing_key(state, host_id(state))
