"""domain/harness/harness.py: the coding agents omac knows."""

import posixpath

import pytest

from omac.domain.harness.harness import DEFAULT_HARNESS, HARNESSES, Harness, harness_named
from omac.domain.kernel.refusal import Refusal


@pytest.mark.parametrize("harness", HARNESSES)
def test_every_name_and_alias_leads_to_its_harness(harness: Harness) -> None:
    """And to no other: names are unique."""
    for name in (harness.name, *harness.aliases):
        assert harness_named(name) is harness
    names = [name for one in HARNESSES for name in (one.name, *one.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("harness", HARNESSES)
def test_its_own_skills_come_before_the_shared_ones(harness: Harness) -> None:
    """A skill in the agent's own folder hides one of that name in .agents."""
    assert harness.bases == (harness.base, "agents")
    assert harness.serve


@pytest.mark.parametrize("name", ["", "emacs", "OpenCode"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    """The message lists them all, with their aliases."""
    with pytest.raises(Refusal, match="opencode or oc, claude or claude-code or cc") as caught:
        harness_named(name)
    assert caught.value.reason == "misuse"
    assert DEFAULT_HARNESS.name == "opencode"


@pytest.mark.parametrize("harness", HARNESSES)
def test_what_is_pinned_cannot_also_be_its_own(harness: Harness) -> None:
    """A place is kept or pinned, not both; all are in the home, written once and without a way out of it."""
    places = (*harness.folders, *harness.pinned, *harness.added_to, *harness.apart)
    assert len({place.rstrip("/") for place in places}) == len(places)
    assert harness.folders
    assert all(place == posixpath.normpath(place) + "/" * place.endswith("/") for place in places)
    assert not any(place.startswith(("/", "..", "~")) for place in places)
    assert all(place.endswith("/") for place in (*harness.added_to, *harness.apart))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("claude", ".claude/settings.json"),
        ("claude", ".claude/plugins/"),
        ("codex", ".codex/config.toml"),
        ("codex", ".codex/hooks.json"),
        ("codex", ".codex/.env"),
        ("opencode", ".config/opencode/"),
        ("copilot", ".copilot/mcp-config.json"),
        ("pi", ".pi/agent/extensions/"),
    ],
)
def test_what_runs_code_at_the_next_start_is_pinned(name: str, place: str) -> None:
    """Hooks, plugins and servers of tools that a session planted would run in the next one, sandbox or not."""
    assert place in harness_named(name).pinned
    assert not any(place == kept for kept in harness_named(name).folders)
