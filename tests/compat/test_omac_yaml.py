"""omac.yaml as skills for the Go omac have it: numbers in the command, anchors, capitals; and a program that runs."""

import json
from pathlib import Path

from real_omac import Omac, curl
from valued_skill import PROGRAM

META = """\
name: Echo-API
x-common: &common
  required: false
x-command: &command [./sidecar.py, 5, 1.50, 0x1F, 010, true, 2024-01-02]
sidecar:
  command: *command
  mount: echo-api
  secrets: []
  config:
    - {<<: *common, name: REGION, default: &region eu}
    - {<<: *common, name: MODE, default: *region}
"""
SHOWS_ARGUMENTS = "#!/usr/bin/env python3\n" + PROGRAM.replace(
    "json.dumps({", "json.dumps({'argv': sys.argv[1:]} | {"
).replace("import json, os", "import json, os, sys")
BOMB = "name: bomb\na0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))


def program_of(omac: Omac, project: Path, meta: str, mode: int) -> Path:
    """Write a skill whose command is its own program; return the program's path."""
    path = omac.skill(project, "api", meta, SHOWS_ARGUMENTS) / "sidecar.py"
    path.chmod(mode)
    return path


def test_the_command_has_its_words_as_they_are_written(omac: Omac) -> None:
    """The words of the command reach the sidecar unchanged; so do a name with capitals, anchors and merge keys."""
    project = omac.root / "shop"
    program_of(omac, project, META, 0o755)
    omac.approve(project, "Echo-API")
    skill = omac.serve().skill(project, "Echo-API")
    assert skill["state"] == "ready", skill
    report = json.loads(curl(f"{skill['base']}/").body)
    assert report["argv"] == ["5", "1.50", "0x1F", "010", "true", "2024-01-02"]
    assert (report["REGION"], report["MODE"]) == ("eu", "eu")


def test_what_could_never_start_is_not_approved(omac: Omac) -> None:
    """The message names the file and the command that mends it; that command does."""
    project = omac.root / "shop"
    program = program_of(omac, project, META, 0o644)
    for command in ("approve", "register"):
        done = omac.run(command, "Echo-API", "--workdir", str(project))
        assert done.status == 3, done
        assert f"{program} is the program of sidecar.command and not executable" in done.err
        assert f"  try: chmod +x {program}\n" in done.err
    assert omac.ok("approvals", "--json") == ""
    program.chmod(0o755)
    omac.approve(project, "Echo-API")


def test_a_bomb_of_aliases_is_one_broken_skill(omac: Omac) -> None:
    """The broken skill leaves the other skills ready."""
    project = omac.project("shop")
    omac.skill(project, "bomb", BOMB)
    omac.approve(project)
    states = {skill["name"]: skill for skill in omac.serve().activate(project)["skills"]}
    assert states["echo"]["state"] == "ready"
    assert "holds more than 5000 values" in states["bomb"]["detail"]
