"""The codec: stored bytes never change their meaning by accident, and unreadable ones are refused, never guessed."""

import importlib
import pkgutil
import re
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import omac.domain
from omac.domain.access import access, control, erasure, export, receipt, sealing, signing, witness
from omac.domain.credentials import credential
from omac.domain.directories import events
from omac.domain.guard import denial
from omac.domain.harness import installation
from omac.domain.kernel import run, set_aside
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import inspection, launch
from omac.domain.settings import setting
from omac.domain.sidecars import sidecar
from omac.domain.skills import registration
from omac.domain.skills.meta import Health
from omac.journal.codec import Versioned
from omac.journal.event_kinds import KIND_OF, KINDS, UPCASTERS
from omac.journal.mapper import EventMapper

KIND = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")


def of_type(declared: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Return values of a field's declared type, awkward ones preferred."""
    match declared:
        case msgspec.inspect.StrType():
            odd = st.sampled_from(["", "\0", "a\0b", "naïve/日本語/🦊", "\u202e", "x" * 70_000])
            return st.one_of(st.text(), odd)
        case msgspec.inspect.IntType():
            return st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from([0, 1, -1, 2**63 - 1, 2**64 - 1]))
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType(values):
            return st.sampled_from(values)
        case msgspec.inspect.UnionType(types):
            return st.one_of(*(of_type(member) for member in types))
        case msgspec.inspect.VarTupleType(item_type):
            return st.lists(of_type(item_type), max_size=3).map(tuple)
        case msgspec.inspect.DictType(key_type, value_type):
            return st.dictionaries(of_type(key_type), of_type(value_type), max_size=3)
        case msgspec.inspect.StructType(cls, fields):
            return st.builds(cls, **{field.name: of_type(field.type) for field in fields})
        case _:
            raise NotImplementedError(f"teach the tests to make a {declared}")


def events_of(cls: type[Event]) -> st.SearchStrategy[Any]:
    """Return events of one class, with awkward values in every field."""
    return of_type(msgspec.inspect.type_info(cls))


def read(body: bytes, kind: str = "thing.done", kinds: Any = None, upcasters: Any = None) -> Event:
    """Decode a body with a registry of one kind."""
    return EventMapper(kinds or {"thing.done": (1, ThingDone)}, upcasters or {}).decode(kind, body)


def body(version: Any, fields: Any) -> bytes:
    """Return the stored form, made by hand."""
    return msgspec.msgpack.encode(version) + msgspec.msgpack.encode(fields)


class ThingDone(Event, frozen=True):
    """An event as its first version might have been."""

    name: str
    count: int = 0


# ---- round trip ----


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25), derandomize=True, database=None)
@given(data=st.data())
def test_every_kind_comes_back_as_it_was(kind: str, data: st.DataObject) -> None:
    """An event with any values is decoded from its stored form to the same event, of the same class."""
    event = data.draw(events_of(KINDS[kind][1]))
    mapper = EventMapper()
    stored = mapper.to_stored_event(Versioned("a/stream", 7, event))
    assert (stored.originator_id, stored.originator_version, stored.topic) == ("a/stream", 7, kind)
    assert isinstance(stored.state, bytes)
    back = mapper.to_domain_event(stored)
    assert back == Versioned("a/stream", 7, event)
    assert type(back.data) is type(event)
    assert mapper.encode(back.data) == (kind, stored.state)


def test_an_event_of_a_log_has_no_version() -> None:
    """A log's events go through the mapper with None where aggregates have a version."""
    mapper = EventMapper()
    event = access.AccessAborted(1, "gone")
    stored = mapper.to_stored_event(Versioned("access/host", None, event))
    assert stored.originator_version is None
    assert mapper.to_domain_event(stored) == Versioned("access/host", None, event)


def test_text_that_is_not_unicode_is_rejected_before_it_is_stored() -> None:
    """A lone surrogate cannot be stored: the append fails, not a later read."""
    with pytest.raises(UnicodeEncodeError):
        EventMapper().encode(access.AccessAborted(1, "\udcff"))


# ---- the registry ----


def domain_events() -> set[type[Event]]:
    """Return every event class that the domain defines."""
    classes: set[type[Event]] = set()
    for module in pkgutil.walk_packages(omac.domain.__path__, "omac.domain."):
        names = vars(importlib.import_module(module.name)).values()
        classes |= {item for item in names if isinstance(item, type) and issubclass(item, Event) and item is not Event}
    return classes


def test_every_event_is_registered_once() -> None:
    """No event of the domain is without a kind, none has two, and nothing else is registered."""
    registered = [cls for _, cls in KINDS.values()]
    assert len(registered) == len(set(registered))
    assert set(registered) == domain_events()
    assert {cls: kind for kind, (_, cls) in KINDS.items()} == KIND_OF


def test_kinds_are_plain_words() -> None:
    """A kind is a noun and a past participle, in lower case, with hyphens."""
    assert [kind for kind in KINDS if not KIND.fullmatch(kind)] == []


def test_every_earlier_version_can_be_brought_up() -> None:
    """Each version before the current one has an upcaster to the next, and no upcaster exists for another version."""
    steps = {(kind, version) for kind, (current, _) in KINDS.items() for version in range(1, current)}
    assert set(UPCASTERS) == steps


def test_an_event_that_is_not_registered_cannot_be_stored() -> None:
    """A programmer who forgets the registry gets an error from the first append."""
    with pytest.raises(TypeError, match=r"ThingDone is not in the registry"):
        EventMapper().encode(ThingDone("x"))


# ---- what a later omac wrote ----


def test_a_later_version_is_refused() -> None:
    """A body of a version that this omac does not know is refused, however much it looks like a known one."""
    with pytest.raises(Refusal, match=r"version 2 of 'thing.done'") as refused:
        read(body(2, ["x", 1]))
    assert refused.value.reason == "journal-newer"
    assert refused.value.fix


@pytest.mark.parametrize(
    "kind",
    ["os:system", "antigravity:x", "wave:open", "omac.domain.kernel.run:RunStarted", "run.startet", "", "run.started "],
)
def test_an_unknown_kind_is_refused_and_nothing_imported(kind: str) -> None:
    """A kind is resolved only among those that are known; a row that names a module does not get it imported."""
    before = set(sys.modules)
    with pytest.raises(Refusal) as refused:
        EventMapper().decode(kind, body(1, []))
    assert refused.value.reason == "journal-newer"
    assert set(sys.modules) == before


# ---- damage ----

BROKEN = {
    "nothing": b"",
    "version only": b"\x01",
    "cut off": body(1, ["name", 7])[:-1],
    "more than one": body(1, ["name"]) + b"\x90",
    "fields are a map": body(1, {"name": "x"}),
    "fields are null": body(1, None),
    "too few fields": body(1, []),
    "wrong type": body(1, [7]),
    "version null": body(None, ["x"]),
    "version text": body("1", ["x"]),
    "version fraction": body(1.0, ["x"]),
    "version zero": body(0, ["x"]),
    "version negative": body(-1, ["x"]),
    "not utf-8": b"\x01\x91\xa1\xff",
    "not msgpack": b"\xc1\xc1",
    "enormous length": b"\x01\xdd\xff\xff\xff\xff",
    "endless nesting": b"\x01" + b"\x91" * 60_000,
    "text": b"SQLite format 3\0",
}


@pytest.mark.parametrize("damaged", BROKEN.values(), ids=BROKEN)
def test_broken_bytes_are_refused(damaged: bytes) -> None:
    """Bytes that are not an event of that kind are refused as damaged; they never pass and never crash omac."""
    with pytest.raises(Refusal) as refused:
        read(damaged)
    assert refused.value.reason == "journal-damaged"
    assert "'thing.done'" in refused.value.message


@settings(max_examples=examples(300), derandomize=True, database=None)
@given(garbage=st.binary(max_size=64), kind=st.sampled_from(sorted(KINDS)))
def test_any_bytes_are_an_event_or_refused(garbage: bytes, kind: str) -> None:
    """Decoding gives an event of the kind or a refusal, for any bytes whatsoever."""
    try:
        event = EventMapper().decode(kind, garbage)
    except Refusal as refusal:
        assert refusal.reason in ("journal-damaged", "journal-newer")  # noqa: PT017
    else:
        assert type(event) is KINDS[kind][1]


@pytest.mark.parametrize("error", [KeyError, IndexError, ValueError, TypeError, AttributeError])
def test_an_upcaster_that_fails_means_damage(error: type[Exception]) -> None:
    """Fields that an upcaster cannot take are damaged, as fields that do not fit are."""

    def fail(_fields: list[Any]) -> list[Any]:
        raise error("no such field")

    with pytest.raises(Refusal) as refused:
        read(body(1, []), kinds={"thing.done": (2, ThingDone)}, upcasters={("thing.done", 1): fail})
    assert refused.value.reason == "journal-damaged"


# ---- change ----


class ThingDoneNow(Event, frozen=True):
    """The event as it might be two versions later: first and last name, then a list of counts."""

    first: str
    last: str
    counts: tuple[int, ...]


def split_name(fields: list[Any]) -> list[Any]:
    """Split the one name of version 1 into first and last name."""
    first, _, last = fields[0].partition(" ")
    return [first, last, *fields[1:]]


def many_counts(fields: list[Any]) -> list[Any]:
    """Put the one count of version 2 into a list."""
    return [*fields[:2], [fields[2]]]


@pytest.mark.parametrize(
    ("version", "fields"), [(1, ["Ada Lovelace", 3]), (2, ["Ada", "Lovelace", 3]), (3, ["Ada", "Lovelace", [3]])]
)
def test_old_versions_are_brought_up_step_by_step(version: int, fields: list[Any]) -> None:
    """Each upcaster gets the fields that the one before made; all versions of a fact become the same event."""
    kinds = {"thing.done": (3, ThingDoneNow)}
    upcasters = {("thing.done", 2): many_counts, ("thing.done", 1): split_name}
    assert read(body(version, fields), kinds=kinds, upcasters=upcasters) == ThingDoneNow("Ada", "Lovelace", (3,))
    current = EventMapper(kinds, upcasters).encode(ThingDoneNow("Ada", "Lovelace", (3,)))
    assert current == ("thing.done", body(3, ["Ada", "Lovelace", [3]]))


def test_a_field_appended_with_a_default_reads_old_bodies() -> None:
    """A body from before the field has the default; no new version is needed."""
    assert read(body(1, ["x"])) == ThingDone("x", 0)
    assert read(body(1, ["x", 5])) == ThingDone("x", 5)


SPEC = sidecar.SidecarSpec(
    "echo", "echo", "/w", "/w/.skills/echo", "/w/.skills", "sha256:00", True, ("python3", "-m", "echo"),
    Health(), ("PATH",), (sidecar.Variable("TOKEN", None, "HOST_TOKEN", True),),
)  # fmt: skip

# A line that fails says: bytes in journals that exist have changed their meaning. Append to a kind's fields, or raise
# its version and add an upcaster; never correct a line here without one of the two.
GOLDEN: list[tuple[str, Event, str]] = [
    (
        "run.started",
        run.RunStarted("opencode", "0.1.0", 4711, 123456, "boot", ("/home/ada", "/srv")),
        "0198a86f70656e636f6465a5302e312e30cd1267ce0001e240a4626f6f7492a92f686f6d652f616461a42f73727680a57365727665",
    ),
    (
        "directory.activation-requested",
        events.ActivationRequested("/w", "opencode", TokenDigest("ab" * 4)),
        "0193a22f77a86f70656e636f6465a86162616261626162",
    ),
    ("directory.activated", events.Activated(), "0190"),
    ("route.mounted", events.RouteMounted("echo", "echo"), "0194a46563686fa46563686fce00a0000094c0c0c0c0"),
    (
        "route.stubbed",
        events.RouteStubbed("echo", "echo", "skill-broken", "no file", ("TOKEN",), ("omac approve echo",)),
        "0196a46563686fa46563686fac736b696c6c2d62726f6b656ea76e6f2066696c65"
        "91a5544f4b454e91b16f6d616320617070726f7665206563686f",
    ),
    (
        "skill.approved",
        registration.Approved("/w/.skills/echo", "sha256:00"),
        "0194af2f772f2e736b696c6c732f6563686fa97368613235363a3030a0c0",
    ),
    (
        "sidecar.spawn-requested",
        sidecar.SpawnRequested(SPEC, 1),
        (
            "01939fa46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a9736861323536"
            "3a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196a5544f4b45"
            "4ec0aa484f53545f544f4b454ec3a0a0a0c0a0a00101"
        ),
    ),
    (
        "sidecar.exited",
        sidecar.Exited(sidecar.Exit(None, 9), 1500, "killed"),
        "019392c009cd05dca66b696c6c6564",
    ),
    (
        "access.requested",
        access.AccessRequested("/w", "echo", "echo", None, "POST", "/v1/\u00fc"),
        "0196a22f77a46563686fa46563686fc0a4504f5354a62f76312fc3bc",
    ),
    (
        "access.batch-requested",
        access.AccessBatchRequested("/w", "echo", "echo", None, ("POST", "GET"), ("/v1/\u00fc", "")),
        "0196a22f77a46563686fa46563686fc092a4504f5354a347455492a62f76312fc3bca0",
    ),
    (
        "access.batch-completed",
        access.AccessBatchCompleted((4, 4), (0, 255), (200, 500), (0, 1), (65536, 2), (1234, 5)),
        "01969204049200ccff92ccc8cd01f492000192ce000100000292cd04d205",
    ),
    (
        "access.batch-aborted",
        access.AccessBatchAborted((4, 7), (3, 0), ("client-gone", "x"), (None, 200), (0, 1), (5, 2), (None, 5)),
        "019792040792030092ab636c69656e742d676f6e65a17892c0ccc892000192050292c005",
    ),
    ("access.completed", access.AccessCompleted(1, 200, 0, 65536, 1234), "019501ccc800ce00010000cd04d2"),
    (
        "access.refused",
        access.AccessRefused(None, None, "nope", "s1", "GET", "/", 404, "unknown-mount"),
        "0199c0c0a46e6f7065a27331a3474554a12fcd0194ad756e6b6e6f776e2d6d6f756e7401",
    ),
    ("skill.approval-revoked", registration.ApprovalRevoked("deregistered"), "0191ac646572656769737465726564"),
    (
        "skill.drifted",
        registration.Drifted("/w/.skills/echo", "sha256:00", "sha256:11", "run1"),
        "0194af2f772f2e736b696c6c732f6563686fa97368613235363a3030a97368613235363a3131a472756e31",
    ),
    ("skill.deregistered", registration.Deregistered(), "0190"),
    (
        "secret.write-requested",
        credential.SecretWriteRequested("TOKEN", "hmac:00", "vault"),
        "0194a5544f4b454ea7686d61633a3030a57661756c74a0",
    ),
    (
        "secret.written",
        credential.SecretWritten("TOKEN", "hmac:00", "vault"),
        "0194a5544f4b454ea7686d61633a3030a57661756c74a0",
    ),
    ("secret.removed", credential.SecretRemoved("TOKEN"), "0191a5544f4b454e"),
    ("secret.erased", credential.SecretErased("TOKEN", "vault"), "0192a5544f4b454ea57661756c74"),
    ("config.written", credential.ConfigWritten("MODE", "fast"), "0193a44d4f4445a466617374a0"),
    ("config.removed", credential.ConfigRemoved("MODE"), "0191a44d4f4445"),
    (
        "default.mirrored",
        credential.DefaultMirrored("MODE", "sha256:00", "fast"),
        "0195a44d4f4445a97368613235363a3030a466617374a0a0",
    ),
    ("default.adopted", credential.DefaultAdopted("MODE", "sha256:00"), "0192a44d4f4445a97368613235363a3030"),
    ("default.purged", credential.DefaultPurged("MODE"), "0191a44d4f4445"),
    (
        "bridge.change-requested",
        installation.BridgeChangeRequested(
            "claude", "/h/.claude/settings.json", ("SessionStart",), "ab", (1,), ("x",), ("/h/.claude",)
        ),
        "0197a6636c61756465b82f682f2e636c617564652f73657474696e67732e6a736f6e91ac53657373696f6e5374617274a261"
        "62910191a17891aa2f682f2e636c61756465",
    ),
    (
        "bridge.changed",
        installation.BridgeChanged("codex", "/h/.codex/hooks.json", ()),
        "0193a5636f646578b42f682f2e636f6465782f686f6f6b732e6a736f6e90",
    ),
    (
        "bridge.change-failed",
        installation.BridgeChangeFailed("codex", "/h/.codex/hooks.json", "no space left"),
        "0193a5636f646578b42f682f2e636f6465782f686f6f6b732e6a736f6ead6e6f207370616365206c656674",
    ),
    (
        "setting.change-requested",
        setting.SettingChangeRequested("serve.unapproved", "warn", "user"),
        "0193b073657276652e756e617070726f766564a47761726ea475736572",
    ),
    (
        "setting.change-failed",
        setting.SettingChangeFailed("serve.unapproved", "no space left"),
        "0192b073657276652e756e617070726f766564ad6e6f207370616365206c656674",
    ),
    (
        "setting.changed",
        setting.SettingChanged("serve.unapproved", None, "user"),
        "0193b073657276652e756e617070726f766564c0a475736572",
    ),
    (
        "sandbox.launch-requested",
        launch.LaunchRequested(
            "/w", "claude", "bubblewrap", "ab" * 4, ("npm", "test"), "host", 4711, 123456, "boot", "run1"
        ),
        (
            "019aa22f77a6636c61756465aa627562626c6577726170a8616261626162616292a36e706da474657374a4686f7374cd1267"
            "ce0001e240a4626f6f74a472756e31"
        ),
    ),
    ("sandbox.launched", launch.Launched(4712), "0191cd1268"),
    (
        "sandbox.exited",
        launch.LaunchExited(137, ("/w/.git/hooks/x: new",)),
        "0195cc8991b42f772f2e6769742f686f6f6b732f783a206e6577a090a0",
    ),
    (
        "sandbox.exited",
        launch.LaunchExited(None, (), "omac was killed", ("/h/x",), "/w"),
        "0195c090af6f6d616320776173206b696c6c656491a42f682f78a22f77",
    ),
    (
        "sandbox.denied",
        launch.Denied("/w", "claude", ("npm",), "git-unsafe", "no"),
        "0195a22f77a6636c6175646591a36e706daa6769742d756e73616665a26e6f",
    ),
    (
        "control.called",
        control.ControlCalled("activate", "/w", "socket"),
        "0194a86163746976617465a22f77a6736f636b6574c0",
    ),
    (
        "control.refused",
        control.ControlRefused("activate", "/w", "tcp", "bad-token"),
        "0195a86163746976617465a22f77a3746370a96261642d746f6b656e01",
    ),
    ("control.vault-locked", control.VaultLocked("socket"), "0191a6736f636b6574"),
    ("key.rotated", signing.KeyRotated("a", "b", "n", "cd"), "0194a161a162a16ea26364"),
    ("key.lost", signing.KeyLost("a", "b", "n", "cd"), "0194a161a162a16ea26364"),
    ("key.move-requested", signing.KeyMoveRequested("a+1", "file", "vault"), "0193a3612b31a466696c65a57661756c74"),
    ("key.moved", signing.KeyMoved("a+1", "vault"), "0192a3612b31a57661756c74"),
    ("checkpoint.delayed", signing.CheckpointDelayed("w"), "0191a177"),
    ("checkpoint.signed", signing.CheckpointSigned(7, "n", "ab"), "019307a16ea26162"),
    ("checkpoint.witnessed", witness.CheckpointWitnessed(7, "syslog"), "019207a67379736c6f67"),
    ("witness.failed", witness.WitnessFailed(7, "syslog", "away"), "019307a67379736c6f67a461776179"),
    (
        "checkpoint.received",
        receipt.CheckpointReceived("j", 7, "ab", "k", "n"),
        "0195a16a07a26162a16ba16e",
    ),
    (
        "checkpoint.contested",
        receipt.CheckpointContested("j", 7, "ab", "n", 9),
        "0195a16a07a26162a16e09",
    ),
    ("segment.seal-requested", sealing.SealRequested(1, 7, "f"), "01930107a166"),
    ("segment.sealed", sealing.SegmentSealed(1, 7, "f", 9, "ab", "cd", "n"), "01970107a16609a26162a26364a16e"),
    ("segment.prune-requested", sealing.PruneRequested(1, 7, "f"), "01930107a166"),
    ("segment.pruned", sealing.SegmentPruned(1, 7, "f", 9, "ab", 5, "cd"), "01970107a16609a2616205a26364"),
    ("segment.prune-failed", sealing.PruneFailed("x"), "0191a178"),
    ("subject.erasure-requested", erasure.ErasureRequested("ab", ("cd",)), "0192a2616291a26364"),
    ("subject.erased", erasure.SubjectErased("ab", ("cd",)), "0192a2616291a26364"),
    ("position.pruned", set_aside.PositionPruned(1, 2, 3, 4, 5, 6), "0196010203040506"),
    ("segment.seal-failed", sealing.SealFailed("x"), "0191a178"),
    (
        "export.created",
        export.ExportCreated("csv", "/e", {"skill": "echo"}, ("secret",), 7),
        "0195a3637376a22f6581a5736b696c6ca46563686f91a673656372657407",
    ),
    (
        "guard.denied",
        denial.GuardDenied("claude", "Write", "/w/x", "/w/t", "/w/t/x", "s1"),
        "0198a6636c61756465a55772697465a42f772f78a42f772f74a62f772f742f78a27331a573706f6f6c01",
    ),
    (
        "sandbox.inspected",
        inspection.Inspected(("00aa",), ("/w",), ("/w/.git/hooks/x: new",)),
        "019391a43030616191a22f7791b42f772f2e6769742f686f6f6b732f783a206e6577",
    ),
    ("run.recovered", run.RunRecovered("0b5c3a1f9e77", 1, 2, 3), "0194ac306235633361316639653737010203"),
    ("run.stopped", run.RunStopped("its agent ended"), "0191af697473206167656e7420656e646564"),
    (
        "directory.session-admitted",
        events.SessionAdmitted("s1", TokenDigest("d" * 64)),
        "0192a27331d94064646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464",
    ),
    (
        "directory.session-ended",
        events.SessionEnded("s1", TokenDigest("d" * 64)),
        "0192a27331d94064646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464646464",
    ),
    ("directory.activated-partially", events.ActivatedPartially(), "0190"),
    (
        "directory.activation-failed",
        events.ActivationFailed("the folder is gone"),
        "0191b274686520666f6c64657220697320676f6e65",
    ),
    ("directory.reload-requested", events.ReloadRequested(), "019190"),
    (
        "directory.deactivation-requested",
        events.DeactivationRequested("asked by SIGTERM"),
        "0191b061736b6564206279205349475445524d",
    ),
    ("directory.deactivated", events.Deactivated(), "0190"),
    (
        "skill.appeared",
        events.SkillAppeared("echo", "agents", "/w/.agents/skills/echo", "sha256:00", "echo"),
        "0195a46563686fa66167656e7473b62f772f2e6167656e74732f736b696c6c732f6563686fa97368613235363a3030a46563686f",
    ),
    (
        "skill.planned",
        events.SkillPlanned("echo", SPEC, 1024),
        (
            "0195a46563686f9fa46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a973"
            "68613235363a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196"
            "a5544f4b454ec0aa484f53545f544f4b454ec3a0a0a0c0a0a0cd0400a094c0c0c0c0"
        ),
    ),
    ("skill.vanished", events.SkillVanished("echo"), "0191a46563686f"),
    ("route.unmounted", events.RouteUnmounted("echo"), "0191a46563686f"),
    (
        "skill.auto-registered",
        registration.AutoRegistered("/w/.agents/skills/echo", "sha256:00", "/w", "sha256:11"),
        "0194b62f772f2e6167656e74732f736b696c6c732f6563686fa97368613235363a3030a22f77a97368613235363a3131",
    ),
    (
        "skill.registered",
        registration.Registered("/w/.agents/skills/echo", "sha256:00", "/w", "sha256:11"),
        "0194b62f772f2e6167656e74732f736b696c6c732f6563686fa97368613235363a3030a22f77a97368613235363a3131",
    ),
    (
        "sidecar.started",
        sidecar.Started(sidecar.Birth(4711, 123456, "boot", 40123, True, "echo")),
        "019196cd1267ce0001e240a4626f6f74cd9cbbc3a46563686f",
    ),
    ("sidecar.healthy", sidecar.Healthy(), "0190"),
    ("sidecar.unhealthy", sidecar.Unhealthy("no answer"), "0191a96e6f20616e73776572"),
    ("sidecar.restart-scheduled", sidecar.RestartScheduled(2, 1000), "019202cd03e8"),
    ("sidecar.stop-requested", sidecar.StopRequested("a reload"), "0191a8612072656c6f6164"),
    ("sidecar.stopped", sidecar.Stopped(), "0190"),
    (
        "sidecar.gave-up",
        sidecar.GaveUp("it ends at once", ("TOKEN",), ("omac secrets set echo TOKEN",)),
        "0193af697420656e6473206174206f6e636591a5544f4b454e91bb6f6d6163207365637265747320736574206563686f20544f4b454e",
    ),
    (
        "access.aborted",
        access.AccessAborted(9, "client-gone", 200, 10, 20, 300),
        "019609ab636c69656e742d676f6e65ccc80a14cd012c",
    ),
    (
        "position.set-aside",
        set_aside.PositionSetAside(7, "skill.appeared", "directory/h/w", "it cannot be decoded", "sha256:22"),
        "019507ae736b696c6c2e6170706561726564ad6469726563746f72792f682f77b469742063616e6e6f74206265206465636f646564a97368613235363a3232",
    ),
    ("position.emptied", set_aside.PositionEmptied(), "0190"),
]

# Bytes that earlier versions stored: fields were appended since.
EARLIER: list[tuple[str, str]] = [
    ("route.mounted", "0193a46563686fa46563686fce00a00000"),
    ("directory.reload-requested", "0190"),
    (
        "skill.planned",
        (
            "0194a46563686f9fa46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a973"
            "68613235363a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196"
            "a5544f4b454ec0aa484f53545f544f4b454ec3a0a0a0c0a0a0cd0400a0"
        ),
    ),
    (
        "sidecar.spawn-requested",
        (
            "01939da46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a9736861323536"
            "3a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196a5544f4b45"
            "4ec0aa484f53545f544f4b454ec3a0a0a0c00101"
        ),
    ),
    (
        "skill.planned",
        (
            "0194a46563686f9da46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a973"
            "68613235363a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196"
            "a5544f4b454ec0aa484f53545f544f4b454ec3a0a0a0c0cd0400a0"
        ),
    ),
    (
        "run.started",
        "0197a86f70656e636f6465a5302e312e30cd1267ce0001e240a4626f6f7492a92f686f6d652f616461a42f73727680",
    ),
    ("run.started", "0196a86f70656e636f6465a5302e312e30cd1267ce0001e240a4626f6f7492a92f686f6d652f616461a42f737276"),
    ("sandbox.exited", "0193cc8991b42f772f2e6769742f686f6f6b732f783a206e6577a0"),
    ("sandbox.exited", "0194cc8991b42f772f2e6769742f686f6f6b732f783a206e6577a090"),
    ("access.refused", "0198c0c0a46e6f7065a27331a3474554a12fcd0194ad756e6b6e6f776e2d6d6f756e74"),
    ("control.called", "0193a86163746976617465a22f77a6736f636b6574"),
    ("control.refused", "0194a86163746976617465a22f77a3746370a96261642d746f6b656e"),
    ("skill.approved", "0192af2f772f2e736b696c6c732f6563686fa97368613235363a3030"),
    ("skill.approved", "0193af2f772f2e736b696c6c732f6563686fa97368613235363a3030a0"),
    (
        "sidecar.spawn-requested",
        (
            "01939ca46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a9736861323536"
            "3a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489196a5544f4b45"
            "4ec0aa484f53545f544f4b454ec3a0a0a00101"
        ),
    ),
    ("guard.denied", "0197a6636c61756465a55772697465a42f772f78a42f772f74a62f772f742f78a27331a573706f6f6c"),
    ("secret.write-requested", "0193a5544f4b454ea7686d61633a3030a57661756c74"),
    ("secret.written", "0193a5544f4b454ea7686d61633a3030a57661756c74"),
    ("config.written", "0192a44d4f4445a466617374"),
    (
        "sidecar.spawn-requested",
        (
            "01939ba46563686fa46563686fa22f77af2f772f2e736b696c6c732f6563686faa2f772f2e736b696c6c73a9736861323536"
            "3a3030c393a7707974686f6e33a22d6da46563686f94a72f73746174757300cd1388cd01f491a4504154489194a5544f4b45"
            "4ec0aa484f53545f544f4b454ec30101"
        ),
    ),
]


def test_the_stored_form_of_every_kind_is_known() -> None:
    assert {kind for kind, _, _ in GOLDEN} == set(KINDS)


@pytest.mark.parametrize(("kind", "event", "stored"), GOLDEN, ids=[kind for kind, _, _ in GOLDEN])
def test_the_stored_form_stays(kind: str, event: Event, stored: str) -> None:
    """The bytes of an event are those that earlier versions of omac stored, and they are read as that event."""
    assert EventMapper().decode(kind, bytes.fromhex(stored)) == event
    assert EventMapper().encode(event) == (kind, bytes.fromhex(stored))


@pytest.mark.parametrize(("kind", "stored"), EARLIER)
def test_what_earlier_versions_stored_is_read(kind: str, stored: str) -> None:
    """Fields that were appended since take their defaults."""
    assert EventMapper().decode(kind, bytes.fromhex(stored)) in [event for name, event, _ in GOLDEN if name == kind]
