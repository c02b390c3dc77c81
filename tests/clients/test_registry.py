"""clients/registry.py: what is tested is stated once, exactly."""

import re
from pathlib import Path

import pytest
from clients.registry import CLIENTS, Client

from omac.domain.harness.table import harness_named

ROOT = Path(__file__).parents[2]
STATED = Path("tests/clients/registry.py")


def sources() -> list[Path]:
    """The files that could state a version: code, scripts, settings."""
    folders = ("tests", "tools", "adapters", "domain", "services", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path for path in files if path.suffix in (".py", ".toml", ".json", ".yml", ".yaml", ".ts", ".sh", "")]
    return [*texts, ROOT / "test", ROOT / "bench" if (ROOT / "bench").is_file() else ROOT / "test"]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_version_is_exact_and_stated_in_one_place(client: Client) -> None:
    """No range, no tag; a package's name with a version stands nowhere else."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", client.version)
    version = re.compile(rf"(?<![\d.]){re.escape(client.version)}(?![\d.])")
    places = {path.relative_to(ROOT) for path in sources() if version.search(path.read_text(errors="replace"))}
    assert places == {STATED}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_has_the_name_that_omac_knows(client: Client) -> None:
    """Its program is what omac launches, and its package what omac says to install."""
    harness = harness_named(client.name)
    assert harness.program == client.name
    assert harness.install.split()[-1] == client.package
