"""The set-up of the Go omac, for `omac import`: its files, and what this omac has on record beside them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from omac.adapters.files import atomic
from omac.adapters.legacy.go_files import copy_path, read_old, read_profiles
from omac.adapters.linux.home import home_of
from omac.adapters.skills.reading import read_tree
from omac.adapters.skills.yaml_file import YamlFileError, parse_yaml
from omac.domain.kernel import state_paths
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.unflushed import Unflushed
from omac.domain.legacy.go_import import Old, Seen, loose_of
from omac.domain.legacy.go_profile import ProfilePlan, plan_of
from omac.journal.folders import write_command
from omac.services.legacy.go_import import GoImport, RecordedState
from omac.tools.compose.command_context import secret_stores
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir, host_id


def read_set_up(workdir: str, environment: Mapping[str, str]) -> Old:
    """Return all that the Go omac left for a project and this user; its `notes` tell what could not be used."""
    return read_old(workdir, environment, _parsed)


def read_go_profiles(workdir: str, environment: Mapping[str, str]) -> tuple[list[ProfilePlan], list[str]]:
    """Return what becomes of the sandbox profiles that the Go omac left for this user, and notes on the unusable."""
    profiles, notes = read_profiles(workdir, environment)
    plans = []
    for name, (source, document) in profiles.items():
        path = _profile_path(name, environment)
        plans.append(plan_of(name, source, document, path if os.path.lexists(path) else ""))
    return plans, notes


def write_profile(plan: ProfilePlan, environment: Mapping[str, str]) -> None:
    """Write the new profile, where none is. Raises Refusal (state-unusable)."""
    path = _profile_path(plan.name, environment)
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with suppress(FileExistsError):  # another import was first
            atomic.publish(path, plan.text.encode())
    except Unflushed as problem:
        raise problem.refusal("state-unusable", f"the profile {path}", os.path.dirname(path)) from None
    except OSError as error:
        fix = [write_command(error, os.path.dirname(path))]
        raise Refusal("state-unusable", f"the profile {path} cannot be written: {error.strerror}", fix=fix) from None


def _profile_path(name: str, environment: Mapping[str, str]) -> str:
    folder = state_paths.configuration(environment, home_of(environment))
    return os.path.join(folder, "sandbox-profiles", f"{name}.toml")


@contextmanager
def open_import(old: Old, literal: str, journal_path: str | None, environment: Mapping[str, str]) -> Iterator[GoImport]:
    """Return the use case for a set-up; `literal` is the project's path as it was typed. Raises Refusal."""
    stores = secret_stores(environment)

    def kept(name: str, bundle_hash: str) -> Seen:
        return _seen(copy_path(name, bundle_hash, environment))

    with _recorded(journal_path, environment) as recorded:
        yield GoImport(old, literal, recorded, stores, _seen, kept)


def _parsed(content: bytes, shown_path: str) -> object:
    try:
        return parse_yaml(content, shown_path)
    except YamlFileError as error:
        where = "" if error.line is None else f"line {error.line}: "
        raise ValueError(where + error.problem) from None


def _seen(source: str) -> Seen:
    tree = read_tree(source)
    return Seen(tree.bundle_hash(), tree.digest(), loose_of(tree.files, tree.links))


@contextmanager
def _recorded(journal_path: str | None, environment: Mapping[str, str]) -> Iterator[RecordedState]:
    """Yield the state recorded so far. Creates nothing: without a state directory, nothing is recorded."""
    state = StateDir.of(environment)
    if not os.path.exists(os.path.join(state.path, "host-id")):
        yield RecordedState(None, None)
        return
    with read_if_any(state, state.journal_in_use(environment, journal_path)) as journal:
        yield RecordedState(journal, host_id(state) if journal is not None else None)
