"""A policy for the host's own file system: what mounts would have shown or hidden, said by rules that only allow.

Empty folders of the sandbox's own become one temporary folder; copies of files lie in it. What is denied below something
readable is left out by naming all that lies beside it. What cannot be said so stays as it is, and is refused where it
is to be enforced (`landlock_only.refusals`).
"""

from __future__ import annotations

import os

from omac.domain.confinement import COPY, DENY, PRIVATE, READ, WRITE, Entry, Policy, below, governing, ordered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GIT_CONFIG = ".gitconfig"  # in a home
DEPTH_MAX = 8  # of folders between something readable and what is denied in it


def flattened(policy: Policy, temporary: str) -> Policy:
    """The same for Landlock alone. `temporary` is an empty folder of this launch's own, and made ready here."""
    denied = [entry.path for entry in policy.entries if entry.access == DENY]
    denied += [path for path in policy.hidden if governing(policy.entries, path) is not None]
    entries = [Entry(temporary, WRITE, "temporary files")]
    for entry in policy.entries:
        if entry.access == READ and not entry.made:
            entries += _around(entry, denied)
        elif entry.access == WRITE or entry.made or (entry.access == DENY and _writable(policy, entry.path)):
            entries.append(entry)
    environment = dict(policy.environment) | {"TMPDIR": temporary}
    home = environment.get("HOME", "")
    for entry in policy.entries:
        if entry.access == COPY:
            path = f"{temporary}/{os.path.basename(entry.path)}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(descriptor, entry.content)
            os.close(descriptor)
            for name, value in environment.items():
                if value == entry.path:
                    environment[name] = path
    if not any(below(entry.path, home) and entry.access == WRITE and entry.made for entry in policy.entries):
        environment["HOME"] = temporary
    for name, value in environment.items():
        around = governing(policy.entries, value) if value.startswith("/") else None
        if around is not None and around.access == PRIVATE and name not in ("HOME", "TMPDIR"):
            environment[name] = temporary + value
    return Policy(
        policy.workdir,
        ordered(entries),
        environment,
        hidden=policy.hidden,
        network=policy.network,
        ports=policy.ports,
        limits=policy.limits,
        fence=policy.fence,
        warnings=policy.warnings,
    )


def _around(entry: Entry, denied: Iterable[str], depth: int = 0) -> list[Entry]:
    """The entry, or entries for all that lies in it but what is denied."""
    within = [path for path in denied if below(path, entry.path)]
    if not within:
        return [entry]
    found: list[Entry] = []
    if entry.path in within or depth == DEPTH_MAX:
        return found
    try:
        names = os.listdir(entry.path)
    except OSError:
        return found
    for name in names:
        path = os.path.join(entry.path, name)
        if not os.path.islink(path):  # what it leads to is named by itself, or not granted
            found += _around(Entry(path, READ, entry.reason), within, depth + 1)
    return found


def _writable(policy: Policy, path: str) -> bool:
    around = governing([entry for entry in policy.entries if entry.access in (READ, WRITE, PRIVATE)], path)
    return around is not None and around.access == WRITE
