"""Moments in time, as people write them and as the journal keeps them (nanoseconds since 1970, UTC)."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from omac.domain.kernel.refusal import Refusal

AGO = re.compile(r"(\d{1,9})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
SHOWN_NS = 1_000  # times are shown to the microsecond: one that was pasted from here means all of it
FORM = "%Y-%m-%dT%H:%M:%S"


def parse_moment(text: str, clock: Callable[[], int]) -> int:
    """From RFC 3339 (local time where no zone is given), or an age like 90s, 15m, 2h, 7d. Raises Refusal (misuse)."""
    if ago := AGO.fullmatch(text):
        return clock() - int(ago[1]) * SECONDS[ago[2]] * 10**9
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time: write 2026-11-21T14:00:00Z, or an age like 90s, 15m, 2h, 7d"
        raise Refusal("misuse", message) from None


def rfc3339(at: int) -> str:
    """In UTC, to the microsecond (RFC 3339)."""
    seconds, nanoseconds = divmod(at, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC).strftime(FORM)}.{nanoseconds // 1_000:06d}Z"


def wall_clock(at: int) -> str:
    """In local time, to the second."""
    return datetime.fromtimestamp(at // 10**9, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
