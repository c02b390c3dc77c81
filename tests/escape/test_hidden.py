"""Files hidden by their names: secrets in the project cannot be read or changed inside; ordinary work goes on.

Each case has its twin: the same files, shown because a person asked for it, or because they are no secrets.
"""

import os

import pytest
from real_sandbox import Box

SECRET = "PASSWORD=correct-horse\n"
SEARCH = "grep -rsl correct-horse . | sort"


def give(world: Box, *paths: str) -> None:
    """Create files with a secret in the project."""
    for path in paths:
        world.give(world.workdir / path, SECRET)


HIDDEN = (
    ".env",
    ".env.local",
    ".env.production.local",
    ".env-prod",
    ".env.bak",
    ".envrc",
    ".dev.vars",
    "packages/api/.env",
    "node_modules/a/node_modules/b/.env",
)
SHOWN = (".env.example", ".env.sample", "packages/.env.template", ".env.local.dist", "env", ".environment", ".env.d/x")


def test_files_of_variables_are_hidden(world: Box) -> None:
    """Files of variables are hidden everywhere by a marker, which explains how to show them; examples are shown."""
    give(world, *HIDDEN, *SHOWN)
    done = world.run("sh", "-c", f"{SEARCH}; cat .env")
    paths, _, marker = done.out.partition("#")
    assert sorted(paths.split()) == sorted(f"./{path}" for path in SHOWN)
    assert "omac hides this file" in marker
    assert "--allow-env-files" in marker
    assert len(done.err.splitlines()) == 1
    assert "packages with hidden files cannot be removed inside: " in done.err


def test_a_person_may_have_them_shown(world: Box) -> None:
    """The twin: the option or a profile shows all of them; a grant by name shows that one and no other."""
    give(world, *HIDDEN)
    visible = world.run("sh", "-c", f"{SEARCH}; echo X=1 >> .env", options=("--allow-env-files",))
    assert sorted(visible.out.split()) == sorted(f"./{path}" for path in HIDDEN)
    assert (world.workdir / ".env").read_text() == SECRET + "X=1\n"
    world.give(world.home / ".config/omac/sandbox-profiles/env.toml", "allow_env_files = true\n")
    assert ".envrc" in world.run("sh", "-c", SEARCH, options=("--profile", "env")).out
    single = world.run("sh", "-c", SEARCH, options=("--read", "packages/api/.env"))
    assert single.out == "./packages/api/.env\n"


def test_what_is_hidden_stays_as_it_is(world: Box) -> None:
    """A hidden file can be neither replaced nor read, even after its folder was moved; the folder can be moved."""
    give(world, "packages/api/.env")
    world.give(world.workdir / "packages/api/main.py")
    script = (
        "rm -f packages/api/.env; mv packages/api/.env x; echo X > packages/api/.env; ln packages/api/.env y;"
        " chmod 600 packages/api/.env; mv packages lib; cat lib/api/.env; ls lib/api"
    )
    done = world.run("sh", "-c", script)
    assert "correct-horse" not in done.out
    assert "main.py" in done.out
    assert (world.workdir / "lib/api/.env").read_text() == SECRET
    assert not (world.workdir / "x").exists()
    assert not (world.workdir / "y").exists()


def test_what_a_link_leads_to_is_hidden(world: Box) -> None:
    """A link called `.env` to a file of the project hides the file; such a link to git's own files hides nothing."""
    give(world, "config/prod")
    (world.workdir / ".env").symlink_to("config/prod")
    assert world.host("git", "init", "-q", ".").status == 0
    (world.workdir / ".env.git").symlink_to(".git/HEAD")
    done = world.run("sh", "-c", f"{SEARCH}; git status --porcelain")
    assert done.status == 0
    assert "correct-horse" not in done.out
    assert "./config/prod" not in done.out.splitlines()


def test_what_the_repository_has_is_shown(world: Box) -> None:
    """A committed file, which git's objects show anyway, is shown, and git finds no change; changed, it is hidden."""
    give(world, ".env", "sub/.env")
    for line in (["init", "-q", "."], ["add", "-A"], ["commit", "-qm", "x"], ["repack", "-adq"]):
        assert world.host("git", *line).status == 0
    world.give(world.workdir / "sub/.env", SECRET + "MORE=1\n")
    done = world.run("sh", "-c", f"{SEARCH}; git stash list; git status --porcelain .env")
    assert done.out == "./.env\n"
    world.host("git", "commit", "-qam", "y")  # loose now
    done = world.run("sh", "-c", f"{SEARCH}; git status --porcelain; git checkout -q HEAD~; cat sub/.env")
    assert done.out == f"./.env\n./sub/.env\n{SECRET}"


def test_an_index_that_claims_it_does_not_count(world: Box) -> None:
    """A file stays hidden in the next session after an agent has committed its name with what it could read there."""
    give(world, ".env")
    assert world.host("git", "init", "-q", ".").status == 0
    world.run("sh", "-c", "git add -f .env; git commit -qm mine")
    assert world.run("sh", "-c", SEARCH).out == ""


def test_names_that_a_person_denies(world: Box) -> None:
    """A denied name hides files and folders in the project and in grants for reading; others there can be read."""
    give(world, "a/key.pem", "a/secrets/x", "a/plain")
    world.give(world.home / "docs/deep/key.pem", SECRET)
    world.give(world.home / "docs/.env", SECRET)
    world.give(world.home / "docs/plain", SECRET)
    docs = str(world.home / "docs")
    script = f"grep -rsl correct-horse . {docs}; true"
    hidden = world.run("sh", "-c", script, options=("--read", docs, "--deny-name", "*.pem", "--deny-name", "secrets"))
    assert sorted(hidden.out.split()) == ["./a/plain", f"{docs}/plain"]
    assert "--deny-name" in world.run("cat", "a/key.pem", options=("--deny-name", "*.pem")).out
    visible = world.run("sh", "-c", script, options=("--read", docs, "--allow-env-files"))
    assert len(visible.out.split()) == 6


def test_a_virtual_environment_of_that_name_works(world: Box) -> None:
    """A folder of programs called `.env` is shown, and its programs run."""
    world.give(world.workdir / ".env/bin/tool", "#!/bin/sh\necho ran\n", 0o755)
    assert world.run(".env/bin/tool").out == "ran\n"


@pytest.mark.parametrize("pattern", ["a/b", "*", "..", "**"])
def test_patterns_that_are_none(world: Box, pattern: str) -> None:
    """A pattern that is a path, or matches every name, is refused with a command to use instead."""
    done = world.run("true", options=("--deny-name", pattern))
    assert done.status == 2
    assert "try: omac sandbox run --deny" in done.err


def test_more_than_can_be_hidden(world: Box) -> None:
    """A launch with more files than can be hidden is refused, with the option that shows them, and runs nothing. With
    fewer, each is hidden."""
    give(world, *(f"d{number}/.env" for number in range(401)))
    done = world.run("sh", "-c", SEARCH)
    assert (done.status, done.out) == (7, ""), done
    assert "--allow-env-files" in done.err
    (world.workdir / "d400/.env").unlink()
    done = world.run("sh", "-c", SEARCH)
    assert (done.status, done.out) == (0, ""), done
    assert world.run("true", options=("--allow-env-files",)).status == 0


def test_more_than_are_looked_at(world: Box) -> None:
    """A launch is refused at once where a program left thousands of files with such names, hidden or not."""
    begin = "grep -q omac .env; python3 -c \"import os; [os.symlink('x', f'.env.{n}') for n in range(5001)]\""
    give(world, ".env")
    assert world.run("sh", "-ec", begin).status == 0
    done = world.run("true", seconds=20)
    assert done.status == 7, done
    assert "5002 files have names to hide" in done.err


def test_with_landlock_alone_it_is_refused(world: Box) -> None:
    """Landlock cannot hide a file in a writable folder: the launch is refused, with the option that shows the file."""
    give(world, ".env")
    done = world.run("true", options=("--backend", "landlock"))
    assert done.status == 7, done
    assert "--allow-env-files" in done.err
    assert world.run("true", options=("--backend", "landlock", "--allow-env-files")).status == 0


def test_what_looks_like_a_git_folder_is_looked_through(world: Box) -> None:
    """Secrets stay hidden in a folder that a launch made look like a repository or moved among git's files."""
    give(world, "conf/prod/.env", "moved/.env")
    world.run("sh", "-c", "mkdir conf/objects conf/refs; echo ref: refs/heads/main > conf/HEAD")
    world.run("sh", "-c", "git init -q x; mkdir -p x/.git/modules/m/lfs; mv moved x/.git/modules/m/lfs/moved")
    done = world.run("sh", "-c", "cat conf/prod/.env; find . -name .env | xargs cat")
    assert "omac hides this file" in done.out
    assert SECRET.strip() not in done.out


def test_what_cannot_be_listed_is_hidden(world: Box) -> None:
    """Secrets stay hidden in a folder that a program made unlistable, for a concurrent launch and the next one."""
    give(world, "conf/.env")
    world.run("sh", "-c", "chmod 0333 conf")
    if world.uid:
        os.chmod(world.workdir / "conf", 0o333)  # as it is while the first one runs
        done = world.run("sh", "-c", "chmod 0755 conf; cat conf/.env")
        assert SECRET.strip() not in done.out
        os.chmod(world.workdir, 0o333)
        done = world.run("sh", "-c", "chmod 0755 .; cat conf/.env")
        os.chmod(world.workdir, 0o755)
        assert done.status != 0, done
        assert f"chmod u+rx {world.workdir}" in done.err
    os.chmod(world.workdir / "conf", 0o755)
    assert "omac hides this file" in world.run("cat", "conf/.env").out


def test_a_hidden_file_that_is_put_into_an_index_is_told(world: Box) -> None:
    """omac warns about a hidden file in git's index, as the next commit of everything would store the file."""
    give(world, ".env")
    host = "git init -q . && echo .env > .gitignore && git add . && git commit -qm 1"
    assert world.host("sh", "-ec", host).status == 0
    stage = "git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),.env"
    done = world.run("sh", "-ec", stage)
    assert f"{world.workdir}/.env is in git's index now" in done.err
    assert f"git -C {world.workdir} rm --cached -- .env" in done.err
    assert "is in git's index now" not in world.run("true").err
