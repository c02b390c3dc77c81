"""Probes of this machine, which find out by trying how it can confine a program.

One setting may forbid what another allows, and a container may forbid both. So a probe builds a sandbox and leaves it,
with the same bubblewrap and the same namespaces as the real one. Probes change nothing.
"""

from __future__ import annotations

import os
import subprocess

from omac.adapters.linux import host_programs
from omac.adapters.sandbox import bubblewrap, cgroups, landlock, limits, seccomp
from omac.adapters.sandbox.mounted import mount_rows
from omac.domain.kernel.refusal import COUNT_PROCESSES, Refusal, problem_of
from omac.domain.sandbox.confinement import LIMITS
from omac.domain.sandbox.doctor import SYSCTLS, LimitFact, Machine, diagnose_bubblewrap, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

TRY_S_MAX = 10.0
SETTING = "/proc/sys/kernel/core_pattern"  # whoever writes it runs programs as root (core(5))
OPTIONS = (
    "--seccomp", "--info-fd", "--block-fd", "--perms", "--size", "--ro-bind-data", "--remount-ro", "--ro-bind-try",
)  # fmt: skip
EXAMPLES = {"pids": 1000.0, "memory": 4.0 * 2**30, "cpu": 1.0, "files": 1024.0, "tmp": 2.0 * 2**30}


def machine(search: str = host_programs.SEARCHED) -> Machine:
    """Return all facts, in some 50 ms. Raises Refusal (sandbox-failed).

    `search` are the folders, separated by colons, where bubblewrap may be.
    """
    uname = os.uname()
    bwrap = host_programs.on_path("bwrap", search)
    lacks = _lacking(bwrap) if bwrap else ()
    tried, writable = _try(bwrap) if bwrap and not lacks else ("", "")
    return Machine(
        uid=os.geteuid(),
        kernel=uname.release,
        architecture=uname.machine,
        distribution=_distribution(),
        wsl1=uname.release.endswith("-Microsoft"),
        container=container(),
        sysctls=sysctls(),
        searched=search,
        bwrap=bwrap,
        bwrap_version=_output_of([bwrap, "--version"]).removeprefix("bubblewrap ") if bwrap else "",
        bwrap_lacks=lacks,
        tried=tried,
        settings_writable=writable,
        landlock=landlock.abi(),
        lsm=cgroups.read("/sys/kernel/security/lsm").strip(),
        seccomp=_filtered(uname.machine),
        git_version=_output_of(["git", "--version"]).removeprefix("git version ").split(" ")[0],
        limits=tuple(_limit(name) for name in LIMITS),
    )


def why_bubblewrap_failed(bwrap: str, how: str, private: Collection[str] = ()) -> Refusal:
    """Return why bubblewrap ended as `how` says, before the program began, and what mends that. `private` are the
    folders that are to be empty in the sandbox.

    It is tried again with nothing of the policy: what it says then concerns the machine.
    """
    lacks = _lacking(bwrap)
    complaint = f"bwrap: Unknown option {lacks[0]}" if lacks else _try(bwrap)[0]
    if complaint:
        return diagnose_bubblewrap(complaint, sysctls(), uid=os.geteuid(), bwrap=bwrap, container=container())
    if "/" in private:  # a user that no database has, as containers run programs
        message = "the home folder is /, and no sandbox can have an empty folder in its place"
        return Refusal("sandbox-failed", message, fix=["export HOME=$(mktemp -d)  # a home for this shell"])
    message = f"{how}; it builds one without this policy, so one of the policy's paths cannot be mounted"
    explain = "omac sandbox run --explain OPTIONS -- true  # with the same options: lists the paths and the reasons"
    return Refusal("sandbox-failed", message, fix=[explain])


def sysctls() -> dict[str, str]:
    """The settings of the kernel's that matter, as far as it has them."""
    values = {name: cgroups.read(f"/proc/sys/{name.replace('.', '/')}").strip() for name in SYSCTLS}
    return {name: value for name, value in values.items() if value}


def container() -> str:
    """Return the sign by which this process is known to be in a container; empty if there is none."""
    for path in ("/.dockerenv", "/run/.containerenv"):
        if os.path.exists(path):
            return path
    for row in mount_rows("/proc/self"):
        point = os.fsdecode(row[4])
        if point.startswith("/proc/") and point != "/proc/sys/fs/binfmt_misc":
            return f"something is mounted on {point}"
    return ""


def _lacking(bwrap: str) -> tuple[str, ...]:
    """Return the options that omac needs and this bubblewrap does not name in its help; none where it prints none, as
    while no process can be started: a try shows more."""
    known = set(_output_of([bwrap, "--help"]).replace("[", " ").split())
    if not known:
        return ()
    needed = [word for word in (*bubblewrap.NAMESPACES, *OPTIONS) if word.startswith("--")]
    return tuple(word for word in needed if word not in known)


def _try(bwrap: str) -> tuple[str, str]:
    """Return the error of bubblewrap if it could not build a sandbox, and the setting that could be written inside, if
    any."""
    line = [bwrap, *bubblewrap.NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in bubblewrap.KERNEL_SETTINGS:
        line += ["--ro-bind-try", path, path]
    line += ["--tmpfs", "/tmp", "--", "/bin/sh", "-c", f"! test -w {SETTING} || echo writable"]  # noqa: S108
    try:
        done = subprocess.run(line, capture_output=True, timeout=TRY_S_MAX, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap: {error}", ""
    if done.returncode:
        return done.stderr.decode(errors="replace") or f"bwrap: ended with status {done.returncode}", ""
    return "", SETTING if b"writable" in done.stdout else ""


def _filtered(architecture: str) -> bool:
    """Return whether a process can put omac's filter on itself. Raises Refusal (sandbox-failed)."""
    try:
        child = os.fork()
    except OSError as problem:
        message = f"this machine cannot be probed: {problem_of(problem)}"
        raise Refusal("sandbox-failed", message, fix=[COUNT_PROCESSES]) from problem
    if child == 0:
        status = 1
        try:
            seccomp.load(seccomp.program(architecture))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _limit(name: str) -> LimitFact:
    try:
        enforcement = limits.plan({name: EXAMPLES[name]})
        less = name == "memory" and name in enforcement.rlimits
        fix = limits.mends(name, cgroups.own_folder("/proc/self")) if less else ()
        return LimitFact(name, by=enforcement.by[name], fix=fix)
    except Refusal as refusal:
        return LimitFact(name, trouble=refusal.message, fix=refusal.fix)


def install_bubblewrap() -> str:
    """Return the command that installs bubblewrap on this machine."""
    return install("bubblewrap", _distribution(), os.geteuid())


def _distribution() -> tuple[str, ...]:
    fields = dict(line.split("=", 1) for line in cgroups.read("/etc/os-release").splitlines() if "=" in line)
    words = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "")
    return tuple(words.split())


def _output_of(line: list[str]) -> str:
    """Return the output of a command on one line, with single blanks; empty if the command cannot be run."""
    environment = {"PATH": host_programs.SEARCHED, "LC_ALL": "C"}
    try:
        done = subprocess.run(line, capture_output=True, timeout=TRY_S_MAX, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join(done.stdout.decode(errors="replace").split())
