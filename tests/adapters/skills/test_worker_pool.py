import os
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from polling import until
from trio.lowlevel import current_statistics

from omac.adapters.skills import tree
from omac.adapters.skills.digest_cache import LiveCode, LiveTrees
from omac.adapters.skills.folders import LOOKS, DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.adapters.skills.reading import read_tree
from omac.adapters.skills.worker_pool import THREADS_MAX, THREADS_PER_KEY_MAX, Pool, WorkAbandoned, go_on, to_the_end

CODE = partial(LiveCode().code_hash, known={})
SLOW_BYTES = 10**9  # sparse, so that it costs nothing to make
DEADLINE_S = 10.0

Fill = Callable[[tree.BundleReader, Callable[[memoryview], int | None], memoryview, str], int]


class Slow:
    """Reads of files called slow, as long as a test wants. `running` counts the threads that are in one now."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._lock = threading.Lock()
        self.running: dict[str, int] = {}

    def fill(
        self, reader: tree.BundleReader, read: Callable[[memoryview], int | None], view: memoryview, shown: str
    ) -> int:
        """Read a chunk of a slow file in 10 ms, without end; read other files as usual."""
        if not shown.endswith("/slow"):
            return self._fill(reader, read, view, shown)
        self._count(shown, 1)
        try:
            while True:
                time.sleep(0.01)
                self._fill(reader, lambda _view: 0, view, shown)
        finally:
            self._count(shown, -1)

    def _count(self, shown: str, change: int) -> None:
        with self._lock:
            self.running[shown] = self.running.get(shown, 0) + change

    @property
    def total(self) -> int:
        """Return the number of threads that read slow files now."""
        with self._lock:
            return sum(self.running.values())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Make reads of files called slow last for ever."""
    made = Slow(tree.BundleReader._fill)
    monkeypatch.setattr(tree.BundleReader, "_fill", lambda *arguments: made.fill(*arguments))
    return made


def write_project(workdir: Path, names: tuple[str, ...] = ("echo",), *, slow: bool = False) -> Path:
    """Create a project with these skills."""
    for name in names:
        path = workdir / ".agents" / "skills" / name
        path.mkdir(parents=True)
        (path / "omac.yaml").write_text(f"name: {name}\nsidecar:\n  command: [run]\n")
        if slow:
            with open(path / "slow", "wb") as file:
                os.truncate(file.fileno(), SLOW_BYTES)
    return workdir


async def test_a_look_that_nobody_waits_for_ends(tmp_path: Path, slow: Slow, folders: DiskSkillFolders) -> None:
    """A cancelled inspection ends, whatever was read so far, although the file never ends."""
    workdir = write_project(tmp_path / "hostile", slow=True)
    source = str(workdir / ".agents" / "skills" / "echo")
    looks: list[Callable[[], Awaitable[object]]] = [
        lambda: folders.discover(str(workdir), ("agents",)),
        lambda: folders.digest(source),
        lambda: folders.bundle_hash(source),
    ]
    for look in looks:
        with trio.move_on_after(0.1) as scope:
            await look()
        assert scope.cancelled_caught
        await until(lambda: slow.total == 0)


async def test_a_project_that_is_looked_at_again_and_again(
    tmp_path: Path, slow: Slow, store: Path, folders: DiskSkillFolders
) -> None:
    """A hostile project holds two threads, however many requests it has; another project's work does not wait."""
    hostile = str(write_project(tmp_path / "hostile", ("echo", "more"), slow=True))
    honest = str(write_project(tmp_path / "honest"))
    frozen = DiskFrozenSkills(str(store))
    source = f"{honest}/.agents/skills/echo"
    digest = (await frozen.freeze(source)).digest
    with trio.move_on_after(0.05):
        await folders.discover(hostile, ("agents",))  # skills that nobody found are in no project yet
    async with trio.open_nursery() as nursery:
        for number in range(3 * THREADS_MAX):
            if number % 2:
                nursery.start_soon(folders.discover, hostile, ("agents",))
            else:
                nursery.start_soon(folders.digest, f"{hostile}/.agents/skills/{('echo', 'more')[number // 2 % 2]}")
            nursery.start_soon(frozen.freeze, f"{hostile}/.agents/skills/echo")
        await until(lambda: slow.total == 2 * THREADS_PER_KEY_MAX)  # of looks, and of copies
        with trio.fail_after(DEADLINE_S):
            (skill,) = await folders.discover(honest, ("agents",))
            assert skill.problem is None
            assert await folders.discover_global(("agents",)) == []
            assert await folders.canonical(hostile, ["/"]) == hostile
            await folders.digest(source)
            assert await frozen.checked(digest, source)
        assert slow.total == 2 * THREADS_PER_KEY_MAX
        nursery.cancel_scope.cancel()
    await until(lambda: slow.total == 0)


async def test_links_to_many_folders_are_one_project_still(
    tmp_path: Path, slow: Slow, folders: DiskSkillFolders
) -> None:
    """Skills in many folders of a project share that project's threads."""
    workdir = tmp_path / "hostile"
    (workdir / ".agents" / "skills").mkdir(parents=True)
    await folders.discover(str(workdir), ("agents",))
    sources = [
        write_project(workdir / f"part{number}", slow=True) / ".agents" / "skills" / "echo"
        for number in range(THREADS_MAX)
    ]
    async with trio.open_nursery() as nursery:
        for source in sources:
            nursery.start_soon(folders.digest, str(source))
        await until(lambda: slow.total == THREADS_PER_KEY_MAX)
        await trio.testing.wait_all_tasks_blocked()  # each has its thread now, or waits for one
        assert LOOKS._limiters_of_run().all.borrowed_tokens == THREADS_PER_KEY_MAX
        assert slow.total == THREADS_PER_KEY_MAX
        nursery.cancel_scope.cancel()


async def test_a_copy_that_nobody_waits_for(tmp_path: Path, slow: Slow, store: Path) -> None:
    """A cancelled copy ends as well, and leaves nothing behind."""
    source = write_project(tmp_path / "hostile", slow=True) / ".agents" / "skills" / "echo"
    with trio.move_on_after(0.1):
        await DiskFrozenSkills(str(store)).freeze(str(source))
    await until(lambda: slow.total == 0 and not any(store.iterdir()))


async def test_places_are_given_back() -> None:
    """Work frees its slot when it ends, fails or is cancelled, even while it waits for a slot of its key or of all."""
    pool, go = Pool("test", threads_max=2, per_key_max=1), threading.Event()
    assert await pool.run("a", lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", lambda: 1 // 0)
    async with trio.open_nursery() as nursery:
        for key in ("a", "b", "a", "c", "d"):
            nursery.start_soon(pool.run, key, lambda: go.wait(DEADLINE_S))
        await until(lambda: current_statistics().tasks_living >= 5)
        nursery.cancel_scope.cancel()
    go.set()
    with trio.fail_after(DEADLINE_S):
        for key in ("a", "b", "c", "d"):
            assert await pool.run(key, lambda: 1) == 1
    limiters = pool._limiters_of_run()
    assert (limiters.all.borrowed_tokens, limiters._by_key) == (0, {})


def test_each_run_has_its_own_places() -> None:
    """A thread that outlives its run takes no slot from the next run."""
    pool, go = Pool("test", threads_max=1), threading.Event()

    async def cancelled() -> None:
        with trio.move_on_after(0.05):
            await pool.run("a", lambda: go.wait(DEADLINE_S))

    async def again() -> int:
        with trio.fail_after(DEADLINE_S / 2):
            return await pool.run("a", lambda: 1)

    try:
        trio.run(cancelled)
        assert trio.run(again) == 1
    finally:
        go.set()


async def test_what_is_done_to_the_end() -> None:
    """Work outside the pool is never abandoned; abandoned work in the pool still completes its cleanup."""
    go_on()
    pool, go = Pool("test"), threading.Event()
    done: list[str] = []

    def work() -> None:
        go.wait(DEADLINE_S)
        with to_the_end():
            go_on()
            done.append("cleaned")
        try:
            go_on()
        except WorkAbandoned:
            done.append("ended")
            raise

    with trio.move_on_after(0.05):
        await pool.run("a", work)
    go.set()
    await until(lambda: done == ["cleaned", "ended"])


@pytest.mark.parametrize("look", [read_tree, CODE, LiveTrees().digest], ids=["read", "code", "digest"])
async def test_folders_without_an_end(source: Path, look: Callable[..., object]) -> None:
    """An inspection ends between two entries, whether it reads files or only their metadata."""
    pool, go = Pool("test"), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        go.wait(DEADLINE_S)
        with pytest.raises(WorkAbandoned):
            look(str(source))
        ended.append(True)

    with trio.move_on_after(0.05):
        await pool.run("a", work)
    go.set()
    await until(lambda: ended == [True])
