"""The folder of a run, made again when a cleaner of /tmp or a person removes it: logs, lock, token and sockets.

Without it a run goes on, but no command finds it, and no sidecar can be started for want of a log.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping

import trio

from omac.adapters.files.sockets import remove_sockets, sockets_in
from omac.adapters.files.state import StateDir
from omac.adapters.linux import listen
from omac.domain.kernel.ids import RunId
from omac.domain.kernel.refusal import Refusal

POLL_S = 2.0

_log = logging.getLogger("omac.serve")


async def keep_folder(
    state: StateDir,
    run: RunId,
    journal: str,
    tokens: Mapping[str, str],
    sockets: Mapping[str, Callable[[socket.socket], Awaitable[object]]],
    *,
    current: bool,
) -> None:
    """Restore what is missing of the folder of this run, until cancelled. Raises OSError (as a group, too) where the
    system has no descriptor left.

    `tokens` are what token files hold, by name; `sockets` has, for each socket by name, what begins to serve another
    one in its place. `current` says that run/current leads here.
    """
    folder, problem = state.run_path(run), ""
    while True:
        await trio.sleep(POLL_S)
        try:
            if state.restore_run(run, journal):
                _log.warning("%s was removed while this omac uses it, and was made again", folder)
            for path in _missing(folder, *tokens):
                state.write_token(path, tokens[os.path.basename(path)])
            for path in _missing(folder, *sockets):
                await _serve_again(path, sockets[os.path.basename(path)])
            if current and not state.leads_to_living():
                state.point_current(run)
            problem = ""
        except Refusal as refusal:  # it is tried again
            if refusal.message != problem:
                _log.error("%s is not whole, and cannot be restored: %s", folder, refusal.message)
            problem = refusal.message


def delete_sockets(folder: str) -> None:
    """Remove the sockets in the folder of a run that ends; the next start removes what cannot be removed now."""
    with contextlib.suppress(OSError):
        remove_sockets(folder, sockets_in(folder))


async def _serve_again(path: str, begin: Callable[[socket.socket], Awaitable[object]]) -> None:
    bound = listen.unix(path)
    try:
        await begin(bound)
    except BaseException:  # nobody serves it: it is made another time
        bound.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _missing(folder: str, *names: str) -> list[str]:
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if not os.path.lexists(path)]
