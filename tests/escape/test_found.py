"""Ways out of the sandbox that were found by trying: none is open any more, and harmless work like them succeeds.

Each plant is judged by the programs that the host's git, or omac itself, then runs and the files that it writes, as
root and as an unprivileged user.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually
from real_sandbox import Box, Done, readable_package
from tiers import everything, spread

DATES = {"GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}

# $W: the project; $E: where a git folder is hidden; $EVIL: a command that the host must not run
HIDDEN = (
    'git init -q --bare "$E"; rm -rf "$E/hooks"; git config -f "$E/config" core.bare false;'
    ' git config -f "$E/config" core.worktree $W/n; git config -f "$E/config" core.fsmonitor "$EVIL"; mkdir -p n;'
    " git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),n; "
)
NESTED = (
    "git init -q $E; git -C $E commit -q --allow-empty -m x;"
    " git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),$E; "
)
ARMED = NESTED + 'git -C $E config core.fsmonitor "$EVIL"; '
BARE = "git init -q --bare .; rm -rf hooks; git config core.bare false; git config core.worktree $PWD; "
DEEP = "a/" * 230 + "n"

# name: (where it hides, the plant)
PLANTS = {
    "two folders deep in .git": (".git/foo/evil", HIDDEN + "echo gitdir: ../.git/foo/evil > n/.git"),
    "a newline in its name": (".git/ev\nil", HIDDEN + 'printf "gitdir: ../.git/ev\\nil\\n" > n/.git'),
    "a pointer with a long end": (
        ".git/evil",
        HIDDEN + "(echo gitdir: ../.git/evil; head -c 9000 /dev/zero | tr '\\0' '\\n') > n/.git",
    ),
    "through a link and back": (
        ".git/x/.git",
        HIDDEN + "mkdir -p .git/x/sub; ln -s .git/x/sub lnk; echo gitdir: ../lnk/../.git > n/.git",
    ),
    "deeper than anybody looks": (DEEP, "mkdir -p $E; " + ARMED),
    "in a folder that cannot be listed": ("d/n", ARMED + "chmod 0111 d"),
    "behind worktrees that cannot be listed": ("n", ARMED + "mkdir .git/worktrees; chmod 0 .git/worktrees"),
    "behind submodules that cannot be listed": ("n", ARMED + "mkdir -p .git/modules; chmod 0111 .git/modules"),
}
# names in MERGE_RR, a list of files that git copies to rr-cache when somebody commits
RECORDED = {
    "by its path": "$SECRET",
    "by way up": "../.ssh/key",
    "through a link": "link/key",
}
LINK = "rm -f .git/logs/refs/heads/{0}; ln -s $HOME/.bashrc .git/logs/refs/heads/{0}"
LONG = "b" * 245
# logs that are links to a file of the user's, to which the host's next commit would append
LINKS = {
    "behind a folder that is too deep": "for b in $(seq 40); do mkdir -p .git/zz$b/" + "a/" * 45 + "; done; "
    "git checkout -qb topic; " + LINK.format("topic"),
    "of a branch whose name says objects": "git checkout -qb objects/a/b; " + LINK.format("objects/a/b"),
    "of a branch whose name is full": f"git checkout -qb {LONG}; " + LINK.format(LONG),
}


@pytest.mark.parametrize("name", PLANTS)
def test_the_hosts_git_runs_nothing(world: Box, name: str) -> None:
    """A hidden repository with settings of an agent's runs nothing at the next `git status`; left alone, it would."""
    hidden, script = PLANTS[name]
    repository(world)
    attacked(world, script, hidden)
    git(world, "status")
    assert not canary(world).exists()


@pytest.mark.parametrize("name", PLANTS)
def test_without_a_sandbox_it_would_run(world: Box, name: str) -> None:
    """Each plant is an attack: made on the host, where omac inspects nothing, it runs at the next `git status`."""
    hidden, script = PLANTS[name]
    repository(world)
    world.host("bash", "-c", script, extra=DATES | told(world, hidden))
    canary(world).unlink(missing_ok=True)
    git(world, "status")
    assert canary(world).exists()


# a repository in the tool cache, which nothing inspects, and a link of the project that leads there
CACHED = (
    "mkdir $OMAC_CACHE_DIR/deep; E=$OMAC_CACHE_DIR/deep/evil; " + ARMED.replace(",$E; ", ",lnk; ") + "printf"
    " '[submodule \"lnk\"]\\n path = lnk\\n url = ./x\\n' > .gitmodules; git config submodule.lnk.active true; "
)
LINKS_TO_IT = {
    "at once": "ln -s $E lnk",
    "to the folder above": "ln -s ${E%/*} dir; ln -s dir/evil lnk",
    "by a way up": "mkdir -p a/b; ln -s ../../$(realpath --relative-to=. $E) a/b/l; ln -s a/b/l lnk",
    "to what is not there": "ln -s $E lnk; mv $E $E-x",
    "to a folder around it": "ln -s / lnk; git update-index --force-remove lnk; git config -f .gitmodules"
    " submodule.lnk.path lnk$E; git update-index --add --cacheinfo 160000,$(git -C $E rev-parse HEAD),lnk$E",
    "by what the reader has": "ln -s /proc/self/root$E a; ln -s /proc/self/cwd/../../../../../..$E b;"
    " ln -s /proc/self c; ln -s c/cwd/../../../../../..$E lnk",
}


@pytest.mark.parametrize("name", LINKS_TO_IT)
def test_the_hosts_git_obeys_nothing_of_the_tool_cache(world: Box, name: str) -> None:
    """A link that leads to a folder of the tool cache is set aside; links to files of it, and within, stay."""
    repository(world)
    decent = "cd $W; C=$OMAC_CACHE_DIR; touch $C/wheel; ln -s $C/wheel .; mkdir d; ln -s d e; ln -s deep $C/g"
    attacked(world, f"{CACHED}{LINKS_TO_IT[name]}; {decent}", "")
    git(world, "ls-files", "--recurse-submodules")
    for folder in ("lnk", "dir/evil", "a/b/l", "a", "b"):
        world.host("sh", "-c", f"cd {folder} && git status")
    assert not canary(world).exists()
    assert {path.name for path in world.workdir.rglob("*") if path.is_symlink()} - {"lnk"} == {"e", "wheel"}
    assert not (world.workdir / "lnk").exists()
    assert [path.name for path in world.home.glob(".cache/omac/*/tools/*") if path.is_symlink()] == ["g"]


# $R: the repository in the tool cache, as seen from the project; from where omac is started, another place, or a file
READERS = {
    "by a link of the system's": "ln -s /dev/fd/../cwd/$R lnk",
    "by two links": "ln -s /dev/fd d; ln -s d/../cwd/$R lnk",
    "to a file for omac": "cd sub; mkdir -p ${R%/*}; touch $R; ln -s /proc/self/cwd/$R ../lnk",
    "in circles for omac": "cd sub; mkdir -p ${R%/*}; ln -s evil $R; ln -s /proc/self/cwd/$R ../lnk",
}


@pytest.mark.parametrize("name", READERS)
def test_a_link_that_leads_the_hosts_git_elsewhere_than_omac(world: Box, name: str) -> None:
    """A link by which a reader's current folder counts is set aside, wherever omac is started; links to standard
    streams and to files of /proc stay."""
    repository(world)
    folder = world.give(world.workdir / "sub" / "x").parent
    options = tuple(word for item in told(world, "").items() for word in ("--env", "=".join(item)))
    decent = "cd $W; ln -s /dev/stdout log; ln -s /proc/self/fd fd; ln -s /proc/mounts mtab"
    script = f"{CACHED}R=$(realpath --relative-to=. $E); {READERS[name]}; {decent}"
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), *options, "--", "bash", "-c", script)
    world.host(*line, cwd=folder, extra=DATES)
    git(world, "ls-files", "--recurse-submodules")
    assert not canary(world).exists()
    assert {path.name for path in world.workdir.iterdir() if path.is_symlink()} - {"d"} == {"fd", "log", "mtab"}


# 39 links, each of which goes a long way to the next one, and 100 that lead to the first
LONG_WAYS = """\
import os
os.mkdir("a")
for number in range(40): os.symlink(f"{os.getcwd()}/{'a/../' * 780}c{number + 1}", f"c{number}")
for number in range(100): os.makedirs(f"d{number}"), os.symlink(os.path.abspath("c1"), f"d{number}/NAME")
"""


@pytest.mark.parametrize("name", ["link", "Makefile", ".env"])
def test_links_that_take_long_to_follow(world: Box, name: str) -> None:
    """Links that lead along tens of thousands of folders delay neither the end of a launch nor the next one; where they
    lead is not known, so they are set aside."""
    done = world.run("python3", "-c", LONG_WAYS.replace("NAME", name), seconds=20)
    assert "too far" in done.err
    world.host("sh", "-c", "rm -r a d*")
    assert world.host("python3", "-c", LONG_WAYS.replace("NAME", name)).status == 0
    assert world.run("true", seconds=20).status == 0


def test_a_decent_repository_stays(world: Box) -> None:
    """The twin: a repository in the project without such settings is left as it is."""
    repository(world)
    attacked(world, NESTED, "n")
    assert (world.workdir / "n" / ".git" / "HEAD").exists()
    assert "x" in git(world, "log", "--format=%s", cwd=world.workdir / "n").out


@pytest.mark.parametrize("around", ["nothing", "a repository"])
def test_a_project_that_becomes_a_git_folder_itself(world: Box, around: str) -> None:
    """The host's git obeys no settings of a git folder that a session makes of the project: HEAD, objects and refs."""
    project = world.workdir / "sub"
    if around == "a repository":
        repository(world)
    world.give(project / "file", "x")
    attacked(world, BARE + 'git config core.fsmonitor "$EVIL"', "", workdir=project)
    git(world, "status", cwd=project)
    assert not canary(world).exists()
    world.host("bash", "-c", "rm -rf HEAD* config objects refs; " + BARE + 'git config core.fsmonitor "$EVIL"',
               extra=told(world, ""), cwd=project)  # fmt: skip
    git(world, "status", cwd=project)
    assert canary(world).exists()


@pytest.mark.parametrize("name", LINKS)
def test_the_host_appends_through_no_log(world: Box, name: str) -> None:
    """A branch's log that is a link is set aside before the host commits; commits are logged again."""
    repository(world)
    precious = world.give(world.home / ".bashrc", "safe\n")
    attacked(world, LINKS[name], "")
    world.give(world.workdir / "f", "changed")
    assert git(world, "commit", "-qam", "by the host").status == 0
    assert precious.read_text() == "safe\n"
    assert "by the host" in git(world, "reflog").out


@pytest.mark.parametrize("name", LINKS)
def test_without_a_sandbox_the_host_would(world: Box, name: str) -> None:
    """Each link is an attack: without a sandbox the host's next commit writes to the user's file."""
    repository(world)
    precious = world.give(world.home / ".bashrc", "safe\n")
    world.host("bash", "-c", LINKS[name], extra=DATES)
    world.give(world.workdir / "f", "changed")
    git(world, "commit", "-qam", "by the host")
    assert "by the host" in precious.read_text()


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("guarded", [True, False])
def test_the_hosts_git_copies_no_file_of_the_home(world: Box, name: str, guarded: bool) -> None:
    """The next commit records no conflict resolution from a file outside the project; without omac it does."""
    repository(world)
    secret = world.give(world.home / ".ssh" / "key", "secret")
    conflict = "a" * 40
    script = (
        f"mkdir -p .git/rr-cache/{conflict}; echo > .git/rr-cache/{conflict}/preimage; ln -s ../.ssh link;"
        f" printf '{conflict}\\t%s\\0' \"{RECORDED[name].replace('$SECRET', str(secret))}\" > .git/MERGE_RR"
    )
    if guarded:
        attacked(world, script, "")
    else:
        world.host("bash", "-c", script)
    assert git(world, "commit", "-q", "--allow-empty", "-m", "by the host").status == 0
    assert (world.workdir / ".git" / "rr-cache" / conflict / "postimage").exists() != guarded


def test_a_conflict_that_is_to_be_recorded_is_left_alone(world: Box) -> None:
    """The twin: a conflict that `git merge` notes in the project stays noted, and the host's commit records it."""
    repository(world)
    script = (
        "mkdir -p .git/rr-cache; git checkout -qb b; echo b > f; git commit -qam b; git checkout -q main; echo m > f;"
        " git commit -qam m; git merge b; echo both > f; git add f"
    )
    attacked(world, script, "")
    assert git(world, "commit", "-qm", "by the host").status == 0
    assert [path.read_text() for path in (world.workdir / ".git" / "rr-cache").glob("*/postimage")] == ["both\n"]


def test_omac_runs_no_git_of_the_projects(world: Box) -> None:
    """omac runs no `git` from a project folder in PATH at the end of a launch, and still completes its own work."""
    main = world.home / "main"
    main.mkdir()
    os.chown(main, world.uid, world.uid)
    repository(world, main)
    git(world, "branch", "extra", cwd=main)
    git(world, "pack-refs", "--all", cwd=main)
    world.workdir.rmdir()
    git(world, "worktree", "add", "-q", str(world.workdir), "-b", "work", cwd=main)
    path = {"PATH": f"{world.workdir}/.venv/bin:/usr/bin:/bin"}
    fake = "mkdir -p .venv/bin; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > .venv/bin/git; chmod +x .venv/bin/git; "
    attacked(world, fake + "/usr/bin/git branch -qD extra", "", extra=path)
    assert not canary(world).exists()
    assert "extra" not in git(world, "branch", cwd=main).out
    world.host("git", "--version", extra=path)
    assert canary(world).exists()


def test_what_is_kept_cannot_be_moved_away(world: Box) -> None:
    """A grant of a folder around the state directory or the settings lets no program move these away."""
    for name in (".local", ".config"):
        world.give(world.home / name / "x")
    options = ("--allow", str(world.home / ".local"), "--allow", str(world.home / ".config"))
    state = world.home / ".local" / "state" / "omac"
    script = (
        "cd ~/.local; mv state old; mkdir -p state/omac; echo forged > state/omac/journal.db;"
        "mkdir -p ~/.config/omac; echo '[git]' > ~/.config/omac/settings.toml; echo fine > ~/.local/mine"
    )
    world.run("bash", "-c", script, options=options, extra={"OMAC_STATE_DIR": str(state)})
    assert not (state / "journal.db").exists()
    assert list((state / "spool").iterdir())
    assert not (world.home / ".config" / "omac" / "settings.toml").exists()
    assert (world.home / ".local" / "mine").read_text() == "fine\n"


def test_a_fifo_for_a_virtual_environments_settings(world: Box) -> None:
    """A launch does not wait for a writer of a FIFO that an agent left; the program runs."""
    world.run("bash", "-c", "mkdir -p .venv/bin; cp /bin/true .venv/bin/python; mkfifo .venv/pyvenv.cfg")
    assert world.run(".venv/bin/python", seconds=10).status == 0


@pytest.mark.full
def test_more_findings_than_a_record_holds(world: Box) -> None:
    """The end of a launch is recorded, and the status passed on, however many findings the program leaves."""
    name = "a" * 150
    done = world.run("bash", "-c", f"for i in $(seq 600); do mkfifo {name}$i; done; exit 3")
    assert done.status == 3
    assert any("sandbox.exited" in path.read_text() for path in (world.state / "spool").iterdir())


def test_settings_that_take_long_to_read(world: Box) -> None:
    """A nested repository with a million brackets in its settings delays neither this end nor the next launch."""
    repository(world)
    attacked(world, NESTED + "python3 -c \"open('n/.git/config', 'w').write('[a]' * 340000)\"", "n")
    assert world.run("true", seconds=5).status == 0


def test_a_root_in_a_root(world: Box) -> None:
    """A linked worktree may be a root below another root: commits work, and omac reports nothing; what it finds there
    it reports once."""
    main = world.home / "main"
    main.mkdir()
    os.chown(main, world.uid, world.uid)
    repository(world, main)
    git(world, "worktree", "add", "-q", str(world.workdir / "w"), "-b", "work", cwd=main)
    script = "cd w; echo x > x; git add x; git commit -qm inside"
    done = world.run("bash", "-c", script, options=("--root", str(world.workdir / "w")), extra=DATES)
    assert (done.status, done.err) == (0, "")
    assert "inside" in git(world, "log", "--format=%s", "work", cwd=main).out
    script = "cd w; git init -q n; git -C n config core.fsmonitor x"
    done = world.run("bash", "-c", script, options=("--root", str(world.workdir / "w")))
    assert done.err.count("is a nested repository") == done.err.count("sets core.fsmonitor") == 1, done


@pytest.mark.parametrize(
    ("closed", "backend"),
    spread(["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"], ["bubblewrap", "landlock"]),
)
def test_closed_standard_streams(world: Box, backend: str, closed: str) -> None:
    """A program gets /dev/null for closed standard streams, the others as they are, and no file of omac's; its status
    is passed on."""
    script = (
        "import os, sys; workdir = os.getcwd(); os.chdir('/proc/self/fd');"
        " shown = [os.readlink(name) for name in sorted(os.listdir()) if os.path.lexists(name)];"
        " os.chdir(workdir); open('fds', 'w').write('\\n'.join(shown)); sys.exit(3)"
    )
    line = world.omac("sandbox", "run", "--backend", backend, "--", "/usr/bin/python3", "-c", script)
    done = world.host("sh", "-c", f'"$@" {closed}', "sh", *line)
    assert done.status == 3, done
    stdin, *outputs = (world.workdir / "fds").read_text().splitlines()
    assert stdin == "/dev/null"  # of the test, too
    kinds = ["/dev/null" if sign in closed.split() else "pipe" for sign in (">&-", "2>&-")]
    assert [target.partition(":")[0] for target in outputs] == kinds


@pytest.mark.parametrize("folder", [".git", ".git/refs", ".git/objects .git/refs"])
def test_a_nested_repository_that_cannot_be_changed(world: Box, folder: str) -> None:
    """A nested repository that cannot be changed does not keep the next launch from running, and keeps its files; omac
    reports it."""
    repository(world)
    folders = " ".join(f"n/{name}" for name in folder.split())
    assert world.run("sh", "-c", f"git init -q n; chmod 0 {folders}").status == 0
    before = {path: path.lstat().st_mode for path in (world.workdir / "n").rglob("*")}
    done = world.run("sh", "-c", "echo ran")
    assert done.out == "ran\n", done
    assert {path: path.lstat().st_mode for path in (world.workdir / "n").rglob("*")} == before
    assert ("nothing is granted for" in done.err) == bool(world.uid)  # root may change it all the same


def test_a_folder_for_a_reftable(world: Box) -> None:
    """A folder of another repository format, which a program made, does not keep the next launch from running."""
    repository(world)
    assert world.run("sh", "-c", "mkdir .git/reftable; touch .git/reftable/tables.list").status == 0
    assert world.run("git", "log", "--format=%s").out == "one\n"


@pytest.mark.full
def test_an_admin_folder_that_cannot_be_changed(world: Box) -> None:
    """The command in the refusal lets the next launch in that repository run."""
    repository(world)
    assert world.run("sh", "-c", "git worktree add -q w; chmod 0 .git/worktrees/w").status == 0
    done = world.run("sh", "-c", "echo ran")
    if world.uid:
        mend = done.err.partition("try: ")[2].strip()
        assert mend == f"chmod u+rwx {world.workdir}/.git/worktrees/w", done
        assert world.host("sh", "-c", mend).status == 0
        done = world.run("sh", "-c", "echo ran")
    assert done.out == "ran\n", done


def test_nobody_reads_what_omac_reports(world: Box) -> None:
    """omac inspects a program's files and passes its status on even if the reader of stderr is gone."""
    repository(world)
    world.give(world.workdir / ".git" / "hooks" / "pre-commit", "#!/bin/sh\n", 0o755)
    options = tuple(word for name, value in told(world, "n").items() for word in ("--env", f"{name}={value}"))
    script = f"{ARMED}cp n/.git/config later; git -C n config --unset core.fsmonitor; git commit -q --allow-empty -m x"
    script = f"exec 2> /dev/null; {script}; mv later n/.git/config; exit 3"
    line = world.omac("sandbox", "run", *options, "--", "bash", "-c", script)
    done = world.host("bash", "-c", 'set -o pipefail; "$@" 2>&1 >/dev/null | exec 0<&-', "bash", *line)
    assert done.status == 3, done
    assert "fsmonitor" not in (world.workdir / "n" / ".git" / "config").read_text()


@pytest.mark.full
def test_a_signal_does_not_keep_omac_from_inspecting(world: Box) -> None:
    """Further signals do not keep omac from completing its inspection at the end of a launch."""
    repository(world)
    fill = (
        "python3 -c \"import os\nfor d in range(40):\n os.makedirs(f'z/{d}')\n"
        " for f in range(100): open(f'z/{d}/{f}', 'w')\"; touch done; exec sleep 60"
    )
    options = tuple(word for name, value in told(world, "n").items() for word in ("--env", f"{name}={value}"))
    line = world.omac("sandbox", "run", *options, "--", "bash", "-c", ARMED + fill)
    user = world.uid or None
    process = subprocess.Popen(line, cwd=world.workdir, env=world.environment, user=user, group=user)
    eventually(lambda: (world.workdir / "done").exists(), 30, "the plant is made")
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    assert "fsmonitor" not in (world.workdir / "n" / ".git" / "config").read_text()


@pytest.mark.full
def test_killed_while_it_builds(world: Box) -> None:
    """omac, killed at any moment, leaves no process that holds its streams open; the twin runs to its end."""
    line = world.omac("sandbox", "run", "--", "echo", "ran")
    user = world.uid or None
    for number in range(24) if everything() else range(0, 24, 4):
        begun = subprocess.Popen(
            line, cwd=world.workdir, env=world.environment, user=user, group=user, stdout=subprocess.PIPE
        )
        time.sleep(0.03 + number * 0.004)
        begun.kill()
        assert begun.communicate(timeout=20)[0] in (b"", b"ran\n")
    assert world.run("echo", "ran").out == "ran\n"


def test_one_ends_while_the_other_works(world: Box) -> None:
    """A file that the first of two launches made to be pinned stays pinned in the second, which reports nothing."""
    repository(world)
    user = world.uid or None

    def begun(script: str) -> subprocess.Popen[str]:
        line = world.omac("sandbox", "run", "--", "sh", "-c", script)
        return subprocess.Popen(
            line, cwd=world.workdir, env=world.environment, user=user, group=user, stderr=subprocess.PIPE, text=True
        )

    first = begun("touch first; exec sleep 60")
    eventually(lambda: (world.workdir / "first").exists(), 30, "the first runs")
    second = begun("touch second; while [ ! -e go ]; do sleep 0.05; done; (echo x > .git/commondir) 2>/dev/null; :")
    eventually(lambda: (world.workdir / "second").exists(), 30, "the second runs")
    first.kill()
    first.communicate(timeout=20)
    world.give(world.workdir / "go")
    assert second.communicate(timeout=20)[1] == ""
    assert not (world.workdir / ".git" / "commondir").exists()


HELD = """\
import os, sys, time
sys.path.insert(0, sys.argv[1])
from omac.adapters.sandbox.launch import UnderBubblewrap
from omac.domain.sandbox.confinement import LINK, READ, WRITE, Entry, Policy, ordered
from omac.domain.kernel.refusal import Refusal
work = os.getcwd()
links = [Entry(f"/{name}", LINK, "", target=f"usr/{name}") for name in ("bin", "lib", "lib64")]
policy = Policy(work, ordered([Entry("/usr", READ, ""), *links, Entry(work, WRITE, "")]), {"PATH": "/usr/bin"})
run = UnderBubblewrap(policy, ["/bin/sh", "-c", "echo ran > ran"], "/usr/bin/bwrap", os.uname().machine)
try:
    with run as program:
        program.built()
        if sys.argv[2] == "refused":
            raise Refusal("path-changed", "it is not what was meant")
        program.release()
        program.ended(lambda: None)
except Refusal:
    time.sleep(0.2)
"""


@pytest.mark.parametrize("verdict", ["refused", "fine"])
def test_what_is_held_back_does_not_run(world: Box, verdict: str) -> None:
    """A program whose mounts differ from the policy never runs, not even at the end; otherwise it runs."""
    done = world.host("/usr/bin/python3", "-c", HELD, readable_package(), verdict)
    assert done.status == 0, done
    assert (world.workdir / "ran").exists() == (verdict == "fine")


def repository(world: Box, folder: Path | None = None) -> None:
    """Create a repository with one commit."""
    top = folder or world.workdir
    git(world, "init", "-q", "-b", "main", cwd=top)
    world.give(top / "f", "x")
    git(world, "add", ".", cwd=top)
    assert git(world, "commit", "-qm", "one", cwd=top).status == 0


def git(world: Box, *words: str, cwd: Path | None = None) -> Done:
    """Run the host's git as this user."""
    return world.host("git", *words, cwd=cwd, extra=DATES)


def canary(world: Box) -> Path:
    """Return the file that exists once the attacker's command has run on the host."""
    return world.home / "canary"


def told(world: Box, hidden: str) -> dict[str, str]:
    """Return the environment variables of a plant."""
    return {"EVIL": f"touch {canary(world)}", "W": str(world.workdir), "E": hidden}


def attacked(
    world: Box, script: str, hidden: str, *, workdir: Path | None = None, extra: dict[str, str] | None = None
) -> Done:
    """Run a plant in the sandbox; it may fail in any way."""
    options = tuple(word for name, value in told(world, hidden).items() for word in ("--env", f"{name}={value}"))
    try:
        return world.run("bash", "-c", script, options=options, workdir=workdir, extra=DATES | (extra or {}))
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"omac hangs after {late.timeout} s") from None


KERNEL = "/proc/sys /proc/irq /proc/bus /proc/fs /proc/acpi /proc/asound /proc/driver /proc/scsi"


def test_the_kernels_own_settings_are_read_only(world: Box) -> None:
    """Files by which root changes the kernel's settings cannot be written, also by root."""
    script = (
        "import os\n"
        f"for path in {KERNEL!r}.split():\n"
        "    if os.path.exists(path) and not os.statvfs(path).f_flag & os.ST_RDONLY: print(path)"
    )
    done = world.run("python3", "-c", script)
    assert (done.status, done.out) == (0, ""), done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_git_of_another_user(world: Box) -> None:
    """While a program runs in a repository that other users can read, their git works there as before."""
    for folder in (world.top, world.home, world.workdir):
        folder.chmod(0o755)
    world.host("git", "init", "-q")
    process = subprocess.Popen(
        world.omac("sandbox", "run", "--", "sh", "-c", "touch up; until [ -e go ]; do sleep 0.05; done"),
        cwd=world.workdir, env=world.environment, user=world.uid or None, group=world.uid or None,
    )  # fmt: skip
    try:
        eventually(lambda: (world.workdir / "up").exists(), 30, "it runs")
        git = ["git", "-c", "safe.directory=*", "-C", str(world.workdir), "status", "--porcelain"]
        shown = subprocess.run(
            git, user=4711, group=4711, extra_groups=[], env=os.environ | {"HOME": "/"}, capture_output=True, text=True
        )
        assert (shown.stdout, shown.stderr) == ("?? up\n", "")
    finally:
        world.give(world.workdir / "go")
        process.wait(timeout=20)
