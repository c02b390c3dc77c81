"""tools/cli/deregister.py removes registrations, deletes values if a flag asks for that, and never removes a folder."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from polling import eventually
from real_omac import Done, Omac
from valued_skill import alone, everywhere, typed, valued, with_vault

from omac.adapters.credentials.keys import key_at_hand
from omac.adapters.credentials.vault import Vault
from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, RequestSecrets, Stored
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.hidden import Hidden
from omac.domain.skills.registration import Deregistered
from omac.tools.compose.command_context import secret_stores
from omac.tools.compose.journals import carrying

SECRET = "xoxb-7f3a9c"
GIVEN = {"OMAC_SECRET_TOKEN": SECRET, "OMAC_CONFIG_NOTE": "mine"}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project whose skill is registered and has values, on a host whose secrets are in a vault."""
    with_vault(omac)
    project = valued(omac)
    registered(omac, project)
    return project


def registered(omac: Omac, project: Path) -> None:
    """Register the project's skill."""
    done = alone(omac, "register", "slack", "--workdir", str(project), extra=GIVEN)
    assert done.status == 0, done


def deregister(omac: Omac, *flags: str, **extra: str) -> Done:
    """Run `omac deregister` without a terminal."""
    return alone(omac, "deregister", *flags, extra=extra)


def registry(omac: Omac) -> list[dict[str, Any]]:
    """Return the registrations of the status."""
    rows: list[dict[str, Any]] = json.loads(omac.ok("status", "--json"))["registry"]
    return rows


def kept(omac: Omac, scope: str) -> bool:
    """Return whether the vault has a secret of this scope: a project's path, or DEFAULTS."""
    service = credential.service(scope if scope == DEFAULTS else ids.scope_of(scope), "slack")
    vault = Vault(str(omac.state / "vault"))
    return "TOKEN" in vault.read(key_at_hand(omac.environment, None), service, ["TOKEN"])


def test_it_asks_first(omac: Omac, shop: Path) -> None:
    """`omac deregister` prints its plan, and acts only after a yes; without a terminal it needs `--yes`."""
    command = ("deregister", "slack", "--workdir", str(shop), "--purge-secrets")
    alone = deregister(omac, *command[1:])
    assert (alone.status, alone.out) == (2, "")
    assert f"try: omac deregister slack --workdir {shop} --harness opencode --purge-secrets --yes" in alone.err
    no = typed(omac, [("go on? [y/N]", b"\n")], *command)
    assert (no.status, "nothing was changed" in no.out) == (1, True)
    assert "this approval ends: it no longer runs" in no.out
    assert "this deletes secrets of slack: TOKEN" in no.out
    interrupted = typed(omac, [("go on? [y/N]", b"\x03")], *command)
    assert interrupted.status in (130, -2)
    assert interrupted.out.endswith("\r\n"), "a shell's prompt, or the reason, begins on a line of its own"
    assert len(registry(omac)) == 1
    yes = typed(omac, [("go on? [y/N]", b"y\n")], *command)
    assert yes.status == 0, yes
    assert registry(omac) == []
    assert not kept(omac, str(shop))
    assert SECRET.encode() not in everywhere(omac, alone, no, yes)


def test_what_was_given_stays_unless_it_is_purged(omac: Omac, shop: Path) -> None:
    """A deregistered skill keeps its values for the next registration; each kind of value is purged by its own flag."""
    where = ("--workdir", str(shop), "--yes")
    done = deregister(omac, "slack", *where)
    assert done.status == 0
    assert f"still stored for slack of {shop}: TOKEN, NOTE; to delete:" in done.err
    flags = "--purge-secrets --purge-fields"
    assert f"try: omac deregister slack --workdir {shop} --harness opencode {flags}\n" in done.err
    assert kept(omac, str(shop))
    assert alone(omac, "register", "slack", "--workdir", str(shop)).status == 0
    assert deregister(omac, "slack", "--purge-fields", *where).status == 0
    done = deregister(omac, "slack", "--purge-secrets", *where)
    assert (done.status, done.out) == (0, f"  deleted: TOKEN of slack for {shop}\n"), done
    assert not kept(omac, str(shop))
    assert "still saved defaults for skills named slack: TOKEN; to delete all of them:" in done.err
    assert f"try: omac deregister slack --workdir {shop} --harness opencode --purge-defaults\n" in done.err
    assert kept(omac, DEFAULTS)
    done = deregister(omac, "slack", "--purge-defaults", *where)
    assert (done.status, done.out) == (0, "  deleted defaults of slack: NOTE, TOKEN\n"), done
    assert not kept(omac, DEFAULTS)
    assert json.loads(omac.ok("status", "--json"))["defaults"] == {}
    assert deregister(omac, "slack", "--purge-defaults", "--purge-secrets", *where).status == 4


def test_a_store_that_is_locked(omac: Omac, shop: Path) -> None:
    """A purge with a locked store exits with 8 and removes no registration; without a purge no store is needed."""
    where = ("slack", "--workdir", str(shop), "--yes")
    for purge in ("--purge-secrets", "--purge-defaults"):
        done = deregister(omac, *where, purge, OMAC_VAULT_KEY_FILE="")
        assert (done.status, "omac unlock" in done.err) == (8, True), done
    assert len(registry(omac)) == 1
    assert deregister(omac, *where, OMAC_VAULT_KEY_FILE="").status == 0


def test_what_is_left_in_a_store_is_removed_later(omac: Omac, shop: Path) -> None:
    """A later purge deletes a secret that was revoked while the store was locked.

    The skill need no longer be registered nor have a folder.
    """
    where = ("slack", "--workdir", str(shop))
    locked = {"OMAC_VAULT_KEY_FILE": ""}
    assert alone(omac, "secrets", "unset", *where[:1], "TOKEN", *where[1:], extra=locked).status == 8
    assert kept(omac, str(shop))
    assert deregister(omac, *where, "--yes").status == 0
    shutil.rmtree(shop / ".agents")
    done = deregister(omac, *where, "--purge-secrets", "--yes", OMAC_VAULT_KEY_FILE="")
    assert (done.status, kept(omac, str(shop))) == (8, True), done
    preview = deregister(omac, *where, "--purge-secrets")
    assert "this deletes earlier values of slack: TOKEN" in preview.err
    done = deregister(omac, *where, "--purge-secrets", "--yes")
    assert (done.status, kept(omac, str(shop))) == (0, False), done
    assert deregister(omac, *where, "--purge-secrets", "--yes").status == 4


def test_a_default_that_was_cut_short(omac: Omac, shop: Path) -> None:
    """A default whose record was cut short is purged like any other."""
    where = ("slack", "--workdir", str(shop), "--purge-defaults", "--yes")
    assert deregister(omac, *where).status == 0
    with carrying(omac.environment, None) as execution:
        stream = ids.credential_stream(execution.host, DEFAULTS, "slack")
        request = RequestSecrets({"TOKEN": Stored("hmac:0", "vault")})
        trio.run(execution.execute, credential.AGGREGATE, stream, request, PERSON)
    service = credential.service(DEFAULTS, "slack")
    trio.run(secret_stores(omac.environment).write, "vault", service, {"TOKEN": Hidden(SECRET)})
    assert kept(omac, DEFAULTS)
    done = deregister(omac, *where)
    assert (done.status, done.out) == (0, "  deleted defaults of slack: TOKEN\n"), done
    assert not kept(omac, DEFAULTS)


def test_a_skill_of_the_same_name_keeps_its_values(omac: Omac, shop: Path) -> None:
    """A purge deletes only the values of the named skill, even once that is no longer registered."""
    shutil.copytree(shop / ".agents" / "skills" / "slack", shop / ".claude" / "skills" / "slack")
    claude, agents = (("slack", "--workdir", str(shop), "--harness", name) for name in ("claude", "opencode"))
    assert alone(omac, "approve", *claude).status == 0
    done = deregister(omac, *claude, "--purge-secrets", "--purge-fields", "--yes")
    assert (done.status, "deleted" in done.out) == (0, False), done
    assert kept(omac, str(shop))
    assert registry(omac)[0]["secrets"] == ["TOKEN"]
    assert deregister(omac, *agents, "--yes").status == 0
    done = deregister(omac, *agents, "--purge-secrets", "--yes")
    assert (done.out, kept(omac, str(shop))) == (f"  deleted: TOKEN of slack for {shop}\n", False), done


def test_a_folder_that_is_gone(omac: Omac, shop: Path) -> None:
    """A skill whose folder is gone is deregistered by its record; `--prune` deregisters all of these and no other."""
    market, fair = valued(omac, "market"), valued(omac, "fair")
    for project in (market, fair):
        registered(omac, project)
        shutil.rmtree(project)
    done = deregister(omac, "slack", "--workdir", str(market), "--yes")
    assert (done.status, done.out) == (0, f"deregistered: slack in {market}/.agents/skills/slack\n"), done
    listed = omac.run("list", "--all")
    (fix,) = [line.removeprefix("  try: ") for line in listed.err.splitlines() if "try: " in line]
    assert fix == f"omac deregister --prune --workdir {fair}"
    elsewhere = omac.run("deregister", "--prune", cwd=shop)
    assert elsewhere.out == f"nothing to prune: the folder of each skill registered in {shop} exists\n"
    assert omac.run("approvals").err == elsewhere.err == f"  try: {fix}\n"
    assert deregister(omac, "slack", "--prune", "--workdir", str(shop), "--yes").status == 4
    pruned = alone(omac, *shlex.split(fix)[1:], "--yes")
    assert pruned.out == f"deregistered: slack in {fair}/.agents/skills/slack\n"
    assert alone(omac, *shlex.split(fix)[1:]).out.startswith("nothing to prune")
    assert [row["dir"] for row in registry(omac)] == [str(shop)]


def test_who_is_not_registered(omac: Omac, shop: Path) -> None:
    """An unregistered skill is refused with exit code 4, and its folder is named and stays.

    A command with one unknown name deregisters none.
    """
    source = omac.skill(shop, "other", "name: other\nsidecar: {command: [x]}\n")
    for names, reason in (
        (["other"], f"other in {source} is not registered"),
        (["slack", "nobody"], "no skill 'nobody' is registered"),
        (["../slack"], "no skill '../slack'"),
        (["sl\x1b[2J"], "no skill 'sl\\x1b[2J'"),
    ):
        done = deregister(omac, *names, "--workdir", str(shop), "--yes")
        assert (done.status, reason in done.err) == (4, True), done
    assert source.is_dir()
    assert len(registry(omac)) == 1
    assert deregister(omac, "--yes").status == 2
    assert deregister(omac, "slack", "--workdir", "/nonexistent", "--yes").status == 4


def test_one_name_in_several_places(omac: Omac, shop: Path) -> None:
    """A name of several skills is refused with a command for each, and each command deregisters one of them."""
    source, home = shop / ".agents" / "skills" / "slack", Path(omac.environment["HOME"]) / ".agents" / "skills"
    shutil.copytree(source, shop / ".claude" / "skills" / "slack")
    shutil.copytree(source, home / "slack")
    for flags in (["--workdir", str(shop), "--harness", "claude"], ["--global"]):
        assert alone(omac, "register", "slack", *flags, extra=GIVEN).status == 0
    done = omac.run("deregister", "slack", "--yes", cwd=shop)
    assert (done.status, "slack is ambiguous: 3 skills have this name" in done.err) == (2, True), done
    commands = [line.removeprefix("  try: ") for line in done.err.splitlines() if "try: " in line]
    assert len(commands) == 3
    for remaining, command in zip((2, 1, 0), commands, strict=True):
        again = alone(omac, *shlex.split(command)[1:])
        assert again.status == 0, (command, again)
        assert len(registry(omac)) == remaining
    assert len(omac.events(Deregistered)) == 3
    assert source.is_dir()


@pytest.mark.parametrize("command", [["revoke"], ["deregister", "--yes", "--purge-secrets"]])
def test_one_folder_below_two_base_folders(omac: Omac, shop: Path, command: list[str]) -> None:
    """A folder that was approved in two base folders is one skill: a command ends both registrations or approvals."""
    base, other = shop / ".agents" / "skills", shop / ".claude" / "skills"
    other.parent.mkdir()
    base.rename(other)
    assert alone(omac, "register", "slack", "--workdir", str(shop), extra=GIVEN).status == 0
    base.symlink_to(other)
    assert alone(omac, "register", "slack", "--workdir", str(shop), extra=GIVEN).status == 0
    before = registry(omac)
    assert [row["source"] for row in before].count(str(other / "slack")) == 2, before
    done = omac.run(*command, "slack", cwd=shop)
    assert (done.status, done.out.count(f"slack in {other}/slack\n")) == (0, 1), done
    assert not any(row["approved"] for row in registry(omac) if row["source"] == str(other / "slack"))
    assert omac.run(*command, "slack", cwd=shop).status == (0 if command == ["revoke"] else 4)


@pytest.mark.full
def test_a_server_that_runs_stops_it(omac: Omac, shop: Path) -> None:
    """A server stops a skill that is deregistered."""
    server = omac.serve()
    eventually(lambda: server.skill(shop, "slack")["state"] == "ready", 10.0, "the skill")
    assert deregister(omac, "slack", "--workdir", str(shop), "--yes").status == 0
    eventually(lambda: server.skill(shop, "slack")["state"] == "broken", 20.0, "the end of the skill")
