"""services/skills/registration.py: the skill that a name means, and the records of decisions."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pytest
import trio

from omac.domain.credentials.credential import DEFAULTS, DefaultAdopted
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import HARNESSES, harness_named
from omac.domain.kernel import ids
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.interpreter import Interpreter
from omac.domain.skills.meta import FoundSkill, Guide
from omac.domain.skills.registration import ApprovalRevoked, Approved, Deregistered, Registered
from omac.domain.skills.repository import WorktreeFolder
from omac.domain.skills.scope import SkillScope
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.services.credentials.values import Credentials, Values
from omac.services.kernel.opened import OpenedJournal
from omac.services.ports import Frozen
from omac.services.skills.registration import Registering
from omac.services.skills.resolution import Candidate, SkillSearch, every, find

HOST = HostId("host0001")
SHOP = SkillSearch("/w/shop")
SECRET = Hidden("xoxb-7f3a9c")

MakeSkill = Callable[..., FoundSkill]


class Folders:
    """Skills by base folder: those of the project, and those that all share."""

    def __init__(self, own: Mapping[str, Sequence[FoundSkill]], shared: Mapping[str, Sequence[FoundSkill]]) -> None:
        self._own = own
        self._shared = shared

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        raise NotImplementedError

    async def discover(self, workdir: str, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        return await self._find(self._own, bases, guidance)

    async def discover_global(self, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        return await self._find(self._shared, bases, guidance)

    async def _find(
        self, there: Mapping[str, Sequence[FoundSkill]], bases: Sequence[str], guidance: bool
    ) -> list[FoundSkill]:
        await trio.lowlevel.checkpoint()
        skills: dict[str, FoundSkill] = {}
        for base in bases:
            for skill in there.get(base, ()):
                if guidance or skill.meta or skill.problem:
                    skills.setdefault(skill.name, skill)
        return list(skills.values())

    async def bundle_hash(self, source: str) -> str:
        raise NotImplementedError

    async def digest(self, source: str) -> str:
        raise NotImplementedError


class Freezer:
    """A freezer of copies; `bundle_hash` is that of the folder at that moment."""

    def __init__(self) -> None:
        self.bundle_hash = "sha256:1"

    async def freeze(self, source: str) -> Frozen:
        await trio.lowlevel.checkpoint()
        return Frozen(self.bundle_hash, f"digest of {self.bundle_hash}")

    async def checked(self, digest: str, source: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"/copies/{digest}"


class Resolver:
    """A resolver that resolves every command to one interpreter, named as its first word."""

    async def resolve(self, command: Sequence[str], source: str, copy: str, workdir: str) -> tuple[Interpreter, ...]:
        await trio.lowlevel.checkpoint()
        return (Interpreter(command[0], f"/usr/bin/{command[0]}", 1, 2, f"for {workdir} in {copy}"),)


class Store:
    """A store of secrets in memory. `refusal` is the error of every write; services may be `locked`."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Hidden] = {}
        self.refusal: Refusal | None = None
        self.locked: set[str] = set()

    async def chosen(self) -> str:
        await trio.lowlevel.checkpoint()
        return "vault"

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        await trio.lowlevel.checkpoint()
        return {name: self.kept[service, name] for name in names if (service, name) in self.kept}

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        if service in self.locked:
            raise Refusal("vault-locked", "it is locked")
        self.kept |= {(service, name): value for name, value in values.items()}

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        raise NotImplementedError


class Desk:
    """A person's command line, on a journal of its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.freezer = Freezer()
        self.store = Store()
        execution = OpenedJournal(journal, HOST)
        self.credentials = Credentials(execution, self.store, b"k" * 32)
        self.registering = Registering(execution, self.freezer, Resolver(), self.credentials)

    def kinds(self) -> list[str]:
        """Return the names of the events in the journal."""
        return [type(record.event).__name__ for record in self.journal.records()]


@pytest.fixture
def desk(path: str, clock: Callable[[], int]) -> Iterator[Desk]:
    """Yield a person's command line on an empty journal."""
    journal = open_journal(path, "person", clock)
    yield Desk(journal)
    journal.close()


@pytest.fixture
def echo(skill: MakeSkill) -> Candidate:
    """Return a skill of a project."""
    return Candidate(SkillScope("/w/shop"), skill("echo"))


def below(skill: FoundSkill, base: str) -> FoundSkill:
    """Return the skill from another base folder."""
    return msgspec.structs.replace(skill, base=base, source=f"/w/shop/.{base}/skills/{skill.name}")


def guide(skill: FoundSkill) -> FoundSkill:
    """Return the skill as one with nothing but a SKILL.md."""
    return msgspec.structs.replace(skill, meta=None, bundle_hash="", guide=Guide(skill.name, "words"))


async def refused(folders: Folders, search: SkillSearch, name: str) -> Refusal:
    """Return the refusal of a name that means no skill."""
    with pytest.raises(Refusal) as caught:
        await find(folders, search, name, "omac register")
    return caught.value


async def test_a_skill_is_found_by_its_name(skill: MakeSkill) -> None:
    """A name is searched for among all skills, in the project and beside it."""
    folders = Folders({"agents": [skill("a"), skill("b")]}, {"claude": [skill("c")]})
    candidate = await find(folders, SHOP, "b", "omac register")
    assert (candidate.skill.name, candidate.place) == ("b", SkillScope("/w/shop"))
    assert (await find(folders, SHOP, "c", "omac register")).place == SkillScope("", "claude")
    assert [entry.skill.name for entry in await every(folders, SkillSearch("/w/shop", None, "workdir"))] == ["a", "b"]
    assert [entry.skill.name for entry in await every(folders, SkillSearch("/w/shop", None, "global"))] == ["c"]


@pytest.mark.parametrize("harness", HARNESSES)
async def test_a_harness_sees_its_own_folder_and_the_shared_one(skill: MakeSkill, harness: Harness) -> None:
    """A harness sees its own folder first, then the shared one; folders of other harnesses are out of its sight."""
    skills = {base: [below(skill("a"), base)] for base in (*(agent.base for agent in HARNESSES), "agents")}
    (candidate,) = await every(Folders(skills, {}), SkillSearch("/w/shop", harness))
    assert (candidate.skill.base, candidate.place.harness) == (harness.base, harness.name)


async def test_a_harness_without_a_folder_names_the_shared_one(skill: MakeSkill) -> None:
    """A command can name the skill in .agents beside one in .opencode."""
    folders = Folders({"opencode": [below(skill("a"), "opencode")], "agents": [skill("a")]}, {})
    candidates = await every(folders, SHOP)
    assert [(candidate.skill.base, candidate.place.harness) for candidate in candidates] == [
        ("opencode", "opencode"),
        ("agents", "claude"),
    ]
    for candidate in candidates:
        search = SkillSearch("/w/shop", harness_named(candidate.place.harness), "workdir")
        assert (await find(folders, search, "a", "omac register")).skill == candidate.skill


async def test_a_name_of_several_skills_is_refused_with_each(skill: MakeSkill) -> None:
    """A name that means several skills, over harnesses and scopes, is refused with each of them."""
    folders = Folders({"claude": [below(skill("a"), "claude")]}, {"agents": [skill("a", workdir="/home")]})
    refusal = await refused(folders, SHOP, "a")
    assert (refusal.reason, refusal.exit_code) == ("skill-ambiguous", 2)
    assert "/w/shop/.claude/skills/a; /home/.agents/skills/a" in refusal.message
    assert [command.split()[3] for command in refusal.fix] == ["--workdir", "--global"]


async def test_a_missing_skill_is_refused_with_those_present(skill: MakeSkill) -> None:
    """The message names the searched place, and the skills there."""
    refusal = await refused(Folders({"agents": [skill("a"), skill("b")]}, {}), SHOP, "c")
    assert (refusal.reason, refusal.exit_code) == ("skill-not-found", 4)
    assert refusal.message.endswith("in /w/shop; known: a, b")
    assert refusal.fix[0] == "omac list --all", "another skill is no fix"
    assert (await refused(Folders({}, {}), SHOP, "c")).message.endswith("known: none")
    assert "the global skills" in (await refused(Folders({}, {}), SkillSearch("/w", None, "global"), "c")).message


async def test_what_cannot_be_registered(skill: MakeSkill) -> None:
    """A skill with a broken contract, or without a sidecar, cannot be approved."""
    broken = msgspec.structs.replace(skill("a"), meta=None, problem="name: is missing")
    folders = Folders({"agents": [broken, guide(skill("words"))]}, {})
    refusal = await refused(folders, SHOP, "a")
    assert (refusal.reason, "name: is missing" in refusal.message) == ("skill-invalid", True)
    assert (await refused(folders, SHOP, "words")).reason == "skill-without-sidecar"


async def test_an_approval_is_recorded_once(desk: Desk, echo: Candidate, skill: MakeSkill) -> None:
    """An approval is recorded with the copy, after the registration it implies, in one stream; a second adds none."""
    assert [await desk.registering.approve(echo) for _ in range(2)] == [True, False]
    desk.freezer.bundle_hash = "sha256:2"
    assert await desk.registering.approve(Candidate(echo.place, skill("echo", "2")))
    records = list(desk.journal.records())
    assert [type(record.event) for record in records] == [Registered, Approved, Registered, Approved]
    stream = ids.registration_stream(HOST, ids.workdir_id("/w/shop"), "agents", "echo")
    assert {(record.stream, record.actor) for record in records} == {(stream, "person")}
    assert (records[-1].event.bundle_hash, records[-1].event.digest) == ("sha256:2", "digest of sha256:2")


async def test_an_approval_by_repository_is_recorded_for_each_hash(
    desk: Desk, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second approval of the same files, in another worktree, records nothing. One of another bundle hash, as an
    earlier omac recorded it, is recorded."""

    async def freeze(_source: str) -> Frozen:
        await trio.lowlevel.checkpoint()
        return Frozen(desk.freezer.bundle_hash, "sha256:same")

    monkeypatch.setattr(desk.freezer, "freeze", freeze)
    place = SkillScope("/w/shop", repository=WorktreeFolder("/w/main/.git", 1, 2))
    elsewhere = msgspec.structs.replace(skill("echo"), source="/w/other/.agents/skills/echo")
    assert await desk.registering.approve(Candidate(place, skill("echo")))
    assert not await desk.registering.approve(Candidate(place, elsewhere))
    desk.freezer.bundle_hash = "sha256:1+links"
    assert await desk.registering.approve(Candidate(place, skill("echo", "1+links")))


async def test_code_that_changes_under_ones_eyes(desk: Desk, echo: Candidate) -> None:
    """Code that changes while omac reads it is neither approved nor given any value."""
    desk.freezer.bundle_hash = "sha256:planted"
    for call in (desk.registering.approve(echo), desk.registering.register(echo, Values({"KEY": SECRET}))):
        with pytest.raises(Refusal, match="changed while omac read it") as caught:
            await call
        assert caught.value.reason == "skill-changed"
    assert (desk.kinds(), desk.store.kept) == ([], {})


async def test_registering_approves_and_stores_values(desk: Desk, echo: Candidate) -> None:
    """Given values are mirrored to the defaults; values from there are recorded as adopted, with their origin."""
    values = Values({"KEY": SECRET}, {"NOTE": "x"})
    await desk.registering.register(echo, values)
    market = Candidate(SkillScope("/w/market"), echo.skill)
    remembered = await desk.credentials.remembered("echo", ["KEY", "NOTE"])
    await desk.registering.register(market, remembered, ["KEY", "NOTE", "UNKNOWN"])
    for scope in (echo.place.scope, market.place.scope, DEFAULTS):
        assert desk.store.kept[f"omac/{scope}/echo", "KEY"] == SECRET
    adopted = [record.event for record in desk.journal.records() if isinstance(record.event, DefaultAdopted)]
    digest = desk.registering.code(echo)
    assert digest == (await desk.freezer.freeze(echo.skill.source)).digest
    assert adopted == [DefaultAdopted("KEY", digest), DefaultAdopted("NOTE", digest)]
    assert SECRET.reveal() not in str(list(desk.journal.records()))


async def test_what_all_projects_share_is_not_remembered(desk: Desk, skill: MakeSkill) -> None:
    """Values of a shared skill are not saved as defaults: all projects have them already."""
    await desk.registering.register(Candidate(SkillScope(""), skill("echo")), Values({"KEY": SECRET}))
    assert list(desk.store.kept) == [("omac/echo", "KEY")]
    assert desk.credentials.defaults("echo") == {}


async def test_a_failing_store_leaves_no_value_in_force(desk: Desk, echo: Candidate, skill: MakeSkill) -> None:
    """A failing store leaves no value in force and the code unapproved; an earlier approval stays."""
    desk.store.refusal = Refusal("vault-locked", "the vault is locked")
    with pytest.raises(Refusal, match="the vault is locked"):
        await desk.registering.register(echo, Values({"KEY": SECRET}, {"NOTE": "x"}))
    assert desk.kinds() == ["Registered", "SecretWriteRequested"]
    assert desk.registering.known(echo).approved is None
    values = desk.credentials.values_of(echo.place.scope, "echo")
    assert (values.secrets, values.config) == ({}, {})
    desk.store.refusal = None
    assert await desk.registering.register(echo, Values({"KEY": SECRET})) == ()
    before, desk.freezer.bundle_hash = desk.registering.known(echo).approved, "sha256:2"
    desk.store.refusal = Refusal("vault-locked", "the vault is locked")
    with pytest.raises(Refusal, match="the vault is locked"):
        await desk.registering.register(Candidate(echo.place, skill("echo", "2")), Values({"KEY": SECRET}))
    assert desk.registering.known(echo).approved == before


async def test_values_are_there_before_the_code_may_run(desk: Desk, echo: Candidate) -> None:
    """The approval comes last; defaults are saved for the copy that is approved then. The registration comes first: it
    has the directory, for readers of the record of the values given there."""
    assert await desk.registering.register(echo, Values(config={"NOTE": "x"})) == ()
    assert desk.kinds() == ["Registered", "ConfigWritten", "DefaultMirrored", "Approved"]
    approved = desk.registering.known(echo).approved
    assert approved is not None
    assert desk.credentials.defaults("echo")["NOTE"].code == approved.digest


async def test_values_count_although_saving_defaults_fails(desk: Desk, echo: Candidate) -> None:
    """The problem is returned, and the code is approved."""
    desk.store.locked = {f"omac/{DEFAULTS}/echo"}
    (problem,) = await desk.registering.register(echo, Values({"KEY": SECRET}))
    assert (problem.reason, problem.message) == (
        "vault-locked",
        "stored, but saving it as a default failed: it is locked",
    )
    assert desk.registering.known(echo).approved is not None
    assert desk.credentials.values_of(echo.place.scope, "echo", "agents").secrets.keys() == {"KEY"}
    assert desk.credentials.defaults("echo") == {}


async def test_values_are_for_the_skill_in_its_base_folder(desk: Desk, echo: Candidate) -> None:
    """Values are not for another skill of that name, approved or not."""
    await desk.registering.register(echo, Values({"KEY": SECRET}))
    await desk.registering.approve(Candidate(echo.place, below(echo.skill, "claude")))
    values = desk.credentials.values_of(echo.place.scope, "echo", "claude")
    assert (values.secrets, values.config, values.left) == ({}, {}, {})


async def test_revoking_and_forgetting(desk: Desk, echo: Candidate) -> None:
    """A repeated revocation or deregistration changes nothing; a deregistered skill is as if it was never known."""
    await desk.registering.approve(echo)
    stream = ids.registration_stream(HOST, echo.place.scope, "agents", "echo")
    assert [await desk.registering.revoke(stream) for _ in range(2)] == [True, False]
    assert desk.registering.known(echo).found is not None
    await desk.registering.approve(echo)
    assert [await desk.registering.deregister(stream) for _ in range(2)] == [True, False]
    assert desk.registering.known(echo).found is None
    last = [record.event for record in desk.journal.records()][-2:]
    assert [type(event) for event in last] == [ApprovalRevoked, Deregistered]
