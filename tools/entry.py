"""Where the `omac` program begins: what must start within milliseconds goes its own way, all else to `omac.tools.main`.

`omac sandbox run` and `omac hook pre-tool-use` stand in the way of every command that an agent runs; loading what the
other commands need would take twenty times as long as their own work.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would cost more than this whole module
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; the process ends with its exit code."""
    match sys.argv[1:3]:
        case ["sandbox", "run"]:
            from omac.tools import sandbox_run

            sys.exit(sandbox_run.main(sys.argv[3:]))
        case ["hook", "pre-tool-use"]:
            from omac.tools import hook

            sys.exit(hook.main(sys.argv[3:]))
        case _:
            from omac.tools.main import main as everything_else

            everything_else()
