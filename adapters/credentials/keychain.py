"""The system's keychain: which one that is, and checks that hold for each.

Only three kinds are ever used: the Secret Service of a Linux desktop, the macOS keychain and the Windows credential
manager. keyring's choice by priority is not asked: it may fall on a plain file, on a chain, or on nothing.

No call here prompts, but `unlock`. macOS is the exception: it may ask its user whether omac may use an entry that
another program made.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from omac.adapters.credentials import refusals
from omac.domain.kernel.hidden import Hidden


class Keychain(Protocol):
    """A keychain. Every method blocks, and raises Refusal (keychain-*)."""

    def check(self) -> None:
        """Raise Refusal (keychain-unavailable) if the keychain is missing; a locked one passes."""

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        """The values of these names; what is not there is left out."""

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        """Keep these values, in place of earlier ones."""

    def remove(self, service: str, names: Sequence[str]) -> None:
        """Forget these values; what is not there is no error."""

    def unlock(self) -> None:
        """Open it; this may prompt. Raises Refusal (keychain-locked) when it stays locked."""


def system_keychain(
    platform: str, environment: Mapping[str, str], *, timeout_s: float, prompt_timeout_s: float
) -> Keychain:
    """The keychain of a machine, whether it is there or not. Raises Refusal (keychain-unavailable)."""
    # Imported on first use: jeepney is there on Linux only, and keyring takes a fifth of a second.
    if platform in ("darwin", "win32"):
        from omac.adapters.credentials.library_keychain import LibraryKeychain

        return LibraryKeychain.of(platform)
    try:
        from omac.adapters.credentials.secret_service import SecretService
    except ImportError:
        raise refusals.unavailable(f"omac supports none on {platform}") from None
    return SecretService(environment, timeout_s=timeout_s, prompt_timeout_s=prompt_timeout_s)


def write_checked(keychain: Keychain, service: str, values: Mapping[str, Hidden]) -> None:
    """Keep these values, and see that they are there. Raises Refusal (keychain-failed) when they are not."""
    keychain.write(service, values)
    stored = keychain.read(service, list(values))
    if lost := [name for name, value in values.items() if stored.get(name) != value]:
        raise refusals.change_not_made(service, lost, "it accepted a value, but does not return it")


def remove_checked(keychain: Keychain, service: str, names: Sequence[str]) -> None:
    """Forget these values, and see that they are gone. Raises Refusal (keychain-failed) when they are not."""
    keychain.remove(service, names)
    if left := keychain.read(service, names):
        raise refusals.change_not_made(service, left, "it deleted a value, but still returns it")
