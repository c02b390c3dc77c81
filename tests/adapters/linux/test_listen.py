"""Addresses that omac listens on, and those that it refuses."""

import os
import socket
import stat
from pathlib import Path

import pytest

from omac.adapters.linux import listen
from omac.domain.kernel.refusal import Refusal


def open_tcp(host: str, port: int) -> socket.socket:
    return listen.tcp(host, port, "--facade-addr")


def accept_one(listening: socket.socket) -> socket.socket:
    """Return the next connection, which is there already."""
    connection, _ = listening.accept()
    return connection


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.9.9.9", "127.9.9.9")]
)
def test_loopback_is_listened_on(host: str, shown: str) -> None:
    """A listener on a loopback address with port 0 gets a port of its own, and accepts connections."""
    with open_tcp(host, 0) as listener:
        address, port = listener.getsockname()
        assert address == shown
        with socket.create_connection((address, port), timeout=2), accept_one(listener) as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == listen.UNSENT_BYTES_MAX


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com", "", "127.0.0.1.example.com"])
def test_nothing_but_loopback_is_listened_on(host: str) -> None:
    """The facade is never reachable from another machine."""
    with pytest.raises(Refusal) as caught:
        open_tcp(host, 0)
    assert caught.value.reason == "misuse"


def test_a_taken_port_is_named_with_the_way_out() -> None:
    """A refusal names the address that is taken, and the commands that find its owner or take a free port."""
    with open_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Refusal) as caught:
            open_tcp("127.0.0.1", port)
    assert caught.value.reason == "port-taken"
    assert f"127.0.0.1:{port}" in caught.value.message
    assert any("ss -ltnp" in line for line in caught.value.fix)
    assert any("--facade-addr 127.0.0.1:0" in line for line in caught.value.fix)


def test_a_unix_socket_is_private(tmp_path: Path) -> None:
    """A Unix socket has mode 0600 with any umask, and accepts connections."""
    path = tmp_path / "facade.sock"
    before = os.umask(0)
    try:
        listener = listen.unix(str(path))
    finally:
        os.umask(before)
    with listener:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            with accept_one(listener):
                pass


def test_a_unix_socket_is_private_from_birth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Unix socket has mode 0600 even before chmod, so that no other user can connect between bind and chmod."""
    path = tmp_path / "facade.sock"
    modes: list[int] = []
    chmod = os.chmod

    def watched(target: str, mode: int) -> None:
        modes.append(stat.S_IMODE(os.lstat(target).st_mode))
        chmod(target, mode)

    monkeypatch.setattr(os, "chmod", watched)
    before = os.umask(0)
    try:
        with listen.unix(str(path)):
            assert modes == [0o600]
    finally:
        os.umask(before)


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """A socket that a killed omac left does not stop the next one."""
    path = tmp_path / "facade.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen.unix(str(path)):
        assert stat.S_ISSOCK(path.lstat().st_mode)


def test_a_live_socket_is_left_alone(tmp_path: Path) -> None:
    """A socket in use is refused to a second omac, and stays."""
    path = tmp_path / "facade.sock"
    with listen.unix(str(path)):
        with pytest.raises(Refusal, match="another process") as caught:
            listen.unix(str(path))
        assert path.exists()
    assert caught.value.reason == "state-unusable"


def test_a_file_is_never_removed(tmp_path: Path) -> None:
    """A file and a link are refused and stay; only a socket is replaced."""
    path = tmp_path / "facade.sock"
    path.write_text("precious")
    with pytest.raises(Refusal, match="not a socket"):
        listen.unix(str(path))
    assert path.read_text() == "precious"
    link = tmp_path / "link.sock"
    link.symlink_to(path)
    with pytest.raises(Refusal, match="not a socket"):
        listen.unix(str(link))


def test_a_path_too_long_says_how_to_shorten_it(tmp_path: Path) -> None:
    """A path above the system's limit of 107 bytes is refused with the variable to set."""
    with pytest.raises(Refusal) as caught:
        listen.unix(str(tmp_path / ("x" * 107)))
    assert caught.value.reason == "state-unusable"
    assert "107" in caught.value.message
    assert any("OMAC_STATE_DIR" in line for line in caught.value.fix)


def test_a_missing_folder_is_a_refusal(tmp_path: Path) -> None:
    """A socket in a missing folder is refused with its path."""
    with pytest.raises(Refusal, match="nowhere") as caught:
        listen.unix(str(tmp_path / "nowhere" / "facade.sock"))
    assert caught.value.reason == "state-unusable"
