"""A person's home, a workdir, and processes that use its tool cache."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

Environment = Mapping[str, str]
Holder = Callable[[Path], subprocess.Popen[bytes]]

HOLD = """\
import signal, sys
from omac.adapters.caches.tree import open_cache
cache = open_cache(sys.argv[1], {"HOME": sys.argv[2]})
print("open", flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return an empty home."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def environment(home: Path) -> Environment:
    """Return the environment of omac in that home."""
    return {"HOME": str(home)}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Return the folder of a project."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


@pytest.fixture
def user(home: Path) -> Iterator[Holder]:
    """Yield a function that starts a process which uses the tool cache of a workdir."""
    with ExitStack() as stack:
        yield lambda workdir: stack.enter_context(_using(workdir, home))


@contextmanager
def _using(workdir: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(workdir), str(home)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()
