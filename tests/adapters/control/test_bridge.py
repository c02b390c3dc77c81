"""Calls that an agent's bridge may make to a real server, with its socket and its token."""

import json
import os
from pathlib import Path

import pytest
from machine import cpu_s
from polling import eventually
from real_omac import Answer, Omac, Serving, curl

from omac.domain.access.control import BRIDGE_CALLS, CALLS, ControlCalled, ControlRefused
from omac.domain.directories.events import SessionEnded
from omac.domain.guard.denial import GuardDenied

REPEATED = 15
LONG_CALLS = 10
LONG_CALL_S = 0.04  # of the processor, for all that the server does for one


def bridge(server: Serving, action: str, document: object = None, *, token: str | None = None) -> Answer:
    """Make a call on the bridge's socket, with the bridge's token or the given one."""
    folder = Path(os.path.dirname(server.ready["control_socket"]))
    bearer = token if token is not None else (folder / "bridge.token").read_text()
    sends = () if document is None else ("--json", json.dumps(document))
    where = ("--unix-socket", str(folder / "bridge.sock"), f"http://localhost/__omac__/{action}")
    return curl("-H", f"Authorization: Bearer {bearer}", *sends, *where)


@pytest.mark.parametrize("call", sorted({*CALLS, "nosuch"} - BRIDGE_CALLS))
def test_a_bridge_is_offered_few_calls(house: Omac, server: Serving, call: str) -> None:
    """The server refuses and records every call of a bridge but activation, deactivation and reports of denials."""
    refusal = (call if call in CALLS else "", "bridge", "forbidden")

    def count() -> int:
        refusals = [record.event for record in house.events(ControlRefused) if isinstance(record.event, ControlRefused)]
        return sum(each.count for each in refusals if (each.action, each.listener, each.reason) == refusal)

    before = count()
    answer = bridge(server, call, {"dir": str(house.folder)})
    assert (answer.status, answer.headers["x-omac-reason"]) == (403, "forbidden")
    eventually(lambda: count() > before, 15.0, f"the refusal of {call}")
    assert count() == before + 1


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "null", "https://evil.example"])
def test_no_bridge_is_a_web_page(server: Serving, origin: str) -> None:
    """A web page that this machine serves is refused like any other: under --bridge-compat it would need no token."""
    folder = Path(os.path.dirname(server.ready["control_socket"]))
    bearer = f"Authorization: Bearer {(folder / 'bridge.token').read_text()}"
    where = ("--unix-socket", str(folder / "bridge.sock"), "http://localhost/__omac__/activate")
    answer = curl("-H", bearer, "-H", f"Origin: {origin}", "--json", '{"dir": "/"}', *where)
    assert (answer.status, answer.headers["x-omac-reason"]) == (403, "foreign-origin")


def test_the_tokens_of_the_two_listeners_are_not_the_same(server: Serving) -> None:
    """Neither token opens the other's listener. Only the user can open the bridge's token file and socket."""
    folder = Path(os.path.dirname(server.ready["control_socket"]))
    own = (folder / "bridge.token").read_text()
    assert bridge(server, "activate", {"dir": "/"}, token=server.token).status == 401
    assert server.call_tcp("dirs", "-H", f"Authorization: Bearer {own}").status == 401
    assert (folder / "bridge.token").stat().st_mode & 0o777 == 0o600
    assert (folder / "bridge.sock").stat().st_mode & 0o777 == 0o600


def test_a_session_activates_by_the_bridge(house: Omac, server: Serving) -> None:
    """Each session gets a manifest with a token of its own, and the journal names the listener of the call."""
    project = house.project("bridged")
    manifest = bridge(server, "activate", {"dir": str(project), "session": "s1"}).json()
    assert manifest["dir"] == str(project)
    other_manifest = bridge(server, "activate", {"dir": str(project), "session": "s2"}).json()
    assert manifest["dir_token"] != other_manifest["dir_token"]
    called = [record for record in house.events(ControlCalled) if isinstance(record.event, ControlCalled)]
    calls = [
        (record.event.action, record.event.listener, record.actor)
        for record in called
        if record.event.dir == str(project)
    ]
    assert set(calls) == {("activate", "bridge", "bridge")}


def test_a_session_is_ended_by_the_bridge_and_a_directory_is_not(house: Omac, server: Serving) -> None:
    """The bridge ends one session: the other session and the directory stay active. The journal records the end. The
    bridge's call to deactivate the whole directory is refused."""
    project = house.approved("ended")
    ended, remaining = (
        bridge(server, "activate", {"dir": str(project), "session": each}).json() for each in ("e1", "e2")
    )
    bases = [f"{server.ready['facade_base']}/{manifest['dir_token']}/echo/status" for manifest in (ended, remaining)]
    eventually(lambda: [curl(base).status for base in bases] == [200, 200], 10.0, "the skill")
    answer = bridge(server, "deactivate", {"dir": str(project), "session": "e1"})
    assert answer.json() == {"dir": str(project), "session": "e1", "status": "session-ended"}
    assert [curl(base).status for base in bases] == [404, 200]
    (recorded,) = [each.event for each in house.events(SessionEnded)]
    assert isinstance(recorded, SessionEnded)
    assert recorded.session == "e1"
    rows = [json.loads(line) for line in house.ok("audit", "--json").splitlines()]
    (row,) = [row for row in rows if row["kind"] == "control.called" and "deactivate" in row["detail"]]
    assert (row["session"], row["detail"], row["dir"]) == ("e1", "deactivate of the session by bridge", str(project))
    again = bridge(server, "activate", {"dir": str(project), "session": "e1"}).json()
    assert again["dir_token"] not in (ended["dir_token"], remaining["dir_token"])
    refused = bridge(server, "deactivate", {"dir": str(project)})
    assert (refused.status, refused.json()["reason"]) == (403, "forbidden")
    assert {"dir": str(project), "state": "active"} in server.call("dirs").json()["dirs"]


@pytest.mark.parametrize("text", ["a" * 60_000, "%61" * 20_000])
def test_a_long_directory_costs_the_server_little(server: Serving, text: str) -> None:
    """An agent that names directories of 60,000 characters, each of which may begin a token, holds up no other call."""
    before = cpu_s(server.process.pid)
    for _ in range(LONG_CALLS):
        answer = bridge(server, "activate", {"dir": f"/{text}"})
        assert (answer.status, answer.headers["x-omac-reason"]) == (400, "bad-request")
    assert cpu_s(server.process.pid) - before < LONG_CALLS * LONG_CALL_S


def denials(house: Omac) -> list[GuardDenied]:
    """Return the denials of the guard that the journal records."""
    return [record.event for record in house.events(GuardDenied) if isinstance(record.event, GuardDenied)]


def test_a_denial_is_recorded_as_claimed(house: Omac, server: Serving) -> None:
    """The journal records a denial as the bridge reports it, and `omac audit` marks it as a claim."""
    claim = {"harness": "claude", "tool": "Write", "path": "/w/other/x", "root": "/w/tree", "session": "s1"}
    answer = bridge(server, "denied", claim)
    assert (answer.status, answer.json()) == (200, {"ok": True})
    assert denials(house) == [GuardDenied("claude", "Write", "/w/other/x", "/w/tree", "", "s1", "bridge")]
    assert "claimed" in house.ok("audit")


@pytest.mark.full
def test_denials_that_repeat_are_counted(house: Omac, server: Serving) -> None:
    """An agent that reports the same denial again and again does not fill the journal: a few events hold the count."""
    claim = {"harness": "claude", "tool": "Edit", "path": "/w/again", "root": "/w/tree"}
    for _ in range(REPEATED):
        assert bridge(server, "denied", claim).status == 200
    eventually(
        lambda: sum(e.count for e in denials(house) if e.path == "/w/again") == REPEATED, 15.0, "all in the count"
    )
    assert len([e for e in denials(house) if e.path == "/w/again"]) <= 4


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"harness": "claude"},
        [],
        {"harness": "claude", "tool": "Write", "path": "/" + "x" * 2_000, "root": "/"},
        {"harness": "claude", "tool": 1, "path": "/", "root": "/"},
        {"harness": "claude", "tool": "Write", "path": "/x", "root": "/", "origin": "spool"},
    ],
)
def test_a_report_of_another_form_is_refused(house: Omac, server: Serving, document: object) -> None:
    """A malformed report is a bad request, and nothing is recorded."""
    before = len(denials(house))
    answer = bridge(server, "denied", document)
    assert (answer.status, answer.headers["x-omac-reason"]) == (400, "bad-request")
    assert len(denials(house)) == before
