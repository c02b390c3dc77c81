"""The commands about values: `omac secrets`, `omac config`, `omac vault`, `omac unlock` and `omac settings`."""

from typing import TYPE_CHECKING, Annotated

import typer

from omac.tools.cli.plain_typer import Commands, JournalPath, Json, Workdir, taking
from omac.tools.terminal.invocation import current

if TYPE_CHECKING:
    from omac.tools.cli.skill_argument import SkillArgument

secrets_app = Commands(help="Give secrets to skills, and revoke them.")
config_app = Commands(help="Show and change the settings of skills.")
vault_app = Commands(help="The encrypted file for secrets, where there is no keychain.")
settings_app = Commands(help="Show and change omac's own settings.")

SecretName = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]
SecretNames = Annotated[list[str], typer.Argument(metavar="NAME", help="The secrets' names.")]
Field = Annotated[str, typer.Argument(metavar="FIELD", help="The setting's name.")]
Fields = Annotated[list[str], typer.Argument(metavar="FIELD", help="The settings' names.")]
Setting = Annotated[str, typer.Argument(metavar="SETTING", help="Such as secrets.store.")]


def _skill_argument(
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="The skill's name.")],
    workdir: Workdir = None,
    harness: Annotated[
        str | None, typer.Option("--harness", help="The coding agent whose skills folder counts.")
    ] = None,
    shared: Annotated[bool, typer.Option("--global", help="A skill that all projects share.")] = False,
    repository: Annotated[
        bool, typer.Option("--repository", help="For the same files in every worktree of its git repository.")
    ] = False,
    journal: JournalPath = None,
) -> "SkillArgument":
    """Return the arguments that name one skill."""
    from omac.tools.cli.skill_argument import SkillArgument
    from omac.tools.compose.scope_options import Where

    return SkillArgument(skill, Where(workdir, shared, harness, repository), journal)


on_skill = taking("request", _skill_argument)


def add_to(app: typer.Typer) -> None:
    app.add_typer(secrets_app, name="secrets")
    app.add_typer(config_app, name="config")
    app.add_typer(vault_app, name="vault")
    app.add_typer(settings_app, name="settings")
    app.command()(unlock)


# What is on the command line by mistake may be a secret, which the parser's own errors would repeat.
@secrets_app.command("set", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@on_skill
def secrets_set(context: typer.Context, request: "SkillArgument", name: SecretName, json: Json = False) -> int:
    """Give a skill a secret: typed without being shown, or from stdin.

    \b
    omac secrets set slack SLACK_TOKEN --workdir ~/projects/shop
    pass show slack | omac secrets set slack SLACK_TOKEN --global
    """
    from omac.tools.cli.secrets import set_

    return set_(request, name, context.args, json)


@secrets_app.command("list")
@on_skill
def secrets_list(request: "SkillArgument", json: Json = False) -> int:
    """Show which secrets a skill needs and which are set; never their values.

    \b
    omac secrets list slack
    """
    from omac.tools.cli.secrets import list_

    return list_(request, json)


@secrets_app.command("unset")
@on_skill
def secrets_unset(request: "SkillArgument", names: SecretNames, json: Json = False) -> int:
    """Revoke secrets of a skill.

    \b
    omac secrets unset slack SLACK_TOKEN
    """
    from omac.tools.cli.secrets import unset

    return unset(request, names, json)


@secrets_app.command("import")
@on_skill
def secrets_import(
    source: Annotated[str, typer.Option("--from", metavar="FILE", help="NAME=value lines; - is stdin.")],
    request: "SkillArgument",
    json: Json = False,
) -> int:
    """Give a skill the secrets in a file, all of them or none.

    \b
    omac secrets import slack --from slack.env
    """
    from omac.tools.cli.secrets import import_

    return import_(request, source, json)


@config_app.command("show")
@on_skill
def config_show(request: "SkillArgument", json: Json = False) -> int:
    """Show the settings of a skill and where each comes from; for secrets, whether they are set.

    \b
    omac config show slack --json
    """
    from omac.tools.cli.config import show

    return show(request, json)


@config_app.command("get")
@on_skill
def config_get(request: "SkillArgument", field: Field, json: Json = False) -> int:
    """Print the value of a setting of a skill.

    \b
    omac config get slack REGION
    """
    from omac.tools.cli.config import get

    return get(request, field, json)


@config_app.command("set", context_settings={"ignore_unknown_options": True})  # a value may be -5
@on_skill
def config_set(
    request: "SkillArgument",
    field: Field,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="The value; - is stdin, and without it you are asked.")
    ] = None,
    json: Json = False,
) -> int:
    """Give a setting of a skill a value.

    \b
    omac config set slack REGION eu --workdir ~/projects/shop
    """
    from omac.tools.cli.config import set_

    return set_(request, field, value, json)


@config_app.command("unset")
@on_skill
def config_unset(request: "SkillArgument", fields: Fields, json: Json = False) -> int:
    """Remove values of a skill's settings; their defaults apply again.

    \b
    omac config unset slack REGION
    """
    from omac.tools.cli.config import unset

    return unset(request, fields, json)


@vault_app.command("init")
def vault_init(
    key_file: Annotated[
        str | None, typer.Option("--key-file", metavar="PATH", help="Make this file, with a random key for the vault.")
    ] = None,
) -> int:
    """Make a vault: under a new key file, the key at hand (OMAC_VAULT_KEY_FILE), or a passphrase.

    \b
    omac vault init
    eval "$(omac vault init --key-file ~/.config/omac/vault.key)"
    """
    from omac.tools.cli.vault import init

    return init(key_file, current().environment)


@vault_app.command("status")
def vault_status(json: Json = False) -> int:
    """Show where the vault is, what opens it, and whether it is open here."""
    from omac.tools.cli.vault import status

    return status(json, current().environment)


@vault_app.command("passwd")
def vault_passwd() -> int:
    """Change the vault's passphrase; a server that holds its key goes on with the new one.

    \b
    omac vault passwd
    """
    from omac.tools.cli.vault import passwd

    return passwd(current().environment)


@vault_app.command("lock")
def vault_lock(json: Json = False) -> int:
    """Have running servers forget the vault's key. Sidecars that run keep their values.

    \b
    omac vault lock
    """
    from omac.tools.cli.vault import lock

    return lock(json, current().environment)


def unlock(json: Json = False) -> int:
    """Open the keychain or the vault for the server.

    It then starts what waits for secrets, and forgets the key of the vault when it ends.

    \b
    omac unlock
    """
    from omac.tools.cli.vault import unlock as run

    return run(json, current().environment)


@settings_app.command("show")
def settings_show(
    origin: Annotated[
        bool, typer.Option("--show-origin", help="Show where each value comes from, and which are ignored.")
    ] = False,
    workdir: Workdir = None,
    json: Json = False,
) -> int:
    """Show every setting as it applies in a project directory.

    \b
    omac settings show --show-origin
    """
    from omac.tools.cli.settings import show

    return show(json, origin, workdir, current().environment)


@settings_app.command("set", context_settings={"ignore_unknown_options": True})  # -1 is refused as a value
def settings_set(
    setting: Setting,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value.")],
    journal: JournalPath = None,
) -> int:
    """Change one of your settings.

    \b
    omac settings set secrets.store vault
    """
    from omac.tools.cli.settings import set_

    return set_(setting, value, journal, current().environment)


@settings_app.command("unset")
def settings_unset(setting: Setting, journal: JournalPath = None) -> int:
    """Remove a setting from your settings file.

    \b
    omac settings unset secrets.store
    """
    from omac.tools.cli.settings import unset

    return unset(setting, journal, current().environment)
