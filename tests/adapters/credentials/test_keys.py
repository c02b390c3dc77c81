"""Key files as omac makes them, and keys as Python prints them."""

import os
import stat
from pathlib import Path

import pytest

from omac.adapters.credentials.keys import make_key_file
from omac.adapters.credentials.vault_format import VaultKey
from omac.domain.kernel.refusal import Refusal

KEY = VaultKey(bytes(range(32)))


def refused(path: Path) -> Refusal:
    """Return the refusal to make a key file at a path."""
    with pytest.raises(Refusal) as caught:
        make_key_file(str(path))
    return caught.value


def test_a_new_key_file(tmp_path: Path) -> None:
    """A new key file holds a random key that only its owner can read. An existing file or link is never replaced."""
    path = tmp_path / "key"
    key = make_key_file(str(path))
    assert path.read_text() == key.hex() + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert refused(path).reason == "vault-exists"
    (tmp_path / "link").symlink_to("nowhere")
    assert refused(tmp_path / "link").reason == "vault-exists"
    assert refused(tmp_path / "absent" / "key").reason == "vault-unusable"
    assert make_key_file(str(tmp_path / "key2")) != key
    assert sorted(os.listdir(tmp_path)) == ["key", "key2", "link"]


def test_a_key_is_shown_to_nobody() -> None:
    """A key prints as <hidden>, however it is formatted. Bytes of a wrong length are no key."""
    assert {repr(KEY), str(KEY), f"{KEY}", f"{KEY!r:>3}"} == {"<hidden>"}
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        VaultKey(b"abc")
