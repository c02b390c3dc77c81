"""adapters/caches/caches.py: the inspection of caches, and the removal of any files that programs in a sandbox left."""

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
    """Yield the folder of the workdir's cache that a sandbox is granted."""
    cache = open_cache(str(workdir), environment)
    cache.end()
    yield Path(cache.path)
    subprocess.run(["rm", "-rf", cache.root], check=True)  # pytest itself cannot remove what is too deep


@pytest.fixture
def caches(tools: Path, environment: Environment) -> Iterator[Caches]:
    """Yield all caches; the workdir's is the only one."""
    with opened(environment, lambda names: None) as all_caches:
        assert all_caches is not None
        yield all_caches


def outside(home: Path) -> Path:
    """Make a folder that no removal may change, with a file in it."""
    folder = home / "outside"
    folder.mkdir(mode=0o711)
    (folder / "precious").write_text("still here")
    (folder / "precious").chmod(0o444)
    return folder


def links(tools: Path, home: Path) -> None:
    """Plant links to files and folders elsewhere, upward, to nothing, and a link to itself."""
    targets: tuple[Path | str, ...] = (outside(home), home / "outside" / "precious", "..", "/", "nowhere")
    for number, target in enumerate(targets):
        (tools / f"link{number}").symlink_to(target)
    (tools / "loop").symlink_to("loop")


def hard_link(tools: Path, home: Path) -> None:
    """Plant another name for a file elsewhere."""
    os.link(outside(home) / "precious", tools / "hard")


def special(tools: Path, home: Path) -> None:
    """Plant a FIFO and a socket, which wait when they are opened, or fail."""
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
    """Plant nested folders that cannot be written to, as Go leaves them, or not even be read."""
    outside(home)
    folder = tools / "go-mod"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "c").mkdir()
    for path, mode in ((folder / "a" / "b", 0o000), (folder / "a", 0o111), (folder / "c", 0o600), (folder, 0o555)):
        (path / "file").touch()
        path.chmod(mode)


def deep(tools: Path, home: Path) -> None:
    """Plant deeply nested folders, each with a file."""
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
    """Plant more files and folders side by side than the removal handles at once."""
    outside(home)
    for number in range(emptying.BATCH + 10):
        (tools / f"file{number}").touch()
        (tools / f"folder{number}").mkdir()


def odd_names(tools: Path, home: Path) -> None:
    """Plant names that are no text, or mean something to a terminal, or are used by the removal itself."""
    outside(home)
    for name in (b"\xff\xfe", b"\x1b[2J", b"new\nline", b"-rf", b"0", b"1", b"2", b"." * 3, b"x" * 255):
        os.mkdir(os.fsencode(tools) + b"/" + name)
        os.mkdir(os.fsencode(tools) + b"/" + name + b"/1")


HOSTILE = (links, hard_link, special, locked, deep, wide, odd_names)


@pytest.mark.parametrize("plant", HOSTILE)
def test_hostile_trees_are_removed(
    tools: Path, home: Path, caches: Caches, plant: Callable[[Path, Path], None]
) -> None:
    """Hostile trees are removed whole, and files outside that they lead to are neither read, changed nor removed."""
    plant(tools, home)
    precious = home / "outside" / "precious"
    before = (precious.read_text(), stat.S_IMODE(precious.stat().st_mode), stat.S_IMODE(precious.parent.stat().st_mode))
    for path in (precious, precious.parent):
        os.utime(path, (0, path.stat().st_mtime))  # reading one would set this time
    (identity,) = caches.ids()
    caches.inspect(identity)
    assert caches.take_away(identity, "token")
    assert caches.ids() == []
    assert os.listdir(Path(caches.path) / ".locks") == []
    assert caches.empty_trash() == []
    assert sorted(os.listdir(caches.path)) == [".locks", ".trash"]
    assert not os.listdir(Path(caches.path) / ".trash")
    assert [path.stat().st_atime for path in (precious, precious.parent)] == [0, 0]
    after = (precious.read_text(), stat.S_IMODE(precious.stat().st_mode), stat.S_IMODE(precious.parent.stat().st_mode))
    assert before == after == ("still here", 0o444, 0o711)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="its removal no longer recurses")
def test_a_plain_removal_fails_there(tools: Path, home: Path) -> None:
    """The standard library cannot remove a deep tree: it recurses, and keeps a folder open for each level."""
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
    """Yield a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_without_privileges_too(public: Path) -> None:
    """A user without root's privileges can remove read-only folders, at which a plain removal fails."""
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
    """A file system mounted in a cache stays and is named; once it is unmounted, the next removal removes the rest."""
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
    """A removal that was interrupted leaves the cache in the trash, and the next removal finishes it."""
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
    """A cache in use is not removed; it can be removed once the process that used it was killed."""
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
    """A cache that was used after its inspection stays, for an inspection of many caches takes minutes."""
    (identity,) = caches.ids()
    last_used = caches.inspect(identity).last_used
    open_cache(str(workdir), environment).end()
    assert not caches.take_away(identity, "token", last_used)
    assert tools.exists()
    assert caches.take_away(identity, "token", caches.inspect(identity).last_used)


def test_looking_changes_nothing(workdir: Path, tools: Path, caches: Caches) -> None:
    """An inspection changes neither the time of last use nor modes, and makes no lock."""
    (tools / "locked").mkdir(mode=0o000)
    (identity,) = caches.ids()
    lock = Path(caches.path) / ".locks" / f"{identity}.lock"
    os.utime(lock, (1, 1))
    assert caches.inspect(identity).last_used == 10**9
    assert lock.stat().st_mtime == 1
    assert stat.S_IMODE((tools / "locked").stat().st_mode) == 0
    lock.unlink()
    inspected = caches.inspect(identity)
    assert inspected.last_used == tools.parent.stat().st_mtime_ns
    assert not inspected.in_use
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
    """A cache that a launch has opened is not removed while it is used, and is removed between launches."""
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
    """Locks without a cache are removed; the lock of a cache stays, and so does a lock that a process holds."""
    locks = Path(caches.path) / ".locks"
    for name in ("0123456789ab.lock", "ba9876543210.lock", "something else"):
        (locks / name).touch()
    with (locks / "ba9876543210.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        caches.drop_loose_locks()
    assert set(os.listdir(locks)) == {f"{identity_of(str(workdir))}.lock", "ba9876543210.lock", "something else"}


def test_what_is_told(workdir: Path, tools: Path, caches: Caches) -> None:
    """An inspection reports the workdir of a cache, whether that still exists, and the size."""
    (tools / "file").write_bytes(os.urandom(100_000))
    (identity,) = caches.ids()
    inspected = caches.inspect(identity)
    assert (inspected.workdir, inspected.workdir_exists, inspected.counted, inspected.in_use) == (
        str(workdir),
        True,
        True,
        False,
    )
    assert inspected.path == str(tools.parent)
    assert 100_000 <= inspected.bytes < 200_000
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
    """The size of a hostile tree is counted without following links, and marked if the count is incomplete."""
    plant(tools, home)
    with (home / "outside" / "precious").open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 50_000_000)
    inspected = caches.inspect(caches.ids()[0])
    assert inspected.counted == counted
    assert inspected.bytes < 20_000_000 or plant is hard_link


def test_many_names_of_one_file_count_once(tools: Path, caches: Caches) -> None:
    """A file of many names, as in uv's cache, counts once."""
    (tools / "file").write_bytes(os.urandom(1_000_000))
    for number in range(50):
        os.link(tools / "file", tools / f"name{number}")
    assert caches.inspect(caches.ids()[0]).bytes < 2_000_000


def test_counting_has_an_end(tools: Path, caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting stops at a bound, for an agent can make names faster than omac can count them."""
    monkeypatch.setattr(size, "NAMES_MAX", 20)
    for number in range(19):
        (tools / f"file{number}").touch()
    assert not caches.inspect(caches.ids()[0]).counted
    (tools / "file0").unlink()
    assert caches.inspect(caches.ids()[0]).counted


@pytest.mark.parametrize("what", ["link", "file", "fifo", "empty"])
def test_what_only_has_the_name_of_a_cache(home: Path, caches: Caches, what: str) -> None:
    """An entry that only has a cache's name belongs to no workdir, and is removed without the folder it leads to."""
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
    inspected = caches.inspect("0123456789ab")
    assert (inspected.workdir, inspected.workdir_exists) == ("", False)
    assert caches.take_away("0123456789ab", "token")
    assert caches.empty_trash() == []
    assert not os.path.lexists(path)
    assert (precious / "precious").read_text() == "still here"


def test_other_things_are_left_alone(tools: Path, caches: Caches) -> None:
    """A folder that is not named like a cache is not listed."""
    (tools.parents[1] / "notes").mkdir()
    assert caches.ids() == [tools.parent.name]


def test_nowhere(environment: Environment, home: Path) -> None:
    """A user who has never had a cache has no caches, and an unsafe folder is refused."""
    with opened(environment, lambda names: None) as all_caches:
        assert all_caches is None
    (home / ".cache").symlink_to(home)
    with pytest.raises(Refusal, match="is a link"), opened(environment, lambda names: None):
        pass
