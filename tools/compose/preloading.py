"""The loading of modules that a server needs only later.

Rules

1. The modules of the control plane are loaded once it is ready, while the launched command starts. Where that command
   is an agent, whose first hook calls the control plane, they are loaded as soon as its sandbox runs it, and no sooner:
   loading slows everything that a start waits for.
2. Where omac is installed in the very folder that a program may change (a checkout of omac itself, a virtual
   environment in the project), a module loaded later could be the program's: all are loaded before it is launched.
"""

import importlib
import os
import sys
from collections.abc import Iterable
from functools import partial

import trio

import omac
from omac.adapters.control.late import LateApp, importing
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.paths import below
from omac.domain.sandbox.launch import Launched
from omac.services.kernel.engine import Engine
from omac.services.kernel.owners import retried
from omac.services.kernel.threads import run_in_thread
from omac.tools.compose.agent_launch import AgentLaunch

MODULES = "the modules of the control plane"
AFTER_S = 0.2  # a command that ends sooner has not waited for what it did not need

NEEDED_LATER = (
    "cryptography.exceptions", "cryptography.hazmat.backends.openssl", "cryptography.hazmat.primitives.ciphers.aead",
    "difflib", "encodings.idna", "omac.adapters.control.app", "omac.adapters.credentials.secret_service",
    "omac.journal.checkpoint", "re2", "ruamel.yaml", "tomlkit", "unicodedata",
)  # fmt: skip


def is_exposed(writable: Iterable[str]) -> bool:
    """Return whether a program that may change the canonical folders `writable` could change omac's own code, that of
    the libraries, or the interpreter."""
    package = os.path.dirname(omac.__file__)
    around = os.path.dirname(os.path.dirname(sys.executable))
    own = [package, around, sys.prefix, sys.base_prefix, *(entry.path for entry in os.scandir(package))]
    own_paths = {os.path.realpath(path) for path in own}
    return any(below(path, folder) or below(folder, path) for path in own_paths for folder in writable)


def load() -> None:
    """Load what is needed later."""
    for name in NEEDED_LATER:
        try:
            with importing():
                importlib.import_module(name)
        except ImportError:  # not installed here: then it is not loaded later either
            continue


class LaterLoading:
    """The later loading of one server; `writable` are the canonical folders that the launched command may change."""

    def __init__(self, engine: Engine, launch: AgentLaunch | None, writable: Iterable[str]) -> None:
        self._engine = engine
        self._is_launching = launch is not None
        self._is_confined_agent = launch is not None and launch.agent != "" and launch.request is not None
        self._is_exposed = launch is not None and is_exposed(writable)

    def begin(self, app: LateApp, nursery: trio.Nursery) -> None:
        """Load beside the activation what is needed soon after it."""
        if self._is_exposed:  # the activation waits for processes
            nursery.start_soon(retried, MODULES, partial(run_in_thread, load))
        elif self._is_confined_agent:
            nursery.start_soon(self._load_once_it_runs, app)

    async def finish(self, app: LateApp, nursery: trio.Nursery) -> None:
        """Load the rest before a program is launched that could change it, else beside its first moments."""
        if self._is_exposed:
            await retried(MODULES, partial(run_in_thread, load))
            await retried(MODULES, app.load)
        elif not self._is_confined_agent:
            after_s = AFTER_S if self._is_launching else 0.0
            nursery.start_soon(retried, MODULES, partial(app.load, after_s))

    async def _load_once_it_runs(self, app: LateApp) -> None:
        runs = trio.Event()

        def notice(record: Recorded) -> None:
            if isinstance(record.event, Launched):
                runs.set()

        self._engine.observe(notice)
        await runs.wait()
        await retried(MODULES, app.load)
