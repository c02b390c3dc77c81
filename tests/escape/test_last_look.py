"""The inspection after a launch: alone, in bounds, and done by the next launch if it was cut off."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from escape.left_behind import FINDINGS_MAX, PRELUDE, WITHIN_S, Ground, ground_of
from memory import measured
from polling import eventually
from real_sandbox import SYSTEM_PYTHON, USERS
from tiers import some

from omac.adapters.git.inspections import SECONDS_MAX

RSS_KIB_MAX = 300 << 10
FINDING_CHARACTERS_MAX = 300
NESTED = "git init -q aaa; git -C aaa commit -q --allow-empty -m x; "
ARMED = NESTED + "evil x.sh; git -C aaa config core.fsmonitor $PWD/x.sh; "

# Waits for the look of another launch at a folder, and swaps a folder above for a link meanwhile; ends with `ended`.
SWAPPER = """\
import ctypes, os, sys, time
kind, target, content = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
def ended(): return os.path.exists("ended")
def wait_for(folder, names):
    opened = libc.inotify_init1(0o4000)
    libc.inotify_add_watch(opened, folder.encode(), names)
    def seen():
        try: return bool(os.read(opened, 65536))
        except BlockingIOError: return False
    return seen
if kind == "folder":  # x becomes a link when it has been listed
    os.makedirs("x")
    for folder in range(40):
        os.makedirs(f"pad/{folder}")
        for file in range(50): open(f"pad/{folder}/{file}", "w").close()
    seen = wait_for("x", 0x10)
    before = lambda: os.symlink("nowhere", "x/.git")
    steps = [lambda: (os.rename("x", "x.old"), os.symlink(target, "x"))]
else:  # n/.git becomes a link when it is looked at
    try:
        for name in ("objects", "refs/heads"): os.makedirs(f"n/.git/{name}")
        for number in range(2000): os.makedirs(f"n/.git/pad/{number}")
        with open("n/.git/HEAD", "w") as file: file.write("ref: refs/heads/main\\n")
        with open("n/.git/config", "w") as file: file.write(content.encode().decode("unicode_escape"))
    except OSError: pass  # some of it has been set aside already
    seen = wait_for("n/.git/pad", 0x10 | 0x20)
    before, steps = (lambda: None), [lambda: (os.rename("n/.git", "n/.git2"), os.symlink(target, "n/.git"))]
open("ready", "w").close()
while not os.path.exists("go") and not ended(): time.sleep(0.01)
before()
while seen(): pass
open("armed", "w").close()
while not ended():
    if steps and seen():
        try: steps.pop(0)()
        except OSError: pass
    time.sleep(0)
"""
# Lets a file and a folder be made to be pinned, which the settings name, then swaps the folder around them for a link.
SWAPPER_OF_PINS = """\
import os, sys, time
for name in ("n/.git/objects", "n/.git/refs", "n/d"): os.makedirs(name)
with open("n/.git/HEAD", "w") as file: file.write("ref: refs/heads/main\\n")
with open("n/.git/config", "w") as file:
    file.write("[core]\\n\\trepositoryformatversion = 0\\n\\thooksPath = d/empty\\n")
    file.write("[include]\\n\\tpath = ../d/__init__.py\\n\\tpath = ../d/py.typed\\n")
open("ready", "w").close()
while not os.path.exists("go") and not os.path.exists("ended"): time.sleep(0.01)
os.rename("n/d", "n/d2"); os.symlink(sys.argv[2], "n/d")
open("armed", "w").close()
while not os.path.exists("ended"): time.sleep(0.01)
"""
RACES = {
    "a folder of its own for one of the user's": ("plain", "", SWAPPER, "folder", "victim", ""),
    "settings for those of ssh": ("plain", "", SWAPPER, "git", ".ssh", r"ProxyCommand = touch x\n"),
    "settings for those of a repository": ("plain", "", SWAPPER, "git", "victim/.git", r"[core]\n\tfsmonitor = true\n"),
    "from a worktree below": ("nested", ".worktrees/feat", SWAPPER, "git", ".ssh", r"ProxyCommand = touch x\n"),
    "what was made to be pinned": ("plain", "", SWAPPER_OF_PINS, "pins", "victim/package", ""),
}


@pytest.fixture(scope="module", params=USERS[-1:], ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield a person's home, renewed for each test."""
    with ground_of(request.param) as made:
        yield made


@pytest.mark.parametrize("name", some(RACES, of=2))
@pytest.mark.full
def test_another_launch_swaps_what_is_looked_at(ground: Ground, name: str) -> None:
    """A program swaps a folder for a link while another launch ends: omac touches nothing outside."""
    layout, below, program, kind, target, content = RACES[name]
    ground.renew(layout)
    before = ground.outside()
    folder = ground.project / below
    words = (SYSTEM_PYTHON, "-I", "-c", program, kind, str(ground.home / target), content)
    second = begun(ground, *words, workdir=folder)
    eventually(lambda: (folder / "ready").exists(), WITHIN_S, "the other program is ready")
    wait = f"touch '{folder}/go'; for i in {{1..500}}; do [ -e '{folder}/armed' ] && break; sleep 0.01; done"
    first = begun(ground, "bash", "-c", wait)
    first.communicate(timeout=WITHIN_S)
    ground.world.give(folder / "ended")
    second.communicate(timeout=WITHIN_S)
    assert ground.outside() == before


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_launch_around_it_puts_a_link_in_its_way(ground: Ground, is_repository: bool) -> None:
    """A launch ends and leaves its inspection to a launch in a folder above, which replaces a folder between them by a
    link. omac inspects and changes nothing where the link leads."""
    ground.renew("plain")
    ground.give_folder(ground.home / "elsewhere" / "p")
    ground.repository(ground.home / "elsewhere" / "p" / ("" if is_repository else "nested"))
    ground.give_folder(ground.project / "x")
    inner_project = ground.give_folder(ground.project / "x" / "p")
    before = ground.outside()
    wait = f"touch up; while [ ! -e go ]; do sleep 0.01; done; mv x y; ln -s {ground.home}/elsewhere x"
    above = begun(ground, "sh", "-c", wait, stderr=subprocess.PIPE)
    eventually(lambda: (ground.project / "up").exists(), WITHIN_S, "the other program is ready")
    if is_repository:
        ground.repository(inner_project)
    inner = begun(ground, "sh", "-c", "touch left", workdir=inner_project)
    _, stderr = inner.communicate(timeout=WITHIN_S)
    assert "another launch still runs there" in stderr
    ground.world.give(ground.project / "go")
    _, stderr = above.communicate(timeout=WITHIN_S)
    assert f"{inner_project}: is behind a link that was not there: nothing there was inspected" in stderr
    assert (ground.project / "y/p/left").exists()
    assert ground.outside() == before


def test_two_at_once_are_told_nothing(ground: Ground) -> None:
    """The twin: two launches commit in one project at once; all commits are there; nothing is reported or set aside."""
    ground.renew("plain")
    script = (
        "touch {0}; while [ ! -e {1} ]; do sleep 0.01; done; echo {0} > f-{0};"
        " until git add f-{0} && git commit -q --allow-empty -m {0}; do sleep 0.05; done"  # the other may hold locks
    )
    both = [
        begun(ground, "bash", "-c", script.format("a", "b")),
        begun(ground, "bash", "-c", script.format("b", "a") + "; until git log | grep -qw a; do sleep 0.01; done"),
    ]
    outputs = [process.communicate(timeout=WITHIN_S)[1] for process in both]
    ground.person("git add .; git commit -qm last; git fsck --strict", check=True)
    findings = [line for line in "".join(outputs).splitlines() if "another launch still runs" not in line]
    assert not [line for line in findings if line.startswith("omac:")]
    assert not ground.set_aside()


@pytest.mark.full
def test_a_worktree_and_its_clone_at_once_are_told_nothing(ground: Ground) -> None:
    """The twin: a launch in a linked worktree, during which one in the clone begins and ends, leaves the settings of
    the repository and of its submodule as they were; nothing is reported or set aside."""
    ground.renew("linked")
    main = ground.home / "main"
    script = f"git remote add origin {ground.victim}; git submodule --quiet add {ground.victim} lib; git commit -qm sub"
    ground.person(script, cwd=main, check=True)
    files = [main / ".git" / "config", main / ".git" / "modules" / "lib" / "config"]
    before = [file.read_text() for file in files]
    wait = "touch up; while [ ! -e go ]; do sleep 0.01; done"
    first = begun(ground, "bash", "-c", wait)
    eventually(lambda: (ground.project / "up").exists(), WITHIN_S, "the program in the worktree runs")
    second = begun(ground, "git", "commit", "-q", "--allow-empty", "-m", "x", workdir=main)
    output = second.communicate(timeout=WITHIN_S)[1]
    ground.world.give(ground.project / "go")
    output += first.communicate(timeout=WITHIN_S)[1]
    assert [second.returncode, first.returncode] == [0, 0], output
    assert [file.read_text() for file in files] == before, output
    assert not ground.set_aside()
    assert [line for line in output.splitlines() if "another launch still runs" not in line] == []


WHEN = ("while the program runs", "while omac looks")


@pytest.mark.full
@pytest.mark.parametrize("when", WHEN)
def test_killed(ground: Ground, when: str) -> None:
    """The next launch first inspects the files that a killed launch left."""
    killed_and_then(ground, when, "sandbox", "run", "--", "true")


@pytest.mark.full
@pytest.mark.parametrize("when", WHEN)
def test_killed_before_omac_status(own_ground: Ground, when: str) -> None:
    """`omac status`, too, first inspects the files that a killed launch left."""
    killed_and_then(own_ground, when, "status")


def killed_and_then(ground: Ground, when: str, *words: str) -> None:
    """Kill a launch that has left an attack, run a command, and check that the attack has no effect."""
    ground.renew("plain")
    script = ARMED + "ln -s $H/.profile .git/COMMIT_EDITMSG; mkdir pad; cd pad; mkdir -p {1..2000}; cd ..; touch done; "
    before = ground.outside()
    process = begun(ground, "bash", "-c", PRELUDE + script + ("sleep 60" if when == WHEN[0] else ":"))
    eventually(lambda: (ground.project / "done").exists(), WITHIN_S, "the deed is done")
    process.kill()
    process.communicate(timeout=WITHIN_S)
    ground.world.host(*ground.world.omac(*words))
    ground.goes_on(("aaa", "."), ("status", "commit"))
    assert not (ground.marks / "mark").exists()
    assert ground.outside() == before


@pytest.mark.full
def test_killed_with_a_decent_repository(ground: Ground) -> None:
    """The twin: a harmless repository of a killed launch is still there after the next launch."""
    ground.renew("plain")
    process = begun(ground, "bash", "-c", PRELUDE + NESTED + "touch done; sleep 60")
    eventually(lambda: (ground.project / "done").exists(), WITHIN_S, "the deed is done")
    process.kill()
    process.communicate(timeout=WITHIN_S)
    assert ground.world.run("true").status == 0
    assert "x" in ground.person("git -C aaa log --format=%s", check=True).out
    assert not ground.set_aside()


MANY = (
    ARMED
    + """python3 -I -c '
import os
text = ("[core]\\n" + "\\tabbrev = 7\\n" * 1600)[:19900]
for number in range(300):
    git = f"z/{number}/.git"
    os.makedirs(git + "/objects"); os.mkdir(git + "/refs")
    with open(git + "/HEAD", "w") as file: file.write("ref: refs/heads/main\\n")
    with open(git + "/config", "w") as file: file.write(text)
'
touch done
"""
)


@pytest.mark.full
@pytest.mark.parametrize("interrupted", some([True, False], of=2))
def test_many_repositories_with_long_settings(ground: Ground, interrupted: bool) -> None:
    """An inspection of many repositories ends in time; if interrupted, it reports that a part was not inspected. Either
    way, no program of theirs runs."""
    ground.renew("plain")
    with (ground.world.top / "said").open("w+") as log:
        process = begun(ground, "bash", "-c", PRELUDE + MANY, stderr=log)
        eventually(lambda: (ground.project / "done").exists(), WITHIN_S, "the deed is done")
        start = time.monotonic()
        while interrupted and process.poll() is None and time.monotonic() < start + WITHIN_S:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        process.wait(WITHIN_S)
        assert time.monotonic() - start < SECONDS_MAX
        log.seek(0)
        text = log.read()
    assert "Traceback" not in text
    assert not interrupted or "not inspected" in text
    ground.goes_on(("aaa",), ("status",))
    assert not (ground.marks / "mark").exists()


DEEP = """\
import os
os.mkdir(".idea"); os.chdir(".idea")
for level in range(15):
    os.mkdir("d" * 250); os.chdir("d" * 250)
for number in range(4000): os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY))
"""


@pytest.mark.full
def test_findings_without_end(ground: Ground) -> None:
    """Thousands of findings with paths of 3,800 characters take little memory and print few lines of bounded size; the
    rest are in a file."""
    ground.renew("plain")
    with (ground.world.top / "said").open("w+") as log, tempfile.TemporaryFile("w+") as report:
        process = begun(ground, SYSTEM_PYTHON, "-I", "-c", DEEP, stderr=log, report=report.fileno())
        assert process.wait() == 0
        log.seek(0)
        report.seek(0)
        lines, rss_kib = log.read().splitlines(), int(report.read())
    assert rss_kib < RSS_KIB_MAX
    assert len(lines) <= FINDINGS_MAX + 5
    assert max(map(len, lines)) <= FINDING_CHARACTERS_MAX + 200
    (path,) = (ground.world.state / "set-aside").glob("*/findings")
    assert str(path) in "\n".join(lines)
    assert path.read_bytes().count(b"\n") >= 4000


def test_deeper_than_is_looked(ground: Ground) -> None:
    """A repository deeper than omac walks is set aside with a message of its own; one further up stays."""
    ground.renew("plain")
    deep = "/".join("d" * 230)
    script = f"mkdir -p {deep}; git init -q e; {NESTED} evil x.sh; cd {deep}; git init -q n; git -C n config"
    done = ground.agent(f"{script} core.fsmonitor $W/x.sh")
    ground.goes_on((f"{deep}/n", "aaa"), ("status",))
    assert not (ground.marks / "mark").exists()
    assert "deeper" in done.err
    assert (ground.project / "aaa" / ".git" / "HEAD").exists()


@pytest.mark.full
def test_set_aside_is_of_no_use(ground: Ground) -> None:
    """Files that were set aside cannot be run, and git takes none for a repository, even through a pointer to it. Other
    users see none."""
    ground.renew("plain")
    ground.agent("evil docs/x.sh; skeleton docs $PWD/docs/x.sh ..; mkdir docs/objects docs/refs; " + ARMED +
                 "cp -r aaa/.git .git/strange; ln -s aaa here; evil .git/evil")  # fmt: skip
    aside = ground.world.state / "set-aside"
    paths = list(aside.rglob("*")) if aside.exists() else []
    assert paths
    assert not aside.stat().st_mode & 0o077
    assert not [path for path in paths if path.is_symlink() or (path.is_file() and os.access(path, os.X_OK) and
                                                              path.stat().st_mode & 0o111)]  # fmt: skip
    folders = [path for path in paths if path.is_dir()]
    pointers = "; ".join(f"mkdir -p p/{at}; echo gitdir: {path} > p/{at}/.git" for at, path in enumerate(folders))
    ground.agent(pointers or ":")
    (ground.marks / "mark").unlink(missing_ok=True)
    ground.goes_on(tuple(f"p/{at}" for at in range(len(folders))), ("status",))
    for path in folders:
        ground.person("git status", cwd=path)
    assert not (ground.marks / "mark").exists()


@pytest.mark.parametrize("deed", [
    pytest.param(ARMED, id="a nested repository"),
    pytest.param("evil docs/x.sh; skeleton docs $PWD/docs/x.sh ..; mkdir docs/objects docs/refs; ", id="a bare one"),
])  # fmt: skip
def test_while_the_program_runs(ground: Ground, deed: str) -> None:
    """New settings are set aside within a moment, so that the host's git ignores them while the program goes on."""
    ground.renew("plain")
    process = begun(ground, "bash", "-c", PRELUDE + deed + "touch done; while [ ! -e ended ]; do sleep 0.05; done")
    eventually(lambda: (ground.project / "done").exists(), WITHIN_S, "the deed is done")
    state = ground.world.state / "set-aside"
    try:
        eventually(lambda: any(state.glob("*/*")), 20.0, "something is set aside")
        ground.goes_on(("aaa", "docs"), ("prompt", "status"))
        assert not (ground.marks / "mark").exists()
        assert process.poll() is None
    finally:
        ground.world.give(ground.project / "ended")
        process.communicate(timeout=WITHIN_S)


@pytest.mark.full
@pytest.mark.parametrize(("instances", "is_watched"), [(1, True), (0, False)])
def test_a_program_takes_all_watches(ground: Ground, instances: int, is_watched: bool) -> None:
    """A program that takes all of the kernel's watches for folders does so after omac. If omac gets none, because they
    are used up, it reports that and sets settings aside at the end."""
    ground.renew("plain")
    number = {"x86_64": 294, "aarch64": 26}[os.uname().machine]  # inotify_init1
    late = "for i in {1..60}; do grep -q fsmonitor aaa/.git/config || { touch soon; break; }; sleep 0.05; done"
    line = ground.world.omac(
        "sandbox", "run", "--env", f"W={ground.project}", "--env", "MARK=x", "--",
        "perl", "-e", f"syscall({number}, 0); exec @ARGV", "bash", "-c", f"{PRELUDE}{ARMED}{late}",
    )  # fmt: skip
    few = f'echo {instances} > /proc/sys/user/max_inotify_instances; exec "$@"'
    done = ground.world.host("unshare", "--map-root-user", "bash", "-c", few, "bash", *line)
    assert done.status == 0, done
    assert (ground.project / "soon").exists() == is_watched
    assert ("the kernel watches no more folders" in done.err) != is_watched
    assert "fsmonitor" not in (ground.project / "aaa" / ".git" / "config").read_text()


def begun(
    ground: Ground,
    *program: str,
    workdir: Path | None = None,
    stderr: int | IO[str] = subprocess.PIPE,
    report: int | None = None,
) -> subprocess.Popen[str]:
    """Start a launch and return its process, which reports its memory to the descriptor `report` if there is one."""
    world = ground.world
    words = [word for pair in ground.told().items() for word in ("--env", "=".join(pair))]
    line = world.omac("sandbox", "run", "--workdir", str(workdir or ground.project), *words, "--", *program)
    return subprocess.Popen(
        line if report is None else measured(line, report), pass_fds=() if report is None else (report,),
        cwd=workdir or ground.project, env=world.environment, user=world.uid or None, group=world.uid or None,
        extra_groups=world.extra_groups, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
        text=True, errors="replace",
    )  # fmt: skip
