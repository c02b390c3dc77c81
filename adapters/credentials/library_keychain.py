"""The keychains of macOS and Windows, through keyring's backends for them."""

import importlib
from collections.abc import Mapping, Sequence

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
        """That of a platform in BACKENDS. Raises Refusal (keychain-unavailable)."""
        module, name = BACKENDS[platform]
        try:
            backend = getattr(importlib.import_module(module), name)
            assert backend.priority > 0  # looking at it raises RuntimeError where the backend does not work
            return cls(backend())
        except (ImportError, RuntimeError) as error:
            raise refusals.unavailable(f"{module} does not work here ({type(error).__name__})") from None

    def check(self) -> None:
        """As in Keychain: that it could be made says so."""

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        found = {name: self._get(service, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        for name, value in values.items():
            try:
                self._backend.set_password(service, name, value.reveal())
            except Exception as error:  # a backend may raise anything, and quote the value in it
                raise _in_our_words(error, service, name) from None

    def remove(self, service: str, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._backend.delete_password(service, name)
            except errors.PasswordDeleteError:
                continue  # backends say so of what is not there; who wants to know looks whether it is gone
            except Exception as error:  # as above
                raise _in_our_words(error, service, name) from None

    def unlock(self) -> None:
        """As in Keychain: whoever asks for an entry, even for one that is not there, is let prompt by the system."""
        try:
            self._get("omac", "unlock")
        except Refusal as refusal:
            if refusal.reason == "keychain-locked":
                raise refusals.still_locked("security unlock-keychain") from None
            raise

    def _get(self, service: str, name: str) -> Hidden | None:
        try:
            value = self._backend.get_password(service, name)
        except Exception as error:  # as above
            raise _in_our_words(error, service, name) from None
        return None if value is None else Hidden(value)


def _in_our_words(error: Exception, service: str, name: str) -> Refusal:
    if isinstance(error, errors.KeyringLocked):
        return refusals.locked()
    if isinstance(error, errors.InitError | errors.NoKeyringError):
        return refusals.unavailable(f"its library says {type(error).__name__}")
    return refusals.failed(f"{type(error).__name__} for {name} of {service}")
