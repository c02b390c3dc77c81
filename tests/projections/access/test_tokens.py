"""projections/access/tokens.py: the directory that a routing token opens, by the token's digest."""

import pytest

from omac.domain.directories.events import (
    ActivationFailed,
    ActivationRequested,
    DeactivationRequested,
    SessionAdmitted,
    SessionEnded,
)
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.projections.access.tokens import TokenIndex

SHOP, BLOG = StreamId("directory/h/shop"), StreamId("directory/h/blog")


def apply(index: TokenIndex, stream: StreamId, *events: Event) -> None:
    for event in events:
        index.apply(Recorded(1, stream, 1, 0, "r", "omac", None, None, event))


@pytest.fixture
def index() -> TokenIndex:
    """Return an index of two directories with a session each."""
    index = TokenIndex()
    for stream, name in ((SHOP, "shop"), (BLOG, "blog")):
        apply(index, stream, ActivationRequested(f"/{name}", "opencode", TokenDigest(name)))
        apply(index, stream, SessionAdmitted("s1", TokenDigest(f"{name}-s1")))
    return index


def test_tokens_open_their_directory(index: TokenIndex) -> None:
    """Launch tokens and the tokens of sessions open their directory."""
    assert index.streams == {"shop": SHOP, "shop-s1": SHOP, "blog": BLOG, "blog-s1": BLOG}


@pytest.mark.parametrize("end", [DeactivationRequested("x"), ActivationFailed("x")])
def test_an_end_kills_the_tokens_of_its_directory(index: TokenIndex, end: Event) -> None:
    """The end of a directory ends all of its tokens, and none of another's."""
    apply(index, SHOP, end)
    assert index.streams == {"blog": BLOG, "blog-s1": BLOG}


def test_the_next_activation_has_other_tokens(index: TokenIndex) -> None:
    """A new activation has other tokens, and the old ones stay dead."""
    apply(index, SHOP, DeactivationRequested("x"), ActivationRequested("/shop", "opencode", TokenDigest("new")))
    assert index.streams == {"blog": BLOG, "blog-s1": BLOG, "new": SHOP}


def test_no_other_event_concerns_it() -> None:
    """The index takes only the events that begin or end tokens."""
    ends = {SessionEnded, ActivationFailed, DeactivationRequested}
    assert set(TokenIndex.EVENTS) == {ActivationRequested, SessionAdmitted} | ends


def test_a_session_ends_alone(index: TokenIndex) -> None:
    """A session that ends loses its token; the other tokens of its directory stay valid."""
    apply(index, SHOP, SessionEnded("s1", TokenDigest("shop-s1")))
    assert index.streams == {"shop": SHOP, "blog": BLOG, "blog-s1": BLOG}
