"""The moments that omac records: nanoseconds since 1970, UTC, that a signed 64-bit number holds."""

from omac.domain.kernel.refusal import Refusal

LAST = 2**63 - 2 * 10**9  # in the year 2262
YEAR_NS = 31_556_952 * 10**9  # of the Gregorian calendar, on average


def recordable(at: int) -> int:
    """Return the time that a clock shows. Raises Refusal (state-unusable) for one before 1970, which no note can name,
    or behind the last, which no journal can hold."""
    if 0 <= at <= LAST:
        return at
    message = f"the clock of this machine says the year {1970 + at // YEAR_NS}, so nothing can be recorded or signed"
    raise Refusal("state-unusable", message, fix=["date", "timedatectl status  # whether it is synchronized"])
