"""Who is turned away from the control plane, over real sockets of a real server."""

import os
import stat
from collections import Counter

import pytest
from polling import eventually
from real_omac import Answer, Omac, Serving

from omac.domain.access.control import ControlRefused


@pytest.fixture
def bearer(server: Serving) -> str:
    """The header that opens TCP."""
    return f"Authorization: Bearer {server.token}"


@pytest.fixture(scope="module")
def refusals() -> list[str]:
    """The reasons that the calls of these tests were refused for, for `test_every_refusal_is_counted`."""
    return []


def denied(answer: Answer, status: int, reason: str) -> None:
    """It is the refusal, in the form every refusal has."""
    assert (answer.status, answer.headers["x-omac-reason"]) == (status, reason), answer
    told = answer.json()
    assert told["reason"] == reason
    assert told["error"]


def test_tcp_wants_the_token(server: Serving, bearer: str, refusals: list[str]) -> None:
    """No token, a wrong one, the right one twice, in part, or in another scheme: 401, recorded; the right one: 200."""
    wrong = [
        (),
        ("-H", "Authorization: Bearer " + "0" * 64),
        ("-H", "Authorization: Bearer"),
        ("-H", f"Authorization: Bearer {server.token[:-1]}"),
        ("-H", f"Authorization: bearer {server.token}"),
        ("-H", f"Authorization: Basic {server.token}"),
        ("-H", f"Authorization: {server.token}"),
        ("-H", bearer, "-H", bearer),
        ("-H", bearer, "-H", "Authorization: Bearer x"),
        ("-H", "Authorization: Bearer \xff"),
    ]
    for headers in wrong:
        answer = server.call_tcp("dirs", *headers)
        denied(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert server.token not in answer.body
        refusals.append("unauthorized")
    assert server.call_tcp("dirs", "-H", bearer).status == 200
    assert server.call_tcp("dirs", "-H", f"authorization: Bearer {server.token}").status == 200


def test_the_private_socket_wants_none(server: Serving) -> None:
    """Whoever may connect to a 0600 socket is the person who runs omac."""
    assert server.call("dirs").status == 200


def test_only_loopback_names_are_answered(server: Serving, bearer: str, refusals: list[str]) -> None:
    """A name that was rebound to 127.0.0.1 brings its own Host, and gets nowhere; so does none, or a look-alike."""
    hosts = [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "0.0.0.0",
        "127.0.0.1:1:2",
        "1270.0.0.1",
    ]
    for host in hosts:
        denied(server.call_tcp("dirs", "-H", bearer, "-H", f"Host: {host}"), 421, "misdirected-host")
        refusals.append("misdirected-host")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:99"):
        assert server.call_tcp("dirs", "-H", bearer, "-H", f"Host: {host}").status == 200


def test_web_pages_are_not_answered(server: Serving, bearer: str, refusals: list[str]) -> None:
    """A foreign Origin, an opaque one, or a fetch across sites is refused even with the token."""
    pages = [
        "Origin: https://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1.evil.example",
        "Sec-Fetch-Site: cross-site",
    ]
    for header in pages:
        denied(server.call_tcp("dirs", "-H", bearer, "-H", header), 403, "foreign-origin")
        refusals.append("foreign-origin")
    for header in ("Origin: http://127.0.0.1:5173", "Origin: http://localhost", "Sec-Fetch-Site: same-origin"):
        assert server.call_tcp("dirs", "-H", bearer, "-H", header).status == 200


def test_a_refusal_does_nothing(house: Omac, server: Serving, refusals: list[str]) -> None:
    """A call that is turned away changes nothing: the directory stays offline, only the refusal is recorded."""
    project = house.project("untouched")
    answer = server.call_tcp("activate", "--json", f'{{"dir": "{project}"}}')
    denied(answer, 401, "unauthorized")
    refusals.append("unauthorized")
    assert server.call("dirs").json() == {"dirs": []}


def test_hostile_paths_are_recorded_in_short(house: Omac, server: Serving, refusals: list[str]) -> None:
    """However long or odd a refused path is, what is recorded of it is short text."""
    for path in ("x" * 5_000, "%ff%fe%01", "a/../../b", "%1b%5b31m"):
        denied(server.call_tcp(path, "-g", "--path-as-is"), 401, "unauthorized")
        refusals.append("unauthorized")
    for one in house.events(ControlRefused):
        assert isinstance(one.event, ControlRefused)
        assert len(one.event.action) <= 64
        assert (one.event.listener, one.actor) == ("tcp", "bridge")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_no_other_protocol_is_offered(server: Serving, bearer: str, refusals: list[str], protocol: str) -> None:
    """An upgrade is refused with and without the token, recorded, and the server goes on."""
    upgrade = (
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {protocol}",
        "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'A' * 22}==",
    )
    headers = [argument for header in upgrade for argument in ("-H", header)]
    denied(server.call_tcp("dirs", *headers), 401, "unauthorized")
    denied(server.call_tcp("dirs", "-H", bearer, *headers), 400, "bad-request")
    refusals += ["unauthorized", "bad-request"]
    assert server.call("dirs").status == 200


@pytest.mark.full
def test_every_refusal_is_counted(house: Omac, server: Serving, refusals: list[str]) -> None:
    """However many there were of a kind, all are in the journal, in a few events."""
    for _ in range(3):
        denied(server.call_tcp("dirs"), 401, "unauthorized")
        refusals.append("unauthorized")

    def recorded() -> Counter[str]:
        counts: Counter[str] = Counter()
        for one in house.events(ControlRefused):
            assert isinstance(one.event, ControlRefused)
            counts[one.event.reason] += one.event.count
        return counts

    eventually(lambda: recorded() == Counter(refusals), 25.0, f"{Counter(refusals)}")
    assert len(house.events(ControlRefused)) < len(refusals)


def test_places_are_private(server: Serving) -> None:
    """The socket, the token and all folders above them up to the state directory are the owner's alone."""
    for key in ("control_socket", "control_token_file", "facade_socket"):
        assert stat.S_IMODE(os.stat(server.ready[key]).st_mode) == 0o600
    folder = os.path.dirname(server.ready["control_socket"])
    for place in (
        folder,
        os.path.join(folder, "logs"),
        os.path.dirname(folder),
        os.path.dirname(os.path.dirname(folder)),
    ):
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o700, place
    assert len(bytes.fromhex(server.token)) == 32
