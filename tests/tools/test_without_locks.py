"""A state directory on a file system without locks, as one of a network may be."""

import errno
import fcntl

import pytest
from real_omac import Omac
from started import BARE


def test_the_file_system_is_blamed(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands report the file system, and propose a place with locks; none fails as a defect of omac."""
    assert omac.run(*BARE, "--workdir", str(omac.project("shop")), "--", "true").status == 0
    (run,) = (omac.state / "run").iterdir()
    (run / "lock").touch()
    (omac.state / "run" / "current").symlink_to(run)  # as a server leaves it that was killed

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for command in ("status", "audit", "doctor"):
        done = omac.run(command)
        assert (done.status, done.out) == (5, ""), done
        assert f"omac: the file system of {omac.state}" in done.err
        assert " has no locks, " in done.err
        assert "  try: export OMAC_STATE_DIR=PATH  # on a disk of this machine\n" in done.err


@pytest.mark.parametrize(
    "words",
    ["key rotate", "erase . --yes", "checkpoint", "journal seal", "export --out e", "config set echo ECHO_GREETING y"],
)
def test_commands_that_take_turns(omac: Omac, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A command that others must not do meanwhile reports the file system, too."""
    project = omac.approved("shop")

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    done = omac.run(*words.split(), cwd=project)
    assert (done.status, f"omac: the file system of {omac.state}" in done.err) == (5, True), done
    assert "  try: export OMAC_STATE_DIR=PATH  # on a disk of this machine\n" in done.err
