"""A cookie reaches the skill that set it, and no other."""

import http.cookiejar
import urllib.request
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.facade.cookies import confined

PREFIX, SEEN = b"/s3cr3t/fast", b"/fast"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a=1", b"a=1; Path=/s3cr3t/fast/sub"),
        (b"a=1; Path", b"a=1; Path=/s3cr3t/fast/sub"),
        (b"a=1; Path=x", b"a=1; Path=/s3cr3t/fast/sub"),
        (b"a=1;Path=/", b"a=1; Path=/s3cr3t/fast"),
        (b"a=1; path = /b ; HttpOnly", b"a=1; HttpOnly; Path=/s3cr3t/fast/b"),
        (b"a=1; PATH=/b; Path=/", b"a=1; Path=/s3cr3t/fast"),
        (b"a=1; Path=/fast/b", b"a=1; Path=/s3cr3t/fast/b"),
        (b"a=1; Path=/fast", b"a=1; Path=/s3cr3t/fast"),
        (b"a=1; Path=/faster", b"a=1; Path=/s3cr3t/fast/faster"),
        (b"a=1; Path=/s3cr3t/fast/b", b"a=1; Path=/s3cr3t/fast/b"),
        (b"a=1; Path=/s3cr3t/other", b"a=1; Path=/s3cr3t/fast/s3cr3t/other"),
        (b"a=1; Domain=127.0.0.1; Secure; dOMAIN=.localhost", b"a=1; Secure; Path=/s3cr3t/fast/sub"),
        (b"a=1; Max-Age=5; SameSite=Lax; Path=/", b"a=1; Max-Age=5; SameSite=Lax; Path=/s3cr3t/fast"),
        (b"__Secure-a=1; Secure; Path=/", b"__Secure-a=1; Secure; Path=/s3cr3t/fast"),
        (b"__Host-a=1; Secure; Path=/", None),
        (b" __hOST-a=1", None),
        (b"a=1" + 32 * b";", b"a=1; " + 32 * b"; " + b"Path=/s3cr3t/fast/sub"),
        (b"a=1" + 33 * b";", None),
    ],
)
def test_where_a_cookie_goes(value: bytes, expected: bytes | None) -> None:
    """The facade sets Path to the mount or below it, drops Domain, and keeps other attributes."""
    assert confined(value, PREFIX, SEEN, b"/sub") == expected


def test_without_a_token_the_prefix_is_the_mount() -> None:
    """A cookie's path is the mount's, without a token, on the socket of a run with one directory."""
    assert confined(b"a=1; Path=/fast/b", SEEN, SEEN, b"") == b"a=1; Path=/fast/b"
    assert confined(b"a=1; Path=/b", SEEN, SEEN, b"") == b"a=1; Path=/fast/b"


def test_a_requested_path_adds_no_attribute() -> None:
    """The client chooses the path that it requests; a semicolon in it ends no attribute."""
    assert confined(b"a=1", PREFIX, SEEN, b"/x;Domain=y") == b"a=1; Path=/s3cr3t/fast"


def test_a_shared_skill_has_a_mount_of_two_parts() -> None:
    """A skill with a mount of two parts sees both of them in its prefix."""
    prefix, mount = b"/s3cr3t/__global__/fast", b"/__global__/fast"
    assert confined(b"a=1; Path=/__global__/fast/b", prefix, mount, b"") == b"a=1; Path=/s3cr3t/__global__/fast/b"
    rewritten = confined(b"a=1; Path=/__global__/other", prefix, mount, b"")
    assert rewritten == b"a=1; Path=/s3cr3t/__global__/fast/__global__/other"


@given(st.text(st.sampled_from('a=;/ \t,"._-PpathDdomain'), max_size=60))
def test_no_cookie_reaches_a_neighbour(attributes: str) -> None:
    """A client that takes the rewritten cookie sends it to no other path than the skill's."""
    value = confined(b"a=1;" + attributes.encode(), PREFIX, SEEN, b"/sub")
    assert value is not None
    text = value.decode()
    jar = http.cookiejar.CookieJar()

    class Response:
        def info(self) -> Message:
            head = Message()
            head["Set-Cookie"] = text
            return head

    request = urllib.request.Request("http://127.0.0.1:1/s3cr3t/fast/sub/x")
    jar.extract_cookies(Response(), request)  # type: ignore[arg-type]  # of a response, only the head is read
    for path in ("/", "/s3cr3t", "/s3cr3t/", "/s3cr3t/other/x", "/s3cr3t/faster", "/0ther/fast/x"):
        neighbour = urllib.request.Request(f"http://127.0.0.1:1{path}")
        jar.add_cookie_header(neighbour)
        assert not neighbour.has_header("Cookie"), (path, value)
