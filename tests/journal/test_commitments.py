"""Commitments: what is read is what was recorded, "(erased)" where the key is gone, and nothing else."""

import os
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
    """Keys are asked for each time."""
    monkeypatch.setattr("omac.journal.subject_ciphers.LEASE_S", -1)


def codec_with(keys: Keys | None) -> Codec:
    codec = Codec()
    codec.commitments = Commitments(keys)
    return codec


def read(codec: Codec, stored: EncodedEvent) -> Event:
    return codec.decode(stored.topic, stored.state, stored.sealed, stored.originator_id)


def changed(event: Event, names: Sequence[str], erased: Event) -> bool:
    """Whether only these fields of an erased event are others than they were."""
    return all(name in names or getattr(event, name) == getattr(erased, name) for name in event.__struct_fields__)


@given(event=EVENTS)
def test_it_is_read_as_it_was(event: Event) -> None:
    """By whoever has the key, in this process or another; without it its personal fields are erased, and no others."""
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
    """Neither body nor ciphertext holds a personal field of some length."""
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
    """Where that is quicker; what a state keeps is opened, and all else is as it was."""
    codec = codec_with(Keys())
    stored = codec.stored(STREAM, None, event)
    folded = read(codec.folding(), stored)
    if stored.sealed is not None and type(event) is AccessRequested:
        assert folded == read(codec_with(None), stored)
    else:
        assert folded == event


def test_each_has_a_salt_and_a_nonce_of_its_own() -> None:
    """Equal events are not seen to be equal."""
    codec = codec_with(Keys())
    stored = {codec.stored(STREAM, None, REQUEST) for _ in range(20)}
    assert len({one.state for one in stored}) == len({one.sealed for one in stored}) == 20


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("part", ["state", "sealed"])
def test_a_flipped_bit_is_found(part: str, is_known: bool) -> None:
    """Of a commitment, the nonce or the ciphertext; of the key's id, it is as if the key were gone."""
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
    """Sealed fields of one event are not those of another, of another stream, or of another kind."""
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
        for one in moved[:3] + moved[4:]:
            with pytest.raises(Refusal, match="cannot be decoded"):
                read(reading, one)
        assert "(erased)" in str(read(reading, moved[3]))


def test_keys_of_several_directories() -> None:
    """What was found in two directories together is gone with the key of either."""
    event = Inspected(("00aa",), ("/w/shop", "/w/other"), ("private",))
    for gone in ("/w/shop", "/w/other"):
        keys = Keys()
        codec = codec_with(keys)
        stored = codec.stored("inspection/h", None, event)
        assert read(codec, stored) == event
        del keys.kept[workdir_id(gone)]
        assert read(codec, stored) == msgspec.structs.replace(event, findings=("(erased)",))
        keys.minted(workdir_id(gone))
        assert read(codec, stored) != event


def test_an_older_key_still_reads() -> None:
    """One that a backup brought back stands before the one that encrypts."""
    keys, subject = Keys(), workdir_id("/w")
    codec = codec_with(keys)
    older = codec.stored(STREAM, None, REQUEST)
    keys.kept[subject] = (*keys.kept[subject], bytes(32))
    newer = codec.stored(STREAM, None, REQUEST)
    assert (older.sealed or b"")[:8] != (newer.sealed or b"")[:8]
    assert [read(codec, one) for one in (older, newer)] == [REQUEST, REQUEST]
    assert read(codec_with(keys), older) == REQUEST


def test_every_personal_field_exists() -> None:
    """And can be erased: it is a text or a list of texts; the field that names the directory is none of them."""
    for kind, personal in PERSONAL.items():
        cls = KINDS[kind][1]
        assert KIND_OF[cls] == kind
        fields = {field.name: field.type for field in msgspec.structs.fields(cls)}
        assert personal.directory in fields.keys() - set(personal.names)
        assert all(fields[name] in (str, str | None, tuple[str, ...]) for name in personal.names)
