import errno
import gc
import hashlib
import os
import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import trio

from omac.adapters.skills import discovery, tree
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.yaml_file import read_yaml_bytes
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.meta import FoundSkill
from omac.services.ports import SkillFolders

BASES = ("opencode", "agents")


@pytest.fixture
def folders() -> SkillFolders:
    return DiskSkillFolders()


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def write_skill(workdir: Path, folder: str, *, base: str = "agents", text: str | None = None) -> Path:
    path = workdir / f".{base}" / "skills" / folder
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text("# x\n")
    (path / "omac.yaml").write_text(text or f"name: {folder}\nsidecar:\n  command: [run]\n")
    return path


def the_problem(found: list[FoundSkill]) -> FoundSkill:
    """Return the only skill of `found`, which has a problem that can be printed and written as JSON."""
    (skill,) = found
    assert skill.problem is not None
    assert skill.meta is None
    assert skill.bundle_hash == ""
    assert skill.problem.startswith("/")
    assert skill.problem.isprintable()
    msgspec.json.encode(skill)
    return skill


# directories


async def test_canonical_resolves_links(tmp_path: Path, folders: SkillFolders) -> None:
    """Every spelling of a directory has one canonical path."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for spelling in ("real/inner", "link/inner", "link/../real/./inner/", "real//inner"):
        assert await folders.canonical(f"{tmp_path}/{spelling}", [str(tmp_path)]) == f"{tmp_path}/real/inner"
    assert await folders.canonical(f"//{tmp_path}/real", ["/"]) == f"{tmp_path}/real"
    assert await folders.canonical("/", ["/"]) == "/"
    assert await folders.canonical(str(tmp_path), ["/nowhere", str(tmp_path)]) == str(tmp_path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "bad-request"),
        ("relative", "bad-request"),
        ("./x", "bad-request"),
        ("~", "bad-request"),
        ("/a\0b", "bad-request"),
        ("/a\udcffb", "bad-request"),
        ("/" + "a/" * 2048, "bad-request"),
        ("{tmp}/a/loop", "bad-request"),
        ("{tmp}/a/" + "a" * 300, "bad-request"),
        ("{tmp}/a/missing", "directory-missing"),
        ("{tmp}/a/dangling", "directory-missing"),
        ("{tmp}/a/missing/../in", "directory-missing"),
        ("{tmp}/a/file", "not-a-directory"),
        ("{tmp}/a/file/x", "not-a-directory"),
        ("{tmp}/a/file/..", "not-a-directory"),
        ("{tmp}/a/fifo", "not-a-directory"),
        ("{tmp}/ab", "outside-roots"),
        ("{tmp}", "outside-roots"),
        ("{tmp}/a/out", "outside-roots"),
        ("{tmp}/a/..", "outside-roots"),
        ("/", "outside-roots"),
    ],
)
async def test_paths_that_are_no_project(tmp_path: Path, folders: SkillFolders, path: str, reason: str) -> None:
    """A path that is not a readable directory below a root is refused by reason, in printable text."""
    for name in ("a", "ab"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "in").mkdir()
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a" / "loop").symlink_to("loop")
    (tmp_path / "a" / "dangling").symlink_to("gone")
    (tmp_path / "a" / "out").symlink_to("../ab")
    os.mkfifo(tmp_path / "a" / "fifo")
    with pytest.raises(Refusal) as caught:
        await folders.canonical(path.replace("{tmp}", str(tmp_path)), [f"{tmp_path}/a"])
    assert caught.value.reason == reason
    assert caught.value.message.isprintable()


async def test_a_shortage_of_descriptors(
    tmp_path: Path, folders: SkillFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has too many files open says so, and asks for no other directory."""
    problem = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr("omac.adapters.skills.folders.canonical_folder", mock.Mock(side_effect=problem))
    with pytest.raises(Refusal) as caught:
        await folders.canonical(str(tmp_path), [])
    assert (caught.value.reason, caught.value.fix[0].split("  #")[0]) == ("state-unusable", "ulimit -n 4096")


async def test_a_path_of_the_wrong_type(folders: SkillFolders) -> None:
    """The path of a request is refused if it is not text."""
    with pytest.raises(Refusal) as caught:
        await folders.canonical(5, ["/"])  # type: ignore[arg-type]  # the wrong type
    assert caught.value.reason == "bad-request"


async def test_a_directory_whose_name_is_not_utf8(tmp_path: Path, folders: SkillFolders) -> None:
    """A directory whose name is not UTF-8 is refused, so that a canonical path can always be written as JSON."""
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    (tmp_path / "link").symlink_to(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(Refusal) as caught:
        await folders.canonical(f"{tmp_path}/link", [str(tmp_path)])
    assert caught.value.reason == "bad-request"


async def test_outside_roots_tells_the_command(tmp_path: Path, folders: SkillFolders) -> None:
    """The refusal lists the roots, and its command keeps them; the path of the request is not in the command."""
    path = tmp_path / "it's here"
    path.mkdir()
    with pytest.raises(Refusal) as caught:
        await folders.canonical(str(path), ["/srv/a", "/srv/b c"])
    assert "not under any allowed --root" in caught.value.message
    assert "/srv/a, /srv/b c" in caught.value.message
    (command,) = caught.value.fix
    roots = ["--root", "/srv/a", "--root", "/srv/b c", "--root", "DIR"]
    assert shlex.split(command, comments=True) == ["omac", "serve", "--no-inner", *roots]


OUTSIDE = (
    "folder", "file", "missing", "file/x", "missing/x", "closed/x", "closed/missing", "loop", "dangling", "fifo", ".",
    "folder/../root/in", "missing/../root/in", "file/../root/in", "link/../root/in", "a" * 300, "root-x", "\u202e",
)  # fmt: skip


@pytest.mark.parametrize("by_link", [False, True])
async def test_a_refusal_tells_nothing_of_what_lies_outside(
    tmp_path: Path, folders: SkillFolders, by_link: bool
) -> None:
    """Refusals of paths outside the roots differ only by the path of the request, whatever exists at that path."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    for name in ("folder", "closed/x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "closed").chmod(0)
    answers = set()
    for name in OUTSIDE:
        path = str(tmp_path / name)
        if by_link:
            (root / "way").symlink_to(path)
            path = str(root / "way")
        with pytest.raises(Refusal) as caught:
            await folders.canonical(path, [str(root)])
        (root / "way").unlink(missing_ok=True)
        refusal = caught.value
        answers.add((refusal.reason, refusal.message.replace(printable(path), "*", 1), refusal.fix))
    assert [reason for reason, _, _ in answers] == ["outside-roots"], answers


async def test_links_that_lead_into_the_roots(tmp_path: Path, folders: SkillFolders) -> None:
    """The twin: a user's link outside the roots that leads into them, and links and `..` inside, work."""
    (tmp_path / "root" / "in" / "deep").mkdir(parents=True)
    (tmp_path / "work").symlink_to("root")
    (tmp_path / "root" / "up").symlink_to("in/deep/../../in")
    for path in ("work/in", "root/up", "root/in/deep/..", "root/../root/in", "work/up/../in"):
        assert await folders.canonical(f"{tmp_path}/{path}", [f"{tmp_path}/root"]) == f"{tmp_path}/root/in", path


async def test_a_walk_without_end(tmp_path: Path, folders: SkillFolders) -> None:
    """Links that make a path exponentially long are refused, wherever the walk is at that point."""
    (tmp_path / "l0").mkdir()
    for number in range(1, 40):
        (tmp_path / f"l{number}").symlink_to(f"l{number - 1}/../l{number - 1}")
    with pytest.raises(Refusal) as caught:
        await folders.canonical(f"{tmp_path}/l39", [str(tmp_path)])
    assert caught.value.reason in ("bad-request", "outside-roots")


@pytest.mark.parametrize("roots", [[], [""], ["relative"]])
async def test_no_root_allows_nothing(tmp_path: Path, folders: SkillFolders, roots: list[str]) -> None:
    """A missing or empty root never means the whole disk."""
    with pytest.raises(Refusal) as caught:
        await folders.canonical(str(tmp_path), roots)
    assert caught.value.reason == "outside-roots"


# discovery


async def test_a_skill_is_found_whole(workdir: Path, folders: SkillFolders) -> None:
    """Discovery reports the skill's data as on disk, with the hash of its folder."""
    path = write_skill(workdir, "folder", text="name: echo\nversion: 1.0\nsidecar:\n  command: [run]\n")
    (skill,) = await folders.discover(str(workdir), BASES)
    assert (skill.name, skill.base, skill.problem) == ("echo", "agents", None)
    assert (skill.skills_dir, skill.source) == (str(path.parent), str(path))
    assert skill.meta is not None
    assert skill.meta.version == "1.0"
    assert skill.bundle_hash == await folders.bundle_hash(skill.source)


async def test_the_first_hit_per_name_wins(workdir: Path, folders: SkillFolders) -> None:
    """Bases come first in the order, then folder names; later skills of the same name are hidden."""
    same = "name: echo\nsidecar:\n  command: [run]\n"
    write_skill(workdir, "a", base="agents", text=same)
    write_skill(workdir, "b", base="agents")
    write_skill(workdir, "z", base="opencode", text=same)
    write_skill(workdir, "zz", base="opencode", text=same)
    write_skill(workdir, "other", base="claude")
    skills = await folders.discover(str(workdir), BASES)
    assert [(skill.name, skill.base, Path(skill.source).name) for skill in skills] == [
        ("echo", "opencode", "z"),
        ("b", "agents", "b"),
    ]


async def test_what_is_no_skill_with_a_sidecar_is_not_reported(workdir: Path, folders: SkillFolders) -> None:
    """Guidance-only skills, files and dot folders are ignored without a report."""
    assert await folders.discover(str(workdir), BASES) == []
    assert await folders.discover(str(workdir / "gone"), BASES) == []
    skills = workdir / ".agents" / "skills"
    write_skill(workdir, "guide", text="name: guide\n")
    write_skill(workdir, ".hidden")
    (skills / "only-md").mkdir()
    (skills / "only-md" / "SKILL.md").write_text("# x\n")
    (skills / "README.md").touch()
    (skills / "read-me").symlink_to("README.md")
    (workdir / ".opencode").touch()
    assert await folders.discover(str(workdir), BASES) == []


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("name: echo\nsidecar: []\n", "echo", "omac.yaml, line 2: sidecar: must be a mapping"),
        ("name: ../x\nsidecar: {command: [run]}\n", "folder", "omac.yaml, line 1: name: "),
        ("- list\n", "folder", "omac.yaml, line 1: must be a mapping"),
        ("a: &a [*a]\n", "folder", "omac.yaml, line 1: has the alias *a inside its own value"),
        ("#" * 300_000, "folder", "omac.yaml: is larger"),
        ("\x00", "folder", "omac.yaml: is not valid YAML"),
    ],
)
async def test_an_omac_yaml_that_cannot_be_used(
    workdir: Path, folders: SkillFolders, text: str, name: str, said: str
) -> None:
    """A skill with a broken omac.yaml is listed with its problem, under its own name if that can be read."""
    path = write_skill(workdir, "folder", text=text)
    skill = the_problem(await folders.discover(str(workdir), BASES))
    assert (skill.name, skill.source) == (name, str(path))
    assert said in str(skill.problem)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, lambda path: os.symlink("SKILL.md", path), lambda path: os.symlink("/etc/passwd", path)],
    ids=["fifo", "folder", "link", "link out"],
)
async def test_an_omac_yaml_that_is_no_file(
    workdir: Path, folders: SkillFolders, make: Callable[[str], object]
) -> None:
    """Discovery opens only a regular file as omac.yaml and does not hang on anything else."""
    path = write_skill(workdir, "folder")
    (path / "omac.yaml").unlink()
    make(str(path / "omac.yaml"))
    with trio.fail_after(10):
        skill = the_problem(await folders.discover(str(workdir), BASES))
    assert skill.name == "folder"


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("skill", "{outside}", "leads out of the project"),
        ("skill", "../../../outside", "leads out of the project"),
        ("skill", "/etc", "leads out of the project"),
        ("skill", "gone", "leads nowhere"),
        ("skill", "skill", "cannot be read"),
    ],
)
async def test_a_skill_folder_that_leads_out(
    tmp_path: Path, workdir: Path, folders: SkillFolders, name: str, target: str, said: str
) -> None:
    """A link that leads out of the project, or nowhere, is reported, and its target is not read."""
    outside = write_skill(tmp_path, "outside").rename(tmp_path / "outside")
    skills = workdir / ".agents" / "skills"
    skills.mkdir(parents=True)
    (skills / name).symlink_to(target.replace("{outside}", str(outside)))
    skill = the_problem(await folders.discover(str(workdir), BASES))
    assert skill.name == name
    assert said in str(skill.problem)


async def test_a_file_in_the_place_of_a_skills_folder(workdir: Path, folders: SkillFolders) -> None:
    """A file that has the name of a skills folder is reported as what it is."""
    (workdir / ".agents").mkdir()
    (workdir / ".agents" / "skills").touch()
    assert "skills is no folder" in str(the_problem(await folders.discover(str(workdir), BASES)).problem)


@pytest.mark.parametrize("what", ["skill", "skills folder"])
async def test_a_link_tells_nothing_of_what_lies_outside(
    tmp_path: Path, workdir: Path, folders: SkillFolders, what: str
) -> None:
    """Every skill, and every skills folder, that leads out of the project has the same problem, whatever its target."""
    (tmp_path / "folder" / "x").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "closed").mkdir(0)
    link = workdir / ".agents" / "skills"
    if what == "skill":
        link.mkdir(parents=True)
        link /= "linked"
    link.parent.mkdir(parents=True, exist_ok=True)
    problems = set()
    for target in ("folder", "file", "missing", "file/x", "missing/x", "closed/x", "loop", "link", "folder/../work"):
        link.symlink_to(tmp_path / target)
        problems.add(the_problem(await folders.discover(str(workdir), BASES)).problem)
        link.unlink()
    assert len(problems) == 1
    assert "leads out of the project" in str(problems.pop())


async def test_a_skills_folder_that_leads_out(tmp_path: Path, workdir: Path, folders: SkillFolders) -> None:
    """A base or its skills folder that leaves the project is reported once and not read."""
    write_skill(tmp_path, "stray", base="out")
    (workdir / ".agents").symlink_to(tmp_path / ".out")
    (workdir / ".opencode").mkdir()
    (workdir / ".opencode" / "skills").symlink_to(tmp_path / ".out" / "skills")
    skills = await folders.discover(str(workdir), BASES)
    assert [the_problem([skill]).name for skill in skills] == [".opencode/skills", ".agents/skills"]
    assert all("leads out of the project" in str(skill.problem) for skill in skills)


async def test_a_neighbour_with_the_same_beginning_is_outside(workdir: Path, folders: SkillFolders) -> None:
    """A directory such as /x/project-2 is not below /x/project."""
    source = write_skill(workdir.with_name("project-2"), "stray")
    (workdir / ".agents" / "skills").mkdir(parents=True)
    (workdir / ".agents" / "skills" / "stray").symlink_to(source)
    assert "leads out" in str(the_problem(await folders.discover(str(workdir), BASES)).problem)


@pytest.mark.parametrize("kind", ["file", "dangling", "loop"])
async def test_a_skills_folder_that_is_none(workdir: Path, folders: SkillFolders, kind: str) -> None:
    """A skills folder that exists but cannot be read is reported by its base."""
    (workdir / ".agents").mkdir()
    skills = workdir / ".agents" / "skills"
    if kind == "file":
        skills.touch()
    else:
        skills.symlink_to("gone" if kind == "dangling" else "skills")
    assert the_problem(await folders.discover(str(workdir), BASES)).name == ".agents/skills"


async def test_links_inside_the_project_are_followed(workdir: Path, folders: SkillFolders) -> None:
    """A base, a skills folder or a skill may be a link to another folder in the project."""
    source = write_skill(workdir, "echo", base="shared")
    (workdir / ".opencode").symlink_to(".shared")
    (workdir / ".agents" / "skills").mkdir(parents=True)
    (workdir / ".agents" / "skills" / "again").symlink_to(source)
    for bases in (["opencode"], ["agents"]):
        (skill,) = await folders.discover(str(workdir), bases)
        assert (skill.name, skill.base, skill.source) == ("echo", bases[0], str(source))
        assert skill.skills_dir == f"{workdir}/.{bases[0]}/skills"
        assert skill.problem is None


async def test_folder_names_that_cannot_be_shown(workdir: Path, folders: SkillFolders) -> None:
    """A folder whose name is not printable UTF-8 is reported with the name escaped."""
    skills = os.fsencode(workdir) + b"/.agents/skills"
    for name in (b"bad-\xff", b"cl\x1b[2Jear"):
        os.makedirs(skills + b"/" + name)
        with open(skills + b"/" + name + b"/omac.yaml", "w") as file:
            file.write("name: echo\nsidecar:\n  command: [run]\n")
    problems = await folders.discover(str(workdir), BASES)
    assert [the_problem([skill]).name for skill in problems] == ["bad-\\udcff", "cl\\x1b[2Jear"]


async def test_too_many_skills(workdir: Path, folders: SkillFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base with too many skills is reported, and the skills that were read are always the same ones."""
    monkeypatch.setattr(discovery, "SKILLS_PER_BASE_MAX", 3)
    for number in range(5):
        write_skill(workdir, f"s{number}")
    (workdir / ".agents" / "skills" / "guidance").mkdir()  # counts for nothing
    skills = await folders.discover(str(workdir), BASES)
    assert [skill.name for skill in skills] == ["s0", "s1", "s2", ".agents/skills"]
    assert "more than 3 skills" in str(the_problem(skills[3:]).problem)


async def test_too_many_entries(workdir: Path, folders: SkillFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skills folder with too many entries is reported and not read."""
    monkeypatch.setattr(discovery, "ENTRIES_PER_BASE_MAX", 3)
    for number in range(4):
        write_skill(workdir, f"s{number}")
    skill = the_problem(await folders.discover(str(workdir), BASES))
    assert skill.name == ".agents/skills"
    assert "more than 3 entries" in str(skill.problem)


async def test_the_hash_is_of_the_bytes_that_were_read(
    workdir: Path, folders: SkillFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An omac.yaml that changes while omac reads never gets its command under another content's hash."""
    path = write_skill(workdir, "echo", text="name: echo\nsidecar:\n  command: [evil]\n")
    honest = "name: echo\nsidecar:\n  command: [good]\n"

    def read_then_swap(name: str, folder_fd: int, shown: str) -> bytes:
        content = read_yaml_bytes(name, folder_fd, shown)
        (path / "omac.yaml").write_text(honest)
        return content

    monkeypatch.setattr(discovery, "read_yaml_bytes", read_then_swap)
    (skill,) = await folders.discover(str(workdir), BASES)
    assert skill.meta is not None
    assert skill.meta.sidecar is not None
    assert skill.meta.sidecar.command == ("evil",)
    assert skill.bundle_hash != await folders.bundle_hash(str(path))


async def test_no_descriptor_is_left_open(workdir: Path, folders: SkillFolders) -> None:
    """Discovery closes every descriptor that it opens, on every path through it."""
    write_skill(workdir, "good")
    write_skill(workdir, "bad", text="[")
    (workdir / ".agents" / "skills" / "gone").symlink_to("nowhere")
    (workdir / ".agents" / "skills" / "empty").mkdir()
    await folders.discover(str(workdir), BASES)
    before = sorted(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(3):
            await folders.discover(str(workdir), BASES)
        gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


# the bundle hash


VECTOR_HASH = "sha256:85f04c13356fac87ee084a85c2966bd27698b6e01164813371e86b6b831c5798"


def write_vector(path: Path) -> Path:
    for name, content in {"SKILL.md": "# x\n", "omac.yaml": "name: x\n", "scripts/run.sh": "#!/bin/sh\n"}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path


async def test_the_hash_of_a_folder(tmp_path: Path, folders: SkillFolders) -> None:
    """The bundle hash counts regular files: no FIFOs, no modes, no build output, no empty folders."""
    skill = write_vector(tmp_path / "dist")  # the skill's own folder may bear any name
    assert await folders.bundle_hash(str(skill)) == VECTOR_HASH
    (skill / "dist").mkdir()
    (skill / "dist" / "ignored").touch()
    (skill / "empty").mkdir()
    (skill / "scripts" / "run.sh").chmod(0o755)
    os.mkfifo(skill / "fifo")
    with trio.fail_after(10):
        assert await folders.bundle_hash(str(skill)) == VECTOR_HASH
    (skill / "scripts" / "more").touch()
    assert await folders.bundle_hash(str(skill)) != VECTOR_HASH


async def test_what_the_contract_leaves_out_but_python_imports_counts_beside_it(
    tmp_path: Path, folders: SkillFolders
) -> None:
    """A link or compiled Python that appears or changes is other code, although the plain bundle hash is the same."""
    skill = write_vector(tmp_path / "skill")
    seen = {VECTOR_HASH}

    def relink() -> None:
        (skill / "json.py").unlink()
        (skill / "json.py").symlink_to("omac.yaml")

    changes: tuple[Callable[[], object], ...] = (
        lambda: (skill / "json.pyc").write_bytes(b"planted"),
        lambda: (skill / "json.pyc").write_bytes(b"planted anew"),
        lambda: (skill / "json.py").symlink_to("SKILL.md"),
        relink,
        lambda: (skill / "__pycache__").symlink_to("/etc"),
    )
    for change in changes:
        change()
        code_hash = await folders.bundle_hash(str(skill))
        assert code_hash.startswith(VECTOR_HASH + "+")
        assert code_hash not in seen
        seen.add(code_hash)
    for name in ("json.pyc", "json.py", "__pycache__"):
        (skill / name).unlink()
    assert await folders.bundle_hash(str(skill)) == VECTOR_HASH


async def test_large_files_and_odd_names_are_hashed(tmp_path: Path, folders: SkillFolders) -> None:
    """A file longer than a chunk counts whole, and a name counts as its bytes."""
    content = b"x" * (tree.CHUNK_BYTES + 1)
    name = b"\xff\n"
    with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
        file.write(content)
    expected = hashlib.sha256(name + b"\0" + hashlib.sha256(content).digest() + b"\0").hexdigest()
    assert await folders.bundle_hash(str(tmp_path)) == f"sha256:{expected}"


@pytest.mark.parametrize(
    ("bound", "most", "said"),
    [
        ("BUNDLE_ENTRIES_MAX", 4, "more than 4 files and folders"),
        ("BUNDLE_BYTES_MAX", 10, "GiB in all"),
        ("BUNDLE_DEPTH_MAX", 0, "more than 0 folders deep"),
    ],
)
async def test_a_bundle_beyond_its_bounds(
    workdir: Path, folders: SkillFolders, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, said: str
) -> None:
    """A folder too large to hash is a problem of the skill in discovery, and an OSError of the hash itself."""
    path = write_vector(write_skill(workdir, "echo"))
    (path / "omac.yaml").write_text("name: echo\nsidecar:\n  command: [run]\n")
    (path / "scripts" / "more").write_text("more than ten bytes")
    monkeypatch.setattr(tree, bound, most)
    skill = the_problem(await folders.discover(str(workdir), BASES))
    assert skill.name == "echo"
    assert said in str(skill.problem)
    with pytest.raises(OSError, match=re.escape(said)):
        await folders.bundle_hash(str(path))


@pytest.mark.parametrize("source", ["missing", "file", "link", "parent/skill"])
async def test_the_hash_of_no_folder(tmp_path: Path, folders: SkillFolders, source: str) -> None:
    """A source that is missing, no folder, or reached through a link has no hash."""
    write_vector(tmp_path / "real" / "skill")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("real/skill")
    (tmp_path / "parent").symlink_to("real")
    with pytest.raises(OSError, match=str(tmp_path)):
        await folders.bundle_hash(f"{tmp_path}/{source}")
