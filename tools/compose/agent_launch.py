"""The launch of an inner command, in the sandbox or, where a person says so, outside it.

Rules

1. Without the name of an agent, the words after `--` are the command itself; with one, they are arguments for that
   agent.
2. A token reaches the command through its environment, and a settings file's content through a file: arguments can be
   read by every user of the machine.
3. The command's program is looked up before anything is started.
4. An agent is given omac's hooks by its command line or a variable; nothing is written into the project.
"""

import errno
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from omac.adapters.files import atomic, bounded
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import opened_folder
from omac.adapters.guard.write_target import common_folder, top_level
from omac.adapters.linux.home import home_of
from omac.adapters.sandbox.terminal import Terminal
from omac.adapters.skills.paths import is_utf8
from omac.domain.guard.guard import Unclear
from omac.domain.harness.bridge import (
    HookCommands,
    are_hooks_off,
    bridge_variables,
    bridged,
    stated_value,
    untrusted,
    with_variables,
)
from omac.domain.harness.harness import Bridge, Harness
from omac.domain.harness.names import CONTROL_VARIABLES, LAUNCH, LAUNCHED, NAMES
from omac.domain.harness.table import DEFAULT_HARNESS, HARNESSES, harness_named, install_hints
from omac.domain.kernel.refusal import Reason, Refusal, list_command, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.sandbox.request import SandboxRequest, request_of
from omac.journal.folders import look_at, write_command
from omac.services.sandbox.settled import refuse_home, settled
from omac.tools.compose.agent_process import Inner, leave_suspending
from omac.tools.compose.endpoints import INSIDE, Ready
from omac.tools.compose.own_program import OMAC, PACKAGE, begun
from omac.tools.compose.project import project_of
from omac.tools.compose.settling_ports import SettlingAdapters
from omac.tools.compose.waiting_sandbox import WaitingSandbox
from omac.tools.hotpath.sandbox_options import first_option, options_of
from omac.tools.terminal.invocation import current, expanded
from omac.tools.terminal.render import report, report_fix

SETTINGS_BYTES_MAX = 1 << 20
SETTINGS_FILE = "settings.json"  # in the run's folder, and where a sandbox has what omac hands on
SETTINGS_WORD = "\0settings"  # stands for that file's path, which no word of a command line can be
HOOK_VARIABLES = (*CONTROL_VARIABLES, "OMAC_HARNESS", "OMAC_WORKDIR")
HOOK = shlex.join((*OMAC, "hook"))
HOOK_COMMANDS = HookCommands(f"{HOOK} pre-tool-use || exit 2", f"{HOOK} session-start", f"{HOOK} session-end")


class AgentLaunch(msgspec.Struct, frozen=True):
    """An inner command and where it runs. `workdir` is canonical; `request` None: it runs without a sandbox.

    `shown`: the sandbox can show it omac's socket and token; Landlock alone cannot. `allowed` are the canonical paths
    that flags or a profile let it change. `variables` are what its environment gets for omac's plugin; `agent` is the
    name of the harness, "" for another command. `settings` are what SETTINGS_WORD stands for in `argv`, or the
    file that holds them, where `is_file`. `guard_scratch` is what a profile or a setting says of it. `offline`: its
    sandbox has no network. `options` are those of its sandbox, as text, from command line and profile.
    """

    argv: tuple[str, ...]
    workdir: str
    request: SandboxRequest | None = None
    shown: bool = True
    allowed: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    agent: str = ""
    settings: str = ""
    is_file: bool = False
    guard_scratch: str = ""
    offline: bool = False
    options: str = ""

    @property
    def recorded(self) -> dict[str, str | bool]:
        """Return what the record of its run says of it."""
        options = "--no-sandbox" if self.request is None else self.options
        return {name: word for name, word in (("agent", self.agent), ("sandbox", options)) if word}

    def sees(self, ready: Ready) -> Ready:
        """Return the addresses at which the command reaches omac; `ready` is for a bridge."""
        return ready.inside(shown=self.shown) if self.request is not None else ready

    def prepare(self, environment: Mapping[str, str]) -> WaitingSandbox | None:
        """Begin the process that builds the sandbox, from Trio's own thread; None without a sandbox. Raises Refusal
        (command-not-executable)."""
        return None if self.request is None else WaitingSandbox(environment)

    async def start(
        self, waiting: WaitingSandbox | None, ready: Ready, environment: Mapping[str, str], handed_on: Sequence[str]
    ) -> Inner:
        """Start it in a Trio task, with the places of `ready`, which is for a bridge, and the sandbox that is `waiting`
        for it. `handed_on` are the names of variables that its `environment` gives it. Raises Refusal
        (command-not-executable, state-unusable)."""
        settings = with_variables(self.settings, self._hook_variables(environment)) if self.settings else ""
        file = self._settings_file(ready, settings) if self.is_file else ""
        terminal = Terminal()
        if self.request is None or waiting is None:
            leave_suspending(terminal)
            return Inner(begun(_with_settings(self.argv, file or settings), environment, self.workdir), terminal)
        argv = _with_settings(self.argv, f"{INSIDE}/{SETTINGS_FILE}" if file else settings)
        own: dict[str, object] = {"run": ready.run, "env": list(handed_on), "command": argv, "agent_settings": file}
        if self.shown:
            own |= {"bridge_socket": ready.control_socket, "bridge_token": ready.control_token_file}
            own["facade_socket"] = ready.facade_socket
        child = await waiting.begin(
            self.request.over(request_of(own)), environment, partial(leave_suspending, terminal)
        )
        return Inner(child, terminal, sandboxed=True)

    def remove_settings(self, ready: Ready) -> None:
        """Remove the file of settings, once the command has ended."""
        with suppress(OSError):
            os.unlink(os.path.join(os.path.dirname(ready.control_token_file), SETTINGS_FILE))

    def _hook_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables by which the agent's hooks find omac and the worktree."""
        named = {name: environment[name] for name in HOOK_VARIABLES if name in environment}
        if self.request is None:
            return {"OMAC_GUARD_SCRATCH": environment.get("OMAC_GUARD_SCRATCH", "")} | named
        scratch = {"OMAC_GUARD_SCRATCH": self.guard_scratch}
        return named | scratch | {"OMAC_SANDBOX": "1", "OMAC_WORKDIR": self.workdir}

    def _settings_file(self, ready: Ready, settings: str) -> str:
        """Write the settings to a file of this run, which nobody else may read. Raises Refusal (state-unusable)."""
        path = os.path.join(os.path.dirname(ready.control_token_file), SETTINGS_FILE)
        try:
            atomic.create(path, settings.encode())
        except OSError as error:
            fix = [write_command(error, os.path.dirname(path))]
            raise Refusal("state-unusable", f"{path} cannot be written: {error.strerror}", fix=fix) from None
        return path


def harness_typed(word: str | None, command: str, with_folder: str) -> Harness:
    """Return the harness that the first word of a `command` names, the default one without a word. Raises Refusal
    (misuse), for a folder with the beginning of the command line that takes one."""
    if not word:
        return DEFAULT_HARNESS
    try:
        return harness_named(word, command)
    except Refusal as unknown:
        if os.path.isdir(word):
            fix = [f"{with_folder} {quoted(word)}"]
            raise Refusal("misuse", f"{word} is a folder, not a harness", fix=fix) from None
        unknown.fix = (*unknown.fix, f"{command} -- {quoted(word)}  # to run a command of that name")
        raise


def harness_in(workdir: str) -> Harness:
    """Return the harness of a command that names none: the default one, unless the project has skills of others
    alone."""
    having = (harness for harness in HARNESSES if any(_has_skills(workdir, base) for base in harness.bases))
    return next(having, DEFAULT_HARNESS)


def _has_skills(workdir: str, base: str) -> bool:
    try:
        with os.scandir(os.path.join(workdir, f".{base}", "skills")) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def launch_of(
    command: Sequence[str],
    words: Sequence[str] | None,
    agent: Harness | None,
    environment: Mapping[str, str],
    *,
    workdir: str,
    roots: Sequence[str] = (),
    sandbox: SandboxRequest,
    sandboxed: bool,
) -> AgentLaunch:
    """Return the launch. `command` is that of the agent, `words` the words after `--` (None: no `--`), `sandbox` the
    request of the sandbox options. Raises Refusal: misuse, command-not-found, command-not-executable,
    settings-invalid, unsafe-link."""
    shown, settings, is_file = not sandboxed or sandbox.backend != "landlock", "", False
    if agent is not None:
        bridged_words, settings, is_file = _bridged(agent, words or (), workdir, environment)
        is_file = is_file and shown
        confined = (*agent.confined, *_untrusted(agent, workdir, environment)) if sandboxed else ()
        argv = (*command, *confined, *bridged_words)
    else:
        argv = tuple(command if words is None else words)
    variables = _plugged(agent, environment, sandbox.network) if agent else {}
    if agent is not None and (variables or bridged_words != tuple(words or ())):
        variables = {**variables, LAUNCHED: LAUNCH}
    name = agent.name if agent else ""
    if not argv:
        raise Refusal("misuse", "the command after -- is missing", fix=["omac start -- bash"])
    if not sandboxed:
        if option := first_option(sandbox):
            raise Refusal("misuse", f"{option} configures the sandbox, but --no-sandbox launches without one")
        return AgentLaunch(
            find_program(argv, environment),
            workdir,
            variables=variables,
            agent=name,
            settings=settings,
            is_file=is_file,
        )
    own: dict[str, object] = {"workdir": workdir, "roots": list(roots), "harness": name}
    if sandbox.network != "none":
        own["open_ports"] = _served_ports(argv, agent)
    request = request_of(own).over(sandbox)
    program = find_program(argv, environment)
    adapters = SettlingAdapters(environment)
    for tree in (workdir, *roots):  # the sandbox refuses it too, once the skills there are running
        refuse_home(tree, "--root" if tree in roots else "--workdir", adapters.home)
    whole = settled(sandbox, adapters, [workdir, *roots])
    offline = whole.network == "none"
    return AgentLaunch(
        program, workdir, request, shown, tuple(whole.allow), variables, name, settings, is_file,
        whole.guard_scratch, offline, options_of(whole),
    )  # fmt: skip


def _bridged(
    agent: Harness, words: Sequence[str], workdir: str, environment: Mapping[str, str]
) -> tuple[tuple[str, ...], str, bool]:
    """The arguments of an agent: those of the person, with omac's; the settings that SETTINGS_WORD stands for among
    them; and whether the person's are in a file. Settings that cannot be read stay as they are: the agent reports what
    is wrong with them."""
    if agent.bridge and agent.bridge.plugin_option:
        return (agent.bridge.plugin_option, str(_plugin(agent.bridge)), *words), "", False
    option = agent.bridge.settings_option if agent.bridge else ""
    stated = stated_value(option, words) if option else None
    try:
        is_file = stated is not None and not stated.lstrip().startswith("{")
        if is_file:
            stated = _content(os.path.normpath(os.path.join(workdir, expanded(stated or ""))))
        off = _are_hooks_off(agent, environment)
        merged = bridged(agent, HOOK_COMMANDS, words, "{}" if stated is None else stated, hooks_off=off)
        return ((option, SETTINGS_WORD, *merged[2:]), merged[1], is_file) if option else (merged, "", False)
    except (OSError, ValueError, RecursionError) as problem:
        report(f"omac: {option} cannot be used ({problem}): omac's hooks are left out, and sessions get no skills")
        return tuple(words), "", False


def _with_settings(argv: Sequence[str], file: str) -> list[str]:
    return [file if word == SETTINGS_WORD else word for word in argv]


def _are_hooks_off(agent: Harness, environment: Mapping[str, str]) -> bool:
    """Return whether the person's own settings of an agent turn its hooks off."""
    if agent.hook is None or agent.bridge is None:
        return False
    return are_hooks_off(agent.hook, _of_person(agent, agent.bridge.folders_file or agent.hook.file, environment))


def _untrusted(agent: Harness, workdir: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments for a project that the person never trusted, nor the clone that its worktree belongs to."""
    if agent.bridge is None or not agent.bridge.folders_file:
        return ()
    folders = [workdir]
    with suppress(Unclear, OSError):  # a .git that an agent made of anything: the sandbox says what is wrong with it
        top = top_level(os.fsencode(workdir))
        common = common_folder(top)
        folders += [os.fsdecode(top), *([os.path.dirname(os.fsdecode(common))] if common else [])]
    return untrusted(agent, _of_person(agent, agent.bridge.folders_file, environment), folders)


def _of_person(agent: Harness, file: str, environment: Mapping[str, str]) -> str:
    """The text of a file of an agent's in the home folder; "" where it cannot be read."""
    folder, name = os.path.split(file)
    moved = environment.get(agent.home_variable) if agent.home_variable else None
    path = os.path.join(moved or os.path.join(home_of(environment), folder), name)
    try:
        return bounded.read(path, SETTINGS_BYTES_MAX, follow=True).decode()
    except (OSError, ValueError):
        return ""


def _content(path: str) -> str:
    """The text of a file of settings; its path may lead over no link, which an agent could have made. Raises OSError,
    ValueError."""
    above, name = os.path.split(path)
    try:
        with Descriptor(opened_folder(above)) as folder:
            return bounded.read(name, SETTINGS_BYTES_MAX, dir_fd=folder).decode()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ValueError(f"{path} leads over a link") from None


def _plugged(agent: Harness, environment: Mapping[str, str], network: str) -> dict[str, str]:
    """The variables by which an agent loads omac's plugin. Raises Refusal (settings-invalid)."""
    if agent.bridge is None or not agent.bridge.plugin:
        return {}
    url = _plugin(agent.bridge).as_uri()
    offline = dict(agent.offline) if network == "none" else {}
    return bridge_variables(agent, url, environment) | {"OMAC_HOOK": HOOK} | offline


def _plugin(bridge: Bridge) -> Path:
    return Path(PACKAGE, "adapters", "harness", bridge.plugin).resolve()


def directory(path: str, flag: str) -> str:
    """The canonical path of a directory that was named by `flag`. Raises Refusal."""
    canonical = os.path.realpath(expanded(path))
    if not os.path.isdir(canonical):
        exists = os.path.exists(canonical)
        reason: Reason = "not-a-directory" if exists else "directory-missing"
        message = f"{flag} {path}: {'not a' if exists else 'no such'} directory: {canonical}"
        raise Refusal(reason, message, fix=[look_at(canonical)])
    if not is_utf8(canonical):  # it is recorded as text
        raise Refusal("bad-request", f"{printable(canonical)} is not a UTF-8 path; rename the directory")
    return canonical


def project_around(environment: Mapping[str, str]) -> str:
    """Return the canonical folder of the project around the current directory, and report where that is another one."""
    here = directory(".", "--workdir")
    project = project_of(here, os.path.realpath(home_of(environment)))
    if project != here:
        report(f"omac: starting in {project}, the project around the current directory; --workdir . starts here")
    return project


def warn(launch: AgentLaunch) -> None:
    """Report what it means to go without a sandbox, or to launch an agent as any other command."""
    if launch.request is not None:
        _warn_of_agent(os.path.basename(launch.argv[0]), launch.agent)
        return
    report(
        f"omac: WARNING: {launch.argv[0]} runs WITHOUT A SANDBOX, as you. It and every program it starts can read and "
        "change all that you can, omac's secrets and records included, and may outlive omac. "
        "Leave --no-sandbox out to have it confined."
    )


def _warn_of_agent(program: str, agent: str) -> None:
    """Report that an agent is launched without what its name brings, with the line that was meant."""
    typed = current().words
    if agent or program not in NAMES or "--" not in typed:
        return
    at = typed.index("--")
    words = [*typed[:at], program, *(typed[at : at + 1] + typed[at + 2 :] if typed[at + 2 :] else ())]
    report(f"omac: {program} runs without its login, settings and sessions: they come with its name ahead of --")
    report_fix([shlex.join(["omac", *words])])


def warn_bridge_compat() -> None:
    """Report what it means to serve bridges without a token."""
    report(
        "omac: WARNING: --bridge-compat: every program on this machine can activate this run's directories and get "
        "URLs of their skills, without a token. Use it for bridges of the Go omac alone."
    )


def find_program(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """`argv` with its program found on PATH. Raises Refusal: command-not-found, command-not-executable."""
    if (program := shutil.which(argv[0], path=environment.get("PATH"))) is not None:
        return (os.path.abspath(program), *argv[1:])
    if "/" not in argv[0]:
        fix = [*install_hints(os.path.basename(argv[0])), f"command -v {quoted(argv[0])}"]
        raise Refusal("command-not-found", f"{argv[0]} is not installed, or not on PATH", fix=fix)
    if os.path.lexists(argv[0]):
        fix = [list_command(argv[0])]
        raise Refusal("command-not-executable", f"{argv[0]} cannot be executed", fix=fix)
    folder = os.path.dirname(argv[0])
    raise Refusal(
        "command-not-found", f"{argv[0]} does not exist", fix=[list_command(folder if os.path.isdir(folder) else ".")]
    )


def _served_ports(argv: Sequence[str], agent: Harness | None) -> list[int]:
    """The port that the agent's own server will listen on has to be open."""
    if agent is None or agent.server_port is None or tuple(argv[1 : len(agent.serve)]) != agent.serve[1:]:
        return []
    port = agent.server_port.default
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == agent.server_port.flag:
            port = value if equals else following
    return [int(port)] if port.isascii() and port.isdigit() and len(port) <= 5 and port.strip("0") else []
