"""adapters/files/signing_keys.py: the file that holds the signing key, or names the store that has it."""

import os
import re
from pathlib import Path

import pytest

from omac.adapters.files.signing_keys import KeptKey, SigningKeys
from omac.adapters.files.state import StateDir
from omac.domain.kernel.refusal import Refusal

KEY = KeptKey("file", b"k" * 32, "")
NEXT = KeptKey("vault", b"", "omac/host1+00000000+AQ==")


@pytest.fixture
def keys(tmp_path: Path) -> SigningKeys:
    return StateDir(str(tmp_path)).signing_keys(str(tmp_path / "journal.db"), "new")


def test_a_key_gives_way_to_the_next(keys: SigningKeys) -> None:
    """The current and the next key are private and read as they were stored; the next one replaces the current one."""
    assert (keys.current(), keys.waiting()) == (None, None)
    keys.keep(KEY)
    keys.keep_waiting(NEXT)
    assert (keys.current(), keys.waiting()) == (KEY, NEXT)
    assert os.stat(keys.path).st_mode & 0o777 == os.stat(keys.path + ".next").st_mode & 0o777 == 0o600
    keys.adopt_waiting()
    assert (keys.current(), keys.waiting(), keys.shared()) == (NEXT, None, NEXT)


def test_each_journal_has_its_own(tmp_path: Path) -> None:
    """A journal elsewhere has its own key, by its id; the shared key is that of the state directory's journal."""
    state = StateDir(str(tmp_path))
    state.signing_keys(str(tmp_path / "journal.db"), "a" * 32).keep(KEY)
    elsewhere = state.signing_keys("/elsewhere/journal.db", "b" * 32)
    assert (elsewhere.current(), elsewhere.shared()) == (None, KEY)
    assert elsewhere.path == str(tmp_path / f"signing-{'b' * 12}.key")


@pytest.mark.parametrize("content", ["", "ab", "zz" * 32, "attic omac/host1+00000000+AQ==", "\0" * 9_000])
def test_what_is_no_key(keys: SigningKeys, content: str) -> None:
    """A file that holds no key is refused by name, and stays as it is."""
    Path(keys.path).write_text(content)
    with pytest.raises(Refusal, match=f"^{re.escape(keys.path)} does not hold a key") as refused:
        keys.current()
    assert refused.value.reason == "state-unusable"
    assert Path(keys.path).read_text() == content


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_link_is_not_followed(keys: SigningKeys, tmp_path: Path, kind: str) -> None:
    """A link in place of a key is refused by name, so that omac does not sign with a file elsewhere; so is a folder."""
    if kind == "link":
        (tmp_path / "mine").write_text("ab" * 32)
        os.symlink(tmp_path / "mine", keys.path)
    else:
        os.mkdir(keys.path)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(Refusal, match=re.escape(keys.path)):
        keys.current()
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_pipe_is_not_waited_for(keys: SigningKeys) -> None:
    """A pipe in place of a key is refused, and not read, for it may never be written to."""
    os.mkfifo(keys.path)
    with pytest.raises(Refusal, match="does not hold a key"):
        keys.current()


def test_one_at_a_time(keys: SigningKeys) -> None:
    """A second change of keys waits for its turn up to a bound, and is then refused."""
    with keys.turn(), pytest.raises(Refusal, match=r"has been changing") as refused, keys.turn(0.05):
        pass
    assert refused.value.reason == "contention"
    with keys.turn():
        pass
