"""adapters/sandbox/mounted.py: a mount that differs from the policy is noticed before anything runs."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_sandbox import USERS

from omac.adapters.sandbox import mounted
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, READ, WRITE, Entry, Policy

STRANGE = "a b\\n\tc\r\v\x1c\u2028d"  # the kernel escapes some of these


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Create a project of a user's, with a file to be pinned and one to be hidden."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.is_relative_to(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(0o755)
    for name in ("sub/pinned", "sub/hidden", f"{STRANGE}/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, request.param, request.param)
    return tmp_path


@contextmanager
def built(project: Path, *options: str) -> Iterator[int]:
    """Yield the pid of a process in a sandbox of bubblewrap's, of the project's owner."""
    uid = project.stat().st_uid
    line = ["bwrap", "--unshare-user", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64"]
    line += ["--symlink", "usr/lib", "/lib", "--bind", str(project), str(project), *options]
    line += ["--", "/usr/bin/python3", "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=uid or None, group=uid or None
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        process.communicate(b"\n")


def wanted(project: Path, *more: Entry) -> mounted.Expected:
    """Return the mounts expected for a writable project with the entries `more`."""
    return mounted.expected(Policy(str(project), (Entry(str(project), WRITE, ""), *more), {}))


def test_as_it_was_meant(project: Path) -> None:
    """The check accepts a pin mounted onto itself, a mask, and a path with what mountinfo escapes and what ends
    lines elsewhere."""
    pinned, hidden, strange = (str(project / name) for name in ("sub/pinned", "sub/hidden", STRANGE))
    options = ("--ro-bind", pinned, pinned, "--ro-bind", "/usr/bin/true", hidden, "--ro-bind", strange, strange)
    expected = wanted(project, Entry(pinned, READ, ""), Entry(hidden, DENY, ""), Entry(strange, READ, ""))
    with built(project, *options) as pid:
        mounted.check(pid, expected)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((), "the expected mount is missing"),
        (("--bind", "sub/pinned", "sub/pinned"), "it can be changed"),
        (("--ro-bind", "sub/hidden", "sub/pinned"), "another file is there"),
        (("--ro-bind", "sub/pinned", "sub/pinned", "--bind", "sub", "sub"), "the expected mount is missing"),
    ],
    ids=["not at all", "for writing", "another file", "covered"],
)
def test_a_pin_that_is_none(project: Path, options: tuple[str, ...], what: str) -> None:
    """A pinned file that could be changed is refused: its mount is missing, writable, covered or of another file."""
    line = [word if word.startswith("--") else str(project / word) for word in options]
    expected = wanted(project, Entry(str(project / "sub/pinned"), READ, ""))
    with built(project, *line) as pid, pytest.raises(Refusal, match=what) as caught:
        mounted.check(pid, expected)
    assert caught.value.reason == "path-changed"


def test_a_mask_that_is_none(project: Path) -> None:
    """A sandbox in which a file that should be hidden is visible is refused."""
    expected = wanted(project, Entry(str(project / "sub/hidden"), DENY, ""))
    with built(project) as pid, pytest.raises(Refusal, match="the expected mount is missing"):
        mounted.check(pid, expected)


def test_another_spelling_of_what_is_kept(project: Path) -> None:
    """A name in other letters that leads past a mount is refused; one that is itself kept, or another file, is not."""
    pinned, other = str(project / "sub/pinned"), str(project / "sub/PINNED")
    options = ("--ro-bind", pinned, pinned)
    Path(other).write_text("another file")
    with built(project, *options) as pid:
        mounted.check(pid, wanted(project, Entry(pinned, READ, "")))
    Path(other).unlink()
    Path(other).hardlink_to(pinned)
    expected = wanted(project, Entry(pinned, READ, ""))
    with built(project, *options) as pid, pytest.raises(Refusal, match=f"reaches it as {other}") as caught:
        mounted.check(pid, expected)
    assert caught.value.reason == "sandbox-inexpressible"
    with built(project, *options, "--ro-bind", other, other) as pid:
        mounted.check(pid, wanted(project, Entry(pinned, READ, ""), Entry(other, READ, "")))


def test_a_link_above_what_is_mounted(project: Path) -> None:
    """A link above a pinned file is refused, although the folder that it leads to holds that file."""
    entry = Entry(str(project / "sub/pinned"), READ, "")
    expected = wanted(project, entry)
    (project / "sub").rename(project / "aside")
    (project / "sub").symlink_to("aside")
    pinned = str(project / "aside/pinned")
    with pytest.raises(Refusal, match="a symbolic link is in its path"):
        wanted(project, entry)
    with (
        built(project, "--ro-bind", pinned, pinned) as pid,
        pytest.raises(Refusal, match="a symbolic link is in its path"),
    ):
        mounted.check(pid, expected)
