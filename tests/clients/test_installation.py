"""clients/installation.py: a client that cannot be installed is named, with the reason, and leaves nothing behind."""

from pathlib import Path

import pytest
from clients.agents import codex
from clients.installation import NotInstalled, cache, installed
from clients.registry import Client
from clients.world import world_or_skip

ABSENT = Client("absent", "omac-has-no-such-client", "1.2.3")


@pytest.fixture(autouse=True)
def no_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set an empty cache, and a registry at a port where no program listens."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1/")


@pytest.mark.full
def test_the_reason_is_said() -> None:
    """The reason names the exact package and has npm's message; the cache holds no part of the package."""
    with pytest.raises(NotInstalled, match=r"omac-has-no-such-client@1\.2\.3 cannot be installed: .*ECONNREFUSED"):
        installed(ABSENT)
    assert [path.name for path in cache().iterdir()] == ["absent.lock"]


def test_a_world_without_its_client_is_a_skip() -> None:
    """The skip names the client."""
    absent = codex("")._replace(client=ABSENT)
    with pytest.raises(pytest.skip.Exception, match="omac-has-no-such-client"), world_or_skip(lambda _: absent):
        pass
