"""The key of a journal that signs, where it is kept, and checkpoints by it. cryptography is loaded where it is needed.

A rotation keeps the new key first, then records it, then puts it in the place of the old one: whatever ends it in
between, the journal says which of the two signs, and the next use of the key does what is left.
"""

import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from typing import Any

import trio

from omac.adapters.credentials.refusals import CHOOSE_VAULT, USE_VAULT
from omac.adapters.credentials.stores import SecretStores
from omac.adapters.files.signing_keys import FILE as FILE
from omac.adapters.files.signing_keys import KEY_BYTES, STORES, TURN_WAIT_S, KeptKey, SigningKeys
from omac.domain.access.signing import (
    CheckpointDelayed,
    CheckpointSigned,
    KeyLost,
    KeyMoved,
    KeyMoveRequested,
    KeyRotated,
    RecordLoss,
    RecordRotation,
    ReportKeyMoved,
    RequestKeyMove,
    key_id,
    other_key,
    signer_of,
)
from omac.domain.kernel import ids
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.set_aside import PositionEmptied
from omac.journal.codec import Codec
from omac.journal.reader import Reader, recorded
from omac.services.kernel.checkpointing import SignedNote
from omac.tools.compose.clock import now_ns
from omac.tools.compose.state import StateDir, host_id
from omac.tools.terminal.invocation import require_one_of

SERVICE = "omac-signing-key"  # under which a store has keys
BACKGROUND_WAIT_S = 1.0  # of a run, whose end waits for it
LOCKED = ("vault-locked", "keychain-locked")
TAKES_SECRETS = (USE_VAULT, CHOOSE_VAULT)  # commands that give new secrets another store

KeyChange = RecordRotation | RecordLoss | RequestKeyMove | ReportKeyMoved
Record = Callable[[KeyChange], None]


class Signer:
    """The key of the journal at `path`. `stores` gives the stores of secrets, opened for the one that is named, and
    `run` runs what asks them. It waits `wait_s` for others that change the key. Every method may raise Refusal."""

    def __init__(
        self,
        state: StateDir,
        path: str,
        stores: Callable[[str], SecretStores],
        run: Callable[..., Any] = trio.run,
        wait_s: float = TURN_WAIT_S,
    ) -> None:
        self.path = path
        self._stores = stores
        self._run = run
        self._wait_s = wait_s
        self._state = state

    @cached_property
    def name(self) -> str:
        """The name of the key: that of this host, whose id is minted where there is none yet."""
        return f"omac/{host_id(self._state)}"

    @cached_property
    def keys(self) -> SigningKeys:
        """The files of the signing keys."""
        return self._state.signing_keys(self.path, self._journal_id())

    def kept(self) -> KeptKey:
        """Return the key that signs, made where there is none; a rotation that was killed is finished first."""
        with self.keys.turn(self._wait_s):
            return self._current()

    def public(self) -> str:
        """Return the public key, on one line."""
        return self._public(self.kept())

    def known(self) -> list[str]:
        """Return the public keys that can have signed this journal here; nothing is made or changed."""
        key = self.keys.current() or self.keys.waiting() or self.keys.shared()
        return [self._public(key)] if key else []

    def problem(self) -> Refusal | None:
        """Return why this journal can have no checkpoint: the key that is kept is none that signs in it, or its store
        does not give it. None where all is well, the store is locked, or none has signed yet. Nothing is made or
        changed."""
        last = self._last_signer()
        try:
            kept = self.keys.current()
            keys = [key for key in (kept, self.keys.waiting()) if key and self._id(key) == last]
            if keys or not last:
                for key in keys:
                    self._seed(key)
                return None
            if kept:
                return other_key(self._id(kept), last)
            self._shared(last)
        except Refusal as refusal:
            return None if refusal.reason in LOCKED else refusal
        return None

    def key(self) -> tuple[str, bytes]:
        """Return the name of the key and its seed."""
        with self.keys.turn(self._wait_s):
            return self.name, self._seed(self._current())

    def rotations(self) -> tuple[str, ...]:
        """Return the notes in the journal that lead from its first key to the one that signs."""
        from omac.journal.signed_chain import rotations

        with closing(Reader(self.path, lenient=True)) as reader:
            return rotations(reader)

    def prepare(self) -> None:
        """Open the store that has the key, which may ask a person for its passphrase."""
        self._open(self.kept().store)

    def require_sound_and_open(self) -> None:
        """Raise Refusal where a checkpoint in the journal does not hold: what leaves this host would testify to that
        history. Then open the store that has the key."""
        from omac.journal.checkpoint import VerifierKey
        from omac.journal.signed_chain import require_holding

        require_holding(self.path, [VerifierKey.parse(key) for key in self.known()])
        self.prepare()

    def checkpoint(self) -> SignedNote:
        """Return the signed checkpoint of the journal as it stands."""
        from omac.journal.checkpoint import current_checkpoint, sign

        key = self.key()
        checkpoint = current_checkpoint(self.path, now_ns())
        return SignedNote(checkpoint.size, sign(checkpoint, *key))

    def rotate(self, record: Record) -> RecordRotation:
        """Have another key sign from now on, kept where the old one is; return what was recorded of that."""
        from omac.journal.rotation import sign_rotation

        self.prepare()
        with self.keys.turn(self._wait_s):
            old = self._current()
            seed = self._seed(old)
            new, new_seed = self._wait_with_new(old.store)
            note = sign_rotation(self._journal_id(), now_ns(), self.name, seed, new_seed)
            rotation = RecordRotation(self._public(old), self._public(new), note)
            record(rotation)
            with _behind(f"{rotation.new} signs from now on"):
                self.keys.adopt_waiting()
                self._forget(old)
        return rotation

    def begin_again(self, record: Record) -> RecordLoss:
        """Have another key begin a new chain, for the one that signs is lost; return what was recorded of that."""
        from omac.journal.rotation import sign_loss

        with self.keys.turn(self._wait_s):
            lost = self._last_signer()
            if not lost:
                raise Refusal("misuse", f"no key has signed {self.path} yet: none is lost", fix=["omac key show"])
            self._require_lost(lost)
            new, seed = self._wait_with_new(FILE)
            loss = RecordLoss(lost, self._public(new), sign_loss(self._journal_id(), now_ns(), lost, self.name, seed))
            record(loss)
            with _behind(f"{loss.new} signs from now on"):
                self.keys.adopt_waiting()
        return loss

    def move(self, store: str, record: Record) -> KeptKey:
        """Keep the key in another store; return it. What was killed is finished, or taken back, by the next move."""
        require_one_of(STORES, store, "--to")
        self.prepare()
        self._open(store)
        with self.keys.turn(self._wait_s):
            before = self._current()
            moved, name = before, self._id(before)
            if before.store != store:
                seed = self._seed(before)
                record(RequestKeyMove(name, before.store, store))
                moved = self._key_in(store, seed)
                self._store(moved, seed)
                self.keys.keep(moved)
                with _behind(f"the private key is in the {store} now"):
                    self._forget(before)
            record(ReportKeyMoved(name, store))
        return moved

    def _current(self) -> KeptKey:
        """The key that signs; whoever calls has the turn."""
        last, kept, waiting = self._last_signer(), self.keys.current(), self.keys.waiting()
        if last and waiting and self._id(waiting) == last:
            self.keys.adopt_waiting()
            if kept and self._id(kept) != last:
                with suppress(Refusal):  # where the old one was is locked: it signs nothing more
                    self._forget(kept)
            return waiting
        if kept is None:
            return self._begin(last)
        if last and self._id(kept) != last:
            raise other_key(self._id(kept), last)
        return kept

    def _begin(self, last: str) -> KeptKey:
        """The first key of a journal: that of the state directory's where it signed this one until now."""
        key = self._shared(last) if last else KeptKey(FILE, secrets.token_bytes(KEY_BYTES), "")
        self.keys.keep(key)
        return key

    def _shared(self, last: str) -> KeptKey:
        """The key of the state directory's journal, where it is the one that signed last in this one."""
        shared = self.keys.shared()
        if not shared or shared.store != FILE or self._id(shared) != last:
            message = f"the key {last} that signs {self.path} is not in {self.keys.path}: restore it from a backup"
            raise Refusal("out-of-order", message, fix=["omac key rotate --lost  # if the key is gone"])
        return shared

    def _wait_with_new(self, store: str) -> tuple[KeptKey, bytes]:
        """Make a key and keep it as the next; return it and its seed."""
        if left := self.keys.waiting():
            with suppress(Refusal):  # of a rotation that was killed before it was recorded
                self._forget(left)
        seed = secrets.token_bytes(KEY_BYTES)
        new = self._key_in(store, seed)
        self.keys.keep_waiting(new)  # first: the next rotation finds, and deletes, what the store has then
        self._store(new, seed)
        return new, seed

    def _require_lost(self, last: str) -> None:
        """Raise Refusal where the key `last` still signs, or may once its store is unlocked."""
        for read in (self.keys.current, self.keys.waiting):
            try:
                kept = read()
                if kept is None or self._id(kept) != last:
                    continue
                self._open(kept.store)
                self._seed(kept)
            except Refusal as refusal:
                if refusal.reason in LOCKED or refusal.reason.endswith(("-unavailable", "-timeout")):
                    never = f"rm {quoted(self.keys.path)}  # where that is never to be opened again"
                    raise Refusal(refusal.reason, refusal.message, fix=[*refusal.fix, never]) from None
                continue
            raise Refusal("misuse", f"the key {last} is not lost: it is in the {kept.store}", fix=["omac key rotate"])

    def _key_in(self, store: str, seed: bytes) -> KeptKey:
        """Return the key of a seed that a store is to have."""
        from omac.journal.checkpoint import verifier_of

        return KeptKey(store, seed, "") if store == FILE else KeptKey(store, b"", verifier_of(self.name, seed).text())

    def _store(self, key: KeptKey, seed: bytes) -> None:
        """Write the seed of a key to its store; one for the file is written when the key is kept."""
        if key.store != FILE:
            self._ask(key.store, SecretStores.write, {self._id(key): Hidden(seed.hex())})

    def _seed(self, key: KeptKey) -> bytes:
        from omac.journal.checkpoint import verifier_of

        if key.store == FILE:
            return key.seed
        name = self._id(key)
        try:
            value = self._ask(key.store, SecretStores.read, [name]).get(name)
        except Refusal as refusal:
            raise self._unread(key, refusal) from None
        with suppress(ValueError, AttributeError):
            seed = bytes.fromhex(value.reveal())
            if verifier_of(self.name, seed).text() == key.public:
                return seed
        message = f"the {key.store} does not hold the key {name} that signs {self.path}"
        raise Refusal("state-unusable", message, fix=["omac key rotate --lost  # if the key is gone"])

    def _unread(self, key: KeptKey, refusal: Refusal) -> Refusal:
        """Return the refusal of a key whose store cannot be read; no other store has it, whatever takes new secrets."""
        fix = [command for command in refusal.fix if command not in TAKES_SECRETS]
        if len(fix) < len(refusal.fix):
            fix.append("omac key rotate --lost  # if the key is gone")
        message = f"the key {self._id(key)} that signs {self.path} is in the {key.store}: {refusal.message}"
        return Refusal(refusal.reason, message, fix=fix)

    def _forget(self, key: KeptKey) -> None:
        if key.store != FILE:
            self._ask(key.store, SecretStores.remove, [self._id(key)])

    def _open(self, store: str) -> None:
        if store != FILE:
            self._stores(store)

    def _ask(self, store: str, call: Callable[..., Awaitable[Any]], argument: object) -> Any:
        return self._run(call, self._stores(store), store, SERVICE, argument)

    def _public(self, key: KeptKey) -> str:
        from omac.journal.checkpoint import verifier_of

        return key.public or verifier_of(self.name, key.seed).text()

    def _id(self, key: KeptKey) -> str:
        return key_id(self._public(key))

    def _journal_id(self) -> str:
        with closing(Reader(self.path, lenient=True)) as reader:
            return reader.journal_id()

    def _last_signer(self) -> str:
        """The name and id of the key that signed last in this journal; "" where none did, or no one can tell."""
        if not os.path.lexists(self.path):
            return ""
        with closing(Reader(self.path, lenient=True)) as reader:
            for row in reader.newest_first(ids.checkpoint_stream(host_id(self._state))):
                try:
                    event = recorded(self.path, Codec(), row).event
                except Refusal:
                    return ""
                match event:
                    case CheckpointSigned(_, note):
                        return signer_of(note)
                    case KeyRotated(_, new) | KeyLost(_, new):
                        return key_id(new)
                    case CheckpointDelayed() | KeyMoveRequested() | KeyMoved() | PositionEmptied():
                        continue
                    case _:
                        return ""
        return ""


@contextmanager
def _behind(change: str) -> Iterator[None]:
    """Say in a refusal that a change was made before."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.reason, f"{change}; but then: {refusal.message}", fix=refusal.fix) from None
