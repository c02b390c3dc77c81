"""domain/kernel/ids.py: two keys of a directory, and streams that do not collide."""

import hashlib

import pytest

from omac.domain.kernel import ids
from omac.domain.kernel.ids import GLOBAL, HostId, LaunchId, RunId, StreamId, StreamKey, WorkdirId

WORKDIR = ids.workdir_id("/w")
HOST = HostId("h1")
NAMESPACE = ids.server_namespace(HOST)


@pytest.mark.parametrize("text", ["/home/u/shop", "/home/ü/läden", "/odd/\udcff\udc80", ""])
def test_both_keys_are_sha256_of_the_bytes(text: str) -> None:
    """Both keys are 64 hex digits: the SHA-256 of the bytes of the path or token, also where these are not UTF-8."""
    expected = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    assert ids.workdir_id(text) == expected
    assert ids.token_digest(text) == expected
    assert len(expected) == 64


def test_streams_name_their_kind_host_and_subject() -> None:
    """Every stream id contains the host, so that a fleet can share a journal."""
    workdir = WorkdirId("w")
    assert [
        ids.run_stream(HOST, RunId("r")),
        ids.directory_stream(HOST, workdir),
        ids.registration_stream(HOST, "w", "agents", "echo"),
        ids.sidecar_stream(HOST, workdir, "echo"),
        ids.access_stream(HOST),
        ids.control_stream(HOST),
    ] == [
        "run/h1/r",
        "directory/h1/w",
        "registration/h1/w/agents/echo",
        "sidecar/h1/w/echo",
        "access/h1",
        "control/h1",
    ]


def test_each_run_beside_the_server_has_a_namespace_of_its_own() -> None:
    """A run beside the server has other streams for the same directory and sidecar. Every stream names its host and its
    namespace."""
    server, run1, run2 = ids.server_namespace(HOST), *(ids.namespace_beside(HOST, RunId(run)) for run in ("r1", "r2"))
    assert len({server, run1, run2}) == 3
    for namespace in (server, run1, run2):
        for stream in (
            ids.directory_stream(namespace, WorkdirId("w")),
            ids.sidecar_stream(namespace, WorkdirId("w"), "echo"),
        ):
            key = ids.key_of(stream)
            assert (key.namespace, key.host, key.workdir) == (namespace, HOST, "w")
    assert ids.key_of(ids.run_stream(HOST, RunId("r1"))).host == HOST


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        (ids.run_stream(HOST, RunId("r")), StreamKey("run", NAMESPACE, name="r")),
        (ids.directory_stream(HOST, GLOBAL), StreamKey("directory", NAMESPACE, "global")),
        (
            ids.registration_stream(HOST, "w", "agents", "echo"),
            StreamKey("registration", NAMESPACE, "w", "agents", "echo"),
        ),
        (ids.credential_stream(HOST, "w", "echo"), StreamKey("credential", NAMESPACE, "w", "", "echo")),
        (ids.sidecar_stream(HOST, WorkdirId("w"), "echo"), StreamKey("sidecar", NAMESPACE, "w", "", "echo")),
        (ids.sandbox_stream(HOST, LaunchId("l")), StreamKey("sandbox", NAMESPACE, name="l")),
        (ids.setting_stream(HOST, "serve.unapproved"), StreamKey("setting", NAMESPACE, name="serve.unapproved")),
        (ids.access_stream(HOST), StreamKey("access", NAMESPACE)),
        (ids.control_stream(HOST), StreamKey("control", NAMESPACE)),
        (ids.guard_stream(HOST), StreamKey("guard", NAMESPACE)),
        (StreamId("settings/h1"), StreamKey("settings", NAMESPACE)),  # the log of an earlier omac
    ],
)
def test_a_stream_is_taken_apart_as_it_was_made(stream: StreamId, key: StreamKey) -> None:
    """Each part of a stream comes back where it belongs; a part that the stream does not have is empty."""
    assert ids.key_of(stream) == key


@pytest.mark.parametrize("stream", ["", "run", "run/h/a/b", "directory/h/w/more", "sidecar/h/w", "other/h/x"])
def test_what_is_no_stream_is_not_taken_apart(stream: str) -> None:
    """A text that is no stream is refused, and no part of it is guessed."""
    with pytest.raises(ValueError, match=r"no stream of omac|not enough values"):
        ids.key_of(StreamId(stream))


def test_a_skill_may_be_called_by_a_path() -> None:
    """A folder that is no skill is listed by its path, and its streams are taken apart all the same."""
    for stream in (
        ids.sidecar_stream(ids.server_namespace(HOST), WORKDIR, ".agents/skills"),
        ids.credential_stream(HOST, WORKDIR, ".agents/skills"),
        ids.registration_stream(HOST, WORKDIR, "agents", ".agents/skills"),
    ):
        assert (ids.key_of(stream).scope, ids.key_of(stream).name) == (WORKDIR, ".agents/skills")
