"""The effects that a launch calls for in a server: from what was recorded of it, and whether the omac that reports it
lives.
"""

import msgspec

from omac.domain.sandbox.launch import Lose, Sandbox

WHY = "the omac that launched it was killed"


class TakeInReports(msgspec.Struct, frozen=True):
    """Effect: record what was reported before the omac that launched it was gone."""


def react(state: Sandbox, *, is_reported: bool, is_taken_in: bool = False) -> TakeInReports | Lose | None:
    """The effect or the command that a launch calls for; None: nothing but the reports that will come.

    `is_reported`: the omac that launched it lives. `is_taken_in`: what it reported has been recorded since it did not.
    """
    if not state.live or is_reported:
        return None
    return Lose(WHY) if is_taken_in else TakeInReports()
