"""adapters/caches/caches.py: what is told of each cache, and removing whatever programs in a sandbox left there."""

import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from omac.adapters.caches import size
from omac.adapters.caches.caches import Caches, opened
from omac.adapters.caches.tree import identity_of, open_cache
from omac.adapters.files import emptying
from omac.domain.kernel.refusal import Refusal

Environment = Mapping[str, str]
Holder = Callable[[Path], subprocess.Popen[bytes]]

DEEP = 1_500  # more than Python recurses, and as a path longer than the system takes
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.fixture
def tools(workdir: Path, environment: Environment) -> Iterator[Path]:
    """What is granted of the workdir's cache."""
    cache = open_cache(str(workdir), environment)
    cache.end()
    yield Path(cache.path)
    subprocess.run(["rm", "-rf", cache.root], check=True)  # pytest itself cannot remove what is too deep


@pytest.fixture
def caches(tools: Path, environment: Environment) -> Iterator[Caches]:
    """All caches: that of the workdir."""
    with opened(environment, lambda names: None) as found:
        assert found is not None
        yield found


def outside(home: Path) -> Path:
    """A folder that nothing may change, with a file in it."""
    folder = home / "outside"
    folder.mkdir(mode=0o711)
    (folder / "precious").write_text("still here")
    (folder / "precious").chmod(0o444)
    return folder


def links(tools: Path, home: Path) -> None:
    """Links to files and folders elsewhere, upward, to nothing and to itself."""
    targets: tuple[Path | str, ...] = (outside(home), home / "outside" / "precious", "..", "/", "nowhere")
    for number, target in enumerate(targets):
        (tools / f"link{number}").symlink_to(target)
    (tools / "loop").symlink_to("loop")


def hard_link(tools: Path, home: Path) -> None:
    """Another name for a file elsewhere."""
    os.link(outside(home) / "precious", tools / "hard")


def special(tools: Path, home: Path) -> None:
    """What waits, or does things, when it is opened."""
    outside(home)
    os.mkfifo(tools / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(tools)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)


def locked(tools: Path, home: Path) -> None:
    """Folders that cannot be written to, as Go leaves them, or not even be read, in one another."""
    outside(home)
    folder = tools / "go-mod"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "c").mkdir()
    for path, mode in ((folder / "a" / "b", 0o000), (folder / "a", 0o111), (folder / "c", 0o600), (folder, 0o555)):
        (path / "file").touch()
        path.chmod(mode)


def deep(tools: Path, home: Path) -> None:
    """Folders in folders, each with a file."""
    outside(home)
    folder = os.open(tools, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=below))
        os.close(folder)
        folder = below
    os.close(folder)


def wide(tools: Path, home: Path) -> None:
    """More files and folders side by side than are dealt with at once."""
    outside(home)
    for number in range(emptying.BATCH + 10):
        (tools / f"file{number}").touch()
        (tools / f"folder{number}").mkdir()


def odd_names(tools: Path, home: Path) -> None:
    """Names that are no text, or mean something to a terminal, or are those that removing itself uses."""
    outside(home)
    for name in (b"\xff\xfe", b"\x1b[2J", b"new\nline", b"-rf", b"0", b"1", b"2", b"." * 3, b"x" * 255):
        os.mkdir(os.fsencode(tools) + b"/" + name)
        os.mkdir(os.fsencode(tools) + b"/" + name + b"/1")


HOSTILE = (links, hard_link, special, locked, deep, wide, odd_names)


@pytest.mark.parametrize("plant", HOSTILE)
def test_hostile_trees_are_removed(
    tools: Path, home: Path, caches: Caches, plant: Callable[[Path, Path], None]
) -> None:
    """Whatever was left there goes, and nothing else: what it leads to is neither opened, changed nor removed."""
    plant(tools, home)
    precious = home / "outside" / "precious"
    before = (precious.read_text(), stat.S_IMODE(precious.stat().st_mode), stat.S_IMODE(precious.parent.stat().st_mode))
    (identity,) = caches.ids()
    caches.inspect(identity)
    assert caches.take_away(identity, "token")
    assert caches.ids() == []
    assert os.listdir(Path(caches.path) / ".locks") == []
    assert caches.empty_trash() == []
    assert sorted(os.listdir(caches.path)) == [".locks", ".trash"]
    assert not os.listdir(Path(caches.path) / ".trash")
    after = (precious.read_text(), stat.S_IMODE(precious.stat().st_mode), stat.S_IMODE(precious.parent.stat().st_mode))
    assert before == after == ("still here", 0o444, 0o711)


def test_a_plain_removal_fails_there(tools: Path, home: Path) -> None:
    """Why this is not left to the library: it recurses, and keeps a folder open for each level."""
    deep(tools, home)
    with pytest.raises((RecursionError, OSError)):
        shutil.rmtree(tools)


REMOVE_AS_NOBODY = """\
import os, sys
sys.path.insert(0, sys.argv[1])
from omac.adapters.files.emptying import clear
heap = os.open(sys.argv[2], os.O_RDONLY)
print(clear(heap), os.listdir(heap))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_without_privileges_too(public: Path) -> None:
    """Root may write into read-only folders anyway: others have to unlock them, and a plain removal does not."""
    source, heap = public / "src", public / "heap"
    package = Path(emptying.__file__).parents[2]
    for name in ("adapters", "domain"):
        shutil.copytree(package / name, source / "omac" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", source / "omac")
    (heap / "0").mkdir(parents=True)
    locked(heap / "0", public)
    subprocess.run(["chown", "-R", "65534:65534", heap], check=True)
    plain = subprocess.run([*AS_NOBODY, "rm", "-rf", heap / "0"], capture_output=True, text=True)
    assert "Permission denied" in plain.stderr
    command = [*AS_NOBODY, "/usr/bin/python3", "-I", "-S", "-c", REMOVE_AS_NOBODY, str(source), str(heap)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[] []\n", done.stderr


def test_what_would_not_go_is_told(tools: Path, caches: Caches) -> None:
    """A file system that somebody mounted there stays, and is named; once it is gone, so is the rest next time."""
    mounted = tools / "mounted"
    mounted.mkdir()
    (tools / "file").touch()
    inside = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$1" && shift && exec "$@"', "sh", mounted,
         sys.executable, "-c", STUBBORN, str(Path(caches.path).parents[1])],
        capture_output=True, text=True,
    )  # fmt: skip
    assert inside.returncode == 0, inside.stderr
    assert "busy" in inside.stdout
    assert not (Path(caches.path) / ".trash" / "token" / "0" / "tools" / "file").exists()
    assert caches.empty_trash() == []
    assert not os.listdir(Path(caches.path) / ".trash")


STUBBORN = """\
import sys
from omac.adapters.caches.caches import opened
with opened({"HOME": sys.argv[1]}, lambda names: None) as caches:
    assert caches.take_away(caches.ids()[0], "token")
    print(caches.empty_trash())
"""


@pytest.mark.full
def test_an_interrupted_removal_is_taken_up(tools: Path, home: Path, environment: Environment, caches: Caches) -> None:
    """What was taken away is in nobody's way, and the next removal ends what was begun."""
    wide(tools, home)

    def interrupt(names: int) -> None:
        raise KeyboardInterrupt

    with opened(environment, interrupt) as impatient:
        assert impatient is not None
        assert impatient.take_away(impatient.ids()[0], "token")
        with pytest.raises(KeyboardInterrupt):
            impatient.empty_trash()
    assert os.listdir(tools.parents[1] / ".trash" / "token")
    assert caches.empty_trash() == []
    assert not os.listdir(tools.parents[1] / ".trash")


def test_one_in_use_stays(workdir: Path, tools: Path, caches: Caches, user: Holder) -> None:
    """Whoever uses it; once they have ended it goes, however they ended."""
    (tools / "warm").touch()
    process = user(workdir)
    (identity,) = caches.ids()
    assert caches.inspect(identity).in_use
    assert not caches.take_away(identity, "token")
    assert (tools / "warm").exists()
    process.kill()
    process.wait()
    assert not caches.inspect(identity).in_use
    assert caches.take_away(identity, "token")
    assert not tools.exists()


def test_one_used_meanwhile_stays(workdir: Path, tools: Path, environment: Environment, caches: Caches) -> None:
    """Looking at many takes minutes: one that was used after it was looked at is not what it was."""
    (identity,) = caches.ids()
    seen = caches.inspect(identity).last_used
    open_cache(str(workdir), environment).end()
    assert not caches.take_away(identity, "token", seen)
    assert tools.exists()
    assert caches.take_away(identity, "token", caches.inspect(identity).last_used)


def test_looking_changes_nothing(workdir: Path, tools: Path, caches: Caches) -> None:
    """Neither when it was used, nor modes, nor is a lock made where there is none."""
    (tools / "locked").mkdir(mode=0o000)
    (identity,) = caches.ids()
    lock = Path(caches.path) / ".locks" / f"{identity}.lock"
    os.utime(lock, (1, 1))
    assert caches.inspect(identity).last_used == 10**9
    assert lock.stat().st_mtime == 1
    assert stat.S_IMODE((tools / "locked").stat().st_mode) == 0
    lock.unlink()
    found = caches.inspect(identity)
    assert found.last_used == tools.parent.stat().st_mtime_ns
    assert not found.in_use
    assert not lock.exists()


LAUNCH_AND_USE = """\
import os, sys
from omac.adapters.caches.tree import open_cache
for _ in range(300):
    cache = open_cache(sys.argv[1], {"HOME": sys.argv[2]})
    os.close(os.open(cache.path + "/file", os.O_WRONLY | os.O_CREAT))
    os.stat(cache.path + "/file")
    cache.end()
"""


def test_launches_while_all_is_removed(workdir: Path, home: Path, caches: Caches) -> None:
    """Removing and using take turns: a cache that a launch was given is there for as long as it is used."""
    command = [sys.executable, "-c", LAUNCH_AND_USE, str(workdir), str(home)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        removed = 0
        while process.poll() is None:
            removed += caches.take_away(identity_of(str(workdir)), f"token{removed}")
            caches.drop_loose_locks()
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read()
    assert removed > 1


def test_locks_without_a_cache_go(workdir: Path, caches: Caches) -> None:
    """One of a cache that is there stays, and so does one that somebody holds."""
    locks = Path(caches.path) / ".locks"
    for name in ("0123456789ab.lock", "ba9876543210.lock", "something else"):
        (locks / name).touch()
    with (locks / "ba9876543210.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        caches.drop_loose_locks()
    assert set(os.listdir(locks)) == {f"{identity_of(str(workdir))}.lock", "ba9876543210.lock", "something else"}


def test_what_is_told(workdir: Path, tools: Path, caches: Caches) -> None:
    """Whose it is, whether that is still there, how large it is."""
    (tools / "file").write_bytes(os.urandom(100_000))
    (identity,) = caches.ids()
    found = caches.inspect(identity)
    assert (found.workdir, found.workdir_exists, found.counted, found.in_use) == (str(workdir), True, True, False)
    assert found.path == str(tools.parent)
    assert 100_000 <= found.bytes < 200_000
    workdir.rmdir()
    assert not caches.inspect(identity).workdir_exists
    workdir.symlink_to("/nowhere")
    assert not caches.inspect(identity).workdir_exists


@pytest.mark.full
@pytest.mark.parametrize(
    ("plant", "counted"),
    [(links, True), (hard_link, True), (special, True), (wide, True), (odd_names, True), (deep, False)],
)
def test_sizes_of_hostile_trees(
    tools: Path, home: Path, caches: Caches, plant: Callable[[Path, Path], None], counted: bool
) -> None:
    """Counting follows nothing and ends; where not all was counted, that is said."""
    plant(tools, home)
    with (home / "outside" / "precious").open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 50_000_000)
    found = caches.inspect(caches.ids()[0])
    assert found.counted == counted
    assert found.bytes < 20_000_000 or plant is hard_link


def test_many_names_of_one_file_count_once(tools: Path, caches: Caches) -> None:
    """uv's cache is made of them."""
    (tools / "file").write_bytes(os.urandom(1_000_000))
    for number in range(50):
        os.link(tools / "file", tools / f"name{number}")
    assert caches.inspect(caches.ids()[0]).bytes < 2_000_000


def test_counting_has_an_end(tools: Path, caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent can make names faster than anybody can count them."""
    monkeypatch.setattr(size, "NAMES_MAX", 20)
    for number in range(19):
        (tools / f"file{number}").touch()
    assert not caches.inspect(caches.ids()[0]).counted
    (tools / "file0").unlink()
    assert caches.inspect(caches.ids()[0]).counted


@pytest.mark.parametrize("what", ["link", "file", "fifo", "empty"])
def test_what_only_has_the_name_of_a_cache(home: Path, caches: Caches, what: str) -> None:
    """It is told of, belongs to no workdir, and can be removed; what it leads to stays."""
    precious = outside(home)
    path = Path(caches.path) / "0123456789ab"
    match what:
        case "link":
            path.symlink_to(precious)
        case "file":
            path.touch()
        case "fifo":
            os.mkfifo(path)
        case "empty":
            path.mkdir()
        case _:
            raise AssertionError(what)
    found = caches.inspect("0123456789ab")
    assert (found.workdir, found.workdir_exists) == ("", False)
    assert caches.take_away("0123456789ab", "token")
    assert caches.empty_trash() == []
    assert not os.path.lexists(path)
    assert (precious / "precious").read_text() == "still here"


def test_other_things_are_left_alone(tools: Path, caches: Caches) -> None:
    """What is not named like a cache is none."""
    (tools.parents[1] / "notes").mkdir()
    assert caches.ids() == [tools.parent.name]


def test_nowhere(environment: Environment, home: Path) -> None:
    """Where there has never been a cache there is nothing, and an unsafe folder is refused."""
    with opened(environment, lambda names: None) as found:
        assert found is None
    (home / ".cache").symlink_to(home)
    with pytest.raises(Refusal, match="is a link"), opened(environment, lambda names: None):
        pass
