"""omac's own settings: which there are, who may say what, and which word holds.

Rules

1. A flag comes before the environment, that before the project's file, that before the user's, that before the default.
2. A project may only narrow what omac does: an agent may have written its file. What else it says is ignored, and told.
3. A word or a name that does not exist is refused where a person wrote it, and ignored in a project's file.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.settings.numbers import Numbers
from omac.domain.skills.values import shown

NAME_CHARS_MAX = 40
# A server over TLS, or one of this machine: what is sent there would go over a network in the clear.
_SERVER = re.compile(r"(https://[A-Za-z0-9.-]{1,253}|http://(127\.0\.0\.1|localhost|\[::1\]))(:[1-9][0-9]{0,4})?")
LATER = ("confine",)  # words that omac knows and refuses: sidecars cannot be confined yet
WARNINGS_MAX = 8  # of one file: whoever wrote it shall not fill the terminal


class Setting(msgspec.Struct, frozen=True):
    """One setting. `words` are its values, `project` those that a project may choose.

    Without words it takes absolute paths, separated by colons, and none may be chosen by a project; with `or_path` it
    takes one instead of a word; with `or_server` the address of a server, too. With `numbers` it takes these.
    """

    name: str
    words: tuple[str, ...]  # where they can be compared, from the narrowest to the widest
    default: str
    project: tuple[str, ...]
    meaning: str
    or_path: bool = False
    or_server: bool = False
    numbers: Numbers | None = None

    @property
    def variable(self) -> str:
        """The environment variable that states it."""
        return f"OMAC_{self.name.upper().replace('.', '_')}"

    @property
    def offered(self) -> tuple[str, ...]:
        """The words that a person can choose now."""
        return tuple(word for word in self.words if word not in LATER)

    @property
    def table_and_key(self) -> tuple[str, str]:
        """The table and the key of the setting in a settings file: ("serve", "unapproved")."""
        table, _, key = self.name.partition(".")
        return table, key

    def takes(self, word: str) -> bool:
        """Return whether the setting can have this value."""
        if word in self.words or (self.or_server and _SERVER.fullmatch(word)):
            return True
        if self.numbers is not None:
            return self.numbers.takes(word)
        if self.words and not self.or_path:
            return False
        return word != "" and "\0" not in word and all(path.startswith("/") for path in word.split(":"))


def _limit(name: str, meaning: str, least: int, most: int, example: int, *, by_skill: bool = False) -> Setting:
    numbers = Numbers(least, most, example, by_skill)
    return Setting(f"limits.{name}", ("none",), "none", (), meaning, numbers=numbers)


_SETTINGS = (
    Setting(
        "serve.bundle_drift", ("refuse", "accept"), "refuse", ("refuse",),
        "whether approved skills run after their code changed",
    ),
    Setting("serve.unapproved", ("refuse", "confine", "allow"), "refuse", ("refuse",), "whether unapproved skills run"),
    Setting(
        "serve.auto_register", ("false", "true"), "true", ("false",),
        "whether activating a directory registers the skills found in it",
    ),
    Setting(
        "serve.audit", ("strict", "buffered"), "strict", (),
        "whether a call waits for its record, or may go ahead of it by a second",
    ),
    Setting("secrets.store", ("auto", "keychain", "vault"), "auto", (), "where new secrets are kept"),
    Setting(
        "git.hooks", ("deny", "read"), "deny", ("deny",),
        "whether a repository's hooks can be seen, and so run, in a sandbox",
    ),
    Setting(
        "git.refs", ("branch", "all"), "all", ("branch",),
        "which refs a linked worktree may change: its own branch and new ones, or all",
    ),
    Setting(
        "cache.redirect_xdg", ("false", "true"), "false", (),
        "whether XDG_CACHE_HOME leads into the tool cache too",
    ),
    Setting(
        "journal.witness", ("auto", "none", "journald", "syslog"), "auto", (),
        "who else keeps signed checkpoints: the system's log, a file on another mount, or another omac",
        or_path=True, or_server=True,
    ),
    Setting("journal.witness_token", (), "", (), "the file with the token of the omac that keeps checkpoints"),
    Setting("guard.scratch", (), "", (), "folders beside /tmp where the write guard lets an agent write"),
    _limit(
        "max_body_bytes", "bytes of a request's body, whatever a skill allows", 1, 10**12, 1_048_576, by_skill=True
    ),
    _limit(
        "idle_timeout_secs", "seconds that a call may be silent, whatever a skill allows", 1, 86_400, 60, by_skill=True
    ),
    _limit(
        "total_timeout_secs", "seconds that a call may take, whatever a skill allows", 1, 604_800, 600, by_skill=True
    ),
    _limit(
        "concurrent_calls", "calls of a skill at once, whatever it allows", 1, 1_000_000, 8, by_skill=True
    ),
    _limit(
        "calls_per_second", "calls of a skill that begin in a second, whatever it allows", 1, 1_000_000, 20,
        by_skill=True,
    ),
    _limit("all_concurrent_calls", "calls of all skills at once", 1, 1_000_000, 64),
    _limit("all_calls_per_second", "calls of all skills that begin in a second", 1, 1_000_000, 200),
    _limit("max_head_bytes", "bytes of a request's head", 1_024, 65_536, 16_384),
)  # fmt: skip
SETTINGS = {setting.name: setting for setting in _SETTINGS}
# A variable that begins like this is meant to be a setting.
VARIABLE_PREFIXES = ("OMAC_SERVE_", "OMAC_SECRETS_", "OMAC_GIT_", "OMAC_GUARD_", "OMAC_JOURNAL_", "OMAC_LIMITS_")


class SettingsFile(msgspec.Struct, frozen=True):
    """The words of a settings file, by name of the setting: only valid ones. `warnings` report what else was in the
    file."""

    path: str
    values: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class Resolved(msgspec.Struct, frozen=True):
    """The word that holds, and who said it: "flag", "environment OMAC_X", "project /path", "user /path", "default".

    `ignored` tells, in words, what was said elsewhere and why it does not hold.
    """

    value: str
    origin: str
    ignored: tuple[str, ...] = ()


def resolve(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: SettingsFile | None,
    user: SettingsFile | None,
) -> dict[str, Resolved]:
    """The word that holds for each setting. `flags` are by a setting's name; None and empty variables say nothing.
    Raises Refusal (misuse) for a flag or a variable with a word or a name that does not exist."""
    for name in flags:
        setting_named(name)
    for variable, word in environment.items():
        if variable.startswith(VARIABLE_PREFIXES) and word:
            _setting_of_variable(variable)
    return {
        setting.name: _resolve(setting, flags.get(setting.name), environment, project, user)
        for setting in SETTINGS.values()
    }


def setting_named(name: str) -> Setting:
    """The setting of that name. Raises Refusal (misuse)."""
    if name not in SETTINGS:
        message = f"unknown setting {_key(name)}{_did_you_mean(name, SETTINGS)}"
        raise Refusal("misuse", message, fix=["omac settings show"])
    return SETTINGS[name]


def check_word(setting: Setting, word: str, where: str | None = None) -> str:
    """`word`, which the setting takes. Raises Refusal (misuse); `where` it was said, if not under its name."""
    if not setting.takes(word):
        example = str(setting.numbers.example) if setting.numbers else setting.default or "/tmp"  # noqa: S108
        near = _nearest(word, setting.words) or example
        if where is None:
            fix = f"omac settings set {setting.name} {near}"
        else:
            fix = f"{where} {near}" if where.startswith("--") else f"export {where}={near}"
        raise Refusal("misuse", f"{where or setting.name} takes {_words(setting)}, not {shown(word)}", fix=[fix])
    return word


def _nowhere(_name: str) -> str:
    return ""


def user_settings(path: str, document: Mapping[str, object], place: Callable[[str], str] = _nowhere) -> SettingsFile:
    """Return the settings in a user's decoded settings file; `place` says where in it a table or a setting is, such as
    ", line 3". Raises Refusal (settings-invalid)."""
    values: dict[str, str] = {}
    for name, word, problem in _statements(document):
        if problem is not None:
            message = f"{path}{place(name)}: {problem}"
            raise Refusal("settings-invalid", message, fix=[f"${{EDITOR:-vi}} {quoted(path)}"])
        values[name] = word
    return SettingsFile(path, values)


def project_settings(path: str, document: Mapping[str, object], place: Callable[[str], str] = _nowhere) -> SettingsFile:
    """Return the settings in a project's decoded settings file, as far as omac understands them; `place` as for
    `user_settings`."""
    values: dict[str, str] = {}
    warnings: list[str] = []
    for name, word, problem in _statements(document):
        if problem is None:
            values[name] = word
        else:
            warnings.append(f"{path}{place(name)}: {problem}; ignored")
        if len(warnings) > WARNINGS_MAX:
            warnings[WARNINGS_MAX:] = [f"{path}: more entries that omac does not understand; ignored"]
            break
    return SettingsFile(path, values, tuple(warnings))


def stated_word(value: object, setting: Setting) -> object:
    """A decoded value as a word, where it is TOML's own true or false, or, for a setting that takes paths, a list, or a
    number for one that takes numbers."""
    if not setting.words and isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ":".join(value)
    if setting.numbers is not None and type(value) is int:
        return str(value)
    return str(value).lower() if isinstance(value, bool) else value


def _resolve(
    setting: Setting,
    flag: str | None,
    environment: Mapping[str, str],
    project: SettingsFile | None,
    user: SettingsFile | None,
) -> Resolved:
    statements: list[tuple[str, str]] = []  # (origin, word), the weightiest first
    ignored: list[str] = []
    if flag is not None:
        statements.append(("flag", check_word(setting, flag, "--" + setting.table_and_key[1])))
    if variable := environment.get(setting.variable):
        statements.append((f"environment {setting.variable}", check_word(setting, variable, setting.variable)))
    users = user.values.get(setting.name) if user else None
    if project and (word := project.values.get(setting.name)) is not None:
        problem = _widening(setting, word, setting.default if users is None else users)
        if problem is None:
            statements.append((f"project {project.path}", word))
        else:
            ignored.append(f"project {project.path} says {word}: {problem}")
    if user and users is not None:
        statements.append((f"user {user.path}", users))
    if not statements:
        return Resolved(setting.default, "default", tuple(ignored))
    (origin, value), *others = statements
    overruled = [f"{other} says {word}: the {origin.partition(' ')[0]} comes first" for other, word in others]
    return Resolved(value, origin, (*ignored, *overruled))


def _widening(setting: Setting, word: str, without: str) -> str | None:
    """Return why a project may not say `word`, where `without` would hold if it said nothing; None if it may."""
    if not setting.project:
        return "a project may not choose this"
    if word not in setting.project:
        return f"a project may only say {' or '.join(setting.project)}"
    if setting.words.index(word) > setting.words.index(without):
        return f"a project may not widen {without}"
    return None


def _statements(document: Mapping[str, object]) -> Iterator[tuple[str, str, str | None]]:
    """`(name, word, None)` for each setting in a decoded file, `(name, _, problem)` for everything else in it."""
    tables = dict.fromkeys(setting.table_and_key[0] for setting in SETTINGS.values())
    for table, values in document.items():
        if table not in tables:
            yield table, "", f"unknown table {_key(table)}{_did_you_mean(table, tables)}"
        elif not isinstance(values, dict):
            yield table, "", f"{table} must be a table: write [{table}] above its settings"
        else:
            for key, value in values.items():
                yield _statement(f"{table}.{key}", value)


def _statement(name: str, value: object) -> tuple[str, str, str | None]:
    if name not in SETTINGS:
        return name, "", f"unknown setting {_key(name)}{_did_you_mean(name, SETTINGS)}"
    word = stated_word(value, SETTINGS[name])
    if isinstance(word, str) and SETTINGS[name].takes(word):
        return name, word, None
    stated = shown(word) if isinstance(word, str) else f"a value of type {type(value).__name__}"
    return name, "", f"{name} takes {_words(SETTINGS[name])}, not {stated}"


def _setting_of_variable(variable: str) -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    if variable not in variables:
        message = f"{_key(variable)} is not a setting of omac{_did_you_mean(variable, variables)}"
        raise Refusal("misuse", message, fix=[f"unset {quoted(variable)}", "omac settings show"])


def _words(setting: Setting) -> str:
    if setting.numbers is not None:
        return str(setting.numbers)
    if not setting.offered:
        return "absolute paths, separated by colons"
    if setting.or_path:
        server = ", the https address of a server" if setting.or_server else ""
        return f"{', '.join(setting.offered)}{server} or an absolute path"
    return " or ".join((", ".join(setting.offered[:-1]), setting.offered[-1]))


def _did_you_mean(name: str, known: Collection[str]) -> str:
    near = _nearest(name, known)
    return f"; did you mean {near}?" if near else f"; known: {', '.join(known)}"


def _nearest(name: str, known: Collection[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name[:NAME_CHARS_MAX], list(known), 1, 0.6)), None)


def _key(name: str) -> str:
    """A name as it was written, if that can be shown."""
    return name if name.isascii() and name.isprintable() and len(name) <= NAME_CHARS_MAX else shown(name)
