"""A session's copy of refs of a linked worktree's repository, and how it comes home.

Loose refs are files in `refs/`, which the sandbox has; packed refs are one file, `packed-refs`, that git replaces by
renaming another over it. The common folder is not writable, so inside the sandbox `packed-refs` is a link to a copy in
the admin folder: `omac-refs-PID/packed-refs`. With `git.refs = branch` all of `refs/` is such a copy.

When the program has ended, `copy_back` repeats on the host what was done to the copy, with git's own `update-ref`,
each change only where the host's value is still the one that the session began with, or the host has none and the
ref was packed inside:

* A packed ref deleted inside (`branch -d`, `tag -d`) is deleted on the host then, not before. Where a loose ref hid
  an older packed one, the host sees the older value from the deletion until then.
* Refs packed inside (`pack-refs`; `gc` packs none there) are packed on the host, too, and what the host packs is put
  into the copy, both while the program runs (packed_refs.py).
* With `git.refs = branch`, only the worktree's own branch, `refs/stash` and names that are new count, and the host sees
  them at the end only. Any other change is set aside as `refs/omac/set-aside/...`, so no commit is lost, and reported.

A session that was killed leaves its copy; the next one in this worktree brings home what it added, and deletes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from omac.adapters.files import atomic
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import opened_folder
from omac.adapters.git import pointers, program
from omac.adapters.git.repository import is_folder, mode_of
from omac.domain.git.grammar import is_oid
from omac.domain.git.refs import is_ref_name
from omac.domain.kernel.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "omac-refs-"
BYTES_MAX = 64 << 20
LOOSE_MAX = 50_000  # loose refs that are read
LOGS_MAX = 500  # that are kept open meanwhile; what git adds to others stays
COMMANDS_MAX = 10_000  # of changes to refs in one session
SECONDS_MAX = 7.0  # for each step of changes of which git refuses some: they cost several starts of git each
SET_ASIDE = "refs/omac/set-aside/"
OWN_ALWAYS = "refs/stash"  # made with `git stash` in any worktree, so every session may change it
# Of a copy: what gc packs would be gone for the host for a moment, and logs of other worktrees cannot be written.
# `git maintenance run` of git 2.55 does both as tasks of their own, beside gc.
OWN_SETTINGS = (
    b"\n[gc]\n\tpackRefs = false\n\treflogExpire = never\n\treflogExpireUnreachable = never\n"
    b'[maintenance "pack-refs"]\n\tenabled = false\n[maintenance "reflog-expire"]\n\tenabled = false\n'
)


class Session:
    """The copy for one common folder, in the worktree's admin folder; `own` is its branch, "" when detached.

    `packed` is the host's file when the copy was made, `base` what refs it had then; `narrowed` is `git.refs = branch`.
    A copy of the settings is beside it (`config_copies.py`).
    """

    def __init__(self, common: str, folder: str, own: str, *, narrowed: bool) -> None:
        self.common = common
        self.folder = folder
        self.narrowed = narrowed
        self.own = own
        self.base: dict[str, str] = {}
        self.packed = b""

    def state(self) -> dict[str, object]:
        """Return what `of_state` makes a session of."""
        return vars(self)

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Session:
        """Return the session that `state` was called on. Raises LookupError."""
        session = cls(state["common"], state["folder"], state["own"], narrowed=state["narrowed"])
        session.base = state["base"]
        session.packed = state["packed"]
        return session


def session_of(common: str, admin: str, *, narrowed: bool) -> Session:
    """Return the session of a linked worktree, whose admin folder is `admin`; its copy is made by `open_session`."""
    number = int.from_bytes(os.urandom(6), "big")
    return Session(common, f"{admin}/{FOLDER}{number}", own_branch(common, admin), narrowed=narrowed)


def own_branch(common: str, admin: str) -> str:
    """The branch that a worktree has checked out and no other has; "" where there is none."""
    own = branch_of(admin)
    others = [common]
    try:
        others += [f"{common}/worktrees/{name}" for name in os.listdir(f"{common}/worktrees")]
    except OSError:
        pass
    return "" if own in [branch_of(other) for other in others if other != admin] else own


def branch_of(git: str) -> str:
    """The branch that a HEAD names; "" for a detached one, or what cannot be read."""
    content = pointers.read_leniently(f"{git}/HEAD", pointers.BYTES_MAX)
    name = content[5:].strip().decode(errors="surrogateescape")
    return name if content.startswith(b"ref: ") and is_name(name) else ""


def open_session(session: Session) -> None:
    """Make the copy. Raises OSError."""
    packed = pointers.read(f"{session.common}/packed-refs", BYTES_MAX) or b""
    session.packed = packed
    os.mkdir(session.folder, 0o700)
    if session.narrowed:
        symbolic: dict[str, str] = {}
        session.base = parsed(packed)
        session.base.update(loose(f"{session.common}/refs", symbolic))
        lines = [f"{value} {name}\n" for name, value in sorted(session.base.items()) if name not in symbolic]
        packed = "".join(lines).encode(errors="surrogateescape")
        for folder in ("refs", "refs/heads", "refs/tags"):
            os.mkdir(f"{session.folder}/{folder}", 0o755)
        for name, target in symbolic.items():
            os.makedirs(os.path.dirname(f"{session.folder}/{name}"), 0o755, exist_ok=True)
            atomic.create(f"{session.folder}/{name}", target.encode(errors="surrogateescape"), 0o644)
            session.base.pop(name, None)
    atomic.create(f"{session.folder}/packed-refs", packed, 0o644)
    settings = pointers.read(f"{session.common}/config", pointers.CONFIG_BYTES_MAX) or b""
    atomic.create(f"{session.folder}/config", settings + OWN_SETTINGS, 0o644)


def discard(session: Session) -> None:
    """Remove the copy of a launch whose program never ran."""
    if is_folder(session.folder):
        from omac.adapters.files import emptying  # seldom needed

        emptying.remove(session.folder)


def copy_back(session: Session) -> list[tuple[str, str]]:
    """Repeat on the host what was done to the copy, and remove it. Return (ref, what could not be done or was not
    allowed)."""
    if not is_folder(session.folder):
        return []
    ended = _ended(session)
    if ended is None:
        return [(session.folder, "the session's refs cannot be read; the host's are as they were, the copy is kept")]
    refusals: list[tuple[str, str]] = []
    commands: list[tuple[str, str]] = []
    packed = {} if session.narrowed else packed_of(session.common)
    for name in sorted(session.base.keys() | ended.keys()):
        old, new = session.base.get(name, ""), ended.get(name, "")
        if old == new or (new and packed.get(name) == new):
            continue
        if session.narrowed and old and name not in (session.own, OWN_ALWAYS):
            refusals.append((name, "was " + ("changed" if new else "deleted") + " inside; the host's is as it was"))
            if new:
                commands.append((SET_ASIDE + name[5:], f"update {SET_ASIDE}{name[5:]} {new}"))
        elif session.narrowed or not stat.S_ISREG(mode_of(f"{session.common}/{name}")):
            is_gone = new and not session.narrowed and name not in packed  # a new one was packed inside in its place
            commands.append((name, _command(name, "" if is_gone else old, new)))
    from omac.adapters.files import emptying  # not before the program begins

    if len(commands) > COMMANDS_MAX:
        refusals.append(
            (f"{len(commands)} refs", f"were changed inside, and {COMMANDS_MAX} can be: none is copied back")
        )
        commands = []
    refusals += applied(session.common, commands, "could not be changed as inside")
    emptying.remove(session.folder)
    return refusals


def _ended(session: Session) -> dict[str, str] | None:
    """Return the refs of the session's copy now; `base` itself where the copy is unchanged, None where it is
    unreadable."""
    try:
        if session.narrowed:
            return packed_of(session.folder) | loose(f"{session.folder}/refs", {})
        packed = pointers.read(f"{session.folder}/packed-refs", BYTES_MAX)
    except Refusal:
        return None
    if packed == session.packed:
        return session.base
    session.base = parsed(session.packed)
    return parsed(packed or b"")


def direct_refs(git: str) -> dict[str, str]:
    """Return names and values of the refs of a git folder, without symbolic ones. Raises Refusal (git-unsafe)."""
    symbolic: dict[str, str] = {}
    values = packed_of(git) | loose(f"{git}/refs", symbolic)
    return {name: value for name, value in values.items() if name not in symbolic}


def packed_of(git: str) -> dict[str, str]:
    """Return names and values of the packed refs of a git folder, or of a copy. Raises Refusal (git-unsafe)."""
    return parsed(pointers.read(f"{git}/packed-refs", BYTES_MAX) or b"")


def parsed(packed: bytes) -> dict[str, str]:
    """Return names and values of a packed-refs file; lines that are not well-formed, and replacements, are left out."""
    values: dict[str, str] = {}
    for line in packed.decode(errors="surrogateescape").split("\n"):
        value, space, name = line.partition(" ")
        if space and is_oid(value) and is_name(name):
            values[name] = value
    return values


def loose(folder: str, symbolic: dict[str, str]) -> dict[str, str]:
    """Return names and values of the files in a `refs` folder; symbolic ones go to `symbolic`. No link is followed.
    Raises Refusal (git-unsafe) where there are too many: of some it would not be known what they were."""
    values: dict[str, str] = {}
    waiting, left = [(folder, "refs")], LOOSE_MAX
    while waiting:
        path, name = waiting.pop()
        for entry in os.listdir(path) if is_folder(path) else ():
            left -= 1
            if left < 0:
                fix = f"git --git-dir={quoted(os.path.dirname(folder))} pack-refs --all"
                raise pointers.unsafe(f"{folder} has more than {LOOSE_MAX} files and folders", fix)
            full, mode = f"{name}/{entry}", mode_of(f"{path}/{entry}")
            if stat.S_ISDIR(mode):
                waiting.append((f"{path}/{entry}", full))
            elif stat.S_ISREG(mode) and is_name(full):
                text = text_of(f"{path}/{entry}")
                if is_oid(text):
                    values[full] = text
                elif text.startswith("ref: ") and is_name(text[5:].strip()):
                    symbolic[full] = text + "\n"
    return values


def text_of(path: str) -> str:
    """Return what the file of a ref holds; empty for one that is too long for a value, or cannot be read."""
    return pointers.read_leniently(path, pointers.BYTES_MAX).decode(errors="surrogateescape").strip()


def is_name(name: str) -> bool:
    """Return whether it may be a ref that counts here: none that shows one object for another."""
    return is_ref_name(name) and not name.startswith("refs/replace/")


def _command(name: str, old: str, new: str) -> str:
    if not new:
        return f"delete {name} {old}"
    return f"update {name} {new} {old or '0' * len(new)}"


def applied(common: str, commands: list[tuple[str, str]], failure: str) -> list[tuple[str, str]]:
    """Have git change the host's refs, step by step; returns those that it would not change, with the `failure` and
    why.

    The logs of refs are the sandbox's own, and say already what was done: what git adds to them is taken off again.
    """
    logs = _logs(common, [name for name, _ in commands]) if commands else []
    refusals: list[tuple[str, str]] = []
    for step in range(3):
        part = [pair for pair in commands if _step(pair[1]) == step]
        refusals += _done(common, part, time.monotonic() + SECONDS_MAX)
    refusals = [(name, f"{failure}: {why}") for name, why in refusals]
    _cut_off(logs)
    return refusals


def _step(command: str) -> int:
    """Return when a command comes: what is set aside is kept before it goes, and what goes makes room for others."""
    return 0 if command.startswith(f"update {SET_ASIDE}") else 1 if command.startswith("delete ") else 2


def _done(common: str, commands: list[tuple[str, str]], deadline: float) -> list[tuple[str, str]]:
    """Have git change these refs, all at once or else each half by itself, until the `deadline`; returns those that it
    would not change, or that there was no time for."""
    if commands and time.monotonic() > deadline:
        return [(name, "changing refs takes too long") for name, _ in commands]
    complaint = _git(common, [command for _, command in commands]) if commands else ""
    if not complaint:
        return []
    if len(commands) == 1:
        return [(commands[0][0], complaint)]
    half = len(commands) // 2
    return _done(common, commands[:half], deadline) + _done(common, commands[half:], deadline)


def _logs(common: str, names: list[str]) -> list[tuple[int, int]]:
    """The logs of refs, and that of the main worktree's HEAD: an open descriptor and the size of each."""
    logs = []
    for name in ("HEAD", *names):
        descriptor = -1
        try:
            descriptor = _opened_log(common, f"logs/{name}")
            logs.append((descriptor, os.fstat(descriptor).st_size))
        except OSError:
            continue  # there is none
        if len(logs) >= LOGS_MAX:
            break
    return logs


def _opened_log(common: str, path: str) -> int:
    """A file below the common folder, opened without following a link. Raises OSError: it is none, or no file."""
    folder, _, name = f"{common}/{path}".rpartition("/")
    with Descriptor(opened_folder(folder)) as parent:
        opened = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "no file", path)
    return opened


def _cut_off(logs: list[tuple[int, int]]) -> None:
    for descriptor, size in logs:
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
        except OSError:
            pass  # the entry stays: it is true
        finally:
            os.close(descriptor)


def _git(common: str, commands: list[str]) -> str:
    """Run `git update-ref --stdin` in a folder whose configuration was pinned; no hook runs. Return its complaint."""
    unset = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.logAllRefUpdates=false")
    lines = "".join(command + "\n" for command in commands).encode(errors="surrogateescape")
    return program.complaint(*unset, f"--git-dir={common}", "update-ref", "--no-deref", "--stdin", stdin=lines)
