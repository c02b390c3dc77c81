"""domain/settings/owner_limits.py: the limits of the host's owner, which hold for every skill."""

import pytest

from omac.domain.settings.owner_limits import (
    ALL_CONCURRENT,
    ALL_PER_SECOND,
    HEAD_BYTES,
    OF_A_SKILL,
    HeldLimit,
    OwnerLimits,
    SkillBounds,
    held_limit,
    owner_limits,
    stricter,
)
from omac.domain.settings.settings import SETTINGS


def test_the_settings_exist() -> None:
    """Each limit has a setting, which is none by default; the limits of a skill can be set for single skills."""
    of_all = (ALL_CONCURRENT, ALL_PER_SECOND, HEAD_BYTES)
    assert {name for name in SETTINGS if name.startswith("limits.")} == {*OF_A_SKILL.values(), *of_all}
    assert set(OF_A_SKILL) == set(SkillBounds.__struct_fields__)
    for name in (*OF_A_SKILL.values(), *of_all):
        assert SETTINGS[name].default == "none"
        assert SETTINGS[name].takes("8,slack=2") == (name in OF_A_SKILL.values())
    assert owner_limits(dict.fromkeys(OF_A_SKILL.values(), "none")).of("slack") == SkillBounds()
    assert owner_limits({}) == OwnerLimits(skills={"": SkillBounds()})


def test_single_skills() -> None:
    """A limit for a single skill holds for that skill; all other limits for all skills hold for it, too."""
    owner = owner_limits(
        {
            "limits.concurrent_calls": "8,slack=2,build=none",
            "limits.calls_per_second": "slack=5",
            "limits.total_timeout_secs": "60",
            "limits.all_concurrent_calls": "20",
            "limits.all_calls_per_second": "100",
            "limits.max_head_bytes": "4096",
        }
    )
    assert owner.of("slack") == SkillBounds(total_s=60, concurrent=2, per_second=5)
    assert owner.of("build") == SkillBounds(total_s=60)
    assert owner.of("other") == SkillBounds(total_s=60, concurrent=8)
    assert (owner.concurrent, owner.per_second, owner.head_bytes) == (20, 100, 4096)


@pytest.mark.parametrize(
    ("own", "owners", "holds"), [(None, None, None), (3, None, 3), (None, 4, 4), (3, 4, 3), (5, 4, 4)]
)
def test_the_stricter_holds(own: int | None, owners: int | None, holds: int | None) -> None:
    """The stricter of two limits holds; a single limit holds by itself."""
    assert stricter(own, owners) == holds


@pytest.mark.parametrize(
    ("own", "owners", "default", "held"),
    [
        (None, None, None, HeldLimit(None, "default")),
        (None, None, 300, HeldLimit(300, "default")),
        (None, 400, 300, HeldLimit(300, "default")),
        (None, 200, 300, HeldLimit(200, "settings")),
        (None, 200, None, HeldLimit(200, "settings")),
        (0, None, 300, HeldLimit(0, "omac.yaml")),
        (100, 200, 300, HeldLimit(100, "omac.yaml")),
        (400, None, 300, HeldLimit(400, "omac.yaml")),
        (400, 200, 300, HeldLimit(200, "settings")),
        (200, 200, 300, HeldLimit(200, "settings")),
    ],
)
def test_whose_limit_holds(own: int | None, owners: int | None, default: int | None, held: HeldLimit) -> None:
    """A skill's own limit replaces the default, and the owner's limit narrows both."""
    assert held_limit(own, owners, default) == held
