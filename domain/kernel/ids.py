"""Names of things: who is meant by an id, and how the two keys of a directory are made.

Two keys, never confused: the *routing token* authorizes and dies with its activation; the *workdir id*
identifies a directory for good. The journal knows a token by its digest only.
"""

import hashlib
from functools import partial
from typing import NamedTuple, NewType

HostId = NewType("HostId", str)
RunNamespace = NewType("RunNamespace", HostId)  # takes the place of the host in a stream's id: see `namespace_beside`
RunId = NewType("RunId", str)
WorkdirId = NewType("WorkdirId", str)
TokenDigest = NewType("TokenDigest", str)
LaunchId = NewType("LaunchId", str)
StreamId = NewType("StreamId", str)

LOG_DIGITS = 12  # of a workdir id, which the logs of its sidecars begin with
GLOBAL = WorkdirId("global")  # in the place of a workdir id: skills shared by all projects
SHARED = "__global__"  # the same in the place of a routing token or a directory; no token can look like it


def workdir_id(path: str) -> WorkdirId:
    """The lasting identity of a canonical directory path: its SHA-256, 64 hex digits."""
    return WorkdirId(hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest())


def scope_of(path: str) -> WorkdirId:
    """Return the scope that a skill belongs to: the workdir id of a directory; GLOBAL for the empty path, which is
    every project's."""
    return workdir_id(path) if path else GLOBAL


def token_digest(token: str) -> TokenDigest:
    """Return the SHA-256 of a routing token, 64 hex digits: the journal and the route table know nothing else of the
    token."""
    return TokenDigest(hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest())


def server_namespace(host: HostId) -> RunNamespace:
    """Return the namespace of the directories and sidecars of a host's server."""
    return RunNamespace(host)


def namespace_beside(host: HostId, run: RunId) -> RunNamespace:
    """Return the namespace of a run beside the server, which may have the same directories online."""
    return RunNamespace(HostId(f"{host}@{run}"))


def host_of(namespace: HostId) -> HostId:
    """Return the host that a run namespace belongs to."""
    return HostId(namespace.partition("@")[0])


class StreamKey(NamedTuple):
    """A stream id taken apart: the one place that knows its form.

    `namespace` is that of a directory or sidecar, elsewhere the host; `scope` a workdir id, GLOBAL or that of defaults;
    `base` the base folder of a registration; `name` what is left: a skill, a run, a launch, a setting, a file.
    """

    aggregate: str
    namespace: RunNamespace
    scope: str = ""
    base: str = ""
    name: str = ""

    @property
    def host(self) -> HostId:
        """The host that the stream belongs to, whichever run has it."""
        return host_of(self.namespace)

    @property
    def workdir(self) -> WorkdirId:
        """The scope of a directory or a sidecar, which is that of a project or GLOBAL."""
        return WorkdirId(self.scope)


def key_of(stream: StreamId) -> StreamKey:
    """Take a stream id apart. Raises ValueError for one that no function here made.

    The name of a skill comes last and may hold anything: a folder that is no skill is listed by its path.
    """
    aggregate, namespace, rest = (*stream.split("/", 2), "")[:3]
    own = RunNamespace(HostId(namespace))
    match aggregate:
        case "directory" | "subject" if rest and "/" not in rest:
            return StreamKey(aggregate, own, rest)
        case "sidecar" | "credential" if rest.count("/") >= 1:
            scope, name = rest.split("/", 1)
            return StreamKey(aggregate, own, scope, "", name)
        case "registration" if rest.count("/") >= 2:
            scope, base, name = rest.split("/", 2)
            return StreamKey(aggregate, own, scope, base, name)
        case "run" | "sandbox" | "setting" | "bridge" | "receipt" if rest and "/" not in rest:
            return StreamKey(aggregate, own, name=rest)
        case _ if namespace and not rest:
            return StreamKey(aggregate, own)
        case _:
            raise ValueError(f"no stream of omac: {stream}")


def run_stream(host: HostId, run: RunId) -> StreamId:
    """The stream of one omac process."""
    return StreamId(f"run/{host}/{run}")


def directory_stream(namespace: HostId, workdir: WorkdirId) -> StreamId:
    """The stream of one directory in one run namespace, or, for GLOBAL, of what all directories there share."""
    return StreamId(f"directory/{namespace}/{workdir}")


def registration_stream(host: HostId, scope: str, harness: str, skill: str) -> StreamId:
    """The stream of one registration; `scope` is as of `scope_of`, `harness` the base folder the skill lies in."""
    return StreamId(f"registration/{host}/{scope}/{harness}/{skill}")


def credential_stream(host: HostId, scope: str, skill: str) -> StreamId:
    """The stream of the values given to one skill; `scope` is as of `scope_of`, or that of remembered defaults."""
    return StreamId(f"credential/{host}/{scope}/{skill}")


def sidecar_stream(namespace: HostId, workdir: WorkdirId, skill: str) -> StreamId:
    """The stream of one skill's sidecar in one directory in one run namespace."""
    return StreamId(f"sidecar/{namespace}/{workdir}/{skill}")


def sandbox_stream(host: HostId, launch: LaunchId) -> StreamId:
    """The stream of one launch of a program in a sandbox."""
    return StreamId(f"sandbox/{host}/{launch}")


def setting_stream(host: HostId, name: str) -> StreamId:
    """The stream of one of omac's own settings on one host."""
    return StreamId(f"setting/{host}/{name}")


def bridge_stream(host: HostId, file: str) -> StreamId:
    """The stream of omac's hooks or plugin in one settings file of an agent on one host, by the hash of its path."""
    return StreamId(f"bridge/{host}/{workdir_id(file)}")


def checkpoint_stream(host: HostId) -> StreamId:
    """The stream of the checkpoints that one host signs."""
    return StreamId(f"checkpoint/{host}")


def witness_stream(host: HostId) -> StreamId:
    """The stream of what became of the checkpoints that one host signs."""
    return StreamId(f"witness/{host}")


def receipt_stream(host: HostId, journal: str) -> StreamId:
    """The stream of what one host received of another journal, by that one's id."""
    return StreamId(f"receipt/{host}/{journal}")


def segment_stream(host: HostId) -> StreamId:
    """The stream of the segments that one host seals."""
    return StreamId(f"segment/{host}")


def subject_stream(host: HostId, workdir: WorkdirId) -> StreamId:
    """The stream of what was erased of one directory in the journal, by one host."""
    return StreamId(f"subject/{host}/{workdir}")


def log_stream(aggregate: str, host: HostId) -> StreamId:
    """The log of what aggregate `aggregate` records of one host: a stream without versions."""
    return StreamId(f"{aggregate}/{host}")


access_stream = partial(log_stream, "access")
control_stream = partial(log_stream, "control")
guard_stream = partial(log_stream, "guard")
inspection_stream = partial(log_stream, "inspection")
journal_stream = partial(log_stream, "journal")
export_stream = partial(log_stream, "export")
