"""Names of things: who is meant by an id, and how the two keys of a directory are made.

Two keys, never confused: the *routing token* authorizes and dies with its activation; the *workdir id*
identifies a directory for good. The journal knows a token by its digest only.
"""

import hashlib
from typing import NewType

HostId = NewType("HostId", str)
RunId = NewType("RunId", str)
WorkdirId = NewType("WorkdirId", str)
TokenDigest = NewType("TokenDigest", str)
StreamId = NewType("StreamId", str)

GLOBAL = WorkdirId("global")  # in the place of a workdir id: skills shared by all projects
SHARED = "__global__"  # the same in the place of a routing token or a directory; no token can look like it


def workdir_id(path: str) -> WorkdirId:
    """The lasting identity of a canonical directory path: its SHA-256, 64 hex digits."""
    return WorkdirId(hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest())


def scope_of(path: str) -> WorkdirId:
    """To whom a skill belongs: the workdir id of a directory; GLOBAL for the empty path, which is every project's."""
    return workdir_id(path) if path else GLOBAL


def token_digest(token: str) -> TokenDigest:
    """What the journal and the route table know of a routing token: its SHA-256, 64 hex digits."""
    return TokenDigest(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())


def run_stream(host: HostId, run: RunId) -> StreamId:
    """The stream of one omac process."""
    return StreamId(f"run/{host}/{run}")


def directory_stream(host: HostId, workdir: WorkdirId) -> StreamId:
    """The stream of one directory on one host, or, for GLOBAL, of what all directories share."""
    return StreamId(f"directory/{host}/{workdir}")


def registration_stream(host: HostId, scope: str, harness: str, skill: str) -> StreamId:
    """The stream of one registration; `scope` is as of `scope_of`, `harness` the base folder the skill lies in."""
    return StreamId(f"registration/{host}/{scope}/{harness}/{skill}")


def credential_stream(host: HostId, scope: str, skill: str) -> StreamId:
    """The stream of the values given to one skill; `scope` is as of `scope_of`, or that of remembered defaults."""
    return StreamId(f"credential/{host}/{scope}/{skill}")


def sidecar_stream(host: HostId, workdir: WorkdirId, skill: str) -> StreamId:
    """The stream of one skill's sidecar in one directory."""
    return StreamId(f"sidecar/{host}/{workdir}/{skill}")


def access_stream(host: HostId) -> StreamId:
    """The log of skill accesses of one host: a stream without versions."""
    return StreamId(f"access/{host}")


def settings_stream(host: HostId) -> StreamId:
    """The log of changes to omac's own settings on one host: a stream without versions."""
    return StreamId(f"settings/{host}")


def control_stream(host: HostId) -> StreamId:
    """The log of control calls of one host: a stream without versions."""
    return StreamId(f"control/{host}")
