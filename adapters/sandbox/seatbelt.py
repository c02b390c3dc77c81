"""A policy as a profile of Seatbelt, the sandbox of macOS (sandbox-exec(1)).

Rules

1. Nothing is allowed that no rule allows. Of the rules for an operation the last one that fits counts, so an entry
   comes after all that lie around it: the longest path decides.
2. Seatbelt goes by paths, not by what lies there. So whatever an entry names, and each folder between it and what can
   be changed around it, can be neither renamed nor removed: it would be under another path, and under other rules.
   Hard links are refused for the same reason (no rule allows them).
3. What is omac's own comes last, and is denied.
4. What Seatbelt cannot express is refused, all of it at once.

The paths are those of macOS: canonical, where /etc, /tmp and /var are links into /private.
Sources: sandbox-exec(1), Apple's profiles in /System/Library/Sandbox/Profiles.
"""

from __future__ import annotations

import posixpath

from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, Entry, governing, ordered

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omac.domain.sandbox.confinement import Policy

PROGRAM = "/usr/bin/sandbox-exec"
MOVED = ("/etc", "/tmp", "/var")  # noqa: S108 - links into /private, in every macOS
SYSTEM = (  # not all of /System: the volumes are there under a second name
    "/System/Library", "/System/Cryptexes", "/System/Volumes/Preboot/Cryptexes", "/System/iOSSupport", "/bin", "/sbin",
    "/usr/bin", "/usr/lib", "/usr/libexec", "/usr/sbin", "/usr/share", "/Library/Apple",
    "/Library/Developer/CommandLineTools", "/Applications/Xcode.app/Contents/Developer", "/private/etc/ssl",
    "/private/var/db/dyld", "/private/var/db/timezone", "/private/var/db/xcode_select_link", "/private/var/select",
)  # fmt: skip
SYSTEM_FILES = (
    "/", "/dev", "/private/etc/group", "/private/etc/hosts", "/private/etc/localtime", "/private/etc/passwd",
    "/private/etc/paths", "/private/etc/profile", "/private/etc/protocols", "/private/etc/services",
    "/private/etc/shells", "/private/etc/zprofile", "/private/etc/zshrc", "/private/var/run/resolv.conf",
)  # fmt: skip
SOURCES = ("/dev/random", "/dev/urandom", "/dev/zero", "/dev/autofs_nowait", "/dev/stdin", "/dev/stdout", "/dev/stderr")
SINKS = ("/dev/null", "/dev/tty", "/dev/ptmx", "/dev/dtracehelper")
# Users and groups by name, notes of changed settings, the log. None of them opens a file or a program for the caller.
SERVICES = (
    "com.apple.bsd.dirhelper", "com.apple.logd", "com.apple.system.logger", "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership",
)  # fmt: skip
NETWORK_SERVICES = (  # which servers names are asked of, and which certificates are trusted
    "com.apple.SystemConfiguration.DNSConfiguration", "com.apple.SystemConfiguration.configd",
    "com.apple.trustd", "com.apple.trustd.agent",
)  # fmt: skip
SPECIAL = ("SYMLINK", "FIFO", "SOCKET")
RESOLVER = "/private/var/run/mDNSResponder"


def command(policy: Policy, argv: Sequence[str]) -> list[str]:
    """The argument vector that runs `argv` under the policy. Raises Refusal("sandbox-inexpressible")."""
    return [PROGRAM, "-p", profile(policy), "--", *argv]


def profile(policy: Policy) -> str:
    """The profile's text. Raises Refusal("sandbox-inexpressible")."""
    if problems := refusals(policy):
        message = f"Seatbelt cannot keep this: {'; '.join(problems)}"
        raise Refusal("sandbox-inexpressible", message, fix=["omac sandbox run --explain -- true"])
    entries = ordered(Entry(_moved(entry.path), entry.access, entry.reason) for entry in policy.entries)
    hidden, fence = ([_moved(path) for path in paths] for paths in (policy.hidden, policy.fence))
    lines = ["(version 1)", "(deny default)", *_processes(), *_system()]
    known: set[str] = set()
    for entry in entries:
        lines += _entry(entry, entries, known)
    lines += _network(policy, entries)
    lines += _pins(entries, [*(entry.path for entry in entries), *hidden, *fence])
    for path in fence:
        for kind in SPECIAL:
            lines.append(f"(deny file-write-create (require-all (subpath {quoted(path)}) (vnode-type {kind})))")
    lines.append("(deny file-write-setugid)")
    if hidden:
        lines.append(_rule("deny", "file* process-exec* network-outbound network-bind", _paths("subpath", hidden)))
    return "\n".join(lines) + "\n"


def refusals(policy: Policy) -> list[str]:
    """What this policy asks for and Seatbelt cannot express, each in words for a person; empty: it can be enforced."""
    found = []
    for entry in policy.entries:
        if entry.access == PRIVATE:
            found.append(f"{entry.path}: a private folder needs a mount; allow one that is there instead")
        elif entry.access == COPY:
            found.append(f"{entry.path}: a private copy needs a mount; allow reading the file itself instead")
        elif entry.source != entry.path:
            found.append(f"{entry.path}: showing {entry.source} there needs a mount; allow it where it is")
        found += _unspeakable(entry.path)
    for path in (*policy.hidden, *policy.fence):
        found += _unspeakable(path)
    return found + [f"the limit {name}: macOS has no cgroups" for name in policy.limits if name != "files"]


def quoted(text: str) -> str:
    """A string of the profile language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _processes() -> list[str]:
    """What a program may do to itself and to those beside it in the sandbox."""
    return [
        "(allow process-fork)",
        "(allow process-info* (target same-sandbox))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow ipc-posix-sem)",
        "(allow pseudo-tty)",
        _rule("allow", "mach-lookup", _paths("global-name", SERVICES)),
    ]


def _system() -> list[str]:
    """The system's own files, and devices. Terminals are used through what is open already."""
    above = {path for known in (*SYSTEM, *SYSTEM_FILES) for path in _ancestors(known)}
    return [
        _rule("allow", "file-read-metadata", _paths("literal", sorted(above))),
        _rule("allow", "file-read* file-map-executable process-exec*", _paths("subpath", SYSTEM)),
        _rule("allow", "file-read*", _paths("literal", (*SYSTEM_FILES, *SOURCES, *MOVED))),
        _rule("allow", "file-read* file-write-data file-ioctl", _paths("literal", SINKS)),
        _rule("allow", "file-read* file-write-data", _paths("subpath", ["/dev/fd"])),
        '(allow file-ioctl (regex #"^/dev/ttys[0-9]+$"))',
    ]


def _entry(entry: Entry, entries: Sequence[Entry], known: set[str]) -> list[str]:
    """The rules of one entry, after those of all that lie around it.

    The folders on the way to it are seen to be there; those in `known` are already.
    """
    place = _paths("subpath", [entry.path])
    if entry.access == DENY:
        return [_rule("deny", "file* process-exec*", place)]
    above = [path for path in _ancestors(entry.path) if path not in known and not _visible(entries, path)]
    known.update(above)
    lines = [_rule("allow", "file-read-metadata", _paths("literal", above))] if above else []
    if entry.access == LINK:
        itself = _paths("literal", [entry.path])
        return [*lines, _rule("allow", "file-read*", itself), _rule("deny", "file-write*", itself)]
    lines.append(_rule("allow", "file-read* file-map-executable process-exec*", place))
    lines.append(_rule("allow" if entry.access == WRITE else "deny", "file-write*", place))
    return lines


def _network(policy: Policy, entries: Sequence[Entry]) -> list[str]:
    """Sockets with a path belong to the files: those in a folder that can be changed, and those that an entry names."""
    lines = ["(deny network*)"]
    if policy.network == "host":
        lines.append('(allow network-outbound (remote ip "*:*"))')
        lines.append(_rule("allow", "mach-lookup", _paths("global-name", NETWORK_SERVICES)))
        if policy.ports:
            ports = [f"(local ip {quoted(f'*:{port}')})" for port in policy.ports]
            lines.append(_rule("allow", "network-bind network-inbound", ports))
    for entry in entries:
        if entry.access == WRITE:
            lines.append(f"(allow network-bind (local unix-socket {_paths('subpath', [entry.path])[0]}))")
            lines.append(f"(allow network-outbound (remote unix-socket {_paths('subpath', [entry.path])[0]}))")
        elif entry.access == READ:
            lines.append(_rule("deny", "network-outbound network-bind", _paths("subpath", [entry.path])))
            lines.append(f"(allow network-outbound (remote unix-socket {_paths('literal', [entry.path])[0]}))")
        elif entry.access == DENY:
            lines.append(_rule("deny", "network-outbound network-bind", _paths("subpath", [entry.path])))
    if policy.network == "host":
        lines.append(_rule("allow", "network-outbound", _paths("literal", [RESOLVER])))
    return lines


def _pins(entries: Sequence[Entry], named: Iterable[str]) -> list[str]:
    """Nothing that has a name in the policy is renamed or removed, nor a folder on the way to it (rule 2)."""
    pinned = set()
    for name in named:
        for path in (name, *_ancestors(name)):
            around = governing(entries, path)
            if around is not None and around.access == WRITE:
                pinned.add(path)
    return [_rule("deny", "file-write-unlink", _paths("literal", sorted(pinned)))] if pinned else []


def _visible(entries: Iterable[Entry], path: str) -> bool:
    around = governing(entries, path)
    return around is not None and around.access in (READ, WRITE)


def _ancestors(path: str) -> list[str]:
    found = []
    while path != "/":
        path = posixpath.dirname(path)
        found.append(path)
    return found[::-1]


def _rule(action: str, operations: str, filters: Sequence[str]) -> str:
    return f"({action} {operations} {' '.join(filters)})"


def _paths(kind: str, paths: Iterable[str]) -> list[str]:
    return [f"({kind} {quoted(path)})" for path in paths]


def _moved(path: str) -> str:
    """Where a path leads in macOS."""
    return f"/private{path}" if any(below(path, link) for link in MOVED) else path


def _unspeakable(path: str) -> list[str]:
    """A path that macOS would not have, or that a profile cannot name for certain."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return [f"{path!r}: its name is not UTF-8"]
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return [f"{path!r}: there is a control character in its name"]
    if not path.startswith("/") or posixpath.normpath(path) != path:
        return [f"{path!r}: it is not absolute and canonical"]
    return []
