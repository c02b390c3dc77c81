"""adapters/caches/tree.py: a cache is made once, verified at each launch, and refused where other users could write."""

import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from omac.adapters.caches import tree
from omac.adapters.caches.tree import identity_of, open_cache, open_root, path_of
from omac.domain.kernel.refusal import Refusal

Environment = Mapping[str, str]
Holder = Callable[[Path], subprocess.Popen[bytes]]

OTHER_USER = 65534
ONE_OF_MANY = """\
import sys
from omac.adapters.caches.tree import open_cache
sys.stdin.read(1)
print(open_cache(sys.argv[1], {"HOME": sys.argv[2]}).path)
"""


def root_of(home: Path) -> Path:
    """Return the folder of all caches."""
    return home / ".cache" / "omac"


def made(workdir: Path, environment: Environment) -> Path:
    """Make a cache that is not in use, and return the folder of it that is granted."""
    cache = open_cache(str(workdir), environment)
    cache.end()
    return Path(cache.path)


def refused(workdir: Path, environment: Environment) -> Refusal:
    """Return the refusal of a cache, which offers an ephemeral cache."""
    with pytest.raises(Refusal) as caught:
        open_cache(str(workdir), environment)
    assert caught.value.reason == "cache-unsafe"
    assert any("--ephemeral-cache" in command for command in caught.value.fix)
    return caught.value


def unread(path: Path) -> tuple[int, ...]:
    """Return the status of a path without the time of its last access, which reading sets."""
    status = path.lstat()
    return (*status[:7], status.st_mtime_ns, status.st_ctime_ns)


def test_it_is_made_private(home: Path, workdir: Path, environment: Environment) -> None:
    """A new cache is private, named by the workdir's SHA-256, with a marker; only its inner folder is granted."""
    before = os.umask(0)
    try:
        tools = made(workdir, environment)
    finally:
        os.umask(before)
    name = hashlib.sha256(os.fsencode(workdir)).hexdigest()[:12]
    assert tools == root_of(home) / name / "tools"
    assert (tools.parent / "workdir").read_text() == f"{workdir}\n"
    modes = {str(path.relative_to(home)): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    assert modes == {
        ".cache": 0o700,
        ".cache/omac": 0o700,
        ".cache/omac/.locks": 0o700,
        f".cache/omac/.locks/{name}.lock": 0o600,
        f".cache/omac/{name}": 0o700,
        f".cache/omac/{name}/workdir": 0o600,
        f".cache/omac/{name}/tools": 0o700,
    }


def test_what_was_left_is_there_again(workdir: Path, environment: Environment) -> None:
    """A file that a launch leaves in the cache is there for the next launch in the same workdir."""
    (made(workdir, environment) / "left").write_text("warm")
    assert (made(workdir, environment) / "left").read_text() == "warm"


def test_another_workdir_has_its_own(workdir: Path, environment: Environment) -> None:
    """Workdirs have caches of their own, in the folder that a sandbox denies, and none in another's."""
    own, foreign = made(workdir, environment), made(workdir.with_name("other"), environment)
    assert str(own) == path_of(str(workdir), environment)
    assert own.parents[1] == foreign.parents[1]
    assert own.parent != foreign.parent


@pytest.mark.parametrize("value", ["", "relative", "{}/elsewhere", "{}/elsewhere/", "{}/new/er"])
def test_xdg_cache_home(home: Path, workdir: Path, value: str) -> None:
    """XDG_CACHE_HOME counts if it is absolute, as its specification requires."""
    chosen = value.format(home)
    tools = made(workdir, {"HOME": str(home), "XDG_CACHE_HOME": chosen})
    assert tools.parents[1] == (Path(chosen) if chosen.startswith("/") else home / ".cache") / "omac"


@pytest.mark.parametrize("value", ["/", "//", "{}/..", "{}/."])
def test_no_folder_for_caches(home: Path, workdir: Path, value: str) -> None:
    """An XDG_CACHE_HOME that names no folder of its own is refused."""
    assert "XDG_CACHE_HOME" in refused(workdir, {"HOME": str(home), "XDG_CACHE_HOME": value.format(home)}).message
    assert not list(home.iterdir())


def test_a_folder_that_cannot_be_made(workdir: Path) -> None:
    """The proposed command lists a folder that is there."""
    assert refused(workdir, {"XDG_CACHE_HOME": "/proc/none/caches"}).fix[0] == "ls -ld /proc"


def test_a_home_behind_a_link(tmp_path: Path, home: Path, workdir: Path) -> None:
    """A home may lie behind a link, and the path that is granted is canonical."""
    (tmp_path / "homes").symlink_to(tmp_path)
    assert made(workdir, {"HOME": str(tmp_path / "homes" / "home")}).is_relative_to(home)


@pytest.mark.parametrize(
    "where", [".cache", ".cache/omac", ".cache/omac/.locks", ".cache/omac/{id}", ".cache/omac/{id}/tools"]
)
@pytest.mark.parametrize("how", ["link", "dangling", "file", "fifo", "stranger", "writable"])
def test_unsafe_components(home: Path, workdir: Path, environment: Environment, where: str, how: str) -> None:
    """A component that is no folder of the user's own is refused and left as it is; once restored, it is used."""
    made(workdir, environment)
    path = home / where.format(id=identity_of(str(workdir)))
    aside = home / "aside"
    if how in ("link", "dangling", "file", "fifo"):
        path.rename(aside)
    match how:
        case "link":
            path.symlink_to(aside)
        case "dangling":
            path.symlink_to(home / "nowhere")
        case "file":
            path.touch()
        case "fifo":
            os.mkfifo(path)
        case "stranger":
            os.chown(path, OTHER_USER, OTHER_USER)
        case "writable":
            path.chmod(0o770)
        case _:
            raise AssertionError(how)
    before = unread(path)
    if path.name == "tools" and how == "writable":  # a sandbox may do this to what it was granted; it is undone
        assert stat.S_IMODE(made(workdir, environment).stat().st_mode) == 0o700
        return
    assert str(path) in refused(workdir, environment).message
    assert unread(path) == before
    assert not (home / "nowhere").exists()
    if how == "stranger":
        os.chown(path, os.geteuid(), os.getegid())
    elif how == "writable":
        path.chmod(0o700)
    else:
        path.unlink()
        aside.rename(path)
    made(workdir, environment)


@pytest.mark.parametrize(("mode", "safe"), [(0o755, True), (0o775, False), (0o777, False), (0o1777, True)])
@pytest.mark.parametrize("where", [".", ".cache"])
def test_folders_that_others_use_too(
    home: Path, workdir: Path, environment: Environment, where: str, mode: int, safe: bool
) -> None:
    """Shared folders may be readable by others; they may be writable only with the sticky bit, which protects files."""
    (home / ".cache").mkdir()
    (home / where).chmod(mode)
    if safe:
        made(workdir, environment)
    else:
        assert f"chmod go-w {home / where}" in refused(workdir, environment).fix


@pytest.mark.parametrize("where", ["", "/{id}", "/.locks"])
def test_what_is_omacs_own_is_for_nobody_else(home: Path, workdir: Path, environment: Environment, where: str) -> None:
    """A folder of omac's own that others can read is refused, and the fix makes it private."""
    made(workdir, environment)
    path = f"{root_of(home)}{where.format(id=identity_of(str(workdir)))}"
    os.chmod(path, 0o755)
    fix = refused(workdir, environment).fix[0]
    assert fix == f"chmod 700 {path}"
    subprocess.run(fix, shell=True, check=True)
    made(workdir, environment)


def test_a_linked_cache_folder_can_be_named(
    tmp_path: Path, home: Path, workdir: Path, environment: Environment
) -> None:
    """A cache folder that links to another disk is refused, and the fix sets XDG_CACHE_HOME to that disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (home / ".cache").symlink_to(disk)
    fix = refused(workdir, environment).fix[0]
    assert fix == f"export XDG_CACHE_HOME={disk}"
    assert made(workdir, {**environment, "XDG_CACHE_HOME": fix.partition("=")[2]}).is_relative_to(disk / "omac")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"/somewhere/else\n", "its marker names /somewhere/else, not"),
        (b"", "its marker names none, not"),
        (b"{}x\n", "its marker names"),
        (b"{}/../shop\n", "its marker names"),
        (b"{}\n\n", "its marker names"),
        (None, "has no marker"),
    ],
)
def test_the_marker_of_another(workdir: Path, environment: Environment, content: bytes | None, told: str) -> None:
    """A cache without this workdir's marker is refused and kept: two workdirs may share twelve digits."""
    tools = made(workdir, environment)
    (tools / "kept").touch()
    marker = tools.parent / "workdir"
    marker.unlink()
    if content is not None:
        marker.write_bytes(content.replace(b"{}", os.fsencode(workdir)))
    refusal = refused(workdir, environment)
    assert told in refusal.message
    assert f"omac cache clear --workdir {workdir}" in refusal.fix
    assert (tools / "kept").exists()


@pytest.mark.parametrize("how", ["link", "folder", "fifo", "stranger"])
def test_what_is_no_marker(workdir: Path, environment: Environment, how: str) -> None:
    """A marker is a file of the user's own; a link, folder, FIFO or file of another user is refused without waiting."""
    marker = made(workdir, environment).parent / "workdir"
    content = marker.read_bytes()
    marker.unlink()
    match how:
        case "link":
            (workdir / "marker").write_bytes(content)
            marker.symlink_to(workdir / "marker")
        case "folder":
            marker.mkdir()
        case "fifo":
            os.mkfifo(marker)
        case "stranger":
            marker.write_bytes(content)
            os.chown(marker, OTHER_USER, OTHER_USER)
        case _:
            raise AssertionError(how)
    refused(workdir, environment)


@pytest.mark.parametrize("left", [[], ["tools/"], ["tools/", "workdir.new"], ["workdir.new"]])
def test_what_was_cut_off_is_finished(home: Path, workdir: Path, environment: Environment, left: list[str]) -> None:
    """A cache that a killed omac left without a marker is finished: the marker comes last, so no launch has used it."""
    folder = root_of(home) / identity_of(str(workdir))
    folder.mkdir(parents=True, mode=0o700)
    root_of(home).chmod(0o700)
    for name in left:
        if name.endswith("/"):
            (folder / name).mkdir()
        else:
            (folder / name).write_text("half a pa")
    tools = made(workdir, environment)
    assert sorted(os.listdir(tools.parent)) == ["tools", "workdir"]


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o4777])
def test_a_mode_that_a_sandbox_left(workdir: Path, environment: Environment, mode: int) -> None:
    """A mode that a sandbox gave its cache ends with its session: the next launch makes the cache usable again."""
    tools = made(workdir, environment)
    tools.chmod(mode)
    assert stat.S_IMODE(made(workdir, environment).stat().st_mode) == 0o700


def test_a_path_that_is_no_text(workdir: Path, environment: Environment) -> None:
    """Paths are bytes: two workdirs that differ only in bytes that are no text have two caches."""
    first, second = (Path(os.fsdecode(os.fsencode(workdir) + tail)) for tail in (b"\xff\n", b"\xfe"))
    assert made(first, environment) != made(second, environment)
    assert made(first, environment) == made(first, environment)


def test_looking_makes_nothing(home: Path, environment: Environment) -> None:
    """Opening the caches without making them makes no folder."""
    assert open_root(environment, make=False) is None
    assert not list(home.iterdir())


def test_it_is_held_while_it_is_used(home: Path, workdir: Path, environment: Environment, user: Holder) -> None:
    """A cache is held by any number of processes, and is free once all have ended, however they end."""
    lock = root_of(home) / ".locks" / f"{identity_of(str(workdir))}.lock"
    first, second = user(workdir), user(workdir)
    cache = open_cache(str(workdir), environment)

    def is_free() -> bool:
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    assert not is_free()
    first.send_signal(signal.SIGKILL)
    second.terminate()
    first.wait()
    second.wait()
    assert not is_free()
    cache.end()
    assert is_free()
    cache.end()  # once more does nothing


def test_what_is_launched_does_not_inherit_the_lock(home: Path, workdir: Path, environment: Environment) -> None:
    """A program that outlives omac, such as a daemon of a build tool, does not keep the cache from being removed."""
    cache = open_cache(str(workdir), environment)
    lock = str(root_of(home) / ".locks" / f"{identity_of(str(workdir))}.lock")

    def inherited() -> bool:
        look = ("sh", "-c", "ls -l /proc/$$/fd")
        return lock in subprocess.run(look, capture_output=True, text=True, check=True, close_fds=False).stdout

    assert not inherited()
    (descriptor,) = [number for number in map(int, os.listdir("/proc/self/fd")) if _leads_to(number, lock)]
    os.set_inheritable(descriptor, True)
    assert inherited()
    cache.end()


def _leads_to(descriptor: int, path: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == path
    except FileNotFoundError:
        return False


def test_using_it_sets_the_time(home: Path, workdir: Path, environment: Environment) -> None:
    """The time of the lock is set when a use of the cache begins, and when it ends."""
    lock = root_of(home) / ".locks" / f"{identity_of(str(workdir))}.lock"
    made(workdir, environment)
    os.utime(lock, (1, 1))
    cache = open_cache(str(workdir), environment)
    assert lock.stat().st_mtime > time.time() - 60
    os.utime(lock, (1, 1))
    cache.end()
    assert lock.stat().st_mtime > time.time() - 60


def test_waiting_has_an_end(
    home: Path, workdir: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch stops waiting for a lock that another process keeps, and names it; a later launch uses the cache."""
    monkeypatch.setattr(tree, "WAIT_S", 0.05)
    made(workdir, environment)
    lock = root_of(home) / ".locks" / f"{identity_of(str(workdir))}.lock"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match=str(lock)) as caught:
            open_cache(str(workdir), environment)
        assert caught.value.reason == "contention"
    made(workdir, environment)


def test_another_makes_it_first_and_goes_on_using_it(
    workdir: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch uses the cache that another one makes and uses meanwhile, and does not wait for that one's end."""
    earlier: list[tree.ToolCache] = []
    hold = tree.hold

    def held(root: tree.CacheRoot, identity: str, *, shared: bool = False) -> int:
        if not shared and not earlier:
            monkeypatch.setattr(tree, "hold", hold)
            earlier.append(open_cache(str(workdir), environment))
        return hold(root, identity, shared=shared)

    monkeypatch.setattr(tree, "hold", held)
    monkeypatch.setattr(tree, "WAIT_S", 0.5)
    cache = open_cache(str(workdir), environment)
    assert cache.path == earlier[0].path
    cache.end()
    earlier[0].end()


def test_many_first_launches_at_once(home: Path, workdir: Path) -> None:
    """Launches that start at once all get the same cache, whichever of them makes it."""
    command = [sys.executable, "-c", ONE_OF_MANY, str(workdir), str(home)]
    several = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for process in several:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=30) for process in several]
    assert {out for out, _ in answers} == {f"{root_of(home) / identity_of(str(workdir)) / 'tools'}\n"}


def test_only_what_starts_fast_is_loaded() -> None:
    """The module loads no slow modules, for a launch takes a few milliseconds in all."""
    source = str(Path(tree.__file__).parents[3])
    look = f"import sys; sys.path.insert(0, {source!r}); import omac.adapters.caches.tree; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", look], capture_output=True, text=True, check=True)
    assert "omac.domain.kernel.digest" in done.stdout.split()
    slow = {
        "typing",
        "re",
        "json",
        "enum",
        "hashlib",
        "subprocess",
        "pathlib",
        "shutil",
        "shlex",
        "contextlib",
        "msgspec",
    }
    assert not slow & set(done.stdout.split())
