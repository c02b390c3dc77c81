"""System calls by their number, through the C part of ctypes alone: importing all of ctypes takes 3 ms, this 0.3.

Arguments are integers, bytes (passed by address, for the kernel to read), an Answer (to write), or None (null).
"""

from __future__ import annotations

import _ctypes  # CPython's own, in every version that omac runs on
import os

PRCTL = {"x86_64": 157, "aarch64": 167}
_ANSWERS_BY_ERRNO = 0x1 | 0x8  # FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg] # its value type matters to nobody here
    _type_ = "l"


class _Word(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "P"


class _Address(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "z"


class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class SyscallBuffer(_ctypes.Array):  # type: ignore[type-arg]
    """Room for what the kernel writes; read it by `bytes`."""

    _type_ = _Byte
    _length_ = 256


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ANSWERS_BY_ERRNO
    _restype_ = _Long


_syscall = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall"))  # type: ignore[arg-type] # None: what is loaded
_syscall.argtypes = (_Word,) * 7


def call(number: int, *arguments: int | bytes | SyscallBuffer | None) -> int:
    """Make a system call and return its result. Raises OSError with its errno."""
    answer: int = _syscall(number, *arguments, *(0,) * (6 - len(arguments)))
    if answer == -1:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def prctl(option: int, *arguments: int | bytes) -> int:
    """prctl(2) on the machine this runs on. Raises OSError, KeyError for an architecture that is not in PRCTL."""
    return call(PRCTL[os.uname().machine], option, *arguments)


def words(*values: int) -> bytes:
    """Numbers as an array of the kernel's __u64 (little-endian, like all it runs on). Importing struct takes 0.4 ms."""
    return b"".join([value.to_bytes(8, "little") for value in values])


def address(data: bytes) -> bytes:
    """Return the address of `data` in memory, as the bytes of a C pointer; valid for as long as the caller keeps
    `data`."""
    return bytes(memoryview(_Address(data)))
