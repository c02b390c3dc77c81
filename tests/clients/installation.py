"""Clients installed by npm, once for all runs: `~/.cache/omac-test-clients/NAME-VERSION/node_modules/.bin/NAME`.

A client is installed in a folder of its own, tried, and renamed to its final path, so that a client there is whole.
"""

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.registry import Client

INSTALL_WITHIN_S = 100
REASON_MAX = 300  # characters of what npm said; the cause comes first
NPM = (
    "npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel", "error", "--fetch-retries", "1",
    "--fetch-retry-mintimeout", "500", "--fetch-timeout", "30000",
)  # fmt: skip


class NotInstalled(Exception):
    """A client that cannot be installed; the text names it, and the reason."""


def cache() -> Path:
    """Return the folder of all installed clients."""
    above = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(above) if os.path.isabs(above) else Path.home() / ".cache") / "omac-test-clients"


@functools.cache
def installed(client: Client) -> Path:
    """Return the folder with the client's program, and install it where it is missing. Raises NotInstalled."""
    program = _program(cache() / f"{client.name}-{client.version}", client)
    if not program.exists():
        outcome = _failure(client)
        if outcome:
            raise NotInstalled(f"{client.wanted} cannot be installed: {outcome}")
    return program.parent


@functools.cache
def _failure(client: Client) -> str:
    """Install a client; return why that failed, or an empty text. Cached: npm waits long for an absent registry."""
    folder = cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f"{client.name}.lock"):
            _install(client, folder)
    except subprocess.TimeoutExpired:
        return f"npm took longer than {INSTALL_WITHIN_S} s"
    except subprocess.CalledProcessError as problem:
        message = (problem.stderr.strip() or problem.stdout.strip()).replace("npm error ", "")
        return " ".join(message.split())[:REASON_MAX] or f"exit status {problem.returncode}"
    except OSError as problem:
        return str(problem)
    return ""


def _install(client: Client, folder: Path) -> None:
    target = folder / f"{client.name}-{client.version}"
    if _program(target, client).exists():
        return  # another process was first
    shutil.rmtree(target, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=f".{client.name}-", dir=folder))
    try:
        _run([*NPM, "--prefix", str(new), client.wanted])
        with tempfile.TemporaryDirectory() as home:
            version = _run([str(_program(new, client)), "--version"], home)
        if client.version not in version.split():
            raise OSError(f"its --version is {version.strip()!r}")
        new.chmod(0o755)
        new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _run(line: list[str], home: str | None = None) -> str:
    """Run a command and return its output; `home`: with nothing in its environment but this home and PATH."""
    environment = None if home is None else {"HOME": home, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        line, check=True, capture_output=True, text=True, timeout=INSTALL_WITHIN_S, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout + done.stderr  # pi prints its version there


def _program(folder: Path, client: Client) -> Path:
    return folder / "node_modules" / ".bin" / client.name


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
