"""adapters/git/refs.py and branches.py: the refs and settings of a session's copy that are copied back to the host."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from adapters.git.boxed import act, host, noted, run_inside
from polling import eventually

from adapters.git import layouts
from omac.adapters.git import refs
from omac.adapters.git.layout import GitChoices, copy_back, lay_out, prepare
from omac.adapters.git.refs import is_name, parsed
from omac.domain.kernel.refusal import Refusal


def _refs(workdir: Path, home: Path) -> dict[str, str]:
    lines = host("git", "for-each-ref", "--format=%(refname) %(objectname)", cwd=workdir, home=home).splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def _left(base: Path) -> list[str]:
    return [str(path) for path in base.rglob("omac*")]


def test_deleting_a_packed_ref_comes_home(tmp_path: Path, home: Path) -> None:
    """A packed ref that is deleted inside is deleted on the host, and so is the older value below a loose ref. The
    host still has both names while the program runs."""
    workdir = layouts.linked_packed(tmp_path, home)
    packed_refs = tmp_path / "repo/.git/packed-refs"
    assert {"refs/heads/other", "refs/heads/spare"} <= parsed(packed_refs.read_bytes()).keys()
    assert (tmp_path / "repo/.git/refs/heads/other").exists()
    assert not (tmp_path / "repo/.git/refs/heads/spare").exists()
    before = _refs(workdir, home)
    script = "git branch -D spare other; git tag -d v1; git for-each-ref"
    with ThreadPoolExecutor(1) as threads:
        wait = "touch deleted; until rm seen 2> /dev/null; do sleep 0.01; done; rm deleted"
        running = threads.submit(run_inside, workdir, f"{script}; {wait}", home=home)
        eventually((workdir / "deleted").exists, 20.0, "the deletion inside")
        meanwhile = _refs(workdir, home)
        (workdir / "seen").touch()
        inside = running.result()
    assert meanwhile.keys() == before.keys()
    assert meanwhile["refs/heads/spare"] == before["refs/heads/spare"]
    assert inside.status == 0
    assert "refs/heads/spare" not in inside.output
    assert _refs(workdir, home).keys() == {"refs/heads/main", "refs/heads/topic", "refs/heads/work"}
    assert not {"refs/heads/other", "refs/heads/spare"} & parsed(packed_refs.read_bytes()).keys()
    assert inside.findings == []
    assert _left(tmp_path) == []


def test_a_ref_that_the_host_changed_meanwhile(tmp_path: Path, home: Path) -> None:
    """A ref that the host changed meanwhile is not deleted, and the report names it."""
    workdir = layouts.linked_packed(tmp_path, home)
    layout = lay_out(str(workdir), GitChoices(), str(home))
    prepare(layout)
    host("git", "update-ref", "-d", "refs/heads/spare", cwd=workdir, home=home)
    host("git", "branch", "spare", "topic", cwd=workdir, home=home)
    host("git", "pack-refs", "--all", cwd=workdir, home=home)
    copy = Path(layout.sessions[0].folder) / "packed-refs"
    copy.write_text("".join(line for line in copy.read_text().splitlines(keepends=True) if "spare" not in line))
    problems = copy_back(layout.sessions, layout.narrowed)
    assert any("refs/heads/spare" in ref and "could not be changed" in problem for ref, problem in problems)
    assert "refs/heads/spare" in _refs(workdir, home)


def test_settings_that_the_host_changes_while_a_launch_begins(tmp_path: Path, home: Path) -> None:
    """Settings that the host sets and unsets behind the copy of them, and before the launch notes what there is, are
    not taken for the program's work."""
    workdir = layouts.linked(tmp_path, home)
    host("git", "config", "branch.topic.description", "old", cwd=workdir, home=home)
    layout = lay_out(str(workdir), GitChoices(), str(home))
    prepare(layout)
    host("git", "config", "branch.main.description", "new", cwd=workdir, home=home)
    host("git", "config", "--unset", "branch.topic.description", cwd=workdir, home=home)
    assert act(noted(layout), home) == []
    settings = host("git", "config", "--get-regexp", "description", cwd=workdir, home=home)
    assert settings == "branch.main.description new\n"


def test_packing_inside_loses_nothing(tmp_path: Path, home: Path) -> None:
    """The host has all its refs after a `git pack-refs` inside, which removes its loose ones."""
    workdir = layouts.linked(tmp_path, home)
    before = _refs(workdir, home)
    run_inside(workdir, "git pack-refs --all", home=home)
    assert _refs(workdir, home) == before


def test_replacements_do_not_come_home(tmp_path: Path, home: Path) -> None:
    """Replacements do not reach the host: `git replace` cannot make a loose ref, and a packed one stays inside."""
    workdir = layouts.linked(tmp_path, home)
    script = (
        "git replace HEAD HEAD~1; "
        "echo $(git rev-parse HEAD~1) refs/replace/$(git rev-parse HEAD) >> $(readlink $C/packed-refs)"
    )
    inside = run_inside(workdir, f"C=$(git rev-parse --git-common-dir); {script}; git log -1 --format=%s", home=home)
    assert "third" in inside.output
    assert "work" in host("git", "log", "-1", "--format=%s", cwd=workdir, home=home)


@pytest.mark.parametrize(
    "builder", [layouts.linked, layouts.linked_packed, layouts.nested, layouts.bare_main, layouts.plain, layouts.packed]
)
def test_with_refs_branch_others_stay(builder: layouts.Builder, tmp_path: Path, home: Path) -> None:
    """Changed and deleted branches and tags of others keep their values; the own branch and new ones are as inside."""
    workdir = builder(tmp_path, home)
    before = _refs(workdir, home)
    script = """
        git commit -q --allow-empty -m own; git branch new; git branch -f topic HEAD; git branch -D spare; git tag -f v1
        HEAD git update-ref refs/heads/other HEAD; git update-ref refs/heads/deep/er HEAD; git branch -m new newer
        echo $(git rev-parse HEAD) > $(git rev-parse --git-path refs/heads/other)
    """
    inside = run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    after = _refs(workdir, home)
    own = host("git", "symbolic-ref", "HEAD", cwd=workdir, home=home).strip()
    head = host("git", "rev-parse", "HEAD", cwd=workdir, home=home).strip()
    assert after[own] == head != before[own]
    assert after["refs/heads/deep/er"] == after["refs/heads/newer"] == head
    unchanged = {name: value for name, value in after.items() if name in before and name != own}
    assert unchanged == {name: value for name, value in before.items() if name != own}
    assert {finding.path.split()[-1] for finding in inside.findings} >= {
        "refs/heads/topic",
        "refs/heads/spare",
        "refs/tags/v1",
    }
    assert after["refs/omac/set-aside/heads/topic"] == head
    twin = run_inside(workdir, script, home=home)
    assert _refs(workdir, home)["refs/heads/topic"] != before["refs/heads/topic"], twin.output


@pytest.mark.parametrize(
    "obstacle",
    [
        "git branch evil $C; git symbolic-ref refs/heads/topic refs/heads/evil",
        "git branch -qD topic; git branch topic/x $C",
        "git branch -qD topic; git branch topic/x $C; git pack-refs --all",
        "git update-ref refs/heads/topic $C; touch .git/refs/heads/topic.lock",
        "git branch theirs $C; echo garbage > .git/refs/heads/topic",
        "git branch evil $C; git pack-refs --all; git symbolic-ref refs/heads/topic refs/heads/evil",
        "git branch -f topic $C; git pack-refs --all; mkdir .git/refs/heads/topic; echo $C > .git/refs/heads/topic/x",
        "git update-ref refs/heads/topic $C; chmod -R a-w .git/refs .git/logs/refs",
        "git branch evil $C; echo $C$C | cut -c1-64 > .git/refs/heads/topic",
        "git branch -f topic $C; (echo ref: refs/heads/topic; yes '') | head -n 9000 > .git/refs/heads/long",
    ],
)
def test_nothing_keeps_a_ref_from_being_set_back(obstacle: str, tmp_path: Path, home: Path) -> None:
    """A ref is restored despite a lock, garbage, a symbolic ref or refs below its name, and no commit is lost."""
    workdir = layouts.plain(tmp_path, home)
    before = _refs(workdir, home)["refs/heads/topic"]
    script = f"C=$(git commit-tree -p HEAD -m theirs 'HEAD^{{tree}}'); echo $C; {obstacle}"
    inside = run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    after = _refs(workdir, home)
    assert after["refs/heads/topic"] == before
    assert host("git", "for-each-ref", "--format=%(symref)", "refs/heads/topic", cwd=workdir, home=home).strip() == ""
    assert inside.output.split()[0] in after.values()


@pytest.mark.parametrize("more", ["", "git pack-refs --all", "rm .git/refs/heads/deep"])
def test_a_ref_in_the_place_of_others_is_set_aside(more: str, tmp_path: Path, home: Path) -> None:
    """A branch that a program makes where other branches were, below its name, gives way to them."""
    workdir = layouts.plain(tmp_path, home)
    for name in ("deep/er", "deep/st/one"):
        host("git", "branch", name, cwd=workdir, home=home)
    before = _refs(workdir, home)
    script = f"git branch -qD deep/er deep/st/one; git branch deep $(git commit-tree -m x 'HEAD^{{tree}}'); {more}"
    done = run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    after = _refs(workdir, home)
    assert before.items() <= after.items(), done.findings
    assert "refs/heads/deep" not in after
    assert ("refs/omac/set-aside/heads/deep" in after) == ("rm" not in more)


def test_a_ref_that_cannot_be_set_back_is_not_said_to_be(tmp_path: Path, home: Path) -> None:
    """A branch whose commit a program has deleted is reported as what it is: changed, and not set back."""
    workdir = layouts.plain(tmp_path, home)
    host("git", "branch", "lost", cwd=workdir, home=home)
    lost = host("git", "commit-tree", "-m", "x", "HEAD^{tree}", cwd=workdir, home=home).strip()
    host("git", "update-ref", "refs/heads/lost", lost, cwd=workdir, home=home)
    script = f"git branch -qD lost; rm -f .git/objects/{lost[:2]}/{lost[2:]}"
    inside = run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    findings = list(map(str, inside.findings))
    assert any("refs/heads/lost: could not be set back" in finding for finding in findings), findings
    assert not any("is set back" in finding for finding in findings)


def test_refs_beyond_a_bound_end_no_protection(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refs that a program leaves in any number keep none from being set back; nor does the next launch begin, which
    would not know what all of them were."""
    monkeypatch.setattr(refs, "LOOSE_MAX", 40)
    workdir = layouts.plain(tmp_path, home)
    before = _refs(workdir, home)
    script = (
        "for n in $(seq 50); do mkdir -p .git/refs/$n; git update-ref refs/$n/x HEAD; done; git branch -f topic HEAD"
    )
    run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    assert before.items() <= _refs(workdir, home).items()
    with pytest.raises(Refusal, match="more than 40 files and folders") as refused:
        run_inside(workdir, "true", home=home, choices=GitChoices(refs="branch"))
    assert refused.value.fix == (f"git --git-dir={workdir}/.git pack-refs --all",)


def test_a_repository_that_is_gone_costs_no_other(tmp_path: Path, home: Path) -> None:
    """A nested repository that a person removes meanwhile is reported, and the refs of the others are set back."""
    workdir = layouts.plain(tmp_path, home)
    host("git", "init", "-q", "nested", cwd=workdir, home=home)
    before = _refs(workdir, home)
    layout = lay_out(str(workdir), GitChoices(refs="branch"), str(home))
    shutil.rmtree(workdir / "nested")
    host("git", "update-ref", "refs/heads/topic", "HEAD", cwd=workdir, home=home)
    done = dict(copy_back(layout.sessions, layout.narrowed, layout.copies))
    assert done[f"{workdir}/nested/.git"].startswith("was moved or removed: ")
    assert "is set back" in done[f"{workdir}/.git: refs/heads/topic"]
    assert before.items() <= _refs(workdir, home).items()


def test_a_branch_of_another_worktree_is_not_the_own(tmp_path: Path, home: Path) -> None:
    """A program that writes HEAD by hand cannot change another worktree's branch with `git.refs = branch`."""
    workdir = layouts.linked(tmp_path, home)
    before = _refs(workdir, home)
    script = "echo ref: refs/heads/main > $(git rev-parse --git-path HEAD); git commit -q --allow-empty -m x"
    for _ in range(2):
        run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    assert _refs(workdir, home)["refs/heads/main"] == before["refs/heads/main"]
    run_inside(workdir, script, home=home)
    assert _refs(workdir, home)["refs/heads/main"] != before["refs/heads/main"]


def test_settings_of_branches_come_home(tmp_path: Path, home: Path) -> None:
    """Tracking that is set inside is set on the host; a renamed branch keeps its own, and the old name has none. A
    branch that is deleted inside leaves no settings on the host."""
    layouts.bare_main(tmp_path, home)
    host("git", "clone", "-q", str(tmp_path / "repo.git"), "clone", cwd=tmp_path, home=home)
    host("git", "worktree", "add", "-q", "-b", "mine", str(tmp_path / "wt2"), cwd=tmp_path / "clone", home=home)
    for branch, upstream in (("old", "origin/spare"), ("deleted", "origin/topic")):
        host("git", "branch", "--track", branch, upstream, cwd=tmp_path / "clone", home=home)
    script = (
        "set -e; git switch -q -c t --track origin/topic; git branch -m old moved; "
        "git branch --track gone origin/main; git branch -D gone deleted"
    )
    inside = run_inside(tmp_path / "wt2", script, home=home)
    assert inside.status == 0, inside.output
    assert inside.findings == []
    for branch, upstream in (("t", "origin/topic"), ("moved", "origin/spare")):
        assert (
            host("git", "rev-parse", "--abbrev-ref", f"{branch}@{{u}}", cwd=tmp_path / "clone", home=home).strip()
            == upstream
        )
    settings = host("git", "config", "--get-regexp", "^branch", cwd=tmp_path / "clone", home=home)
    assert {line.split(".")[1] for line in settings.splitlines()} == {"main", "t", "moved"}


@pytest.mark.parametrize(
    "setting",
    [
        "core.fsmonitor evil",
        "branch.work.remote ext::evil",
        "branch.work.remote ../evil",
        "branch.work.merge --evil",
        "branch.work.mergeoptions evil",
        "alias.x !evil",
        "remote.origin.url ext::evil",
        "include.path evil",
        "extensions.partialClone evil",
    ],
)
def test_other_settings_stay_inside(setting: str, tmp_path: Path, home: Path) -> None:
    """Other settings hold in the sandbox, are reported by name, and never reach the host."""
    workdir = layouts.linked(tmp_path, home)
    config = tmp_path / "repo/.git/config"
    before = config.read_bytes()
    inside = run_inside(workdir, f"git config {setting} && git config {setting.split()[0]}", home=home)
    assert inside.status == 0, inside.output
    assert config.read_bytes() == before
    assert [finding.path.split()[-1].lower() for finding in inside.findings] == [setting.split()[0].lower()]
    assert "evil" not in inside.findings[0].what


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("refs/heads/a", True),
        ("refs/remotes/origin/é", True),
        ("refs/replace/a", False),
        ("HEAD", False),
        ("refs/heads/../../config", False),
        ("refs/heads/a b", False),
        ("refs/heads/a\nb", False),
        ("refs/heads/.a", False),
        ("refs/heads/a.lock", False),
        ("refs/heads//a", False),
    ],
)
def test_names(name: str, fine: bool) -> None:
    """A text that cannot be a ref's name is rejected, and is not read from packed refs."""
    assert is_name(name) is fine
    assert bool(parsed(f"{'a' * 40} {name}\n".encode())) is (fine or "\n" in name)
