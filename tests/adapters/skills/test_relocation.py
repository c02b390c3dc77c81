import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.skills.relocation import HEAD_BYTES, UNSPELT, Relocation, beginning, extent

OLD, NEW = b"/proj/skill", b"/state/frozen/" + b"a" * 64
MOVE = Relocation(OLD, NEW)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"#!/proj/skill/.venv/bin/python3\n", b"#!%s/.venv/bin/python3\n"),
        (b"/proj/skill", b"%s"),
        (b"a /proj/skill/x '/proj/skill' \"/proj/skill\"", b"a %s/x '%s' \"%s\""),
        (b"file:///proj/skill/x", b"file://%s/x"),
        (b"/proj/skill-2/x /proj/skills /proj/skill.bak /proj/skill\xc3\xa9", None),
        (b"/mnt/proj/skill/x", b"/mnt%s/x"),  # broken rather than live
        (b"nothing", None),
        (b"", None),
    ],
)
def test_there_and_back(before: bytes, after: bytes | None) -> None:
    """Each mention of the skill's folder, as a whole name, becomes the copy's path, and can be undone."""
    relocated = before if after is None else after.replace(b"%s", NEW)
    assert MOVE.there(before) == relocated
    assert MOVE.back(relocated) == before


def test_what_nothing_becomes() -> None:
    """A copy that mentions the skill's folder has been changed: no relocation produces such content."""
    assert MOVE.back(b"#!/proj/skill/x") is None


@given(st.lists(st.sampled_from([OLD, NEW, b"/", b"x", b"-", b" ", b"\n", b"/proj", b"/skill"]), max_size=8))
def test_back_is_the_inverse_or_nothing(parts: list[bytes]) -> None:
    """Any content of a copy has one original, or none."""
    content = b"".join(parts)
    original = MOVE.back(content)
    assert original is None or MOVE.there(original) == content
    if NEW not in content:
        assert MOVE.back(MOVE.there(content)) in (content, None)


SCRIPT = b"#!/bin/sh\n"
EXEC = b"'''exec' \"/a b/python\" \"$0\" \"$@\"\n' '''\nimport x\n"


@pytest.mark.parametrize(
    ("relpath", "start", "expected"),
    [
        ("run", SCRIPT + b"echo\n", len(SCRIPT)),
        ("run", b"#!/bin/sh", 9),
        ("run", SCRIPT + EXEC, len(SCRIPT) + EXEC.index(b"\n") + 1),
        ("run", SCRIPT + b"'''exec' x", len(SCRIPT) + 10),
        ("run", b"#!" + b"x" * HEAD_BYTES, 0),
        ("run", b"echo\n", 0),
        ("run", b"", 0),
        ("a.pth", b"/x\n/y\n", 6),
        ("lib/a.pth", b"#!/x\n/y\n", 8),
        (".pth", b"/x", 2),
        ("a.pth.txt", b"/x", 0),
        (".venv/pyvenv.cfg", b"home = /usr\n", 12),
        ("pyvenv.cfg.bak", b"home = /usr\n", 0),
        ("lib/__editable___x_finder.py", b"MAPPING", 7),
        ("bin/activate", b"VIRTUAL_ENV", 11),
        (".venv/bin/activate.fish", b"VIRTUAL_ENV", 11),
        (".venv/bin/Activate.ps1", b"VIRTUAL_ENV", 11),
        ("activate", b"VIRTUAL_ENV", 0),
        ("new\nline/bin/activate", b"VIRTUAL_ENV", 11),
    ],
)
def test_where_paths_matter(relpath: str, start: bytes, expected: int) -> None:
    """Paths count in a script's interpreter lines, and in whole files from which Python or shells take paths."""
    assert extent(relpath, beginning(relpath, memoryview(start))) == expected


@pytest.mark.parametrize("path", ["/a/it's", '/a/"b"', "/a\\b", "/a\nb", "/a$b", "/a`b", "/a\x7fb"])
def test_paths_that_are_spelt_in_other_ways(path: str) -> None:
    """A path with quotes, backslashes and the like is written in other ways and cannot be found by its bytes."""
    assert UNSPELT.search(path)
    assert not UNSPELT.search("/home/ü ser/.agents/skills/a-b_c.d+e@f (1)[2]{3}")
