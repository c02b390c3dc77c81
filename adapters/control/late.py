"""The control plane's application, loaded once omac is ready: its framework takes a third of a server's start to load.

Connections are accepted from the start; the first call waits for the application.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from omac.domain.access.control import Listener
from omac.services.access.receiving import Receiving
from omac.services.directories.requests import Directories
from omac.services.guard.claims import DenialClaims
from omac.services.kernel.threads import run_in_thread
from omac.services.ports import VaultKeys

SWITCH_S = 0.0005  # whatever else is to be done meanwhile waits so long for the interpreter, and no longer


class LateApp:
    """An ASGI application that loads itself at its first call, or when `load` is called; see `control_app`."""

    def __init__(
        self,
        directories: Directories,
        claims: DenialClaims,
        status: Callable[[Listener], Awaitable[object]],
        correlate: Callable[[], str],
        keys: VaultKeys,
        receiving: Receiving,
        *,
        bridge_compat: bool = False,
    ) -> None:
        self._bridge_compat = bridge_compat
        self._parts = (directories, claims, status, correlate, keys, receiving)
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
                self._app = control_app(*self._parts, bridge_compat=self._bridge_compat)

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
