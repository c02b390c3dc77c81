"""Git commands that write settings have the same effect in a real sandbox as outside, and no more.

Each script runs twice in a fresh copy of the same repository: outside, and in `omac sandbox run`. Its output, and the
state that the host's git reports afterwards, are the same.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_sandbox import FEWER_USERS, Box, Done, box
from tiers import some

DATES = {"GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z"}
GIT = ("git", "-c", "protocol.file.allow=always")
LAYOUTS = ("plain", "linked")
SCRIPTS = {
    "rename": "git branch -m renamed; git branch -m other older; git branch -M older other",
    "rename-and-copy": "git branch -m renamed; git branch -c renamed copy; git branch -d copy",
    "upstream": "git branch -q -u origin/dev; git switch -q dev; git branch --unset-upstream",
    "push": "git switch -qc topic; echo 1 > n; git add n; git commit -qm n; git push -q -u up topic; git status -sb",
    "delete": "git branch x origin/dev; git branch -d x; git branch -D other",
    "sparse": "git sparse-checkout set d; ls; git sparse-checkout list",
    "worktree": "git worktree add -q new dev; cd new; echo 1 > n; git add n; git commit -qm n; git worktree list",
    "worktree-gone": "git worktree add -q -b b new; git worktree move new on; git worktree remove on; git branch -d b",
    "submodule": """
        git -c protocol.file.allow=always submodule --quiet add $UP lib; git commit -qm lib; git submodule status
        git -C lib switch -qc own; git -C lib branch -m owned
    """,
    "remote": "git remote add second $UP; git fetch -q second; git switch -q -t -c follow second/dev",
    "settings": "git config user.name X; git config pull.rebase true; git config alias.st status; git config -l",
}
LOOKING = (
    ("config", "--list", "--local"),
    ("for-each-ref", "--format=%(refname) %(objecttype) %(upstream)"),
    ("status", "-sb", "--ignore-submodules=none"),
    ("ls-files", "-v"),
    ("worktree", "list"),
    ("submodule", "status"),
    ("fsck", "--no-progress"),
)


@pytest.fixture(params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a user's home and project, as root and as an ordinary user."""
    with box(request.param) as made:
        yield made


def git(world: Box, *words: str, cwd: Path) -> str:
    """Run the host's git, and return its output."""
    done = world.host(*GIT, *words, cwd=cwd, extra=DATES)
    assert done.status == 0, done.err
    return done.out


def repository(world: Box, layout: str) -> Path:
    """Make a clone whose `up` can be written, afresh at the same path; return the workdir in it or beside it."""
    base = world.home / "base"
    shutil.rmtree(base, ignore_errors=True)
    seed, clone = base / "seed", base / "clone"
    world.give(seed / "a", "1\n", 0o644)
    world.give(seed / "d" / "b", "1\n", 0o644)
    git(world, "init", "-q", "-b", "main", cwd=seed)
    git(world, "add", "-A", cwd=seed)
    git(world, "commit", "-q", "-m", "first", cwd=seed)
    git(world, "branch", "dev", cwd=seed)
    git(world, "clone", "-q", "--bare", "seed", "up.git", cwd=base)
    git(world, "clone", "-q", str(base / "up.git"), "clone", cwd=base)
    git(world, "remote", "add", "up", str(base / "up.git"), cwd=clone)
    git(world, "branch", "other", cwd=clone)
    if layout == "plain":
        return clone
    git(world, "worktree", "add", "-q", "-b", "work", str(base / "linked"), cwd=clone)
    git(world, "branch", "-q", "-u", "origin/main", cwd=base / "linked")
    return base / "linked"


def inside(world: Box, workdir: Path, script: str, *options: str) -> Done:
    """Run a shell script in the sandbox of a workdir."""
    up = str(world.home / "base" / "up.git")
    granted = ["--allow", up, *options]
    for name, value in {"UP": up, **DATES}.items():
        granted += ["--env", f"{name}={value}"]
    return world.run("sh", "-e", "-c", script, options=tuple(granted), workdir=workdir)


def seen(world: Box, workdir: Path) -> list[str]:
    """Return the host's view of a worktree by git, without the order of settings."""
    return ["\n".join(sorted(git(world, *words, cwd=workdir).splitlines())) for words in LOOKING]


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", some(SCRIPTS, of=12))
def test_as_outside(world: Box, layout: str, name: str) -> None:
    """A script in a sandbox has the status, output, settings, branches, worktrees and submodules of a run without."""
    workdir = repository(world, layout)
    up = str(world.home / "base" / "up.git")
    outside = world.host("sh", "-e", "-c", SCRIPTS[name], cwd=workdir, extra={"UP": up, **DATES})
    assert outside.status == 0, outside.err
    expected = seen(world, workdir)
    workdir = repository(world, layout)
    done = inside(world, workdir, SCRIPTS[name])
    # where refs are copied, gc packs none and expires no log: these settings are the copy's own
    own = "fetch.writecommitgraph", "gc.", "maintenance."
    printed = "".join(line for line in done.out.splitlines(keepends=True) if not line.startswith(own))
    assert (done.status, printed) == (0, outside.out), done.err
    git_said = [line for line in done.err.splitlines() if not line.startswith("omac: ")]
    assert git_said == outside.err.splitlines()
    assert seen(world, workdir) == expected
    assert "could not" not in done.err
    assert not [path for path in (world.home / "base").rglob("*omac*") if path.name != "omac-refs"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_git_tidies_up_before_a_sandbox_ends(world: Box, layout: str) -> None:
    """A commit that makes git pack objects ends once they are packed, and leaves no lock, whatever settings say."""
    workdir = repository(world, layout)
    script = "mkdir m; cd m; for n in $(seq 600); do echo $n > $n; done; git add .; git -c gc.auto=0 commit -qm many"
    assert world.host("sh", "-e", "-c", script, cwd=workdir, extra=DATES).status == 0
    git(world, "config", "--global", "gc.autoDetach", "true", cwd=workdir)
    git(world, "config", "gc.auto", "1", cwd=workdir)
    done = inside(world, workdir, "git commit -q --allow-empty -m second; git count-objects -v")
    assert done.status == 0, done.err
    assert "count: 0\n" in done.out, done
    assert "omac: " not in done.err
    assert not list((world.home / "base").rglob("*.lock"))
    assert not list((world.home / "base").rglob("gc.pid"))


EVIL = {
    "core.hooksPath": ".hooks",
    "core.fsmonitor": "touch MARK; false",
    "core.sshCommand": "touch MARK",
    "core.pager": "touch MARK",
    "diff.external": "touch MARK",
    "filter.x.clean": "touch MARK",
    "alias.status": "!touch MARK",
    "include.path": "../evil",
    "remote.origin.url": "/elsewhere",
    "remote.origin.pushurl": "/elsewhere",
    "remote.pushDefault": "elsewhere",
    "branch.main.remote": "/elsewhere",
    "branch.other.merge": "refs/heads/dev",
    "extensions.partialClone": "origin",
    "remote.new.url": "ext::touch MARK",
    "remote.new.vcs": "evil",
    "credential.helper": "!touch MARK",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_does_not_come_home(world: Box, layout: str) -> None:
    """Settings that run a program, lead elsewhere or are another branch's are not copied back, and omac names each."""
    workdir = repository(world, layout)
    before = git(world, "config", "--list", "--local", cwd=workdir)
    lines = [f"git config --replace-all {key} '{value}'" for key, value in EVIL.items()]
    done = inside(world, workdir, "; ".join(lines))
    assert done.status == 0, done.err
    assert git(world, "config", "--list", "--local", cwd=workdir) == before
    for key in EVIL:
        section, _, rest = key.partition(".")
        name = f"{section.lower()}.{rest}" if section in ("branch", "remote") else key.lower()
        assert f": {name.lower()}: was set inside" in done.err.lower(), key


@contextmanager
def waiting(world: Box, workdir: Path, script: str) -> Iterator[list[str]]:
    """Run a script in a sandbox, hold the sandbox, and yield a list that has its stderr once that has ended."""
    line = world.omac("sandbox", "run", "--workdir", str(workdir), "--", "sh", "-c", f"{script}; echo ready; cat")
    stderr: list[str] = []
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=world.environment, cwd=workdir,
        user=world.uid or None, group=world.uid or None, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        for output in iter(running.stdout.readline, "ready\n"):
            assert output, running.communicate()
        yield stderr
        stderr += running.communicate(timeout=30)[1].splitlines()
    assert running.returncode == 0, stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_host_does_not_see_it_meanwhile(world: Box, layout: str) -> None:
    """The host's settings are unchanged while the program runs, and the program cannot remove or replace their file."""
    workdir = repository(world, layout)
    config = world.home / "base" / "clone" / ".git" / "config"
    before = config.read_bytes()
    away = f"rm -f {config}; mv {config} x; ln -sf /etc/passwd {config}; mkdir x; mv {config.parent} x"
    script = f"git config user.name X; {away if layout == 'plain' else ':'}; test $(git config user.name) = X || exit 9"
    with waiting(world, workdir, script):
        assert config.read_bytes() == before
        assert config.is_file()
        assert not config.is_symlink()
    assert git(world, "config", "--local", "user.name", cwd=workdir) == "X\n"


@pytest.mark.full
def test_a_copy_that_is_made_unreadable(world: Box) -> None:
    """A sandbox's settings that git cannot read, a link, a folder, or none leave the host's settings as they were."""
    copy = "$(readlink .git/config)"
    for spoil in (f"echo '[' > {copy}", f"ln -sf /etc/passwd {copy}", f"rm {copy}; mkdir {copy}", f"rm {copy}"):
        workdir = repository(world, "plain")
        before = (workdir / ".git" / "config").read_bytes()
        done = inside(world, workdir, spoil)
        assert done.status == 0, done.err
        assert (workdir / ".git" / "config").read_bytes() == before
        assert "cannot be read" in done.err


def test_git_in_a_folder_of_a_repository(world: Box) -> None:
    """In a package of a repository git works by the option that the warning names; its settings stay out of reach."""
    package = repository(world, "plain") / "d"
    done = inside(world, package, "git log --oneline")
    assert done.status == 128
    option = re.search("For git: (--allow [^ ]+), or start there\n", done.err)
    assert option is not None, done.err
    before = (package.parent / ".git" / "config").read_bytes()
    done = inside(world, package, "git log --oneline; git config core.fsmonitor evil", *option[1].split())
    assert (done.out.count("first"), done.status) == (1, 0), done
    assert (package.parent / ".git" / "config").read_bytes() == before


def test_a_worktree_that_the_host_adds_meanwhile(world: Box) -> None:
    """A worktree outside the project that the host adds while the program runs stays."""
    workdir = repository(world, "linked")
    clone, beside = world.home / "base" / "clone", world.home / "base" / "beside"
    with waiting(world, workdir, ":") as stderr:
        git(world, "worktree", "add", "-q", str(beside), "dev", cwd=clone)
    assert [line for line in stderr if "beside" in line] == [
        f"omac: {clone}/.git/worktrees/beside: a worktree was added while the program ran: {beside}"
    ]
    assert git(world, "status", "-sb", cwd=beside).startswith("## dev")


def test_a_worktree_that_a_program_adds_beside_the_project(world: Box) -> None:
    """A worktree in a folder of the sandbox's own is reported once; its commits stay, and the host's git works."""
    workdir = repository(world, "plain")
    script = "git worktree add -q ../beside -b new; git -C ../beside commit -q --allow-empty -m new; cat ../beside/.git"
    done = inside(world, workdir, script)
    assert done.status == 0, done.err
    lines = [line for line in done.err.splitlines() if "worktrees/beside" in line]
    assert len(lines) == 1, done.err
    assert "names a worktree outside the project (git worktree prune removes what is left of it)" in lines[0]
    assert git(world, "log", "-1", "--format=%s", "new", cwd=workdir) == "new\n"
    git(world, "worktree", "prune", cwd=workdir)
    assert not (workdir / ".git" / "worktrees").exists()


ENVIRONMENTS = {
    "count": {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": ".hooks"},
    "parameters": {"GIT_CONFIG_PARAMETERS": "'core.hooksPath'='.hooks'"},
    "global": {"GIT_CONFIG_GLOBAL": "{home}/other"},
    "system": {"GIT_CONFIG_SYSTEM": "{home}/other"},
    "condition": {},
}


@pytest.mark.parametrize("way", some(ENVIRONMENTS, of=2))
def test_settings_of_the_users_environment(world: Box, way: str) -> None:
    """A program cannot leave a hook in the folder that the user's environment names for hooks of the host's git."""
    workdir = repository(world, "plain")
    mark = world.home / "MARK"
    environment = {name: value.format(home=world.home) for name, value in ENVIRONMENTS[way].items()}
    world.give(world.home / "other", "[core]\n\thooksPath = .hooks\n", 0o644)
    if way == "condition":
        world.give(world.home / ".gitconfig", '[includeIf "onbranch:main"]\n\tpath = other\n', 0o644)
    leave = f"mkdir -p .hooks && printf '#!/bin/sh\\ntouch {mark}\\n' > .hooks/pre-commit && chmod +x .hooks/pre-commit"
    commit = ("git", "commit", "-q", "--allow-empty", "-m", "x")
    line = world.omac("sandbox", "run", "--workdir", str(workdir), "--", "sh", "-c", leave)
    assert world.host(*line, cwd=workdir, extra=environment).status != 0
    assert world.host(*commit, cwd=workdir, extra=environment).status == 0
    assert not mark.exists()
    assert world.host("sh", "-c", leave, cwd=workdir).status == 0
    assert world.host(*commit, cwd=workdir, extra=environment).status == 0
    assert mark.exists()


def test_settings_that_git_does_not_read(world: Box) -> None:
    """A launch with settings that git cannot read is refused with git's message and the command that prints it."""
    workdir = repository(world, "plain")
    done = world.host(
        *world.omac("sandbox", "run", "--workdir", str(workdir), "--", "true"), extra={"GIT_CONFIG_COUNT": "x"}
    )
    assert done.status == 7
    assert "bogus count in GIT_CONFIG_COUNT" in done.err
    assert f"git -C {workdir} config --list" in done.err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hooks_that_did_not_run(world: Box, layout: str) -> None:
    """omac names at the end, in one line, the hooks that git would have run, and no others."""
    workdir = repository(world, layout)
    hooks = world.home / "base" / "clone" / ".git" / "hooks"
    for name in ("pre-commit", "pre-push", "update", "commit-msg.off"):
        world.give(hooks / name, "#!/bin/sh\ntouch /nowhere\n", 0o755)
    world.give(hooks / "post-commit", "#!/bin/sh\n", 0o644)
    commit = "git commit -q --allow-empty -m x"
    push = "git push -q up HEAD:new"
    line = f"omac: hooks of {hooks} did not run in the sandbox: "
    for script, expected in (("git status", []), (commit, ["pre-commit"]), (push, ["pre-push"])):
        done = inside(world, workdir, script)
        assert done.status == 0, done.err
        notes = [text.removeprefix(line) for text in done.err.splitlines() if "hooks" in text]
        assert notes == [f"{names}; to let them: omac settings set git.hooks read" for names in expected]


def test_programs_that_read_a_whole_repository(world: Box) -> None:
    """Programs that search or copy a project with its git folder meet no error; of hooks they see none."""
    workdir = repository(world, "plain")
    world.give(workdir / ".git" / "hooks" / "pre-commit", "#!/bin/sh\n# word\n", 0o755)
    script = (
        "find . > /tmp/list; grep -rqs nowhere . || echo $?; cp -r . /tmp/copy; tar cf /tmp/tar .; ls -A .git/hooks"
    )
    done = inside(world, workdir, script)
    assert (done.status, done.out, done.err) == (0, "1\n", "")
    assert inside(world, workdir, "touch .git/hooks/pre-commit").status != 0


def test_gc_beside_another_worktree(world: Box) -> None:
    """git collects garbage in a linked worktree, although it cannot write the logs of another one."""
    workdir = repository(world, "linked")
    git(world, "worktree", "add", "-q", "-b", "more", str(world.home / "base" / "more"), cwd=workdir)
    done = inside(world, workdir, "git commit -q --allow-empty -m x; git gc -q; git maintenance run --quiet")
    assert (done.status, done.err) == (0, "")
    assert git(world, "log", "-1", "--format=%s", cwd=workdir) == "x\n"
    tasks = "git config maintenance.pack-refs.enabled; git config maintenance.reflog-expire.enabled"
    assert inside(world, workdir, tasks).out == "false\nfalse\n"  # git 2.55 does both beside gc


def test_hooks_that_run(world: Box) -> None:
    """Hooks in the project run inside, so omac reports none; hooks in the home do not run and are reported."""
    workdir = repository(world, "plain")
    world.give(workdir / ".husky" / "pre-commit", "#!/bin/sh\ntouch ran\n", 0o755)
    git(world, "config", "core.hooksPath", ".husky", cwd=workdir)
    done = inside(world, workdir, "git commit -q --allow-empty -m x; ls ran")
    assert done.status == 0, done.err
    assert "hooks" not in done.err
    world.give(world.home / "hooks" / "pre-commit", "#!/bin/sh\nexit 1\n", 0o755)
    git(world, "config", "core.hooksPath", "~/hooks", cwd=workdir)
    done = inside(world, workdir, "git commit -q --allow-empty -m x")
    hooks = f"{world.home}/hooks"
    assert f"hooks of {hooks} did not run in the sandbox: pre-commit; to let them: --read {hooks}\n" in done.err
    world.give(world.home / "hooks" / "pre-commit", "#!/bin/sh\ntouch ran-too\n", 0o755)
    done = inside(world, workdir, "git commit -q --allow-empty -m x; ls ran-too", "--read", hooks)
    assert done.status == 0, done.err
    assert "hooks" not in done.err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_index_of_a_partial_commit(world: Box, layout: str) -> None:
    """`omac sandbox run` in a pre-commit hook of the host sees the files of that commit, in another project its own."""
    workdir = repository(world, layout)
    shows = 'git diff --cached --name-only; echo "${GIT_INDEX_FILE:+another index}"'
    line = shlex.join(world.omac("sandbox", "run", "--", "sh", "-c", shows))
    other = world.home / "base" / "seed"
    script = f"#!/bin/sh\nset -e\n{line}\ncd {other}\necho :\n{line}\n"
    world.give(world.home / "base" / "clone" / ".git" / "hooks" / "pre-commit", script, 0o755)
    for name in ("a", "d/b"):
        world.give(workdir / name, "2\n", 0o644)
    git(world, "add", "-A", cwd=workdir)
    done = world.host(*GIT, "commit", "-q", "-m", "part", "a", cwd=workdir)
    assert done.status == 0, done.err
    assert (done.out + done.err).splitlines() == ["a", "another index", ":", ""]
    assert git(world, "show", "--name-only", "--format=", "HEAD", cwd=workdir) == "a\n"
    done = world.host(*GIT, "commit", "-q", "-m", "rest", cwd=workdir)
    assert (done.out + done.err).splitlines() == ["d/b", "", ":", ""]


ALONE = ("--backend", "landlock")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_landlock_alone(world: Box, layout: str) -> None:
    """A repository with landlock alone needs --weaker-git; then commits work, and the record names the option."""
    workdir = repository(world, layout)
    script = (
        "echo 1 > n; git add n; git commit -qm n; git switch -qc topic; git commit -q --allow-empty -m x; git status"
    )
    done = inside(world, workdir, script, *ALONE)
    assert done.status == 7
    assert " --weaker-git -- COMMAND  # lets it change git's settings" in done.err
    done = inside(world, workdir, script, *ALONE, "--weaker-git")
    assert done.status == 0, done.err
    assert "run no git there meanwhile" in done.err
    assert git(world, "log", "--format=%s", "topic", cwd=workdir).split() == ["x", "n", "first"]
    assert git(world, "fsck", "--no-progress", cwd=workdir) == ""
    records = [json.loads(path.read_text()) for path in sorted((world.state / "spool").glob("[0-9]*.json"))]
    assert "landlock, weaker git" in [record["fields"].get("backend") for record in records]
    assert not list((world.home / "base").rglob("*omac*"))


def test_a_clone_with_worktrees_and_landlock_alone(world: Box) -> None:
    """--weaker-git works in a clone that has linked worktrees, too; what the program does to their own git folders is
    judged at the end."""
    linked = repository(world, "linked")
    clone = linked.with_name("clone")
    mark = world.home / "MARK"
    script = f"""
        git commit -q --allow-empty -m x; git worktree list | wc -l
        git init -q --bare evil; git -C evil config core.fsmonitor 'touch {mark}; false'
        echo $PWD/evil > .git/worktrees/linked/commondir
    """
    done = inside(world, clone, script, *ALONE, "--weaker-git")
    assert (done.status, done.out.strip()) == (0, "2"), done.err
    assert "/linked/commondir: takes the settings from elsewhere; set aside" in done.err
    assert git(world, "log", "-1", "--format=%s", cwd=clone) == "x\n"
    assert git(world, "status", "--short", cwd=linked) == ""
    assert not mark.exists()


def test_what_is_left_with_landlock_alone(world: Box) -> None:
    """Settings and hooks that the program changed are set aside at the end; harmless settings stay."""
    workdir = repository(world, "plain")
    mark = world.home / "MARK"
    script = f"""
        git config user.name X; git branch -m renamed  # first: what comes next is set aside while it runs
        printf '#!/bin/sh\\ntouch {mark}\\n' > hook; chmod +x hook; mv hook .git/hooks/pre-commit
        git config core.fsmonitor 'touch {mark}; false'
    """
    done = inside(world, workdir, script, *ALONE, "--weaker-git")
    assert done.status == 0, done.err
    assert world.host("git", "commit", "-q", "--allow-empty", "-m", "x", cwd=workdir).status == 0
    assert not mark.exists()
    assert git(world, "config", "--local", "user.name", cwd=workdir) == "X\n"
    assert git(world, "rev-parse", "--abbrev-ref", "renamed@{u}", cwd=workdir) == "origin/main\n"


def test_bubblewrap_is_not_weaker(world: Box) -> None:
    """A sandbox with mounts keeps hooks out of reach even with --weaker-git."""
    workdir = repository(world, "plain")
    done = inside(world, workdir, "touch .git/hooks/pre-commit", "--weaker-git")
    assert done.status != 0
    assert not (workdir / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize("option", ["", "--deny", "--read"])
def test_a_worktree_elsewhere_is_not_pruned(world: Box, option: str) -> None:
    """git, which does not see a worktree outside the project, would delete its HEAD and its index; the sandbox has
    something in its place, and no more of it."""
    away = world.home / "away"
    git(world, "init", "-q", cwd=world.workdir)
    git(world, "commit", "-q", "--allow-empty", "-m", "x", cwd=world.workdir)
    git(world, "worktree", "add", "-q", "-b", "b", str(away), cwd=world.workdir)
    world.host("sh", "-c", "echo y > y; git add y", cwd=away)
    before = git(world, "status", "-sb", cwd=away)
    script = f"git worktree prune -v; git worktree list --porcelain; git branch -m b c; cat {away}/y"
    done = world.run("sh", "-c", script, options=(option, str(away)) if option else ())
    assert "prun" not in done.out + done.err.replace("git worktree prune", ""), done
    assert ("y" in done.out.splitlines()) == (option == "--read")
    assert git(world, "status", "-sb", cwd=away) == before.replace("b", "c")
