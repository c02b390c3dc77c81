"""The limits of calls that the owner of the host sets, whatever a skill says of itself.

Rules

1. Of a skill's own limit and the owner's the stricter holds.
2. What the owner says of one skill holds for that skill in the place of what the owner says of all.
3. Each skill of each project has these limits for itself. Those of the facade count the calls of all.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from omac.domain.settings.numbers import numbers_of

PREFIX = "limits."
# Settings by the field that they bound.
OF_A_SKILL = {
    "max_body_bytes": "limits.max_body_bytes",
    "idle_s": "limits.idle_timeout_secs",
    "total_s": "limits.total_timeout_secs",
    "concurrent": "limits.concurrent_calls",
    "per_second": "limits.calls_per_second",
}
ALL_CONCURRENT, ALL_PER_SECOND = "limits.all_concurrent_calls", "limits.all_calls_per_second"
HEAD_BYTES = "limits.max_head_bytes"


class SkillBounds(msgspec.Struct, frozen=True):
    """The limits that the owner sets for the calls of one skill: `max_body_bytes`, and fields as in CallLimits. None:
    the owner sets none."""

    max_body_bytes: int | None = None
    idle_s: int | None = None
    total_s: int | None = None
    concurrent: int | None = None
    per_second: int | None = None


class HeldLimit(msgspec.Struct, frozen=True):
    """A limit that holds for calls of a skill, None: none does; and who set it: its omac.yaml, the settings of the
    host's owner, or nobody (the default)."""

    value: int | None
    whose: Literal["omac.yaml", "settings", "default"]


class OwnerLimits(msgspec.Struct, frozen=True):
    """The limits that the owner sets: for the calls of all skills together, for a head, and for the calls of each
    skill, by name ("": those that are not named)."""

    concurrent: int | None = None
    per_second: int | None = None
    head_bytes: int | None = None
    skills: dict[str, SkillBounds] = {}

    def of(self, skill: str) -> SkillBounds:
        """Return what holds for a skill."""
        return self.skills.get(skill) or self.skills.get("") or SkillBounds()


def owner_limits(words: Mapping[str, str]) -> OwnerLimits:
    """Return the limits that these words of settings say, by their names; words that the settings take."""
    by_setting = {name: numbers_of(word) or {} for name, word in words.items()}
    named = {skill for numbers in by_setting.values() for skill in numbers}

    def of(name: str, skill: str) -> int | None:
        numbers = by_setting.get(name, {})
        return numbers.get(skill, numbers.get(""))

    skills = {
        skill: SkillBounds(**{field: of(name, skill) for field, name in OF_A_SKILL.items()}) for skill in {"", *named}
    }
    return OwnerLimits(of(ALL_CONCURRENT, ""), of(ALL_PER_SECOND, ""), of(HEAD_BYTES, ""), skills)


def stricter(own: int | None, owners: int | None) -> int | None:
    """Return the limit that holds of a skill's own and the owner's."""
    return own if owners is None else owners if own is None else min(own, owners)


def held_limit(own: int | None, owners: int | None, default: int | None) -> HeldLimit:
    """Return the limit that holds of a skill's own, in whose place `default` stands, and the owner's."""
    value = stricter(default if own is None else own, owners)
    if value is not None and value == owners:
        return HeldLimit(value, "settings")
    return HeldLimit(value, "default" if own is None else "omac.yaml")


def how_to_change(setting: str) -> str:
    """Return the command that changes a limit of the owner's, for people."""
    return f"omac settings set {setting} NUMBER  # or none; a server takes it up when it starts"
