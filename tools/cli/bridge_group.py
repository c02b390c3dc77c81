"""The commands `omac bridge ...`, as the help shows them."""

from typing import Annotated

import typer

from omac.domain.harness.names import EXAMPLE
from omac.tools.cli.plain_typer import Commands, Json
from omac.tools.terminal.invocation import current

bridge_app = Commands(help="Have agents that you launch yourself call omac.")

Name = Annotated[str | None, typer.Argument(metavar="HARNESS", help=f"Such as {EXAMPLE}; without one, all.")]


@bridge_app.command()
def install(harness: Name = None) -> int:
    """Put omac's hooks, or its plugin, into your own settings of an agent.

    Each session then gets the project's skills where an omac runs, and file
    tools stay in their worktree. Where none runs, sessions go on without.
    Without HARNESS: each agent that is on PATH.

    \b
    omac bridge install claude
    omac bridge install
    """
    from omac.tools.cli.bridge import install

    return install(harness, current().environment)


@bridge_app.command()
def status(harness: Name = None, json: Json = False) -> int:
    """Show for each agent whether your own settings call omac."""
    from omac.tools.cli.bridge import status

    return status(harness, json, current().environment)


@bridge_app.command()
def uninstall(harness: Name = None) -> int:
    """Restore your settings of an agent as they were before.

    What you changed since stays: omac removes what it added and nothing else.
    A write guard that omac hook install put there stays, too.
    """
    from omac.tools.cli.bridge import uninstall

    return uninstall(harness, current().environment)
