"""A project that is a folder of a repository: the host's git in that one obeys files which its settings name."""

import pytest
from real_sandbox import Box
from tiers import some

EVIL = "#!/bin/sh\necho ran >> $HOME/evil\n"
# How a repository comes to run, or to read, what lies in its folder `sub`.
WAYS = {
    "hooks": "git config core.hooksPath sub/tools",
    "a hook that is a link": "ln -s ../../sub/tools/pre-commit .git/hooks/pre-commit",
    "a program": "git config core.fsmonitor sub/tools/pre-commit",
    "an include": "git config include.path ../sub/tools/settings",
    "a condition": "git config includeIf.onbranch:main.path ../sub/tools/settings",
    "a filter": "git config filter.x.clean sub/tools/pre-commit; echo 'f filter=x' > .gitattributes",
    "a worktree": "git config core.hooksPath sub/tools; git worktree add -q ../p",
    "a submodule": "git config core.hooksPath sub/tools; git -C sub init -q",
}
PLANT = """\
plant() {
    mkdir -p tools; rm -f tools/pre-commit; printf '%s' "$EVIL" > tools/pre-commit; chmod +x tools/pre-commit
    printf '[core]\\n\\tfsmonitor = "echo ran >> $HOME/evil; false"\\n' > tools/settings
}
plant; mv tools elsewhere; plant; echo x > fine
"""


@pytest.mark.parametrize("way", some(WAYS, of=3))
def test_a_folder_of_a_repository(world: Box, way: str) -> None:
    """The host's git runs nothing that a program left in a folder of its repository, whatever its settings name."""
    top = "p" if way == "a worktree" else "r"
    script = f"""\
        git init -q -b main ~/r; cd ~/r; mkdir -p sub/tools; printf '#!/bin/sh\\n' > sub/tools/pre-commit
        chmod +x sub/tools/pre-commit; touch sub/tools/settings f; git add .; git commit -q -m begin; {WAYS[way]}"""
    assert world.host("sh", "-c", script).status == 0
    done = world.run(
        "sh", "-c", PLANT, workdir=world.home / top / "sub", extra={"EVIL": EVIL}, options=("--env", "EVIL")
    )
    assert (world.home / top / "sub" / "fine").exists(), done
    world.host("sh", "-c", "echo x > f; git add f; git commit -q -m next; git status", cwd=world.home / top)
    assert not (world.home / "evil").exists(), done


@pytest.mark.parametrize("setting", [("r", "sub"), ("r/sub", ".")], ids=["of the one around", "its own"])
def test_a_folder_of_hooks(world: Box, setting: tuple[str, str]) -> None:
    """A program cannot work in the very folder whose files git runs as hooks."""
    repository, value = setting
    script = f"mkdir -p ~/r/sub; cd ~/{repository}; git init -q; git config core.hooksPath {value}"
    assert world.host("sh", "-c", script).status == 0
    done = world.run("true", workdir=world.home / "r" / "sub")
    assert (done.status, "so a program could make hooks" in done.err) == (7, True), done


@pytest.mark.parametrize("place", ["", "sub"], ids=["in the repository", "in a folder of it"])
def test_what_landlock_alone_does_not_keep(world: Box, place: str) -> None:
    """With --weaker-git, the end reports what changed of what git runs, whatever it is called."""
    script = """\
        git init -q -b main ~/r; cd ~/r; mkdir -p sub/tools/deep; touch sub/tools/pre-commit sub/other
        git config core.hooksPath sub/tools; git config filter.x.clean sub/filter; git add .; git commit -q -m begin"""
    assert world.host("sh", "-c", script).status == 0
    sub = world.home / "r" / "sub"
    change = "printf x >> tools/pre-commit; ln -s ../other tools/post-commit; printf x > filter; printf x > other"
    options = ("--backend", "landlock", "--weaker-git")
    done = world.run("sh", "-c", f"cd {sub}; {change}", workdir=world.home / "r" / place, options=options)
    reported = [
        name for name in ("tools/pre-commit", "tools/post-commit", "filter") if f"{sub}/{name}: is " in done.err
    ]
    assert reported == ["tools/pre-commit", "tools/post-commit", "filter"], done
    assert f"{sub}/other: is " not in done.err


def test_the_index_of_a_worktree_outside(world: Box) -> None:
    """A hook that a program stages in a worktree outside its project is reported; another file there is not."""
    script = """\
        git init -q -b main ~/r; cd ~/r; mkdir hooks; printf '#!/bin/sh\n' > hooks/pre-commit; touch other
        git config core.hooksPath hooks; git add .; git commit -q -m begin; git worktree add -q ../w"""
    assert world.host("sh", "-c", script).status == 0
    stage = (
        "export GIT_DIR=.git/worktrees/w; git update-index --cacheinfo 100755,$(echo x | git hash-object -w --stdin),"
    )
    harmless = world.run("sh", "-c", f"{stage}other", workdir=world.home / "r")
    assert (harmless.status, "what git obeys" in harmless.err) == (0, False), harmless
    done = world.run("sh", "-c", f"{stage}hooks/pre-commit", workdir=world.home / "r")
    as_it_is = "--cached --text --no-textconv --no-ext-diff"
    assert f"git -C {world.home}/w diff {as_it_is} -- hooks/pre-commit" in done.err, done
    assert "what git obeys" not in world.run("true", workdir=world.home / "r").err
