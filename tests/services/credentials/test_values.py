"""services/credentials/values.py: a stored value counts only if the journal has it, also after a failure in between."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from omac.adapters.files import lock
from omac.adapters.files.turns import OneAtATime
from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, Credential, Default, Stored
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import GLOBAL, HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import SidecarSpec, Variable
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.services.credentials.values import Credentials, SecretsMissing, Values
from omac.services.kernel.opened import OpenedJournal

HOST = HostId("host0001")
SHOP = ids.workdir_id("/w/shop")
CODE = "sha256:code"
BY = Cause("person")
FIRST, SECOND = "xoxb-first-value", "xoxb-second-value"
SERVICE, REMEMBERED = credential.service(SHOP, "slack"), credential.service(DEFAULTS, "slack")
LOCKED = Refusal("keychain-locked", "the system's keychain is locked", fix=["omac unlock"])

Serving = Callable[..., AbstractAsyncContextManager[Any]]
Kinds = Callable[..., list[str]]


class Crash(BaseException):
    """An exception in place of the process's end."""


class Shelf:
    """Stores in memory. A call, such as "write vault omac/slack", may fail `instead`, or once it is done."""

    def __init__(self) -> None:
        self.use = "vault"
        self.kept: dict[tuple[str, str], dict[str, Hidden]] = {}
        self.done: list[str] = []
        self.locked: set[str] = set()
        self.slow: Iterator[float] = iter(())  # seconds that writes take once the value is there
        self.instead: dict[str, BaseException] = {}
        self.afterwards: dict[str, BaseException] = {}

    async def chosen(self) -> str:
        return self.use

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        self._begin("read", store, service)
        stored = self.kept.get((store, service), {})
        return {name: stored[name] for name in names if name in stored}

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        self._begin("write", store, service)
        self.kept.setdefault((store, service), {}).update(values)
        await trio.sleep(next(self.slow, 0.0))
        self._end("write", store, service)

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        self._begin("remove", store, service)
        for name in names:
            self.kept.get((store, service), {}).pop(name, None)

    def _begin(self, what: str, store: str, service: str) -> None:
        self.done.append(f"{what} {store} {service}")
        if store in self.locked:
            raise Refusal(LOCKED.reason, LOCKED.message, fix=LOCKED.fix)
        if problem := self.instead.get(self.done[-1]):
            raise problem

    def _end(self, what: str, store: str, service: str) -> None:
        if problem := self.afterwards.get(f"{what} {store} {service}"):
            raise problem

    def texts(self, store: str, service: str) -> dict[str, str]:
        """Return the secrets that a store holds."""
        return {name: value.reveal() for name, value in self.kept.get((store, service), {}).items()}


@pytest.fixture
def journal(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """Yield a journal that a command line has open."""
    opened_journal = open_journal(path, "person", clock)
    yield opened_journal
    opened_journal.close()


@pytest.fixture
def shelf() -> Shelf:
    """Return the stores of this machine."""
    return Shelf()


@pytest.fixture
def credentials(journal: Journal, shelf: Shelf) -> Credentials:
    """Return the use cases of a command line."""
    return Credentials(OpenedJournal(journal, HOST), shelf, bytes(32))


def token(text: str = FIRST) -> Values:
    """Return a secret to give."""
    return Values({"TOKEN": Hidden(text)})


async def give(credentials: Credentials, values: Values, **more: Any) -> tuple[Refusal, ...]:
    """Give values to the skill of the shop."""
    return (await credentials.give(SHOP, "slack", CODE, values, BY, **more)).problems


def spec(credential: Credential, workdir: str = "/w/shop") -> SidecarSpec:
    """Return the spec of a start of the skill with all values that were given to it."""
    variables = [
        Variable(name, secret=True, fingerprint=secret.fingerprint, store=secret.store)
        for name, secret in credential.secrets.items()
    ]
    return SidecarSpec("slack", "chat", workdir, "/s", "/", CODE, True, ("run",), variables=tuple(variables))


async def arrives(credentials: Credentials) -> dict[str, str]:
    """Return the secrets that a start would get. Raises SecretsMissing."""
    secrets = await credentials.needed(spec(credentials.values_of(SHOP, "slack")), "opencode")
    return {name: value.reveal() for name, value in secrets.items()}


# ---- giving ----


async def test_requested_then_kept_then_recorded_then_remembered(
    credentials: Credentials, shelf: Shelf, path: str, kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent is durable before a store is touched; only afterwards does the value count."""
    durable: list[list[str]] = []
    begin = shelf._begin

    def note_kinds(what: str, store: str, service: str) -> None:
        durable.append(kinds(path))
        begin(what, store, service)

    monkeypatch.setattr(shelf, "_begin", note_kinds)
    await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu"}))
    requested = ["secret.write-requested"]
    stored = [*requested, "secret.written", "config.written"]
    assert durable == [requested, [*stored, *requested]]
    assert kinds(path) == [*stored, *requested, "default.mirrored", "default.mirrored"]
    assert shelf.done == [f"write vault {SERVICE}", f"write vault {REMEMBERED}"]
    assert await arrives(credentials) == {"TOKEN": FIRST}
    assert credentials.values_of(SHOP, "slack").config == {"REGION": "eu"}
    assert credentials.defaults("slack").keys() == {"TOKEN", "REGION"}
    assert credentials.defaults("slack")["REGION"] == Default(CODE, "eu")


async def test_no_value_and_no_plain_hash_enters_the_journal(
    credentials: Credentials, journal: Journal, tmp_path: Path
) -> None:
    """The database holds no value and no plain hash, not even in pages that it has not cleaned up yet."""
    await give(credentials, token())
    await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"TOKEN" in written
    assert FIRST.encode() not in written
    assert hashlib.sha256(FIRST.encode()).hexdigest()[:12].encode() not in written


@pytest.mark.parametrize(("scope", "mirror", "services"), [(GLOBAL, True, 1), (SHOP, False, 1), (SHOP, True, 2)])
async def test_what_is_remembered(
    credentials: Credentials, shelf: Shelf, scope: str, mirror: bool, services: int
) -> None:
    """Values for a project's skill become defaults; values for a shared skill, and adopted values, do not."""
    await credentials.give(scope, "slack", CODE, token(), BY, mirror=mirror)
    assert len(shelf.kept) == services
    assert bool(credentials.defaults("slack")) is (services == 2)


async def test_settings_need_no_store(credentials: Credentials, shelf: Shelf) -> None:
    """A person gives, saves and removes settings while every store is locked."""
    shelf.locked = {"vault", "keychain"}
    await give(credentials, Values(config={"REGION": "eu"}))
    assert await arrives(credentials) == {}
    assert (await credentials.remembered("slack", ["REGION"])).config == {"REGION": "eu"}
    await credentials.take(SHOP, "slack", ["REGION"], BY)
    assert credentials.values_of(SHOP, "slack").taken == ("REGION",)
    assert shelf.done == []


async def test_giving_the_same_again(credentials: Credentials, path: str, kinds: Kinds) -> None:
    """A second write of the same value ends the request that it made, and has the same fingerprint."""
    await give(credentials, token())
    before = credentials.values_of(SHOP, "slack")
    await give(credentials, token())
    assert credentials.values_of(SHOP, "slack") == before
    assert kinds(path).count("secret.write-requested") == kinds(path).count("secret.written") * 2 == 4


async def test_projects_do_not_share(credentials: Credentials) -> None:
    """An equal value in another project is another secret, with another fingerprint."""
    elsewhere = ids.workdir_id("/w/other")
    await give(credentials, token())
    await credentials.give(elsewhere, "slack", CODE, token(SECOND), BY)
    await credentials.give(GLOBAL, "slack", CODE, token(), BY)
    assert await arrives(credentials) == {"TOKEN": FIRST}
    fingerprints = [
        credentials.values_of(scope, "slack").secrets["TOKEN"].fingerprint for scope in (SHOP, elsewhere, GLOBAL)
    ]
    assert len(set(fingerprints)) == 3


# ---- what fails in the middle ----


async def test_a_locked_store_takes_nothing(credentials: Credentials, shelf: Shelf) -> None:
    """The refusal reaches the caller; the value does not count, the earlier one stays, and no new default is saved."""
    await give(credentials, token())
    shelf.locked = {"vault"}
    with pytest.raises(Refusal) as caught:
        await give(credentials, token(SECOND))
    assert (caught.value.reason, caught.value.exit_code) == ("keychain-locked", 8)
    assert FIRST not in str(caught.value)
    shelf.locked = set()
    assert await arrives(credentials) == {"TOKEN": FIRST}
    assert (await credentials.remembered("slack", ["TOKEN"])).secrets["TOKEN"] == Hidden(FIRST)
    assert credentials.values_of(SHOP, "slack").writing.keys() == {"TOKEN"}
    await give(credentials, token(SECOND))
    assert await arrives(credentials) == {"TOKEN": SECOND}
    assert not credentials.values_of(SHOP, "slack").writing


async def test_without_any_store_nothing_is_recorded(
    credentials: Credentials, shelf: Shelf, path: str, kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice of a store comes before the first record."""

    async def none(_self: Shelf) -> str:
        raise Refusal("keychain-unavailable", "there is none")

    monkeypatch.setattr(Shelf, "chosen", none)
    with pytest.raises(Refusal):
        await give(credentials, token())
    assert kinds(path) == []


async def test_killed_between_the_request_and_the_store(credentials: Credentials, shelf: Shelf) -> None:
    """A value that is requested but not stored does not count; the earlier value stays in force."""
    shelf.instead = {f"write vault {SERVICE}": Crash()}
    with pytest.raises(Crash):
        await give(credentials, token())
    state = credentials.values_of(SHOP, "slack")
    assert (state.secrets, set(state.writing)) == ({}, {"TOKEN"})
    shelf.instead = {}
    await give(credentials, token())
    shelf.instead = {f"write vault {SERVICE}": Crash()}
    with pytest.raises(Crash):
        await give(credentials, token(SECOND))
    assert await arrives(credentials) == {"TOKEN": FIRST}


async def test_killed_between_the_store_and_the_record(credentials: Credentials, shelf: Shelf) -> None:
    """A value in the store without a record does not count: the secret is missing, by name, until it is given again."""
    await give(credentials, token())
    shelf.afterwards = {f"write vault {SERVICE}": Crash()}
    with pytest.raises(Crash):
        await give(credentials, token(SECOND))
    assert shelf.texts("vault", SERVICE) == {"TOKEN": SECOND}
    with pytest.raises(SecretsMissing, match="is not the recorded value") as caught:
        await arrives(credentials)
    assert caught.value.names == ("TOKEN",)
    assert caught.value.fix == ("omac secrets set slack TOKEN --workdir /w/shop --harness opencode",)
    assert SECOND not in str(caught.value)
    shelf.afterwards = {}
    await give(credentials, token(SECOND))
    assert await arrives(credentials) == {"TOKEN": SECOND}


@pytest.mark.parametrize("when", ["instead", "afterwards"])
async def test_killed_while_it_is_remembered(credentials: Credentials, shelf: Shelf, when: str) -> None:
    """The value counts all the same; the default is the earlier one or counts as missing, never the unrecorded one."""
    await give(credentials, token())
    setattr(shelf, when, {f"write vault {REMEMBERED}": Crash()})
    with pytest.raises(Crash):
        await give(credentials, token(SECOND))
    assert await arrives(credentials) == {"TOKEN": SECOND}
    defaults = (await credentials.remembered("slack", ["TOKEN"])).secrets
    assert defaults == ({"TOKEN": Hidden(FIRST)} if when == "instead" else {})


async def test_a_store_that_lies(credentials: Credentials, shelf: Shelf) -> None:
    """A value other than the recorded one reaches no sidecar, and no skill that would adopt it."""
    await give(credentials, token())
    for service in (SERVICE, REMEMBERED):
        shelf.kept["vault", service]["TOKEN"] = Hidden(SECOND)
    with pytest.raises(SecretsMissing, match="is not the recorded value") as caught:
        await arrives(credentials)
    assert SECOND not in repr(vars(caught.value))
    assert not await credentials.remembered("slack", ["TOKEN"])


async def test_a_value_moved_within_a_store(credentials: Credentials, shelf: Shelf) -> None:
    """A genuine value of another name, or of another project, is not taken for this one."""
    elsewhere = ids.workdir_id("/w/other")
    await give(credentials, Values({"TOKEN": Hidden(FIRST), "SPARE": Hidden(SECOND)}))
    await credentials.give(elsewhere, "slack", CODE, token("xoxb-of-other"), BY)
    stored = shelf.kept["vault", SERVICE]
    stored["TOKEN"], stored["SPARE"] = stored["SPARE"], stored["TOKEN"]
    with pytest.raises(SecretsMissing) as caught:
        await arrives(credentials)
    assert caught.value.names == ("SPARE", "TOKEN")
    stored["TOKEN"] = shelf.kept["vault", credential.service(elsewhere, "slack")]["TOKEN"]
    with pytest.raises(SecretsMissing):
        await arrives(credentials)


async def test_a_store_that_lost_it(credentials: Credentials, shelf: Shelf) -> None:
    """Only the secrets that the store lost are missing; every name has its command."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST), "SPARE": Hidden(SECOND), "PEM": Hidden("x")}))
    for name in ("SPARE", "PEM"):
        del shelf.kept["vault", SERVICE][name]
    with pytest.raises(SecretsMissing, match="the entry in the vault is missing") as caught:
        await arrives(credentials)
    assert caught.value.names == ("PEM", "SPARE")
    assert [line.split()[4] for line in caught.value.fix] == ["PEM", "SPARE"]


async def test_a_start_while_a_store_is_locked(credentials: Credentials, shelf: Shelf) -> None:
    """All secrets of the skill are missing, and the fix is the command that unlocks the store."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST), "SPARE": Hidden(SECOND)}))
    shelf.locked = {"vault"}
    with pytest.raises(SecretsMissing, match="locked") as caught:
        await arrives(credentials)
    assert set(caught.value.names) == {"TOKEN", "SPARE"}
    assert caught.value.fix == ("omac unlock",)


async def test_another_key_of_fingerprints(credentials: Credentials, shelf: Shelf, journal: Journal) -> None:
    """A host whose key was lost trusts no earlier value, and takes each again."""
    await give(credentials, token())
    later = Credentials(OpenedJournal(journal, HOST), shelf, b"\1" * 32)
    with pytest.raises(SecretsMissing):
        await arrives(later)
    await give(later, token())
    assert await arrives(later) == {"TOKEN": FIRST}


async def test_secrets_of_one_skill_in_two_stores(credentials: Credentials, shelf: Shelf) -> None:
    """Each secret is read from the store that its record names; one that moves is no longer read from its old store."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST), "SPARE": Hidden(FIRST)}))
    shelf.use = "keychain"
    await give(credentials, token(SECOND))
    assert await arrives(credentials) == {"TOKEN": SECOND, "SPARE": FIRST}
    shelf.locked = {"keychain"}
    with pytest.raises(SecretsMissing):
        await arrives(credentials)
    shelf.locked = set()
    await credentials.take(SHOP, "slack", ["TOKEN", "SPARE"], BY)
    assert shelf.texts("vault", SERVICE) == shelf.texts("keychain", SERVICE) == {}


# ---- taking back, and defaults ----


async def test_a_removal_counts_at_once(credentials: Credentials, shelf: Shelf, path: str, kinds: Kinds) -> None:
    """A removal is recorded first: a locked store does not keep a secret in force. The journal knows the value that
    stays in the store, and a second removal erases it."""
    await give(credentials, token())
    shelf.locked = {"vault"}
    with pytest.raises(Refusal, match="locked"):
        await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    assert kinds(path)[-1] == "secret.removed"
    values = credentials.values_of(SHOP, "slack")
    assert values == Credential(taken=("TOKEN",), held={"TOKEN": ("vault",)})
    assert values.left == values.held
    shelf.locked = set()
    assert await arrives(credentials) == {}
    assert shelf.texts("vault", SERVICE) == {"TOKEN": FIRST}
    shelf.use = "keychain"  # it is removed from where it is, not from where it would be now
    await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    assert shelf.texts("vault", SERVICE) == {}
    assert kinds(path)[-1] == "secret.erased"
    assert credentials.values_of(SHOP, "slack") == Credential(taken=("TOKEN",))
    done = len(shelf.done)
    await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    assert len(shelf.done) == done, "and then no store is asked again"


async def test_a_removal_after_an_interrupted_write(credentials: Credentials, shelf: Shelf) -> None:
    """A value that reached a store without a record is removed from it too."""
    shelf.afterwards = {f"write vault {SERVICE}": Crash()}
    with pytest.raises(Crash):
        await give(credentials, token())
    await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    assert shelf.texts("vault", SERVICE) == {}
    assert credentials.values_of(SHOP, "slack") == Credential(taken=("TOKEN",))


async def test_a_removal_of_a_missing_value(credentials: Credentials, shelf: Shelf, path: str, kinds: Kinds) -> None:
    """A removal of a value that was never given records nothing, and asks no store."""
    await credentials.take(SHOP, "slack", ["TOKEN", "REGION"], BY)
    assert (kinds(path), shelf.done) == ([], [])


async def test_defaults_stay_until_they_are_purged(credentials: Credentials, shelf: Shelf) -> None:
    """A removal keeps the default; a purge removes it from the journal's view, then from the stores."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu"}))
    await credentials.take(SHOP, "slack", ["TOKEN", "REGION"], BY)
    remembered = await credentials.remembered("slack", ["TOKEN", "REGION", "X"])
    assert (remembered.secrets, remembered.config) == ({"TOKEN": Hidden(FIRST)}, {"REGION": "eu"})
    shelf.locked = {"vault"}
    with pytest.raises(Refusal, match="locked"):
        await credentials.purge("slack", BY)
    assert credentials.defaults("slack") == {}
    shelf.locked = set()
    assert not await credentials.remembered("slack", ["TOKEN", "REGION"])
    assert shelf.texts("vault", REMEMBERED) == {"TOKEN": FIRST}
    await credentials.purge("slack", BY)
    assert shelf.texts("vault", REMEMBERED) == {}


async def test_purging_empties_the_stores(credentials: Credentials, shelf: Shelf) -> None:
    """A purge empties both stores where defaults are in two."""
    await give(credentials, token())
    shelf.use = "keychain"
    await give(credentials, Values({"SPARE": Hidden(SECOND)}))
    await credentials.purge("slack", BY)
    assert shelf.texts("vault", REMEMBERED) == shelf.texts("keychain", REMEMBERED) == {}
    assert await arrives(credentials) == {"TOKEN": FIRST, "SPARE": SECOND}


async def test_adopting_wants_the_very_code(credentials: Credentials, path: str, kinds: Kinds) -> None:
    """A skill adopts, without a person, only values for its bundle hash; they are the scope's own, and not mirrored."""
    elsewhere = ids.workdir_id("/w/other")
    await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu", "MODE": "fast"}))
    before = kinds(path)
    await credentials.adopt(elsewhere, "slack", "sha256:changed", ["TOKEN", "REGION"], Cause("omac"))
    assert kinds(path) == before
    await credentials.adopt(elsewhere, "slack", CODE, ["TOKEN", "REGION"], Cause("omac"))
    assert kinds(path)[len(before) :] == [
        "secret.write-requested", "default.adopted", "default.adopted", "secret.written", "config.written",
    ]  # fmt: skip
    assert credentials.values_of(elsewhere, "slack").config == {"REGION": "eu"}
    secrets = await credentials.needed(spec(credentials.values_of(elsewhere, "slack"), "/w/other"), "opencode")
    assert secrets == {"TOKEN": Hidden(FIRST)}


async def test_adopting_from_a_locked_store(credentials: Credentials, shelf: Shelf) -> None:
    """No value is adopted, and the refusal has the reason."""
    elsewhere = ids.workdir_id("/w/other")
    await give(credentials, token())
    shelf.locked = {"vault"}
    with pytest.raises(Refusal, match="locked"):
        await credentials.adopt(elsewhere, "slack", CODE, ["TOKEN"], Cause("omac"))
    assert credentials.values_of(elsewhere, "slack") == Credential()


# ---- what is left ----


async def test_a_store_that_was_left_is_emptied(
    credentials: Credentials, shelf: Shelf, path: str, kinds: Kinds
) -> None:
    """A value given again while another store is in use is erased from the earlier store, and so is its default."""
    await give(credentials, token())
    shelf.use = "keychain"
    before = len(kinds(path))
    assert await give(credentials, token(SECOND)) == ()
    assert shelf.texts("vault", SERVICE) == shelf.texts("vault", REMEMBERED) == {}
    assert shelf.texts("keychain", SERVICE) == shelf.texts("keychain", REMEMBERED) == {"TOKEN": SECOND}
    assert kinds(path)[before:] == [
        "secret.write-requested", "secret.written", "secret.write-requested", "default.mirrored", "secret.erased",
        "secret.erased",
    ]  # fmt: skip


async def test_a_store_that_is_left_and_locked(credentials: Credentials, shelf: Shelf) -> None:
    """The new value counts; the value left in the locked store is reported, and removed with the name's next change."""
    await give(credentials, token())
    shelf.use, shelf.locked = "keychain", {"vault"}
    problems = await give(credentials, token(SECOND))
    assert [problem.reason for problem in problems] == ["keychain-locked"] * 2
    assert all("deleting an earlier value failed" in problem.message for problem in problems)
    assert await arrives(credentials) == {"TOKEN": SECOND}
    assert credentials.values_of(SHOP, "slack").left == {"TOKEN": ("vault",)}
    shelf.locked = set()
    assert await give(credentials, token(SECOND)) == ()
    assert shelf.texts("vault", SERVICE) == {}
    assert credentials.values_of(SHOP, "slack").left == {}


@pytest.mark.parametrize("service", [SERVICE, REMEMBERED])
async def test_killed_before_it_was_erased(credentials: Credentials, shelf: Shelf, service: str) -> None:
    """A repeated removal starts from the beginning, at any progress of the first."""
    await give(credentials, token())
    shelf.instead = {f"remove vault {service}": Crash()}

    async def forget() -> None:
        await credentials.take(SHOP, "slack", ["TOKEN"], BY)
        await credentials.purge("slack", BY)

    with pytest.raises(Crash):
        await forget()
    shelf.instead = {}
    await forget()
    assert not any(shelf.kept.values())
    assert credentials.values_of(SHOP, "slack").left == credentials.values_of(DEFAULTS, "slack").left == {}


@pytest.mark.parametrize("when", ["instead", "afterwards"])
async def test_purging_what_was_cut_short(credentials: Credentials, shelf: Shelf, when: str) -> None:
    """A purge also removes a default that was never recorded."""
    setattr(shelf, when, {f"write vault {REMEMBERED}": Crash()})
    with pytest.raises(Crash):
        await give(credentials, token())
    assert credentials.defaults("slack") == {}
    assert credentials.values_of(DEFAULTS, "slack").left == {"TOKEN": ("vault",)}
    await credentials.purge("slack", BY)
    assert shelf.texts("vault", REMEMBERED) == {}
    assert credentials.values_of(DEFAULTS, "slack") == Credential()


async def test_a_failing_store_does_not_stop_a_removal(credentials: Credentials, shelf: Shelf) -> None:
    """A removal asks all stores, and raises the refusal in the end."""
    await give(credentials, token(), mirror=False)
    shelf.use = "keychain"
    await give(credentials, Values({"SPARE": Hidden(SECOND)}), mirror=False)
    shelf.locked = {"vault"}
    with pytest.raises(Refusal, match="locked"):
        await credentials.take(SHOP, "slack", ["TOKEN", "SPARE"], BY)
    assert shelf.texts("keychain", SERVICE) == {}
    assert credentials.values_of(SHOP, "slack").left == {"TOKEN": ("vault",)}


async def test_a_value_counts_although_saving_its_default_fails(credentials: Credentials, shelf: Shelf) -> None:
    """The value counts, and the failure to save it as a default is returned; the earlier default stays."""
    await give(credentials, token())
    shelf.instead = {f"write vault {REMEMBERED}": LOCKED}
    (problem,) = await give(credentials, token(SECOND))
    assert problem.message == "stored, but saving it as a default failed: the system's keychain is locked"
    assert (problem.reason, problem.fix) == (LOCKED.reason, LOCKED.fix)
    assert await arrives(credentials) == {"TOKEN": SECOND}
    assert (await credentials.remembered("slack", ["TOKEN"])).secrets == {"TOKEN": Hidden(FIRST)}


# ---- which skill of that name ----


async def test_a_value_is_for_one_base(credentials: Credentials, shelf: Shelf) -> None:
    """Other skills of that name have none of its values, and cannot remove them."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu"}), base="claude")
    assert credentials.values_of(SHOP, "slack", "claude").secrets.keys() == {"TOKEN"}
    values = credentials.values_of(SHOP, "slack", "agents")
    assert (values.secrets, values.config) == ({}, {})
    await credentials.take(SHOP, "slack", ["TOKEN", "REGION"], BY, "agents")
    assert await arrives(credentials) == {"TOKEN": FIRST}
    assert shelf.texts("vault", SERVICE) == {"TOKEN": FIRST}
    await credentials.take(SHOP, "slack", ["TOKEN", "REGION"], BY, "claude")
    assert credentials.values_of(SHOP, "slack", "claude").taken == ("TOKEN", "REGION")
    assert credentials.values_of(SHOP, "slack", "agents").taken == ()
    assert shelf.texts("vault", SERVICE) == {}


async def test_a_name_has_one_value(credentials: Credentials) -> None:
    """The store has one place for a name: a value given to another base, even an equal one, replaces the first."""
    for base, other_base in (("claude", "agents"), ("agents", "claude")):
        await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu"}), base=base)
        own, foreign = credentials.values_of(SHOP, "slack", base), credentials.values_of(SHOP, "slack", other_base)
        assert (set(own.secrets), own.config) == ({"TOKEN"}, {"REGION": "eu"})
        assert (foreign.secrets, foreign.config) == ({}, {})


async def test_adopting_takes_nothing_from_anybody(credentials: Credentials) -> None:
    """A skill adopts neither another base's value nor one that a person removed; adopted values are for one base."""
    await give(credentials, Values({"TOKEN": Hidden(FIRST)}, {"REGION": "eu", "MODE": "fast"}), base="claude")
    await credentials.take(SHOP, "slack", ["MODE"], BY, "claude")
    names = ["TOKEN", "REGION", "MODE"]
    await credentials.adopt(SHOP, "slack", CODE, names, Cause("omac"), "claude")
    assert "MODE" not in credentials.values_of(SHOP, "slack").config
    await credentials.adopt(SHOP, "slack", CODE, names, Cause("omac"), "agents")
    assert credentials.values_of(SHOP, "slack", "agents").config == {"MODE": "fast"}
    assert credentials.values_of(SHOP, "slack", "claude").config == {"REGION": "eu"}
    assert credentials.values_of(SHOP, "slack", "claude").secrets.keys() == {"TOKEN"}


async def test_what_was_taken_back_starts_nothing(credentials: Credentials, shelf: Shelf) -> None:
    """A removed value starts no sidecar, even if the store still has it and a start was planned before."""
    await give(credentials, token())
    planned = spec(credentials.values_of(SHOP, "slack"))
    shelf.locked = {"vault"}
    with pytest.raises(Refusal):
        await credentials.take(SHOP, "slack", ["TOKEN"], BY)
    shelf.locked = set()
    assert shelf.texts("vault", SERVICE) == {"TOKEN": FIRST}
    with pytest.raises(SecretsMissing, match="TOKEN: revoked or replaced since the start was planned") as caught:
        await credentials.needed(planned, "opencode")
    assert caught.value.fix == ("omac secrets set slack TOKEN --workdir /w/shop --harness opencode",)


# ---- two at once ----


@pytest.mark.parametrize("first", ["give", "take", "remember"])
async def test_two_writers(journal: Journal, shelf: Shelf, tmp_path: Path, first: str, autojump_clock: object) -> None:
    """Writers take turns, in one process or in two: the journal agrees with the store."""
    shelf.slow = iter([0.08, 0.06, 0.04, 0.02, 0.01])
    changing = [OneAtATime(str(tmp_path / "lock")) for _ in range(2)]
    desks = [Credentials(OpenedJournal(journal, HOST), shelf, bytes(32), turn) for turn in (*changing, changing[0])]
    async with trio.open_nursery() as nursery:
        match first:
            case "give":
                nursery.start_soon(give, desks[0], token("xoxb-third"))
            case "take":
                nursery.start_soon(desks[0].take, SHOP, "slack", ["TOKEN"], BY)
            case _:
                nursery.start_soon(desks[0].remember, "slack", CODE, token("xoxb-third"), BY)
        for desk, text in zip(desks, (FIRST, SECOND, FIRST), strict=True):
            nursery.start_soon(give, desk, token(text))
    assert await arrives(desks[0]) in ({}, shelf.texts("vault", SERVICE))
    remembered = await desks[0].remembered("slack", ["TOKEN"])
    assert {name: value.reveal() for name, value in remembered.secrets.items()} == shelf.texts("vault", REMEMBERED)
    assert credentials_settled(desks[0])


def credentials_settled(credentials: Credentials) -> bool:
    """Return whether no write is under way and no store holds an outdated value."""
    states = [credentials.values_of(scope, "slack") for scope in (SHOP, DEFAULTS)]
    return not any(state.writing or state.left for state in states)


async def test_a_writer_that_waits_too_long_changes_nothing(
    journal: Journal, shelf: Shelf, tmp_path: Path, path: str, kinds: Kinds, autojump_clock: object
) -> None:
    """A writer that waits too long changes nothing, and its refusal names the process that holds the lock."""
    holder = lock.hold(str(tmp_path / "lock"))
    desk = Credentials(OpenedJournal(journal, HOST), shelf, bytes(32), OneAtATime(str(tmp_path / "lock")))
    try:
        with pytest.raises(Refusal, match=f"pid {os.getpid()} has held") as caught:
            await give(desk, token())
    finally:
        os.close(holder)
    assert (caught.value.reason, kinds(path), shelf.done) == ("contention", [], [])
    await give(desk, token())


# ---- whose fixes, and whose ledger ----


@pytest.mark.parametrize(
    ("workdir", "harness", "flags"),
    [
        ("", "opencode", "--global --harness opencode"),
        ("/w/my shop", "opencode", "--workdir '/w/my shop' --harness opencode"),
        ("/w/shop", "claude", "--workdir /w/shop --harness claude"),
    ],
)
async def test_the_fix_names_directory_and_harness(
    credentials: Credentials, workdir: str, harness: str, flags: str
) -> None:
    """A fix names the directory and the harness, so that a person can paste it."""
    lost = spec(Credential({"TOKEN": Stored("hmac:0", "vault")}), workdir)
    with pytest.raises(SecretsMissing) as caught:
        await credentials.needed(lost, harness)
    assert caught.value.fix == (f"omac secrets set slack TOKEN {flags}",)


async def test_a_server_sees_what_a_command_line_gave(serving: Serving, shelf: Shelf, path: str, kinds: Kinds) -> None:
    """A server and a command line decide alike over one journal, and each finds the values that the other gave."""
    async with serving(reactors=False) as omac:
        server = Credentials(omac.engine, shelf, bytes(32))
        person_journal = open_journal(path, "person", omac.journal.clock)
        try:
            person = Credentials(OpenedJournal(person_journal, HOST), shelf, bytes(32))
            await give(person, token())
            await omac.caught_up()
            assert server.values_of(SHOP, "slack") == person.values_of(SHOP, "slack")
            assert await arrives(server) == {"TOKEN": FIRST}
            await give(server, token(SECOND))
            assert await arrives(person) == {"TOKEN": SECOND}
            await person.take(SHOP, "slack", ["TOKEN"], BY)
            await omac.caught_up()
            assert await arrives(server) == {}
        finally:
            person_journal.close()
    once = ["secret.write-requested", "secret.written", "secret.write-requested", "default.mirrored"]
    assert kinds(path, "secret", "default") == [*once, *once, "secret.removed", "secret.erased"]


def test_values_count_when_there_are_any() -> None:
    """An empty set of values counts as none."""
    assert not Values()
    assert all((Values({"A": Hidden("")}), Values(config={"A": ""})))
