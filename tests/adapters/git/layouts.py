"""Repositories in every layout, each made at a path of its own by the host's git, with fixed dates."""

from collections.abc import Callable
from pathlib import Path

from adapters.git.boxed import host

Builder = Callable[[Path, Path], Path]  # (an empty folder, the home) -> the workdir


def history(where: Path, home: Path, *options: str, packed: bool = False) -> None:
    """Make branches main (three commits), topic (another two), spare (merged) and a tag, checked out at main."""
    host("git", "init", "-q", "-b", "main", *options, str(where), cwd=home, home=home)
    commit(where, home, "a", "1\n", "first")
    commit(where, home, "b", "1\n", "second")
    for argv in (("branch", "spare"), ("branch", "other"), ("tag", "v1"), ("switch", "-q", "-c", "topic")):
        host("git", *argv, cwd=where, home=home)
    commit(where, home, "t", "topic\n", "topic: one")
    commit(where, home, "u", "topic\n", "topic: two")
    host("git", "switch", "-q", "main", cwd=where, home=home)
    commit(where, home, "c", "1\n", "third")
    if packed:
        host("git", "pack-refs", "--all", cwd=where, home=home)
        host("git", "branch", "-q", "-f", "other", "topic", cwd=where, home=home)  # loose, and packed at an older place


def commit(where: Path, home: Path, name: str, content: str, message: str) -> None:
    (where / name).write_text(content)
    host("git", "add", name, cwd=where, home=home)
    host("git", "commit", "-q", "-m", message, cwd=where, home=home)


def plain(base: Path, home: Path) -> Path:
    history(base / "repo", home)
    return base / "repo"


def packed(base: Path, home: Path) -> Path:
    history(base / "repo", home, packed=True)
    return base / "repo"


def sha256(base: Path, home: Path) -> Path:
    history(base / "repo", home, "--object-format=sha256")
    return base / "repo"


def linked(base: Path, home: Path, *options: str, where: str = "wt", is_packed: bool = False) -> Path:
    history(base / "repo", home, *options, packed=is_packed)
    host("git", "worktree", "add", "-q", "-b", "work", str(base / where), "main", cwd=base / "repo", home=home)
    commit(base / where, home, "w", "1\n", "work")
    return base / where


def linked_packed(base: Path, home: Path) -> Path:
    workdir = linked(base, home, is_packed=True)
    host("git", "pack-refs", "--all", cwd=workdir, home=home)
    host("git", "branch", "-q", "-f", "other", "main", cwd=workdir, home=home)
    return workdir


def linked_sha256(base: Path, home: Path) -> Path:
    return linked(base, home, "--object-format=sha256")


def nested(base: Path, home: Path) -> Path:
    return linked(base, home, where="repo/.worktrees/wt")


def moved(base: Path, home: Path) -> Path:
    linked(base, home)
    (base / "far").mkdir()
    host("git", "worktree", "move", str(base / "wt"), str(base / "far" / "moved"), cwd=base / "repo", home=home)
    return base / "far" / "moved"


def relative(base: Path, home: Path) -> Path:
    workdir = linked(base, home)
    (workdir / ".git").write_text("gitdir: ../repo/.git/worktrees/wt\n")
    return workdir


def worktree_config(base: Path, home: Path) -> Path:
    workdir = linked(base, home)
    host("git", "config", "extensions.worktreeConfig", "true", cwd=workdir, home=home)
    host("git", "config", "--worktree", "advice.detachedHead", "false", cwd=workdir, home=home)
    return workdir


def bare_main(base: Path, home: Path) -> Path:
    history(base / "source", home)
    host("git", "clone", "-q", "--bare", str(base / "source"), str(base / "repo.git"), cwd=base, home=home)
    host("git", "worktree", "add", "-q", "-b", "work", str(base / "wt"), "main", cwd=base / "repo.git", home=home)
    commit(base / "wt", home, "w", "1\n", "work")
    return base / "wt"


def bare_around(base: Path, home: Path) -> Path:
    """Make a worktree in the folder of its bare repository."""
    history(base / "source", home)
    host("git", "clone", "-q", "--bare", str(base / "source"), str(base / "repo.git"), cwd=base, home=home)
    host("git", "worktree", "add", "-q", "-b", "work", "work", "main", cwd=base / "repo.git", home=home)
    commit(base / "repo.git" / "work", home, "w", "1\n", "work")
    return base / "repo.git" / "work"


def pointed(base: Path, home: Path) -> Path:
    """Make a folder whose `.git` file names a bare repository below it, and a worktree beside that."""
    history(base / "source", home)
    host("git", "clone", "-q", "--bare", str(base / "source"), str(base / "project" / ".bare"), cwd=base, home=home)
    (base / "project" / ".git").write_text("gitdir: ./.bare\n")
    host("git", "worktree", "add", "-q", "-b", "work", "work", "main", cwd=base / "project", home=home)
    commit(base / "project" / "work", home, "w", "1\n", "work")
    return base / "project"


def separate(base: Path, home: Path) -> Path:
    history(base / "repo", home, "--separate-git-dir", str(base / "elsewhere"))
    host("git", "config", "core.worktree", str(base / "repo"), cwd=base / "repo", home=home)
    return base / "repo"


def with_submodule(base: Path, home: Path) -> Path:
    history(base / "library", home)
    history(base / "repo", home)
    _add_submodule(base / "repo", home)
    return base / "repo"


def submodule(base: Path, home: Path) -> Path:
    with_submodule(base, home)
    return base / "repo" / "libs" / "sub"


def linked_with_submodule(base: Path, home: Path) -> Path:
    history(base / "library", home)
    linked(base, home)
    _add_submodule(base / "wt", home)
    return base / "wt"


def several(base: Path, home: Path) -> Path:
    """Make a folder with repositories: one has a linked worktree beside it, and one is a worktree of an outside one."""
    (base / "projects").mkdir()
    linked(base / "projects", home)
    history(base / "outside", home)
    host(
        "git",
        "worktree",
        "add",
        "-q",
        "-b",
        "work",
        str(base / "projects" / "in"),
        "main",
        cwd=base / "outside",
        home=home,
    )
    return base / "projects"


def _add_submodule(where: Path, home: Path) -> None:
    url = str(where.parent / "library")
    host(
        "git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "libs/sub", cwd=where, home=home
    )
    host("git", "commit", "-q", "-m", "submodule", cwd=where, home=home)
    host("git", "switch", "-q", "-c", "inner", cwd=where / "libs" / "sub", home=home)
    for branch in ("topic", "spare", "other"):
        host("git", "branch", "-q", "--no-track", branch, f"origin/{branch}", cwd=where / "libs" / "sub", home=home)


# name: (builder, the worktree in the workdir whose git is used, whether its config can be written inside)
LAYOUTS: dict[str, tuple[Builder, str, bool]] = {
    "plain": (plain, "", False),
    "packed": (packed, "", False),
    "sha256": (sha256, "", False),
    "linked": (linked, "", True),
    "linked-packed": (linked_packed, "", True),
    "linked-sha256": (linked_sha256, "", True),
    "nested": (nested, "", True),
    "moved": (moved, "", True),
    "relative": (relative, "", True),
    "worktree-config": (worktree_config, "", True),
    "bare-main": (bare_main, "", True),
    "bare-around": (bare_around, "", True),
    "pointed": (pointed, "work", False),
    "separate": (separate, "", False),
    "with-submodule": (with_submodule, "", False),
    "in-submodule": (with_submodule, "libs/sub", False),
    "submodule": (submodule, "", False),
    "linked-with-submodule": (linked_with_submodule, "", True),
    "in-linked-submodule": (linked_with_submodule, "libs/sub", False),
    "several": (several, "repo", False),
    "several-worktree": (several, "wt", False),
    "several-from-outside": (several, "in", True),
}
