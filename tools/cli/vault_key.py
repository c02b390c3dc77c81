"""The vault's passphrase, asked for before something is launched that needs it."""

from collections.abc import Mapping, Sequence

from omac.domain.kernel import ids
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import Secret
from omac.tools.compose import vaults
from omac.tools.compose.vaults import VAULT, VaultKey


def ask_key(workdirs: Sequence[str], journal: str | None, environment: Mapping[str, str]) -> VaultKey | None:
    """Return the vault's key, of the passphrase that a person types: where nothing else opens the vault, and approved
    skills of these directories, or of all projects, have a secret in it. None: it is not needed, or a person goes on
    without. Raises Refusal (vault-*, prompt-ended)."""
    vault = vaults.secret_stores(environment).vault
    try:
        is_locked = vault.exists() and vault.has_passphrase() and vaults.key_of_environment(environment) is None
    except Refusal:
        return None  # a vault that cannot be read: the skills that need it say why
    if not is_locked:
        return None
    from omac.tools.terminal.prompts import ask_secret, can_ask

    if not can_ask():
        return None
    from omac.tools.compose.registered_skills import Registry  # late, as the prompts: most launches need neither

    scopes = {ids.scope_of(place) for place in (*workdirs, "")}
    if VAULT not in Registry.read(environment, journal).stores(scopes):
        return None
    field = Secret("passphrase", f"of the vault {vault.path}")
    value = ask_secret(field, instead="goes on without the secrets in it")
    return None if value is None else vault.key_from_passphrase(value)
