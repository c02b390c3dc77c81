"""domain/skills/unknown_keys.py: keys that omac ignores, and the keys that their author probably meant."""

from typing import Any

import pytest

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.meta import UnknownKey
from omac.domain.skills.unknown_keys import explain

SIDECAR_KEYS = "command, mount, env_passthrough, secrets, config, health, limits, install_scripts, protocols"


def explained(document: dict[str, Any]) -> list[str]:
    return [explain(key) for key in parse_meta({"name": "x"} | document).unknown_keys]


def in_sidecar(**sidecar: Any) -> dict[str, Any]:
    return {"sidecar": {"command": ["run"], **sidecar}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        # with a near name
        ({"descripton": "x"}, "'descripton' at the top level, which is ignored; did you mean description?"),
        (in_sidecar(secerts=[]), "'secerts' in sidecar, which is ignored; did you mean sidecar.secrets?"),
        (in_sidecar(Mount="x"), "'Mount' in sidecar, which is ignored; did you mean sidecar.mount?"),
        (
            in_sidecar(secrets=[{"name": "A"}, {"name": "B", "requird": False}]),
            "'requird' in sidecar.secrets[1], which is ignored; did you mean sidecar.secrets[1].required?",
        ),
        (
            in_sidecar(health={"timeout": 5}),
            "'timeout' in sidecar.health, which is ignored; did you mean sidecar.health.timeout_ms?",
        ),
        # a key of one other section
        ({"secrets": []}, "'secrets' at the top level, which is ignored; did you mean sidecar.secrets?"),
        (in_sidecar(version="1"), "'version' in sidecar, which is ignored; did you mean version at the top level?"),
        (
            in_sidecar(timeout_ms=5),
            "'timeout_ms' in sidecar, which is ignored; did you mean sidecar.health.timeout_ms?",
        ),
        # without a near name
        (in_sidecar(name="x"), f"'name' in sidecar, which is ignored; known keys: {SIDECAR_KEYS}"),
        (in_sidecar(x=1), f"'x' in sidecar, which is ignored; known keys: {SIDECAR_KEYS}"),
        (
            in_sidecar(install_scripts={"beos": 5}),
            "'beos' in sidecar.install_scripts, which is ignored; known keys: macos, linux, wsl",
        ),
        # nothing that a terminal would obey, nothing long
        (
            in_sidecar(limits={"a\x1b[2J": 1}),
            "'a\\x1b[2J' in sidecar.limits, which is ignored; known keys: max_body_bytes, idle_timeout_secs, "
            "total_timeout_secs, concurrent_calls, calls_per_second",
        ),
        (
            in_sidecar(limits={"\ud800" * 99: 1}),
            "'" + "\\ud800" * 77 + "...' in sidecar.limits, which is ignored; known keys: max_body_bytes, "
            "idle_timeout_secs, total_timeout_secs, concurrent_calls, calls_per_second",
        ),
    ],
)
def test_the_nearest_name_is_suggested(document: dict[str, Any], text: str) -> None:
    """The message has the key and its section, then the nearest name there, the section with such a key, or the keys
    there."""
    assert explained(document) == [f"omac.yaml has an unknown key {text}"]


@pytest.mark.parametrize("key", [7, 1.5, True, None])
def test_a_key_that_is_not_text(key: object) -> None:
    """A key that is not text has no name to compare, so the message has its section only."""
    assert explained(in_sidecar(limits={key: 1})) == [
        "omac.yaml has a key in sidecar.limits that is not text; it is ignored"
    ]


def test_keys_of_the_contract_that_omac_does_not_read() -> None:
    """Skills written for the ecosystem's contract are complete, so their keys are not reported as unknown."""
    assert explained({"type": "sidecar", "author": {"name": "me"}, "dependencies": [1], "version": None}) == []


def test_what_no_section_holds_is_not_searched() -> None:
    """A value that omac does not read may hold any keys."""
    assert parse_meta({"name": "x", "author": {"nmae": 1}, "later": {"sidecar": {}}}).unknown_keys == (
        UnknownKey("", "later"),
    )
