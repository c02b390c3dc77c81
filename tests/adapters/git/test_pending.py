"""adapters/git/pending.py: each launch is inspected once, by any process that can, and not too early."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from adapters.git.boxed import host, run_inside

from adapters.git import layouts
from omac.adapters.git import inspections
from omac.adapters.git.launch_record import Record, merged, record_of
from omac.adapters.git.layout import GitChoices, copy_back, lay_out, prepare
from omac.adapters.git.pending import FOLDER, DueInspection, Pending
from omac.domain.kernel.refusal import Refusal


class Inspecting(Pending):
    """The records of a state directory, inspected by `inspect` as soon as they are due."""

    def __init__(self, state: str, inspect: Callable[[list[Record]], None]) -> None:
        super().__init__(state)
        self._inspect = inspect

    def has_begun(self, record: Record, waiting: Callable[[str], None] = print) -> bool:
        """Return whether a record was added; else inspect overlapping launches, or wait for another process."""
        due = self.begin(record)
        if due and due.busy_place:
            waiting(due.busy_place)
            due.wait()
        elif due:
            self._do(due)
        return due is None

    def has_ended(self, record: Record) -> bool:
        """Return whether a launch was inspected at its end; else a later one inspects it."""
        due = self.end(record)
        if due:
            self._do(due)
        return due is not None

    def do_due(self) -> None:
        """Inspect every launch that is due."""
        while due := self.due():
            self._do(due)

    def _do(self, due: DueInspection) -> None:
        with due as records:
            self._inspect(records)


class Desk:
    """The records of a state directory, and in `done` the names of inspected launches, a list for each inspection."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.done: list[list[str]] = []
        self.pending = Inspecting(str(state), self._inspect)

    def begin(self, record: Record) -> Record:
        while not self.pending.has_begun(record):
            pass
        return record

    def left(self) -> list[str]:
        return sorted(name for name in os.listdir(self.state / FOLDER) if name != "lock")

    def _inspect(self, records: list[Record]) -> None:
        self.done.append(sorted(record.name for record in records))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "state")


def _record(name: str, *places: str, fenced: tuple[str, ...] = (), began_ns: int = 1) -> Record:
    return Record(name, began_ns, places, fenced)


def test_alone(desk: Desk) -> None:
    """A launch without others is inspected when it ends, and its record is removed."""
    record = desk.begin(_record("a", "/p"))
    assert desk.done == []
    assert desk.pending.has_ended(record)
    assert desk.done == [["a"]]
    assert desk.left() == []


def test_the_last_one_does_it_for_all(desk: Desk) -> None:
    """Launches in a project and in a folder of it are inspected together when the last of them ends."""
    first, second, third = (desk.begin(_record(*words)) for words in (("a", "/p"), ("b", "/p"), ("c", "/p/d")))
    assert not desk.pending.has_ended(first)
    assert not desk.pending.has_ended(third)
    assert desk.done == []
    assert desk.pending.has_ended(second)
    assert desk.done == [["a", "b", "c"]]
    assert desk.left() == []


def test_others_are_no_hindrance(desk: Desk) -> None:
    """Projects that have nothing in common, and worktrees that share a fenced folder, do not wait for each other."""
    first = desk.begin(_record("a", "/w1", fenced=("/r/.git",)))
    second = desk.begin(_record("b", "/w2", fenced=("/r/.git",)))
    desk.begin(_record("c", "/other"))
    assert desk.pending.has_ended(first)
    assert desk.pending.has_ended(second)
    assert desk.done == [["a"], ["b"]]


def test_a_fence_is_none_for_who_is_not_in_it(desk: Desk) -> None:
    """A launch in a worktree is inspected with a launch in the clone itself, which can make links there."""
    worktree = desk.begin(_record("a", "/w1", fenced=("/r/.git",)))
    clone = desk.begin(_record("b", "/r"))
    assert not desk.pending.has_ended(worktree)
    assert desk.pending.has_ended(clone)
    assert desk.done == [["a", "b"]]


def test_a_launch_waits_for_an_inspection(desk: Desk) -> None:
    """A launch does not begin while its project is being inspected, and is planned again afterwards."""
    inspecting, may_end = threading.Event(), threading.Event()

    def slowly(_records: list[Record]) -> None:
        inspecting.set()
        assert may_end.wait(20)

    slow = Inspecting(str(desk.state), slowly)
    record = _record("a", "/p")
    assert slow.has_begun(record)
    thread = threading.Thread(target=slow.has_ended, args=(record,))
    thread.start()
    assert inspecting.wait(20)
    waits: list[str] = []

    def waiting(place: str) -> None:
        waits.append(place)
        may_end.set()

    assert not desk.pending.has_begun(_record("b", "/p"), waiting)
    thread.join()
    assert waits == ["/p"]
    assert desk.pending.has_begun(_record("b", "/p"), waiting)


SIDE_BY_SIDE_S = 1.5
LAUNCHES = """
import sys, time
from omac.adapters.git.inspection import Baseline
from omac.adapters.git.launch_record import Record
from omac.adapters.git.pending import Pending
pending = Pending(sys.argv[1])
inspected, end = [], time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    record = Record(f"{sys.argv[2]}{len(inspected)}", 1, (f"/{sys.argv[2]}", *sys.argv[4:]))
    while due := pending.begin(record):
        due.wait() if due.busy_place else due.__enter__() and due.__exit__(None)
    pending.complete(record, Baseline(1))
    if due := pending.end(record):
        with due as records:
            inspected += [one.name for one in records]
    else:
        inspected.append("")
print(len(inspected), len({*inspected} - {""}))
"""


@pytest.mark.full
@pytest.mark.parametrize("shared", [(), ("/shared",)], ids=["apart", "overlapping"])
def test_side_by_side(shared: tuple[str, ...], desk: Desk) -> None:
    """Launches that begin and end at once, in one project or in several, do not disturb each other's records."""
    line = [sys.executable, "-c", LAUNCHES, str(desk.state)]
    launches = [
        subprocess.Popen([*line, name, str(SIDE_BY_SIDE_S), *shared], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for name in "abc"
    ]
    outputs = [process.communicate(timeout=60)[0].decode() for process in launches]
    assert [process.returncode for process in launches] == [0, 0, 0], "\n".join(outputs)
    assert all(int(output.split()[1]) > 0 for output in outputs) or shared
    desk.pending.do_due()
    assert desk.left() == []


KILLED = """
import sys, time
from omac.adapters.git.inspection import Baseline
from omac.adapters.git.launch_record import Record
from omac.adapters.git.pending import Pending
pending = Pending(sys.argv[1])
record = Record("killed", 1, ("/p",))
pending.begin(record)
pending.complete(record, Baseline(1))
print("there", flush=True)
if sys.argv[2] == "busy":
    pending.end(record)
time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["running", "busy"])
def test_killed(moment: str, desk: Desk) -> None:
    """A launch that was killed, also while it inspected, is inspected before the next launch there, or on request."""
    for ask in (lambda: desk.begin(_record("next", "/p/d")), lambda: desk.pending.do_due()):
        line = [sys.executable, "-c", KILLED, str(desk.state), moment]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            if moment == "busy":
                while not (desk.state / FOLDER / "killed.busy").exists():
                    pass
            else:
                desk.pending.do_due()
                assert desk.done == []
            process.send_signal(signal.SIGKILL)
        record = ask()
        assert desk.done.pop() == ["killed"]
        if record is not None:
            desk.pending.has_ended(record)
            desk.done.pop()
    assert desk.left() == []


def test_the_sandbox_outlives_omac(desk: Desk) -> None:
    """A launch is not due while the first process of its sandbox lives."""
    with subprocess.Popen(["sleep", "60"]) as sandbox:
        program = KILLED.replace("print(", f"pending.begun(record, {sandbox.pid}); print(")
        line = [sys.executable, "-c", program]
        with subprocess.Popen([*line, str(desk.state), "running"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
        desk.pending.do_due()
        assert desk.done == []
        sandbox.kill()
    desk.pending.do_due()
    assert desk.done == [["killed"]]


def test_a_failure_is_tried_again(desk: Desk) -> None:
    """A launch stays due after an inspection that failed."""

    def fails(_records: list[Record]) -> None:
        raise OSError("the disk is full")

    failing = Inspecting(str(desk.state), fails)
    record = _record("a", "/p")
    assert failing.has_begun(record)
    with pytest.raises(OSError, match="full"):
        failing.has_ended(record)
    desk.pending.do_due()
    assert desk.done == [["a"]]


def test_a_full_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names the disk that is full, and no part of the record stays."""

    def full(_descriptor: int, _content: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(Refusal, match=f"{FOLDER}: No space left") as refused:
            desk.begin(_record("a", "/p"))
    assert refused.value.fix == (f"df -h {desk.state}/{FOLDER}",)
    assert desk.left() == []


@pytest.mark.parametrize("content", [b"", b"{", b"{'version': 9}\n", b"\xff\n", b"[" * 10000, b"{}\n"])
def test_what_is_no_record(content: bytes, desk: Desk) -> None:
    """A file that this omac does not understand is left alone; one that was never written is removed."""
    record = desk.begin(_record("a", "/p"))
    (desk.state / FOLDER / "odd").write_bytes(content)
    assert desk.pending.has_ended(record)
    assert desk.left() == ["odd"] * (b"\n" in content)


def test_a_whole_record_comes_back(tmp_path: Path, home: Path) -> None:
    """A record is read as it was written: with the baseline of the launch, sessions of refs, and odd names."""
    workdir = layouts.linked_packed(tmp_path, home)
    os.mkdir(os.fsencode(workdir) + b"/odd \xff\n")
    (workdir / ".env").touch()
    layout = lay_out(str(workdir), GitChoices(refs="branch"), str(home))
    prepare(layout)
    desk = Desk(tmp_path / "state")
    record = record_of("a", [layout], 7, fence=True)
    record.unjudged = (f"{home}/.cache/omac",)
    desk.begin(record)
    desk.pending.complete(record, inspections.note(record))
    os.close(record.descriptor)
    read: list[Record] = []
    Inspecting(str(desk.state), read.extend).do_due()
    assert [loaded.head() + loaded.noted() for loaded in read] == [record.head() + record.noted()]
    assert read[0].overlaps(record)


def test_a_killed_launch_loses_nothing(tmp_path: Path, home: Path) -> None:
    """Refs packed in the copy of a killed session are copied back to the host by the process that inspects it."""
    workdir = layouts.linked(tmp_path, home)
    refs = host("git", "for-each-ref", cwd=workdir, home=home)
    layout = lay_out(str(workdir), GitChoices(), str(home))
    prepare(layout)
    desk = Desk(tmp_path / "state")
    record = desk.begin(record_of("a", [layout], 7, fence=True))
    desk.pending.complete(record, inspections.note(record))
    host("git", "pack-refs", "--all", cwd=workdir, home=home)
    os.rename(tmp_path / "repo/.git/packed-refs", f"{layout.sessions[0].folder}/packed-refs")
    assert "refs/heads/topic" not in host("git", "branch", "-a", cwd=workdir, home=home, check=False)
    os.close(record.descriptor)

    def inspect(records: list[Record]) -> None:
        whole = merged(records)
        assert copy_back(whole.sessions, whole.narrowed) == []

    Inspecting(str(desk.state), inspect).do_due()
    assert host("git", "for-each-ref", cwd=workdir, home=home) == refs
    assert not Path(layout.sessions[0].folder).exists()
    assert run_inside(workdir, "git status", home=home).findings == []


def test_settings_are_brought_home_by_another(tmp_path: Path, home: Path) -> None:
    """Settings that an ended launch wrote into its copies are set on the host by the process that inspects for it."""
    workdir = layouts.plain(tmp_path, home)
    layout = lay_out(str(workdir), GitChoices(), str(home))
    desk = Desk(tmp_path / "state")
    record = desk.begin(record_of("a", [layout], 7, fence=True))
    desk.pending.complete(record, inspections.note(record))
    desk.pending.begun(record, 1 << 22)
    for copy in record.copies:
        if copy.path.endswith("/config"):
            copy.after = (copy.before or b"") + b'[branch "main"]\nrebase = true\n[core]\nfsmonitor = evil\n'
    desk.pending.ended(record)
    os.close(record.descriptor)
    unset: list[tuple[str, str]] = []

    def inspect(records: list[Record]) -> None:
        whole = merged(records)
        unset.extend(copy_back(whole.sessions, whole.narrowed, whole.copies))

    Inspecting(str(desk.state), inspect).do_due()
    assert [setting for setting, _ in unset] == [f"{workdir}/.git/config: core.fsmonitor"]
    assert host("git", "config", "branch.main.rebase", cwd=workdir, home=home) == "true\n"
    assert "fsmonitor" not in (workdir / ".git/config").read_text()


def test_the_earliest_moment_counts(tmp_path: Path, home: Path) -> None:
    """Files that the first launch left before the second one began count as new in the merged baseline."""
    workdir = layouts.plain(tmp_path, home)
    layout = lay_out(str(workdir), GitChoices(), str(home))
    first = record_of("a", [layout], 1, fence=True)
    first.baseline = inspections.note(first)
    (workdir / ".envrc").touch()
    (tmp_path / "other").mkdir()
    elsewhere = lay_out(str(tmp_path / "other"), GitChoices(), str(home))
    (tmp_path / "other" / ".envrc").touch()
    second = record_of("b", [layout, elsewhere], 2, fence=True)
    second.baseline = inspections.note(second)
    whole = merged([second, first])
    assert whole.baseline is not None
    assert list(whole.baseline.obeyed) == [f"{tmp_path}/other/.envrc"]
    assert whole.projects == (str(workdir), f"{tmp_path}/other")
