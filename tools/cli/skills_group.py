"""The commands about skills: registering, approving, forgetting and listing them."""

from typing import Annotated

import typer

from omac.tools.cli.plain_typer import DIRECTORY_HELP, JournalPath, Json
from omac.tools.terminal.invocation import current

Harness = Annotated[str | None, typer.Option("--harness", help="Only what this coding agent sees.")]
Workdir = Annotated[
    str | None, typer.Option("--workdir", metavar="DIR", help="Only the skills of this project directory.")
]
Shared = Annotated[bool, typer.Option("--global", help="Only the skills that all projects share.")]
Hash = Annotated[str | None, typer.Option("--hash", help="Only if its files have this hash, as omac show prints it.")]
Repository = Annotated[
    bool, typer.Option("--repository", help="For the same files in every worktree of its git repository.")
]
SkillName = Annotated[str, typer.Argument(metavar="SKILL", help="The skill's name.")]


def add_to(app: typer.Typer) -> None:
    for command in (register, deregister, approve, revoke, approvals, show, diff, trust):
        app.command()(command)
    app.command("list")(list_)


def register(
    skill: SkillName,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Repository = False,
    force: Annotated[bool, typer.Option("--force", help="Also if its code has changed since the approval.")] = False,
    defaults: Annotated[bool, typer.Option("--defaults", help="Use saved defaults; ask for the rest.")] = False,
    no_secrets: Annotated[bool, typer.Option("--no-secrets", help="Leave secrets as they are.")] = False,
    secrets_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="NAME=value lines with secrets; - is the standard input.")
    ] = None,
    reprompt_secrets: Annotated[bool, typer.Option("--reprompt-secrets", help="Ask for secrets again.")] = False,
    no_fields: Annotated[bool, typer.Option("--no-fields", help="Leave settings as they are.")] = False,
    fields_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="NAME=value lines with settings; - is the standard input.")
    ] = None,
    reprompt_fields: Annotated[bool, typer.Option("--reprompt-fields", help="Ask for settings again.")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Ask nothing.")] = False,
    bundle_hash: Hash = None,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Approve the code of a skill, as it is now, and set the values it needs.

    Values come from files, from OMAC_SECRET_<NAME> and OMAC_CONFIG_<NAME>, or from you.

    \b
    omac register slack                          asks for what it needs
    omac register slack --defaults               takes what another project got
    omac register slack --secrets-from - < FILE  NAME=value lines
    """
    from omac.tools.cli.register import RegisterRequest, run
    from omac.tools.cli.value_sources import ValueOptions
    from omac.tools.compose.scope_options import Where

    options = ValueOptions(
        defaults, no_secrets, secrets_from, reprompt_secrets, no_fields, fields_from, reprompt_fields, no_input
    )
    request = RegisterRequest(
        skill, Where(workdir, shared, harness, repository), options, force, bundle_hash, journal, json
    )
    return run(request, current().environment)


def deregister(
    skills: Annotated[list[str] | None, typer.Argument(metavar="SKILL", help="Their names.")] = None,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Annotated[
        bool, typer.Option("--repository", help="What holds in every worktree of its git repository instead.")
    ] = False,
    purge_secrets: Annotated[bool, typer.Option("--purge-secrets", help="Remove their secrets.")] = False,
    purge_fields: Annotated[bool, typer.Option("--purge-fields", help="Remove their settings.")] = False,
    purge_defaults: Annotated[bool, typer.Option("--purge-defaults", help="Remove their saved defaults.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Skills whose folder is gone; all of them, if none is named.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    journal: JournalPath = None,
) -> int:
    """Deregister skills and revoke their approvals; their folders stay.

    \b
    omac deregister slack --purge-secrets --purge-fields
    omac deregister --prune --workdir ~/projects/gone --yes
    """
    from omac.tools.cli.deregister import DeregisterRequest, run
    from omac.tools.compose.scope_options import Where

    where = Where(workdir, shared, harness, repository)
    request = DeregisterRequest(
        tuple(skills or ()), where, purge_secrets, purge_fields, purge_defaults, prune, yes, journal
    )
    return run(request, current().environment)


def approve(
    skill: SkillName,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Repository = False,
    bundle_hash: Hash = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke its approval, as omac revoke does.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Approve the code of a skill, as it is now, on this host.

    \b
    omac approve echo --workdir ~/projects/shop
    omac approve echo --repository
    omac approve echo --revoke
    """
    from omac.tools.cli.approve import ApproveRequest, run
    from omac.tools.cli.revoke import RevokeRequest
    from omac.tools.cli.revoke import run as run_revoke
    from omac.tools.compose.scope_options import Where

    where = Where(workdir, shared, harness, repository)
    if revoke:
        revocation = RevokeRequest(skill, where, journal, json, bundle_hash)
        return run_revoke(revocation, current().environment)
    request = ApproveRequest(skill, where, bundle_hash, journal, json)
    return run(request, current().environment)


def revoke(
    skill: SkillName,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Annotated[bool, typer.Option("--repository", help="Only its approval by repository.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Revoke the approval of a skill, at once and where it runs too.

    One that was given by --repository ends in every worktree.

    \b
    omac revoke slack
    omac revoke slack --workdir ~/projects/shop
    """
    from omac.tools.cli.revoke import RevokeRequest, run
    from omac.tools.compose.scope_options import Where

    request = RevokeRequest(skill, Where(workdir, shared, harness, repository), journal, json)
    return run(request, current().environment)


def approvals(
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not compare with the code on disk.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show what is approved on this host, and whether the code on disk is still the same.

    \b
    omac approvals --json
    """
    from omac.tools.cli.listing import approvals

    return approvals(json, not no_check, journal, current().environment)


def trust(
    directory: Annotated[str | None, typer.Argument(metavar="DIR", help=DIRECTORY_HELP)] = None,
    harness: Harness = None,
    repository: Repository = False,
    journal: JournalPath = None,
) -> int:
    """Read the skills of a project one after the other, approve them and set their values.

    Shows what each runs and wants, its files, or what has changed since it was approved; then asks.

    \b
    omac trust
    omac trust ~/projects/shop
    """
    from omac.tools.cli.trust import TrustRequest, run
    from omac.tools.compose.scope_options import Where, project_here

    request = TrustRequest(Where(directory or project_here(), harness=harness, repository=repository), journal)
    return run(request, current().environment)


def show(
    skill: SkillName,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Repository = False,
    contents: Annotated[bool, typer.Option("--contents", help="Print its text files too.")] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show a skill: what it runs, what it wants, its files, and whether it is approved.

    \b
    omac show slack
    omac show slack --contents | less
    """
    from omac.tools.cli.show import ShowRequest, show
    from omac.tools.compose.scope_options import Where

    request = ShowRequest(skill, Where(workdir, shared, harness, repository), contents, journal, json)
    return show(request, current().environment)


def diff(
    skill: SkillName,
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    repository: Repository = False,
    journal: JournalPath = None,
) -> int:
    """Show how the files of a skill differ from its approved copy; 1 if they do.

    \b
    omac diff slack
    """
    from omac.tools.cli.show import ShowRequest, diff
    from omac.tools.compose.scope_options import Where

    request = ShowRequest(skill, Where(workdir, shared, harness, repository), journal=journal)
    return diff(request, current().environment)


def list_(
    workdir: Workdir = None,
    harness: Harness = None,
    shared: Shared = False,
    whole: Annotated[
        bool, typer.Option("--all", help="Also of other directories, and skills without a sidecar.")
    ] = False,
    journal: JournalPath = None,
    json: Json = False,
) -> int:
    """Show the skills of a project and those that all projects share.

    \b
    omac list
    omac list --all --json
    """
    from omac.tools.cli.listing import list_
    from omac.tools.compose.scope_options import Where

    return list_(Where(workdir, shared, harness), whole, json, journal, current().environment)
