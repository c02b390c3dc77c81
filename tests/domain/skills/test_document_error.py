"""domain/skills/document_error.py: the text of each error, which names the field and the form that is expected."""

from typing import Any

import pytest

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.document import ENTRIES_MAX
from omac.domain.skills.meta import MetaError

NAME = "must be 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit"
VARIABLE = "must be 1 to 128 of A-Z 0-9 _ and not begin with a digit"
NO_TEXT = "holds NUL or an incomplete surrogate pair: remove it"
LONG = "a" * 600
CUT = "a" * 77 + "..."


def refusal(document: object) -> str:
    with pytest.raises(MetaError) as caught:
        parse_meta(document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        # no document at all
        (None, "must be a mapping of keys to values, not nothing"),
        (["name"], "must be a mapping of keys to values, not a list"),
        # missing
        ({}, "name: is missing: give the skill a name"),
        ({"name": None}, "name: is missing: give the skill a name"),
        ({"name": "x", "sidecar": {}}, "sidecar.command: must list the program to run and its arguments"),
        # wrong type
        ({"name": 5}, "name: must be text, not a number: put it in quotes"),
        ({"name": {"first": "x"}}, "name: must be text, not a mapping"),
        ({"name": []}, "name: must be text, not a list"),
        ({"name": "x", "version": [1]}, "version: must be text, not a list"),
        ({"name": "x", "sidecar": "run"}, "sidecar: must be a mapping of keys to values, not text"),
        # bad pattern
        ({"name": "a/b"}, f"name: 'a/b' {NAME}"),
        ({"name": "x\n"}, f"name: 'x\\n' {NAME}"),
        ({"name": LONG}, f"name: '{CUT}' {NAME}"),
        ({"name": "x", "description": "\ud800"}, f"description: '\\ud800' {NO_TEXT}"),
        ({"name": "x", "sidecar": "\ud800"}, f"sidecar: '\\ud800' {NO_TEXT}"),
        ({"name": "x", "version": 2**63}, "version: is a number beyond 64 bits"),
    ],
)
def test_a_document(document: object, text: str) -> None:
    """An error names the field, then the problem, then the form that is expected."""
    assert refusal(document) == text


@pytest.mark.parametrize(
    ("sidecar", "text"),
    [
        # missing
        ({"command": None}, "command: must list the program to run and its arguments"),
        ({"command": []}, "command: must list the program to run and its arguments"),
        ({"secrets": [{}]}, "secrets[0].name: is missing: name the environment variable"),
        ({"config": [{"name": "A"}, {"name": None}]}, "config[1].name: is missing: name the environment variable"),
        # wrong type
        ({"command": "run me"}, "command: must be a list, not text"),
        ({"command": ["run", 5]}, "command[1]: must be text, not a number: put it in quotes"),
        ({"command": ["run", None]}, "command[1]: must be text, not nothing"),
        ({"command": ["run", {"port": 1}]}, "command[1]: must be text, not a mapping"),
        ({"mount": True}, "mount: must be text, not true or false: put it in quotes"),
        ({"secrets": ["A"]}, "secrets[0]: must be a mapping of keys to values, not text"),
        ({"secrets": [{"name": "A", "required": "yes"}]}, "secrets[0].required: must be true or false, not text"),
        ({"health": {"timeout_ms": "5000"}}, "health.timeout_ms: must be a whole number, not text"),
        ({"health": {"timeout_ms": True}}, "health.timeout_ms: must be a whole number, not true or false"),
        ({"limits": []}, "limits: must be a mapping of keys to values, not a list"),
        # bad pattern
        ({"mount": "Echo"}, "mount: 'Echo' must be 1 to 63 of a-z 0-9 - and begin with a letter or digit"),
        ({"secrets": [{"name": "token"}]}, f"secrets[0].name: 'token' {VARIABLE}"),
        (
            {"env_passthrough": ["A", "a b"]},
            "env_passthrough[1]: 'a b' must be 1 to 128 of A-Z a-z 0-9 _ and not begin with a digit",
        ),
        (
            {"health": {"path": "status"}},
            "health.path: 'status' must begin with \"/\" and hold only visible ASCII characters",
        ),
        (
            {"config": [{"name": "A", "type": "float"}]},
            "config[0].type: 'float' must be one of string, bool, int, enum",
        ),
        ({"config": [{"name": "A", "type": "\ud800 - at `$.x`"}]}, None),
        # out of range
        ({"health": {"timeout_ms": 0}}, "health.timeout_ms: must be from 1 to 600000"),
        ({"health": {"interval_ms": 600_001}}, "health.interval_ms: must be from 1 to 600000"),
        ({"health": {"initial_delay_ms": -1}}, "health.initial_delay_ms: must be from 0 to 600000"),
        ({"limits": {"max_body_bytes": 10**5000}}, "limits.max_body_bytes: must be from 0 to 1099511627776"),
        ({"limits": {"idle_timeout_secs": 2**31}}, "limits.idle_timeout_secs: must be from 0 to 2147483647"),
        ({"config": [{"name": "A", "default": 2**63}]}, "config[0].default: is a number beyond 64 bits"),
        (
            {"config": [{"name": "A", "type": "enum", "choices": ["a", -(2**63) - 1]}]},
            "config[0].choices[1]: is a number beyond 64 bits",
        ),
        # too short, too long
        ({"command": ["run", ""]}, "command[1]: must not be empty"),
        ({"protocols": [""]}, "protocols[0]: must not be empty"),
        (
            {"secrets": [{"name": "A", "pattern": LONG}]},
            f"secrets[0].pattern: '{CUT}' is 600 characters long, at most 512 may be",
        ),
        ({"command": ["a"] * (ENTRIES_MAX + 1)}, "command: has 4097 entries, at most 4096 may be"),
        (
            {"config": [{"name": "A", "type": "enum", "choices": list(range(5_000))}]},
            "config[0].choices: has 5000 entries, at most 4096 may be",
        ),
        # several fields
        (
            {"env_passthrough": ["A"], "config": [{"name": "A"}]},
            "config[0].name: A is declared already, as sidecar.env_passthrough[0]: remove one of the two",
        ),
        (
            {"secrets": [{"name": "A"}], "config": [{"name": "B"}, {"name": "A"}]},
            "config[1].name: A is declared already, as sidecar.secrets[0].name: remove one of the two",
        ),
        (
            {"secrets": [{"name": "OMAC_X"}]},
            "secrets[0].name: OMAC_X is set by omac or changes how programs are loaded: choose another name",
        ),
        (
            {"config": [{"name": "A", "type": "int", "pattern": "1"}]},
            "config[0].pattern: is only for settings of type string, and this one is an int",
        ),
        (
            {"config": [{"name": "A", "type": "enum"}]},
            "config[0].choices: is missing: an enum lists the values to choose from",
        ),
    ],
)
def test_a_sidecar(sidecar: dict[str, Any], text: str | None) -> None:
    """The path in an error leads to the very entry of a list, and no text of msgspec's own appears."""
    message = refusal({"name": "echo", "sidecar": {"command": ["run"], **sidecar}})
    assert message.isprintable()
    assert text is None or message == f"sidecar.{text}"
    assert message.startswith("sidecar.")
    assert "`" not in message.replace("`$.x`", "")


def test_a_name_that_cannot_serve_as_the_mount() -> None:
    """A name that cannot serve as the mount leaves the mount missing, and the error describes a valid mount."""
    assert refusal({"name": "Echo.1", "sidecar": {"command": ["run"]}}) == (
        "sidecar.mount: the name 'Echo.1' cannot serve as the mount: give a mount, which must be 1 to 63 of a-z 0-9 - "
        "and begin with a letter or digit"
    )


@pytest.mark.parametrize("default", [98_765_432_109_876_543_210, -98_765_432_109_876_543_210, 4321.5, ["sesame"]])
def test_a_default_of_the_wrong_type_is_not_shown(default: object) -> None:
    """An error shows a default only where it is text."""
    message = refusal({"name": "x", "sidecar": {"command": ["run"], "config": [{"name": "A", "default": default}]}})
    assert message.startswith("sidecar.config[0].default: ")
    assert not any(word in message for word in ("98765", "4321", "sesame"))
