"""Bare `omac`: the state of a project within fifteen lines, and the command that comes next."""

import shutil
from pathlib import Path

import pytest
from real_omac import Omac
from started import looping

LINES_MAX, COLUMNS = 15, 80


def lines(omac: Omac, folder: Path) -> list[str]:
    """Return the lines of bare `omac` in a folder; assert that they fit a terminal."""
    done = omac.run(cwd=folder)
    assert (done.status, done.err) == (0, ""), done
    rows = done.out.splitlines()
    assert len(rows) <= LINES_MAX
    assert [line for line in rows if len(line) > COLUMNS and not line.startswith("next")] == []
    return rows


def following(shown: list[str]) -> str:
    """Return the command that the overview proposes."""
    (line,) = [line for line in shown if line.startswith("next")]
    return line.removeprefix("next").partition("  # ")[0].strip()


def test_from_the_first_skill_to_a_run(omac: Omac) -> None:
    """The proposed command is the one that helps next: begin a skill, trust it, start an agent, read the record."""
    project = omac.root / "shop"
    (project / ".git").mkdir(parents=True)
    omac.environment["PATH"] = path_with(
        omac.folder / "bin", "python3", "sh", "sleep", "env"
    )  # omac finds bwrap itself
    assert "skills   none in .agents/skills or an agent's own folder" in lines(omac, project)
    assert following(lines(omac, project)) == "omac skill new hello"
    omac.ok("skill", "new", "hello", cwd=project)
    rows = lines(omac, project)
    assert "skills   hello  not approved" in rows
    assert following(rows) == "omac trust"
    omac.ok("register", "hello", cwd=project)
    rows = lines(omac, project)
    assert "skills   hello  approved" in rows
    assert following(rows) == "omac start -- bash"
    path_with(omac.folder / "bin", claude="sh")
    assert following(lines(omac, project)) == "omac start claude"
    run = looping(omac, project)
    rows = lines(omac, project)
    assert any(f"omac start, pid {run.process.pid}, in " in line for line in rows), "it runs no agent"
    assert following(rows) == "omac audit --since 1h"
    run.end()
    assert "runs     none here" in lines(omac, project)


def test_where_no_agent_may_work_it_sends_elsewhere(omac: Omac) -> None:
    """A home folder and the folders above it cannot be projects: omac proposes neither an agent nor a new skill
    there."""
    for folder in (Path(omac.environment["HOME"]), Path("/")):
        rows = lines(omac, folder)
        assert following(rows) == "cd ~/projects/shop && omac"
        assert not [line for line in rows if "skill new" in line]


def path_with(folder: Path, *programs: str, **named: str) -> str:
    """Return a folder for PATH with these programs of the host, some of them under another name."""
    folder.mkdir(exist_ok=True)
    for name, program in {**{program_name: program_name for program_name in programs}, **named}.items():
        target = shutil.which(program)
        assert target is not None
        (folder / name).symlink_to(target)
    return str(folder)


def test_what_wants_attention_comes_first(omac: Omac) -> None:
    """Broken, changed and unapproved skills of many are listed first; the rest is counted."""
    names = [f"s{number:02}" for number in range(12)]
    project = omac.project("many", *names)
    omac.approve(project, *names[:9])
    (project / ".agents/skills/s03/new").write_text("x")
    omac.skill(project, "wrong", "name: [")
    rows = lines(omac, project)
    assert "wrong" in rows[1]
    assert "broken: omac skill check" in rows[1]
    assert "s03" in rows[2]
    assert "changed since it was approved" in rows[2]
    assert "not approved" in rows[3]
    assert "         and 7 more: omac list --all" in rows
    assert following(rows) == "omac skill check"


def test_a_folder_below_the_project(house: Omac) -> None:
    """The overview finds the project above a folder, and its command changes into the project."""
    project = house.project("below")
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    rows = lines(house, deep)
    assert rows[0].endswith("/R/below")
    assert following(rows) == f"cd {project} && omac trust"


def test_values_that_are_missing(house: Omac) -> None:
    """An approved skill that waits names the missing value."""
    project = house.root / "waits"
    house.skill(project, "s", "name: s\nsidecar:\n  command: [python3, s.py]\n  secrets: [{name: TOKEN}]\n")
    house.approve(project, "s")
    rows = lines(house, project)
    assert "skills   s  approved, waits for TOKEN" in rows
    assert following(rows) == "omac trust"


@pytest.mark.parametrize("name", ["x" * 200, "evil\x1b[2J"])
def test_names_that_an_agent_chose(house: Omac, name: str) -> None:
    """A hostile project or skill name is escaped, and a long one is elided."""
    project = house.project(name, "echo")
    house.skill(project, f"{name[:60]}", "name: [")
    shown = lines(house, project)
    assert not [line for line in shown if "\x1b" in line]
    if "\x1b" in name:
        assert shown[0].endswith("/evil\\x1b[2J")
        assert "evil\\x1b[2J" in shown[1]
    else:
        assert "..." in shown[0]
        assert shown[1].endswith("...")


def test_inside_a_sandbox(house: Omac) -> None:
    """The overview needs the host, and is refused inside a sandbox."""
    done = house.run(extra={"OMAC_SANDBOX": "1"})
    assert (done.status, done.out) == (7, "")
    assert "does not work inside a sandbox" in done.err


def test_two_skills_of_one_name(omac: Omac) -> None:
    """Skills of one name are shown with their folders."""
    project = omac.approved("shop")
    shutil.copytree(project / ".agents/skills/echo", project / ".claude/skills/echo")
    rows = lines(omac, project)
    assert "skills   echo in .claude/skills  not approved" in rows
    assert "         echo in .agents/skills  approved" in rows
