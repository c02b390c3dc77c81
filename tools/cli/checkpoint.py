"""omac checkpoint and omac key: what an outsider holds the journal to."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache

from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.checkpoint import (
    TEXT_MAX,
    Checkpoint,
    VerifierKey,
    breaks_off,
    current_checkpoint,
    notes_in,
    sign,
    verified,
)
from omac.journal.file import none_yet
from omac.journal.reader import Reader, ReadJournal
from omac.journal.verification import KeptRoot
from omac.tools.compose.clock import now_ns
from omac.tools.compose.command_context import SecretStores, secret_stores
from omac.tools.compose.journals import mark_of, path_in_use
from omac.tools.compose.signing import FILE, Signer
from omac.tools.compose.state import StateDir, look_at
from omac.tools.terminal.invocation import expanded, print_data, print_json
from omac.tools.terminal.render import report, report_fix

NOTES_CHARACTERS_MAX = 256 << 20  # of a file with all the notes that a witness has
UNRECORDED = ("journal-unavailable", "journal-read-only", "journal-in-use", "contention")  # it is worth printing anyway


def signer_for(journal_path: str | None, environment: Mapping[str, str]) -> Signer:
    """Return the key of the journal that a command means. Whatever store has it, a person is asked to open it."""
    state = StateDir.of(environment)

    @cache
    def stores(store: str) -> SecretStores:
        from omac.tools.cli.vault import make_usable

        opened = secret_stores(environment)
        make_usable(opened, {store})
        return opened

    return Signer(state, path_in_use(state, environment, journal_path), stores)


def show(journal_path: str | None, environment: Mapping[str, str]) -> int:
    """Print the journal's checkpoint, which is recorded in it where it can be written. Raises Refusal."""
    from omac.tools.compose.recording import recorded_checkpoint  # loads what appends

    signer = signer_for(journal_path, environment)
    ReadJournal(signer.path, mark_of(StateDir.of(environment), signer.path)).close()  # an older copy is not signed
    checkpoint = current_checkpoint(signer.path, now_ns())
    try:
        text = recorded_checkpoint(environment, journal_path, signer)
    except Refusal as refusal:
        if refusal.reason not in UNRECORDED:
            raise
        report(f"the checkpoint is not recorded in the journal: {refusal.message}")
        report_fix(refusal.fix)
        text = sign(checkpoint, *signer.key())
    print_data(text.removesuffix("\n"))
    return 0


def show_key(journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Print the public key that verifies checkpoints of the journal, and where the private one is. A journal that has
    not signed yet is given one. Raises Refusal (journal-unavailable) where no journal exists."""
    _require_journal(journal_path, environment)
    _show_kept(signer_for(journal_path, environment), as_json)
    return 0


def move_key(to: str, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Keep the key in another store. Raises Refusal."""
    from omac.tools.compose.recording import recording  # loads what appends

    _require_journal(journal_path, environment)
    signer = signer_for(journal_path, environment)
    with recording(environment, journal_path) as record:
        signer.move(to, record)
    _show_kept(signer, as_json)
    return 0


def rotate_key(is_lost: bool, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Have another key sign from now on, and print the public one. Raises Refusal."""
    from omac.tools.compose.recording import recording  # loads what appends

    _require_journal(journal_path, environment)
    signer = signer_for(journal_path, environment)
    with recording(environment, journal_path) as record:
        done = signer.begin_again(record) if is_lost else signer.rotate(record)
    if as_json:
        print_json({"old": done.old, "key": done.new, "lost": is_lost})
        return 0
    print_data(done.new)
    if is_lost:
        report(f"it begins a new chain of checkpoints: nothing that {done.old} signed leads to it")
        report("  hand it to the people who verify this journal, with a checkpoint:")
        report("  omac checkpoint > /mnt/elsewhere/FILE")
    else:
        report(f"it replaces {done.old}, which still verifies what it signed before")
    return 0


def typed_keys(keys: Sequence[str]) -> list[VerifierKey]:
    """Return the public keys of the options --key. Raises Refusal (misuse)."""
    return [_typed_key(key) for key in keys]


def _typed_key(word: str) -> VerifierKey:
    try:
        return VerifierKey.parse(word)
    except Refusal:
        file = expanded(word)
        if os.path.isfile(file):
            message = f"--key takes a public key, not the file {word!r} that may hold one"
            raise Refusal("misuse", message, fix=[f'--key "$(cat {quoted(file)})"']) from None
        message = f"{word!r} is no verifier key, which is NAME+HASH+KEY on one line"
        raise Refusal("misuse", message, fix=["omac key show  # on the host whose journal it is"]) from None


def resolve_keys(path: str, keys: Sequence[str], environment: Mapping[str, str]) -> list[VerifierKey]:
    """Return the public keys that are meant: where none is named those by which this host signs the journal at `path`,
    or signed it before its own journal rotated them. Raises Refusal."""
    if keys:
        return typed_keys(keys)
    state = StateDir.of(environment)
    known = [VerifierKey.parse(key) for key in signer_for(path, environment).known()]
    own = os.path.join(state.path, "journal.db")
    if path == own or not os.path.lexists(own):
        return known
    return _known_to(own, known)


def keys_in(path: str, keys: Sequence[str], environment: Mapping[str, str]) -> list[VerifierKey]:
    """Return the public keys that are meant, and those that the journal at `path` rotated them from and to."""
    return _known_to(path, resolve_keys(path, keys, environment))


def kept_roots(files: Sequence[str], keys: Sequence[VerifierKey], journal: str, journal_id: str) -> list[KeptRoot]:
    """Return the roots of checkpoints in files, each signed by one of `keys`; a witness's file has several. Raises
    Refusal."""
    roots = []
    for file in files:
        broken, has_whole = list[str](), False
        for note in notes_in(_lines(file)):
            if breaks_off(note):
                broken.append("" if broken else note)  # the first is shown where no other is whole
                continue
            roots.append(_root(file, note, keys, journal, journal_id))
            has_whole = True
        if not has_whole:
            roots.append(_root(file, broken[0] if broken else "", keys, journal, journal_id))
        elif broken:
            report(f"{file}: {len(broken)} of its checkpoints break off, and count for nothing")
    return roots


def _root(file: str, note: str, keys: Sequence[VerifierKey], journal: str, journal_id: str) -> KeptRoot:
    checkpoint = signed_by(file, note, *keys)
    if checkpoint.journal != journal_id:
        message = f"{file} is a checkpoint of journal {checkpoint.journal}; {journal} is journal {journal_id}"
        raise Refusal("misuse", message, fix=[f"head -1 {quoted(file)}"])
    return KeptRoot(checkpoint.size, checkpoint.root, checkpoint.late)


def _lines(file: str) -> Iterator[str]:
    """Yield the lines of a file, a long one in parts. Raises Refusal."""
    path, size = os.path.abspath(expanded(file)), 0
    try:
        with open(path, encoding="utf-8", errors="replace") as content:
            while line := content.readline(TEXT_MAX):
                size += len(line)
                if size > NOTES_CHARACTERS_MAX:
                    message = f"{file} has more than {NOTES_CHARACTERS_MAX} characters"
                    raise Refusal("misuse", message, fix=[f"split -C 200M {quoted(path)}  # and name each part"])
                yield line
    except OSError as error:
        raise _unreadable(file, path, error.strerror) from None


def read_note(file: str) -> str:
    """Return the text of a checkpoint in a file, not verified yet. Raises Refusal."""
    path = os.path.abspath(expanded(file))
    try:
        with open(path, encoding="utf-8") as content:
            return content.read(TEXT_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, path, error.strerror if isinstance(error, OSError) else "it is no text") from None


def _unreadable(file: str, path: str, why: str | None) -> Refusal:
    return Refusal("misuse", f"the checkpoint {file} cannot be read: {why}", fix=[look_at(path)])


def signed_by(file: str, text: str, *keys: VerifierKey) -> Checkpoint:
    """Return the checkpoint that one of `keys` has signed. Raises Refusal, which names the file."""
    try:
        return verified(text, *keys)
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{file}: {refusal.message}", fix=refusal.fix) from None


def _known_to(path: str, keys: Sequence[VerifierKey]) -> list[VerifierKey]:
    from omac.journal.signed_chain import chain_of

    with closing(Reader(path, lenient=True)) as reader:
        return [VerifierKey.parse(text) for text in chain_of(reader, keys).keys]


def _require_journal(journal_path: str | None, environment: Mapping[str, str]) -> None:
    """Raise Refusal (journal-unavailable) where no journal exists whose key could be meant."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, journal_path)
    if not os.path.lexists(path):
        raise none_yet(path, None, None)


def _show_kept(signer: Signer, as_json: bool) -> None:
    kept, key = signer.kept(), signer.public()
    location = signer.keys.path if kept.store == FILE else kept.store
    if as_json:
        print_json({"name": signer.name, "key": key, "store": kept.store, "kept_in": location, "journal": signer.path})
        return
    print_data(key)
    report(f"the private key is in {location if kept.store == FILE else 'the ' + location}")
