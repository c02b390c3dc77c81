"""`omac import` imports the files and keychain of the omac written in Go, and nothing that an agent forges."""

import errno
import hashlib
import json
import os
import pty
import select
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import secretstorage
from jeepney.io.blocking import open_dbus_connection
from polling import eventually
from real_keyring import PrivateKeyring, private_keyring
from real_omac import COMMAND, Done, Omac, curl

from omac.domain.credentials.credential import ConfigWritten, DefaultMirrored, SecretWritten
from omac.domain.skills.registration import Approved, Registered

META = """\
name: {name}
sidecar:
  command: [python3, sidecar.py]
  secrets:
    - name: SLACK_TOKEN
      pattern: "^xoxb-"
    - name: SLACK_COOKIE
      required: false
  config:
    - name: REGION
      type: enum
      choices: [eu, us]
      required: false
    - name: RETRIES
      type: int
      required: false
"""
PROGRAM = """\
# {mark}
import http.server
import os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = " ".join(os.environ.get(name, "-") for name in ("SLACK_TOKEN", "SLACK_COOKIE", "REGION")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

http.server.HTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Handler).serve_forever()
"""
SECRET = "xoxb-of-"


class OldOmac:
    """The old omac's data: files by its schema, keychain entries by its library's attributes."""

    def __init__(self, omac: Omac, keyring: PrivateKeyring) -> None:
        self.omac = omac
        self.keyring = keyring
        self.user = Path(omac.environment["XDG_CONFIG_HOME"]) / "omac"
        self.user.mkdir(parents=True)
        self.key = omac.folder / "vault.key"
        self.key.write_text("5a" * 32)
        self.key.chmod(0o600)
        bus = {"DBUS_SESSION_BUS_ADDRESS": keyring["DBUS_SESSION_BUS_ADDRESS"]}
        self.environment = bus | {"OMAC_SECRETS_STORE": "vault", "OMAC_VAULT_KEY_FILE": str(self.key)}
        omac.environment |= self.environment
        assert omac.run("vault", "init").status == 0

    def skill(self, project: Path, name: str = "slack", mark: str = "", base: str = ".opencode") -> Path:
        """Make a skill in a project; `mark` makes its code differ from others."""
        source = project / base / "skills" / name
        source.mkdir(parents=True)
        (source / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
        (source / "omac.yaml").write_text(META.format(name=name))
        (source / "sidecar.py").write_text(PROGRAM.format(mark=mark))
        return source

    def project(self, name: str, skill: str = "slack") -> Path:
        """Make a project with a skill that was registered and approved."""
        project = self.omac.root / name
        source = self.skill(project, skill, mark=name)
        self.registers(project, [self.entry(source, project)])
        self.approves(source)
        return project

    def entry(self, source: Path, project: Path | None = None, **more: Any) -> dict[str, Any]:
        """Return an entry of a registry."""
        return {
            "name": source.name,
            "harness": "opencode",
            "skill_dir": str(source.relative_to(project) if project else source),
            "bundle_hash": old_hash(source),
            "registered_at": "2026-08-20T09:00:00.123456789Z",
            "declared_secret_names": ["SLACK_TOKEN"],
            **more,
        }

    def registers(self, project: Path | None, entries: list[Any]) -> None:
        """Write the registry of a project, or (None) that of all projects."""
        write((project / ".opencode" if project else self.user) / "sidecar.json", {"version": 1, "registered": entries})

    def approves(self, source: Path, *, skill_dir: str = "") -> None:
        """Add a skill to the approvals, and keep the copy that the old omac kept."""
        path = self.user / "approvals.json"
        document: dict[str, Any] = {"version": 1, "approved": []}
        if path.exists():
            document = json.loads(path.read_text())
        entry = {
            "name": source.name,
            "bundle_hash": old_hash(source),
            "skill_dir": skill_dir or str(source),
            "approved_at": "2026-08-20T09:00:00.123456789Z",
        }
        document["approved"].append(entry)
        write(path, document)
        target = self.user / "skills" / source.name / old_hash(source).removeprefix("sha256:")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)

    def settings(self, project: Path | None, skills: dict[str, Any], defaults: dict[str, Any] | None = None) -> None:
        """Write the settings of a project, or (None) the user's."""
        lines = ["version: 1"]
        for key, section in (("skills", skills), ("defaults", defaults or {})):
            lines.append(f"{key}:" if section else f"{key}: {{}}")
            for skill, fields in section.items():
                lines.append(f"    {skill}:")
                lines += [f'        {name}: "{value}"' for name, value in fields.items()]
        write((project / ".opencode" if project else self.user) / "skill-config.yaml", "\n".join(lines) + "\n")

    def keeps(self, service: str, name: str, value: str) -> None:
        """Put a secret into the keychain like the old omac's library."""
        with open_dbus_connection(self.keyring["DBUS_SESSION_BUS_ADDRESS"]) as bus:
            attributes = {"service": service, "username": name}
            label = f"Password for '{name}' on '{service}'"
            secretstorage.Collection(bus, self.keyring.collection).create_item(label, attributes, value.encode())

    def kept(self) -> dict[tuple[str, str], str]:
        """Return all secrets in the keychain."""
        with open_dbus_connection(self.keyring["DBUS_SESSION_BUS_ADDRESS"]) as bus:
            secrets = {}
            for item in secretstorage.Collection(bus, self.keyring.collection).get_all_items():
                attributes = item.get_attributes()
                secrets[attributes["service"], attributes["username"]] = item.get_secret().decode()
            return secrets

    def moves(self, project: Path, *arguments: str) -> Done:
        """Run `omac import` with --yes."""
        return self.omac.run("import", "--workdir", str(project), "--yes", *arguments)

    def plan(self, project: Path, *arguments: str) -> dict[str, Any]:
        """Return the plan of `omac import` as data."""
        done = self.omac.run("import", "--workdir", str(project), "--dry-run", "--json", *arguments)
        assert done.status == 0, done
        assert SECRET not in done.out + done.err
        document: dict[str, Any] = json.loads(done.out)
        return document


def old_hash(source: Path) -> str:
    """Return the bundle hash by its contract, with the exclusions that occur here: three folders and compiled files."""
    left_out = {"node_modules", ".git", "__pycache__"}
    outer = hashlib.sha256()
    files = {path.relative_to(source).as_posix(): path for path in source.rglob("*") if path.is_file()}
    for relpath in sorted(files, key=str.encode):
        if not (left_out & set(relpath.split("/")) or files[relpath].is_symlink() or relpath.endswith(".pyc")):
            outer.update(relpath.encode() + b"\0" + hashlib.sha256(files[relpath].read_bytes()).digest() + b"\0")
    return f"sha256:{outer.hexdigest()}"


def scoped(path: Path | str) -> str:
    """Return the keychain service of the skill in a workdir."""
    return f"omac/{hashlib.sha256(str(path).encode()).hexdigest()}/slack"


def write(path: Path, content: Any) -> None:
    """Write a file like the old omac."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    path.chmod(0o600)


def steps(plan: dict[str, Any], what: str = "") -> dict[tuple[str, str, str], str]:
    """Return the verdict of each step, by scope, kind and name."""
    return {
        (group["scope"], step["what"], step.get("name", "")): step["verdict"]
        for group in plan["skills"]
        for step in group["steps"]
        if what in ("", step["what"])
    }


def verdicts(plan: dict[str, Any], what: str, name: str | None = None) -> dict[str, str]:
    """Return the verdict on a kind of step, by skill."""
    return {
        group["skill"]: entry["verdict"]
        for group in plan["skills"]
        for entry in group["steps"]
        if entry["what"] == what and name in (None, entry.get("name"))
    }


def step(plan: dict[str, Any], what: str, name: str | None = None) -> dict[str, Any]:
    """Return the only step of its kind."""
    (chosen,) = [
        entry
        for group in plan["skills"]
        for entry in group["steps"]
        if entry["what"] == what and name in (None, entry.get("name"))
    ]
    assert isinstance(chosen, dict)
    return chosen


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the mode of every file and folder below, and the content and time of each file."""
    entries = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        if path.name.endswith(".db-shm") or (path.name.endswith(".db-wal") and not status.st_size):
            continue  # a database's own notes on who reads it
        is_file = stat.S_ISREG(status.st_mode)  # a folder's time changes when a database is opened to be read
        content = path.read_bytes() if is_file else b""
        entries[str(path)] = (status.st_mode, status.st_mtime_ns if is_file else 0, content)
    return entries


@pytest.fixture
def old(omac: Omac, tmp_path: Path) -> Iterator[OldOmac]:
    """Yield the data of an old omac beside the new one, with a keychain."""
    with private_keyring(tmp_path) as keyring:
        yield OldOmac(omac, keyring)


@pytest.mark.full
def test_two_projects_keep_their_own_secrets(old: OldOmac) -> None:
    """Sidecars of two projects run with the values of their own project after an import in each."""
    first, second = old.project("first"), old.project("second")
    for project in (first, second):
        old.keeps(scoped(project), "SLACK_TOKEN", SECRET + project.name)
        old.settings(project, {"slack": {"REGION": "eu" if project is first else "us"}})
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    old.keeps("omac/slack", "SLACK_COOKIE", "chocolate")
    before = old.kept()
    for project in (first, second):
        done = old.moves(project, "--project-settings")
        assert done.status == 0, done
        assert SECRET not in done.out + done.err
        assert f"from keychain {scoped(project)}" in done.out
    assert old.kept() == before
    server = old.omac.serve()
    answers = {}
    for project in (first, second):
        skill = server.skill(project, "slack")
        assert skill["state"] == "ready", skill
        answers[project.name] = curl(f"{skill['base']}/").body
    assert answers == {"first": f"{SECRET}first chocolate eu", "second": f"{SECRET}second chocolate us"}


@pytest.mark.full
def test_into_the_keychain(old: OldOmac) -> None:
    """A secret of no project is copied to this project, the old entry stays, and a running server uses the copy."""
    old.omac.environment["OMAC_SECRETS_STORE"] = "keychain"
    project = old.project("shop")
    server = old.omac.serve()
    assert server.skill(project, "slack")["state"] == "broken"
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    done = old.moves(project)
    assert done.status == 0, done
    assert old.kept() == {
        ("omac/slack", "SLACK_TOKEN"): SECRET + "all",
        (scoped(project), "SLACK_TOKEN"): SECRET + "all",
    }
    assert eventually(lambda: server.skill(project, "slack")["state"] == "ready", 10.0, "the skill")
    assert curl(f"{server.skill(project, 'slack')['base']}/").body.startswith(SECRET + "all")


@pytest.mark.full
def test_a_project_reached_by_a_link(old: OldOmac) -> None:
    """An import also finds secrets and folders by the path as it was typed, after those of the real path."""
    project = old.omac.root / "real"
    source = old.skill(project)
    link = old.omac.root / "link"
    link.symlink_to(project)
    old.registers(project, [old.entry(source, project)])
    old.approves(source, skill_dir=str(link / ".opencode" / "skills" / "slack"))
    old.keeps(scoped(link), "SLACK_TOKEN", SECRET + "link")
    old.keeps(scoped(link), "SLACK_COOKIE", "link")
    old.keeps(scoped(project), "SLACK_COOKIE", "real")
    unseen = step(old.plan(project), "approval")
    assert unseen["verdict"] == "take"
    plan = json.loads(old.omac.run("import", "--dry-run", "--json", cwd=link, extra={"PWD": str(link)}).out)
    assert step(plan, "secret", "SLACK_TOKEN")["origin"] == f"keychain {scoped(link)}"
    assert step(plan, "secret", "SLACK_COOKIE")["origin"] == f"keychain {scoped(project)}"
    assert old.moves(link).status == 0
    skill = old.omac.serve().skill(project, "slack")
    assert curl(f"{skill['base']}/").body == f"{SECRET}link real -"


def test_a_dry_run_changes_nothing(old: OldOmac) -> None:
    """A dry run changes no byte of the state directory, the keychain or the old files, before and after an import."""
    project = old.project("shop")
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    old.settings(None, {}, {"slack": {"REGION": "eu"}})
    for ending in ("nothing was changed", "nothing is left to import"):
        before, secrets = (tree(old.omac.state), tree(old.user), tree(project)), old.kept()
        plan = old.plan(project)
        assert not plan["changed"]
        assert ending in old.omac.ok("import", "--dry-run", "--workdir", str(project))
        after = (tree(old.omac.state), tree(old.user), tree(project))
        assert [dict(earlier.items() ^ later.items()) for earlier, later in zip(before, after, strict=True)] == [
            {},
            {},
            {},
        ]
        assert old.kept() == secrets
        assert old.moves(project).status == 0


def test_a_dry_run_makes_no_state_directory(old: OldOmac, tmp_path: Path) -> None:
    """A dry run does not even make the state directory."""
    project = old.project("shop")
    state = tmp_path / "none" / "yet"
    done = old.omac.run("import", "--dry-run", "--workdir", str(project), extra={"OMAC_STATE_DIR": str(state)})
    assert done.status == 0, done
    assert "+ approval" in done.out
    assert not state.parent.exists()


def test_a_copy_that_the_disk_refuses(old: OldOmac) -> None:
    """A failure of omac's own disk is reported as one, nothing is recorded, and the same command then does its work."""
    project = old.project("shop")
    problem = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("omac.adapters.skills.staging.Staging.complete", side_effect=problem):
        done = old.moves(project)
    assert (done.status, f"  try: df -h {old.omac.state}" in done.err) == (5, True), done
    assert old.omac.events() == []
    assert old.moves(project).status == 0


def test_a_second_run_does_nothing(old: OldOmac) -> None:
    """A second import changes nothing: no event, no write to a store. Values that were set since stay."""
    project = old.project("shop")
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    old.keeps("omac/__defaults__/slack", "SLACK_TOKEN", SECRET + "default")
    old.settings(project, {"slack": {"REGION": "eu"}}, {})
    old.settings(None, {"slack": {"RETRIES": "3"}}, {"slack": {"REGION": "us"}})
    assert old.moves(project, "--project-settings").status == 0
    events, before = old.omac.events(), tree(old.omac.state)
    done = old.moves(project)
    assert (done.status, done.err) == (0, "")
    assert "nothing is left to import" in done.out
    assert old.omac.events() == events
    assert tree(old.omac.state) == before
    old.omac.ok("config", "set", "slack", "REGION", "us", "--workdir", str(project))
    old.omac.ok("config", "unset", "slack", "RETRIES", "--workdir", str(project))
    events = old.omac.events()
    assert set(steps(old.plan(project)).values()) == {"there"}
    assert old.moves(project).status == 0
    assert old.omac.events() == events


def test_what_is_recorded(old: OldOmac) -> None:
    """An import records registration, approval, values and defaults; a project's file sets no default."""
    project = old.project("shop")
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    old.keeps("omac/__defaults__/slack", "SLACK_TOKEN", SECRET + "default")
    old.settings(project, {"slack": {"REGION": "eu"}}, {"slack": {"RETRIES": "9"}})
    old.settings(None, {"slack": {"REGION": "us", "RETRIES": "+3"}}, {"slack": {"REGION": "us"}})
    done = old.moves(project, "--project-settings")
    assert done.status == 0, done
    assert "- default from" in done.out
    assert {record.event.name: record.event.value for record in old.omac.events(ConfigWritten)} == {
        "REGION": "eu",
        "RETRIES": "3",
    }
    assert [record.event.name for record in old.omac.events(SecretWritten)] == ["SLACK_TOKEN"]
    (approved,) = old.omac.events(Approved)
    source = project / ".opencode" / "skills" / "slack"
    assert (approved.event.source, approved.event.bundle_hash) == (str(source), old_hash(source))
    remembered = {record.event.name: record.event for record in old.omac.events(DefaultMirrored)}
    assert remembered.keys() == {"REGION", "SLACK_TOKEN"}
    assert remembered["REGION"].value == "us"
    assert {record.code for record in remembered.values()} == {approved.event.digest}


@pytest.mark.full
def test_skills_that_all_projects_share(old: OldOmac) -> None:
    """Skills that all projects share come from the user's registry and settings; a project's settings do not count."""
    project = old.omac.root / "shop"
    project.mkdir()
    home = Path(old.omac.environment["HOME"])
    source = old.skill(home, base=".opencode")
    old.registers(None, [old.entry(source)])
    old.approves(source)
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    old.settings(None, {"slack": {"REGION": "us"}})
    old.settings(project, {"slack": {"RETRIES": "9"}})
    plan = old.plan(project)
    assert steps(plan) == {
        ("global", "registration", ""): "take",
        ("global", "approval", ""): "take",
        ("global", "secret", "SLACK_TOKEN"): "take",
        ("global", "setting", "REGION"): "take",
        ("global", "setting", "RETRIES"): "skip",
    }
    assert old.moves(project).status == 0
    (skill,) = old.omac.serve().activate(project)["skills"]
    assert skill["state"] == "ready"
    assert curl(f"{skill['base']}/").body == f"{SECRET}all - us"


def test_a_forged_registry_gets_nothing(old: OldOmac) -> None:
    """An agent that writes every file of a project gets its skill registered, but neither an approval nor a secret."""
    project = old.omac.root / "shop"
    source = old.skill(project, mark="planted")
    forged = {"approved": True, "declared_secret_names": ["SLACK_TOKEN", "SLACK_COOKIE", "AWS_KEY"]}
    old.registers(project, [old.entry(source, project, **forged)])
    write(project / ".opencode" / "approvals.json", {"version": 1, "approved": [old.entry(source)]})
    old.settings(project, {"slack": {"REGION": "us"}}, {"slack": {"REGION": "us"}})
    for service in ("omac/slack", scoped(project), "omac/__defaults__/slack"):
        old.keeps(service, "SLACK_TOKEN", SECRET + "all")
    assert steps(old.plan(project)) == {
        ("workdir", "registration", ""): "take",
        ("workdir", "approval", ""): "skip",
        ("workdir", "secret", "SLACK_TOKEN"): "skip",
        ("workdir", "secret", "SLACK_COOKIE"): "skip",
        ("workdir", "secret", "AWS_KEY"): "skip",
        ("workdir", "setting", "REGION"): "skip",
        ("defaults", "default", "SLACK_TOKEN"): "take",
        ("defaults", "default", ""): "skip",
    }
    done = old.moves(project)
    assert done.status == 0, done
    shown = old.omac.ok("show", "slack", "--workdir", str(project))
    digest = shown.partition("not approved: ")[2].split()[0]  # over every file, not the code alone
    assert f"omac approve slack --workdir {project} --harness opencode --hash {digest}" in done.out
    assert len(old.omac.events(Registered)) == 1
    assert not old.omac.events(Approved)
    assert not old.omac.events(SecretWritten)
    assert not old.omac.events(ConfigWritten)
    assert {record.event.code for record in old.omac.events(DefaultMirrored)} == {""}
    skill = old.omac.serve().skill(project, "slack")
    assert skill["state"] == "broken"


def test_planted_code_inherits_nothing(old: OldOmac) -> None:
    """An approval does not pass to code that was changed, even where no hash covers it, or copied to another folder."""
    project = old.omac.root / "shop"
    names = ("same", "changed", "depends", "compiled", "linked")
    sources = {name: old.skill(project, name) for name in names}
    for source in sources.values():
        (source / "node_modules").mkdir()
        (source / "node_modules" / "m.js").write_text("approved")
        old.approves(source)
        old.keeps(f"omac/{source.name}", "SLACK_TOKEN", SECRET + "all")
    old.registers(project, [old.entry(source, project) for source in sources.values()])
    assert set(verdicts(old.plan(project), "approval").values()) == {"take"}
    (sources["changed"] / "sidecar.py").write_text("planted")
    (sources["depends"] / "node_modules" / "m.js").write_text("planted!")
    (sources["compiled"] / "os.pyc").write_bytes(b"planted")
    (sources["linked"] / "lib").symlink_to("node_modules")
    plan = old.plan(project)
    skipped = dict.fromkeys(names, "skip") | {"same": "take"}
    assert verdicts(plan, "approval") == skipped
    assert verdicts(plan, "secret", "SLACK_TOKEN") == skipped
    whys = {
        entry["value"]: entry.get("why", "") for group in plan["skills"] for entry in group["steps"] if "value" in entry
    }
    assert whys[old_hash(sources["changed"])] == "its code has changed since it was approved"
    assert "node_modules/m.js" in whys[old_hash(sources["depends"])]

    copied = old.omac.root / "copied"
    shutil.copytree(project, copied, symlinks=True)
    plan = old.plan(copied)
    assert set(verdicts(plan, "approval").values()) == {"skip"}
    assert set(verdicts(plan, "secret", "SLACK_TOKEN").values()) == {"skip"}
    assert any(str(sources["same"]) in entry.get("why", "") for group in plan["skills"] for entry in group["steps"])
    shutil.rmtree(project / ".opencode")
    (project / ".opencode").symlink_to(copied / ".opencode")  # so that what was approved there is found here
    assert set(verdicts(old.plan(copied), "approval").values()) == {"skip"}


def test_approvals_that_somebody_else_may_write(old: OldOmac) -> None:
    """Approvals in a file that other users or an agent in the project can write do not count."""
    project = old.project("shop")
    approvals = old.user / "approvals.json"
    approvals.chmod(0o666)
    plan = old.plan(project)
    assert step(plan, "approval")["verdict"] == "skip"
    assert any(str(approvals) in note and "writable by other users" in note for note in plan["notes"])
    approvals.chmod(0o600)
    inside = project / "config"
    shutil.copytree(old.user.parent, inside)
    old.omac.environment["XDG_CONFIG_HOME"] = str(inside)
    plan = old.plan(project)
    assert step(plan, "approval")["verdict"] == "skip"
    assert any("an agent can write" in note for note in plan["notes"])


def test_values_that_are_refused(old: OldOmac) -> None:
    """Invalid values are listed with the reason, a secret's without its value; the others are imported."""
    project = old.project("shop")
    old.keeps("omac/slack", "SLACK_TOKEN", "bad-" + SECRET)
    old.keeps("omac/slack", "SLACK_COOKIE", "chocolate")
    old.settings(project, {"slack": {"REGION": "mars", "RETRIES": "many", "UNKNOWN": "1"}})
    plan = old.plan(project)
    by_name = {entry.get("name", ""): entry for entry in plan["skills"][0]["steps"]}
    assert {name: entry["verdict"] for name, entry in by_name.items()} == {
        "": "take",
        "SLACK_TOKEN": "skip",
        "SLACK_COOKIE": "take",
        "REGION": "skip",
        "RETRIES": "skip",
        "UNKNOWN": "skip",
    }
    assert "one of the choices" in by_name["REGION"]["why"]
    assert "pattern" in by_name["SLACK_TOKEN"]["why"]
    assert old.moves(project).status == 0
    assert [entry.event.name for entry in old.omac.events(SecretWritten)] == ["SLACK_COOKIE"]


def test_a_keychain_that_is_locked_or_absent(old: OldOmac) -> None:
    """A locked or absent keychain is reported and exits with 8; approvals are imported all the same. An import after
    the keychain was unlocked imports the secrets."""
    project = old.project("shop")
    old.keeps("omac/slack", "SLACK_TOKEN", SECRET + "all")
    second = old.project("other")
    away = {"DBUS_SESSION_BUS_ADDRESS": "", "OMAC_SECRETS_STORE": "keychain"}
    absent = old.omac.run("import", "--workdir", str(second), "--yes", extra=away)
    assert absent.status == 8, absent
    assert "keychain" in absent.err
    assert "vault" not in absent.err, "what is in the keychain is in no vault"
    assert len(old.omac.events(Approved)) == 1
    old.keyring.lock()
    done = old.moves(project)
    assert done.status == 8, done
    assert "locked" in done.err
    assert len(old.omac.events(Approved)) == 2
    assert old.omac.events(SecretWritten) == []
    old.keyring.unlock()
    assert old.moves(project).status == 0
    assert [record.event.name for record in old.omac.events(SecretWritten)] == ["SLACK_TOKEN"]


@pytest.mark.full
def test_asking(old: OldOmac) -> None:
    """`omac import` without --yes prints its plan and asks; a no changes nothing. Without a terminal it is misuse."""
    project = old.project("shop")
    done = old.omac.run("import", "--workdir", str(project), within=("setsid", "-w"))
    assert done.status == 2
    assert "+ approval" in done.out
    assert "--yes" in done.err
    assert old.omac.run("import", "--workdir", str(project), "--json").status == 2
    before = tree(old.omac.state)
    status, output = typed(old.omac, project, b"n\n")
    assert (status, "[y/N]" in output) == (1, True), output
    assert tree(old.omac.state) == before
    status, output = typed(old.omac, project, b"y\n")
    assert status == 0, output
    assert output.index("+ approval") < output.index("[y/N]") < output.index("imported")
    assert len(old.omac.events(Approved)) == 1


@pytest.mark.full
def test_a_value_that_is_given_while_omac_asks(old: OldOmac) -> None:
    """A value that another terminal gives, or revokes, while the question stands is not overwritten."""
    project = old.project("shop")
    old.settings(None, {"slack": {"REGION": "eu", "RETRIES": "3"}}, {"slack": {"REGION": "eu", "RETRIES": "3"}})
    where = ("--workdir", str(project))

    def meanwhile() -> None:
        old.omac.ok("config", "set", "slack", "REGION", "us", *where)

    status, output = typed(old.omac, project, b"y\n", meanwhile=meanwhile)
    assert (status, "REGION = 'eu'" in output) == (0, True), output
    given = {record.event.name: record.event.value for record in old.omac.events(ConfigWritten)}
    assert given == {"REGION": "us", "RETRIES": "3"}
    shown = json.loads(old.omac.ok("list", "--all", "--json", *where).splitlines()[0])
    assert shown["state"] == "approved"


def test_settings_that_an_agent_can_write(old: OldOmac) -> None:
    """A project's settings are not imported by --yes alone; omac prints a command for each that can be pasted.

    The user's own settings are imported, and --project-settings imports the project's.
    """
    project = old.project("shop")
    old.settings(project, {"slack": {"REGION": "us", "RETRIES": "-5"}})
    old.settings(None, {"slack": {"RETRIES": "3"}})
    done = old.moves(project)
    assert done.status == 0, done
    assert "which an agent can write" in done.out
    assert {entry.event.name: entry.event.value for entry in old.omac.events(ConfigWritten)} == {"RETRIES": "3"}
    by_hand = f"omac config set slack REGION us --workdir {project} --harness opencode"
    assert f"by hand: {by_hand}\n" in done.out
    old.omac.ok(*shlex.split(by_hand)[1:])
    assert old.omac.ok("config", "get", "slack", "REGION", "--workdir", str(project)).strip() == "us"

    second = old.project("other")
    old.settings(second, {"slack": {"REGION": "us", "RETRIES": "-5"}})
    plan = json.loads(old.omac.ok("import", "--workdir", str(second), "--yes", "--dry-run", "--json"))
    (fix,) = {
        fix for entry in plan["skills"][0]["steps"] if entry.get("name") == "RETRIES" for fix in entry.get("fix", ())
    }
    assert fix == f"omac config set slack RETRIES --workdir {second} --harness opencode -- -5"
    assert old.moves(second, "--project-settings").status == 0
    assert old.omac.ok("config", "get", "slack", "REGION", "--workdir", str(second)).strip() == "us"
    old.omac.ok("config", "unset", "slack", "RETRIES", "--workdir", str(second))
    old.omac.ok(*shlex.split(fix)[1:])
    assert old.omac.ok("config", "get", "slack", "RETRIES", "--workdir", str(second)).strip() == "-5"


@pytest.mark.full
def test_settings_that_a_person_looks_at(old: OldOmac) -> None:
    """A project's settings are printed in full at the terminal before the question, and imported after a yes.

    With the plan in a file they are not imported.
    """
    project = old.project("shop")
    evil = "https://" + "a" * 200 + ".example"
    source = project / ".opencode" / "skills" / "slack"
    (source / "omac.yaml").write_text(META.format(name="slack") + "    - name: URL\n      required: false\n")
    old.registers(project, [old.entry(source, project)])
    old.approves(source)
    junk = {f"X{number}": "1" for number in range(200)}
    old.settings(project, {"slack": {"REGION": "us", "URL": evil} | junk})
    status, output = typed(old.omac, project, b"y\n", out=old.omac.folder / "plan")
    assert status == 0, output
    assert not old.omac.events(ConfigWritten)
    status, output = typed(old.omac, project, b"y\n")
    assert status == 0, output
    question = output.index("review these settings")
    assert question < output.index(f"slack: URL = '{evil}'") < output.index("[y/N]")
    assert len(output[question : output.index("[y/N]")].splitlines()) < 6
    assert {record.event.name: record.event.value for record in old.omac.events(ConfigWritten)} == {
        "REGION": "us",
        "URL": evil,
    }


def test_only_one_harness(old: OldOmac) -> None:
    """--harness leaves out skills that this coding agent does not see."""
    project = old.project("shop")
    assert steps(old.plan(project, "--harness", "claude"))["missing", "registration", ""] == "skip"
    assert steps(old.plan(project, "--harness", "opencode"))["workdir", "approval", ""] == "take"
    assert old.omac.run("import", "--harness", "nobody").status == 2


def test_nothing_old_is_here(old: OldOmac) -> None:
    """An import without old files reports that, and succeeds."""
    project = old.omac.root / "new"
    project.mkdir()
    done = old.moves(project)
    assert (done.status, done.err) == (0, "")
    assert "the Go omac left nothing to import" in done.out


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"[" * 100_000, b'{"version": 2, "registered": []}', b"[]", b"null"]
)
def test_a_registry_that_cannot_be_read(old: OldOmac, content: bytes) -> None:
    """An unreadable registry is reported, and other files are imported; without others it is invalid configuration."""
    project = old.project("shop")
    path = project / ".opencode" / "sidecar.json"
    path.write_bytes(content)
    done = old.moves(project)
    assert done.status == 3, done
    assert str(path) in done.err
    assert "Traceback" not in done.err
    home = old.skill(Path(old.omac.environment["HOME"]), "shared")
    old.registers(None, [old.entry(home)])
    old.approves(home)
    done = old.moves(project)
    assert done.status == 0, done
    assert str(path) in done.err
    assert len(old.omac.events(Approved)) == 1


def test_a_failure_for_one_skill_does_not_stop_the_others(old: OldOmac) -> None:
    """A skill that cannot be copied is reported with its file, and the next one is imported."""
    project = old.omac.root / "shop"
    bad, good = old.skill(project, "bad", "bad"), old.skill(project, "good", "good")
    old.registers(project, [old.entry(bad, project), old.entry(good, project)])
    old.approves(bad)
    old.approves(good)
    os.mkfifo(bad / "pipe")
    done = old.moves(project)
    assert done.status == 0, done
    assert f"{bad}/pipe" in done.out
    assert [record.event.source for record in old.omac.events(Approved)] == [str(good)]


def typed(
    omac: Omac,
    project: Path,
    answer: bytes,
    out: Path | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[int, str]:
    """Run the command at a terminal and answer its question, before which something may happen `meanwhile`; its
    standard output may go to a file."""
    main, inner = pty.openpty()
    words = shlex.join([*COMMAND, "import", "--workdir", str(project)])
    redirect = f" >{shlex.quote(str(out))}" if out else ""
    process = subprocess.Popen(
        ["setsid", "-c", "-w", "sh", "-c", words + redirect],
        stdin=inner, stdout=inner, stderr=inner, env=omac.environment, cwd=omac.root, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    output, answered = b"", False
    try:
        while select.select([main], [], [], 30)[0]:
            try:
                chunk = os.read(main, 4096)
            except OSError:
                break
            output += chunk
            if b"[y/N] " in output and not answered:  # the question may come in pieces
                answered = True
                meanwhile()
                os.write(main, answer)
        return process.wait(30), output.decode()
    finally:
        process.kill()
        process.wait()
        os.close(main)
