"""projections/status.py: the projected state as one plain object."""

from typing import Any

import msgspec

from omac.domain.access.control import ControlCalled, ControlRefused
from omac.domain.credentials.credential import ConfigWritten, SecretWritten
from omac.domain.directories import directory
from omac.domain.directories.events import ReloadRequested, SkillVanished
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids, run
from omac.domain.kernel.ids import HostId, LaunchId, RunId, TokenDigest
from omac.domain.sandbox.launch import Denied, Launched, LaunchExited, LaunchRequested
from omac.domain.sidecars.sidecar import Exit, Exited, GaveUp, SpawnRequested, Stopped, StopRequested
from omac.domain.skills import registration
from omac.domain.skills.registration import Approved, Registered
from omac.projections.access.routes import STARTING
from omac.projections.status import Status, about_stream, shown_problem, status_of
from omac.projections.system import System


def status(history: Any) -> dict[str, Any]:
    encoded = msgspec.json.encode(status_of(System().replay(history.records)))
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=Status)) == encoded, "it can be read back"
    decoded: dict[str, Any] = msgspec.json.decode(encoded)
    return decoded


def test_an_empty_journal(history: Any) -> None:
    """An empty journal has no entries, and its counts are zero."""
    assert status(history) == {
        "position": 0, "runs": [], "directories": [], "global": [], "sidecars": [], "sandboxes": [], "registry": [],
        "defaults": {}, "settings": {},
        "accesses": {"open": 0, "completed": 0, "aborted": 0, "refused": 0},
        "control": {"called": 0, "refused": 0},
        "guard": {"denied": 0}, "unsigned": [], "unwitnessed": [], "unerased": [],
    }  # fmt: skip


def test_every_state_of_a_skill(shop: Any) -> None:
    """Skills are ready, restarting, broken or pending, in the order of names; each but the first has a reason and a
    fix."""
    (entry,) = status(shop)["directories"]
    assert (entry["dir"], entry["state"], entry["harness"], entry["sessions"]) == (
        "/w/shop", "active_partial", "opencode", ["s1"],
    )  # fmt: skip
    skills = {skill["name"]: skill for skill in entry["skills"]}
    assert list(skills) == sorted(skills)
    assert {name: skill["state"] for name, skill in skills.items()} == {
        "ready": "ready", "fell": "restarting", "broken": "broken", "pending": "pending_credentials", "rival": "broken",
    }  # fmt: skip
    assert skills["pending"]["missing"] == ["KEY"]
    assert skills["fell"]["fix"] == ["omac logs fell --workdir /w/shop", "omac reload /w/shop --restart fell"]
    assert (skills["ready"]["detail"], skills["ready"]["fix"]) == ("", [])
    assert skills["rival"]["mount"] == ""


def test_a_sidecar_that_starts_for_the_first_time_does_not_start_again() -> None:
    """A sidecar that starts for the first time is shown as starting; after a failure it is restarting, with the
    reason."""
    assert shown_problem("restarting", STARTING)[0] == "starting"
    failed = ("restarting", f"{STARTING}, after: exited with status 3")
    assert shown_problem(*failed) == failed


def test_sidecars_are_shown_with_what_is_known_of_them(shop: Any) -> None:
    """A sidecar with a process has pid, port and log; a sidecar that is away has failures and a reason."""
    fell, ready = status(shop)["sidecars"]
    assert ready == {
        "dir": "/w/shop", "skill": "ready", "state": "healthy", "pid": 101, "port": 40_001, "log": "/log/ready",
        "failures": 0, "detail": "", "run": "run1", "start_ticks": 7, "boot_id": "boot",
        "host": "host1",
    }  # fmt: skip
    assert (fell["skill"], fell["state"], fell["pid"], fell["failures"], fell["detail"]) == (
        "fell", "backoff", None, 1, "it fell over",
    )  # fmt: skip


def test_a_sidecar_that_gave_up_is_shown_while_its_skill_is_there(shop: Any, host: HostId) -> None:
    """A sidecar that gave up is shown until its skill is removed from the project, or shall run no longer."""
    spec = shop.sidecar("fell").spec
    ends = (SpawnRequested(spec, 1, 2), Exited(Exit(1), 0, "it fell"), GaveUp("it fell"))
    shop.append(ids.sidecar_stream(host, ids.scope_of("/w/shop"), "fell"), *ends)
    assert [sidecar["state"] for sidecar in status(shop)["sidecars"]] == ["gave_up", "healthy"]
    shop.append(ids.directory_stream(host, ids.scope_of("/w/shop")), ReloadRequested(), SkillVanished("fell"))
    assert [sidecar["state"] for sidecar in status(shop)["sidecars"]] == ["healthy"]


def test_the_skills_of_a_directory_that_goes_offline(shop: Any, host: HostId) -> None:
    """A skill is stopping until its sidecar has stopped, not restarting; one that did not run keeps its reason."""
    shop.directory(directory.RequestDeactivation("x"))
    shop.append(ids.sidecar_stream(host, ids.scope_of("/w/shop"), "fell"), StopRequested("x"), Stopped())
    (entry,) = status(shop)["directories"]
    assert {skill["name"]: (skill["state"], skill["fix"]) for skill in entry["skills"][1:4]} == {
        "fell": ("stopped", []), "pending": ("pending_credentials", ["export KEY=..."]), "ready": ("stopping", []),
    }  # fmt: skip


def test_what_is_offline_is_not_shown(shop: Any) -> None:
    """A directory is shown while it goes offline, and no longer when it is offline."""
    shop.directory(directory.RequestDeactivation("x"))
    assert [entry["state"] for entry in status(shop)["directories"]] == ["deactivating"]
    shop.directory(directory.FinishDeactivation())
    assert status(shop)["directories"] == []


def test_directories_and_skills_are_in_order(history: Any) -> None:
    """Directories are in the order of their paths, not of their streams, whose ids are hashes."""
    paths = [f"/w/{name}" for name in "cabd"]
    for path in paths:
        history.directory(directory.RequestActivation(path, "opencode", TokenDigest(path)), path=path)
    assert [entry["dir"] for entry in status(history)["directories"]] == sorted(paths)


def test_runs_that_ended_are_not_shown(history: Any, host: HostId) -> None:
    """The status shows the runs that live, with the roots that they serve."""
    for name in ("r1", "r2", "r3"):
        history.append(
            ids.run_stream(host, RunId(name)), run.RunStarted("opencode", "1.0", 42, 7, "boot", ("/w",)), run=name
        )
    history.append(ids.run_stream(host, RunId("r1")), run.RunStopped("x"))
    history.append(ids.run_stream(host, RunId("r3")), run.RunRecovered("r2", 0, 0, 0))
    assert status(history)["runs"] == [
        {
            "run": "r2", "harness": "opencode", "version": "1.0", "pid": 42, "roots": ["/w"], "command": "serve",
            "start_ticks": 7, "boot_id": "boot", "bridge_compat": False, "agent": "",
            "audit": "strict", "sandbox": "", "host": host,
        }
    ]  # fmt: skip


def test_sandboxes_that_run_are_shown(history: Any, host: HostId) -> None:
    """Sandboxes that run are shown by directory, with their programs; those that ended, or never ran, are not."""
    for launch, workdir in (("aa", "/w/shop"), ("bb", "/w/mail"), ("cc", "/w/shop"), ("dd", "/w/shop")):
        stream = ids.sandbox_stream(host, LaunchId(launch))
        history.append(
            stream, LaunchRequested(workdir, "claude", "bubblewrap", "ab", ("npm", "test"), "host", 1, 2, "b")
        )
    history.append(ids.sandbox_stream(host, LaunchId("aa")), Launched(7))
    history.append(ids.sandbox_stream(host, LaunchId("cc")), Launched(8), LaunchExited(0))
    history.append(ids.sandbox_stream(host, LaunchId("dd")), Denied("/w/shop", "claude", (), "path-changed", "no"))
    how: dict[str, object] = {"harness": "claude", "backend": "bubblewrap", "network": "host", "argv": ["npm", "test"]}
    how |= {"run": "", "launcher_pid": 1, "start_ticks": 2, "boot_id": "b", "host": host}
    assert status(history)["sandboxes"] == [
        {"launch": "bb", "dir": "/w/mail", "state": "requested", "pid": None, **how},
        {"launch": "aa", "dir": "/w/shop", "state": "launched", "pid": 7, **how},
    ]


def test_denials_of_the_guard_are_counted(history: Any, host: HostId) -> None:
    """Each denial of the guard is counted, also where several were recorded together."""
    denied = GuardDenied("claude", "Write", "/w/x", "/w/t")
    for event in (denied, msgspec.structs.replace(denied, count=3)):
        history.log(ids.guard_stream(host), event)
    assert status(history)["guard"] == {"denied": 4}


def test_the_registry_shows_approvals_of_present_code(history: Any, host: HostId) -> None:
    """The registry shows an approval only of the code that was discovered last."""
    stream = ids.registration_stream(host, "scope", "agents", "echo")
    credentials = ids.credential_stream(host, "scope", "echo")
    history.append(stream, Registered("/s", "sha256:1", "/w"), Approved("/s", "sha256:1", "sha256:d"))
    history.append(credentials, SecretWritten("KEY", "hmac:1", "vault"), ConfigWritten("MODE", "fast"))
    (entry,) = status(history)["registry"]
    assert entry == {
        "scope": "scope", "harness": "agents", "skill": "echo", "source": "/s", "bundle_hash": "sha256:1",
        "approved": True, "dir": "/w", "approved_hash": "sha256:1", "digest": "sha256:d",
        "secrets": ["KEY"], "config": {"MODE": "fast"}, "since": 2,
    }  # fmt: skip
    history.append(stream, registration.Drifted("/s", "sha256:2"))
    (entry,) = status(history)["registry"]
    assert (entry["bundle_hash"], entry["approved"]) == ("sha256:2", False)


def test_control_calls_are_counted(history: Any, host: HostId) -> None:
    """Granted and refused calls are counted."""
    log = ids.control_stream(host)
    history.log(log, ControlCalled("activate", "/w", "socket"))
    for _ in range(2):
        history.log(log, ControlRefused("activate", "/etc", "tcp", "outside-roots"))
    assert status(history)["control"] == {"called": 1, "refused": 2}


def test_it_holds_no_token_and_no_digest(shop: Any) -> None:
    """The status, which people paste into a ticket, has no token and no digest of one."""
    text = msgspec.json.encode(status_of(System().replay(shop.records)))
    for digest in (b"t-launch", b"t-s1"):
        assert digest not in text


def test_streams_are_named_for_people(shop: Any, host: HostId) -> None:
    """A stream is named after the facts that the system has of it, else by its id."""
    registered = ids.registration_stream(host, "scope", "agents", "echo")
    shop.append(registered, Registered("/s/echo", "sha256:1"))
    requested = LaunchRequested("/w/shop", "", "bubblewrap", "ab", ("true",), "host", 1, 2, "b")
    shop.append(ids.sandbox_stream(host, LaunchId("aa")), requested)
    system = System().replay(shop.records)
    workdir = ids.workdir_id("/w/shop")
    unknown = ids.directory_stream(host, ids.workdir_id("/w/other"))
    nobody = ids.sidecar_stream(host, workdir, "nobody")
    launched = ids.sandbox_stream(host, LaunchId("aa"))
    assert [
        about_stream(system, stream)
        for stream in (
            ids.directory_stream(host, workdir),
            ids.sidecar_stream(host, workdir, "ready"),
            registered,
            ids.registration_stream(host, "scope", "agents", "other"),
            ids.run_stream(host, RunId("r1")),
            ids.access_stream(host),
            unknown,
            nobody,
            launched,
            ids.sandbox_stream(host, LaunchId("bb")),
        )
    ] == [
        "/w/shop", "ready of /w/shop", "echo in /s/echo", "other", "run r1", "access", unknown, nobody,
        "sandbox aa in /w/shop", "sandbox bb",
    ]  # fmt: skip
