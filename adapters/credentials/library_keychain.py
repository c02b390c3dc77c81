"""The keychains of macOS and Windows, through keyring's backends for them."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from keyring import errors
from keyring.backend import KeyringBackend

from omac.adapters.credentials import refusals
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal

BACKENDS = {
    "darwin": ("keyring.backends.macOS", "Keyring"),
    "win32": ("keyring.backends.Windows", "WinVaultKeyring"),
}


class LibraryKeychain:
    """A Keychain over one of keyring's backends, value by value."""

    def __init__(self, backend: KeyringBackend) -> None:
        self._backend = backend

    @classmethod
    def of(cls, platform: str) -> "LibraryKeychain":
        """Return the keychain of a platform in BACKENDS. Raises Refusal (keychain-unavailable)."""
        module, name = BACKENDS[platform]
        try:
            backend = getattr(importlib.import_module(module), name)
            assert backend.priority > 0  # looking at it raises RuntimeError where the backend does not work
            return cls(backend())
        except (ImportError, RuntimeError) as error:
            raise refusals.unavailable(f"{module} does not work here ({type(error).__name__})") from None

    def check(self) -> None:
        """Implement Keychain: do nothing, as `of` makes no keychain that does not work."""

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        values = {name: self._get(service, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        for name, value in values.items():
            with _in_our_words(service, name):
                self._backend.set_password(service, name, value.reveal())

    def remove(self, service: str, names: Sequence[str]) -> None:
        for name in names:
            # Backends raise this one of what is not there, too; who wants to know looks whether it is gone.
            with _in_our_words(service, name), suppress(errors.PasswordDeleteError):
                self._backend.delete_password(service, name)

    def unlock(self) -> None:
        """Implement Keychain: read an entry, which need not exist, so that the system prompts. Raises Refusal
        (keychain-locked) when the keychain stays locked."""
        try:
            self._get("omac", "unlock")
        except Refusal as refusal:
            if refusal.reason == "keychain-locked":
                raise refusals.still_locked("security unlock-keychain") from None
            raise

    def _get(self, service: str, name: str) -> Hidden | None:
        with _in_our_words(service, name):
            value = self._backend.get_password(service, name)
        return None if value is None else Hidden(value)


@contextmanager
def _in_our_words(service: str, name: str) -> Iterator[None]:
    """Turn every error into a Refusal: a backend may raise anything, and quote the value in it."""
    try:
        yield
    except errors.KeyringLocked:
        raise refusals.locked() from None
    except (errors.InitError, errors.NoKeyringError) as error:
        raise refusals.unavailable(f"its library says {type(error).__name__}") from None
    except Exception as error:
        raise refusals.failed(f"{type(error).__name__} for {name} of {service}") from None
