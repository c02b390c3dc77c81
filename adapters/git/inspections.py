"""The two inspections around a run: `note` before the program begins, `act` when nothing can write there any more."""

from __future__ import annotations

import errno
import os

from omac.adapters.git import checkouts, tracked_files
from omac.adapters.git.dot_git import NO_REPOSITORY, UNJUDGED
from omac.adapters.git.git_folder import inspect_folder
from omac.adapters.git.inspection import Baseline, Budget, Exhausted, Finding, Inspection
from omac.adapters.git.layout import BEHIND_A_LINK
from omac.adapters.git.open_folder import opened_root, put, while_writable
from omac.adapters.git.quarantine import Quarantine
from omac.adapters.git.stamp import birth_of, node_of
from omac.adapters.git.worktree_scan import WorktreeScan
from omac.domain.git.folder import WHOLE, Folder
from omac.domain.kernel.sizes import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.adapters.git.launch_record import Record

SECONDS_MAX = 35.0  # of one inspection at the end, of all projects of a launch; HURRIED_SECONDS_MAX may follow
FIRST_SECONDS_MAX = 20.0  # of the one at launch: what it does not reach counts as new


def note(record: Record) -> Baseline:
    """Return the state at launch of the projects and the git folders that the program will be able to write."""
    for copy in record.copies:
        copy.note()
    record.closed = {path: birth for path in record.closed if (birth := birth_of(path))}
    baseline = Baseline(record.began_ns)
    for path, folder in record.folders.items():
        if folder.worktree in record.projects and (commit := tracked_files.commit_of(path, folder.common)):
            baseline.commits[folder.worktree] = commit
    inspection = Inspection(record, baseline, Budget(FIRST_SECONDS_MAX))
    _inspect(inspection, record.folders)
    checkouts.note(inspection)
    baseline.is_whole = baseline.is_whole and not inspection.is_cut
    return baseline


def act(record: Record, quarantine: Quarantine, budget: Budget) -> list[Finding]:
    """Judge what the program left, set aside what the grammar does not allow, and return what a person should know."""
    baseline = record.baseline
    assert baseline is not None
    inspection = Inspection(record, baseline, budget, quarantine)
    try:
        _inspect(inspection, record.folders)
        _judge_checkouts(inspection)
    finally:
        quarantine.close()
    obeyed = sorted(inspection.obeyed, key=lambda file: (file[1].count("/"), file))  # the project's own before vendor's
    worktrees, named = inspection.worktrees, inspection.named
    inspection.add(tracked_files.described(obeyed, record.folders, baseline.commits, baseline.obeyed, worktrees, named))
    if inspection.unlisted:
        more = counted(inspection.unlisted, "more finding is", "more findings are") + " not listed"
        more += f"; what was set aside is in {quarantine.path}"
        inspection.findings.append(Finding(record.projects[0], more))
    return inspection.findings


def _judge_checkouts(inspection: Inspection) -> None:
    """Judge what checkouts would write; where there is no time left, they are set aside unjudged."""
    inspection.budget.renew(checkouts.SECONDS_MAX)
    try:
        checkouts.judge(inspection)
    except Exhausted:
        checkouts.set_all_aside(inspection)


def _inspect(inspection: Inspection, folders: Mapping[str, Folder]) -> None:
    known = inspection.by_themselves = frozenset(folders)
    inspection.pinned = frozenset(f"{folder.worktree}/{path}" for folder in folders.values() for path in folder.pinned)
    inspection.relative = {path: folder.pinned for path, folder in folders.items() if folder.pinned}
    whole = tuple(f"{path}/" for path, folder in folders.items() if folder.role == WHOLE and not folder.only)
    for path, folder in sorted(folders.items(), key=lambda item: (item[1].role != WHOLE, item[0])):
        if not path.startswith(whole):  # else the walk through that one judges it
            _known(inspection, path, folder)
    for project in inspection.projects:
        try:
            WorktreeScan(inspection, project, known).run()
            if inspection.is_hurried:
                inspection.report(project, "was not inspected as a whole: repositories in the rest of it are set aside")
        except Exhausted:
            inspection.is_cut = True
            inspection.report(project, "was not inspected as a whole: it holds too much")
        except OSError as error:
            _report_unread(inspection, project, error)
            if project not in inspection.kept and not os.path.lexists(project):
                inspection.report(project, "was moved or removed: nothing that the program left there was inspected")


def _report_unread(inspection: Inspection, path: str, error: OSError) -> None:
    """Report a folder that an inspection begins with and that cannot be opened, unless nothing is there."""
    if error.errno == errno.ELOOP:
        inspection.report(path, f"{BEHIND_A_LINK}: nothing there was inspected, or changed")
    elif os.path.lexists(path):
        inspection.report(path, f"cannot be inspected: {error.strerror}")


def _known(inspection: Inspection, path: str, folder: Folder) -> None:
    """Inspect one git folder that the launch knew."""
    try:
        opened = opened_root(path)
    except OSError as error:
        _report_unread(inspection, path, error)
        return
    try:
        before = inspection.baseline.nodes.get(path)
        if before not in (None, node_of(os.fstat(opened))):
            inspection.report(path, "was replaced by another folder")
        inspect_folder(inspection, path, folder, opened)
    except Exhausted:
        inspection.is_cut = True
        _set_aside(inspection, path, folder, opened, UNJUDGED)
    except OSError as error:
        inspection.is_cut = True
        _set_aside(inspection, path, folder, opened, f"could not be inspected as a whole: {error.strerror}")
    finally:
        os.close(opened)


def _set_aside(inspection: Inspection, path: str, folder: Folder, opened: int, problem: str) -> None:
    """Set aside a git folder that the launch knew and that was not inspected, or only the entries of `folder.only` in
    it; at launch, do nothing."""
    if inspection.is_first:
        return
    if folder.only:
        for name in folder.only:
            inspection.set_aside(opened, name, f"{path}/{name}", problem)
        return
    try:
        parent = opened_root(os.path.dirname(path))
    except OSError:
        inspection.report(path, f"{problem}. It is still there: remove it before you run git there")
        return
    try:
        if inspection.set_aside(parent, os.path.basename(path), path, problem) and path.endswith("/.git"):
            while_writable(parent, lambda: put(parent, ".git", NO_REPOSITORY))
    except OSError as error:
        inspection.report(path, f"nothing could be put in its place: {error.strerror}")
    finally:
        os.close(parent)
