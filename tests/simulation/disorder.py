"""People, agents and programs that use one omac at once, by real processes; and the answers of each, to compare later.

A claim is the set of values that the journal may have for a target. An acknowledged command leaves one value; a command
that failed or was killed may have had its effect or not.
"""

import copy
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from real_omac import COMMAND, Answer, Done, Omac, Serving, curl
from valued_skill import with_vault

from omac.domain.access.access import AccessRequested, accesses_of
from omac.domain.credentials.credential import SecretWritten
from omac.domain.directories.events import ActivationRequested, SessionAdmitted
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.run import RunStarted
from omac.domain.sandbox.launch import LaunchRequested
from omac.projections.system import System

PROJECTS = ("p0", "p1", "p2")
SKILLS = ("one", "two")
BOUND_S = 60.0  # for whatever is asked of omac, faults or not
KILLED_OF_100 = 8  # commands that are killed
META = """\
name: {name}
description: Of {project} alone, so that no value is adopted from another project's
sidecar:
  command: [python3, -S, -E, sidecar.py]
  mount: {name}
  health: {{path: /status, interval_ms: 50}}
  secrets: [{{name: KEY, required: false}}]
"""
SIDECAR = """
import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), backlog=64)
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    connection.close()
"""
Target = tuple[str, ...]


class Ledger:
    """The effects that were acknowledged so far."""

    def __init__(self) -> None:
        self.claims: dict[Target, frozenset[Any]] = {}  # a target that is not here may say anything
        self.written: Counter[Target] = Counter()  # secrets: at least so often
        self.digests: set[str] = set()  # of tokens that were given out
        self.calls: set[str] = set()  # paths of calls that a skill answered
        self.launches: set[str] = set()  # words of command lines that ran in a sandbox
        self.started = 0  # runs beside the server, at least

    def copied(self) -> "Ledger":
        """Return a copy of the ledger as it is now."""
        return copy.deepcopy(self)


class Disorder:
    """An omac, and the people and programs that use it. `failures` lists all that failed."""

    def __init__(self, omac: Omac, chance: random.Random) -> None:
        self.omac = omac
        self.chance = chance
        self.ledger = Ledger()
        self.failures: list[str] = []
        self.done: Counter[tuple[str, str]] = Counter()  # operations by kind and outcome
        self.slowest: dict[str, float] = {}
        self.server: Serving | None = None
        self._lock = threading.Lock()
        self._busy: set[Target] = set()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._bases: list[str] = []
        self._number = 0
        with_vault(omac)
        for project in PROJECTS:
            for skill in SKILLS:
                omac.skill(omac.root / project, skill, META.format(name=skill, project=project), SIDECAR)

    def fail(self, what: str) -> None:
        """Note a failure."""
        print(f"  FELL: {what}", flush=True)
        self.failures.append(what)

    def serve(self, server: Serving | None) -> None:
        """Make this the server from now on; addresses from another one lead nowhere."""
        with self._lock:
            self.server, self._bases = server, []

    def number(self) -> int:
        """Return another number at each call."""
        with self._lock:
            self._number += 1
            return self._number

    def work(self, until: float) -> None:
        """Do one operation after the other, until that moment of the monotonic clock."""
        operations: list[tuple[Callable[[], str], int]] = [
            (self._control, 6), (self._call, 8), (self._approve, 4), (self._secret, 3), (self._setting, 2),
            (self._start, 2), (self._sandbox, 3), (self._status, 2),
        ]  # fmt: skip
        while time.monotonic() < until:
            (operation,) = self.chance.choices(*map(list, zip(*operations, strict=True)))
            name, begun = operation.__name__.strip("_"), time.monotonic()
            try:
                outcome = operation()
            except Exception as error:  # the driver's own, or an answer that is none
                outcome = "broken"
                self.fail(f"{name}: {type(error).__name__}: {error}")
            seconds = time.monotonic() - begun
            with self._lock:
                self.done[name, outcome] += 1
                self.slowest[name] = max(seconds, self.slowest.get(name, 0.0))

    def command(self, *arguments: str, stdin: bytes = b"", mortal: bool = True) -> Done:
        """Run a command, and kill it now and then. A command that is too slow, or prints a traceback, is a failure."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env=self.omac.environment, cwd=self.omac.root,
        )  # fmt: skip
        self._running[process.pid] = process
        killer = threading.Timer(self.chance.random() * 1.5, process.kill)
        if mortal and self.chance.randrange(100) < KILLED_OF_100:
            killer.start()
        try:
            out, err = process.communicate(stdin, BOUND_S)
        except subprocess.TimeoutExpired:
            self.fail(f"omac {' '.join(arguments)}: stuck after {BOUND_S:.0f} s")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        finally:
            killer.cancel()
            del self._running[process.pid]
        done = Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        if "Traceback" in done.err:
            self.fail(f"omac {' '.join(arguments)}: a traceback\n{done.err[-3000:]}")
        return done

    def running(self) -> list[int]:
        """Return the pids of commands that are under way."""
        return [pid for pid, process in list(self._running.items()) if process.poll() is None]

    # ---- operations; each returns how it ended ----

    def _control(self) -> str:
        action = self.chance.choice(["activate", "activate", "reload", "deactivate"])
        project = self._project()
        answer = self._ask(lambda server: server.call(action, {"dir": str(project)}), action)
        if answer is None:
            return "not answered"
        if answer.status == 200 and action != "deactivate":
            bases = [skill["base"] for skill in answer.json()["skills"] if "base" in skill]
            with self._lock:
                self.ledger.digests |= {ids.token_digest(base.split("/")[3]) for base in bases}
                self._bases = (self._bases + bases)[-12:]
        return str(answer.status)

    def _call(self) -> str:
        if not self._bases:
            return "nothing there"
        base, path = self.chance.choice(self._bases), f"/n{self.number()}"
        answer = self._ask(lambda _: curl(base + path), "call")
        if answer is None:
            return "not answered"
        if answer.status == 200:
            with self._lock:
                self.ledger.calls.add(path)
        return str(answer.status)

    def _ask(self, ask: Callable[[Serving], Answer], what: str) -> Answer | None:
        """Return the server's answer, or None when it is away. An answer that is too slow, or a 500, is a failure."""
        server, begun = self.server, time.monotonic()
        if server is None:
            return None
        try:
            answer = ask(server)
        except (AssertionError, ValueError, IndexError):  # curl's own status, or half an answer: it is gone
            if time.monotonic() - begun >= BOUND_S - 1:
                self.fail(f"{what}: no answer within {BOUND_S:.0f} s")
            return None
        if answer.status == 500:
            self.fail(f"{what}: 500 {answer.body[:300]}")
        return answer

    def _approve(self) -> str:
        project, skill = self._project(), self.chance.choice(SKILLS)
        revoke = self.chance.random() < 0.3
        words = ["approve", skill, "--workdir", str(project)] + (["--revoke"] if revoke else [])
        return self._claim(("approved", str(project), skill), not revoke, lambda: self.command(*words))

    def _secret(self) -> str:
        project, skill = self._project(), self.chance.choice(SKILLS)
        target, remove = ("secret", str(project), skill), self.chance.random() < 0.3
        words = ["secrets", "unset" if remove else "set", skill, "KEY", "--workdir", str(project)]
        value = b"" if remove else f"value-{self.number()}".encode()
        outcome = self._claim(target, not remove, lambda: self.command(*words, stdin=value))
        if outcome == "done" and not remove:
            with self._lock:
                self.ledger.written[target] += 1
        return outcome

    def _setting(self) -> str:
        word = self.chance.choice(["deny", "read"])
        return self._claim(
            ("setting", "git.hooks"), word, lambda: self.command("settings", "set", "git.hooks", word), "already"
        )

    def _start(self) -> str:
        words = ("start", "--no-sandbox", "--workdir", str(self._project()), "--", "sh", "-c", "exit 0")
        if self.command(*words).status:
            return "failed"
        with self._lock:
            self.ledger.started += 1
        return "done"

    def _sandbox(self) -> str:
        word = f"launch{self.number()}"
        if self.command("sandbox", "run", "--workdir", str(self._project()), "--", "true", word).status:
            return "failed"
        with self._lock:
            self.ledger.launches.add(word)
        return "done"

    def _status(self) -> str:
        done = self.command("status", "--json")
        if done.status == 0:
            json.loads(done.out)
        return "failed" if done.status else "done"

    def _claim(self, target: Target, value: object, run: Callable[[], Done], unless: str = "\0") -> str:
        """Run a command that gives `target` this value, while no other command changes it. With `unless` in its output,
        it had the value already."""
        with self._lock:
            if target in self._busy:
                return "busy"
            self._busy.add(target)
            claims = self.ledger.claims
            if target in claims:
                claims[target] |= {value}
        try:
            done = run()
            if done.status == 0 and unless not in done.out:
                claims[target] = frozenset({value})
            return "failed" if done.status else "done"
        finally:
            with self._lock:
                self._busy.discard(target)

    def _project(self) -> Path:
        return self.omac.root / self.chance.choice(PROJECTS)

    # ---- what must hold ----

    def compare(self) -> None:
        """Compare the acknowledged effects with the journal; the server has ended in order."""
        records = list(self.omac.records())
        system = System().replay(records)
        for target, allowed in self.ledger.claims.items():
            if (value := _recorded_value(system, target)) not in allowed:
                self.fail(f"{target}: the journal says {value!r}, acknowledged was {sorted(allowed, key=str)}")
        self._compare_counts(records)
        if system.accesses.open:
            self.fail(f"accesses without an outcome: {sorted(system.accesses.open)[:5]}")

    def _compare_counts(self, records: Sequence[Recorded]) -> None:
        events = [recorded.event for recorded in records]
        written = Counter(_key(recorded) for recorded in records if isinstance(recorded.event, SecretWritten))
        for (_, project, skill), count in self.ledger.written.items():
            if (number := written[ids.workdir_id(project), skill]) < count:
                self.fail(f"{count} secrets were given to {skill} in {project}, {number} are recorded")
        digests = {event.digest for event in events if isinstance(event, ActivationRequested | SessionAdmitted)}
        accesses = [event for record in records for _, event in accesses_of(record.position, record.event)]
        paths = Counter(event.path for event in accesses if isinstance(event, AccessRequested))
        launches = Counter(event.argv[-1] for event in events if isinstance(event, LaunchRequested))
        for things, lost in (
            ("tokens", self.ledger.digests - digests),
            ("calls", {path for path in self.ledger.calls if paths[path] != 1}),
            ("launches", {word for word in self.ledger.launches if launches[word] != 1}),
        ):
            if lost:
                self.fail(f"{things} that were acknowledged are not recorded once: {sorted(lost)[:5]}")
        if (number := sum(isinstance(e, RunStarted) and e.command == "start" for e in events)) < self.ledger.started:
            self.fail(f"{self.ledger.started} runs beside the server ended in order, {number} are recorded")


def _key(recorded: Recorded) -> tuple[str, str]:
    key = ids.key_of(recorded.stream)
    return key.scope, key.name


def _recorded_value(system: System, target: Target) -> object:
    """Return the value that the journal has for a target of claims."""
    match target:
        case ("approved", project, skill):
            return any(
                entry.state.approved is not None
                for stream, entry in system.registrations.entries.items()
                if _is(stream, project, skill)
            )
        case ("secret", project, skill):
            return any(
                "KEY" in entry.state.secrets
                for stream, entry in system.credentials.entries.items()
                if _is(stream, project, skill)
            )
        case ("setting", name):
            values = [e.state.value for stream, e in system.settings.entries.items() if ids.key_of(stream).name == name]
            return values[0] if values else None
        case _:
            raise AssertionError(target)


def _is(stream: ids.StreamId, project: str, skill: str) -> bool:
    key = ids.key_of(stream)
    return (key.scope, key.name) == (ids.workdir_id(project), skill)
