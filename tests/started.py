"""A real `omac start` for tests: a shell, outside any sandbox, that lives no longer than its omac."""

from pathlib import Path

from real_omac import Omac, Serving

BARE = ("start", "--no-sandbox")
WAIT = "while kill -0 $PPID 2>/dev/null; do sleep 0.05; done"  # as long as omac is there
LOOP = f"echo up; {WAIT}"
SHOW = f"env; echo ready; {WAIT}"


def started(omac: Omac, project: Path, script: str, *options: str) -> Serving:
    """Start a shell with this script, outside any sandbox, in a project; its standard input never ends."""
    return omac.start(*BARE, "--workdir", str(project), *options, "--", "sh", "-c", script)


def looping(omac: Omac, project: Path) -> Serving:
    """Start a shell that goes on as long as its omac, and return when it is up."""
    run = started(omac, project, LOOP)
    assert run.line() == "up\n"
    return run


def told(run: Serving) -> dict[str, str]:
    """Return the environment that a command printed, up to a line with "ready"."""
    variables = {}
    while (line := run.line().rstrip("\n")) != "ready":
        name, equals, value = line.partition("=")
        if equals:
            variables[name] = value
    return variables
