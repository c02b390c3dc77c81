"""Backups with the keys of personal fields: these lie in a file of their own, beside the copy of the journal."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from omac.adapters.files.subject_keys import read_all, write_all
from omac.domain.access.erasure import ErasureRequested, SubjectErased
from omac.domain.access.signing import KeyLost, KeyRotated
from omac.domain.kernel.ids import HostId, StreamId, WorkdirId, checkpoint_stream, key_of
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.backup import Copy, back_up, begin, discard, finish, kept_journals, restore
from omac.journal.folders import write_command
from omac.journal.reader import ReadJournal
from omac.journal.subject_ciphers import ids_of
from omac.tools.compose.journals import mark_of
from omac.tools.compose.state import StateDir, host_id

SUFFIX = ".keys"


class KeptCopy(NamedTuple):
    """A copy of a journal, and the file with so many keys beside it; "" where there are none."""

    copy: Copy
    keys_path: str
    keys: int


class Restored(NamedTuple):
    """The result of a restore. `kept` is the path of the journal before ("" for none), `subjects` how many directories
    have keys of the backup. `erased` counts keys that are not restored, because their data was erased since. `returned`
    are directories that had them no more, where a journal that cannot be read would say whether they were erased.
    `rotations` counts replacements of the signing key since the backup, which the restored journal records again.
    `hosts` are those whose skills the journal has, where this host is none of them."""

    kept: str
    subjects: int
    erased: int
    returned: list[WorkdirId]
    rotations: int
    hosts: list[HostId]


def back_up_with_keys(state: StateDir, path: str, target: str) -> KeptCopy:
    """Copy the journal at `path` and its keys to new files. Raises Refusal."""
    beside = target + SUFFIX
    mark, draft = mark_of(state, path), begin(path, target, beside)
    seen = mark.read()  # before the journal is read: both may grow meanwhile
    with contextlib.ExitStack() as made:
        copy = back_up(path, draft)  # first: the keys that its events use are there by then
        made.callback(discard, draft)
        mark.require(seen, copy.id, copy.position)
        keys = state.subject_keys(path, copy.id).all()
        if keys:
            _keep(beside, keys)
            made.callback(_discard_keys, beside, target)
        finish(draft, target)
        made.pop_all()
    return KeptCopy(copy._replace(path=target), beside if keys else "", sum(map(len, keys.values())))


def _keep(beside: str, keys: Mapping[WorkdirId, Collection[bytes]]) -> None:
    """Write the keys to a new file. Raises Refusal."""
    try:
        write_all(beside, keys)
    except OSError as error:
        message = f"{beside} cannot be written: {error.strerror}; no backup was made"
        raise Refusal("state-unusable", message, fix=[write_command(error, os.path.dirname(beside))]) from error


def _discard_keys(beside: str, target: str) -> None:
    """Remove the keys of a backup that did not get its name `target`."""
    if not os.path.lexists(target):
        os.unlink(beside)


@contextlib.contextmanager
def alone_to_restore(state: StateDir, source: Copy, path: str) -> Iterator[None]:
    """Keep servers, erasures, seals and prunes from the journal at `path`, which a backup replaces. Raises Refusal."""
    from omac.tools.compose.sealing import without_seal  # loads what appends

    host_id(state)  # minted before the state directory knows the journal, which may be of another host
    keys = state.subject_keys(path, source.id)
    turn = keys.turn() if os.path.isdir(keys.folder) else contextlib.nullcontext()  # else nothing is to be erased
    with state.without_server(path), turn, without_seal(path):
        yield


def restore_with_keys(state: StateDir, source: Copy, path: str, present: Copy | None) -> Restored:
    """Replace the journal at `path` by a backup, and keep the backup's keys with those that are there, except those
    erased since. Changes of the signing key since the backup are recorded in the copy before it replaces the journal,
    so that no interruption leaves them out. `present` is what the journal was before; None where that cannot be read.
    Raises Refusal."""
    gone, keys = _erased(path), dict[WorkdirId, list[bytes]]()
    beside, erased = source.path + SUFFIX, 0
    if os.path.exists(beside):
        try:
            kept_keys = read_all(beside)
        except OSError as error:
            message = f"{beside} cannot be read: {error.strerror}; nothing was changed"
            raise Refusal("state-unusable", message, fix=[f"ls -l {quoted(beside)}"]) from error
        for subject, of in kept_keys.items():
            keys[subject] = [key for key, name in zip(of, ids_of(of), strict=True) if name not in gone]
            erased += len(of) - len(keys[subject])
    store, known = state.subject_keys(path, source.id), mark_of(state, path).read()
    is_unknown = present is None and known is not None and known[0] == source.id
    returned = [subject for subject, of in keys.items() if is_unknown and not {*of} <= {*store.own(subject)}]
    store.add(keys)
    changes, rotations = _key_changes(state, path, source.id), 0

    def complete(draft: str) -> None:
        nonlocal rotations
        if changes:
            from omac.tools.compose.recording import recorded_again  # loads what appends

            rotations = recorded_again(state, draft, changes)

    _, kept = restore(source.path, path, mark_of(state, path), complete, present)
    return Restored(kept, sum(map(bool, keys.values())), erased, returned, rotations, _other_hosts(state, path))


def _other_hosts(state: StateDir, path: str) -> list[HostId]:
    """Return the hosts whose skills the journal at `path` has; none where this host is among them."""
    with closing(ReadJournal(path)) as journal:
        hosts = {key_of(StreamId(stream)).host for stream in journal.store.streams("registration")}
    return [] if host_id(state) in hosts else sorted(hosts)


def _key_changes(state: StateDir, path: str, journal_id: str) -> list[KeyRotated | KeyLost]:
    """Return how the key by which this host signs was replaced, by the journal at `path`; none where that cannot be
    read, or is not of this id."""
    if not os.path.lexists(path):
        return []
    stream = checkpoint_stream(host_id(state))
    try:
        with closing(ReadJournal(path)) as journal:
            own = journal.store.journal_id() == journal_id
            records = list(journal.readable_of_kinds(["key.rotated", "key.lost"])) if own else []
    except Refusal:
        return []
    events = [record.event for record in records if record.stream == stream]
    return [event for event in events if isinstance(event, KeyRotated | KeyLost)]


def _erased(path: str) -> frozenset[str]:
    """The ids of keys whose erasure was requested, by the present journal and by those that earlier restores kept
    beside it: a restored one may be from before that. An event that cannot be read counts for nothing; most erasures
    have two."""
    names = set[str]()
    for each in [path, *kept_journals(path)]:
        with contextlib.suppress(Refusal, OSError), closing(ReadJournal(each)) as journal:
            for record in journal.readable_of_kinds(["subject.erasure-requested", "subject.erased"]):
                if isinstance(record.event, ErasureRequested | SubjectErased):
                    names.update(record.event.keys)
    return frozenset(names)
