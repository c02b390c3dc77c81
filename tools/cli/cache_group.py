"""The commands about tool caches: `omac cache list`, `omac cache clear` and `omac cache gc`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import Commands, Json
from omac.tools.terminal.invocation import current

cache_app = Commands(help="Show and remove what build tools keep for each project.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show it, and remove nothing.")]


@cache_app.command("list")
def cache_list(json: Json = False) -> int:
    """Show each project's tool cache: how large it is, when it was used, whether it is in use.

    \b
    omac cache list
    """
    from omac.tools.cli.cache import list_

    return list_(json, current().environment)


@cache_app.command("clear")
def cache_clear(
    workdir: Annotated[str | None, typer.Option("--workdir", metavar="DIR", help="The project directory.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The caches of all projects.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Remove the tool cache of a project; a cache in use is kept and reported.

    \b
    omac cache clear --workdir ~/projects/shop
    omac cache clear --all
    """
    from omac.tools.cli.cache import clear

    return clear(workdir, every, dry_run, json, current().environment)


@cache_app.command("gc")
def cache_gc(
    max_age: Annotated[
        str, typer.Option(metavar="AGE", help="Remove caches not used for this long: 12h, 30d.")
    ] = "30d",
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Then remove more, until the rest is this small: 500M, 20G.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> int:
    """Remove the tool caches of projects that are gone, and those not used for long; caches in use are kept.

    \b
    omac cache gc --dry-run
    omac cache gc --max-age 7d --max-size 20G
    """
    from omac.tools.cli.cache import gc

    return gc(max_age, max_size, dry_run, json, current().environment)
