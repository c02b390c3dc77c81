"""omac's own files as a doctor judges them: what is wrong, what omac can mend by itself, and the command for the rest.

Rules

1. Only the owner may change or read the state directory. omac takes rights away from others, from what
   belongs to this user only; it gives none, but to the owner of a folder.
2. What belongs to another user is reported with the command that shows it, and never changed.
3. What is removed is no use to anybody: folders of ended runs beyond the latest, the sockets of the others, and a link
   to a run that is gone.
4. A host id that is none, or gone, is written again where the journal has the state of one host: approvals are its.
"""

from dataclasses import dataclass
from typing import Literal

from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import list_command, quoted
from omac.domain.kernel.sizes import shown_size
from omac.domain.sandbox.doctor import FAIL, OK, WARN, Diagnosis

NAME = "own files"
DISK = "disk"
DISK_BYTES_MIN = 1024 * 1024  # below, an append may fail at any time
SET_ASIDE_BYTES_MANY = 1 << 30
SET_ASIDE_DAYS = 30
DISK_BYTES_LOW = 64 * 1024 * 1024  # the write-ahead log alone may grow to as much

FlawKind = Literal[
    "missing", "read-only", "read-only-disk", "not-a-folder", "foreign", "mode", "dangling", "stale", "sockets",
    "garbled", "host-id", "no-host-id",
]  # fmt: skip
MENDABLE: tuple[FlawKind, ...] = ("missing", "mode", "dangling", "stale", "sockets", "host-id")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A flaw at a path. Where its mode is wrong, `mode` is the mode that the path has and `wanted` the one that it
    should have. Where the id of this host is wrong, `host` is the one that the journal has."""

    kind: FlawKind
    path: str
    mode: int = 0
    wanted: int = 0
    host: HostId | None = None

    @property
    def is_mendable(self) -> bool:
        return self.kind in MENDABLE


def private_mode(mode: int, *, is_folder: bool, is_secret: bool, is_written: bool) -> int:
    """The mode that a file or folder of omac's should have, from the one it has: that, where nothing is wrong.

    `is_secret`: nobody else may read it, either. `is_written`: omac writes to the file.
    """
    kept = mode & (0o7700 if is_secret else 0o7755)
    return kept | (0o700 if is_folder else 0o600 if is_written else 0)


def diagnose(state: str, flaws: tuple[Flaw, ...]) -> tuple[Diagnosis, ...]:
    """The findings about omac's files: one that all is well, or one for each flaw."""
    if not flaws:
        return (Diagnosis(NAME, OK, f"{state} and all files in it are yours alone"),)
    return tuple(_diagnosis(flaw) for flaw in flaws)


def signing_delayed(position: int, why: str) -> Diagnosis:
    """The finding that no checkpoint of the journal was signed since a position."""
    says = f"no checkpoint is signed since position {position}: {why}"
    return Diagnosis("checkpoints", WARN, says, ("omac checkpoint  # signs one now",))


def unreadable(name: str, problem: str, fix: tuple[str, ...]) -> Diagnosis:
    """The finding that journal, settings or vault cannot be read: lost, damaged, or something else is there."""
    return Diagnosis(name, FAIL, problem, fix)


def erasure_unfinished(workdir: str) -> Diagnosis:
    """The finding that an erasure of the directory with this workdir id is recorded, and has no outcome."""
    says = f"an erasure is not finished, of the directory with workdir id {workdir}: what it had may still be readable"
    return Diagnosis("erasure", WARN, says, (f"omac erase {workdir}  # goes on with it",))


def set_aside_large(folder: str, size: int) -> tuple[Diagnosis, ...]:
    """The finding that what launches set aside takes much room; none where it does not. omac itself removes none of
    it: its owner may want it back."""
    if size < SET_ASIDE_BYTES_MANY:
        return ()
    old = f"find {quoted(folder)} -mindepth 1 -maxdepth 1 -mtime +{SET_ASIDE_DAYS}"
    fix = (
        f"{old} -exec du -sh {{}} +  # what launches set aside more than {SET_ASIDE_DAYS} days ago",
        f"{old} -exec rm -rf {{}} +  # removes that for good",
    )
    says = f"what launches set aside takes {shown_size(size)} in {folder}, until you remove it"
    return (Diagnosis("set aside", WARN, says, fix),)


def disk_short(folder: str, free_bytes: int, command: str) -> tuple[Diagnosis, ...]:
    """The finding that the disk of a folder of omac's is full, or nearly; none where it has room. `command` shows
    that."""
    if free_bytes >= DISK_BYTES_LOW:
        return ()
    fix = (command,)
    if free_bytes >= DISK_BYTES_MIN:
        says = (
            f"the disk of {folder} has {shown_size(free_bytes)} left; once it is full, omac starts and forwards nothing"
        )
        return (Diagnosis(DISK, WARN, says, fix),)
    says = f"the disk of {folder} is full ({shown_size(free_bytes)} left): omac starts and forwards nothing"
    return (Diagnosis(DISK, FAIL, says, fix),)


def mended(flaw: Flaw) -> str:
    """Return what was done about a flaw, for a person. Raises ValueError for a flaw that omac does not mend."""
    match flaw.kind:
        case "missing":
            return f"made the state directory {flaw.path}"
        case "mode":
            return f"changed the mode of {flaw.path} from {flaw.mode:03o} to {flaw.wanted:03o}"
        case "dangling":
            return f"removed {flaw.path}, which led to a run that is gone"
        case "stale":
            return f"removed the folder of an ended run, {flaw.path}"
        case "sockets":
            return f"removed the sockets of a killed run from {flaw.path}"
        case "host-id":
            return f"wrote the host id that the journal has, {flaw.host}, to {flaw.path}"
        case _:
            raise ValueError(flaw.kind)


def _unwritable(flaw: Flaw) -> Diagnosis:
    says = f"omac cannot write to {flaw.path}, which its state directory needs"
    command = list_command(flaw.path)
    if flaw.kind == "read-only-disk":
        says += ": its file system is read-only"
        command = f"findmnt --target {quoted(flaw.path)}  # how it is mounted"
    return Diagnosis(NAME, FAIL, says, (command, "export OMAC_STATE_DIR=PATH  # writable"))


def _useless(flaw: Flaw) -> Diagnosis:
    """Return the finding of files that are of no use (rule 3)."""
    path = quoted(flaw.path)
    if flaw.kind == "dangling":
        says, remove = "leads to a run that is gone", f"rm {path}"
    elif flaw.kind == "stale":
        says, remove = "is left of a run that ended", f"rm -r {path}"
    else:
        says, remove = "has the sockets of a run that was killed; the next start removes them", f"rm {path}/*.sock"
    return Diagnosis(NAME, WARN, f"{flaw.path} {says}", ("omac doctor --fix", remove))


def _diagnosis(flaw: Flaw) -> Diagnosis:
    path = quoted(flaw.path)
    match flaw.kind:
        case "missing":
            return Diagnosis(NAME, OK, f"{flaw.path} does not exist yet; omac makes it when it is needed")
        case "read-only" | "read-only-disk":
            return _unwritable(flaw)
        case "not-a-folder":
            says = f"{flaw.path} is not a folder; the state directory has to be one, or in one"
            return Diagnosis(NAME, FAIL, says, (list_command(flaw.path), "export OMAC_STATE_DIR=PATH"))
        case "foreign":
            return Diagnosis(NAME, FAIL, f"{flaw.path} belongs to another user", (list_command(flaw.path),))
        case "mode":
            level = FAIL if flaw.mode & 0o022 else WARN
            problem = f"other users can {'change' if flaw.mode & 0o022 else 'read'} it"
            if not flaw.mode & 0o077:
                problem = "you cannot read and change it yourself"
            says = f"{flaw.path} has mode {flaw.mode:03o}: {problem}"
            return Diagnosis(NAME, level, says, ("omac doctor --fix", f"chmod {flaw.wanted:03o} {path}"))
        case "dangling" | "stale" | "sockets":
            return _useless(flaw)
        case "garbled":
            says = f"{flaw.path} does not hold what omac wrote there: it was changed by hand or cut off"
            return Diagnosis(NAME, FAIL, says, (list_command(flaw.path),))
        case "host-id":
            says = f"{flaw.path} does not hold a host id: it was removed, changed by hand or cut off"
            return Diagnosis(NAME, FAIL, says, ("omac doctor --fix  # writes the one that the journal has",))
        case "no-host-id":
            says = f"{flaw.path} is gone, and the journal has the state of no host, or of several"
            forget = f"rm -r {quoted(flaw.path.rpartition('/')[0] + '/journals')}"
            return Diagnosis(NAME, FAIL, says, (f"{forget}  # begins as another host, for which nothing is approved",))
