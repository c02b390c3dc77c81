"""services/kernel/ingestion.py, journal/inbox.py: spooled records are in the journal exactly once, after any fault."""

import fcntl
import itertools
import json
import logging
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from contract.journals import decide_now, journal_at, lock, python, run_python
from contract.launches import AT, REQUEST, WHOLE, Program
from contract.media import needs_bubblewrap, small_disk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.ids import HostId, LaunchId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import launch as sandbox
from omac.domain.sandbox.launch import Denied, Launched, LaunchExited, LaunchRequested
from omac.journal.application import Journal
from omac.journal.codec import Codec
from omac.journal.event_kinds import KIND_OF
from omac.journal.inbox import Inbox
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.journal.spool import RECORD_MAX, REJECTED
from omac.projections.status import status_of
from omac.projections.system import System
from omac.services.kernel.ingestion import WAIT_NS, ingest, try_to_ingest
from omac.services.kernel.opened import OpenedJournal

HOST = HostId("host0001")
NOBODY = 65_534
INGEST = """
    import sys, time
    import trio
    from omac.domain.kernel.ids import HostId
    from omac.journal.inbox import Inbox
    from omac.journal.opening import open_journal
    from omac.services.kernel.ingestion import ingest
    from omac.services.kernel.opened import OpenedJournal
    journal, host = open_journal(sys.argv[1], "run", time.time_ns), HostId("host0001")
    print("ready", flush=True)
    sys.stdin.readline()
    print(trio.run(ingest, Inbox(sys.argv[2], host), OpenedJournal(journal, host)))
    journal.close()
"""
KILLED_AT = """
    import os, signal, sys
    def die(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)
    os.unlink = die
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a journal whose folder does not exist yet."""
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """An empty journal, open for appending."""
    with closing(journal_at(path)) as opened:
        yield opened


@pytest.fixture
def folder(path: Path) -> Path:
    """Return the spool beside the test's journal."""
    return path.parent / "spool"


@pytest.fixture
def program(folder: Path) -> Program:
    """Return a program that spools."""
    return Program(folder)


@pytest.fixture
def inbox(folder: Path) -> Inbox:
    """Return the inbox of the test's spool."""
    return Inbox(str(folder), HOST)


@pytest.fixture
def take(path: Path, inbox: Inbox) -> Callable[..., int]:
    """Return a function that ingests as one process after another does, and returns the number of recorded files."""

    def run(now: int = AT, journal: Path = path, **options: Any) -> int:
        opened = open_journal(str(journal), "taker", lambda: now)
        try:
            return ingested(inbox, opened, **options)
        finally:
            opened.close()

    return run


def ingested(inbox: Inbox, journal: Journal, wait_s: float = 0.0) -> int:
    """Ingest as a command does, which opened the journal itself."""
    return trio.run(ingest, inbox, OpenedJournal(journal, inbox.host), wait_s)


def all_records(path: Path) -> list[Recorded]:
    journal = ReadJournal(str(path))
    try:
        return list(journal.records())
    finally:
        journal.close()


def in_time(path: Path) -> list[Recorded]:
    """Return the records in the order of their events: streams are recorded side by side, each in its own order."""
    records = all_records(path)
    for stream in {record.stream for record in records}:
        versions = [record.version for record in records if record.stream == stream]
        assert versions == list(range(1, len(versions) + 1)) or set(versions) == {None}
    return sorted(records, key=lambda record: record.moment)


def kinds(path: Path) -> list[str]:
    return [KIND_OF[type(record.event)] for record in all_records(path)]


def rejected(folder: Path) -> list[str]:
    rejects = folder / REJECTED
    return sorted(os.listdir(rejects)) if rejects.exists() else []


# ---- what comes of a record ----


def test_a_launch_and_a_denial(path: Path, folder: Path, program: Program, take: Callable[..., int]) -> None:
    """Spooled events are recorded with this host in their streams; then their files are gone."""
    program.launch("aa", *WHOLE)
    program.deny("bb")
    assert take() == 4
    requested, launched, exited, denied = in_time(path)
    assert requested.event == LaunchRequested(**REQUEST | {"argv": ("npm", "test")})
    assert (launched.event, exited.event) == (
        Launched(43),
        LaunchExited(0, ("/w/shop/.git/hooks/x: a hook",), workdir="/w/shop"),
    )
    assert denied.event == GuardDenied("claude", "Write", "/w/x", "/w/t", "/w/t/x", "s1")
    stream = ids.sandbox_stream(HOST, LaunchId("aa"))
    assert [(record.stream, record.version) for record in in_time(path)] == [
        (stream, 1), (stream, 2), (stream, 3), (ids.guard_stream(HOST), None),
    ]  # fmt: skip
    assert [record.happened for record in in_time(path)] == [AT + n * 10**9 for n in (1, 2, 3, 4)]
    assert {record.at for record in all_records(path)} == {AT}
    assert [record.actor for record in in_time(path)] == ["person", "person", "person", "agent"]
    assert [record.correlation for record in in_time(path)] == ["aa", "aa", "aa", None]
    assert os.listdir(folder) == []
    assert status_of(System().replay(all_records(path))).sandboxes == ()


def test_the_journal_is_not_read_for_each_record(
    path: Path, program: Program, take: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch has digests, which look like tokens: which tokens live is read once, however much was recorded."""
    read, decode = itertools.count(), Codec.decode

    def counted(codec: Codec, *arguments: Any) -> Event:
        next(read)
        return decode(codec, *arguments)

    request = REQUEST | {"argv": ["echo", "ab" * 32]}
    for name in range(100):
        program.put("sandbox.launch-requested", request, f"a{name:03}", 1)
    assert take() == 100
    monkeypatch.setattr(Codec, "decode", counted)
    for name in range(100):
        program.put("sandbox.launch-requested", request, f"b{name:03}", 1)
    assert take() == 100
    assert next(read) < 3 * 100


def test_a_launch_that_was_refused(path: Path, program: Program, take: Callable[..., int]) -> None:
    """A launch can be refused before it was requested, and after."""
    program.launch("aa", "denied")
    program.launch("bb", "launch-requested", "denied")
    program.launch("cc", "launch-requested", "launched", "denied")
    assert take() == 6
    assert sum(isinstance(record.event, Denied) for record in all_records(path)) == 3


def test_the_run_that_launched_is_recorded(path: Path, program: Program, take: Callable[..., int]) -> None:
    """The record names the run that launched, not the run that ingested."""
    program.put("sandbox.launch-requested", REQUEST, "aa", 1, run="r1")
    take()
    assert all_records(path)[0].run == "r1"


def test_fields_that_are_missing_have_their_defaults(path: Path, program: Program, take: Callable[..., int]) -> None:
    """A later omac that knows more fields reads the events that an earlier omac spooled."""
    fields = {name: value for name, value in REQUEST.items() if name != "run"}
    program.put("sandbox.launch-requested", fields, "aa", 1)
    program.put("sandbox.exited", {"status": 3}, "aa", 2)
    assert take() == 2
    assert all_records(path)[1].event == LaunchExited(3, workdir="/w/shop")


def test_nothing_to_take(path: Path, inbox: Inbox, take: Callable[..., int]) -> None:
    """A missing folder and an empty one have nothing to ingest."""
    assert (take(), inbox.names(), inbox.rejected()) == (0, frozenset(), 0)
    Program(Path(inbox.folder))
    assert take() == 0
    assert kinds(path) == []


def test_a_folder_that_others_may_write_is_refused(folder: Path, program: Program, take: Callable[..., int]) -> None:
    """A spool that other users can write to is refused: its files may be from any user."""
    program.deny("a")
    folder.chmod(0o777)
    with pytest.raises(Refusal, match="writable by other users"):
        take()
    folder.chmod(0o700)
    assert take() == 1


# ---- order ----


def test_versions_count_and_not_the_clock(path: Path, program: Program, take: Callable[..., int]) -> None:
    """Versions order the events where the clock was set back; the record has each event's time by that clock too."""
    program.put("sandbox.exited", {"status": 0}, "aa", 3, at=AT + 1)
    program.put("guard.denied", {"harness": "", "tool": "", "path": "", "root": ""}, "dd", None, at=AT + 2)
    program.put("sandbox.launched", {"pid": 1}, "aa", 2, at=AT + 3)
    program.put("sandbox.launch-requested", REQUEST, "aa", 1, at=AT + 4)
    assert take() == 4
    assert [kind for kind in kinds(path) if kind != "guard.denied"] == [f"sandbox.{step}" for step in WHOLE]
    assert [record.happened for record in in_time(path)] == [AT + 1, AT + 2, AT + 3, AT + 4]


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_records_in_any_order(tmp_path_factory: Any, data: st.DataObject) -> None:
    """The journal is sound and has each launch whole, with any clocks and any cuts between ingestions."""
    root = tmp_path_factory.mktemp("order")
    program, journal = Program(root / "spool"), open_journal(str(root / "journal.db"), "r", lambda: AT)
    launches = [f"launch{number}" for number in range(3)]
    unspooled = {launch: list(enumerate(WHOLE, 1)) for launch in launches}
    fields: dict[str, dict[str, Any]] = {"launch-requested": REQUEST, "launched": {"pid": 1}, "exited": {"status": 0}}
    try:
        while any(unspooled.values()):
            launch = data.draw(st.sampled_from([candidate for candidate in launches if unspooled[candidate]]))
            version, step = unspooled[launch].pop(0)
            program.put(f"sandbox.{step}", fields[step], launch, version, at=AT + data.draw(st.integers(-9, 9)))
            if data.draw(st.booleans()):
                ingested(Inbox(str(root / "spool"), HOST), journal)
        ingested(Inbox(str(root / "spool"), HOST), journal)
        system = System().replay(journal.records())
    finally:
        journal.close()
    assert {entry.state.status for entry in system.sandboxes.entries.values()} == {"exited"}
    assert (len(system.sandboxes.entries), system.position) == (3, 9)
    assert os.listdir(root / "spool") == []


def test_a_lost_record_does_not_block_later_ones(path: Path, program: Program, take: Callable[..., int]) -> None:
    """A launch whose `launched` was lost in a power failure still gets its `exited`."""
    paths = program.launch("aa", *WHOLE)
    os.unlink(paths[1])
    assert take() == 2
    assert [(record.version, type(record.event)) for record in all_records(path)] == [
        (1, LaunchRequested),
        (2, LaunchExited),
    ]


def test_what_waits_for_its_beginning(
    path: Path, tmp_path: Path, folder: Path, program: Program, take: Callable[..., int]
) -> None:
    """A launch's beginning may be in another journal: the rest goes to the journal with the beginning. An end without a
    beginning is set aside after a bounded wait."""
    program.launch("aa", "launch-requested")
    elsewhere = tmp_path / "other.db"
    assert take(journal=elsewhere) == 1
    program.at = AT
    for path_ in program.launch("aa", *WHOLE):
        if ".1." in path_:
            os.unlink(path_)
    program.deny("bb")
    assert (take(), rejected(folder)) == (1, [])
    assert (take(), kinds(path)) == (0, ["guard.denied"])
    assert take(journal=elsewhere) == 2
    assert kinds(elsewhere) == [f"sandbox.{step}" for step in WHOLE]

    late = program.put("sandbox.exited", {"status": 0}, "cc", 3)
    assert (take(program.at + WAIT_NS), rejected(folder)) == (0, [])
    assert take(program.at + WAIT_NS + 1) == 0
    assert rejected(folder) == [os.path.basename(late)]


def test_an_end_that_was_settled_by_others_stays_settled(
    path: Path, folder: Path, program: Program, take: Callable[..., int]
) -> None:
    """A report that comes after a later omac recorded the launch as lost is set aside, and the journal stays sound."""
    paths = program.launch("aa", *WHOLE)
    os.rename(paths[2], paths[2] + ".later")
    take()
    journal = open_journal(str(path), "later", lambda: AT)
    stream = ids.sandbox_stream(HOST, LaunchId("aa"))
    decide_now(journal, sandbox.AGGREGATE, stream, sandbox.Lose("gone"), Cause("omac"))
    journal.close()
    os.rename(folder / REJECTED / (os.path.basename(paths[2]) + ".later"), paths[2])
    assert take() == 0
    assert [type(record.event) for record in all_records(path)] == [LaunchRequested, Launched, LaunchExited]
    assert all_records(path)[2].event == LaunchExited(None, (), "gone", workdir="/w/shop")
    assert rejected(folder) == [os.path.basename(paths[2])]


@pytest.mark.parametrize(
    "steps",
    [("launched",), ("exited",), ("launch-requested", "launch-requested"), ("denied", "launched"),
     ("launch-requested", "exited", "exited"), ("launch-requested", "launched", "launched")],
)  # fmt: skip
def test_nothing_that_cannot_follow_gets_in(
    path: Path, folder: Path, program: Program, take: Callable[..., int], steps: tuple[str, ...]
) -> None:
    """A fold that fails would stop omac: an event that the state machine does not allow is set aside."""
    program.launch("aa", *steps)
    program.deny("bb")
    take()
    System().replay(all_records(path))
    assert len(rejected(folder)) == 1
    assert kinds(path).count("guard.denied") == 1
    assert len(kinds(path)) == len(steps)


# ---- once ----


@pytest.mark.full
def test_killed_before_the_file_is_removed(path: Path, folder: Path, program: Program) -> None:
    """The next ingestion finds the records in the journal and only removes the files, of logs too."""
    program.launch("aa", *WHOLE)
    program.deny("bb")
    dead = run_python(KILLED_AT + INGEST, str(path), str(folder))
    assert dead.returncode == -signal.SIGKILL
    assert (len(kinds(path)), len(os.listdir(folder))) == (4, 4)
    alive = run_python(INGEST, str(path), str(folder))
    assert alive.stdout == "ready\n0\n", alive
    assert (len(kinds(path)), os.listdir(folder), rejected(folder)) == (4, [], [])


def test_ids_are_forgotten_when_their_files_are_gone(path: Path, program: Program, take: Callable[..., int]) -> None:
    """The number of ids in the journal is bounded by the files that could come again."""
    for number in range(5):
        program.deny(f"a{number}")
        assert take() == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT host, id FROM spooled").fetchall() == [(HOST, f"{program.at:020d}-a4.0.json")]


@pytest.mark.full
def test_hosts_do_not_forget_for_each_other(path: Path, tmp_path: Path, inbox: Inbox, program: Program) -> None:
    """Hosts that share a journal have ids of their own: a file with the same name is recorded for each host."""
    dead = run_python(KILLED_AT + INGEST, str(path), inbox.folder) if program.deny("a") else None
    assert dead is not None
    assert dead.returncode == -signal.SIGKILL
    other_inbox = Inbox(str(tmp_path / "other"), HostId("host0002"))
    Program(tmp_path / "other").deny("a")
    journal = open_journal(str(path), "r", lambda: AT)
    try:
        assert (ingested(other_inbox, journal), ingested(inbox, journal)) == (1, 0)
    finally:
        journal.close()
    assert len(kinds(path)) == 2


@pytest.mark.full
def test_two_processes_at_once(path: Path, folder: Path, program: Program, take: Callable[..., int]) -> None:
    """Each record is ingested once; the second process leaves it to the first."""
    for number in range(50):
        program.launch(f"a{number}", *WHOLE)
        program.deny(f"d{number}")
    processes = [python(INGEST, str(path), str(folder)) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    outs = [process.communicate(timeout=60) for process in processes]
    take()
    assert [err for _, err in outs] == [""] * 3
    assert (len(kinds(path)), os.listdir(folder)) == (200, [])
    system = System().replay(all_records(path))
    assert (len(system.sandboxes.entries), system.guarded.denied) == (50, 50)


def test_a_second_ingestion_can_wait(folder: Path, program: Program, take: Callable[..., int]) -> None:
    """A second ingestion waits as long as its caller wants; the lock ends with the process that holds it."""
    program.deny("a")
    holder = os.open(folder, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    assert take() == 0
    assert take(wait_s=0.05) == 0
    os.close(holder)
    assert take(wait_s=0.05) == 1


def test_while_programs_go_on_spooling(path: Path, folder: Path, take: Callable[..., int]) -> None:
    """No record is lost or doubled between a writer and a reader of the folder."""
    code = """
    import sys
    from contract.launches import WHOLE, Program
    program = Program(sys.argv[1])
    for number in range(60):
        program.launch(f"{sys.argv[2]}{number}", *WHOLE)
    """
    processes = [python(code, str(folder), name) for name in ("a", "b")]
    while any(process.poll() is None for process in processes):
        take()
    assert [process.communicate() for process in processes] == [("", "")] * 2
    take()
    assert (len(kinds(path)), os.listdir(folder)) == (360, [])
    System().replay(all_records(path))


# ---- what cannot be taken ----


def spooled(program: Program, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """Spool a denial, and return the path of its file and its content with these changes."""
    path = Path(program.deny("bad"))
    return path, json.loads(path.read_text()) | changes


def rewrite(program: Program, **changes: Any) -> None:
    path, document = spooled(program, **changes)
    path.write_text(json.dumps(document))


def torn(program: Program) -> None:
    path, _ = spooled(program)
    path.write_bytes(path.read_bytes()[:-20])


def as_is(content: bytes) -> Callable[[Program], None]:
    def write(program: Program) -> None:
        spooled(program)[0].write_bytes(content)

    return write


def linked(program: Program) -> None:
    path, _ = spooled(program)
    os.rename(path, path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def folder_there(program: Program) -> None:
    path, _ = spooled(program)
    path.unlink()
    path.mkdir()


def pipe(program: Program) -> None:
    path, _ = spooled(program)
    path.unlink()
    os.mkfifo(path)


def foreign(program: Program) -> None:
    os.chown(spooled(program)[0], NOBODY, NOBODY)


def renamed(name: str) -> Callable[[Program], None]:
    return lambda program: os.rename(path := spooled(program)[0], path.parent / name)


LAUNCH = {"kind": "sandbox.launched", "stream": "sandbox/bad", "fields": {"pid": 1}}
HOSTILE: dict[str, Callable[[Program], None]] = {
    "torn": torn,
    "empty": as_is(b""),
    "not json": as_is(b"\0" * 100),
    "nested": as_is(b"[" * 60_000),
    "a list": as_is(b"[]"),
    "not utf-8": as_is(b'{"form":1,"id":"\xff"}'),
    "too long": lambda program: rewrite(program, fields={"path": "x" * RECORD_MAX}),
    "an earlier form": lambda program: rewrite(program, form=0),
    "an unknown key": lambda program: rewrite(program, more=1),
    "a kind that is not spooled": lambda program: rewrite(program, kind="skill.approved", fields={}),
    "another stream": lambda program: rewrite(program, stream="guard/host0002"),
    "a stream of others": lambda program: rewrite(program, **LAUNCH | {"stream": "registration/x"}, version=1),
    "a stream with a path": lambda program: rewrite(program, **LAUNCH | {"stream": "sandbox/../x"}, version=1),
    "an aggregate without version": lambda program: rewrite(program, **LAUNCH),
    "a log with a version": lambda program: rewrite(program, version=1),
    "a version below 1": lambda program: rewrite(program, version=0),
    "a huge version": lambda program: rewrite(program, version=2**40),
    "a time before 1970": lambda program: rewrite(program, at=-1),
    "a huge time": lambda program: rewrite(program, at=2**70),
    "a fraction of a time": lambda program: rewrite(program, at=1.5),
    "an unknown actor": lambda program: rewrite(program, actor="root"),
    "a run that is a path": lambda program: rewrite(program, run="../x"),
    "a run with a line": lambda program: rewrite(program, run="a\n"),
    "an id that is a path": lambda program: rewrite(program, id="../x"),
    "a missing field": lambda program: rewrite(program, fields={"path": ""}),
    "a field of another type": lambda program: rewrite(
        program, fields={"harness": 1, "tool": "", "path": "", "root": ""}
    ),
    "a huge number": lambda program: rewrite(program, **LAUNCH | {"fields": {"pid": 2**70}}, version=1),
    "a lone surrogate": lambda program: rewrite(
        program, fields={"harness": "\ud800", "tool": "", "path": "", "root": ""}
    ),
    "a symbolic link": linked,
    "a folder": folder_there,
    "a pipe": pipe,
    "another user's": foreign,
    "another name": renamed("x.json"),
    "a name out of order": renamed("00000000000000000000-bad.0.json"),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_taken_is_set_aside(
    path: Path, folder: Path, inbox: Inbox, program: Program, take: Callable[..., int], hostile: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A bad file is reported once and kept, and the records before and behind it are ingested."""
    program.deny("before")
    hostile(program)
    program.deny("behind")
    (bad,) = [name for name in inbox.names() if "before" not in name and "behind" not in name]
    with caplog.at_level(logging.WARNING):
        assert take() == 2
        assert take() == 0
    assert kinds(path) == ["guard.denied"] * 2
    assert (rejected(folder), inbox.names(), inbox.rejected()) == ([bad], frozenset(), 1)
    (warning,) = caplog.messages
    assert bad in warning
    assert str(folder / REJECTED) in warning


LATER: dict[str, dict[str, Any]] = {
    "a later form": {"form": 2, "more": 1},
    "an unknown kind": {"kind": "guard.allowed"},
    "a path as a kind": {"kind": "os:system"},
    "an unknown field": {"fields": {"path": "", "more": 1}},
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_what_a_later_omac_wrote_waits_for_it(
    path: Path, folder: Path, inbox: Inbox, program: Program, take: Callable[..., int], later: dict[str, Any],
) -> None:  # fmt: skip
    """A record that only a later omac can read stays where that finds it, and holds up no other."""
    rewrite(program, **later)
    program.deny("behind")
    assert (take(), take()) == (1, 0)
    assert kinds(path) == ["guard.denied"]
    assert (rejected(folder), len(inbox.names())) == ([], 1)


def test_a_launch_waits_with_what_a_later_omac_wrote_of_it(
    path: Path, folder: Path, inbox: Inbox, program: Program, take: Callable[..., int]
) -> None:
    """The records of a launch wait for that of it which only a later omac can read, however long, and keep their
    order."""
    program.launch("aa", *WHOLE)
    (first,) = [folder / name for name in inbox.names() if name.endswith("-aa.1.json")]
    content = first.read_text()
    first.write_text(content.replace('"fields":{', '"fields":{"more":1,'))
    assert take(program.at + WAIT_NS + 1) == 0
    assert (rejected(folder), len(inbox.names())) == ([], 3)
    first.write_text(content)  # as a later omac reads it
    assert take() == 3
    assert kinds(path) == [f"sandbox.{step}" for step in WHOLE]


def test_several_of_one_name_are_kept(folder: Path, program: Program, take: Callable[..., int]) -> None:
    """A rejected file does not replace another of its name."""
    for content in ("one", "two", "three"):
        (folder / "x").write_text(content)
        take()
    assert sorted((folder / REJECTED / name).read_text() for name in rejected(folder)) == ["one", "three", "two"]


def test_a_rejected_that_is_no_folder(folder: Path, program: Program, take: Callable[..., int]) -> None:
    """A file in the place of the folder of rejected files prevents setting aside; the ingestion goes on."""
    (folder / REJECTED).write_text("")
    (folder / "x").write_text("")
    program.deny("a")
    assert take() == 1


@pytest.mark.full
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    document=st.dictionaries(
        st.sampled_from(["form", "id", "kind", "stream", "version", "at", "run", "actor", "fields"]),
        st.one_of(
            st.none(), st.integers(), st.text(max_size=5), st.sampled_from([1, "aa", "guard", "sandbox/aa", "person"]),
            st.sampled_from(["guard.denied", "sandbox.exited", "sandbox.launched", {}, {"pid": 1}, {"status": 0}]),
        ),
    )
)  # fmt: skip
def test_no_file_damages_the_journal(journal: Journal, folder: Path, inbox: Inbox, document: Any) -> None:
    """A hostile file is recorded, waits, or is set aside; the journal can be folded."""
    Program(folder)
    at, id_, version = document.get("at"), document.get("id"), document.get("version")
    name = f"{at:020d}-{id_}.{version or 0}.json" if type(at) is int and at >= 0 and id_ == "aa" else "x.json"
    (folder / name[:200].replace("/", "-")).write_text(json.dumps(document))
    ingested(inbox, journal)
    System().replay(journal.records())


def test_drafts_are_passed_over(folder: Path, program: Program, take: Callable[..., int]) -> None:
    """A draft that a program may still be writing stays; one that is older than an hour is removed."""
    draft = folder / ".01-x.0.json"
    draft.write_text("{")
    os.utime(draft, ns=(AT, AT))
    assert (take(AT + 3_600 * 10**9), draft.exists()) == (0, True)
    assert (take(AT + 3_600 * 10**9 + 1), draft.exists()) == (0, False)


# ---- the journal ----


@needs_bubblewrap
@pytest.mark.full
def test_a_full_disk_loses_nothing(tmp_path: Path, program: Program, folder: Path) -> None:
    """Records that do not fit on a full disk stay in the spool."""
    for number in range(50):
        program.deny(f"d{number}", path="/w/" + "x" * 4_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    done = run_python(INGEST, str(disk / "journal.db"), str(folder), wrap=small_disk(disk, 163_840))
    assert "Refusal: the disk of the journal" in done.stderr, done
    assert len(os.listdir(folder)) == 50


def test_a_bad_spool_is_reported_and_left(
    journal: Journal, inbox: Inbox, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that has more important work leaves a bad spool as it is, until the next time."""
    program.deny("a")
    os.chmod(inbox.folder, 0o777)
    execution = OpenedJournal(journal, HOST)
    trio.run(try_to_ingest, inbox, execution)
    assert (journal.store.head(), len(inbox.names())) == (0, 1)
    assert "writable by other users" in caplog.text
    os.chmod(inbox.folder, 0o700)
    trio.run(try_to_ingest, inbox, execution)
    assert (journal.store.head(), len(inbox.names())) == (1, 0)


def test_a_locked_journal_loses_nothing(
    path: Path, journal: Journal, inbox: Inbox, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records stay in the spool while another program locks the journal."""
    program.deny("a")
    journal.store._writer.execute("PRAGMA busy_timeout=1")
    holder = lock(path)
    with pytest.raises(Refusal, match="locked"):
        ingested(inbox, journal)
    holder.close()
    assert len(inbox.names()) == 1
    assert ingested(inbox, journal) == 1


def test_a_journal_from_before_there_was_a_spool(path: Path, inbox: Inbox, program: Program) -> None:
    """A journal from before the spool is readable, gets its table when it is written, and an earlier omac can go on."""
    journal = open_journal(str(path), "r", itertools.count(1).__next__)
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE spooled")
    assert all_records(path) == []
    program.deny("a")
    with closing(open_journal(str(path), "r", lambda: AT)) as journal:
        assert ingested(inbox, journal) == 1
    assert kinds(path) == ["guard.denied"]
    with closing(sqlite3.connect(path)) as connection:  # what an earlier omac does with it
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (schema,) = connection.execute("SELECT schema FROM journal").fetchone()
    here = {"journal", "name", "head", "event", "spooled", "opened", "set_aside", "leaf", "tree", "segment"}
    assert tables == here | {"sealed_version"}
    assert schema == 1
