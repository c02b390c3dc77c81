"""adapters/sandbox/program.py: a sandbox has the files that a command needs to start, and nothing around them."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_sandbox import NOBODY, Box, box

from omac.adapters.sandbox.program import own_installation, resolve
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import LINK, READ

SCRIPT = "#!/bin/sh\necho ran $0\n"


@pytest.fixture
def world() -> Iterator[Box]:
    """Yield an unprivileged user's home and project."""
    with box(NOBODY) as made:
        yield made


def _tool(world: Box, path: str, text: str = SCRIPT) -> Path:
    return world.give(world.home / path, text, 0o755)


@pytest.mark.parametrize(
    ("program", "beside", "unseen"),
    [
        (".nvm/versions/node/v20/bin/tool", ".nvm/versions/node/v20/lib/x", ".nvm/versions/node/v18/bin/x"),
        (".local/bin/tool", None, ".local/bin/other"),
        (".local/bin/tool", None, ".local/share/x"),
        (".cargo/bin/tool", None, ".cargo/registry/x"),
        ("go/bin/tool", None, "go/pkg/mod/x"),
        (".bun/bin/tool", None, ".bun/install/x"),
        ("bin/tool", None, "notes.txt"),
        ("tools/tool", None, "tools/other"),
        (".npm-global/lib/node_modules/pkg/cli.js", ".npm-global/lib/node_modules/dep/x.js", ".npm-global/x"),
        (
            ".local/share/pnpm/global/5/.pnpm/a@1/node_modules/a/cli",
            ".local/share/pnpm/global/5/.pnpm/b@1/x",
            ".local/x",
        ),
        (".linuxbrew/Cellar/tool/1.0/bin/tool", ".linuxbrew/lib/x", ".x"),
        (".pyenv/shims/tool", ".pyenv/versions/3.12/bin/x", ".pyrc"),
        (".local/share/claude/versions/2.1.3", None, ".local/share/claude/x"),
    ],
)
def test_a_program_comes_with_its_installation(world: Box, program: str, beside: str | None, unseen: str) -> None:
    """Files of a program's installation can be read; files that merely lie near it are not there."""
    path = _tool(world, program)
    world.give(world.home / unseen, "unseen")
    if beside:
        world.give(world.home / beside, "beside")
    done = world.run(str(path))
    assert done.out == f"ran {path}\n", done.err
    home = str(world.home)
    paths = [
        entry.path for entry in resolve([str(path)], {"HOME": home, "PATH": "/usr/bin"}, str(world.workdir)).entries
    ]
    assert any(below(str(path), folder) for folder in paths)
    assert beside is None or any(below(f"{home}/{beside}", folder) for folder in paths)
    assert not any(below(f"{home}/{unseen}", folder) for folder in paths)


def test_links_lead_to_it_inside_too(world: Box) -> None:
    """A program behind several links runs under the name it was called with, as programs look at their own name."""
    real = _tool(world, ".local/share/tool/versions/1/tool")
    (world.home / ".local/share/tool/current").symlink_to("versions/1")
    (world.home / ".local/bin").mkdir(parents=True)
    (world.home / ".local/bin/tool").symlink_to("../share/tool/current/tool")
    path = f"{world.home}/.local/bin:/usr/bin:/bin"
    done = world.run("tool", extra={"PATH": path})
    assert done.out == f"ran {world.home}/.local/bin/tool\n", done.err
    command = resolve(["tool", "-x"], {"HOME": str(world.home), "PATH": path}, str(world.workdir))
    assert command.argv == [f"{world.home}/.local/bin/tool", "-x"]
    assert [entry.path for entry in command.entries if entry.access == READ] == [str(real)]
    assert [entry.target for entry in command.entries if entry.access == LINK] == [
        "../share/tool/current/tool",
        "versions/1",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{i}",
        "{i} -x",
        "/usr/bin/env myshell",
        "/usr/bin/env -S A=1 myshell -x",
        "/usr/bin/env -S -i PATH={d}:/bin myshell",
    ],
)
def test_its_interpreter_is_there(world: Box, line: str) -> None:
    """A script's interpreter, by path or through env(1), is there, and so is the interpreter of that one."""
    interpreter = _tool(world, "opt/shell/bin/myshell", "#!/bin/sh\necho interpreted\n")
    program = _tool(world, "opt/tool/bin/tool", f"#!{line.format(i=interpreter, d=interpreter.parent)}\n")
    done = world.run(str(program), extra={"PATH": f"{interpreter.parent}:/usr/bin:/bin"})
    assert done.out == "interpreted\n", done.err


@pytest.mark.parametrize(
    "command", [["env", "A=1", "tool"], ["env", "-u", "B", "tool"], ["/usr/bin/env", "-S", "A=1 tool"]]
)
def test_a_command_behind_env_is_seen(world: Box, command: list[str]) -> None:
    """A program behind env(1), as people write it to give one command a variable, is found and runs."""
    tool = _tool(world, "opt/tool/bin/tool")
    done = world.run(*command, extra={"PATH": f"{tool.parent}:/usr/bin:/bin"})
    assert done.out.startswith("ran "), done.err


def test_a_virtual_environment_starts(world: Box, tmp_path: Path) -> None:
    """A virtual environment starts with the interpreter that it was made from, wherever that is."""
    base = world.home / ".local/share/uv/python/cpython-3"
    (base / "bin").mkdir(parents=True)
    shutil.copy("/usr/bin/python3", base / "bin/python3")
    made = world.home / ".local/share/uv/tools/thing"
    (made / "bin").mkdir(parents=True)
    (made / "bin/python").symlink_to(base / "bin/python3")
    world.give(made / "pyvenv.cfg", f"home = {base}/bin\n", 0o644)
    script = "import sys; print(sys.prefix)"
    program = world.give(made / "bin/thing", f"#!{made}/bin/python\n{script}\n", 0o755)
    for path in [world.home, *world.home.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    done = world.run(str(program))
    assert (done.status, done.out) == (0, f"{made}\n"), done.err


def test_a_program_of_the_project_needs_nothing(world: Box) -> None:
    """A program of the project can be run, and stays as changeable as the rest of the project."""
    program = world.give(world.workdir / "node_modules/pkg/bin/tool", SCRIPT, 0o755)
    done = world.run("sh", "-c", f"{program} && rm {program}")
    assert done.status == 0, done.err
    assert not program.exists()
    world.give(program, SCRIPT, 0o755)
    assert world.run("node_modules/pkg/bin/tool").out == "ran " + str(program) + "\n"
    command = resolve(["./node_modules/pkg/bin/tool"], {"HOME": str(world.home), "PATH": ""}, str(world.workdir))
    assert command.entries == []


@pytest.mark.parametrize("plant", ["link", "link in a folder", "first line", "first line by env", "environment"])
def test_what_a_session_left_shows_nothing_to_the_next(world: Box, plant: str) -> None:
    """A program in the project that leads to a user's folder does not show that folder, and omac warns about it."""
    secret = _tool(world, "private/bin/tool", SCRIPT)
    world.give(world.home / "private/notes", "secret")
    program = world.workdir / "sub/bin/run"
    program.parent.mkdir(parents=True)
    interpreter = str(secret)
    match plant:
        case "link":
            program.symlink_to(secret)
        case "link in a folder":
            (world.workdir / "there").symlink_to(secret.parent)
            program = world.workdir / "there/tool"
        case "first line":
            world.give(program, f"#!{secret}\n", 0o755)
        case "first line by env":
            world.give(program, f"#!/usr/bin/env {secret}\n", 0o755)
        case _:
            world.give(program, "#!/bin/sh\ncat ~/private/notes\n", 0o755)
            world.give(world.workdir / "sub/pyvenv.cfg", f"home = {secret.parent}\n")
            interpreter = ""
    done = world.run(str(program))
    assert "secret" not in done.out
    command = resolve([str(program)], {"HOME": str(world.home), "PATH": "/usr/bin"}, str(world.workdir))
    assert not any(below(str(secret), entry.path) for entry in command.entries)
    assert len(command.warnings(command.entries)) == bool(interpreter)
    granted = world.run(str(program), options=("--read", str(world.home / "private")))
    assert granted.status == 0, granted.err  # the twin: by name it can be had
    outside = _tool(world, "opt/thing/bin/run", f"#!{secret}\n")
    command = resolve([str(outside)], {"HOME": str(world.home), "PATH": "/usr/bin"}, str(world.workdir))
    assert any(
        below(str(secret), entry.path) for entry in command.entries
    )  # and for a program of the user's it is shown


def test_the_projects_own_environment_starts(world: Box) -> None:
    """A project's virtual environment starts, as the installation of the interpreter behind its link is shown."""
    base = world.home / ".local/share/uv/python/cpython-3"
    (base / "bin").mkdir(parents=True)
    (base / "lib/python3.11").mkdir(parents=True)
    shutil.copy("/usr/bin/python3", base / "bin/python3")
    (world.workdir / ".venv/bin").mkdir(parents=True)
    (world.workdir / ".venv/bin/python").symlink_to(base / "bin/python3")
    for path in [world.home, *world.home.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    done = world.run(".venv/bin/python", "-c", "print(1)")
    assert done.out == "1\n", done.err


@pytest.mark.parametrize("plant", ["link", "first line", "first line by env", "environment"])
def test_an_agents_choice_of_a_python_shows_that_alone(world: Box, plant: str) -> None:
    """A program in the project that leads to a Python in a user's folder shows its interpreter and its library, and
    nothing that lies beside them. A program of the user's that leads there shows the whole folder."""
    base = world.home / "work"
    files = ("notes", "bin/tool", "bin/pythonic", "lib/other/x", "lib/python/x", "lib/python3.11/x", "bin/python3")
    for name in files:
        world.give(base / name, "x", 0o755)
    shutil.copy("/usr/bin/python3", base / "bin" / "python3")
    (base / "bin" / "python").symlink_to(base / "notes")
    (base / "lib" / "python3.12").symlink_to(base / "lib" / "other")
    python = base / "bin" / "python3"
    program = world.workdir / "sub/bin/run"
    own = _tool(world, "opt/thing/bin/run", f"#!{python}\n")
    listing = f"import os; print(*(sorted(os.listdir({str(base)!r} + name)) for name in ('', '/bin', '/lib')))\n"
    lister = world.give(world.workdir / "list.py", listing)
    match plant:
        case "link":
            program.parent.mkdir(parents=True)
            program.symlink_to(python)
        case "first line":
            world.give(program, f"#!{python}\n{listing}", 0o755)
        case "first line by env":
            world.give(program, f"#!/usr/bin/env {python}\n{listing}", 0o755)
        case _:
            program = world.workdir / "sub/bin/python"
            program.parent.mkdir(parents=True)
            program.symlink_to(python)
            world.give(world.workdir / "sub/pyvenv.cfg", f"home = {base}/bin\n")

    def shown(path: Path) -> set[str]:
        command = resolve([str(path)], {"HOME": str(world.home), "PATH": "/usr/bin"}, str(world.workdir))
        paths = [entry.path for entry in command.entries if entry.access == READ]
        return {name for name in files if any(below(str(base / name), folder) for folder in paths)}

    assert shown(program) == {"lib/python3.11/x", "bin/python3"}
    assert shown(own) == set(files)
    done = world.run(str(program), *([str(lister)] if plant in ("link", "environment") else []))
    assert done.out == "['bin', 'lib'] ['python3'] ['python3.11']\n", done


def test_what_path_names_is_not_there_for_that(world: Box) -> None:
    """A folder of PATH in the home that is no toolchain is visible only where it is granted."""
    _tool(world, "programs/bin/tool")
    path = {"PATH": f"{world.home}/programs/bin:/usr/bin:/bin"}
    assert world.run("sh", "-c", "tool", extra=path).status == 127
    assert world.run("sh", "-c", "tool", extra=path, options=("--read", f"{world.home}/programs/bin")).status == 0


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        (["no-such-tool"], 127, "no-such-tool is in no folder of PATH"),
        (["./no-such-tool"], 127, "does not exist"),
        (["./data"], 126, "is not a program"),
        (["/usr"], 126, "is not a program"),
        (["./script"], 127, "needs /no/interpreter, which does not exist"),
    ],
)
def test_what_cannot_be_started_is_said_as_a_shell_does(world: Box, command: list[str], status: int, says: str) -> None:
    """A command that is not found ends with 127, and one that is no program with 126, as in a shell; no launch is
    recorded."""
    world.give(world.workdir / "data", "x")
    world.give(world.workdir / "script", "#!/no/interpreter\n", 0o755)
    with pytest.raises(Refusal, match=says) as caught:
        resolve(command, {"PATH": "/usr/bin", "HOME": str(world.home)}, str(world.workdir))
    assert caught.value.exit_code == status
    assert caught.value.fix
    if "/" not in command[0] or command[0].startswith("."):
        done = world.host(*world.omac("sandbox", "run", "--", *command))
        assert done.status == status
        assert says in done.err
        assert not list(world.state.glob("spool/*"))


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_a_missing_agent_can_be_installed(harness: Harness, tmp_path: Path) -> None:
    """The refusal of a missing agent first shows the command that installs it; other programs have no such command."""
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(Refusal) as caught:
        resolve([harness.program], nowhere, str(tmp_path))
    assert list(caught.value.fix) == [harness.install, f"command -v {harness.program}"]
    with pytest.raises(Refusal) as caught:
        resolve(["no-such-tool"], nowhere, str(tmp_path))
    assert list(caught.value.fix) == ["command -v no-such-tool"]


def test_scripts_in_circles_end(world: Box) -> None:
    """Scripts that are each other's interpreters, which the kernel refuses, hang nothing here."""
    first, second = world.home / "opt/x/bin/one", world.home / "opt/x/bin/two"
    _tool(world, "opt/x/bin/one", f"#!{second}\n")
    _tool(world, "opt/x/bin/two", f"#!{first}\n")
    assert resolve([str(first)], {"HOME": str(world.home)}, str(world.workdir)).argv == [str(first)]


@pytest.mark.parametrize(
    ("program", "cwd"),
    [("bin/tool", "project"), ("project/bin/tool", "project/deep/er"), (".config/x/bin/tool", "project")],
)
def test_no_installation_contains_what_is_not_its_own(world: Box, program: str, cwd: str) -> None:
    """An installation is never the home, a folder around the working directory, or one with credentials in it."""
    path = _tool(world, program)
    (world.home / cwd).mkdir(parents=True, exist_ok=True)
    (world.home / ".config/x/gh").mkdir(parents=True, exist_ok=True)
    command = resolve([str(path)], {"HOME": str(world.home), "PATH": ""}, str(world.home / cwd))
    assert not any(below(str(world.home / cwd), entry.path) for entry in command.entries)
    assert not any(below(str(world.home), entry.path) for entry in command.entries)
    assert any(below(str(path), entry.path) for entry in command.entries)


def test_omac_runs_inside() -> None:
    """omac's hooks run inside, with its interpreter and its own files, which no program there can change."""
    with box() as roots:
        done = roots.run(
            sys.executable,
            "-c",
            "import omac.domain.harness.harness, msgspec; print(omac.domain.harness.harness.__file__)",
        )
        assert done.status == 0, done.err
        assert done.out.strip().endswith("harness.py")
        assert roots.run("sh", "-c", 'echo x >> "$0"', done.out.strip()).status != 0
    own = own_installation(dict(os.environ))
    assert {entry.access for entry in own} <= {READ, LINK}
    checkout = Path(__file__).parents[3]
    assert not any(below(str(checkout), entry.path) for entry in own)


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
@pytest.mark.full
def test_a_program_that_npm_installed_starts(world: Box) -> None:
    """A real package in a user's npm prefix, with the dependency that it brings along, runs by its name."""
    package = (
        '{"name":"tool","version":"1.0.0","bin":"index.js","dependencies":{"dep":"1.0.0"},"bundleDependencies":["dep"]}'
    )
    for name, text in (
        ("tool/package.json", package),  # npm 9 of Debian 13 does not find the dependency in a folder beside it
        ("tool/index.js", "#!/usr/bin/env node\nconsole.log(require('dep'))"),
        ("tool/node_modules/dep/package.json", '{"name":"dep","version":"1.0.0"}'),
        ("tool/node_modules/dep/index.js", "module.exports = 'from dep'"),
    ):
        world.give(world.home / f"src/{name}", text, 0o755)
    prefix = world.home / ".npm-global"
    prefix.mkdir()
    os.chown(prefix, NOBODY, NOBODY)
    install = ["npm", "install", "--global", "--install-links", "--offline", "--no-audit", "--no-fund"]
    done = world.host(
        *install, f"--prefix={prefix}", str(world.home / "src/tool"), extra={"NPM_CONFIG_CACHE": str(world.home / "c")}
    )
    assert done.status == 0, done.err
    shutil.rmtree(world.home / "src")
    done = world.run("tool", extra={"PATH": f"{prefix}/bin:/usr/bin:/bin"})
    assert done.out == "from dep\n", done.err
