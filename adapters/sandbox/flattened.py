"""A policy for the host's own file system: what mounts would have shown or hidden, said by rules that only allow.

Empty folders of the sandbox's own become one temporary folder; copies of files lie in it. What is denied below
something readable is left out by naming all that lies beside it. What cannot be said so stays, and is refused where it
is to be enforced (`landlock_only.refusals`).
"""

from __future__ import annotations

import os

from omac.adapters.files import atomic
from omac.domain.kernel.paths import below
from omac.domain.sandbox.confinement import (
    COPY,
    DENY,
    LINK,
    PRIVATE,
    READ,
    SOCKETS_OUTSIDE,
    WRITE,
    Entry,
    Policy,
    access_at,
    governing,
    ordered,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DEPTH_MAX = 8  # of folders between something readable and what is denied in it


def flattened(policy: Policy, temporary: str) -> Policy:
    """Return the policy in the form for Landlock alone. `temporary` is an empty folder of this launch's own; copies of
    files are put into it here.

    `temporary` is the home too, unless something of the home was granted for writing. Entries that are shown at another
    path than their own, such as a socket, are left out, and so are denials of sockets: a program can connect to none.
    """
    stated = [entry for entry in policy.entries if entry.reason != SOCKETS_OUTSIDE]
    denied = [entry.path for entry in stated if entry.access == DENY]
    denied += [path for path in policy.hidden if governing(policy.entries, path) is not None]
    entries = [Entry(temporary, WRITE, "temporary files")]
    for entry in stated:
        if entry.source != entry.path or entry.access in (COPY, PRIVATE):
            continue
        if entry.access == READ and not entry.made:
            entries += _around(entry, denied)
        elif entry.access == WRITE or entry.made or (entry.access == DENY and _writable(policy, entry.path)):
            entries.append(entry)
    return Policy(
        policy.workdir,
        ordered(entries),
        _environment(policy, temporary),
        hidden=policy.hidden,
        network=policy.network,
        ports=policy.ports,
        limits=policy.limits,
        fence=policy.fence,
        warnings=policy.warnings,
    )


def weakened(entries: Iterable[Entry], git: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries of a policy, of which Landlock alone can keep all, at the price of `git`: those that were made for
    git's files. There the program can change whatever lies in a folder that it can write: settings and hooks as well.
    """
    made_for_git = {(entry.path, entry.reason) for entry in git}
    kept = [entry for entry in entries if (entry.path, entry.reason) not in made_for_git]
    own = [entry for entry in entries if (entry.path, entry.reason) in made_for_git and os.path.lexists(entry.path)]
    shared = [entry for entry in own if entry.path.endswith("/worktrees")]  # other worktrees are in it
    kept += [entry for entry in own if entry.access == WRITE and not entry.made and entry not in shared]
    for entry in own:
        is_read = entry in shared or (entry.access in (READ, LINK) and not entry.made)
        if is_read and access_at(kept, entry.path) != WRITE:
            kept.append(Entry(entry.path, READ, entry.reason))
    return ordered(kept)


def _environment(policy: Policy, temporary: str) -> dict[str, str]:
    """The variables, which lead to where things are now; copies of files are put there."""
    home = policy.environment.get("HOME", "")
    needs_home = any(below(entry.path, home) and entry.access == WRITE and entry.made for entry in policy.entries)
    moved = {}  # where each copy lies: below the home that there is, else below the temporary folder
    for entry in policy.entries:
        if entry.access == COPY:
            in_home = below(entry.path, home) and not needs_home
            moved[entry.path] = temporary + (entry.path.removeprefix(home) if in_home else entry.path)
    for entry in policy.entries:
        if entry.access == COPY:
            content = entry.content
            for before, after in moved.items():  # copies of settings name each other
                content = content.replace(os.fsencode(before), os.fsencode(after))
            os.makedirs(os.path.dirname(moved[entry.path]), 0o700, exist_ok=True)
            atomic.create(moved[entry.path], content)
    shown_elsewhere = {entry.path for entry in policy.entries if entry.source != entry.path}
    environment = {}
    for name, value in policy.environment.items():
        if value in moved:
            environment[name] = moved[value]
        elif value in shown_elsewhere:
            continue
        elif value.startswith("/") and access_at(policy.entries, value) == PRIVATE:
            environment[name] = temporary + value
        else:
            environment[name] = value
    environment["TMPDIR"] = temporary
    environment["HOME"] = home if needs_home else temporary
    return environment


def _around(entry: Entry, denied: Iterable[str], depth: int = 0) -> list[Entry]:
    """The entry, or entries for all that lies in it but what is denied."""
    within = [path for path in denied if below(path, entry.path)]
    if not within:
        return [entry]
    siblings: list[Entry] = []
    if entry.path in within or depth == DEPTH_MAX:
        return siblings
    try:
        names = os.listdir(entry.path)
    except OSError:
        return siblings
    for name in names:
        path = os.path.join(entry.path, name)
        if not os.path.islink(path):  # what it leads to is named by itself, or not granted
            siblings += _around(Entry(path, READ, entry.reason), within, depth + 1)
    return siblings


def _writable(policy: Policy, path: str) -> bool:
    return access_at([entry for entry in policy.entries if entry.access in (READ, WRITE, PRIVATE)], path) == WRITE
