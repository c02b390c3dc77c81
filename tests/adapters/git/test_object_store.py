"""adapters/git/object_store.py: a blob is found where git has it, loose or packed, by either hash."""

from pathlib import Path

import pytest
from adapters.git.boxed import host

from omac.adapters.git.object_store import holds

CONTENTS = [f"PASSWORD={number}\n" for number in range(40)]


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("hashed", ["sha1", "sha256"])
def test_what_git_has_is_found(tmp_path: Path, hashed: str, packed: bool) -> None:
    """The store finds every committed content, loose or packed, and no other."""
    where = tmp_path / "repo"
    host("git", "init", "-q", f"--object-format={hashed}", str(where), cwd=tmp_path, home=tmp_path)
    for number, content in enumerate(CONTENTS):
        (where / f"f{number}").write_text(content)
    host("git", "add", "-A", cwd=where, home=tmp_path)
    host("git", "commit", "-q", "-m", "x", cwd=where, home=tmp_path)
    host("git", "config", "branch.sha256.remote", ".", cwd=where, home=tmp_path)  # a name, and not the format
    if packed:
        host("git", "repack", "-adq", cwd=where, home=tmp_path)
    assert all(holds(f"{where}/.git", content.encode()) for content in CONTENTS)
    assert not any(holds(f"{where}/.git", content.encode() + b"x") for content in CONTENTS)


@pytest.mark.parametrize("index", [b"", b"\xfftOc\0\0\0\2", b"\xfftOc\0\0\0\2" + b"\xff" * 1024, b"PACK" * 400])
def test_an_index_that_is_none(tmp_path: Path, index: bytes) -> None:
    """An index of a pack that is damaged, or counts more than it has, holds nothing."""
    pack = tmp_path / ".git" / "objects" / "pack"
    pack.mkdir(parents=True)
    (pack / "pack-x.idx").write_bytes(index)
    assert not holds(f"{tmp_path}/.git", b"PASSWORD=1\n")
