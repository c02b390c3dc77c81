"""domain/git/refspecs.py: the refs that a remote set in the sandbox may write, compared with the git of this
machine."""

import subprocess
from pathlib import Path

import pytest

from omac.domain.git.refspecs import may_fetch, may_push, of_mirrors

FETCHED = (
    "+refs/heads/*:refs/remotes/up/*", "refs/heads/main:refs/remotes/up/main", "+refs/tags/*:refs/tags/*",
    "^refs/heads/x*",
    "+refs/pull/*/head:refs/remotes/up/pr/*", "HEAD", "HEAD:refs/remotes/up/HEAD", "refs/heads/main",
)  # fmt: skip
NOT_FETCHED = (
    "+refs/x/*:refs/replace/*", "+refs/*:refs/*", "+refs/heads/*:refs/heads/*", "+refs/heads/*:refs/remotes/origin/*",
    "+refs/heads/*:refs/remotes/up", "+refs/heads/*:replace/*", "refs/x:heads/main", "refs/x:main",
    "refs/heads/x:refs/tags/x",
    "refs/heads/*:refs/remotes/up/main", "refs/heads/*", "", ":", "x:", ":refs/remotes/up/x", "a b",
    "a:refs/remotes/up/x:y",
    "+refs/heads/*:refs/remotes/up/../../replace/*", "+refs/*/*:refs/remotes/up/*/*", "^refs/x:refs/remotes/up/x",
)  # fmt: skip
NOT_READ = {
    "+refs/heads/*:refs/remotes/up", "refs/heads/*:refs/remotes/up/main", "refs/heads/*", "a b",
    "a:refs/remotes/up/x:y", "+refs/heads/*:refs/remotes/up/../../replace/*", "+refs/*/*:refs/remotes/up/*/*",
    "^refs/x:refs/remotes/up/x",
}  # fmt: skip
PUSHED = ("refs/heads/*:refs/heads/*", "HEAD:refs/for/main", "+refs/heads/x", "refs/tags/v1", ":", "HEAD")
NOT_PUSHED = (
    "refs/heads/x:refs/replace/x", "+refs/*:refs/*", "refs/replace/*", "x:replace/y", "replace/x", ":refs/heads/main",
    "refs/heads/*:refs/heads/x", "a b", "",
)  # fmt: skip
NOT_READ_TO_PUSH = {"refs/heads/*:refs/heads/x", "a b", ""}


@pytest.mark.parametrize("value", FETCHED)
def test_a_fetch_writes_what_its_remote_is_named_by(value: str, tmp_path: Path) -> None:
    assert may_fetch("up", value)
    assert _is_read_by_git("fetch", value, tmp_path)


@pytest.mark.parametrize("value", NOT_FETCHED)
def test_it_writes_nothing_else(value: str, tmp_path: Path) -> None:
    """A refspec that names other refs, or no ref of its remote, or that git cannot read, is refused."""
    assert not may_fetch("up", value)
    assert _is_read_by_git("fetch", value, tmp_path) == (value not in NOT_READ)


def test_a_remote_whose_name_means_other_ones() -> None:
    """A remote whose name is a pattern or leads upwards may fetch nothing."""
    assert not may_fetch("*", "refs/heads/x:refs/remotes/*/x")
    assert not may_fetch("..", "refs/heads/x:refs/remotes/../x")
    assert may_fetch("a/b", "+refs/heads/*:refs/remotes/a/b/*")


@pytest.mark.parametrize("value", PUSHED)
def test_a_push_writes_branches_and_tags(value: str, tmp_path: Path) -> None:
    assert may_push(value)
    assert _is_read_by_git("push", value, tmp_path)


@pytest.mark.parametrize("value", NOT_PUSHED)
def test_a_push_writes_nothing_else(value: str, tmp_path: Path) -> None:
    assert not may_push(value)
    assert _is_read_by_git("push", value, tmp_path) == (value not in NOT_READ_TO_PUSH)


def test_a_mirror_has_no_worktree() -> None:
    mirror = [("remote.o.url", "h:x"), ("remote.o.fetch", "+refs/*:refs/*"), ("remote.o.mirror", "true")]
    assert of_mirrors([("core.bare", "true"), *mirror]) == set(mirror[1:])
    assert not of_mirrors([("core.bare", "true"), *mirror[1:]])
    assert not of_mirrors([("core.bare", "true"), *mirror, ("core.bare", "false")])
    assert not of_mirrors([("core.bare", "true"), ("core.worktree", ".."), *mirror])


def _is_read_by_git(what: str, value: str, folder: Path) -> bool:
    for words in (("init", "-q"), ("config", "remote.up.url", "x"), ("config", f"remote.up.{what}", value)):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=20)
    return subprocess.run(["git", "remote", "show", "-n", "up"], cwd=folder, check=False, timeout=20).returncode == 0
