"""Callers that the control plane refuses, over real sockets of a real server."""

import os
import stat
from collections import Counter

import pytest
from polling import eventually
from real_omac import Answer, Omac, Serving

from omac.domain.access.control import ControlRefused
from omac.domain.kernel.event import Event


@pytest.fixture
def bearer(server: Serving) -> str:
    """Return the header that authorizes a call over TCP."""
    return f"Authorization: Bearer {server.token}"


@pytest.fixture(scope="module")
def refusals() -> list[str]:
    """Return the list of this module's refusals, by reason, which `test_every_refusal_is_counted` compares."""
    return []


def denied(answer: Answer, status: int, reason: str) -> None:
    """Assert that an answer is this refusal, in the form of every refusal."""
    assert (answer.status, answer.headers["x-omac-reason"]) == (status, reason), answer
    document = answer.json()
    assert document["reason"] == reason
    assert document["error"]


@pytest.mark.full
def test_tcp_wants_the_token(server: Serving, bearer: str, refusals: list[str]) -> None:
    """A call over TCP needs the token. No token, a wrong one, a part of it, the token twice or in another scheme is a
    401, which is recorded."""
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
    """The private socket needs no token: only the user who runs omac can connect to a 0600 socket."""
    assert server.call("dirs").status == 200


def test_only_loopback_names_are_answered(server: Serving, bearer: str, refusals: list[str]) -> None:
    """A DNS name rebound to 127.0.0.1 brings its own Host and is refused. So are look-alikes of loopback names. A
    request without a Host is a bad request."""
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
    denied(server.call_tcp("dirs", "-H", bearer, "-H", "Host:"), 400, "bad-request")
    refusals.append("bad-request")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:99"):
        assert server.call_tcp("dirs", "-H", bearer, "-H", f"Host: {host}").status == 200


def test_web_pages_are_not_answered(server: Serving, bearer: str, refusals: list[str]) -> None:
    """A foreign Origin, an opaque one or a cross-site fetch is refused even with the token."""
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
    """A refused call changes nothing: the directory stays offline, and only the refusal is recorded."""
    project = house.project("untouched")
    before = len(house.events())
    answer = server.call_tcp("activate", "--json", f'{{"dir": "{project}"}}')
    denied(answer, 401, "unauthorized")
    refusals.append("unauthorized")
    assert str(project) not in [entry["dir"] for entry in server.call("dirs").json()["dirs"]]

    def recorded() -> list[Event]:
        return [record.event for record in house.events()[before:]]

    eventually(lambda: "activate" in [getattr(event, "action", "") for event in recorded()], 25.0, "the refusal")
    assert {type(event) for event in recorded()} == {ControlRefused}


def test_hostile_paths_are_recorded_in_short(house: Omac, server: Serving, refusals: list[str]) -> None:
    """The journal records a short text for a refused path, however long or odd the path is."""
    for path in ("x" * 5_000, "%ff%fe%01", "a/../../b", "%1b%5b31m"):
        denied(server.call_tcp(path, "-g", "--path-as-is"), 401, "unauthorized")
        refusals.append("unauthorized")
    for record in house.events(ControlRefused):
        assert isinstance(record.event, ControlRefused)
        assert len(record.event.action) <= 64
        assert (record.event.listener, record.actor) == ("tcp", "bridge")


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
    """The journal counts all refusals, however many of a kind, in a few events."""
    for _ in range(3):
        denied(server.call_tcp("dirs"), 401, "unauthorized")
        refusals.append("unauthorized")

    def recorded() -> Counter[str]:
        counts: Counter[str] = Counter()
        for record in house.events(ControlRefused):
            assert isinstance(record.event, ControlRefused)
            counts[record.event.reason] += record.event.count
        return counts

    eventually(lambda: recorded() == Counter(refusals), 25.0, f"{Counter(refusals)}")
    assert len(house.events(ControlRefused)) < len(refusals)


def test_places_are_private(server: Serving) -> None:
    """The sockets, the token and all folders above them up to the state directory are accessible to the owner alone."""
    for key in ("control_socket", "control_token_file", "facade_socket"):
        assert stat.S_IMODE(os.stat(server.ready[key]).st_mode) == 0o600
    folder = os.path.dirname(server.ready["control_socket"])
    for path in (
        folder,
        os.path.join(folder, "logs"),
        os.path.dirname(folder),
        os.path.dirname(os.path.dirname(folder)),
    ):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700, path
    assert len(bytes.fromhex(server.token)) == 32
