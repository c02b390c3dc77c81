"""A real `omac sandbox run` for tests: as root and as an unprivileged user, in a home and a project of its own.

Another user than that of the tests can read neither root's home nor its interpreter, so it runs a copy of the package
with the system's own: the program needs nothing else of omac's.
"""

import atexit
import functools
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import omac

NOBODY = os.geteuid() or 65534  # an unprivileged user: that of the tests, if possible
USERS = (0, NOBODY) if os.geteuid() == 0 else (NOBODY,)
# For tests that take long: root's sandboxes, which differ little, only with --all.
FEWER_USERS = [pytest.param(uid, marks=pytest.mark.full if uid == 0 and len(USERS) > 1 else ()) for uid in USERS]
SYSTEM_PYTHON = "/usr/bin/python3"
_ALONE = itertools.count()  # numbers the users that run nothing else
LAUNCHER = Path(__file__).parents[1] / "src" / "bin" / "omac"
_ENTRY = "from omac.tools.entry import main; main()"


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


class Box:
    """A user's world: `home`, `state` and `workdir` are folders of that user's, `uid` is the user's id."""

    def __init__(self, top: Path, uid: int) -> None:
        self.top = top
        self.uid = uid
        self.home = top / "home"
        self.state = top / "state"
        self.workdir = self.home / "project"
        os.chown(top, uid, uid)
        for folder in (self.home, self.state, self.workdir):
            folder.mkdir(mode=0o700)
            os.chown(folder, uid, uid)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment with which omac and the host's programs start."""
        return {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "OMAC_STATE_DIR": str(self.state),
            "LANG": "C.UTF-8",
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
        }  # fmt: skip

    @property
    def extra_groups(self) -> list[int] | None:
        """Return the further groups of this user's processes; None: those of the tests, which it cannot change."""
        return [] if self.uid != os.geteuid() else None

    def omac(self, *words: str) -> list[str]:
        """Return the argument vector of an omac command of this user's."""
        if self.uid != os.geteuid():
            begin = f"import sys; sys.path.insert(0, {readable_package()!r}); {_ENTRY}"
            return [SYSTEM_PYTHON, "-I", "-c", begin, *words]
        return [sys.executable, "-c", _ENTRY, *words]

    def changed(self, source: str, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        """Return the argument vector of a launch by an omac that this source has changed."""
        line = self.omac("sandbox", "run", "--workdir", str(self.workdir), *options, "--", *command)
        at = line.index("-c") + 1
        line[at] = line[at].replace(_ENTRY, f"exec({source!r}); {_ENTRY}")
        return line

    def run(
        self,
        *command: str,
        options: tuple[str, ...] = (),
        stdin: str | None = None,
        extra: Mapping[str, str] | None = None,
        workdir: Path | None = None,
        seconds: float = 60.0,
    ) -> Done:
        """Run a command in the sandbox. `options` are those of `omac sandbox run`."""
        line = self.omac("sandbox", "run", "--workdir", str(workdir or self.workdir), *options, "--", *command)
        return self.host(*line, stdin=stdin, extra=extra, seconds=seconds)

    def host(
        self,
        *command: str,
        stdin: str | None = None,
        extra: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float = 60.0,
    ) -> Done:
        """Run a command of this user's outside any sandbox."""
        done = subprocess.run(
            command,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd=cwd or self.workdir,
            env=self.environment | dict(extra or {}),
            user=self.uid or None,
            group=self.uid or None,
            extra_groups=self.extra_groups,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def give(self, path: Path, text: str = "", mode: int = 0o600) -> Path:
        """Write a file of this user's, with the folders above it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        for part in (path, *path.parents):
            if part == self.top:
                break
            os.chown(part, self.uid, self.uid)
        return path


def installed(world: Box) -> Path:
    """Return the program `omac` of this user's installation, with its interpreter beside it (`uv tool install`)."""
    top = world.home / "tools" / "omac"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", str(top)], check=True)
    (site,) = top.glob("lib/python3*/site-packages")
    shutil.copytree(Path(readable_package()) / "omac", site / "omac")
    shutil.copy(LAUNCHER, top / "bin" / "omac")
    program = world.home / "bin" / "omac"
    program.parent.mkdir()
    program.symlink_to(top / "bin" / "omac")
    for path in (world.home, *world.home.rglob("*")):
        os.chown(path, world.uid, world.uid, follow_symlinks=False)
    return program


@contextmanager
def box(uid: int = USERS[0]) -> Iterator[Box]:
    """Yield a user's world, below a folder that all users can pass through, and remove it in the end."""
    top = Path(tempfile.mkdtemp(prefix="omac-box-"))
    top.chmod(0o755)
    try:
        yield Box(top, uid)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def user_alone() -> tuple[str, ...]:
    """Return a command that becomes a user who runs nothing else, not even what other tests left behind or run beside
    these: the kernel counts a user's processes, and those that ended until their status is read."""
    uid = str(100_000 + 100 * os.getpid() + next(_ALONE))
    return ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")


@functools.cache
def readable_package() -> str:
    """Return a folder that all users can read, with a copy of the package; one for all tests of a process."""
    top = Path(tempfile.mkdtemp(prefix="omac-package-"))
    top.chmod(0o755)
    source = Path(omac.__file__).parent
    shutil.copytree(source, top / "omac", symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    for path in top.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    subprocess.run([SYSTEM_PYTHON, "-m", "compileall", "-q", str(top)], check=True)
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    return str(top)
