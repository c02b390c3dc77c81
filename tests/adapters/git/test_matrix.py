"""Ordinary git operations in every layout: a sandbox leaves the host in the same state as a run without one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapters.git.boxed import ENVIRONMENT, host, run_inside
from adapters.git.layouts import LAYOUTS
from tiers import spread

from omac.adapters.git.layout import GitChoices

# Each begins on a branch with a commit that topic has not. A command that fails ends its script.
OPERATIONS = {
    "edit": """
        echo x > n; git add n; git rm -q a; git mv b d; git commit -q -m new; echo y > n; git commit -q -a -m newer
        git commit -q --amend -m amended; echo z > n; git commit -q --amend -a --no-edit
        echo x >> n; git stash -q; git stash pop -q; git stash -q -m kept; echo y >> d; git stash -q; git stash drop -q
        git reset -q --hard HEAD~1; git checkout -q topic -- t; git restore --staged t; git clean -q -f
        echo x > n; git add n; git log --oneline --all; git reflog; git diff HEAD~1; git blame c
        git worktree list; git show --stat
    """,
    "join": """
        git rebase -q topic; git switch -q -c after; git merge -q topic
        git switch -q -c picked spare; git cherry-pick topic topic~1; git revert --no-edit HEAD
        git rebase -q -i --exec true HEAD~1; git rebase -q --onto after HEAD~1; git switch -q -c again
        git switch -q -c merged spare; echo x > m; git add m; git commit -q -m m; git merge -q --no-edit topic
        git merge -q --no-ff --no-edit after; git switch -q -c last
        echo clash > t; git add t; git commit -q -m clash; git switch -q -c clash spare
        echo other > t; git add t; git commit -q -m clash; ! git rebase -q last; git rebase --abort
        ! git merge -q last; git merge --abort; ! git cherry-pick last; git cherry-pick --abort; git switch -q spare
    """,
    "names": """
        git tag v2; git tag -a -m message v3; git tag -d v1 || true; git tag -d v2
        git branch new; git branch -q -d spare; git branch -q -D other; git branch -f new topic
        git switch -q -c fresh; git switch -q -; git switch -q --detach topic; git switch -q new; git switch -q -c last
        git bisect start HEAD HEAD~2; git bisect run true; git bisect reset; git switch -q -c end; git branch -d last
    """,
    "rename": "git branch new; git branch -m new newer; git branch -m other older; "
    "git branch -m spare spare/deep; git branch -c topic copy",
    "upkeep": """
        git branch soon; git -c gc.autoDetach=false -c gc.auto=1 gc --auto -q; git gc -q; git pack-refs --all
        git branch later; git tag packed; git pack-refs --all; git branch -q -D other soon; git gc --auto
    """,
}
LOOKING = (
    ("rev-parse", "HEAD"),
    ("for-each-ref", "--format=%(refname) %(objectname) %(symref)"),
    ("ls-files", "--stage"),
    ("status", "--porcelain", "--branch", "--ignore-submodules=none"),
    ("stash", "list"),
    ("log", "--format=%H %s", "--all"),
    ("fsck", "--no-progress"),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Path]]]:
    """Yield, for each layout that was used so far, (the folder it lives in, a copy of that folder)."""
    made: dict[str, tuple[Path, Path]] = {}
    yield made
    for folder, template in made.values():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(template, ignore_errors=True)


@pytest.mark.parametrize(("name", "operation"), spread(LAYOUTS, OPERATIONS))
def test_as_outside(
    name: str, operation: str, built: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Status, object ids, refs, index and stash are those of a run without a sandbox, and omac leaves no file.

    If the settings are pinned in place, git renames a branch and then reports that it cannot write its settings.
    """
    _builder, where, own_config = LAYOUTS[name]
    folder, home, workdir = _fresh(name, built, tmp_path_factory)
    steps = OPERATIONS[operation]
    if operation == "rename" and not own_config:
        steps = steps.replace(";", " || test $? = 128;") + " || test $? = 128"
    script = f"set -e; cd ./{where}; {steps}"
    outside = _outside(workdir, home, script)
    expected = _state(workdir / where, home)

    folder, home, workdir = _fresh(name, built, tmp_path_factory)
    before = _names(folder)
    inside = run_inside(workdir, script, home=home)
    assert inside.status == outside.returncode == 0, inside.output + outside.stderr
    assert "omac" not in inside.output
    noise = _complaints(inside.output.replace("Device or resource busy", "Directory not empty"))
    if not own_config:
        noise = [
            line for line in noise if "could not write config file" not in line and "config-file failed" not in line
        ]
    assert noise == _complaints(outside.stderr)
    assert _state(workdir / where, home) == expected
    assert not [path for path in _names(folder) - before if "omac" in path]
    assert not inside.moved()


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "operation"),
    spread(["linked", "linked-packed", "nested", "bare-main", "plain", "packed"], ["edit", "join"]),
)
def test_own_branch_alone(
    name: str, operation: str, built: dict[str, tuple[Path, Path]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Operations that change the worktree's own branch or make new ones work as outside with `git.refs = branch`."""
    _builder, _where, _own_config = LAYOUTS[name]
    _place, home, workdir = _fresh(name, built, tmp_path_factory)
    script = f"set -e; {OPERATIONS[operation]}"
    assert _outside(workdir, home, script).returncode == 0
    expected = _state(workdir, home)
    _place, home, workdir = _fresh(name, built, tmp_path_factory)
    inside = run_inside(workdir, script, home=home, choices=GitChoices(refs="branch"))
    assert inside.status == 0, inside.output
    assert _state(workdir, home) == expected
    assert not inside.findings


def _fresh(name: str, built: dict[str, tuple[Path, Path]], factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a layout as it was when built, always at one path: (its folder, the home, the workdir)."""
    builder, _where, _own_config = LAYOUTS[name]
    if name not in built:
        folder = factory.mktemp(name)
        (folder / "home").mkdir()
        (folder / "home" / "w").write_text(str(builder(folder, folder / "home")))
        template = folder.with_name(folder.name + "-template")
        subprocess.run(["cp", "-a", str(folder), str(template)], check=True)
        built[name] = (folder, template)
    folder, template = built[name]
    shutil.rmtree(folder)
    subprocess.run(["cp", "-a", str(template), str(folder)], check=True)
    return folder, folder / "home", Path((folder / "home" / "w").read_text())


def _outside(workdir: Path, home: Path, script: str) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, "HOME": str(home)}
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=workdir, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def _complaints(output: str) -> list[str]:
    return [line for line in output.split("\n") if line.startswith(("error", "warning", "fatal"))]


def _state(worktree: Path, home: Path) -> list[str]:
    return [host("git", *argv, cwd=worktree, home=home, check=argv[0] != "stash") for argv in LOOKING]


def _names(place: Path) -> set[str]:
    return {os.path.join(folder, name) for folder, folders, files in os.walk(place) for name in (*folders, *files)}
