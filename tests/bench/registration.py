"""The cost of trust: hashing a skill, checking its approved copy before a start, reading its secrets from a keyring.

Each has a peer on the same files, or the same keyring, in the same run, taken in turn.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import keyring.backends.SecretService
import trio
from bench.report import Figure, median, publish
from keyring.backend import KeyringBackend
from real_keyring import private_keyring

from omac.adapters.credentials.stores import SecretStores
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.kernel.hidden import Hidden

FILES = 1_000
TOTAL_BYTES = 50 * 1024 * 1024
FOLDERS = 20
ROUNDS = 11
SECRETS = 10
SERVICE = "omac/bench"


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    folder = Path(tempfile.mkdtemp(prefix="obr", dir="/tmp"))
    try:
        source = folder / "skill"
        write_tree(source)
        return publish("registration", [hashing(source), *checking(folder, source), reading(folder / "keyring")])
    finally:
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder)


def secret_service() -> KeyringBackend:
    """Return the backend of the library, whose class has no types."""
    made: type[KeyringBackend] = keyring.backends.SecretService.Keyring
    return made()


def write_tree(source: Path) -> None:
    """Write 1,000 files, 50 MiB, with the same bytes in every run."""
    noise = random.Random(1)
    for number in range(FILES):
        path = source / f"part{number % FOLDERS}" / f"file{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise.randbytes(TOTAL_BYTES // FILES))
    (source / "omac.yaml").write_text("name: bench\n")


def in_turn(*calls: Callable[[], object]) -> list[list[float]]:
    """Return the milliseconds of each call, taken in turn; the first round warms up and is not counted."""
    samples: list[list[float]] = [[] for _ in calls]
    for number in range(ROUNDS + 1):
        for call, times in zip(calls, samples, strict=True):
            began = time.perf_counter()
            call()
            if number:
                times.append((time.perf_counter() - began) * 1000)
    return samples


def hashing(source: Path) -> Figure:
    """Compare the bundle hash with sha256sum over the same files."""
    names = [str(path) for path in sorted(source.rglob("*")) if path.is_file()]
    folders = DiskSkillFolders()
    ours, peer = in_turn(
        lambda: trio.run(folders.bundle_hash, str(source)),
        lambda: subprocess.run(["sha256sum", *names], stdout=subprocess.DEVNULL, check=True),
    )
    ratio = median([a / b for a, b in zip(ours, peer, strict=True)])
    return Figure(
        "bundle hash, 1,000 files, 50 MiB", f"{median(ours):.1f} ms", f"{median(peer):.1f} ms (sha256sum)",
        f"{ratio:.2f}x", "<= 0.8x", ratio <= 0.8,
    )  # fmt: skip


def checking(folder: Path, source: Path) -> list[Figure]:
    """Measure the check before each start of an unchanged copy; a whole rehash, as after boot, is its peer."""
    frozen = DiskFrozenSkills(str(folder / "frozen"))

    async def measure() -> tuple[list[float], list[float]]:
        copy = await frozen.freeze(str(source))
        fast, whole = [], []
        for _ in range(ROUNDS + 1):
            began = time.perf_counter()
            await frozen.checked(copy.digest, str(source))
            fast.append((time.perf_counter() - began) * 1000)
            for manifest in (folder / "frozen").glob("*.stat"):
                manifest.unlink()
            began = time.perf_counter()
            await frozen.checked(copy.digest, str(source))
            whole.append((time.perf_counter() - began) * 1000)
        return fast[1:], whole[1:]

    fast, whole = trio.run(measure)
    return [
        Figure(
            "check before a start, 1,000 files", f"{median(fast):.1f} ms", f"{median(whole):.1f} ms (whole rehash)",
            f"{median(fast) / median(whole):.2f}x", "< 10 ms", median(fast) < 10,
        )
    ]  # fmt: skip


def reading(folder: Path) -> Figure:
    """Compare ten secrets of one skill with a single get, both from a real Secret Service."""
    folder.mkdir()
    with private_keyring(folder) as session:
        stores = SecretStores(str(folder), session, "keychain")
        names = [f"SECRET_{number}" for number in range(SECRETS)]
        values = {name: Hidden(f"value of {name}") for name in names}
        trio.run(stores.write, "keychain", SERVICE, values)
        backend = secret_service()

        def read_ten() -> None:
            assert trio.run(stores.read, "keychain", SERVICE, names) == values

        def get_one() -> None:
            assert backend.get_password(SERVICE, names[0]) == values[names[0]].reveal()

        with environ(session):
            ten, single = in_turn(read_ten, get_one)
    ratio = median([a / b for a, b in zip(ten, single, strict=True)])
    return Figure(
        "ten secrets from a keyring", f"{median(ten):.1f} ms", f"{median(single):.1f} ms (one get)", f"{ratio:.2f}x",
        "<= 3x", ratio <= 3,
    )  # fmt: skip


@contextmanager
def environ(variables: Mapping[str, str]) -> Iterator[None]:
    """Add these variables to this process's own environment, which the peer reads."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
