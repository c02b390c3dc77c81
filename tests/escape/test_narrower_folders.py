"""Repositories in folders that a policy narrows: what git needs in them widens no denial and no read-only grant."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_sandbox import Box, Done

READING = "cat {0}/file {0}/git/HEAD; git -C {0} log --format=%s"
CHANGING = "echo x > {0}/file || echo kept; echo x > {0}/git/objects/x || echo kept; echo x > {0}/new || echo kept"


def repository(world: Box, root: Path, *, git: str = ".git") -> Path:
    """Make a repository with one commit, whose git folder is called `git`; return its worktree."""
    world.give(root / "file", "theirs\n", 0o644)
    script = "git init -q . && git add file && git commit -q -m first && (test {0} = .git || mv .git {0})"
    done = world.host("sh", "-c", script.format(git), cwd=root)
    assert done.status == 0, done.err
    return root


@contextmanager
def ready(world: Box, line: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Launch a program that prints "ready" and then reads its input; yield it when it has printed that."""
    with subprocess.Popen(
        line, cwd=world.workdir, env=world.environment, text=True, user=world.uid or None, group=world.uid or None,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as held:  # fmt: skip
        assert held.stdout is not None
        assert held.stdout.readline() == "ready\n"
        yield held


@pytest.mark.parametrize("git", [".git", "bare.git"])
@pytest.mark.parametrize(
    ("option", "at", "read", "changed"),
    [
        ("--deny", "folder", False, False),
        ("--deny", "folder/deep/lib", False, False),
        ("--read", "folder", True, False),
        ("--read", "folder/deep/lib", True, False),
        ("--read", ".", True, False),
        ("--deny", "other", True, True),
    ],
)
def test_a_repository_in_a_narrowed_folder(
    world: Box, git: str, option: str, at: str, read: bool, changed: bool
) -> None:
    """A program reads no file of a repository in a denied folder, and changes none in one that is granted to read."""
    root = repository(world, world.workdir / "folder" / "deep" / "lib", git=git)
    (world.workdir / "other").mkdir(exist_ok=True)
    options = (option, str(world.workdir / at))
    done = world.run("sh", "-c", READING.replace("/git/", f"/{git}/").format("folder/deep/lib"), options=options)
    assert ("theirs" in done.out, "ref: refs/heads" in done.out) == (read, read), done
    done = world.run("sh", "-c", CHANGING.replace("/git/", f"/{git}/").format("folder/deep/lib"), options=options)
    assert done.out == ("" if changed else "kept\n" * 3), done
    assert ((root / "file").read_text() == "x\n", (root / "new").exists()) == (changed, changed)
    assert changed or not (root / git / "objects" / "x").exists()


@pytest.mark.parametrize("named", [".git", ".git/objects"])
def test_the_git_folder_of_the_project_itself(world: Box, named: str) -> None:
    """A denial of the project's own git folder, or of a part of it, shows nothing there."""
    root = repository(world, world.workdir)
    script = f"ls -A {named}/info || echo denied; cat {named}/HEAD {named}/info/alternates"
    done = world.run("sh", "-c", script, options=("--deny", str(root / named)))
    assert done.out == "denied\n", done


@pytest.mark.parametrize("named", [".", ".git"])
def test_a_project_that_may_only_be_read(world: Box, named: str) -> None:
    """A grant to read counts more than what git needs of the project's own git folder: git reads and does not write."""
    root = repository(world, world.workdir)
    script = (
        "git log --format=%s; git commit -q --allow-empty -m second 2>/dev/null || echo x > .git/objects/x || echo kept"
    )
    done = world.run("sh", "-c", script, options=("--read", str(root / named)))
    assert done.out == "first\nkept\n", done
    assert world.host("git", "log", "-1", "--format=%s", cwd=root).out == "first\n"


def test_the_repository_of_a_linked_worktree(world: Box) -> None:
    """A denial of the repository that a worktree belongs to counts more than what a commit in the worktree needs."""
    clone = repository(world, world.home / "clone")
    worktree = world.home / "worktree"
    assert world.host("git", "worktree", "add", "-q", str(worktree), cwd=clone).status == 0
    script = f"git log --format=%s; ls {clone}/.git/objects {clone}/.git/refs && echo shown"
    assert world.run("sh", "-c", script, workdir=worktree).out.startswith("first\n")
    done = world.run("sh", "-c", script, workdir=worktree, options=("--deny", str(clone)))
    assert done.out == "", done


def test_a_grant_below_a_denial_keeps_its_pins(world: Box) -> None:
    """A repository that is granted below a denied folder can be committed to, and its hooks stay out of reach."""
    root = repository(world, world.workdir / "folder" / "lib")
    script = "cd folder/lib; echo x > .git/hooks/post-commit; git commit -q --allow-empty -m second; cat .git/hooks/x"
    options = ("--deny", str(root.parent), "--allow", str(root))
    done = world.run("sh", "-c", script, options=options)
    assert world.host("git", "log", "-1", "--format=%s", cwd=root).out == "second\n", done
    assert not (root / ".git/hooks/post-commit").exists()


@pytest.mark.parametrize("git", [".git", "bare.git"])
@pytest.mark.parametrize(
    ("harness", "folder", "read"),
    [
        ("claude", ".claude/plugins/marketplaces/shop", True),
        ("claude", ".claude/skills/shop", True),
        ("codex", ".codex/prompts/shop", True),
        ("opencode", ".local/share/opencode/bin/shop", True),
        ("opencode", ".local/share/opencode/snapshot/shop", False),
        ("claude", ".claude/projects/shop", True),
    ],
)
def test_a_repository_in_an_agents_folder(world: Box, git: str, harness: str, folder: str, read: bool) -> None:
    """Clones of plugins and skills, which the agent runs outside as well, cannot be changed inside; snapshots of other
    projects cannot be read. A repository in any other folder of the agent can be both read and changed."""
    root = repository(world, world.home / folder, git=git)
    is_open = "projects" in folder
    script = f"mkdir -p ~/{folder}; " + READING.replace("/git/", f"/{git}/").format(f"~/{folder}")
    done = world.run("sh", "-c", script, options=("--harness", harness))
    assert ("theirs" in done.out) == read, done
    script = CHANGING.replace("/git/", f"/{git}/").format(f"~/{folder}")
    done = world.run("sh", "-c", script, options=("--harness", harness))
    assert ((root / "file").read_text() == "x\n", (root / "new").exists()) == (is_open, is_open), done
    assert not (root / git / "objects" / "x").exists()
    if not is_open:
        assert "omac: " not in done.err, done.err


@pytest.mark.parametrize("folder", [".claude/skills/mine", ".claude/mine"])
def test_a_project_in_an_agents_folder(world: Box, folder: str) -> None:
    """A person who writes a skill for all projects works in a folder of the agent: its repository has the pins of any
    other, commits work, and the end is inspected at once."""
    root = repository(world, world.home / folder)
    script = "git commit -q --allow-empty -m second; ln -s x .git/y; echo x > .git/hooks/post-commit; git config a.b c"
    done = world.run("sh", "-c", script, workdir=root, options=("--harness", "claude"))
    assert not (root / ".git/hooks/post-commit").exists(), done
    assert "another launch" not in done.err
    assert ".git/y: is a symbolic link among git's files; set aside" in done.err
    assert "a.b: was set inside; the host's setting is as it was" in done.err
    assert world.host("git", "log", "-1", "--format=%s", cwd=root).out == "second\n"


def test_a_worktree_of_another_project_in_an_agents_folder(world: Box) -> None:
    """A worktree that an agent keeps in its own folder shows its repository to sandboxes of that project alone."""
    shop, other = (repository(world, world.home / name) for name in ("shop", "other"))
    worktree = world.home / ".codex/worktrees/1/shop"
    assert world.host("git", "worktree", "add", "-q", "-b", "side", str(worktree), cwd=shop).status == 0
    script = f"cat {shop}/.git/HEAD; git -C {worktree} commit -q --allow-empty -m second; echo x > {worktree}/.git"
    for project, head, subject in ((other, "", "first\n"), (shop, "ref: refs/heads/master\n", "second\n")):
        done = world.run("sh", "-c", script, workdir=project, options=("--harness", "codex"))
        assert done.out == head, done
        assert world.host("git", "log", "-1", "--format=%s", "side", cwd=shop).out == subject, done
        assert (worktree / ".git").read_text() == f"gitdir: {shop}/.git/worktrees/shop\n"
        assert "omac: " not in done.err
    shutil.rmtree(shop)
    assert world.run("true", workdir=other, options=("--harness", "codex")) == Done(0, "", "")


def test_what_a_person_does_in_a_narrowed_folder_meanwhile(world: Box) -> None:
    """Settings that a person makes while a program runs that cannot write there stay, and are no finding of the end:
    in a plugin that is installed meanwhile, and in a folder that is granted to read."""
    repository(world, world.home / ".claude/plugins/marketplaces/old")
    repository(world, world.workdir / "vendor/lib")
    new = world.home / ".claude/plugins/marketplaces/new"
    options = ("--harness", "claude", "--read", str(world.workdir / "vendor"))
    line = world.omac(
        "sandbox",
        "run",
        "--workdir",
        str(world.workdir),
        *options,
        "--",
        "sh",
        "-c",
        "echo ready; cat; touch .envrc; exit 3",
    )
    with ready(world, line) as held:
        repository(world, new)
        for root in (world.home / ".claude/plugins/marketplaces/old", world.workdir / "vendor/lib", new):
            assert world.host("git", "config", "core.pager", "less", cwd=root).status == 0
        _, errors = held.communicate()
    assert held.returncode == 3
    assert [said for said in errors.splitlines() if ".envrc" not in said] == [], errors
    for root in (world.home / ".claude/plugins/marketplaces/old", world.workdir / "vendor/lib", new):
        assert world.host("git", "config", "core.pager", cwd=root).out == "less\n"


def test_launches_that_overlap_and_narrow_differently(world: Box) -> None:
    """The end of a launch that could not write in a folder inspects what another one left there meanwhile."""
    root = repository(world, world.workdir / "vendor/lib")
    line = world.omac("sandbox", "run", "--deny", str(root.parent), "--", "sh", "-c", "echo ready; cat")
    with ready(world, line) as held:
        left = "ln -s x vendor/lib/.git/y; git init -q new; ln -s x new/.git/z"
        done = world.run("sh", "-c", f"git -C vendor/lib config core.pager evil; {left}")
        assert "another launch still runs there" in done.err
        _, errors = held.communicate()
    assert not [path for path in world.workdir.rglob("*") if path.is_symlink()], (done, errors)
    assert world.host("git", "config", "core.pager", cwd=root).out == ""


@pytest.mark.parametrize("option", ["--read", "--deny"])
def test_a_narrowed_folder_that_the_host_replaces_meanwhile(world: Box, option: str) -> None:
    """The mount on a folder ends with the folder: what the program makes in another of that name is inspected."""
    vendor, file = world.workdir / "vendor", world.workdir / "package.json"
    repository(world, vendor / "lib")
    world.give(file, "{}")
    options = (option, str(vendor), option, str(file))
    hook = "mkdir -p .git/hooks; cp /bin/true .git/hooks/post-checkout"
    script = f"echo ready; cat; echo 1 > package.json; cd vendor && git init -q lib && cd lib && {hook}"
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), *options, "--", "sh", "-c", script)
    with ready(world, line) as held:
        shutil.rmtree(vendor)
        world.give(vendor / "README")
        file.unlink()
        world.give(file, "{}")
        _, errors = held.communicate()
    assert held.returncode == 0, errors
    assert not (vendor / "lib/.git/hooks/post-checkout").exists(), errors
    assert f"{file}: is new or changed" in errors
    assert all(f"{path}: was replaced on the host while the program ran" in errors for path in (vendor, file))


def test_an_agents_settings_that_the_host_replaces_meanwhile(world: Box) -> None:
    """An agent can write what its host puts in the place of its settings; the end reports that, and only then."""
    settings = world.give(world.home / ".claude/settings.json", "{}")
    script = f"echo ready; cat; echo 1 > {settings}"
    line = world.omac(
        "sandbox", "run", "--workdir", str(world.workdir), "--harness", "claude", "--", "sh", "-c", script
    )
    for content in ("{}", "1\n"):
        with ready(world, line) as held:
            if content != "{}":
                settings.rename(settings.with_name("old"))
                world.give(settings, "{}")
            _, errors = held.communicate()
        assert settings.read_text() == content
        assert (f"{settings}: was replaced on the host" in errors) == (content != "{}"), errors


def test_a_file_that_has_another_name(world: Box) -> None:
    """A file that a program may only read, or not at all, is reported where the program could have given it another
    name before: what it wrote by that is reported, too."""
    file = world.give(world.workdir / "package.json", "{}")
    other = world.give(world.workdir / "Makefile", "")
    options = ("--read", str(file), "--deny", str(other))
    assert world.run("true", options=options) == Done(0, "", "")
    assert world.run("ln", "package.json", "x").status == 0
    done = world.run("sh", "-c", "echo 1 > x", options=options)
    assert file.read_text() == "1\n"
    assert f"{file} has another name" in done.err
    assert f"{file}: is new or changed" in done.err
    assert str(other) not in done.err
