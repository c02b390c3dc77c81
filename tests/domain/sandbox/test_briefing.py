"""The briefing states the facts of a launch, and none that do not hold."""

from typing import Any

import pytest

from omac.domain.sandbox.briefing import BriefingFacts, briefing


def briefing_of(**facts: Any) -> str:
    defaults: dict[str, Any] = {
        "writable": ("/w",),
        "cache": "/c",
        "kept": True,
        "network": "host",
        "hides_env_files": True,
    }
    return briefing(BriefingFacts(**{**defaults, **facts}))


def test_it_begins_as_agents_know_it() -> None:
    """The briefing begins with the sentence that agents know, and each fact is a point of a list."""
    first, empty, *points, last = briefing_of().split("\n")
    assert first == "You are running inside the **omac sandbox**."
    assert (empty, last) == ("", "")
    assert len(points) == 7
    assert all(point.startswith("* ") for point in points)


@pytest.mark.parametrize(
    ("facts", "expected", "unexpected"),
    [
        ({}, "what is in /w. ", "/x"),
        ({"writable": ("/w", "/x")}, "what is in /w, and in /x. ", ""),
        ({"writable": ("/w", "/w", "/x")}, "what is in /w, and in /x. ", ""),
        ({}, ".env, are hidden", ""),
        ({}, "Worktrees, submodules and nested repositories that were there at its beginning can only be removed", ""),
        ({"hides_env_files": False}, "at its end.", ".env"),
        ({}, "it is the host's", "Unix socket"),
        ({}, "may listen only on TCP ports that the system assigns. A person opens others, by", "those"),
        ({"ports": (3000, 8080)}, "listen only on TCP ports 3000, 8080 and those that the system assigns.", ""),
        ({"network": "none"}, "there is none but a loopback of the sandbox's own", "host's"),
        ({"network": "none"}, 'curl --unix-socket "$OMAC_SOCKET" "$OMAC_<MOUNT>_BASE/"', "by the URL"),
        ({}, "kept for this project", "gone when"),
        ({"kept": False}, "are in /c (`OMAC_CACHE_DIR`), gone when the sandbox ends", "kept for"),
    ],
)
def test_the_facts_of_a_launch(facts: dict[str, Any], expected: str, unexpected: str) -> None:
    assert expected in briefing_of(**facts)
    assert not unexpected or unexpected not in briefing_of(**facts)
