"""The command line of `omac sandbox run`, taken apart by hand: a parser library would take longer than the sandbox."""

from __future__ import annotations

from omac.domain.kernel import PlainData
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.confinement import BACKENDS, NETWORKS
from omac.domain.sandbox.hidden_names import check_pattern
from omac.domain.sandbox.request import SandboxRequest, defaults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Option(PlainData):
    """An option: the `field` of the request that it fills, what it `takes` (empty for a flag), and what it is for.

    One that `repeats` fills a list; one that is `shared` is an option of `omac start` and `omac serve`, too.
    """

    name: str
    field: str
    takes: str
    text: str
    repeats: bool = False
    shared: bool = True


OPTIONS = (  # in the order of the help
    Option(
        "--workdir", "workdir", "DIR",
        "the directory it works in and may change (default: the current one)", shared=False,
    ),
    Option(
        "--root", "roots", "DIR",
        "one more directory of projects that it may change; repeat for more", repeats=True, shared=False,
    ),
    Option("--harness", "harness", "NAME", "{names}: that agent's own folders and credentials", shared=False),
    Option("--allow", "allow", "PATH", "may read and change it; repeat for more", repeats=True),
    Option("--read", "read", "PATH", "may read it", repeats=True),
    Option(
        "--deny", "deny", "PATH",
        "may do neither, whatever else grants it; works only on paths that exist at launch", repeats=True,
    ),
    Option(
        "--deny-name", "deny_names", "PATTERN",
        "hides every file and folder of that name, such as '*.pem', in all that is granted", repeats=True,
    ),
    Option("--allow-env-files", "allow_env_files", "", "shows .env, .envrc and the like, which are hidden otherwise"),
    Option(
        "--network", "network", "host|none",
        "yours, but listening on named ports only (host, the default), or no network at all (none)",
    ),
    Option("--open-port", "open_ports", "PORT", "may listen on this TCP port, or on a range of them: 8000-8010",
        repeats=True),
    Option("--env", "env", "NAME[=VALUE]", "gets this variable, with your value or this one", repeats=True),
    Option(
        "--limit", "limits", "NAME=N",
        "bounds pids, memory, cpu (processors), files (open files of a process), tmp (bytes of /tmp and of each "
        "other folder in memory; default: a quarter of the machine's, at most 4G); a,b or repeat", repeats=True,
    ),
    Option("--ssh-agent", "ssh_agent", "", "may ask your SSH agent to sign"),
    Option("--ephemeral-cache", "ephemeral_cache", "", "temporary package caches, removed at its end"),
    Option(
        "--profile", "profile", "NAME|PATH",
        "your own file with these options: ~/.config/omac/sandbox-profiles/NAME.toml",
    ),
    Option("--backend", "backend", "NAME", "what builds the sandbox: auto (default), bubblewrap or landlock"),
    Option(
        "--weaker-git", "weaker_git", "",
        "with Landlock alone: may change git's settings and hooks, which are inspected at the end",
    ),
    Option("--explain", "explain", "", "print what the command would get, and why; run nothing", shared=False),
    Option("--json", "json", "", "with --explain: print it for programs", shared=False),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
COMMAND = "omac sandbox run"
HELP_COLUMN, HELP_WIDTH = 23, 80
USAGE = """\
Usage: omac sandbox run [OPTIONS] -- COMMAND...

Run a command that may change its working directory and nothing else of yours.

Examples:
  omac sandbox run -- npm test
  omac sandbox run --harness {example} -- {example}
  omac sandbox run --network none --limit memory=4G,pids=500 -- make
  omac sandbox run --explain -- make        every path and why; runs nothing

Options:
"""
STATUS = """\
Its exit status is the command's: 126 and 127 as from a shell, 128+n for a
signal. omac's own: 2 misuse, 3 a profile or settings that are invalid,
4 something is not installed, 5 the journal, 7 the sandbox cannot be had.
"""


def help_text() -> str:
    """Return the help of `omac sandbox run`."""
    from shutil import get_terminal_size  # few command lines ask for help
    from textwrap import fill

    from omac.domain.harness.names import EXAMPLE, NAMES, listed

    width = min(HELP_WIDTH, get_terminal_size((HELP_WIDTH, 0)).columns)
    words = {"example": EXAMPLE, "names": listed(NAMES, "or")}
    rows = [(f"{option.name} {option.takes}", option.text.format(**words)) for option in OPTIONS]
    lines = [
        fill(f"  {left:<{HELP_COLUMN - 3}} {text}", width, subsequent_indent=" " * HELP_COLUMN, break_on_hyphens=False)
        for left, text in (*rows, ("-h, --help", "this text"))
    ]
    return "\n".join([USAGE.format(**words) + lines[0], *lines[1:], "", STATUS])


def parse(words: Sequence[str]) -> SandboxRequest:
    """Return the request of a whole command line. Raises Refusal (misuse)."""
    at = words.index("--") if "--" in words else len(words)
    request = parse_options(words[:at])
    request.command = list(words[at + 1 :])
    if request.help:
        return request
    if not request.command and not request.explain:
        raise _misuse("the command is missing; write it after --")
    if request.json and not request.explain:
        raise _misuse("--json works only with --explain: a command prints its own output")
    return request


def parse_options(words: Sequence[str], command: str = COMMAND) -> SandboxRequest:
    """Return the request of the options before the command. Raises Refusal (misuse), whose fix is a line of `command`,
    after which they were typed."""
    try:
        return _parsed(words)
    except Refusal as refusal:
        if command == COMMAND:
            raise
        corrected = [line.removeprefix(COMMAND).partition(" -- ")[0].strip() for line in refusal.fix]
        fix = [_of_command(options, words, command) for options in corrected]
        raise Refusal(refusal.reason, refusal.message, fix=[line for line in fix if line != command]) from None


def _of_command(options: str, words: Sequence[str], command: str) -> str:
    """Return corrected options as a command. Options alone stand for the typed command with these: not where one was
    typed several times, as any of them may be the wrong one."""
    name = options.partition(" ")[0]
    typed = sum(word.partition("=")[0] == name for word in words)
    return options if typed == 1 and " " in options else f"{command} {options}".strip()


def _parsed(words: Sequence[str]) -> SandboxRequest:
    request = SandboxRequest()
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            request.help = True
            return request
        option = BY_NAME.get(name)
        if option and option.takes:
            if not equals:
                at += 1
                if at == len(words):
                    raise _misuse(f"{name} needs a value")
                value = words[at]
            _take(request, option, value)
        elif option and not equals:
            setattr(request, option.field, True)
        elif word.startswith("-"):
            raise _misuse(f"unknown option {name}{_near(name)}")
        else:
            line = " ".join([COMMAND, *map(quoted, words[:at]), "--", *map(quoted, words[at:])])
            raise Refusal("misuse", f"{word!r} is before --; write the command after --", fix=[line])
        at += 1
    _check(request)
    return request


def first_option(request: SandboxRequest) -> str:
    """The name of the first option that a request has; empty without any."""
    return next((option.name for option in OPTIONS if getattr(request, option.field)), "")


def options_of(request: SandboxRequest) -> str:
    """Return the options by which a request differs from the default, as text for a record: without the directories
    that it is for, and without the values of variables."""
    words = []
    default = defaults()
    for option in OPTIONS:
        value = getattr(request, option.field)
        if not option.shared or value == getattr(default, option.field):
            continue
        if isinstance(value, dict):
            value = [f"{name}={amount:.15g}" for name, amount in value.items()]
        for one in value if isinstance(value, list) else [value]:
            text = str(one).partition("=")[0] if option.field == "env" else str(one)
            words.append(f"{option.name} {quoted(text)}" if option.takes else option.name)
    return " ".join(words)


def _take(request: SandboxRequest, option: Option, value: str) -> None:
    if "\0" in value or not value:
        raise _misuse(f"{option.name} needs a value that is not empty")
    if option.field == "limits":
        from omac.adapters.sandbox import limits

        request.limits |= limits.parse([value])
    elif option.field == "open_ports":
        request.open_ports.append(_port(value))
    elif option.repeats:
        getattr(request, option.field).append(value)
    elif getattr(request, option.field):
        raise _misuse(f"{option.name} was given twice, but takes one value")
    else:
        setattr(request, option.field, value)


def _port(text: str) -> int | str:
    from omac.domain.sandbox.listening import PORT_MAX, port_or_range

    try:
        return port_or_range(text)
    except ValueError:
        message = f"--open-port takes a port from 1 to {PORT_MAX}, or a range such as 8000-8010, not {text!r}"
        raise _misuse(message, "--open-port 8080") from None


def _check(request: SandboxRequest) -> None:
    if request.backend and request.backend not in BACKENDS:
        raise _misuse(f"--backend takes auto, bubblewrap or landlock, not {request.backend!r}", "--backend auto")
    if request.network and request.network not in NETWORKS:
        raise _misuse(f"--network takes host or none, not {request.network!r}", "--network host")
    for pattern in request.deny_names:
        check_pattern(pattern)
    if request.open_ports and request.network == "none":
        raise _misuse("--open-port has no effect with --network none")


def _misuse(message: str, corrected: str = "") -> Refusal:
    """Return the refusal of a command line; `corrected` is an option with a value that it takes."""
    fix = [f"{COMMAND} {corrected} -- make"] if corrected else [f"{COMMAND} --help", f"{COMMAND} -- make"]
    return Refusal("misuse", message, fix=fix)


def _near(name: str) -> str:
    from difflib import get_close_matches

    matches = get_close_matches(name, list(BY_NAME), 1)
    return f"; did you mean {matches[0]}?" if matches else ""
