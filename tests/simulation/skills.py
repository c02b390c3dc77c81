"""Skills for tests of trust, and a watch over the processes that hold a value.

Each sidecar reports which code it is and which values it got, and leaves a trace whenever it runs at all. The watch
reads the environment and the arguments of all processes on this machine.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from real_omac import Omac

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
    _entry = {{"mark": {mark!r}, "token": _os.environ.get("SLACK_TOKEN"), "folder": _os.getcwd()}}
    _file.write(_json.dumps(_entry) + "\\n")
"""

SERVE = """\
import json, os, socket, sys, threading

here = os.path.dirname(os.path.abspath(__file__))
parts = {{}}
for folder in ("node_modules", "dist", "build", "vendor"):
    sys.path.insert(1, os.path.join(here, folder))
    if os.path.exists(os.path.join(here, folder, "part_" + folder + ".py")):
        parts[folder] = __import__("part_" + folder).MARK
seen = {{name: os.environ.get(name) for name in ("SLACK_TOKEN", "REGION")}}
body = json.dumps({{"mark": {mark!r}, "parts": parts, "env": seen}}).encode()
answer = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(body), body)


def serve(peer):
    with peer:
        if peer.recv(65536):
            peer.sendall(answer)


with socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"]))) as server:
    while True:
        threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"""


def meta(name: str = "slack", version: str = "1", command: str = "[python3, sidecar.py]") -> str:
    """Return an omac.yaml."""
    return META.format(name=name, version=version, command=command)


def traced(trace: Path, mark: str) -> str:
    """Return Python that leaves a line in `trace`: which code ran, where, with which token."""
    return TRACE.format(trace=str(trace), mark=mark)


def program(trace: Path, mark: str) -> str:
    """Return a sidecar.py that leaves a trace and serves."""
    return traced(trace, mark) + SERVE.format(mark=mark)


def traces(trace: Path) -> list[dict[str, Any]]:
    """Return the traces of all that ran, oldest first."""
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []


class Holder(NamedTuple):
    """A process that holds a value: where its environment or its arguments have it."""

    pid: int
    argv: tuple[str, ...]
    folder: str
    where: str


def holders(*values: bytes, places: tuple[str, ...] = ("environ", "cmdline")) -> Iterator[Holder]:
    """Yield all processes of this machine, other than this one, that hold one of the values."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            for file in places:
                content = Path(f"/proc/{entry}/{file}").read_bytes()
                if any(value in content for value in values):
                    argv = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").rstrip("\0")
                    yield Holder(int(entry), tuple(argv.split("\0")), os.readlink(f"/proc/{entry}/cwd"), file)
        except OSError:
            pass  # it ended, or is another user's


class Watch:
    """A watch for the processes that hold one of the values, as far as a check every few milliseconds can find them."""

    def __init__(self, *values: str) -> None:
        self._values = tuple(value.encode() for value in values)
        self._seen: set[Holder] = set()
        self._ends = threading.Event()

    @property
    def seen(self) -> set[Holder]:
        """Return the holders found so far."""
        return set(self._seen)

    def check(self) -> None:
        """Check for holders until the end."""
        while not self._ends.wait(WATCH_PAUSE_S):
            self._seen.update(holders(*self._values))

    def end(self) -> None:
        """End the checks."""
        self._ends.set()


@contextmanager
def watching(*values: str) -> Iterator[Watch]:
    """Watch all processes meanwhile."""
    watch = Watch(*values)
    thread = threading.Thread(target=watch.check)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()


@contextmanager
def person_of(omac: Omac) -> Iterator[Omac]:
    """Yield a person who types commands, with the settings that `omac` has now."""
    person = copy(omac)
    person.environment = dict(omac.environment)
    yield person
