"""A port to the system's keychain, the Secret Service of a Linux desktop, and checks of what it did.

No call prompts, but `unlock`.
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
