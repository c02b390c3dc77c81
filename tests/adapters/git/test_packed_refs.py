"""adapters/git/packed_refs.py: git inside changes its packed refs while omac brings the two files in step."""

import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually

from omac.adapters.git import packed_refs, refs, watch
from omac.adapters.git.inspection import Baseline
from omac.adapters.git.launch_record import Record
from omac.adapters.git.open_folder import put
from omac.adapters.git.packed_refs import LOCK, NAME, PackedRefs
from omac.adapters.git.quarantine import Quarantine
from omac.adapters.git.refs import Session
from omac.domain.git.folder import WHOLE, Folder


class Linked:
    """A repository with a linked worktree, and the copy of a session for it."""

    def __init__(self, top: Path) -> None:
        self.main = top / "main"
        self.git("init", "-q", str(self.main), cwd=top)
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        self.git("worktree", "add", "-q", str(top / "linked"))
        self.commit = self.git("rev-parse", "HEAD").strip()
        self.common = self.main / ".git"
        self.session: Session = refs.session_of(str(self.common), f"{self.common}/worktrees/linked", narrowed=False)
        refs.open_session(self.session)
        self.copy = Path(self.session.folder) / NAME

    def git(self, *words: str, cwd: Path | None = None) -> str:
        line = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words]
        return subprocess.run(line, cwd=cwd or self.main, check=True, capture_output=True, text=True).stdout

    def inside(self, *names: str) -> None:
        """Replace the copy with a file of these refs, as git inside does."""
        made = self.copy.with_name("made")
        made.write_text("".join(f"{self.commit} {name}\n" for name in names))
        made.rename(self.copy)

    @property
    def heads(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    return Linked(tmp_path)


def test_what_is_packed_inside_is_packed_on_the_host(linked: Linked) -> None:
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.inside("refs/heads/a")
    packed.settle()
    assert "a" in linked.heads


def test_the_hosts_other_packed_refs_stay(linked: Linked) -> None:
    """Tags, what they lead to, replacements and the file's mode stay; a ref that moved inside is there once."""
    linked.git("tag", "-a", "-m", "x", "v1")
    linked.git("branch", "a")
    linked.git("commit", "-q", "--allow-empty", "-m", "y")
    linked.git("replace", "HEAD", linked.commit)
    linked.git("pack-refs", "--all")
    (linked.common / NAME).chmod(0o640)
    packed = PackedRefs(linked.session)
    packed.settle()
    before = linked.git("--no-replace-objects", "show-ref", "-d").splitlines()
    newer = linked.git("--no-replace-objects", "rev-parse", "HEAD").strip()
    linked.copy.write_text(
        linked.copy.read_text().replace(f"{linked.commit} refs/heads/a\n", f"{newer} refs/heads/a\n")
    )
    packed.settle()
    after = linked.git("--no-replace-objects", "show-ref", "-d").splitlines()
    assert set(after) - set(before) == {f"{newer} refs/heads/a"}
    assert set(before) - set(after) == {f"{linked.commit} refs/heads/a"}
    assert len(after) == len(before)
    assert (linked.common / NAME).stat().st_mode & 0o777 == 0o640
    assert not (linked.common / LOCK).exists()


def test_what_both_have_packed_can_be_deleted_inside(linked: Linked) -> None:
    """A ref that host and program have packed alike is deleted on the host at the end, and does not come back inside
    before."""
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.git("branch", "a")
    linked.git("pack-refs", "--all")
    linked.inside("refs/heads/a")
    packed.settle()
    linked.inside("refs/heads/b")
    packed.settle()
    assert "refs/heads/a" not in linked.copy.read_text()
    assert refs.copy_back(linked.session) == []
    assert "a" not in linked.heads


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_branch_that_is_made_again_on_the_host_is_not_lost(linked: Linked, is_watched: bool) -> None:
    """The host deletes a packed branch and makes it again, and the program packs it meanwhile: it is in the copy
    alone then, and stays."""
    linked.git("branch", "a")
    linked.git("pack-refs", "--all")
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.git("commit", "-q", "--allow-empty", "-m", "y")
    linked.git("branch", "-D", "a")
    newer = linked.git("rev-parse", "HEAD").strip()
    linked.copy.write_text(
        linked.copy.read_text().replace(f"{linked.commit} refs/heads/a\n", f"{newer} refs/heads/a\n")
    )
    if is_watched:
        packed.settle()
        assert linked.git("rev-parse", "a").strip() == newer
    assert refs.copy_back(linked.session) == []
    assert linked.git("rev-parse", "a").strip() == newer


def test_an_object_id_of_another_length_is_not_packed(linked: Linked) -> None:
    """A ref with an object id of SHA-256 in a repository of SHA-1, at which git stops, stays out of the host's file;
    the end reports it."""
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.inside("refs/heads/a")
    linked.copy.write_text(f"{linked.copy.read_text()}{'1' * 64} refs/heads/b\n")
    packed.settle()
    assert "a" in linked.heads
    assert [name for name, _ in refs.copy_back(linked.session)] == ["refs/heads/b"]
    assert "a" in linked.heads


def test_refs_that_git_refuses_do_not_hold_up_the_end(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many refs, some of which git refuses, the others are set with few starts of git; and refs without end have a
    bound of time."""
    starts: list[int] = []
    run = refs._git

    def counted(common: str, commands: list[str]) -> str:
        starts.append(len(commands))
        return run(common, commands)

    monkeypatch.setattr(refs, "_git", counted)
    bad = {13: "1" * 40, 110: "2" * 40}
    linked.copy.write_text("".join(f"{bad.get(n, linked.commit)} refs/heads/b{n:03}\n" for n in range(128)))
    assert [name for name, _ in refs.copy_back(linked.session)] == ["refs/heads/b013", "refs/heads/b110"]
    assert len(linked.heads) == 128
    assert len(starts) < 32
    refs.open_session(linked.session)
    monkeypatch.setattr(refs, "SECONDS_MAX", -1.0)
    linked.inside("refs/heads/y", "refs/heads/z")
    assert [name for name, _ in refs.copy_back(linked.session)] == ["refs/heads/y", "refs/heads/z"]


@pytest.mark.parametrize("name", ["heads/main/x", "heads/linked/x", "heads", "heads/" + "a" * 300, "heads/a/b"])
def test_a_ref_that_git_could_not_delete_is_not_packed(linked: Linked, name: str) -> None:
    """A ref above or below another one, or with too long a name, is not packed on the host; the end reports it."""
    linked.git("branch", "-M", "main")
    linked.git("pack-refs", "--all")
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.inside("refs/heads/main", "refs/heads/linked", "refs/heads/a", f"refs/{name}")
    packed.settle()
    assert "a" not in linked.heads or name != "heads/a/b"
    assert name.removeprefix("heads/") not in linked.heads
    assert refs.copy_back(linked.session) != []


def test_nothing_is_written_through_links_that_a_program_made(linked: Linked, tmp_path: Path) -> None:
    """Older kernels cannot keep a program from making links in refs and logs while it runs: omac writes there nothing.

    Else it could make files in any folder of the user, and lengthen any file.
    """
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "notes").write_text("mine")
    (linked.common / "refs/heads/d").symlink_to(victim)
    (linked.common / "logs/refs/heads/n").symlink_to(victim / "notes")
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.inside("refs/heads/d/planted", "refs/heads/n")
    packed.settle()
    assert [path.name for path in victim.iterdir()] == ["notes"]
    assert (victim / "notes").read_text() == "mine"


def test_the_copy_does_not_wait_for_changes_to_be_judged(
    linked: Linked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refs that the host packs are in the copy at once, also while the watch gathers other changes.

    Else git inside would take a branch for what it was packed at before, and the next commit would leave out those
    since.
    """
    monkeypatch.setattr(watch, "GATHER_S", 20.0)
    monkeypatch.setattr(watch, "SETTLES", 200)
    record = Record("launch", 1)
    record.sessions, record.baseline = [linked.session], Baseline(1)
    record.folders = {str(linked.common): Folder(WHOLE, "", str(linked.common), only=("refs",))}
    watching = watch.GitWatch(record, Quarantine(str(tmp_path / "state"), "launch"))
    watching.start()
    try:
        for number in range(100):  # until one is an event: the watch begins when it can
            linked.git("branch", f"b{number}")
            linked.git("pack-refs", "--all")
            if f"refs/heads/b{number - 1}\n" in linked.copy.read_text():
                break
            time.sleep(0.02)
        linked.git("branch", "last")
        linked.git("pack-refs", "--all")
        eventually(lambda: "refs/heads/last\n" in linked.copy.read_text(), 20.0, "the copy has what was packed")
    finally:
        watching.end()


def test_what_is_deleted_inside_meanwhile_does_not_come_back(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ref that is deleted inside between omac's reading of the copy and its change of the host's refs stays deleted
    inside, and the end deletes it on the host."""
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.inside("refs/heads/a", "refs/heads/b")

    def overtaken(folder: int, name: str, content: bytes) -> None:
        linked.inside("refs/heads/b")
        put(folder, name, content)

    monkeypatch.setattr(packed_refs, "put", overtaken)
    packed.settle()
    packed.settle()
    assert "refs/heads/a" not in linked.copy.read_text()
    assert not (linked.common / "refs/heads/a").exists()
    assert refs.copy_back(linked.session) == []
    assert "a" not in linked.heads
    assert "b" in linked.heads


def test_a_change_inside_is_not_overwritten(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change by git inside between omac's reading and locking of the copy is kept, and omac reads the copy again."""
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.git("branch", "host")
    linked.git("pack-refs", "--all")

    def overtaken(folder: int, name: str, content: bytes) -> None:
        linked.inside("refs/heads/inside")
        put(folder, name, content)

    monkeypatch.setattr(packed_refs, "put", overtaken)
    packed.settle()
    monkeypatch.setattr(packed_refs, "put", put)
    assert "refs/heads/inside" in linked.copy.read_text()
    assert not linked.copy.with_name(LOCK).exists()
    assert packed.again_s is not None
    packed.settle()
    assert "refs/heads/host" in linked.copy.read_text()
    assert "refs/heads/inside" in linked.copy.read_text()
    assert "inside" in linked.heads


def test_git_that_takes_its_time(linked: Linked) -> None:
    """A ref whose file git removes late is packed on the host then, however often omac has looked before."""
    packed = PackedRefs(linked.session)
    packed.settle()
    linked.git("branch", "slow")
    linked.inside("refs/heads/slow")
    for _ in range(100):  # as at events of other folders
        packed.settle()
    assert packed.again_s is not None
    (linked.common / "refs/heads/slow").unlink()

    def is_back() -> bool:
        packed.settle()
        return "slow" in linked.heads

    eventually(is_back, 20.0, "the branch")
