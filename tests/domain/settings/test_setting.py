"""domain/settings/setting.py: a change is requested first, and has one outcome."""

import itertools
from typing import get_args

import pytest

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
    Setting,
    SettingChanged,
    SettingChangeFailed,
    SettingChangeRequested,
    Status,
)

NAME = "serve.unapproved"
ALLOW = SettingChangeRequested(NAME, "allow", "user /f")
UNSET = SettingChangeRequested(NAME, None, "user /f")
EXAMPLES: tuple[Event, ...] = (ALLOW, SettingChanged(NAME, "allow", "user /f"), SettingChangeFailed(NAME, "no space"))
STATES: dict[Status, Setting] = {"settled": Setting("settled", "refuse"), "changing": Setting("changing", "old", ALLOW)}
KILLED = SettingChangeFailed(NAME, "omac was killed before the file was written")


def test_every_event_and_status_has_an_example() -> None:
    """None is left out below."""
    assert [type(event) for event in EXAMPLES] == list(EVENTS)
    assert set(STATES) == set(get_args(Status))


@pytest.mark.parametrize(("status", "event"), list(itertools.product(STATES, EXAMPLES)))
def test_the_table_is_the_whole_truth(status: Status, event: Event) -> None:
    """What is in it leads to the status it says; what is not cannot follow."""
    if (status, type(event)) in TABLE:
        assert setting.evolve(STATES[status], event).status == TABLE[status, type(event)]
    else:
        with pytest.raises(KeyError):
            setting.evolve(STATES[status], event)


@pytest.mark.parametrize(
    ("state", "command", "events"),
    [
        (Setting(), RequestChange(NAME, "allow", "user /f", None), [ALLOW]),
        (Setting(value="allow"), RequestChange(NAME, None, "user /f", "allow"), [UNSET]),
        (
            Setting("changing", None, ALLOW),
            RequestChange(NAME, None, "user /f", "allow"),
            [SettingChanged(NAME, "allow", "user /f"), UNSET],
        ),
        (Setting("changing", None, ALLOW), RequestChange(NAME, "allow", "user /f", None), [KILLED, ALLOW]),
        (
            Setting("changing", "allow", UNSET),
            RequestChange(NAME, "allow", "user /f", None),
            [SettingChanged(NAME, None, "user /f"), ALLOW],
        ),
        (Setting("changing", None, ALLOW), ReportChange(), [SettingChanged(NAME, "allow", "user /f")]),
        (Setting("changing", "allow", UNSET), ReportChange(), [SettingChanged(NAME, None, "user /f")]),
        (Setting("changing", None, ALLOW), ReportFailure("no space"), [SettingChangeFailed(NAME, "no space")]),
    ],
)
def test_decisions(state: Setting, command: Command, events: list[Event]) -> None:
    """Given a setting, when a change is asked for or reported, then these events, which fold; an open one is closed."""
    assert setting.AGGREGATE.decided(command, state) == events


@pytest.mark.parametrize("command", [ReportChange(), ReportFailure("no space")])
def test_an_outcome_of_no_request_is_refused(command: Command) -> None:
    """Nothing is recorded that nobody asked for."""
    with pytest.raises(Refusal) as refused:
        setting.decide(command, Setting("settled", "allow"))
    assert refused.value.reason == "out-of-order"


def test_the_value_changes_with_the_file() -> None:
    """Not with the request, and not when it failed."""
    asked = setting.evolve(Setting("settled", "refuse"), ALLOW)
    assert asked == Setting("changing", "refuse", ALLOW)
    assert setting.evolve(asked, EXAMPLES[1]) == Setting("settled", "allow")
    assert setting.evolve(asked, EXAMPLES[2]) == Setting("settled", "refuse")


def test_a_change_of_an_earlier_omac_folds() -> None:
    """It recorded what changed, without a request."""
    assert setting.evolve(Setting(), SettingChanged(NAME, "allow", "user /f")) == Setting("settled", "allow")
