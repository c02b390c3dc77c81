"""No secret is anywhere but in its store and in the program that it is for.

With each store, secrets are given in every way there is, used, changed, removed and refused. The store is locked, a
sidecar crashes, another cannot be started, and omac is killed in the middle, and breaks. Then everything that was
written, printed, answered, or could be seen of a process is searched for them, byte by byte and in other spellings.
"""

import base64
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from polling import eventually
from real_keyring import PrivateKeyring, private_keyring
from real_omac import COMMAND, Answer, Done, Omac, Serving, curl, omac_in
from simulation.skills import Holder, holders, person_of
from valued_skill import piped, typed, with_vault

from omac.domain.credentials.credential import SecretWriteRequested
from omac.domain.skills.values import VALUE_BYTES_MAX

CORE_LENGTH = 24
META = """\
name: {name}
sidecar:
  command: {command}
  mount: {name}
  health: {{path: /status, interval_ms: 20}}
  secrets:
    - {{name: TOKEN, pattern: '^[a-z]{{4}}-.+$'}}
    - {{name: PEM, required: false, multiline: true}}
    - {{name: SPARE, required: false}}
  config:
    - {{name: CONTROL, required: false}}
"""

# It tells what it was given by digest only, and writes the setting CONTROL to its log in every spelling.
PROGRAM = """\
import base64, hashlib, json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

control = os.environ.get("CONTROL", "")
raw = control.encode()
for line in (control, control[::-1], raw.hex(), raw.hex().upper(), quote(control, safe=""), json.dumps(control)):
    print(line)
for before in range(3):
    print(base64.b64encode(b"x" * before + raw).decode())
    print(base64.urlsafe_b64encode(b"x" * before + raw).decode())
sys.stdout.flush()
os.write(1, control.encode("utf-16-le") + b"\\n")
if os.environ["SIDECAR_SKILL"] == "crash":
    raise RuntimeError("it crashes")
digests = {name: hashlib.sha256(os.environ.get(name, "").encode()).hexdigest() for name in ("TOKEN", "PEM", "SPARE")}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(digests).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Handler).serve_forever()
"""

# omac, with a fault of its own in the middle of things; what it shows then has every local variable in it.
BROKEN = """\
import sys, traceback
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.services.kernel.opened import OpenedJournal
from omac.tools.entry import main

def show(kind, error, trace):
    print("".join(traceback.TracebackException(kind, error, trace, capture_locals=True).format()), file=sys.stderr)

def broken(*_, **__):
    raise RuntimeError("a fault")

sys.excepthook = show
sys.argv[1:] = sys.argv[4:]
if sys.argv[1] == "serve":
    whole = LinuxSidecarHost._start
    async def start(self, program, log):
        return broken() if program.argv[-1] == "broken" else await whole(self, program, log)
    LinuxSidecarHost._start = start
else:
    OpenedJournal.execute = broken
main()
"""
WITH_FAULT = (sys.executable, "-c", BROKEN)


def spellings(core: str) -> set[bytes]:
    """Return how a text of letters and digits may be written; spellings that leave it unchanged are covered by it."""
    raw = core.encode()
    variants = {raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), core.encode("utf-16-le")}
    for before in range(3):
        encoded = base64.b64encode(b"x" * before + raw)
        variants.add(encoded[4 if before else 0 : len(encoded) - 4])  # the ends depend on what is beside it
    return variants


class Scene:
    """An omac, everything that was ever seen of it, and the values that must not be in there."""

    def __init__(self, omac: Omac, person: Omac, store: str, keyring: PrivateKeyring | None) -> None:
        self.omac, self.person, self.store, self.keyring = omac, person, store, keyring
        self.values: dict[str, str] = {}
        self.seen: list[tuple[str, bytes]] = []
        self.control = self.value("control")
        del self.values["control"]
        self.shop = omac.root / "shop"
        commands = {"slack": "python3, sidecar.py", "dud": "./nothing", "fault": "python3, sidecar.py, broken"}
        for name, command in (commands | {"crash": commands["slack"]}).items():
            omac.skill(self.shop, name, META.format(name=name, command=f"[{command}]"), PROGRAM)

    def value(self, how: str, form: str = 'tokn-{} "ü"/+=%\\') -> str:
        """Return a value that cannot be mistaken, for this way of giving it."""
        digest = hashlib.sha256(f"{self.omac.folder}: {how}".encode()).digest()
        core = re.sub("[^A-Za-z0-9]", "", base64.b64encode(digest).decode())[:CORE_LENGTH]
        self.values[how] = core
        return form.format(core)

    def note(self, what: str, content: Done | Answer | str | bytes) -> None:
        """Keep some content, to search it later."""
        data = content if isinstance(content, bytes) else str(content).encode(errors="surrogateescape")
        if isinstance(content, Done):
            data = f"{content.out}\0{content.err}".encode(errors="surrogateescape")
        self.seen.append((what, data))

    def typing(self, *arguments: str, extra: dict[str, str] | None = None) -> Done:
        """Run a command where no person can be prompted, and keep its output."""
        done = self.person.run(*arguments, extra=extra)
        self.note(" ".join(arguments), done)
        return done

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that omac wrote anywhere, but for the vault itself."""
        vaults = {self.omac.state / "vault"}
        folders = [self.omac.state, *(self.omac.folder / name for name in ("home", "tmp"))]
        if self.keyring is not None:
            folders.append(Path(self.keyring["HOME"]).parent)
        paths = [path for folder in folders for path in folder.rglob("*")]
        for path in (*paths, *self.omac.folder.glob("stderr-*")):
            if path.is_file() and path not in vaults:
                yield str(path), path.read_bytes()

    def occurrences(self, *cores: str) -> list[tuple[str, str]]:
        """Return where these values are, and which."""
        needles = {spelling: core for core in cores for spelling in spellings(core)}
        pattern = re.compile(b"|".join(map(re.escape, needles)))
        return [
            (where, needles[hit[0]])
            for where, content in (*self.seen, *self.files())
            for hit in pattern.finditer(content)
        ]

    def holders(self) -> set[Holder]:
        """Return every process that could be seen to have one of the values."""
        return set(holders(*(core.encode() for core in self.values.values())))

    def note_answers(self, server: Serving, when: str) -> None:
        """Keep all answers that omac and the system give."""
        shop = ("--workdir", str(self.shop))
        for action in ("status", "dirs", "global"):
            self.note(f"{when}: {action}", server.call(action))
        self.note(f"{when}: manifest", server.call("activate", {"dir": str(self.shop)}))
        for words in (
            ("status",),
            ("audit",),
            ("list", *shop),
            ("approvals",),
            ("config", "show", "slack", *shop),
            ("secrets", "list", "slack", *shop),
            ("journal", "stats"),
            ("replay", "--at", str(server.call("status").json()["position"])),
        ):
            for form in ((), ("--json",)):
                assert self.typing(*words, *form).status == 0, (words, self.seen[-1])
        self.note(f"{when}: ps", subprocess.run(["ps", "-ef", "ww"], capture_output=True, check=True).stdout)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Keep the store from finishing meanwhile."""
        if self.keyring is not None:
            self.keyring.pause()
            try:
                yield
            finally:
                self.keyring.resume()
        else:
            with open(f"{self.omac.state}/vault.lock", "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield


def give(scene: Scene) -> None:
    """Give secrets in every way there is, and in ways that are refused."""
    omac, shop = scene.omac, ("--workdir", str(scene.shop))
    first = {"OMAC_SECRET_TOKEN": scene.value("environment"), "OMAC_CONFIG_CONTROL": scene.control}
    done = omac.run("register", "slack", *shop, extra=first)
    scene.note("register", done)
    assert done.status == 0, done
    wrong, right = scene.value("typed wrong", "WRONG {}"), scene.value("typed")
    done = typed(omac, [("value", f"{wrong}\n".encode()), ("value", f"{right}\n".encode())], *SET, "TOKEN", *shop)
    scene.note("typed", done)
    assert done.status == 0, done
    done = piped(omac, f"{scene.value('piped')}\n".encode(), *SET, "SPARE", *shop)
    scene.note("piped", done)
    assert done.status == 0, done
    file = omac.folder / "values"
    lines = f"SPARE={scene.value('file')}\nPEM={scene.value('second of a file')}\n"
    file.write_text(lines)
    assert scene.typing("secrets", "import", "slack", "--from", str(file), *shop).status == 0
    for skill in ("crash", "dud", "fault"):
        file.write_text(f"TOKEN={scene.value(f'file for {skill}')}\n")
        assert scene.typing("register", skill, "--secrets-from", str(file), *shop).status == 0
    for how, value in {
        "wrong": scene.value("wrong", "WRONG {}"),
        "long": scene.value("long", "tokn-{}" + "x" * VALUE_BYTES_MAX),
        "line": scene.value("line", "tokn-{}\nmore"),
        "NUL": scene.value("NUL", "tokn-{}\0more"),
        "escape": scene.value("escape", "\x1b[31m{}"),
    }.items():
        file.write_text(f"TOKEN={value}\n")
        assert scene.typing("secrets", "import", "slack", "--from", str(file), *shop).status != 0 or how == "line"
        if how != "NUL":
            again = ("register", "slack", "--reprompt-secrets", *shop)
            assert scene.typing(*again, extra={"OMAC_SECRET_TOKEN": value}).status != 0, how
    file.write_text(scene.value("no line at all"))
    assert scene.typing("secrets", "import", "slack", "--from", str(file), *shop).status != 0
    assert scene.typing(*SET, "TOKEN", scene.value("as an argument"), *shop).status != 0
    assert scene.typing(*SET, "TOKEN", *shop, extra={"OMAC_SECRET_TOKEN": scene.value("for another command")}).status
    file.unlink()


def use(scene: Scene, server: Serving) -> None:
    """Call the skill, and require that its sidecar has its values, and has them alone."""
    base = server.skill(scene.shop, "slack")["base"]
    answer = curl(f"{base}/?{quote('no secret')}")
    scene.note("facade", answer)
    token, spare = scene.value("typed"), scene.value("file")
    expected = {name: _digest(value) for name, value in (("TOKEN", token), ("SPARE", spare))}
    assert {name: answer.json()[name] for name in expected} == expected
    processes = set(holders(scene.values["typed"].encode()))
    (holder,) = processes
    assert (holder.where, os.path.basename(holder.argv[0]), holder.argv[1:]) == ("environ", "python3", ("sidecar.py",))
    assert holder.pid not in (server.process.pid, *(each["pid"] for each in server.call("status").json()["sidecars"]))
    copies = os.path.join(scene.omac.state, "frozen") + "/"
    assert all(each.folder.startswith(copies) and each.where == "environ" for each in scene.holders())
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            links = {link: os.readlink(link) for link in folder.iterdir()}
        except OSError:
            continue
        assert not [link for link, target in links.items() if target.startswith("/memfd:bwrap")], links
    scene.note_answers(server, "in use")


def change(scene: Scene, server: Serving) -> None:
    """Change one secret and remove another while the server runs."""
    shop = ("--workdir", str(scene.shop))
    changed = scene.value("changed")
    assert scene.typing("register", "slack", *shop, extra={"OMAC_SECRET_TOKEN": changed}).status == 0
    expected = _digest(changed)

    def has_arrived() -> bool:
        answer = server.call("activate", {"dir": str(scene.shop)}).json()
        (base,) = [skill.get("base") for skill in answer["skills"] if skill["name"] == "slack"] or [None]
        return bool(base) and curl(f"{base}/").body.find(expected) > 0

    eventually(has_arrived, 15.0, "the changed value to arrive")
    assert scene.typing("secrets", "unset", "slack", "SPARE", *shop).status == 0
    scene.note_answers(server, "changed")


def kill(scene: Scene, server: Serving) -> None:
    """Kill a command that is about to store a value, and the server while a sidecar runs; then run a server and a
    command that break."""
    omac, shop = scene.omac, ("--workdir", str(scene.shop))
    with scene.stuck():
        before = len(omac.events(SecretWriteRequested))
        extra = {"OMAC_SECRET_TOKEN": scene.value("killed")}
        words = ("register", "slack", *shop)
        with subprocess.Popen(
            [*COMMAND, *words],
            env=omac.environment | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            if scene.keyring is None:
                eventually(lambda: len(omac.events(SecretWriteRequested)) > before, 20.0, "the command to be writing")
            else:
                eventually(lambda: b"register" in _sleeping(process.pid), 20.0, "the command to wait for the keyring")
            process.kill()
            scene.note("killed", process.communicate()[0])
    server.end(signal.SIGKILL)
    fault = omac.start("serve", "--no-inner", "--json", "--root", str(omac.root), within=WITH_FAULT).await_ready()
    scene.note("activation", fault.call("activate", {"dir": str(scene.shop)}))
    assert "a fault" in fault.said()
    scene.note_answers(fault, "broken")
    done = piped_with_fault(omac, f"{scene.value('broken')}\n".encode(), *SET, "SPARE", *shop)
    scene.note("broken", done)
    assert "failed unexpectedly (RuntimeError)" in done.err, done
    trace = Path(done.err.split("less ")[1].split()[0])
    scene.note("trace", trace.read_bytes())
    trace.unlink()
    lock(scene, fault)
    assert fault.end() == 0


def lock(scene: Scene, server: Serving) -> None:
    """Lock the store: no value can be given, and no skill that needs one starts."""
    shop = ("--workdir", str(scene.shop))
    if scene.keyring is not None:
        scene.keyring.lock()
        extra = {"OMAC_SECRET_TOKEN": scene.value("locked")}
    else:
        extra = {"OMAC_SECRET_TOKEN": scene.value("locked"), "OMAC_VAULT_KEY_FILE": str(scene.omac.folder / "gone")}
    assert scene.typing("register", "slack", *shop, extra=extra).status != 0
    server.call("deactivate", {"dir": str(scene.shop)})
    scene.note("locked: activation", server.call("activate", {"dir": str(scene.shop)}))
    scene.note_answers(server, "locked")


def piped_with_fault(omac: Omac, stdin: bytes, *arguments: str) -> Done:
    """Run a command that breaks, with its standard input from a pipe."""
    done = subprocess.run(
        [*WITH_FAULT, *COMMAND, *arguments], input=stdin, capture_output=True, env=omac.environment, cwd=omac.root
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def _sleeping(pid: int) -> bytes:
    """Return the arguments of a process, once it has threads: one of them waits."""
    threads = os.listdir(f"/proc/{pid}/task")
    return Path(f"/proc/{pid}/cmdline").read_bytes() if len(threads) > 1 else b""


SET = ("secrets", "set", "slack")


@pytest.fixture(scope="module", params=["vault", pytest.param("keychain", marks=pytest.mark.full)])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a scene in which everything has happened."""
    with ExitStack() as stack:
        keyring = None
        if request.param == "keychain":
            keyring = stack.enter_context(private_keyring(tmp_path_factory.mktemp("keyring")))
        omac = stack.enter_context(omac_in(tmp_path_factory.mktemp("scene")))
        (omac.folder / "tmp").mkdir()
        omac.environment["TMPDIR"] = str(omac.folder / "tmp")
        if keyring is None:
            with_vault(omac)
        else:
            names = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
            omac.environment |= {name: keyring[name] for name in names} | {"OMAC_SECRETS_STORE": "keychain"}
        scene = Scene(omac, stack.enter_context(person_of(omac)), request.param, keyring)
        give(scene)
        server = omac.serve()
        use(scene, server)
        change(scene, server)
        kill(scene, server)
        yield scene


def test_a_secret_is_nowhere(scene: Scene) -> None:
    """A secret is not in the journal, the state directory, a log, an output, an answer or a list of processes, in any
    spelling."""
    assert len(scene.values) >= 20
    assert sum(len(content) for _, content in scene.files()) > 100_000
    hows = {core: how for how, core in scene.values.items()}
    assert {(where, hows[core]) for where, core in scene.occurrences(*hows)} == set()


def test_the_search_finds_what_is_there(scene: Scene) -> None:
    """A value that is not secret was given as a setting, and its sidecar wrote it to its log in every spelling. The
    search finds it in the journal, in answers, and in each line of the log."""
    (core,) = re.findall("[A-Za-z0-9]{24}", scene.control)
    where = {Path(source).name if source.startswith("/") else source for source, _ in scene.occurrences(core)}
    assert where & {"journal.db", "journal.db-wal"}
    assert any(source.startswith("config show") for source in where)
    logs = [content for source, content in scene.files() if source.endswith("-slack.log")]
    lines = next(filter(None, logs)).split(b"\n")[1:14]
    assert [line for line in lines if not any(spelling in line for spelling in spellings(core))] == []


def test_everything_has_happened(scene: Scene) -> None:
    """The search covers a life in which sidecars crashed, could not be started, and waited for a locked store."""
    logs = b"".join(content for source, content in scene.files() if source.endswith("-crash.log"))
    assert b"it crashes" in logs
    texts = {name: content.decode(errors="replace") for name, content in scene.seen}
    assert "nothing is not there" in texts["in use: manifest"]
    assert "RuntimeError: a fault" in texts["trace"]
    assert scene.keyring is None or "pending_credentials" in texts["locked: manifest"]


def test_the_store_does_not_show_it(scene: Scene) -> None:
    """The store's own files on the disk show none of the values: they cannot be read without its key."""
    folder = scene.omac.state if scene.keyring is None else Path(scene.keyring["HOME"]).parent
    files = [path for path in folder.rglob("*") if path.is_file() and path.name in ("vault", "login.keyring")]
    assert files
    for core in scene.values.values():
        assert not any(spelling in path.read_bytes() for spelling in spellings(core) for path in files)


def test_changes_and_accesses_are_audited_by_name(scene: Scene) -> None:
    """The audit has rows of approvals, of values written and removed, each by its name, and of accesses."""
    rows = [json.loads(line) for line in scene.omac.ok("audit", "--json").splitlines()]
    assert {row["kind"] for row in rows} >= {"skill.approved", "access"}
    names = {(row["kind"], row["detail"].split()[0]) for row in rows if row["skill"] == "slack" and row["detail"]}
    assert names >= {("secret.written", name) for name in ("TOKEN", "SPARE", "PEM")}
    assert names >= {("secret.removed", "SPARE"), ("config.written", "CONTROL")}
