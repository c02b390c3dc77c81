"""A disk that takes the change of a file and fails to confirm it: the change is recorded, and reported, as made."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import valued_skill
from real_omac import Done, Omac
from valued_skill import typed

from omac.domain.access.signing import KeyRotated
from omac.domain.harness.installation import BridgeChanged
from omac.domain.settings.setting import SettingChanged

PASSPHRASES = ("korrekt-pferd-9", "another-pferd-9")
FAILING = """
import os, sys
folder, flush = sys.argv.pop(1), os.fsync
def failing(descriptor):
    if os.path.samefile(descriptor, folder):
        raise OSError(5, "Input/output error")
    flush(descriptor)
os.fsync = failing
from omac.tools.entry import main
main()
"""


@contextmanager
def failing_flush(folder: Path, unless: str = "") -> Iterator[None]:
    """Have each flush of a folder fail, but while a file `unless` is in it."""
    flush = os.fsync

    def failing(descriptor: int) -> None:
        held_back = unless and (folder / unless).exists()
        if os.path.samestat(os.fstat(descriptor), folder.stat()) and not held_back:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(descriptor)

    with mock.patch("os.fsync", failing):
        yield


def require_reported(done: Done, status: int, path: Path) -> None:
    """Check that a change is reported as made, with the command that flushes it."""
    assert done.status == status, done
    assert f"{path} is made, but its disk did not confirm it (Input/output error)" in " ".join(done.err.split())
    assert f"  try: sync {path.parent}" in done.err


def test_a_setting(omac: Omac) -> None:
    """A setting that the file has is recorded as changed, and set already for the next command."""
    path = Path(omac.environment["XDG_CONFIG_HOME"]) / "omac" / "settings.toml"
    omac.ok("settings", "set", "git.refs", "branch")
    with failing_flush(path.parent):
        done = omac.run("settings", "set", "git.hooks", "read")
    require_reported(done, 5, path)
    assert 'hooks = "read"' in path.read_text()
    assert isinstance(omac.events()[-1].event, SettingChanged)
    assert "already" in omac.ok("settings", "set", "git.hooks", "read")


def test_a_bridge(omac: Omac) -> None:
    """Hooks that are in a file, or out of it, are recorded so."""
    path = Path(omac.environment["HOME"]) / ".claude" / "settings.json"
    path.parent.mkdir(mode=0o700)
    for command, count in (("install", 1), ("uninstall", 2)):
        with failing_flush(path.parent):
            done = omac.run("bridge", command, "claude")
        require_reported(done, 5, path)
        assert path.exists() == (command == "install")
        assert [type(entry.event) for entry in omac.events()][1::2] == [BridgeChanged] * count
    assert "does not call omac" in omac.ok("bridge", "uninstall", "claude")


def test_a_key_file(omac: Omac) -> None:
    """A new key file stays, and the commands that are proposed make the vault under its key."""
    path = omac.folder / "keys" / "vault.key"
    path.parent.mkdir(mode=0o700)
    with failing_flush(path.parent):
        done = omac.run("vault", "init", "--key-file", str(path))
    require_reported(done, 8, path)
    assert f"  try: OMAC_VAULT_KEY_FILE={path} omac vault init" in done.err
    omac.ok("vault", "init", extra={"OMAC_VAULT_KEY_FILE": str(path)})


def test_a_secret(omac: Omac) -> None:
    """A secret whose store did not confirm it is not given, which the message says, with the command that sets it."""
    valued_skill.with_vault(omac)
    where = ("--workdir", str(valued_skill.valued(omac)))
    words = ("secrets", "set", "slack", "TOKEN", *where)
    assert valued_skill.piped(omac, b"door-before", *words).status == 0
    with failing_flush(omac.state):
        done = valued_skill.piped(omac, b"door-later", *words)
    assert (done.status, done.err.startswith("omac: TOKEN: not given to slack: the change of the vault ")) == (8, True)
    assert f"  try: omac secrets set slack TOKEN {' '.join(where)} --harness opencode\n" in done.err
    assert valued_skill.piped(omac, b"door-later", *words).status == 0


def test_a_signing_key(omac: Omac) -> None:
    """A rotation that is recorded and made is reported so, with the key that signs now."""
    omac.approved("shop")
    path = omac.state / "signing.key"
    omac.ok("checkpoint")
    with failing_flush(omac.state, unless="signing.key.next"):
        done = omac.run("key", "rotate")
    require_reported(done, 5, path)
    key = omac.ok("key", "show").splitlines()[0]
    assert f"omac: {key} signs from now on; but then: the change of" in " ".join(done.err.split())
    assert isinstance(omac.events()[-1].event, KeyRotated)


def test_a_backup(omac: Omac) -> None:
    """A backup that is whole, and has its name, is reported so."""
    omac.approved("shop")
    copy = omac.folder / "backups" / "copy.db"
    copy.parent.mkdir()
    with failing_flush(copy.parent, unless="copy.db.unfinished"):
        done = omac.run("journal", "backup", str(copy))
    require_reported(done, 5, copy)
    omac.ok("journal", "check", "--journal", str(copy))


def test_an_export(omac: Omac) -> None:
    """An export that is whole, and in its place, is reported so."""
    omac.ok("settings", "set", "git.refs", "branch")
    folder = omac.folder / "evidence"
    with failing_flush(omac.folder):
        done = omac.run("export", "--out", str(folder))
    require_reported(done, 5, folder)
    omac.ok("export", "verify", str(folder), "--key", omac.ok("key", "show").splitlines()[0])


@pytest.mark.full
def test_a_passphrase(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new passphrase is reported as the one that opens the vault."""
    old, new = (f"{passphrase}\r".encode() for passphrase in PASSPHRASES)
    wanted = ("8 characters or more", "the same again")
    typed(omac, [(question, old) for question in wanted], "vault", "init")
    monkeypatch.setattr(valued_skill, "COMMAND", (sys.executable, "-c", FAILING, str(omac.state)))
    done = typed(omac, [("passphrase (secret", old), *((question, new) for question in wanted)], "vault", "passwd")
    shown = Done(done.status, "", done.out.replace("\r\n", "\n"))
    require_reported(shown, 8, omac.state / "vault")
    assert "changed the passphrase" in shown.err
    monkeypatch.undo()
    assert typed(omac, [("passphrase (secret", old)] * 3, "vault", "passwd").status == 8
    repeated = [("passphrase (secret", new), *((question, old) for question in wanted)]
    assert typed(omac, repeated, "vault", "passwd").status == 0
