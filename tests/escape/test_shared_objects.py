"""Objects that a project's repository shares with other repositories are not changed through it.

The other repository on the host is the judge; each case has its twin, the same deed outside the sandbox, or ordinary
work.
"""

import os
from pathlib import Path

import pytest
from real_sandbox import USERS, Box, box

# Overwrite every object in place, as far as that is possible; git's own way of writing makes new files.
OVERWRITE = (
    "find .git/objects -type f | while read f; do chmod u+w $f; printf damaged | dd of=$f conv=notrunc status=none;"
    " done 2>/dev/null; true"
)


def git(world: Box, where: Path, *words: str) -> str:
    done = world.host("git", "-C", str(where), *words, cwd=world.home)
    assert done.status == 0, done
    return done.out


def cloned(world: Box, *, packed: bool) -> Path:
    """Create a repository with loose or packed objects, and the project as a local clone; return the repository."""
    origin = world.home / "origin"
    world.give(origin / "file", "content\n")
    git(world, origin, "init", "-q", "-b", "main")
    git(world, origin, "add", "-A")
    git(world, origin, "commit", "-qm", "first")
    if packed:
        git(world, origin, "repack", "-adq")
        git(world, origin, "commit-graph", "write")
    git(world, world.home, "clone", "-q", str(origin), str(world.workdir))
    return origin


def shared(folder: Path) -> list[Path]:
    return [path for path in (folder / ".git" / "objects").rglob("*") if path.is_file() and path.stat().st_nlink > 1]


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_objects_of_another_clone(world: Box, packed: bool) -> None:
    """A write in place does not reach the repository that the project was cloned from; without a sandbox it does."""
    origin = cloned(world, packed=packed)
    assert shared(world.workdir)
    world.run("sh", "-c", OVERWRITE)
    git(world, origin, "fsck", "--strict")
    git(world, world.home, "clone", "-q", str(origin), "another")
    world.host("sh", "-c", OVERWRITE, cwd=world.home / "another")
    assert world.host("git", "-C", str(origin), "fsck").status != 0


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_ordinary_work_in_a_local_clone(world: Box, packed: bool) -> None:
    """The twin: commits, a repack and a fetch work, both repositories are sound, and objects keep mode and time."""
    origin = cloned(world, packed=packed)
    before = {path: path.stat() for path in shared(world.workdir)}
    assert world.run("true").status == 0
    for path, then in before.items():
        now = path.stat()
        assert (now.st_mode, now.st_mtime_ns, now.st_uid) == (then.st_mode, then.st_mtime_ns, then.st_uid)
    world.give(origin / "more", "more\n")
    git(world, origin, "add", "-A")
    git(world, origin, "commit", "-qm", "second")
    script = "echo x > x && git add x && git commit -qm inside && git repack -q && git fsck && git log --format=%s"
    done = world.run("sh", "-c", script)
    assert (done.status, done.out, done.err) == (0, "inside\nfirst\n", ""), done
    git(world, world.workdir, "fetch", "-q")
    for repository in (origin, world.workdir):
        git(world, repository, "fsck", "--strict")
    assert {path.parent.name for path in shared(world.workdir)} == ({"pack"} if packed else set())


def test_objects_of_a_linked_worktrees_repository(world: Box) -> None:
    """A write in place in the repository of a linked worktree does not reach another clone with the same objects."""
    world.workdir.rmdir()
    main = world.home / "main"
    world.give(main / "file", "content\n")
    git(world, main, "init", "-q", "-b", "main")
    git(world, main, "add", "-A")
    git(world, main, "commit", "-qm", "first")
    git(world, world.home, "clone", "-q", str(main), str(world.home / "clone"))
    git(world, main, "worktree", "add", "-q", str(world.workdir), "-b", "work")
    done = world.run("sh", "-c", OVERWRITE.replace(".git/objects", f"{main}/.git/objects") + "; ls -R | head -3")
    assert done.status == 0
    git(world, world.home / "clone", "fsck", "--strict")


def test_more_packs_than_can_be_held(world: Box) -> None:
    """A launch is refused with the command that gives the repository files of its own; after that it works."""
    cloned(world, packed=True)
    pack = world.workdir / ".git" / "objects" / "pack"
    linked = [pack / f"pack-{number:040x}.pack" for number in range(101)]
    for number, path in enumerate(linked):
        os.link(world.give(world.home / f"elsewhere{number}"), path)
    done = world.run("true")
    assert done.status != 0
    assert "repack -ad" in done.err
    for path in linked:
        path.unlink()
    git(world, world.workdir, "repack", "-adq")
    assert world.run("true").status == 0


@pytest.mark.parametrize("name", ["objects", "refs"])
@pytest.mark.parametrize("where", [".git", ".git/modules/sub", "bare.git"])
def test_objects_behind_a_link(world: Box, name: str, where: str) -> None:
    """A repository whose objects or refs are behind a link cannot be protected: it is refused, or left as it is."""
    git(world, world.workdir, "init", "-q")
    folder = world.workdir / where
    if where != ".git":
        git(world, world.workdir, "init", "-q", "--bare", str(folder))
    apart = world.home / "apart"
    (folder / name).rename(apart)
    (folder / name).symlink_to(apart)
    arm = f"git config -f {where}/config core.fsmonitor 'touch {world.home}/MARK'; echo x > {where}/hooks/post-commit"
    done = world.run("sh", "-c", arm)
    if where == "bare.git":
        assert f"{folder}/{name} is a symbolic link" in done.err
        assert "core.fsmonitor" not in world.host("git", "config", "-f", f"{where}/config", "--list").out
    else:
        assert (done.status, done.out) == (7, ""), done
        assert f"{folder}/{name} is a symbolic link" in done.err
        assert "try: readlink -f" in done.err
    assert not (folder / "hooks" / "post-commit").exists()
    (folder / name).unlink()
    apart.rename(folder / name)
    assert world.run("sh", "-c", "git status --porcelain").status == 0


def test_objects_that_cannot_be_copied() -> None:
    """A launch is refused with the reason and the next command, leaving no half-made files. Root can copy them all."""
    with box(USERS[-1]) as world:
        cloned(world, packed=False)
        folder = shared(world.workdir)[0].parent
        folder.chmod(0o500)
        done = world.run("true")
        folder.chmod(0o700)
        assert done.status != 0
        assert "cannot be copied: Permission denied" in done.err
        assert "repack -ad" in done.err
        assert world.run("true").status == 0
        assert not list((world.workdir / ".git" / "objects").rglob("tmp_obj_*"))
