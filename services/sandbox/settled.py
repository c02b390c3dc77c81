"""A request that is settled: what was typed, over a profile, over the settings, over the defaults; and the refusals of
what no request may ask for."""

from __future__ import annotations

from omac.domain.kernel.paths import below, below_any, folder_of
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.sandbox.confinement import COPY, PRIVATE, READ, WRITE, governing
from omac.domain.sandbox.request import defaults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.sandbox.confinement import Entry
    from omac.domain.sandbox.request import SandboxRequest
    from omac.services.sandbox.ports import FilesPort, SettlingPorts

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a folder like any other


def settled(typed: SandboxRequest, ports: SettlingPorts, trees: list[str]) -> SandboxRequest:
    """Return what holds, with canonical paths, where the program may change `trees` and works in the first of them.
    Raises Refusal: misuse, settings-invalid, unsafe-link."""
    base = ports.settings(trees[0]).over(defaults())
    if typed.profile:
        base = ports.profile(typed.profile, trees[0]).over(base)
    request = typed.over(base)
    request.allow = _resolved(request.allow, ports, trees)
    request.read = _resolved(request.read, ports, trees)
    denied = [ports.files.canonical(ports.files.unresolved(path, ports.home)) for path in request.deny]
    request.deny = [path for path in denied if ports.files.exists(path)]  # no mount can be on what is not there
    request.warnings += [
        f"--deny {path} hides nothing: --deny works only on paths that exist at launch"
        for path in denied
        if path not in request.deny
    ]
    return request


def refuse_links(path: str, links: list[tuple[str, str]], trees: list[str]) -> None:
    """A link in a folder that an agent may change could lead anywhere by now: it is not followed. `path` is as typed,
    `links` as of `resolve_symlinks`. Raises Refusal (unsafe-link)."""
    for link, target in links:
        if below_any(link, trees):
            raise Refusal(
                "unsafe-link",
                f"{path} leads through {link}, a link (to {target}) that a program in the sandbox could have made",
                fix=[f"{list_command(link)}  # to grant its target, name the target itself"],
            )


def look_at(path: str, files: FilesPort) -> str:
    """The command that lists an absolute path, or the nearest folder above it that exists."""
    while not files.exists(path):
        path = folder_of(path)
    return list_command(path)


def refuse_kernel(path: str, flag: str, access: str) -> None:
    """Raise Refusal (misuse) for a canonical path of the kernel's: each sandbox has a /proc and a /dev of its own, no
    device works in a grant, and a program that may write settings of the kernel may have root run others (core(5))."""
    for own in ("/proc", "/dev"):
        if below(path, own) and not below(path, SHARED_MEMORY):
            message = f"{flag} {path}: each sandbox has its own {own}, and nothing of the host's"
            raise Refusal("misuse", message, fix=[f"omac sandbox run -- ls {own}  # what is there"])
    if below(path, "/sys") and access == WRITE:
        message = f"{flag} {path}: a program could change settings of the kernel"
        raise Refusal("misuse", message, fix=[f"omac sandbox run --read {quoted(path)} -- COMMAND"])


def refuse_home(path: str, flag: str, home: str) -> None:
    """Raise Refusal (misuse) for a home folder or a folder above: an agent could change the commands that the owner's
    shell runs next."""
    if below(home, path):
        location = "your home folder" if path == home else "above your home folder"
        enter = ["cd ~/projects/shop  # the project to work in"] if flag == "--workdir" else []
        raise Refusal(
            "misuse",
            f"{flag} {path} is {location}: an agent could change what your shell runs next",
            fix=[*enter, f"ls -d ~/*/  # folders that {flag} can name in its place"],
        )


def refuse_own(path: str, own: str, purpose: str, instead: str) -> None:
    """Raise Refusal (misuse) for what lies in `own`, a folder of omac's."""
    if below(path, own):
        where = path if path == own else f"{path} is in {own}, which"
        raise Refusal("misuse", f"{where} is {purpose}", fix=[instead])


def require_room(grants: list[Entry], entries: list[Entry], ports: SettlingPorts) -> None:
    """Raise Refusal (misuse) for a grant to read where something of the sandbox's own, which the host does not have,
    would have to be made."""
    for entry in entries:
        if entry.access not in (COPY, PRIVATE) or entry.made or ports.files.exists(entry.path):
            continue
        around = governing(entries, folder_of(entry.path))
        if around is not None and around.access == READ and any(around is grant for grant in grants):
            message = f"--read {around.path}: {entry.path} ({entry.reason}) cannot be made in what is read-only"
            instead = f"ls -d {quoted(around.path)}/*  # what --read can name in its place"
            raise Refusal("misuse", message, fix=[instead])


def _resolved(paths: list[str], ports: SettlingPorts, trees: list[str]) -> list[str]:
    resolved = []
    for path in paths:
        links, real = ports.files.resolve_symlinks(ports.files.unresolved(path, ports.home))
        refuse_links(path, links, trees)
        resolved.append(real)
    return resolved
