"""domain/kernel/scrub.py: a routing token that lives is never recorded, in any spelling."""

import urllib.parse
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.access.access import AccessRequested
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.scrub import ROUNDS, SCRUBBED, SPELLING_CHARS_MAX, cut, scrub, scrub_text

TOKEN = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
LIVING = {token_digest(TOKEN), token_digest(OTHER)}
DEAD = "0" * 32


class Inner(msgspec.Struct, frozen=True):
    """A structure within an event."""

    text: str
    more: tuple[str, ...] = ()


class Noted(Event, frozen=True):
    """An event whose one field may hold anything that an event may hold."""

    value: Any
    beside: str = "beside"


def encoded(text: str, times: int = 1) -> str:
    """Return the text with each character percent-encoded, in as many layers as `times`."""
    for _ in range(times):
        text = "".join(f"%{ord(character):02X}" for character in text)
    return text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (TOKEN, SCRUBBED),
        (TOKEN.upper(), SCRUBBED),
        (TOKEN[:16].upper() + TOKEN[16:], SCRUBBED),
        (f"/{TOKEN}/echo?x=1", f"/{SCRUBBED}/echo?x=1"),
        (f"{TOKEN}{OTHER}", SCRUBBED * 2),
        (f"{TOKEN} and {OTHER.upper()}", f"{SCRUBBED} and {SCRUBBED}"),
        (f"abc{TOKEN}def", f"abc{SCRUBBED}def"),
        (f"{DEAD}{TOKEN}{DEAD}", f"{DEAD}{SCRUBBED}{DEAD}"),
        (f"/{encoded(TOKEN)}/x", f"/{SCRUBBED}/x"),
        (f"/{encoded(TOKEN, 2)}/x", f"/{SCRUBBED}/x"),
        (f"/{encoded(TOKEN, ROUNDS)}/x", f"/{SCRUBBED}/x"),
        (f"/0%31{TOKEN[2:]}/x", f"/{SCRUBBED}/x"),
        (f"{TOKEN}/{encoded(OTHER)}", f"{SCRUBBED}/{SCRUBBED}"),
        (f"{encoded(TOKEN)}/{encoded(OTHER, 2)}", f"{SCRUBBED}/{SCRUBBED}"),
        (urllib.parse.quote(urllib.parse.quote(f"a/{TOKEN.upper()}?")), f"a/{SCRUBBED}%253F"),
    ],
)
def test_a_living_token_is_replaced(text: str, clean: str) -> None:
    """A living token is replaced in any case, inside a longer run of digits, and under layers of percent-encoding; the
    rest stays."""
    assert scrub_text(text, LIVING) == clean


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/echo/status",
        DEAD,
        TOKEN[:-1],
        "ab" * 32,
        token_digest(TOKEN),
        f"sha256:{token_digest(TOKEN)}",
        encoded(DEAD),
        "%",
        "100%",
        "%zz" * 20,
        "%e4%b8" * 20,
        f"{TOKEN[:16]} {TOKEN[16:]}",
    ],
)
def test_all_else_is_untouched(text: str) -> None:
    """All other text stays: a digest above all, by which the journal knows a token, and text that only looks
    encoded."""
    assert scrub_text(text, LIVING) is text


def test_many_tokens_in_a_row() -> None:
    """Each token in a row is replaced, as many as a text may hold."""
    assert scrub_text(TOKEN * 5_000 + "0f", LIVING) == SCRUBBED * 5_000 + "0f"


def test_a_dead_token_is_only_text() -> None:
    """A token that does not live stays, since it opens nothing any more."""
    assert scrub_text(f"/{TOKEN}/x", set()) == f"/{TOKEN}/x"


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        (TOKEN, SCRUBBED),
        (("a", TOKEN), ("a", SCRUBBED)),
        (("a", ("b", (f"x{TOKEN}",))), ("a", ("b", (f"x{SCRUBBED}",)))),
        ({"a": TOKEN, TOKEN: "b", "c": 5}, {"a": SCRUBBED, SCRUBBED: "b", "c": 5}),
        ({"a": {"b": (TOKEN,)}}, {"a": {"b": (SCRUBBED,)}}),
        (Inner(TOKEN, ("a", TOKEN)), Inner(SCRUBBED, ("a", SCRUBBED))),
        ((Inner("a"), Inner(TOKEN)), (Inner("a"), Inner(SCRUBBED))),
    ],
)
def test_a_token_in_any_part_of_an_event(value: Any, clean: Any) -> None:
    """A token is replaced in a text, a tuple, a dict's keys and values, a structure, and in any of them within
    another."""
    assert scrub(Noted(value), LIVING) == Noted(clean)


@pytest.mark.parametrize("value", ["x" * 40, ("a", ("b",)), {"a": {"b": 1}}, Inner("a"), None, 5, 0.5, b"x", True, ()])
def test_an_event_without_one_stays_itself(value: Any) -> None:
    """An event without a token is not copied."""
    event = Noted(value)
    assert scrub(event, LIVING) is event


def test_what_a_caller_sends_is_scrubbed() -> None:
    """A token that an agent puts into a path or a session is not recorded."""
    event = AccessRequested("/w", "echo", f"m-{TOKEN}", encoded(TOKEN), "GET", f"/{TOKEN.upper()}/x")
    assert scrub(event, LIVING) == AccessRequested("/w", "echo", f"m-{SCRUBBED}", SCRUBBED, "GET", f"/{SCRUBBED}/x")


@pytest.mark.parametrize("rounds", range(ROUNDS + 1))
@pytest.mark.parametrize("missing", [1, 31])
def test_a_cut_leaves_no_part_of_a_token(rounds: int, missing: int) -> None:
    """A text that is cut within a token, in any spelling, ends before it; one that is cut elsewhere stays long."""
    spelled = TOKEN
    for _ in range(rounds):
        spelled = encoded(spelled)
    text = "/" + "z" * 999 + "/" + spelled
    assert cut(text, len(text) - missing) == "/" + "z" * 999 + "/"
    assert cut(text, len(text)) == text
    assert cut("/" + "a" * 3000, 2000) == "/" + "a" * (1999 - SPELLING_CHARS_MAX)


PARTS = (TOKEN, TOKEN.upper(), OTHER, encoded(TOKEN), encoded(OTHER, 2), DEAD, "a", "%", "%41", "/", "é", "0f")


@given(st.lists(st.sampled_from(PARTS), max_size=8))
def test_no_token_stays_in_any_text(parts: list[str]) -> None:
    """No token stays in any layer of a text, whatever is around it."""
    text = "".join(parts)
    clean = scrub_text(text, LIVING)
    for _ in range(ROUNDS + 1):
        assert TOKEN not in clean.lower()
        assert OTHER not in clean.lower()
        clean = urllib.parse.unquote(clean, "latin-1")
