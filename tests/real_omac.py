"""A real omac for tests, in a home and a state directory of its own: the command line, and servers as processes.

A command runs inside this process (tools/main.py), which saves it a start of its own. A command that forks or becomes
another program is a process, and so is one that a test runs by another command or by `Omac.process`.

`Omac.close` ends everything that it started, whatever the result of the test. No test reaches into a running omac: it
is used as people and agents use it, through the command line, curl and signals.
"""

import contextlib
import io
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from polling import eventually
from programs import program_at

from omac.adapters.files.state import StateDir
from omac.domain.kernel.event import Recorded
from omac.journal.reader import ReadJournal
from omac.tools.main import main

COMMAND = (sys.executable, "-c", "from omac.tools.entry import main; main()")
OWN_PROCESS = (("start",), ("serve",), ("sandbox", "run"), ("sandbox", "doctor"), ("hook", "pre-tool-use"))
CURL = ("curl", "-q", "-sS", "--noproxy", "*", "--max-time", "60")
ECHO_SKILL = Path(__file__).parent.parent / "examples" / "skills" / "echo"


class Answer(NamedTuple):
    """An answer to curl: header names are lower case; `body` is text."""

    status: int
    headers: dict[str, str]
    body: str

    def json(self) -> Any:
        """Return the body, decoded."""
        return json.loads(self.body)


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


def curl(*arguments: str, stdin: bytes | None = None) -> Answer:
    """Make a request by the real curl, and return the final answer, without interim ones."""
    done = subprocess.run([*CURL, "-i", *arguments], input=stdin, capture_output=True, timeout=90)
    assert done.returncode == 0, f"curl {arguments} ended with {done.returncode}: {done.stderr.decode()}"
    return parse_answer(done.stdout)


def parse_answer(raw: bytes) -> Answer:
    """Return the last answer in the output of `curl -i`."""
    while True:
        head, _, rest = raw.partition(b"\r\n\r\n")
        status = int(head.split(maxsplit=2)[1])
        if status >= 200:
            break
        raw = rest
    fields = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
    return Answer(status, {name.lower(): value.strip() for name, _, value in fields}, rest.decode("utf-8", "replace"))


def run_here(arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, stdin: bytes = b"") -> Done:
    """Run a command to its end in this process."""
    text_stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    with contextlib.chdir(cwd):
        status = main(arguments, environment, text_stdin, out, err)
    return Done(status, _written(out), _written(err))


class Serving:
    """An `omac serve` that runs, and its addresses."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self.errors = errors
        self.ready: dict[str, str] = {}
        self.token = ""

    def await_ready(self, seconds: float = 20.0, root: str = "") -> "Serving":
        """Read the one line of a server that is ready; `root` is the beginning of its own view of the file system."""
        self.ready = json.loads(self.line(seconds))
        for field in ("control_socket", "control_token_file", "facade_socket"):
            self.ready[field] = root + self.ready[field]
        self.token = Path(self.ready["control_token_file"]).read_text()
        return self

    def line(self, seconds: float = 20.0) -> str:
        """Return the next line of stdout."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(seconds), f"omac serve printed nothing within {seconds} s: {self.said()}"
        line = self.process.stdout.readline().decode()
        assert line, f"omac serve ended: {self.said()}"
        return line

    def said(self) -> str:
        """Return the text on stderr so far."""
        return self.errors.read_text(errors="replace")

    def call(self, action: str, document: object = None, *, raw: bytes | None = None) -> Answer:
        """POST to the private socket with a body, GET without one."""
        body = raw if raw is not None else None if document is None else json.dumps(document).encode()
        sends = () if body is None else ("-H", "Content-Type: application/json", "--data-binary", "@-")
        where = ("--unix-socket", self.ready["control_socket"], f"http://localhost/__omac__/{action}")
        return curl(*sends, *where, stdin=body)

    def call_tcp(self, action: str, *arguments: str) -> Answer:
        """Make a request over TCP with nothing but `arguments`."""
        return curl(*arguments, f"{self.ready['control_base']}/__omac__/{action}")

    def activate(self, directory: Path, session: str | None = None) -> dict[str, Any]:
        """Activate a directory, which has to succeed, and return its manifest, once no skill is on its way any more: a
        server answers before that where a sidecar takes seconds to start, as on a busy machine."""

        def asked() -> dict[str, Any]:
            answer = self.call("activate", {"dir": str(directory)} | ({"session": session} if session else {}))
            assert answer.status == 200, answer
            manifest: dict[str, Any] = answer.json()
            return manifest

        settled: dict[str, Any] = eventually(
            lambda: (manifest := asked())["state"] != "activating" and manifest, 30.0, "the skills"
        )
        return settled

    def skill(self, directory: Path, name: str = "echo") -> dict[str, Any]:
        """Return a skill of a directory, as its manifest has it."""
        (entry,) = [skill for skill in self.activate(directory)["skills"] if skill["name"] == name]
        skill: dict[str, Any] = entry
        return skill

    def descriptors(self) -> int:
        """Return the number of descriptors that the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Send a signal, wait, and return the exit status (negative: the signal that killed it)."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def close(self) -> None:
        """Make sure that the process has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Omac:
    """A person's omac. `root` holds the projects; `state` is short enough for the paths of sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.root = self.folder / "R"
        self.root.mkdir()
        self.state = Path(tempfile.mkdtemp(dir="/tmp", prefix="o"))
        home = self.folder / "home"
        home.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            **{name: os.environ[name] for name in ("TZ",) if name in os.environ},  # of commands in this process, too
            "HOME": str(home),
            **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "DATA", "CACHE")},
            "OMAC_STATE_DIR": str(self.state),
            "OMAC_JOURNAL_WITNESS": "none",  # the log of this machine is not for tests
        }
        self._servings: list[Serving] = []

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
        within: tuple[str, ...] = (),
        stdin: bytes = b"",
        seconds: float = 60.0,
    ) -> Done:
        """Run a command to its end. `within` is a command that runs it, such as bwrap."""
        if within or arguments[:1] in OWN_PROCESS or arguments[:2] in OWN_PROCESS:
            return self.process(*arguments, cwd=cwd, extra=extra, within=within, stdin=stdin, seconds=seconds)
        return run_here(arguments, self.environment | dict(extra or {}), cwd or self.root, stdin)

    def process(
        self,
        *arguments: str,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
        within: tuple[str, ...] = (),
        stdin: bytes = b"",
        seconds: float = 60.0,
    ) -> Done:
        """Run a command to its end, as a process without a terminal."""
        done = subprocess.run(
            [*within, *COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            start_new_session=True,
            env=self.environment | dict(extra or {}),
            cwd=cwd or self.root,
            timeout=seconds,
        )
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def ok(self, *arguments: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None) -> str:
        """Return the output of a command that must succeed."""
        done = self.run(*arguments, cwd=cwd, extra=extra)
        assert done.status == 0, done
        return done.out

    def start(
        self,
        *arguments: str,
        extra: Mapping[str, str] | None = None,
        within: tuple[str, ...] = (),
    ) -> Serving:
        """Start a command that goes on, such as `serve`, without a terminal; its stdout can be read line by line."""
        errors = self.folder / f"stderr-{len(self._servings)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*within, *COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
                env=self.environment | dict(extra or {}),
                cwd=self.root,
                bufsize=0,
            )
        serving = Serving(process, errors)
        self._servings.append(serving)
        return serving

    def serve(self, *arguments: str, extra: Mapping[str, str] | None = None, within: tuple[str, ...] = ()) -> Serving:
        """Start `omac serve --no-inner --json --root R`, and return it when it is ready."""
        line = ("serve", "--no-inner", "--json", "--root", str(self.root), *arguments)
        return self.start(*line, extra=extra, within=within).await_ready()

    def program(self, name: str, text: str) -> Path:
        """Put a program on PATH, before others of that name, and return its folder."""
        folder = program_at(self.folder / "bin" / name, text).parent
        if not self.environment["PATH"].startswith(f"{folder}:"):
            self.environment["PATH"] = f"{folder}:{self.environment['PATH']}"
        return folder

    def project(self, name: str, *skills: str) -> Path:
        """Make a project with copies of the echo skill under these names (its own if none is given)."""
        project = self.root / name
        for skill in skills or ("echo",):
            source = project / ".agents" / "skills" / skill
            shutil.copytree(ECHO_SKILL, source)
            meta = source / "omac.yaml"
            meta.write_text(
                meta.read_text().replace("name: echo\n", f"name: {skill}\n").replace("mount: echo", f"mount: {skill}")
            )
        return project

    def online(self, name: str) -> tuple[Serving, Path]:
        """Start a server, and bring an approved project online; return both."""
        project, serving = self.approved(name), self.serve()
        serving.activate(project)
        return serving, project

    def skill(self, project: Path, name: str, meta: str | bytes, program: str = "") -> Path:
        """Write a skill with this omac.yaml and, as sidecar.py, this program; return its folder."""
        source = project / ".agents" / "skills" / name
        source.mkdir(parents=True)
        (source / "omac.yaml").write_bytes(meta if isinstance(meta, bytes) else meta.encode())
        (source / "sidecar.py").write_text(program)
        return source

    def approve(self, project: Path, *skills: str) -> None:
        """Approve skills of a project."""
        for skill in skills or ("echo",):
            self.ok("approve", skill, "--workdir", str(project))

    def approved(self, name: str, *skills: str) -> Path:
        """Make a project as `project` does, and approve its skills."""
        project = self.project(name, *skills)
        self.approve(project, *skills)
        return project

    def audit(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the accesses, as `omac audit --json` has them."""
        return [json.loads(line) for line in self.ok("audit", "--kind", "access", "--json", *arguments).splitlines()]

    def attempts(self) -> list[dict[str, Any]]:
        """Return the refused attempts, as `omac audit --json` has them, without accesses."""
        rows = [json.loads(line) for line in self.ok("audit", "--outcome", "refused", "--json").splitlines()]
        return [row for row in rows if row["kind"] != "access"]

    def events(self, kind: type | None = None) -> list[Recorded]:
        """Return the events in the journal, or those of one type."""
        return [record for record in self.records() if kind is None or isinstance(record.event, kind)]

    def records(self, after: int = 0, *kinds: str) -> Iterator[Recorded]:
        """Yield the records of the journal above a position, or those of some kinds, one by one."""
        path = str(self.state / "journal.db")
        with contextlib.closing(
            ReadJournal(path, keys=partial(StateDir(str(self.state)).subject_keys, path))
        ) as journal:
            yield from journal.of_kinds(kinds, after) if kinds else journal.records(after)

    def left(self) -> list[int]:
        """Return living processes, other than servers, with a path of this omac in their arguments or environment."""
        mark, servers = str(self.folder).encode(), {serving.process.pid for serving in self._servings}
        pids = []
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            if pid not in servers and pid != os.getpid() and _mentions(pid, mark):
                pids.append(pid)
        return pids

    def close(self) -> None:
        """End everything and remove the state."""
        for serving in self._servings:
            serving.close()
        try:
            eventually(lambda: not self.left(), 20.0, "the end of what omac started")
        finally:
            for pid in self.left():
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.state, ignore_errors=True)


@contextmanager
def omac_in(folder: Path) -> Iterator[Omac]:
    """Yield an omac whose projects and home are below `folder`; nothing of it is left afterwards."""
    omac = Omac(folder)
    try:
        yield omac
    finally:
        omac.close()


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(errors="replace")


def _mentions(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                return False
        for name in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if mark in file.read():
                    return True
    except OSError:
        pass  # it ended, or is another user's
    return False
