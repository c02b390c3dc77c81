"""services/approval.py: a person vouches for exactly the code that lies there."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import trio

from omac.domain import ids
from omac.domain.ids import HostId
from omac.domain.refusal import Refusal
from omac.domain.registration import Approved, Registered
from omac.domain.skill import FoundSkill
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.services.approval import approve, find_skill

HOST = HostId("host0001")
MakeSkill = Callable[..., FoundSkill]


class Folders:
    """Skill folders with what the test lays there."""

    def __init__(self, *skills: FoundSkill) -> None:
        self._skills = list(skills)

    async def canonical(self, path: str, roots: Any) -> str:
        await trio.lowlevel.checkpoint()
        return path

    async def discover(self, workdir: str, bases: Any) -> list[FoundSkill]:
        await trio.lowlevel.checkpoint()
        return self._skills

    async def bundle_hash(self, source: str) -> str:
        raise NotImplementedError


@pytest.fixture
def journal(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """The journal of a command."""
    opened = open_journal(path, "approver", clock)
    yield opened
    opened.close()


async def test_a_skill_is_found_by_its_name(skill: MakeSkill) -> None:
    """Among all that lie there."""
    folders = Folders(skill("a"), skill("b"))
    assert (await find_skill(folders, "/w/shop", ("agents",), "b")).name == "b"


async def test_who_is_not_there_is_refused_with_what_is(skill: MakeSkill) -> None:
    """The message says where was looked, and which skills there are."""
    with pytest.raises(Refusal) as caught:
        await find_skill(Folders(skill("a"), skill("b")), "/w/shop", ("claude", "agents"), "c")
    assert caught.value.reason == "skill-not-found"
    assert "/w/shop/.claude/skills, /w/shop/.agents/skills" in caught.value.message
    assert caught.value.message.endswith("there are: a, b")
    with pytest.raises(Refusal, match="there are: none"):
        await find_skill(Folders(), "/w/shop", ("agents",), "c")


async def test_what_cannot_be_read_cannot_be_approved(skill: MakeSkill) -> None:
    """Nobody vouches for a contract that omac does not understand."""
    broken = msgspec.structs.replace(skill("a"), meta=None, problem="name: is missing")
    with pytest.raises(Refusal) as caught:
        await find_skill(Folders(broken), "/w/shop", ("agents",), "a")
    assert (caught.value.reason, "name: is missing" in caught.value.message) == ("skill-invalid", True)


def test_an_approval_is_recorded_once(journal: Journal, skill: MakeSkill) -> None:
    """With the registration it implies, in the stream of that skill; repeating it changes nothing."""
    one, two = skill("echo", "1"), skill("echo", "2")
    assert [approve(journal, HOST, "/w/shop", code) for code in (one, one, two)] == [True, False, True]
    found = list(journal.records())
    assert [type(record.event) for record in found] == [Registered, Approved, Registered, Approved]
    stream = ids.registration_stream(HOST, ids.workdir_id("/w/shop"), "agents", "echo")
    assert {(record.stream, record.actor) for record in found} == {(stream, "person")}
    assert found[-1].event.bundle_hash == "sha256:2"
