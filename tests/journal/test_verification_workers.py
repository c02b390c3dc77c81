"""journal/verification_workers.py: several processes find the same as a single one, also when some of them are lost."""

import subprocess
import sys
from pathlib import Path

import pytest
from journal.damage import journal_of
from journal.test_verification import TAMPERED

VERIFY = """
import os, signal, sys
from omac.journal import verification, verification_workers
from omac.journal.verification import verify
verification.PART, verification.PARTS_SHARED_MIN = 2, 1
roots = []
answered = verification_workers.VerificationWorkers.root
def root(self, start):
    roots.append(answered(self, start))
    return roots[-1]
verification_workers.VerificationWorkers.root = root
{sabotage}
for path in sys.argv[1:]:
    alone = verify(path)
    roots.clear()
    assert verify(path, workers=2) == alone, path
    print(len([one for one in roots if one]), len(alone.findings))
try:
    os.waitpid(-1, os.WNOHANG)
    print("a process is left")
except ChildProcessError:
    pass
"""
KILLED = "verification_workers.perfect_root = lambda leaves: os.kill(os.getpid(), signal.SIGKILL)"
FAILING = "verification_workers.Contents = None"
REFUSED = """
import resource, shlex, shutil, tempfile  # all that is loaded later, which another user may not read
user = os.getuid() or 65_534  # root may have any number of processes
folder = tempfile.TemporaryDirectory()
sys.argv[1] = shutil.copy(sys.argv[1], folder.name)
for owned in (folder.name, sys.argv[1]):
    os.chown(owned, user, -1)
os.setuid(user)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
"""


def verified(*paths: Path, sabotage: str = "") -> list[tuple[int, int]]:
    """Return how many parts workers found sound, and how many findings there are, for each journal."""
    line = [sys.executable, "-c", VERIFY.replace("{sabotage}", sabotage), *map(str, paths)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [(int(sound), int(findings)) for sound, findings in map(str.split, done.stdout.splitlines())]


@pytest.mark.full
def test_workers_find_all_tampering(tmp_path: Path) -> None:
    """Workers compare the whole parts and report the findings of a single process in the same words; none is missed."""
    paths = [tmp_path / str(number) / "journal.db" for number in range(len(TAMPERED) + 1)]
    for path in paths:
        journal_of(path)
    for path, (tamper, _, _) in zip(paths[1:], TAMPERED.values(), strict=True):
        tamper(path)
    whole, *tampered = verified(*paths)
    assert whole == (4, 0)
    assert all(findings for _, findings in tampered)


@pytest.mark.parametrize("sabotage", [KILLED, FAILING, REFUSED])
def test_workers_that_are_lost(tmp_path: Path, sabotage: str) -> None:
    """The verifying process does the part of workers that are killed, that fail, and that cannot be had."""
    path = tmp_path / "journal.db"
    journal_of(path)
    ((sound, findings),) = verified(path, sabotage=sabotage)
    assert (sound, findings) == (0, 0)
