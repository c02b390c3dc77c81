"""The command line of `omac sandbox run`, taken apart by hand: a parser library would take longer than the sandbox."""

from __future__ import annotations

import os

from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import BACKENDS, NETWORKS
from omac.domain.sandbox.hidden_names import check_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = {  # options with a value that count once: the option, its field
    "--workdir": "workdir",
    "--harness": "harness",
    "--backend": "backend",
    "--profile": "profile",
    "--network": "network",
    "--run": "run",
    "--control-token": "control_token",
    "--facade-socket": "facade_socket",
}
MANY = {  # options with a value that may be repeated
    "--root": "roots",
    "--allow": "allow",
    "--read": "read",
    "--deny": "deny",
    "--deny-name": "deny_names",
    "--env": "env",
    "--open-port": "open_ports",
    "--limit": "limits",
}
FLAGS = {
    "--allow-env-files": "allow_env_files",
    "--weaker-git": "weaker_git",
    "--ephemeral-cache": "ephemeral_cache",
    "--ssh-agent": "ssh_agent",
    "--explain": "explain",
    "--json": "json",
}
HELP = """\
Usage: omac sandbox run [OPTIONS] -- COMMAND...

Run a command that may change its working directory and nothing else of yours.

Examples:
  omac sandbox run -- npm test
  omac sandbox run --harness {example} -- {example}
  omac sandbox run --network none --limit memory=4G,pids=500 -- make
  omac sandbox run --explain -- make              every path, its access and the reason; runs nothing

Options:
  --workdir DIR        the directory it works in and may change (default: the current one)
  --root DIR           one more directory of projects that it may change; repeat for more
  --harness NAME       {names}: that agent's own folders and credentials
  --allow PATH         may read and change it; repeat for more
  --read PATH          may read it
  --deny PATH          may do neither, whatever else says so; the path must be there already
  --deny-name PATTERN  hides every file and folder of that name, such as '*.pem', in all that is granted
  --allow-env-files    shows .env, .envrc and the like, which are hidden otherwise
  --network host|none  host (default): as you, but listening on ports that are named only; none: no network at all
  --open-port PORT     may listen on this TCP port
  --env NAME[=VALUE]   gets this variable, yours or the one given
  --limit NAME=N       pids, memory, cpu (processors), files (open files of a process), tmp (bytes of /tmp and of each
                       other folder in memory; default: a quarter of the machine's, at most 4G); a,b or repeat
  --ssh-agent          may ask your SSH agent to sign
  --ephemeral-cache    package caches that are gone with it
  --profile NAME|PATH  a file of yours that says any of this: ~/.config/omac/sandbox-profiles/NAME.toml
  --backend NAME       auto (default), bubblewrap or landlock
  --weaker-git         with Landlock alone: may change git's settings and hooks, which are inspected at the end
  --explain [--json]   print what it would be given, and why; run nothing
  --control-token FILE, --facade-socket FILE, --run ID
                       what omac start and omac serve hand on: appears below /run/omac
  -h, --help           this text

Its exit status is the command's: 126 and 127 as from a shell, 128+n for a signal. omac's own: 2 misuse, 3 a profile or
settings that are invalid, 4 something is not installed, 5 the journal, 7 the sandbox cannot be had.
"""


class SandboxRequest:
    """What was typed. Paths are as they were typed; lists are in their order."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.workdir = self.harness = self.profile = self.run = self.control_token = self.facade_socket = ""
        self.backend = self.network = ""  # empty: as the profile says, else the default
        self.roots: list[str] = []
        self.allow: list[str] = []
        self.read: list[str] = []
        self.deny: list[str] = []
        self.deny_names: list[str] = []
        self.env: list[str] = []
        self.open_ports: list[str] = []
        self.limits: list[str] = []
        self.weaker_git = self.allow_env_files = self.ephemeral_cache = self.ssh_agent = self.explain = self.json = (
            self.help
        ) = False


def help_text() -> str:
    """Return HELP with the names of the harnesses."""
    from omac.domain.harness.names import EXAMPLE, NAMES, listed  # few command lines ask for help

    return HELP.format(example=EXAMPLE, names=listed(NAMES, "or"))


def parse(words: Sequence[str]) -> SandboxRequest:
    """What the words ask. Raises Refusal (misuse)."""
    asked = SandboxRequest()
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if word == "--":
            asked.command = list(words[at + 1 :])
            break
        if word in ("-h", "--help"):
            asked.help = True
            return asked
        if word in FLAGS:
            setattr(asked, FLAGS[word], True)
        elif name in ONE or name in MANY:
            if not equals:
                at += 1
                if at == len(words) or words[at] == "--":
                    raise _misuse(f"{name} wants a value")
                value = words[at]
            _take(asked, name, value)
        elif word.startswith("-"):
            raise _misuse(f"there is no option {name}{_near(name)}")
        else:
            raise _misuse(f"{word!r} stands before --; write the command after it")
        at += 1
    _check(asked)
    return asked


def _take(asked: SandboxRequest, name: str, value: str) -> None:
    if "\0" in value or not value:
        raise _misuse(f"{name} wants a value that is not empty")
    if name in MANY:
        getattr(asked, MANY[name]).append(value)
    elif getattr(asked, ONE[name]):
        raise _misuse(f"{name} counts once, and was given twice")
    else:
        setattr(asked, ONE[name], value)


def _check(asked: SandboxRequest) -> None:
    if not asked.command and not asked.explain:
        raise _misuse("there is no command; write it after --")
    if asked.json and not asked.explain:
        raise _misuse("--json goes with --explain: a command that runs prints what it prints")
    if asked.backend and asked.backend not in BACKENDS:
        raise _misuse(f"--backend takes auto, bubblewrap or landlock, not {asked.backend!r}")
    if asked.network and asked.network not in NETWORKS:
        raise _misuse(f"--network takes host or none, not {asked.network!r}")
    for pattern in asked.deny_names:
        check_pattern(pattern)
    for port in asked.open_ports:
        if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            raise _misuse(f"--open-port takes a port from 1 to 65535, not {port!r}")
    if asked.open_ports and asked.network == "none":
        raise _misuse("--open-port opens nothing where --network none leaves no network")


def _misuse(what: str) -> Refusal:
    return Refusal("misuse", what, fix=["omac sandbox run --help", "omac sandbox run -- make"])


def _near(name: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, [*ONE, *MANY, *FLAGS], 1)
    return f"; did you mean {found[0]}?" if found else ""


def absolute(path: str, home: str) -> str:
    """A path as typed, `~` and the current directory filled in, links and `..` resolved. Raises Refusal."""
    return os.path.realpath(unresolved(path, home))


def unresolved(path: str, home: str) -> str:
    """A path as typed, made absolute, but with its links and `..` as they are. Raises Refusal (directory-missing)."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:
        raise Refusal("directory-missing", "the current directory was removed", fix=["cd"]) from None
