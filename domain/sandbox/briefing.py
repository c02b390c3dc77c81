"""The briefing: what a program in a sandbox is told of it, in a variable, so that an agent need not learn by failing.

It states facts of this very launch. Nothing is enforced by it.
"""

from __future__ import annotations

from omac.domain.kernel import PlainData

VARIABLE = "OMAC_SANDBOX_BRIEFING"
_NETWORKS = {
    "host": "it is the host's; programs may listen only on {ports}. A person opens others, by `--open-port`",
    "none": "there is none but a loopback of the sandbox's own; skills answer at the Unix socket `OMAC_SOCKET`",
}


class BriefingFacts(PlainData):
    """The facts of a briefing. `writable` are the folders of the projects, the working directory first. `cache` is the
    folder of the tools' caches, `kept` whether it outlives the sandbox, and `network` is as in the request; `ports` are
    the TCP ports that programs can listen on, beside those that the system assigns."""

    writable: tuple[str, ...]
    cache: str
    kept: bool
    network: str
    hides_env_files: bool
    ports: tuple[int | str, ...] = ()


def briefing(facts: BriefingFacts) -> str:
    """Return the text, in Markdown."""
    first = facts.writable[0]
    others = [folder for folder in facts.writable if folder != first]  # a root may be the working directory
    also = f", and in {', '.join(others)}" if others else ""
    hidden = " Files that hold credentials, such as .env, are hidden: they exist, and are not to be recreated."
    kept = "kept for this project" if facts.kept else "gone when the sandbox ends"
    hidden = hidden if facts.hides_env_files else ""
    call = "the URL in `OMAC_<MOUNT>_BASE`, for example with curl"
    if facts.network == "none":
        call = '`curl --unix-socket "$OMAC_SOCKET" "$OMAC_<MOUNT>_BASE/"`'
    opened = f"{', '.join(map(str, facts.ports))} and those " if facts.ports else ""
    ports = f"TCP ports {opened}that the system assigns"
    lines = [
        f"Files: you can change what is in {first}{also}. System files can be read. Of the home directory, "
        f"nothing else is here; /tmp is the sandbox's own and gone at its end.{hidden}",
        "Git: commits work. Its hooks and settings are read-only here, and inspected when the sandbox ends. Worktrees, "
        "submodules and nested repositories that were there at its beginning can only be removed or moved outside. "
        "Add worktrees in the project: a folder beside it is gone at the end.",
        f"Network: {_NETWORKS.get(facts.network, facts.network).format(ports=ports)}.",
        "Not here: root and sudo, and tracing, as by gdb, strace and perf. LeakSanitizer traces, too: set "
        "`LSAN_OPTIONS=detect_leaks=0` for programs with it or AddressSanitizer.",
        f"Skills: services outside that hold their credentials. `OMAC_SKILLS` names them; call one by {call}.",
        f"Caches of tools are in {facts.cache} (`OMAC_CACHE_DIR`), {kept}; the tools' variables lead there.",
        "Only a person can change these rules, outside the sandbox. When something is denied, say what you need and "
        "why; do not try to get around it.",
    ]
    return "\n".join(("You are running inside the **omac sandbox**.", "", *(f"* {line}" for line in lines))) + "\n"
