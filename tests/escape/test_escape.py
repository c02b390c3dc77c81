"""Every attack on the host fails, and its twin succeeds, for root and for nobody, on both backends."""

import contextlib
import secrets
from collections.abc import Iterator

import pytest
from escape.attacks import ATTACKS, PRELUDE, Attack
from escape.runner import Runner
from escape.victim import Victim, victim
from real_sandbox import FEWER_USERS, SYSTEM_PYTHON, box

BACKENDS = ("bubblewrap", "landlock")


@pytest.fixture(scope="module", params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Yield a user's world with its sandboxes; a module's attacks share them, and each has a victim of its own."""
    with box(request.param) as world, contextlib.closing(Runner(world, secrets.token_hex(16))) as made:
        yield made


@pytest.fixture
def prey(runner: Runner) -> Iterator[Victim]:
    """Yield the victim of one attack."""
    with victim(runner.world, runner.token) as made:
        yield made


def program(prey: Victim, source: str) -> str:
    """Return an attack as a Python program."""
    return PRELUDE.replace("{values!r}", repr(prey.values)) + source


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_attack_fails_and_its_twin_succeeds(runner: Runner, prey: Victim, attack: Attack, backend: str) -> None:
    """An attack gets nothing and changes nothing; the harmless twin in its place works."""
    options = ("--backend", backend, *attack.options)
    runner.empty()
    if attack.alone:
        done = runner.run_alone(options, program(prey, attack.source), (prey.folder, prey.open_file))
    else:
        done = runner.run(options, program(prey, attack.source))
    escaped = "ESCAPED" in done.out or (attack.lost is not None and attack.lost(prey))
    if backend == "landlock" and attack.landlock == "declared":
        assert escaped, f"SECURITY.md declares it ({attack.exception}), and it does not hold: {done}"
    else:
        assert not escaped, done
    source = attack.landlock_twin if backend == "landlock" and attack.landlock_twin else attack.twin
    runner.empty()
    twin = runner.run(options, program(prey, source))
    assert (twin.status, twin.out) == (0, "OK\n"), twin


@pytest.mark.full
@pytest.mark.parametrize(
    "attack", [entry for entry in ATTACKS if entry.control], ids=lambda attack: attack.name.replace(" ", "-")
)
def test_outside_the_attack_works(runner: Runner, prey: Victim, attack: Attack) -> None:
    """Without a sandbox the same program succeeds, so that its failure inside means something."""
    world = prey.world
    runner.empty()
    environment = {"OMAC_CACHE_DIR": "/nowhere", "SSH_AUTH_SOCK": prey.socket}
    done = world.host(SYSTEM_PYTHON, "-I", "-c", program(prey, attack.source), extra=environment)
    try:
        assert "ESCAPED" in done.out or (attack.lost is not None and attack.lost(prey)), done
    finally:
        moved = world.workdir.with_name(world.workdir.name + "-gone")
        if moved.exists():
            moved.rename(world.workdir)
