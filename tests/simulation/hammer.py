"""Directories hammered at random: activate, deactivate, reload, crash, kill, approve, in any order, many at once.

Three promises hold in any order: no route leads to a dead sidecar, no process lacks an owner, no directory stays in a
passing state. A seed reproduces the choices (not the operating system's timing).
"""

import random
from pathlib import Path

import trio
from polling import until
from simulation.world import World, kill, world

DIRECTORIES = 4
WORKERS = 6
PASSING = ("activating", "deactivating")
SETTLE_S = 15.0


async def hammer(seconds: float, seed: int) -> int:
    """Hammer for a while, then check; return how many operations there were. Raises AssertionError."""
    chance = random.Random(seed)
    async with world() as here:
        projects = [here.project(f"p{number}", "one", "two") for number in range(DIRECTORIES)]
        for project in projects:
            for skill in ("one", "two"):
                await here.approve_in_place(project, skill)
        done = 0
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:

                async def work() -> None:
                    nonlocal done
                    while True:
                        await one_operation(here, chance, projects)
                        done += 1

                for _ in range(WORKERS):
                    nursery.start_soon(work)
        await check_settled(here, projects)
        await check_alive_again(here, projects)
    return done


async def one_operation(here: World, chance: random.Random, projects: list[Path]) -> None:
    """Do one of the things that a person, an agent or the system might do."""
    project = chance.choice(projects)
    match chance.choices(["activate", "deactivate", "reload", "crash", "kill", "use"], [6, 2, 3, 3, 2, 6])[0]:
        case "crash":
            status, manifest = await here.control("activate", project)
            if status == 200:
                bases = [skill["base"] for skill in manifest["skills"] if "base" in skill]
                if bases:
                    await here.crash(chance.choice(bases))
        case "kill":
            if victims := sorted(here.processes()):
                kill(chance.choice(victims))
        case "use":
            status, manifest = await here.control("activate", project)
            if status == 200:
                for skill in manifest["skills"]:
                    await use(skill, project, here)
        case action:
            status, answer = await here.control(action, project)
            assert status in (200, 409), answer  # 409: taken offline meanwhile, or not online
            if status == 200 and action != "deactivate":
                assert answer["state"] in ("active", "active_partial", *PASSING), answer


async def use(skill: dict[str, str], project: Path, here: World) -> None:
    """Call a skill, and require that an answer is for its own directory, or has a status that explains the failure."""
    if "base" in skill:
        try:
            status, body = await here.get(skill["base"] + "/")
        except (trio.BrokenResourceError, ValueError, IndexError):
            return  # it was killed while it answered
        assert status in (200, 403, 404, 502, 503), (status, body)  # 403: its token or route ended meanwhile
        if status == 200:
            assert body == str(project).encode()


async def check_settled(here: World, projects: list[Path]) -> None:
    """Require that everything comes to rest by itself, and that the records then agree with what exists."""
    system = here.server.engine.system

    def is_settled() -> bool:
        return not any(entry.state.status in PASSING for entry in system.directories.entries.values()) and not any(
            entry.state.live and entry.state.status != "healthy" for entry in system.sidecars.entries.values()
        )

    await until(is_settled, SETTLE_S)
    healthy = [e.state for e in system.sidecars.entries.values() if e.state.status == "healthy"]
    # what was killed a moment ago may still be on its way out
    await until(lambda: len(here.processes()) == len(healthy), SETTLE_S)
    for entry in system.directories.entries.values():
        for name, route in entry.state.routes.items():
            behind = any(s.spec and (s.spec.workdir, s.spec.skill) == (entry.state.path, name) for s in healthy)
            assert behind == (route.why is None), (entry.state.path, name, route)


async def check_alive_again(here: World, projects: list[Path]) -> None:
    """Require that afterwards every directory works, and goes offline without leaving anything."""
    for project in projects:
        await here.control("activate", project)
        status, manifest = await here.control("reload", project)
        assert (status, manifest["state"]) == (200, "active"), manifest
        for skill in manifest["skills"]:
            assert (await here.get(skill["base"] + "/")) == (200, str(project).encode())
        await here.control("deactivate", project)
    await until(lambda: not here.processes(), SETTLE_S)
