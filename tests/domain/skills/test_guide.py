import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.skills.guide import DESCRIPTION_CHARS_MAX, parse_guide
from omac.domain.skills.meta import Guide


def where(field: str) -> str:
    return f"/s/SKILL.md, line {len(field)}"


LONG = "x" * (DESCRIPTION_CHARS_MAX + 1)


@pytest.mark.parametrize(
    ("document", "name", "description", "expected"),
    [
        ({"name": "echo", "description": "Says it again."}, "echo", "Says it again.", None),
        ({"name": "echo", "description": "two\nlines\n", "license": 5}, "echo", "two\nlines", None),
        ({"name": "echo", "description": LONG[:-1]}, "echo", LONG[:-1], None),
        ({"name": "echo", "description": LONG}, "echo", LONG[:-1], "line 11: description: is 1025 characters"),
        ({"name": "other", "description": "d"}, "other", "d", "line 4: name: 'other' must be 'echo'"),
        ({"name": "Echo", "description": "d"}, "Echo", "d", "name: 'Echo' must be 'echo'"),
        ({"name": "\x1b[2J", "description": "d"}, "\x1b[2J", "d", "name: '\\x1b[2J' must be"),
        ({"description": "d"}, "", "d", "name: is missing"),
        ({"name": "echo"}, "echo", "", "description: is missing"),
        ({"name": "echo", "description": "  "}, "echo", "", "description: must be text"),
        ({"name": 5, "description": "d"}, "", "d", "name: must be text: put it in quotes"),
        ({"name": ["echo"], "description": {}}, "", "", "name: must be text"),
        ({"name": "a\0b", "description": "d"}, "", "d", "name: must be text"),
        ({"name": "echo", "description": "\ud800"}, "echo", "", "description: must be text"),
        ({}, "", "", "name: is missing"),
        (None, "", "", "line 0: must be a mapping"),
        ([1], "", "", "line 0: must be a mapping"),
        ("text", "", "", "line 0: must be a mapping"),
    ],
)
def test_name_and_description_of_a_guide(document: object, name: str, description: str, expected: str | None) -> None:
    """A guide's name and description are text, and the name is the skill's. Of several problems the first is
    reported."""
    guide = parse_guide(document, "echo", where)
    assert (guide.name, guide.description) == (name, description)
    assert (guide.problem is None) == (expected is None)
    if guide.problem is not None:
        assert expected is not None
        assert expected in guide.problem
        assert guide.problem.startswith("/s/SKILL.md, line ")
        assert guide.problem.isprintable()


values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.sampled_from(["name", "description", "x"]), values) | values)
def test_any_document_gives_a_guide(document: object) -> None:
    """Any front matter gives a guide that can be written as UTF-8, and raises no exception."""
    guide = parse_guide(document, "echo", where)
    assert isinstance(guide, Guide)
    (guide.name + guide.description + (guide.problem or "")).encode()
    assert len(guide.description) <= DESCRIPTION_CHARS_MAX
