"""Listening by UDP: SECURITY.md declares that the host's network leaves it open; a network of its own closes it."""

import socket
import subprocess
from pathlib import Path

import pytest
from polling import eventually
from real_sandbox import SYSTEM_PYTHON, Box

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
LISTENER = """\
import os, socket
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("127.0.0.1", 0))
listener.settimeout(20)
open("port.new", "w").write(str(listener.getsockname()[1]))
os.rename("port.new", "port")
print(listener.recv(100).decode())
"""
FIXED = """\
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as listener:
        try:
            listener.bind(("127.0.0.1", int(sys.argv[1])))
            print("bound")
        except PermissionError:
            print("refused")
"""


def free_port() -> int:
    """Return a UDP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def test_tcp_is_bounded_and_udp_is_declared(world: Box) -> None:
    """The host's network refuses a TCP port that was not opened; UDP ports stay open, as SECURITY.md declares."""
    done = world.run(SYSTEM_PYTHON, "-c", FIXED, str(free_port()))
    assert done.out.split() == ["refused", "bound"]
    assert "**UDP is not bounded**" in SECURITY.read_text()


@pytest.mark.parametrize("network", ["host", "none"])
def test_what_the_host_sends(world: Box, network: str) -> None:
    """A datagram of the host's reaches a program on the host's network, but not one on a network of its own."""
    line = world.omac("sandbox", "run", "--network", network, "--", SYSTEM_PYTHON, "-c", LISTENER)
    user = world.uid or None
    inside = subprocess.Popen(
        line, cwd=world.workdir, env=world.environment, user=user, group=user, stdout=subprocess.PIPE, text=True
    )
    eventually(lambda: (world.workdir / "port").exists(), 30, "the program listens")
    port = int((world.workdir / "port").read_text())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"of the host", ("127.0.0.1", port))
    try:
        assert inside.communicate(timeout=1 if network == "none" else 30)[0] == "of the host\n"
        assert network == "host"
    except subprocess.TimeoutExpired:
        assert network == "none"
    finally:
        inside.terminate()
        inside.communicate(timeout=30)
