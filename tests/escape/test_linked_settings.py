"""Settings of the user that are links into the project, as in a repository of dotfiles: programs outside obey them.

A program in the sandbox cannot change what such a link leads to; it can change the files beside it, and what `--allow`
names.
"""

import pytest
from real_omac import Omac
from real_sandbox import Box

PLANTED = '[core]\n\tfsmonitor = "touch evil; false"\n'
# links in the home, and where in the project they lead
LINKS = {
    ".gitconfig": "gitconfig",
    ".vimrc": "vim/vimrc",
    ".config/nvim": "nvim",
    ".config/tool/settings": "tool-settings",
    ".config/omac/sandbox-profiles/work.toml": "work.toml",
    ".config/systemd/user/job.service": "units/job.service",
    ".ssh/config": "ssh/config",
}
FOLDERS = {".config/nvim": "init.lua"}


@pytest.fixture
def world(world: Box) -> Box:
    """Return a user's world, whose project is a repository."""
    assert world.host("git", "init", "-q").status == 0
    return world


def test_what_links_of_the_home_lead_to(world: Box) -> None:
    """Files that links of the home lead to stay as they are; one beside them, and one that is named, can be written."""
    written = []
    for link, name in LINKS.items():
        file = f"{name}/{FOLDERS[link]}" if link in FOLDERS else name
        written.append(file)
        world.give(world.workdir / file, "")
        world.give(world.home / link, "").unlink()
        (world.home / link).symlink_to(world.workdir / name)
    world.give(world.workdir / "vim/other", "")
    change = "; ".join(f"echo planted >> {name}; mv {name} gone; rm -f {name}" for name in (*written, "vim/other"))
    done = world.run("sh", "-c", f"{change}; mv vim ssh units away 2>/dev/null; true")
    assert [name for name in written if (world.workdir / name).read_text()] == [], done
    assert not (world.workdir / "vim/other").exists()
    assert "links in your home lead to" in done.err

    named = world.run("sh", "-c", "echo mine >> vim/vimrc", options=("--allow", "vim/vimrc"))
    assert (named.status, (world.workdir / "vim/vimrc").read_text()) == (0, "mine\n")


@pytest.mark.parametrize("way", ["a link of the home", "an include", "an include under a condition"])
def test_settings_of_git_for_every_repository(world: Box, way: str) -> None:
    """The user's settings of git, and files that they include, cannot be changed from inside a repository."""
    kept = world.give(world.workdir / "kept", "[user]\n\tname = Ada\n")
    condition = ' "gitdir:~/elsewhere/"' if "condition" in way else ""
    if way == "a link of the home":
        (world.home / ".gitconfig").symlink_to(kept)
    else:
        section = "includeIf" if condition else "include"
        world.give(world.home / ".gitconfig", f"[{section}{condition}]\n\tpath = {kept}\n")
    done = world.run("sh", "-c", f"printf '{PLANTED}' >> kept; mv kept x; echo y > beside; git config user.name")
    assert kept.read_text() == "[user]\n\tname = Ada\n", done
    assert (world.workdir / "beside").read_text() == "y\n"
    assert done.out == ("" if condition else "Ada\n")
    world.host("git", "status")
    assert not (world.workdir / "evil").exists()


@pytest.mark.parametrize("setting", ["init.templateDir", "pager.log"])
def test_what_settings_of_the_user_have_git_run(world: Box, setting: str) -> None:
    """A program cannot change what the user's git runs in every repository, nor what it puts into new ones."""
    hook = world.give(world.workdir / "tools" / "hooks" / "post-checkout", "#!/bin/sh\n", 0o700)
    value = world.workdir / "tools" if "template" in setting else hook
    assert world.host("git", "config", "--global", setting, str(value)).status == 0
    evil = f"rm -f {hook}; printf '#!/bin/sh\\ntouch {world.home}/evil\\n' > {hook}; chmod +x {hook}"
    done = world.run("sh", "-c", f"{evil}; touch beside")
    assert (world.workdir / "beside").exists(), done
    script = "git commit -qm x --allow-empty; git clone -q . ../clone; git log"
    world.host("script", "-qec", script, "/dev/null")
    assert (world.home / "clone").exists()
    assert not (world.home / "evil").exists(), done


def test_a_link_that_the_program_could_redirect(world: Box) -> None:
    """Settings of git that a link of the project leads to are refused, and those of other programs reported."""
    world.give(world.workdir / "real", "[user]\n\tname = Ada\n")
    (world.workdir / "between").symlink_to("real")
    (world.home / ".toolrc").symlink_to(world.workdir / "between")
    done = world.run("true")
    assert (done.status, "a link that the program can change" in done.err) == (0, True), done
    (world.home / ".gitconfig").symlink_to(world.workdir / "between")
    done = world.run("true")
    assert (done.status, "between, which passes through a symbolic link" in done.err) == (7, True), done


@pytest.mark.parametrize("way", ["settings", "variables"])
def test_files_of_omacs_that_settings_name(omac: Omac, way: str) -> None:
    """The token for the omac that keeps checkpoints, and a witness that is a file, are in no sandbox."""
    project, keys = omac.project("p"), omac.folder / "keys"
    keys.mkdir()
    token, witness = keys / "token", project / "witness"
    token.write_text("correct-horse\n")
    (keys / "beside").write_text("ordinary\n")
    witness.touch()
    extra = {"OMAC_JOURNAL_WITNESS": str(witness), "OMAC_JOURNAL_WITNESS_TOKEN": str(token)}
    if way == "settings":
        del omac.environment["OMAC_JOURNAL_WITNESS"]
        omac.ok("settings", "set", "journal.witness_token", str(token))
        omac.ok("settings", "set", "journal.witness", str(witness))
        extra = {}
    script = f"cat {token} {keys}/beside; echo forged > witness; rm -f witness; mv witness x; true"
    line = ("sandbox", "run", "--workdir", str(project))
    done = omac.run(*line, "--read", str(keys), "--", "sh", "-c", script, extra=extra)
    assert (done.out, witness.read_text()) == ("ordinary\n", ""), done
    named = omac.run(*line, "--read", str(token), "--", "true", extra=extra)
    assert (named.status, f"{token} is omac's own" in named.err) == (2, True), named
