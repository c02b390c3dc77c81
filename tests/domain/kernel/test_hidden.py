"""domain/kernel/hidden.py: a value that nothing shows by accident."""

import copy
import json
import logging
import pickle
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.hidden import Hidden

TEXT = "xoxb-do-not-show"


@pytest.mark.parametrize(
    "show",
    [
        str,
        repr,
        "{}".format,
        "{!r}".format,
        lambda value: f"{value}",
        lambda value: f"{value!s}",
        lambda value: "%s" % value,  # noqa: UP031  # the way of logging
        lambda value: str([value, {"a": value}, (value,)]),
        lambda value: str(ValueError(value)),
        lambda value: repr(vars(type(value))),
    ],
)
def test_nothing_shows_it(show: Callable[[Hidden], str]) -> None:
    """A hidden value appears in no text, neither alone nor inside another value."""
    text = show(Hidden(TEXT))
    assert TEXT not in text
    assert "hidden" in text


def test_no_log_has_it(caplog: pytest.LogCaptureFixture) -> None:
    """A log does not show a hidden value that is an argument of its message."""
    logging.getLogger("omac.test").warning("got %s, %r", Hidden(TEXT), {"a": Hidden(TEXT)})
    assert "<hidden>" in caplog.text
    assert TEXT not in caplog.text


@pytest.mark.parametrize(
    "write",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        json.dumps,
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        hash,
        lambda value: {value},
        lambda value: format(value, ">80"),
        lambda value: vars(value),
        lambda value: setattr(value, "note", 1),
    ],
)
def test_it_is_not_written_down(write: Callable[[Hidden], object]) -> None:
    """A function that would write, copy or index a hidden value fails, and the error does not show the value."""
    with pytest.raises((TypeError, AttributeError)) as caught:
        write(Hidden(TEXT))
    assert TEXT not in str(caught.value)


@given(st.text(), st.text())
def test_two_are_the_same_when_their_texts_are(one: str, other: str) -> None:
    """Two hidden values are equal when their texts are, and neither ever equals a text."""
    assert (Hidden(one) == Hidden(other)) is (one == other)
    assert (Hidden(one) != Hidden(other)) is (one != other)
    assert Hidden(one) == Hidden(one)
    assert Hidden(one) != one


@pytest.mark.parametrize("text", ["", "\ud800", "a\0b", "é" * 1000])
def test_any_text_is_carried(text: str) -> None:
    """A hidden value reveals its text as it is."""
    assert Hidden(text).reveal() == text
    assert Hidden(text) == Hidden(text)
