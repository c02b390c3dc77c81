"""Nothing gets out: every attack fails, and its twin succeeds, for root and for nobody, on both backends."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from escape.attacks import ATTACKS, PRELUDE, Attack
from escape.victim import Victim, victim
from real_sandbox import NOBODY, SYSTEM_PYTHON, Box, Done, box

USERS = (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)
BACKENDS = ("bubblewrap", "landlock")


@pytest.fixture(scope="module", params=USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """A user's world; the attacks of a module share it, each finds a victim of its own."""
    with box(request.param) as made:
        yield made


@pytest.fixture
def prey(world: Box) -> Iterator[Victim]:
    """What one attack is after."""
    with victim(world) as made:
        yield made


def program(prey: Victim, source: str) -> tuple[str, ...]:
    """An attack as a command."""
    return (SYSTEM_PYTHON, "-I", "-c", PRELUDE.replace("{values!r}", repr(prey.values)) + source)


def empty(world: Box) -> None:
    """Nothing of an earlier program is in the project."""
    for path in world.workdir.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def inside(prey: Victim, attack: Attack, backend: str, source: str) -> Done:
    """Run it in the sandbox, with a folder and a file of the host's left open for it."""
    world = prey.world
    empty(world)
    options = ("--backend", backend, *attack.options)
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), *options, "--", *program(prey, source))
    user = {"user": world.uid, "group": world.uid, "extra_groups": []} if world.uid else {}
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, cwd=world.workdir,
        env=world.environment | {"TOKEN_OF_HOST": prey.token}, pass_fds=(prey.folder, prey.open_file), **user,  # type: ignore[call-overload]
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_attack_fails_and_its_twin_succeeds(prey: Victim, attack: Attack, backend: str) -> None:
    """The attack gets nothing and changes nothing; what a decent program does in its place works."""
    done = inside(prey, attack, backend, attack.source)
    escaped = "ESCAPED" in done.out or (attack.lost is not None and attack.lost(prey))
    if backend == "landlock" and attack.landlock == "declared":
        assert escaped, f"SECURITY.md declares it ({attack.exception}), and it does not hold: {done}"
    else:
        assert not escaped, done
    source = attack.landlock_twin if backend == "landlock" and attack.landlock_twin else attack.twin
    twin = inside(prey, attack, backend, source)
    assert (twin.status, twin.out) == (0, "OK\n"), twin


@pytest.mark.parametrize(
    "attack", [one for one in ATTACKS if one.control], ids=lambda attack: attack.name.replace(" ", "-")
)
def test_outside_the_attack_works(prey: Victim, attack: Attack) -> None:
    """Without a sandbox the same program gets what it is after, so that its failure inside means something."""
    world = prey.world
    empty(world)
    environment = {"OMAC_CACHE_DIR": "/nowhere", "SSH_AUTH_SOCK": prey.socket}
    done = world.host(*program(prey, attack.source), extra=environment)
    try:
        assert "ESCAPED" in done.out or (attack.lost is not None and attack.lost(prey)), done
    finally:
        gone = world.workdir.with_name(world.workdir.name + "-gone")
        if gone.exists():
            gone.rename(world.workdir)
