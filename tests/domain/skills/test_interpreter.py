"""domain/skills/interpreter.py: programs of the host that are still those that were approved."""

import pytest

from omac.domain.skills.interpreter import Interpreter

READ = Interpreter("python3", "/usr/bin/python3", 1, 2, "content")
LARGE = Interpreter("node", "/usr/bin/node", 1, 3)


@pytest.mark.parametrize(
    ("approved", "now", "same"),
    [
        (READ, READ, True),
        (READ, Interpreter("python3", "/usr/bin/python3", 9, 9, "content"), True),  # installed again, as it was
        (READ, Interpreter("python3", "/usr/bin/python3", 1, 2, "other"), False),
        (READ, Interpreter("python3", "/usr/bin/python3", 1, 2), False),
        (READ, None, False),
        (LARGE, LARGE, True),
        (LARGE, Interpreter("node", "/usr/bin/node", 1, 4), False),
        (LARGE, Interpreter("node", "/usr/bin/node", 2, 3), False),
    ],
)
def test_content_decides_where_it_was_read(approved: Interpreter, now: Interpreter | None, same: bool) -> None:
    """A program is the same if its digest is; without a digest, if it is the same file."""
    assert approved.is_same(now) is same
