"""tools/cli/settings.py: it shows settings, changes them, and records the changes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from real_omac import Omac

from omac.adapters.settings.files import user_path
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId, key_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.setting import SettingChanged, SettingChangeRequested
from omac.domain.settings.settings import SETTINGS
from omac.journal.application import CommitGroup, Journal
from omac.journal.reader import ReadJournal
from omac.tools.cli.settings import set_, show, unset

Environment = Mapping[str, str]


def test_a_negative_number_is_a_value(omac: Omac) -> None:
    """`omac settings set NAME -1` reports which values NAME takes, not an unknown option."""
    done = omac.run("settings", "set", "limits.concurrent_calls", "-1")
    assert (done.status, "takes none or a whole number from 1 to 1000000" in done.err) == (2, True), done
    assert done.err.endswith("  try: omac settings set limits.concurrent_calls 8\n")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Return an environment with a home and a state directory of this test's own."""
    return {"HOME": str(tmp_path / "home"), "OMAC_STATE_DIR": str(tmp_path / "state")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the settings file of a project, with a name that omac does not know and values that a project may not
    set."""
    file = tmp_path / "project" / ".omac" / "settings.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[serve]\nbundle_drift = "refuse"\nauto_register = true\nunaproved = "allow"\n')
    return file


def change(environment: Environment, name: str, value: str | None) -> int:
    """Run `omac settings set` or `unset`."""
    if value is None:
        return unset(name, None, environment)
    return set_(name, value, None, environment)


def recorded(environment: Environment) -> list[Recorded]:
    """Return all records of the journal."""
    journal = ReadJournal(f"{environment['OMAC_STATE_DIR']}/journal.db")
    try:
        return list(journal.records())
    finally:
        journal.close()


def streams(records: list[Recorded]) -> list[StreamId]:
    """Return the stream of each record."""
    return [record.stream for record in records]


def shown(capsys: pytest.CaptureFixture[str], project: Path, environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the lines of `omac settings show --json`, by name."""
    capsys.readouterr()
    assert show(True, True, str(project.parent.parent), environment) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [["name", "value", "origin", "ignored", "meaning"]] * len(SETTINGS)
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize(("kept", "value"), [("[1]", None), ('"TRUE"', "true")])
def test_a_word_that_omac_does_not_read(environment: Environment, kept: str, value: str | None) -> None:
    """A value that omac does not understand counts as none, and is a change to remove or to replace."""
    file = Path(user_path(environment))
    file.parent.mkdir(parents=True)
    file.write_text(f"[serve]\nauto_register = {kept}\n")
    assert change(environment, "serve.auto_register", value) == 0
    assert kept not in file.read_text()
    kinds = [type(record.event) for record in recorded(environment)]
    assert kinds[-2:] == [SettingChangeRequested, SettingChanged]


def test_as_text(environment: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting is one line, in columns; nothing is warned of."""
    assert show(False, False, str(tmp_path), environment) == 0
    text, warnings = capsys.readouterr()
    assert text.splitlines() == [
        "serve.bundle_drift           refuse",
        "serve.unapproved             refuse",
        "serve.auto_register          true",
        "serve.audit                  strict",
        "secrets.store                auto",
        "git.hooks                    deny",
        "git.refs                     all",
        "cache.redirect_xdg           false",
        "journal.witness              auto",
        "journal.witness_token",
        "guard.scratch",
        "limits.max_body_bytes        none",
        "limits.idle_timeout_secs     none",
        "limits.total_timeout_secs    none",
        "limits.concurrent_calls      none",
        "limits.calls_per_second      none",
        "limits.all_concurrent_calls  none",
        "limits.all_calls_per_second  none",
        "limits.max_head_bytes        none",
    ]
    assert warnings == ""


def test_with_origins(environment: Environment, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The origin of each value is printed, and why other values are ignored. Slips in the project's file are reported
    beside the data."""
    change(environment, "serve.bundle_drift", "accept")
    capsys.readouterr()
    show(False, True, str(project.parent.parent), {**environment, "OMAC_SECRETS_STORE": "vault"})
    text, warnings = capsys.readouterr()
    assert text.splitlines() == [
        f"serve.bundle_drift           refuse  project {project}",
        f"  user {user_path(environment)} says accept: the project comes first",
        "serve.unapproved             refuse  default",
        "serve.auto_register          true    default",
        f"  project {project} says true: a project may only say false",
        "serve.audit                  strict  default",
        "secrets.store                vault   environment OMAC_SECRETS_STORE",
        "git.hooks                    deny    default",
        "git.refs                     all     default",
        "cache.redirect_xdg           false   default",
        "journal.witness              auto    default",
        "journal.witness_token                default",
        "guard.scratch                        default",
        "limits.max_body_bytes        none    default",
        "limits.idle_timeout_secs     none    default",
        "limits.total_timeout_secs    none    default",
        "limits.concurrent_calls      none    default",
        "limits.calls_per_second      none    default",
        "limits.all_concurrent_calls  none    default",
        "limits.all_calls_per_second  none    default",
        "limits.max_head_bytes        none    default",
    ]
    slip = f"omac: {project}, line 4: unknown setting serve.unaproved; did you mean serve.unapproved?; ignored"
    assert warnings.splitlines() == [slip]


def test_as_data(environment: Environment, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The data is one object a line."""
    assert shown(capsys, project, environment)["serve.auto_register"] == {
        "name": "serve.auto_register",
        "value": "true",
        "origin": "default",
        "ignored": [f"project {project} says true: a project may only say false"],
        "meaning": "whether activating a directory registers the skills found in it",
    }


def test_numbers(environment: Environment, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit is set for all skills and for single ones; a file may have a TOML number. A project's limit is ignored,
    and the refusal of a wrong number proposes a right one."""
    name = "limits.concurrent_calls"
    assert change(environment, name, "8,slack=2") == 0
    project.write_text("[limits]\nconcurrent_calls = 100\n")
    row = shown(capsys, project, environment)[name]
    assert (row["value"], row["origin"]) == ("8,slack=2", f"user {user_path(environment)}")
    assert row["ignored"] == [f"project {project} says 100: a project may not choose this"]
    Path(user_path(environment)).write_text("[limits]\nconcurrent_calls = 16\n")
    assert shown(capsys, project, environment)[name]["value"] == "16"
    for word in ("0", "many", "8,9", "1000001", ""):
        with pytest.raises(Refusal) as caught:
            change(environment, name, word)
        assert caught.value.reason == "misuse"
        assert caught.value.message.startswith(f"{name} takes none or a whole number from 1 to 1000000, and others for")
        assert list(caught.value.fix) == [f"omac settings set {name} 8"]
    for line in ("concurrent_calls = 0", 'concurrent_calls = "x"', "concurrent_calls = 1.5", "concurrent_calls = true"):
        Path(user_path(environment)).write_text(f"[limits]\n{line}\n")
        with pytest.raises(Refusal, match=r"limits\.concurrent_calls takes none or a whole number"):
            shown(capsys, project, environment)


def test_changes_are_recorded(environment: Environment, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each change is recorded as requested before, and as done after the file is written. A change without effect is
    not recorded."""
    for value in ("refuse", "refuse", "allow", None, None):
        assert change(environment, "serve.unapproved", value) == 0
        assert shown(capsys, project, environment)["serve.unapproved"]["value"] == (value or "refuse")
    records = recorded(environment)
    origin = f"user {user_path(environment)}"
    assert [record.event for record in records] == [
        event("serve.unapproved", value, origin)
        for value in ("refuse", "allow", None)
        for event in (SettingChangeRequested, SettingChanged)
    ]
    assert [record.version for record in records] == [1, 2, 3, 4, 5, 6]
    assert {record.actor for record in records} == {"person"}
    assert {(key.aggregate, key.name) for key in map(key_of, streams(records))} == {("setting", "serve.unapproved")}


def test_an_outcome_that_the_journal_refused_is_recorded_by_the_same_command(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal takes the request and not the outcome. The same command, typed again, records the outcome, once."""
    commit = Journal.commit

    def refuse_outcomes(journal: Journal, groups: Sequence[CommitGroup]) -> Any:
        if journal.store.head():
            raise Refusal("journal-unavailable", "the disk is full")
        return commit(journal, groups)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", refuse_outcomes)
        with pytest.raises(Refusal, match=r"serve\.unapproved is changed, but that is not recorded: the disk is full"):
            change(environment, "serve.unapproved", "allow")
    for _ in range(2):
        assert change(environment, "serve.unapproved", "allow") == 0
    assert [type(record.event) for record in recorded(environment)] == [SettingChangeRequested, SettingChanged]


def test_what_was_done_is_said(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    """Each change is reported, also when a variable of the environment overrides it."""
    loud = {**environment, "OMAC_SECRETS_STORE": "keychain"}
    for value in ("vault", "vault", None):
        change(loud, "secrets.store", value)
    text, warnings = capsys.readouterr()
    assert text.splitlines() == [
        "secrets.store is vault: where new secrets are kept",
        "secrets.store is vault already: where new secrets are kept",
        "secrets.store: yours is removed; now auto applies",
    ]
    change(environment, "guard.scratch", None)
    assert capsys.readouterr().out == "guard.scratch: yours is not there; now no value applies\n"
    first = "omac: OMAC_SECRETS_STORE is in the environment, and overrides this there"
    assert [line for line in warnings.splitlines() if "environment" in line] == [first] * 3


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("serve.unaproved", "allow", "did you mean serve.unapproved?"),
        ("serve.unaproved", None, "did you mean serve.unapproved?"),
        ("serve.unapproved", "alow", "takes refuse or allow, not 'alow'"),
        ("serve.unapproved", "", "takes refuse or allow"),
    ],
)
def test_slips_change_nothing(environment: Environment, name: str, value: str | None, told: str) -> None:
    """Slips are misuse; neither the file nor the journal is made."""
    with pytest.raises(Refusal) as caught:
        change(environment, name, value)
    assert (caught.value.reason, caught.value.exit_code) == ("misuse", 2)
    assert told in caught.value.message
    assert not Path(user_path(environment)).exists()
    assert not Path(environment["OMAC_STATE_DIR"]).exists()


def test_without_a_journal_nothing_changes(environment: Environment, tmp_path: Path) -> None:
    """A change that cannot be recorded is refused, and the file is not written."""
    with pytest.raises(Refusal):
        set_("secrets.store", "vault", str(tmp_path), environment)  # a folder is no journal
    assert not Path(user_path(environment)).exists()
