"""A workdir in a sandbox made of a layout's entries alone, with a real bwrap and a real git."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from omac.adapters.git import inspections
from omac.adapters.git.inspection import Budget, Finding
from omac.adapters.git.launch_record import Record, record_of
from omac.adapters.git.layout import GitChoices, Layout, copy_back, lay_out, prepare
from omac.adapters.git.quarantine import Quarantine
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, Entry, ordered
from omac.domain.sandbox.environment import GIT

SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
DATE = "2026-01-02T03:04:05+00:00"
OTHER_GIT = os.environ.get("OMAC_TEST_GIT", "")  # a folder with a git of another version
ENVIRONMENT = {
    "PATH": f"{OTHER_GIT and f'{OTHER_GIT}/bin:'}/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": DATE,
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org",
    "GIT_COMMITTER_DATE": DATE,
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEST_FSYNC": "0",  # nothing here has to outlive the machine
}

# Runs inside: links, FIFOs and sockets may be made everywhere but in the fence, which is outside the workdir.
FENCE = r"""
import ctypes, json, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
special, refer = 0x200 | 0x400 | 0x1000, 0x2000  # without refer handled, nothing moves from folder to folder
everywhere, fence = json.loads(sys.argv[1]), json.loads(sys.argv[2])
if fence:
    attributes = struct.pack("<QQQ", special | refer, 0, 0)
    ruleset = libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path, allowed in [("/", refer), *((path, special | refer) for path in everywhere)]:
        opened = os.open(path, os.O_PATH)
        if libc.syscall(445, ruleset, 1, struct.pack("<Qi", allowed, opened), 0):
            sys.exit("no Landlock rule for " + path)
        os.close(opened)
    if ruleset < 0 or libc.prctl(38, 1, 0, 0, 0) or libc.syscall(446, ruleset, 0):
        sys.exit("no Landlock")
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Outcome:
    """The result of a run inside a sandbox: its status, its output and the findings of the inspection."""

    def __init__(self, done: subprocess.CompletedProcess[str], findings: list[Finding]) -> None:
        self.status = done.returncode
        self.output = done.stdout + done.stderr
        self.findings = findings

    def moved(self) -> list[str]:
        return [finding.moved for finding in self.findings if finding.moved]


def run_inside(
    workdir: Path,
    script: str,
    *,
    home: Path,
    choices: GitChoices | None = None,
    cwd: Path | None = None,
    swept: bool = True,
    instead: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Run a shell script in the sandbox of `workdir`; `instead` is the only writable folder, if it is given."""
    layout = lay_out(str(workdir), choices or GitChoices(), str(home)) if swept or not instead else Layout(str(workdir))
    entries = ordered([*layout.entries, Entry(str(workdir), WRITE, "the workdir")])
    if instead:
        entries = (Entry(str(instead), WRITE, "everything"),)
    made = [entry for entry in entries if entry.made]
    for entry in made:
        make(entry)
    prepare(layout)
    record = noted(layout)
    memory: list[int] = []
    try:
        argv = ["bwrap", *_options(entries, home, memory), "--chdir", str(cwd or workdir), "--"]
        fence = [] if instead else layout.fence
        argv += [
            "/usr/bin/python3",
            "-ISEc",
            FENCE,
            _list([str(workdir), "/dev"]),
            _list(fence),
            "/bin/sh",
            "-c",
            script,
        ]
        env = {**ENVIRONMENT, **GIT, "HOME": str(home), **(environment or {})}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, pass_fds=memory, check=False)
    finally:
        for descriptor in memory:
            os.close(descriptor)
    findings = act(record, home) if swept else []
    for entry in reversed(made):
        unmake(entry)
    return Outcome(done, findings)


def noted(layout: Layout) -> Record:
    """Return the record of a launch in a layout, with what is there before its program begins."""
    record = record_of("launch", [layout], time.time_ns(), fence=True)
    record.baseline = inspections.note(record)
    return record


def act(record: Record, home: Path, budget: Budget | None = None) -> list[Finding]:
    """Inspect the project after a program and copy refs and settings back; the home gets files that are set aside."""
    quarantine = Quarantine(f"{home}/state", "launch")
    findings = inspections.act(record, quarantine, budget or Budget(inspections.SECONDS_MAX))
    refused = copy_back(record.sessions, record.narrowed, record.copies)
    return [*findings, *(Finding(item, reason) for item, reason in refused)]


def make(entry: Entry) -> None:
    if entry.made == "folder":
        os.mkdir(entry.path)
    else:
        Path(entry.path).write_bytes(entry.content)


def unmake(entry: Entry) -> None:
    path = Path(entry.path)
    if entry.made == "folder" and path.is_dir() and not any(path.iterdir()):
        path.rmdir()
    elif entry.made == "file" and path.is_file() and path.read_bytes() == entry.content:
        path.unlink()


def host(
    *argv: str,
    cwd: Path,
    home: Path,
    check: bool = True,
    environment: dict[str, str] | None = None,
    seconds: float = 60.0,
) -> str:
    """Run a program of the host, as its user would after the session, and return stdout and stderr."""
    env = {**ENVIRONMENT, "HOME": str(home), **(environment or {})}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{argv} failed: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _options(entries: Sequence[Entry], home: Path, memory: list[int]) -> list[str]:
    options = ["--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
    for path in SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            options += ["--ro-bind", path, path]
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", str(home)]
    for entry in entries:
        if entry.access == READ:
            options += ["--ro-bind", entry.path, entry.path]
        elif entry.access == WRITE:
            options += ["--bind", entry.path, entry.path]
        elif entry.access == PRIVATE:
            options += ["--tmpfs", entry.path]
        elif entry.access == LINK:
            options += ["--symlink", entry.target, entry.path]
        elif entry.access == COPY:
            options += ["--file", str(_in_memory(entry.content, memory)), entry.path]
        elif entry.access == DENY:
            if os.path.isdir(entry.path):
                options += ["--tmpfs", entry.path, "--remount-ro", entry.path]
            else:
                options += ["--ro-bind-data", str(_in_memory(b"", memory)), entry.path]
    return options


def _in_memory(content: bytes, memory: list[int]) -> int:
    descriptor = os.memfd_create("content")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    memory.append(descriptor)
    return descriptor


def _list(names: Sequence[str]) -> str:
    import json

    return json.dumps(list(names))


assert sys.platform == "linux"
