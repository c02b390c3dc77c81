"""omac journal backup and omac journal restore: a copy of the journal, and putting it back."""

import os
from collections.abc import Mapping
from functools import partial

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.backup import Copy, inspect, put_back
from omac.journal.file import JournalInCreation
from omac.journal.format import require_unused
from omac.tools.compose.backups import Restored, alone_to_restore, back_up_with_keys, restore_with_keys
from omac.tools.compose.journals import path_in_use
from omac.tools.compose.state import StateDir, is_living_run, look_at
from omac.tools.terminal.invocation import expanded, print_json
from omac.tools.terminal.prompts import confirm
from omac.tools.terminal.render import print_folded, print_line, report, report_fix


def backup(target: str, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Copy the journal to a new file. Raises Refusal."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, journal_path)
    made = back_up_with_keys(state, path, os.path.abspath(expanded(target)))
    copy = made.copy
    if as_json:
        print_json(copy._asdict() | {"keys": made.keys_path})
        return 0
    print_folded(f"{copy.path}: {counted(copy.position, 'position')} of {path}, {copy.bytes} bytes")
    if made.keys_path:
        print_folded(f"{made.keys_path}: the keys of personal fields ({made.keys}); who has both files reads these")
        print_folded("  this file can read records that you erase later: delete it, or keep it elsewhere", 4)
    return 0


def restore(source: str, journal_path: str | None, yes: bool, environment: Mapping[str, str]) -> int:
    """Replace the journal by a backup, and keep the replaced one beside it. Raises Refusal."""
    state = StateDir.of(environment)
    path = state.journal(environment, journal_path)
    backup_path = os.path.abspath(expanded(source))
    if not os.path.exists(backup_path):
        fix = [look_at(backup_path)]
        raise Refusal("journal-unavailable", f"no backup exists at {backup_path}", fix=fix)
    try:
        copy = inspect(backup_path)
    except JournalInCreation:
        message = f"{backup_path} is no backup: it is empty"
        raise Refusal("journal-unavailable", message, fix=[look_at(backup_path)]) from None
    with alone_to_restore(state, copy, path):
        if put_back(path):
            report(f"a restore was interrupted: the journal that it had moved away is {path} again")
            if not os.path.exists(backup_path):  # that is what was to be restored
                print_folded(f"{path} is restored to position {copy.position}")
                return 0
        require_unused(path, partial(is_living_run, state))
        present, loss = _present(path, copy)
        if loss and not _confirmed(loss, yes):
            report("nothing was changed")
            return 1
        done = restore_with_keys(state, copy, path, present)
    print_folded(f"{path} is restored to position {copy.position}")
    _show(done)
    where = f" --journal {quoted(path)}" if journal_path is not None else ""
    print_line(f"next: omac audit verify{where}  # whether its events are what was recorded")
    return 0


def _show(done: Restored) -> None:
    if done.kept:
        print_folded(f"the journal that it replaces is {done.kept}")
    if done.subjects:
        print_folded(f"keys of personal fields of {counted(done.subjects, 'directory', 'directories')} are restored")
    if done.erased:
        print_line(
            counted(done.erased, "key is not: what it", "keys are not: what they") + " encrypted was erased since"
        )
    if done.returned:
        report(
            f"{counted(len(done.returned), 'directory', 'directories')} had these keys no more, and the journal that "
            "was here cannot be read: what was erased since the backup can be read again, until it is erased again"
        )
        report_fix([f"omac erase {subject}  # if it was erased" for subject in done.returned])
    if done.rotations:
        print_folded(
            f"the key that signs was replaced since ({counted(done.rotations, 'time')}): that is recorded again"
        )
    if done.hosts:
        print_folded(
            f"its approvals, values and settings are those of another host ({', '.join(done.hosts)}), and hold on no "
            "other: approve the skills here again, or restore the whole state directory of that host"
        )


def _present(path: str, copy: Copy) -> tuple[Copy | None, str]:
    """Return the present journal, None for one that cannot be read, and in a few words what a restore would lose:
    positions that the backup lacks, another journal, or a damaged one. "" for no loss."""
    try:
        present = inspect(path)
    except Refusal as refusal:
        is_none = refusal.reason == "journal-unavailable"
        return None, "" if is_none else f"the present journal is damaged ({refusal.message})"
    if present.id != copy.id:
        other = f"the backup is of another journal (id {copy.id}, not {present.id})"
        return present, other if present.position else ""
    if present.position > copy.position:
        later = present.position - copy.position
        positions = counted(later, "later position is", "later positions are")
        return present, f"{positions} in the present journal and not in the backup: any revocation among them is undone"
    return present, ""


def _confirmed(loss: str, yes: bool) -> bool:
    report(f"{loss}; the present one is kept beside it")
    return yes or confirm("Put the backup in its place?", f"{loss}; nothing was changed")
