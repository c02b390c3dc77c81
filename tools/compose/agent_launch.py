"""What omac launches: the inner command, in the sandbox or, where a person says so, outside it.

Rules

1. Without the name of an agent, what stands after `--` is the command itself; with one, it is arguments for that agent.
2. What holds a token reaches the command through its environment: arguments can be read by every user of the machine.
3. Whether its program is there is known before anything is started.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

import msgspec

import omac
from omac.adapters.linux.home import home_of
from omac.domain.harness.harness import Harness
from omac.domain.harness.table import install_hints
from omac.domain.kernel.refusal import Reason, Refusal
from omac.tools.compose.endpoints import Ready
from omac.tools.compose.sandbox_choices import choices_of
from omac.tools.hotpath import sandbox_options
from omac.tools.terminal.invocation import expanded
from omac.tools.terminal.render import say

# Isolated: neither PYTHONPATH nor the current directory, which may be anybody's, brings modules; this very omac runs.
SANDBOX = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.append(sys.argv.pop(1)); from omac.tools.entry import main; main()",
    os.path.dirname(os.path.dirname(omac.__file__)),
    "sandbox",
    "run",
)
OPEN_PORT = "--open-port"


class AgentLaunch(msgspec.Struct, frozen=True):
    """An inner command and where it runs. `workdir` is canonical; `flags` are those of `omac sandbox run`.

    `agent` is the harness that was named; None when the command is none of ours. `shown`: the sandbox can show it
    omac's socket and token; Landlock alone cannot. `allowed` are the canonical paths that flags or
    a profile let it change.
    """

    argv: tuple[str, ...]
    workdir: str
    roots: tuple[str, ...] = ()
    agent: Harness | None = None
    flags: tuple[str, ...] = ()
    sandboxed: bool = True
    shown: bool = True
    allowed: tuple[str, ...] = ()

    def sees(self, told: Ready) -> Ready:
        """Where the command finds what omac offers."""
        return told.inside(shown=self.shown) if self.sandboxed else told

    def command_line(self, told: Ready, handed_on: Sequence[str]) -> list[str]:
        """What is executed. `handed_on` are the names of variables that its environment gives it."""
        if not self.sandboxed:
            return list(self.argv)
        words = [*SANDBOX, "--workdir", self.workdir, "--run", told.run]
        words += [word for root in self.roots for word in ("--root", root)]
        words += ["--harness", self.agent.name] if self.agent else []
        if self.shown:
            words += ["--control-token", told.control_token_file, "--facade-socket", told.facade_socket]
        words += [word for name in handed_on for word in ("--env", name)]
        return [*words, *self.flags, "--", *self.argv]


def launch_of(
    command: Sequence[str],
    words: Sequence[str] | None,
    agent: Harness | None,
    environment: Mapping[str, str],
    *,
    workdir: str,
    roots: Sequence[str] = (),
    flags: Sequence[str] = (),
    sandboxed: bool = True,
) -> AgentLaunch:
    """What to launch: `command` is that of the agent, `words` what stands after `--` (None: nothing does).

    Raises Refusal: misuse, prerequisite-missing, settings-invalid, unsafe-link.
    """
    argv = (*command, *(words or ())) if agent or words is None else tuple(words)
    if not argv:
        raise Refusal("misuse", "the command after -- is missing", fix=["omac start -- bash"])
    if flags and not sandboxed:
        raise Refusal("misuse", f"{flags[0]} configures the sandbox, but --no-sandbox launches without one")
    asked = sandbox_options.parse([*flags, "--", *argv])
    served = () if not sandboxed or asked.network == "none" else _served_port(argv, agent)
    found = find_program(argv, environment)
    shown = asked.backend != "landlock"
    home = os.path.realpath(home_of(environment))
    allowed = tuple(choices_of(asked, environment, home, [workdir, *roots]).allow) if sandboxed else ()
    return AgentLaunch(found, workdir, tuple(roots), agent, (*flags, *served), sandboxed, shown, allowed)


def directory(path: str, flag: str) -> str:
    """The canonical path of a directory that was named by `flag`. Raises Refusal."""
    canonical = os.path.realpath(expanded(path))
    if not os.path.isdir(canonical):
        reason: Reason = "not-a-directory" if os.path.exists(canonical) else "directory-missing"
        message = f"{flag} {path}: no such directory: {canonical}"
        raise Refusal(reason, message, fix=[f"ls -ld {shlex.quote(canonical)}"])
    return canonical


def warn_unsandboxed(launch: AgentLaunch, file: TextIO) -> None:
    """Say what it means to go without."""
    say(
        f"omac: WARNING: {launch.argv[0]} runs WITHOUT A SANDBOX, as you. It and every program it starts can read", file
    )
    say("omac: and change all that you can, omac's secrets and records included, and may outlive omac.", file)
    say("omac: Leave --no-sandbox out to have it confined.", file)


def find_program(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """`argv` with its program found on PATH. Raises Refusal (prerequisite-missing)."""
    found = shutil.which(argv[0], path=environment.get("PATH"))
    if found is None:
        fix = [*install_hints(os.path.basename(argv[0])), f"command -v {shlex.quote(argv[0])}"]
        raise Refusal("prerequisite-missing", f"{argv[0]} is not installed, or not on PATH", fix=fix)
    return (os.path.abspath(found), *argv[1:])


def _served_port(argv: Sequence[str], agent: Harness | None) -> tuple[str, ...]:
    """The port that the agent's own server will listen on has to be open."""
    if agent is None or agent.server_port is None or tuple(argv[1 : len(agent.serve)]) != agent.serve[1:]:
        return ()
    port = agent.server_port.default
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == agent.server_port.flag:
            port = value if equals else following
    return (OPEN_PORT, port) if port.isascii() and port.isdigit() and port.strip("0") else ()
