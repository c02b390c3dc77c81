"""domain/skills/problems.py: all problems of an omac.yaml at once."""

from typing import Any

import pytest

from omac.domain.skills.problems import PROBLEMS_MAX, problems_of

GOOD: dict[str, Any] = {"name": "s", "sidecar": {"command": ["python3"], "mount": "s"}}


def fields(document: object) -> list[str]:
    return [error.field for error in problems_of(document)[0]]


def test_a_good_document_has_none() -> None:
    """A good document has no problem, and gives its Meta."""
    problems, meta = problems_of(GOOD)
    assert problems == []
    assert meta is not None
    assert meta.name == "s"


def test_each_problem_is_reported_once() -> None:
    """Each problem is reported once, of whatever kind it is: types, patterns, missing names, duplicates, bounds."""
    document = {
        "name": "no name",
        "sidecar": {
            "command": [],
            "mount": "../up",
            "env_passthrough": ["A", "LD_PRELOAD", "A"],
            "secrets": [{"name": "lower"}, {"description": "nameless"}, {"name": "T", "pattern": "("}],
            "config": [{"name": "C", "type": "enum"}, {"name": "D", "default": "x", "type": "int"}, "text"],
            "health": {"path": "status", "timeout_ms": 0},
            "limits": {"max_body_bytes": -1},
        },
    }
    problems, meta = problems_of(document)
    assert meta is None
    assert sorted(error.field for error in problems) == sorted(
        [
            "name", "sidecar.command", "sidecar.mount", "sidecar.env_passthrough[1]", "sidecar.env_passthrough[2]",
            "sidecar.secrets[0].name", "sidecar.secrets[1].name", "sidecar.secrets[2].pattern",
            "sidecar.config[0].choices", "sidecar.config[1].default", "sidecar.config[2]", "sidecar.health.path",
            "sidecar.health.timeout_ms", "sidecar.limits.max_body_bytes",
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, [""]),
        ([], [""]),
        ({}, ["name"]),
        ({"sidecar": 7}, ["name", "sidecar"]),
        ({"name": "s", "sidecar": {}}, ["sidecar.command"]),
        ({"name": "S.S", "sidecar": {"command": ["a"]}}, ["sidecar.mount"]),
        ({"name": "s", "sidecar": {"command": [1, "", "a"]}}, ["sidecar.command[0]", "sidecar.command[1]"]),
    ],
)
def test_what_is_missing_or_of_another_kind(document: object, expected: list[str]) -> None:
    """A document of another form ends with that problem; a missing field or a value of another kind is a problem of its
    own."""
    assert sorted(fields(document)) == sorted(expected)


def test_there_is_an_end() -> None:
    """The search for problems has an end, and leaves the document as it was."""
    document = {"name": "s", "sidecar": {"command": ["a"], "secrets": [{"name": "x"} for _ in range(500)]}}
    assert len(fields(document)) == PROBLEMS_MAX
    assert document["sidecar"]["secrets"][0] == {"name": "x"}  # type: ignore[index]
