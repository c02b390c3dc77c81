"""A project on a file system that takes upper for lower case: no other spelling leads past what omac keeps."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import caseless
import pytest
from real_sandbox import USERS, Box, box

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="only root can mount, by FUSE"),
]


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """Yield a user's world, whose project is on such a file system."""
    with box(request.param) as made:
        os.chown(tmp_path, request.param, request.param)
        line = (sys.executable, "-I", caseless.__file__, str(tmp_path), str(made.workdir))
        with subprocess.Popen(line, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"mounted\n"
            try:
                yield made
            finally:
                subprocess.run(("umount", "-l", str(made.workdir)), check=True)


@pytest.mark.parametrize(("make", "read"), [("echo SECRET > .env", ".ENV"), ("git init -q .", ".git/CONFIG")])
def test_a_file_that_is_kept(world: Box, make: str, read: str) -> None:
    """No program is launched where a mount would hide or pin a file by one spelling alone; the message has both."""
    assert world.host("sh", "-c", make).status == 0
    done = world.run("cat", read)
    assert (done.status, done.out) == (7, "")
    assert f"cannot be kept from the program, which reaches it as {world.workdir}/" in done.err
    assert "takes upper for lower case" in done.err


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("docs", ("head", "OBJECTS", "Refs", "Config")),
        ("docs", ("HEAD", "ob\u200cjects", "ref\u017f", "config")),
        ("docs/.GIT", ("HEAD", "objects", "refs", "config")),
        ("docs/.g\u200cit", ("HEAD", "objects", "refs", "config")),
    ],
)
def test_a_repository(world: Box, folder: str, names: tuple[str, ...]) -> None:
    """The host's git obeys no repository whose parts an agent has spelled otherwise; ordinary files stay."""
    head, objects, refs, config = (f"{folder}/{name}" for name in names)
    where = "docs" if "/" in folder else folder
    core = "[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = .\\nfsmonitor = touch $PWD/mark\\n"
    make = f'mkdir -p {objects} {refs}; echo ref: refs/heads/main > {head}; printf "{core}" > {config}'
    assert world.host("sh", "-c", f"{make}; git -C {where} status").status == 0
    assert (world.workdir / "mark").exists()  # as it would without omac
    (world.workdir / "mark").unlink()
    world.host("rm", "-r", "docs")
    done = world.run("sh", "-c", f"{make}; echo x > docs/Makefile")
    assert done.status == 0, done.err
    world.host("git", "status", cwd=world.workdir / where)
    assert not (world.workdir / "mark").exists()
    assert (world.workdir / "docs/Makefile").exists()
