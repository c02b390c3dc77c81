"""The journal that is in use: which one a program uses that was given none, and the spool that belongs to it."""

from __future__ import annotations

import os

from omac.adapters.files import lock
from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.kernel.state_paths import EXPOSED, LINK, MARKS
from omac.journal.folders import own_home, write_command

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping

SPOOL = "spool"  # in the state directory, of the journal that lies in it
NAME_DIGITS = 16


def journal_named(state: str, environment: Mapping[str, str], flag: str | None) -> str:
    """Return the journal's path: the flag, else $OMAC_JOURNAL, else journal.db in `state`. Raises Refusal for a URL."""
    chosen = flag or environment.get("OMAC_JOURNAL") or os.path.join(state, "journal.db")
    if "://" in chosen:
        raise Refusal("misuse", f"journals behind a URL are not supported yet: {chosen.split('://')[0]}://...")
    return os.path.abspath(chosen)


def journal_in_use(state: str, environment: Mapping[str, str], flag: str | None = None, run: str = "") -> str:
    """Return the journal that a program means: that of the run it is part of; else as `journal_named`, but where
    nothing is said, that of the server that runs.
    """
    folder = os.path.join(state, "run", run if run.isalnum() else "current")
    if run.isalnum() or (not (flag or environment.get("OMAC_JOURNAL")) and is_held(folder)):
        try:
            return os.readlink(os.path.join(folder, "journal"))
        except OSError:
            pass
    return journal_named(state, environment, flag)


def journals(state: str, environment: Mapping[str, str]) -> list[str]:
    """Return the journals that $OMAC_JOURNAL and the runs that live name."""
    variable = environment.get("OMAC_JOURNAL", "")
    named = [os.path.abspath(variable)] if variable and "://" not in variable else []
    folder = os.path.join(state, "run")
    try:
        runs = os.listdir(folder)
    except FileNotFoundError:
        return named
    for path in (os.path.join(folder, run) for run in runs):
        if is_held(path):
            try:
                named.append(os.readlink(os.path.join(path, "journal")))
            except OSError:
                pass  # it has none yet
    return named


def known_journals(state: str) -> dict[str, str]:
    """Return the journals elsewhere that the state directory has marks of, each by the link that leads to it."""
    folder = os.path.join(state, MARKS)
    try:
        links = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(LINK)]
        return {link: os.readlink(link) for link in links}
    except OSError:
        return {}


def distrust(link: str) -> None:
    """Have the journal to which one of these links leads be believed no more. Raises OSError."""
    try:
        os.rename(link, link.removesuffix(LINK) + EXPOSED)
    except FileNotFoundError:
        pass  # another launch did


def spool_of(state: str, journal: str) -> str:
    """Return the folder of the records that wait for the journal at that path; no other journal takes them in."""
    folder = os.path.realpath(state)
    path = os.path.join(os.path.realpath(os.path.dirname(journal)), os.path.basename(journal))
    own = path == os.path.join(folder, "journal.db")
    return os.path.join(folder, SPOOL if own else f"{SPOOL}-{sha256_hex(os.fsencode(path))[:NAME_DIGITS]}")


def is_held(folder: str) -> bool:
    """Return whether a process lives whose run has this folder: it holds the lock, or answers at the socket. Raises
    Refusal (state-unusable) where the folder cannot be looked into."""
    try:
        return lock.is_held(os.path.join(folder, "lock")) or _answers(os.path.join(folder, "control.sock"))
    except OSError as problem:
        raise closed(folder, problem) from problem


def closed(folder: str, problem: OSError) -> Refusal:
    """The refusal for a folder of a run that this user may not, or cannot, look into."""
    runs = os.path.dirname(folder)
    state = os.path.dirname(runs)
    for path in (state, runs, folder):
        if refusal := foreign(path, state):
            return refusal
    helps = ["export OMAC_STATE_DIR=PATH  # a folder"]
    if isinstance(problem, PermissionError):
        helps = own_home(state) or ["omac doctor --fix  # mends modes"]
    message = f"{folder} cannot be looked into: {problem.strerror}"
    return Refusal("state-unusable", message, fix=[write_command(problem, state), *helps])


def foreign(path: str, state: str) -> Refusal | None:
    """The refusal for a folder of the state directory that belongs to another user, as after a `sudo omac`."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    if owner == os.geteuid():
        return None
    what = f"the state directory {path}" if path == state else f"{path}, in the state directory,"
    fix = [list_command(path), "export OMAC_STATE_DIR=PATH  # one of your own"]
    if owner == 0:
        fix.append(f"sudo chown -R {os.geteuid()} {quoted(path)}  # if a `sudo omac` of yours made it")
    return Refusal("state-unusable", f"{what} belongs to user {owner}, not to you ({os.geteuid()})", fix=fix)


def _answers(path: str) -> bool:
    """Return whether a process listens on a Unix socket."""
    if not os.path.exists(path):
        return False
    import _socket  # the module around it takes longer to load than all the rest

    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        probe.connect(path)
    except BlockingIOError:
        return True  # its queue is full
    except OSError:
        return False
    finally:
        probe.close()
    return True
