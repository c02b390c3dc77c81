"""services/directories/requests.py: requests of an agent's bridge that are not granted."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from omac.domain.access.control import ControlRefused
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import FoundSkill
from omac.services.directories import requests

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]


def refusals(omac: Any) -> list[tuple[str, str, str]]:
    """Return action, directory and reason of each refusal."""
    events = [record.event for record in omac.journal.records()]
    return [(event.action, event.dir, event.reason) for event in events if isinstance(event, ControlRefused)]


async def test_a_bridge_gets_no_session_of_the_person(serving: Serving, skill: MakeSkill) -> None:
    """An agent with its token would pass for the person in the audit, and could cut the person's calls."""
    async with serving() as omac:
        omac.folders.put("/w/shop", skill("echo"))
        agent = omac.calls_by("bridge", "c")
        person = await omac.activate(session="cli")
        with pytest.raises(Refusal) as caught:
            await omac.directories.activate("/w/shop", agent, "cli")
        assert caught.value.reason == "forbidden"
        with pytest.raises(Refusal):
            await omac.directories.end_session("/w/shop", "cli", agent)
        assert (await omac.activate(session="cli")).dir_token == person.dir_token
        assert refusals(omac) == [("activate", "/w/shop", "forbidden"), ("deactivate", "/w/shop", "forbidden")]


async def test_a_bridge_of_one_directory_activates_no_other(serving: Serving, skill: MakeSkill) -> None:
    """A directory below has skills of its own, whose secrets this run is not for; a person may activate it."""
    async with serving() as omac:
        for path in ("/w/shop", "/w/shop/below"):
            omac.folders.put(path, skill("echo"))
        omac.directories._only = "/w/shop"
        agent = omac.calls_by("bridge", "c")
        await omac.directories.activate("/w/shop", agent, "s1")
        with pytest.raises(Refusal) as caught:
            await omac.directories.activate("/w/shop/below", agent)
        assert caught.value.reason == "outside-roots"
        assert omac.directory("/w/shop/below").status == "offline"
        assert refusals(omac) == [("activate", "/w/shop/below", "outside-roots")]
        await omac.activate("/w/shop/below")


async def test_bridges_bring_a_bounded_number_online(
    serving: Serving, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents can make endless folders, so bridges have a bound; online directories stay, and people have no bound."""
    monkeypatch.setattr(requests, "ONLINE_MAX", 2)
    async with serving() as omac:
        agent = omac.calls_by("bridge", "c")
        for number in range(4):
            omac.folders.put(f"/w/{number}", skill("echo"))
        for number in (0, 1, 0):
            await omac.directories.activate(f"/w/{number}", agent)
        with pytest.raises(Refusal) as caught:
            await omac.directories.activate("/w/2", agent)
        assert caught.value.reason == "forbidden"
        await omac.activate("/w/3")
        await omac.deactivate("/w/0")
        await omac.deactivate("/w/1")
        await omac.directories.activate("/w/2", agent)
