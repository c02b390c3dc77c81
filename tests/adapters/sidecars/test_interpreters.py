"""adapters/sidecars/interpreters.py: the programs by which sidecars run are those that were approved."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omac.adapters.sidecars import interpreters
from omac.adapters.sidecars.interpreters import HostInterpreters, trusted_path
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills.interpreter import Interpreter
from omac.services.ports import InterpreterChanged

SCRIPT = "#!/bin/sh\nexit 0\n"


class Host:
    """A machine: `project` may be written by an agent, `tools` by its user; `copy` is that of the skill in `source`."""

    def __init__(self, top: Path) -> None:
        top = Path(os.path.realpath(top))
        self.project, self.tools, self.copy = top / "project", top / "tools", top / "copies" / "echo"
        self.source = self.project / ".agents" / "skills" / "echo"
        for folder in (self.source, self.tools, self.copy):
            folder.mkdir(parents=True)

    @property
    def path(self) -> str:
        """Their PATH, as a shell has it in which the project's virtual environment is active."""
        return f"{self.project}/.venv/bin:{self.tools}:/usr/bin:/bin"

    def program(self, path: Path, text: str = SCRIPT) -> Path:
        """A program at `path`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    async def approved(self, *command: str) -> tuple[Interpreter, ...]:
        """What an approval of this command records."""
        resolver = HostInterpreters({"PATH": self.path})
        return await resolver.resolve(command, str(self.source), str(self.copy), str(self.project))

    def started(self, recorded: tuple[Interpreter, ...] | None, path: str = "", *writable: str) -> str:
        """The PATH of its sidecar, when that is started."""
        spec = SidecarSpec(
            "echo", "echo", str(self.project), str(self.source), str(self.source.parent), "sha256:0", True, ("x",),
            digest="d", interpreters=recorded,
        )  # fmt: skip
        return trusted_path(spec, path or self.path, writable)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An empty one."""
    return Host(tmp_path)


def paths(found: tuple[Interpreter, ...]) -> list[tuple[str, str]]:
    """Names, and what they lead to."""
    return [(one.name, one.path) for one in found]


async def test_a_bare_name_is_not_the_projects(host: Host) -> None:
    """PATH has one in the project first, and a link into it second: neither counts; what does is recorded as it is."""
    evil = host.program(host.project / ".venv" / "bin" / "tool")
    link = host.tools / "linked"
    link.symlink_to(evil)
    good = host.program(host.tools / "tool")
    found, shell = await host.approved("tool", "serve")
    status, digest = good.stat(), hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert found == Interpreter("tool", str(good), status.st_dev, status.st_ino, digest)
    assert shell.path == "/bin/sh"
    assert paths(await host.approved("linked")) == [("linked", "")]
    assert host.started((found,)) == f"{host.tools}:/usr/bin:/bin"


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
    """The copy itself is addressed by its content; what its first line names is recorded, as far as it goes."""
    host.program(host.copy / "run", first)
    host.program(host.tools / "tool")
    host.program(host.project / ".venv" / "bin" / "tool")
    found = await host.approved("./run")
    assert paths(found) == [(name, str(host.tools / name)) for name in expected]  # an absolute name is its own path
    assert paths(await host.approved(f"{host.source}/run")) == paths(found)


async def test_an_interpreter_in_the_copy(host: Host) -> None:
    """That of a virtual environment in the skill is a link: what it leads to is recorded."""
    (host.copy / "python").symlink_to("/bin/sh")
    (found,) = await host.approved("./python")
    assert (found.name, found.path) == ("./python", os.path.realpath("/bin/sh"))


async def test_a_program_of_the_project_cannot_be_approved(host: Host) -> None:
    """Named by its path, it is refused, and what to do is said."""
    evil = host.program(host.project / ".venv" / "bin" / "tool")
    with pytest.raises(Refusal, match="an agent may change") as refused:
        await host.approved(str(evil))
    assert refused.value.reason == "skill-invalid"
    assert any("omac.yaml" in fix for fix in refused.value.fix)


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
    """Whatever became of it since: it is said which, and how."""
    tool = host.program(host.tools / "tool")
    found = await host.approved("tool")
    assert host.started(found), "unchanged, it is started"
    change(tool, host)
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} is not"):
        host.started(found)


async def test_the_same_program_installed_again_is_started(host: Host) -> None:
    """Its content decides: another file with the same is the same program."""
    tool = host.program(host.tools / "tool")
    found = await host.approved("tool")
    tool.rename(tool.with_name("old"))
    host.program(tool)
    assert host.started(found)


async def test_a_large_program_is_known_by_its_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large to be read at each start is compared by device and inode."""
    monkeypatch.setattr(interpreters, "DIGEST_BYTES_MAX", 4)
    tool = host.program(host.tools / "tool")
    found = await host.approved("tool")
    assert found[0].digest == ""
    assert host.started(found)
    tool.rename(tool.with_name("old"))
    host.program(tool)
    with pytest.raises(InterpreterChanged):
        host.started(found)


async def test_the_approved_program_comes_first(host: Host) -> None:
    """Another PATH than at the approval leads to the same program; what is elsewhere on it keeps its order."""
    tool = host.program(host.tools / "tool")
    found = await host.approved("tool")
    other = host.program(host.tools.with_name("other") / "tool")
    path = f"{other.parent}:/usr/bin"
    assert host.started(found, path) == f"{host.tools}:{path}"
    assert host.started(None, path) == path, "nothing is recorded: PATH decides"
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} can be changed by an agent"):
        host.started(found, path, str(host.tools))


async def test_what_was_not_there_has_to_be_approved(host: Host) -> None:
    """A program that appears after the approval was never looked at."""
    found = await host.approved("tool")
    assert paths(found) == [("tool", "")]
    assert host.started(found), "what is not there is found out when it is started"
    tool = host.program(host.tools / "tool")
    with pytest.raises(InterpreterChanged, match=f"its interpreter {tool} did not exist"):
        host.started(found)


def test_a_path_of_the_project_alone_is_the_systems(host: Host) -> None:
    """A PATH that has nothing else leaves the system's programs."""
    assert "/usr/bin" in host.started(None, f"{host.project}/bin").split(":")
