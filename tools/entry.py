"""Where the `omac` program begins: what must start within milliseconds goes its own way, all else to `omac.tools.main`.

`omac sandbox run` and `omac hook pre-tool-use` stand in the way of every command that an agent runs; loading what the
other commands need would take twenty times as long as their own work. They live too short to leave garbage behind, and
end at once when all is said: taking the interpreter apart would take 3 ms.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than this whole module
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; the process ends with its exit code."""
    match sys.argv[1:3]:
        case ["sandbox", "run"]:
            gc.disable()
            from omac.tools import sandbox_run

            os._exit(sandbox_run.main(sys.argv[3:]))
        case ["hook", "pre-tool-use"]:
            gc.disable()
            try:
                from omac.tools import hook
            except BaseException as problem:  # agents take any status but 2 for consent
                os.write(2, f"omac: the write guard cannot be loaded: {problem}\n".encode(errors="replace"))
                os._exit(2)
            os._exit(hook.main(sys.argv[3:]))
        case _:
            from omac.tools.main import main as everything_else

            everything_else()
