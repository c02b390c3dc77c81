"""The command line for users and scripts: help, streams, formats, filters, and a status that equals its replay."""

import csv
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from command_walk import ALL
from polling import eventually
from real_omac import Omac, Serving, curl

from omac.domain.directories.events import ActivationRequested
from omac.tools.terminal.timestamps import rfc3339, wall_clock_of
from omac.tools.terminal.version import VERSION

COMMANDS = {words[0] for words in ALL}


@pytest.fixture(scope="module", autouse=True)
def used(house: Omac, server: Serving) -> list[dict[str, Any]]:
    """Return the audit of two directories with two skills: completed, aborted and refused accesses.

    They are the first accesses in the journal, in any order of the tests.
    """
    first, second = house.project("shop", "echo", "other"), house.project("shop-2")
    for project, skills in ((first, ("echo", "other")), (second, ("echo",))):
        house.approve(project, *skills)
        for skill in server.activate(project)["skills"]:
            assert curl(f"{skill['base']}/echo/{project.name}").status == 200
    base = server.skill(second)["base"]
    assert curl(f"{base}/crash").status == 502
    assert curl(base.replace("/echo", "/nothing")).status == 404

    def rows() -> list[dict[str, Any]]:
        accesses = house.audit()
        return accesses if len(accesses) == 5 and not any(row["outcome"] == "open" for row in accesses) else []

    accesses: list[dict[str, Any]] = eventually(rows, 20.0, "five accesses with their outcomes")
    return accesses


def test_help_begins_with_examples(house: Omac) -> None:
    """The help shows lines to paste before any list of commands, and explains every command in one line."""
    out = house.ok("--help")
    assert out.index("Examples:") < out.index("Run agents:") < out.index("Skills:") < out.index("Values:")
    examples = re.findall(r"^  +omac (\w+)", out, re.MULTILINE)
    assert set(examples) <= COMMANDS
    assert len(examples) >= 5
    listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S.*$", out.partition("Run agents:")[2], re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert {name.partition(" ")[0] for name in listed} == COMMANDS


def test_the_version(house: Omac) -> None:
    """The version is one line for users, and one object for programs."""
    assert house.ok("version") == house.ok("--version") == f"omac {VERSION}\n"
    assert json.loads(house.ok("version", "--json")) == {"version": VERSION}


def test_data_and_messages_go_different_ways(house: Omac, server: Serving, used: list[dict[str, Any]]) -> None:
    """A command prints its data on stdout and its messages on stderr: with --json every line on stdout parses."""
    for command in (["status"], ["audit"], ["replay", "--at", "5"], ["journal", "stats"], ["version"]):
        done = house.run(*command, "--json")
        assert (done.status, done.err) == (0, ""), done
        assert all(isinstance(json.loads(line), dict) for line in done.out.splitlines())
    done = house.run("activate", str(house.root / "missing"), "--json")
    assert (done.status, done.out) == (2, "")
    assert "does not exist" in done.err


def test_approving(house: Omac, server: Serving) -> None:
    """`omac approve` prints the approved code, its hash, and whether that is new; a second approval changes nothing."""
    project = house.project("approving")
    command = ("approve", "echo", "--workdir", "approving", "--json")
    approval = json.loads(house.ok(*command))
    assert approval | {"bundle_hash": "", "digest": ""} == {
        "skill": "echo",
        "dir": str(project),
        "repository": "",
        "source": str(project / ".agents" / "skills" / "echo"),
        "bundle_hash": "",
        "digest": "",
        "command": ["python3", "sidecar.py"],
        "interpreters": [shutil.which("python3")],
        "variables": ["ECHO_PASSTHROUGH"],
        "gets": [],
        "missing": [],
        "new": True,
    }
    assert re.fullmatch("sha256:[0-9a-f]{64}", approval["bundle_hash"])
    by_commands = [event.position for event in house.events() if event.run != server.ready["run"]]
    assert json.loads(house.ok(*command)) == approval | {"new": False}
    assert [event.position for event in house.events() if event.run != server.ready["run"]] == by_commands


def test_approving_other_code_than_was_meant(house: Omac, server: Serving) -> None:
    """`--hash`, which the printed fix has, refuses the approval of code that was changed since."""
    project = house.project("meant")
    (fix,) = server.skill(project)["fix"]
    assert " --hash sha256:" in fix
    (project / ".agents/skills/echo/sidecar.py").write_text("raise SystemExit('planted')\n")
    done = house.run(*shlex.split(fix)[1:])
    assert done.status == 9
    assert "does not match --hash" in done.err
    assert server.skill(project)["state"] == "broken"


def test_code_that_changed_names_the_difference(house: Omac, server: Serving) -> None:
    """The message has two hashes of the kind that --hash takes, and the command that shows the difference."""
    project = house.approved("drifted")
    program = project / ".agents/skills/echo/sidecar.py"
    program.write_text(program.read_text() + "# drifted\n")
    skill = server.skill(project)
    compare, approve = (shlex.split(fix)[1:] for fix in skill["fix"])
    assert compare[:2] == ["diff", "echo"]
    assert "+# drifted" in house.run(*compare).out
    approved, current = re.findall(r"sha256:[0-9a-f]{64}", skill["detail"])
    assert approved != current == approve[approve.index("--hash") + 1]
    assert "CHANGED after it was approved since" in house.ok("show", "echo", "--workdir", str(project))
    house.ok(*approve)
    eventually(lambda: server.skill(project)["state"] == "ready", 20.0, "the approved skill to run")


def test_activating_from_the_command_line(house: Omac, server: Serving) -> None:
    """A user activates, reloads and deactivates a project by a relative path; the manifest is the server's own."""
    project = house.approved("by-hand")
    manifest = json.loads(house.ok("activate", "by-hand", "--json"))
    assert manifest == server.activate(project)
    assert "ready" in house.ok("reload", "by-hand")
    assert house.ok("deactivate", "by-hand") == f"{project}: deactivated\n"
    assert curl(f"{manifest['skills'][0]['base']}/x").status == 404
    assert str(project) not in house.ok("status", "--json")[: house.ok("status", "--json").index('"registry"')]


def test_the_status_is_the_fold_of_the_journal(house: Omac, server: Serving, used: list[dict[str, Any]]) -> None:
    """The server's status and the replay of the journal at that position are the same bytes."""
    compared = 0
    for name in ("x", "y"):
        project = house.project(f"fold-{name}")
        manifest = server.activate(project)
        curl(f"{server.ready['facade_base']}/{manifest['dir_token']}/echo/x")
        live = house.ok("status", "--json")
        position = json.loads(live)["position"]
        assert house.ok("replay", "--at", str(position), "--json") == live
        compared += 1
    assert compared == 2
    assert str(project) in [directory["dir"] for directory in json.loads(live)["directories"]]
    assert manifest["dir_token"] not in live


def test_a_replay_at_a_time_is_the_replay_at_its_position(house: Omac, used: list[dict[str, Any]]) -> None:
    """A replay at an event's printed time has all events up to that one; position 0 is the empty system."""
    records = house.events()
    chosen = records[len(records) // 2]
    reached = sum(1 for _ in takewhile(lambda record: record.at // 1_000 <= chosen.at // 1_000, records))
    assert reached >= chosen.position
    by_time = house.ok("replay", "--at", rfc3339(chosen.at), "--json")
    assert json.loads(by_time)["position"] == reached
    assert house.ok("replay", "--at", str(reached), "--json") == by_time
    empty = json.loads(house.ok("replay", "--at", "0", "--json"))
    assert (empty["position"], empty["directories"], empty["runs"]) == (0, [], [])
    assert "events that led there:" in house.ok("replay", "--at", str(chosen.position))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--skill", "other"], lambda row: row["skill"] == "other"),
        (["--skill", "nobody"], lambda row: False),
        (["--dir", "shop"], lambda row: row["dir"].endswith("/shop")),
        (["--dir", "."], lambda row: True),
        (["--dir", "/"], lambda row: True),
        (["--outcome", "refused"], lambda row: row["outcome"] == "refused"),
        (["--outcome", "aborted"], lambda row: row["path"] == "/crash"),
        (["--outcome", "completed", "--dir", "shop-2"], lambda row: row["path"] == "/echo/shop-2"),
        (["--since", "1h"], lambda row: True),
        (["--until", "1h"], lambda row: False),
        (["--since", "2000-01-01", "--until", "2000-01-02"], lambda row: False),
        (["--status", "5xx"], lambda row: row["status"] is not None and row["status"] >= 500),
        (["--method", "get"], lambda row: row["method"] == "GET"),
        (["--path", "/echo/*"], lambda row: row["path"].startswith("/echo/")),
        (["--text", "CRASH"], lambda row: row["path"] == "/crash"),
        (["--actor", "person"], lambda row: False),
        (["--client", "claude"], lambda row: False),
        (["--client", ""], lambda row: True),
        (["--from", "1", "--to", "1"], lambda row: False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_audit_can_be_filtered(house: Omac, used: list[dict[str, Any]], arguments: list[str], wanted: Any) -> None:
    """The audit is filtered by skill, time, outcome and more, and by a directory with those below it.

    A directory whose name only begins alike does not match.
    """
    matches = [row for row in house.audit(*arguments) if row["position"] <= used[-1]["position"]]
    assert matches == [row for row in used if wanted(row)]


def test_the_audit_is_counted(house: Omac, used: list[dict[str, Any]]) -> None:
    """The audit counts rows by its fields, for users, for programs and for spreadsheets."""
    arguments = ("--kind", "access", "--dir", "shop", "--count-by", "skill,outcome")
    assert [json.loads(line) for line in house.ok("audit", *arguments, "--json").splitlines()] == [
        {"skill": "echo", "outcome": "completed", "count": 1},
        {"skill": "other", "outcome": "completed", "count": 1},
    ]
    assert house.ok("audit", *arguments).splitlines()[1].split() == ["echo", "completed", "1"]
    assert house.ok("audit", *arguments, "--csv").splitlines()[0] == "skill,outcome,count"


@pytest.mark.full
def test_the_audit_counts_each_refusal(house: Omac, server: Serving, used: list[dict[str, Any]]) -> None:
    """Refusals of strangers are recorded together; the audit says how many, and counts as many as the status."""

    def refused() -> int:
        return int(json.loads(house.ok("status", "--json"))["accesses"]["refused"])

    before = refused()
    base = re.sub(r"/[0-9a-f]{32}/", f"/{'f' * 32}/", server.skill(house.root / "shop")["base"])
    for _ in range(20):
        assert curl(base).status == 404
    eventually(lambda: refused() == before + 20, 25.0, "the end of the interval")
    rows = house.audit("--outcome", "refused")
    assert sum(row["count"] for row in rows) == before + 20
    counted = json.loads(house.ok("audit", "--kind", "access", "--outcome", "refused", "--count-by", "kind", "--json"))
    assert counted["count"] == before + 20
    most = max(row["count"] for row in rows)  # on a busy machine, the calls of two intervals are two rows
    assert f"(unknown-mount), {most} times" in house.ok("audit", "--outcome", "refused")


@pytest.mark.parametrize("counted", [(), ("--count-by", "skill")])
def test_an_audit_without_rows(house: Omac, used: list[dict[str, Any]], counted: tuple[str, ...]) -> None:
    """An audit without rows reports that and suggests a command; programs get no message."""
    done = house.run("audit", "--skill", "none", *counted)
    assert (done.status, len(done.out.splitlines())) == (0, 1), "the heads alone"
    assert done.err.startswith("no row matches\n  try: omac audit --count-by "), done.err
    assert house.run("audit", "--skill", "none", *counted, "--json").err == ""


@pytest.mark.parametrize(
    ("filters", "fields"),
    [
        (("--run", "4711", "--session", "s"), "session,run"),
        (("--status", "418", "--since", "1h"), "status"),
        (("--client", "pi"), "client"),
        (("--text", "nowhere"), "kind,skill,dir"),
    ],
)
def test_the_values_that_a_filter_takes(
    house: Omac, used: list[dict[str, Any]], filters: tuple[str, ...], fields: str
) -> None:
    """An audit without rows suggests the command that counts the values of the very fields that were filtered."""
    done = house.run("audit", *filters)
    assert done.err == f"no row matches\n  try: omac audit --count-by {fields}  # the values that rows have\n"


def test_the_audit_is_resumed(house: Omac, used: list[dict[str, Any]]) -> None:
    """An audit by pages prints each row once; a cursor of another journal, or from its future, is refused."""
    rows: list[dict[str, Any]] = []
    cursor, page = "start", [dict[str, Any]()]
    while page:
        printed = house.ok("audit", "--kind", "access", "--json", "--after", cursor, "--page", "1")
        *page, end = map(json.loads, printed.splitlines())
        rows += page
        cursor = end["cursor"]
    assert sorted(rows, key=lambda row: row["position"])[: len(used)] == used
    follow = house.start("audit", "--kind", "access", "--follow", "--after", "start", "--json")
    followed = [json.loads(follow.line()) for _ in used]
    assert [{name: row[name] for name in row if name != "cursor"} for row in followed] == rows[: len(used)]
    journal, _, position = cursor.partition("-")[0].rpartition(".")
    for wrong, reason in (
        (f"x{journal}.1", "of another journal"),
        (f"{journal}.{position}0000", "ahead"),
        ("?", "start"),
    ):
        done = house.run("audit", "--after", wrong)
        assert (done.status, reason in done.err) == (2, True), done


def test_the_audit_as_csv(house: Omac, used: list[dict[str, Any]]) -> None:
    """The audit as CSV has the names and the rows of the JSON."""
    head, *rows = csv.reader(house.ok("audit", "--kind", "access", "--csv").splitlines())
    assert head == list(used[0])
    assert [int(row[0]) for row in rows][: len(used)] == [row["position"] for row in used]


def test_the_audit_can_be_cut_at_an_access(house: Omac, used: list[dict[str, Any]]) -> None:
    """A row's own `at` can be pasted as --since and --until; both include it. So does its day."""
    at = used[2]["at"]
    assert [row["position"] for row in house.audit("--since", at, "--until", at)] == [used[2]["position"]]
    day = wall_clock_of(at).split()[0]
    assert used[2]["position"] in [row["position"] for row in house.audit("--since", day, "--until", day)]


def test_the_audit_for_people(house: Omac, used: list[dict[str, Any]]) -> None:
    """The audit as text has a line for the columns, then one for each access, with its position first."""
    head, *lines = house.ok("audit", "--kind", "access", "--dir", "shop").splitlines()
    assert head.split()[:3] == ["position", "at", "outcome"]
    assert [int(line.split()[0]) for line in lines] == [row["position"] for row in used if row["dir"].endswith("/shop")]


def test_where_the_journal_is_and_what_is_in_it(house: Omac, server: Serving, used: list[dict[str, Any]]) -> None:
    """The journal's path comes from the flag, the variable or the state directory; the counts are those of the file."""
    assert house.ok("journal", "path") == f"{server.ready['journal']}\n"
    assert house.run("journal", "path", extra={"OMAC_JOURNAL": "/x/y.db"}).out == "/x/y.db\n"
    assert house.run("journal", "path", "--journal", "z.db").out == f"{house.root}/z.db\n"
    bare = {"OMAC_STATE_DIR": "", "XDG_STATE_HOME": ""}
    assert house.run("journal", "path", extra=bare).out == f"{house.environment['HOME']}/.local/state/omac/journal.db\n"
    stats = json.loads(house.ok("journal", "stats", "--json"))
    connection = sqlite3.connect(f"file:{stats['path']}?mode=ro", uri=True)
    (count,) = connection.execute("SELECT count(*) FROM event").fetchone()
    connection.close()
    assert stats["events"] == sum(stats["kinds"].values()) == count
    assert stats["kinds"]["access.completed"] == 3
    assert stats["first_at"] < stats["last_at"]
    assert stats["bytes"] >= os.path.getsize(stats["path"])
    shown = house.ok("journal", "stats")
    assert "access.completed" in shown
    assert f"\nfrom {wall_clock_of(stats['first_at'])} to {wall_clock_of(stats['last_at'])}\n" in shown


def test_status_for_people_names_what_is_online(house: Omac, server: Serving, used: list[dict[str, Any]]) -> None:
    """The status names directories, skills, and the log of each sidecar."""
    out = house.ok("status")
    assert f"pid {server.process.pid}" in out
    assert f"{house.root / 'shop'}: active" in out
    log = re.search(r"sidecar other of \S+: healthy \(pid \d+, port \d+, log (\S+)\)", out)
    assert log is not None, out
    assert "/status 200" in Path(log[1]).read_text()


def test_without_a_server_the_status_comes_from_the_journal(omac: Omac) -> None:
    """The status after an orderly end of the server comes from the journal: no directory is online."""
    omac.serve().end()
    status = json.loads(omac.ok("status", "--json"))
    assert omac.ok("replay", "--at", str(status["position"]), "--json") == omac.ok("status", "--json")
    assert "no directory is online" in omac.ok("status")


@pytest.mark.full
def test_what_a_server_knows_is_asked_of_it(house: Omac, server: Serving) -> None:
    """A command that a running server answers loads no module of the journal, but for the one that makes folders."""
    listing = (
        "import os, sys; leave = os._exit\n"
        "def end(status): print('loaded', *sys.modules, file=sys.stderr, flush=True); leave(status)\n"
        "os._exit = end\n"
    )
    project = house.project("asking")
    for words in ("activate", "status", "status --json", "reload", "deactivate"):
        argv = [sys.executable, "-c", f"{listing}from omac.tools.entry import main; main()", *words.split()]
        done = subprocess.run(argv, env=house.environment, cwd=project, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        (listed,) = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
        journal = [name for name in listed.split() if name.startswith("omac.journal.") or name == "sqlite3"]
        assert journal in ([], ["omac.journal.folders"]), words


def test_a_record_is_explained(house: Omac, used: list[dict[str, Any]]) -> None:
    """`omac audit explain` prints the outcome of an access below its request, and its sidecar; and an activation below
    its call."""
    position = used[0]["position"]
    explained = json.loads(house.ok("audit", "explain", str(position), "--json"))
    assert [(record["kind"], record["depth"]) for record in explained["records"]] == [
        ("access.requested", 0),
        ("access.completed", 1),
    ]
    first, second, sidecar = house.ok("audit", "explain", str(explained["records"][1]["position"])).splitlines()
    assert first.startswith(f"  {position}  ")
    assert second.startswith(">   ")
    assert (
        sidecar == f"forwarded to the sidecar echo of position {explained['sidecars'][0]['position']}, with no secret"
    )
    assert house.run("audit", "explain", "999999999").status != 0
    assert house.run("audit", "explain", "x").status == 2
    activation = house.events(ActivationRequested)[0]
    call, *effects = house.ok("audit", "explain", str(activation.position)).splitlines()
    assert " control.called (by person) action=activate " in call
    assert effects[0].startswith(f"> {activation.position}  ")
    assert {"skill.planned", "sidecar.healthy", "directory.activated"} <= {line.split()[3] for line in effects[1:]}
    assert all(line.startswith("    ") for line in effects[1:])
    assert any(" sidecar.healthy of echo (by omac)" in line for line in effects), "each sidecar is told apart"


def test_a_refusal_is_explained(house: Omac, server: Serving) -> None:
    """`omac audit explain` traces a refused call to the revocation that ended its route."""
    project = house.approved("refused-why")
    base = server.skill(project)["base"]
    house.ok("revoke", "echo", "--workdir", str(project))
    eventually(lambda: curl(f"{base}/status").status == 502, 10.0, "the end of the route")
    position = _refused_in(house, project)
    records = json.loads(house.ok("audit", "explain", str(position), "--json"))["records"]
    kinds = [(record["kind"], record["depth"]) for record in records]
    assert kinds == [
        ("skill.approval-revoked", 0),
        ("directory.reload-requested", 1),
        ("route.stubbed", 2),
        ("access.refused", 0),
    ]
    assert records[-1]["because_of"] == [records[-2]["position"]]
    text = house.ok("audit", "explain", str(position))
    assert f"(by agent because of {records[-2]['position']}) " in text


def _refused_in(house: Omac, project: Path) -> int:
    """Return the position of the last refused call in a project."""
    rows = eventually(lambda: house.audit("--dir", str(project), "--outcome", "refused"), 10.0, "its record")
    position: int = rows[-1]["position"]
    return position


def test_a_call_of_nothing_is_explained(house: Omac, server: Serving) -> None:
    """`omac audit explain` of a call to an unknown mount suggests a replay at that position."""
    project = house.approved("called-nothing")
    assert curl(server.skill(project)["base"].replace("/echo", "/nothing")).status == 404
    position = _refused_in(house, project)
    assert f"\n  try: omac replay --at {position}\n" in house.run("audit", "explain", str(position)).err


def test_nested_fields_are_shown_by_name(house: Omac, used: list[dict[str, Any]]) -> None:
    """The fields of a sidecar's spec, and of structs within it, have their names for people and in JSON."""
    spawned = next(record for record in house.events() if type(record.event).__name__ == "SpawnRequested")
    position = str(spawned.position)
    records = json.loads(house.ok("audit", "explain", position, "--json"))["records"]
    spec = next(record for record in records if record["position"] == spawned.position)["event"]["spec"]
    skill = spawned.event.spec.skill
    assert (spec["skill"], spec["source"], spec["health"]["path"]) == (skill, spawned.event.spec.source, "/status")
    for done in (house.ok("audit", "explain", position), house.ok("replay", "--at", position)):
        assert f' spec={{"skill":"{skill}","mount":"' in done


def test_values_are_shown_in_full(house: Omac, used: list[dict[str, Any]]) -> None:
    """`omac audit explain` prints the named record whole, and suggests a command where it cuts others."""
    spawned = next(record for record in house.events() if type(record.event).__name__ == "SpawnRequested")
    explained = house.run("audit", "explain", str(spawned.position))
    line = next(line for line in explained.out.splitlines() if line.startswith(">"))
    assert "..." not in line
    assert line.endswith(" generation=1 attempt=1")
    for done in (house.run("audit", "explain", str(spawned.position + 1)), house.run("replay", "--at", "12")):
        assert "..." in done.out
        assert "\n  try: omac audit explain " in done.err
    path = str(house.state / "journal.db")
    offered = house.run("replay", "--at", "12", "--journal", path).err
    assert f" --journal {path}\n" in offered


def test_a_replay_of_nothing(house: Omac, used: list[dict[str, Any]]) -> None:
    """A replay before the first event has one line, and no empty headings."""
    for at in ("0", "2001-01-01"):
        text = house.ok("replay", "--at", at)
        assert text.startswith("nothing was recorded then: position 1 is of 20")
        assert len(text.splitlines()) == 1
