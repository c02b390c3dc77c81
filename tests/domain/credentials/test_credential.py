"""domain/credentials/credential.py: values given, removed and remembered by name, and fingerprints."""

import hashlib
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.credentials import credential
from omac.domain.credentials.credential import (
    DEFAULTS,
    EVENTS,
    Command,
    ConfigRemoved,
    ConfigWritten,
    Credential,
    Default,
    DefaultAdopted,
    DefaultMirrored,
    DefaultPurged,
    Erased,
    GiveValues,
    Mirror,
    Purge,
    RequestSecrets,
    SecretErased,
    SecretRemoved,
    SecretWriteRequested,
    SecretWritten,
    Stored,
    TakeValues,
)
from omac.domain.directories.events import Activated
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event
from omac.domain.kernel.hidden import Hidden

ONE, TWO = Stored("hmac:1", "vault"), Stored("hmac:2", "vault")
ELSEWHERE = Stored("hmac:1", "keychain")
KEY = bytes(range(32))
HELD = Credential({"A": ONE}, {}, {"C": "1"})
UNDER_WAY = Credential({"A": ONE}, {"A": TWO, "B": TWO})
IN_VAULT: dict[str, tuple[str, ...]] = {"A": ("vault",)}
OWN = {"A": "agents"}
AGENTS = Credential({"A": ONE}, {"W": TWO}, {"C": "1"}, taken=("T",), bases=dict.fromkeys("AWCT", "agents"))
MOVED = Credential({"A": ONE}, held={"A": ("keychain", "vault"), "B": ("vault",)})
KEPT = Credential(defaults={"A": Default("sha256:a", None, ONE), "C": Default("sha256:a", "1")})


@pytest.mark.parametrize(
    ("state", "command", "events"),
    [
        (Credential(), RequestSecrets({}), []),
        (Credential(), RequestSecrets({"A": ONE}), [SecretWriteRequested("A", "hmac:1", "vault")]),
        (HELD, RequestSecrets({"A": ONE}), [SecretWriteRequested("A", "hmac:1", "vault")]),
        (UNDER_WAY, RequestSecrets({"A": TWO}), [SecretWriteRequested("A", "hmac:2", "vault")]),
        (
            Credential(),
            RequestSecrets({"A": ONE, "B": TWO}),
            [SecretWriteRequested("A", "hmac:1", "vault"), SecretWriteRequested("B", "hmac:2", "vault")],
        ),
        (Credential(), GiveValues(), []),
        (Credential(), GiveValues({"A": ONE}), [SecretWritten("A", "hmac:1", "vault")]),
        (HELD, GiveValues({"A": ONE}), []),
        (HELD, GiveValues({"A": TWO}), [SecretWritten("A", "hmac:2", "vault")]),
        (HELD, GiveValues({"A": ELSEWHERE}), [SecretWritten("A", "hmac:1", "keychain")]),
        (UNDER_WAY, GiveValues({"A": ONE}), [SecretWritten("A", "hmac:1", "vault")]),  # it ends what was requested
        (UNDER_WAY, GiveValues({"B": TWO}), [SecretWritten("B", "hmac:2", "vault")]),
        (Credential(), GiveValues(config={"C": "1"}), [ConfigWritten("C", "1")]),
        (Credential(), GiveValues(config={"C": ""}), [ConfigWritten("C", "")]),
        (HELD, GiveValues(config={"C": "1"}), []),
        (HELD, GiveValues(config={"C": "2"}), [ConfigWritten("C", "2")]),
        (
            Credential(),
            GiveValues({"A": ONE}, {"C": "1"}, {"C": "sha256:a", "A": "sha256:a"}),
            [
                DefaultAdopted("C", "sha256:a"),
                DefaultAdopted("A", "sha256:a"),
                SecretWritten("A", "hmac:1", "vault"),
                ConfigWritten("C", "1"),
            ],
        ),
        (Credential(), TakeValues(("A", "C")), []),
        (HELD, TakeValues(()), []),
        (HELD, TakeValues(("C", "X", "A")), [ConfigRemoved("C"), SecretRemoved("A")]),
        (UNDER_WAY, TakeValues(("B", "A")), [SecretRemoved("B"), SecretRemoved("A")]),
        (
            Credential({"A": ONE}, {}, {"A": "x"}),  # it was a secret in one version of the skill, a setting in another
            TakeValues(("A",)),
            [SecretRemoved("A"), ConfigRemoved("A")],
        ),
        (
            Credential(),
            GiveValues({"A": ONE}, {"C": "1"}, base="agents"),
            [SecretWritten("A", "hmac:1", "vault", "agents"), ConfigWritten("C", "1", "agents")],
        ),
        (Credential(), RequestSecrets({"A": ONE}, "agents"), [SecretWriteRequested("A", "hmac:1", "vault", "agents")]),
        (AGENTS, GiveValues({"A": ONE}, {"C": "1"}, base="agents"), []),
        (
            AGENTS,  # the same values, for another skill of that name
            GiveValues({"A": ONE}, {"C": "1"}, base="claude"),
            [SecretWritten("A", "hmac:1", "vault", "claude"), ConfigWritten("C", "1", "claude")],
        ),
        (AGENTS, TakeValues(("A", "W", "C"), "claude"), []),
        (AGENTS, TakeValues(("A", "W", "C"), "agents"), [SecretRemoved("A"), SecretRemoved("W"), ConfigRemoved("C")]),
        (AGENTS, TakeValues(("A",)), [SecretRemoved("A")]),
        (HELD, TakeValues(("A",), "claude"), [SecretRemoved("A")]),  # of no base: it is everybody's
        (MOVED, Erased("keychain", ("A", "A", "B", "C")), [SecretErased("A", "keychain")]),
        (MOVED, Erased("vault", ("A", "B")), [SecretErased("B", "vault")]),  # what counts is not erased
        (Credential(), Mirror({}), []),
        (
            Credential(),
            Mirror({"A": Default("sha256:a", None, ONE), "C": Default("sha256:a", "1")}),
            [
                DefaultMirrored("A", "sha256:a", None, "hmac:1", "vault"),
                DefaultMirrored("C", "sha256:a", "1", "", ""),
            ],
        ),
        (KEPT, Mirror(KEPT.defaults), []),
        (KEPT, Mirror({"C": Default("sha256:a", "2")}), [DefaultMirrored("C", "sha256:a", "2")]),
        (KEPT, Mirror({"C": Default("sha256:b", "1")}), [DefaultMirrored("C", "sha256:b", "1")]),
        (
            msgspec.structs.replace(KEPT, writing={"A": ONE}),
            Mirror({"A": Default("sha256:a", None, ONE)}),
            [DefaultMirrored("A", "sha256:a", None, "hmac:1", "vault")],
        ),
        (Credential(), Purge(), []),
        (KEPT, Purge(), [DefaultPurged("A"), DefaultPurged("C")]),
        (KEPT, Purge(("C", "X")), [DefaultPurged("C")]),
        (HELD, Purge(("A", "C")), []),
    ],
)
def test_decisions(state: Credential, command: Command, events: list[Event]) -> None:
    """Each command to give, take, remember or forget values means these events in this state."""
    assert credential.decide(command, state) == events


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        (
            HELD,
            SecretWriteRequested("A", "hmac:2", "vault", "agents"),  # nothing counts yet
            Credential({"A": ONE}, {"A": TWO}, {"C": "1"}, held=IN_VAULT),
        ),
        (Credential(), SecretWriteRequested("A", "hmac:1", "vault"), Credential({}, {"A": ONE}, held=IN_VAULT)),
        (
            Credential(),
            SecretWriteRequested("A", "hmac:1", "vault", "agents"),
            Credential({}, {"A": ONE}, bases={"A": "agents"}, held=IN_VAULT),
        ),
        (UNDER_WAY, SecretWritten("A", "hmac:2", "vault"), Credential({"A": TWO}, {"B": TWO}, held=IN_VAULT)),
        (
            Credential(taken=("B", "A")),
            SecretWritten("A", "hmac:1", "vault"),
            Credential({"A": ONE}, taken=("B",), held=IN_VAULT),
        ),
        (
            Credential({"A": ONE}, held=IN_VAULT),
            SecretWritten("A", "hmac:1", "keychain", "agents"),
            Credential({"A": ELSEWHERE}, bases={"A": "agents"}, held={"A": ("vault", "keychain")}),
        ),
        (
            Credential({"A": ONE}, config={"A": "x"}, bases={"A": "agents"}),
            ConfigWritten("A", "y", "claude"),  # what another base was given under this name, of any kind, is gone
            Credential(config={"A": "y"}, bases={"A": "claude"}),
        ),
        (
            Credential({"A": ONE}, bases={"A": "agents"}),
            ConfigWritten("A", "y"),  # nor does it become everybody's
            Credential(config={"A": "y"}),
        ),
        (Credential({"A": ONE}), ConfigWritten("A", "y", "agents"), Credential({"A": ONE}, {}, {"A": "y"}, bases=OWN)),
        (AGENTS, SecretRemoved("A"), msgspec.structs.replace(AGENTS, secrets={}, taken=("T", "A"))),
        (MOVED, SecretErased("A", "keychain"), msgspec.structs.replace(MOVED, held=IN_VAULT | {"B": ("vault",)})),
        (MOVED, SecretErased("A", "vault"), MOVED),
        (MOVED, SecretErased("B", "vault"), msgspec.structs.replace(MOVED, held={"A": ("keychain", "vault")})),
        (MOVED, SecretErased("X", "vault"), MOVED),
        (Credential({}, {"A": ONE}, held=IN_VAULT), SecretErased("A", "vault"), Credential()),
        (UNDER_WAY, SecretRemoved("A"), Credential({}, {"B": TWO}, taken=("A",))),
        (UNDER_WAY, SecretRemoved("B"), Credential({"A": ONE}, {"A": TWO}, taken=("B",))),
        (Credential(taken=("A", "B")), SecretRemoved("A"), Credential(taken=("B", "A"))),
        (HELD, ConfigWritten("C", "2"), Credential({"A": ONE}, {}, {"C": "2"})),
        (Credential(taken=("C",)), ConfigWritten("C", ""), Credential(config={"C": ""})),
        (HELD, ConfigRemoved("C"), Credential({"A": ONE}, taken=("C",))),
        (HELD, DefaultAdopted("C", "sha256:a"), HELD),
        (Credential(), DefaultMirrored("C", "h", "1"), Credential(defaults={"C": Default("h", "1")})),
        (Credential(), DefaultMirrored("C", "h", ""), Credential(defaults={"C": Default("h", "")})),
        (
            Credential({}, {"A": ONE, "B": TWO}),
            DefaultMirrored("A", "h", None, "hmac:1", "vault"),
            Credential({}, {"B": TWO}, defaults={"A": Default("h", None, ONE)}, held=IN_VAULT),
        ),
        (
            KEPT,  # a setting becomes a secret of the same name
            DefaultMirrored("C", "h", None, "hmac:2", "vault"),
            Credential(defaults={"A": KEPT.defaults["A"], "C": Default("h", None, TWO)}, held={"C": ("vault",)}),
        ),
        (KEPT, DefaultPurged("A"), Credential(defaults={"C": KEPT.defaults["C"]})),
        (KEPT, DefaultPurged("X"), KEPT),
    ],
)
def test_what_an_event_does(before: Credential, event: Event, after: Credential) -> None:
    """Each event changes one thing in the state and nothing else."""
    assert credential.evolve(before, event) == after


def test_every_event_may_follow_every_other() -> None:
    """A replay accepts the aggregate's events in any order. It refuses another aggregate's event instead of ignoring
    it."""
    examples: list[Event] = [
        SecretWriteRequested("A", "hmac:1", "vault"),
        SecretWritten("A", "hmac:1", "vault"),
        SecretWritten("A", "hmac:2", "keychain", "agents"),
        SecretRemoved("A"),
        SecretErased("A", "vault"),
        ConfigWritten("A", "1"),
        ConfigRemoved("A"),
        DefaultMirrored("A", "h", "1"),
        DefaultAdopted("A", "h"),
        DefaultPurged("A"),
    ]
    assert {type(event) for event in examples} == set(EVENTS)
    for events in itertools.product(examples, repeat=3):
        state = Credential()
        for event in events:
            state = credential.evolve(state, event)
    with pytest.raises(KeyError):
        credential.evolve(Credential(), Activated())


NAMES = st.sampled_from(["A", "B", "C"])
SECRETS = st.dictionaries(NAMES, st.sampled_from([ONE, TWO, ELSEWHERE]), max_size=2)
CONFIG = st.dictionaries(NAMES, st.sampled_from(["", "1", "2"]), max_size=2)
REMEMBERED = st.one_of(
    st.builds(Default, st.sampled_from(["h", "i"]), st.sampled_from(["", "1"])),
    st.builds(Default, st.sampled_from(["h", "i"]), st.none(), st.sampled_from([ONE, TWO])),
)
BASES = st.sampled_from(["", "agents", "claude"])
COMMANDS = st.one_of(
    st.builds(RequestSecrets, SECRETS, BASES),
    st.builds(GiveValues, SECRETS, CONFIG, base=BASES),
    st.builds(TakeValues, st.lists(NAMES, unique=True).map(tuple), st.none() | BASES),
    st.builds(Erased, st.sampled_from(["vault", "keychain"]), st.lists(NAMES, unique=True).map(tuple)),
    st.builds(Mirror, st.dictionaries(NAMES, REMEMBERED, max_size=2)),
    st.builds(Purge, st.lists(NAMES, unique=True).map(tuple)),
)


@given(st.lists(COMMANDS, max_size=12))
def test_the_last_command_holds(commands: list[Command]) -> None:
    """Each command leads to the state it asks for. The same command again decides nothing, unless it requests
    secrets."""
    state = Credential()
    for command in commands:
        for event in credential.decide(command, state):
            state = credential.evolve(state, event)
        match command:
            case RequestSecrets(secrets):
                assert state.writing == state.writing | secrets
                continue
            case GiveValues(secrets, config, _, base):
                own = state.of(base)
                assert own.secrets == own.secrets | secrets
                assert own.config == own.config | config
                assert not state.writing.keys() & secrets.keys()
                assert not {*secrets, *config} & set(state.taken)
            case TakeValues(names, base):
                own = state.of(base)
                assert not (own.secrets | own.writing).keys() & set(names)
                assert not own.config.keys() & set(names)
            case Erased(store, names):
                assert not any(store in state.left.get(name, ()) for name in names)
            case Mirror(defaults):
                assert state.defaults == state.defaults | defaults
            case Purge(names):
                assert not state.defaults.keys() & set(names or state.defaults)
        assert credential.decide(command, state) == []
        assert len(set(state.taken)) == len(state.taken)


@given(st.lists(COMMANDS, max_size=12))
def test_no_value_is_lost_sight_of(commands: list[Command]) -> None:
    """Every value that was written or requested in a store is in use, left over, or erased. A value of one base counts
    for no other base."""
    state, put = Credential(), set[tuple[str, str]]()
    for command in commands:
        for event in credential.decide(command, state):
            state = credential.evolve(state, event)
            match event:
                case SecretWriteRequested(name, _, store, _) | SecretWritten(name, _, store, _):
                    put.add((name, store))
                case DefaultMirrored(name, _, None, _, store):
                    put.add((name, store))
                case SecretErased(name, store):
                    put.discard((name, store))
                case _:
                    pass  # no store has anything to do with it
        leftovers = {(name, store) for name, stores in state.left.items() for store in stores}
        assert leftovers == {(name, store) for name, store in put if not state.is_used(name, store)}
        agents, claude = state.of("agents"), state.of("claude")
        assert state.left == agents.left == claude.left
        for name in {*agents.secrets, *agents.config} & {*claude.secrets, *claude.config}:
            assert name not in state.bases


@pytest.mark.parametrize(
    ("base", "secrets", "config", "taken"),
    [("agents", {"A", "B"}, {"C"}, ("T",)), ("claude", {"B"}, set(), ()), (None, {"A", "B"}, {"C"}, ("T",))],
)
def test_what_counts_for_whom(base: str | None, secrets: set[str], config: set[str], taken: tuple[str, ...]) -> None:
    """A base has the values given to it and those that earlier versions recorded without a base; None has all
    values."""
    own = msgspec.structs.replace(AGENTS, secrets={"A": ONE, "B": TWO}).of(base)
    assert (set(own.secrets), set(own.config), own.taken) == (secrets, config, taken)
    assert own.writing.keys() == ({"W"} if base != "claude" else set())


def test_no_command_and_no_event_has_room_for_a_value() -> None:
    """The record of a secret has fields for its name, fingerprint, store and base, and none for its value."""
    for event in (SecretWriteRequested, SecretWritten):
        assert event.__struct_fields__ == ("name", "fingerprint", "store", "base")
    assert SecretRemoved.__struct_fields__ == ("name",)
    assert SecretErased.__struct_fields__ == ("name", "store")
    assert Stored.__struct_fields__ == ("fingerprint", "store")


def test_under_which_names_stores_keep_secrets() -> None:
    """Secrets are stored under the names that other omac versions use too, since keychains already hold them."""
    shop = ids.workdir_id("/w/shop")
    assert shop == "ac49d249e813877b6b27fa5b303d4fe2cdfcc954fc1ac2407f0b3c6edb10a6b6"
    assert credential.service(shop, "slack") == f"omac/{shop}/slack"
    assert credential.service(ids.GLOBAL, "slack") == "omac/slack"
    assert credential.service(DEFAULTS, "slack") == "omac/__defaults__/slack"


@pytest.mark.parametrize(
    ("value", "known"),
    [  # openssl dgst -sha256 -mac HMAC -macopt hexkey:00...1f of service, NUL, name, NUL, value in UTF-8
        ("xoxb-1", "hmac:4f19a1c916da2e02"),
        ("na\xefve \U0001f511\nline", "hmac:1e5c70e4788482e2"),
    ],
)
def test_a_known_fingerprint(value: str, known: str) -> None:
    """A fingerprint equals the one that openssl computes, so that recorded fingerprints stay valid in later
    versions."""
    assert credential.fingerprint(KEY, "omac/slack", "TOKEN", Hidden(value)) == known


def test_a_fingerprint_depends_on_key_service_and_name() -> None:
    """Another key, service, name or value gives another fingerprint, and none contains the value's plain hash."""
    inputs = itertools.product(
        (KEY, KEY[::-1]), ("omac/slack", "omac/slac"), ("TOKEN", "KTOKEN", "TOKE"), ("v", "N\0v", "w", "", "\ud800")
    )
    fingerprints = [credential.fingerprint(key, service, name, Hidden(value)) for key, service, name, value in inputs]
    assert len(set(fingerprints)) == len(fingerprints) == 60
    assert all(len(fingerprint) == len("hmac:") + credential.FINGERPRINT_DIGITS for fingerprint in fingerprints)
    assert hashlib.sha256(b"v").hexdigest()[:16] not in "".join(fingerprints)


def test_values_of_a_wider_scope() -> None:
    """A name's own value comes first, then the wider scope's. A name removed here gets no value from the wider
    scope."""
    own = Credential(secrets={"A": Stored("1", "vault")}, config={"B": "own"}, taken=("C",))
    wide = {name: Stored("2", "vault") for name in "ABCD"}
    both = own.over(Credential(secrets=wide, config={"A": "x", "E": "wide"}, taken=("F", "A")))
    assert both.secrets == {"A": Stored("1", "vault"), "D": Stored("2", "vault")}
    assert both.config == {"B": "own", "E": "wide"}
    assert both.taken == ("C", "F")
