"""A harness: a coding agent that omac knows, as data. All about one stands in the module of its name in this folder."""

from __future__ import annotations

from omac.domain.kernel import PlainData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED_BASE = "agents"  # .agents/skills is read by every harness


class GuardTools(PlainData):
    """The tools of an agent whose calls the write guard reads; names are in lower case.

    `files` write the file that an argument names, `patches` apply a patch, `shells` run a command, which may hold a
    patch. `paths` are arguments that name a file, beside those that `domain/guard/guard.py` takes for one in any call;
    `folders` are arguments of a patch or a command that name the folder it starts from. Patch and command are read
    from every text of a call, whichever argument holds it.
    """

    files: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    shells: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class Hook(PlainData):
    """The way in which an agent calls the write guard. Its settings are read by
    `adapters/harness/hook_text.py`.

    `file` is the settings file, in a folder of the home or of a project. `matcher` is a regular expression for the
    names of the tools that the hook is called for. `off_switch` is the setting in `file` that turns all hooks off.
    `on_switch` is the dotted one of its TOML settings without which hooks are off. `notice` is what a person must do
    after the hook is installed. All three may be empty. `project_variable` names the variable that gives a hook its
    project. `begins_in_project`: the hook runs in the folder where its session began. `ends_sessions`: the agent has a
    hook for the end of a session, beside that for the beginning. `reads_mark`: the agent reads settings that begin with
    a byte order mark. No agent yet reads settings with comments or trailing commas.
    """

    file: str
    matcher: str
    tools: GuardTools
    off_switch: str = ""
    on_switch: str = ""
    notice: str = ""
    project_variable: str = ""
    begins_in_project: bool = False
    ends_sessions: bool = False
    reads_mark: bool = False


class Bridge(PlainData):
    """The way in which an agent gets omac's hooks or plugin at its launch. Each agent has one of `settings_option`,
    `override_option`, `plugin_variable` and `plugin_option`.

    `settings_option` takes settings as JSON, of the form that `Hook.file` has; `override_option` a setting as KEY=VALUE
    in TOML. `plugin` is the file of omac's own plugin: `plugin_variable` holds settings as JSON, whose member `plugin`
    lists URLs of modules, or `plugin_option` takes its path. `plugin_folder` is the folder of the home whose modules
    the agent loads. `environment_file` names the variable that gives a hook of sessions the file of the session's
    variables, which the agent's shells read. `folders_file` is a TOML file in the home whose `projects` list the
    folders that the person trusts or does not. In other folders the agent would ask, and could not keep the answer.
    """

    settings_option: str = ""
    override_option: str = ""
    plugin_variable: str = ""
    plugin: str = ""
    plugin_option: str = ""
    plugin_folder: str = ""
    environment_file: str = ""
    folders_file: str = ""


class Sessions(PlainData):
    """The arguments by which an agent goes on with an earlier session of its folder: the `last` one, the one whose id
    follows `named`, or one that the person chooses from a list; empty where it has no way. They stand behind the first
    word of a person's where that is one of `commands`."""

    last: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Cloud(PlainData):
    """A model's provider that a person chooses by setting the variable `chosen_by`; what it needs passes only then."""

    chosen_by: str
    credentials: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


AWS = ("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
AWS_SETTINGS = ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_REGION")


class ServerPort(PlainData):
    """The TCP port on which the long-lived form of an agent listens: `flag` states it, else it is `default`."""

    flag: str
    default: str


class Harness(PlainData):
    """A coding agent: `base` is its dot folder's name without the dot, `serve` the argv of its long-lived form.

    `install` is a command that installs it; `server_port` is where its long-lived form listens, if it does.

    Paths are relative to the home directory; those of folders end in "/". `folders` is what it keeps there: logins,
    settings, sessions; `protected` are further places that a broad grant does not include. `pinned` is the part
    that runs code, or tells later sessions what to do: a session may read it and not change it. A name with "*"
    stands for files that are there. `alternatives` are pinned, too: the first of these files that is there counts, so
    that missing ones beside it are made as folders. `added_to` are such folders to which it adds something at every
    start: what is there is pinned, what is added is gone with the session. `apart` are folders whose content the agent
    runs again itself, scripts and repositories: each session has its own, which begins empty and is gone with it.
    `settings` are files with commands that it runs: what they name in its own folders is pinned, too.

    `restored` is what it puts in its place again at every start: nobody misses that at the end of a sandbox.

    `autorun_files` are the files of a project that it obeys, as patterns of `domain/sandbox/autorun_files.py`.

    `home_variable` names another place for the first of `folders`. `credentials` are variables that hold one;
    `variables` are the others that say who it is to its model's server, and which server that is.

    `clouds` are what a person may choose in the place of its own provider.

    `hook` is how it calls the write guard; None: omac has no hook for it. `bridge` is how it is given omac's hooks when
    omac launches it. `confined` are arguments for it in omac's sandbox: what they turn off would not work there, and
    omac does it. `offline` are variables for it where there is no network. `sessions` is how it goes on with earlier
    ones.
    """

    name: str
    base: str
    serve: tuple[str, ...]
    install: str
    aliases: tuple[str, ...] = ()
    server_port: ServerPort | None = None
    folders: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    added_to: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    autorun_files: tuple[str, ...] = ()
    home_variable: str = ""
    credentials: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    clouds: tuple[Cloud, ...] = ()
    hook: Hook | None = None
    bridge: Bridge | None = None
    confined: tuple[str, ...] = ()
    offline: tuple[tuple[str, str], ...] = ()
    sessions: Sessions = Sessions()

    def __repr__(self) -> str:
        return f"Harness({self.name!r})"

    @property
    def program(self) -> str:
        """The name of its program."""
        return self.serve[0]

    @property
    def bases(self) -> tuple[str, ...]:
        """Base folders whose `skills` this harness sees, in order of precedence: its own, then the shared one."""
        return (self.base, SHARED_BASE)

    def place_of(self, relpath: str, home: str, environment: Mapping[str, str]) -> str:
        """Return the absolute path of one of these, where variables may have put it; a folder's ends in "/"."""
        moved = environment.get(self.home_variable, "") if self.home_variable else ""
        first = self.folders[0]
        if moved.startswith("/") and (relpath.startswith(first) or relpath == first.rstrip("/") + ".json"):
            within = relpath.removeprefix(first)
            return f"{moved.rstrip('/')}/{within}"
        for prefix, variable in (
            (".config/", "XDG_CONFIG_HOME"),
            (".local/share/", "XDG_DATA_HOME"),
            (".local/state/", "XDG_STATE_HOME"),
        ):
            if relpath.startswith(prefix) and environment.get(variable, "").startswith("/"):
                return f"{environment[variable].rstrip('/')}/{relpath.removeprefix(prefix)}"
        return f"{home.rstrip('/')}/{relpath}"

    def auth_variables(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the variables that it gets in a sandbox, credentials among them, for a person's `environment`."""
        chosen = [cloud for cloud in self.clouds if environment.get(cloud.chosen_by)]
        of_clouds = [name for cloud in chosen for name in (cloud.chosen_by, *cloud.credentials, *cloud.variables)]
        return (*self.credentials, *self.variables, *of_clouds)
