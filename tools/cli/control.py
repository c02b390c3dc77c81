"""Asking the running server, through its private socket: omac activate, deactivate, reload, and status."""

import http.client
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from typing import Any

import msgspec

from omac.domain.harness.harness import SHARED_BASE
from omac.domain.kernel import ids
from omac.domain.kernel.refusal import REASONS, Refusal, quoted
from omac.tools.compose.state import closed, is_suspended, living_sockets, look_at, server_socket
from omac.tools.terminal.invocation import expanded, print_json
from omac.tools.terminal.progress import Waiting
from omac.tools.terminal.render import print_folded, report, report_fix, show_skills

READ_TIMEOUT_S = 5.0
SUSPENDED_TIMEOUT_S = 0.5  # of a run that does not answer before it continues
CREDENTIALS = struct.Struct("3i")  # pid, uid and gid of a socket's other end (unix(7))
WAITS = "waits until sidecars have started or ended"
CHANGE_TIMEOUT_S = 630.0  # an activation may wait for a slow sidecar's own time-out, at most 600 s


def run(
    action: str,
    directory: str | None,
    as_json: bool,
    environment: Mapping[str, str],
    restart: Sequence[str] | None = None,
) -> int:
    """Have the server do `action` to a directory (None: to what all share), in which a reload restarts the sidecars of
    some skills, and show what it answers. Raises Refusal."""
    path = ids.SHARED if directory is None else os.path.abspath(expanded(directory))
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refusal("bad-request", f"{path!r} is not a UTF-8 path; rename the directory") from None
    runs = online_in(path, environment) if action == "reload" else []
    if action == "reload" and directory and os.sep not in directory and not runs and not os.path.isdir(path):
        meant = f"omac reload --restart {quoted(directory)}  # the skill of that name"
        raise Refusal("directory-missing", f"{path} is not a directory", fix=[meant, look_at(path)])
    document = {"dir": path} | ({"restart": restart} if restart else {})
    requests = [(run, "POST", f"/__omac__/{action}", document) for run in runs or [server_socket(environment)] if run]
    with explaining_directory(path, environment, action):
        answers = [answer for answer in (ask_run(*request) for request in requests) if answer is not None]
    beside = _beside_the_server(path, environment) if action == "deactivate" else []
    if not answers:
        root = "." if directory is None else quoted(path)
        fix = _stops(beside) if action == "deactivate" else [f"omac serve --no-inner --root {root}"]
        if action != "deactivate" and directory is not None and not os.path.isdir(path):
            raise _no_directory(path)
        raise Refusal("not-found", "no omac serve is running here", fix=fix)
    for run in beside:
        report(f"omac: {path} is still online in run {run}, an omac start")
        report_fix([f"omac stop {run}"])
    if as_json:
        print_json(msgspec.Raw(answers[0]))
        return 0
    for answer in answers:
        manifest = msgspec.json.decode(answer)
        print_folded(f"{manifest['dir'] or 'all projects'}: {manifest.get('state') or manifest['status']}")
        show_skills(manifest.get("skills", ()), manifest["dir"])
        if manifest.get("skills") == [] and manifest["dir"]:
            print_folded(f"  no skills in .{SHARED_BASE}/skills or an agent's own folder", 4)
    return 0


def _no_directory(path: str) -> Refusal:
    return Refusal("directory-missing", f"{path} is not a directory", fix=[look_at(path)])


def _stops(runs: Sequence[str]) -> list[str]:
    """Return the commands that end these runs; without any, the one that lists those that live."""
    return [f"omac stop {run}" for run in runs] or ["omac ps"]


def _beside_the_server(path: str, environment: Mapping[str, str]) -> list[str]:
    """The names of the runs beside the server that have a directory online, of those that answer."""
    server, having = os.path.realpath(server_socket(environment)), []
    for run in map(os.path.realpath, living_sockets(environment)):
        with suppress(Refusal):  # Ctrl-Z stopped it, maybe
            if run != server and _has(run, path):
                having.append(os.path.basename(os.path.dirname(run)))
    return having


@contextmanager
def explaining_directory(path: str, environment: Mapping[str, str], action: str = "activate") -> Iterator[None]:
    """Have the refusal of a directory outside the roots name the command that serves it, or for `deactivate` the runs
    that may have it online. Have that of one that does not exist name the command that takes it offline, where it is
    online all the same: it was moved or removed."""
    try:
        yield
    except Refusal as refusal:
        if refusal.reason == "outside-roots" and action == "deactivate":
            refusal.fix = tuple(_stops(_beside_the_server(path, environment)))
        elif refusal.reason == "outside-roots" and not os.path.isdir(path):  # a person may know that, an agent may not
            raise _no_directory(path) from None
        elif refusal.reason == "outside-roots":
            refusal.fix = tuple(command.replace("--root DIR", f"--root {quoted(path)}") for command in refusal.fix)
        having = online_in(path, environment) if refusal.reason == "directory-missing" else []
        if not having:
            raise
        stops = [f"omac stop {run}" for run in _beside_the_server(path, environment)]
        fix = stops if len(stops) == len(having) else [f"omac deactivate {quoted(path)}", *stops]
        raise Refusal("directory-missing", f"{path} does not exist any more, but is still online", fix=fix) from None


def online_in(path: str, environment: Mapping[str, str]) -> list[str]:
    """Return the sockets of the runs that have a directory, or what all share, online, the server's first."""
    return [run for run in living_sockets(environment) if _has(run, path)]


def _has(run: str, path: str) -> bool:
    """Return whether the run with this socket has a directory, or what all share, online. Raises Refusal."""
    canonical = os.path.realpath(path)
    answer = ask_run(run, "GET", f"/__omac__/{'global' if path == ids.SHARED else 'dirs'}")
    document = msgspec.json.decode(answer) if answer is not None else {}
    return bool(document.get("skills")) or any(entry["dir"] == canonical for entry in document.get("dirs", ()))


def report_suspended(environment: Mapping[str, str]) -> None:
    """Report the runs that do not react to what was revoked before they continue: their sidecars go on until then."""
    for run in living_sockets(environment):
        with suppress(OSError), closing(_UnixConnection(run, READ_TIMEOUT_S)) as connection:
            connection.connect()
            if (pid := connection.listener()) and is_suspended(pid):
                report(f"the run with pid {pid} is suspended: the sidecars that it started go on until it continues")
                report_fix([f"kill -CONT {pid}"])


def ask_each(environment: Mapping[str, str], method: str, path: str, document: object = None) -> list[bytes]:
    """The answers of all runs that live, the server's first. Raises the first Refusal that one answers with."""
    runs = living_sockets(environment)
    return [answer for run in runs if (answer := ask_run(run, method, path, document)) is not None]


def ask_run(run: str, method: str, path: str, document: object = None) -> bytes | None:
    """Return the answer of the run with this socket; None when it does not live. Raises the Refusal it answers with."""
    if document is not None and ask_run(run, "GET", "/__omac__/dirs") is None:  # a stopped one is not waited for long
        return None
    connection = _UnixConnection(run, READ_TIMEOUT_S if document is None else CHANGE_TIMEOUT_S)
    body = None if document is None else msgspec.json.encode(document)
    waiting: AbstractContextManager[object] = nullcontext() if document is None else Waiting(WAITS)
    try:
        with waiting:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return None
    except PermissionError as error:
        raise closed(os.path.dirname(run), error) from error
    except (OSError, http.client.HTTPException) as error:
        pid = connection.listener()
        fix = [f"kill -CONT {pid}  # where Ctrl-Z stopped it", f"omac stop {pid}"] if pid else []
        message = f"the server{f' (pid {pid})' if pid else ''} at {run} did not answer: {error}"
        raise Refusal("state-unusable", message, fix=fix or [f"fuser {quoted(run)}"]) from error
    finally:
        connection.close()
    if response.status == 200:
        return content
    refusal: dict[str, Any] = msgspec.json.decode(content)
    reason = refusal.get("reason", "")
    raise Refusal(
        reason if reason in REASONS else "upstream-error", str(refusal.get("error")), fix=refusal.get("fix", ())
    )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        if is_suspended(self.listener()):
            self.sock.settimeout(SUSPENDED_TIMEOUT_S)

    def listener(self) -> int:
        """The pid of the process that it reached; 0: none that is seen from here."""
        if not isinstance(self.sock, socket.socket):
            return 0
        pid: int = CREDENTIALS.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))[0]
        return pid
