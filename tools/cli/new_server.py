"""The server of `omac start` and `omac serve`: before anything of it begins, a person is warned, and asked for the
passphrase of the vault.

What asking takes is loaded where there is a vault only: every start comes this way.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from omac.domain.kernel import ids
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.repository import is_repository
from omac.tools.compose.agent_launch import warn, warn_bridge_compat
from omac.tools.compose.command_context import secret_stores
from omac.tools.compose.serve_options import ServeOptions
from omac.tools.compose.serving import Server
from omac.tools.compose.state import StateDir
from omac.tools.compose.waiting_sandbox import WaitingSandbox

if TYPE_CHECKING:
    from omac.tools.compose.registered_skills import RegisteredSkill
    from omac.tools.compose.vaults import VaultKey

SKIP = "leaves it locked: these skills wait until omac unlock"


def server_of(options: ServeOptions, environment: Mapping[str, str], waiting: WaitingSandbox | None = None) -> Server:
    """Return the server of these options; it has the key of the vault where a person opened that. `waiting` builds its
    sandbox; None: one begins when all is loaded. Raises Refusal: vault-*, prompt-ended, and what the server raises."""
    if options.launch is not None:
        warn(options.launch)
    if options.bridge_compat:
        warn_bridge_compat()
    key = _ask_before_start(options, environment)
    server = Server(options, environment, waiting)
    if key is not None:
        server.secrets.give_vault_key(key)
    return server


def _ask_before_start(options: ServeOptions, environment: Mapping[str, str]) -> "VaultKey | None":
    """Return the key of the vault that a person opened, None where nothing of it is needed, where something else opens
    it, where nobody can be asked, and where it shall stay locked. Raises Refusal: vault-*, prompt-ended."""
    vault = secret_stores(environment).vault
    if not vault.exists():
        return None
    from omac.tools.compose.vaults import key_of_environment
    from omac.tools.terminal.prompts import can_ask

    if not can_ask():
        return None
    skills: list[str] = []
    with suppress(Refusal):  # a vault or a journal that cannot be read: what needs it reports it
        if vault.has_passphrase() and key_of_environment(environment) is None:
            skills = _waiting(options, environment)
    if not skills:
        return None
    _refuse_second(options, environment)
    from omac.tools.cli.vault_key import ask_vault_key

    return ask_vault_key(
        vault, f", for {', '.join(skills)}", SKIP, "Enter instead of a passphrase leaves the vault locked"
    )


def _refuse_second(options: ServeOptions, environment: Mapping[str, str]) -> None:
    """Raise Refusal (journal-in-use) where a server has the journal already: nobody types a passphrase in vain."""
    state = StateDir.of(environment)
    if not options.beside and state.leads_to_living():
        with state.without_server(state.journal(environment, options.journal)):
            pass


def _waiting(options: ServeOptions, environment: Mapping[str, str]) -> list[str]:
    """The names of approved skills, of directories that this server may have, with secrets in the vault."""
    from omac.tools.compose.registered_skills import Registry
    from omac.tools.compose.repositories import repository_of
    from omac.tools.compose.vaults import VAULT

    registry = Registry.read(environment, options.journal)
    scopes = {ids.GLOBAL, *map(ids.scope_of, options.workdirs)}
    scopes |= {part.scope for part in map(repository_of, options.workdirs) if part is not None}

    def may_run(known: "RegisteredSkill") -> bool:
        status = known.status
        if options.beside:
            return status.scope in scopes
        is_there = bool(options.roots) and (is_repository(status.scope) or below_any(status.dir, options.roots))
        return status.scope in scopes or is_there

    here = [registered.status for registered in registry.known if may_run(registered)]
    approved = {status.skill for status in here if status.approved_hash}
    names = set()
    for status in here:
        secrets = registry.credential(status.scope, status.skill, status.harness).secrets
        names |= {status.skill for secret in secrets.values() if secret.store == VAULT}
    return sorted(names & approved)
