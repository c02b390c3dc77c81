"""Calls that are under way when their capability ends: cut within a second, and recorded with the reason; also through
`__global__`, where the sidecar lives on."""

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from polling import eventually
from real_omac import Omac, Serving, curl
from streaming_skill import META, PROGRAM

from omac.adapters.facade.addressing import PATH_CHARS_MAX
from omac.domain.access.access import AccessBatchAborted


def quoted(text: str) -> str:
    """Return a text with each of its characters percent-encoded."""
    return "".join(f"%{ord(char):02x}" for char in text)


class Scene:
    """A server with a directory that has the skill `own`, and the skill `all` that every directory shares."""

    def __init__(self, omac: Omac) -> None:
        self.omac = omac
        self.project = omac.root / "p"
        omac.skill(self.project, "own", META.format(name="own"), PROGRAM)
        shared = Path(omac.environment["HOME"], ".agents", "skills", "all")
        shared.mkdir(parents=True)
        (shared / "omac.yaml").write_text(META.format(name="all"))
        (shared / "sidecar.py").write_text(PROGRAM)
        (shared / "stubborn").touch()  # it ignores the request to end, for as long as its grace lasts
        omac.approve(self.project, "own")
        omac.ok("approve", "all", "--global")
        self.server: Serving = omac.serve()

    def open(self, mount: str, path: str, session: str | None = None) -> socket.socket:
        """Open a call of a skill on a connection of its own; a stream has begun when this returns."""
        manifest = self.server.activate(self.project, session)
        host, _, port = self.server.ready["facade_base"].removeprefix("http://").partition(":")
        sock = socket.create_connection((host, int(port)), timeout=10)
        upgrade = "Connection: Upgrade\r\nUpgrade: ticks\r\n" if path == "/joined" else ""
        request = f"GET /{manifest['dir_token']}/{mount}{path} HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n"
        sock.sendall(request.encode())
        if path != "/silent":
            content = b""
            while b"data: tick" not in content:
                data = sock.recv(65_536)
                assert data, content
                content += data
        else:
            eventually(lambda: self.server.call("status").json()["accesses"]["open"], 20.0, "the call to be admitted")
        return sock

    def await_ready(self) -> None:
        """Wait until the skill `own` is ready."""

        def is_ready() -> bool:
            skills = self.server.activate(self.project)["skills"]
            return [skill["state"] for skill in skills if skill["name"] == "own"] == ["ready"]

        eventually(is_ready, 20.0, "the skill")


@pytest.fixture(scope="module")
def scene(house: Omac) -> Scene:
    return Scene(house)


def rest(sock: socket.socket) -> tuple[bytes, float]:
    """Return all that comes until the connection ends, and the seconds that took; raise AssertionError after 5 s."""
    begun = time.monotonic()
    content = b""
    sock.settimeout(5)
    try:
        while data := sock.recv(65_536):
            content += data
            assert time.monotonic() - begun < 5, "it streams on"
    except ConnectionResetError:
        pass  # an answer that breaks off is never made to look whole
    return content, time.monotonic() - begun


@pytest.mark.parametrize("mount", ["own", "__global__/all"])
def test_a_stream_ends_with_its_token(scene: Scene, mount: str) -> None:
    """A stream of a directory that goes offline is cut at once, and recorded as revoked; the token of another
    directory stays valid."""
    other = scene.omac.root / "other"
    other.mkdir(exist_ok=True)
    token = scene.server.activate(other)["dir_token"]
    with scene.open(mount, "/stream") as stream:
        scene.server.call("deactivate", {"dir": str(scene.project)})
        content, seconds = rest(stream)
    assert seconds < 3  # its sidecar has 5
    assert not content.endswith(b"0\r\n\r\n")
    row = eventually(scene.omac.audit, 20.0, "the access")[-1]
    assert (row["skill"], row["outcome"], row["reason"]) == (mount.rpartition("/")[2], "aborted", "revoked")
    assert curl(f"{scene.server.ready['facade_base']}/{token}/__global__/all/status").status == 200


def test_a_call_without_an_answer_is_answered(scene: Scene) -> None:
    """A caller that has had no answer yet gets 403 `revoked` as JSON."""
    with scene.open("__global__/all", "/silent") as waiting:
        scene.server.call("deactivate", {"dir": str(scene.project)})
        content, seconds = rest(waiting)
    assert seconds < 3
    head, _, body = content.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\nX-Omac-Reason: revoked\r\n")
    assert json.loads(body)["skill"] == "all"


def test_calls_that_end_together_are_explained(scene: Scene) -> None:
    """The explanation of an end that calls of several skills share names each sidecar, says of how many calls it is the
    end, and proposes what has a row for each."""
    scene.await_ready()
    calls = [scene.open(mount, "/silent") for mount in ("own", "__global__/all", "own")]
    eventually(lambda: scene.server.call("status").json()["accesses"]["open"] == 3, 20.0, "the calls to be admitted")
    scene.server.call("deactivate", {"dir": str(scene.project)})
    for call in calls:
        with call:
            assert rest(call)[0].startswith(b"HTTP/1.1 403 ")
    ended = eventually(lambda: scene.omac.events(AccessBatchAborted), 20.0, "the end")[-1]
    requests = sorted(ended.event.request)
    assert len(requests) == 3
    explained = json.loads(scene.omac.ok("audit", "explain", str(ended.position), "--json"))
    assert sorted(sidecar["skill"] for sidecar in explained["sidecars"]) == ["all", "own"]
    done = scene.omac.run("audit", "explain", str(ended.position))
    for sidecar in explained["sidecars"]:
        line = f"forwarded to the sidecar {sidecar['skill']} of position {sidecar['position']}, with no secret\n"
        assert line in done.out
    assert f"position {ended.position} ends 3 calls; " in done.err
    rows = ("--kind", "access", "--from", str(requests[0]), "--to", str(requests[-1]))
    assert f"  try: omac audit {' '.join(rows)}\n" in done.err
    assert f"  try: omac audit explain {requests[0]}\n" in done.err
    assert [row["position"] for row in scene.omac.audit(*rows)] == requests


@pytest.mark.parametrize("spelled", [str, str.upper, quoted])
def test_no_part_of_a_token_is_on_record(scene: Scene, spelled: Callable[[str], str]) -> None:
    """The audit holds no part of a session's token, wherever a path that repeats it, in any spelling, was cut."""
    calls, named = (scene.server.activate(scene.project, session)["dir_token"] for session in ("calls", "named"))
    base = f"{scene.server.ready['facade_base']}/{calls}/own/"
    eventually(lambda: curl(base).status == 200, 20.0, "the skill")
    for padding in range(0, len(spelled(named)), 8):
        assert curl(base + "x" * padding + f"/{spelled(named)}" * (PATH_CHARS_MAX // 32)).status == 200
    rows = [row for row in scene.omac.audit() if row["session"] == "calls"]
    paths = [unquote(row["path"]).lower() for row in rows if "[token]" in row["path"]]
    assert paths
    assert not [path for path in paths if named[:6] in path]


@pytest.mark.full
@pytest.mark.parametrize("path", ["/stream", "/silent"])
def test_a_call_of_a_sidecar_that_omac_stops(scene: Scene, path: str) -> None:
    """A call of a sidecar whose approval ends, and which ends at the signal, is recorded and answered as revoked. An
    answer that ends with its connection does not appear whole."""
    scene.await_ready()
    with scene.open("own", path) as call:
        scene.omac.ok("revoke", "own", "--workdir", str(scene.project))
        content, _ = rest(call)
    scene.omac.ok("approve", "own", "--workdir", str(scene.project))

    def ended() -> list[tuple[str, str]]:
        rows = [row for row in scene.omac.audit() if row["skill"] == "own" and row["path"] == path]
        return [(row["outcome"], row["reason"]) for row in rows if row["outcome"] != "open"]

    assert eventually(ended, 20.0, "the access")[-1] == ("aborted", "revoked")
    assert not content.endswith(b"0\r\n\r\n")
    if path == "/silent":
        assert content.startswith(b"HTTP/1.1 403 Forbidden\r\nX-Omac-Reason: revoked\r\n"), content


@pytest.mark.full
def test_a_joined_stream_of_a_sidecar_that_omac_stops(scene: Scene) -> None:
    """A switched connection whose sidecar ends at omac's signal breaks off: its client sees no end that was meant."""
    scene.await_ready()
    with scene.open("own", "/joined") as call:
        scene.omac.ok("revoke", "own", "--workdir", str(scene.project))
        with pytest.raises(ConnectionResetError), call.makefile("rb") as content:
            content.read()
    scene.omac.ok("approve", "own", "--workdir", str(scene.project))


@pytest.mark.full
def test_an_answer_that_is_read_when_another_sidecar_runs(scene: Scene) -> None:
    """An answer that ends with its connection does not appear whole where its sidecar ended at omac's signal, also to a
    client that reads on when the next sidecar is ready. The record does not blame the skill."""
    scene.await_ready()
    with scene.open("own", "/flood") as call:
        scene.omac.ok("reload", str(scene.project), "--restart", "own")
        scene.await_ready()
        with pytest.raises(ConnectionResetError), call.makefile("rb") as content:
            content.read()

    def ended() -> list[tuple[str, str]]:
        rows = [row for row in scene.omac.audit() if row["path"] == "/flood"]
        return [(row["outcome"], row["reason"]) for row in rows if row["outcome"] != "open"]

    assert eventually(ended, 20.0, "the access") == [("aborted", "sidecar-down")]


@pytest.mark.full
def test_a_stream_ends_with_its_approval(scene: Scene) -> None:
    """A skill that is deregistered in another terminal loses its streams before its sidecar's grace is over. The stream
    of another skill goes on."""
    with scene.open("__global__/all", "/stream") as revoked, scene.open("own", "/stream") as lasting:
        scene.omac.ok("deregister", "all", "--global", "--yes")
        _, seconds = rest(revoked)
        assert seconds < 3
        assert lasting.recv(65_536)
        assert lasting.recv(65_536)

    def is_recorded() -> bool:
        rows = [row for row in scene.omac.audit() if row["skill"] == "all" and row["path"] == "/stream"]
        return [(row["outcome"], row["reason"]) for row in rows][-1:] == [("aborted", "revoked")]

    eventually(is_recorded, 20.0, "the access as aborted, because its skill was revoked")
    scene.omac.ok("approve", "all", "--global")  # for whichever test comes next
    token = scene.server.activate(scene.project)["dir_token"]
    status = f"{scene.server.ready['facade_base']}/{token}/__global__/all/status"
    eventually(lambda: curl(status).status == 200, 10.0, "the skill to be back")
