"""`omac sandbox doctor`, on this machine and on one that refuses namespaces."""

import subprocess
import sys

import msgspec
import pytest

from omac.tools.cli.sandbox_doctor import run

PROGRAM = "from omac.tools.entry import main; main()"
REFUSED = ("unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"')
NAMES = [
    "system", "bubblewrap", "namespaces", "landlock", "seccomp", "terminal", "limit pids", "limit memory", "limit cpu",
    "limit files", "limit tmp", "git",
]  # fmt: skip


def test_a_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor exits with status 0 on a host that can build sandboxes, and prints a line with its level for each
    finding."""
    assert run(False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("[ok] ", "[warn] ", "  try: ")) for line in lines)
    assert [line.split("] ")[1].split(":")[0] for line in lines if line.startswith("[")] == NAMES


def test_programs_read_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has findings with stable names and fields."""
    assert run(True) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert list(report) == ["healthy", "findings"]
    assert report["healthy"] is True
    assert [finding["name"] for finding in report["findings"]] == NAMES
    assert all(set(finding) == {"name", "level", "says", "fix"} for finding in report["findings"])


def test_where_no_sandbox_can_be_built_the_status_says_so() -> None:
    """The doctor exits with status 7 if the kernel refuses namespaces, and prints the command that mends it."""
    line = [*REFUSED, "sh", sys.executable, "-c", PROGRAM, "sandbox", "doctor"]
    plain, data = (
        subprocess.run([*line, *words], capture_output=True, text=True, timeout=60, check=False)
        for words in ((), ("--json",))
    )
    assert (plain.returncode, data.returncode) == (7, 7)
    assert "  try: sysctl -w user.max_user_namespaces=15000\n" in plain.stdout
    report = msgspec.json.decode(data.stdout)
    assert report["healthy"] is False
    assert {finding["name"] for finding in report["findings"] if finding["level"] == "fail"} == {"namespaces"}
