"""tools/cli/cache.py lists and removes tool caches, and prints them as data for scripts."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from real_omac import Omac

from omac.adapters.caches.tree import identity_of, open_cache
from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.cache import clear, gc, list_

DAY_S = 86_400
NOW_S = 2_000_000_000
HOLD = """\
import os, signal, sys
from omac.adapters.caches.tree import open_cache
cache = open_cache(sys.argv[1], os.environ)
print("open", flush=True)
signal.pause()
"""


class House:
    """A home with caches in it, and the commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.environment = {"HOME": str(folder / "home")}
        (folder / "home").mkdir()
        self._capsys = capsys

    def project(self, name: str, size: int = 0, days: int = 0) -> Path:
        """Make a project whose tools left so many bytes, so many days ago."""
        workdir = self.folder / name
        workdir.mkdir()
        cache = open_cache(str(workdir), self.environment)
        if size:
            (Path(cache.path) / "left").write_bytes(os.urandom(size))
        cache.end()
        at = NOW_S - days * DAY_S
        os.utime(f"{cache.root}/.locks/{identity_of(str(workdir))}.lock", (at, at))
        return workdir

    def there(self) -> set[str]:
        """Return the names of the projects that have a cache."""
        folders = (self.folder / "home" / ".cache" / "omac").glob("*/workdir")
        return {Path(path.read_text().strip()).name for path in folders}

    def told(self) -> tuple[list[str], list[str]]:
        """Return the lines on stdout and on stderr since the last time."""
        out, errors = self._capsys.readouterr()
        return out.splitlines(), errors.splitlines()

    def rows(self) -> list[dict[str, Any]]:
        """Return the objects on stdout since the last time."""
        return [json.loads(line) for line in self.told()[0]]

    def gc(
        self, max_age: str = "30d", max_size: str | None = None, *, dry_run: bool = False, as_json: bool = True
    ) -> int:
        """Run `omac cache gc` at a fixed time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: NOW_S * 10**9)
            return gc(max_age, max_size, dry_run, as_json, self.environment)

    def clear(self, workdir: Path | None = None, *, dry_run: bool = False, as_json: bool = True) -> int:
        """Run `omac cache clear` for this workdir, or for all without one."""
        return clear(str(workdir) if workdir else None, workdir is None, dry_run, as_json, self.environment)


@pytest.fixture
def house(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> House:
    """Return a house of this test's own."""
    return House(tmp_path, capsys)


@pytest.fixture
def user(house: House) -> Iterator[Callable[[Path], None]]:
    """Yield a function that starts a process which uses the cache of a workdir until the test has ended."""
    with ExitStack() as stack:

        def use(workdir: Path) -> None:
            command = [sys.executable, "-c", HOLD, str(workdir)]
            environment = {**os.environ, **house.environment}
            environment.pop("XDG_CACHE_HOME", None)
            process = stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"

        yield use


def test_nothing_there(house: House) -> None:
    """The three commands report that no cache exists, and succeed."""
    project = house.folder / "shop"
    assert [list_(False, house.environment), house.clear(), house.clear(project), house.gc()] == [0, 0, 0, 0]
    out, errors = house.told()
    assert out == []
    assert errors == [
        "no tool caches exist",
        "no tool caches exist",
        f"no tool cache exists for {project}",
        "0 removed, 0 stay with 0 B",
    ]
    assert not (house.folder / "home" / ".cache").exists()


def test_list(house: House, user: Callable[[Path], None]) -> None:
    """The list has the largest cache first, with its state; the sum goes to stderr."""
    shop, attic, used = house.project("shop", 2_000_000), house.project("attic", 50_000), house.project("used")
    attic.rmdir()
    user(used)
    assert list_(False, house.environment) == 0
    out, errors = house.told()
    assert [line.split()[0] for line in out] == ["WORKDIR", str(shop), str(attic), str(used)]
    assert [re.split(r"  +", line)[3] for line in out] == ["STATE", "idle", "workdir gone", "in use"]
    assert re.fullmatch(r"3 in all, 2\.\d MiB", errors[0])


def test_list_as_data(house: House) -> None:
    """The list as JSON has an object a line."""
    shop = house.project("shop", 100_000, days=1)
    assert list_(True, house.environment) == 0
    (row,) = house.rows()
    assert 100_000 <= row.pop("bytes") < 200_000
    assert row == {
        "id": identity_of(str(shop)),
        "workdir": str(shop),
        "path": str(house.folder / "home/.cache/omac" / identity_of(str(shop))),
        "counted": True,
        "last_used": "2033-05-17T03:33:20.000000Z",
        "in_use": False,
        "workdir_exists": True,
    }


def test_clear_one(house: House) -> None:
    """`omac cache clear` removes only the cache of the named project, by a link too, even if that project is gone."""
    shop, attic = house.project("shop", 100_000), house.project("attic")
    house.project("other")
    (house.folder / "link").symlink_to(shop)
    assert house.clear(house.folder / "link") == 0
    (row,) = house.rows()
    assert (row["workdir"], row["action"], row["reason"]) == (str(shop), "removed", "asked for")
    attic.rmdir()
    assert house.clear(attic, as_json=False) == 0
    assert re.fullmatch(rf"removed: {attic} \([\d.]+ KiB, asked for\)", house.told()[0][0])
    assert house.there() == {"other"}
    assert not list((house.folder / "home/.cache/omac/.trash").iterdir())


def test_clear_all(house: House, user: Callable[[Path], None]) -> None:
    """`omac cache clear` of all keeps caches in use, reports them, and exits with 1 since not all were removed."""
    house.project("shop")
    user(house.project("used"))
    assert house.clear(dry_run=True) == 1
    planned = {Path(row["workdir"]).name: row["action"] for row in house.rows()}
    assert planned == {"shop": "would be removed", "used": "in use"}
    assert house.clear() == 1
    actions = {Path(row["workdir"]).name: row["action"] for row in house.rows()}
    assert actions == {"shop": "removed", "used": "in use"}
    assert house.there() == {"used"}


def test_clear_one_in_use(house: House, user: Callable[[Path], None]) -> None:
    """A cache in use is kept and reported when its project is named."""
    used = house.project("used", 10)
    user(used)
    assert house.clear(used, as_json=False) == 1
    assert house.told()[0][0].startswith(f"in use: {used} (")
    assert house.there() == {"used"}


def test_clear_what_is_refused_at_a_launch(house: House) -> None:
    """`omac cache clear` removes a cache of another workdir, which a launch refuses, and reports whose it was."""
    shop = house.project("shop")
    marker = house.folder / "home/.cache/omac" / identity_of(str(shop)) / "workdir"
    marker.write_text("/somewhere/else\n")
    with pytest.raises(Refusal, match="another workdir"):
        open_cache(str(shop), house.environment)
    assert house.clear(shop) == 0
    assert house.told()[1] == ["this is the cache of /somewhere/else: both paths have the same cache"]
    open_cache(str(shop), house.environment).end()


@pytest.mark.parametrize(("workdir", "every"), [(None, False), ("/shop", True)])
def test_clear_has_to_be_told_whose(house: House, workdir: str | None, every: bool) -> None:
    """`omac cache clear` refuses to run with neither a project nor --all, and with both."""
    house.project("shop")
    with pytest.raises(Refusal, match="name a project") as caught:
        clear(workdir, every, False, False, house.environment)
    assert caught.value.reason == "misuse"
    assert house.there() == {"shop"}


def test_gc_by_age(house: House) -> None:
    """`omac cache gc` removes caches that were not used for longer, whose workdir is gone, or which have no marker."""
    house.project("new", days=29)
    house.project("old", days=31)
    house.project("gone").rmdir()
    unmarked = house.project("unmarked")
    (house.folder / "home/.cache/omac" / identity_of(str(unmarked)) / "workdir").unlink()
    assert house.gc() == 0
    reasons = {Path(row["workdir"]).name: (row["action"], row["reason"]) for row in house.rows()}
    assert reasons == {
        "old": ("removed", "not used"),
        "gone": ("removed", "workdir gone"),
        "": ("removed", "no marker"),
    }
    assert house.there() == {"new"}
    (house.folder / "home/.cache/omac/.locks/0123456789ab.lock").touch()  # of a launch that was cut off
    assert house.gc("7d") == 0
    assert house.there() == set()
    assert list((house.folder / "home/.cache/omac/.locks").iterdir()) == []


def test_gc_by_size(house: House) -> None:
    """`omac cache gc --max-size` removes first the caches that hold most for longest, and prints why they go."""
    for name, size, days in (("large", 900_000, 1), ("older", 500_000, 9), ("small", 100_000, 2)):
        house.project(name, size, days)
    assert house.gc(max_size="1.2M", as_json=False) == 0
    out, errors = house.told()
    assert [line.partition(" (")[0] for line in out] == [f"removed: {house.folder / 'older'}"]
    assert "too much in all" in out[0]
    assert re.fullmatch(r"1 removed, 2 stay with \d+ KiB|1 removed, 2 stay with 1\.\d MiB", errors[0])
    assert house.gc(max_size="0") == 0
    assert house.there() == set()


def test_gc_leaves_what_is_in_use(house: House, user: Callable[[Path], None]) -> None:
    """A cache in use is kept, even if it is old and large, and `omac cache gc` reports it."""
    used = house.project("used", 100_000, days=99)
    user(used)
    os.utime(house.folder / "home/.cache/omac/.locks" / f"{identity_of(str(used))}.lock", (1, 1))
    assert house.gc(max_size="1K") == 0
    out, errors = house.told()
    assert out == []
    assert errors[1] == f"in use, so kept: {used}"
    assert "caches in use are kept" in errors[2]
    assert house.there() == {"used"}


@pytest.mark.parametrize("command", ["gc", "clear"])
def test_dry_runs(house: House, command: str) -> None:
    """A dry run prints the caches that would be removed, and changes nothing."""
    house.project("old", 10, days=99)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in (house.folder / "home").rglob("*"))
    assert (house.gc(dry_run=True) if command == "gc" else house.clear(dry_run=True)) == 0
    assert [row["action"] for row in house.rows()] == ["would be removed"]
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in (house.folder / "home").rglob("*")) == before


@pytest.mark.parametrize(
    ("max_age", "max_size", "told"), [("soon", None, "is not a time"), ("30d", "much", "is not a size")]
)
def test_slips(house: House, max_age: str, max_size: str | None, told: str) -> None:
    """A wrong age or size is a misuse, and no cache is removed."""
    house.project("old", days=99)
    with pytest.raises(Refusal, match=told) as caught:
        house.gc(max_age, max_size)
    assert caught.value.exit_code == 2
    assert house.there() == {"old"}


def test_names_are_shown_and_not_obeyed(house: House) -> None:
    """The list escapes a project's path, which may hold characters that a terminal obeys."""
    house.project("evil\x1b[2J\nname")
    assert list_(False, house.environment) == 0
    assert len(house.told()[0]) == 2


def test_a_path_that_is_no_text(house: House) -> None:
    """A path that is not UTF-8 is printed with an escape, in JSON too, and its cache is removed like any other."""
    house.project(os.fsdecode(b"caf\xe9"), days=2)
    assert list_(True, house.environment) == 0
    assert house.rows()[0]["workdir"] == f"{house.folder}/caf\\xe9"
    assert house.gc("1d") == 0
    assert [(row["workdir"], row["action"]) for row in house.rows()] == [(f"{house.folder}/caf\\xe9", "removed")]


def test_the_command_line(omac: Omac) -> None:
    """`omac cache` has its options, streams and exit codes on the command line too."""
    workdir = omac.root / "shop"
    workdir.mkdir()
    open_cache(str(workdir), omac.environment).end()
    listed = omac.ok("cache", "list", "--json")
    assert [json.loads(line)["workdir"] for line in listed.splitlines()] == [str(workdir)]
    assert omac.run("cache", "clear").status == 2
    assert omac.ok("cache", "gc", "--max-age", "1d", "--max-size", "20G", "--dry-run", "--json") == ""
    cleared = omac.ok("cache", "clear", "--workdir", "shop", "--json")
    assert json.loads(cleared)["action"] == "removed"
    assert (omac.ok("cache", "list"), omac.ok("cache", "clear", "--all")) == ("", "")


SLOW = """\
import os, sys
from types import SimpleNamespace
from omac.tools.terminal import progress as module
from omac.tools.terminal.invocation import Invocation, working_for
now_s = 0.0
module.time = SimpleNamespace(monotonic=lambda: now_s)
invocation = Invocation(os.environ, sys.stdin, sys.stdout, sys.stderr)
with working_for(invocation), module.Progress("files removed") as progress:
    progress.step(1000)
    now_s = module.EVERY_S
    progress.step(234)
"""


def test_progress_on_a_terminal() -> None:
    """A long command shows its progress on a line of the terminal that it erases in the end; a file gets none of it."""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", SLOW], stderr=theirs, check=True)
    os.close(theirs)
    output = os.read(ours, 1000)
    os.close(ours)
    assert output.startswith(b"\r\x1b[K1,234 files removed")
    assert output.endswith(b"\r\x1b[K")
    assert subprocess.run([sys.executable, "-c", SLOW], capture_output=True, check=True).stderr == b""
