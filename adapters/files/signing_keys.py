"""The key that signs checkpoints of a journal: a file that holds it, or that names the store which does.

Rules

1. The file is `signing.key` for the journal of the state directory, `signing-ID.key` for any other. It holds 64 hex
   digits, the private key; or "STORE KEY", where KEY is the public key.
2. It changes in one step. The key that is to come next waits in a file beside it, `.next`.
3. Who mints, moves or replaces a key holds the turn: `.lock` beside it.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from omac.adapters.files import atomic, lock
from omac.adapters.files.bounded import open_no_link
from omac.adapters.files.descriptor import Descriptor
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.unflushed import Unflushed

FILE = "file"
STORES = (FILE, "vault", "keychain")
KEY_BYTES = 32
BYTES_MAX = 4_096
TURN_WAIT_S = 10.0


class KeptKey(NamedTuple):
    """A private key (`seed`, which `store` "file" has), or the public key of one that is in another store."""

    store: str
    seed: bytes
    public: str

    def text(self) -> str:
        """Return it as it is kept."""
        return self.seed.hex() if self.store == FILE else f"{self.store} {self.public}"


class SigningKeys:
    """The key of one journal. `shared` is the file of the journal of the state directory; `usable` gives what the
    system refuses in omac's words. Every method raises Refusal."""

    def __init__(self, path: str, shared: str, usable: Callable[[], AbstractContextManager[None]]) -> None:
        self.path = path
        self._shared = shared
        self._next = path + ".next"
        self._usable = usable

    def turn(self, wait_s: float = TURN_WAIT_S) -> AbstractContextManager[None]:
        """Keep others from changing it meanwhile; on media that cannot be written nobody does. Raises Refusal
        (contention) where one does for `wait_s`."""
        return turn_at(self.path, self._usable, wait_s)

    def current(self) -> KeptKey | None:
        """Return the key that signs; None where none is."""
        return self._read(self.path)

    def waiting(self) -> KeptKey | None:
        """Return the key that a rotation made which was not finished; None where none is."""
        return self._read(self._next)

    def shared(self) -> KeptKey | None:
        """Return the key of the journal of the state directory, which signed for all journals once."""
        return self._read(self._shared)

    def keep(self, key: KeptKey) -> None:
        """Let this key sign, or this be where it is kept."""
        with self._changing():
            self._write(self.path, key)

    def keep_waiting(self, key: KeptKey) -> None:
        """Keep the key that is to sign next."""
        with self._usable():
            self._write(self._next, key)

    def adopt_waiting(self) -> None:
        """Have the key that waits sign from now on. The one before is deleted, unless another store has it."""
        with self._changing():
            os.replace(self._next, self.path)
            atomic.sync_folder(os.path.dirname(self.path))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Turn an error into a Refusal, which reports a change that was made as such."""
        with self._usable():
            try:
                yield
            except Unflushed as problem:
                raise problem.refusal("state-unusable", self.path, os.path.dirname(self.path)) from None

    def _write(self, path: str, key: KeptKey) -> None:
        """Put a key into a file; a killed writer's draft goes, which may hold a key that has moved to a store since."""
        prefix = f"{os.path.basename(self.path)}.draft."
        with Descriptor(atomic.open_folder(os.path.dirname(path))) as folder:
            atomic.sweep(folder, prefix)
            atomic.replace_in(folder, os.path.basename(path), key.text().encode("ascii"), prefix=prefix)

    def _read(self, path: str) -> KeptKey | None:
        with self._usable():
            try:
                with open(path, "rb", opener=open_no_link) as file:
                    text = file.read(BYTES_MAX).decode("ascii", "replace").strip()
            except FileNotFoundError:
                return None
        store, separator, public = text.partition(" ")
        if separator and store in STORES[1:]:
            return KeptKey(store, b"", public)
        try:
            seed = bytes.fromhex(text)
        except ValueError:
            seed = b""
        if len(seed) != KEY_BYTES:
            message = f"{path} does not hold a key; it was changed by hand or cut off"
            fix = [f"rm {quoted(path)}  # then, unless you can restore it: omac key rotate --lost"]
            raise Refusal("state-unusable", message, fix=fix)
        return KeptKey(FILE, seed, "")


@contextmanager
def turn_at(
    path: str, usable: Callable[[], AbstractContextManager[None]], wait_s: float = TURN_WAIT_S
) -> Iterator[None]:
    """Keep others from changing what is at `path` meanwhile, by the file `.lock` beside it; on media that cannot be
    written nobody does. Raises Refusal (contention) where one does for `wait_s`."""
    try:
        with usable():
            descriptor = lock.open_file(path + ".lock")
    except Refusal as refusal:
        if getattr(refusal.__cause__, "errno", None) != errno.EROFS:
            raise
        yield
        return
    with Descriptor(descriptor):
        with usable():
            is_alone = lock.acquire_within(descriptor, wait_s)
        if not is_alone:
            message = f"another omac has been changing {path} for {wait_s:g} s"
            raise Refusal("contention", message, fix=[f"fuser -v {quoted(path + '.lock')}"])
        yield
