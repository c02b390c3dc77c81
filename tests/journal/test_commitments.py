"""Commitments: a field is read as it was recorded, or as "(erased)" where its key is gone, and never otherwise."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.access.access import AccessRefused, AccessRequested
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import WorkdirId, workdir_id
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.inspection import Inspected
from omac.domain.sandbox.launch import Denied, LaunchExited, LaunchRequested
from omac.journal.codec import Codec, EncodedEvent
from omac.journal.commitments import Commitments
from omac.journal.event_kinds import KIND_OF, KINDS
from omac.journal.personal_fields import PERSONAL

STREAM = "access/h"
REQUEST = AccessRequested("/w", "echo", "echo", "s1", "GET", "/private")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WORDS = st.lists(TEXTS, max_size=4).map(tuple)
EVENTS = st.one_of(
    st.builds(AccessRequested, TEXTS, TEXTS, TEXTS, st.none() | TEXTS, TEXTS, TEXTS),
    st.builds(AccessRefused, st.none() | TEXTS, st.none(), TEXTS, st.none() | TEXTS, TEXTS, TEXTS, st.just(404), TEXTS),
    st.builds(LaunchRequested, TEXTS, TEXTS, TEXTS, TEXTS, WORDS, TEXTS, st.just(1), st.just(2), TEXTS, TEXTS),
    st.builds(LaunchExited, st.none() | st.integers(0, 255), WORDS, TEXTS, WORDS, TEXTS),
    st.builds(Denied, TEXTS, TEXTS, WORDS, TEXTS, TEXTS),
    st.builds(Inspected, WORDS, WORDS, WORDS),
    st.builds(GuardDenied, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | TEXTS),
)


class Keys:
    """Keys in memory."""

    def __init__(self) -> None:
        self.kept: dict[WorkdirId, tuple[bytes, ...]] = {}

    def current(self, subject: WorkdirId) -> tuple[bytes, ...]:
        return self.kept.get(subject, ())

    def minted(self, subject: WorkdirId) -> tuple[bytes, ...]:
        return self.kept.setdefault(subject, (os.urandom(32),))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the codec fetch its keys each time."""
    monkeypatch.setattr("omac.journal.subject_ciphers.LEASE_S", -1)


def codec_with(keys: Keys | None) -> Codec:
    codec = Codec()
    codec.commitments = Commitments(keys)
    return codec


def read(codec: Codec, stored: EncodedEvent) -> Event:
    return codec.decode(stored.topic, stored.state, stored.sealed, stored.originator_id)


def changed(event: Event, names: Sequence[str], erased: Event) -> bool:
    """Return whether only these fields of an erased event differ from the event."""
    return all(name in names or getattr(event, name) == getattr(erased, name) for name in event.__struct_fields__)


@given(event=EVENTS)
def test_it_is_read_as_it_was(event: Event) -> None:
    """A codec that has the key, in this process or another, reads an event as it was. Without the key its personal
    fields are erased, and no others."""
    keys = Keys()
    stored = codec_with(keys).stored(STREAM, None, event)
    assert read(codec_with(keys), stored) == event
    codec = codec_with(keys)
    assert [read(codec, stored) for _ in range(2)] == [event, event]
    erased = read(codec_with(None), stored)
    names = PERSONAL[stored.topic].names
    assert changed(event, names, erased)
    if stored.sealed is None:
        assert erased == event
    else:
        filled = [name for name in names if getattr(event, name)]
        assert all(getattr(erased, name) in ("(erased)", ("(erased)",)) for name in filled)
        assert changed(event, filled, erased)
        assert read(codec_with(Keys()), stored) == erased


@given(event=EVENTS)
def test_nothing_of_it_is_in_the_clear(event: Event) -> None:
    """A personal field of some length is neither in the body nor in the ciphertext."""
    stored = codec_with(Keys()).stored(STREAM, None, event)
    personal = PERSONAL[stored.topic]
    if stored.sealed is None:
        return
    clear = msgspec.msgpack.encode(
        [getattr(event, name) for name in event.__struct_fields__ if name not in personal.names]
    )
    for name in personal.names:
        value = getattr(event, name)
        for text in value if isinstance(value, tuple) else (value or "",):
            if len(text) >= 6 and text.encode() not in clear:
                assert text.encode() not in stored.state + stored.sealed


@given(event=EVENTS)
def test_a_fold_leaves_them_closed(event: Event) -> None:
    """A fold leaves fields sealed where that is quicker; it opens those that a state keeps, and alters no others."""
    codec = codec_with(Keys())
    stored = codec.stored(STREAM, None, event)
    folded = read(codec.folding(), stored)
    if stored.sealed is not None and type(event) is AccessRequested:
        assert folded == read(codec_with(None), stored)
    else:
        assert folded == event


def test_each_has_a_salt_and_a_nonce_of_its_own() -> None:
    """Equal events have different stored forms, so that nothing shows that they are equal."""
    codec = codec_with(Keys())
    stored = {codec.stored(STREAM, None, REQUEST) for _ in range(20)}
    assert len({record.state for record in stored}) == len({record.sealed for record in stored}) == 20


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("part", ["state", "sealed"])
def test_a_flipped_bit_is_found(part: str, is_known: bool) -> None:
    """A flipped bit of a commitment, the nonce or the ciphertext is noticed; one of the key's id erases the fields."""
    keys = Keys()
    codec = codec_with(keys)
    stored = codec.stored(STREAM, None, REQUEST)
    content = getattr(stored, part)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        reading = codec if is_known else codec_with(keys)
        event = None
        with suppress(Refusal):
            event = read(reading, msgspec.structs.replace(stored, **{part: bytes(flipped)}))
        assert event != REQUEST
        assert event is None or "(erased)" in str(event) or part == "state"


def test_it_belongs_to_its_event() -> None:
    """Sealed fields are refused with another event, stream or kind, or if missing; empty ones read as erased."""
    keys = Keys()
    codec = codec_with(keys)
    first, second = (codec.stored(STREAM, None, REQUEST) for _ in range(2))
    moved = [
        msgspec.structs.replace(first, sealed=second.sealed),
        msgspec.structs.replace(first, sealed=None),
        msgspec.structs.replace(first, originator_id="access/other"),
        msgspec.structs.replace(first, sealed=b""),
        msgspec.structs.replace(codec_with(None).stored(STREAM, None, REQUEST), sealed=first.sealed),
    ]
    for reading in (codec, codec_with(keys)):
        for altered in moved[:3] + moved[4:]:
            with pytest.raises(Refusal, match="cannot be decoded"):
                read(reading, altered)
        assert "(erased)" in str(read(reading, moved[3]))
    assert codec.commitments.plain("access.requested", STREAM, first.state, first.sealed or b"")
    with pytest.raises(ValueError, match="were changed"):
        codec.commitments.plain("access.refused", STREAM, first.state, first.sealed or b"")


def test_keys_of_several_directories() -> None:
    """Findings of two directories together are erased with the key of either."""
    event = Inspected(("00aa",), ("/w/shop", "/w/other"), ("private",))
    for directory in ("/w/shop", "/w/other"):
        keys = Keys()
        codec = codec_with(keys)
        stored = codec.stored("inspection/h", None, event)
        assert read(codec, stored) == event
        del keys.kept[workdir_id(directory)]
        assert read(codec, stored) == msgspec.structs.replace(event, findings=("(erased)",))
        keys.minted(workdir_id(directory))
        assert read(codec, stored) != event


def test_an_older_key_still_reads() -> None:
    """An older key that a backup brought back still decrypts; it comes before the key that encrypts."""
    keys, subject = Keys(), workdir_id("/w")
    codec = codec_with(keys)
    older = codec.stored(STREAM, None, REQUEST)
    keys.kept[subject] = (*keys.kept[subject], bytes(32))
    newer = codec.stored(STREAM, None, REQUEST)
    assert (older.sealed or b"")[:8] != (newer.sealed or b"")[:8]
    assert [read(codec, record) for record in (older, newer)] == [REQUEST, REQUEST]
    assert read(codec_with(keys), older) == REQUEST


def test_every_personal_field_exists() -> None:
    """Every personal field exists and can be erased, as a text or a list of texts; none names the directory."""
    for kind, personal in PERSONAL.items():
        cls = KINDS[kind][1]
        assert KIND_OF[cls] == kind
        fields = {field.name: field.type for field in msgspec.structs.fields(cls)}
        assert personal.directory in fields.keys() - set(personal.names)
        assert all(fields[name] in (str, str | None, tuple[str, ...]) for name in personal.names)


FORKED = """
import os
from omac.journal.commitments import _random
_random()  # others are drawn with it
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, _random())
    os._exit(0)
assert os.read(read, 1_000) != _random()
"""


def test_a_child_draws_its_own_nonces() -> None:
    """Two processes, one of which comes from the other, never encrypt with the same nonce."""
    subprocess.run([sys.executable, "-c", FORKED], check=True)
