"""clients/registry.py: each tested version is stated once, exactly."""

import re
from pathlib import Path

import pytest
from clients.registry import CLIENTS, Client

from omac.domain.harness.table import harness_named

ROOT = Path(__file__).parents[2]
STATED = Path("tests/clients/registry.py")


def sources() -> list[Path]:
    """Return the files that run or install clients: these tests, the scripts at the top, and CI's."""
    folders = (ROOT / "tests" / "clients", ROOT / ".ci")
    return [ROOT / "test", *(path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ""))]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_version_is_exact_and_stated_in_one_place(client: Client) -> None:
    """A version is no range and no tag; no other file that runs or installs clients has it."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", client.version)
    version = re.compile(rf"(?<![\d.]){re.escape(client.version)}(?![\d.])")
    texts = {path: path.read_text() for path in sources() if path.is_file()}
    files = {path.relative_to(ROOT) for path, text in texts.items() if version.search(text)}
    assert files == {STATED}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_has_the_name_that_omac_knows(client: Client) -> None:
    """The client's program is the one that omac launches, and its package the one in omac's install command."""
    harness = harness_named(client.name)
    assert harness.program == client.name
    assert harness.install.split()[-1] == client.package
