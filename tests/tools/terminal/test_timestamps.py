"""tools/terminal/timestamps.py: moments as people write them, and as the journal keeps them."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.refusal import Refusal
from omac.tools.terminal.timestamps import parse_end, parse_moment, rfc3339

NOW = 1_800_000_000 * 10**9
SECOND = 10**9


def parsed(text: str) -> int:
    return parse_moment(text, lambda: NOW, "--since")


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set local time to five hours behind UTC, in winter."""
    import time

    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds_ago"), [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800), ("007s", 7)]
)
def test_ages(text: str, seconds_ago: int) -> None:
    """A number and a unit mean a time so long ago."""
    assert parsed(text) == NOW - seconds_ago * SECOND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-21T14:00:00Z", 1_795_269_600),
        ("2026-11-21T15:00:00+01:00", 1_795_269_600),
        ("2026-11-21 14:00:00.000001Z", 1_795_269_600.000001),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_rfc3339_with_a_zone(text: str, seconds: float) -> None:
    """A time with a zone is read to the microsecond."""
    assert parsed(text) == round(seconds * 10**6) * 1_000


@pytest.mark.parametrize("text", ["2026-11-21T09:00", "2026-11-21 09:00:00"])
def test_without_a_zone_it_is_local_time(in_new_york: None, text: str) -> None:
    """A time without a zone is local time, as on a wall clock."""
    assert parsed(text) == parsed("2026-11-21T14:00:00Z")


@pytest.mark.parametrize(
    ("text", "next_day"),
    [("2026-03-31", "2026-04-01T04:00Z"), ("2026-03-08", "2026-03-09T04:00Z"), ("20261231", "2027-01-01T05:00Z")],
)
def test_an_end_that_is_a_date_has_its_whole_day(in_new_york: None, text: str, next_day: str) -> None:
    """A date as an end includes its last nanosecond, also of a day of 23 hours; a date as a begin its first."""
    assert parse_end(text, lambda: NOW, "--until") == parsed(next_day) - 1
    assert parse_end("9999-12-31", lambda: NOW, "--until") > NOW


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("2026-11-01T01:30:00", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"),  # comes twice
        ("2026-11-01T01:30:00-04:00", "2026-11-01T05:30:00Z", "2026-11-01T05:30:00Z"),
        ("2026-03-08T02:30:00", "2026-03-08T07:30:00Z", "2026-03-08T07:30:00Z"),  # never comes
        ("20261101T013000", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"),
        ("2026-11-01t01:30:00-04:00", "2026-11-01T05:30:00Z", "2026-11-01T05:30:00Z"),
        ("20261101T053000Z", "2026-11-01T05:30:00Z", "2026-11-01T05:30:00Z"),
    ],
)
def test_when_clocks_are_set_back(in_new_york: None, text: str, begins: str, ends: str) -> None:
    """A local time that comes twice begins with the first and ends with the second: a table shows both alike."""
    assert parsed(text) == parsed(begins)
    assert parse_end(text, lambda: NOW, "--until") == parsed(ends) + SECOND - 1


def test_an_end_to_the_microsecond_ends_with_it(in_new_york: None) -> None:
    """A time to the microsecond, as programs get it, means all of that as an end, and not the second around it."""
    for text in ("2026-11-30T00:58:44.062756Z", "20261130T005844.062756Z"):
        assert parse_end(text, lambda: NOW, "--until") == parsed(text) + 999


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "5",
        "5w",
        "-5m",
        "1.5h",
        "5 m",
        "m",
        "9999999999s",
        "2026-13-01",
        "2026-11-21T25:00",
        "0001-01-01",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """The refusal repeats the text, and gives examples."""
    with pytest.raises(Refusal, match="write 2026-11-21T14:00:00Z, or an age like 90s") as caught:
        parsed(text)
    assert (caught.value.reason, caught.value.exit_code) == ("misuse", 2)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_795_269_600 * SECOND + 123_456_789, "2026-11-21T14:00:00.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_rfc3339_in_utc(at: int, text: str) -> None:
    """Times have always six digits, so that texts sort as times do."""
    assert rfc3339(at) == text


@given(st.integers(0, 4_102_444_800 * SECOND))
def test_what_is_written_is_read_back(at: int) -> None:
    """A printed time is read back to the microsecond, for any time of this century."""
    assert parsed(rfc3339(at)) == at // 1_000 * 1_000
