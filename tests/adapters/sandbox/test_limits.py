"""Limits, with real programs in a real bubblewrap, as root and as an unprivileged user."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_sandbox import readable_package, user_alone

from omac.adapters.sandbox import cgroups, limits
from omac.domain.kernel.refusal import Refusal

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
AS = {"root": (), "nobody": NOBODY}

# Starts a program under limits, as the launcher does: bubblewrap holds it back until it is bound.
LAUNCHER = """\
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from omac.adapters.sandbox import limits
from omac.domain.kernel.refusal import Refusal
try:
    enforcement = limits.plan(limits.parse(sys.argv[2:3] if sys.argv[2] else []))
    held = limits.begin(enforcement, f"test-{os.getpid()}")
except Refusal as refusal:
    print(json.dumps({"refused": refusal.reason, "message": refusal.message, "fix": refusal.fix}))
    sys.exit()
info, info_of_child = os.pipe()
gate_of_child, gate = os.pipe()
line = ["bwrap", "--unshare-user", "--unshare-pid", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL"]
line += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--info-fd", str(info_of_child)]
line += ["--block-fd", str(gate_of_child), "/usr/bin/python3", "-I", "-c", sys.argv[3]]
program = subprocess.Popen(line, pass_fds=(info_of_child, gate_of_child), stdout=subprocess.PIPE)
os.close(info_of_child)
report = b""
while not report.rstrip().endswith(b"}"):
    report += os.read(info, 4096)
held.add(json.loads(report)["child-pid"])
os.write(gate, b"1")
said = program.communicate()[0].decode().strip()
throttled = open(f"{held.folder}/cpu.stat").read().split() if "cpu" in enforcement.by else []
left = held.end()
gone = not os.path.exists(f"{enforcement.folder}/omac-test-{os.getpid()}")
print(json.dumps({"said": said, "status": program.returncode, "by": enforcement.by, "gone": gone and not left,
                  "throttled": throttled}))
"""

# Each prints how far it came; the alarm ends what no limit ended.
FORKS = """\
import os, signal
signal.alarm(20)
children = []
try:
    while len(children) < {0}:
        child = os.fork()
        if not child:
            signal.alarm(20)
            os.setsid()
            signal.pause()
        children.append(child)
except BlockingIOError:
    pass
print(len(children))
"""
THREADS = """\
import signal, threading
signal.alarm(20)
threading.stack_size(65536)
end = threading.Event()
count = 0
try:
    while count < {0}:
        threading.Thread(target=end.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
print(count, flush=True)
end.set()
"""
MEMORY = """\
kept, count = [], 0
try:
    while count < {0}:
        kept.append(bytearray(b"x" * (1 << 20)))
        count += 1
        print(count, flush=True)
except MemoryError:
    pass
"""
FILES = """\
import os
count = 0
try:
    while count < {0}:
        os.open("/dev/null", os.O_RDONLY)
        count += 1
except OSError:
    pass
print(count)
"""
BURN = """\
import time
end = time.process_time() + {0} / 1000
while time.process_time() < end:
    pass
print("done")
"""


@pytest.fixture
def launch() -> Callable[..., dict[str, Any]]:
    """Return a function that runs one of the programs above in a sandbox, as a user, under limits; it returns the
    outcome."""

    def run(who: str, limit: str, program: str, *before: str) -> dict[str, Any]:
        line = [*AS[who], *before, "/usr/bin/python3", "-ISB", "-c", LAUNCHER, readable_package(), limit, program]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd="/", check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        if who == "root" and result.get("refused") == "limit-unenforceable":
            pytest.skip(result["message"])
        return result

    return run


@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize(
    ("limit", "program", "tried", "reached"),
    [
        ("pids=30", FORKS, 200, 29),
        ("pids=30", THREADS, 200, 29),
        ("memory=96M", MEMORY, 200, 96),
        ("files=64", FILES, 300, 64),
    ],
)
def test_a_flood_ends_at_the_limit(
    launch: Callable[..., dict[str, Any]], who: str, limit: str, program: str, tried: int, reached: int
) -> None:
    """A flood ends at its limit; a program that stays below it, or has no limit, is not hindered."""
    flood = launch(who, limit, program.format(tried))
    assert 5 < int(flood["said"].split()[-1]) <= reached
    assert flood["gone"]
    modest = launch(who, limit, program.format(10))
    assert (modest["status"], modest["said"].split()[-1]) == (0, "10")
    unbound = launch(who, "", program.format(tried))
    assert (unbound["status"], unbound["said"].split()[-1]) == (0, str(tried))


def test_processors_are_dealt_out(launch: Callable[..., dict[str, Any]]) -> None:
    """A program gets no more of the processors than its limit, and is not slowed down below it."""
    slow, fast = (launch("root", f"cpu={amount}", BURN.format(150)) for amount in (0.2, 4))
    assert slow["said"] == fast["said"] == "done"
    throttled = [
        dict(zip(outcome["throttled"][::2], outcome["throttled"][1::2], strict=True)) for outcome in (slow, fast)
    ]
    assert int(throttled[0]["nr_throttled"]) > 0
    assert int(throttled[1]["nr_throttled"]) == 0


def test_what_a_user_runs_outside_is_not_counted(launch: Callable[..., dict[str, Any]]) -> None:
    """Processes that an unprivileged user runs outside do not count: inside, the whole limit is available."""
    line = [*NOBODY, "/usr/bin/python3", "-Ic", f"print(1, flush=True)\n{FORKS.format(60)}\nsignal.pause()"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as outside:
        try:
            assert outside.stdout
            assert [outside.stdout.readline().strip() for _ in range(1)] == ["1"]
            assert launch("nobody", "pids=20", FORKS.format(12))["said"] == "12"
            assert int(launch("nobody", "pids=20", FORKS.format(200))["said"]) < 20
        finally:
            _end_all_of(outside.pid)


def test_root_in_name_only_is_bound(launch: Callable[..., dict[str, Any]]) -> None:
    """Root of a user namespace, as in a rootless container, is bound by RLIMIT_NPROC, so the limit is not refused."""
    flood = launch("nobody", "pids=30", FORKS.format(200), "unshare", "--user", "--map-root-user")
    assert flood["by"]["pids"].startswith("RLIMIT_NPROC")
    assert 5 < int(flood["said"]) < 30


def test_a_limit_that_nothing_enforces_is_refused(launch: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """No rlimit bounds processors or the number of root's processes: omac refuses such a limit and shows what helps."""
    refused = launch("nobody", "cpu=1.5", "print()")
    assert refused["refused"] == "limit-unenforceable"
    assert "cpu" in refused["message"]
    assert refused["fix"]
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text("")
    with pytest.raises(Refusal, match="RLIMIT_NPROC does not hold for root") as caught:
        limits.plan({"pids": 50.0}, proc=str(tmp_path))
    assert caught.value.reason == "limit-unenforceable"


@pytest.mark.skipif(os.path.isdir("/run/systemd/system"), reason="a scope of the user's own is proposed here")
@pytest.mark.skipif(
    bool(cgroups.own_folder("/proc/self").why_not("cpu")), reason="no cgroup v2 deals out processors here"
)
def test_what_mends_a_refused_limit_does(launch: Callable[..., dict[str, Any]]) -> None:
    """The commands of the refusal, pasted into a shell, give an unprivileged user a cgroup for the limit."""
    commands = " && ".join(launch("nobody", "cpu=1.5", "print()")["fix"])
    cgroup = next(word for word in commands.split() if word.endswith("/omac"))
    assert not os.path.exists(cgroup)
    shell = f'sudo() {{ "$@"; }}; USER=nobody; {{ {commands}; }} >&2 && exec "$@"'
    try:
        outcome = launch("root", "cpu=1.5", "print(1)", "sh", "-c", shell, "sh", *NOBODY)
    finally:
        os.rmdir(cgroup)
    assert (outcome["said"], outcome["gone"]) == ("1", True)
    assert outcome["by"]["cpu"].endswith(cgroup)


def test_without_a_namespace_all_that_the_user_runs_counts() -> None:
    """RLIMIT_NPROC counts all processes of the user: a bound below their number is refused, a higher one binds."""
    program = f"""\
import sys
sys.path.insert(0, {readable_package()!r})
from omac.adapters.sandbox import limits
from omac.domain.kernel.refusal import Refusal
import os, time
others = limits._threads(os.getuid())
limits.begin(limits.plan({{"pids": others + 30, "files": 40}}, namespaced=False), "alone").add(os.getpid())
{FORKS.format(200)}
try:
    limits.plan({{"pids": 5}}, namespaced=False)
except Refusal as refusal:
    print(refusal.reason)
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
{FILES.format(200)}
"""
    line = [*user_alone(), "/usr/bin/python3", "-ISB", "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd="/", check=True)
    forked, refused, opened = done.stdout.split()
    assert 5 < int(forked) < 60
    assert int(opened) < 40
    assert refused == "limit-unenforceable"


def test_a_limit_never_raises() -> None:
    """A limit on files never raises a lower bound that a process has already."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60)); input()"
    with subprocess.Popen([sys.executable, "-Ic", program], stdin=subprocess.PIPE, text=True) as bound:
        try:
            deadline = 500
            while _open_files(bound.pid) != (50, 60) and deadline:
                deadline -= 1
                signal.sigtimedwait([], 0.01)
            limits.begin(limits.plan({"files": 1000.0}), "never").add(bound.pid)
            assert _open_files(bound.pid) == (50, 60)
            limits.begin(limits.plan({"files": 55.0}), "never").add(bound.pid)
            assert _open_files(bound.pid) == (50, 55)
        finally:
            bound.kill()


HIERARCHIES = [
    pytest.param(folder, marks=pytest.mark.skipif(not os.access(f"{folder}/cgroup.procs", os.W_OK), reason="none"))
    for folder in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
]


@pytest.mark.parametrize("folder", HIERARCHIES)
def test_what_is_left_ends_with_its_cgroup(folder: str) -> None:
    """The end of a launch kills every process in its cgroup and removes the cgroup."""
    held = limits.begin(limits.Enforcement({}, {}, folder, ()), f"left-{os.getpid()}")
    with subprocess.Popen(["sh", "-c", "read go; sleep 98 & sleep 98"], stdin=subprocess.PIPE) as program:
        held.add(program.pid)
        assert program.stdin
        program.stdin.write(b"go\n")
        program.stdin.close()
        made = f"{folder}/omac-left-{os.getpid()}"
        while len(cgroups.read(f"{made}/cgroup.procs").split()) < 3:
            assert program.poll() is None
        assert held.end() == ()
        assert program.wait() == -signal.SIGKILL
        assert not os.path.exists(made)


@pytest.mark.parametrize("folder", HIERARCHIES)
def test_what_has_no_launcher_any_more_is_removed(folder: str) -> None:
    """The next launch removes the cgroup of a killed launcher and ends its processes; a cgroup in use stays."""
    program = f"""\
import subprocess, time
from omac.adapters.sandbox import limits
held = limits.begin(limits.Enforcement({{}}, {{}}, {folder!r}, ()), "killed")
child = subprocess.Popen(["sleep", "97"], stdout=subprocess.DEVNULL)
held.add(child.pid)
print(child.pid, flush=True)
time.sleep(97)
"""
    enforcement = limits.Enforcement({}, {}, folder, ())
    made = f"{folder}/omac-killed"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout
        survivor = os.pidfd_open(int(launcher.stdout.readline()))
        limits.begin(enforcement, f"next-{os.getpid()}").end()
        assert os.path.isdir(made)
        launcher.kill()
        launcher.wait()
        limits.begin(enforcement, f"next-{os.getpid()}").end()
        assert not os.path.exists(made)
        assert select.select([survivor], [], [], 5)[0]  # it has ended
        os.close(survivor)


def test_version_1_is_not_used(tmp_path: Path) -> None:
    """A limit whose controller belongs to cgroup v1 is refused with the way to v2; rlimits still work."""
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    (tmp_path / "mountinfo").write_text(f"31 20 0:27 / {folder} rw shared:9 - cgroup cgroup rw,cpu,memory\n")
    (tmp_path / "cgroup").write_text("4:cpu,memory:/\n")
    with pytest.raises(Refusal, match=r"systemd\.unified_cgroup_hierarchy=1") as caught:
        limits.plan({"cpu": 1.5}, proc=str(tmp_path))
    assert "systemd.unified_cgroup_hierarchy=1" in caught.value.fix[0]
    assert limits.plan({"memory": 1e9}, proc=str(tmp_path)).by["memory"].startswith("RLIMIT_DATA")


def test_beside_omac_and_under_the_same_bounds(tmp_path: Path) -> None:
    """A launch's cgroup (v2) is made beside omac's own and has no higher bounds than that one."""
    mount = tmp_path / "cgroup mount"
    own = mount / "user.slice" / "app.slice" / "terminal.scope"
    own.mkdir(parents=True)
    bounds = {"pids.max": "70", "memory.max": "1000000000", "cpu.max": "50000 100000", "memory.high": "max"}
    for name, text in bounds.items():
        (own / name).write_text(f"{text}\n")
    (own.parent / "cgroup.subtree_control").write_text("memory pids cpu\n")
    (own.parent / "cgroup.procs").touch()
    _say_cgroup2(tmp_path, mount, "/user.slice/app.slice/terminal.scope")
    enforcement = limits.plan({"pids": 100.0, "memory": 500e6, "cpu": 2.0}, proc=str(tmp_path))
    assert enforcement.folder == str(own.parent)
    assert {file: text for file, text, _ in enforcement.settings} == {
        "pids.max": "70",
        "memory.max": "500000000",
        "memory.swap.max": "0",
        "cpu.max": "50000 100000",
    }


@pytest.mark.parametrize(
    ("path", "controllers", "name"),
    [
        ("/app.slice/terminal.scope", "pids", "cpu"),  # the slice does not deal it out
        ("/gone.slice/session.scope", "", "cpu"),  # a slice that omac may not write to
        ("/../elsewhere", "cpu", "cpu"),  # of another cgroup namespace
    ],
)
def test_no_cgroup_is_taken_that_would_not_do(tmp_path: Path, path: str, controllers: str, name: str) -> None:
    """A cgroup that cannot enforce a limit is not chosen for it."""
    mount = tmp_path / "mount"
    for folder in (mount, mount / "app.slice"):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.subtree_control").write_text(controllers)
    _say_cgroup2(tmp_path, mount, path)
    with pytest.raises(Refusal):
        limits.plan({name: 1.5}, proc=str(tmp_path))
    _say_cgroup2(tmp_path, mount, "/app.slice/terminal.scope")
    (mount / "app.slice" / "cgroup.subtree_control").write_text(name)
    assert limits.plan({name: 1.5}, proc=str(tmp_path)).by[name] == f"cgroup v2 in {mount}/app.slice"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], {}),
        (["pids=200,memory=2G", "cpu=1.5,files=1024"], {"pids": 200, "memory": 2 << 30, "cpu": 1.5, "files": 1024}),
        (["memory=1.5g"], {"memory": 3 << 29}),
        (["memory=2 GiB"], {"memory": 2 << 30}),
        (["memory=20000000"], {"memory": 20_000_000}),
        (["pids=5", "pids=6"], {"pids": 6}),
        ([" pids=5 , cpu=1"], {"pids": 5, "cpu": 1}),
    ],
)
def test_limits_are_read(words: list[str], found: dict[str, float]) -> None:
    """Names, amounts and units of limits are read as they are documented."""
    assert limits.parse(words) == found


@pytest.mark.parametrize(
    "word",
    ["", "pids", "pids=", "pids=x", "pids=1", "pids=-5", "pids=1.5", "pids=1e3", "pids=٣", "memory=1X", "memory=5K",
     "memory=nan", "memory=99999999999T", "cpu=0", "cpu=inf", "cpu=1.2.3", "files=2", "time=5", "pids=5;memory=1G",
     "pids=99999999", "memory=1 G B"],
)  # fmt: skip
def test_what_is_no_limit_is_refused(word: str) -> None:
    """A malformed or impossible limit is refused with an example, and never treated as no limit."""
    with pytest.raises(Refusal) as caught:
        limits.parse([word])
    assert caught.value.reason == "misuse"
    assert "--limit" in caught.value.fix[0]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("memory=4", "memory=4 is less than 16 MiB; a number alone is bytes"),
        ("pids=1", "pids=1 is less than 2"),
        ("cpu=10001", "cpu=10001 is more than 10000"),
    ],
)
def test_an_amount_out_of_bounds_is_explained(word: str, says: str) -> None:
    """The bound that was missed is named in the unit that people write: `memory = 4` was meant as 4G."""
    with pytest.raises(Refusal) as caught:
        limits.parse([word])
    assert caught.value.message == says


def _say_cgroup2(proc: Path, mount: Path, path: str) -> None:
    escaped = str(mount).replace(" ", "\\040")
    (proc / "mountinfo").write_text(
        f"20 1 8:1 / / rw - ext4 /dev/sda rw\n31 20 0:27 / {escaped} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    (proc / "cgroup").write_text(f"0::{path}\n")


def _open_files(pid: int) -> tuple[int, int]:
    import resource

    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


def _end_all_of(pid: int) -> None:
    """End a process and the children it made, which lead sessions of their own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in [*children, str(pid)]:
        os.kill(int(child), signal.SIGKILL)
