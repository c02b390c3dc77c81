"""Opening a journal: private, durable, and refused with a reason where that is not possible."""

import contextlib
import errno
import fcntl
import json
import multiprocessing
import os
import resource
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.journals import called, commit_now, create, journal_at, run_python, sqlite_recorder, texts
from contract.media import needs_bubblewrap, read_only, small_disk
from contract.recorder import everything

from omac.domain.kernel.event import Cause
from omac.domain.kernel.refusal import Refusal
from omac.journal.application import Journal
from omac.journal.event_kinds import SCHEMA
from omac.journal.file import VERSION_INDEX, refusal_of
from omac.journal.folders import MORE_FILES
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.journal.schema import METADATA
from omac.journal.store import TABLES, open_for_writing

CAUSE = Cause("person")


def fill(journal: Journal, *words: str) -> None:
    """Append one event for each word."""
    for word in words:
        commit_now(journal, [called(word)], CAUSE)


def made(path: Path, *words: str) -> None:
    """Make a journal with these events, and close it."""
    journal = journal_at(path)
    fill(journal, *words)
    journal.close()


def refused_for_writing(path: Path) -> Refusal:
    """Return the refusal to open the path for writing."""
    with pytest.raises(Refusal) as refused:
        open_for_writing(str(path), "id")
    return refused.value


def refused_for_reading(path: Path) -> Refusal:
    """Return the refusal to open the path for reading."""
    with pytest.raises(Refusal) as refused:
        ReadJournal(str(path))
    return refused.value


def mode(path: Path) -> str:
    """Return the permission bits, in octal."""
    return oct(stat.S_IMODE(path.stat().st_mode))


@pytest.fixture
def umask() -> Iterator[None]:
    """Set the most careless umask there is."""
    before = os.umask(0)
    yield
    os.umask(before)


# ---- privacy and durability ----


@pytest.mark.usefixtures("umask")
def test_other_users_cannot_read_it(tmp_path: Path) -> None:
    """The journal, its log and index are 0600, and the folders made for it 0700, with any umask."""
    path = tmp_path / "one" / "two" / "journal.db"
    journal = journal_at(path)
    try:
        fill(journal, "x")
        modes = {file.name: mode(file) for file in path.parent.iterdir()}
        assert modes == {"journal.db": "0o600", "journal.db-wal": "0o600", "journal.db-shm": "0o600"}
        assert [mode(path.parent), mode(path.parent.parent)] == ["0o700", "0o700"]
    finally:
        journal.close()


def test_folders_that_exist_keep_their_mode(tmp_path: Path) -> None:
    """omac does not change a folder that it did not make."""
    tmp_path.chmod(0o755)
    made(tmp_path / "journal.db")
    assert mode(tmp_path) == "0o755"


def test_a_commit_is_a_flush(path: Path) -> None:
    """The writer's connection logs ahead, flushes at every commit, and waits for others' locks."""
    with contextlib.closing(open_for_writing(str(path), "id")) as raw:
        pragmas = {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
        assert raw.execute("PRAGMA busy_timeout").fetchone()[0] == 5_000
    assert pragmas == {"journal_mode": "wal", "synchronous": 2}


def test_a_log_under_constant_load_is_written_over_again(path: Path) -> None:
    """A log that grows makes each flush dearer: it gets 4 MiB, and what one commit brings."""
    with contextlib.closing(journal_at(path)) as journal:
        fill(journal, *("x" * 100_000 for _ in range(60)))
        assert 4 << 20 <= os.path.getsize(f"{path}-wal") <= 5 << 20
        assert journal.store.head() == 60


def test_opening_again_keeps_the_name(path: Path) -> None:
    """A journal is named once; opening it does not rename it."""
    open_for_writing(str(path), "first").close()
    open_for_writing(str(path), "second").close()
    reading = ReadJournal(str(path))
    assert reading.store.journal_id() == "first"
    reading.close()


@pytest.mark.full
def test_many_processes_create_it_at_once(path: Path) -> None:
    """Processes that find no journal at the same moment end up with one, and none of them fails."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        names = pool.map_async(create, [str(path)] * 24, chunksize=1).get(60)
    assert len(set(names)) == 1
    recorder = sqlite_recorder(str(path))
    assert len(everything(recorder)) == 24
    recorder.close()


# ---- what may stand at the path ----


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the journal's place is refused, so a user who can place one cannot make omac write elsewhere."""
    target, path = tmp_path / "target.db", tmp_path / "journal.db"
    path.symlink_to(target)
    refusal = refused_for_writing(path)
    assert refusal.reason == "state-unusable"
    assert "symbolic link" in refusal.message
    assert not target.exists()
    made(target)
    assert refused_for_writing(path).reason == "state-unusable"


def test_a_folder_in_its_place(path: Path) -> None:
    """A folder in the journal's place is refused as such, for writing and reading."""
    path.mkdir(parents=True)
    assert refused_for_writing(path).reason == "state-unusable"
    assert refused_for_reading(path).reason == "state-unusable"
    assert list(path.iterdir()) == []


def test_a_pipe_in_its_place(path: Path) -> None:
    """A pipe in the journal's place is refused, without waiting for its other end."""
    path.parent.mkdir()
    os.mkfifo(path)
    assert refused_for_writing(path).reason == "state-unusable"
    assert refused_for_reading(path).reason == "state-unusable"


def test_a_socket_in_its_place(path: Path) -> None:
    """A socket in the journal's place is refused, too."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        assert refused_for_writing(path).reason in ("state-unusable", "journal-unavailable")
        assert refused_for_reading(path).reason == "state-unusable"


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    """A path through a file is refused."""
    (tmp_path / "state").write_text("a file")
    assert refused_for_writing(tmp_path / "state" / "journal.db").reason == "journal-unavailable"


@pytest.mark.parametrize("size", [15, 100, 4_096, 70_000])
def test_a_file_that_is_no_database(path: Path, size: int) -> None:
    """A file that is no database is refused and stays as it was, to the byte."""
    path.parent.mkdir()
    content = (b"not a database, but of some size. " * 3_000)[:size]
    path.write_bytes(content)
    assert refused_for_reading(path).reason == "journal-damaged"
    assert refused_for_writing(path).reason == "journal-damaged"
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("table", ["bookmark", "name", "journal"])
def test_a_database_of_another_program(path: Path, table: str) -> None:
    """A database that is not a journal is refused and stays as it was, to the byte."""
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table}(url TEXT)")
    content = path.read_bytes()
    assert refused_for_reading(path).reason == "journal-damaged"
    assert refused_for_writing(path).reason == "journal-damaged"
    assert path.read_bytes() == content


@pytest.mark.parametrize("prepared", [False, True])
def test_a_file_just_made_becomes_a_journal(path: Path, prepared: bool) -> None:
    """A journal whose making crashed can still be made by the next opening; until then reading is refused."""
    path.parent.mkdir()
    path.touch()
    if prepared:
        with contextlib.closing(sqlite3.connect(path)) as crashed:
            crashed.execute("PRAGMA journal_mode=WAL")
        assert path.stat().st_size > 0
    assert refused_for_reading(path).reason == "journal-unavailable"
    made(path, "x")
    reading = ReadJournal(str(path))
    assert texts(list(reading.records())) == ["x"]
    reading.close()


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=DELETE")  # as the journal is before its log is on, or as it was restored
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN")
connection.execute("CREATE TABLE later (content)")
connection.executemany("INSERT INTO later VALUES (zeroblob(4000))", [()] * 1000)
os._exit(9)  # killed: some pages are written, and how to undo that
"""


@pytest.mark.parametrize("words", [(), ("x",)], ids=["new", "restored"])
@pytest.mark.parametrize("writes", [False, True], ids=["reading", "writing"])
def test_a_kill_before_the_log(path: Path, words: tuple[str, ...], writes: bool) -> None:
    """A journal is as it was before a kill that ended its creation, or its first opening after a restore."""
    path.parent.mkdir(mode=0o700)
    if words:
        made(path, *words)
    assert run_python(KILLED, str(path)).returncode == 9
    assert Path(f"{path}-journal").stat().st_size
    if not words:
        assert refused_for_reading(path).reason == "journal-unavailable"
    if writes or not words:
        made(path, "y")
        words = (*words, "y")
    with contextlib.closing(ReadJournal(str(path))) as reading:
        assert texts(list(reading.records())) == list(words)
    assert not Path(f"{path}-journal").exists()


def test_a_page_destroyed(path: Path) -> None:
    """A journal whose pages were overwritten is refused as damaged, for writing and reading."""
    made(path, *(f"{number} {'x' * 1_000}" for number in range(50)))
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(Refusal) as refused:
        list(ReadJournal(str(path)).records())
    assert refused.value.reason == "journal-damaged"
    assert refused_for_writing(path).reason == "journal-damaged"


def test_a_journal_of_a_later_omac(path: Path) -> None:
    """A journal of a newer schema is neither written, nor read, nor changed; the refusal names a fix."""
    made(path, "x")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as later:
        later.execute("UPDATE journal SET schema = ?", (SCHEMA + 1,))
        later.execute("DROP TABLE head")
    for refusal in (refused_for_writing(path), refused_for_reading(path)):
        assert refusal.reason == "journal-newer"
        assert str(SCHEMA + 1) in refusal.message
        assert refusal.fix
    with contextlib.closing(sqlite3.connect(path)) as later:
        tables = {name for (name,) in later.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "head" not in tables


def test_nothing_to_read(path: Path) -> None:
    """Reading a missing journal is refused with the command that makes one, and creates nothing."""
    refusal = refused_for_reading(path)
    assert refusal.reason == "journal-unavailable"
    assert any(command.startswith("omac serve") for command in refusal.fix)
    assert not path.parent.exists()


def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls a journal there a locked one; the refusal names the file system."""

    def lockf(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    made(path)
    error = sqlite3.OperationalError("database is locked")
    assert refusal_of(error, str(path)).reason == "journal-unavailable"
    monkeypatch.setattr(fcntl, "lockf", lockf)
    refusal = refusal_of(error, str(path))
    assert (refusal.reason, "has no locks" in refusal.message) == ("state-unusable", True)


def test_locked_by_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is not released in time is reported as a lock."""
    made(path)
    monkeypatch.setattr("omac.journal.store.BUSY_MS", 20)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    refusal = refused_for_writing(path)
    connection.close()
    assert refusal.reason == "journal-unavailable"
    assert "locked" in refusal.message


ODD = [
    "with space",
    "what?mode=memory",
    "hash#tag",
    "per%20cent",
    "naïve-日本語-🦊",
    "a&b=c;d",
    "'quoted\"",
    "new\nline",
    "file:x",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_paths(tmp_path: Path, name: str) -> None:
    """A journal is made and read at the very path that was given, letter by letter."""
    path = tmp_path / name / f"{name}.db"
    journal = open_journal(str(path), "run", lambda: 1)
    fill(journal, "x")
    assert texts(list(journal.records())) == ["x"]
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}-shm", f"{path.name}-wal"]
    journal.close()
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_path_that_is_not_text(tmp_path: Path) -> None:
    """A path need not be Unicode."""
    path = tmp_path / os.fsdecode(b"caf\xe9") / "journal.db"
    journal = open_journal(str(path), "run", lambda: 1)
    fill(journal, "x")
    assert texts(list(journal.records())) == ["x"]
    journal.close()


# ---- read-only media ----

READ = """
    import json, sys
    from omac.journal.reader import ReadJournal
    journal = ReadJournal(sys.argv[1])
    print(json.dumps([recorded.event.dir for recorded in journal.records()]))
    journal.close()
"""
OPEN = """
    import sys
    from omac.domain.kernel.refusal import Refusal
    from omac.journal.store import open_for_writing
    try:
        open_for_writing(sys.argv[1], "id")
    except Refusal as refusal:
        print(refusal.reason, "|", refusal.message, "|", refusal.fix)
"""


@needs_bubblewrap
def test_a_read_only_medium_is_not_written(path: Path) -> None:
    """A journal on a read-only medium is refused for writing, with the reason and a fix."""
    made(path, "x")
    done = run_python(OPEN, str(path), wrap=read_only(path.parent))
    assert done.stdout.startswith("journal-read-only | "), done
    assert "export OMAC_JOURNAL=PATH" in done.stdout
    path.unlink()
    done = run_python(OPEN, str(path), wrap=read_only(path.parent))
    assert done.stdout.startswith("journal-read-only | "), done


FEW_DESCRIPTORS = """
    import os, resource, shlex, sys, tempfile  # these two, and all that is loaded late
    from contextlib import closing
    from omac.domain.kernel.refusal import Refusal
    from omac.journal.file import connect_for_reading
    from omac.journal.store import open_for_writing
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for spare in range(8):
        lowest = [os.open(os.devnull, os.O_RDONLY) for _ in range(spare + 1)]
        for descriptor in lowest:
            os.close(descriptor)
        connection = refusal = None
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest[-1], hard))
        try:
            connection = connect_for_reading(sys.argv[1])
        except Refusal as caught:
            refusal = caught
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if refusal is not None:
            print(spare, refusal.reason, "|", refusal.fix)
            continue
        with closing(connection), closing(open_for_writing(sys.argv[1], "id")) as writer:
            writer.execute("UPDATE journal SET id = ?", (str(spare),))
            print(spare, connection.execute("SELECT id FROM journal").fetchone()[0])
"""


def test_a_reader_that_lacks_descriptors(path: Path) -> None:
    """A reader for whose index no descriptor is left is refused: read as a medium that takes none, the journal would
    stay for it as it was then."""
    made(path, "x")
    done = run_python(FEW_DESCRIPTORS, str(path))
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    refused = [said for _, said in lines if said.startswith("journal-unavailable")]
    assert [number for number, _ in lines] == [str(number) for number in range(8)], done
    assert all(said in (number, *refused) for number, said in lines), done
    assert 1 < len(refused) < 8, done
    assert all("ulimit -n" in said for said in refused), done


FAILED_WRITE = """
    import sqlite3, sys
    from omac.journal.file import refusal_of
    refusal = refusal_of(sqlite3.OperationalError("disk I/O error"), sys.argv[1])  # what a server's SQLite says then
    print(refusal.reason, "|", refusal.message, "|", refusal.fix)
"""


@needs_bubblewrap
def test_a_medium_that_became_read_only(path: Path) -> None:
    """A write that failed where the medium is read-only by now is refused for that reason, with the fix for it."""
    made(path, "x")
    done = run_python(FAILED_WRITE, str(path), wrap=read_only(path.parent))
    assert done.stdout.startswith("journal-unavailable | "), done
    assert f"findmnt --target {path}" in done.stdout


@needs_bubblewrap
def test_a_read_only_medium_is_read(path: Path) -> None:
    """A journal that was closed in order is read on a read-only medium."""
    made(path, "x", "y")
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]
    done = run_python(READ, str(path), wrap=read_only(path.parent))
    assert done.stdout == '["x", "y"]\n', done


@needs_bubblewrap
def test_a_read_only_medium_with_a_log(path: Path) -> None:
    """A journal copied with its log and index while in use is read to its last commit."""
    journal = journal_at(path)
    fill(journal, "x", "y")
    done = run_python(READ, str(path), wrap=read_only(path.parent))
    journal.close()
    assert done.stdout == '["x", "y"]\n', done


@needs_bubblewrap
def test_a_read_only_medium_with_a_log_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    """A journal with a log but no index, and no place to make one, is read whole or refused, but never in part."""
    journal = journal_at(path)
    fill(journal, "x", "y")
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        copy.with_name(f"journal.db{suffix}").write_bytes(path.with_name(f"journal.db{suffix}").read_bytes())
    journal.close()
    done = run_python(READ, str(copy), wrap=read_only(copy.parent))
    assert '["x", "y"]' in done.stdout or "Refusal" in done.stderr, done
    done = run_python(READ, str(copy))
    assert done.stdout == '["x", "y"]\n', done


@needs_bubblewrap
def test_the_command_line_reports_a_read_only_medium(path: Path) -> None:
    """A user who serves from a read-only medium gets the reason, a fix, and exit code 5."""
    made(path)
    code = "from omac.tools.entry import main; main()"
    argv = ("serve", "--no-inner", "--journal", str(path))
    done = run_python(code, *argv, wrap=["env", f"OMAC_STATE_DIR={path.parent}", *read_only(path.parent)])
    assert done.returncode == 5, done
    assert "Read-only" in done.stderr
    assert "try: " in done.stderr
    assert "Traceback" not in done.stderr


# ---- a full disk ----

FULL = """
    import json, os, sys
    from itertools import count
    from contract.journals import called, commit_now
    from omac.domain.kernel.refusal import Refusal
    from omac.journal.opening import open_journal
    from omac.journal.reader import ReadJournal

    folder, entry = sys.argv[1], 0
    path, ballast = folder + "/journal.db", folder + "/ballast"
    result = {}

    def append(size):
        global entry
        commit_now(journal, [called(f"{entry} " + "x" * size)])
        entry += 1

    def read():
        other = ReadJournal(path)
        numbers = [int(recorded.event.dir.split()[0]) for recorded in other.records()]
        other.close()
        return numbers

    journal = open_journal(path, "run", count(1).__next__)
    for _ in range(10):
        append(100)
    with open(ballast, "wb", buffering=0) as file:
        free = os.statvfs(folder)
        file.write(bytes(free.f_bavail * free.f_frsize - 30_000))
    refused = []
    for _ in range(20):
        try:
            append(5_000)
        except Refusal as refusal:
            refused.append([refusal.reason, refusal.message])
    result["refused"] = refused
    result["written"] = entry
    result["while full"] = read()
    try:
        journal.store.checkpoint()
        result["checkpoint"] = "done"
    except Refusal as refusal:
        result["checkpoint"] = refusal.reason
    result["after checkpoint"] = read()
    os.unlink(ballast)
    append(5_000)
    append(100_000)
    journal.store.checkpoint()
    journal.close()
    result["freed"] = read()
    print(json.dumps(result))
"""


@needs_bubblewrap
@pytest.mark.parametrize("size", [600_000, 3_000_000])
def test_a_full_disk(tmp_path: Path, size: int) -> None:
    """A full disk refuses appends with the reason; nothing is lost or half-written, and freed space ends that."""
    done = run_python(FULL, str(tmp_path), wrap=small_disk(tmp_path, size))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["refused"]) > 5
    for reason, message in report["refused"]:
        assert reason == "journal-unavailable"
        assert "full" in message
    written = list(range(report["written"]))
    assert report["while full"] == report["after checkpoint"] == written
    assert report["freed"] == list(range(report["written"] + 2))
    assert report["checkpoint"] in ("done", "journal-unavailable")


FULL_AT_ONCE = """
    import os, sys
    from omac.domain.kernel.refusal import Refusal
    from omac.journal.store import open_for_writing
    folder = sys.argv[1]
    with open(folder + "/ballast", "wb", buffering=0) as file:
        free = os.statvfs(folder)
        file.write(bytes(free.f_bavail * free.f_frsize - int(sys.argv[2])))
    try:
        open_for_writing(folder + "/journal.db", "id")
    except Refusal as refusal:
        print(refusal.reason, refusal.message)
    os.unlink(folder + "/ballast")
    open_for_writing(folder + "/journal.db", "id").close()
    print("opened")
"""


@needs_bubblewrap
@pytest.mark.parametrize("free", [0, 4_096, 20_000, 40_000])
def test_a_disk_that_is_full_from_the_start(tmp_path: Path, free: int) -> None:
    """A journal that lacks the space to be created is refused with that reason, and created once space is free."""
    done = run_python(FULL_AT_ONCE, str(tmp_path), str(free), wrap=small_disk(tmp_path, 1_000_000))
    *refused, opened = done.stdout.splitlines()
    assert opened == "opened", done
    assert len(refused) == 1, done
    assert refused[0].startswith("journal-unavailable"), done
    assert "full" in refused[0], done


def _open_at_once(path: str, barrier: threading.Barrier, results: "multiprocessing.SimpleQueue[str]") -> None:
    barrier.wait()
    try:
        open_for_writing(path, "id").close()
        results.put("opened")
    except BaseException as error:
        results.put(repr(error))


@pytest.mark.full
def test_many_create_it_at_the_same_moment(tmp_path: Path) -> None:
    """Processes that create one journal at one moment, as agents on a new machine may, are never refused."""
    fork = multiprocessing.get_context("fork")
    for number in range(12):
        barrier, results = fork.Barrier(12), fork.SimpleQueue()
        arguments = (str(tmp_path / f"{number}/journal.db"), barrier, results)
        processes = [fork.Process(target=_open_at_once, args=arguments) for _ in range(12)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [results.get() for _ in processes] == ["opened"] * 12


def test_opening_a_second_time_keeps_the_locks_of_the_first(path: Path) -> None:
    """A second opening keeps the first one's locks, so no other process deletes the log of a journal in use."""
    server = journal_at(path)
    fill(server, "before")
    journal_at(path, "run-2").close()  # as a server does that takes something in beside its own writer
    look = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select * from head').fetchall(); c.close()"
    )
    assert run_python(look, str(path)).returncode == 0
    fill(server, "after")
    with contextlib.closing(ReadJournal(str(path))) as journal:  # while the server lives: its end would hide the loss
        assert texts(list(journal.records())) == ["before", "after"]
    server.close()


def test_the_required_tables_are_those_that_are_made(path: Path) -> None:
    """The tables that omac requires are those that it makes; journals of an earlier omac would lack any left out."""
    assert frozenset(METADATA.tables) == TABLES
    with contextlib.closing(open_for_writing(str(path), "id")) as connection:
        made = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        indexes = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%INDEX%'")}
    assert made == TABLES
    assert indexes == {VERSION_INDEX}


def test_too_many_open_files(tmp_path: Path) -> None:
    """A journal that cannot be opened for want of a descriptor proposes more of those, not a look at its mode."""
    path = str(tmp_path / "journal.db")
    open_for_writing(path, "id").close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(Refusal, match="Too many open files") as refused:
            open_for_writing(path, "id")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.fix == (MORE_FILES,)
