"""Random and mutated git folders, left by a real launch: the host's git runs nothing for them, and writes nowhere else.

The same as tests/adapters/git/test_random_git_folders.py, through `omac sandbox run`, also two at once in one project,
and with a program that exchanges folders and links for each other as fast as it can.
"""

import random
import subprocess
from collections.abc import Iterator

import pytest
from adapters.git.boxed import OTHER_GIT
from adapters.git.dangers import TABLES
from adapters.git.hosting import COMMANDS, Host
from adapters.git.test_random_git_folders import PATTERNS, removed, repositories
from real_sandbox import Box
from tiers import examples, some

from adapters.git import layouts, plants
from omac.adapters.git.layout import GitChoices, lay_out

EXAMPLES = examples(20) // 5  # of each layout
TOGETHER = range(100, 102)
SWAPPED = range(200, 202)
SWAP_SECONDS = 1.5
COMMANDS_OF_AN_EXAMPLE = 12
LAYOUTS = {"plain": layouts.plain, "linked": layouts.linked, "with-submodule": layouts.with_submodule}


@pytest.fixture
def world(world: Box) -> Iterator[Box]:
    """Yield a user's world."""
    yield world
    removed(world.top)


class Scene:
    """A layout in a user's home, made again for each example."""

    def __init__(self, world: Box, name: str) -> None:
        self.world = world
        top = world.home / "place"
        removed(top)
        top.mkdir()
        self.project = LAYOUTS[name](top, world.home)
        self.victim = world.top / "victim"
        self.canary = world.top / "canary"
        removed(self.victim)
        (self.victim / "folder").mkdir(parents=True)
        (self.victim / "file").write_text("precious\n")
        layouts.history(self.victim / "repository", world.home)
        subprocess.run(["chown", "-R", f"{world.uid}:{world.uid}", str(top), str(self.victim)], check=True)
        folders = lay_out(str(self.project), GitChoices(), str(world.home)).folders
        self._gits = [(path, list(folder.only)) for path, folder in folders.items()]

    def launch(self, seed: str, swap: float = 0) -> subprocess.Popen[str]:
        """Begin a launch whose program plants."""
        task = {
            "project": str(self.project), "gits": self._gits, "patterns": PATTERNS, "victim": str(self.victim),
            "evil": f"touch {self.canary}", "seed": seed, "swap": swap, "tables": TABLES,
        }  # fmt: skip
        world = self.world
        line = world.omac("sandbox", "run", "--workdir", str(self.project), "--", *plants.command(task))
        return subprocess.Popen(
            line, cwd=self.project, env=world.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, user=world.uid or None, group=world.uid or None,
            extra_groups=world.extra_groups, text=True, errors="replace",
        )  # fmt: skip

    def violations(self, seed: str) -> list[str]:
        """Return the forbidden acts of the host's git now."""
        self.canary.unlink(missing_ok=True)
        chance = random.Random(seed)
        nested = sorted(repositories(self.project))
        folders = [self.project, *chance.sample(nested, min(1, len(nested)))]
        allowed = [str(self.project), *(path for path, _only in self._gits)]
        host = Host(self.world.top, self.world.home, OTHER_GIT, self.world.uid)
        return host.violations(folders, chance.sample(COMMANDS, COMMANDS_OF_AN_EXAMPLE), allowed)

    def example(self, seeds: list[str], swap: float = 0) -> str:
        """Run launches at once; return an empty text, or the story of the host's git's forbidden acts."""
        launches = [self.launch(seed, swap if number else 0) for number, seed in enumerate(seeds)]
        outputs = [launch.communicate(timeout=120)[0] for launch in launches]
        assert all("Traceback" not in text for text in outputs), outputs
        violations = self.violations(seeds[0])
        return "\n".join([*seeds, *outputs, *violations]) if violations or self.canary.exists() else ""


@pytest.mark.parametrize("name", some(LAYOUTS, of=3))
def test_what_a_launch_left(world: Box, name: str) -> None:
    """Files that a sandboxed program plants move the host's git to no forbidden act; pinned files stay untouched."""
    stories = [Scene(world, name).example([str(seed)]) for seed in range(EXAMPLES)]
    assert not any(stories), "\n\n".join(stories)


@pytest.mark.parametrize("name", some(["plain", "linked"], of=2))
@pytest.mark.full
def test_what_two_launches_left(world: Box, name: str) -> None:
    """Two programs plant at once in one project: the last launch to end inspects for both."""
    stories = [Scene(world, name).example([str(seed), f"{seed}+"]) for seed in TOGETHER]
    assert not any(stories), "\n\n".join(stories)


@pytest.mark.full
@pytest.mark.parametrize("name", ["linked", "plain"])
def test_what_a_program_left_that_exchanges_folders(world: Box, name: str) -> None:
    """While one launch ends, the program of another exchanges folders, links and files in the same project."""
    stories = [Scene(world, name).example([str(seed), f"{seed}+"], SWAP_SECONDS) for seed in SWAPPED]
    assert not any(stories), "\n\n".join(stories)
