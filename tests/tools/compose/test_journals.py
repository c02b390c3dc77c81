"""tools/compose/journals.py: every reader sees the records of short-lived programs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from contract.launches import WHOLE, Program
from contract.media import needs_bubblewrap, read_only
from polling import eventually
from real_omac import Omac

from omac.adapters.files.journal_in_use import spool_of


@pytest.fixture
def program(omac: Omac) -> Program:
    """Return a program that spools where this omac looks."""
    return Program(omac.state / "spool")


def rows(omac: Omac, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in omac.ok("audit", "--json", *arguments).splitlines()]


def waiting(omac: Omac) -> list[str]:
    return sorted(name for name in os.listdir(omac.state / "spool") if name != "rejected")


def test_the_audit_tells_of_launches_and_denials(omac: Omac, program: Program) -> None:
    """The audit ingests spooled records before any other run, makes the journal, and filters by each kind."""
    program.launch("aa", *WHOLE)
    program.launch("bb", "denied")
    program.launch("cc", "launch-requested", "launched", workdir="/w/mail", argv=["sleep", "9"])
    program.deny("dd")
    done = omac.run("audit", "--json")
    assert (done.status, done.err) == (0, "")
    entries = [json.loads(line) for line in done.out.splitlines()]  # each launch in its order, side by side with others
    ended, refused, still, guard = sorted(entries, key=lambda row: row["at"])
    assert (ended["kind"], ended["outcome"], ended["status"], ended["duration"]) == ("sandbox", "completed", 0, 2.0)
    assert (ended["dir"], ended["actor"]) == ("/w/shop", "person")
    assert len({row["position"] for row in entries} & set(range(1, 8))) == 4
    assert ended["detail"].startswith("npm test; for claude, by bubblewrap, network host, policy abab")
    assert ended["detail"].endswith("; found: /w/shop/.git/hooks/x: a hook")
    assert (refused["kind"], refused["outcome"], refused["reason"]) == ("sandbox", "refused", "git-unsafe")
    assert (guard["kind"], guard["outcome"], guard["session"]) == ("guard.denied", "refused", "s1")
    assert (still["outcome"], still["dir"], still["status"]) == ("open", "/w/mail", None)
    assert waiting(omac) == []
    assert sorted(row["dir"] for row in rows(omac, "--kind", "sandbox")) == ["/w/mail", "/w/shop", "/w/shop"]
    assert rows(omac, "--kind", "guard") == [guard]
    assert rows(omac, "--dir", "/w/mail") == [still]
    assert rows(omac, "--outcome", "open") == [still]
    text = omac.ok("audit", "--kind", "sandbox")
    assert "sandbox in /w/shop by person: npm test; " in text
    assert "sandbox in /w/shop by person (git-unsafe): npm; no" in text


def test_a_long_command_is_cut_for_people_alone(omac: Omac, program: Program) -> None:
    """The table leaves out the middle of a launch's long command, and nothing of what omac found; JSON has it all."""
    finding = "/w/shop/" + "; by x, network y, policy z" * 20
    program.launch("aa", *WHOLE[:2], argv=["codex", *["-c", "x" * 100] * 9, "exec", "hello"])
    program.put("sandbox.exited", {"status": 0, "findings": [finding], "lost": ""}, "aa", 3)
    (row,) = rows(omac, "--kind", "sandbox")
    assert "x" * 100 + " exec hello; for claude" in row["detail"]
    text = omac.ok("audit", "--kind", "sandbox")
    assert ": codex -c xx" in text
    assert "x exec hello; for claude, by bubblewrap, network host, policy abab" in text
    assert f"found: {finding}" in text
    assert len(text) < len(row["detail"])
    assert "[652 characters]" in text


@pytest.mark.parametrize(
    "command", [("status", "--json"), ("replay", "--at", "1", "--json"), ("journal", "stats", "--json"), ("audit",)]
)
def test_every_command_that_reads_takes_in(omac: Omac, program: Program, command: tuple[str, ...]) -> None:
    """A command that reads ingests the spool first, so that its output is up to date."""
    program.launch("aa", "launch-requested")
    assert omac.run(*command).status == 0
    assert waiting(omac) == []
    assert len(omac.events()) == 1


def test_what_runs_is_in_the_status(omac: Omac, program: Program) -> None:
    """The status has running sandboxes, and the replay of the position has the same bytes. The timeline names the
    events that led there."""
    program.launch("aa", "launch-requested", "launched")
    status = omac.ok("status", "--json")
    assert json.loads(status)["sandboxes"] == [
        {"launch": "aa", "dir": "/w/shop", "harness": "claude", "backend": "bubblewrap", "network": "host",
         "state": "launched", "pid": 43, "argv": ["npm", "test"], "run": "", "launcher_pid": 42, "start_ticks": 7,
         "boot_id": "boot", "host": (omac.state / "host-id").read_text()}
    ]  # fmt: skip
    assert omac.ok("replay", "--at", "2", "--json") == status
    assert json.loads(omac.ok("replay", "--at", "0", "--json"))["sandboxes"] == []
    assert "sandbox aa in /w/shop: ended without a record (pid 42 is gone)" in omac.ok("status")
    assert "sandbox aa in /w/shop: launched (bubblewrap, network host, pid 43)" in omac.ok("replay", "--at", "2")
    timeline = omac.ok("replay", "--at", "2")
    assert "sandbox.launched                  sandbox aa in /w/shop (by person) pid=43" in timeline


def test_every_command_that_writes_takes_in_first(omac: Omac, program: Program) -> None:
    """A command that writes ingests the spool first, so that spooled records have lower positions."""
    program.deny("a")
    omac.ok("settings", "set", "serve.unapproved", "refuse")
    program.deny("b")
    omac.project("shop")
    omac.approve(omac.root / "shop")
    assert waiting(omac) == []
    kinds = [type(record.event).__name__ for record in omac.events()]
    assert kinds[:4] == ["GuardDenied", "SettingChangeRequested", "SettingChanged", "GuardDenied"]


def test_a_journal_that_is_named_is_left_as_it_is(omac: Omac, program: Program, tmp_path: Path) -> None:
    """A named copy of the journal gets no new records; the journal in use does, named or not."""
    program.deny("a")
    omac.ok("audit")
    copy = tmp_path / "copy.db"
    copy.write_bytes((omac.state / "journal.db").read_bytes())
    program.deny("b")
    assert len(rows(omac, "--journal", str(copy))) == 1
    assert len(waiting(omac)) == 1
    assert len(rows(omac, "--journal", str(omac.state / "journal.db"))) == 2
    assert waiting(omac) == []


def test_the_journal_of_the_environment_is_in_use(omac: Omac, program: Program, tmp_path: Path) -> None:
    """The journal of the environment is in use: it gets the records of programs that named it, and no others."""
    path = str(tmp_path / "mine.db")
    program.deny("a")
    Program(Path(spool_of(str(omac.state), path))).deny("b")
    assert len(omac.run("audit", "--json", extra={"OMAC_JOURNAL": path}).out.splitlines()) == 1
    assert len(waiting(omac)) == 1
    assert not (omac.state / "journal.db").exists()
    assert len(rows(omac)) == 1


@needs_bubblewrap
def test_a_medium_that_cannot_be_written(omac: Omac, program: Program) -> None:
    """A read-only journal is shown as it is, with a warning that records still wait in the spool."""
    program.deny("a")
    omac.ok("audit")
    program.deny("b")
    done = omac.run("audit", "--json", within=tuple(read_only(omac.state)))
    assert (done.status, len(done.out.splitlines())) == (0, 1)
    assert f"what is in {omac.state}/spool is not shown (1 record): " in done.err
    assert len(waiting(omac)) == 1


def test_what_is_set_aside_is_said_once_and_counted(omac: Omac, program: Program) -> None:
    """A bad file in the spool is set aside, reported once and counted, and hides no other record."""
    (omac.state / "spool" / "junk").write_text("x")
    program.deny("a")
    done = omac.run("audit", "--json")
    assert (done.status, len(done.out.splitlines())) == (0, 1)
    assert "junk is not recorded and is now in" in done.err
    assert omac.run("audit").err == ""
    assert json.loads(omac.ok("journal", "stats", "--json"))["spool"] == {"waiting": 0, "rejected": 1}
    assert "spool: 0 records wait, 1 was set aside" in omac.ok("journal", "stats")


@pytest.mark.full
def test_a_server_takes_in_what_comes(omac: Omac, program: Program) -> None:
    """A server's status soon has a spooled launch, and a replay of the journal gives the same state."""
    server = omac.serve()
    program.launch("aa", "launch-requested", "launched")

    def live() -> str:
        body = server.call("status").body
        sandboxes = json.loads(body)["sandboxes"]
        return body if [sandbox["state"] for sandbox in sandboxes] == ["launched"] else ""

    status = json.loads(eventually(live, 20.0, "the launch in the status"))
    assert [sandbox["launch"] for sandbox in status["sandboxes"]] == ["aa"]
    assert json.loads(omac.ok("replay", "--at", str(status["position"]), "--json")) == status
    assert server.end() == 0
    assert waiting(omac) == []


def test_a_server_settles_what_was_lost(omac: Omac, program: Program) -> None:
    """A launch whose omac was killed is open until a server starts, and aborted afterwards."""
    program.launch("aa", "launch-requested", "launched", boot_id="another")
    assert [row["outcome"] for row in rows(omac, "--kind", "sandbox")] == ["open"]
    server = omac.serve()
    (row,) = rows(omac, "--kind", "sandbox")
    assert (row["outcome"], row["status"], row["reason"]) == ("aborted", None, "the omac that launched it was killed")
    assert server.end() == 0
