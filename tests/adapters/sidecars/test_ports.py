"""adapters/sidecars/ports.py: whom a port can be taken by between its choice and the sidecar that listens there."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from omac.adapters.sidecars import ports
from omac.adapters.sidecars.ports import PORT_MAX, REMEMBERED, ReservedPort, SidecarPorts
from omac.services.ports import SpawnFailed

FEW = 20_003  # a port that nobody uses, nor the two before it
SYSTEM = range(*(int(word) for word in Path(ports.RANGE).read_text().split()))


@contextlib.contextmanager
def reserved(chooser: SidecarPorts, count: int) -> Iterator[list[ReservedPort]]:
    """Yield ports, and release them."""
    chosen = [chooser.reserve() for _ in range(count)]
    try:
        yield chosen
    finally:
        for port in chosen:
            port.release()


def listener(number: int) -> socket.socket:
    """Return a socket that listens on a port."""
    return socket.create_server(("127.0.0.1", number))


@pytest.mark.skipif(PORT_MAX - SYSTEM.stop < ports.ENOUGH, reason="the system's range of ports leaves none")
def test_nobody_has_it_by_chance() -> None:
    """No connection, and no listener that asks for any port, gets one that a sidecar was given."""
    with reserved(SidecarPorts(), REMEMBERED) as chosen:
        assert all(port.number > SYSTEM.stop for port in chosen)


def test_omacs_that_choose_at_once_choose_different_ports() -> None:
    """A port that one omac has reserved is chosen by no other; once it is released, a sidecar can listen there."""
    with reserved(SidecarPorts(), 200) as first, reserved(SidecarPorts(), 200) as second:
        assert len({port.number for port in (*first, *second)}) == 400
    for port in (first[0], second[0]):
        listener(port.number).close()


def test_a_port_is_not_given_twice() -> None:
    """The last ports that were given are not given again, although they are free."""
    chooser, numbers = SidecarPorts(), set()
    for _ in range(REMEMBERED):
        with reserved(chooser, 1) as (port,):
            numbers.add(port.number)
    assert len(numbers) == REMEMBERED


def test_a_port_that_is_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few ports those are left out on which somebody listens, on any address; then the system chooses."""
    monkeypatch.setattr(ports, "ENOUGH", 1)
    monkeypatch.setattr(ports, "TRIES", 3)
    monkeypatch.setattr(ports, "_system_range_end", lambda: FEW - 3)
    monkeypatch.setattr(ports, "PORT_MAX", FEW)
    with contextlib.ExitStack() as stack:
        stack.enter_context(listener(FEW))
        stack.enter_context(socket.create_server(("0.0.0.0", FEW - 1)))
        (only,) = stack.enter_context(reserved(SidecarPorts(), 1))
        assert only.number == FEW - 2
        (other,) = stack.enter_context(reserved(SidecarPorts(), 1))
        assert other.number in range(SYSTEM.start, SYSTEM.stop + 1)
        listener(other.number).close()


@pytest.mark.parametrize("content", ["1024\t65535\n", "32768", "", None])
def test_the_system_chooses_where_it_leaves_none(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range that leaves too few ports, or that cannot be read, leads to a free port of the system's."""
    if content is not None:
        (tmp_path / "range").write_text(content)
    monkeypatch.setattr(ports, "RANGE", str(tmp_path / "range"))
    with reserved(SidecarPorts(), REMEMBERED) as chosen:
        assert len({port.number for port in chosen}) == REMEMBERED
        assert all(port.number in range(SYSTEM.start, SYSTEM.stop + 1) for port in chosen)


def test_without_a_descriptor() -> None:
    """A refusal names the reason where no socket can be had."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.open("/", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(SpawnFailed, match="Too many open files"):
            SidecarPorts().reserve().release()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
