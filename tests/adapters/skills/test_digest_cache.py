import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from omac.adapters.skills import digest_cache, discovery, reading, stat_fingerprint, tree, yaml_file
from omac.adapters.skills.code_hash import code_hash_of
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.skills.meta import FoundSkill


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the folders whose files are read, not only inspected; the file system's clock has passed every tick."""
    sources: list[str] = []

    def read(source: str) -> reading.Tree:
        sources.append(source)
        return reading.read_tree(source)

    monkeypatch.setattr(digest_cache, "read_tree", read)
    monkeypatch.setattr(stat_fingerprint, "TICK_NS", -(10**9))
    return sources


async def test_it_is_the_digest_of_a_copy(source: Path, folders: DiskSkillFolders, frozen: DiskFrozenSkills) -> None:
    """The digest of a skill, which a user approves, is that of the copy that would be frozen now."""
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / ".venv" / "bin" / "pip").write_text(f"#!{source}/.venv/bin/python\n")
    (source / "absolute").symlink_to(source / "run")
    assert await folders.digest(str(source)) == (await frozen.freeze(str(source))).digest


def relink(path: Path, target: str) -> None:
    """Replace a link."""
    path.unlink()
    path.symlink_to(target)


def write_venv(path: Path) -> None:
    """Write a virtual environment with a file."""
    path.mkdir()
    (path / "x").touch()


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: (path / "run").write_text("#!/bin/sh\necho evil\n"),
    "executable": lambda path: (path / "run").chmod(0o644),
    "added": lambda path: (path / "lib" / "new").touch(),
    "removed": lambda path: (path / "SKILL.md").unlink(),
    "renamed": lambda path: (path / "SKILL.md").rename(path / "SKILL2.md"),
    "folder": lambda path: (path / "empty").rmdir(),
    "link": lambda path: relink(path / "link", "run"),
    "venv": lambda path: write_venv(path / ".venv"),
    "modules": lambda path: (path / "node_modules").mkdir(),
    "dist": lambda path: (path / "dist").mkdir(),
    "backup": lambda path: (path / "run~").touch(),
    "git file": lambda path: (path / ".git").touch(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_every_change_shows(
    source: Path, folders: DiskSkillFolders, reads: list[str], change: Callable[[Path], object]
) -> None:
    """Every change that a copy would have changes the digest, even outside the bundle hash, and forces a new read."""
    before = await folders.digest(str(source))
    assert await folders.digest(str(source)) == before
    assert len(reads) == 1
    change(source)
    assert await folders.digest(str(source)) != before
    assert len(reads) == 2


@pytest.mark.parametrize("name", [".git", ".hg", ".svn", "__pycache__", "lib/__pycache__"])
async def test_what_no_copy_has(source: Path, folders: DiskSkillFolders, name: str) -> None:
    """Histories and caches of bytecode, which an agent may have planted, are in no copy and not in the digest."""
    before = await folders.digest(str(source))
    (source / name).mkdir()
    (source / name / "code.cpython-311.pyc").write_bytes(b"planted")
    os.mkfifo(source / name / "fifo")
    assert await folders.digest(str(source)) == before


async def test_an_unchanged_folder_is_not_read_again(source: Path, folders: DiskSkillFolders, reads: list[str]) -> None:
    """A second digest of an unchanged folder costs only its fingerprint, and each folder has a memory of its own."""
    shutil.copytree(source, source.with_name("other"), symlinks=True)
    for _ in range(3):
        first = await folders.digest(str(source))
        assert await folders.digest(str(source.with_name("other"))) == first
    assert reads == [str(source), str(source.with_name("other"))]


async def test_a_file_of_this_very_tick_is_read_again(source: Path, folders: DiskSkillFolders) -> None:
    """Contents that change within one tick of the clock have the same times: such a digest is not remembered."""
    for number in range(50):
        with open(source / "run", "r+b") as file:
            file.write(b"#!/bin/sh\necho %04d\n" % number)
        digest = await folders.digest(str(source))
        assert digest == await DiskSkillFolders().digest(str(source))


async def test_memory_is_bounded(
    source: Path, folders: DiskSkillFolders, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full cache forgets the folder that was read first."""
    monkeypatch.setattr(digest_cache, "REMEMBERED_MAX", 1)
    for path in (source, source / "lib", source):
        await folders.digest(str(path))
    assert len(reads) == 3


async def test_an_interpreter_that_leads_elsewhere_counts(
    source: Path, folders: DiskSkillFolders, reads: list[str], monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    """A remembered digest is valid only while the links that lead out of the folder lead to the same targets."""
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / ".venv" / "pyvenv.cfg").touch()
    (source / ".venv" / "bin" / "python").symlink_to(interpreter)
    await folders.digest(str(source))
    await folders.digest(str(source))
    assert len(reads) == 1
    monkeypatch.setattr(digest_cache, "still_leads", lambda *_way: False)
    await folders.digest(str(source))
    assert len(reads) == 2


# what discovery remembers of code


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the folders whose code is read, as in `reads`."""
    sources: list[str] = []

    def read(source: str, known: Mapping[str, bytes]) -> str:
        sources.append(source)
        return code_hash_of(source, known)

    monkeypatch.setattr(digest_cache, "code_hash_of", read)
    monkeypatch.setattr(stat_fingerprint, "TICK_NS", -(10**9))
    return sources


async def found(folders: DiskSkillFolders, source: Path) -> FoundSkill:
    """Return the only skill of its project."""
    (skill,) = await folders.discover(str(source.parents[2]), ("agents",))
    assert skill.problem is None
    return skill


@pytest.fixture
def runs(source: Path) -> Path:
    """Return a skill with a sidecar."""
    (source / "omac.yaml").write_text("name: echo\nsidecar:\n  command: [run]\n")
    return source


async def test_unchanged_code_is_not_read_again(runs: Path, hashed: list[str]) -> None:
    """Unchanged code is read once in its project and once for global skills; the cache holds the hash itself."""
    home = runs.parents[2]
    folders = DiskSkillFolders({"HOME": str(home)})
    expected = await folders.bundle_hash(str(runs))
    for _ in range(3):
        assert (await found(folders, runs)).bundle_hash == expected
    assert len(hashed) == 1
    for _ in range(3):
        assert [skill.bundle_hash for skill in await folders.discover_global(("agents",))] == [expected]
    assert len(hashed) == 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_changed_code_is_found(
    runs: Path, folders: DiskSkillFolders, hashed: list[str], change: Callable[[Path], object]
) -> None:
    """After a change, the hash equals that of a discovery without a cache."""
    await found(folders, runs)
    change(runs)
    assert (await found(folders, runs)).bundle_hash == (await found(DiskSkillFolders(), runs)).bundle_hash


async def test_what_does_not_count_costs_nothing(runs: Path, folders: DiskSkillFolders, hashed: list[str]) -> None:
    """A sidecar that writes caches, or files of an environment, does not have its code read again."""
    for name in ("__pycache__", ".venv", "node_modules"):
        (runs / name).mkdir()
    await found(folders, runs)
    for name in ("__pycache__", ".venv", "node_modules"):
        (runs / name / "x").touch()
    await found(folders, runs)
    assert len(hashed) == 1


async def test_a_hash_is_remembered_with_the_bytes_that_were_parsed(
    runs: Path, folders: DiskSkillFolders, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two discoveries that parsed different bytes of omac.yaml never share a hash, whatever the fingerprints are."""
    honest = await found(folders, runs)
    evil = b"name: echo\nsidecar:\n  command: [evil]\n"
    with monkeypatch.context() as patch:
        read = yaml_file.read_yaml_bytes
        patch.setattr(discovery, "read_yaml_bytes", lambda name, *rest: (read(name, *rest), evil)[1])
        for _ in range(2):
            planted = await found(folders, runs)
            assert planted.meta is not None
            assert planted.meta.sidecar is not None
            assert planted.meta.sidecar.command == ("evil",)
            assert planted.bundle_hash != honest.bundle_hash
    assert await found(folders, runs) == honest


async def test_code_of_this_very_tick_is_read_again(runs: Path, folders: DiskSkillFolders) -> None:
    """Code that changes within one tick of the clock is read again, as for digests."""
    for number in range(50):
        with open(runs / "run", "r+b") as file:
            file.write(b"#!/bin/sh\necho %04d\n" % number)
        assert (await found(folders, runs)).bundle_hash == await folders.bundle_hash(str(runs))


async def test_code_that_changes_while_it_is_read_is_not_remembered(
    runs: Path, folders: DiskSkillFolders, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that changes during the read gets a hash of no folder that ever existed; omac does not remember it."""
    read = code_hash_of

    def read_and_change(source: str, known: Mapping[str, bytes]) -> str:
        answer = read(source, known)
        (runs / "run").write_text("changed")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(digest_cache, "code_hash_of", read_and_change)
        await found(folders, runs)
    assert (await found(folders, runs)).bundle_hash == await folders.bundle_hash(str(runs))


async def test_projects_do_not_have_what_is_shared_forgotten(
    tmp_path: Path, runs: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cache is bounded, and global skills have one of their own, which projects cannot fill."""
    monkeypatch.setattr(digest_cache, "REMEMBERED_MAX", 1)
    home = tmp_path / "home"
    shutil.copytree(runs.parents[1], home / ".agents")
    folders = DiskSkillFolders({"HOME": str(home)})
    await folders.discover_global(("agents",))
    shutil.copytree(runs, runs.with_name("other"))
    (runs.with_name("other") / "omac.yaml").write_text("name: other\nsidecar:\n  command: [run]\n")
    for _ in range(2):
        assert len(await folders.discover(str(runs.parents[2]), ("agents",))) == 2
    assert len(hashed) == 5
    await folders.discover_global(("agents",))
    assert len(hashed) == 5


# what has no digest


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda path: os.mkfifo(path / "lib" / "fifo"), "/lib/fifo"),
        (lambda path: (path / "out").symlink_to("/etc"), "/out"),
        (lambda path: (path / "big.pth").write_bytes(b"x" * 300_000), "/big.pth"),
        (lambda path: shutil.rmtree(path), ""),
    ],
    ids=["fifo", "link", "carrier", "gone"],
)
async def test_what_cannot_be_copied(
    source: Path, folders: DiskSkillFolders, make: Callable[[Path], object], name: str
) -> None:
    """A skill that cannot be copied has no digest, and the error names the file."""
    make(source)
    with pytest.raises(OSError, match=f"{source}{name}'$"):
        await folders.digest(str(source))


@pytest.mark.parametrize(
    ("bound", "most"), [("BUNDLE_ENTRIES_MAX", 4), ("BUNDLE_BYTES_MAX", 10), ("BUNDLE_DEPTH_MAX", 0)]
)
async def test_bounds(
    source: Path, folders: DiskSkillFolders, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """A folder beyond a bound has no digest, and the error names the file that exceeded it."""
    monkeypatch.setattr(tree, bound, most)
    with pytest.raises(OSError, match="more than") as caught:
        await folders.digest(str(source))
    assert str(caught.value.filename).startswith(f"{source}/")
