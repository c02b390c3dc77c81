"""What omac adds to the start of a real client, and to that of a command that does nothing.

Claude Code answers one prompt of a scripted model, alone and under `omac start`, in turn: what disturbs one disturbs
the other. A client that cannot be installed fails the benchmark, which says why.
"""

import os
import subprocess
import time
from collections.abc import Callable

from bench.report import Figure, median, publish
from clients.agents import claude, claude_words
from clients.installation import NotInstalled
from clients.loopback import NoNamespace
from clients.world import World, world
from real_omac import COMMAND

ROUNDS = int(os.environ.get("BENCH_CLIENT_ROUNDS", "9"))
ADDED_MS_MAX = 500.0
COMMAND_MS_MAX, COMMAND_MS_AIM = 800.0, 500.0


def main() -> bool:
    """Measure all; True when the bounds hold."""
    try:
        with world(claude) as machine:
            return publish("clients", [client(machine), command(machine)])
    except (NotInstalled, NoNamespace) as problem:
        print(f"clients: {problem}")
        return False


def client(machine: World) -> Figure:
    """One prompt, from the command line to its end."""
    words = claude_words("answer")
    bare = [*machine.within, machine.agent.client.name, *words]
    under = started(machine, machine.agent.client.name, *machine.agent.handed_on, "--", *words)
    alone, ours = in_turn(lambda: run(machine, bare), lambda: run(machine, under))
    added = median([mine - peer for mine, peer in zip(ours, alone, strict=True)])
    return Figure(
        "omac start claude -- -p", f"{median(ours):.0f} ms", f"{median(alone):.0f} ms (claude -p)", f"+{added:.0f} ms",
        f"<= +{ADDED_MS_MAX:g} ms", added <= ADDED_MS_MAX,
    )  # fmt: skip


def command(machine: World) -> Figure:
    """A command that ends at once, with one skill that is ready."""
    peer, ours = in_turn(lambda: run(machine, ["true"]), lambda: run(machine, started(machine, "--", "true")))
    return Figure(
        "omac start -- true", f"{median(ours):.0f} ms", f"{median(peer):.1f} ms (true)", "-",
        f"<= {COMMAND_MS_MAX:g} ms, aim {COMMAND_MS_AIM:g}", median(ours) <= COMMAND_MS_MAX,
    )  # fmt: skip


def started(machine: World, *words: str) -> list[str]:
    """The command line of an `omac start` in a project."""
    return [*machine.within, *COMMAND, "start", *words]


def in_turn(one: Callable[[], float], other: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Milliseconds of both; the first round warms up and is not counted."""
    taken = [(one(), other()) for _ in range(ROUNDS + 1)][1:]
    return [first for first, _ in taken], [second for _, second in taken]


def run(machine: World, line: list[str]) -> float:
    """The time that a command line takes, in milliseconds; it has to succeed."""
    began = time.perf_counter()
    done = subprocess.run(
        line, env=machine.omac.environment, cwd=machine.one, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return (time.perf_counter() - began) * 1000
