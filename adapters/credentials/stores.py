"""The two stores of secrets behind one port: calls that block go to threads, have a deadline, leave no value behind.

A traceback shows what its functions held. So what a thread raises is not passed on: it is looked at in the thread, and
the refusal that is raised here knows neither the error nor the frames behind it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

import trio

from omac.adapters.credentials import refusals
from omac.adapters.credentials.keychain import Keychain, remove_checked, write_checked
from omac.adapters.credentials.keys import KeyAtHand, key_at_hand, key_of
from omac.adapters.credentials.vault import Vault
from omac.adapters.credentials.vault_format import VaultKey
from omac.domain.kernel import state_paths
from omac.domain.kernel.exhaustion import is_out_of_memory
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import LIST_LIMITS, Refusal, quoted
from omac.services.kernel.threads import run_in_thread

KEYCHAIN, VAULT = "keychain", "vault"
VALUE_BYTES_MAX = 128 * 1024
TIMEOUT_S = 10.0
PROMPT_TIMEOUT_S = 60.0
LOCK_SHARE = 0.8  # of the time-out: then who holds the vault's lock can still be said
THREADS_MAX = 4  # for each store: one that hangs does not hold up the other

T = TypeVar("T")
Choice = Literal["auto", "keychain", "vault"]


class SecretStores:
    """The Secrets port over the system's keychain and the vault in the state directory.

    `choice` says which store takes new values; "auto" is the vault where there is one, else the keychain. With
    `choose_once` the first answer stands: a command opens, checks, writes to and reports one store. A write that timed
    out may still be done later. `keychain` replaces that of this machine.
    """

    def __init__(
        self,
        state_path: str,
        environment: Mapping[str, str],
        choice: Choice = "auto",
        *,
        choose_once: bool = False,
        timeout_s: float = TIMEOUT_S,
        keychain: Keychain | None = None,
    ) -> None:
        self.vault = Vault(os.path.join(state_path, state_paths.VAULT), lock_wait_s=LOCK_SHARE * timeout_s)
        self._environment = environment
        self._choice: Choice = choice
        self._keychain_only = choice == KEYCHAIN
        self._choose_once = choose_once
        self._timeout_s = timeout_s
        self._keychain = keychain
        self._given_key: VaultKey | None = None
        self._threads = {store: trio.CapacityLimiter(THREADS_MAX) for store in (KEYCHAIN, VAULT)}

    async def chosen(self) -> str:
        """Implement Secrets: return the store that takes new values. Raises Refusal (keychain-unavailable,
        keychain-timeout) if neither store is available."""
        if self._choice != "auto":
            return self._choice
        choice: Choice = "vault" if await self._run(VAULT, self.vault.exists) else "keychain"
        if choice == "keychain":
            await self._in_keychain(lambda keychain: keychain.check())
        if self._choose_once:
            self._choice = choice
        return choice

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        if not names:
            return {}
        if _known(store) == VAULT:
            return await self._run(VAULT, lambda: self.vault.read(self._key(), service, names))
        return await self._in_keychain(lambda keychain: keychain.read(service, names))

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        """Implement Secrets: store values, each a text of up to VALUE_BYTES_MAX bytes. Raises Refusal
        (value-refused)."""
        for name, value in values.items():
            _require_storable(service, name, value)
        if not values:
            return
        if _known(store) == VAULT:
            await self._run(VAULT, lambda: self.vault.write(self._key(), service, values))
        else:
            await self._in_keychain(lambda keychain: write_checked(keychain, service, values))

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        if not names:
            return
        if _known(store) == VAULT:
            await self._run(VAULT, lambda: self.vault.remove(self._key(), service, names))
        else:
            await self._in_keychain(lambda keychain: remove_checked(keychain, service, names), instead=False)

    async def unlock(self, store: str) -> None:
        """Make a store usable, if it is not yet.

        The keychain may prompt on the desktop, for up to a minute. The vault takes the key that is at hand; one that
        was given and does not fit is forgotten. Raises Refusal (as the port, keychain-locked, vault-locked).
        """
        if _known(store) == KEYCHAIN:
            await self._in_keychain(lambda keychain: keychain.unlock(), PROMPT_TIMEOUT_S)
            return
        try:
            await self._run(VAULT, lambda: self.vault.check(self._key()))
        except Refusal as refusal:
            if refusal.reason == "vault-key-wrong":
                self._given_key = None
            raise

    def give_vault_key(self, key: bytes) -> None:
        """Keep the key of the vault in the memory of this process. Raises Refusal (vault-key-wrong) for no key at all.

        Only `unlock` checks that the key is the right one.
        """
        self._given_key = key_of(key)

    def renew_vault_key(self, key: bytes) -> None:
        """Take another key in place of one that was given: the passphrase was changed. Raises Refusal
        (vault-key-wrong)."""
        if self._given_key is not None:
            self._given_key = key_of(key)

    def forget_vault_key(self) -> bool:
        """Forget the key that was given, and return whether a key was held."""
        held, self._given_key = self._given_key is not None, None
        return held

    def opened_by(self) -> str:
        """Return, in words, what opens the vault for this process at any time; empty if nothing does."""
        try:
            return key_at_hand(self._environment, None).origin
        except Refusal:
            return ""

    def _key(self) -> KeyAtHand:
        try:
            return key_at_hand(self._environment, self._given_key)
        except Refusal as refusal:
            if refusal.reason != "vault-locked":
                raise
            if not self.vault.has_passphrase():
                raise Refusal("vault-locked", refusal.message, fix=[self.vault.unlock_command()]) from None
            message = f"{refusal.message}; its passphrase opens it for a server that runs, or at a terminal"
            raise Refusal("vault-locked", message, fix=["omac unlock"]) from None

    def _system_keychain(self) -> Keychain:
        if self._keychain is not None:
            return self._keychain
        from omac.adapters.credentials.secret_service import SecretService  # late: a start without it need not load it

        return SecretService(self._environment, timeout_s=self._timeout_s, prompt_timeout_s=PROMPT_TIMEOUT_S)

    async def _in_keychain(
        self, work: Callable[[Keychain], T], timeout_s: float | None = None, *, instead: bool = True
    ) -> T:
        """Run `work` on the keychain, as `_run` does. A refusal that leads to the vault names the commands that are
        left to do: making it, and choosing it. None of them helps where no vault can stand in (not `instead`)."""

        def done() -> T:
            try:
                return work(self._system_keychain())
            except Refusal as refusal:
                if refusals.USE_VAULT not in refusal.fix:
                    raise
                fix = [command for command in refusal.fix if command != refusals.USE_VAULT]
                raise Refusal(
                    refusal.reason, refusal.message, fix=[*fix, *(self._to_vault() if instead else ())]
                ) from None

        return await self._run(KEYCHAIN, done, timeout_s)

    def _to_vault(self) -> list[str]:
        """Return the commands after which new values are kept in the vault."""
        making = [] if self.vault.exists() else [refusals.USE_VAULT]
        return [*making, refusals.CHOOSE_VAULT] if self._keychain_only else making

    async def _run(self, store: str, work: Callable[[], T], timeout_s: float | None = None) -> T:
        """Run `work` in a thread, within the time-out, and return its result. Raises its Refusal, or one for the
        time-out."""
        seconds = timeout_s or self._timeout_s
        outcome: T | Refusal = _timed_out(store, seconds, self.vault.path)
        with trio.move_on_after(seconds):
            outcome = await run_in_thread(
                partial(_outcome, store, work), abandon_on_cancel=True, limiter=self._threads[store]
            )
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome


def _outcome(store: str, work: Callable[[], T]) -> T | Refusal:
    """Return the result of `work`, or its refusal without the frames that may hold a value."""
    try:
        return work()
    except Refusal as refusal:
        result = refusal
    except Exception as error:  # whatever it is, its text and its frames may hold a value
        why = f"failed unexpectedly ({type(error).__name__})"
        fix = []
        if is_out_of_memory(error):
            why, fix = "needs memory, and the system has none left for omac", [LIST_LIMITS]
        result = Refusal("keychain-failed" if store == KEYCHAIN else "vault-unusable", f"the {store} {why}", fix=fix)
    result.__traceback__ = result.__context__ = result.__cause__ = None
    return result


def _timed_out(store: str, seconds: float, vault_path: str) -> Refusal:
    if store == KEYCHAIN:
        return refusals.timed_out(seconds)
    fix = [f"ls -l {quoted(vault_path)}"]
    return Refusal("vault-unusable", f"the vault {vault_path} could not be used within {seconds:g} s", fix=fix)


def _known(store: str) -> str:
    if store not in (KEYCHAIN, VAULT):
        raise ValueError(f"unknown store {store!r}")
    return store


def _require_storable(service: str, name: str, value: Hidden) -> None:
    size = _utf8_bytes(value)
    if size is None:
        raise Refusal("value-refused", f"the value of {name} of {service} is not Unicode text")
    if size > VALUE_BYTES_MAX:
        message = f"the value of {name} of {service} has {size} bytes; the limit is {VALUE_BYTES_MAX // 1024} KiB"
        raise Refusal("value-refused", message)


def _utf8_bytes(value: Hidden) -> int | None:
    """Return the size of a value in UTF-8; None if it is not Unicode, as the error would hold the text."""
    try:
        return len(value.reveal().encode())
    except UnicodeError:
        return None
