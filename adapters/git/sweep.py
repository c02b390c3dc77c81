"""After the program ended: what no mount could prevent is found, and put out of the way before the host's git meets it.

Dangerous is what makes the host's git run something, or write through a link: it is renamed to `NAME.omac-disarmed`
(below `refs` and `logs` with `.lock` after that, which git passes over), never over anything. The rest is reported
only.

* git folders that were there: settings, `commondir` and hooks that are not as they were, links and FIFOs among git's
  files, unfinished rebases that would run commands, new submodules and worktrees.
* The tree: new `.git` entries, folders that git takes for a repository, set-uid files, FIFOs and sockets, task and
  agent settings.
* Refs: `refs.py` brings the session's copies home; with `git.refs = branch` others are set back where the sandbox had
  the refs themselves.

"New" and "changed" go by ctime, which a program cannot set. Nothing is followed, and each walk has a bound that is
named.
"""

from __future__ import annotations

import os

from omac.adapters.git import harmless, judging, pointers, refs
from omac.adapters.git.layout import Known, Layout, node_of
from omac.adapters.git.repository import is_folder, is_git_folder, mode_of
from omac.adapters.git.strays import Strays
from omac.domain.refusal import Refusal

MARGIN_NS = 20_000_000  # files are stamped with a clock that lags by up to a tick
FINDINGS_MAX = 500
NAME_BYTES_MAX = 200  # of a name that is disarmed; 255 is what there is room for


class Finding:
    """`path`, `what` is the matter with it, and where it was put out of the way: `renamed`, "" if only reported."""

    __slots__ = ("path", "renamed", "what")

    def __init__(self, path: str, what: str, renamed: str = "") -> None:
        self.path = path
        self.what = what
        self.renamed = renamed

    def __repr__(self) -> str:
        return f"Finding({self.path!r}, {self.what!r}, {self.renamed!r})"


def sweep(workdir: str, layout: Layout, since_ns: int) -> list[Finding]:
    """Look through what the program could write; `since_ns` is the time just before it started."""
    findings: list[Finding] = []
    since_ns -= MARGIN_NS
    for known in layout.known.values():
        with _told(known.git, findings):
            _git_folder(known, layout, since_ns, findings)
    strays = Strays(workdir, layout, since_ns)
    with _told(workdir, findings):
        strays.walk()
    findings += [Finding(path, what) for path, what in strays.reported]
    findings += [Finding(path, what, disarm(path)) for path, what in strays.dangerous]
    for session in layout.sessions:
        with _told(session.common, findings):
            for name in ("refs", "logs"):
                _specials(f"{session.common}/{name}", since_ns, findings)
            findings += [Finding(f"{session.common}: {ref}", what) for ref, what in refs.bring_home(session)]
    for known in layout.known.values():
        if known.refs is not None:
            with _told(known.git, findings):
                set_back = refs.set_back(known.git, known.refs, known.own)
                findings += [Finding(f"{known.git}: {ref}", what) for ref, what in set_back]
    if len(findings) > FINDINGS_MAX:
        more = len(findings) - FINDINGS_MAX
        findings.sort(key=lambda finding: not finding.renamed)
        findings[FINDINGS_MAX:] = [Finding(workdir, f"{more} more findings are not listed")]
    return findings


class _told:  # noqa: N801  # used as a statement: with _told(...):
    """What a program has left to make a look at one place fail does not keep omac from looking at the others."""

    def __init__(self, path: str, findings: list[Finding]) -> None:
        self._path = path
        self._findings = findings

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> bool:
        if not isinstance(problem, Exception):
            return False
        self._findings.append(Finding(self._path, f"could not be looked at as a whole: {problem!r}"[:500]))
        return True


def disarm(path: str) -> str:
    """Rename what is dangerous, to a name that is free. Returns the new path, "" where that failed."""
    end = ".lock" if "/refs/" in path or "/logs/" in path else ""
    folder, _, name = path.rpartition("/")
    kept = f"{folder}/{os.fsdecode(os.fsencode(name)[:NAME_BYTES_MAX])}"  # a name that is full has no room for more
    for number in range(1000):
        target = f"{kept}{judging.DISARMED}{f'-{number}' if number else ''}{end}"
        if os.path.lexists(target):
            continue
        try:
            os.rename(path, target)
        except OSError:
            return ""
        return target
    return ""


def _git_folder(known: Known, layout: Layout, since_ns: int, findings: list[Finding]) -> None:
    """One git folder that the sandbox could write."""
    git = known.git
    if node_of(git) != known.node:
        if mode_of(git):
            findings.append(Finding(git, "was replaced by another folder"))
        return
    _specials(git, since_ns, findings, skipped=tuple(path for path in layout.known if path != git))
    for path, before in known.config.items():
        _settings(path, before, findings)
    for name in judging.live_hooks(git, since_ns):
        path = f"{git}/hooks/{name}"
        findings.append(Finding(path, "is a hook that is new or changed", disarm(path)))
    for name in judging.running_todos(git, since_ns):
        path = f"{git}/{name.partition('/')[0]}"
        if mode_of(path):
            findings.append(Finding(path, "is an unfinished operation that would run commands", disarm(path)))
    for name in ("rebase-merge", "rebase-apply", "sequencer"):
        if name not in known.todos and mode_of(f"{git}/{name}"):
            findings.append(Finding(f"{git}/{name}", "is an operation that was begun and not finished"))
    path = f"{git}/MERGE_RR"
    if judging.records_elsewhere(git, _root(git, layout)):
        findings.append(Finding(path, "would have git read or write files outside the worktree", disarm(path)))
    _new_folders(f"{git}/modules", layout, findings, 0)
    _new_worktrees(git, layout, findings)
    _replacements(git, since_ns, findings)


def _root(git: str, layout: Layout) -> str:
    """The worktree of a git folder, as far as it is known."""
    roots = {one.git: one.root for one in layout.repositories}
    if git not in roots and mode_of(f"{git}/gitdir"):
        return os.path.dirname(pointers.back(git))
    return roots.get(git) or os.path.dirname(git)


def _settings(path: str, before: bytes | None, findings: list[Finding]) -> None:
    """A file of settings that is not as it was: dangerous if it sets what is not known to be harmless."""
    try:
        after = pointers.read(path, pointers.CONFIG_BYTES_MAX)
    except Refusal:
        after = b"["
    placeholders = (None, b"", b".\n")  # made by this launch, or by another one that has ended
    if after == before or (None in (before, after) and before in placeholders and after in placeholders):
        return
    if path.endswith("/commondir"):
        dangers = ["another place for the settings"] if after is not None else []
    else:
        dangers = harmless.dangers(after or b"", before or b"")
    if not dangers:
        findings.append(Finding(path, "was changed while the program ran"))
        return
    findings.append(
        Finding(path, f"was changed while the program ran, and sets {', '.join(dangers[:5])}", disarm(path))
    )
    if before is not None:
        _put_back(path, before)


def _put_back(path: str, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _specials(folder: str, since_ns: int, findings: list[Finding], skipped: tuple[str, ...] = ()) -> None:
    found, complete = judging.specials(folder, since_ns, skipped=skipped)
    findings += [Finding(path, f"is {kind} among git's files", disarm(path)) for path, kind in found]
    if not complete:
        findings.append(Finding(folder, f"has more than {judging.ENTRIES_MAX} files; not all were looked at"))


def _new_folders(folder: str, layout: Layout, findings: list[Finding], depth: int) -> None:
    """Git folders of submodules that were not there before."""
    if depth > judging.DEPTH_MAX or not is_folder(folder):
        return
    judging.make_listable(folder)
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if path in layout.known or not is_folder(path):
            continue
        if not is_git_folder(path):
            _new_folders(path, layout, findings, depth + 1)
            continue
        reasons = judging.verdict(path, layout.workdir)
        if reasons:
            findings.append(Finding(path, f"is a new submodule: {'; '.join(reasons[:3])}", disarm(f"{path}/HEAD")))
        else:
            findings.append(Finding(path, "is a new submodule"))


def _new_worktrees(git: str, layout: Layout, findings: list[Finding]) -> None:
    """Admin folders of worktrees that were not there before: git takes settings from them, or through them."""
    folder = f"{git}/worktrees"
    if not is_folder(folder):
        return
    judging.make_listable(folder)
    for name in sorted(os.listdir(folder)):
        admin = f"{folder}/{name}"
        if admin in layout.known or not is_folder(admin):
            continue
        reasons = []
        try:
            if pointers.common(admin) != git:
                reasons.append("its commondir takes the settings from elsewhere")
            content = pointers.read(f"{admin}/config.worktree", pointers.CONFIG_BYTES_MAX) or b""
            reasons += [f"its config.worktree sets {key}" for key in harmless.dangers(content)]
        except Refusal as refusal:
            reasons.append(refusal.message)
        if reasons:
            findings.append(Finding(admin, f"is a new worktree's: {'; '.join(reasons[:3])}", disarm(f"{admin}/HEAD")))
        else:
            findings.append(Finding(admin, "is a new worktree's"))


def _replacements(git: str, since_ns: int, findings: list[Finding]) -> None:
    """`refs/replace` among packed refs: git shows one object for another."""
    path = f"{git}/packed-refs"
    try:
        if os.lstat(path).st_ctime_ns >= since_ns and b" refs/replace/" in (pointers.read(path, refs.BYTES_MAX) or b""):
            findings.append(
                Finding(path, "names replacements of objects: git log --no-replace-objects shows the real ones")
            )
    except (OSError, Refusal):
        return
