"""The inspection at the end of a launch: its time, omac's memory during it, and its completion after a SIGKILL.

Each tree is left by a program in a real `omac sandbox run`. The time is from the program's end to omac's, the memory is
the largest that omac itself ever had. OMAC_BENCH_LOOK="NAME;..." measures only these trees.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Figure, publish

ORDINARY_SECONDS_MAX, ORDINARY_MIB_MAX = 20.0, 200
HOSTILE_SECONDS_MAX, HOSTILE_MIB_MAX = 60.0, 300
WINDOW_MS_MAX = 100
FILES, REPOSITORIES = 500_000, 1_000
KILLS = 50
SEED = 20
POLL_SECONDS = 0.02
OMAC = [sys.executable, "-c", "from omac.tools.entry import main; main()"]
PYTHON = ["/usr/bin/python3", "-ISc"]
COMMON = """\
import os
def put(path, content=b""):
    with open(path, "wb") as file:
        file.write(content)
def git(path, config=b""):
    os.makedirs(path + "/objects"), os.makedirs(path + "/refs")
    put(path + "/HEAD", b"ref: refs/heads/main\\n"), put(path + "/config", config)
def many(folder, count, make):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for number in range(count):
        make(str(number))
"""
HOSTILE = {
    "a folder with 3,000,000 files": "many('big', 3_000_000, os.mknod)",
    "a folder of git's with 500,000 files": "many('.git/objects/odd', 500_000, os.mknod)",
    "10 paths of 5,000 folders": """
for number in range(10):
    top = os.getcwd()
    os.mkdir(f"deep{number}"), os.chdir(f"deep{number}")
    for _ in range(5_000):
        os.mkdir("d"), os.chdir("d")
    os.chdir(top)
""",
    "100,000 nested repositories": """
for number in range(100_000):
    os.makedirs(f"n/{number // 1000}", exist_ok=True)
    git(f"n/{number // 1000}/{number}/.git", b"[core]fsmonitor=x\\n")
""",
    "200,000 refs": """
for number in range(200_000):
    if number % 1000 == 0:
        os.makedirs(f".git/refs/heads/{number // 1000}")
    put(f".git/refs/heads/{number // 1000}/{number}", b"0" * 40 + b"\\n")
""",
    "500,000 links among git's files": "many('.git/refs/heads/l', 500_000, lambda name: os.symlink('/etc', name))",
    "1,000 settings of 1 MB": """
line = b"".join(b'\\tk%d = "a\\\\tb"\\n' % number for number in range(60_000))
for number in range(1000):
    git(f"n{number}/.git", b"[core]\\n" + line[:1_000_000].rpartition(b"\\n")[0] + b"\\n")
""",
    "lists of refs of 60 MB, and a setting": """
os.system("git config user.name x")
put(".git/packed-refs", b"".join(b"%040x refs/heads/%09d\\n" % (number, number) for number in range(1_000_000)))
os.makedirs(".git/logs/refs/heads", exist_ok=True)
put(".git/logs/refs/heads/x", b"".join(b"%040x %040x A <a> 1 +0000\\tx\\n" % (number, 1) for number in range(600_000)))
""",
    "200,000 files that programs obey": """
for number in range(200_000):
    os.makedirs(f"o/{number}/.vscode")
    put(f"o/{number}/.vscode/tasks.json")
""",
    "an index of 90 MB with trees": """
entry = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(32) + (9).to_bytes(2, "big")
tree = b"\\0-1 240000\\n" + b"".join(b"%08d\\x001 0\\n" % number + bytes(20) for number in range(240_000))
with open(".git/index", "wb") as file:
    count = 80_000_000 // 72
    file.write(b"DIRC" + (2).to_bytes(4, "big") + count.to_bytes(4, "big"))
    for number in range(count):
        file.write(entry + b"%04d/%04d" % divmod(number, 1000) + bytes(1))
    file.write(b"TREE" + len(tree).to_bytes(4, "big") + tree + bytes(20))
""",
} | {
    f"an index of 90 MB{what}": f"""
entry = bytes(24) + (0o{kind}).to_bytes(4, "big") + bytes(32)
with open(".git/index", "r+b" if os.path.exists(".git/index") else "wb") as file:
    count = 90_000_000 // 72
    file.write(b"DIRC" + (2).to_bytes(4, "big") + count.to_bytes(4, "big"))
    for number in range(count):
        file.write(entry + (8).to_bytes(2, "big") + b"%08d" % number + bytes(2))
    file.write(bytes(20))
"""
    for what, kind in {"": "100644", " with links": "120000"}.items()
}
WINDOW = """
import time
def lives(path):
    try:
        return os.path.islink(path) or b"fsmonitor" in open(path, "rb").read()
    except OSError:
        return False
def gone(path):
    begun = time.monotonic()
    while lives(path) and time.monotonic() < begun + 5:
        time.sleep(0.0005)
    return 1000 * (time.monotonic() - begun)
def repository(number):
    git(f"draft{number}", b"[core]fsmonitor=x\\n"), os.mkdir(f"n{number}")
    os.rename(f"draft{number}", f"n{number}/.git")
    return gone(f"n{number}/.git/config")
def link(number):
    os.symlink("/etc/passwd", f".git/refs/heads/l{number}")
    return gone(f".git/refs/heads/l{number}")
first = repository("first")
time.sleep(0.2)
times = []
for number in range(200):
    times.append((repository, link)[number % 2](number))
    time.sleep(0.01)
put("times", repr((first, sorted(times))).encode())
"""
PLANT = """\
printf '[core]\\n\\tfsmonitor = "touch %s"\\n' "$1" >.git/worktree-of-nobody
mkdir -p n && git init -q n && git -C n config core.fsmonitor "touch $1"
mkdir -p .git/modules/m && git init -q --bare .git/modules/m && git -C .git/modules/m config core.fsmonitor "touch $1"
ln -s "$1" .git/logs/refs/heads/main2
for number in $(seq 200); do cp -r n copy$number; done
"""


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    names = [name for name in os.environ.get("OMAC_BENCH_LOOK", "").split(";") if name]
    figures = []
    if not names or "ordinary" in names:
        figures.append(ordinary())
    figures += [hostile(name) for name in HOSTILE if not names or name in names]
    if not names or "window" in names:
        figures.append(window())
    if not names or "kills" in names:
        figures.append(kills())
    return publish("look", figures)


def ordinary() -> Figure:
    """Measure 500,000 files in 1,000 repositories, all there at launch, and a program that changes little."""
    with _world() as (top, project):
        each = f"many(f'r{{number}}/src', {FILES // REPOSITORIES - 6}, os.mknod); os.chdir('../..')"
        source = f"{COMMON}\nfor number in range({REPOSITORIES}):\n    git(f'r{{number}}/.git'); {each}\n"
        subprocess.run([*PYTHON, source], cwd=project, check=True)
        seconds, mib = _measured(top, project, "put('r1/src/new'), git('new/.git')")
    name = f"{FILES:,} files, {REPOSITORIES:,} repositories"
    return _figure(name, seconds, mib, ORDINARY_SECONDS_MAX, ORDINARY_MIB_MAX)


def hostile(name: str) -> Figure:
    """Measure a tree that was made to keep the inspection busy."""
    with _world() as (top, project):
        seconds, mib = _measured(top, project, HOSTILE[name])
    return _figure(name, seconds, mib, HOSTILE_SECONDS_MAX, HOSTILE_MIB_MAX)


def window() -> Figure:
    """Measure the time for which a running program's files among git's exist, before they are set aside."""
    with _world() as (top, project):
        line = [*OMAC, "sandbox", "run", "--", *PYTHON, f"{COMMON}\n{WINDOW}"]
        subprocess.run(line, cwd=project, env=_environment(top), capture_output=True, check=True)
        first, times = literal_eval((project / "times").read_text())
    typical, longest = times[len(times) // 2], max(first, *times)
    summary = f"{typical:.0f} ms, of a program's first instruction {first:.0f} ms, longest {longest:.0f} ms"
    print(f"there while it runs: {summary}", file=sys.stderr, flush=True)
    return Figure(
        "there while it runs", summary, "-", f"{len(times)} times", f"<= {WINDOW_MS_MAX} ms", longest <= WINDOW_MS_MAX
    )


def _figure(name: str, seconds: float, mib: float, seconds_max: float, mib_max: int) -> Figure:
    holds = seconds <= seconds_max and mib <= mib_max
    print(f"{name}: {seconds:.1f} s, {mib:.0f} MiB", file=sys.stderr, flush=True)
    return Figure(name, f"{seconds:.1f} s", "-", f"{mib:.0f} MiB", f"<= {seconds_max:.0f} s, {mib_max} MiB", holds)


def _measured(top: Path, project: Path, source: str) -> tuple[float, float]:
    """Return the seconds of omac after the end of the program, and the MiB that it had at most."""
    ended = project / "ended"
    line = [*OMAC, "sandbox", "run", "--", *PYTHON, f"{COMMON}\n{source}\nput({str(ended)!r})"]
    process = subprocess.Popen(
        line, cwd=project, env=_environment(top), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    begun = peak = 0.0
    with tempfile.TemporaryFile() as output:
        while process.poll() is None:
            if not begun and ended.exists():
                begun = time.monotonic()
            peak = max(peak, _peak_mib(process.pid))
            os.set_blocking(process.stderr.fileno(), False)
            output.write(process.stderr.read() or b"")
            time.sleep(POLL_SECONDS)
        output.seek(0)
        text = output.read().decode(errors="replace")
    assert begun, text
    return time.monotonic() - begun, peak


def _peak_mib(pid: int) -> float:
    """Return the largest memory that a process had, of its own."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks[0]) / 1024 if peaks else 0.0


def kills() -> Figure:
    """Kill launches at a random moment, their inspection included; the next command finishes it."""
    chance, armed, late = random.Random(SEED), 0, 0
    with _world() as (top, project):
        canary = top / "canary"
        line = [*OMAC, "sandbox", "run", "--", "sh", "-c", PLANT, "sh", str(canary)]
        begun = time.monotonic()
        subprocess.run(line, cwd=project, env=_environment(top), capture_output=True, check=True)
        whole = time.monotonic() - begun
        for number in range(KILLS):
            shutil.rmtree(project)
            _repository(project)
            process = subprocess.Popen(
                line, cwd=project, env=_environment(top), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(chance.uniform(0, whole))
            process.send_signal(signal.SIGKILL)
            process.wait()
            late += (project / "n").exists()
            canary.unlink(missing_ok=True)
            command = ["status"] if number % 2 else ["sandbox", "run", "--", "true"]
            subprocess.run([*OMAC, *command], cwd=project, env=_environment(top), capture_output=True)
            armed += _is_armed(project, canary)
    name = f"{KILLS} launches killed ({late} after they planted)"
    return Figure(name, f"{armed} left armed", "-", f"seed {SEED}", "0", armed == 0 and late > 0)


def _is_armed(project: Path, canary: Path) -> bool:
    """Return whether the host's git runs a planted program, or writes to a planted link's target."""
    for folder in (project, project / "n", project / "copy1", project / "copy200", project / ".git/modules/m"):
        if folder.exists():
            subprocess.run(["git", "status"], cwd=folder, capture_output=True)
    return canary.exists() or (project / ".git/logs/refs/heads/main2").is_symlink()


def _environment(top: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(top / "home"), "OMAC_STATE_DIR": str(top / "state"), "LC_ALL": "C"}


@contextmanager
def _world() -> Iterator[tuple[Path, Path]]:
    """Yield a folder with a home and a state directory, and a project with a repository in the home."""
    top = Path(tempfile.mkdtemp(prefix="omac-look-"))
    try:
        (top / "state").mkdir()
        _repository(top / "home" / "project")
        yield top, top / "home" / "project"
    finally:
        if subprocess.run(["rm", "-rf", str(top)], stderr=subprocess.DEVNULL).returncode:
            subprocess.run(["chmod", "-R", "u+rwx", str(top)], capture_output=True)
            subprocess.run(["rm", "-rf", str(top)], check=True)


def _repository(project: Path) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    project.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=project, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=project, check=True)
