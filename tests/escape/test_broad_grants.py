"""A grant of a whole home shows no path in it that begins with a dot, unless another grant names the path.

Each case has its twin: a path that is named, or does not begin with a dot, can be read.
"""

import os
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_sandbox import Box

SECRET = "correct-horse\n"
# Where programs keep credentials, histories and the like; most are in no list of omac's.
_PLACES = """
    .ssh/id .aws/credentials .netrc .config/gh/hosts.yml .config/github-copilot/apps.json
    .gemini/oauth_creds.json .config/Slack/Cookies .config/Signal/config.json .local/share/atuin/history.db
    .local/state/bash/history .ash_history .authinfo .msmtprc .config/stripe/config.toml .ngrok2/ngrok.yml
    .wrangler/config/default.toml .railway/config.json .cache/huggingface/token .kaggle/kaggle.json
    .config/openai/key .yarnrc.yml .bunfig.toml .config/pip/pip.conf .composer/auth.json .bundle/config
    .hex/hex.config .terraform.d/credentials.tfrc.json .minikube/profiles/x .bitcoin/wallet.dat
    .config/solana/id.json .config/sops/age/keys.txt .electrum/wallets/x .zen/x .dbeaver4/x .config/JetBrains/x
    .mylogin.cnf .mongodb/x .tsh/keys .irssi/config .1password/agent.sock .pi/agent/auth.json
    .local/share/uv/credentials/credentials.toml .nobody-ever-heard-of-it
"""
PLACES = _PLACES.split()


@pytest.mark.full
def test_a_home_is_shown_without_dots(world: Box) -> None:
    """Credentials in the home, at known paths or others, cannot be read; ordinary files and named paths can."""
    for path in (*PLACES, "notes/plain", "notes/.hidden"):
        world.give(world.home / path, SECRET)
    home = str(world.home)
    script = "cd; grep -rsl correct-horse .; true"
    assert sorted(world.run("sh", "-c", script, options=("--read", home)).out.split()) == [
        "./notes/.hidden",
        "./notes/plain",
    ]
    options = ("--read", home, "--read", f"{home}/.kaggle", "--read", f"{home}/.config/pip/pip.conf")
    visible = world.run("sh", "-c", f"{script}; cat ~/.config/pip/pip.conf", options=options).out.split()
    assert sorted(visible) == ["./.kaggle/kaggle.json", "./notes/.hidden", "./notes/plain", SECRET.strip()]
    assert len(world.host("sh", "-c", script).out.split()) == len(PLACES) + 2


def test_what_a_dot_link_leads_to(world: Box) -> None:
    """Dotfiles in another folder of the home are not shown there either; a link out of the home hides nothing."""
    world.give(world.home / "dotfiles/tool/token", SECRET)
    world.give(world.home / "dotfiles/README", SECRET)
    (world.home / ".tool").symlink_to("dotfiles/tool")
    (world.home / ".share").symlink_to("/usr/share")
    (world.home / ".itself").symlink_to(".")
    script = "cd; grep -rsl correct-horse .; ls /usr/share | grep -c ."
    done = world.run("sh", "-c", script, options=("--read", str(world.home)))
    assert done.out.split()[0] == "./dotfiles/README"
    assert len(done.out.split()) == 2
    assert int(done.out.split()[1]) > 5


def test_homes_of_others(world: Box) -> None:
    """A grant of the folder above homes shows no dot folder of another user; other readable files there are shown."""
    for path in (".aws/credentials", ".unheard-of", "public"):
        world.give(world.top / "bob" / path, SECRET)
    script = f"grep -rsl correct-horse {world.top}; true"
    done = world.run("sh", "-c", script, options=("--read", str(world.top)))
    assert done.out == f"{world.top}/bob/public\n"
    options = ("--read", str(world.top), "--read", f"{world.top}/bob/.unheard-of")
    assert len(world.run("sh", "-c", script, options=options).out.split()) == 2


def test_what_a_program_needs_is_there(world: Box) -> None:
    """A program below a dot folder starts, also with the home granted; nothing beside it is shown."""
    tool = world.give(world.home / ".tools/v1/bin/tool", "#!/bin/sh\ncat ~/.tools/v1/share/x ~/.tools/token\n", 0o755)
    world.give(world.home / ".tools/v1/share/x", "ordinary\n")
    world.give(world.home / ".tools/token", SECRET)
    for options in ((), ("--read", str(world.home))):
        assert world.run(str(tool), options=options).out == "ordinary\n"


def test_what_omac_gives_is_there(world: Box) -> None:
    """Settings of git, an agent's own folders and the tool cache work below dot folders that are not shown."""
    world.give(world.home / ".config/git/config", "[user]\n\tname = Ada\n")
    world.give(world.home / ".claude/settings.json", "{}")
    world.give(world.home / ".claude/.credentials.json", "login")
    script = (
        "git config user.name; cat ~/.claude/.credentials.json; echo x > ~/.claude/new; touch $OMAC_CACHE_DIR/x;"
        " echo y > ~/.claude/settings.json; ls ~/.config"
    )
    for options in ((), ("--read", str(world.home))):
        done = world.run("sh", "-c", script, options=("--harness", "claude", *options))
        assert done.out.startswith("Ada\nlogin"), done
        assert (world.home / ".claude/new").read_text() == "x\n"
        assert (world.home / ".claude/settings.json").read_text() == "{}"


def test_caches_of_other_projects_stay_hidden(world: Box) -> None:
    """A grant around the tool caches shows this project's cache, and no other's."""
    assert world.run("true").status == 0  # makes the folder of all caches
    other = world.give(world.home / ".cache/omac/0123456789ab/tools/x", SECRET)
    script = f"cat {other}; touch {other.parent}/planted; touch $OMAC_CACHE_DIR/x && echo mine"
    for options in (("--read", str(world.home)), ("--allow", str(world.home / ".cache"))):
        assert world.run("sh", "-c", script, options=options).out == "mine\n"
        assert not (other.parent / "planted").exists()


CONNECT = """\
import socket, sys
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if path.endswith("bus") else socket.SOCK_STREAM).connect(path)
    except OSError: continue
    print(path.rpartition("/")[2])
"""


def test_sockets_in_a_shared_temporary_folder(world: Box) -> None:
    """A grant of /var/tmp shows its files, and no socket of a program outside, unless another grant names the place."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top, ExitStack() as listening:
        os.chown(top, world.uid, world.uid)
        beside = Path(f"{top}.sock")
        places = [beside, Path(top) / "direct", Path(top) / "deep" / "default"]
        listening.callback(beside.unlink)
        for place in places:
            place.parent.mkdir(exist_ok=True)
            listener = listening.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(place))
            listener.listen()
            for path in (place, place.parent) if place != beside else (place,):
                os.chown(path, world.uid, world.uid)
        line = ("python3", "-c", CONNECT, *map(str, places))
        for grant in ("--read", "--allow"):
            assert world.run(*line, options=(grant, "/var/tmp")).out == ""
        named = world.run(*line, options=("--read", "/var/tmp", "--read", top))
        assert named.out == "direct\ndefault\n", named
        assert world.host(*line).out == f"{beside.name}\ndirect\ndefault\n"


def test_sockets_in_what_is_granted(world: Box) -> None:
    """No socket of a program outside is shown in a project or in an agent's own folder, unless it, or a folder around
    it, is named, and one that is named cannot be replaced. One that nobody has can be."""
    editor, within, own = world.workdir / "editor", world.workdir / "within", world.home / ".codex" / "app"
    places = [editor, world.workdir / "deep" / "shell", within / "bus", own / "control"]
    with ExitStack() as listening:
        for place in (*places, world.workdir / "left"):
            world.give(place).unlink()
            kind = socket.SOCK_DGRAM if place.name == "bus" else socket.SOCK_STREAM
            listener = listening.enter_context(socket.socket(socket.AF_UNIX, kind))
            listener.bind(str(place))
            os.chown(place, world.uid, world.uid)
            if place.name == "left":
                listener.close()
            elif kind == socket.SOCK_STREAM:
                listener.listen()
                listener.settimeout(0)
        line = ("python3", "-c", CONNECT, *map(str, places))
        options = ("--network", "none", "--harness", "codex")
        done = world.run(*line, options=options)
        assert (done.out, str(editor) in done.err) == ("", True), done
        named = world.run(*line, options=(*options, "--allow", str(editor), "--read", str(within)))
        assert named.out == "editor\nbus\n", named
        taken = world.run("rm", "-f", "editor", options=("--allow", str(editor)))
        assert (taken.status, editor.is_socket()) == (1, True), taken
        copied = world.run("sh", "-c", "tar -cf /tmp/all editor deep && cat editor")
        assert (copied.status, "omac hides a socket here" in copied.out) == (0, True), copied
        replaced = "import os, socket; os.unlink('left'); socket.socket(socket.AF_UNIX).bind('left'); print('own')"
        assert world.run("python3", "-c", replaced).out == "own\n"
        assert world.run("echo", "landlock", options=("--backend", "landlock")).out == "landlock\n"
        assert world.host(*line).out == "editor\nshell\nbus\ncontrol\n"
