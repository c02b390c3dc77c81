"""The time that omac adds to the start of a real client, and to that of a command that does nothing.

Claude Code answers one prompt of a scripted model, alone and under `omac start`, in turn: a disturbance of one disturbs
the other. Its start is from the command line to the first request to the model; the whole run, with omac's work after
its end, is printed beside. A client that cannot be installed fails the benchmark, which prints the reason.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.report import Figure, median, publish
from clients.agents import claude, claude_words
from clients.installation import NotInstalled
from clients.loopback import NoNamespace
from clients.world import World, world

ROUNDS = int(os.environ.get("BENCH_CLIENT_ROUNDS", "9"))
OMAC = str(Path(sys.executable).with_name("omac"))  # what a person types, not a module of it
ADDED_MS_MAX = 500.0
COMMAND_MS_MAX, COMMAND_MS_AIM = 800.0, 500.0

Measured = TypeVar("Measured")


class Taken(NamedTuple):
    """Milliseconds from the command line to the first request of the model, and to the end."""

    asked: float
    ended: float


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    try:
        with world(claude) as machine:
            return publish("clients", [*client(machine), command(machine)])
    except (NotInstalled, NoNamespace) as problem:
        print(f"clients: {problem}")
        return False


def client(machine: World) -> list[Figure]:
    """Measure a client's start, and its whole run, for one prompt."""
    words = claude_words("answer")
    bare = [*machine.within, machine.agent.client.name, *words]
    under = started(machine, machine.agent.client.name, *machine.agent.handed_on, "--", *words)
    alone, ours = in_turn(lambda: asked(machine, bare), lambda: asked(machine, under))
    start = added([sample.asked for sample in ours], [sample.asked for sample in alone])
    whole = added([sample.ended for sample in ours], [sample.ended for sample in alone])
    return [
        Figure(
            "omac start claude -- -p: its start", *start[:2], f"+{start[2]:.0f} ms", f"<= +{ADDED_MS_MAX:g} ms",
            start[2] <= ADDED_MS_MAX,
        ),
        Figure("the same, to its end", *whole[:2], f"+{whole[2]:.0f} ms", "-", True),
    ]  # fmt: skip


def added(ours: list[float], alone: list[float]) -> tuple[str, str, float]:
    """Return both medians as texts, and the median of the differences of each run and that beside it."""
    more = median([own - peer for own, peer in zip(ours, alone, strict=True)])
    return f"{median(ours):.0f} ms", f"{median(alone):.0f} ms (claude -p)", more


def command(machine: World) -> Figure:
    """Measure a command that ends at once, with one skill that is ready."""
    peer, ours = in_turn(lambda: run(machine, ["true"]), lambda: run(machine, started(machine, "--", "true")))
    return Figure(
        "omac start -- true", f"{median(ours):.0f} ms", f"{median(peer):.1f} ms (true)", "-",
        f"<= {COMMAND_MS_MAX:g} ms, aim {COMMAND_MS_AIM:g}", median(ours) <= COMMAND_MS_MAX,
    )  # fmt: skip


def started(machine: World, *words: str) -> list[str]:
    """Return the command line of an `omac start` in a project."""
    return [*machine.within, OMAC, "start", *words]


def in_turn(one: Callable[[], Measured], other: Callable[[], Measured]) -> tuple[list[Measured], list[Measured]]:
    """Return the results of both in each round; the first one warms up and is not counted."""
    rounds = [(one(), other()) for _ in range(ROUNDS + 1)][1:]
    return [first for first, _ in rounds], [second for _, second in rounds]


def asked(machine: World, line: list[str]) -> Taken:
    """Return the times of a command line that makes a request to the model."""
    offset = machine.record.stat().st_size if machine.record.exists() else 0
    began = time.time_ns()
    ended = run(machine, line)
    with machine.record.open("rb") as record:
        record.seek(offset)
        requests = [json.loads(text) for text in record]
    first = min(request["at_ns"] for request in requests if request["method"] == "POST")
    return Taken((first - began) / 1e6, ended)


def run(machine: World, line: list[str]) -> float:
    """Return the time that a command line takes, in milliseconds; it has to succeed."""
    began = time.perf_counter()
    done = subprocess.run(
        line, env=machine.omac.environment, cwd=machine.one, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return (time.perf_counter() - began) * 1000
