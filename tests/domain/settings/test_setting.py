"""domain/settings/setting.py: a change is requested first, and has one outcome."""

from typing import get_args

import pytest
from tables import deviations

from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings import setting
from omac.domain.settings.setting import (
    EVENTS,
    TABLE,
    Command,
    ReportChange,
    ReportFailure,
    RequestChange,
    SettingChanged,
    SettingChangeFailed,
    SettingChangeRequested,
    SettingState,
    SettleChange,
    Status,
)

NAME = "serve.unapproved"
ALLOW = SettingChangeRequested(NAME, "allow", "user /f")
UNSET = SettingChangeRequested(NAME, None, "user /f")
EXAMPLES: tuple[Event, ...] = (ALLOW, SettingChanged(NAME, "allow", "user /f"), SettingChangeFailed(NAME, "no space"))
STATES: dict[Status, SettingState] = {
    "settled": SettingState("settled", "refuse"),
    "changing": SettingState("changing", "old", ALLOW),
}
UNWRITTEN = SettingChangeFailed(NAME, "omac was killed before the file was written")


def test_every_event_and_status_has_an_example() -> None:
    """Every event and every status has an example, so that the tests below leave none out."""
    assert [type(event) for event in EXAMPLES] == list(EVENTS)
    assert set(STATES) == set(get_args(Status))


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError."""
    assert deviations(setting.evolve, TABLE, STATES, EXAMPLES) == []


@pytest.mark.parametrize(
    ("state", "command", "events"),
    [
        (SettingState(), RequestChange(NAME, "allow", "user /f", None), [ALLOW]),
        (SettingState(value="allow"), RequestChange(NAME, None, "user /f", "allow"), [UNSET]),
        (
            SettingState("changing", None, ALLOW),
            RequestChange(NAME, None, "user /f", "allow"),
            [SettingChanged(NAME, "allow", "user /f"), UNSET],
        ),
        (SettingState("changing", None, ALLOW), RequestChange(NAME, "allow", "user /f", None), [UNWRITTEN, ALLOW]),
        (
            SettingState("changing", "allow", UNSET),
            RequestChange(NAME, "allow", "user /f", None),
            [SettingChanged(NAME, None, "user /f"), ALLOW],
        ),
        (SettingState("settled", "allow"), SettleChange("allow"), []),
        (
            SettingState("changing", None, ALLOW),
            SettleChange("allow"),
            [SettingChanged(NAME, "allow", "user /f")],
        ),
        (SettingState("changing", "allow", UNSET), SettleChange("allow"), [UNWRITTEN]),
        (SettingState("changing", None, ALLOW), ReportChange(), [SettingChanged(NAME, "allow", "user /f")]),
        (SettingState("changing", "allow", UNSET), ReportChange(), [SettingChanged(NAME, None, "user /f")]),
        (SettingState("changing", None, ALLOW), ReportFailure("no space"), [SettingChangeFailed(NAME, "no space")]),
    ],
)
def test_decisions(state: SettingState, command: Command, events: list[Event]) -> None:
    """Each change that is requested or reported means these events, which fold; a change that is open is closed
    first."""
    assert setting.AGGREGATE.decided(command, state) == events


@pytest.mark.parametrize("command", [ReportChange(), ReportFailure("no space")])
def test_an_outcome_of_no_request_is_refused(command: Command) -> None:
    """An outcome without a request is refused and not recorded."""
    with pytest.raises(Refusal) as refused:
        setting.decide(command, SettingState("settled", "allow"))
    assert refused.value.reason == "out-of-order"


def test_the_value_changes_with_the_file() -> None:
    """The value of a setting changes with its file, not with the request and not with a failure."""
    requested = setting.evolve(SettingState("settled", "refuse"), ALLOW)
    assert requested == SettingState("changing", "refuse", ALLOW)
    assert setting.evolve(requested, EXAMPLES[1]) == SettingState("settled", "allow")
    assert setting.evolve(requested, EXAMPLES[2]) == SettingState("settled", "refuse")


def test_a_change_of_an_earlier_omac_folds() -> None:
    """A change that an earlier omac recorded without a request folds."""
    assert setting.evolve(SettingState(), SettingChanged(NAME, "allow", "user /f")) == SettingState("settled", "allow")
