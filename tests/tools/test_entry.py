"""The entry of `omac`: commands that must start quickly load no module that takes long."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at

from omac.tools.entry import NO_MEMORY

SOURCE = Path(__file__).parents[2] / "src" / "bin" / "omac"
SANDBOX = ("sandbox", "run")
HOOK = ("hook", "pre-tool-use")
HEAVY = {
    "argparse", "asyncio", "collections", "ctypes", "dataclasses", "difflib", "enum", "eventsourcing", "functools",
    "hashlib", "inspect", "json", "logging", "msgspec", "pathlib", "random", "re", "shlex", "shutil", "signal",
    "socket", "sqlalchemy", "sqlite3", "subprocess", "tempfile", "threading", "tomllib", "trio", "typer", "typing",
}  # fmt: skip
BEGIN = """\
import os, sys
sys.path[:0] = {path!r}
leave = os._exit
def end(status):
    sys.stderr.write('loaded ' + ' '.join(sys.modules) + chr(10))
    sys.stderr.flush()
    leave(status)
os._exit = end
from omac.tools.entry import main
main()
end(0)
"""


INTERRUPTED = """import os, sys
sys.path[:0] = [*{path!r}, "/nowhere"]  # for which no start has kept the code of its modules
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)  # once
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from omac.tools.entry import main
main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project in a home that has no settings, since reading those may take longer."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True, mode=0o700)
    return project


def loaded(project: Path, *words: str, payload: str = "") -> tuple[int, set[str]]:
    """Return the exit code of a command, and the modules that it had loaded when the process ended.

    Modules that the virtual environment's own start-up files load are not omac's to answer for: `-S` leaves them out.
    """
    begin = BEGIN.format(path=sys.path)
    environment = {
        "HOME": str(project.parent), "PATH": "/usr/local/bin:/usr/bin:/bin", "OMAC_WORKDIR": str(project),
        "OMAC_STATE_DIR": str(project.parents[1] / "state"), "LANG": "C.UTF-8",
    }  # fmt: skip
    argv = [sys.executable, "-I", "-S", "-c", begin, *words]
    done = subprocess.run(argv, input=payload, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    listed = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    assert len(listed) == 1, done
    print(*(line for line in done.stderr.splitlines() if line not in listed), sep="\n")  # should more be loaded
    return done.returncode, set(listed[0].split()[1:])


def writing(path: Path) -> str:
    """Return the payload that an agent hands to its hook before it writes a file."""
    return json.dumps(
        {
            "session_id": "s-1", "hook_event_name": "PreToolUse", "tool_name": "Write", "cwd": str(path.parent),
            "tool_input": {"file_path": str(path), "content": "x"},
        }
    )  # fmt: skip


def test_a_sandbox_is_launched_without_what_takes_long(project: Path) -> None:
    """`omac sandbox run` loads no heavy module from its start to the record of its end."""
    status, modules = loaded(project, *SANDBOX, "--", "true")
    assert status == 0
    assert {"omac.adapters.sandbox.bubblewrap", "omac.journal.spool"} <= modules
    assert modules & HEAVY == set()


def test_a_call_passes_the_guard_without_what_takes_long(project: Path) -> None:
    """`omac hook pre-tool-use` loads no heavy module for a call that it lets pass."""
    status, modules = loaded(project, *HOOK, payload=writing(project / "new.txt"))
    assert status == 0
    assert "omac.domain.guard.guard" in modules
    assert modules & HEAVY == set()


def test_the_guard_judges_here(project: Path) -> None:
    """The guard denies a write outside the project, so a write that it lets pass was judged."""
    status, _ = loaded(project, *HOOK, payload=writing(Path("/usr/new.txt")))
    assert status == 2


def test_heavy_modules_would_be_seen(project: Path) -> None:
    """An unknown option is compared with the known ones, which may take longer: its module is in the list."""
    _, modules = loaded(project, *SANDBOX, "--nosuch", "--", "true")
    assert "difflib" in modules


def test_a_guard_that_cannot_be_loaded_denies(project: Path) -> None:
    """A guard that cannot be loaded exits with 2, since agents take every other status for consent."""
    begin = (
        f"import sys; sys.path[:0] = {sys.path!r}; sys.modules['omac.domain.guard.guard'] = None\n"
        "from omac.tools.entry import main; main()"
    )
    argv = [sys.executable, "-I", "-S", "-c", begin, *HOOK]
    done = subprocess.run(argv, input=writing(project / "new.txt"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("omac: the write guard cannot be loaded: ")


READING = (
    ("version",), ("version", "--json"), ("settings", "show"), ("journal", "path"), ("status",),
    ("list", "--all"), ("approvals",), ("audit",), ("replay", "--at", "1"),
)  # fmt: skip
SLOW = {
    "asyncio", "cryptography", "eventsourcing", "keyring", "pydantic", "quart", "rich", "ruamel", "sqlalchemy", "trio",
}  # fmt: skip


@pytest.fixture
def journal(project: Path) -> Path:
    """Return a journal with one event, at the path where the commands of `project` read it."""
    path = project.parents[1] / "state" / "journal.db"
    with closing(journal_at(path)) as opened:
        commit_now(opened, [called("x")])
    return path


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_only_reads_starts_quickly(project: Path, words: tuple[str, ...]) -> None:
    """A command that only reads loads neither the writer's store nor an event loop, nor the modules of typer."""
    begin = BEGIN.format(path=sys.path)
    environment = {
        "HOME": str(project.parent), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
        "OMAC_STATE_DIR": str(project.parents[1] / "state"),
    }  # fmt: skip
    argv = [sys.executable, "-I", "-S", "-c", begin, *words]
    done = subprocess.run(argv, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    (listed,) = [line for line in done.stderr.splitlines() if line.startswith("loaded ")]
    assert not set(listed.split()[1:]) & SLOW


PROGRAM = Path(sys.executable).with_name("omac")


@pytest.mark.parametrize(
    ("words", "status", "begins"),
    [
        (("version",), 0, "omac "),
        (("version", "--json"), 0, '{"version":'),
        (("nosuch",), 2, "Usage: omac"),
        (("audit",), 5, "omac: no journal exists at "),
        (("settings", "set", "secrets.store", "odd"), 2, "omac: "),
        (("replay", "--at", "soon"), 5, "omac: no journal exists at "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_installed_program_ends_as_the_function_does(
    project: Path, words: tuple[str, ...], status: int, begins: str
) -> None:
    """The installed program prints to the right stream, and its exit status is the code of the function."""
    done = subprocess.run(
        [PROGRAM, *words], env={"HOME": str(project.parent)}, cwd=project, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status
    printed, silent = (done.stdout, done.stderr) if status == 0 else (done.stderr, done.stdout)
    assert printed.startswith(begins)
    assert silent == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_ends_nothing(project: Path, closed: str) -> None:
    """A command succeeds even if its standard input, output or error is closed."""
    argv = ["/bin/sh", "-c", f'"$0" journal path {closed}', str(PROGRAM)]
    done = subprocess.run(argv, env={"HOME": str(project.parent)}, cwd=project, capture_output=True, timeout=60)
    assert done.returncode == 0, done


def test_no_memory_of_omac_is_left_in_a_file(project: Path) -> None:
    """omac is not dumpable, so that no core file of it can have secrets."""
    statement = "from omac.adapters.linux.syscall import prctl; print('dumpable', prctl(3))"
    begin = BEGIN.format(path=sys.path).replace(
        "    leave(status)", f"    {statement}; sys.stdout.flush(); leave(status)"
    )
    environment = {"HOME": str(project.parent), "OMAC_STATE_DIR": str(project.parents[1] / "state")}
    argv = [sys.executable, "-I", "-S", "-c", begin, "settings", "show"]
    done = subprocess.run(argv, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "dumpable 0", done


@pytest.mark.parametrize(
    ("words", "module", "status"),
    [
        (("start", "--", "true"), "omac.tools.cli.start", 130),
        (("start", "--", "true"), "omac.tools.cli.plain_start", 130),
        (("status",), "omac.tools.main", 130),
        (("start", "--", "true"), "datetime", 130),
        (("status",), "datetime", 130),
        (SANDBOX, "omac.tools.hotpath.code_cache", 130),
        (HOOK, "omac.tools.hotpath.guard_hook", 2),
    ],
)
def test_an_interrupt_while_it_loads_is_no_defect(
    project: Path, words: tuple[str, ...], module: str, status: int
) -> None:
    """Ctrl-C while omac loads ends it at once, without a traceback; the guard denies a call that it did not judge."""
    begin = INTERRUPTED.format(path=sys.path, module=module)
    environment = {"HOME": str(project.parent), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-I", "-S", "-c", begin, *words]
    done = subprocess.run(argv, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done


@pytest.mark.parametrize(
    ("words", "module", "status"),
    [
        (("status",), "omac.tools.main", 4),
        (("status",), "omac.tools.cli.status", 4),
        (("start", "--", "true"), "omac.tools.cli.start", 4),
        ((*SANDBOX, "--", "true"), "omac.tools.hotpath.code_cache", 4),
        ((*HOOK, "--installed"), "omac.tools.hotpath.guard_hook", 2),
    ],
)
def test_a_part_that_is_gone_is_no_defect(project: Path, words: tuple[str, ...], module: str, status: int) -> None:
    """A command that begins while omac is installed again reports that; the guard denies what it did not judge."""
    begin = INTERRUPTED.format(path=sys.path, module=module).replace("KeyboardInterrupt", "ModuleNotFoundError(name)")
    environment = {"HOME": str(project.parent), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-I", "-S", "-c", begin, *words]
    done = subprocess.run(argv, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr, "defect" in done.stderr) == (status, False, False), done
    if status != 2:
        assert f"({module}): it was installed again while this command ran, or is not whole" in done.stderr, done
        assert done.stderr.endswith("  try: uv tool install --reinstall .  # in the checkout\n")


@pytest.mark.parametrize(
    "error", ["MemoryError", 'ImportError("x.so: failed to map segment from shared object")', 'OSError(12, "x")']
)
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("status",), "omac.tools.main"),
        (("status",), "omac.tools.cli.status"),
        (("audit",), "omac.tools.terminal.render"),  # which reports that no journal exists
        ((*SANDBOX, "--", "true"), "omac.tools.hotpath.code_cache"),
    ],
)
def test_memory_that_is_gone_is_no_defect(project: Path, words: tuple[str, ...], module: str, error: str) -> None:
    """A command that gets no memory, for itself or for a library, reports that, wherever it is, and not that omac is
    not whole."""
    begin = INTERRUPTED.format(path=sys.path, module=module).replace("KeyboardInterrupt", error)
    environment = {"HOME": str(project.parent), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    argv = [sys.executable, "-I", "-S", "-c", begin, *words]
    done = subprocess.run(argv, env=environment, cwd=project, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (5, f"omac: {NO_MEMORY}\n"), done


@pytest.mark.parametrize(("words", "status"), [(("start", "--", "true"), 130), (HOOK, 2)])
def test_an_interrupt_before_it_loads(tmp_path: Path, words: tuple[str, ...], status: int) -> None:
    """Ctrl-C in the program's own first lines ends it quietly, too."""
    package = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "omac"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise KeyboardInterrupt\n")
    program = tmp_path / "bin" / "omac"
    program.parent.mkdir()
    shutil.copy(SOURCE, program)
    (program.parent / "python").symlink_to(os.path.realpath(sys.executable))
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), done
