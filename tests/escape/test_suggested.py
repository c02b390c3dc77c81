"""The commands that omac suggests: none names a path on an agent's word, and each name in them is one word.

An agent leaves each plant; a person then launches again and pastes each command that omac offers.
"""

import shlex

import pytest
from real_sandbox import Box, Done

NAME = "x;>pwned;$(>pwned) 'y"  # needs no program to be found
SECRETS = "/.ssh"

# name: (what an agent does in the project, what the person runs there)
ODD = shlex.quote(NAME)
ALTERNATES = "n/.git/objects/info/alternates"

# name: (what an agent does in the project, what the person runs there)
PLANTS = {
    "alternates": (f"git init -q n; printf '%s\\n' ~/.ssh '/x;>pwned;#' > {ALTERNATES}", "true"),
    "a pointer to nothing": (f"mkdir {ODD}; echo gitdir: /nowhere > {ODD}/.git", "true"),
    "a link for a repository": (f"mkdir -p {ODD}; ln -s ~/.ssh {ODD}/.git", "true"),
    "a commondir": (f"git init -q {ODD}; echo ~/.ssh > {ODD}/.git/commondir", "true"),
    "hooks through a link": (
        f'git init -q {ODD}; cd {ODD}; mkdir -p a/c; ln -s a b; git config core.hooksPath "$PWD/b/c"',
        "true",
    ),
    "an interpreter": ("printf '#!%s/.ssh/id\\n' ~ > run; chmod +x run", "./run"),
}


@pytest.fixture
def world(world: Box) -> Box:
    """Return a user's world with a secret that no program may see."""
    world.give(world.home / ".ssh" / "id", "secret", 0o700)
    return world


def offered(done: Done) -> list[str]:
    """Return the commands in omac's output."""
    lines = done.err.splitlines()
    tried = [line.partition("try: ")[2] for line in lines if line.startswith("  try: ")]
    tried += [f"omac {line.rpartition(' omac ')[2]}" for line in lines if " omac " in line]
    options = [line.partition("For git: ")[2].removesuffix(", or start there") for line in lines if "For git: " in line]
    return tried + [f"omac sandbox run {option} -- true" for option in options]


@pytest.mark.parametrize("name", PLANTS)
def test_nothing_is_granted_on_an_agents_word(world: Box, name: str) -> None:
    """A suggestion, pasted into a shell, runs nothing of the agent's and names no path that the agent chose."""
    plant, command = PLANTS[name]
    world.host("bash", "-c", plant)
    done = world.run(command)
    assert done.err, "omac has something to say"
    assert "--read /" not in done.err
    for suggestion in offered(done):
        words = shlex.split(suggestion, comments=True)
        assert not [word for word in words if SECRETS in word], suggestion
        world.host("/bin/bash", "-c", suggestion, extra={"PATH": "/nowhere"})
    assert not list(world.home.rglob("pwned"))


@pytest.mark.parametrize("defect", ["a link", "a moved worktree", "above"])
def test_a_projects_own_name_is_one_word(world: Box, defect: str) -> None:
    """The twin: a command that concerns the person's own project names it as one whole word."""
    project = world.home / NAME
    world.give(project / "sub" / "file")
    if defect == "a link":
        world.host("bash", "-c", "git init -q; mv .git ../real; ln -s ../real .git", cwd=project)
    elif defect == "a moved worktree":
        world.give(project / ".git", "gitdir: /nowhere\n")
    else:
        world.host("git", "init", "-q", cwd=project)
        project /= "sub"
    done = world.run("true", workdir=project)
    (suggestion,) = offered(done)
    words = shlex.split(suggestion, comments=True)
    assert [word for word in words if word.startswith(str(world.home / NAME))], words
    world.host("/bin/bash", "-c", suggestion, extra={"PATH": "/nowhere"})
    assert not list(world.home.rglob("pwned"))
