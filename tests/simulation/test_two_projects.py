"""Two projects with a skill of the same name, and one that all projects share, in one server: each has its own values.

The tests run with each store of secrets: the vault, and a real gnome-keyring on a session bus of its own.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from polling import eventually
from real_keyring import PrivateKeyring, private_keyring
from real_omac import Omac, Serving, curl, omac_in
from simulation.skills import holders, meta, person_of, program, traces
from valued_skill import with_vault

from omac.adapters.credentials.stores import SecretStores
from omac.domain.kernel import ids

ONE, TWO, SHARED = (f"xoxb-token-of-{whose}-{os.urandom(6).hex()}" for whose in ("one", "two", "all"))
CLOSED = ("setsid", "sh", "-c", 'exec "$@" <&-', "sh")  # nobody to ask: no terminal, and no standard input at all


class Town:
    """A server; `one` and `two` have slack at different versions, and all share the skill `shared`."""

    def __init__(self, omac: Omac, person: Omac, store: str, keyring: PrivateKeyring | None) -> None:
        self.omac = omac
        self.person = person
        self.store = store
        self.keyring = keyring
        self.trace = omac.folder / "trace"
        self.server: Serving = omac.serve()
        self.one, self.two = self.project("one", "1"), self.project("two", "2")
        config = Path(omac.environment["XDG_CONFIG_HOME"]) / "opencode" / "skills" / "shared"
        config.mkdir(parents=True)
        (config / "omac.yaml").write_text(meta("shared"))
        (config / "sidecar.py").write_text(program(self.trace, "shared"))
        self.moments: list[str] = []  # what `omac status --json` said, step by step
        self._set_up()

    def project(self, name: str, version: str) -> Path:
        """Make a project with that version of slack."""
        project = self.omac.root / name
        self.omac.skill(project, "slack", meta(version=version), program(self.trace, f"version {version}"))
        return project

    def note(self) -> None:
        """Keep the status, as soon as the server knows all that other processes have recorded."""
        head = self.omac.events()[-1].position

        def seen() -> str | None:
            status = self.person.ok("status", "--json")
            return status if json.loads(status)["position"] >= head else None

        self.moments.append(eventually(seen, 20.0, f"the server to see position {head}"))

    def _set_up(self) -> None:
        self.note()
        for project, token in ((self.one, ONE), (self.two, TWO)):
            self.person.ok("register", "slack", "--workdir", str(project), extra={"OMAC_SECRET_SLACK_TOKEN": token})
        self.note()
        self.person.ok("register", "shared", "--global", extra={"OMAC_SECRET_SLACK_TOKEN": SHARED})
        self.manifests = {project: self.server.activate(project) for project in (self.one, self.two)}
        self.note()

    def base(self, project: Path, name: str) -> str:
        """Return the address of a skill for a project."""
        base: str = next(skill["base"] for skill in self.manifests[project]["skills"] if skill["name"] == name)
        return base

    def mark_and_token(self, project: Path, name: str) -> tuple[str, str]:
        """Return the code that a skill reports for a project, and its token."""
        answer = curl(f"{self.base(project, name)}/")
        assert answer.status == 200, answer
        return answer.json()["mark"], answer.json()["env"]["SLACK_TOKEN"]

    def stored(self, service: str) -> str | None:
        """Return the value that the store has under this name."""
        environment = self.omac.environment
        stores = SecretStores(str(self.omac.state), environment)

        async def read() -> str | None:
            value = (await stores.read(self.store, service, ["SLACK_TOKEN"])).get("SLACK_TOKEN")
            return None if value is None else value.reveal()

        return trio.run(read)


@pytest.fixture(scope="module", params=["vault", "keychain"])
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Yield the server, with everything online."""
    with ExitStack() as stack:
        keyring = None
        if request.param == "keychain":
            keyring = stack.enter_context(private_keyring(tmp_path_factory.mktemp("keyring")))
        omac = stack.enter_context(omac_in(tmp_path_factory.mktemp("town")))
        if keyring is None:
            with_vault(omac)
        else:
            names = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
            omac.environment |= {name: keyring[name] for name in names} | {"OMAC_SECRETS_STORE": "keychain"}
        person = stack.enter_context(person_of(omac))
        yield Town(omac, person, request.param, keyring)


def test_each_has_its_own(town: Town) -> None:
    """Skills of two projects have different code and secrets, side by side; neither gets those of the other."""
    assert town.mark_and_token(town.one, "slack") == ("version 1", ONE)
    assert town.mark_and_token(town.two, "slack") == ("version 2", TWO)
    ran = {(entry["mark"], entry["token"]) for entry in traces(town.trace)}
    assert ran == {("version 1", ONE), ("version 2", TWO), ("shared", SHARED)}
    held = {token: {entry.pid for entry in holders(token.encode())} for token in (ONE, TWO, SHARED)}
    assert [len(pids) for pids in held.values()] == [1, 1, 1]
    assert len(set.union(*held.values())) == 3
    stolen = town.base(town.one, "slack").replace(town.manifests[town.one]["dir_token"], "0" * 32)
    assert curl(stolen).status == 404


def test_what_all_share_is_one(town: Town) -> None:
    """A skill that all projects share is one process, with one value, kept under a name without a project."""
    assert town.mark_and_token(town.one, "shared") == town.mark_and_token(town.two, "shared") == ("shared", SHARED)
    assert len([trace for trace in traces(town.trace) if trace["mark"] == "shared"]) == 1
    assert town.stored("omac/shared") == SHARED
    assert town.stored(f"omac/{ids.workdir_id(str(town.one))}/slack") == ONE
    assert town.stored(f"omac/{ids.workdir_id(str(town.two))}/slack") == TWO
    assert town.stored("omac/slack") is None
    stores = SecretStores(str(town.omac.state), town.omac.environment)
    if town.keyring is not None:
        assert not os.path.lexists(stores.vault.path)


def test_from_the_second_project_on_nothing_is_asked(town: Town) -> None:
    """`register --defaults`, without a terminal and with standard input closed, gives the values entered elsewhere. A
    value of one project that is changed later is still only its own."""
    third = town.project("three", "2")
    done = town.omac.run("register", "--defaults", "slack", "--workdir", str(third), within=CLOSED)
    assert done.status == 0, done
    town.note()
    town.manifests[third] = town.server.activate(third)
    assert town.mark_and_token(third, "slack") == ("version 2", TWO)
    town.person.ok("secrets", "unset", "slack", "SLACK_TOKEN", "--workdir", str(third))
    url = f"{town.base(third, 'slack')}/"
    eventually(lambda: curl(url).headers.get("x-omac-reason") == "pending-credentials", 20.0, "the skill to wait")
    town.note()
    assert town.mark_and_token(town.two, "slack") == ("version 2", TWO)
    assert town.stored(f"omac/{ids.workdir_id(str(third))}/slack") is None


def test_a_replay_shows_each_step(town: Town) -> None:
    """`omac replay --at P --json` prints, byte by byte, the output of `omac status --json` at P. The registry is that
    of each step: its approvals, and the names of secrets."""
    for status in town.moments:
        at = str(json.loads(status)["position"])
        assert town.person.ok("replay", "--at", at, "--json") == status
    registries = [
        {
            (entry["dir"], entry["skill"]): (entry["approved"], entry["secrets"])
            for entry in json.loads(status)["registry"]
            if entry["approved"]  # what all share is found, and registered, some time after the start
        }
        for status in town.moments
    ]
    registered = (True, ["SLACK_TOKEN"])
    two = {(str(town.one), "slack"): registered, (str(town.two), "slack"): registered}
    three = {**two, ("", "shared"): registered}
    assert registries[:3] == [{}, two, three]
    if len(registries) > 3:  # the test before this one
        third = (str(town.omac.root / "three"), "slack")
        assert registries[3:] == [three | {third: registered}, three | {third: (True, [])}]
    assert not any(token in status for token in (ONE, TWO, SHARED) for status in town.moments)
