"""omac start: one directory, its skills, and a command that uses them, from its beginning to its end."""

from collections.abc import Mapping
from typing import NamedTuple

import trio

from omac.domain.harness.names import EXAMPLE
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.request import SandboxRequest
from omac.services.directories.manifest import Manifest
from omac.tools.cli.new_server import server_of
from omac.tools.cli.session_end import columns_of_report, report_end
from omac.tools.compose.agent_launch import (
    directory,
    harness_in,
    harness_typed,
    launch_of,
    project_around,
)
from omac.tools.compose.repositories import BranchHeads
from omac.tools.compose.serve_options import ServeOptions, flags_of
from omac.tools.compose.waiting_sandbox import WaitingSandbox
from omac.tools.terminal.invocation import current
from omac.tools.terminal.render import report, report_fix
from omac.tools.terminal.skill_problems import problem_of


class StartRequest(NamedTuple):
    """The command line, as typed; `words` stand after `--`, None where nothing does."""

    harness: str | None
    words: list[str] | None
    workdir: str | None
    no_sandbox: bool
    sandbox: SandboxRequest
    unapproved: str | None
    accept_changes: bool
    bridge_compat: bool
    audit: str | None
    journal: str | None
    explain: bool = False
    json: bool = False


def run(request: StartRequest, environment: Mapping[str, str], waiting: WaitingSandbox | None = None) -> int:
    """Run the command to its end; its exit status. `waiting` builds its sandbox; None: one begins when all is loaded.
    Raises Refusal."""
    if request.json and not request.explain:
        raise Refusal("misuse", "--json works only with --explain: an agent prints its own output")
    wanted = options(request, environment)
    if request.explain and wanted.launch is not None:
        from omac.tools.cli.start_explanation import explain  # late: a start goes without what it takes

        return explain(wanted, wanted.launch, environment, as_json=request.json)
    server = server_of(wanted, environment, waiting)
    width = columns_of_report()
    heads = BranchHeads(wanted.workdirs[0], environment)  # git works meanwhile
    status = trio.run(server.run, lambda _: None, _report_unavailable)
    report_end(server.use, heads.new_commits(), wanted.workdirs[0], width)
    return status


def options(request: StartRequest, environment: Mapping[str, str]) -> ServeOptions:
    """Return the checked options of the request. Raises Refusal: misuse, command-not-found,
    command-not-executable, settings-invalid, unsafe-link, directory-missing, not-a-directory."""
    harness = harness_typed(request.harness, "omac start", f"omac start {EXAMPLE} --workdir")
    agent = harness if request.harness or request.words is None else None
    workdir = directory(request.workdir, "--workdir") if request.workdir else project_around(environment)
    harness = agent or harness_in(workdir)
    launch = launch_of(
        harness.serve[:1], request.words, agent, environment, workdir=workdir, sandbox=request.sandbox,
        sandboxed=not request.no_sandbox,
    )  # fmt: skip
    return ServeOptions(
        harness,
        (workdir,),
        (workdir,),
        launch,
        beside=True,
        journal=request.journal,
        settings=flags_of(request.unapproved, request.audit, accept_changes=request.accept_changes),
        bridge_compat=request.bridge_compat,
    )


def _report_unavailable(manifest: Manifest) -> None:
    """The command runs all the same: what is mended while it runs comes online under the names it has."""
    for skill in manifest.skills:
        if skill["state"] != "ready":
            problem = problem_of(skill, manifest.dir, current().stderr)
            report(f"omac: {skill['name']} is {problem.state.replace('_', ' ')}: {problem.detail}")
            report_fix(problem.fix)
