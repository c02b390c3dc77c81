"""System calls by number, without the cost of ctypes."""

import errno
import os
import socket
import struct

import pytest

from omac.adapters.linux import syscall

NUMBERS = {"x86_64": {"getpid": 39, "write": 1, "dup3": 292}, "aarch64": {"getpid": 172, "write": 64, "dup3": 24}}
NUMBER = NUMBERS[os.uname().machine]


def test_integers_bytes_and_nothing_are_passed() -> None:
    """The kernel gets numbers, the content of bytes, zero bytes included, and null pointers."""
    assert syscall.call(NUMBER["getpid"]) == os.getpid()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert syscall.call(NUMBER["write"], ours.fileno(), b"a\0b", 3) == 3
        assert theirs.recv(9) == b"a\0b"
        assert syscall.call(NUMBER["write"], ours.fileno(), None, 0) == 0


def test_a_refused_call_raises_its_errno() -> None:
    """Negative numbers arrive as such, and an answer of -1 raises an OSError with its errno."""
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        syscall.call(NUMBER["dup3"], -1, 5, 0)
    assert caught.value.errno == errno.EBADF
    with pytest.raises(OSError, match="Invalid argument"):
        syscall.prctl(-1)
    assert syscall.prctl(3, 0, 0, 0, 0) in (0, 1)  # PR_GET_DUMPABLE


def test_an_address_is_where_the_bytes_are() -> None:
    """A struct that points to bytes works: writev(2) with one struct iovec."""
    numbers = {"x86_64": 20, "aarch64": 66}
    data = b"here"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        vector = syscall.address(data) + struct.pack("N", len(data))
        assert syscall.call(numbers[os.uname().machine], ours.fileno(), vector, 1) == 4
        assert theirs.recv(9) == data
