"""The output of `omac import` for the sandbox profiles of the omac that was written in Go."""

from collections.abc import Sequence

from omac.domain.legacy.go_profile import ProfilePlan
from omac.tools.terminal.render import say, say_folded

MARKS = {"take": "+", "there": "=", "skip": "-"}


def show_profiles(profiles: Sequence[ProfilePlan]) -> None:
    """Show each key of each profile: what it becomes, that nothing is needed, or what to do instead."""
    for plan in profiles:
        say_folded(f"sandbox profile {plan.name} {plan.source}")
        if plan.present:
            say(f"  = {plan.present} is there already, and is used by --profile {plan.name}")
            continue
        for one in plan.keys:
            match one.verdict:
                case "take":
                    say(f"  + {one.key} as {one.value}")
                case "there":
                    say(f"  = {one.key} {one.value}: {one.why}")
                case "skip":
                    say_folded(f"  - {one.key} {one.value} is not supported: {one.why}", 4)
        say(f"  use it by: omac start --profile {plan.name}")
