"""A clock whose time omac cannot record: commands that record or sign are refused, and commands that only read work."""

import time
from collections.abc import Callable

import pytest
from real_omac import Omac

BEFORE_1970, BEHIND_2262 = -5 * 10**9, 2**63 + 10**9


@pytest.fixture
def set_clock(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the clock of commands in this process; a skill was approved before."""
    omac.approved("shop")
    return lambda at: monkeypatch.setattr(time, "time_ns", lambda: at)


@pytest.mark.parametrize(("at", "year"), [(BEFORE_1970, 1969), (BEHIND_2262, 2262)])
def test_a_wrong_clock(omac: Omac, set_clock: Callable[[int], None], at: int, year: int) -> None:
    """A refusal names the clock's year and the command that shows it; the journal is unchanged and can be read."""
    before = len(omac.events())
    set_clock(at)
    for command in ("key rotate", "checkpoint", "audit prove 1", "revoke echo --workdir shop", "audit --since 1h"):
        done = omac.run(*command.split())
        assert done.status == 5, done
        assert done.err.startswith(f"omac: the clock of this machine says the year {year}, "), done
        assert "\n  try: date\n" in done.err
    for command in ("audit", "status", "list --workdir shop", "key show", "audit verify"):
        omac.ok(*command.split())
    assert len(omac.events()) == before
