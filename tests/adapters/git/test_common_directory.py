"""adapters/git/common_directory.py: a worktree counts only if its pointers agree in both directions."""

import os
import shutil
from pathlib import Path

import pytest
from nested_worktree import git

from omac.adapters.git.common_directory import worktree_folder
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.repository import WorktreeFolder


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Return a repository with a linked worktree beside it, named `one`."""
    main = tmp_path.resolve() / "main"
    (main / "sub").mkdir(parents=True)
    (main / "sub" / "a").write_text("a")
    git("init", "-q", cwd=main)
    git("add", ".", cwd=main)
    git("commit", "-q", "-m", "first", cwd=main)
    git("worktree", "add", "-q", str(main.parent / "one"), cwd=main)
    return main


def refused(folder: Path) -> str:
    """Return the message with which a folder is refused."""
    with pytest.raises(Refusal) as caught:
        worktree_folder(str(folder))
    return caught.value.message


def test_the_worktrees_of_a_repository_have_one_scope(main: Path) -> None:
    """The main checkout and a linked one share a scope; a folder in them has a scope of its own, the same in both."""
    linked = main.parent / "one"
    assert worktree_folder(str(main)) == worktree_folder(str(linked))
    assert worktree_folder(str(main)).common == f"{main}/.git"
    below = worktree_folder(str(main / "sub"))
    assert below == worktree_folder(str(linked / "sub"))
    assert below.project == "sub"
    assert below.scope != worktree_folder(str(main)).scope
    assert below.shown == f"sub in every worktree of {main}/.git"


def test_a_bare_repository_and_relative_pointers(main: Path, tmp_path: Path) -> None:
    """A bare repository is the common directory itself; pointers may be relative, as newer gits write them."""
    bare = main.parent / "bare.git"
    git("clone", "-q", "--bare", str(main), str(bare), cwd=main)
    git("worktree", "add", "-q", str(main.parent / "of-bare"), cwd=bare)
    assert worktree_folder(str(main.parent / "of-bare")).common == str(bare)
    linked = main.parent / "one"
    (linked / ".git").write_text("gitdir: ../main/.git/worktrees/one\n")
    (main / ".git/worktrees/one/gitdir").write_text("../../../../one/.git\n")
    assert worktree_folder(str(linked)) == worktree_folder(str(main))


def test_a_worktree_that_git_moves_is_still_one(main: Path) -> None:
    """A worktree keeps its scope after `git worktree move`, which changes both directions."""
    git("worktree", "move", str(main.parent / "one"), str(main.parent / "two"), cwd=main)
    assert worktree_folder(str(main.parent / "two")) == worktree_folder(str(main))


def test_a_folder_in_no_repository(tmp_path: Path) -> None:
    """A folder in no repository is refused, for it can have no worktrees."""
    assert "is in no git repository" in refused(tmp_path.resolve())


def test_a_forged_pointer(main: Path) -> None:
    """A `.git` file that names the repository, or the admin folder of a worktree of it, proves nothing."""
    forged = main.parent / "forged"
    forged.mkdir()
    for names in (main / ".git", main / ".git/worktrees/one", main / ".git/worktrees/none"):
        (forged / ".git").write_text(f"gitdir: {names}\n")
        refused(forged)
    (forged / ".git").write_text(f"gitdir: {main}/.git/worktrees/one\n")
    assert f"its 'gitdir' says {main.parent}/one/.git" in refused(forged)


def test_a_copied_and_a_moved_worktree(main: Path) -> None:
    """A worktree that was moved or copied by hand is refused; `git worktree repair` is the fix for a moved one."""
    linked = main.parent / "one"
    shutil.copytree(linked, main.parent / "copy")
    refused(main.parent / "copy")
    linked.rename(main.parent / "moved")
    with pytest.raises(Refusal) as caught:
        worktree_folder(str(main.parent / "moved"))
    assert caught.value.fix[0].startswith(f"git -C {main.parent}/moved worktree repair")


def test_an_admin_folder_that_an_agent_made(main: Path) -> None:
    """An admin folder elsewhere whose `commondir` names the repository is refused, though both pointers are right."""
    forged = main.parent / "forged"
    admin = forged / "x" / "worktrees" / "f"
    admin.mkdir(parents=True)
    (admin / "commondir").write_text(f"{main}/.git\n")
    (admin / "gitdir").write_text(f"{forged}/.git\n")
    (forged / ".git").write_text(f"gitdir: {admin}\n")
    assert "/commondir names" in refused(forged)


def test_links_in_the_way(main: Path) -> None:
    """Symbolic links on the way are refused: `.git`, the admin folder, its `gitdir`, a folder above."""
    folder = main.parent / "linked"
    folder.mkdir()
    (folder / ".git").symlink_to(main / ".git")
    assert "neither a folder nor a file" in refused(folder)
    (folder / ".git").unlink()
    (main / ".git/worktrees/planted").symlink_to(folder)
    (folder / "commondir").write_text("../..\n")
    (folder / "gitdir").write_text(f"{folder}/.git\n")
    (folder / ".git").write_text(f"gitdir: {main}/.git/worktrees/planted\n")
    assert "without a link" in refused(folder)
    (main.parent / "alias").symlink_to(main)
    linked = main.parent / "one"
    (linked / ".git").write_text(f"gitdir: {main.parent}/alias/.git/worktrees/one\n")
    assert "without a link" in refused(linked)
    (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/one\n")
    (main / ".git/worktrees/one/gitdir").unlink()
    (main / ".git/worktrees/one/gitdir").symlink_to(linked / "there")
    (linked / "there").write_text(f"{linked}/.git\n")
    assert "cannot be read" in refused(linked)


def test_a_nested_clone_is_another_repository(main: Path) -> None:
    """A clone in a worktree has its own scope despite the same commits; a folder with an empty `.git` is refused."""
    nested = main / "nested"
    git("clone", "-q", str(main), str(nested), cwd=main)
    assert worktree_folder(str(nested)).scope != worktree_folder(str(main)).scope
    assert worktree_folder(str(nested / "sub")).common == f"{nested}/.git"
    empty = main / "empty"
    (empty / ".git").mkdir(parents=True)
    assert "is not a git folder" in refused(empty)


def test_a_repository_that_was_made_again_is_another(main: Path) -> None:
    """A repository made again at the same path, with the same content and even the same inode, has a new scope."""
    before = worktree_folder(str(main))
    aside = main.parent / "aside"
    shutil.copytree(main / ".git", aside)
    shutil.rmtree(main / ".git")
    aside.rename(main / ".git")
    after = worktree_folder(str(main))
    assert after.common == before.common
    assert after.scope != before.scope
    assert WorktreeFolder(before.common, before.inode, before.born_ns).scope == before.scope
    assert WorktreeFolder(before.common, before.inode, after.born_ns).scope != before.scope


def test_what_is_not_git_s(main: Path) -> None:
    """FIFOs, long files and texts that are no path are refused as `.git`; so is a `commondir` that leads elsewhere."""
    linked = main.parent / "one"
    (main / ".git/commondir").write_text("/elsewhere\n")
    assert "take its configuration from elsewhere" in refused(main)
    (main / ".git/commondir").write_text(".\n")
    worktree_folder(str(main))
    (linked / ".git").unlink()
    os.mkfifo(linked / ".git")
    assert "neither a folder nor a file" in refused(linked)
    (linked / ".git").unlink()
    (linked / ".git").write_text("gitdir: " + "x" * 9000)
    assert "cannot be read" in refused(linked)
    (linked / ".git").write_text("gitdir: a\nb\n")
    assert "does not hold a path" in refused(linked)
