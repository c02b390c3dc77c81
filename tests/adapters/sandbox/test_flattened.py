"""A policy without mounts: it shows no more than the same policy with mounts, and copies of files have a place."""

from pathlib import Path

import pytest

from omac.adapters.sandbox.flattened import flattened
from omac.adapters.sandbox.landlock_only import refusals
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, Entry, Policy, governing, ordered


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Create `system` with a secret two folders down, `home`, `work` and an empty `temporary`; return their parent."""
    for name in ("system/deep", "home", "work", "temporary"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("system/open", "system/deep/secret", "system/deep/beside"):
        (tmp_path / name).write_text(name)
    return tmp_path


def policy(places: Path, *more: Entry, **environment: str) -> Policy:
    """Return a policy with system, home and work as a sandbox has them."""
    entries = [
        Entry(f"{places}/system", READ, "s"),
        Entry(f"{places}/system/deep/secret", DENY, "d"),
        Entry(f"{places}/home", PRIVATE, "h"),
        Entry(f"{places}/work", WRITE, "w"),
        Entry(f"{places}/link", LINK, "l", target="system"),
        *more,
    ]
    return Policy(f"{places}/work", ordered(entries), {"HOME": f"{places}/home", **environment})


def test_what_is_denied_is_left_out(places: Path) -> None:
    """A denied file has no entry; files beside it get entries of their own, because Landlock's rules only allow."""
    flat = flattened(policy(places), f"{places}/temporary")
    assert refusals(flat) == []
    assert governing(flat.entries, f"{places}/system/deep/secret") is None
    for path in ("system/open", "system/deep/beside"):
        entry = governing(flat.entries, f"{places}/{path}")
        assert entry is not None
        assert entry.access == READ


def test_what_cannot_be_said_is_refused(places: Path) -> None:
    """A denied or pinned file in a writable folder stays in the policy, for the backend to refuse."""
    for access in (DENY, READ):
        (places / "work" / "kept").write_text("")
        flat = flattened(policy(places, Entry(f"{places}/work/kept", access, "k")), f"{places}/temporary")
        assert len(refusals(flat)) == 1


def test_copies_lie_where_they_are_looked_for(places: Path) -> None:
    """Copies of files move below the temporary folder, the new home; variables and files name their new paths."""
    main = Entry(f"{places}/home/.gitconfig", COPY, "c", content=f"[include]\npath = {places}/run/more\n".encode())
    more = Entry(f"{places}/run/more", COPY, "c", content=b"[user]\n")
    flat = flattened(policy(places, main, more, TOKEN=f"{places}/run/more"), f"{places}/temporary")
    assert flat.environment["HOME"] == flat.environment["TMPDIR"] == f"{places}/temporary"
    moved = flat.environment["TOKEN"]
    assert Path(moved).read_bytes() == b"[user]\n"
    assert (places / "temporary" / ".gitconfig").read_text() == f"[include]\npath = {moved}\n"


def test_variables_follow_and_sockets_are_left_out(places: Path) -> None:
    """A variable for a path in a private folder leads below the temporary one; a variable for a socket is dropped."""
    socket = Entry("/run/omac/facade.sock", WRITE, "s", source=f"{places}/system/open")
    flat = flattened(
        policy(places, socket, CACHE=f"{places}/home/cache", SOCKET="/run/omac/facade.sock", WORD="x"),
        f"{places}/temporary",
    )
    assert flat.environment["CACHE"] == f"{places}/temporary{places}/home/cache"
    assert "SOCKET" not in flat.environment
    assert flat.environment["WORD"] == "x"
    assert refusals(flat) == []
