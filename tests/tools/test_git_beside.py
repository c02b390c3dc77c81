"""git on the host and git in sandboxes, in one repository at the same time: no branch is lost or restarted."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import eventually
from real_sandbox import FEWER_USERS, Box, box
from tiers import some
from tools.test_git_inside import DATES, git, repository

WITHIN_S = 30.0
BRANCHES = ("dev", "main", "other", "work")


class Beside:
    """A clone and its linked worktree, with an agent that waits in a sandbox."""

    def __init__(self, world: Box) -> None:
        self.world = world
        self.linked = repository(world, "linked")
        self.clone = self.linked.parent / "clone"
        git(world, "branch", "-q", "dev", "origin/dev", cwd=self.clone)
        self.agents: list[subprocess.Popen[str]] = []
        self.before = self.heads()

    def heads(self) -> dict[str, str]:
        lines = git(self.world, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=self.clone)
        return dict(line.split(" ") for line in lines.splitlines())

    def agent(self, script: str, workdir: Path | None = None) -> subprocess.Popen[str]:
        """Start a script in a sandbox: `said NAME` reports that it got there, `told NAME` waits for the test."""
        begin = 'said() { touch "said-$1"; }; told() { while [ ! -e "told-$1" ]; do sleep 0.01; done; };'
        variables = [f"--env={name}={value}" for name, value in DATES.items()]
        where = str(workdir or self.linked)
        line = self.world.omac("sandbox", "run", "--workdir", where, *variables, "--", "sh", "-e", "-c", begin + script)
        process = subprocess.Popen(
            line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.world.environment,
            user=self.world.uid or None, group=self.world.uid or None, extra_groups=self.world.extra_groups,
            cwd="/",
        )  # fmt: skip
        self.agents.append(process)
        return process

    def said(self, name: str, workdir: Path | None = None) -> None:
        path = (workdir or self.linked) / f"said-{name}"
        eventually(path.exists, WITHIN_S, f"the agent says {name}")

    def tell(self, name: str, workdir: Path | None = None) -> None:
        self.world.give((workdir or self.linked) / f"told-{name}")

    def ended(self, process: subprocess.Popen[str]) -> str:
        out = process.communicate(timeout=WITHIN_S)[0]
        assert process.returncode == 0, out
        return out

    def count(self, branch: str) -> int:
        return int(git(self.world, "rev-list", "--count", branch, cwd=self.clone))


@pytest.fixture(params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def beside(request: pytest.FixtureRequest) -> Iterator[Beside]:
    with box(request.param) as world:
        made = Beside(world)
        yield made
        for agent in made.agents:
            if agent.poll() is None:
                agent.kill()
                agent.communicate()


@pytest.mark.full
@pytest.mark.parametrize("how", some(["pack-refs --all", "gc -q", "-c gc.auto=1 gc --auto -q"], of=3))
def test_the_host_packs_while_an_agent_works(beside: Beside, how: str) -> None:
    """An agent's next commit follows the last one on every branch, although the host packs the branches."""
    commit = "git commit -q --allow-empty -m agent"
    agent = beside.agent(f"said ready; told go; {commit}; git switch -q other; {commit}")
    beside.said("ready")
    beside.world.host("sh", "-c", f"git {how}", cwd=beside.clone)
    assert not (beside.clone / ".git/refs/heads/other").exists() or "auto" in how
    eventually(lambda: _is_in_copy(beside, "work"), WITHIN_S, "the copy has what was packed")
    beside.tell("go")
    assert beyond_graphs(beside.ended(agent)) == []
    assert (beside.count("work"), beside.count("other"), beside.count("main")) == (2, 2, 1)


def beyond_graphs(said: str) -> list[str]:
    """Return the lines that are not of commit graphs: whoever wrote one meanwhile, it is set aside."""
    return [line for line in said.splitlines() if "/objects/info/commit-graph" not in line]


def _is_in_copy(beside: Beside, branch: str) -> bool:
    copies = list(beside.clone.glob(".git/worktrees/*/omac-refs-*/packed-refs"))
    loose = (beside.clone / ".git/refs/heads" / branch).exists()
    return loose or any(f"refs/heads/{branch}" in copy.read_text() for copy in copies)


@pytest.mark.parametrize("how", some(["git pack-refs --all", "git gc -q", "git gc -q; git pack-refs --all"], of=3))
@pytest.mark.full
def test_an_agent_packs_while_the_host_works(beside: Beside, how: str) -> None:
    """The host has its branches while an agent packs them, and collecting garbage there loses no object."""
    agent = beside.agent(f"{how}; said packed; told go")
    beside.said("packed")
    eventually(lambda: beside.heads() == beside.before, WITHIN_S, "the host has its branches")
    git(beside.world, "reflog", "expire", "--expire=now", "--all", cwd=beside.clone)
    git(beside.world, "gc", "-q", "--prune=now", cwd=beside.clone)
    git(beside.world, "commit", "-q", "--allow-empty", "-m", "host", cwd=beside.clone)
    beside.tell("go")
    assert beyond_graphs(beside.ended(agent)) == []
    assert beside.count("main") == 2
    assert beside.heads() | {"main": ""} == beside.before | {"main": ""}
    git(beside.world, "fsck", "--strict", cwd=beside.clone)


def test_two_agents_in_two_worktrees(beside: Beside) -> None:
    """An agent in one worktree packs the branches, and an agent in another goes on to commit."""
    second = beside.linked.parent / "second"
    git(beside.world, "worktree", "add", "-q", "-b", "side", str(second), cwd=beside.clone)
    packing = beside.agent("said ready; told go; git pack-refs --all; said packed; told end")
    committing = beside.agent("said ready; told go; git commit -q --allow-empty -m other", second)
    beside.said("ready")
    beside.said("ready", second)
    beside.tell("go")
    beside.said("packed")
    eventually(lambda: beside.heads().keys() == {*BRANCHES, "side"}, WITHIN_S, "the branches are there")
    beside.tell("go", second)
    beside.ended(committing)
    beside.tell("end")
    beside.ended(packing)
    assert beside.count("side") == 2


@pytest.mark.full
def test_what_others_begin_in_another_worktree(beside: Beside) -> None:
    """A submodule, settings of a worktree and a rebase that are begun meanwhile in a worktree where an agent cannot
    write stay as they are, and are not reported with what that agent left."""
    second = beside.linked.parent / "second"
    git(beside.world, "worktree", "add", "-q", "-b", "side", str(second), cwd=beside.clone)
    agent = beside.agent("said ready; told go")
    beside.said("ready")
    source = str(beside.clone)
    git(beside.world, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "sub", cwd=second)
    git(beside.world, "config", "remote.backup.url", source, cwd=second / "sub")
    git(beside.world, "commit", "-q", "-m", "sub", cwd=second)
    git(beside.world, "-c", "sequence.editor=sed -i '1ibreak'", "rebase", "-q", "-i", "HEAD~1", cwd=second)
    before = git(beside.world, "config", "--local", "--list", cwd=second / "sub")
    beside.tell("go")
    assert beside.ended(agent) == ""
    assert git(beside.world, "config", "--local", "--list", cwd=second / "sub") == before


@pytest.mark.full
def test_files_of_worktrees_that_two_agents_add(beside: Beside) -> None:
    """Files of new worktrees that are as in the project's commit at launch are not reported, also where an agent in the
    clone and one in a worktree of it are inspected together."""
    (beside.clone / "Makefile").write_text("all:\n")
    git(beside.world, "add", "Makefile", cwd=beside.clone)
    git(beside.world, "commit", "-q", "-m", "build", cwd=beside.clone)
    nested = beside.clone / ".worktrees/nested"
    git(beside.world, "worktree", "add", "-q", "-b", "nested", str(nested), cwd=beside.clone)
    first = beside.agent("said ready; told go; git worktree add -q .worktrees/added", beside.clone)
    beside.said("ready", beside.clone)
    beside.ended(beside.agent("git worktree add -q inner", nested))
    beside.tell("go", beside.clone)
    assert "Makefile" not in beside.ended(first)


def test_a_worktree_that_was_replaced(beside: Beside) -> None:
    """The folder of a worktree that the host made again under the name of a removed one, which an agent can write, is
    inspected."""
    second = beside.linked.parent / "second"
    git(beside.world, "worktree", "add", "-q", "-b", "side", str(second), cwd=beside.clone)
    admin = beside.clone / ".git/worktrees/second"
    plant = f"git config -f {admin}/config.worktree core.fsmonitor ./x"
    agent = beside.agent(f"! {plant} 2>/dev/null; said ready; told go; {plant}")
    beside.said("ready")
    git(beside.world, "worktree", "remove", str(second), cwd=beside.clone)
    git(beside.world, "worktree", "add", "-q", str(second), "side", cwd=beside.clone)
    beside.tell("go")
    assert "core.fsmonitor" in beside.ended(agent)
    assert "fsmonitor" not in (admin / "config.worktree").read_text()


def test_what_each_deletes_stays_deleted(beside: Beside) -> None:
    """A packed branch that the host or an agent deletes does not come back through the other's copy."""
    git(beside.world, "pack-refs", "--all", cwd=beside.clone)
    agent = beside.agent(
        "git branch -q -D other; said deleted; told go; git pack-refs --all; ! git rev-parse -q --verify dev"
    )
    beside.said("deleted")
    git(beside.world, "branch", "-q", "-D", "dev", cwd=beside.clone)
    copies = list(beside.clone.glob(".git/worktrees/*/omac-refs-*/packed-refs"))
    eventually(lambda: "heads/dev" not in copies[0].read_text(), WITHIN_S, "it is gone inside")
    beside.tell("go")
    assert beside.ended(agent) == ""
    assert beside.heads().keys() == {"main", "work"}


def test_killed_after_it_packed(beside: Beside) -> None:
    """The host has its branches at once after an agent that packed them is killed, and the next run reports nothing."""
    agent = beside.agent("git pack-refs --all; said packed; told never")
    beside.said("packed")
    eventually(lambda: beside.heads() == beside.before, WITHIN_S, "the host has its branches")
    git(beside.world, "pack-refs", "--all", cwd=beside.clone)
    os.kill(agent.pid, 9)
    agent.communicate()
    done = beside.world.host(*beside.world.omac("sandbox", "run", "--workdir", str(beside.linked), "--", "true"))
    assert (done.status, done.err) == (0, "")
    assert beside.heads() == beside.before


def test_the_hosts_settings_are_not_lost(beside: Beside) -> None:
    """Settings that the host writes while an agent works are all there afterwards, but for the program that omac takes
    out and reports."""
    agent = beside.agent("said ready; told go", beside.clone)
    beside.said("ready", beside.clone)
    script = (
        "git config core.editor vim; for i in $(seq 20); do"
        " until git config branch.b$i.description d$i 2>/dev/null; do sleep 0.01; done; done"
    )
    beside.world.host("sh", "-c", script, cwd=beside.clone)
    beside.tell("go", beside.clone)
    output = agent.communicate(timeout=WITHIN_S)[0]
    listed = git(beside.world, "config", "--list", cwd=beside.clone)
    assert listed.count(".description=") == 20
    assert "core.editor=" not in listed
    assert "sets core.editor; that is taken out" in output
    assert not (beside.clone / ".git/config.lock").exists()


def test_another_worktree_that_is_removed_meanwhile(beside: Beside) -> None:
    """A person removes one worktree while an agent works in the clone: nothing of the agent's is lost, or reported."""
    agent = beside.agent("said ready; told go; git commit -q --allow-empty -m agent", beside.clone)
    beside.said("ready", beside.clone)
    git(beside.world, "worktree", "remove", str(beside.linked), cwd=beside.clone)
    beside.tell("go", beside.clone)
    assert beside.ended(agent) == ""
    assert beside.count("main") == 2


def test_a_lock_of_the_hosts_git(beside: Beside) -> None:
    """A lock that the host's git has in the clone, where an agent in the worktree can leave none, is not reported as
    left; one that the agent could have left is."""
    agent = beside.agent("said ready; told go")
    beside.said("ready")
    for name in ("HEAD.lock", "refs/heads/main.lock"):
        beside.world.give(beside.clone / ".git" / name)
    beside.tell("go")
    assert [line.split(": ")[1] for line in beside.ended(agent).splitlines()] == [
        f"{beside.clone}/.git/refs/heads/main.lock"
    ]


def test_a_project_that_is_moved_meanwhile(beside: Beside) -> None:
    """omac reports that a project was moved or removed meanwhile, and so not inspected; it does not mention a link."""
    agent = beside.agent("said ready; told go", beside.clone)
    beside.said("ready", beside.clone)
    beside.clone.rename(beside.clone.parent / "elsewhere")
    beside.tell("go", beside.clone.parent / "elsewhere")
    output = agent.communicate(timeout=WITHIN_S)[0]
    assert f"{beside.clone}: was moved or removed: nothing that the program left there was inspected" in output
    assert f"{beside.clone}/.git: was moved or removed" in output
    assert "behind a link" not in output
