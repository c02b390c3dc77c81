"""adapters/git/watch.py: dangerous files that cannot wait for a program's end are set aside soon after they appear."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adapters.git.boxed import host, noted
from polling import eventually

from adapters.git import layouts
from omac.adapters.git import inspection, watch
from omac.adapters.git.inspection import Budget, Finding, Inspection
from omac.adapters.git.layout import GitChoices, lay_out
from omac.adapters.git.quarantine import Quarantine
from omac.adapters.git.watch import GitWatch

WITHIN_S = 5.0  # of a machine that is busy; how long it takes is measured by the bench


class Scene:
    """A project with a watch."""

    def __init__(self, base: Path, builder: layouts.Builder) -> None:
        self.home = base / "home"
        self.home.mkdir()
        self.workdir = builder(base, self.home)
        layout = lay_out(str(self.workdir), GitChoices(), str(self.home))
        self._watch = GitWatch(noted(layout), Quarantine(f"{self.home}/state", "launch"))
        self._watch.start()
        self._links: list[str] = []

    @property
    def is_watching(self) -> bool:
        return self._watch.is_watching

    @property
    def inspection(self) -> Inspection:
        """The inspection that judges now."""
        return self._watch._inspection

    def run(self, script: str) -> None:
        host("sh", "-c", script, cwd=self.workdir, home=self.home)

    def catch_up(self) -> None:
        """Return when the watch has judged all earlier changes, for it judges changes in their order.

        The first link may be found by the initial scan, the second one is a change after that scan.
        """
        for _ in range(2):
            link = str(self.workdir / f".git/refs/heads/link{len(self._links)}")
            self._links.append(link)
            os.symlink("/etc", link)
            eventually(lambda: not os.path.lexists(self._links[-1]), WITHIN_S, "a link is set aside")

    def settle(self) -> None:
        """Have all judged that is there."""
        self._watch.settle()

    def end(self) -> list[Finding]:
        """End the watch, and return the findings but for the links of `catch_up`."""
        return [finding for finding in self._watch.end() if finding.path not in self._links]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, layouts.plain)
    yield made
    made.end()


def _is_harmless(path: Path) -> bool:
    """Return whether settings exist again, without those that were planted."""
    text = _text_of(path)
    return text is not None and "evil" not in text


def _is_pointer(path: Path) -> bool:
    return "set-aside" in (_text_of(path) or "")


def _text_of(path: Path) -> str | None:
    """Return the text of a file; None while there is none, as in the middle of being set aside."""
    try:
        return path.read_text()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


# what it does, and when it is undone
PLANTS: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "link": ("ln -s /etc/passwd .git/MERGE_MSG", lambda top: not os.path.lexists(top / ".git/MERGE_MSG")),
    "link in refs": ("ln -s /etc .git/refs/heads/x", lambda top: not os.path.lexists(top / ".git/refs/heads/x")),
    "link in a new folder": (
        "mkdir -p .git/refs/heads/a/b; ln -s /etc .git/refs/heads/a/b/c",
        lambda top: not os.path.lexists(top / ".git/refs/heads/a/b/c"),
    ),
    "FIFO": ("mkfifo .git/SQUASH_MSG", lambda top: not os.path.lexists(top / ".git/SQUASH_MSG")),
    "hook": ("cp /bin/true .git/hooks/pre-commit", lambda top: not (top / ".git/hooks/pre-commit").exists()),
    "settings": (
        "git config core.fsmonitor evil",
        lambda top: _is_harmless(top / ".git/config"),
    ),
    "nested settings": (
        "git init -q n; git -C n config core.fsmonitor evil",
        lambda top: _is_harmless(top / "n/.git/config"),
    ),
    "nested hook": (
        "mkdir -p za/b; git init -q za/b/n; cp /bin/true za/b/n/.git/hooks/pre-commit",
        lambda top: not (top / "za/b/n/.git/hooks/pre-commit").exists(),
    ),
    "moved there": (
        "mkdir t; git init -q t/n; git config -f t/n/.git/config core.fsmonitor evil; mv t/n n",
        lambda top: _is_harmless(top / "n/.git/config"),
    ),
    "pointer out": ("mkdir n; echo gitdir: /etc > n/.git", lambda top: _is_pointer(top / "n/.git")),
    "link out": ("mkdir n; ln -s /etc n/.git", lambda top: _is_pointer(top / "n/.git")),
    "bare": (
        "git init -q --bare zb; git -C zb config core.fsmonitor evil",
        lambda top: _is_harmless(top / "zb/config"),
    ),
    "module": (
        "git init -q --bare .git/modules/m; git -C .git/modules/m config core.fsmonitor evil",
        lambda top: _is_harmless(top / ".git/modules/m/config"),
    ),
    "worktree": (
        "git worktree add -q w; echo /etc > .git/worktrees/w/commondir",
        lambda top: not (top / ".git/worktrees/w/commondir").exists(),
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_set_aside_while_it_runs(name: str, scene: Scene) -> None:
    """A dangerous file is set aside while the program still runs, and reported at the end."""
    script, is_undone = PLANTS[name]
    scene.run(script)
    eventually(lambda: is_undone(scene.workdir), WITHIN_S, f"{name} is set aside")
    assert scene.end()


def test_where_a_remote_leads_waits_for_the_end(scene: Scene) -> None:
    """The address of a remote stays until the end: git writes a clone's settings one by one, and fails on a lock."""
    scene.run("git init -q n; git -C n remote add o /elsewhere")
    scene.catch_up()
    assert "/elsewhere" in (scene.workdir / "n/.git/config").read_text()
    scene.run("git -C n config core.fsmonitor evil")
    eventually(lambda: _is_harmless(scene.workdir / "n/.git/config"), WITHIN_S, "the program is taken out")
    assert "/elsewhere" in (scene.workdir / "n/.git/config").read_text()


def test_gits_look_whether_there_can_be_links(scene: Scene) -> None:
    """The link of a `git init` or `git clone` at work stays until the end; one that leads elsewhere does not."""
    probe, foreign = scene.workdir / ".git/tk8ES1V", scene.workdir / ".git/tk8ES1W"
    probe.symlink_to("testing")
    foreign.symlink_to("/etc")
    eventually(lambda: not os.path.lexists(foreign), WITHIN_S, "the other link is set aside")
    scene.catch_up()
    assert probe.is_symlink()


def test_gits_look_for_links_in_a_new_repository(scene: Scene, tmp_path: Path) -> None:
    """The link of a `git init` also stays if the watch sees the folder late, and finds the repository as a whole."""
    host("git", "init", "-q", "new", cwd=tmp_path, home=scene.home)
    (tmp_path / "new/.git/tk8ES1V").symlink_to("testing")
    (tmp_path / "new/.git/tk8ES1W").symlink_to("/etc")
    (tmp_path / "new").rename(scene.workdir / "new")
    git = scene.workdir / "new/.git"
    eventually(lambda: not os.path.lexists(git / "tk8ES1W"), WITHIN_S, "the other link is set aside")
    scene.catch_up()
    assert (git / "tk8ES1V").is_symlink()


def test_a_file_that_is_not_written_yet(scene: Scene) -> None:
    """A new file that is empty is judged when it is written, even if it stays open."""
    host("git", "worktree", "add", "-q", "w", cwd=scene.workdir, home=scene.home)
    common = scene.workdir / ".git/worktrees/w/commondir"
    common.unlink()
    with common.open("wb", buffering=0) as being_written:
        scene.catch_up()
        assert common.exists()
        being_written.write(b"../..\n")
        scene.catch_up()
        assert common.read_bytes() == b"../..\n"
        being_written.write(b"../../../evil\n")
        eventually(lambda: not common.exists(), WITHIN_S, "what was added is judged")


def test_a_file_that_is_written_by_another_name(scene: Scene) -> None:
    """A hook and settings are judged as soon as they are written, even by a second name in a folder without a watch."""
    hook, settings = scene.workdir / ".git/hooks/pre-commit", scene.workdir / "n/.git/config"
    scene.run("git init -q n; : > .git/hooks/pre-commit")
    scene.catch_up()
    scene.run("ln .git/hooks/pre-commit .git/objects/h; ln n/.git/config .git/objects/c")
    with (
        (scene.workdir / ".git/objects/h").open("a") as hook_file,
        (scene.workdir / ".git/objects/c").open("a") as settings_file,
    ):
        hook_file.write("#!/bin/sh\n")
        hook_file.flush()
        settings_file.write("[core]\n\tfsmonitor = evil\n")
        settings_file.flush()
        eventually(lambda: not hook.exists(), WITHIN_S, "the hook is set aside")
        eventually(lambda: _is_harmless(settings), WITHIN_S, "the settings are set aside")


def test_a_pointer_that_nobody_closes(scene: Scene) -> None:
    """A `.git` file without a line end is judged while it is still open, because git obeys it as it is."""
    (scene.workdir / "n").mkdir()
    with (scene.workdir / "n/.git").open("wb", buffering=0) as pointer:
        scene.catch_up()
        pointer.write(b"gitdir: /etc")
        eventually(lambda: _is_pointer(scene.workdir / "n/.git"), WITHIN_S, "it is set aside")


def test_a_pointer_among_gits_other_files(scene: Scene) -> None:
    """A `.git` file that leads among git's other files is set aside, because git keeps no repository there."""
    scene.run("git init -q t; mkdir .git/lfs n; mv t/.git .git/lfs/t; echo gitdir: ../.git/lfs/t > n/.git")
    eventually(lambda: _is_pointer(scene.workdir / "n/.git"), WITHIN_S, "it is set aside")


def test_ordinary_work_is_let_alone(scene: Scene) -> None:
    """Commits, branches, a rebase, a clone, a worktree and a bare clone leave nothing to set aside."""
    scene.run(
        "mkdir d; echo 1 > d/f; ln -s f d/l; git add .; git commit -qm 1; git switch -qc side; echo 2 > d/f;"
        "git commit -qam 2; git rebase -q main; git gc -q; git clone -q . n; git -C n commit -q --allow-empty -m x;"
        "git clone -q --bare . b.git; git worktree add -q w; git -C w commit -q --allow-empty -m y; git stash list"
    )
    scene.catch_up()
    assert scene.end() == []
    assert host("git", "fsck", cwd=scene.workdir, home=scene.home) == ""


@pytest.mark.full
def test_a_storm(scene: Scene) -> None:
    """Folders that come and go as fast as they can do not end the watch, which finds a link planted meanwhile."""
    storm = "i=0; while [ $i -lt 300 ]; do mkdir -p s/$i/.git; mv s/$i s/x$i; rm -r s/x$i; i=$((i+1)); done"
    with subprocess.Popen(["sh", "-c", storm], cwd=scene.workdir) as process:
        scene.run("ln -s /etc .git/refs/heads/x")
        process.wait(60)
    eventually(lambda: not os.path.lexists(scene.workdir / ".git/refs/heads/x"), WITHIN_S, "the link is set aside")


def test_what_waits_to_be_judged(scene: Scene) -> None:
    """Before omac is suspended, all is judged that the program has left, also behind thousands of other folders."""
    scene.run("mkdir big; cd big; for i in $(seq 400); do mkdir -p $i/.git; : > $i/.git/config; done")
    scene.settle()
    scene.run("git init -q zsrc; git -C zsrc config core.fsmonitor evil; mv big more; mv zsrc src")
    scene.settle()
    assert _is_harmless(scene.workdir / "src/.git/config")


def test_folders_that_are_gone_make_room(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build makes and removes thousands of folders: those that are there now count."""
    monkeypatch.setattr(watch, "WATCHES_MAX", 200)
    scene.catch_up()
    for _ in range(4):
        scene.run("mkdir -p build/$(seq -s ' build/' 100)")
        scene.catch_up()
        scene.run("rm -r build")
        scene.catch_up()
    scene.run("mkdir late")
    scene.catch_up()
    scene.run("ln -s /etc late/.git")
    eventually(lambda: _is_pointer(scene.workdir / "late/.git"), WITHIN_S, "the link is set aside")


def test_a_session_of_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of repositories come and go: what the watch has judged before bounds nothing, and nothing of it
    stays."""
    monkeypatch.setattr(watch, "Budget", lambda seconds: Budget(seconds, 300))
    monkeypatch.setattr(inspection, "FINDINGS_MAX", 20)
    scene = Scene(tmp_path, layouts.plain)
    settings = [scene.workdir / f"n{i}/.git/config" for i in (1, 2, 3)]
    scene.catch_up()
    for _ in range(20):
        scene.run("for i in 1 2 3; do git init -q n$i; git -C n$i config core.fsmonitor evil; done")
        eventually(lambda: all(map(_is_harmless, settings)), WITHIN_S, "it is undone")
        scene.catch_up()
        assert (scene.workdir / "n1/.git/HEAD").exists()
        scene.run("rm -r n1 n2 n3")
    scene.end()
    sizes = [len(kept) for kept in vars(scene.inspection).values() if isinstance(kept, list | set | dict)]
    assert max(sizes) < 20


def test_more_than_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that were set aside beyond a bound are counted, and their folder is named."""
    monkeypatch.setattr(watch, "FINDINGS_MAX", 4)
    scene = Scene(tmp_path, layouts.plain)
    for _ in range(2):
        scene.catch_up()
    scene.run("ln -s /etc .git/MERGE_MSG")
    scene.catch_up()
    (more,) = scene.end()
    assert (more.what, more.moved) == ("3 more entries are not listed", f"{scene.home}/state/set-aside/launch")


def test_what_is_not_the_programs_to_write(tmp_path: Path) -> None:
    """The host's hooks in the common folder of a linked worktree stay, but a link among its refs is set aside."""

    def builder(base: Path, home: Path) -> Path:
        workdir = layouts.linked(base, home)
        (base / "repo/.git/hooks/pre-commit").write_text("#!/bin/sh\n")
        return workdir

    made = Scene(tmp_path, builder)
    link = tmp_path / "repo/.git/refs/heads/x"
    link.symlink_to("/etc")
    eventually(lambda: not os.path.lexists(link), WITHIN_S, "the link is set aside")
    findings = made.end()
    assert [finding.path for finding in findings] == [str(link)]
    assert (tmp_path / "repo/.git/hooks/pre-commit").exists()


def test_without_threads_there_is_none(tmp_path: Path) -> None:
    """A launch on a system that starts no thread has no watch, as on a kernel without one, and leaks no descriptor."""
    before = threading.stack_size(1 << 46)  # more than any address space has room for
    opened = len(os.listdir("/proc/self/fd"))
    try:
        scene = Scene(tmp_path, layouts.plain)
    finally:
        threading.stack_size(before)
    assert not scene.is_watching
    assert scene.end() == []
    assert len(os.listdir("/proc/self/fd")) <= opened  # others may be closed meanwhile
