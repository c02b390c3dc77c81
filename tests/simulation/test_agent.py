"""A hostile agent, and the things that it cannot reach.

The agent can write everything below a project and in the folders of skills that all projects share, and it can end
processes. The state directory is out of its reach. With any files that the agent writes, only code that a person
approved runs and has the token; the attempt is recorded.
"""

import json
import os
import py_compile
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from polling import eventually
from programs import program_at
from real_omac import Answer, Done, Omac, Serving, curl, omac_in
from simulation.skills import Holder, Watch, holders, meta, person_of, program, traced, traces, watching
from tiers import some
from valued_skill import with_vault

from omac.adapters.skills.reading import read_tree
from omac.domain.directories.events import SkillVanished
from omac.domain.skills.registration import Approved
from omac.projections.evidence.accesses import audit_rows
from omac.tools.cli.audit import json_row

TOKEN, OTHER = f"xoxb-token-of-the-shop-{os.urandom(6).hex()}", f"xoxb-token-of-the-mall-{os.urandom(6).hex()}"
IGNORED = ("node_modules", "dist", "build")
SYSTEM_PYTHON = "/usr/bin/python3"  # an interpreter that only root can change


class House:
    """A server, and the hands of a person and of an agent. `shop` is a project with the skill slack, approved."""

    def __init__(self, omac: Omac, watch: Watch, person: Omac) -> None:
        self.omac = omac
        self.person = person
        self.watch = watch
        self.trace = omac.folder / "trace"
        self.server: Serving = omac.serve()
        self._projects = self._ran = 0
        self._held: set[Holder] = set()
        self.shop = self.project("shop")
        self.pristine = omac.folder / "pristine"
        done = self.register(self.shop, TOKEN)
        assert done.status == 0, done
        shutil.copytree(self.shop, self.pristine, symlinks=True)
        self.base = self.server.skill(self.shop, "slack")["base"]

    def other(self, mark: str = "") -> Path:
        """Return a project that did not exist before, with code that did not exist before unless `mark` names it."""
        self._projects += 1
        return self.project(f"other-{self._projects}", mark or f"other-{self._projects}")

    def project(self, name: str, mark: str = "good") -> Path:
        """Make a project with the skill, as its author wrote it: some parts are in folders that the hash leaves out."""
        project = self.omac.root / name
        source = self.omac.skill(project, "slack", meta(), program(self.trace, mark))
        for folder in IGNORED:
            (source / folder).mkdir()
            (source / folder / f"part_{folder}.py").write_text(f"MARK = {mark!r}\n")
        return project

    def register(self, project: Path, token: str) -> Done:
        """Approve the skill as the person, and give it its token."""
        return self.person.run("register", "slack", "--workdir", str(project), extra={"OMAC_SECRET_SLACK_TOKEN": token})

    def hostile(self) -> str:
        """Return a sidecar.py of the agent's own."""
        return program(self.trace, "hostile")

    def reload(self, project: Path) -> Answer:
        """Have the server discover the skills again."""
        return self.server.call("reload", {"dir": str(project)})

    def call(self) -> Answer:
        """Return the answer of the shop's skill."""
        return curl(f"{self.base}/")

    def works(self) -> bool:
        """Return whether the approved code answers, with its token, whole."""
        answer = self.call()
        return answer.status == 200 and answer.json() == {
            "mark": "good",
            "parts": dict.fromkeys(IGNORED, "good"),
            "env": {"SLACK_TOKEN": TOKEN, "REGION": "eu"},
        }

    def process(self) -> Holder:
        """Return the process of the shop's sidecar."""

        def single() -> Holder | None:
            matches = [holder for holder in holders(TOKEN.encode()) if "omac-gate" not in holder.argv]
            return matches[0] if len(matches) == 1 else None

        holder: Holder = eventually(single, 20.0, "one process that has the token")
        return holder

    def position(self) -> int:
        """Return the position of the journal."""
        position: int = self.server.call("status").json()["position"]
        return position

    def audit(self, since: int) -> list[dict[str, Any]]:
        """Return the later rows of the audit, accesses aside; the last test gets the same from the command."""
        rows = (json_row(row) for row in audit_rows(self.omac.events()))
        return [row for row in rows if row["position"] > since and row["kind"] != "access"]

    def unapproved(self) -> list[object]:
        """Return all that ran, or had a token, and was not approved code in its approved copy, each only once."""
        digests = {entry.event.digest.removeprefix("sha256:") for entry in self.omac.events(Approved)}
        frozen = os.path.join(self.omac.state, "frozen")
        copies = {os.path.join(frozen, digest) for digest in digests}
        ran, held = traces(self.trace)[self._ran :], self.watch.seen - self._held
        self._ran += len(ran)
        self._held |= held
        return [
            *(entry for entry in ran if entry["mark"] == "hostile" or entry["folder"] not in copies),
            *(entry for entry in held if entry.folder not in copies or entry.where != "environ"),
        ]

    def restore(self) -> None:
        """Restore the author's files, remove all others, and require that the skill is ready again."""
        self.server.call("deactivate", {"dir": str(self.shop)})
        for path in self.omac.root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self.pristine, self.shop, symlinks=True)
        for base in (".agents", ".config"):
            shutil.rmtree(Path(self.omac.environment["HOME"]) / base, ignore_errors=True)
        skill = self.server.skill(self.shop, "slack")
        assert skill["state"] == "ready", skill
        self.base = skill["base"]


@pytest.fixture(scope="module")
def _house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with omac_in(tmp_path_factory.mktemp("house")) as omac, watching(TOKEN, OTHER) as watch:
        with_vault(omac)
        with person_of(omac) as person:
            yield House(omac, watch, person)


@pytest.fixture
def house(_house: House) -> Iterator[House]:
    """Yield the house in order; then require that nothing unapproved ran or had a token, and restore order."""
    assert _house.works()
    yield _house
    assert _house.unapproved() == []
    _house.restore()
    assert _house.works()


class Attack(NamedTuple):
    """A change to the skill folder by the agent, whether the approved code works after the next reload, and the kinds
    of rows that record the attempt."""

    do: Callable[[House, Path], object]
    works: bool
    kinds: set[str]


CHANGED, PLANTED = {"skill.drifted", "route.stubbed"}, {"skill.auto-registered", "route.stubbed"}


def edit_program(house: House, source: Path) -> None:
    (source / "sidecar.py").write_text(house.hostile())


def edit_meta(house: House, source: Path) -> None:
    (source / "evil.py").write_text(house.hostile())
    (source / "omac.yaml").write_text(meta(command="[python3, evil.py]"))


def shadow_library(house: House, source: Path) -> None:
    for name in ("json", "socket", "threading", "os", "sitecustomize", "usercustomize"):
        (source / f"{name}.py").write_text(traced(house.trace, "hostile"))


def shadow_library_compiled(house: House, source: Path) -> None:
    _compiled(house, source / "socket.pyc")


def change_mode(house: House, source: Path) -> None:
    (source / "sidecar.py").chmod(0o755)


def replace_ignored(house: House, source: Path) -> None:
    for folder in IGNORED:
        (source / folder / f"part_{folder}.py").write_text(f"{traced(house.trace, 'hostile')}MARK = 'hostile'\n")
        (source / folder / "json.py").write_text(traced(house.trace, "hostile"))


def plant_cache(house: House, source: Path) -> None:
    tag = sys.implementation.cache_tag
    for folder in (source, *(source / name for name in IGNORED)):
        (folder / "__pycache__").mkdir()
        for name in ("sidecar", "json", *(f"part_{each}" for each in IGNORED)):
            _compiled(house, folder / "__pycache__" / f"{name}.{tag}.pyc")


def plant_backup(house: House, source: Path) -> None:
    for name in ("sidecar.py~", ".sidecar.py.swp", ".DS_Store"):
        (source / name).write_text(house.hostile())


def become_link(house: House, source: Path, *, content: str | None = None) -> None:
    copy = house.shop / "copy"
    shutil.move(source, copy)
    source.symlink_to(copy)
    if content is not None:
        (copy / "sidecar.py").write_text(content)


def become_link_out(house: House, source: Path) -> None:
    shutil.move(source, house.omac.root / "copy")
    source.symlink_to("../../../copy")


def base_becomes_link(house: House, source: Path) -> None:
    shutil.move(source.parent, house.shop / "copies")
    source.parent.symlink_to("../copies")


def plant_links(house: House, source: Path, *, folder: str = ".") -> None:
    for name, target in (("etc", "/etc/passwd"), ("state", house.omac.state), ("vault", house.omac.state / "vault")):
        (source / folder / name).symlink_to(target)


def plant_in_own_base(house: House, source: Path) -> None:
    copy = house.shop / ".opencode" / "skills" / "slack"
    shutil.copytree(source, copy)
    (copy / "sidecar.py").write_text(house.hostile())


def copy_to_own_base(house: House, source: Path) -> None:
    shutil.copytree(source, house.shop / ".opencode" / "skills" / "slack")


def plant_before(house: House, source: Path) -> None:
    shutil.copytree(source, source.parent / "aaa")
    (source.parent / "aaa" / "sidecar.py").write_text(house.hostile())


def steal_mount(house: House, source: Path) -> None:
    thief = house.omac.skill(house.shop, "aaa", meta().replace("name: slack", "name: aaa", 1), house.hostile())
    assert "mount: slack" in (thief / "omac.yaml").read_text()


def differ_in_case(house: House, source: Path) -> None:
    house.omac.skill(house.shop, "Slack", meta().replace("name: slack", "name: Slack", 1), house.hostile())


def forge(house: House, source: Path) -> None:
    """Write files that other tools, older versions, or omac elsewhere would believe, and change the code."""
    edit_program(house, source)
    registered = house.server.call("status").json()["registry"][0]
    entry = {"name": "slack", "bundle_hash": registered["bundle_hash"], "source": str(source), "approved": True}
    opencode, omac = house.shop / ".opencode", house.shop / ".omac"
    opencode.mkdir()
    omac.mkdir()
    for folder in (house.shop, opencode, omac, source, house.shop / ".agents"):
        for name in ("sidecar.json", "approvals.json"):
            (folder / name).write_text(json.dumps({"version": 1, "skills": {"slack": entry}, "approvals": [entry]}))
        (folder / "skill-config.yaml").write_text("slack:\n  SLACK_TOKEN: mine\n  REGION: mine\n")
        shutil.copyfile(house.omac.state / "journal.db", folder / "journal.db")
        shutil.copytree(source, folder / "frozen" / registered["digest"].removeprefix("sha256:"))
        settings = '[serve]\nunapproved = "allow"\nbundle_drift = "accept"\nauto_register = true\n'
        (folder / "settings.toml").write_text(f'{settings}[secrets]\nstore = "keychain"\n')
        (folder / ".env").write_text(f"OMAC_STATE_DIR={folder}\nOMAC_SERVE_UNAPPROVED=allow\n")


def delete(house: House, source: Path) -> None:
    shutil.rmtree(source)


ATTACKS = {
    "edits the program": Attack(edit_program, False, CHANGED),
    "edits omac.yaml": Attack(edit_meta, False, CHANGED),
    "shadows the standard library": Attack(shadow_library, False, CHANGED),
    "shadows the standard library, compiled": Attack(shadow_library_compiled, False, CHANGED),
    "changes a mode": Attack(change_mode, True, {"skill.drifted"}),
    "replaces files the hash leaves out": Attack(replace_ignored, True, {"skill.drifted"}),
    "plants caches": Attack(plant_cache, True, set()),  # they are no part of anything
    "plants backups": Attack(plant_backup, True, {"skill.drifted"}),
    "puts a link to the same code": Attack(become_link, False, CHANGED),
    "puts a link out": Attack(become_link_out, False, {"route.stubbed"}),
    "puts a link for all skills": Attack(base_becomes_link, False, CHANGED),
    "plants links": Attack(plant_links, False, CHANGED),
    "plants links the hash leaves out": Attack(partial(plant_links, folder="dist"), True, {"skill.drifted"}),
    "plants one in the agent's own base": Attack(plant_in_own_base, False, PLANTED),
    "copies it to the agent's own base": Attack(copy_to_own_base, False, PLANTED),
    "plants one that comes before it": Attack(plant_before, False, CHANGED),
    "claims its mount": Attack(steal_mount, True, PLANTED),
    "takes its name in capitals": Attack(differ_in_case, False, PLANTED),
    "forges what others believe": Attack(forge, False, CHANGED),
}


@pytest.mark.full
@pytest.mark.parametrize("name", some(ATTACKS, of=5))
def test_what_is_done_to_an_approved_skill(house: House, name: str) -> None:
    """A changed skill keeps its process when it is activated again, and restarts from its approved copy. After a reload
    it goes on, or is refused with a reason. No other code ever runs, and the audit records the attempt."""
    attack = ATTACKS[name]
    before, process = house.position(), house.process()
    attack.do(house, house.shop / ".agents" / "skills" / "slack")
    house.server.activate(house.shop)
    assert house.works()
    assert house.process() == process
    os.kill(process.pid, signal.SIGKILL)
    eventually(house.works, 10.0, "the approved code to be back")
    assert house.process().pid != process.pid
    assert house.reload(house.shop).status == 200
    if attack.works:
        assert house.works()
    else:
        answer = house.call()
        assert (answer.status, answer.headers.get("x-omac-reason")) == (502, "skill-broken"), answer
        eventually(lambda: not any(holders(TOKEN.encode())), 20.0, "the end of everybody with the token")
    rows = [row for row in house.audit(before) if row["skill"] in ("slack", "aaa", "Slack")]
    assert {row["kind"] for row in rows} >= attack.kinds, rows
    assert all((row["outcome"] == "refused") == (row["kind"] in CHANGED) for row in rows if row["kind"] in attack.kinds)


def test_everything_is_deleted(house: House) -> None:
    """A skill whose folder is deleted loses its sidecar and its address. A deleted project is reported as missing, and
    can be taken offline."""
    before = house.position()
    delete(house, house.shop / ".agents" / "skills" / "slack")
    assert house.works()
    manifest = house.reload(house.shop)
    assert (manifest.status, manifest.json()["skills"]) == (200, [])
    assert house.call().status == 404
    eventually(lambda: not any(holders(TOKEN.encode())), 20.0, "the end of everybody with the token")
    vanished = [recorded for recorded in house.omac.events(SkillVanished) if recorded.position > before]
    assert len(vanished) == 1
    shutil.rmtree(house.shop)
    answer = house.reload(house.shop)
    assert (answer.status, answer.json()["reason"]) == (400, "directory-missing"), answer
    assert house.call().status == 404
    assert house.server.call("deactivate", {"dir": str(house.shop)}).status == 200
    assert "directory-missing" in {row["reason"] for row in house.audit(before)}


@pytest.mark.parametrize("same", [True, False], ids=["the same code", "other code"])
@pytest.mark.parametrize("where", ["nested", "other project", "user-global", "user-global, shared"])
def test_elsewhere_nothing_is_inherited(house: House, where: str, same: bool) -> None:
    """A skill of that name in another project, a nested one or a shared folder gets no approval and no token, even with
    the very same code. The approved skill goes on undisturbed."""
    before, process, home = house.position(), house.process(), Path(house.omac.environment["HOME"])
    folders = {
        "nested": house.shop / f"nested {same}" / ".agents" / "skills",
        "other project": house.other() / ".opencode" / "skills",
        "user-global": home / ".config" / "opencode" / "skills",
        "user-global, shared": home / ".agents" / "skills",
    }
    source = folders[where] / "slack"
    shutil.copytree(house.shop / ".agents" / "skills" / "slack", source)
    if not same:
        (source / "sidecar.py").write_text(house.hostile())
    shared = "global" in where
    project = house.shop if shared else source.parent.parent.parent
    assert house.reload(house.shop).status == 200
    manifest = house.server.activate(project)
    listed = house.server.call("global").json()["skills"] if shared else manifest["skills"]
    (skill,) = [skill for skill in listed if skill["name"] == "slack"]
    assert skill["state"] == "broken"
    if not shared:
        url = f"{house.server.ready['facade_base']}/{manifest['dir_token']}/slack/"
        assert curl(url).status == 502
    assert house.works()
    assert house.process() == process
    rows = [row for row in house.audit(before) if row["skill"] == "slack"]
    assert {row["kind"] for row in rows} >= PLANTED
    assert {row["dir"] for row in rows if row["kind"] in PLANTED} == {None if shared else str(project)}


def test_links_are_not_approved(house: House) -> None:
    """A skill with a link to the system's files, to the state directory, or to another skill cannot be approved."""
    project = house.other()
    source = project / ".agents" / "skills" / "slack"
    foreign = house.shop / ".agents" / "skills" / "slack" / "sidecar.py"
    for folder, target in (
        (".", "/etc/passwd"),
        (".", house.omac.state / "vault"),
        ("dist", foreign),
        ("node_modules", "../../../../../shop"),
    ):
        (source / folder / "link").symlink_to(target)
        done = house.person.run("approve", "slack", "--workdir", str(project))
        assert done.status != 0, done
        assert "outside the skill folder" in done.err
        (source / folder / "link").unlink()
    assert house.server.skill(project, "slack")["state"] == "broken"


def test_caches_from_before_the_approval_do_not_run(house: House) -> None:
    """Compiled code planted beside the reviewed code is no part of the approved copy."""
    project = house.other()
    plant_cache(house, project / ".agents" / "skills" / "slack")
    assert house.register(project, OTHER).status == 0
    skill = house.server.skill(project, "slack")
    assert skill["state"] == "ready"
    assert curl(f"{skill['base']}/").json()["parts"] == dict.fromkeys(IGNORED, project.name)


VENV_COMMANDS = {
    "by its name": "[.venv/bin/python, sidecar.py]",
    "by the first line of a script": "[.venv/bin/serve]",
    "by the first line of a script outside": "[./serve]",
    "by its absolute path": "[{live}/.venv/bin/python, sidecar.py]",
    "by the absolute path of a script": "[{live}/serve]",
    "as an argument": "[/usr/bin/env, {live}/.venv/bin/python, sidecar.py]",
}


@pytest.mark.parametrize("command", VENV_COMMANDS.values(), ids=VENV_COMMANDS.keys())
def test_a_replaced_interpreter_does_not_run(house: House, command: str) -> None:
    """A skill of a real virtual environment runs the copies of its interpreter and scripts when these are replaced
    after the approval."""
    project = house.other()
    source = project / ".agents" / "skills" / "slack"
    venv = source / ".venv"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (source / "omac.yaml").write_text(meta(command=command.format(live=source)))
    scripts = (venv / "bin" / "serve", source / "serve")
    for script in scripts:
        program_at(script, f"#!{venv}/bin/python\n{program(house.trace, 'good')}")
    done = house.register(project, OTHER)
    if done.status:
        assert "outside" in done.err or "absolute" in done.err, done  # a command that leads out may be refused
        return
    hostile = f"#!{os.path.realpath(sys.executable)}\n{house.hostile()}"
    for path in (venv / "bin" / "python", venv / "bin" / "serve", venv / "bin" / "python3"):
        path.unlink(missing_ok=True)
        program_at(path, hostile)
    manifest = house.server.activate(project)
    (skill,) = manifest["skills"]
    assert house.unapproved() == []
    assert skill["state"] == "ready", skill
    assert curl(f"{skill['base']}/").json()["env"]["SLACK_TOKEN"] == OTHER


@pytest.mark.parametrize("way", ["an editable install", "its home", "a first line"])
def test_what_a_virtual_environment_names_outside_does_not_run(house: House, way: str) -> None:
    """A virtual environment that runs files from elsewhere in the project is refused, or does not run files that the
    agent puts there after the approval."""
    project = house.other()
    source, outside = project / ".agents" / "skills" / "slack", project / "src"
    venv = source / ".venv"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (outside / "bin").mkdir(parents=True)
    command = "[.venv/bin/python, sidecar.py]"
    if way == "an editable install":
        (site / "__editable__.mine-1.pth").write_text(f"{outside}\nimport mine\n")
        (outside / "mine.py").touch()
    elif way == "its home":
        config = (venv / "pyvenv.cfg").read_text().splitlines()
        config = [f"home = {outside}/bin" if line.startswith("home") else line for line in config]
        (venv / "pyvenv.cfg").write_text("\n".join(config))
        library = Path("/usr/lib") / site.parent.name
        (outside / "lib" / library.name).mkdir(parents=True)
        for path in library.iterdir():
            (outside / "lib" / library.name / path.name).symlink_to(path)
    else:
        command = "[./serve]"
        program_at(source / "serve", f"#!{outside}/bin/python\n{program(house.trace, project.name)}")
        (outside / "bin" / "python").symlink_to(SYSTEM_PYTHON)
    (source / "omac.yaml").write_text(meta(command=command))
    if house.register(project, OTHER).status != 0:
        return
    hostile = traced(house.trace, "hostile")
    (outside / "mine.py").write_text(hostile)
    for name in ("bin/python", f"lib/{site.parent.name}/sitecustomize.py"):
        if os.path.lexists(outside / name):
            (outside / name).unlink()
            program_at(outside / name, f"#!{SYSTEM_PYTHON}\n{house.hostile() if 'bin' in name else hostile}")
    house.server.activate(project)
    assert house.unapproved() == []


def test_registering_again_approves_nothing_new(house: House) -> None:
    """A second registration, to change a value, does not approve replaced files that the hash leaves out: that needs
    --force, as any change does."""
    project = house.other()
    assert house.register(project, OTHER).status == 0
    assert house.server.skill(project, "slack")["state"] == "ready"
    replace_ignored(house, project / ".agents" / "skills" / "slack")
    done = house.person.run("register", "slack", "--workdir", str(project), extra={"OMAC_CONFIG_REGION": "us"})
    house.reload(project)
    assert house.unapproved() == [], done
    assert done.status != 0, done
    assert "--force" in done.err, done


def test_what_is_pasted_approves_what_was_shown(house: House) -> None:
    """An offered command names the files that omac inspected. It approves nothing if files that the hash leaves out are
    replaced before it is pasted."""
    project = house.other()
    fix = house.server.skill(project, "slack")["fix"][0]
    assert fix.startswith("omac approve slack ")
    replace_ignored(house, project / ".agents" / "skills" / "slack")
    done = house.person.run(*shlex.split(fix)[1:])
    house.reload(project)
    assert done.status != 0, done


def test_remembered_values_go_to_the_very_same_files(house: House) -> None:
    """A copy of the skill with other files that the hash leaves out is approved in another project. It does not get the
    values of the first, as long as no user gives them."""
    assert house.register(house.other("twin"), OTHER).status == 0
    twin, changed = house.other("twin"), house.other("twin")
    (changed / ".agents" / "skills" / "slack" / "dist" / "part_dist.py").write_text("MARK = 'other'\n")
    for project, state in ((twin, "ready"), (changed, "pending_credentials")):
        house.person.ok("approve", "slack", "--workdir", str(project))
        skill = house.server.skill(project, "slack")
        assert skill["state"] == state, curl(f"{skill['base']}/").json()


def test_names_lead_nowhere(house: House) -> None:
    """Names that are paths, that control terminals or that shells would run are refused or made readable, everywhere.
    Commands that are offered for pasting run nothing from these names."""
    trap = house.omac.folder / "trap"
    shell = f"$(touch {str(trap).replace('/', chr(92) + '057')})`touch trap`;touch trap;'\"touch trap"
    project = house.omac.root / "o'ther $(touch trap)`touch trap`"
    good = meta()
    for folder, declared in (
        ("dots", ".."),
        ("slash", "a/b"),
        ("up", "../../slack"),
        ("escape", '"sl\\x1b[31mack"'),
        ("line", '"slack\\nslack"'),
        ("nul", '"slack\\0"'),
        ("line\nbreak\x1b[31m", "fine"),
        ("-rf", "dash"),
        (shell.replace("/", "_"), "shell"),
        (shell.replace("/", "_") + "2", f"[{json.dumps(shell)}]"),
    ):
        house.omac.skill(project, folder, good.replace("name: slack", f"name: {declared}", 1), house.hostile())
    before = house.position()
    manifest = house.server.activate(project)
    assert {skill["state"] for skill in manifest["skills"]} == {"broken"}
    assert len(manifest["skills"]) == 10
    for command in ("list", "status", "audit", "approvals"):
        done = house.person.run(command, cwd=project)
        assert done.status == 0
        assert all(line.isprintable() for line in done.out.splitlines()), (command, done.out)
        assert "\x1b" not in done.err
    assert {row["skill"] for row in house.audit(before) if row["kind"] == "skill.auto-registered"} == {"dash", "shell"}
    stubs = house.omac.folder / "stubs"
    stubs.mkdir(exist_ok=True)
    for name in ("omac", "ls", "vi", "rm", "chmod"):
        program_at(stubs / name, "#!/bin/sh\nexit 0\n")
    program_at(stubs / "touch", f"#!/bin/sh\necho pasted >> {shlex.quote(str(trap))}\n")
    fixes = [fix for skill in manifest["skills"] for fix in skill["fix"]]
    assert len(fixes) >= 10
    for fix in fixes:
        subprocess.run(["/bin/bash", "-c", fix], cwd=house.omac.root, env={"PATH": str(stubs)}, check=False)
        assert not trap.exists(), fix


REFUSED = ("changed while omac read it", "does not match --hash")


@pytest.mark.parametrize("command", ["approve", "register"])
@pytest.mark.full
def test_what_changes_while_it_is_approved(house: House, command: str) -> None:
    """A program flips between two versions while a person approves it thirty times and a server runs. With --hash only
    that version is ever approved, without it either one. The code that runs is always the code recorded for the
    copy."""
    project = house.other()
    source = project / ".agents" / "skills" / "slack"
    programs = {mark: program(house.trace, mark).encode() for mark in ("good", "flipped")}
    hashes = {}
    for mark, content in programs.items():
        (source / "sidecar.py").write_bytes(content)
        hashes[read_tree(str(source)).bundle_hash()] = mark
    expected = next(bundle_hash for bundle_hash, mark in hashes.items() if mark == "good")
    (source / "sidecar.py").write_bytes(programs["good"])
    assert house.register(project, OTHER).status == 0
    house.server.activate(project)
    began, ends = len(traces(house.trace)), threading.Event()

    def flip() -> None:
        turn = 0
        while not ends.is_set():
            content = programs[("good", "flipped")[turn % 2]]
            if turn % 3:
                (project / "draft").write_bytes(content)
                os.replace(project / "draft", source / "sidecar.py")
            else:
                (source / "sidecar.py").write_bytes(content)
            turn += 1
            ends.wait(0.001 * (turn % 5))

    words = {"approve": ["--hash", expected], "register": ["--force"]}[command]
    flipping = threading.Thread(target=flip)
    flipping.start()
    arguments = (command, "slack", "--workdir", str(project), "--json", *words)
    try:
        done = [house.person.run(*arguments) for _ in range(30)]
    finally:
        ends.set()
        flipping.join()
    answers = [json.loads(entry.out) for entry in done if entry.status == 0]
    errors = [entry.err for entry in done if entry.status]
    assert [err for err in errors if not any(words in err for words in REFUSED)] == []
    copies: dict[str, str] = {}
    for entry in house.omac.events(Approved):
        if isinstance(entry.event, Approved) and entry.event.source == str(source):
            copy = house.omac.state / "frozen" / entry.event.digest.removeprefix("sha256:")
            content = (copy / "sidecar.py").read_bytes()
            assert read_tree(str(copy)).digest() == entry.event.digest
            assert read_tree(str(copy)).bundle_hash() == entry.event.bundle_hash
            if command == "approve":
                assert entry.event.bundle_hash == expected
            copies[str(copy)] = next((mark for mark, version in programs.items() if version == content), "torn")
    assert {str(house.omac.state / "frozen" / answer["digest"][7:]) for answer in answers} <= copies.keys()
    house.reload(project)
    ran = [entry for entry in traces(house.trace)[began:] if entry["token"] == OTHER]
    assert all(copies[entry["folder"]] == entry["mark"] for entry in ran)
    assert "flipped" not in {entry["mark"] for entry in ran} or command == "register"


@pytest.mark.full
def test_a_project_becomes_a_link_to_another(house: House) -> None:
    """Programs of two approved projects only ever have the token of their own project. Meanwhile one project is
    replaced by a link to the other, back and forth, and both are reloaded."""
    mall = house.project("mall", "mall")
    assert house.register(mall, OTHER).status == 0
    house.server.activate(mall)
    away, ends = house.omac.root / "away", threading.Event()

    def swap() -> None:
        while not ends.is_set():
            house.shop.rename(away)
            house.shop.symlink_to(mall)
            ends.wait(0.01)
            house.shop.unlink()
            away.rename(house.shop)
            ends.wait(0.005)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(15):
            for project in (house.shop, mall):
                assert house.reload(project).status in (200, 400, 409)  # it is not there, for a moment
                house.server.call("activate", {"dir": str(project)})
            answer = house.call()
            assert answer.status in (404, 502, 503) or answer.json()["env"]["SLACK_TOKEN"] == TOKEN, answer
    finally:
        ends.set()
        swapping.join()
    ran = {(trace["mark"], trace["token"]) for trace in traces(house.trace)}
    pairs = {(mark, token) for mark, token in ran if mark == "mall" or token == TOKEN}
    assert pairs == {("good", TOKEN), ("mall", OTHER)}
    house.server.call("activate", {"dir": str(house.shop)})
    house.reload(house.shop)
    assert house.works()


def test_the_audit_command_has_the_same_rows(house: House) -> None:
    """The audit that the other tests read has the same rows as `omac audit`."""
    rows = [json.loads(line) for line in house.omac.ok("audit", "--json").splitlines()]
    assert [row for row in rows if row["kind"] != "access"] == house.audit(0)
    assert house.omac.attempts() == [row for row in house.audit(0) if row["outcome"] == "refused"]


def _compiled(house: House, path: Path) -> None:
    """Write compiled code that Python runs without reading its source."""
    source = house.omac.folder / "hostile.py"
    source.write_text(f"{traced(house.trace, 'hostile')}MARK = 'hostile'\n")
    py_compile.compile(str(source), str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
