import errno
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from polling import file_times_pass
from programs import program_at

from omac.adapters.skills import frozen as frozen_module
from omac.adapters.skills import staging, tree
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.adapters.skills.stat_fingerprint import file_system_now_ns
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable
from omac.services.ports import CopyDamaged, FrozenSkills

QUIET = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}  # root could write into a copy


def names_in(store: Path) -> list[str]:
    """Return the names in the store beside the copies and their manifests."""
    return [path.name for path in store.iterdir() if len(path.stem) != 64 and path.name != ".lock"]


async def refused(frozen: DiskFrozenSkills, source: Path) -> Refusal:
    """Return the refusal to copy this skill, in printable text, and check that it leaves nothing behind."""
    with pytest.raises(Refusal) as caught:
        await frozen.freeze(str(source))
    assert caught.value.reason == "skill-invalid"
    assert caught.value.message.isprintable()
    assert all(line.isprintable() for line in caught.value.fix)
    store = Path(frozen._folder)
    assert not store.exists() or list(store.iterdir()) in ([], [store / ".lock"])
    return caught.value


# a copy


async def test_a_copy_is_the_skill(source: Path, store: Path, frozen: DiskFrozenSkills) -> None:
    """A frozen copy has the skill's files, links and folders, is writable by no user, and is found by its digest."""
    port: FrozenSkills = frozen
    folders = DiskSkillFolders()
    made = await port.freeze(str(source))
    assert made.bundle_hash == await folders.bundle_hash(str(source))
    assert made.digest == await folders.digest(str(source))
    path = Path(await port.checked(made.digest, str(source)))
    assert path == store / made.digest.removeprefix("sha256:")
    assert subprocess.run(["diff", "-r", "--no-dereference", source, path], check=False).returncode == 0
    assert (path / "empty").is_dir()
    assert os.readlink(path / "link") == "lib/code.py"
    modes = {entry.name: stat.S_IMODE(entry.lstat().st_mode) for entry in path.rglob("*") if not entry.is_symlink()}
    assert modes == {
        "SKILL.md": 0o400,
        "omac.yaml": 0o400,
        "run": 0o500,
        "lib": 0o500,
        "empty": 0o500,
        "code.py": 0o400,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o500
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(f"{path}.stat").stat().st_mode) == 0o600
    assert names_in(store) == []


async def test_nothing_is_copied_twice(source: Path, frozen: DiskFrozenSkills) -> None:
    """Equal skills share one copy, wherever they are; another state of a skill has another copy."""
    first = await frozen.freeze(str(source))
    inode = os.stat(await frozen.checked(first.digest, str(source))).st_ino
    duplicate = source.with_name("other")
    shutil.copytree(source, duplicate, symlinks=True)
    assert await frozen.freeze(str(source)) == await frozen.freeze(str(duplicate)) == first
    assert os.stat(await frozen.checked(first.digest, str(duplicate))).st_ino == inode
    (source / ".venv").mkdir()
    second = await frozen.freeze(str(source))
    assert (second.bundle_hash == first.bundle_hash, second.digest == first.digest) == (True, False)


async def test_odd_names_and_kinds(tmp_path: Path, source: Path, frozen: DiskFrozenSkills) -> None:
    """Names are bytes, and hard links become files of their own; set-uid bits, histories and caches are left out."""
    for name in (b"new\nline", b"\xff\xfe", b"cl\x1b[2Jear", b"-rf", b" ", b"omac.yaml\n", "é".encode(), b"e\xcc\x81"):
        (source / os.fsdecode(name)).write_bytes(name)
        (source / "lib" / os.fsdecode(name + b"d")).mkdir()
        (source / "empty" / os.fsdecode(name)).symlink_to(os.fsdecode(b"../" + name))
    os.link(source / "run", source / "hard")
    (source / "run").chmod(0o6755)
    for folder in (".git", "__pycache__", "lib/__pycache__"):
        (source / folder).mkdir()
        (source / folder / "planted.pyc").touch()
    (tmp_path / "deep").write_text("x")
    made = await frozen.freeze(str(source))
    path = Path(await frozen.checked(made.digest, str(source)))
    difference = ["diff", "-r", "--no-dereference", "-x", "__pycache__", "-x", ".git", str(source), str(path)]
    assert subprocess.run(difference, check=False).returncode == 0
    assert sorted(os.listdir(os.fsencode(path))) == sorted(
        set(os.listdir(os.fsencode(source))) - {b".git", b"__pycache__"}
    )
    assert not (path / "lib" / "__pycache__").exists()
    assert stat.S_IMODE((path / "run").stat().st_mode) == 0o500
    assert (path / "run").stat().st_nlink == 1


async def test_a_large_file(source: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file larger than a chunk is copied whole; a file beyond the bound is refused by name."""
    content = os.urandom(3 * tree.CHUNK_BYTES + 5)
    (source / "large").write_bytes(content)
    (source / "even").write_bytes(content[: tree.CHUNK_BYTES])
    made = await frozen.freeze(str(source))
    path = Path(await frozen.checked(made.digest, str(source)))
    assert hashlib.sha256((path / "large").read_bytes()).digest() == hashlib.sha256(content).digest()
    monkeypatch.setattr(tree, "BUNDLE_BYTES_MAX", 4 * tree.CHUNK_BYTES)
    with pytest.raises(Refusal, match=f"{source}/(large|even|lib/code.py|run|omac.yaml|SKILL.md) .*GiB in all"):
        await frozen.freeze(str(source))
    with open(source / "sparse", "wb") as file:
        file.truncate(2**40)
    monkeypatch.undo()
    with trio.fail_after(5), pytest.raises(Refusal, match=f"{source}/sparse .*GiB in all"):
        await frozen.freeze(str(source))


# what cannot be copied


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(path.parent, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "is a FIFO"),
        (bind, "is a socket"),
        (device, "is a character device"),
        (lambda path: path.symlink_to("/etc/passwd"), "is a link to /etc/passwd, which is outside"),
        (lambda path: path.symlink_to("../../.."), "is a link to ../../.., which is outside"),
        (lambda path: path.symlink_to(path.parents[3]), "which is outside"),
        (lambda path: path.symlink_to("/dev/zero"), "which is outside"),
    ],
    ids=["fifo", "socket", "device", "file", "up", "project", "endless"],
)
@pytest.mark.parametrize("name", ["x", "dist/x", ".venv/bin/python", "cl\x1bear\n"])
async def test_what_cannot_be_in_a_copy(
    source: Path, frozen: DiskFrozenSkills, make: Callable[[Path], object], said: str, name: str
) -> None:
    """A file that cannot be copied is refused by name, with a fix, and without waiting for it."""
    path = source / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    with trio.fail_after(10):
        refusal = await refused(frozen, source)
    assert said in refusal.message
    assert refusal.message.startswith(printable(str(path)))
    assert refusal.fix


@pytest.mark.parametrize(
    ("bound", "most", "said"),
    [
        ("BUNDLE_ENTRIES_MAX", 4, "more than 4 files and folders"),
        ("BUNDLE_BYTES_MAX", 10, "GiB in all"),
        ("BUNDLE_DEPTH_MAX", 0, "more than 0 folders deep"),
    ],
)
async def test_bounds(
    source: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, said: str
) -> None:
    """A skill beyond a bound is refused, and the refusal names the file that exceeded it."""
    monkeypatch.setattr(tree, bound, most)
    refusal = await refused(frozen, source)
    assert said in refusal.message
    assert refusal.message.startswith(f"{source}/")


@pytest.mark.full
async def test_a_hundred_thousand_files(source: Path, frozen: DiskFrozenSkills) -> None:
    """The bound on entries ends a copy early; the part that was copied is removed."""
    many = source / "many"
    many.mkdir()
    first = many / "0"
    first.touch()
    started = time.perf_counter()
    for number in range(1, tree.BUNDLE_ENTRIES_MAX):
        os.link(first, many / f"{number}") if number % 60_000 else shutil.copy(first, first := many / f"{number}")
        if time.perf_counter() - started > 5:
            pytest.skip("this disk is slow")
    refusal = await refused(frozen, source)
    assert "more than 100000 files and folders" in refusal.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_an_unreadable_file(source: Path, frozen: DiskFrozenSkills) -> None:
    """A file that cannot be read is refused by name."""
    (source / "lib" / "code.py").chmod(0)
    refusal = await refused(frozen, source)
    assert refusal.message.startswith(f"{source}/lib/code.py cannot be copied (Permission denied)")


@pytest.mark.parametrize("kind", ["gone", "file", "link", "parent"])
async def test_no_skill(tmp_path: Path, source: Path, frozen: DiskFrozenSkills, kind: str) -> None:
    """A source that is missing, no folder, or reached through a link is not copied."""
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "parent").symlink_to(source.parent)
    paths = {"gone": source / "gone", "file": source / "run", "link": tmp_path / "link"}
    await refused(frozen, paths.get(kind, tmp_path / "parent" / "echo"))


# links


async def test_links_work_in_the_copy(source: Path, frozen: DiskFrozenSkills) -> None:
    """Links in the copy lead to copied files, whatever happens to the skill."""
    (source / "absolute").symlink_to(source / "lib" / "code.py")
    (source / "lib" / "absolute").symlink_to(source / "run")
    (source / "lib" / "self").symlink_to(source)
    (source / "dangling").symlink_to(source / "gone")
    (source / "chain").symlink_to("link")
    made = await frozen.freeze(str(source))
    path = Path(await frozen.checked(made.digest, str(source)))
    shutil.rmtree(source)
    targets = {link: os.readlink(path / link) for link in ("absolute", "lib/absolute", "lib/self", "dangling", "chain")}
    assert targets == {
        "absolute": "lib/code.py",
        "lib/absolute": "../run",
        "lib/self": "..",
        "dangling": "gone",
        "chain": "link",
    }
    assert (path / "chain").read_text() == (path / "absolute").read_text() == "print('good')\n"


# virtual environments


def make_venv(source: Path, interpreter: str) -> None:
    """Create a virtual environment with a script, an editable install and the like, all with absolute paths."""
    venv = source / ".venv"
    subprocess.run([interpreter, "-m", "venv", "--without-pip", venv], check=True, capture_output=True)
    (source / "src").mkdir()
    (source / "src" / "mine.py").write_text("WHAT = 'good'\n")
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "mine.pth").write_text(f"{source}/src\n")
    (site / "__editable___x_finder.py").write_text(f"MAPPING = {{'x': '{source}/src'}}\n")
    program = "import mine, os, sys\nprint(sys.prefix, mine.WHAT, os.path.dirname(mine.__file__))\n"
    (venv / "bin" / "tool").write_text(f"#!{venv}/bin/python3\n{program}")
    polyglot = f"#!/bin/sh\n'''exec' \"{venv}/bin/python3\" \"$0\" \"$@\"\n' '''\n{program}"
    (venv / "bin" / "long").write_text(polyglot)
    (venv / "bin" / "large").write_text(f"#!{venv}/bin/python3\n{program}#{'x' * 2 * tree.CHUNK_BYTES}\n")
    for name in ("tool", "long", "large"):
        (venv / "bin" / name).chmod(0o755)


def poison(source: Path) -> None:
    """Replace the approved skill by an agent's."""
    shutil.rmtree(source)
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / "src").mkdir()
    (source / "src" / "mine.py").write_text("WHAT = 'evil'\n")
    for name in ("python", "python3"):
        program_at(source / ".venv" / "bin" / name, "#!/bin/sh\necho evil\n")


def output(*argv: object) -> str:
    done = subprocess.run([str(part) for part in argv], env=QUIET, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["project", "pro ject ü"])
async def test_a_virtual_environment_runs_from_its_copy(
    tmp_path: Path, frozen: DiskFrozenSkills, interpreter: str, name: str
) -> None:
    """A copied environment uses the copy's interpreter, scripts and packages, whatever became of the skill."""
    source = tmp_path / name / "skill"
    source.mkdir(parents=True)
    make_venv(source, interpreter)
    made = await frozen.freeze(str(source))
    assert made.digest == await DiskSkillFolders().digest(str(source))
    poison(source)
    path = Path(await frozen.checked(made.digest, str(source)))
    venv = path / ".venv"
    assert output(venv / "bin" / "python", "-c", "import sys; print(sys.prefix)") == str(venv)
    expected = f"{venv} good {path}/src"
    scripts = ["long"] if " " in name else ["tool", "long", "large"]  # blanks in a #! line never worked
    assert [output(venv / "bin" / script) for script in scripts] == [expected] * len(scripts)
    shell = f'. "{venv}/bin/activate" && python -c "import mine, sys; print(sys.prefix, mine.WHAT)"'
    assert output("/bin/sh", "-c", shell) == f"{venv} good"
    assert os.readlink(venv / "bin" / "python3") == os.path.realpath(interpreter)
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert os.fsencode(source) + b"/" not in file.read_bytes(), file
    assert await frozen.checked(made.digest, str(source)) == str(path)


async def test_an_interpreter_by_a_relative_path(source: Path, frozen: DiskFrozenSkills, interpreter: str) -> None:
    """The copy's link to an interpreter leads straight to it, however the skill's link is written."""
    (source / "bin").mkdir()
    (source / "pyvenv.cfg").touch()
    (source / "bin" / "python").symlink_to("../" * 30 + interpreter[1:])
    made = await frozen.freeze(str(source))
    path = await frozen.checked(made.digest, str(source))
    assert os.readlink(f"{path}/bin/python") == os.path.realpath(interpreter)


async def test_copies_of_one_environment_in_two_places(tmp_path: Path, frozen: DiskFrozenSkills) -> None:
    """Skills that mention their own path differ at different paths, and neither copy passes for the other."""
    made = []
    for name in ("a", "b"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "tool").write_text(f"#!{tmp_path}/{name}/bin/python\n")
        made.append(await frozen.freeze(str(tmp_path / name)))
    assert made[0].digest != made[1].digest
    with pytest.raises(CopyDamaged):
        await frozen.checked(made[0].digest, str(tmp_path / "b"))
    await frozen.checked(made[0].digest, str(tmp_path / "a"))


async def test_what_mentions_another_place_is_another_skill(tmp_path: Path, frozen: DiskFrozenSkills) -> None:
    """Equal bytes that mention one skill's path make two copies: only the copy of that skill names its own path."""
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(f"#!{tmp_path}/a/python\n")
        made.append(await frozen.freeze(str(tmp_path / name)))
    paths = [
        await frozen.checked(made[0].digest, f"{tmp_path}/a"),
        await frozen.checked(made[1].digest, f"{tmp_path}/b"),
    ]
    contents = [Path(path, "tool").read_text() for path in paths]
    assert contents == [f"#!{paths[0]}/python\n", f"#!{tmp_path}/a/python\n"]
    assert (await frozen.freeze(f"{tmp_path}/a"), await frozen.freeze(f"{tmp_path}/b")) == tuple(made)


async def test_a_skill_around_the_copies(tmp_path: Path, source: Path, frozen: DiskFrozenSkills) -> None:
    """A skill that holds the folder of frozen copies is refused, as it cannot be copied into itself."""
    with pytest.raises(Refusal, match="holds the folder of approved copies"):
        await frozen.freeze(str(tmp_path))


@pytest.mark.parametrize("name", ["run", "x.pth", "pyvenv.cfg", "__editable__x.py"])
async def test_a_skill_that_mentions_the_copies(source: Path, store: Path, frozen: DiskFrozenSkills, name: str) -> None:
    """A skill that mentions the folder of frozen copies is refused by name, as the relocation of its copy could not be
    undone."""
    (source / name).write_text(f"#!{store}/x\n")
    refusal = await refused(frozen, source)
    assert refusal.message == f"{source}/{name} mentions the folder of approved copies"


async def test_places_that_cannot_be_said(tmp_path: Path, source: Path) -> None:
    """A path that a first line cannot hold, or that scripts write in another spelling, is refused."""
    (source / "tool").write_text(f"#!{source}/bin/python\n")
    for folder in ("with blank", "x" * 200):
        refusal = await refused(DiskFrozenSkills(str(tmp_path / folder)), source)
        assert refusal.message.startswith(f"{source}/tool cannot name ")
    quoted = tmp_path / "it's" / "skill"
    (quoted / "bin").mkdir(parents=True)
    (quoted / "bin" / "activate").touch()
    refusal = await refused(DiskFrozenSkills(str(tmp_path / "state")), quoted)
    assert "move the project" in refusal.message


# while it changes


@pytest.fixture
def flipping(source: Path) -> Iterator[Path]:
    """Yield a file that changes between two contents all the time, by writing and by renaming."""
    target, draft = source / "lib" / "flip", source.parent / "draft"
    contents = [letter * 200_000 for letter in (b"a", b"b")]
    target.write_bytes(contents[0])
    stop = threading.Event()

    def flip() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            if number % 2:
                draft.write_bytes(contents[number // 2 % 2])
                draft.replace(target)
            else:
                target.write_bytes(contents[number // 2 % 2])

    thread = threading.Thread(target=flip)
    thread.start()
    yield target
    stop.set()
    thread.join()


@pytest.mark.full
async def test_a_skill_that_changes_meanwhile(flipping: Path, source: Path, frozen: DiskFrozenSkills) -> None:
    """Each of 200 copies of a changing skill has the hash and the digest that `freeze` returned for it."""
    folders, copies = DiskSkillFolders(), set()
    for _ in range(200):
        made = await frozen.freeze(str(source))
        path = await frozen.checked(made.digest, str(source))
        if made not in copies:
            assert await folders.bundle_hash(path) == made.bundle_hash
            assert await folders.digest(path) == made.digest
        copies.add(made)
    assert len(copies) > 1, "it did change"


async def test_a_folder_that_becomes_a_link(
    tmp_path: Path, source: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, or the whole skill, that is replaced by a link during the copy leads nowhere else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    real = staging.Staging.folder

    def swap(self: staging.Staging, name: str) -> None:
        real(self, name)
        if name == "lib" and not (source / "lib").is_symlink():
            (source / "lib").rename(source / "lib2")
            (source / "lib").symlink_to(outside)

    monkeypatch.setattr(staging.Staging, "folder", swap)
    refusal = await refused(frozen, source)
    assert refusal.message.startswith(f"{source}/lib cannot be copied")

    def swap_all(self: staging.Staging, name: str) -> None:
        real(self, name)
        if not source.is_symlink():
            source.rename(source.with_name("moved"))
            source.symlink_to(outside)

    (source / "lib").unlink()
    (source / "lib2").rename(source / "lib")
    monkeypatch.setattr(staging.Staging, "folder", swap_all)
    made = await frozen.freeze(str(source))
    path = Path(await frozen.checked(made.digest, str(source)))
    assert not list(path.rglob("secret"))
    assert (path / "lib" / "code.py").exists()


# trouble on our side


async def test_a_full_disk(tmp_path: Path, source: Path) -> None:
    """A full disk leaves no partial copy, and with room again a whole one is made."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root mounts")
    try:
        frozen = DiskFrozenSkills(str(small / "frozen"))
        (source / "large").write_bytes(b"x" * 2**21)
        with pytest.raises(OSError, match="No space left") as caught:
            await frozen.freeze(str(source))
        assert caught.value.errno == errno.ENOSPC
        assert list((small / "frozen").iterdir()) == []
        (source / "large").unlink()
        made = await frozen.freeze(str(source))
        await frozen.checked(made.digest, str(source))
    finally:
        subprocess.run(["umount", small], check=True)


async def test_a_folder_that_others_may_write(source: Path, store: Path, frozen: DiskFrozenSkills) -> None:
    """Approved copies are kept where no other user can change them, or not at all."""
    store.mkdir(parents=True)
    store.chmod(0o777)
    with pytest.raises(Refusal) as caught:
        await frozen.freeze(str(source))
    assert caught.value.reason == "state-unusable"


async def test_no_descriptor_is_left_open(source: Path, frozen: DiskFrozenSkills) -> None:
    """Copying and checking close every descriptor that they open, also after a failure."""
    bad = source.with_name("bad")
    shutil.copytree(source, bad, symlinks=True)
    os.mkfifo(bad / "lib" / "fifo")
    made = await frozen.freeze(str(source))
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await frozen.freeze(str(source))
        await frozen.checked(made.digest, str(source))
        await frozen.prune([])
        with pytest.raises(Refusal):
            await frozen.freeze(str(bad))
    assert sorted(os.listdir("/proc/self/fd")) == before


PROCESS = """
import sys, trio
from omac.adapters.skills.frozen import DiskFrozenSkills
async def main():
    frozen = DiskFrozenSkills(sys.argv[1])
    for _ in range(15):
        made = await frozen.freeze(sys.argv[2])
        await frozen.checked(made.digest, sys.argv[2])
        await frozen.prune([])
    print(made.digest)
trio.run(main)
"""


async def test_many_processes_at_once(source: Path, store: Path, frozen: DiskFrozenSkills) -> None:
    """Several processes share one copy, and none removes a copy that another has just found."""
    (source / "tool").write_text(f"#!{source}/bin/python\n")
    argv = [sys.executable, "-c", PROCESS, str(store), str(source)]
    path = os.pathsep.join(sys.path)
    running = [
        subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    digests = {process.communicate(timeout=60)[0].strip() for process in running}
    assert digests == {(await frozen.freeze(str(source))).digest}
    assert names_in(store) == []


# pruning


async def test_pruning(source: Path, store: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning removes old copies that are not wanted, completely; new, wanted and unknown files stay."""
    assert await frozen.prune([]) == []
    current = await frozen.freeze(str(source))
    (source / "lib" / "code.py").write_text("print('better')\n")
    stale = await frozen.freeze(str(source))
    (store / ".staging.x" / "deep").mkdir(parents=True)
    (store / ".staging.x" / "deep" / "out").symlink_to(source)
    (store / ".staging.x" / "deep").chmod(0o500)
    (store / ".staging.y").touch()
    (store / "notes").touch()
    assert await frozen.prune([current.digest]) == []
    monkeypatch.setattr(frozen_module, "PRUNED_AFTER_NS", -(10**9))
    assert await frozen.prune([current.digest, "nonsense", f"sha256:{'0' * 64}"]) == [stale.digest]
    name = current.digest.removeprefix("sha256:")
    assert sorted(path.name for path in store.iterdir()) == [".lock", name, f"{name}.stat", "notes"]
    assert (source / "run").exists()
    await frozen.checked(current.digest, str(source))
    with pytest.raises(CopyDamaged):
        await frozen.checked(stale.digest, str(source))
    assert (await frozen.freeze(str(source))) == stale
    await frozen.checked(stale.digest, str(source))


async def test_pruning_follows_no_link(
    source: Path, store: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in the place of a copy is removed, and its target stays."""
    made = await frozen.freeze(str(source))
    path = store / made.digest.removeprefix("sha256:")
    path.rename(store / "moved")
    path.symlink_to(source)
    monkeypatch.setattr(frozen_module, "PRUNED_AFTER_NS", -(10**9))
    assert await frozen.prune([]) == [made.digest]
    assert not path.is_symlink()
    assert (source / "lib" / "code.py").exists()


async def test_a_copy_that_is_asked_for_again_is_new(
    source: Path, store: Path, frozen: DiskFrozenSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freeze that finds a copy renews it, so that it does not vanish before its approval."""
    made = await frozen.freeze(str(source))
    file_times_pass()
    first_ended_ns = file_system_now_ns()
    file_times_pass()
    await frozen.freeze(str(source))
    second_ended_ns = file_system_now_ns()
    now_ns = first_ended_ns + frozen_module.PRUNED_AFTER_NS
    monkeypatch.setattr(frozen_module, "file_system_now_ns", lambda: now_ns)
    assert await frozen.prune([]) == []
    now_ns = second_ended_ns + frozen_module.PRUNED_AFTER_NS + 1
    assert await frozen.prune([]) == [made.digest]


async def test_pruning_waits_for_who_is_copying(source: Path, store: Path, frozen: DiskFrozenSkills) -> None:
    """Pruning waits for the lock of the store, by which processes change it one after another."""
    await frozen.freeze(str(source))
    with open(store / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with trio.move_on_after(0.2) as scope:
            await frozen.prune([])
        assert scope.cancelled_caught
