"""The vault: all secrets of this user in one encrypted file, for machines without a keychain.

Rules:

1. The file is replaced whole and in one step, so a reader needs no lock, and a writer that is killed or runs out of
   disk leaves the earlier file as it was.
2. Writers take turns by a lock on `<path>.lock`: whoever writes has read what the one before wrote.
3. What is damaged is never written over.
4. Keys and values live in memory for one call; who keeps a key for longer is said in `omac.adapters.credentials.keys`.

Everything here blocks: on the disk, on other writers up to `lock_wait_s`, on scrypt for the better part of a second.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from omac.adapters.credentials import private_file
from omac.adapters.credentials.keys import FILE_VARIABLE, KeyAtHand, key_of
from omac.adapters.credentials.vault_format import (
    BYTES_MAX,
    COST,
    Contents,
    Damaged,
    Header,
    Newer,
    Scrypt,
    Unsealable,
    VaultKey,
    WrongKey,
    open_header,
    seal,
    stretched,
    unseal,
)
from omac.adapters.files import atomic, bounded, lock
from omac.adapters.files.descriptor import Descriptor
from omac.domain.kernel import state_paths
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.unflushed import Unflushed
from omac.journal.folders import make_private, write_command

NOTE_BYTES_MAX = 4_096  # a path
LOCK_WAIT_S = 10.0
LOCK_POLL_S = 0.003


class NewKey(NamedTuple):
    """The key of a vault whose passphrase was changed; `unflushed` where the disk did not confirm the change."""

    key: VaultKey
    unflushed: Refusal | None


class Vault:
    """The vault in the file `path`, whether it is there yet or not. Every method raises Refusal (vault-*)."""

    def __init__(self, path: str, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.path = os.path.abspath(path)
        self._lock_wait_s = lock_wait_s
        self._draft_prefix = os.path.basename(path) + ".draft."

    def exists(self) -> bool:
        """Return whether anything is at the vault's path. Even if it is no vault, no other store is to be used
        instead."""
        return os.path.lexists(self.path)

    def create_with_passphrase(self, passphrase: Hidden, cost: Scrypt = COST) -> VaultKey:
        """Make an empty vault under a passphrase; returns the key it makes. Raises Refusal (vault-exists)."""
        if not passphrase.reveal():
            raise Refusal("value-refused", "an empty passphrase protects nothing")
        self._refuse_existing()
        header, key = Header.of_passphrase(passphrase, cost)
        self._create(header, key)
        return key

    def create_with_key(self, key: bytes) -> None:
        """Make an empty vault under a random key of 32 bytes. Raises Refusal (vault-exists)."""
        key = key_of(key)
        self._create(Header.of_random(key), key)

    def has_passphrase(self) -> bool:
        """Return whether the vault's key is made of a passphrase."""
        with self._words():
            return open_header(self._file()).cost is not None

    def key_from_passphrase(self, passphrase: Hidden) -> VaultKey:
        """The key that a passphrase makes, found to be the right one. Raises Refusal (vault-key-wrong)."""
        with self._words():
            header = open_header(self._file())
        if header.cost is None:
            message = f"the vault {self.path} opens with a key file, not with a passphrase"
            raise Refusal("vault-key-wrong", message, fix=[self.export_command()])
        key = stretched(passphrase, header.salt, header.cost)
        if not header.fits(key):
            raise Refusal("vault-key-wrong", f"this is not the passphrase of the vault {self.path}")
        return key

    def change_passphrase(self, at_hand: KeyAtHand, passphrase: Hidden) -> NewKey:
        """Seal what it holds under another passphrase, in one step. Raises Refusal: nothing was changed."""
        if not passphrase.reveal():
            raise Refusal("value-refused", "an empty passphrase protects nothing")
        header, key = Header.of_passphrase(passphrase, COST)
        return NewKey(key, self._change(at_hand, lambda _: None, (header, key)))

    def check(self, at_hand: KeyAtHand) -> None:
        """Raise Refusal (vault-*) unless the vault is whole and this is its key."""
        self._open(at_hand)

    def read(self, at_hand: KeyAtHand, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        """The values of these names; what is not there is left out."""
        values = self._open(at_hand).get(service, {})
        return {name: values[name] for name in names if name in values}

    def write(self, at_hand: KeyAtHand, service: str, values: Mapping[str, Hidden]) -> None:
        """Keep these values, in place of earlier ones: all of them or, when it is refused, none."""
        self._change_surely(at_hand, lambda contents: contents.setdefault(service, {}).update(values))

    def remove(self, at_hand: KeyAtHand, service: str, names: Sequence[str]) -> None:
        """Forget these values; what is not there is no error."""

        def drop(contents: Contents) -> None:
            kept = {name: value for name, value in contents.pop(service, {}).items() if name not in names}
            if kept:
                contents[service] = kept

        self._change_surely(at_hand, drop)

    def note_key_file(self, path: str) -> None:
        """Note beside the vault where its key file is, which no sandbox shows from then on, whether a variable names it
        there or not. A link would have copies of this folder that follow links contain the key."""
        text = os.fsencode(path)
        with suppress(OSError):  # the variable still does
            if not os.path.exists(self._note) or bounded.read(self._note, NOTE_BYTES_MAX) != text:
                atomic.replace(self._note, text, prefix=f".{state_paths.KEY_NOTE}.")

    def export_command(self) -> str:
        """Return the command that names the vault's key file to those that follow: the one that opened it last."""
        noted = b""
        with suppress(OSError):
            noted = bounded.read(self._note, NOTE_BYTES_MAX)
        return f"export {FILE_VARIABLE}={quoted(os.fsdecode(noted)) if noted and os.path.isfile(noted) else 'PATH'}"

    def unlock_command(self) -> str:
        """Return the command that opens a vault with a key file, here and for what runs."""
        return f"{self.export_command()} && omac unlock"

    @property
    def _note(self) -> str:
        return os.path.join(os.path.dirname(self.path), state_paths.KEY_NOTE)

    def _create(self, header: Header, key: VaultKey) -> None:
        with self._words():
            make_private(os.path.dirname(self.path))
            private_file.require_private_folder(os.path.dirname(self.path))
            with self._turn():
                self._refuse_existing()
                self._sweep()
                atomic.publish(self.path, seal({}, header, key), prefix=self._draft_prefix)

    def _refuse_existing(self) -> None:
        if self.exists():
            message = f"a vault exists at {self.path} already; omac left it unchanged"
            raise Refusal("vault-exists", message, fix=[f"ls -l {quoted(self.path)}"])

    def _open(self, at_hand: KeyAtHand) -> Contents:
        with self._words(at_hand.origin):
            contents = unseal(self._file(), at_hand.key)
        if at_hand.file:
            self.note_key_file(at_hand.file)
        return contents

    def _change_surely(self, at_hand: KeyAtHand, change: Callable[[Contents], None]) -> None:
        if unflushed := self._change(at_hand, change):
            raise unflushed

    def _change(
        self, at_hand: KeyAtHand, change: Callable[[Contents], None], under: tuple[Header, VaultKey] | None = None
    ) -> Refusal | None:
        """Replace the file; return the refusal of a change that is made, but that the disk did not confirm."""
        unflushed = None
        with self._words(at_hand.origin):
            self._file()  # so that the lock of a vault that is not there is not made
            with self._turn():
                self._sweep()
                before = self._file()
                contents = unseal(before, at_hand.key)
                change(contents)
                header, key = under or (open_header(before), at_hand.key)
                changed = seal(contents, header, key)
                try:
                    atomic.replace(self.path, changed, prefix=self._draft_prefix)
                except Unflushed as problem:
                    unflushed = self._unflushed(problem)
        if at_hand.file and under is None:
            self.note_key_file(at_hand.file)
        return unflushed

    def _sweep(self) -> None:
        with Descriptor(atomic.open_folder(os.path.dirname(self.path))) as folder:
            atomic.sweep(folder, self._draft_prefix)

    def _unflushed(self, problem: Unflushed) -> Refusal:
        return problem.refusal("vault-unusable", f"the vault {self.path}", os.path.dirname(self.path))

    def _file(self) -> bytes:
        try:
            private_file.require_private_folder(os.path.dirname(self.path))
            return private_file.read_private(self.path, "the vault", BYTES_MAX)
        except FileNotFoundError:
            raise Refusal("vault-unusable", f"no vault exists at {self.path}", fix=["omac vault init"]) from None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock: one writer at a time, in this process and in others."""
        deadline = time.monotonic() + self._lock_wait_s
        while True:
            try:
                held = lock.hold(self.path + ".lock")
                break
            except lock.Locked as locked:
                if time.monotonic() > deadline:
                    who = f"process {locked.pid}" if locked.pid else "another process"
                    message = f"{who} has been writing to the vault {self.path} for {self._lock_wait_s:g} s"
                    fix = [f"fuser -v {quoted(self.path + '.lock')}"]
                    raise Refusal("vault-unusable", message, fix=fix) from None
            time.sleep(LOCK_POLL_S)
        with Descriptor(held):
            yield

    @contextmanager
    def _words(self, origin: str = "this key") -> Iterator[None]:
        """Turn every error that keeps the vault from being used into a Refusal (vault-*, value-refused)."""
        try:
            yield
        except WrongKey:
            message = f"{origin} is not the key of the vault {self.path}"
            fix = ["omac unlock"] if self.has_passphrase() else [f"echo ${FILE_VARIABLE}  # is it the right file?"]
            raise Refusal("vault-key-wrong", message, fix=fix) from None
        except Damaged as error:
            raise Refusal(
                "vault-damaged",
                f"the vault {self.path} is damaged, and is unchanged: {error}; restore a backup, or make a new "
                "vault and set every secret again",
                fix=[f"mv {quoted(self.path)} {quoted(self.path + '.damaged')} && omac vault init"],
            ) from None
        except Newer as error:
            raise Refusal("vault-unusable", f"a newer omac wrote the vault {self.path}: {error}") from None
        except Unsealable as error:
            raise Refusal("value-refused", f"the vault {self.path} is unchanged: {error}") from None
        except Unflushed as problem:
            raise self._unflushed(problem) from None
        except OSError as error:
            message = (
                f"the vault {self.path} cannot be used: {error.strerror}; a change is in it as a whole, or not at all"
            )
            raise Refusal("vault-unusable", message, fix=[write_command(error, os.path.dirname(self.path))]) from None
