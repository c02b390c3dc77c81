"""omac sandbox doctor, on this machine and on one that refuses namespaces."""

import os
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
    """Where a sandbox can be built the status is 0, and each finding is a line with its level."""
    assert run(False, os.environ) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("[ok] ", "[warn] ", "  try: ")) for line in lines)
    assert [line.split("] ")[1].split(":")[0] for line in lines if line.startswith("[")] == NAMES


def test_programs_read_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON the findings have names and fields that stay."""
    assert run(True, os.environ) == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert list(said) == ["healthy", "findings"]
    assert said["healthy"] is True
    assert [one["name"] for one in said["findings"]] == NAMES
    assert all(set(one) == {"name", "level", "says", "fix"} for one in said["findings"])


def test_where_no_sandbox_can_be_built_the_status_says_so() -> None:
    """Where the kernel refuses namespaces the status is 7, and the command that mends it is there."""
    line = [*REFUSED, "sh", sys.executable, "-c", PROGRAM, "sandbox", "doctor"]
    plain, told = (
        subprocess.run([*line, *words], capture_output=True, text=True, timeout=60, check=False)
        for words in ((), ("--json",))
    )
    assert (plain.returncode, told.returncode) == (7, 7)
    assert "  try: sysctl -w user.max_user_namespaces=15000\n" in plain.stdout
    said = msgspec.json.decode(told.stdout)
    assert said["healthy"] is False
    assert {one["name"] for one in said["findings"] if one["level"] == "fail"} == {"namespaces"}
