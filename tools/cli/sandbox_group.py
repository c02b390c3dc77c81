"""The commands `omac sandbox ...` and `omac hook ...`, as the help shows them.

`omac sandbox run` and `omac hook pre-tool-use` do not come this way (`omac.tools.entry`), except to be listed.
"""

from typing import Annotated

import typer

from omac.domain.harness.names import HOOKED_NAMES, listed
from omac.tools.cli.plain_typer import Commands, Json
from omac.tools.hotpath import guard_hook, sandbox_run
from omac.tools.terminal.invocation import current

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

sandbox_app = Commands(help="Run commands that can change one project and nothing else.")
hook_app = Commands(help="Keep an agent's file tools in its own worktree.")


@sandbox_app.command("run", context_settings=PASSED_ON, add_help_option=False)
def run(context: typer.Context) -> int:
    """Run a command that can change this directory and nothing else of yours."""
    return sandbox_run.main(context.args)


@sandbox_app.command()
def doctor(json: Json = False) -> int:
    """Report what this machine offers for a sandbox, and the command that adds what is missing."""
    from omac.tools.cli.sandbox_doctor import run

    return run(json)


@hook_app.command("pre-tool-use", context_settings=PASSED_ON, add_help_option=False)
def pre_tool_use(context: typer.Context) -> int:
    """Judge a file tool's call, given on stdin by an agent; 2 denies it."""
    return guard_hook.main(context.args)


def doctor_of_all(
    fix: Annotated[bool, typer.Option("--fix", help="Mend modes of omac's own files; remove old run folders.")] = False,
    json: Json = False,
) -> int:
    """Check this machine and omac's own files, and print the command that mends each problem.

    \b
    omac doctor
    omac doctor --fix
    """
    from omac.tools.cli.doctor import run

    return run(fix, json, current().environment)


Project = Annotated[bool, typer.Option("--project", help="The project's file; an agent can change that one.")]
User = Annotated[bool, typer.Option("--user", help="Your own file; the default.")]
Agent = Annotated[str, typer.Argument(help=f"{listed(HOOKED_NAMES, 'or')}.")]


@hook_app.command()
def install(agent: Agent, project: Project = False, user: User = False) -> int:
    """Have an agent ask the write guard before its file tools write.

    It is the part of `omac bridge install` that needs no running omac.

    \b
    omac hook install claude
    omac hook install codex --project
    """
    from omac.tools.cli.bridge import install_guard

    return install_guard(agent, project, user, current().environment)


@hook_app.command()
def uninstall(agent: Agent, project: Project = False, user: User = False) -> int:
    """Stop an agent from asking the write guard; everything else in the file stays.

    \b
    omac hook uninstall claude
    """
    from omac.tools.cli.bridge import uninstall_guard

    return uninstall_guard(agent, project, user, current().environment)


@hook_app.command()
def role() -> int:
    """Print what an agent's role document should say about where it may write."""
    from omac.tools.cli.hook import role

    return role()
