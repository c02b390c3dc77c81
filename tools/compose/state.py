"""The state directory as commands ask about it: where the journal is, which runs live, and what is still to be done."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omac.adapters.files.state import StateDir
from omac.adapters.linux import process_identity
from omac.adapters.linux.listen import UNIX_PATH_BYTES_MAX
from omac.domain.kernel.ids import HostId

if TYPE_CHECKING:  # who asks a server needs nothing of the journal
    from omac.journal.mark import Mark


def journal_in_use(environment: Mapping[str, str], flag: str | None = None) -> str:
    """Return the path of the journal that a command means. Raises Refusal."""
    return StateDir.of(environment).journal_in_use(environment, flag)


def journal_of_a_server(environment: Mapping[str, str], flag: str | None) -> str:
    """Return the path of the journal that a server would use, whichever is in use now. Raises Refusal."""
    return StateDir.of(environment).journal(environment, flag)


def host_id(environment: Mapping[str, str]) -> HostId:
    """Return the id of this host, which is minted where none is. Raises Refusal."""
    return StateDir.of(environment).host_id(lambda: secrets.token_hex(8))


def has_host_id(environment: Mapping[str, str]) -> bool:
    """Return whether this host has an id; asking mints none."""
    return os.path.exists(os.path.join(StateDir.of(environment).path, "host-id"))


def journal_mark(environment: Mapping[str, str], path: str) -> "Mark":
    """Return what the state directory knows of the journal at a path."""
    from omac.journal.mark import Mark

    return Mark.of(StateDir.of(environment).path, path)


@contextmanager
def without_server(environment: Mapping[str, str], journal: str) -> Iterator[None]:
    """Keep a server from beginning on a journal. Raises Refusal where one runs."""
    descriptor = StateDir.of(environment).hold_server(journal)
    try:
        yield
    finally:
        os.close(descriptor)


def is_living(pid: int, ticks: int, boot: str) -> bool:
    """Return whether the process that had `pid` and began at `ticks` of boot `boot` still runs."""
    return process_identity.is_living(pid, ticks, boot)


def has_due_inspections(environment: Mapping[str, str]) -> bool:
    """Return whether launches that were killed may have left something that is to be inspected."""
    return StateDir.of(environment).has_inspections()


def living_sockets(environment: Mapping[str, str]) -> list[str]:
    """Return the control sockets of the runs that live, the server's first."""
    return [path for path in StateDir.of(environment).living_sockets() if _can_exist(path)]


def server_socket(environment: Mapping[str, str]) -> str:
    """Return the control socket of the server, be it there or not; empty where none can be."""
    path = StateDir.of(environment).current_socket()
    return path if _can_exist(path) else ""


def _can_exist(path: str) -> bool:
    return len(os.fsencode(path)) <= UNIX_PATH_BYTES_MAX
