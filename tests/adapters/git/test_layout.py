"""adapters/git/layout.py: the proof of where a repository is, and the entries that are granted for it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from adapters.git.boxed import host, run_inside
from programs import program_at

from adapters.git import layouts
from omac.adapters.git import config_targets
from omac.adapters.git.layout import GitChoices, Layout, lay_out
from omac.adapters.git.program import ConfigList
from omac.adapters.git.reftable import NO_COMMITS
from omac.domain.git.config import general_key
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, LINK, PRIVATE, READ, WRITE


def _look(workdir: Path, home: Path, **choices: str) -> Layout:
    return lay_out(str(workdir), GitChoices(**choices), str(home))


def _access(layout: Layout) -> dict[str, str]:
    return {entry.path: entry.access for entry in layout.entries}


def test_plain(tmp_path: Path, home: Path) -> None:
    """A plain repository gets entries in the workdir alone; its settings and hooks are pinned, and no file changes."""
    workdir = layouts.plain(tmp_path, home)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    layout = _look(workdir, home)
    access = _access(layout)
    assert access[f"{workdir}/.git"] == WRITE
    assert access[f"{workdir}/.git/config"] == access[f"{workdir}/.git/commondir"] == READ
    assert access[f"{workdir}/.git/hooks"] == DENY
    assert all(below(path, str(workdir)) for path in access)
    assert layout.fence == ()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert _access(_look(workdir, home, hooks="read"))[f"{workdir}/.git/hooks"] == READ


SHARED = ("logs", "objects", "objects/info", "refs", "worktrees", "worktrees/wt")


def test_linked(tmp_path: Path, home: Path) -> None:
    """A linked worktree gets a private common folder; objects, refs, logs and admin folder are writable and fenced."""
    workdir = layouts.linked(tmp_path, home)
    layout = _look(workdir, home)
    common = tmp_path / "repo" / ".git"
    access = _access(layout)
    assert access[str(common)] == PRIVATE
    writable = sorted(path for path, kind in access.items() if kind == WRITE)
    assert writable == [f"{common}/{name}" for name in SHARED]
    assert access[f"{common}/packed-refs"] == access[f"{common}/config"] == LINK
    assert access[f"{workdir}/.git"] == access[f"{common}/worktrees/wt/commondir"] == READ
    assert set(layout.fence) == {f"{common}/{name}" for name in SHARED if name != "objects/info"}


def test_runs_no_program(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of a repository, plain or linked, runs nothing beside the git that lists its settings: every start
    would wait for it."""
    workdir = layouts.linked(tmp_path, home)
    for path in (workdir, tmp_path / "repo"):
        listing = ConfigList(str(path), {"HOME": str(home)})
        with monkeypatch.context() as patch:
            for start in ("fork", "posix_spawn", "_fork_exec"):
                patch.setattr(subprocess if start == "_fork_exec" else os, start, _no_program)
            assert lay_out(str(path), GitChoices(), str(home), config_list=listing).entries


def _no_program(*words: object, **_options: object) -> int:
    raise AssertionError(f"a program was started: {words}")


def _forged_admin(base: Path, workdir: Path, where: Path) -> None:
    """Make an admin folder at `where` that claims the victim, and points back to the workdir as it should."""
    where.mkdir(parents=True)
    (where / "HEAD").write_text("ref: refs/heads/main\n")
    (where / "gitdir").write_text(f"{workdir}/.git\n")
    (where / "commondir").write_text(f"{base}/victim/.git\n")
    (workdir / ".git").write_text(f"gitdir: {where}\n")


def _to_victims_worktree(base: Path, workdir: Path) -> None:
    (workdir / ".git").write_text(f"gitdir: {base}/victim/.git/worktrees/theirs\n")


def _to_victim(base: Path, workdir: Path) -> None:
    (workdir / ".git").write_text(f"gitdir: {base}/victim/.git\n")


def _to_any_folder(base: Path, workdir: Path) -> None:
    (base / "ssh").mkdir()
    (workdir / ".git").write_text(f"gitdir: {base}/ssh\n")


def _relative_out(base: Path, workdir: Path) -> None:
    (workdir / ".git").write_text("gitdir: ../victim/.git\n")


def _through_link(base: Path, workdir: Path) -> None:
    (workdir / "l").symlink_to(base / "victim")
    (workdir / ".git").write_text("gitdir: l/.git\n")


def _dot_link(base: Path, workdir: Path) -> None:
    (workdir / ".git").symlink_to(base / "victim" / ".git")


def _admin_inside(base: Path, workdir: Path) -> None:
    _forged_admin(base, workdir, workdir / "x")


def _admin_inside_worktrees(base: Path, workdir: Path) -> None:
    _forged_admin(base, workdir, workdir / "worktrees" / "x")


def _plain_with_commondir(base: Path, workdir: Path) -> None:
    host("git", "init", "-q", str(workdir), cwd=base, home=base / "home")
    (workdir / ".git" / "commondir").write_text(f"{base}/victim/.git\n")


def _linked_objects(base: Path, workdir: Path) -> None:
    host("git", "init", "-q", str(workdir), cwd=base, home=base / "home")
    (workdir / ".git" / "info").rename(workdir / ".git" / "i")
    (workdir / ".git" / "info").symlink_to(base / "victim")


def _config_link(base: Path, workdir: Path) -> None:
    host("git", "init", "-q", str(workdir), cwd=base, home=base / "home")
    (workdir / ".git" / "config").unlink()
    (workdir / ".git" / "config").symlink_to(base / "victim" / ".git" / "config")


FORGED = (
    _to_victims_worktree,
    _to_victim,
    _to_any_folder,
    _relative_out,
    _through_link,
    _dot_link,
    _admin_inside,
    _admin_inside_worktrees,
    _plain_with_commondir,
    _linked_objects,
    _config_link,
)


@pytest.fixture
def victim(tmp_path: Path, home: Path) -> Path:
    """Return a repository of the same user, with a linked worktree, to which the workdir does not belong."""
    layouts.history(tmp_path / "victim", home)
    host("git", "worktree", "add", "-q", "-b", "theirs", str(tmp_path / "theirs"), cwd=tmp_path / "victim", home=home)
    return tmp_path / "victim"


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_claim_is_refused(
    forge: Callable[[Path, Path], None], tmp_path: Path, home: Path, victim: Path
) -> None:
    """A workdir whose files claim another repository is refused, and that repository is not granted."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    forge(tmp_path, workdir)
    with pytest.raises(Refusal) as caught:
        _look(workdir, home)
    assert caught.value.reason == "git-unsafe"
    assert str(workdir) in caught.value.message


@pytest.mark.parametrize("forge", FORGED)
def test_below_the_workdir_it_is_told(
    forge: Callable[[Path, Path], None], tmp_path: Path, home: Path, victim: Path
) -> None:
    """A nested folder with a forged claim gets nothing outside the workdir, and a warning names it."""
    workdir = tmp_path / "all" / "work"
    workdir.mkdir(parents=True)
    forge(tmp_path, workdir)
    layout = _look(tmp_path / "all", home)
    assert all(below(entry.path, str(tmp_path / "all")) for entry in layout.entries)
    assert any(str(workdir) in warning for warning in layout.warnings)


def test_worktree_that_was_moved_by_hand(tmp_path: Path, home: Path) -> None:
    """A worktree that was moved by hand is refused with a command that repairs it."""
    layouts.linked(tmp_path, home)
    (tmp_path / "wt").rename(tmp_path / "elsewhere")
    with pytest.raises(Refusal) as caught:
        _look(tmp_path / "elsewhere", home)
    host("sh", "-c", caught.value.fix[0], cwd=tmp_path, home=home)
    assert _look(tmp_path / "elsewhere", home).fence


def test_separate_git_folder_that_names_no_worktree(tmp_path: Path, home: Path) -> None:
    """A separate git folder without proof is refused; the fix only shows its path, a person sets `core.worktree`."""
    layouts.history(tmp_path / "repo", home, "--separate-git-dir", str(tmp_path / "elsewhere"))
    with pytest.raises(Refusal) as caught:
        _look(tmp_path / "repo", home)
    assert str(tmp_path / "elsewhere") in host("sh", "-c", caught.value.fix[0], cwd=tmp_path, home=home)
    assert str(tmp_path / "elsewhere") not in caught.value.fix[0]
    host("git", "config", "core.worktree", str(tmp_path / "repo"), cwd=tmp_path / "repo", home=home)
    assert _access(_look(tmp_path / "repo", home))[str(tmp_path / "elsewhere")] == WRITE


def test_folder_of_a_repository(tmp_path: Path, home: Path) -> None:
    """A repository above the workdir is not granted, and the warning names the option that would grant it."""
    workdir = layouts.plain(tmp_path, home) / "sub"
    workdir.mkdir()
    layout = _look(workdir, home)
    assert layout.entries == ()
    assert layout.warnings[0].endswith(f"For git: --allow {workdir.parent}, or start there")


def test_folder_of_git(tmp_path: Path, home: Path) -> None:
    """A workdir in git's own folder is refused."""
    repository = layouts.plain(tmp_path, home)
    with pytest.raises(Refusal, match="git's own folder"):
        _look(repository / ".git" / "hooks", home)


def test_bare_workdir(tmp_path: Path, home: Path) -> None:
    """A program in a bare repository can make branches, but cannot change its settings."""
    layouts.bare_main(tmp_path, home)
    inside = run_inside(tmp_path / "repo.git", "git branch new main; git config core.fsmonitor evil", home=home)
    assert "could not write" in inside.output
    assert "refs/heads/new" in host("git", "for-each-ref", cwd=tmp_path / "repo.git", home=home)
    assert "evil" not in (tmp_path / "repo.git" / "config").read_text()


def test_no_repository(tmp_path: Path, home: Path) -> None:
    """A folder without a repository gets no entry, no fence and no warning."""
    (tmp_path / "w").mkdir()
    layout = _look(tmp_path / "w", home)
    assert (layout.entries, layout.warnings, layout.fence) == ((), (), ())


def test_settings_that_cannot_be_read(tmp_path: Path, home: Path) -> None:
    """Settings that git cannot read are refused with the line of the error."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / ".git" / "config").write_text("[core\n")
    with pytest.raises(Refusal, match="bad config line 1"):
        _look(workdir, home)


def test_reftable(tmp_path: Path, home: Path) -> None:
    """A repository whose refs an old git cannot read is refused by name; with a newer one no commit can be made inside,
    which is said beforehand."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / ".git" / "reftable").mkdir()
    assert _look(workdir, home).entries  # a folder of that name alone is none
    with (workdir / ".git" / "config").open("a") as settings:
        settings.write("[extensions]\n\trefStorage = reftable\n")
    version = tuple(int(part) for part in host("git", "--version", cwd=tmp_path, home=home).split()[2].split(".")[:2])
    if version >= (2, 45):
        (warning,) = _look(workdir, home).warnings
        assert warning == NO_COMMITS.format(f"{workdir}/.git")
    else:
        with pytest.raises(Refusal, match="reftable") as caught:
            _look(workdir, home)
        assert caught.value.reason == "git-unsupported"


FOLDERS = ("core.hooksPath", "init.templateDir")
SIGNERS = ("gpg.ssh.allowedSignersFile", "gpg.ssh.revocationFile")  # whose signatures count as good


@pytest.mark.parametrize(
    "setting",
    [
        *FOLDERS, "include.path", "core.attributesFile", "core.fsmonitor", "filter.x.clean",
        "pager.log", "hook.x.command", "gc.recentObjectsHook", "submodule.x.update", "remote.x.uploadPack", *SIGNERS,
        "lfs.customTransfer.x.path", "lfs.extension.x.clean", "gpg.ssh.defaultKeyCommand",
        "annex.freezecontent-command", "remote.x.annex-start-command",
    ],
)  # fmt: skip
@pytest.mark.parametrize("there", [True, False])
def test_what_settings_name_in_the_tree_stays(setting: str, there: bool, tmp_path: Path, home: Path) -> None:
    """A file of the tree that the repository's own settings make git run or read cannot be changed, or made."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / "tools").mkdir()
    target = workdir / "tools" / "it"
    if there:
        if setting in FOLDERS:
            target.mkdir()
        else:
            target.write_text("")
    value = {"include.path": "../tools/it", "submodule.x.update": "!tools/it"}.get(setting, "tools/it")
    host("git", "config", setting, value, cwd=workdir, home=home)
    plant = "echo evil > tools/it; mkdir -p tools/it; echo evil > tools/it/pre-commit"
    run_inside(workdir, f"{plant}; mv tools t2; mkdir tools; {plant}; echo fine > f", home=home)
    assert (workdir / "f").read_text() == "fine\n"
    is_command = setting not in (*FOLDERS, *SIGNERS, "include.path", "core.attributesFile")
    if there or not is_command:  # one that is not there is only told of
        assert not target.is_file() or target.read_text() == ""
        assert not (target / "pre-commit").exists()


def test_settings_are_found_by_their_general_keys() -> None:
    """Each setting of the tables is one that a key of a configuration can have: with one star, for all between dots."""
    keys = {*config_targets.COMMANDS, *config_targets.READ, *config_targets.HOOKS, *config_targets.INCLUDES}
    assert [key for key in keys if general_key(key) != key] == []


def test_what_settings_name_behind_a_link_to_itself(tmp_path: Path, home: Path) -> None:
    """A launch is refused where a folder that settings name lies behind a link that leads to itself."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / "loop").symlink_to("loop")
    host("git", "config", "core.hooksPath", "loop/hooks", cwd=workdir, home=home)
    with pytest.raises(Refusal, match=r"loop is a symbolic link, so it cannot be pinned") as refused:
        _look(workdir, home)
    assert refused.value.reason == "git-unsafe"


def test_words_of_commands_that_are_no_paths(tmp_path: Path, home: Path) -> None:
    """A folder that is called like a program, or like a word of a command, can be changed; a script cannot."""
    workdir = layouts.plain(tmp_path, home)
    words = {
        "core.pager": "less -R", "credential.helper": "store", "filter.lfs.clean": "git-lfs clean -- %f",
        "credential.https://x.org.helper": "!/usr/bin/gh auth git-credential", "diff.x.textconv": "sh convert.sh",
    }  # fmt: skip
    for key, value in words.items():
        host("git", "config", "--global", key, value, cwd=workdir, home=home)
    folders = ("less", "store", "clean", "auth")
    for name in folders:
        (workdir / name).mkdir()
    (workdir / "convert.sh").write_text("")
    run_inside(workdir, f"echo evil >> convert.sh; for f in {' '.join(folders)}; do echo x > $f/x; done", home=home)
    assert [name for name in folders if not (workdir / name / "x").exists()] == []
    assert (workdir / "convert.sh").read_text() == ""


def test_words_of_commands_that_a_shell_takes_apart(tmp_path: Path, home: Path) -> None:
    """A script cannot be changed that a command names by way of the worktree, in quotes, or beside a sign."""
    workdir = layouts.plain(tmp_path, home)
    words = {
        "core.pager": "less --lesskey-src=t/keys", "credential.helper": '!"$PWD"/t/helper',
        "filter.x.clean": "$(git rev-parse --show-toplevel)/t/clean %f", "diff.x.textconv": "A=1 ${PWD}/t/text",
        "filter.x.smudge": "sh -c 'cat|t/smudge;t/more'",
    }  # fmt: skip
    for key, value in words.items():
        host("git", "config", key, value, cwd=workdir, home=home)
    scripts = [workdir / "t" / name for name in ("keys", "helper", "clean", "smudge", "more", "text", "other")]
    (workdir / "t").mkdir()
    for script in scripts:
        script.write_text("")
    run_inside(workdir, "for f in t/*; do echo evil >> $f; done", home=home)
    assert [script.name for script in scripts if script.read_text()] == ["other"]


def test_scripts_of_commands_that_come_to_be(tmp_path: Path, home: Path) -> None:
    """A new script is reported that a setting names, of which the program is another; a word like any other is not."""
    workdir = layouts.plain(tmp_path, home)
    host("git", "config", "filter.x.clean", "python3 t/clean", cwd=workdir, home=home)
    host("git", "config", "filter.y.clean", "sh run.sh clean", cwd=workdir, home=home)
    host("git", "config", "filter.z.clean", '"$PWD"/t/new', cwd=workdir, home=home)
    inside = run_inside(workdir, "mkdir t; touch t/clean t/new run.sh clean", home=home)
    found = {Path(finding.path).name: str(finding) for finding in inside.findings}
    assert sorted(path for path, text in found.items() if "git, as its settings name it, obeys it" in text) == [
        "clean", "new", "run.sh",
    ]  # fmt: skip
    assert len(inside.findings) == 3


def test_hooks_folder_of_the_user(tmp_path: Path, home: Path) -> None:
    """A program cannot make the folder of a worktree that `core.hooksPath` in ~/.gitconfig names."""
    workdir = layouts.plain(tmp_path, home)
    (home / ".gitconfig").write_text("[core]\n\thooksPath = .githooks\n")
    run_inside(workdir, "mkdir -p .githooks; echo evil > .githooks/pre-commit; echo fine > f", home=home)
    assert (workdir / "f").exists()
    assert not (workdir / ".githooks").exists()


def test_hook_that_is_a_link_into_the_tree(tmp_path: Path, home: Path) -> None:
    """A program cannot change the file in the tree that a hook leads to."""
    workdir = layouts.plain(tmp_path, home)
    (workdir / "check").write_text("#!/bin/sh\n")
    (workdir / ".git" / "hooks" / "pre-commit").symlink_to("../../check")
    run_inside(workdir, "echo evil >> check; rm check; echo evil > check; echo fine > f", home=home)
    assert (workdir / "check").read_text() == "#!/bin/sh\n"
    assert (workdir / "f").exists()


@pytest.mark.parametrize(("hooks", "ran"), [("deny", False), ("read", True)])
@pytest.mark.parametrize("builder", [layouts.plain, layouts.linked])
def test_hooks_run_inside_only_when_asked_for(
    hooks: str, ran: bool, builder: layouts.Builder, tmp_path: Path, home: Path
) -> None:
    """`git.hooks = read` lets the repository's own hooks run in the sandbox."""
    workdir = builder(tmp_path, home)
    program_at(tmp_path / "repo" / ".git" / "hooks" / "pre-commit", "#!/bin/sh\ntouch ran\n")
    inside = run_inside(workdir, "git commit -q --allow-empty -m x", home=home, choices=GitChoices(hooks=hooks))
    assert inside.status == 0, inside.output
    assert (workdir / "ran").exists() is ran


def test_objects_of_another_repository(tmp_path: Path, home: Path) -> None:
    """A clone that shares objects is not granted their folder, and the warning names it outside of any command."""
    layouts.plain(tmp_path, home)
    host("git", "clone", "-q", "--shared", "repo", "shared", cwd=tmp_path, home=home)
    layout = _look(tmp_path / "shared", home)
    assert f"{tmp_path}/repo/.git/objects" in layout.warnings[0]
    assert "--read /" not in layout.warnings[0]
    assert all(below(entry.path, str(tmp_path / "shared")) for entry in layout.entries)
