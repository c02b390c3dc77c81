"""The schema of omac.yaml: documents that omac accepts are valid; those that it refuses, or ignores keys of, are
not."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.document import SECTIONS
from omac.domain.skills.meta import MetaError
from omac.domain.skills.schema import DESCRIPTIONS, schema
from omac.tools.cli.skill_template import files_of

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "domain" / "skills" / "omac.schema.json"
EXAMPLES = sorted((ROOT / "examples" / "skills").glob("*/omac.yaml"))
FULL: dict[str, Any] = {
    "name": "slack",
    "version": 1.5,
    "author": "somebody",
    "description": None,
    "sidecar": {
        "command": ["python3", "sidecar.py"],
        "mount": "chat",
        "env_passthrough": ["http_proxy"],
        "secrets": [{"name": "TOKEN", "description": None, "pattern": "^a+$", "multiline": True}],
        "config": [{"name": "MODE", "type": "enum", "choices": ["fast", 2], "default": "fast"}],
        "health": {"path": "/status", "timeout_ms": 10},
        "limits": {"max_body_bytes": 10, "idle_timeout_secs": None},
        "install_scripts": {"linux": "install.sh"},
        "protocols": ["http"],
    },
}


def problems(document: object) -> list[str]:
    """Return the problems that the schema finds in a document."""
    validator = jsonschema.Draft202012Validator(schema())
    return [error.message for error in validator.iter_errors(document)]


def within(document: dict[str, Any], section: str) -> dict[str, Any]:
    """Return the section of a document by its dotted path."""
    part: Any = document
    for name in section.split(".") if section else ():
        part = part[name]
        part = part[0] if isinstance(part, list) else part
    assert isinstance(part, dict)
    return part


def test_the_example_explains_each_key() -> None:
    """The output of `omac skill schema --example` has each key of each section, in use or behind a comment sign."""
    (example,) = [path.read_text() for path in EXAMPLES if path.parent.name == "echo"]
    keys = {path.rpartition(".")[2] for path in DESCRIPTIONS}
    assert {key for key in keys if f"{key}:" not in example} == set()


def test_what_is_shipped_is_made_of_the_types() -> None:
    """The shipped file is made of the types. If it differs, `json.dumps(schema(), indent=2)` is the new file."""
    assert SHIPPED.read_text() == json.dumps(schema(), indent=2) + "\n"
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_key_is_described() -> None:
    keys = {f"{section}.{name}" if section else name for section, form in SECTIONS.items()
            for name in form.__struct_fields__}  # fmt: skip
    assert keys == DESCRIPTIONS.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_valid(path: Path) -> None:
    assert problems(YAML(typ="safe").load(path.read_text())) == []


@pytest.mark.parametrize("secrets", [(), ("TOKEN", "KEY")], ids=len)
def test_a_new_skill_is_valid(secrets: tuple[str, ...]) -> None:
    """The omac.yaml that `omac skill new` writes is valid."""
    assert problems(YAML(typ="safe").load(files_of("slack", "slack", secrets)["omac.yaml"])) == []


def test_a_document_with_every_section_is_taken_by_both() -> None:
    assert problems(FULL) == []
    assert parse_meta(FULL).unknown_keys == ()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section or "top level")
def test_an_unknown_key_is_refused_and_named(section: str) -> None:
    """The schema refuses an unknown key, and omac names it."""
    document = json.loads(json.dumps(FULL))
    within(document, section)["mistyped"] = "x"
    assert any("mistyped" in problem for problem in problems(document))
    assert [key.key for key in parse_meta(document).unknown_keys] == ["mistyped"]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("", "name", "no name"),
        ("", "name", None),
        ("sidecar", "command", []),
        ("sidecar", "command", "python3 sidecar.py"),
        ("sidecar", "mount", "Chat!"),
        ("sidecar.secrets", "name", "lower"),
        ("sidecar.secrets", "required", "yes"),
        ("sidecar.config", "type", "float"),
        ("sidecar.health", "path", "status"),
        ("sidecar.health", "timeout_ms", 0),
        ("sidecar.limits", "max_body_bytes", -1),
        ("sidecar.install_scripts", "linux", 1),
    ],
)
def test_a_wrong_value_is_refused_by_both(section: str, key: str, value: object) -> None:
    document = json.loads(json.dumps(FULL))
    within(document, section)[key] = value
    assert problems(document)
    with pytest.raises(MetaError):
        parse_meta(document)
