"""domain/settings/numbers.py: the words that stand for numbers."""

import pytest

from omac.domain.settings.numbers import Numbers, numbers_of


@pytest.mark.parametrize(
    ("word", "numbers"),
    [
        ("none", {"": None}),
        ("8", {"": 8}),
        ("8,slack=2", {"": 8, "slack": 2}),
        ("slack=2, my-build.1=none", {"slack": 2, "my-build.1": None}),
        ("none,slack=2", {"": None, "slack": 2}),
        *((word, None) for word in ("", "0", "08", "-1", "+1", "1.5", "1e3", "8,", ",8", "8 8", "8,9", "none,8")),
        *((word, None) for word in ("a=1,a=2", "=8", "a=", "a=b=1", "a b=1", "../x=1", "eight", "½")),
        (",".join(f"s{number}=1" for number in range(300)), None),
    ],
)
def test_words(word: str, numbers: dict[str, int | None] | None) -> None:
    """A word has one number for all skills, and one for each skill that is named; any other text is no such word."""
    assert numbers_of(word) == numbers


def test_what_a_setting_takes() -> None:
    """A setting takes numbers within its bounds, and those for single skills only where it counts by skill."""
    single, many = Numbers(2, 9, 4), Numbers(2, 9, 4, by_skill=True)
    for word in ("2", "9", "none"):
        assert single.takes(word)
        assert many.takes(word)
    for word in ("1", "10", "x", ""):
        assert not single.takes(word)
        assert not many.takes(word)
    assert many.takes("slack=2")
    assert not many.takes("4,slack=10")
    assert not single.takes("4,slack=2")
    assert not single.takes("slack=2")
    assert str(single) == "none or a whole number from 2 to 9"
    assert str(many) == "none or a whole number from 2 to 9, and others for single skills (4,slack=none)"
