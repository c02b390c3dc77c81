import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from polling import file_times_pass
from programs import program_at

from omac.adapters.skills import verifying
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.adapters.skills.stat_fingerprint import file_system_now_ns
from omac.adapters.skills.tree import BundleReader
from omac.services.ports import CopyDamaged


@pytest.fixture
async def copy(source: Path, frozen: DiskFrozenSkills) -> Path:
    """Return a copy that was verified and whose fingerprint is trusted."""
    program_at(source / "tool", f"#!{source}/bin/python\n")
    made = await frozen.freeze(str(source))
    file_times_pass()
    return Path(await frozen.checked(made.digest, str(source)))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the files that are read."""
    names: list[str] = []
    real = BundleReader.read

    def read(self: BundleReader, folder: int, name: str, *others: Any) -> object:
        names.append(name)
        return real(self, folder, name, *others)

    monkeypatch.setattr(BundleReader, "read", read)
    return names


async def check(copy: Path, source: Path) -> str:
    return await DiskFrozenSkills(str(copy.parent)).checked(f"sha256:{copy.name}", str(source))


def opened(path: Path) -> Path:
    """Make the folder writable and return it."""
    path.chmod(0o700)
    return path


def rewrite(path: Path, content: bytes) -> None:
    """Put content of the same size into a file, with its times and its mode as before."""
    status = path.stat()
    path.chmod(0o600)
    path.write_bytes(content.ljust(status.st_size)[: status.st_size])
    path.chmod(stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def relink(path: Path, target: str) -> None:
    """Replace a file, a link or an empty folder by a link."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
    path.symlink_to(target)


def replace_by_fifo(path: Path) -> None:
    """Replace a file by a FIFO."""
    path.unlink()
    os.mkfifo(path)


def close_all(path: Path) -> None:
    for folder in [path, *(entry for entry in path.rglob("*") if entry.is_dir() and not entry.is_symlink())]:
        folder.chmod(0o500)


EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "content": (lambda path: rewrite(path / "lib" / "code.py", b"print('evil')\n"), "lib/code.py changed"),
    "writable": (lambda path: (path / "run").chmod(0o700), "run has the mode 0700"),
    "world": (lambda path: (path / "SKILL.md").chmod(0o444), "SKILL.md has the mode 0444"),
    "set-uid": (lambda path: (path / "run").chmod(0o4500), "run has the mode 4500"),
    "executable": (lambda path: (path / "SKILL.md").chmod(0o500), "SKILL.md changed"),
    "not executable": (lambda path: (path / "run").chmod(0o400), "run changed"),
    "unreadable": (lambda path: (path / "run").chmod(0), "run has the mode 0000"),
    "folder": (lambda path: (path / "lib").chmod(0o700), "lib has the mode 0700"),
    "top": (lambda path: path.chmod(0o700), " has the mode 0700"),
    "added": (lambda path: shutil.copy(path / "run", path / "lib" / "new"), "lib/new was added"),
    "added folder": (lambda path: (path / "lib" / "new").mkdir(), "lib/new was added"),
    "cache": (lambda path: (path / "lib" / "__pycache__").mkdir(), "lib/__pycache__ was added"),
    "added fifo": (lambda path: os.mkfifo(path / "lib" / "new"), "lib/new was added, and is not a regular file"),
    "removed": (lambda path: (path / "lib" / "code.py").unlink(), "lib/code.py is gone"),
    "removed folder": (lambda path: (path / "empty").rmdir(), "empty is gone"),
    "renamed": (lambda path: (path / "omac.yaml").rename(path / "omac2.yaml"), "omac.yaml is gone"),
    "link": (lambda path: relink(path / "link", "run"), "link changed"),
    "file to link": (lambda path: relink(path / "run", "/bin/sh"), "run changed"),
    "folder to link": (lambda path: relink(path / "empty", "/etc"), "empty changed"),
}


@pytest.mark.parametrize(("edit", "said"), EDITS.values(), ids=EDITS.keys())
async def test_every_edit_is_found(copy: Path, source: Path, edit: Callable[[Path], object], said: str) -> None:
    """Every check finds the edit and names the changed file; freezing the same skill again repairs the copy."""
    if "mode" not in said:
        for folder in (copy, copy / "lib"):
            folder.chmod(0o700)
    edit(copy)
    if "mode" not in said:
        close_all(copy)
    for _ in range(2):
        with pytest.raises(CopyDamaged) as caught:
            await check(copy, source)
        assert f"{copy}{'' if said.startswith(' ') else '/'}{said}" in str(caught.value)
        assert str(caught.value).isprintable()
    frozen = DiskFrozenSkills(str(copy.parent))
    assert (await frozen.freeze(str(source))).digest == f"sha256:{copy.name}"
    assert await check(copy, source) == str(copy)
    assert sorted(os.listdir(copy.parent)) == sorted([".lock", copy.name, f"{copy.name}.stat"])


async def test_a_copy_that_runs_the_live_skill_again(copy: Path, source: Path) -> None:
    """A copy that mentions the skill's folder is refused, although its digest is over the skill's own text."""
    tool = opened(copy) / "tool"
    tool.chmod(0o600)
    tool.write_text(f"#!{source}/bin/python\n")
    tool.chmod(0o500)
    close_all(copy)
    with pytest.raises(CopyDamaged, match="tool mentions the folder that it was copied from"):
        await check(copy, source)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("relpath", ["", "run", "lib", "link"])
async def test_what_belongs_to_others(copy: Path, source: Path, relpath: str) -> None:
    """A copy with a file of another user is refused, as that user could change it."""
    os.chown(copy / relpath, 1, -1, follow_symlinks=False)
    with pytest.raises(CopyDamaged, match="belongs to user 1"):
        await check(copy, source)


@pytest.mark.parametrize("kind", ["gone", "link", "file", "dangling"])
async def test_no_copy(copy: Path, source: Path, kind: str) -> None:
    """A missing copy, a file, or a link even to the copy itself does not count as a copy."""
    moved = copy.with_name("moved")
    copy.rename(moved)
    if kind == "file":
        copy.touch()
    elif kind != "gone":
        copy.symlink_to(moved if kind == "link" else "nowhere")
    with pytest.raises(CopyDamaged, match=f"^the approved copy {copy} cannot be read: {copy}: "):
        await check(copy, source)


@pytest.mark.parametrize("digest", ["", "sha256:", "x" * 64, "sha256:../../etc", "sha256:" + "A" * 64, "\x1b[2J"])
async def test_no_digest(frozen: DiskFrozenSkills, digest: str) -> None:
    """Only a digest leads to a copy; any other text is refused in printable words."""
    with pytest.raises(CopyDamaged) as caught:
        await frozen.checked(digest, "/x")
    assert str(caught.value).isprintable()


async def test_an_unchanged_copy_is_not_read_again(copy: Path, source: Path, reads: list[str]) -> None:
    """The fingerprint of an unchanged copy is enough, for any process; its files are not read again."""
    reads.clear()
    for _ in range(3):
        assert await check(copy, source) == str(copy)
    assert reads == []


async def test_a_new_copy_is_read_once_more(
    source: Path, frozen: DiskFrozenSkills, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes within one tick of the clock have the same times, so a fingerprint that is too fresh is not trusted."""
    with monkeypatch.context() as patch:
        begun_ns = file_system_now_ns()
        patch.setattr(verifying, "file_system_now_ns", lambda: begun_ns)  # a copy takes no time
        made = await frozen.freeze(str(source))
    file_times_pass()
    reads.clear()
    for _ in range(3):
        await frozen.checked(made.digest, str(source))
    assert len(reads) == len(set(reads)) > 0


def other_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "boot_id", lambda: "another")


@pytest.mark.parametrize(
    "forget",
    [
        lambda stat_file, _patch: stat_file.unlink(),
        lambda stat_file, _patch: stat_file.write_bytes(b"\xff"),
        lambda stat_file, _patch: stat_file.write_bytes(b""),
        lambda stat_file, _patch: stat_file.chmod(0o666),
        lambda stat_file, _patch: stat_file.symlink_to(stat_file.rename(stat_file.with_suffix(".y"))),
        lambda stat_file, _patch: replace_by_fifo(stat_file),
        lambda _stat_file, patch: other_boot(patch),
    ],
    ids=["gone", "garbage", "empty", "writable", "link", "fifo", "boot"],
)
async def test_without_a_memory_it_is_read(
    copy: Path,
    source: Path,
    reads: list[str],
    monkeypatch: pytest.MonkeyPatch,
    forget: Callable[[Path, pytest.MonkeyPatch], object],
) -> None:
    """A manifest counts only in the same boot and from a file of omac's own; otherwise the copy is read, once."""
    reads.clear()
    forget(Path(verifying.manifest_path(str(copy))), monkeypatch)
    for _ in range(3):
        assert await check(copy, source) == str(copy)
    assert sorted(reads) == ["SKILL.md", "code.py", "omac.yaml", "run", "tool"]


async def test_the_same_bytes_in_another_file(copy: Path, source: Path, reads: list[str]) -> None:
    """A file replaced by one with the same bytes is read, accepted, and remembered."""
    run = opened(copy) / "run"
    shutil.copy2(run, copy / "again")
    (copy / "again").rename(run)
    close_all(copy)
    file_times_pass()
    await check(copy, source)
    assert reads
    reads.clear()
    await check(copy, source)
    assert reads == []


async def test_without_a_memory_damage_has_no_name(copy: Path, source: Path) -> None:
    """A damaged copy without its manifest is refused as well, without the name of a file."""
    Path(verifying.manifest_path(str(copy))).unlink()
    rewrite(copy / "run", b"#!/bin/sh\necho evil\n")
    with pytest.raises(CopyDamaged, match=f"{copy} holds something other than what was approved"):
        await check(copy, source)


async def test_another_source(copy: Path, source: Path) -> None:
    """A copy is valid only for the folder it was made of; a manifest for one folder proves nothing for another."""
    with pytest.raises(CopyDamaged):
        await check(copy, source.with_name("other"))
    assert await check(copy, source) == str(copy)


async def test_a_thousand_files_are_checked_quickly(tmp_path: Path, frozen: DiskFrozenSkills) -> None:
    """Checks of unchanged copies and folders take milliseconds and hold up no start of a sidecar."""
    source = tmp_path / "large"
    for number in range(1000):
        path = source / f"d{number % 20}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    folders = DiskSkillFolders()
    made = await frozen.freeze(str(source))
    file_times_pass()
    took = []
    for _ in range(8):
        started = time.process_time()  # whatever else the machine does meanwhile
        await frozen.checked(made.digest, str(source))
        between = time.process_time()
        await folders.digest(str(source))
        took.append((between - started, time.process_time() - between))
    assert min(check for check, _ in took) < 0.05  # about 4 ms
    assert min(digest for _, digest in took) < 0.05
