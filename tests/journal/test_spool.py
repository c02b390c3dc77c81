"""journal/spool.py: the records of a short-lived program are on the disk, whole, before it goes on."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from contract.journals import python, run_python
from contract.launches import AT, Program
from contract.media import needs_bubblewrap, read_only, small_disk
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.refusal import Refusal
from omac.journal.spool import RECORD_MAX, TEXT_MAX, Spool, bounded, encoded

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
APPEND = """
    from contract.launches import Program
    from omac.domain.kernel.refusal import Refusal
    import sys
    try:
        program = Program(sys.argv[1])
        for number in range(int(sys.argv[2])):
            program.deny(f"d{number}", path="/w/" + "x" * 3_000)
            print(number, flush=True)
    except Refusal as refusal:
        print(refusal.reason, refusal.message, *refusal.fix, sep="\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of a spool; no part of it exists yet."""
    return tmp_path / "state" / "spool"


def record(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


# ---- what is written ----


def test_a_record(folder: Path) -> None:
    """A record is a file of its own, with a name that sorts by time, in a folder that is its owner's alone."""
    path = Spool(str(folder)).append(
        "sandbox.launched", {"pid": 43}, stream="sandbox/aa", version=2, at=AT, run="r1", actor="person", id="aa"
    )
    assert path == str(folder / "01700000000000000000-aa.2.json")
    assert record(path) == {
        "form": 1, "id": "aa", "kind": "sandbox.launched", "stream": "sandbox/aa", "version": 2, "at": AT, "run": "r1",
        "actor": "person", "fields": {"pid": 43},
    }  # fmt: skip
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert [stat.S_IMODE(os.stat(directory).st_mode) for directory in (folder, folder.parent)] == [0o700, 0o700]
    assert os.listdir(folder) == [os.path.basename(path)]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_the_modes_do_not_depend_on_the_umask(folder: Path, umask: int) -> None:
    """A record and its folder are their owner's alone, with a generous umask and a strict one."""
    before = os.umask(umask)
    try:
        path = Program(folder).deny("a")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(entry).st_mode) for entry in (path, folder)] == [0o600, 0o700]


def test_names_sort_by_time(folder: Path) -> None:
    """Names of records sort by time, however many digits the time has."""
    program, paths = Program(folder), []
    for at in (0, 9, 10, AT, 2**63 - 1):
        paths.append(program.put("guard.denied", {}, f"d{at}", None, at=at))
    assert sorted(os.listdir(folder)) == [os.path.basename(path) for path in paths]


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("plain", "plain"),
        ('"\\/\n\r\t\0\x1f\x7f', '"\\/\n\r\t\0\x1f\x7f'),
        ("größe/日本語/🦊\u2028", "größe/日本語/🦊\u2028"),
        (os.fsdecode(b"/w/\xff\xc3\xbc"), "/w/\\xffü"),
        ("\ud800", "\\xed\\xa0\\x80"),
        ("x" * 5_000, "x" * (TEXT_MAX - 3) + "..."),
    ],
)
def test_a_record_takes_any_text(folder: Path, text: str, recorded: str) -> None:
    """A record takes a path of any bytes and any text: bytes that are not Unicode are escaped, and long texts cut."""
    assert record(Program(folder).deny("a", path=text))["fields"]["path"] == recorded


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
        max_leaves=20,
    )
)
def test_the_encoder_writes_json(value: object) -> None:
    """The encoder writes JSON that the standard library reads as the same value."""
    assert json.loads(encoded(value)) == value


@pytest.mark.parametrize("value", [1.5, b"x", {1}, {1: 2}, [object()], {"a": {None: 1}}])
def test_the_encoder_takes_nothing_else(value: object) -> None:
    """The encoder refuses a value that would come back as another: recording it is a mistake of the program."""
    with pytest.raises(TypeError):
        encoded(value)


@pytest.mark.parametrize("id_", ["", "../x", "a/b", "a.b", ".a", "ä", "a" * 65])
def test_an_id_is_no_path(folder: Path, id_: str) -> None:
    """An id that could be a path is rejected, since it becomes part of a name."""
    with pytest.raises(AssertionError):
        Program(folder).deny(id_)
    assert os.listdir(folder) == []


def test_a_record_is_bounded(folder: Path) -> None:
    """A record that no reader would take is refused, and not written."""
    with pytest.raises(Refusal, match=str(RECORD_MAX)) as refused:
        Program(folder).launch("aa", "launch-requested", argv=["x" * 4_000] * 30)
    assert refused.value.reason == "journal-unavailable"
    assert os.listdir(folder) == []


# ---- where ----


def link_to(folder: Path, target: Path) -> None:
    target.mkdir(parents=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)


def make(folder: Path, mode: int = 0o700, uid: int | None = None) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    if uid is not None:
        os.chown(folder, uid, uid)


def make_within(folder: Path, mode: int, uid: int = 0) -> None:
    make(folder)
    folder.parent.chmod(mode)
    os.chown(folder.parent, uid, uid)


def make_file(folder: Path) -> None:
    make(folder.parent)
    folder.write_text("")


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda folder: link_to(folder, folder.parent / "elsewhere"), "symbolic link"),
        (lambda folder: make_file(folder), "no folder"),
        (lambda folder: make(folder, 0o770), "writable by other users"),
        (lambda folder: make(folder, 0o707), "writable by other users"),
        (lambda folder: make(folder, uid=NOBODY), "belongs to user 65534"),
        (lambda folder: make_within(folder, 0o1777), "writable by other users"),
        (lambda folder: make_within(folder, 0o755, NOBODY), "belongs to user 65534"),
    ],
    ids=["link", "file", "group", "all", "foreign", "in-one-for-all", "in-a-foreign-one"],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_that_others_control_is_refused(folder: Path, prepare: Any, why: str) -> None:
    """A folder that other users control is refused: a user who can remove a record could launch unseen."""
    prepare(folder)
    with pytest.raises(Refusal, match=why) as refused:
        Spool(str(folder))
    assert refused.value.reason == "state-unusable"
    assert str(folder.parent) in refused.value.message
    assert refused.value.fix


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_folder_of_ones_own_is_used(folder: Path, mode: int) -> None:
    """A folder of the user's own is used, also one that other users may list."""
    make(folder, mode)
    assert os.path.exists(Program(folder).deny("a"))


def test_a_folder_that_is_swapped_for_a_link_gets_nothing(folder: Path, tmp_path: Path) -> None:
    """A program writes to the folder that it checked, not to a link in its place."""
    program = Program(folder)
    os.rename(folder, tmp_path / "moved")
    link_to(folder, tmp_path / "elsewhere")
    program.deny("a")
    assert len(os.listdir(tmp_path / "moved")) == 1
    assert os.listdir(tmp_path / "elsewhere") == []


@needs_bubblewrap
def test_a_full_disk(tmp_path: Path) -> None:
    """A record on a full disk is refused with a fix, and leaves no part behind; earlier records are whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    look = """
    import json, os
    for name in os.listdir(sys.argv[1]):
        print("file", name[0] != "." and json.load(open(f"{sys.argv[1]}/{name}"))["kind"])
    """
    done = run_python(APPEND + look, str(disk / "spool"), "1000", wrap=small_disk(disk, 65_536))
    lines = done.stdout.splitlines()
    written = lines.index("journal-unavailable")
    assert 1 < written < 100, done
    assert lines[written + 1] == f"guard.denied cannot be recorded in {disk}/spool: No space left on device"
    assert lines[written + 2].startswith("df -h ")
    assert [line for line in lines if line.startswith("file")] == ["file guard.denied"] * written


@needs_bubblewrap
def test_a_read_only_disk(folder: Path) -> None:
    """A record on a read-only disk is refused."""
    Spool(str(folder))
    done = run_python(APPEND, str(folder), "1", wrap=read_only(folder.parent))
    assert done.stdout.startswith("journal-unavailable\n"), done


def test_a_killed_program_leaves_whole_records_only(folder: Path) -> None:
    """A killed program leaves every record that it reported, and none in part."""
    with python(APPEND, str(folder), "100000") as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        reported = 20 + len(process.stdout.read().splitlines())
    names = [name for name in os.listdir(folder) if not name.startswith(".")]
    assert len(names) >= reported
    assert all(record(folder / name)["kind"] == "guard.denied" for name in names)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace tells what a program asked of the system")
def test_it_is_on_the_disk_when_append_returns(folder: Path, tmp_path: Path) -> None:
    """An append flushes the file before it names it, the folder after that, and every folder that it made."""
    trace = tmp_path / "trace"
    calls = "trace=fsync,rename,renameat,renameat2,mkdir,mkdirat,write"
    done = run_python(APPEND, str(folder), "1", wrap=["strace", "-f", "-y", "-e", calls, "-o", str(trace)])
    assert done.stdout == "0\n", done
    lines = [line for line in trace.read_text().splitlines() if str(tmp_path) in line]
    steps = [match[1] for line in lines if (match := re.search(r"\b(mkdir|fsync|rename|write)\w*\(", line))]
    assert steps == ["mkdir", "fsync", "mkdir", "fsync", "write", "fsync", "rename", "fsync"]


# ---- what it costs ----


def test_it_loads_nothing_that_costs_time() -> None:
    """The spool imports nothing outside omac, so that programs that use it start within milliseconds."""
    code = f"import os, sys; sys.path.insert(0, {str(ROOT / 'src')!r}); before = set(sys.modules)\n"
    code += "import omac.journal.spool; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if not name.startswith("omac")} == {"__future__"}


def test_a_cut_leaves_no_half_of_a_token() -> None:
    """A token that lies across the cut is removed as a whole, since half of it could not be recognized."""
    token, before = "c0ffee" * 5 + "42", "z" * (TEXT_MAX - 20) + "/"
    assert bounded(before + token + "y" * 100) == before + "..."
    assert bounded("f" * 5_000) == "f" * (TEXT_MAX - 3 - 288) + "..."
