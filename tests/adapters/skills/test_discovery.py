import os
from pathlib import Path

import msgspec
import pytest
import trio

from omac.adapters.skills import allowance, discovery
from omac.adapters.skills.folders import DiskSkillFolders
from omac.domain.skills.meta import FoundSkill, Guide
from omac.services.ports import SkillFolders

BASES = ("opencode", "agents")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def folders(home: Path) -> DiskSkillFolders:
    return DiskSkillFolders({"HOME": str(home)})


def write_skill(skills: Path, folder: str, *, text: str | None = None, guide: str = "# x\n") -> Path:
    path = skills / folder
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text(guide)
    if text != "":
        (path / "omac.yaml").write_text(text or f"name: {folder}\nsidecar:\n  command: [run]\n")
    return path


def names(found: list[FoundSkill]) -> list[str]:
    msgspec.json.encode(found)
    return [skill.name for skill in found]


# the skills of a user


async def test_it_is_the_port(folders: DiskSkillFolders) -> None:
    """The adapter satisfies the port of the services."""
    port: SkillFolders = folders
    assert await port.discover_global(BASES) == []


async def test_the_order_of_the_global_folders(tmp_path: Path, home: Path) -> None:
    """Global folders go base by base, in XDG_CONFIG_HOME, ~/.config and ~; the first skill of a name wins."""
    xdg = tmp_path / "xdg"
    paths = [xdg / "opencode", home / ".config" / "opencode", home / ".opencode", xdg / "agents", home / ".agents"]
    for number, folder in enumerate(paths):
        for name in ("all", f"s{number}"):
            write_skill(folder / "skills", name)
    folders = DiskSkillFolders({"HOME": str(home), "XDG_CONFIG_HOME": str(xdg)})
    skills = await folders.discover_global(BASES)
    assert [(skill.name, skill.source) for skill in skills] == [
        ("all", f"{paths[0]}/skills/all"),
        *((f"s{number}", f"{folder}/skills/s{number}") for number, folder in enumerate(paths)),
    ]
    assert {skill.scope for skill in skills} == {"global"}
    assert [skill.base for skill in skills] == ["opencode"] * 4 + ["agents"] * 2
    assert all(skill.bundle_hash and skill.problem is None for skill in skills)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_CONFIG_HOME": "/tmp"}])
async def test_no_home_no_global_skills(environment: dict[str, str]) -> None:
    """Without an absolute HOME no global skills are discovered, wherever omac runs."""
    assert await DiskSkillFolders(environment).discover_global(BASES) == []


async def test_each_real_folder_once(home: Path, folders: DiskSkillFolders) -> None:
    """A folder that two paths lead to is read, and reported, at the first only; XDG_CONFIG_HOME may be ~/.config."""
    write_skill(home / ".opencode" / "skills", "good")
    write_skill(home / ".opencode" / "skills", "bad", text="[")
    (home / ".agents").symlink_to(".opencode")
    assert names(await folders.discover_global(BASES)) == ["bad", "good"]
    assert {skill.base for skill in await folders.discover_global(BASES)} == {"agents"}, "which every agent sees"
    assert await folders.discover_global(("opencode",)) == []
    same = DiskSkillFolders({"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")})
    (home / ".config").mkdir()
    (home / ".opencode").rename(home / ".config" / "opencode")
    assert names(await same.discover_global(BASES)) == ["bad", "good"]


async def test_links_of_global_skills(tmp_path: Path, home: Path, folders: DiskSkillFolders) -> None:
    """A skill may be anywhere in the home directory; a link that leads out of it is reported and not read."""
    skills = home / ".agents" / "skills"
    write_skill(skills, "plain")
    inside = write_skill(home / "dotfiles", "inside")
    outside = write_skill(tmp_path, "outside")
    (skills / "inside").symlink_to(inside)
    (skills / "outside").symlink_to(outside)
    (home / ".opencode").mkdir()
    (home / ".opencode" / "skills").symlink_to(tmp_path)
    by_name = {skill.name: skill for skill in await folders.discover_global(BASES)}
    assert (by_name["plain"].problem, by_name["inside"].problem, by_name["inside"].source) == (None, None, str(inside))
    for name in ("outside", "~/.opencode/skills"):
        assert "leads out of your home directory" in str(by_name[name].problem)
        assert by_name[name].meta is None
    assert len(by_name) == 4


async def test_xdg_config_home_may_be_elsewhere(tmp_path: Path, home: Path) -> None:
    """XDG_CONFIG_HOME may be anywhere; its skills may be links within their folder and the home directory."""
    skills = tmp_path / "xdg" / "agents" / "skills"
    write_skill(skills, "plain")
    (skills / "again").symlink_to("plain")
    (skills / "up").symlink_to("..")
    (skills / "out").symlink_to(write_skill(tmp_path / "xdg", "out"))
    folders = DiskSkillFolders({"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "xdg")})
    assert {skill.name: skill.problem is None for skill in await folders.discover_global(BASES)} == {
        "plain": True,
        "out": False,
        "up": False,
    }


# names


async def test_names_that_differ_in_case_only(tmp_path: Path, folders: DiskSkillFolders) -> None:
    """A skill whose name differs only in case from an earlier one is reported with it, as keychains may mix them up."""
    text = "name: {}\nsidecar:\n  command: [run]\n  mount: echo\n"
    for name in ("echo", "Echo", "ECHO"):
        write_skill(tmp_path / ".agents" / "skills", name, text=text.format(name))
    write_skill(tmp_path / ".opencode" / "skills", "eCHO", text=text.format("eCHO"))
    first, *later = await folders.discover(str(tmp_path), BASES)
    assert (first.name, first.problem) == ("eCHO", None)
    assert [skill.name for skill in later] == ["ECHO", "Echo", "echo"]
    for skill in later:
        assert f"the name {skill.name} differs only in case from eCHO, which {first.source} has" in str(skill.problem)
        assert (skill.meta, skill.bundle_hash) == (None, "")


# what is said about an omac.yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sidecar:\n  command: [run]\n", "omac.yaml, line 1: name: is missing"),
        ("name: x\n\nsidecar:\n  mount: x\n", "omac.yaml, line 3: sidecar.command: must list"),
        (
            "name: x\nsidecar:\n  command: [run]\n  secrets:\n  - name: A\n  - name: b\n",
            "omac.yaml, line 6: sidecar.secrets[1].name: 'b' must be",
        ),
        (
            "name: x\nsidecar:\n  command: [run]\n  config:\n  - {name: A, type: enum}\n",
            "omac.yaml, line 5: sidecar.config[0].choices: is missing",
        ),
    ],
)
async def test_a_problem_says_file_line_and_field(
    tmp_path: Path, folders: DiskSkillFolders, text: str, said: str
) -> None:
    """A problem names the file, line and field to change."""
    path = write_skill(tmp_path / ".agents" / "skills", "x", text=text)
    (skill,) = await folders.discover(str(tmp_path), BASES)
    assert str(skill.problem).startswith(f"{path}/{said}")


# guides


GUIDE = "---\nname: {name}\ndescription: Does it.\n---\n# Text\n"


async def test_a_skill_has_its_guide(tmp_path: Path, folders: DiskSkillFolders) -> None:
    """A skill with a sidecar is discovered with its guide, without a guide, and with a broken one."""
    skills = tmp_path / ".agents" / "skills"
    write_skill(skills, "bad", guide="---\nname: bad\n---\n")
    write_skill(skills, "good", guide=GUIDE.format(name="good"))
    (write_skill(skills, "none") / "SKILL.md").unlink()
    bad, good, none = await folders.discover(str(tmp_path), BASES)
    assert good.guide == Guide("good", "Does it.")
    assert none.guide is None
    assert bad.guide == Guide("bad", "", f"{skills}/bad/SKILL.md, line 2: description: is missing")
    assert all(skill.problem is None and skill.bundle_hash for skill in (bad, good, none))


async def test_guidance(tmp_path: Path, folders: DiskSkillFolders) -> None:
    """Skills without a sidecar are discovered on request, after the others and never in place of one."""
    write_skill(tmp_path / ".opencode" / "skills", "echo", text="", guide=GUIDE.format(name="echo"))
    skills = tmp_path / ".agents" / "skills"
    write_skill(skills, "echo")
    write_skill(skills, "only", text="", guide=GUIDE.format(name="only"))
    write_skill(skills, "plain", text="name: named\n", guide=GUIDE.format(name="named"))
    (skills / "empty").mkdir()
    os.mkdir(os.fsencode(skills) + b"/\xff")
    with open(os.fsencode(skills) + b"/\xff/SKILL.md", "w") as file:
        file.write("# x\n")
    assert names(await folders.discover(str(tmp_path), BASES)) == ["echo"]
    by_name = {skill.name: skill for skill in await folders.discover(str(tmp_path), BASES, guidance=True)}
    assert names(list(by_name.values())) == ["echo", "only", "named", "\\udcff"]
    assert by_name["echo"].bundle_hash
    assert (by_name["only"].meta, by_name["only"].guide) == (None, Guide("only", "Does it."))
    assert by_name["named"].meta is not None
    assert by_name["named"].meta.sidecar is None
    assert all(by_name[name].problem is None and by_name[name].bundle_hash == "" for name in ("only", "named"))


async def test_guidance_takes_no_place_of_a_sidecar(
    tmp_path: Path, folders: DiskSkillFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guides never crowd out skills with sidecars, however many there are."""
    monkeypatch.setattr(discovery, "SKILLS_PER_BASE_MAX", 2)
    for number in range(4):
        write_skill(tmp_path / ".agents" / "skills", f"g{number}", text="")
    for number in range(2):
        write_skill(tmp_path / ".agents" / "skills", f"s{number}")
    assert names(await folders.discover(str(tmp_path), BASES, guidance=True)) == ["s0", "s1", "g0", "g1"]


@pytest.mark.parametrize("bound", ["YAML_BYTES_MAX", "YAML_NODES_MAX", "FILES_MAX", "FILE_BYTES_MAX"])
async def test_all_skills_of_a_project_are_bounded_together(
    tmp_path: Path, folders: DiskSkillFolders, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Skills beyond the bounds on all of them have a problem that names the bound; those before are read."""
    skills = tmp_path / ".agents" / "skills"
    for number in range(8):
        os.truncate(write_skill(skills, f"s{number}") / "SKILL.md", 1000)
    sizes = {"YAML_BYTES_MAX": 150, "YAML_NODES_MAX": 20, "FILES_MAX": 8, "FILE_BYTES_MAX": 4000}
    monkeypatch.setattr(allowance, bound, sizes[bound])
    found = await folders.discover(str(tmp_path), BASES)
    problems = [skill.problem or "" for skill in found]
    assert [skill.name for skill in found] == [f"s{number}" for number in range(8)]
    assert problems[0] == ""
    assert all("in all; remove what does not belong" in problem for problem in problems[4:]), problems


async def test_global_guidance_and_hostile_guides(tmp_path: Path, home: Path, folders: DiskSkillFolders) -> None:
    """Links, FIFOs and floods in place of a SKILL.md are reported, and discovery does not wait for them."""
    skills = home / ".agents" / "skills"
    for name in ("fifo", "flood", "link"):
        (skills / name).mkdir(parents=True)
    os.mkfifo(skills / "fifo" / "SKILL.md")
    (skills / "flood" / "SKILL.md").write_bytes(b"---\n" * 100_000)
    (skills / "link" / "SKILL.md").symlink_to("/etc/passwd")
    with trio.fail_after(10):
        guides = {skill.name: skill.guide for skill in await folders.discover_global(BASES, guidance=True)}
    for name, problem in {
        "fifo": "not a regular file",
        "flood": "larger than 256 KiB",
        "link": "symbolic link",
    }.items():
        guide = guides[name]
        assert guide is not None
        assert problem in str(guide.problem)
