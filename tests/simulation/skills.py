"""Skills for tests of trust: each sidecar tells which code it is and what it was given, and leaves a trace whenever it
runs at all; and a look at who on this machine holds a value in its environment.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from real_omac import Done, Omac

WATCH_PAUSE_S = 0.05

META = """\
name: {name}
version: "{version}"
sidecar:
  command: {command}
  mount: {name}
  health: {{path: /status, interval_ms: 20}}
  secrets:
    - name: SLACK_TOKEN
  config:
    - {{name: REGION, default: eu}}
"""

TRACE = """\
import json as _json, os as _os
with open({trace!r}, "a") as _file:
    _told = {{"mark": {mark!r}, "token": _os.environ.get("SLACK_TOKEN"), "folder": _os.getcwd()}}
    _file.write(_json.dumps(_told) + "\\n")
"""

SERVE = """\
import json, os, socket, sys, threading

here = os.path.dirname(os.path.abspath(__file__))
parts = {{}}
for folder in ("node_modules", "dist", "build", "vendor"):
    sys.path.insert(1, os.path.join(here, folder))
    if os.path.exists(os.path.join(here, folder, "part_" + folder + ".py")):
        parts[folder] = __import__("part_" + folder).MARK
told = {{"mark": {mark!r}, "parts": parts, "env": {{name: os.environ.get(name) for name in ("SLACK_TOKEN", "REGION")}}}}
body = json.dumps(told).encode()
answer = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(body), body)


def tell(peer):
    with peer:
        if peer.recv(65536):
            peer.sendall(answer)


with socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"]))) as server:
    while True:
        threading.Thread(target=tell, args=server.accept()[:1], daemon=True).start()
"""


def meta(name: str = "slack", version: str = "1", command: str = "[python3, sidecar.py]") -> str:
    """An omac.yaml."""
    return META.format(name=name, version=version, command=command)


def traced(trace: Path, mark: str) -> str:
    """Python that leaves a line in `trace`: which code ran, where, with which token."""
    return TRACE.format(trace=str(trace), mark=mark)


def program(trace: Path, mark: str) -> str:
    """A sidecar.py that leaves a trace and serves."""
    return traced(trace, mark) + SERVE.format(mark=mark)


def traces(trace: Path) -> list[dict[str, Any]]:
    """Everything that ran, oldest first."""
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []


class Holder(NamedTuple):
    """A process that holds a value: where its environment or its arguments have it."""

    pid: int
    argv: tuple[str, ...]
    folder: str
    where: str


def holders(*values: bytes, places: tuple[str, ...] = ("environ", "cmdline")) -> Iterator[Holder]:
    """All processes of this machine, other than this one, that hold one of the values."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            for place in places:
                content = Path(f"/proc/{entry}/{place}").read_bytes()
                if any(value in content for value in values):
                    argv = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
                    yield Holder(int(entry), tuple(argv.split("\0")), os.readlink(f"/proc/{entry}/cwd"), place)
        except OSError:
            pass  # it ended, or is another user's


class Watch:
    """Who held one of the values, as far as a look every few milliseconds can tell."""

    def __init__(self, *values: str) -> None:
        self._values = tuple(value.encode() for value in values)
        self._seen: set[Holder] = set()
        self._ends = threading.Event()

    @property
    def seen(self) -> set[Holder]:
        """Everybody so far."""
        return set(self._seen)

    def look(self) -> None:
        """Look until the end."""
        while not self._ends.wait(WATCH_PAUSE_S):
            self._seen.update(holders(*self._values))

    def end(self) -> None:
        """Look no more."""
        self._ends.set()


@contextmanager
def watching(*values: str) -> Iterator[Watch]:
    """Watch all processes meanwhile."""
    watch = Watch(*values)
    thread = threading.Thread(target=watch.look)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()


# The command line, time and again in one process: what a person types costs no more than what it does.
TYPING = """\
import io, json, logging, os, sys
from contextlib import redirect_stderr, redirect_stdout
from omac.tools.entry import main

lines, answers, before = sys.stdin, sys.stdout, dict(os.environ)
sys.stdin = open(os.devnull)
for line in lines:
    arguments, extra, folder = json.loads(line)
    os.environ.clear()
    os.environ.update(before | extra)
    os.chdir(folder)
    sys.argv[1:] = arguments
    out, err, status = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    logging.getLogger().handlers.clear()
    print(json.dumps([status, out.getvalue(), err.getvalue()]), file=answers, flush=True)
"""


class Person:
    """Someone who types many commands, where nobody can be asked."""

    def __init__(self, omac: Omac) -> None:
        self._omac = omac
        self._process = subprocess.Popen(
            [sys.executable, "-c", TYPING],
            env=omac.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, extra: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
        """What a command did. `extra` variables are in no process's environment that others could read."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, dict(extra or {}), str(cwd or self._omac.root)]) + "\n")
        self._process.stdin.flush()
        return Done(*json.loads(self._process.stdout.readline()))

    def ok(self, *arguments: str, extra: Mapping[str, str] | None = None) -> str:
        """What a command prints that must succeed."""
        done = self.run(*arguments, extra=extra)
        assert done.status == 0, done
        return done.out

    def close(self) -> None:
        """Leave."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def person_of(omac: Omac) -> Iterator[Person]:
    """Someone to type commands meanwhile; the settings of `omac` are those of now."""
    person = Person(omac)
    try:
        yield person
    finally:
        person.close()
