"""The probes of this machine, and of one that is made worse for them: real attempts, by root and by a user."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_sandbox import readable_package, user_alone

from omac.adapters.sandbox import bubblewrap, probes
from omac.domain.sandbox.doctor import FAIL, findings

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
CROWDED = (*user_alone(), "prlimit", "--nproc=2", "--")
AS = {"root": (), "nobody": NOBODY, "crowded": CROWDED}
FOLDERS = "/usr/bin:/bin"

PROBE = """\
import dataclasses, json, os, sys
sys.path.insert(0, sys.argv[1])
from omac.adapters.sandbox import probes
from omac.domain.sandbox.doctor import findings
machine = probes.machine(sys.argv[2])
failed = probes.why_bubblewrap_failed(machine.bwrap, "bubblewrap ended") if machine.bwrap else None
print(json.dumps({
    "machine": dataclasses.asdict(machine),
    "findings": {one.name: dataclasses.asdict(one) for one in findings(machine)},
    "failed": failed and {"reason": failed.reason, "message": failed.message, "fix": failed.fix},
}))
"""

# Refuses what Docker's default filter refuses: making and entering user namespaces.
NO_USER_NAMESPACES = """\
import ctypes, os, struct, sys
def op(code, jump, other, k): return struct.pack("HBBI", code, jump, other, k)
numbers = {"x86_64": (56, 272, 435), "aarch64": (220, 97, 435)}[os.uname().machine]
program = b"".join((
    op(0x20, 0, 0, 0),
    op(0x15, 5, 0, numbers[2]), op(0x15, 1, 0, numbers[0]), op(0x15, 0, 2, numbers[1]),
    op(0x20, 0, 0, 16), op(0x45, 2, 0, 0x10000000),
    op(0x06, 0, 0, 0x7FFF0000), op(0x06, 0, 0, 0x50026), op(0x06, 0, 0, 0x50001),
))
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(program, len(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def probe() -> Callable[..., dict[str, Any]]:
    """Return a function that probes as a user, after a command that makes things worse. It returns the machine, the
    findings, and why bubblewrap failed."""

    def run(who: str, *before: str, folders: str = FOLDERS) -> dict[str, Any]:
        line = [*AS[who], *before, "/usr/bin/python3", "-ISB", "-c", PROBE, readable_package(), folders]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd="/", check=False)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return run


def worse(command: str) -> tuple[str, ...]:
    """Return a command that runs `command` in namespaces of its own, as their root, and then the words after it."""
    return ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{command} && exec "$@"', "sh")


@pytest.mark.parametrize("who", ["root", "nobody"])
def test_a_machine_that_can_is_found_able(probe: Callable[..., dict[str, Any]], who: str) -> None:
    """A machine where sandboxes work has no failed finding, and even root cannot write a kernel setting inside one."""
    report = probe(who)
    assert [finding for finding in report["findings"].values() if finding["level"] == FAIL] == []
    assert report["machine"]["bwrap_version"].split(".")[0].isdigit()
    assert report["machine"]["git_version"].split(".")[0].isdigit()
    assert report["machine"]["settings_writable"] == ""
    assert "without this policy" in report["failed"]["message"]


@pytest.mark.parametrize("who", ["root", "nobody"])
@pytest.mark.parametrize(
    ("before", "cause", "fix"),
    [
        (
            worse("echo 0 > /proc/sys/user/max_user_namespaces"),
            "user.max_user_namespaces is 0",
            "sysctl -w user.max_user_namespaces=15000",
        ),
        (worse("mount --bind /dev/null /proc/version"), "hides parts of /proc", "podman run --security-opt unmask=ALL"),
        (worse("mount -t tmpfs none /proc/irq"), "hides parts of /proc", "--backend landlock"),
        (("/usr/bin/python3", "-Ic", NO_USER_NAMESPACES), "user namespaces", "--backend landlock"),
    ],
)
def test_what_stands_in_the_way_is_named(
    probe: Callable[..., dict[str, Any]], who: str, before: tuple[str, ...], cause: str, fix: str
) -> None:
    """A finding names why the machine refuses sandboxes and a command that helps; a failed launch reports the same."""
    report = probe(who, *before)
    finding = report["findings"]["namespaces"]
    assert finding["level"] == FAIL
    assert cause in finding["says"]
    assert any(fix in command for command in finding["fix"])
    assert report["failed"]["reason"] == "sandbox-unavailable"
    assert cause in report["failed"]["message"]
    assert any(fix in command for command in report["failed"]["fix"])


@pytest.mark.parametrize(
    ("who", "before", "cause"),
    [
        ("root", worse("echo 1 > /proc/sys/user/max_user_namespaces"), "the limit of user namespaces"),
        ("crowded", (), "the limit of this user's processes and threads"),
    ],
)
def test_what_is_used_up_is_no_reason_for_less(
    probe: Callable[..., dict[str, Any]], who: str, before: tuple[str, ...], cause: str
) -> None:
    """A launch fails when a resource is used up, which an agent may have caused; no other backend is suggested."""
    report = probe(who, *before)
    assert cause in report["findings"]["namespaces"]["says"]
    assert report["failed"]["reason"] == "sandbox-failed"
    assert cause in report["failed"]["message"]
    assert not any("landlock" in command for command in report["failed"]["fix"])


def test_without_bubblewrap_it_says_how_to_get_it(probe: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """A machine without bubblewrap gets a finding with the command that installs it."""
    report = probe("root", folders=str(tmp_path))
    assert report["machine"]["bwrap"] == ""
    assert report["findings"]["bubblewrap"]["level"] == FAIL
    assert "install bubblewrap" in report["findings"]["bubblewrap"]["fix"][0]


def test_an_old_bubblewrap_is_not_enough(probe: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """A bubblewrap that lacks an option that omac needs is reported as too old, before omac builds a sandbox by it."""
    old = tmp_path / "bwrap"
    old.write_text(
        '#!/bin/sh\ncase "$1" in\n--version) echo bubblewrap 0.4.1 ;;\n'
        "--help) /usr/bin/bwrap --help | grep -v disable-userns ;;\n"
        f"*) touch {tmp_path}/ran ;;\nesac\n"
    )
    old.chmod(0o755)
    report = probe("root", folders=str(tmp_path))
    assert report["machine"]["bwrap_lacks"] == ["--disable-userns"]
    assert "0.4.1" in report["findings"]["bubblewrap"]["says"]
    assert "too old" in report["failed"]["message"]
    assert not (tmp_path / "ran").exists()


def test_a_setting_that_root_could_write_inside_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor finds, by trying, a sandbox that leaves the kernel's settings to root, and reports a failure."""
    monkeypatch.setattr(bubblewrap, "KERNEL_SETTINGS", ())
    worst = probes.machine(FOLDERS)
    assert worst.settings_writable == probes.SETTING
    assert any(finding.level == FAIL and probes.SETTING in finding.says for finding in findings(worst))
