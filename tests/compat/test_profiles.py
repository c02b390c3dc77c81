"""`omac import` of sandbox profiles: each key is imported, or named with an alternative; then it is used."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from real_omac import Omac

from omac.adapters.files import atomic

pytestmark = pytest.mark.full

PROFILE: dict[str, Any] = {
    "meta": {"name": "work"},
    "workdir": {"access": "readwrite"},
    "filesystem": {
        "allow": ["$CACHE/models", "~/models"],
        "read": ["~/.cargo/bin", "src"],
        "write": ["~/out"],
        "allow_unix_dir": ["/run/x"],
        "deny": ["*.pem", "~/models/private", "~/models/**/x"],
        "override_deny": [".env", "~/.ssh"],
    },
    "network": {
        "mode": "filtered",
        "allow_domain": ["example.com"],
        "listen_port": [4097],
        "allow_tcp_connect": [22],
        "network_prompt": {"enabled": True, "prompt_timeout_secs": 60, "on_unavailable": "deny"},
        "enforcement": "kernel",
        "proxy_injection": [],
    },
    "environment": {"allow_vars": ["JAVA_HOME", "AWS_*", "TERM", "LC_*", "LD_PRELOAD"], "deny_vars": ["DISPLAY"]},
    "denial": {"marker_file": "x"},
    "future": {"key": 1},
}


def profile(omac: Omac, name: str, document: object) -> Path:
    """Write a profile as the Go omac keeps it."""
    path = Path(omac.environment["XDG_CONFIG_HOME"]) / "omac" / "sandbox-profiles" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o600)
    return path


def imported(omac: Omac, *options: str, status: int = 0) -> dict[str, Any]:
    """Return the report of `omac import --json`."""
    done = omac.run("import", "--json", *options)
    assert done.status == status, done
    document: dict[str, Any] = json.loads(done.out)
    return document


def test_each_key_is_taken_over_or_named(omac: Omac) -> None:
    """The new profile has the former name, and omac reads it; the old file stays, and a second import does nothing."""
    old = profile(omac, "work.json", PROFILE)
    before = old.read_bytes()
    profile(omac, "work.pages.json", {"schema": 1, "entries": []})
    document = imported(omac, "--dry-run")
    (plan,) = document["profiles"]
    verdicts: dict[str, list[str]] = {}
    for entry in plan["keys"]:
        verdicts.setdefault(entry["verdict"], []).append(entry["key"])
        assert entry["verdict"] == "take" or entry["why"]
    assert verdicts == {
        "take": [
            "filesystem.allow", "filesystem.allow", "filesystem.read", "filesystem.deny", "filesystem.deny",
            "filesystem.override_deny", "network.listen_port", "environment.allow_vars",
        ],
        "there": ["meta.name", "workdir.access", "environment.allow_vars", "environment.allow_vars"],
        "skip": [
            "filesystem.read", "filesystem.write", "filesystem.allow_unix_dir", "filesystem.deny",
            "filesystem.override_deny", "network.mode", "network.allow_domain", "network.allow_tcp_connect",
            "network.network_prompt", "network.enforcement", "environment.allow_vars", "environment.allow_vars",
            "environment.deny_vars", "denial.marker_file", "future",
        ],
    }  # fmt: skip
    assert any("work.pages.json" in note for note in document["notes"])
    new = old.with_suffix(".toml")
    assert not new.exists()

    stdout = omac.run("import", "--yes").out
    assert "  + filesystem.override_deny as allow_env_files = true\n" in stdout
    assert "  - network.mode 'filtered' is not supported: omac filters no hosts" in stdout
    assert (old.read_bytes(), new.stat().st_mode & 0o777) == (before, 0o600)
    assert new.read_text().splitlines()[1:] == [
        'allow = ["$CACHE/models", "~/models"]',
        'read = ["~/.cargo/bin"]',
        'deny_names = ["*.pem"]',
        'deny = ["~/models/private"]',
        "allow_env_files = true",
        "open_ports = [4097]",
        'env = ["JAVA_HOME"]',
    ]
    assert omac.run("import", "--yes").out.endswith("nothing is left to import\n")

    models = Path(omac.environment["HOME"]) / "models"
    models.mkdir()
    project = omac.project("shop")
    command = ("sh", "-c", f"touch {models}/made; echo $JAVA_HOME")
    done = omac.run("start", "--profile", "work", "--workdir", str(project), "--", *command, extra={"JAVA_HOME": "/j"})
    assert (done.status, done.out) == (0, "/j\n"), done
    assert (models / "made").exists()


def test_two_imports_at_once(omac: Omac) -> None:
    """A profile that another import has just written stays, and this import goes on."""
    new = profile(omac, "a.json", PROFILE).with_suffix(".toml")
    profile(omac, "b.json", PROFILE)

    def other(path: str, content: bytes) -> None:
        new.write_text("# of the other\n")
        atomic.create(path, content)

    with mock.patch("omac.adapters.files.atomic.publish", other):
        omac.ok("import", "--yes")
    assert (new.read_text(), new.with_name("b.toml").exists()) == ("# of the other\n", True)


@pytest.mark.parametrize(("mode", "line"), [("blocked", 'network = "none"'), ("open", 'network = "host"')])
def test_the_network_of_a_profile(omac: Omac, mode: str, line: str) -> None:
    """A network mode that omac has too is imported; ports are imported with a network only."""
    old = profile(omac, "net.json", {"network": {"mode": mode, "listen_port": 3000}})
    imported(omac, "--yes")
    lines = old.with_suffix(".toml").read_text().splitlines()
    assert line in lines
    assert ("open_ports = [3000]" in lines) == (mode == "open")
    assert omac.run("sandbox", "run", "--profile", "net", "--", "true").status == 0


def test_what_is_no_old_profile_stays(omac: Omac) -> None:
    """Profiles of omac's own, broken files, and files that other users could have written are not imported."""
    profile(omac, "own.json", {"allow": ["~/x"], "network": "none"})
    profile(omac, "broken.json", "{")
    profile(omac, "open.json", PROFILE).chmod(0o666)
    document = imported(omac, "--dry-run", status=3)
    assert document["profiles"] == []
    assert {note.rpartition("/")[2].partition(":")[0] for note in document["notes"]} == {"broken.json", "open.json"}
