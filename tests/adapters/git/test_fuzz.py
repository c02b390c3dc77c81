"""Files `.git`, `commondir` and `gitdir` of any content grant nothing outside the workdir's own repository."""

import os
import random
import shutil
from pathlib import Path

import pytest
from adapters.git.boxed import host
from tiers import examples

from adapters.git import layouts
from omac.adapters.git.folders import ELSEWHERE
from omac.adapters.git.layout import GitChoices, lay_out
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import LINK

EXAMPLES = int(os.environ.get("OMAC_SOAK_EXAMPLES", examples(2500)))
PLACES = ("", "/.git", "/a", "/a/.git", "/worktrees/x", "/a/worktrees/x", "/.git/worktrees/x", "/.git/modules/m", "/b")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_no_grant_outside(seed: int, tmp_path: Path) -> None:
    """A workdir is refused, or its entries lie in it or in its own repository's common folder, behind no link."""
    chance = random.Random(seed)
    arena = Arena(tmp_path)
    granted = 0
    for number in range(EXAMPLES // 5):
        own = chance.random() < 0.3
        workdir = arena.linked if own else arena.work
        arena.reset(workdir)
        arena.plant(workdir, chance)
        try:
            layout = lay_out(str(workdir), GitChoices(refs=chance.choice(("all", "branch"))), str(arena.home))
        except Refusal:
            continue
        granted += bool(layout.entries)
        allowed = (str(workdir), str(arena.mine)) if own else (str(workdir),)
        for entry in layout.entries:
            if (entry.access, entry.target) == (LINK, ELSEWHERE):
                continue  # a link inside that leads nowhere, and shows nothing of what is there
            assert any(below(entry.path, folder) for folder in allowed), (seed, number, entry)
            parent = os.path.dirname(entry.path)
            assert os.path.realpath(parent) == parent, (seed, number, entry)
            assert not os.path.islink(entry.path), (seed, number, entry)
        assert all(any(below(path, folder) for folder in allowed) for path in layout.fence)
    assert granted > EXAMPLES // 100


class Arena:
    """A workdir, a linked worktree with its repository, and a victim of the same user, whose worktree lies beside."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.home.mkdir()
        self.work = base / "work"
        self.work.mkdir()
        layouts.history(base / "victim", self.home)
        host("git", "worktree", "add", "-q", "-b", "theirs", str(base / "theirs"), cwd=base / "victim", home=self.home)
        (base / "own").mkdir()
        self.linked = layouts.linked(base / "own", self.home)
        self.mine = base / "own" / "repo" / ".git"
        self.pointer = (self.linked / ".git").read_text()

    def reset(self, workdir: Path) -> None:
        for path in workdir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if workdir == self.linked:
            (workdir / ".git").write_text(self.pointer)

    def plant(self, workdir: Path, chance: random.Random) -> None:
        """Plant some git folders, real or pretended, pointers, and links."""
        for _ in range(chance.randrange(1, 5)):
            path = Path(f"{workdir}{chance.choice(PLACES)}")
            if os.path.realpath(path) != str(path):
                continue  # a link planted before leads there: never write through it
            kind = chance.random()
            try:
                if kind < 0.25 and path != workdir:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.symlink_to(self.path(workdir, chance))
                elif kind < 0.5 and path != workdir:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(path, self.text(workdir, chance, b"gitdir: "))
                else:
                    self.folder(path, workdir, chance)
            except (OSError, ValueError):
                continue

    def folder(self, place: Path, workdir: Path, chance: random.Random) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for name in ("objects", "refs"):
            if chance.random() < 0.8:
                if chance.random() < 0.1 and not (place / name).exists():
                    (place / name).symlink_to(self.path(workdir, chance))
                else:
                    (place / name).mkdir(exist_ok=True)
        if chance.random() < 0.9:
            _write(place / "HEAD", b"ref: refs/heads/main\n")
        for name in ("commondir", "gitdir"):
            if chance.random() < 0.5:
                _write(place / name, self.text(workdir, chance, b""))
        if chance.random() < 0.3:
            worktree = self.path(workdir, chance)
            settings = f"[core]\n\tworktree = {worktree}\n\thooksPath = {self.path(workdir, chance)}\n"
            _write(place / "config", settings.encode(errors="surrogateescape"))

    def text(self, workdir: Path, chance: random.Random, begin: bytes) -> bytes:
        if chance.random() < 0.1:
            begin = chance.choice((b"", b"gitdir:", b" gitdir: ", b"gitdir: \0", b"gitdir: ../", b"gitdir: \n"))
        end = chance.choice((b"\n", b"\n", b"\n", b"", b"\r\n", b"\n\n", b" \n", b"/\n", b"/.\n", b"\0\n", b"\xff\n"))
        return begin + os.fsencode(self.path(workdir, chance)) + end

    def path(self, workdir: Path, chance: random.Random) -> str:
        targets = [
            *(f"{workdir}{suffix}" for suffix in PLACES),
            *(
                f"{self.base}/victim/.git{suffix}"
                for suffix in ("", "/worktrees/theirs", "/worktrees", "/objects", "/config")
            ),
            f"{self.base}/victim",
            f"{self.base}/theirs/.git",
            f"{self.base}/own/repo/.git/worktrees/wt",
            f"{self.base}/own/repo/.git",
            str(self.home),
            "/",
            "/etc",
        ]
        target = chance.choice(targets)
        form = chance.random()
        if form < 0.3:
            return os.path.relpath(target, f"{workdir}{chance.choice(PLACES)}")
        if form < 0.4:
            return target.replace("/", "//", 1) + chance.choice(("/..", "/.", "/../work", "/worktrees/x", "\n"))
        return target


def _write(path: Path, content: bytes) -> None:
    """Write a new file at this path, never through a link."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.write(descriptor, content)
    os.close(descriptor)
