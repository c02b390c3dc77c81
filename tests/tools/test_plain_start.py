"""tools/cli/plain_start.py: a plain command line of `omac start` is parsed as Typer parses it, or left to Typer."""

import subprocess
import sys
from typing import Any

import pytest
from command_walk import ALL
from real_omac import Omac

from omac.tools.cli import start
from omac.tools.cli.plain_start import FLAGS, SHARED, VALUES, plain_start
from omac.tools.cli.start import StartRequest
from omac.tools.main import main

LINES = [
    ("start",),
    ("start", "claude"),
    ("start", "--"),
    ("start", "--", "bash", "-c", "exit 3"),
    ("start", "claude", "--env", "A", "--env", "B=1", "--", "-p", "say -- twice", "--", "x"),
    ("start", "--network=none", "--workdir", "shop", "codex", "--no-sandbox", "--limit", "pids=9,cpu=1", "--"),
    ("start", "--unapproved", "confine", "--accept-skill-changes", "--bridge-compat", "--journal=j.db", "--", "true"),
    ("start", "--allow", "a b", "--read=c", "--deny", "d", "--open-port", "80", "--open-port=81", "--weaker-git"),
    ("start", "--env", "A=b=c", "--profile", "mine", "--ssh-agent", "--ephemeral-cache", "--backend", "auto"),
]
NOT_PLAIN = [
    (),
    ("serve", "claude"),
    ("start", "-h"),
    ("start", "--help", "--", "x"),
    ("start", "--explain", "--", "true"),
    ("start", "--json", "--", "true"),
    ("start", "claude", "codex"),
    ("start", ""),
    ("start", "--workdir"),
    ("start", "--workdir", "--", "true"),
    ("start", "--workdir", ""),
    ("start", "--workdir="),
    ("start", "--workdir", "a", "--workdir", "b"),
    ("start", "--no-sandbox", "--no-sandbox"),
    ("start", "--no-sandbox=yes"),
    ("start", "--env", "--network", "none"),
    ("start", "--nosuch", "x"),
    ("start", "-x"),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[StartRequest]:
    """Return the list of start requests, which are noted and not carried out."""
    requests: list[StartRequest] = []

    def note(request: StartRequest, *_: object) -> int:
        requests.append(request)
        return 0

    monkeypatch.setattr(start, "run", note)
    return requests


def comparable(request: StartRequest) -> dict[str, Any]:
    """Return the request as data."""
    return request._asdict() | {"sandbox": request.sandbox.fields()}


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_plain_line_means_what_typer_takes_it_for(line: tuple[str, ...], asked: list[StartRequest]) -> None:
    """The plain parser and Typer make the same request of a line."""
    plain = plain_start(line, {})
    assert plain is not None
    assert plain.run({}) == 0
    assert main(line, {"HOME": "/"}, None, sys.stdout, sys.stderr) == 0
    by_hand, by_typer = asked
    assert comparable(by_hand) == comparable(by_typer)


@pytest.mark.parametrize("line", NOT_PLAIN, ids=" ".join)
def test_what_is_not_plain_is_left_to_typer(line: tuple[str, ...]) -> None:
    """The plain parser leaves help, data about a start, and faulty lines to Typer."""
    assert plain_start(line, {}) is None


def test_inside_a_sandbox_no_line_is_plain() -> None:
    """Inside a sandbox each line is left to Typer, whose refusal explains what the host's command would do there."""
    assert plain_start(("start", "--", "true"), {"OMAC_SANDBOX": "1"}) is None


def test_every_option_is_known_here() -> None:
    """Each option of `omac start` is plain, or one of the few that do not launch."""
    options = {
        name for parameter in ALL["start",].params if parameter.param_type_name == "option" for name in parameter.opts
    }
    assert options - {"--help", "-h"} == {*FLAGS, *VALUES, *SHARED, "--explain", "--json"}


@pytest.mark.full
def test_a_start_goes_without_typer(omac: Omac) -> None:
    """A start, with or without a sandbox, and its early refusal load no Typer."""
    begin = (
        f"import os, sys; sys.path[:0] = {sys.path!r}; leave = os._exit\n"
        "os._exit = lambda status: (print('typer' in sys.modules, status, flush=True), leave(0))\n"
        "from omac.tools.entry import main; main()"
    )
    project = omac.root / "project"
    project.mkdir()
    for words, status, message in (
        (("--workdir", str(omac.root / "missing"), "--", "true"), 2, "omac: --workdir "),
        (("--workdir", str(project), "--", "sh", "-c", "exit 3"), 3, ""),
        (("--workdir", str(project), "--no-sandbox", "--", "true"), 0, "omac: WARNING: "),
    ):
        line = [sys.executable, "-I", "-S", "-c", begin, "start", *words]
        done = subprocess.run(line, env=omac.environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"False {status}\n", done
        assert done.stderr.startswith(message), done
