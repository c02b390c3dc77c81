"""The control plane's application, loaded once omac is ready: its framework takes a third of a server's start to load.

Connections are accepted from the start; the first call waits for the application.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import trio

from omac.domain.access.control import Listener
from omac.services.access.receiving import Receiving
from omac.services.directories.locking import StoreLocking
from omac.services.directories.requests import Directories
from omac.services.guard.claims import DenialClaims
from omac.services.kernel.threads import run_in_thread
from omac.services.ports import VaultKeys

SWITCH_S = 0.0005  # whatever else is to be done meanwhile waits so long for the interpreter, and no longer


@dataclass(frozen=True)
class ControlUseCases:
    """The use cases behind the control plane. `status` gives the projected state as a listener may see it, `correlate`
    a fresh correlation id; `keys` keeps the key of the vault in this process's memory; `receiving` takes the
    checkpoints of other journals. `bridge_compat`: an agent's bridge gets the JSON of the Go omac."""

    directories: Directories
    locking: StoreLocking
    claims: DenialClaims
    status: Callable[[Listener], Awaitable[object]]
    correlate: Callable[[], str]
    keys: VaultKeys
    receiving: Receiving
    bridge_compat: bool


class LateApp:
    """An ASGI application that loads itself at its first call, or when `load` is called; see `control_app`."""

    def __init__(self, use_cases: ControlUseCases) -> None:
        self._use_cases = use_cases
        self._loading = trio.Lock()
        self._app: Any = None  # an ASGI application

    async def load(self, after_s: float = 0.0) -> None:
        """Return when it is loaded, which is begun after so many seconds; whatever else omac does goes on meanwhile.
        Cancelled, nobody waits for it."""
        await trio.sleep(after_s)
        async with self._loading:
            if self._app is None:
                interval = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_S)
                try:
                    control_app = await run_in_thread(_control_app, abandon_on_cancel=True)
                finally:
                    sys.setswitchinterval(interval)
                self._app = control_app(self._use_cases)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            await self.load()
        await self._app(scope, receive, send)


@contextmanager
def importing() -> Iterator[None]:
    """Import modules: of a package that cannot be imported, for want of a descriptor say, no part stays. With some of
    its parts there, many a package can never be imported again (asyncio)."""
    before = set(sys.modules)
    try:
        yield
    except BaseException:
        for name in sorted(sys.modules.keys() - before):  # a package comes before its parts
            package = name.rpartition(".")[0]
            if package and package not in sys.modules:
                del sys.modules[name]
        raise


def _control_app() -> Callable[..., object]:
    with importing():
        from omac.adapters.control.app import control_app

    return control_app
