"""The means of a machine to confine a program: findings, from facts that a probe gathered, and the commands that mend
each.

Rules

1. "fail" is a fact that prevents the full sandbox: nothing runs in a weaker one unless a person chooses it.
2. "warn" is a part that works with some loss; the finding names the loss.
3. A command names what it changes. The narrowest comes first, a weaker way says that it is one.

Sources: bwrap(1) and its messages, sysctl documentation in the kernel's admin-guide, landlock(7), apparmor.d(5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omac.domain.kernel.refusal import COUNT_PROCESSES, Refusal

OK, WARN, FAIL = "ok", "warn", "fail"
BWRAP_MIN = "0.8.0"  # the first with --disable-userns
GIT_REFTABLE_MIN = (2, 45)
LANDLOCK_LINUX = {1: "5.13", 2: "5.19", 3: "6.2", 4: "6.7", 5: "6.10", 6: "6.12"}  # which brought which version
LANDLOCK_TCP, LANDLOCK_SCOPES = 4, 6
LANDLOCK_ONLY = "omac sandbox run --backend landlock -- COMMAND"
BOOT = "update-grub"  # in commands that change how the machine boots
NAMESPACES_USUAL = 15_000

APPARMOR_RESTRICTS = "kernel.apparmor_restrict_unprivileged_userns"
USERNS_CLONE = "kernel.unprivileged_userns_clone"
USERNS_MAX = "user.max_user_namespaces"
TIOCSTI = "dev.tty.legacy_tiocsti"
# what the kernel says where it never allows something; all else may pass
REFUSALS = ("ermission", "not permitted", "not implemented", "not supported", "Invalid argument", "old file caps")
SYSCTLS = (APPARMOR_RESTRICTS, USERNS_CLONE, USERNS_MAX, TIOCSTI)

INSTALLERS = {  # by ID or ID_LIKE of os-release(5)
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "arch": "pacman -S",
    "alpine": "apk add",
    "suse": "zypper install",
    "nixos": "nix-env -iA",
}


@dataclass(frozen=True, slots=True)
class LimitFact:
    """The enforcement of a limit: `by` is the means, or `trouble` the reason why it cannot be enforced. `fix` are the
    commands that make it possible, or complete."""

    name: str
    by: str = ""
    trouble: str = ""
    fix: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts, as they were found. An empty text means: not there."""

    uid: int
    kernel: str  # as of uname -r
    architecture: str
    distribution: tuple[str, ...] = ()  # ID and ID_LIKE
    wsl1: bool = False
    container: str = ""  # by what it was recognised
    sysctls: Mapping[str, str] = field(default_factory=dict)  # those of SYSCTLS that there are
    searched: str = ""  # folders, separated by colons, where bwrap was looked for
    bwrap: str = ""  # its path
    bwrap_version: str = ""
    bwrap_lacks: tuple[str, ...] = ()  # options that omac needs
    tried: str = ""  # what bubblewrap said when it could not build a sandbox as omac's are
    settings_writable: str = ""  # the setting of the kernel's that could be written inside
    landlock: int = 0  # its version
    lsm: str = ""  # the security modules that are on
    seccomp: bool = True  # whether filters can be loaded, and omac has one for this architecture
    git_version: str = ""
    limits: tuple[LimitFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `name` stays the same from release to release; `fix` are commands that can be pasted."""

    name: str
    level: str
    says: str
    fix: tuple[str, ...] = ()


def findings(machine: Machine) -> tuple[Diagnosis, ...]:
    """All findings, in the order in which a person would mend them."""
    return (
        *_system(machine),
        _bubblewrap(machine),
        _namespaces(machine),
        _landlock(machine),
        _seccomp(machine),
        _tiocsti(machine),
        *(_limit(fact, machine.container) for fact in machine.limits),
        _git(machine),
    )


def healthy(findings: tuple[Diagnosis, ...]) -> bool:
    """Return whether the full sandbox can be built."""
    return all(finding.level != FAIL for finding in findings)


def report(findings: tuple[Diagnosis, ...]) -> Iterator[str]:
    """The lines that a person reads."""
    for finding in findings:
        yield f"[{finding.level}] {finding.name}: {finding.says}"
        for command in finding.fix:
            yield f"  try: {command}"


def diagnose_bubblewrap(output: str, sysctls: Mapping[str, str], *, uid: int, bwrap: str, container: str) -> Refusal:
    """Return why bubblewrap ended before the program began: from what it wrote, and from what this machine forbids.

    The reason is "sandbox-unavailable" where the machine can have no such sandbox, for which Landlock alone may stand
    in. All else is "sandbox-failed": it may pass, an agent may have caused it, and nothing weaker takes its place.
    """
    complaint = _last_message(output)
    namespaces = sysctls.get(USERNS_MAX, "")
    if (cause := _cause_of_lack(complaint, sysctls, uid, bwrap, container)) is not None:
        return Refusal("sandbox-unavailable", cause[0], fix=cause[1])
    if "Resource temporarily unavailable" in complaint:
        message = f"the limit of this user's processes and threads is reached ({complaint})"
        return Refusal("sandbox-failed", message, fix=[COUNT_PROCESSES])
    if _concerns_namespaces(complaint) and ("No space left" in complaint or "ENOSPC" in complaint):
        message = f"the limit of user namespaces, or of their nesting, is reached ({complaint})"
        more = _as_root(f"sysctl -w {USERNS_MAX}={4 * int(namespaces or NAMESPACES_USUAL)}", uid)
        return Refusal("sandbox-failed", message, fix=[f"sysctl {USERNS_MAX}", more])
    if not complaint:
        message = "bubblewrap ended before the program began, and did not say why"
        return Refusal("sandbox-failed", message, fix=["omac sandbox doctor"])
    fix = ["omac sandbox doctor", "omac sandbox run --explain -- true"]
    return Refusal("sandbox-failed", f"bubblewrap could not build the sandbox ({complaint})", fix=fix)


def is_lack(output: str, sysctls: Mapping[str, str]) -> bool:
    """Return whether bubblewrap wrote that this machine can have no namespace, which does not pass by itself."""
    return _cause_of_lack(_last_message(output), sysctls, 0, "", "") is not None


def install(package: str, distribution: tuple[str, ...], uid: int) -> str:
    """The command that installs a package here; for a distribution that is not known, Debian's."""
    installer = next((INSTALLERS[name] for name in distribution if name in INSTALLERS), INSTALLERS["debian"])
    if installer.startswith("nix"):
        return f"{installer} nixos.{package}"
    return _as_root(f"{installer} {package}", uid)


def _system(machine: Machine) -> Iterator[Diagnosis]:
    if machine.wsl1:
        says = "this is version 1 of Windows' Linux, which has neither namespaces nor Landlock; version 2 has"
        yield Diagnosis("system", FAIL, says, ("wsl.exe --list --verbose", "wsl.exe --set-version DISTRIBUTION 2"))
    elif machine.container:
        says = f"Linux {machine.kernel} on {machine.architecture}, inside a container ({machine.container})"
        yield Diagnosis("system", OK, says)
    else:
        yield Diagnosis("system", OK, f"Linux {machine.kernel} on {machine.architecture}")


def _bubblewrap(machine: Machine) -> Diagnosis:
    get = install("bubblewrap", machine.distribution, machine.uid)
    if not machine.bwrap:
        return Diagnosis("bubblewrap", FAIL, f"bwrap is not in {machine.searched}", (get, *_instead(machine)))
    version = f"{machine.bwrap} is version {machine.bwrap_version or 'unknown'}"
    if machine.bwrap_lacks:
        says = f"{version}, without {', '.join(machine.bwrap_lacks)}; omac needs {BWRAP_MIN} or later"
        return Diagnosis("bubblewrap", FAIL, says, (get, *_instead(machine)))
    return Diagnosis("bubblewrap", OK, version)


def _namespaces(machine: Machine) -> Diagnosis:
    if not machine.bwrap:
        return Diagnosis("namespaces", WARN, "not tried without bubblewrap")
    if machine.tried:
        refusal = diagnose_bubblewrap(
            machine.tried, machine.sysctls, uid=machine.uid, bwrap=machine.bwrap, container=machine.container
        )
        without = [command for command in refusal.fix if command != LANDLOCK_ONLY]
        instead = _instead(machine) if refusal.reason == "sandbox-unavailable" else ()
        return Diagnosis("namespaces", FAIL, refusal.message, (*without, *instead))
    if machine.settings_writable:
        says = (
            f"{machine.settings_writable} is writable inside the sandbox: a program there could take over the machine"
        )
        return Diagnosis("namespaces", FAIL, says, ("omac sandbox run --explain -- true",))
    return Diagnosis(
        "namespaces", OK, f"a sandbox was built and left again, as {'root' if machine.uid == 0 else 'you'}"
    )


def _landlock(machine: Machine) -> Diagnosis:
    known = machine.landlock
    if not known:
        older = machine.lsm and "landlock" not in machine.lsm.split(",")
        if older and _version(machine.kernel) >= (5, 13):
            says = f"it is switched off; lsm=landlock,{machine.lsm} on the kernel's command line switches it on"
            fix = () if machine.container else (f"sudoedit /etc/default/grub && sudo {BOOT}",)
            return Diagnosis("landlock", WARN, says, fix)
        says = (
            f"this kernel has none; Linux {LANDLOCK_LINUX[1]} is the first, {LANDLOCK_LINUX[LANDLOCK_SCOPES]} has all"
        )
        return Diagnosis("landlock", WARN, says)
    if known < LANDLOCK_TCP:
        says = f"version {known}: neither ports nor abstract sockets are bounded; Linux {LANDLOCK_LINUX[6]} does both"
        return Diagnosis("landlock", WARN, says)
    if known < LANDLOCK_SCOPES:
        says = f"version {known}: abstract sockets are not bounded, Linux {LANDLOCK_LINUX[LANDLOCK_SCOPES]} does that"
        return Diagnosis("landlock", WARN, f"{says}; --backend landlock needs it too")
    return Diagnosis("landlock", OK, f"version {known}: ports, abstract sockets and signals are bounded")


def _seccomp(machine: Machine) -> Diagnosis:
    if machine.seccomp:
        return Diagnosis("seccomp", OK, f"system calls are filtered on {machine.architecture}")
    says = f"no filter of system calls can be loaded on this kernel for {machine.architecture}"
    return Diagnosis("seccomp", FAIL, says)


def _tiocsti(machine: Machine) -> Diagnosis:
    if machine.sysctls.get(TIOCSTI) == "0":
        return Diagnosis("terminal", OK, "the kernel stops programs from typing into the terminal of their user")
    if machine.seccomp:
        says = "the kernel would let programs type into their terminal (TIOCSTI); the filter does not let those inside"
        return Diagnosis("terminal", OK, says)
    fix = (_as_root(f"sysctl -w {TIOCSTI}=0", machine.uid),) if TIOCSTI in machine.sysctls else ()
    return Diagnosis("terminal", FAIL, "a program could type into the terminal it runs in (TIOCSTI)", fix)


def _limit(fact: LimitFact, container: str) -> Diagnosis:
    name = f"limit {fact.name}"
    fix = tuple(command for command in fact.fix if not container or BOOT not in command)  # it boots no kernel
    if fact.trouble:
        return Diagnosis(name, WARN, f"would be refused: {fact.trouble}", fix)
    return Diagnosis(name, WARN if fact.fix else OK, fact.by, fix)


def _git(machine: Machine) -> Diagnosis:
    get = install("git", machine.distribution, machine.uid)
    if not machine.git_version:
        return Diagnosis("git", WARN, f"git is not in {machine.searched}", (get,))
    if _version(machine.git_version) < GIT_REFTABLE_MIN:
        least = ".".join(map(str, GIT_REFTABLE_MIN))
        says = f"version {machine.git_version}; repositories with reftable are refused, they need {least}"
        return Diagnosis("git", OK, says)
    return Diagnosis("git", OK, f"version {machine.git_version}")


def _cause_of_lack(
    complaint: str, sysctls: Mapping[str, str], uid: int, bwrap: str, container: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return what this machine lacks, by a message of bubblewrap's, in a sentence, with the commands that mend it; None
    for a message that says nothing of the kind."""
    if "Unknown option" in complaint:
        return f"{bwrap} is too old, omac needs {BWRAP_MIN} or later ({complaint})", (install("bubblewrap", (), uid),)
    if "PR_SET_SECCOMP" in complaint:
        return f"this kernel loads no filter of system calls ({complaint})", ("omac sandbox doctor",)
    if _concerns_proc(complaint):
        return _proc_masked(complaint, container)
    if not _concerns_namespaces(complaint):
        return None
    if sysctls.get(USERNS_MAX) == "0":
        return f"{USERNS_MAX} is 0: user namespaces are disabled ({complaint})", _set(USERNS_MAX, NAMESPACES_USUAL, uid)
    if not any(refusal in complaint for refusal in REFUSALS):
        return None
    return _namespaces_refused(complaint, sysctls, uid, bwrap, container)


def _concerns_proc(complaint: str) -> bool:
    masked = "Can't mount proc" in complaint
    return masked or (
        USERNS_MAX.replace(".", "/") in complaint and ("Read-only" in complaint or "ermission denied" in complaint)
    )


def _concerns_namespaces(complaint: str) -> bool:
    messages = (
        "namespace",
        "user ns",
        "uid map",
        "gid map",
        "uid_map",
        "gid_map",
        "make / slave",
        "loopback",
        "old file caps",
    )
    return any(message in complaint for message in messages)


def _proc_masked(complaint: str, container: str) -> tuple[str, tuple[str, ...]]:
    """A kernel mounts no new /proc where parts of the one that is there are hidden: mount_namespaces(7)."""
    where = f"this container ({container})" if container else "something here, as containers do,"
    cause = f"{where} hides parts of /proc, so the kernel refuses to mount one for the sandbox ({complaint})"
    docker = "docker run --security-opt systempaths=unconfined --security-opt seccomp=unconfined IMAGE"
    return cause, (docker, "podman run --security-opt unmask=ALL IMAGE", LANDLOCK_ONLY)


def _namespaces_refused(
    complaint: str, sysctls: Mapping[str, str], uid: int, bwrap: str, container: str
) -> tuple[str, tuple[str, ...]]:
    if uid != 0 and sysctls.get(USERNS_CLONE) == "0":
        return f"{USERNS_CLONE} is 0: only root may have user namespaces ({complaint})", _set(USERNS_CLONE, 1, uid)
    if uid != 0 and sysctls.get(APPARMOR_RESTRICTS) not in ("0", None):
        cause = f"AppArmor lets only programs with a profile have user namespaces, and {bwrap} has none ({complaint})"
        return cause, (*_apparmor_profile(bwrap), *_set(APPARMOR_RESTRICTS, 0, uid, "  # weaker: lets every program"))
    if container:
        cause = f"this container ({container}) forbids user namespaces ({complaint})"
        options = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        return cause, (f"docker run {options} --security-opt systempaths=unconfined IMAGE", LANDLOCK_ONLY)
    return f"the kernel refuses user namespaces to this process ({complaint})", (
        f"sysctl {USERNS_MAX} {USERNS_CLONE} {APPARMOR_RESTRICTS}",
        LANDLOCK_ONLY,
    )


def _apparmor_profile(bwrap: str) -> tuple[str, ...]:
    lines = ("abi <abi/4.0>,", "include <tunables/global>", f"profile bwrap {bwrap} flags=(unconfined) {{", "  userns,")
    text = " ".join(f"'{line}'" for line in (*lines, "  include if exists <local/bwrap>", "}"))
    return (f"printf '%s\\n' {text} | sudo tee /etc/apparmor.d/bwrap", "sudo apparmor_parser -r /etc/apparmor.d/bwrap")


def _set(name: str, value: int, uid: int, remark: str = "") -> tuple[str, ...]:
    """Return the commands that change a setting of the kernel, now and from the next start on."""
    keep = f"echo {name}={value} | {_as_root('tee /etc/sysctl.d/60-namespaces.conf', uid)}"
    return (_as_root(f"sysctl -w {name}={value}", uid) + remark, keep + remark)


def _instead(machine: Machine) -> tuple[str, ...]:
    return (LANDLOCK_ONLY,) if machine.landlock >= LANDLOCK_SCOPES else ()


def _as_root(command: str, uid: int) -> str:
    return command if uid == 0 else f"sudo {command}"


def _last_message(output: str) -> str:
    """The last thing that bubblewrap said, without its name; other lines are warnings, or another program's."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [line.partition("bwrap: ")[2] for line in lines if line.startswith("bwrap: ")]
    return (own or lines or [""])[-1][:400]


def _version(text: str) -> tuple[int, int]:
    parts = [int("".join(c for c in part if c.isdigit())[:6] or 0) for part in [*text.split(".")[:2], "0"]]
    return parts[0], parts[1]
