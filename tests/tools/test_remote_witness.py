"""Another omac as a witness: two real servers, foreign servers that answer, and strangers that deliver."""

import json
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from machine import free_port
from notes import notes_of
from polling import eventually
from real_omac import Answer, Omac, Serving, curl, omac_in
from tools.test_snapshots import called_often
from tools.test_witness import kept_by, ran, witnessed

from omac.domain.access.receipt import CheckpointContested, CheckpointReceived
from omac.domain.access.witness import CheckpointWitnessed, WitnessFailed
from omac.services.kernel.checkpointing import WORTH


class Keeper:
    """A host that keeps the checkpoints of others, and listens on a port of its own."""

    def __init__(self, omac: Omac) -> None:
        self.omac = omac
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.serving = self.serve()

    def serve(self) -> Serving:
        self.serving = self.omac.serve("--witness-addr", f"127.0.0.1:{self.port}")
        return self.serving

    @property
    def token(self) -> Path:
        return self.omac.state / "witness.token"

    def received(self) -> list[CheckpointReceived]:
        return [record.event for record in self.omac.events(CheckpointReceived)]

    def post(self, body: bytes | dict[str, Any], token: str | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        bearer = f"Authorization: Bearer {self.token.read_text() if token is None else token}"
        return curl("-H", bearer, "--data-binary", "@-", f"{self.url}/__omac__/witness", stdin=data)


@pytest.fixture
def used(omac: Omac) -> Omac:
    """Return a host whose next run has something to sign."""
    omac.approved("shop")
    called_often(omac, WORTH)
    return omac


@pytest.fixture
def keeper(used: Omac, tmp_path: Path) -> Iterator[Keeper]:
    """Yield the witness of that host, whose token the host has in a file."""
    (tmp_path / "keeper").mkdir()
    with omac_in(tmp_path / "keeper") as witness_host:
        made = Keeper(witness_host)
        token = used.folder / "token"
        shutil.copy(made.token, token)
        token.chmod(0o600)
        kept_by(used, made.url)
        used.environment["OMAC_JOURNAL_WITNESS_TOKEN"] = str(token)
        yield made


@pytest.mark.full
def test_it_keeps_what_the_other_signs(used: Omac, keeper: Keeper) -> None:
    """The witness keeps each checkpoint once. The first host verifies the checkpoints that the witness prints."""
    ran(used)
    called_often(used, WORTH)
    ran(used)
    first, second = keeper.received()
    assert (first.journal, first.key) == (second.journal, second.key)
    assert [size for name, (size, _) in witnessed(used) if name == "CheckpointWitnessed"] == [first.size, second.size]
    printed = keeper.omac.ok("checkpoint", "--received", "--of", first.journal)
    assert notes_of(printed) == ([first.note, second.note], 0)
    assert keeper.omac.ok("checkpoint", "--received", "--of", "0" * 32) == ""
    file = used.folder / "kept.txt"
    file.write_text(printed)
    assert used.run("audit", "verify", "--checkpoint", str(file)).status == 0
    again = keeper.post({"note": second.note, "key": second.key})
    assert (again.status, again.json()["size"], len(keeper.received())) == (200, second.size, 2)
    assert keeper.omac.run("audit", "verify").status == 0


@pytest.mark.full
def test_an_old_copy_that_was_put_back_is_contested(used: Omac, keeper: Keeper) -> None:
    """A history that was put back or rewritten is reported on both sides, and recorded once, by the witness."""
    ran(used)
    with closing(sqlite3.connect(used.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = (used.state / "journal.db").read_bytes()
    called_often(used, 3 * WORTH)
    ran(used)
    (used.state / "journal.db").write_bytes(older)
    for leftover in used.state.glob("journals/*"):
        if leftover.is_file():
            leftover.unlink()
    called_often(used, WORTH)
    done = ran(used)
    assert "answers 409" in done.err
    assert "its history was rewritten, or an old copy was put back" in done.err
    ran(used)
    (contested,) = [record.event for record in keeper.omac.events(CheckpointContested)]
    assert contested.size < contested.received == keeper.received()[-1].size
    (row,) = [row for row in keeper.omac.attempts() if row["kind"] == "checkpoint.contested"]
    assert contested.journal in row["detail"]
    printed = keeper.omac.run("checkpoint", "--received")
    assert (printed.status, len(notes_of(printed.out)[0])) == (10, 3)
    report = used.process("doctor").out
    assert "; one of more events is kept again" in report
    assert "  try: omac checkpoint --received > kept.txt  # where the witness runs" in report
    assert "  try: omac audit verify --checkpoint kept.txt  # here" in report
    called_often(used, 3 * WORTH)
    ran(used)
    assert keeper.received()[-1].size > contested.received, "as the message says"
    assert "keeps checkpoints; the last one counts" in used.process("doctor").out


@pytest.mark.full
def test_a_key_that_gave_way(used: Omac, keeper: Keeper) -> None:
    """The witness trusts a key that the known key rotated to, and refuses an unrelated one."""
    ran(used)
    used.ok("key", "rotate")
    called_often(used, WORTH)
    ran(used)
    assert len({receipt.key for receipt in keeper.received()}) == 2
    used.ok("key", "rotate")
    (used.state / "signing.key").unlink()
    used.ok("key", "rotate", "--lost")
    called_often(used, WORTH)
    done = ran(used)
    assert "answers 403" in done.err
    assert "first signed by another key" in done.err


@pytest.mark.full
def test_one_that_is_away_is_owed(used: Omac, keeper: Keeper) -> None:
    """A killed witness gets the checkpoints that are owed once it is back, and loses none that it received."""
    ran(used)
    keeper.serving.process.kill()
    keeper.serving.process.wait()
    called_often(used, WORTH)
    assert "which is owed" in ran(used).err  # refused, or answered by whoever has that port now
    assert used.events(WitnessFailed)
    keeper.serve()
    ran(used)
    assert [record.event.size for record in used.events(CheckpointWitnessed)] == [
        record.size for record in keeper.received()
    ]


@pytest.mark.full
def test_a_long_run_delivers_while_it_goes_on(used: Omac, keeper: Keeper) -> None:
    """A server that signs delivers by itself."""
    serving = used.serve()
    serving.end()
    eventually(lambda: keeper.received(), 10.0, "a checkpoint")


@pytest.mark.full
@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda file: file.unlink(), "No such file"),
        (lambda file: file.chmod(0o644), "no file that you alone can read"),
        (lambda file: file.write_text(""), "holds no token"),
        (lambda file: file.write_text("wrong"), "answers 401"),
        (lambda file: (file.rename(file.with_name("t")), file.symlink_to("t")), "Too many levels"),
        (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
    ],
    ids=["missing", "readable", "empty", "wrong", "link", "folder"],
)
def test_tokens(used: Omac, keeper: Keeper, prepare: Any, says: str) -> None:
    """An error about the token names its file, never its text."""
    file = used.folder / "token"
    text = file.read_text()
    prepare(file)
    done = ran(used)
    assert says in done.err
    proposed = [line for line in used.process("doctor").out.splitlines() if line.startswith("  try: ls ")]
    assert proposed[0].endswith(str(file))
    assert text not in done.err + used.ok("audit", "--json")
    assert keeper.received() == []


@pytest.mark.full
def test_strangers_and_their_bodies(used: Omac, keeper: Keeper) -> None:
    """The witness records nothing that no key has signed. Its token opens nothing else, and no other token opens the
    witness."""
    ran(used)
    (receipt,) = keeper.received()
    note, key = receipt.note, receipt.key
    forged = note.replace(f"\n{receipt.size}\n", f"\n{receipt.size + 1}\n")
    bodies: list[bytes | dict[str, Any]] = [
        b"", b"{", b"[]", b"\0" * 100, b"[" * 60_000, {"note": note}, {"note": note, "key": key, "more": 1},
        {"note": "", "key": key}, {"note": forged, "key": key}, {"note": note, "key": key + "A"},
        {"note": note.replace("omac/", "omac/../"), "key": key}, {"note": note, "key": key, "rotations": ["x"] * 2_000},
        {"note": "omac/" + "0" * 32 + "\n\x1b[2J\n", "key": key},
    ]  # fmt: skip
    for body in bodies:
        assert keeper.post(body).status == 400, body
    assert keeper.post(b"x" * (2 << 20)).status in (0, 413)
    assert keeper.post({"note": note, "key": key}, "wrong").status == 401
    assert keeper.post({"note": note, "key": key}, keeper.serving.token).status == 401
    refused = curl("-H", f"Authorization: Bearer {keeper.token.read_text()}", f"{keeper.url}/__omac__/status")
    assert refused.status == 403
    assert len(keeper.received()) == 1
    assert keeper.token.stat().st_mode & 0o777 == 0o600


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Elsewhere)
        self.server.asked.append(self.headers.get("Authorization", ""))
        with suppress(OSError):
            self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Elsewhere(HTTPServer):
    answer = b""
    asked: list[str]


@contextmanager
def answering(answer: bytes) -> Iterator[_Elsewhere]:
    """Start a server that answers each delivery like this."""
    with _Elsewhere(("127.0.0.1", 0), _Answering) as server:
        server.answer, server.asked = answer, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.full
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "answers 302"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 29\r\n\r\n" + b'{"error": "\\u001b[2J\\nboom"}    ', "answers 500"),
        (b"HTTP/1.1 507 No\r\n\r\n" + b"x" * (1 << 20), "answers 507"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP"),
        (b"", "no HTTP"),
    ],
    ids=["redirect", "escape", "endless", "no http", "nothing"],
)
def test_who_answers_something_else(used: Omac, answer: bytes, says: str) -> None:
    """A witness's odd answer is reported and reaches no terminal raw; omac does not follow a redirect."""
    token = used.folder / "token"
    token.write_text("t0ken")
    token.chmod(0o600)
    with answering(answer) as server:
        kept_by(used, f"http://127.0.0.1:{server.server_address[1]}")
        used.environment["OMAC_JOURNAL_WITNESS_TOKEN"] = str(token)
        done = ran(used)
        assert says in done.err
        assert "\x1b" not in done.err + used.ok("audit")
        assert server.asked[0] == "Bearer t0ken"


@pytest.mark.parametrize(
    "word",
    [
        "http://example.org",
        "http://127.0.0.1:0",
        "ftp://127.0.0.1",
        "https://u:p@example.org",
        "https://a/b",
        "https://",
    ],
)
def test_addresses_that_are_refused(omac: Omac, word: str) -> None:
    """A witness is addressed by server name and port alone; plain HTTP is refused for other machines."""
    done = omac.run("settings", "set", "journal.witness", word)
    assert (done.status, "journal.witness takes" in done.err) == (2, True), done
    assert omac.run("settings", "set", "journal.witness", "https://witness.example.org:8443").status == 0


HASTY = """
import sys
from omac.services.kernel import checkpointing
checkpointing.EVERY_S, checkpointing.LOOK_S = 0.5, 0.1
from omac.tools.entry import main
sys.argv = ["omac", *sys.argv[sys.argv.index("serve"):]]
main()
"""
HASTILY = (sys.executable, "-c", HASTY)  # signs after half a second, not after five minutes


def paired(omacs: Sequence[Omac]) -> None:
    """Let two hosts keep each other's checkpoints, with servers that sign hastily."""
    keepers = [Keeper(omac) for omac in omacs]
    for keeper, peer in zip(keepers, reversed(keepers), strict=True):
        token = keeper.omac.folder / "token"
        shutil.copy(peer.token, token)
        token.chmod(0o600)
        kept_by(keeper.omac, peer.url)
        keeper.omac.environment["OMAC_JOURNAL_WITNESS_TOKEN"] = str(token)
        keeper.serving.end()
    for keeper in keepers:
        keeper.omac.serve("--witness-addr", f"127.0.0.1:{keeper.port}", within=HASTILY)


@pytest.mark.full
def test_two_that_keep_each_other_come_to_rest(omac: Omac, tmp_path: Path) -> None:
    """A receipt is an event that makes no checkpoint due; otherwise two idle servers would sign and deliver for
    ever."""
    (tmp_path / "other").mkdir()
    with omac_in(tmp_path / "other") as peer:
        both = (omac, peer)
        paired(both)
        for host in both:
            eventually(lambda host=host: host.events(CheckpointReceived), 20.0, "a checkpoint of the other")  # type: ignore[misc]
        time.sleep(2.0)
        heads = [len(host.events()) for host in both]
        time.sleep(4.0)
        assert [len(host.events()) for host in both] == heads
        for host in both:
            host.ok("audit", "verify")
