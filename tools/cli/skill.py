"""omac skill new and omac skill check: a skill begins as files that work, and is checked before it is approved."""

import os
import re
from collections.abc import Sequence

from omac.domain.harness.harness import SHARED_BASE
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import REASONS, Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.domain.skills.document import RULES
from omac.domain.skills.meta import MOUNT, SKILL_NAME, VARIABLE
from omac.journal.folders import write_command
from omac.tools.cli.skill_notes import note_name
from omac.tools.cli.skill_template import files_of
from omac.tools.compose.project import project_of
from omac.tools.compose.scope_options import Where, directory_of, is_home, project_here
from omac.tools.compose.skill_files import (
    Neighbours,
    check_skill,
    create_skill,
    is_git_folder,
    skills_below,
    undiscovered,
)
from omac.tools.compose.state import StateDir, look_at
from omac.tools.terminal.invocation import current, expanded, print_json
from omac.tools.terminal.render import print_line
from omac.tools.terminal.working_folder import is_current


def new(name: str, secrets: Sequence[str], workdir: str, as_json: bool) -> int:
    """Write a new skill. Raises Refusal: misuse, directory-missing, state-unusable."""
    if not SKILL_NAME.fullmatch(name):
        name_fix = f"omac skill new {re.sub('[^A-Za-z0-9._-]+', '-', name).strip('.-_')[:64] or 'hello'}"
        raise Refusal("misuse", f"the name {name!r} {RULES[SKILL_NAME.pattern]}", fix=[name_fix])
    _require_names(name, secrets)
    secrets = list(dict.fromkeys(secrets))
    project = _folder(workdir)
    _require_place(project, f"omac skill new {name}")
    mount = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")
    if not MOUNT.fullmatch(mount):
        raise Refusal("misuse", f"the name {name!r} has neither letter nor digit", fix=["omac skill new hello"])
    path = os.path.join(project, f".{SHARED_BASE}", "skills", name)
    if alike := Neighbours((path, *skills_below(project))).lookalikes(path):
        raise Refusal("misuse", f"{alike[0]}; no skill was made", fix=[f"omac skill new {name}-2"])
    try:
        create_skill(project, SHARED_BASE, name, files_of(name, mount, secrets))
    except FileExistsError:
        fix = [f"omac skill check {quoted(path)}", f"ls -la {quoted(path)}"]
        raise Refusal("misuse", f"{path} exists already; nothing was written", fix=fix) from None
    except OSError as error:
        where = str(error.filename or path)
        fix = [write_command(error, where)]
        reason = error.strerror or str(error)
        raise Refusal("state-unusable", f"{where} cannot be written: {reason}; no skill was made", fix=fix) from None
    note_name(name)
    if as_json:
        print_json({"skill": name, "source": path, "mount": mount})
        return 0
    where = "" if is_current(project) else f" {quoted(project)}"
    print_line(f"wrote {path}:")
    print_line("  SKILL.md    what agents read: say when to use the skill")
    values = "a setting" if secrets else "a secret and a setting"
    print_line(f"  omac.yaml   what omac runs; has {values} to uncomment")
    print_line(f"  sidecar.py  the server{' that holds the secret' if secrets else ''}, outside the sandbox")
    if is_home(project):
        print_line("all projects share it, because it is in your home folder")
    print_line(f"next: omac trust{where}")
    return 0


def _require_place(folder: str, command: str) -> None:
    """Raise Refusal (misuse) for a folder that no agent works in: above the home, git's own, or omac's."""
    home, state = os.path.realpath(expanded("~")), os.path.realpath(StateDir.of(current().environment).path)
    above = folder
    while above != "/" and not is_git_folder(above):
        above = os.path.dirname(above)
    if folder != home and below(home, folder):
        problem = "above your home folder"
    elif below(folder, state):
        problem = "in omac's state directory"
    elif above != "/":
        problem = "in a folder of git's own"
    else:
        return
    around = project_of(folder, home)
    named = "PROJECT" if around == folder else quoted(around)
    raise Refusal("misuse", f"{folder} is {problem}; no skill was made", fix=[f"{command} --workdir {named}"])


def _require_names(skill: str, secrets: Sequence[str]) -> None:
    """Raise Refusal (misuse) for a secret's name that omac.yaml would not take; `skill` is the skill to write."""
    near = [re.sub("[^A-Z0-9_]+", "_", secret.upper()).strip("_") or "TOKEN" for secret in secrets]
    for secret in secrets:
        if not VARIABLE.fullmatch(secret):
            rule = RULES[VARIABLE.pattern]
            fix = " ".join(["omac skill new", skill, *(f"--secret {name}" for name in dict.fromkeys(near))])
            raise Refusal("misuse", f"the secret's name {secret!r} {rule}", fix=[fix])


def check(directory: str, as_json: bool) -> int:
    """Report the problems of each skill. Raises Refusal (skill-not-found)."""
    named = [source for source in skills_below(project_here()) if os.path.basename(source) == directory]
    folder = _folder(directory, [f"omac skill check {quoted(source)}" for source in named])
    sources, broken = skills_below(folder), undiscovered(folder)
    if not sources and not broken and directory == ".":
        folder = project_here()
        sources, broken = skills_below(folder), undiscovered(folder)
    if not sources and not broken:
        message = (
            f"{folder} holds neither a SKILL.md nor an omac.yaml, and no skill below .{SHARED_BASE}/skills or the like"
        )
        fix = [f"omac skill new hello --workdir {quoted(folder)}", "omac skill check DIR"]
        raise Refusal("skill-not-found", message, fix=fix)
    neighbours = Neighbours(sources)
    problems = {source: _problems(source, neighbours) for source in sources}
    problems |= {path: [problem] for path, (_, problem) in broken.items() if not problems.get(path)}
    for source, skill_problems in problems.items():
        name = os.path.basename(source) if source in sources else broken[source][0]
        if as_json:
            print_json({"skill": name, "source": source, "problems": skill_problems})
            continue
        print_line(f"{name}: {counted(len(skill_problems), 'problem') if skill_problems else 'ok'}")
        for problem in skill_problems:
            print_line(f"  {problem}")
    for source in sources:
        note_name(os.path.basename(source))
    return REASONS["settings-invalid"].exit_code if any(problems.values()) else 0


def _problems(source: str, neighbours: Neighbours) -> list[str]:
    try:
        problems = check_skill(os.path.realpath(source), current().environment.get("PATH", ""))
        beside = neighbours.namesakes(source) + neighbours.lookalikes(source) + neighbours.shared_mounts(source)
        return problems + beside
    except OSError as error:
        return [f"{error.filename or source} cannot be read ({error.strerror})"]


def _folder(directory: str, fix: Sequence[str] = ()) -> str:
    """Return the folder that was typed. Raises Refusal (directory-missing), with the command that was meant, if any."""
    folder = directory_of(Where(directory))
    if not os.path.isdir(folder):
        raise Refusal("directory-missing", f"{folder} is not a directory", fix=fix or [look_at(folder)])
    return folder
