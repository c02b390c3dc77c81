"""Findings from facts: abilities that suffice, are reduced or are missing, and the commands that mend them."""

from typing import Any

import pytest

from omac.domain.sandbox.doctor import (
    APPARMOR_RESTRICTS,
    FAIL,
    LANDLOCK_ONLY,
    OK,
    TIOCSTI,
    USERNS_CLONE,
    USERNS_MAX,
    WARN,
    Diagnosis,
    LimitFact,
    Machine,
    diagnose_bubblewrap,
    findings,
    healthy,
    is_lack,
    report,
)

ABLE: dict[str, Any] = {
    "uid": 1000, "kernel": "6.12.4-arch1", "architecture": "x86_64", "distribution": ("ubuntu", "debian"),
    "bwrap": "/usr/bin/bwrap", "bwrap_version": "0.11.0", "landlock": 6, "lsm": "capability,landlock,yama",
    "git_version": "2.47.1", "sysctls": {USERNS_MAX: "127000", TIOCSTI: "0"}, "searched": "/usr/bin",
    "limits": (LimitFact("pids", by="cgroup v2 in /sys/fs/cgroup/x"),),
}  # fmt: skip
DENIED = "bwrap: setting up uid map: Permission denied\n"
NO_CLONE = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
    "namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>.\n"
)


def diagnosis(name: str, **facts: Any) -> Diagnosis:
    """Return the finding of that name for a machine that can do everything, but for these facts."""
    return next(finding for finding in findings(Machine(**{**ABLE, **facts})) if finding.name == name)


def test_a_machine_that_can_do_everything_needs_no_fix() -> None:
    """A machine that lacks nothing has only good findings, and no command to mend any."""
    all_of_them = findings(Machine(**ABLE))
    assert {finding.level for finding in all_of_them} == {OK}
    assert healthy(all_of_them)
    assert not any(finding.fix for finding in all_of_them)


@pytest.mark.parametrize(
    ("facts", "name", "level", "says", "fix"),
    [
        ({"wsl1": True}, "system", FAIL, "version 1", "wsl.exe --set-version DISTRIBUTION 2"),
        ({"bwrap": ""}, "bubblewrap", FAIL, "not in /usr/bin", "sudo apt install bubblewrap"),
        ({"bwrap": "", "uid": 0}, "bubblewrap", FAIL, "not in", "apt install bubblewrap"),
        (
            {"bwrap": "", "distribution": ("rocky", "rhel", "centos")},
            "bubblewrap",
            FAIL,
            "",
            "sudo dnf install bubblewrap",
        ),
        ({"bwrap": ""}, "bubblewrap", FAIL, "", LANDLOCK_ONLY),
        (
            {"bwrap_lacks": ("--disable-userns",)},
            "bubblewrap",
            FAIL,
            "--disable-userns; omac needs 0.8.0",
            "apt install",
        ),
        ({"settings_writable": "/proc/sys/kernel/core_pattern"}, "namespaces", FAIL, "core_pattern", "--explain"),
        ({"tried": DENIED, "sysctls": {APPARMOR_RESTRICTS: "1"}}, "namespaces", FAIL, "AppArmor", "apparmor_parser -r"),
        ({"landlock": 0, "lsm": "yama"}, "landlock", WARN, "lsm=landlock,yama", "sudoedit /etc/default/grub"),
        ({"landlock": 0, "lsm": "", "kernel": "5.10.0-32-amd64"}, "landlock", WARN, "Linux 5.13 is the first", None),
        ({"landlock": 3}, "landlock", WARN, "neither ports nor abstract sockets", None),
        ({"landlock": 5}, "landlock", WARN, "Linux 6.12", None),
        ({"seccomp": False}, "seccomp", FAIL, "no filter", None),
        ({"seccomp": False, "sysctls": {TIOCSTI: "1"}}, "terminal", FAIL, "TIOCSTI", f"sudo sysctl -w {TIOCSTI}=0"),
        ({"sysctls": {}}, "terminal", OK, "the filter", None),
        (
            {"limits": (LimitFact("cpu", trouble="no cgroup", fix=("systemd-run",)),)},
            "limit cpu",
            WARN,
            "no cgroup",
            "systemd-run",
        ),
        (
            {"limits": (LimitFact("pids", by="RLIMIT_X", fix=("systemd-run",)),)},
            "limit pids",
            WARN,
            "RLIMIT_X",
            "systemd-run",
        ),
        (
            {"limits": (LimitFact("cpu", trouble="no v2", fix=("sudo update-grub",)),), "container": "/.dockerenv"},
            "limit cpu",
            WARN,
            "no v2",
            None,
        ),
        (
            {"limits": (LimitFact("pids", by="RLIMIT_X", fix=("systemd-run",)),), "container": "/.dockerenv"},
            "limit pids",
            WARN,
            "RLIMIT_X",
            "systemd-run",
        ),
        (
            {"landlock": 0, "lsm": "yama", "container": "/.dockerenv"},
            "landlock",
            WARN,
            "lsm=landlock,yama",
            None,
        ),
        ({"git_version": ""}, "git", WARN, "git is not in /usr/bin", "apt install git"),
        ({"git_version": "2.39.5"}, "git", OK, "reftable are refused, they need 2.45", None),
        ({"git_version": "2.45.1.windows.1"}, "git", OK, "version 2.45.1", None),
    ],
)
def test_a_missing_ability_is_reported_with_its_fix(
    facts: dict[str, object], name: str, level: str, says: str, fix: str | None
) -> None:
    """A missing ability sets the level of its finding, with a command if one mends it."""
    finding = diagnosis(name, **facts)
    assert finding.level == level
    assert says in finding.says
    assert finding not in findings(Machine(**ABLE))
    assert any(fix in command for command in finding.fix) if fix else not finding.fix


@pytest.mark.parametrize(
    ("output", "sysctls", "uid", "container", "cause", "fix"),
    [
        (DENIED, {APPARMOR_RESTRICTS: "1"}, 1000, "", "AppArmor", "profile bwrap /opt/bwrap flags=(unconfined) {"),
        (DENIED, {APPARMOR_RESTRICTS: "1"}, 1000, "", "AppArmor", f"sysctl -w {APPARMOR_RESTRICTS}=0  # weaker"),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            {APPARMOR_RESTRICTS: "1"},
            1000,
            "",
            "AppArmor",
            "tee",
        ),
        (DENIED, {APPARMOR_RESTRICTS: "0"}, 1000, "", "refuses user namespaces", LANDLOCK_ONLY),
        (
            DENIED,
            {APPARMOR_RESTRICTS: "1"},
            0,
            "/.dockerenv",
            "container (/.dockerenv)",
            "docker run --security-opt seccomp=unconfined",
        ),
        (NO_CLONE, {USERNS_CLONE: "0"}, 1000, "", f"{USERNS_CLONE} is 0", f"sudo sysctl -w {USERNS_CLONE}=1"),
        (NO_CLONE, {USERNS_CLONE: "0"}, 1000, "", f"{USERNS_CLONE} is 0", "sudo tee /etc/sysctl.d/60-namespaces.conf"),
        (NO_CLONE, {USERNS_MAX: "0"}, 1000, "", f"{USERNS_MAX} is 0", f"sudo sysctl -w {USERNS_MAX}=15000"),
        (
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            {},
            0,
            "/run/.containerenv",
            "hides parts of /proc",
            "systempaths=unconfined",
        ),
        ("bwrap: Unknown option --disable-userns", {}, 1000, "", "too old", "install bubblewrap"),
        (
            "bwrap: prctl(PR_SET_SECCOMP): Invalid argument",
            {},
            1000,
            "",
            "no filter of system calls",
            "omac sandbox doctor",
        ),
    ],
)
def test_a_failure_of_bubblewrap_is_reported_with_cause_and_command(
    output: str, sysctls: dict[str, str], uid: int, container: str, cause: str, fix: str
) -> None:
    """Each known failure of bubblewrap is reported with its cause on this machine, and with the command that mends
    it."""
    refusal = diagnose_bubblewrap(output, sysctls, uid=uid, bwrap="/opt/bwrap", container=container)
    assert refusal.reason == "sandbox-unavailable"
    assert refusal.exit_code == 7
    assert cause in refusal.message
    assert any(fix in command for command in refusal.fix)
    assert not any("\n" in command for command in refusal.fix)
    assert uid or not any(command.startswith("sudo") for command in refusal.fix)


@pytest.mark.parametrize(
    ("output", "cause", "fix"),
    [
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "processes", "ulimit -u"),
        ("bwrap: Can't fork for pid 1: Resource temporarily unavailable", "processes", "ulimit -u"),
        ("bwrap: [Errno 11] Resource temporarily unavailable: '/usr/bin/bwrap'", "processes", "ulimit -u"),
        (
            "bwrap: Creating new namespace failed: No space left on device",
            "the limit of user namespaces",
            f"sysctl -w {USERNS_MAX}=200",
        ),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "the limit of user namespaces",
            f"sysctl -w {USERNS_MAX}=200",
        ),
        ("bwrap: Creating new namespace failed: Cannot allocate memory", "Cannot allocate memory", "doctor"),
        ("bwrap: Can't find source path /w: No such file or directory", "Can't find source path /w", "--explain"),
        (
            "warning\nbwrap: Can't bind mount /a on /b: Too many levels\nmore",
            "(Can't bind mount /a on /b: Too many levels)",
            "doctor",
        ),
        ("", "did not say why", "omac sandbox doctor"),
    ],
)
@pytest.mark.parametrize("container", ["", "/.dockerenv"])
def test_what_may_pass_is_no_reason_for_less(output: str, container: str, cause: str, fix: str) -> None:
    """A shortage or an unknown failure may be caused by an agent. No sandbox of another kind takes its place, and no
    command makes the machine weaker."""
    refusal = diagnose_bubblewrap(output, {USERNS_MAX: "50"}, uid=0, bwrap="/usr/bin/bwrap", container=container)
    assert refusal.reason == "sandbox-failed"
    assert cause in refusal.message
    assert any(fix in command for command in refusal.fix)
    assert not any("unconfined" in command or "landlock" in command for command in refusal.fix)
    assert not is_lack(output, {USERNS_MAX: "50"})


def test_a_person_reads_a_line_for_each_and_the_commands_below() -> None:
    """The report has the level, the name and the sentence of each finding, and each command on a line of its own to
    paste."""
    lines = list(
        report((Diagnosis("git", WARN, "git is not in /bin", ("apt install git",)), Diagnosis("x", OK, "fine")))
    )
    assert lines == ["[warn] git: git is not in /bin", "  try: apt install git", "[ok] x: fine"]
