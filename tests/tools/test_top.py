"""`omac top`: the calls of the last seconds, from the journal of a running server."""

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pexpect
import pytest
from contract.journals import commit_now
from polling import eventually
from real_omac import COMMAND, Omac, curl

from omac.domain.access.access import AccessAborted, AccessRefused, AccessRequested
from omac.domain.kernel.event import Draft
from omac.domain.kernel.ids import HostId, access_stream
from omac.journal.opening import open_journal


def test_calls_of_two_sessions(omac: Omac, shop: Path) -> None:
    """Calls are listed by session, the busier first. Without a terminal the table is printed once."""
    server = omac.serve()
    assert omac.ok("top").splitlines()[1:] == ["no calls"]
    for session, count in (("one", 3), ("two", 1)):
        manifest = server.activate(shop, session)
        (skill,) = manifest["skills"]
        for _ in range(count):
            assert curl(f"{skill['base']}/status").status == 200
    eventually(lambda: all(row["outcome"] == "completed" for row in omac.audit()), 20.0, "the outcomes")
    (report,) = map(json.loads, omac.ok("top", "-n", "1", "--json").splitlines())
    assert report["window"] == 10
    assert [
        (call["skill"], call["session"], call["rate"], call["failed"], call["under_way"]) for call in report["calls"]
    ] == [
        ("echo", "one", 0.3, 0, 0),
        ("echo", "two", 0.1, 0, 0),
    ]
    assert all(0 < call["median"] <= call["p99"] < 5 and call["dir"] == str(shop) for call in report["calls"])
    _, heads, first, second = omac.ok("top").splitlines()
    assert heads.split() == ["SKILL", "PROJECT", "SESSION", "CALLS/S", "OPEN", "FAILED", "MEDIAN", "P99", "BYTES"]
    assert first.split()[:6] == ["echo", "shop", "one", "0.3", "0", "0"]
    assert second.split()[:6] == ["echo", "shop", "two", "0.1", "0", "0"]


def test_a_long_name_of_a_session(omac: Omac, shop: Path) -> None:
    """A session with a long name takes no more columns than one that is named by a UUID; --json has the whole name."""
    name = f"begin{'x' * 190}end"
    (skill,) = omac.serve().activate(shop, name)["skills"]
    assert curl(f"{skill['base']}/status").status == 200
    row = omac.ok("top").splitlines()[2].split()
    assert (len(row[2]), row[2][:6], row[2][-3:]) == (36, "beginx", "end")
    (report,) = map(json.loads, omac.ok("top", "-n", "1", "--json").splitlines())
    assert [call["session"] for call in report["calls"]] == [name]


@pytest.mark.full
def test_names_of_sessions_that_could_pass_for_others(omac: Omac, shop: Path) -> None:
    """A name with blanks, or "-", stands between quotes in a table: it passes for no other column, and for no other
    session, such as that of a person."""
    server = omac.serve()
    names = ["-", "cli", "cli ", "cli  0.9  0  0"]
    for name in names:
        (skill,) = server.activate(shop, name)["skills"]
        assert curl(f"{skill['base']}/status").status == 200
    eventually(lambda: all(row["outcome"] == "completed" for row in omac.audit()), 20.0, "the outcomes")
    shown = sorted(["'-'", "cli", "'cli '", "'cli  0.9  0  0'"])
    counted = omac.ok("audit", "--kind", "access", "--count-by", "session")
    assert sorted(line.removesuffix("1").strip() for line in counted.splitlines()[1:]) == shown
    rows = omac.ok("top").splitlines()[2:]
    assert sorted(row.removeprefix("echo   shop     ").partition("  0.1  ")[0].strip() for row in rows) == shown, rows


def test_a_journal_ahead_of_the_clock(omac: Omac, shop: Path) -> None:
    """Calls of earlier do not count as those of the last seconds where their time is one that is still to come."""
    assert curl(f"{omac.serve().skill(shop)['base']}/status").status == 200
    with closing(open_journal(str(omac.state / "journal.db"), "r", lambda: 2_000_000_000 * 10**9)) as journal:
        refused = AccessRefused(None, None, "", None, "GET", "", 404, "unknown-mount")
        commit_now(journal, [Draft(access_stream(HostId("h")), None, refused)])
    (report,) = map(json.loads, omac.ok("top", "-n", "1", "--json").splitlines())
    assert [call["skill"] for call in report["calls"]] == ["echo"]


def test_a_call_that_lasted(omac: Omac) -> None:
    """A call that has just ended counts, however long it lasted: as one that the skill did not answer in time."""
    times = [time.time_ns() - 30 * 10**9, time.time_ns()]
    with closing(open_journal(str(omac.state / "journal.db"), "r", lambda: times[0])) as journal:
        begun = AccessRequested("/w/shop", "echo", "echo", "s1", "GET", "/slow")
        (recorded,) = commit_now(journal, [Draft(access_stream(HostId("h")), None, begun)])
        times.pop(0)
        ended = AccessAborted(recorded.position, "timeout", 504, 0, 0, 30_000_000)
        commit_now(journal, [Draft(access_stream(HostId("h")), None, ended)])
    (report,) = map(json.loads, omac.ok("top", "-n", "1", "--json").splitlines())
    assert [(call["rate"], call["failed"], call["under_way"]) for call in report["calls"]] == [(0.1, 1, 0)]


@pytest.mark.full
def test_projects_that_are_called_the_same(omac: Omac, shop: Path) -> None:
    """Projects of the same name are told apart by their paths."""
    namesake = omac.approved("more/shop")
    server = omac.serve()
    for project in (shop, namesake):
        assert curl(f"{server.skill(project)['base']}/status").status == 200

    def named() -> bool:
        return {row.split()[1] for row in omac.ok("top").splitlines()[2:]} == {str(shop), str(namesake)}

    eventually(named, 20.0, "both, by their paths")


@pytest.mark.full
def test_it_is_shown_again_and_again(omac: Omac, shop: Path) -> None:
    """Programs get a line each time, with new calls; a terminal is redrawn until Ctrl-C."""
    server = omac.serve()
    base = server.skill(shop)["base"]
    line = [*COMMAND, "top", "-n", "3", "--json"]
    with subprocess.Popen(line, env=omac.environment, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        curl(f"{base}/status")
        last = [json.loads(line) for line in watching.stdout.read().splitlines()][-1]
        assert (first["calls"], last["calls"][0]["rate"]) == ([], 0.1)
        assert watching.wait() == 0
    terminal = pexpect.spawn(
        sys.executable, [*COMMAND[1:], "top"], env=omac.environment, dimensions=(24, 80), timeout=20, encoding="utf-8"
    )
    for _ in range(2):
        terminal.expect("the last 10 s")
        terminal.expect("echo")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130 or terminal.signalstatus == 2


@pytest.mark.parametrize("typed", ["-1", "x", ""])
def test_a_number_that_is_none(omac: Omac, typed: str) -> None:
    """A count that is no number is misuse."""
    slip = omac.run("top", "-n", typed)
    assert (slip.status, slip.out) == (2, "")
