"""The vault of this user, and the stores beside it, for `omac vault` and `omac unlock`."""

import os
from collections.abc import Mapping

import trio

from omac.adapters.credentials.keys import FILE_VARIABLE as FILE_VARIABLE
from omac.adapters.credentials.keys import KeyAtHand as KeyAtHand
from omac.adapters.credentials.keys import key_at_hand, make_key_file
from omac.adapters.credentials.private_file import read_private
from omac.adapters.credentials.stores import KEYCHAIN as KEYCHAIN
from omac.adapters.credentials.stores import VAULT as VAULT
from omac.adapters.credentials.stores import SecretStores as SecretStores
from omac.adapters.credentials.vault import Vault as Vault
from omac.adapters.credentials.vault_format import BYTES_MAX, unseal
from omac.adapters.credentials.vault_format import VaultKey as VaultKey
from omac.adapters.files.state import StateDir
from omac.domain.kernel.refusal import Refusal
from omac.journal.folders import make_private, write_command
from omac.tools.compose.command_context import secret_stores as secret_stores
from omac.tools.compose.journals import read_if_any, system_of


def key_of_environment(environment: Mapping[str, str]) -> KeyAtHand | None:
    """Return the vault's key that the environment leads to, if it leads to one. Raises Refusal (vault-unusable)."""
    try:
        return key_at_hand(environment, None)
    except Refusal as refusal:
        if refusal.reason == "vault-locked":
            return None
        raise


def create_under_new_key(vault: Vault, path: str) -> None:
    """Make a key file and a vault that opens with it; what fails leaves no vault without its key. Raises Refusal."""
    try:
        make_private(os.path.dirname(path))
    except OSError as error:
        fix = [write_command(error, os.path.dirname(path))]
        raise Refusal("state-unusable", f"{path} cannot be made: {error.strerror}", fix=fix) from None
    key = make_key_file(path)
    try:
        vault.create_with_key(key)
    except BaseException:
        if not vault.exists():
            os.unlink(path)
        raise
    vault.note_key_file(path)


def counted(vault: Vault, at_hand: KeyAtHand) -> tuple[int, int]:
    """Return how many services there are, and names in all of them. Raises Refusal (vault-*)."""
    vault.check(at_hand)
    contents = unseal(read_private(vault.path, "the vault", BYTES_MAX), at_hand.key)
    return len(contents), sum(map(len, contents.values()))


def used_stores(stores: SecretStores, environment: Mapping[str, str]) -> set[str]:
    """Return the stores that hold something that was given, and the one that would take more. Raises Refusal."""
    used = {trio.run(stores.chosen)}
    state = StateDir.of(environment)
    with read_if_any(state, state.journal_in_use(environment)) as journal:
        if journal is None:
            return used
        known = [entry.state for entry in system_of(journal, state).credentials.entries.values()]
    for credential in known:
        remembered = [default.secret for default in credential.defaults.values() if default.secret]
        used |= {stored.store for stored in (*credential.secrets.values(), *remembered)}
    return used if stores.vault.exists() else used - {VAULT} or used
