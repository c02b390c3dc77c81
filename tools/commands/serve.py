"""omac serve: from what a person typed to a server that runs."""

import os
import shlex
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import trio

from omac.adapters.linux.listen import loopback
from omac.domain.harness import harness_named
from omac.domain.refusal import Refusal
from omac.tools.inner import find_program
from omac.tools.serving import Address, Ready, ServeOptions, Server


class Asked(NamedTuple):
    """The command line, as typed."""

    harness: str
    inner_args: list[str]
    roots: list[str]
    workdir: str | None
    no_inner: bool
    no_sandbox: bool
    unapproved: str | None
    accept_changes: bool
    control_addr: str
    facade_addr: str
    journal: str | None
    json: bool


def run(asked: Asked, environment: Mapping[str, str]) -> int:
    """Serve until stopped. Raises Refusal."""
    server = Server(options(asked, environment), environment)

    def announce(ready: Ready) -> None:
        if asked.json:
            print(msgspec.json.encode(ready).decode(), flush=True)
        else:
            facade = ready.facade_base.removeprefix("http://")
            print(f"omac serve: control plane on {ready.control_base}; facade on {facade}", flush=True)

    return trio.run(server.run, announce)


def options(asked: Asked, environment: Mapping[str, str]) -> ServeOptions:
    """What was asked, checked. Raises Refusal: misuse, prerequisite-missing, sandbox-unavailable, directory-missing."""
    harness = harness_named(asked.harness)
    inner = None
    if not asked.no_inner:
        if not asked.no_sandbox:
            raise Refusal(
                "sandbox-unavailable",
                f"this omac has no sandbox yet, and {harness.name} would run commands nobody reviewed, as you",
                fix=["omac serve --no-inner", f"omac serve {harness.name} --no-sandbox  # if you accept that"],
            )
        inner = find_program((*harness.serve, *asked.inner_args), environment)
    elif asked.inner_args:
        raise Refusal("misuse", "--no-inner launches no agent, so arguments for one make no sense")
    workdir = _directory(asked.workdir, "--workdir") if asked.workdir else None
    roots = [_directory(root, "--root") for root in asked.roots] or ([] if workdir else [os.getcwd()])
    if workdir is not None and not any(_below(workdir, root) for root in roots):
        roots.append(workdir)
    return ServeOptions(
        harness,
        tuple(roots),
        workdir,
        inner,
        asked.journal,
        _address(asked.control_addr, "--control-addr"),
        _address(asked.facade_addr, "--facade-addr"),
        {"serve.unapproved": asked.unapproved, "serve.bundle_drift": "accept" if asked.accept_changes else None},
    )


def _directory(path: str, flag: str) -> str:
    canonical = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(canonical):
        reason = "not-a-directory" if os.path.exists(canonical) else "directory-missing"
        raise Refusal(
            reason, f"{flag} {path}: there is no directory {canonical}", fix=[f"ls -ld {shlex.quote(canonical)}"]
        )
    return canonical


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _address(text: str, flag: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise Refusal("misuse", f"{flag} takes HOST:PORT, not {text!r}", fix=[f"omac serve {flag} 127.0.0.1:0"])
    return Address(str(loopback(host.strip("[]"), int(port), flag)), int(port))
