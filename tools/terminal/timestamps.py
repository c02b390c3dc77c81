"""Moments in time, as people write them and as the journal keeps them (nanoseconds since 1970, UTC)."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

from omac.domain.kernel.moments import LAST
from omac.domain.kernel.refusal import Refusal

AGO = re.compile(r"(\d{1,9})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
SHOWN_NS = 1_000  # programs get times to the microsecond: one that was pasted from there means all of it
SECOND_NS = 10**9  # people get them to the second
TO_THE_SECOND = re.compile(r"[^0-9+.,-][0-9]{2}(:?)[0-9]{2}\1[0-9]{2}(?:Z|[+-][0-9:]+)?\Z")  # in any form that is read
WALL = "%Y-%m-%d %H:%M:%S"
FORM = "%Y-%m-%dT%H:%M:%S"


def parse_moment(text: str, clock: Callable[[], int], flag: str) -> int:
    """Read RFC 3339 (local time where no zone is given), or an age like 90s, 15m, 2h, 7d, and return the time in ns.
    `flag` is the option that it was given with. Raises Refusal (misuse)."""
    if ago := AGO.fullmatch(text):
        return _within(clock() - int(ago[1]) * SECONDS[ago[2]] * 10**9)
    try:
        return _within(_nanoseconds(datetime.fromisoformat(text)))
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time: write 2026-11-21T14:00:00Z, or an age like 90s, 15m, 2h, 7d"
        raise Refusal("misuse", message, fix=[f"{flag} 2h"]) from None


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1_000


def _within(moment: int) -> int:
    """The moment, or the last that a journal can hold: whoever writes 9999-12-31 means all that comes."""
    return max(-LAST, min(LAST, moment))


def parse_end(text: str, clock: Callable[[], int], flag: str) -> int:
    """Return the last nanosecond that a moment means: of its day, where it is a date; of its second, where it is given
    to the second, as people see it. Of a local time that comes twice, when clocks are set back, it is the second one.
    Raises Refusal (misuse)."""
    moment = parse_moment(text, clock, flag)
    with suppress(ValueError):  # no date
        day = date.fromisoformat(text)
        return moment if day == date.max else parse_moment(str(day + timedelta(days=1)), clock, flag) - 1
    with suppress(ValueError, OverflowError, OSError):  # an age, or beyond any time
        moment = max(moment, _within(_nanoseconds(datetime.fromisoformat(text).replace(fold=1))))
    if not AGO.fullmatch(text) and TO_THE_SECOND.search(text):
        return moment + SECOND_NS - 1
    return moment // SHOWN_NS * SHOWN_NS + SHOWN_NS - 1


def rfc3339(at: int) -> str:
    """Return the time in UTC, to the microsecond (RFC 3339)."""
    seconds, nanoseconds = divmod(at, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC).strftime(FORM)}.{nanoseconds // 1_000:06d}Z"


def wall_clock(at: int) -> str:
    """Return the local time, to the second."""
    return datetime.fromtimestamp(at // SECOND_NS, UTC).astimezone().strftime(WALL)


def local_moment(at: int) -> str:
    """Return the local time, to the second, as `parse_moment` reads it."""
    return datetime.fromtimestamp(at // SECOND_NS, UTC).astimezone().strftime(FORM)


def wall_clock_of(at: str) -> str:
    """Return the local time, to the second, of a time in RFC 3339."""
    return datetime.fromisoformat(at).astimezone().strftime(WALL)
