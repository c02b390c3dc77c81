"""omac serve: from what a person typed to a server that runs."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import trio

from omac.domain.harness.table import DEFAULT_HARNESS, harness_named
from omac.domain.kernel.loopback import ANY, loopback_address
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.cli.new_server import server_of
from omac.tools.compose.agent_launch import AgentLaunch, directory, harness_typed, launch_of
from omac.tools.compose.endpoints import Ready
from omac.tools.compose.serve_options import Address, ServeOptions, flags_of
from omac.tools.hotpath.sandbox_options import first_option
from omac.tools.terminal.invocation import current, print_data, print_json
from omac.tools.terminal.render import report


class ServeRequest(NamedTuple):
    """The command line, as typed; `words` stand after `--`, None where nothing does."""

    harness: str | None
    words: list[str] | None
    roots: list[str]
    workdirs: list[str]
    no_inner: bool
    no_sandbox: bool
    sandbox: SandboxRequest
    unapproved: str | None
    accept_changes: bool
    bridge_compat: bool
    audit: str | None
    control_addr: str
    facade_addr: str
    witness_addr: str | None
    journal: str | None
    json: bool


def run(request: ServeRequest, environment: Mapping[str, str]) -> int:
    """Serve until stopped. Raises Refusal."""
    wanted = options(request, environment)
    server = server_of(wanted, environment)

    def announce(ready: Ready) -> None:
        facade = ready.facade_base.removeprefix("http://")
        line = f"omac serve: control plane on {ready.control_base}; facade on {facade}"
        if wanted.launch is not None:
            report(line)  # stdout is the agent's alone
        elif request.json:
            print_json(ready)
        else:
            print_data(line)
            # For agents with a bridge that are started by other means.
            print_data(f"OMAC_CONTROL_BASE={server.bridge_base if wanted.bridge_compat else ready.control_base}")
        current().stdout.flush()
        if server.witness_base:
            token = server.state.witness_token_path
            where = f"checkpoints of other omacs are kept on {server.witness_base}"
            report(f"omac serve: {where}; their token: {token}")

    return trio.run(server.run, announce)


def options(request: ServeRequest, environment: Mapping[str, str]) -> ServeOptions:
    """Return the checked options of the request. Raises Refusal: misuse, prerequisite-missing, directory-missing,
    not-a-directory."""
    harness = harness_typed(request.harness, "omac serve", "omac serve --no-inner --root")
    workdirs = [directory(workdir, "--workdir") for workdir in request.workdirs]
    roots = [directory(root, "--root") for root in request.roots] or ([] if workdirs else [directory(".", "--root")])
    roots += [workdir for workdir in dict.fromkeys(workdirs) if not below_any(workdir, roots)]
    return ServeOptions(
        harness,
        tuple(roots),
        tuple(dict.fromkeys(workdirs)),
        _launch(request, _beginning(workdirs, roots), roots, environment),
        journal=request.journal,
        bridge_compat=request.bridge_compat,
        control=_address(request.control_addr, "--control-addr"),
        facade=_address(request.facade_addr, "--facade-addr"),
        witness=_address(request.witness_addr, "--witness-addr") if request.witness_addr is not None else None,
        settings=flags_of(request.unapproved, request.audit, accept_changes=request.accept_changes),
    )


def _beginning(workdirs: list[str], roots: list[str]) -> str:
    """The directory that an agent begins in: the first to be activated, else the current one, where a root holds it."""
    here = os.path.realpath(os.getcwd())
    return next(iter(workdirs), here if below_any(here, roots) else roots[0])


def _launch(
    request: ServeRequest, workdir: str, roots: list[str], environment: Mapping[str, str]
) -> AgentLaunch | None:
    if request.no_inner:
        if request.words is not None:
            raise Refusal("misuse", "--no-inner launches no agent, so it takes no arguments for one")
        if flag := "--no-sandbox" if request.no_sandbox else first_option(request.sandbox):
            raise Refusal("misuse", f"--no-inner launches no agent, so {flag} has no effect")
        return None
    agent = harness_named(request.harness or DEFAULT_HARNESS.name) if request.harness or request.words is None else None
    return launch_of(
        (agent or DEFAULT_HARNESS).serve, request.words, agent, environment, workdir=workdir, roots=roots,
        sandbox=request.sandbox, sandboxed=not request.no_sandbox,
    )  # fmt: skip


def _address(text: str, flag: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65_535:
        raise Refusal("misuse", f"{flag} takes HOST:PORT, not {text!r}", fix=[f"{flag} {ANY}"])
    return Address(str(loopback_address(host.strip("[]"), int(port), flag)), int(port))
