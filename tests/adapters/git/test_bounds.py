"""adapters/git/inspection.py: an inspection of any size ends in time, and passes nothing that it cannot read."""

import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from adapters.git.boxed import act, host, noted, run_inside

from adapters.git import layouts
from omac.adapters.git import inspection, refs
from omac.adapters.git.config_copies import branches_of
from omac.adapters.git.genuine_objects import GenuineObjects
from omac.adapters.git.git_folder import GitFolder
from omac.adapters.git.inspection import Budget
from omac.adapters.git.launch_record import Record
from omac.adapters.git.layout import Layout
from omac.domain.git.checkout import DIGEST_BYTES
from omac.domain.git.folder import WHOLE, Folder


def _noted(project: Path, *, is_git: bool = False) -> Record:
    """Return the record of a launch in a project whose git folder, if it has one, the launch knows."""
    layout = Layout(str(project))
    if is_git:
        layout.folders = {f"{project}/.git": Folder(WHOLE, str(project), f"{project}/.git")}
    return noted(layout)


@pytest.mark.parametrize(("lines", "is_judged"), [(1, True), (30_000, False)], ids=["short", "long"])
def test_reading_is_paid_for(lines: int, is_judged: bool, tmp_path: Path) -> None:
    """A few long files use the time of many short ones; repositories for which no time is left are set aside."""
    project = tmp_path / "project"
    project.mkdir()
    record = _noted(project)
    for number in range(3):
        for name in ("objects", "refs"):
            (project / f"n{number}" / ".git" / name).mkdir(parents=True)
        (project / f"n{number}" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (project / f"n{number}" / ".git" / "config").write_text("[core]\n" + "\tfilemode = true\n" * lines)
    findings = act(record, tmp_path, Budget(60.0, 1_000))
    assert [finding for finding in findings if "was not inspected" in finding.what] == ([] if is_judged else findings)
    assert all((project / f"n{number}" / ".git" / "HEAD").exists() == is_judged for number in range(3))


@pytest.mark.parametrize("left", ["file", "folder"])
def test_branches_beyond_a_bound_are_gits_to_list(left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among too many files and empty folders, which a program can leave, omac searches no branches."""
    monkeypatch.setattr(refs, "LOOSE_MAX", 20)
    (tmp_path / "refs/heads").mkdir(parents=True)
    for number in range(20):
        path = tmp_path / f"refs/heads/{number}"
        path.touch() if left == "file" else path.mkdir()
    assert branches_of(str(tmp_path)) == frozenset(map(str, range(20)) if left == "file" else ())
    (tmp_path / "refs/heads/one").mkdir()
    assert branches_of(str(tmp_path)) is None


def test_a_disk_that_fails_lets_nothing_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git folders that omac cannot read from the disk are set aside, and the others are judged."""
    project = tmp_path / "project"
    for name in (".", "nested", "zz"):
        subprocess.run(["git", "init", "-q", str(project / name)], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(project / "bare.git")], check=True)
    inspect = GitFolder.inspect

    def failing(self: GitFolder, folder: int) -> None:
        path = os.readlink(f"/proc/self/fd/{folder}")
        if not path.endswith("zz/.git"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        inspect(self, folder)

    record = _noted(project, is_git=True)
    (project / "zz/.git/hooks/post-checkout").write_text("#!/bin/sh\n")
    monkeypatch.setattr(GitFolder, "inspect", failing)
    findings = act(record, tmp_path)
    for folder in (project, project / "nested"):
        assert (folder / ".git").is_file(), findings
        assert subprocess.run(["git", "status"], cwd=folder, capture_output=True).returncode
    assert not (project / "bare.git/HEAD").exists()
    assert (project / "zz/.git").is_dir()
    assert not (project / "zz/.git/hooks/post-checkout").exists()


def test_what_is_too_large_for_another_file_system_stays(tmp_path: Path) -> None:
    """A huge sparse file is renamed in its folder, and not copied to a state directory on another file system."""
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    record = _noted(project, is_git=True)
    for name, size in (("odd", 1000), ("large", 1 << 40)):
        with (project / ".git" / name).open("wb") as file:
            file.truncate(size)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as state:
        findings = act(record, Path(state))
        copies = [path for path in Path(state).rglob("*") if path.is_file()]
        assert [path.stat().st_size for path in copies] == [1000]
    messages = {Path(finding.path).name: str(finding) for finding in findings}
    assert "set aside as" in messages["odd"]
    assert (
        "it is too large to be moved to another file system; it is called large.set-aside-by-omac-" in messages["large"]
    )
    assert not (project / ".git/large").exists()


@pytest.mark.parametrize("is_harmless", [True, False])
def test_an_index_is_read_as_the_settings_say_that_are_put_back(tmp_path: Path, is_harmless: bool) -> None:
    """The settings of the launch determine the length of object ids where the present ones cannot be read."""
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", "--object-format=sha256", str(project)], check=True)
    (project / "file").write_text("x")
    record = _noted(project, is_git=True)
    subprocess.run(["git", "add", "file"], cwd=project, check=True)
    if not is_harmless:
        index = project / ".git/index"
        index.write_bytes(index.read_bytes().replace(b"\0\4file\0", b"\0\4.git\0"))
    (project / ".git/config").write_text("[core\n")
    act(record, tmp_path)
    assert "sha256" in (project / ".git/config").read_text()
    assert (project / ".git/index").exists() == is_harmless


def test_a_worktree_of_the_host_behind_a_link_stays(tmp_path: Path) -> None:
    """A `core.worktree` that leads past a link at launch is the host's, and stays, even if another setting changes."""
    real = tmp_path / "real"
    project = real / "project"
    (tmp_path / "link").symlink_to(real)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    through = tmp_path / "link" / "project"
    subprocess.run(["git", "config", "core.worktree", str(through)], cwd=project, check=True)
    for setting in ("", "user.name"):
        record = _noted(project, is_git=True)
        if setting:
            subprocess.run(["git", "config", setting, "x"], cwd=project, check=True)
        findings = act(record, tmp_path)
        assert [finding for finding in findings if finding.moved] == []
        assert str(through) in (project / ".git/config").read_text()


def test_an_admin_folder_has_no_settings_of_that_name(tmp_path: Path) -> None:
    """A new `config` in a worktree's admin folder is none of git's files and is removed; the repository's own stays."""
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "1"], cwd=project, check=True)
    subprocess.run(["git", "worktree", "add", "-q", "w"], cwd=project, check=True)
    record = _noted(project, is_git=True)
    (project / ".git/worktrees/w/config").write_text("[core]\n\tfsmonitor = x\n")
    act(record, tmp_path)
    assert not (project / ".git/worktrees/w/config").exists()
    assert (project / ".git/config").exists()


def test_what_indexes_write_takes_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are noted by digests at launch, as far as there is room; the others count as new."""
    project = tmp_path / "project"
    names = [f"x.git/{'a' * 240}/{'b' * 240}/{number}" for number in range(400)]
    for number in range(3):
        git = ["git", "-C", str(project / f"n{number}")]
        subprocess.run(["git", "init", "-q", str(project / f"n{number}")], check=True)
        lines = "".join(f"100644 {'1' * 40} 0\t{name}\n" for name in names)
        subprocess.run([*git, "update-index", "--index-info"], input=lines.encode(), check=True)
        subprocess.run([*git, "init", "-q", "--bare", "x.git"], check=True)
    monkeypatch.setattr(inspection, "NOTED_BYTES_MAX", 25_000)
    record = _noted(project)
    baseline = record.baseline
    assert baseline is not None
    fitting = [path for path, digests in baseline.digests.items() if digests]
    assert 0 < len(fitting) < 3
    assert not baseline.is_whole
    assert sum(map(len, baseline.digests.values())) == len(fitting) * 400 * DIGEST_BYTES
    for number in range(3):
        index = project / f"n{number}/.git/index"
        index.write_bytes(index.read_bytes())
    act(record, tmp_path)
    assert [f"{project}/n{n}/.git" for n in range(3) if (project / f"n{n}/.git/index").exists()] == sorted(fitting)


@pytest.mark.parametrize("is_fine", [True, False])
def test_a_log_of_many_names_is_read_once(tmp_path: Path, is_fine: bool) -> None:
    """A valid log of many names stays but for a bad name; of an invalid log each name is set aside."""
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    record = _noted(project, is_git=True)
    logs = project / ".git/logs/refs/heads"
    logs.mkdir(parents=True)
    line = f"{'1' * 40} {'2' * 40} A <a@b> 1700000000 +0000\tx\n"
    (logs / "a").write_text(line * 5_000 if is_fine else "x\n")
    for number in range(60):
        os.link(logs / "a", logs / f"a{number}")
    os.link(logs / "a", logs / "a..b")
    act(record, tmp_path, Budget(60, 20_000))
    assert (project / ".git/HEAD").exists()
    assert len(list(logs.iterdir())) == (61 if is_fine else 0)
    assert not (logs / "a..b").exists()


def test_copies_take_no_room(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files of new worktrees are as the commit has them, a changed one is among the findings."""
    workdir = layouts.plain(tmp_path, home)
    for number in range(5):
        (workdir / f"{number}.mk").touch()
    host("git", "add", "-A", cwd=workdir, home=home)
    host("git", "commit", "-qm", "more", cwd=workdir, home=home)
    monkeypatch.setattr(inspection, "FINDINGS_MAX", 8)
    script = "for w in 1 2 3 4; do git worktree add -q w/$w; done; mkdir -p w/5; echo x > w/5/Makefile"
    findings = run_inside(workdir, script, home=home).findings
    assert [finding.path for finding in findings if "obeys it" in finding.what] == [f"{workdir}/w/5/Makefile"]
    assert not [finding for finding in findings if "not listed" in finding.what]


def test_many_worktrees_cost_one_reading(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the commit is read once, in however many new worktrees it is: there is little time for it."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / "Makefile").touch()
    host("git", "add", "-A", cwd=workdir, home=home)
    host("git", "commit", "-qm", "more", cwd=workdir, home=home)
    read: list[str] = []
    blob_of = GenuineObjects.blob_of

    def counted(self: GenuineObjects, commit: str, path: str) -> tuple[str, bytes]:
        read.append(path)
        return blob_of(self, commit, path)

    monkeypatch.setattr(GenuineObjects, "blob_of", counted)
    findings = run_inside(workdir, "for w in 1 2 3; do git worktree add -q w/$w; done", home=home).findings
    assert (read, [finding for finding in findings if "obeys" in finding.what]) == (["Makefile"], [])


def test_reports_take_no_room_of_what_is_set_aside(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many findings are only reported, those that are set aside are listed, up to a bound of their own."""
    workdir = layouts.plain(tmp_path, home)
    monkeypatch.setattr(inspection, "FINDINGS_MAX", 8)
    locks = "for i in 1 2 3 4 5 6 7 8 9; do touch .git/refs/heads/$i.lock; done"
    planted = "git init -q n; mkdir -p n/.git/hooks; echo x > n/.git/hooks/post-checkout"
    findings = run_inside(workdir, f"{locks}; {planted}", home=home).findings
    assert [finding.path for finding in findings if finding.moved] == [f"{workdir}/n/.git/hooks/post-checkout"]
