"""domain/settings/settings.py: the sources of a setting, their order, and the words that a project may not choose."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.settings import (
    SETTINGS,
    WARNINGS_MAX,
    Resolved,
    Setting,
    SettingsFile,
    check_word,
    project_settings,
    resolve,
    setting_named,
    user_settings,
)

PROJECT = "/w/.omac/settings.toml"
USER = "/home/u/settings.toml"
DEFAULTS = {name: Resolved(setting.default, "default") for name, setting in SETTINGS.items()}


def setting_of(
    name: str, flag: str | None = None, variable: str = "", project: str | None = None, user: str | None = None
) -> Resolved:
    """Return the setting that holds with these words of the four sources."""
    files = [
        None if word is None else SettingsFile(path, {name: word}) for path, word in ((PROJECT, project), (USER, user))
    ]
    resolved = resolve({name: flag}, {SETTINGS[name].variable: variable, "PATH": "/bin"}, *files)
    assert {key: value for key, value in resolved.items() if key != name} == {
        key: value for key, value in DEFAULTS.items() if key != name
    }
    return resolved[name]


# ---- the table ----


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_the_table_is_sound(setting: Setting) -> None:
    """Names and variables match, defaults exist, and a project may choose the narrowest word at most."""
    assert setting.variable == "OMAC_" + setting.name.replace(".", "_").upper()
    assert setting.default in setting.words or not (setting.words or setting.default)
    assert set(setting.project) <= set(setting.words[:1])
    assert setting.meaning


def test_no_source_has_a_word() -> None:
    """The defaults hold where no source has a word."""
    assert resolve({}, {}, None, None) == DEFAULTS
    assert resolve(dict.fromkeys(SETTINGS), {}, SettingsFile(PROJECT), SettingsFile(USER)) == DEFAULTS


# ---- who is heard ----

ORIGINS = {"flag": "flag", "variable": "environment {}", "project": f"project {PROJECT}", "user": f"user {USER}"}
CASES = [
    (setting, dict(zip(ORIGINS, words, strict=True)))
    for setting in SETTINGS.values()
    for words in product((None, *setting.words), repeat=4)
]


def test_every_combination() -> None:
    """The first source with a word counts, except a project that chooses more than it may. Each other word is
    reported."""
    for setting, words in CASES:
        allowed = words["project"] in setting.project
        heard = [who for who in ORIGINS if words[who] is not None and (who != "project" or allowed)]
        resolved = setting_of(setting.name, words["flag"], words["variable"] or "", words["project"], words["user"])
        if heard:
            assert resolved.value == words[heard[0]]
            assert resolved.origin == ORIGINS[heard[0]].format(setting.variable)
        else:
            assert (resolved.value, resolved.origin) == (setting.default, "default")
        unheard = [who for who in ORIGINS if words[who] is not None and who not in heard[:1]]
        assert len(resolved.ignored) == len(unheard)
        for who in unheard:
            start = f"{ORIGINS[who].format(setting.variable)} says {words[who]}: "
            assert any(line.startswith(start) for line in resolved.ignored)


def test_a_project_never_widens() -> None:
    """A project never widens a setting: the word that holds would hold without the project, or is narrower."""
    for setting, words in CASES:
        above = (words["flag"], words["variable"] or "")
        resolved = setting_of(setting.name, *above, words["project"], words["user"])
        without = setting_of(setting.name, *above, None, words["user"])
        assert setting.project or resolved.value == without.value
        if setting.words:
            assert setting.words.index(resolved.value) <= setting.words.index(without.value)


@pytest.mark.parametrize(
    ("words", "resolved"),
    [
        (
            {"name": "serve.unapproved", "flag": "allow", "project": "refuse", "user": "confine"},
            Resolved(
                "allow",
                "flag",
                (
                    f"project {PROJECT} says refuse: the flag comes first",
                    f"user {USER} says confine: the flag comes first",
                ),
            ),
        ),
        (
            {"name": "serve.unapproved", "project": "refuse", "user": "allow"},
            Resolved("refuse", f"project {PROJECT}", (f"user {USER} says allow: the project comes first",)),
        ),
        (
            {"name": "serve.unapproved", "project": "confine", "user": "allow"},
            Resolved("allow", f"user {USER}", (f"project {PROJECT} says confine: a project may only say refuse",)),
        ),
        (
            {"name": "serve.auto_register", "project": "true", "user": "false"},
            Resolved("false", f"user {USER}", (f"project {PROJECT} says true: a project may only say false",)),
        ),
        (
            {"name": "secrets.store", "variable": "vault", "project": "keychain"},
            Resolved(
                "vault",
                "environment OMAC_SECRETS_STORE",
                (f"project {PROJECT} says keychain: a project may not choose this",),
            ),
        ),
    ],
)
def test_the_source_of_a_setting_is_reported(words: dict[str, str], resolved: Resolved) -> None:
    """A resolved setting has its source, and each ignored source with the reason."""
    assert setting_of(**words) == resolved


# ---- slips of people ----


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({"serve.unapproved": "no"}, {}, "--unapproved takes refuse or allow, not 'no'"),
        ({"serve.unapproved": ""}, {}, "not ''"),
        ({"serve.unaproved": "allow"}, {}, "unknown setting serve.unaproved; did you mean serve.unapproved?"),
        (
            {"x": None},
            {},
            "known: serve.bundle_drift, serve.unapproved, serve.auto_register, serve.audit, ",
        ),
        ({}, {"OMAC_SERVE_AUTO_REGISTER": "1"}, "OMAC_SERVE_AUTO_REGISTER takes false or true, not '1'"),
        ({}, {"OMAC_SECRETS_STORE": "Vault\x1b"}, r"not 'Vault\x1b'"),
        ({}, {"OMAC_SERVE_UNAPROVED": "refuse"}, "did you mean OMAC_SERVE_UNAPPROVED?"),
        ({}, {"OMAC_SERVE_\udcff": "x"}, "not a setting"),
    ],
)
def test_slips_on_the_command_line(flags: dict[str, str | None], environment: dict[str, str], expected: str) -> None:
    """A word or a name that does not exist is misuse, and the refusal names those that do."""
    with pytest.raises(Refusal) as caught:
        resolve(flags, environment, None, None)
    assert caught.value.reason == "misuse"
    assert expected in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.fix


def test_variables_that_are_not_about_settings() -> None:
    """Other variables of omac, and empty ones, set nothing."""
    environment = {"OMAC_STATE_DIR": "/s", "OMAC_SECRET_STORE": "x", "OMAC_SERVE_UNAPPROVED": "", "OMAC_SERVE_X": ""}
    assert resolve({}, environment, None, None) == DEFAULTS


def test_naming_one() -> None:
    """The command line names one setting and one word of it, and a refusal has the command with the right word."""
    assert check_word(setting_named("secrets.store"), "vault") == "vault"
    with pytest.raises(Refusal, match=r"secrets\.store takes auto, keychain or vault, not 'valut'") as caught:
        check_word(setting_named("secrets.store"), "valut")
    assert caught.value.fix == ("omac settings set secrets.store vault",)


# ---- files ----

SLIPS: list[tuple[dict[str, Any], str]] = [
    ({"serve": {"unapproved": "no"}}, "serve.unapproved takes refuse or allow, not 'no'"),
    ({"serve": {"unapproved": 1}}, "serve.unapproved takes refuse or allow, not a value of type int"),
    ({"serve": {"unapproved": True}}, "not 'true'"),
    ({"serve": {"auto_register": ["true"]}}, "serve.auto_register takes false or true, not a value of type list"),
    ({"serve": {"unaproved": "allow"}}, "unknown setting serve.unaproved; did you mean serve.unapproved?"),
    ({"serve": {"a\nzzzzzzzzzzzz": 1}}, r"unknown setting 'serve.a\nzzzzzzzzzzzz'; known: "),
    ({"secret": {"store": "vault"}}, "unknown table secret; did you mean secrets?"),
    ({"serve.unapproved": "allow"}, "unknown table serve.unapproved; known: serve, secrets"),
    ({"serve": "refuse"}, "serve must be a table: write [serve] above its settings"),
    ({"serve": [{"unapproved": "refuse"}]}, "serve must be a table"),
    ({"\x1b" * 500: {}}, "unknown table "),
]


@pytest.mark.parametrize(("document", "expected"), SLIPS)
def test_slips_in_a_users_file(document: Mapping[str, object], expected: str) -> None:
    """A mistake in a user's file is refused with the file, the key, and the words that it takes."""
    with pytest.raises(Refusal) as caught:
        user_settings(USER, document)
    assert caught.value.reason == "settings-invalid"
    assert caught.value.message.startswith(f"{USER}: ")
    assert expected in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(("document", "expected"), SLIPS)
def test_slips_in_a_projects_file(document: Mapping[str, object], expected: str) -> None:
    """A mistake in a project's file is a warning, and the valid settings beside it still hold."""
    file = project_settings(PROJECT, {**document, "secrets": {"store": "vault"}})
    assert file.values == {"secrets.store": "vault"}
    (warning,) = file.warnings
    assert warning.startswith(f"{PROJECT}: ")
    assert expected in warning
    assert warning.isprintable()
    assert warning.endswith("; ignored")


def test_the_words_of_a_file() -> None:
    """A file has words by name; TOML's own true and false are words too."""
    document = {"serve": {"auto_register": False, "unapproved": "confine"}, "secrets": {"store": "vault"}}
    values = {"serve.auto_register": "false", "serve.unapproved": "confine", "secrets.store": "vault"}
    assert user_settings(USER, document) == SettingsFile(USER, values)
    assert project_settings(PROJECT, document) == SettingsFile(PROJECT, values)
    assert user_settings(USER, {"serve": {"auto_register": "true"}}).values == {"serve.auto_register": "true"}


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        (["/var/scratch", "/srv/x"], "/var/scratch:/srv/x"),
        ("/var/scratch", "/var/scratch"),
        (["relative"], None),
        (["/a", 1], None),
        ([], None),
        ("", None),
    ],
)
def test_a_setting_of_paths(paths: object, value: str | None) -> None:
    """A setting of paths takes absolute ones, as a list or as in PATH; a project may not set any."""
    document = {"guard": {"scratch": paths}}
    if value is None:
        with pytest.raises(Refusal, match="absolute paths"):
            user_settings(USER, document)
    else:
        file = user_settings(USER, document)
        assert resolve({}, {}, None, file)["guard.scratch"].value == value
        assert resolve({}, {}, project_settings(PROJECT, document), None)["guard.scratch"].value == ""


def test_warnings_are_few() -> None:
    """A file full of mistakes gives few warnings, so that it does not fill the terminal."""
    file = project_settings(PROJECT, {"serve": {f"k{number}": 1 for number in range(10_000)}})
    assert len(file.warnings) == WARNINGS_MAX + 1
    assert "more entries" in file.warnings[-1]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["refuse", "allow", "false", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["serve", "secrets", "store", "unapproved", "auto_register", "bundle_drift"]) | st.text()


@given(st.dictionaries(keys, st.dictionaries(keys, values, max_size=4) | values, max_size=4))
def test_any_file_of_a_project_is_understood_or_reported(document: dict[str, object]) -> None:
    """A project's file never stops omac or makes a setting wider than its default, whatever an agent writes there."""
    resolved = resolve({}, {}, project_settings(PROJECT, document), None)
    for name, result in resolved.items():
        words, default = SETTINGS[name].words, SETTINGS[name].default
        assert result.value == default or words.index(result.value) <= words.index(default)
