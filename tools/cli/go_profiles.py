"""The output of `omac import` for the sandbox profiles of the omac that was written in Go."""

from collections.abc import Sequence

from omac.domain.legacy.go_profile import ProfilePlan
from omac.tools.terminal.render import print_folded, print_line

MARKS = {"take": "+", "there": "=", "skip": "-"}


def show_profiles(profiles: Sequence[ProfilePlan]) -> None:
    """Show each key of each profile: what it becomes, that nothing is needed, or what to do instead."""
    for plan in profiles:
        print_folded(f"sandbox profile {plan.name} {plan.source}")
        if plan.present:
            print_line(f"  = {plan.present} is there already, and is used by --profile {plan.name}")
            continue
        for entry in plan.keys:
            match entry.verdict:
                case "take":
                    print_line(f"  + {entry.key} as {entry.value}")
                case "there":
                    print_line(f"  = {entry.key} {entry.value}: {entry.why}")
                case "skip":
                    print_folded(f"  - {entry.key} {entry.value} is not supported: {entry.why}", 4)
        print_line(f"  use it by: omac start --profile {plan.name}")
