"""The state directory of this host: its id, its journal, and one folder for each run.

Everything in it is 0700 or 0600 and out of every sandbox's reach. `run/current` points to the server's run folder; runs
beside the server have folders of their own.
"""

import contextlib
import errno
import glob
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager

from omac.adapters.files import atomic, bounded, lock, sockets
from omac.adapters.files import journal_in_use as in_use
from omac.adapters.files.signing_keys import KEY_BYTES, SigningKeys
from omac.adapters.files.subject_keys import SubjectKeyFiles
from omac.adapters.linux import process_identity
from omac.adapters.linux.home import home_of
from omac.domain.kernel import state_paths
from omac.domain.kernel.ids import LOG_DIGITS, HostId, RunId, WorkdirId
from omac.domain.kernel.locks import NO_LOCKS, without_locks
from omac.domain.kernel.refusal import Refusal, problem_of, quoted
from omac.domain.kernel.run import Run
from omac.journal.folders import elsewhere_command, make_private, nearest_existing, room_command, write_command

SERVER_LOCK = ".server.lock"  # behind a journal's path
SIGNING_KEY = "signing.key"  # of journal.db
SUBJECT_KEYS = "subjects"  # the folder of the same
WITNESS_TOKEN = "witness.token"  # noqa: S105  # a file
MINTED_BYTES_MAX = 4_096  # of a file with an id, a key or a token
INSPECTIONS = "inspections"  # the folder of what is still to be inspected (adapters/git/pending.py)
JOURNAL_ID_SHOWN = 12
RECOVERY_WAIT_S = 60.0  # that a run that begins waits for another that recovers; ending an orphan may take seconds
DRAFT_S = 60.0  # longer than a process takes to make the folder of its run, and to lock it
RUNS_KEPT = 5  # folders of runs (their logs), newest first; those of living runs are kept beyond that


class StateDir:
    """The state directory at `path`, created where it is missing. Raises Refusal (state-unusable) when it cannot be
    used."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "StateDir":
        """Return the state directory that the environment names (`state_paths.state`)."""
        return cls(state_paths.state(environment, home_of(environment)))

    def journal(self, environment: Mapping[str, str], flag: str | None = None) -> str:
        """The journal's path: the flag, else $OMAC_JOURNAL, else journal.db here. Raises Refusal for a URL."""
        return in_use.journal_named(self.path, environment, flag)

    def journal_in_use(self, environment: Mapping[str, str], flag: str | None = None) -> str:
        """The journal that a command means: as `journal`, but where nothing is said, that of the server that runs."""
        return in_use.journal_in_use(self.path, environment, flag)

    def has_inspections(self) -> bool:
        """Return whether launches are on record that have not been inspected, living ones included."""
        try:
            return len(os.listdir(os.path.join(self.path, INSPECTIONS))) > 1  # one is the lock
        except OSError:
            return False

    def spool(self, journal: str) -> str:
        """Return the folder of the records that wait for this journal."""
        return in_use.spool_of(self.path, journal)

    def host_id(self, mint: Callable[[], str]) -> HostId:
        """The id of this host, minted once, and not again where journals were used by it: approvals are of a host. Two
        processes that mint at once agree on one of the two. Raises Refusal (state-unusable)."""
        path = os.path.join(self.path, "host-id")
        if self.has_lost_host_id():
            message = f"{path} is gone: the approvals in the journal are of the host with the id that it had"
            raise Refusal("state-unusable", message, fix=["omac doctor --fix  # writes the one that the journal has"])
        name = self._minted("host-id", mint)
        if not (name.isalnum() and 8 <= len(name) <= 64):
            message = f"{path} does not hold a host id; it was changed by hand or cut off"
            raise Refusal("state-unusable", message, fix=["omac doctor --fix  # writes the one that the journal has"])
        return HostId(name)

    def known_host(self) -> HostId | None:
        """Return the id of this host, None where its file has none; it makes neither."""
        try:
            has_file = os.path.lexists(os.path.join(self.path, "host-id"))
            return self.host_id(refuse_to_mint) if has_file else None
        except (FileNotFoundError, Refusal):
            return None

    def has_lost_host_id(self) -> bool:
        """Return whether the id of this host is gone, while a journal was written by it: that has a mark."""
        path = os.path.join(self.path, "host-id")
        if os.path.lexists(path):
            return False
        try:
            was_used = any("." not in name for name in os.listdir(os.path.join(self.path, state_paths.MARKS)))
        except OSError:
            return False
        return was_used and not os.path.lexists(path)  # asked again: another process may have made both meanwhile

    def write_host_id(self, host: HostId) -> bool:
        """Write the id of this host again, and return whether that was done: False where the file has an id by now.
        Raises OSError."""
        try:
            self.host_id(lambda: host)
            return False
        except Refusal:
            atomic.replace(os.path.join(self.path, "host-id"), host.encode("ascii"))
            return True

    def fingerprint_key(self, mint: Callable[[], str]) -> bytes:
        """Return this host's key of fingerprints, minted once: 32 bytes. `mint` returns 64 hex digits."""
        name = "fingerprint.key"
        try:
            key = bytes.fromhex(self._minted(name, mint))
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            path = os.path.join(self.path, name)
            message = f"{path} does not hold a key; it was changed by hand or cut off"
            fix = [f"rm {quoted(path)}  # then set every secret again: omac secrets set"]
            raise Refusal("state-unusable", message, fix=fix)
        return key

    @property
    def witness_token_path(self) -> str:
        """The file with the token by which other omacs deliver checkpoints."""
        return os.path.join(self.path, WITNESS_TOKEN)

    def witness_token(self, mint: Callable[[], str]) -> str:
        """The token by which other omacs deliver checkpoints here, minted once. Raises Refusal."""
        return self._minted(WITNESS_TOKEN, mint)

    def signing_keys(self, journal: str, journal_id: str) -> SigningKeys:
        """The key that signs checkpoints of this journal: each journal has its own. Raises Refusal."""
        own = journal == os.path.join(self.path, "journal.db")
        name = SIGNING_KEY if own else f"signing-{journal_id[:JOURNAL_ID_SHOWN]}.key"
        with self._usable():
            make_private(self.path)
            self._require_private()
        return SigningKeys(os.path.join(self.path, name), os.path.join(self.path, SIGNING_KEY), self._usable)

    def subject_keys(self, journal: str, journal_id: str) -> SubjectKeyFiles:
        """The keys of the personal fields in this journal: each journal has its own. Raises Refusal."""
        shared = SubjectKeyFiles(os.path.join(self.path, SUBJECT_KEYS), self._usable)
        if journal == os.path.join(self.path, "journal.db"):
            return shared
        name = f"{SUBJECT_KEYS}-{journal_id[:JOURNAL_ID_SHOWN]}"
        return SubjectKeyFiles(os.path.join(self.path, name), self._usable, shared)

    def frozen(self, journal: str, journal_id: str) -> str:
        """Return the folder of the copies that this journal approved; another journal may still approve them later."""
        own = journal == os.path.join(self.path, "journal.db")
        return os.path.join(self.path, "frozen" if own else f"frozen-{journal_id[:JOURNAL_ID_SHOWN]}")

    def _minted(self, name: str, mint: Callable[[], str]) -> str:
        path = os.path.join(self.path, name)
        with self._usable():
            make_private(self.path)
            self._require_private()
            if not os.path.exists(path):  # on the disk before anything is recorded that depends on it
                with contextlib.suppress(FileExistsError):  # another process was first
                    atomic.publish(path, mint().encode("ascii"), prefix=f"{name}.")
            try:
                return bounded.read(path, MINTED_BYTES_MAX, follow=True).decode("ascii", "replace").strip()
            except (bounded.NotRegular, bounded.TooLarge) as unfit:
                unfit.filename = path
                raise

    def begin_run(self, run: RunId) -> str:
        """Make and lock the folder of a run that begins; returns its path."""
        path = self.run_path(run)
        draft = os.path.join(os.path.dirname(path), f".{run}")
        with self._usable():
            make_private(os.path.dirname(path))
            os.mkdir(draft, mode=0o700)
            try:
                os.mkdir(os.path.join(draft, "logs"), mode=0o700)
                lock.hold(os.path.join(draft, "lock"))
                os.rename(draft, path)  # so that nobody ever sees it without its lock held
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return path

    def restore_run(self, run: RunId, journal: str) -> bool:
        """Make again what is missing of the folder of this process's run; returns whether anything was."""
        path = self.run_path(run)
        missing = {name for name in ("logs", "lock", "journal") if not os.path.lexists(os.path.join(path, name))}
        with self._usable():
            if missing:
                for folder in (os.path.dirname(path), path, os.path.join(path, "logs")):
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, mode=0o700)
            if "lock" in missing:
                with contextlib.suppress(lock.Locked):  # by a process that judges whether this run lives
                    lock.hold(os.path.join(path, "lock"))
            if "journal" in missing:
                self.name_journal(run, journal)
        return bool(missing)

    def run_path(self, run: RunId) -> str:
        """The folder of a run."""
        return os.path.join(self.path, "run", run)

    def recovering(self) -> AbstractAsyncContextManager[None]:
        """The turn of this process to settle what dead runs left. Entering it raises Refusal (contention)."""
        from omac.adapters.files.turns import OneAtATime  # loads trio, which commands that only read do without

        return OneAtATime(os.path.join(self.path, "recovery.lock"), RECOVERY_WAIT_S)()

    def is_alive(self, run: RunId, recorded: Run | None = None) -> bool:
        """Return whether the process of a run lives: by what the journal `recorded` of it, then by its lock.

        A lock that is held counts for a process that is not recorded, or that another pid namespace of this boot
        hides; its absence says nothing, for a cleaner may have removed the file. Then an answering socket counts.
        """
        if recorded is not None and recorded.boot_id:
            if recorded.boot_id != process_identity.boot_id():
                return False
            if process_identity.is_living(recorded.pid, recorded.start_ticks, recorded.boot_id):
                return True
        return in_use.is_held(self.run_path(run))

    def point_current(self, run: RunId) -> None:
        """Let run/current lead to this run, in one step."""
        with self._usable():
            draft = os.path.join(self.run_path(run), "current")  # with which it goes, where this process is killed
            with contextlib.suppress(FileExistsError):
                os.symlink(run, draft)
            os.replace(draft, os.path.join(self.path, "run", "current"))

    def name_journal(self, run: RunId, journal: str) -> None:
        """Leave a link to the journal that a run uses, for the commands that report on the run."""
        with self._usable():
            os.symlink(journal, os.path.join(self.run_path(run), "journal"))

    def leads_to_living(self) -> bool:
        """Return whether run/current leads to a run that lives. Raises Refusal when that cannot be found out."""
        with self._usable():
            return in_use.is_held(os.path.join(self.path, "run", "current"))

    def current_socket(self) -> str:
        """Return the path of the server's control socket, which exists if a server runs."""
        return os.path.join(self.path, "run", "current", "control.sock")

    def living_runs(self) -> list[RunId]:
        """The runs that live, the server first."""
        folder = os.path.join(self.path, "run")
        with contextlib.suppress(OSError):
            names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name != "current")
            server = os.path.basename(os.path.realpath(os.path.join(folder, "current")))
            return sorted(filter(self.is_alive, map(RunId, names)), key=lambda run: run != server)
        return []

    def living_sockets(self) -> list[str]:
        """The control sockets of all runs that live, the server's first."""
        return [os.path.join(self.run_path(run), "control.sock") for run in self.living_runs()]

    @contextlib.contextmanager
    def without_server(self, journal: str) -> Iterator[None]:
        """Keep a server from beginning on a journal; a lock file that this makes is removed. Raises Refusal
        (journal-in-use)."""
        path = journal + SERVER_LOCK
        was_there = os.path.lexists(path)
        descriptor = self.hold_server(journal)
        try:
            yield
        finally:
            if was_there:
                os.close(descriptor)
            else:
                lock.remove(path, descriptor)

    def hold_server(self, journal: str) -> int:
        """Become the one server of a journal on this host, until the descriptor that is returned is closed. Raises
        Refusal (journal-in-use)."""
        path = journal + SERVER_LOCK
        with self._usable():
            make_private(os.path.dirname(path))
            try:
                return lock.hold(path)
            except lock.Locked as locked:
                who = f" (pid {locked.pid})" if locked.pid else ""
                stop = f"omac stop {locked.pid}  # where it is omac serve"
                find = [f"ps -fp {locked.pid}  # which it is", stop]
                fix = ["omac status", *(find if locked.pid else [f"fuser {quoted(path)}"])]
                message = f"another omac serve, restore or repair{who} uses the journal {journal}"
                raise Refusal("journal-in-use", message, fix=fix) from None

    def write_token(self, path: str, token: str) -> None:
        """Write a token to a new file that only its owner can read."""
        with self._usable():
            atomic.create(path, token.encode("ascii"))

    def prune_runs(self, living: Collection[RunId] = ()) -> None:
        """Remove the folders of ended runs except the newest few, and never one of the `living`; of those that stay,
        the sockets."""
        for path in self.stale_runs(living):
            self._let_go(path)
            shutil.rmtree(path, ignore_errors=True)
        for path in self.runs_with_dead_sockets():
            with contextlib.suppress(OSError):
                self.remove_dead_sockets(path)

    def stale_runs(self, living: Collection[RunId]) -> list[str]:
        """The folders of ended runs except the newest few, and none of the `living`; and drafts of folders, left by
        processes that were killed."""
        runs = self._run_folders()
        begun = {entry.path: _begun(entry.path) for entry in runs if not entry.name.startswith(".")}
        older = sorted(begun, key=begun.__getitem__, reverse=True)[RUNS_KEPT:]
        drafts, latest = (entry.path for entry in runs if entry.name.startswith(".")), max(begun.values(), default=0.0)
        older += [path for path in drafts if 0 < _begun(path) < latest - DRAFT_S]
        ids = {path: RunId(os.path.basename(path)) for path in older}
        return [path for path, run in ids.items() if run not in living and not self.is_alive(run)]

    def remove_stale_run(self, path: str, living: Collection[RunId]) -> bool:
        """Remove one of `stale_runs`, if it still is one, and return whether it was."""
        is_stale = path in self.stale_runs(living)
        if is_stale:
            self._let_go(path)
            while os.path.lexists(path):
                with contextlib.suppress(FileNotFoundError):  # another process removes it, too
                    shutil.rmtree(path)
        return is_stale

    def runs_with_dead_sockets(self) -> list[str]:
        """The folders of ended runs that have sockets: those were killed."""
        named = {entry.path: RunId(entry.name) for entry in self._run_folders()}
        return [path for path, run in named.items() if sockets.dead_sockets_in(path) and not self.is_alive(run)]

    def remove_dead_sockets(self, path: str) -> bool:
        """Remove the sockets of one of `runs_with_dead_sockets`, if it still is one, and return whether it was. Raises
        OSError."""
        is_left = path in self.runs_with_dead_sockets()
        return is_left and sockets.remove_sockets(path, sockets.dead_sockets_in(path))

    def _run_folders(self) -> list[os.DirEntry[str]]:
        folder = os.path.join(self.path, "run")
        if not os.path.isdir(folder):
            return []
        with self._usable():
            return [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]

    def _let_go(self, path: str) -> None:
        """Remove run/current where it leads to this folder of a run."""
        current = os.path.join(self.path, "run", "current")
        if os.path.realpath(current) == os.path.realpath(path):
            with contextlib.suppress(OSError):
                os.unlink(current)

    def logs_of(self, workdir: WorkdirId) -> list[str]:
        """Return the logs of sidecars of one directory, in the folders of all runs: their names begin with its id."""
        logs = os.path.join(glob.escape(os.path.join(self.path, "run")), "*", "logs", f"{workdir[:LOG_DIGITS]}-*")
        return sorted({os.path.realpath(path) for path in glob.glob(logs) if not os.path.islink(path)})

    def require_own(self) -> None:
        """Raise Refusal (state-unusable) where the directory belongs to another user."""
        if refusal := in_use.foreign(self.path, self.path):
            raise refusal

    def _require_private(self) -> None:
        """Raise Refusal (state-unusable) if another user can change the directory, and so replace omac's sockets."""
        self.require_own()
        if os.stat(self.path).st_mode & 0o022:
            message = f"the state directory {self.path} is writable by other users"
            raise Refusal("state-unusable", message, fix=[f"chmod 700 {quoted(self.path)}"])

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn an error of the system into a Refusal (state-unusable)."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                full = f"the disk of the state directory {self.path} is full"
                raise Refusal("state-unusable", full, fix=[room_command(self.path)]) from error
            if error.errno in NO_LOCKS:
                raise without_locks(self.path) from error
            self.require_own()
            message = f"the state directory {self.path} cannot be used: {problem_of(error)}"
            is_named = isinstance(error.filename, str) and os.path.isabs(error.filename)
            at = nearest_existing(error.filename if is_named else self.path)
            fix = [write_command(error, at), elsewhere_command(error)]
            raise Refusal("state-unusable", message, fix=fix) from error


def refuse_to_mint() -> str:
    """Raise FileNotFoundError: for who only reads what another minted."""
    raise FileNotFoundError


def _begun(run: str) -> float:
    """Return when the folder of a run last changed; 0 for one that another process has just removed."""
    try:
        return os.lstat(run).st_mtime
    except FileNotFoundError:
        return 0.0
