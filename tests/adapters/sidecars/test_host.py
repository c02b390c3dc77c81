"""adapters/sidecars/host.py and process.py: how sidecars start, what they inherit, and that they really end."""

import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from adapters.sidecars.fixtures import MakeSpec, Members, Printed, Spawn
from held_bubblewrap import held
from polling import eventually, until
from programs import program_at

from omac.adapters.linux import host_programs, process
from omac.adapters.linux import process_identity as birth
from omac.adapters.linux.listeners import answering
from omac.adapters.sidecars import launch, logfile
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.domain.kernel.hidden import Hidden
from omac.domain.sidecars import sidecar as domain
from omac.domain.sidecars.sidecar import Exit, Variable
from omac.domain.skills.meta import Health
from omac.services.ports import SpawnFailed

NO_NAMESPACES = "No permissions to create new namespace, likely because the kernel does not allow it"
NO_PROCESSES = "Creating new namespace failed: Resource temporarily unavailable"

PYTHON = (sys.executable, "-I", "-S")
INTERPRETER = shlex.quote(sys.executable)  # in a shell
SERVER = (*PYTHON, "server.py")
DEAF = "trap '' TERM; echo ready; while :; do sleep 60; done"

# Spawns argv[3:] as a sidecar and prints its birth and its processes; then it dies by SIGKILL, or stops it.
DRIVER = """\
import json, os, signal, sys, time
import msgspec, trio
from omac.adapters.linux import process
from omac.adapters.linux import process_identity as birth
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills.meta import Health

mode, folder, *command = sys.argv[1:]

async def main():
    host = LinuxSidecarHost(folder + "/logs", os.environ, isolate=mode != "plain")
    spec = SidecarSpec("demo", "demo", "/w", folder, folder, "sha256:0", True, tuple(command))
    if mode.startswith("during "):
        await host.isolation_available()
        omac = os.getpid()
        if os.fork() == 0:
            time.sleep(float(mode.split()[1]) / 1000)
            os.kill(omac, signal.SIGKILL)
            os._exit(0)
    sidecar = await host.spawn("demo", spec, spec.source, {})
    if mode.startswith("during "):
        await trio.sleep_forever()
    if mode == "healthy":
        await sidecar.probe(Health())
        found = await sidecar.stop(5000)
    else:
        count = 1 if mode == "at-once" else 4 if mode == "isolated" else 3
        members = lambda: process.session_members(sidecar.birth.pid) + process.descendants(sidecar.birth.pid)
        while len({each.pid for each in members()}) < count:
            await trio.sleep(0.002)
        found = sorted({(each.pid, each.start_ticks) for each in members()})
    print(json.dumps([msgspec.structs.asdict(sidecar.birth), msgspec.to_builtins(found)]), flush=True)
    if mode != "healthy":
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""
WRAPPER = ("sh", "-c", "sleep 99; true")
DAEMON = ("sh", "-c", "(setsid sh -c 'sleep 98 & wait' &); exec sleep 97")


def drive(mode: str, folder: Path, *command: str, prefix: tuple[str, ...] = (), python: str = sys.executable) -> Any:
    """Run the driver to its end; return the birth and the result as JSON has it, or None for a driver killed
    half-way."""
    script = folder / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [*prefix, python, str(script), mode, str(folder), *command]
    done = subprocess.run(line, capture_output=True, env=environment, timeout=20, check=False, text=True)
    assert done.returncode == (0 if mode == "healthy" else -signal.SIGKILL), done.stderr
    if mode.startswith("during "):
        return None
    birth, result = json.loads(done.stdout)
    return domain.Birth(**birth), result


async def test_exit_codes(spawn: Spawn) -> None:
    """An exit reports a code or a signal, with a namespace and without, and reaches every waiter."""
    failing = await spawn("sh", "-c", "exit 3")
    killed = await spawn("sh", "-c", "kill -USR1 $$")
    answers: list[Exit] = []

    async def wait() -> None:
        answers.append(await failing.wait())

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
        assert answers == [Exit(code=3)] * 3
        assert await killed.wait() == Exit(signal=signal.SIGUSR1)
        assert await killed.stop(1000) == Exit(signal=signal.SIGUSR1)


async def test_a_cancelled_wait_leaves_it_running(spawn: Spawn, members: Members) -> None:
    """A cancelled wait does not end the sidecar."""
    sidecar = await spawn("sleep", "60")
    with trio.move_on_after(0.02) as first:
        await sidecar.wait()
    assert first.cancelled_caught
    assert members(sidecar)
    assert await sidecar.stop(5000) == Exit(signal=signal.SIGTERM)


async def test_a_graceful_end_has_code_0(spawn: Spawn) -> None:
    """SIGTERM reaches the program, which ends by itself. A second `stop` gives the same exit."""
    sidecar = await spawn(*SERVER)
    await sidecar.probe(Health())
    with trio.fail_after(4):
        assert await sidecar.stop(5000) == Exit(code=0)
        assert await sidecar.stop(5000) == Exit(code=0)


async def test_a_wrapped_server_keeps_its_grace(spawn: Spawn, printed: Printed) -> None:
    """A shell dies of SIGTERM at once. The server behind it still finishes its work."""
    sidecar = await spawn("sh", "-c", f"{INTERPRETER} -I -S server.py; true")
    await sidecar.probe(Health())
    with trio.fail_after(4):
        await sidecar.stop(5000)
    assert printed("goodbye")


async def test_who_ignores_sigterm_is_killed(spawn: Spawn, members: Members, printed: Printed) -> None:
    """A sidecar that ignores SIGTERM is killed after the grace and not before, and no process is left."""
    sidecar = await spawn("sh", "-c", DEAF)
    await until(lambda: printed("ready"))
    began = trio.current_time()
    assert await sidecar.stop(300) == Exit(signal=signal.SIGKILL)
    assert 0.3 <= trio.current_time() - began < 2
    assert members(sidecar) == []


async def test_stop_with_a_waiter(spawn: Spawn, printed: Printed) -> None:
    """A sidecar can be stopped while another task waits for it, which is the usual case."""
    sidecar = await spawn("sh", "-c", DEAF)
    await until(lambda: printed("ready"))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sidecar.wait)
            nursery.start_soon(sidecar.stop, 60_000)
            await trio.testing.wait_all_tasks_blocked()
            assert await sidecar.stop(50) == Exit(signal=signal.SIGKILL)


async def test_a_stop_right_after_the_start(spawn: Spawn, members: Members) -> None:
    """A stop during the setup of the namespace takes milliseconds, not the grace."""
    for _ in range(5):
        sidecar = await spawn("sleep", "60")
        with trio.fail_after(5):
            assert (await sidecar.stop(10_000)).signal in (signal.SIGTERM, signal.SIGKILL)
        assert members(sidecar) == []


async def test_a_cancelled_stop_can_be_repeated(spawn: Spawn, printed: Printed, members: Members) -> None:
    """A stop that is cancelled half-way leaves no process frozen."""
    sidecar = await spawn("sh", "-c", DEAF)
    await until(lambda: printed("ready"))
    with trio.move_on_after(0.05):
        await sidecar.stop(60_000)
    assert "T" not in {entry.state for entry in members(sidecar)}
    assert await sidecar.stop(0) == Exit(signal=signal.SIGKILL)


async def test_quick_forkers_do_not_escape(spawn: Spawn, members: Members, printed: Printed) -> None:
    """A chain of processes that ignores SIGTERM and replaces itself all the time is gone after a stop."""
    chain = "import os\nimport signal\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    chain += "while True:\n    if os.fork():\n        os._exit(0) if os.getpid() != os.getsid(0) else None\n"
    chain += "        os.waitid(os.P_ALL, 0, os.WEXITED) if os.getpid() == os.getsid(0) else None\n"
    sidecar = await spawn("sh", "-c", f'{INTERPRETER} -I -S -c "$0" & sleep 60; true', chain)
    await until(lambda: printed("ready"))
    with trio.fail_after(5):
        await sidecar.stop(30)
    assert members(sidecar) == []


async def test_what_it_leaves_behind_ends_with_it(spawn: Spawn, members: Members) -> None:
    """Background children of a program end with the program."""
    sidecar = await spawn("sh", "-c", "sleep 96 & exit 4")
    with trio.fail_after(5):
        assert await sidecar.wait() == Exit(code=4)
    assert members(sidecar) == []


async def test_secrets_are_in_the_program_and_nowhere_else(tmp_path: Path, spec: MakeSpec, members: Members) -> None:
    """A secret is only in the program's environment: not in bubblewrap's, and in no process's arguments."""
    host = LinuxSidecarHost(str(tmp_path / "logs"), {"PATH": os.environ["PATH"]})
    sidecar_spec = spec(*SERVER, variables=(Variable("KEY", secret=True, fingerprint="hmac:1", store="vault"),))
    value = "unmistakable-7f3a"
    sidecar = await host.spawn("demo", sidecar_spec, sidecar_spec.source, {"KEY": Hidden(value)})
    await sidecar.probe(Health())
    holders = {
        name
        for each in members(sidecar)
        for name in ("environ", "cmdline")
        if value.encode() in Path(f"/proc/{each.pid}/{name}").read_bytes()
    }
    programs = [
        each.pid for each in members(sidecar) if value.encode() in Path(f"/proc/{each.pid}/environ").read_bytes()
    ]
    assert holders == {"environ"}
    assert [runs_server(pid) for pid in programs] == [True]
    await sidecar.stop(0)


async def test_an_approved_copy_is_read_only_to_its_program(tmp_path: Path, spec: MakeSpec, printed: Printed) -> None:
    """A program cannot write to its approved copy, even as root. The rest of the file system is unchanged."""
    host = LinuxSidecarHost(str(tmp_path / "logs"), {"PATH": os.environ["PATH"]})
    folder = tmp_path / "copy"
    folder.mkdir()
    sidecar_spec = spec("sh", "-c", f"touch x || echo kept; touch {tmp_path}/y && echo free", digest="sha256:1")
    await (await host.spawn("demo", sidecar_spec, str(folder), {})).wait()
    assert printed("kept")
    assert printed("free")
    assert not list(folder.iterdir())


async def test_the_environment_is_what_is_declared(tmp_path: Path, spec: MakeSpec) -> None:
    """A program gets exactly the variables of domain.sidecar.environment and PWD, and none of omac's own."""
    outside = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TOKEN": "secret", "ALLOWED": "yes"}
    host = LinuxSidecarHost(str(tmp_path / "logs"), outside)
    sidecar_spec = spec(*SERVER, passthrough=("ALLOWED",), variables=(Variable("KEY", "", "TOKEN", secret=True),))
    sidecar = await host.spawn("demo", sidecar_spec, sidecar_spec.source, {})
    await sidecar.probe(Health())
    (pid,) = (each.pid for each in process.descendants(sidecar.birth.pid) if runs_server(each.pid))
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    declared = domain.environment(sidecar_spec, sidecar.birth.port, outside, {})
    assert dict(entry.split("=", 1) for entry in entries) == declared | {"PWD": sidecar_spec.source}
    assert "KEY" in declared
    assert os.readlink(f"/proc/{pid}/cwd") == sidecar_spec.source
    await sidecar.stop(1000)
    assert "secret" not in (tmp_path / "logs" / "demo.log").read_text()


def runs_server(pid: int) -> bool:
    """Return whether a process is the interpreter with server.py, not a bubblewrap that has both in its arguments."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0") == [*SERVER]


async def test_only_three_descriptors(spawn: Spawn, members: Members) -> None:
    """stdin is /dev/null, and stdout and stderr are the log. Even an inheritable descriptor of omac is not
    inherited."""
    with tempfile.TemporaryFile() as treasure:
        os.set_inheritable(treasure.fileno(), True)
        sidecar = await spawn(*SERVER)
        await sidecar.probe(Health())
        inode = os.fstat(treasure.fileno()).st_ino
        for entry in members(sidecar):
            held = {name: os.stat(f"/proc/{entry.pid}/fd/{name}") for name in os.listdir(f"/proc/{entry.pid}/fd")}
            assert inode not in {each.st_ino for each in held.values()}
            if runs_server(entry.pid):
                assert sorted(held) == ["0", "1", "2", "3"]  # 3 is its own listener
                assert os.readlink(f"/proc/{entry.pid}/fd/0") == "/dev/null"
                assert os.readlink(f"/proc/{entry.pid}/fd/1") == sidecar.birth.log
                assert os.readlink(f"/proc/{entry.pid}/fd/2") == sidecar.birth.log
                assert os.readlink(f"/proc/{entry.pid}/fd/3").startswith("socket:")


async def test_spawned_from_the_loops_own_thread(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel binds a sidecar's life to the thread that forked it, so the event loop's own thread forks."""
    threads: list[int] = []
    real = subprocess.Popen.__init__

    def popen(*args: Any, **kwargs: Any) -> None:
        threads.append(threading.get_ident())
        real(*args, **kwargs)

    monkeypatch.setattr(subprocess.Popen, "__init__", popen)
    await spawn("sleep", "60")
    assert threads == [threading.get_ident()]
    with pytest.raises(AssertionError, match="own thread"):
        await trio.to_thread.run_sync(launch.start, ["true"], {}, "/", 1)


async def test_ports_and_births_differ(spawn: Spawn) -> None:
    """Two sidecars have different ports, and a birth identifies its process."""
    first, second = await spawn("sleep", "60"), await spawn("sleep", "60")
    assert first.birth.port != second.birth.port
    assert first.birth.start_ticks == birth.start_ticks(first.birth.pid)
    assert first.birth.boot_id == birth.boot_id()


async def test_the_port_is_filled_in(spawn: Spawn, printed: Printed) -> None:
    """The host replaces ${SIDECAR_PORT} in every argument, and the log's header shows the result."""
    sidecar = await spawn("sh", "-c", "echo $0 $1; sleep 60", "a${SIDECAR_PORT}b${SIDECAR_PORT}", "$HOME")
    port = sidecar.birth.port
    await until(lambda: printed(f"a{port}b{port} $HOME"))
    header = Path(sidecar.birth.log).read_text().splitlines()[0]
    assert header.startswith(f'[omac] sidecar "demo" starts: port={port} argv=["/')


async def test_the_log_is_private(spawn: Spawn, tmp_path: Path) -> None:
    """The log's folder becomes 0700 and its file 0600, whatever they were. Starts are appended."""
    (tmp_path / "logs").mkdir(mode=0o755)
    (tmp_path / "logs" / "demo.log").write_text("before\n")
    sidecar = await spawn("sh", "-c", "echo one; echo two >&2")
    await sidecar.wait()
    assert Path(sidecar.birth.log).stat().st_mode & 0o7777 == 0o600
    assert (tmp_path / "logs").stat().st_mode & 0o7777 == 0o700
    lines = Path(sidecar.birth.log).read_text().splitlines()
    assert (lines[0], lines[2:]) == ("before", ["one", "two"])


async def test_logs_of_a_server_of_weeks(spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host keeps a number of logs, the last written ones, and those of the sidecars that live."""
    monkeypatch.setattr(logfile, "LOGS_MAX", 5)
    logs, sidecar_spec = tmp_path / "logs", spec(sys.executable, "server.py")
    host = LinuxSidecarHost(str(logs), os.environ)
    living = await host.spawn("living", sidecar_spec, sidecar_spec.source, {})
    try:
        os.utime(living.birth.log, (0, 0))
        for number in range(8):
            ended = await host.spawn(f"ended-{number}", sidecar_spec, sidecar_spec.source, {})
            await ended.stop(0)
            del ended
            os.utime(logs / f"ended-{number}.log", (number, number))
        await (await host.spawn("ended-4", sidecar_spec, sidecar_spec.source, {})).stop(0)
        assert {path.name for path in logs.iterdir()} == {"living.log", *(f"ended-{n}.log" for n in (4, 5, 6, 7))}
    finally:
        await living.stop(0)


async def test_a_large_log_is_rotated(spawn: Spawn, tmp_path: Path) -> None:
    """The host rotates a large log, and keeps an earlier one."""
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs" / "demo.log").open("wb") as large:
        large.truncate(logfile.ROTATE_BYTES + 1)
    await (await spawn("true")).wait()
    assert (tmp_path / "logs" / "demo.log.1").stat().st_size == logfile.ROTATE_BYTES + 1
    assert (tmp_path / "logs" / "demo.log").stat().st_size < 1000


@pytest.mark.parametrize("place", ["link", "fifo", "folder", "label"])
async def test_a_strange_log_is_refused(spec: MakeSpec, tmp_path: Path, place: str) -> None:
    """The host refuses a log that is a link or a FIFO, a log folder that is a link, and a label that leaves the
    folder."""
    logs, target = tmp_path / "logs", tmp_path / "target"
    logs.mkdir()
    match place:
        case "link":
            (logs / "demo.log").symlink_to(target)
        case "fifo":
            os.mkfifo(logs / "demo.log")
        case "folder":
            (tmp_path / "elsewhere").mkdir()
            logs.rmdir()
            logs.symlink_to(tmp_path / "elsewhere")
        case "label":
            pass
        case _:
            raise AssertionError(place)
    with pytest.raises(SpawnFailed, match="cannot open the log"):
        await LinuxSidecarHost(str(logs), os.environ).spawn(
            "../x" if place == "label" else "demo", spec("true"), str(tmp_path), {}
        )
    assert not target.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system with so few files")
def test_a_log_for_which_no_space_is_left(tmp_path: Path) -> None:
    """A full disk is no reason to remove anything: the reason is the system's own."""
    full = 'mount -t tmpfs -o nr_inodes=2 tmpfs "$1" && mkdir "$1/logs" && shift && exec "$@"'
    code = """
import os, sys, trio
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.services.ports import SpawnFailed
spec = SidecarSpec("demo", "demo", "", "/", "/", "sha256:0", False, ("true",))
try:
    trio.run(LinuxSidecarHost(sys.argv[1], os.environ).spawn, "demo", spec, "/", {})
except SpawnFailed as failed:
    print(failed)
"""
    line = ["unshare", "-m", "sh", "-c", full, "sh", str(tmp_path), sys.executable, "-c", code, f"{tmp_path}/logs"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"cannot open the log {tmp_path}/logs/demo.log: No space left on device\n", done


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("no-such-program-here",), r"no-such-program-here is not on the sidecar's PATH .*; install it, .*omac\.yaml"),
        (("./absent.sh",), r"/skills/demo/absent\.sh is not there .*; correct sidecar\.command in .*/demo/omac\.yaml"),
        (("./plain file.sh",), r"is not executable; run: chmod \+x '.*/plain file\.sh'"),
        (("/etc",), r"/etc is not there or not a file; correct sidecar\.command in .*/demo/omac\.yaml"),
        ((), r"names no program; set sidecar\.command in .*/demo/omac\.yaml"),
    ],
)
async def test_what_cannot_start_says_why(spawn: Spawn, skill: Path, command: tuple[str, ...], says: str) -> None:
    """Each failure names the path and the next step."""
    (skill / "plain file.sh").write_text("#!/bin/sh\n")
    with pytest.raises(SpawnFailed, match=says):
        await spawn(*command)


async def test_a_skill_that_vanished(tmp_path: Path, spec: MakeSpec, skill: Path) -> None:
    """A skill without its folder cannot be started."""
    sidecar_spec = spec("true")
    (skill / "server.py").unlink()
    skill.rmdir()
    with pytest.raises(SpawnFailed, match=r"folder .* is not there"):
        await LinuxSidecarHost(str(tmp_path / "logs"), os.environ).spawn("demo", sidecar_spec, sidecar_spec.source, {})


async def test_a_script_of_the_skill(spawn: Spawn, skill: Path) -> None:
    """A relative program is the skill's own. An argument with a leading dash reaches the program."""
    program_at(skill / "run.sh", '#!/bin/sh\necho "$@"\n')
    sidecar = await spawn("./run.sh", "--help", "--")
    assert await sidecar.wait() == Exit(code=0)
    assert Path(sidecar.birth.log).read_text().splitlines()[1:] == ["--help --"]


@pytest.fixture
def host_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LinuxSidecarHost]:
    """Return a maker of hosts whose bubblewrap is this script, or absent for an empty one."""
    monkeypatch.setattr(launch, "BUILD_WITHIN_S", 0.2)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sleep").symlink_to("/bin/sleep")

    def make(bwrap: str) -> LinuxSidecarHost:
        if bwrap:
            program_at(tools / "bwrap", bwrap)
        path = str(tools / "bwrap") if bwrap else ""
        return LinuxSidecarHost(str(tmp_path / "logs"), {"PATH": str(tools)}, bwrap=path)

    return make


@pytest.mark.parametrize(
    ("bwrap", "why"),
    [
        ("", "bubblewrap (bwrap) is not in"),
        (f"#!/bin/sh\necho bwrap: {NO_NAMESPACES} >&2; exit 1\n", NO_NAMESPACES),
    ],
)
async def test_without_namespaces(
    tmp_path: Path, spec: MakeSpec, host_with: Callable[[str], LinuxSidecarHost], bwrap: str, why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A machine without namespaces runs sidecars without them, and the host reports the reason."""
    host = host_with(bwrap)
    assert not await host.isolation_available()
    assert why in caplog.text
    sidecar = await host.spawn("demo", spec("sleep", "60"), str(tmp_path), {})
    assert not sidecar.birth.isolated
    assert await sidecar.stop(1000) == Exit(signal=signal.SIGTERM)


@pytest.mark.parametrize(
    ("bwrap", "why"),
    [
        (f"#!/bin/sh\necho bwrap: {NO_PROCESSES} >&2; exit 1\n", NO_PROCESSES),
        ("#!/bin/sh\necho no namespaces today >&2; exit 1\n", "no namespaces today"),
        ("#!/bin/sh\nexec sleep 60\n", "did not"),
    ],
)
async def test_what_may_pass_is_waited_for(
    tmp_path: Path, spec: MakeSpec, host_with: Callable[[str], LinuxSidecarHost], bwrap: str, why: str
) -> None:
    """A bubblewrap that fails for another reason, which an agent may have caused, never yields a sidecar with less
    isolation. The spawn fails, and the next one tries again."""
    host = host_with(bwrap)
    with pytest.raises(SpawnFailed, match=why):
        await host.spawn("demo", spec("sleep", "60"), str(tmp_path), {})
    (tmp_path / "tools" / "bwrap").write_text(f'#!/bin/sh\nexec {host_programs.find("bwrap")} "$@"\n')
    sidecar = await host.spawn("demo", spec("sleep", "60"), str(tmp_path), {})
    assert sidecar.birth.isolated
    await sidecar.stop(0)


async def test_the_first_sidecar_shows_that_there_are_namespaces(tmp_path: Path, spec: MakeSpec) -> None:
    """The first sidecar proves that namespaces work: the host starts no other process for that."""
    real = host_programs.find("bwrap")
    counting = program_at(tmp_path / "bwrap", f'#!/bin/sh\necho called >> {tmp_path}/calls\nexec {real} "$@"\n')
    host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ, bwrap=str(counting))
    sidecar = await host.spawn("demo", spec("sleep", "60"), str(tmp_path), {})
    assert sidecar.birth.isolated
    assert await host.isolation_available()
    assert (tmp_path / "calls").read_text() == "called\n"
    await sidecar.stop(0)


async def test_the_first_sidecar_where_bubblewrap_refuses(
    tmp_path: Path, spec: MakeSpec, caplog: pytest.LogCaptureFixture
) -> None:
    """The first sidecar runs without a namespace if bubblewrap refuses one, and omac logs that."""
    refusing = program_at(tmp_path / "bwrap", f"#!/bin/sh\necho bwrap: {NO_NAMESPACES} >&2; exit 1\n")
    host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ, bwrap=str(refusing))
    sidecar = await host.spawn("demo", spec("sleep", "60"), str(tmp_path), {})
    assert not sidecar.birth.isolated
    assert f"sidecars get no pid namespace of their own: bubblewrap failed: bwrap: {NO_NAMESPACES}" in caplog.text
    await sidecar.stop(0)


@pytest.mark.parametrize("command", [WRAPPER, DAEMON])
def test_nothing_outlives_a_killed_omac(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A kill -9 of omac ends wrappers, their children and daemons that left the session within a second."""
    birth, processes = drive("isolated", tmp_path, *command)
    assert birth.isolated
    assert len(processes) >= 4
    await_end(processes)


@pytest.mark.full
def test_bound_before_spawn_returns(tmp_path: Path) -> None:
    """omac leaves no process behind, even if it is killed at the very moment that spawn returns."""
    for _ in range(5):
        _, processes = drive("at-once", tmp_path, *WRAPPER)
        await_end(processes)


def await_end(processes: list[tuple[int, int]]) -> None:
    eventually(lambda: not any(process.living(pid, ticks) for pid, ticks in processes), 1, "the end of all processes")


@pytest.mark.full
def test_killed_in_the_middle_of_a_spawn(tmp_path: Path) -> None:
    """A program runs only once its life is bound to omac's: an omac that is killed half-way leaves none running."""
    program = program_at(tmp_path / "program", "#!/bin/sh\nsleep 93\n")

    def runs() -> bool:
        lines = (Path(f"/proc/{name}/cmdline") for name in os.listdir("/proc") if name.isdigit())
        return any(_read(line) == b"/bin/sh\0%s\0" % os.fsencode(program) for line in lines)

    for tenths in range(5, 45, 5):
        drive(f"during {tenths / 10}", tmp_path, str(program))

    eventually(lambda: not runs(), 1, "the end of the program")


@pytest.mark.parametrize("leader_lives", [True, False])
def test_an_orphan_without_namespace_is_ended(tmp_path: Path, leader_lives: bool) -> None:
    """The host finds an orphan of a killed omac by its birth, even if only children are left. It leaves strangers
    alone."""
    birth, processes = drive("plain", tmp_path, "sh", "-c", "sleep 95 & sleep 94; true")
    assert not birth.isolated
    assert len(processes) == 3
    if not leader_lives:
        process.kill(birth.pid, birth.start_ticks, signal.SIGKILL)

    async def end() -> None:
        host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ)
        await until(lambda: process.living(birth.pid, birth.start_ticks) == leader_lives, 5)
        for stranger in ({"boot_id": "another"}, {"start_ticks": birth.start_ticks + 1_000_000}):
            assert not await host.end_orphan(msgspec.structs.replace(birth, **stranger))
        assert sum(process.living(*each) for each in processes) == 2 + leader_lives
        assert await host.end_orphan(birth)
        assert not any(process.living(*each) for each in processes)
        assert not await host.end_orphan(birth)

    trio.run(end)


async def test_an_orphan_with_namespace_is_ended(spawn: Spawn, members: Members) -> None:
    """The birth alone suffices to end a whole sidecar."""
    sidecar = await spawn(*WRAPPER)
    host = LinuxSidecarHost("/nonexistent", os.environ)
    with trio.fail_after(5):
        assert await host.end_orphan(sidecar.birth)
        assert members(sidecar) == []
        assert not await host.end_orphan(sidecar.birth)
        assert await sidecar.wait() == Exit(signal=signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_as_an_ordinary_user(skill: Path) -> None:
    """bubblewrap makes a user namespace when omac is not root: health, ownership of the port and stop work the same."""
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    path = os.pathsep.join(path for path in sys.path if path)
    for python in (sys.executable, "/usr/bin/python3"):
        test = [*nobody, python, "-c", "import trio, msgspec, omac"]
        if os.path.exists(python) and not _fails(test, {"PYTHONPATH": path, "PATH": os.environ["PATH"]}):
            break
    else:
        pytest.skip("no interpreter that another user can run")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.py").write_text((skill / "server.py").read_text())
        for each in (folder, folder / "server.py"):
            os.chown(each, 65534, 65534)
        birth, result = drive("healthy", folder, "/usr/bin/python3", "server.py", prefix=nobody, python=python)
        assert birth.isolated
        assert Exit(*result) == Exit(code=0)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _fails(line: list[str], environment: dict[str, str]) -> bool:
    try:
        return subprocess.run(line, env=environment, capture_output=True, check=False).returncode != 0
    except OSError:
        return True


SERVES_ONCE = r"""
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])))
connection, _ = listener.accept()
connection.recv(4096)
connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
connection.close()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
listener.close()
"""


async def test_a_wrapper_that_outlives_its_server_does_not_listen(spawn: Spawn, tmp_path: Path) -> None:
    """A sidecar whose server has ended lives on and does not listen, even if another process has taken its port."""
    program = tmp_path / "serves-once.py"
    program.write_text(SERVES_ONCE)
    sidecar = await spawn("sh", "-c", f"{INTERPRETER} {program} {tmp_path}/enough; sleep 99")
    with trio.fail_after(10):
        await sidecar.probe(Health(interval_ms=20))
        assert sidecar.listens()
        (tmp_path / "enough").touch()
        await until(lambda: not sidecar.listens())
        with socket.create_server(("127.0.0.1", sidecar.birth.port)):
            assert not sidecar.listens()
        await sidecar.stop(0)


SERVES_ALONE = r"""
import os, socket
address = ("127.0.0.1", int(os.environ["SIDECAR_PORT"]))
while True:
    listener = socket.create_server(address)
    connection, _ = listener.accept()
    listener.close()
    connection.recv(4096)
    connection.close()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
async def test_a_server_that_takes_one_connection_listens_on(spawn: Spawn, tmp_path: Path, address: str) -> None:
    """A sidecar that closes its listener while it serves a connection counts as listening, unless another process takes
    its port meanwhile."""
    program = tmp_path / "serves-alone.py"
    dual = 'socket.create_server(("::", address[1]), family=socket.AF_INET6, dualstack_ipv6=True)'
    plain = "socket.create_server(address)"
    program.write_text(SERVES_ALONE if address == "127.0.0.1" else SERVES_ALONE.replace(plain, dual))
    sidecar = await spawn(sys.executable, str(program))
    port = sidecar.birth.port
    with trio.fail_after(10):
        await until(lambda: bool(answering(port)))
        with socket.create_connection(("127.0.0.1", port)) as caller:
            await until(lambda: not answering(port))
            assert sidecar.listens()
            with socket.create_server(("127.0.0.1", port)):
                assert not sidecar.listens()
            caller.sendall(b"x")
        await until(lambda: bool(answering(port)))
        assert sidecar.listens()
        await sidecar.stop(0)


async def test_an_init_that_waits_for_a_killed_bubblewrap_is_ended(tmp_path: Path) -> None:
    """The host ends an init whose bubblewrap died during the setup of a namespace. It does not end an init whose
    bubblewrap lives, nor that of another program."""
    host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ)
    reader, writer = os.pipe()
    started = [await held(name, reader) for name in ("omac-gate", "another")]
    (outer, init), (_, strange) = started
    try:
        await host.end_unbuilt()
        assert process.living(init.pid, init.start_ticks), "its bubblewrap lives"
        assert not launch.is_unbuilt(outer.pid)
        for each, _ in started:
            await launch.destroy(each)
        await trio.sleep(0.05)
        assert process.living(init.pid, init.start_ticks), "it waits for ever"
        assert await host.end_unbuilt() >= 1
        assert not process.living(init.pid, init.start_ticks)
        assert process.living(strange.pid, strange.start_ticks)
        assert not launch.is_unbuilt(os.getpid())
    finally:
        for each, its_init in started:
            process.kill(its_init.pid, its_init.start_ticks, signal.SIGKILL)
            await launch.destroy(each)
        os.close(reader)
        os.close(writer)


async def test_an_init_that_was_not_reported_ends_with_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that is given up while bubblewrap sets up the namespace leaves no init that waits for ever."""
    reader, writer = os.pipe()
    more, start, inits = launch._more_arguments, launch.start, list[process.Stat]()
    held_by = b"--unshare-user\0--userns-block-fd\0%d\0" % reader

    def started(*words: Any, pass_fds: tuple[int, ...], **named: Any) -> Any:
        return start(*words, pass_fds=(*pass_fds, reader), **named)

    async def unreported(outer: subprocess.Popen[bytes], _: int) -> process.Stat:
        await until(lambda: process.descendants(outer.pid))
        inits.extend(process.descendants(outer.pid))
        raise trio.TooSlowError

    monkeypatch.setattr(launch, "_more_arguments", lambda program: held_by + more(program))
    monkeypatch.setattr(launch, "start", started)
    monkeypatch.setattr(launch, "_init", unreported)
    try:
        true = launch.SidecarProgram(["true"], {}, "/")
        with pytest.raises(launch.NoNamespace):
            await launch.start_in_namespace(host_programs.find("bwrap"), true, subprocess.DEVNULL)
        (init,) = inits
        await until(lambda: not process.living(init.pid, init.start_ticks))
    finally:
        for init in inits:
            process.kill(init.pid, init.start_ticks, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


async def test_an_init_is_left_alone_where_its_bubblewrap_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An init is not ended when a shortage of descriptors hides its bubblewrap: it may belong to an omac that lives."""
    host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ)
    reader, writer = os.pipe()
    outer, init = await held("omac-gate", reader)

    def opened(path: str, *given: Any, **named: Any) -> Any:
        if path == f"/proc/{outer.pid}/cmdline":
            raise OSError(errno.ENFILE, "Too many open files in system")
        return open(path, *given, **named)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(launch, "open", opened, raising=False)
            await host.end_unbuilt()
        assert process.living(init.pid, init.start_ticks)
    finally:
        process.kill(init.pid, init.start_ticks, signal.SIGKILL)
        await launch.destroy(outer)
        os.close(reader)
        os.close(writer)
