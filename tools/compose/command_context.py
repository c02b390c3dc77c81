"""The context of a command about skills: the state directory, the journal, the skill folders and the stores."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

from omac.adapters.credentials.stores import Choice
from omac.adapters.credentials.stores import SecretStores as SecretStores
from omac.adapters.files.state import StateDir
from omac.adapters.files.turns import OneAtATime
from omac.adapters.linux.home import home_of
from omac.adapters.settings.files import read_user
from omac.adapters.sidecars.interpreters import HostInterpreters
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.kernel import run
from omac.domain.kernel.paths import below
from omac.domain.settings.settings import resolve
from omac.services.credentials.values import Credentials
from omac.services.skills.registration import Registering
from omac.tools.compose.journals import carrying
from omac.tools.compose.state import living_roots
from omac.tools.compose.tool_caches import cache_folders
from omac.tools.terminal.invocation import current
from omac.tools.terminal.progress import Progress


class Opened(NamedTuple):
    """The opened parts of the context, for the length of one command."""

    state: StateDir
    folders: DiskSkillFolders
    stores: SecretStores
    credentials: Credentials
    registering: Registering
    copying: Progress  # of approved copies; to be cleared before anything else is shown


@contextmanager
def opened(environment: Mapping[str, str], journal_path: str | None) -> Iterator[Opened]:
    """Open it all, and close the journal in the end. Raises Refusal."""
    state, stores = StateDir.of(environment), secret_stores(environment)
    with carrying(environment, journal_path) as execution, Progress("files copied", current().stderr) as copying:
        key = state.fingerprint_key(lambda: secrets.token_hex(32))
        credentials = Credentials(execution, stores, key, changing_of(state))
        store = execution.journal.store
        frozen = DiskFrozenSkills(state.frozen(store.path, store.journal_id()), copying.step)
        roots = living_roots(state, execution.host, lambda stream: execution.entry(run.AGGREGATE, stream).state)
        writable = [*_here(environment), *roots, *cache_folders(environment)]
        interpreters = HostInterpreters(environment, writable)
        registering = Registering(execution, frozen, interpreters, credentials)
        yield Opened(state, DiskSkillFolders(environment), stores, credentials, registering, copying)


def _here(environment: Mapping[str, str]) -> list[str]:
    """The current directory, which may be a project; not one that holds the home folder."""
    here = os.path.realpath(os.curdir)
    return [] if below(os.path.realpath(home_of(environment)), here) else [here]


def changing_of(state: StateDir) -> OneAtATime:
    """Return the lock for changes of credentials: one process at a time on this host."""
    return OneAtATime(os.path.join(state.path, "credentials.lock"))


def secret_stores(environment: Mapping[str, str]) -> SecretStores:
    """The stores of secrets, as the settings choose. Raises Refusal (misuse, settings-invalid)."""
    choice = cast("Choice", resolve({}, environment, None, read_user(environment))["secrets.store"].value)
    return SecretStores(StateDir.of(environment).path, environment, choice, choose_once=True)
