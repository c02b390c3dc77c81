"""The commands for authors of skills: `omac skill new` and `omac skill check`."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import Commands, Json

skill_app = Commands(help="Write a skill of your own: begin one, check it, and let an editor help.")


@skill_app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The skill's name.")],
    secret: Annotated[
        list[str] | None, typer.Option("--secret", metavar="NAME", help="A secret that it needs; may be repeated.")
    ] = None,
    workdir: Annotated[str, typer.Option("--workdir", metavar="DIR", help="The project directory.")] = ".",
    json: Json = False,
) -> int:
    """Begin a skill in .agents/skills that runs as it is; nothing is overwritten.

    \b
    omac skill new slack
    omac skill new slack --secret SLACK_TOKEN
    """
    from omac.tools.cli.skill import new

    return new(name, secret or [], workdir, json)


@skill_app.command("check")
def check(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A skill's folder, or a project with skills.")] = ".",
    json: Json = False,
) -> int:
    """Report every problem of a skill, with its line; the exit code is 3 if there is one.

    \b
    omac skill check
    omac skill check .agents/skills/slack
    """
    from omac.tools.cli.skill import check

    return check(directory, json)


@skill_app.command("schema")
def schema(
    example: Annotated[
        bool, typer.Option("--example", help="An omac.yaml instead, which explains each of its lines.")
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Print where the file is, not its content.")] = False,
) -> int:
    """Print the form of omac.yaml as a JSON schema, by which editors complete and check it.

    \b
    omac skill schema --example
    omac skill schema --path
    """
    from omac.tools.cli.skill_form import run

    return run(example, path)
