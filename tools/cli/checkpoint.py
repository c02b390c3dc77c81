"""omac checkpoint and omac key show: what an outsider holds the journal to."""

import os
from collections.abc import Callable, Mapping, Sequence

from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.checkpoint import TEXT_MAX, Checkpoint, VerifierKey, sign, standing, verified, verifier_of
from omac.journal.reader import ReadJournal
from omac.journal.verification import KeptRoot
from omac.tools.compose.journals import mark_of
from omac.tools.compose.signing import signing_key
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import expanded, print_data, print_json
from omac.tools.terminal.render import report

UNRECORDED = ("journal-unavailable", "journal-read-only", "journal-in-use", "contention")  # it is worth printing anyway


def show(journal_path: str | None, environment: Mapping[str, str], clock: Callable[[], int]) -> int:
    """Print the journal's checkpoint, which is recorded in it where it can be written. Raises Refusal."""
    from omac.tools.compose.recording import recorded_checkpoint  # loads what appends

    state = StateDir.of(environment)
    path = state.journal_in_use(environment, journal_path)
    ReadJournal(path, mark_of(state, path)).close()  # an older copy of the journal is signed for nobody
    checkpoint = standing(path, clock())
    try:
        text = recorded_checkpoint(state, environment, journal_path, clock)
    except Refusal as refusal:
        if refusal.reason not in UNRECORDED:
            raise
        report(f"the checkpoint is not recorded in the journal: {refusal.message}")
        text = sign(checkpoint, *signing_key(state))
    print_data(text.removesuffix("\n"))
    return 0


def show_key(as_json: bool, environment: Mapping[str, str]) -> int:
    """Print the public key that verifies checkpoints of this host. Raises Refusal."""
    state = StateDir.of(environment)
    key = verifier_of(*signing_key(state))
    if as_json:
        print_json({"name": key.name, "key": key.text(), "kept_in": state.signing_key_path})
    else:
        print_data(key.text())
    return 0


def known_key(key: str | None, environment: Mapping[str, str]) -> VerifierKey:
    """Return the public key that is meant: that of this host where none is named. Raises Refusal."""
    return VerifierKey.parse(key) if key else verifier_of(*signing_key(StateDir.of(environment)))


def kept_roots(
    files: Sequence[str], key: str | None, journal: str, journal_id: str, environment: Mapping[str, str]
) -> list[KeptRoot]:
    """Return the roots of checkpoints in files, signed by `key`, or by this host. Raises Refusal."""
    known = known_key(key, environment)
    roots = []
    for file in files:
        checkpoint = signed_by(file, read_note(file), known)
        if checkpoint.journal != journal_id:
            message = f"{file} is a checkpoint of journal {checkpoint.journal}; {journal} is journal {journal_id}"
            raise Refusal("misuse", message, fix=[f"head -1 {quoted(file)}"])
        roots.append(KeptRoot(checkpoint.size, checkpoint.root))
    return roots


def read_note(file: str) -> str:
    """Return the text of a checkpoint in a file, not verified yet. Raises Refusal."""
    path = os.path.abspath(expanded(file))
    try:
        with open(path, encoding="utf-8", errors="strict") as content:
            return content.read(TEXT_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Refusal("misuse", f"the checkpoint {file} cannot be read: {why}", fix=[f"ls -l {quoted(path)}"]) from None


def signed_by(file: str, text: str, *keys: VerifierKey) -> Checkpoint:
    """Return the checkpoint that one of `keys` has signed. Raises Refusal, which names the file."""
    try:
        return verified(text, *keys)
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{file}: {refusal.message}", fix=refusal.fix) from None
