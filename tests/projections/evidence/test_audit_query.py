"""projections/evidence/audit_query.py: the rows that a query selects, and their counts."""

import fnmatch
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.projections.evidence.accesses import AuditRow
from omac.projections.evidence.audit_query import AuditQuery, count_by, matches_glob

ACCESS = AuditRow(
    7, 1_000, "/w/shop", "echo", "s1", "GET", "/v1/Items", 404, 1, 2, 0.5, "completed", None, client="pi", run="a1"
)
CHANGE = AuditRow(
    8, 2_000, None, "mail", None, "", "", None, 0, 0, None, "done", None, "skill.approved", "person", "in .agents",
    run="b2",
)  # fmt: skip


def test_a_row_without_a_skill() -> None:
    """An empty skill keeps the rows that are about none."""
    call = msgspec.structs.replace(CHANGE, skill=None, kind="control.called")
    assert [AuditQuery(skill="").matches(row) for row in (ACCESS, CHANGE, call)] == [False, False, True]


def test_an_exit_code_is_no_answer() -> None:
    """A class of answers has no launch in it, whose exit code may be as large; a number, or another range, has."""
    launch = msgspec.structs.replace(CHANGE, kind="sandbox", status=255)
    answer = msgspec.structs.replace(ACCESS, status=204)
    wanted = {status: AuditQuery(status=status) for status in ((200, 299), (255, 255), (1, 255))}
    assert [query.matches(launch) for query in wanted.values()] == [False, True, True]
    assert wanted[200, 299].matches(answer)


@pytest.mark.parametrize(
    ("fields", "access", "change"),
    [
        ({}, True, True),
        ({"skill": "echo"}, True, False),
        ({"skill": "ech"}, False, False),
        ({"dir": "/w"}, True, False),
        ({"dir": "/"}, True, False),
        ({"dir": "/w/sho"}, False, False),
        ({"session": "s1"}, True, False),
        ({"session": ""}, False, True),
        ({"run": "a1"}, True, False),
        ({"run": "b"}, False, False),
        ({"client": "pi"}, True, False),
        ({"client": ""}, False, True),
        ({"actor": "person"}, False, True),
        ({"kind": "access"}, True, False),
        ({"kind": "skill"}, False, True),
        ({"kind": "skill.approved"}, False, True),
        ({"kind": "ski"}, False, False),
        ({"outcome": "completed"}, True, False),
        ({"status": (404, 404)}, True, False),
        ({"status": (400, 499)}, True, False),
        ({"status": (500, 599)}, False, False),
        ({"status": (0, 999)}, True, False),
        ({"method": "get"}, True, False),
        ({"path": "/v1/*"}, True, False),
        ({"path": "/v1/items"}, False, False),
        ({"path": "*"}, True, False),
        ({"path": ""}, False, True),
        ({"method": ""}, False, True),
        ({"text": "ITEMS"}, True, False),
        ({"text": ".agents"}, False, True),
        ({"since": 1_000}, True, True),
        ({"since": 1_001}, False, True),
        ({"until": 1_000}, True, False),
        ({"first": 8}, False, True),
        ({"last": 7}, True, False),
        ({"skill": "echo", "outcome": "done"}, False, False),
    ],
    ids=str,
)
def test_a_filter(fields: dict[str, Any], access: bool, change: bool) -> None:
    """A filter keeps the rows that match it; a row without the field matches the empty value alone."""
    query = AuditQuery(**fields)
    assert (query.matches(ACCESS), query.matches(CHANGE)) == (access, change)
    assert query.is_selective == bool(fields)


def test_every_filter_has_a_row_in_the_table() -> None:
    """Every field of a query has a case in the table above."""
    (mark,) = test_a_filter.pytestmark
    assert {name for fields, *_ in mark.args[1] for name in fields} == set(AuditQuery.__struct_fields__)


@given(st.text("ab/*", max_size=8), st.text("ab/*?", max_size=6))
def test_a_glob_is_one_of_fnmatch(text: str, glob: str) -> None:
    """A glob without brackets matches as in fnmatch."""
    assert matches_glob(text, glob) == bool(re.match(fnmatch.translate(glob), text))


def test_a_hostile_path_costs_little() -> None:
    """A glob takes time for the product of both lengths at most, whatever the text is."""
    began = time.process_time()
    assert not matches_glob("a" * 8_000, "*a*a*a*a*a*a*b")
    assert time.process_time() - began < 2


def test_counts() -> None:
    """Counts come with the most frequent first, then by value; a missing value comes last."""
    alpha = msgspec.structs.replace(ACCESS, skill="alpha")
    rows = [CHANGE, alpha, ACCESS, ACCESS]
    assert count_by(rows, ("skill", "session")) == [(("echo", "s1"), 2), (("alpha", "s1"), 1), (("mail", None), 1)]
    assert count_by(rows, ("session",)) == [(("s1",), 3), ((None,), 1)]
    assert count_by([], ("skill",)) == []
    many = msgspec.structs.replace(CHANGE, count=7)
    assert count_by([many, ACCESS, ACCESS], ("skill",)) == [(("mail",), 7), (("echo",), 2)], "all that a row stands for"
