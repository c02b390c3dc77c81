"""What omac launches: the inner command, in the sandbox or, where a person says so, outside it.

Rules

1. Without the name of an agent, what stands after `--` is the command itself; with one, it is arguments for that agent.
2. What holds a token reaches the command through its environment: arguments can be read by every user of the machine.
3. Whether its program is there is known before anything is started.
4. An agent is given omac's hooks by its command line or a variable; nothing is written into the project.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import omac
from omac.adapters.files import bounded
from omac.adapters.guard.write_target import common_folder, top_level
from omac.adapters.linux.home import home_of
from omac.domain.harness.bridge import (
    LAUNCH,
    LAUNCHED,
    HookCommands,
    bridge_variables,
    bridged,
    stated_value,
    untrusted,
)
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import install_hints
from omac.domain.kernel.refusal import Reason, Refusal
from omac.domain.sandbox.request import SandboxRequest, request_of
from omac.services.sandbox.settled import settled
from omac.tools.compose.agent_process import Inner
from omac.tools.compose.endpoints import Ready
from omac.tools.compose.project import project_of
from omac.tools.compose.sandbox_ports import SandboxAdapters
from omac.tools.hotpath.sandbox_options import first_option
from omac.tools.hotpath.sandbox_run import REQUEST_DESCRIPTOR
from omac.tools.terminal.invocation import expanded
from omac.tools.terminal.render import report

# Isolated: neither PYTHONPATH nor the current directory, which may be anybody's, brings modules; this very omac runs.
PACKAGE = os.path.dirname(omac.__file__)
OMAC = (
    sys.executable, "-I", "-S", "-c",
    "import sys; sys.path.append(sys.argv.pop(1)); from omac.tools.entry import main; main()", os.path.dirname(PACKAGE),
)  # fmt: skip
SANDBOX = (*OMAC, "sandbox", "run", REQUEST_DESCRIPTOR)
SETTINGS_BYTES_MAX = 1 << 20
HOOK = shlex.join((*OMAC, "hook"))
HOOK_COMMANDS = HookCommands(f"{HOOK} pre-tool-use || exit 2", f"{HOOK} session-start", f"{HOOK} session-end")


class AgentLaunch(msgspec.Struct, frozen=True):
    """An inner command and where it runs. `workdir` is canonical; `request` None: it runs without a sandbox.

    `shown`: the sandbox can show it omac's socket and token; Landlock alone cannot. `allowed` are the canonical paths
    that flags or a profile let it change. `variables` are what its environment gets for omac's plugin; `agent` is the
    name of the harness, "" for another command.
    """

    argv: tuple[str, ...]
    workdir: str
    request: SandboxRequest | None = None
    shown: bool = True
    allowed: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    agent: str = ""

    def sees(self, ready: Ready) -> Ready:
        """Where the command finds what omac offers; `ready` is for a bridge."""
        return ready.inside(shown=self.shown) if self.request is not None else ready

    def start(self, ready: Ready, environment: Mapping[str, str], handed_on: Sequence[str]) -> Inner:
        """Start it in a Trio task, with the places of `ready`, which is for a bridge. `handed_on` are the names of
        variables that its `environment` gives it. Raises Refusal (prerequisite-missing)."""
        if self.request is None:
            return Inner(self.argv, environment, self.workdir)
        own: dict[str, object] = {"run": ready.run, "env": list(handed_on), "command": list(self.argv)}
        if self.shown:
            own |= {"bridge_socket": ready.control_socket, "bridge_token": ready.control_token_file}
            own["facade_socket"] = ready.facade_socket
        request = self.request.over(request_of(own))
        with os.fdopen(os.memfd_create("omac-request"), "wb") as file:
            file.write(json.dumps(request.fields()).encode())
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return Inner([*SANDBOX, str(file.fileno())], environment, handed_on=[file.fileno()])


def launch_of(
    command: Sequence[str],
    words: Sequence[str] | None,
    agent: Harness | None,
    environment: Mapping[str, str],
    *,
    workdir: str,
    roots: Sequence[str] = (),
    sandbox: SandboxRequest,
    sandboxed: bool = True,
) -> AgentLaunch:
    """What to launch: `command` is that of the agent, `words` what stands after `--` (None: nothing does), `sandbox`
    what the options of the sandbox ask. Raises Refusal: misuse, prerequisite-missing, settings-invalid, unsafe-link."""
    if agent is not None:
        confined = (*agent.confined, *_untrusted(agent, workdir, environment)) if sandboxed else ()
        hooked = _bridged(agent, words or (), workdir)
        argv = (*command, *confined, *hooked)
    else:
        argv = tuple(command if words is None else words)
    variables = _plugged(agent, environment, sandbox.network) if agent else {}
    if agent is not None and (variables or hooked != tuple(words or ())):
        variables = {**variables, LAUNCHED: LAUNCH}
    name = agent.name if agent else ""
    if not argv:
        raise Refusal("misuse", "the command after -- is missing", fix=["omac start -- bash"])
    if not sandboxed:
        if option := first_option(sandbox):
            raise Refusal("misuse", f"{option} configures the sandbox, but --no-sandbox launches without one")
        return AgentLaunch(find_program(argv, environment), workdir, variables=variables, agent=name)
    own: dict[str, object] = {"workdir": workdir, "roots": list(roots), "harness": name}
    if sandbox.network != "none":
        own["open_ports"] = _served_ports(argv, agent)
    request = request_of(own).over(sandbox)
    program = find_program(argv, environment)
    ports = SandboxAdapters(environment, lambda line: report(f"omac: {line}"))
    allowed = tuple(settled(sandbox, ports, [workdir, *roots]).allow)
    return AgentLaunch(program, workdir, request, sandbox.backend != "landlock", allowed, variables, name)


def _bridged(agent: Harness, words: Sequence[str], workdir: str) -> tuple[str, ...]:
    """The arguments of an agent: those of the person, with omac's. Settings that cannot be read stay as they are: the
    agent reports what is wrong with them."""
    option = agent.bridge.settings_option if agent.bridge else ""
    stated = stated_value(option, words) if option else None
    try:
        if stated is not None and not stated.lstrip().startswith("{"):
            stated = _content(os.path.normpath(os.path.join(workdir, expanded(stated))))
        return bridged(agent, HOOK_COMMANDS, words, "{}" if stated is None else stated)
    except (OSError, ValueError, RecursionError) as problem:
        report(f"omac: {option} cannot be used ({problem}): omac's hooks are left out, and sessions get no skills")
        return tuple(words)


def _untrusted(agent: Harness, workdir: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments for a project that the person never trusted, nor the clone that its worktree belongs to."""
    if agent.bridge is None or not agent.bridge.folders_file:
        return ()
    folder, name = os.path.split(agent.bridge.folders_file)
    moved = environment.get(agent.home_variable) if agent.home_variable else None
    path = os.path.join(moved or os.path.join(home_of(environment), folder), name)
    try:
        stated = bounded.read(path, SETTINGS_BYTES_MAX, follow=True).decode()
    except (OSError, ValueError):
        stated = ""
    common = common_folder(top_level(os.fsencode(workdir)))
    clones = [os.path.dirname(os.fsdecode(common))] if common else []
    return untrusted(agent, stated, [workdir, os.fsdecode(top_level(os.fsencode(workdir))), *clones])


def _content(path: str) -> str:
    """The text of a file of settings; its path may lead over no link, which an agent could have made. Raises OSError,
    ValueError."""
    if os.path.realpath(path) != path:
        raise ValueError(f"{path} leads over a link")
    return bounded.read(path, SETTINGS_BYTES_MAX).decode()


def _plugged(agent: Harness, environment: Mapping[str, str], network: str) -> dict[str, str]:
    """The variables by which an agent loads omac's plugin. Raises Refusal (settings-invalid)."""
    if agent.bridge is None or not agent.bridge.plugin:
        return {}
    url = Path(PACKAGE, "adapters", "harness", agent.bridge.plugin).resolve().as_uri()
    offline = dict(agent.offline) if network == "none" else {}
    return bridge_variables(agent, url, environment) | {"OMAC_HOOK": HOOK} | offline


def directory(path: str, flag: str) -> str:
    """The canonical path of a directory that was named by `flag`. Raises Refusal."""
    canonical = os.path.realpath(expanded(path))
    if not os.path.isdir(canonical):
        reason: Reason = "not-a-directory" if os.path.exists(canonical) else "directory-missing"
        message = f"{flag} {path}: no such directory: {canonical}"
        raise Refusal(reason, message, fix=[f"ls -ld {shlex.quote(canonical)}"])
    return canonical


def project_around(environment: Mapping[str, str]) -> str:
    """Return the canonical folder of the project around the current directory, and report where that is another one."""
    here = directory(".", "--workdir")
    project = project_of(here, os.path.realpath(home_of(environment)))
    if project != here:
        report(f"omac: starting in {project}, the project around the current directory; --workdir . starts here")
    return project


def warn_unsandboxed(launch: AgentLaunch) -> None:
    """Say what it means to go without."""
    report(f"omac: WARNING: {launch.argv[0]} runs WITHOUT A SANDBOX, as you. It and every program it starts can read")
    report("omac: and change all that you can, omac's secrets and records included, and may outlive omac.")
    report("omac: Leave --no-sandbox out to have it confined.")


def warn_bridge_compat() -> None:
    """Report what it means to serve bridges without a token."""
    report("omac: WARNING: --bridge-compat: every program on this machine can activate this run's directories and get")
    report("omac: URLs of their skills, without a token. Use it for bridges of the Go omac alone.")


def find_program(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """`argv` with its program found on PATH. Raises Refusal (prerequisite-missing)."""
    program = shutil.which(argv[0], path=environment.get("PATH"))
    if program is None:
        fix = [*install_hints(os.path.basename(argv[0])), f"command -v {shlex.quote(argv[0])}"]
        raise Refusal("prerequisite-missing", f"{argv[0]} is not installed, or not on PATH", fix=fix)
    return (os.path.abspath(program), *argv[1:])


def _served_ports(argv: Sequence[str], agent: Harness | None) -> list[int]:
    """The port that the agent's own server will listen on has to be open."""
    if agent is None or agent.server_port is None or tuple(argv[1 : len(agent.serve)]) != agent.serve[1:]:
        return []
    port = agent.server_port.default
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == agent.server_port.flag:
            port = value if equals else following
    return [int(port)] if port.isascii() and port.isdigit() and port.strip("0") else []
