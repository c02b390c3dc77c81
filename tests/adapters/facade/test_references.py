"""References of a skill to itself lead its client back to the skill. All other references stay as they are."""

import re
import time
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.facade.references import referred

PREFIX, MOUNT, PORT = b"/s3cr3t/fast", b"/fast", 4711


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"/fast", b"/s3cr3t/fast"),
        (b"/fast/x?y#z", b"/s3cr3t/fast/x?y#z"),
        (b"/fast?y", b"/s3cr3t/fast?y"),
        (b"/fast#z", b"/s3cr3t/fast#z"),
        (b"http://127.0.0.1:4711/x", b"/s3cr3t/fast/x"),
        (b"HTTP://LocalHost:4711/fast/x", b"/s3cr3t/fast/x"),
        (b"http://[::1]:4711", b"/s3cr3t/fast/"),
        (b"//127.0.0.1:4711?q", b"/s3cr3t/fast/?q"),
        # others are untouched
        (b"/", b"/"),
        (b"/x", b"/x"),
        (b"/faster", b"/faster"),
        (b"/fast%2Fx", b"/fast%2Fx"),
        (b"x", b"x"),
        (b"?q", b"?q"),
        (b"", b""),
        (b"/s3cr3t/fast/x", b"/s3cr3t/fast/x"),
        (b"http://127.0.0.1:47110/x", b"http://127.0.0.1:47110/x"),
        (b"http://127.0.0.1/fast/x", b"http://127.0.0.1/fast/x"),
        (b"http://127.0.0.1:4711@example.com/", b"http://127.0.0.1:4711@example.com/"),
        (b"http://example.com:4711/fast/x", b"http://example.com:4711/fast/x"),
        (b"https://127.0.0.1:4711/x", b"https://127.0.0.1:4711/x"),
        (b"//example.com/fast", b"//example.com/fast"),
        (b"mailto:/fast", b"mailto:/fast"),
    ],
)
def test_where_a_reference_leads(value: bytes, expected: bytes) -> None:
    """A reference below the prefix, or to the skill's own host and port, is rewritten in all three fields."""
    assert referred(b"location", value, PREFIX, MOUNT, PORT) == expected
    assert referred(b"content-location", value, PREFIX, MOUNT, PORT) == expected
    assert referred(b"link", b"<%b>; rel=next" % value, PREFIX, MOUNT, PORT) == b"<%b>; rel=next" % expected


def test_a_link_field_has_several_targets() -> None:
    """The facade rewrites each target of a Link field by itself, and no text in a quoted parameter."""
    value = b'</fast/a>; rel=next, < /fast/b >; title="</fast/c>, \\"</fast/d>", </e>; rel="up"'
    assert referred(b"link", value, PREFIX, MOUNT, PORT) == (
        b'</s3cr3t/fast/a>; rel=next, </s3cr3t/fast/b>; title="</fast/c>, \\"</fast/d>", </e>; rel="up"'
    )


@pytest.mark.parametrize("value", [b"<" * 60_000, b"<a" * 30_000, b'"\\' * 30_000, b'"' * 59_999, b'"x\\"' * 15_000])
def test_a_link_field_that_does_not_end(value: bytes) -> None:
    """The facade leaves an unterminated Link field as it is, and reads it quickly: all other calls wait meanwhile."""
    began = time.process_time()
    assert referred(b"link", value, PREFIX, MOUNT, PORT) == value
    assert time.process_time() - began < 0.1


@given(st.text(st.sampled_from('<>"\\/fast ;,'), max_size=40))
def test_a_link_field_is_read_as_its_parts(value: str) -> None:
    """The facade reads a Link field by its grammar: text in a quoted parameter or outside any part stays."""
    text, at, expected = value.encode(), 0, b""
    while at < len(text):
        part = re.match(rb'"(?:[^"\\]|\\.)*"|<[^>]*>', text[at:])
        if part is None and text[at : at + 1] in (b'"', b"<"):
            break  # it does not end
        piece = part[0] if part else text[at : at + 1]
        if piece.startswith(b"<"):
            target = referred(b"location", piece[1:-1].strip(), PREFIX, MOUNT, PORT)
            expected += b"<%b>" % target
        else:
            expected += piece
        at += len(piece)
    assert referred(b"link", text, PREFIX, MOUNT, PORT) == expected + text[at:]


def test_without_a_token_the_prefix_is_the_mount() -> None:
    """A path below the prefix stays as it is on the socket of a run with one directory."""
    assert referred(b"location", b"/fast/x", MOUNT, MOUNT, PORT) == b"/fast/x"
    assert referred(b"location", b"http://127.0.0.1:4711/x", MOUNT, MOUNT, PORT) == b"/fast/x"


@given(st.text(st.sampled_from("/fast:.?#@127401[]ehtp%"), max_size=30))
def test_a_client_never_gets_to_another_mount_by_a_rewrite(value: str) -> None:
    """Every rewritten reference resolves to a path at the skill's mount."""
    rewritten = referred(b"location", value.encode(), PREFIX, MOUNT, PORT).decode()
    if rewritten != value:
        assert urllib.parse.urlsplit(rewritten).netloc == ""
        assert urllib.parse.urlsplit(rewritten).path.split("/")[:3] == ["", "s3cr3t", "fast"]
