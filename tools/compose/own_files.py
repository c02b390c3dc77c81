"""omac's own files, for `omac doctor`."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from omac.adapters.caches.size import measured
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.state import StateDir, refuse_to_mint
from omac.adapters.files.upkeep import flaws_of, repair
from omac.adapters.git.quarantine import FOLDER as SET_ASIDE
from omac.adapters.settings.files import read_user, user_path
from omac.domain.kernel import state_paths
from omac.domain.kernel.ids import HostId, RunId, key_of
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.own_files import Flaw
from omac.domain.settings.settings import resolve
from omac.journal.file import require_regular, segment_refusal
from omac.projections.evidence.unfinished import delays_of, erasures_of
from omac.projections.system import System
from omac.tools.compose.journals import read_if_any, system_of
from omac.tools.compose.vaults import VAULT, Vault

FOLDERS = ("frozen", "inspections", "journals", "run", SET_ASIDE, "spool", "subjects")  # of the state directory


class OwnFiles:
    """The state directory that the environment means, and the files of omac's in the settings folder. `delays` are
    hosts that sign no checkpoints, `erasures` those that are not finished, `lost` segments of the journal whose
    files cannot be read, `unreadable` refusals of what a start reads, by name: the settings, the journal, the vault.
    `journal` is the path of the journal."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.state = StateDir.of(environment)
        settings = user_path(environment)
        self._public = (os.path.dirname(settings), settings)
        self.lost: tuple[Refusal, ...] = ()
        self.unreadable: dict[str, Refusal] = {}
        try:
            resolve({}, environment, None, read_user(environment))
        except Refusal as refusal:
            self.unreadable["settings"] = refusal
        self.journal = self.state.journal_in_use(environment)
        system = self._system()
        self._read_vault(system)
        self._unended = _unended(system)
        self._host = _host(system)
        self.delays = tuple(delays_of(system)) if system else ()
        self.erasures = tuple(erasures_of(system)) if system else ()

    def _system(self) -> System | None:
        """Return the recorded state, and set `lost` and `unreadable`; None where no journal exists, or where it cannot
        be read."""
        try:
            with suppress(OSError):  # none is there; through a link it could be read, and not be written
                require_regular(self.journal, os.lstat(self.journal).st_mode)
            with read_if_any(self.state, self.journal) as journal:
                if journal is None:
                    return None
                path = journal.store.path
                self.lost = tuple(segment_refusal(error, path) for error in journal.store.missing_segments())
                return system_of(journal, self.state)
        except Refusal as refusal:
            if not self.lost:
                self.unreadable["journal"] = refusal
            return None

    def _read_vault(self, system: System | None) -> None:
        """Set `unreadable` for a vault that is damaged, or missing while secrets of this host are recorded as kept in
        it: a journal can have those of others."""
        vault, host = Vault(os.path.join(self.state.path, state_paths.VAULT)), self.state.known_host()
        entries = system.credentials.entries.items() if system else ()
        ours = ((key_of(stream), entry.state.secrets.values()) for stream, entry in entries)
        skills = {
            key.name for key, secrets in ours
            if host in (None, key.host) and any(secret.store == VAULT for secret in secrets)
        }  # fmt: skip
        if vault.exists():
            try:
                vault.has_passphrase()
            except Refusal as refusal:
                self.unreadable["vault"] = refusal
        elif skills:
            message = f"no vault exists at {vault.path}, which had secrets of {', '.join(sorted(skills))}"
            fix = [f"cp -p BACKUP {quoted(vault.path)}", "omac vault init  # without one: their secrets are set again"]
            self.unreadable["vault"] = Refusal("vault-unusable", message, fix=fix)

    def flaws(self) -> tuple[Flaw, ...]:
        """Return what is wrong."""
        flaws = flaws_of(self.state, self._public, self._unended)
        if any(flaw.path == self.state.path for flaw in flaws):
            return flaws
        return (*flaws, *self._garbled())

    def _garbled(self) -> Iterator[Flaw]:
        """Yield the files of ids and keys that do not hold what omac once wrote there, and what has a folder's name."""
        for path in (os.path.join(self.state.path, name) for name in FOLDERS):
            if os.path.lexists(path) and not os.path.isdir(path):
                yield Flaw("garbled", path)
        if self.state.has_lost_host_id():
            path = os.path.join(self.state.path, "host-id")
            yield Flaw("host-id" if self._host else "no-host-id", path, host=self._host)
        for name, read in (("host-id", self.state.host_id), ("fingerprint.key", self.state.fingerprint_key)):
            path = os.path.join(self.state.path, name)
            try:
                if os.path.lexists(path):
                    read(refuse_to_mint)
            except FileNotFoundError:
                pass  # it is gone meanwhile
            except Refusal:
                known = self._host if name == "host-id" and os.path.isfile(path) else None
                yield Flaw("host-id" if known else "garbled", path, host=known)

    def set_aside(self) -> tuple[str, int]:
        """Return the folder of what launches set aside, and its bytes on the disk, as far as they can be counted."""
        path = os.path.join(self.state.path, SET_ASIDE)
        try:
            with Descriptor(os.open(path, FOLDER_FLAGS)) as folder:
                return path, measured(folder, lambda _: None).bytes
        except OSError:
            return path, 0

    def repair(self, flaw: Flaw) -> bool:
        """Mend a flaw; whether that was done. Raises OSError."""
        return repair(self.state, flaw, self._unended)


def _unended(system: System | None) -> list[RunId]:
    """The runs whose end is not recorded; none where the journal cannot be read, where their locks have to do."""
    entries = system.runs.entries.items() if system else ()
    return [RunId(key_of(stream).name) for stream, entry in entries if entry.state.status == "started"]


def _host(system: System | None) -> HostId | None:
    """Return the id of the host whose state the journal has; None where it has that of several, or none."""
    kinds = system.aggregates.values() if system else ()
    hosts = {key_of(stream).host for kind in kinds for stream in kind.entries}
    return hosts.pop() if len(hosts) == 1 else None
