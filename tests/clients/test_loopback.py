"""clients/loopback.py: programs in such a namespace reach loopback and nothing else, and can still be sandboxed."""

import subprocess
from collections.abc import Iterator

import pytest
from clients.loopback import NoNamespace, loopback_only
from real_sandbox import SYSTEM_PYTHON, USERS

TALK = """\
import socket
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname()):
    print("loopback")
try:
    socket.create_connection(("192.0.2.1", 80), 5)
except OSError as problem:
    print(problem.strerror)
"""


@pytest.fixture(params=USERS)
def inside(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Yield the command that runs another command in the namespace, and as the same user."""
    uid = request.param
    try:
        with loopback_only(SYSTEM_PYTHON, uid) as within:
            yield (*(("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups") if uid else ()), *within)
    except NoNamespace as problem:
        pytest.skip(str(problem))


def run(*line: str) -> list[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, cwd="/")
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_loopback_is_all_there_is(inside: tuple[str, ...]) -> None:
    """A server on loopback answers; an address elsewhere is unreachable at once."""
    assert run(*inside, SYSTEM_PYTHON, "-c", TALK) == ["loopback", "Network is unreachable"]


def test_a_sandbox_can_be_built_in_it(inside: tuple[str, ...]) -> None:
    """Bubblewrap, which refuses to run with unexpected capabilities, works in the namespace."""
    assert run(*inside, "bwrap", "--unshare-all", "--share-net", "--ro-bind", "/", "/", "echo", "built") == ["built"]
