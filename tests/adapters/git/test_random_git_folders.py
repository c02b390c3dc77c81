"""The host's git runs nothing that a program left in git folders, and touches nothing outside the project.

An example is a real repository of some layout, the plants that a program makes in it by chance (planting.py), the
inspection that ends a launch, and the commands of a person under strace (hosting.py). OMAC_GIT_SEEDS=FROM-TO runs these
examples, and OMAC_TEST_GIT names a folder with a git of another version.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapters.git.boxed import OTHER_GIT, act, host, noted
from adapters.git.dangers import TABLES
from adapters.git.hosting import COMMANDS, Host
from tiers import examples

from adapters.git import layouts, plants
from omac.adapters.git.layout import GitChoices, Layout, lay_out, prepare
from omac.domain.git.folder import ADMIN, WHOLE
from omac.domain.git.grammar import FILE, RULES

EXAMPLES = int(os.environ.get("OMAC_SOAK_GIT_FOLDERS", examples(100)))
FIRST, _, LAST = os.environ.get("OMAC_GIT_SEEDS", "").partition("-")
SEEDS = range(int(FIRST), int(LAST)) if LAST else range(EXAMPLES)
IS_SOAK = "OMAC_SOAK_GIT_FOLDERS" in os.environ or bool(LAST)
COMMANDS_OF_AN_EXAMPLE = 10 if IS_SOAK else 8
NESTED_MAX = 2 if IS_SOAK else 1  # folders with a repository in the project in which the commands are run too
PATTERNS = sorted({rule.path for role in (WHOLE, ADMIN) for rule in RULES[role] if rule.kind == FILE})
NAMES = list(layouts.LAYOUTS)
USUAL = ("plain", "linked", "with-submodule", "several")  # tried without --all
TWINS = 20


class Scene:
    """A layout with a victim beside it, restored before each example, always at one path."""

    def __init__(self, name: str, base: Path) -> None:
        builder, where, _own_config = layouts.LAYOUTS[name]
        self.base = base
        self.home = base / "home"
        self.home.mkdir(parents=True)
        folder = base / "place"
        folder.mkdir()
        self.workdir = builder(folder, self.home)
        self._origin(self.workdir / where)
        self.victim = base / "victim"
        layouts.history(self.victim / "repository", self.home)
        (self.victim / "folder").mkdir()
        (self.victim / "file").write_text("precious\n")
        self.canary = base / "canary"
        self._template = base / "template"
        subprocess.run(["cp", "-a", str(folder), str(self._template)], check=True)
        self.host = Host(base, self.home, OTHER_GIT)

    def _origin(self, where: Path) -> None:
        origin = self.base / "origin.git"
        host("git", "clone", "-q", "--bare", str(where), str(origin), cwd=self.base, home=self.home)
        host("git", "remote", "remove", "origin", cwd=where, home=self.home, check=False)
        host("git", "remote", "add", "origin", str(origin), cwd=where, home=self.home)
        host("git", "fetch", "-q", cwd=where, home=self.home)
        host("git", "branch", "-q", "-u", "origin/main", "main", cwd=where, home=self.home, check=False)

    def example(self, seed: int, *, inspected: bool = True) -> tuple[list[str], str]:
        """Run an example; return the violations of the host's git, and a description of the example."""
        self._put_back()
        layout = lay_out(str(self.workdir), GitChoices(), str(self.home))
        prepare(layout)
        record = noted(layout)
        story = self._planted(layout, seed)
        findings = act(record, self.home) if inspected else []
        self.canary.unlink(missing_ok=True)
        chance = random.Random(seed)
        commands = chance.sample(COMMANDS, COMMANDS_OF_AN_EXAMPLE)
        nested = sorted(repositories(self.workdir))
        folders = [self.workdir, *chance.sample(nested, min(NESTED_MAX, len(nested)))]
        allowed = [str(self.workdir), *layout.folders]
        violations = self.host.violations(folders, commands, allowed)
        if self.canary.exists():
            violations.append("the canary is there")
        description = "\n".join([*story, *map(str, findings), *map(str, folders), *commands])
        return violations, description

    def _planted(self, layout: Layout, seed: int) -> list[str]:
        """Plant while only the project and its git folders can be written; return a description of each step."""
        gits = [(path, list(folder.only)) for path, folder in layout.folders.items()]
        writable = [
            str(self.workdir),
            *(f"{git}/{name}" if only else git for git, only in gits for name in only or [""]),
        ]
        words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-net"]
        words += ["--bind", str(self.base), str(self.base), "--remount-ro", str(self.base)]
        for path in writable:
            if os.path.exists(path):
                words += ["--bind", path, path]
        arguments: dict[str, object] = {
            "project": str(self.workdir), "gits": gits or [(f"{self.workdir}/.git", [])], "patterns": PATTERNS,
            "victim": str(self.victim), "evil": f"touch {self.canary}", "seed": f"{seed}.0", "tables": TABLES,
        }  # fmt: skip
        line = [*words, "--unshare-pid", "--die-with-parent", "--", *plants.command(arguments)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        story: list[str] = json.loads(done.stdout)
        return story

    def _put_back(self) -> None:
        for path in (self.base / "place", self.home / "state"):
            removed(path)
        subprocess.run(["cp", "-a", str(self._template), str(self.base / "place")], check=True)


def removed(path: Path) -> None:
    """Remove a folder of any depth, also with folders that cannot be listed."""
    if path.exists():
        subprocess.run(["chmod", "-R", "u+rwx", str(path)], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", str(path)], check=True)


def repositories(workdir: Path) -> Iterator[Path]:
    """Yield folders below the project in which git may find a repository."""
    for folder, folders, files in os.walk(workdir):
        names = {*folders, *files}
        if folder != str(workdir) and (".git" in names or {"HEAD", "config"} <= names):
            yield Path(folder)
        folders[:] = sorted(name for name in folders if name not in (".git", "objects") or "HEAD" not in names)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Scene]]:
    """Yield the scenes that `scene` has made, by layout."""
    made: dict[str, Scene] = {}
    yield made
    for example_scene in made.values():
        removed(example_scene.base)


def scene(name: str, scenes: dict[str, Scene], factory: pytest.TempPathFactory) -> Scene:
    """Return the scene of a layout, which is made on first use."""
    if name not in scenes:
        scenes[name] = Scene(name, factory.mktemp(name))
    return scenes[name]


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USUAL else pytest.mark.full) for name in NAMES]
)
def test_nothing_planted_runs(
    name: str, scenes: dict[str, Scene], tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host's git runs nothing from random and mutated git folders, and touches nothing outside, in every layout."""
    made, failed = scene(name, scenes, tmp_path_factory), []
    for seed in SEEDS[(NAMES.index(name) - SEEDS.start) % len(NAMES) :: len(NAMES)]:
        violations, story = made.example(seed)
        if violations:
            failed.append(f"OMAC_GIT_SEEDS={seed}-{seed + 1} ({name})\n{story}\n" + "\n".join(violations))
    assert not failed, "\n\n".join(failed)


@pytest.mark.full
@pytest.mark.parametrize("name", ["plain", "separate"])
def test_without_an_inspection_it_would(
    name: str, scenes: dict[str, Scene], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Some of the same plants are attacks on the host if they are not inspected."""
    made = scene(name, scenes, tmp_path_factory)
    harmful = [seed for seed in range(TWINS) if made.example(seed, inspected=False)[0]]
    assert len(harmful) >= TWINS // 10
