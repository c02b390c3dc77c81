"""The blob that a commit has at a path, with each object on the way compared with its name.

Objects are files that a sandbox can write, and git does not compare an object with its name when it reads one: a
program can put any content under the name that a commit gives.
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import time

from omac.adapters.git.program import environment
from omac.adapters.linux import host_programs

HELD_BYTES_MAX = 32 << 20  # of a commit or of a folder
_CHUNK_BYTES = 1 << 16
_HEADER_BYTES_MAX = 200
_FOLDER_MODE = b"40000"


class ForgedObject(Exception):
    """An object that is not what its name says, or of which that cannot be established in time."""


def name_of(kind: bytes, content: bytes, *, like: str) -> str:
    """Return the name that git gives an object of this content, by the hash function of another name."""
    digest = _digest(like, kind, len(content))
    digest.update(content)
    return digest.hexdigest()


def _digest(name: str, kind: bytes, size: int) -> hashlib._Hash:
    digest = hashlib.sha1(usedforsecurity=False) if len(name) == 40 else hashlib.sha256()
    digest.update(b"%b %d\0" % (kind, size))
    return digest


class GenuineObjects:
    """The objects of the repository whose git folder is `git`, read by the host's git while this is open, until the
    `deadline` of the monotonic clock."""

    def __init__(self, git: str, deadline: float) -> None:
        self._deadline = deadline
        self._folders: dict[str, dict[bytes, tuple[bytes, str]]] = {}  # mode and object by name
        self._received = b""
        self._git = subprocess.Popen(
            [
                host_programs.find("git") or "git", "--no-replace-objects", "-c", "core.fsmonitor=false",
                f"--git-dir={git}", "cat-file", "--batch",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(os.environ),
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """End git."""
        self._git.kill()
        with self._git:
            pass

    def blob_of(self, commit: str, path: str) -> tuple[str, bytes]:
        """Return the name of the blob at a path of a commit, and its mode; empty where the commit has none. Raises
        ForgedObject, OSError."""
        head, _, _ = self._content(commit, b"commit").partition(b"\n")
        oid = head.removeprefix(b"tree ").decode(errors="replace")
        mode = _FOLDER_MODE
        for name in os.fsencode(path).split(b"/"):
            if mode != _FOLDER_MODE:
                return "", b""
            mode, oid = self._folder(oid).get(name, (b"", ""))
        if not oid or mode == _FOLDER_MODE:
            return "", b""
        self._content(oid, b"blob")
        return oid, mode

    def _folder(self, oid: str) -> dict[bytes, tuple[bytes, str]]:
        """Return mode and object of each entry of a tree, by name."""
        if oid not in self._folders:
            content, at, entries = self._content(oid, b"tree"), 0, {}
            while at < len(content):
                end = content.index(b"\0", at) + 1
                mode, _, name = content[at : end - 1].partition(b" ")
                at = end + len(oid) // 2
                entries[name] = (mode, content[end:at].hex())
            self._folders[oid] = entries
        return self._folders[oid]

    def _content(self, oid: str, kind: bytes) -> bytes:
        """Return the content of an object that is what its name says; nothing of a blob, which may be large."""
        assert self._git.stdin is not None
        self._git.stdin.write(oid.encode() + b"\n")
        while b"\n" not in self._received:
            self._receive()
            if len(self._received) > _HEADER_BYTES_MAX + _CHUNK_BYTES:
                raise ForgedObject
        header, _, self._received = self._received.partition(b"\n")
        words = header.split(b" ")
        if words[:2] != [oid.encode(), kind] or len(words) != 3:
            raise ForgedObject  # missing, or of another kind
        left = int(words[2])
        is_held = kind != b"blob"
        if is_held and left > HELD_BYTES_MAX:
            raise ForgedObject
        digest = _digest(oid, kind, left)
        pieces: list[bytes] = []
        while left:
            if not self._received:
                self._receive()
            piece, self._received = self._received[:left], self._received[left:]
            left -= len(piece)
            digest.update(piece)
            if is_held:
                pieces.append(piece)
        while not self._received:
            self._receive()
        self._received = self._received[1:]  # the line's end behind the content
        if digest.hexdigest() != oid:
            raise ForgedObject
        return b"".join(pieces)

    def _receive(self) -> None:
        """Wait for more of git's output. Raises ForgedObject where none comes in time, or git has ended."""
        assert self._git.stdout is not None
        waiting = select.poll()
        waiting.register(self._git.stdout, select.POLLIN)
        piece, left_s = b"", self._deadline - time.monotonic()
        if left_s > 0 and waiting.poll(left_s * 1000):
            piece = os.read(self._git.stdout.fileno(), _CHUNK_BYTES)
        if not piece:
            raise ForgedObject
        self._received += piece
