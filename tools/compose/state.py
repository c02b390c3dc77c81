"""The state directory as commands ask about it: the id of this host, and which runs live."""

import os
import secrets
from collections.abc import Callable, Mapping

from omac.adapters.files.journal_in_use import closed as closed
from omac.adapters.files.state import StateDir as StateDir
from omac.adapters.git.pending import Pending
from omac.adapters.linux.listen import UNIX_PATH_BYTES_MAX
from omac.adapters.linux.process_identity import began_at as began_at
from omac.adapters.linux.process_identity import boot_id
from omac.adapters.linux.process_identity import is_hidden as is_hidden
from omac.adapters.linux.process_identity import is_living as is_living
from omac.adapters.linux.process_identity import is_suspended as is_suspended
from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.kernel.run import Run
from omac.journal.folders import look_at as look_at

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from omac.journal.format import Present
    from omac.projections.status import RunStatus


def host_id(state: StateDir) -> HostId:
    """Return the id of this host, which is minted where none is. Raises Refusal."""
    return state.host_id(lambda: secrets.token_hex(8))


def is_living_run(state: StateDir, run: "RunStatus | Present") -> bool:
    """Return whether the process of a run lives, by its identity, or by the lock of the run where another pid namespace
    hides it. Raises Refusal."""
    return state.is_alive(RunId(run.run), Run(pid=run.pid, start_ticks=run.start_ticks, boot_id=run.boot_id))


def is_living_launch(state: StateDir, launch: str, pid: int, ticks: int, boot: str) -> bool:
    """Return whether the omac process that launched a program lives, by its identity, or by the record that it keeps
    locked where another pid namespace hides it. Raises Refusal."""
    return is_living(pid, ticks, boot) or (boot == boot_id() and launch in Pending(state.path).living())


def living_roots(state: StateDir, host: HostId, run_at: Callable[[StreamId], Run]) -> list[str]:
    """Return the folders of the runs that live, in which their agents may write; `run_at` gives a run by its stream."""
    return [root for run in state.living_runs() for root in run_at(ids.run_stream(host, run)).roots]


def living_sockets(environment: Mapping[str, str]) -> list[str]:
    """Return the control sockets of the runs that live, the server's first."""
    return [path for path in StateDir.of(environment).living_sockets() if _can_exist(path)]


def server_socket(environment: Mapping[str, str]) -> str:
    """Return the control socket of the server, be it there or not; empty where none can be."""
    path = StateDir.of(environment).current_socket()
    return path if _can_exist(path) else ""


def _can_exist(path: str) -> bool:
    return len(os.fsencode(path)) <= UNIX_PATH_BYTES_MAX
