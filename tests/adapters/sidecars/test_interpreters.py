"""adapters/sidecars/interpreters.py: sidecars run only by the interpreters that were approved."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import program_at

from omac.adapters.sidecars import interpreters
from omac.adapters.sidecars.interpreters import HostInterpreters, trusted_path
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills.interpreter import Interpreter
from omac.services.ports import InterpreterChanged

SCRIPT = "#!/bin/sh\nexit 0\n"


class Host:
    """A machine: an agent may write `project`, its user `tools`; `copy` is the approved copy of the skill in
    `source`."""

    def __init__(self, top: Path) -> None:
        top = Path(os.path.realpath(top))
        self.project, self.tools, self.copy = top / "project", top / "tools", top / "copies" / "echo"
        self.source = self.project / ".agents" / "skills" / "echo"
        for folder in (self.source, self.tools, self.copy):
            folder.mkdir(parents=True)

    @property
    def path(self) -> str:
        """The host's PATH, as in a shell where the project's virtual environment is active."""
        return f"{self.project}/.venv/bin:{self.tools}:/usr/bin:/bin"

    def program(self, path: Path, text: str = SCRIPT) -> Path:
        """Write a program to `path`."""
        program_at(path, text)
        return path

    async def approved(self, *command: str) -> tuple[Interpreter, ...]:
        """Return the interpreters that an approval of this command records."""
        resolver = HostInterpreters({"PATH": self.path})
        return await resolver.resolve(command, str(self.source), str(self.copy), str(self.project))

    def started(
        self,
        recorded: tuple[Interpreter, ...] | None,
        path: str = "",
        *writable: str,
        command: tuple[str, ...] = ("x",),
    ) -> str:
        """Return the PATH with which its sidecar is started."""
        spec = SidecarSpec(
            "echo", "echo", str(self.project), str(self.source), str(self.source.parent), "sha256:0", True, command,
            digest="d", interpreters=recorded,
        )  # fmt: skip
        return trusted_path(spec, path or self.path, writable)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return an empty host."""
    return Host(tmp_path)


def paths(resolved: tuple[Interpreter, ...]) -> list[tuple[str, str]]:
    """Return names of programs and the paths that they resolve to."""
    return [(each.name, each.path) for each in resolved]


async def test_a_bare_name_is_not_the_projects(host: Host) -> None:
    """Programs of the project and links into it do not count, even first on PATH. The next program is recorded with its
    identity."""
    evil = host.program(host.project / ".venv" / "bin" / "tool")
    link = host.tools / "linked"
    link.symlink_to(evil)
    good = host.program(host.tools / "tool")
    tool, shell = await host.approved("tool", "serve")
    status, digest = good.stat(), hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert tool == Interpreter("tool", str(good), status.st_dev, status.st_ino, digest)
    assert shell.path == "/bin/sh"
    assert paths(await host.approved("linked")) == [("linked", "")]
    assert host.started((tool,)) == f"{host.tools}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/usr/bin/env tool\n", ["/usr/bin/env", "tool", "/bin/sh"]),
        ("#!/usr/bin/env -S tool -x\n", ["/usr/bin/env", "tool", "/bin/sh"]),
        ("#!/bin/sh\n", ["/bin/sh"]),
        ("\x7fELF", []),
    ],
)
async def test_what_a_script_of_the_copy_runs_by(host: Host, first: str, expected: list[str]) -> None:
    """The copy's digest covers its script, so the approval records the interpreters that the script's first line leads
    to."""
    host.program(host.copy / "run", first)
    host.program(host.tools / "tool")
    host.program(host.project / ".venv" / "bin" / "tool")
    recorded = await host.approved("./run")
    assert paths(recorded) == [(name, str(host.tools / name)) for name in expected]  # an absolute name is its own path
    assert paths(await host.approved(f"{host.source}/run")) == paths(recorded)


@pytest.mark.parametrize(
    "words",
    [
        "PATH=/x tool", "A=1 PATH=/x tool", "-i tool", "-iS tool", "-u PATH tool", "--unset=PATH tool", "-C /x ./tool",
        "-S PATH=/x tool", "-SPATH=/x tool", "-S 'PATH=/x' tool", "--split-string=-i tool", "--block-signal tool",
    ],
)  # fmt: skip
async def test_env_that_leads_elsewhere_is_refused(host: Host, words: str) -> None:
    """A command or a first line whose env(1) would not run the program that PATH leads to cannot be approved."""
    host.program(host.tools / "tool")
    host.program(host.copy / "run", f"#!/usr/bin/env {words}\n")
    for command in (["env", *words.split()], ["./run"]):
        with pytest.raises(Refusal, match="may lead to another program than PATH does") as refused:
            await host.approved(*command)
        assert refused.value.reason == "skill-invalid"


@pytest.mark.parametrize("words", ["tool", "A=1 tool -i", "-S tool -i PATH=/x", "-u HOME -v -- B=2 tool"])
async def test_env_that_sets_other_variables(host: Host, words: str) -> None:
    """Variables other than PATH, and words of the program itself, change nothing."""
    host.program(host.tools / "tool")
    assert paths(await host.approved("env", *words.split()))[1][1] == str(host.tools / "tool")


async def test_an_interpreter_in_the_copy(host: Host) -> None:
    """An interpreter in the copy, such as that of a virtual environment, is a link: the approval records its target."""
    (host.copy / "python").symlink_to("/bin/sh")
    (python,) = await host.approved("./python")
    assert (python.name, python.path) == ("./python", os.path.realpath("/bin/sh"))


async def test_a_program_of_the_project_cannot_be_approved(host: Host) -> None:
    """A program of the project named by its path is refused, with a fix."""
    evil = host.program(host.project / ".venv" / "bin" / "tool")
    with pytest.raises(Refusal, match="an agent may change") as refused:
        await host.approved(str(evil))
    assert refused.value.reason == "skill-invalid"
    assert any("omac.yaml" in fix for fix in refused.value.fix)


@pytest.mark.parametrize(
    "words",
    [
        ("python3", "{project}/tools/server.py"),
        ("python3", "-X", "{project}/./.agents/skills/echo/server.py"),
        ("node", "--import={project}/hook.mjs", "server.js"),
        ("sh", "-c", "cd / && exec python3 '{project}/server.py'"),
        ("python3", "{tools}/link/server.py"),
    ],
)
async def test_a_script_of_the_project_cannot_be_approved(host: Host, words: tuple[str, ...]) -> None:
    """A script that a command names by a path in the project is refused like a program, and not started where an
    earlier omac approved it. One in the skill's own folder is that of the copy."""
    (host.tools / "link").symlink_to(host.project)
    command = [word.format(project=host.project, tools=host.tools) for word in words]
    with pytest.raises(Refusal, match="an agent may change"):
        await host.approved(*command)
    with pytest.raises(InterpreterChanged, match="can be changed by an agent"):
        host.started((), command=tuple(command))
    own, beside = f"{host.source}/server.py", f"{host.tools}/server.py"
    await host.approved("python3", own, beside, f"{host.project}/data.json")
    host.started((), command=("python3", own, beside))


def changed_content(tool: Path, host: Host) -> None:
    tool.write_text(SCRIPT + "# more\n")


def changed_file(tool: Path, host: Host) -> None:
    tool.rename(tool.with_name("old"))
    host.program(tool, "#!/bin/sh\nexit 1\n")


def changed_link(tool: Path, host: Host) -> None:
    tool.unlink()
    tool.symlink_to("/bin/true")


def removed(tool: Path, host: Host) -> None:
    tool.unlink()


def not_a_file(tool: Path, host: Host) -> None:
    tool.unlink()
    os.mkfifo(tool)


@pytest.mark.parametrize("change", [changed_content, changed_file, changed_link, removed, not_a_file])
async def test_another_program_is_not_started(host: Host, change: Callable[[Path, Host], None]) -> None:
    """A program that has changed since its approval is not started, whatever the change. The error names the
    program."""
    tool = host.program(host.tools / "tool")
    recorded = await host.approved("tool")
    assert host.started(recorded), "unchanged, it is started"
    change(tool, host)
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} is not"):
        host.started(recorded)


async def test_the_same_program_installed_again_is_started(host: Host) -> None:
    """A program is known by its content: another file with the same content is the same program."""
    tool = host.program(host.tools / "tool")
    recorded = await host.approved("tool")
    tool.rename(tool.with_name("old"))
    host.program(tool)
    assert host.started(recorded)


async def test_a_large_program_is_known_by_its_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is too large to be read at each start is compared by device and inode."""
    monkeypatch.setattr(interpreters, "DIGEST_BYTES_MAX", 4)
    tool = host.program(host.tools / "tool")
    recorded = await host.approved("tool")
    assert recorded[0].digest == ""
    assert host.started(recorded)
    tool.rename(tool.with_name("old"))
    host.program(tool)
    with pytest.raises(InterpreterChanged):
        host.started(recorded)


async def test_the_approved_program_comes_first(host: Host) -> None:
    """A sidecar gets the approved program also with another PATH, whose other entries keep their order."""
    tool = host.program(host.tools / "tool")
    recorded = await host.approved("tool")
    other_tool = host.program(host.tools.with_name("other") / "tool")
    path = f"{other_tool.parent}:/usr/bin"
    assert host.started(recorded, path) == f"{host.tools}:{path}"
    assert host.started(None, path) == path, "nothing is recorded: PATH decides"
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} can be changed by an agent"):
        host.started(recorded, path, str(host.tools))


async def test_what_was_not_there_has_to_be_approved(host: Host) -> None:
    """A program that appears after the approval is not started: it was never approved."""
    recorded = await host.approved("tool")
    assert paths(recorded) == [("tool", "")]
    assert host.started(recorded), "what is not there is found out when it is started"
    tool = host.program(host.tools / "tool")
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} did not exist"):
        host.started(recorded)


def test_a_path_of_the_project_alone_is_the_systems(host: Host) -> None:
    """A PATH with nothing but the project's folders leaves the system's programs."""
    assert "/usr/bin" in host.started(None, f"{host.project}/bin").split(":")
