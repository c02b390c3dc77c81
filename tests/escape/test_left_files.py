"""Files that an agent leaves for omac itself, or for other programs of the host, to read."""

import json
import os
import resource
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest
from escape.left_behind import FINDINGS_MAX, WITHIN_S, Ground, ground_of
from memory import measured
from real_sandbox import SYSTEM_PYTHON, USERS, Done
from tiers import some

RSS_KIB_MAX = 300 << 10


@pytest.fixture(scope="module", params=USERS[:1], ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield a person's home, renewed for each test."""
    with ground_of(request.param) as made:
        yield made


PLACES = (
    (".git",), (".git/config",), (".git/HEAD",), (".git/objects",), (".git/refs",), (".git/commondir",),
    (".git/config.worktree", ".git/packed-refs", ".git/index", ".git/logs/HEAD", ".git/hooks/pre-commit",
     ".git/info/attributes", ".git/objects/info/alternates", ".git/rebase-merge", ".git/sequencer/todo",
     ".git/MERGE_RR", ".git/refs/heads/x", "sub/.git/config", "bare/config", ".claude/settings.json",
     ".opencode/skills/s/omac.yaml", ".gitmodules", ".gitattributes", ".agents/skills", ".omac/settings.toml"),
    (".git/hooks", ".git/worktrees", ".git/modules", ".git/refs/replace", ".git/rebase-merge/git-rebase-todo",
     ".git/sequencer", "sub/.git/HEAD", "bare/HEAD", ".agents/skills/s", ".omac", ".claude"),
    (".git/worktrees/w/gitdir", ".git/modules/m/HEAD", "sub/.git", "bare/objects", ".agents"),
    (".git/worktrees/w/commondir", ".git/modules/m/config", ".agents/skills/s/omac.yaml"),
)  # fmt: skip
ODD = {
    "a FIFO": 'mkfifo "$p"',
    "a folder": 'mkdir "$p"; touch "$p/x"',
    "a link to itself": 'ln -s "$(basename "$p")" "$p"',
    "a link to a FIFO": 'mkfifo "$p.f"; ln -s "$(basename "$p.f")" "$p"',
    "a socket": 'cd "$(dirname "$p")"; python3 -Ic "import socket, sys; socket.socket(1).bind(sys.argv[1])"'
    ' "$(basename "$p")"; cd "$W"',
    "a file of 200 GB": 'truncate -s 200G "$p"',
    "a link to a device": 'ln -s /dev/zero "$p"',
    "a long file": 'yes "gitdir: ../x" | head -400000 > "$p"',
}


@pytest.mark.full
@pytest.mark.parametrize("kind", some(ODD, of=3))
def test_odd_files(ground: Ground, kind: str) -> None:
    """An odd file, wherever omac reads, costs little time and memory, and leads to no traceback and no control
    characters."""
    is_own = ground.world.uid == os.geteuid()  # another has no copy of what reads settings
    for paths in PLACES:
        ground.renew("everything")
        names = " ".join(path for path in paths if is_own or not path.startswith(".omac"))
        put = f'for p in {names}; do rm -rf "$p"; mkdir -p "$(dirname "$p")"; {ODD[kind]}; done'
        ground.person(put, extra=ground.told())
        commands: list[tuple[str, ...]] = [("sandbox", "run", "--", "true")]
        if is_own and ".agents" in put:
            commands.append(("list", "--workdir", str(ground.project)))
        for words in commands:
            start = time.monotonic()
            done, rss_kib = ended(ground, *words)
            assert time.monotonic() - start < 30, (paths, words)
            assert rss_kib < RSS_KIB_MAX, (paths, words)
            assert done.status in (0, 1, 2, 3, 4, 5, 7, 9), (paths, words, done)
            assert "Traceback" not in done.err, (paths, words, done)
            assert not [sign for sign in done.out + done.err if ord(sign) < 32 and sign not in "\n\t"], done


def ended(ground: Ground, *words: str) -> tuple[Done, int]:
    """Run an omac command of the ground's user to its end; return that, and the most memory of omac and its git."""
    world = ground.world
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
        tempfile.TemporaryFile("w+") as report,
    ):
        line = measured(["timeout", "--foreground", str(WITHIN_S), *world.omac(*words)], report.fileno())
        status = subprocess.call(
            line, cwd=ground.project, env=world.environment, pass_fds=[report.fileno()],
            user=world.uid or None, group=world.uid or None, extra_groups=world.extra_groups,
            stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
        for file in (out, err, report):
            file.seek(0)
        return Done(status, out.read(), err.read()), int(report.read())


@pytest.mark.full
@pytest.mark.parametrize(("levels", "many"), [
    pytest.param(18, "for number in range(20_000): os.mkfifo(str(number))", id="findings"),
    pytest.param(190, "for n in range(4_000): os.makedirs(f'{n}/.git/refs'); os.makedirs(f'{n}/.git/objects');"
                 " open(f'{n}/.git/HEAD', 'w').write('ref: refs/heads/main')", id="repositories"),
])  # fmt: skip
def test_long_paths_take_little_memory(ground: Ground, levels: int, many: str) -> None:
    """The memory that the end of a launch takes is bounded, however long the paths are that a program made."""
    ground.renew("plain")
    script = f"import os\nfor _ in range({levels}): os.mkdir('x' * 200); os.chdir('x' * 200)\n{many}"
    done, rss_kib = ended(ground, "sandbox", "run", "--", "python3", "-c", script)
    assert "findings: less" in done.err, done
    assert rss_kib < RSS_KIB_MAX


HOSTILE_CACHE = """\
import os
home, cache = os.path.expanduser("~"), os.environ["OMAC_CACHE_DIR"]
os.chdir(cache)
os.symlink(home + "/victim", "link"); os.symlink("/etc/passwd", "file"); os.mkfifo("fifo")
os.mkdir("locked"); open("locked/x", "w").close(); os.chmod("locked", 0)
os.mkdir("esc\\x1b[31m\\n"); os.mkdir("many"); os.mkdir("deep")
for number in range(3000): os.close(os.open(f"many/{number}", os.O_CREAT))
os.chdir("deep")
for level in range(3000):
    os.mkdir("d" * 60); os.chdir("d" * 60)
os.symlink(home + "/victim", "link")
os.chdir(cache); os.chmod(".", 0)
"""


@pytest.mark.full
def test_a_hostile_cache(own_ground: Ground) -> None:
    """A tool cache full of traps can be listed, used again and cleared; nothing that it leads to is removed."""
    ground = own_ground
    ground.renew("plain")
    before = ground.outside()
    world = ground.world
    assert world.run(SYSTEM_PYTHON, "-I", "-c", HOSTILE_CACHE).status == 0
    again = ("sandbox", "run", "--", "true")
    for words in (("cache", "list"), again, ("cache", "clear", "--workdir", str(world.workdir)), ("cache", "list")):
        done = world.host(*world.omac(*words))
        assert done.status == 0, (words, done)
        assert "\x1b" not in done.out + done.err
        assert "Traceback" not in done.err
    assert ground.outside() == before
    assert not list((ground.home / ".cache" / "omac").rglob("many"))


OBEYED = """
    .envrc .env mise.toml .mise.toml .tool-versions .cargo/config.toml .yarnrc.yml .yarnrc .npmrc .pnpmfile.cjs
    bunfig.toml .eslintrc.js eslint.config.js .prettierrc.js .pylintrc .Rprofile .irbrc .pryrc .pdbrc .gdbinit .lldbinit
    .clangd .dir-locals.el .bazelrc .helix/languages.toml .fleet/run.json ws.code-workspace .vscode/tasks.json
    .vscode/mcp.json .vscode/extensions.json .idea/workspace.xml .cursor/mcp.json .windsurf/mcp.json
    .kiro/settings/mcp.json .gemini/settings.json .roo/mcp.json .continue/config.yaml .amazonq/mcp.json
    .junie/mcp/mcp.json .aider.conf.yml .mcp.json .claude/settings.json .claude/settings.local.json .claude/hooks/x.sh
    .claude/agents/x.md .claude/commands/x.md .claude/skills/x/SKILL.md .claude/CLAUDE.md CLAUDE.md AGENTS.md GEMINI.md
    .github/copilot-instructions.md .github/workflows/x.yml .codex/config.toml .opencode/plugin/x.js
    .opencode/command/x.md opencode.json .pi/extensions/x .pi/settings.json .agents/skills/x/SKILL.md
    .devcontainer/devcontainer.json devcontainer.json .devcontainer.json .husky/pre-commit .githooks/pre-commit
    .pre-commit-config.yaml lefthook.yml .overcommit.yml .nvim.lua .nvimrc .exrc .lvimrc .vim/local.vim .lazy.lua
    Dockerfile compose.yml x.csproj main.tf .latexmkrc .ycm_extra_conf.py .factorypath .rvmrc .RData project.clj
    .hg/hgrc .jj/repo/config.toml .jj/repo/store/git_target .jj/workspace-config.toml sub/.jj/repo
    .github/hooks/x.json .github/skills/x/SKILL.md .github/copilot/settings.json .claude/workflows/x.js
    .claude/launch.json .claude/statusline.sh .agent/rules/x.md .amp/settings.json .claude/routines/x.md .lsp.json
    .claude/scheduled_tasks.json .claude/agent-memory/x/MEMORY.md .claude-plugin/marketplace.json
    .codex-plugin/plugin.json tui.json
    Makefile justfile Taskfile.yml .lfsconfig .gitmodules .gitattributes conftest.py setup.py sitecustomize.py .pth
    .sublime-project flake.nix shell.nix .autoenv .direnv/x pyproject.toml tox.ini
"""
OTHERS = "README.md src/main.py docs/index.md package-lock.json .gitignore .editorconfig .env.example vscode/tasks.json"


@pytest.mark.full
def test_files_that_programs_obey(ground: Ground) -> None:
    """New files that programs obey are reported, on stderr or in the file of all findings; ordinary files are not."""
    ground.renew("plain")
    script = "for f in {}; do mkdir -p $(dirname $f); echo x > $f; done"
    report = findings(ground, script.format(" ".join(OBEYED.split())))
    assert not [name for name in OBEYED.split() if f"/project/{name}" not in report]
    assert len([line for line in report.splitlines() if line.startswith("omac:")]) <= FINDINGS_MAX + 5
    ground.renew("plain")
    report = findings(ground, script.format(OTHERS))
    assert not [name for name in OTHERS.split() if f"/project/{name}" in report]


SETTINGS = {
    ".claude/settings.json": {
        "hooks": {"Stop": [{"hooks": [{"command": 'bash "$CLAUDE_PROJECT_DIR"/scripts/hook.sh --fix'}]}]},
        "statusLine": {"command": "./tools/line"},
    },
    ".mcp.json": {"mcpServers": {"notes": {"command": "node", "args": ["servers/notes.js"]}}},
    "opencode.json": {"mcp": {"more": {"command": ["python3", "${workspaceFolder}/servers/more.py"]}}},
    "tui.json": {"plugin": ["./tools/look.ts"]},
}
NAMED = "scripts/hook.sh tools/line servers/notes.js servers/more.py tools/look.ts"


def test_scripts_that_settings_of_agents_name(ground: Ground) -> None:
    """A changed script that an agent runs by itself, since settings of the project name it, is reported."""
    ground.renew("plain")
    ground.person(f"mkdir -p .claude scripts tools servers; touch scripts/other {NAMED}")
    for path, settings in SETTINGS.items():
        ground.world.give(ground.project / path, json.dumps(settings))
    assert "an agent" not in findings(ground, f"cat {NAMED}; echo x > scripts/other")
    report = findings(ground, f"for f in {NAMED}; do echo x >> $f; done; echo y > scripts/other")
    assert [name for name in NAMED.split() if f"/{name}: is new or changed, and an agent" not in report] == []
    assert "scripts/other" not in report


OF_A_PROJECT = {
    ".envrc": """
source_env_if_exists env/a
. ./env/b.sh
PATH_add bin
PATH_add node_modules/.bin
export PYTHONPATH=$PWD/lib PATH="$PWD/more/bin:$PATH"
""",
    "mise.toml": '[env]\n_.source = "./env/c.sh"\n_.path = ["{{config_root}}/x"]',
    ".vscode/tasks.json": '{"tasks": [{"command": "${workspaceFolder}/tools/d", "runOptions": {}}]}',
    ".devcontainer/devcontainer.json": '{"postCreateCommand": "bash tools/e.sh"}',
    ".pre-commit-config.yaml": "repos: [{repo: local, hooks: [{id: x, language: system, entry: tools/f --x}]}]",
    "lefthook.yml": "pre-commit:\n  commands:\n    x:\n      run: python3 tools/g.py",
    ".husky/pre-commit": "#!/bin/sh\nnode tools/h.js\n",
    ".git/hooks/pre-push": "#!/bin/sh\nexec tools/i\n",
}
NAMED_OF_A_PROJECT = "env/a env/b.sh env/c.sh tools/d tools/e.sh tools/f tools/g.py tools/h.js tools/i"


def test_scripts_that_other_settings_of_a_project_name(ground: Ground) -> None:
    """A changed script is reported that direnv, mise, an editor or a hook of git runs by itself, as are new programs in
    a folder that direnv puts into PATH."""
    ground.renew("plain")
    ground.person(f"mkdir -p env tools lib; touch lib/x {NAMED_OF_A_PROJECT}")
    for path, settings in OF_A_PROJECT.items():
        ground.world.give(ground.project / path, settings)
    others = "mkdir -p node_modules/.bin; for f in lib/x tools/other node_modules/.bin/x; do echo x > $f; done"
    assert "obeys" not in findings(ground, f"cat {NAMED_OF_A_PROJECT}; {others}")
    added = "bin/make more/bin/git"
    report = findings(ground, f"mkdir -p bin more/bin; for f in {NAMED_OF_A_PROJECT} {added}; do echo x >> $f; done")
    missing = [name for name in f"{NAMED_OF_A_PROJECT} {added}".split() if f"/{name}: is new or changed" not in report]
    assert missing == [], report


def test_files_that_start_up_files_name(ground: Ground) -> None:
    """A changed file of the project that a person's shell or ssh reads, since a start-up file names it, is reported."""
    ground.renew("plain")
    ground.person("mkdir -p shell; touch shell/init ssh.conf shell/other export")
    ground.world.give(ground.home / ".bashrc", f'export X=y; . "$HOME/{ground.project.name}/shell/init"\n')
    ground.world.give(ground.home / ".ssh/config", f"Include ~/{ground.project.name}/ssh.conf\n")
    report = findings(ground, "for f in shell/init ssh.conf shell/other export; do echo x >> $f; done")
    assert "/shell/init: is new or changed, and a shell" in report
    assert "/ssh.conf: is new or changed, and ssh" in report
    assert "/shell/other" not in report
    assert "/export" not in report


@pytest.mark.parametrize("content", ["[" * 60_000, '{"command": "' + "a " * 30_000 + '"}', '{"command": "\\u0000/x"}'])
def test_settings_of_agents_that_an_agent_left(ground: Ground, content: str) -> None:
    """Settings that are hard to read, and words that are no paths, keep no launch waiting."""
    ground.renew("plain")
    for path in SETTINGS:
        ground.world.give(ground.project / path, content)
    ground.world.give(ground.project / ".codex/config.toml", f"{'a.' * 4_000}a = 1")
    start = time.monotonic()
    done = ground.agent("echo ran")
    assert (done.out, "Traceback" in done.err) == ("ran\n", False), done
    assert time.monotonic() - start < 15


def test_folders_of_other_programs_among_gits_files(ground: Ground) -> None:
    """A change in a folder that another program keeps in a git folder is reported; one that stays is not."""
    keep = (
        "mkdir -p .git/sl/deep .git/kept .git/worktrees; for f in sl/config sl/deep/x kept/x; do echo 1 > .git/$f; done"
    )
    ground.renew("plain")
    ground.person(keep)
    report = findings(ground, "touch seen; cat .git/sl/config .git/kept/x")
    assert "is no folder of git's" not in report
    for change in (
        "echo '[hooks]' >> .git/sl/config",
        "touch .git/sl/deep/y",
        "rm .git/sl/config",
        "ln -s x .git/sl/y",
    ):
        report = findings(ground, change)
        assert "/.git/sl: is no folder of git's" in report, change
        assert "/.git/kept" not in report


def test_findings_are_few_and_begin_with_what_matters(ground: Ground) -> None:
    """Findings of files that were set aside come first, then the project's own files, then vendored code. Most of the
    latter are in a file: the last line is the command that shows it."""
    ground.renew("plain")
    vendored = "mkdir -p vendor/{1..40}; touch vendor/{1..40}/Makefile zzz.mk"
    done = ground.agent(f"{vendored}; ln -sf /etc/passwd .git/COMMIT_EDITMSG")
    lines = [line.removeprefix("omac: ") for line in done.err.splitlines() if line.startswith("omac: ")]
    assert len(lines) == FINDINGS_MAX + 1, lines
    assert "set aside as" in lines[0], done
    assert lines[1].startswith(f"{ground.project}/zzz.mk: ")
    shown = ground.person(lines[-1].partition(": ")[2].replace("less ", "cat ")).out
    assert len(shown.splitlines()) == 42


def test_the_record_begins_with_what_matters(ground: Ground) -> None:
    """Neither many findings of a kind nor long ones keep others out of the record of a launch: what was set aside, and
    files that programs obey."""
    ground.renew("plain")
    many = "for i in {1..100}; do touch .git/refs/heads/$i.lock; done"
    deep = "d=$(printf 'x%.0s' {1..200}); for _ in {1..19}; do mkdir $d; cd $d; done; mkfifo f; cd $W"
    obeyed = "mkdir -p zz/.vscode zz{1..60}; touch zz{1..60}/Makefile zz/.vscode/tasks.json"
    ground.agent(f"{many}; {obeyed}; {deep}; skeleton zz/.git evil")
    host = ground.world.host(*ground.world.omac("audit", "--kind", "sandbox", "--json"))
    assert f"{ground.project}/zz/.git/config: sets core.fsmonitor" in host.out, host
    assert f"{ground.project}/zz/.vscode/tasks.json: is new or changed" in host.out, host
    assert len(host.out) < 12_000


def test_the_command_for_many_files_shows_their_folder_alone(ground: Ground) -> None:
    """The command that a line for many new files has prints each of them, and nothing of the folders beside them; it
    waits for no FIFO and follows no link."""
    ground.renew("plain")
    names = ("Makefile", "Dockerfile", "justfile", "Rakefile", "Procfile")
    odd = "mkdir -p sub; echo below > sub/below; mkfifo pipe; ln -s /etc/passwd link"
    done = ground.agent(f'{odd}; for n in {" ".join(names)}; do echo "in $n" > $n; done')
    (line,) = [line for line in done.err.splitlines() if "a build obeys them" in line]
    shown = ground.person(f"timeout 10 bash -c {shlex.quote(line.partition('obeys them: ')[2])}")
    assert shown.status == 0, shown
    assert all(f"{ground.project}/{name}:in {name}\n" in shown.out for name in names), shown
    assert "link -> /etc/passwd" in shown.out
    assert not [text for text in ("below", "root:", ".git/") if text in shown.out], shown


def test_a_change_that_the_index_hides(ground: Ground) -> None:
    """A finding's command shows a change that git's index hides, in an old file and in one committed since."""
    ground.renew("plain")
    ground.person("echo 'all: old' > Makefile; git add Makefile; git commit -qm make", check=True)
    hide = "git add -A; git commit -qm x; git update-index --assume-unchanged Makefile tox.ini"
    report = findings(ground, f"touch tox.ini; {hide}; echo 'all: hidden' > Makefile; echo '[hidden]' > tox.ini")
    assert ground.person("git status --short").out == ""
    commands = [line.partition(" obeys it: ")[2] for line in report.splitlines() if " obeys it: " in line]
    assert len(commands) == 2
    assert all("hidden" in ground.person(command).out for command in commands)


def test_a_folder_moved_to_where_programs_obey_it(ground: Ground) -> None:
    """A file in a folder with a new name counts as new, too, although the file is as it was."""
    ground.renew("plain")
    assert "tasks.json" not in findings(ground, "mkdir -p docs/old; echo '{\"tasks\": []}' > docs/old/tasks.json")
    assert "/.vscode/tasks.json" in findings(ground, "mv docs/old .vscode")
    assert "tasks.json" not in findings(ground, "cat .vscode/tasks.json")


@pytest.mark.parametrize("target", some(["docs", "../project/docs", "way/to", "$W/docs"], of=2))
def test_links_that_programs_obey(ground: Ground, target: str) -> None:
    """A link through which programs obey files of any name is reported, and again when its target changes."""
    ground.renew("plain")
    made = "mkdir docs way other; echo '{}' > docs/tasks.json; ln -s ../docs way/to; ln -s other README.d"
    report = findings(ground, f"{made}; ln -s {target} .vscode; mkdir .github; ln -s ../docs .github/workflows")
    lines = [line for line in report.splitlines() if "is a link" in line]
    assert sorted(line.split(": ")[1].rpartition("/project/")[2] for line in lines) == [".github/workflows", ".vscode"]
    assert "is a link" not in findings(ground, "cat .vscode/tasks.json; echo x > other/x")
    assert "/.vscode: is a link" in findings(ground, "echo '{ }' > docs/tasks.json")
    assert "/.vscode: is a link" in findings(ground, "mkdir docs/x; touch docs/x/y; ln -s ../../other docs/x/z")
    assert "/.vscode: is a link" in findings(ground, "echo y > other/x")


def test_a_link_to_a_file_of_the_tool_cache(ground: Ground) -> None:
    """A link that programs obey is reported again when the file of the cache that it leads to changes."""
    ground.renew("plain")
    assert "/Makefile: is a link" in findings(ground, "echo x > $OMAC_CACHE_DIR/m; ln -s $OMAC_CACHE_DIR/m Makefile")
    assert "is a link" not in findings(ground, "cat Makefile; echo x > $OMAC_CACHE_DIR/other")
    assert "/Makefile: is a link" in findings(ground, "echo y > $OMAC_CACHE_DIR/m")


@pytest.mark.full
def test_a_link_of_a_virtual_environment(ground: Ground) -> None:
    """The link in a skill's environment is reported when what it leads to changes, however many packages are there:
    these count as little behind a link as elsewhere."""
    ground.renew("plain")
    packages = ".agents/skills/s/.venv/lib/python3.11/site-packages"
    made = f"mkdir -p {packages}; touch {packages}/{{1..1500}}; ln -s lib .agents/skills/s/.venv/lib64"
    assert "/.venv/lib64: is a link" in findings(ground, made)
    assert "is a link" not in findings(ground, f"echo x > {packages}/1")
    assert "/.venv/lib64: is a link" in findings(ground, f"echo x > {packages}/../x.py")


@pytest.mark.full
def test_links_to_much_cost_little(ground: Ground) -> None:
    """Links in circles, to a device, out of the project and to more than omac reads cost little of the processor."""
    ground.renew("plain")
    script = (
        "mkdir -p many n; touch many/{1..3000}; ln -s .zed .zed; ln -s . .idea; ln -s / .vim; ln -s /dev/zero .helix;"
        " ln -s ../../../../../proc .nvim; for i in {1..300}; do mkdir n/$i; ln -s ../../many n/$i/.vscode; done;"
        " d=chain; for i in {1..99}; do d=$d/c; mkdir -p $d; done; touch $d/{1..900}; for i in {1..99}; do mkdir m$i;"
        " ln -s ../$d m$i/.zed; d=${d%/c}; done"
    )
    for again in (script, "true"):
        before = processor_s()
        assert "/.vscode: is a link" in findings(ground, again)
        assert processor_s() - before < 10


def processor_s() -> float:
    """Return the seconds that children of this process have used the processor, up to their ends."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


WIDER = """
[serve]
unapproved = "allow"
auto_register = true
[git]
hooks = "read"
refs = "all"
[cache]
redirect_xdg = true
[guard]
scratch = ["/"]
["\\u001b[31mx"]
y = 1
"""
BOMBS = {
    "nested": "a = " + "[" * 100 + "]" * 100,
    "nested by lines": "a = [\n" + "[\n" * 20000,
    "many keys": "\n".join(f"k{number} = 1" for number in range(6000)),
    "many tables": "\n".join(f"[t{number}.a.b.c.d]" for number in range(3000)),
    "a large number": "a = " + "9" * 190,
    "twice the same": "[git]\nhooks='deny'\nhooks='read'",
    "a NUL": "a = 1\0",
}


@pytest.mark.full
def test_settings_of_the_project_widen_nothing(own_ground: Ground) -> None:
    """Settings that an agent writes to .omac/settings.toml do not widen the next launch's policy."""
    own_ground.renew("plain")
    world = own_ground.world

    def explained() -> list[str]:
        start = time.monotonic()
        done = world.host(*world.omac("sandbox", "run", "--explain", "--", "true"))
        assert time.monotonic() - start < 30
        assert "Traceback" not in done.err
        assert "\x1b" not in done.out + done.err
        assert done.status == 0, done
        return [line for line in done.out.splitlines() if line and "settings.toml" not in line]

    world.give(own_ground.project / ".omac" / "settings.toml", "")
    usual = explained()
    own_ground.agent(f"cat > .omac/settings.toml << 'EOF'\n{WIDER}\nEOF")
    text = (own_ground.project / ".omac" / "settings.toml").read_text()
    assert text.strip() == WIDER.strip()
    assert explained() == usual
    for bomb in BOMBS.values():
        world.give(own_ground.project / ".omac" / "settings.toml", bomb)
        assert explained() == usual
    world.give(world.home / ".config" / "omac" / "settings.toml", '[git]\nhooks = "read"\n')
    assert explained() != usual  # the twin: the user's own settings


def findings(ground: Ground, script: str) -> str:
    """Return omac's report on a launch: its stderr, and the file of findings if there are too many to print."""
    before = set((ground.world.state / "set-aside").glob("*/findings"))
    done = ground.agent(script)
    files = set((ground.world.state / "set-aside").glob("*/findings")) - before
    return done.err + "".join(path.read_text() for path in files)


def test_a_new_worktree_brings_what_was_there(ground: Ground) -> None:
    """Of a worktree that an agent adds, files that programs obey are reported only where they differ from those of the
    project's commit at launch. Copies elsewhere are reported."""
    ground.renew("plain")
    files = {"package.json", "Makefile", ".gitmodules", "sub/.envrc"}
    ground.person(f"mkdir sub; for f in {' '.join(files)}; do echo '#' > $f; done; git add -f .; git commit -qm x")
    script = (
        "git worktree add -q .claude/worktrees/w; cd .claude/worktrees/w; echo make >> sub/.envrc; touch sub/Makefile;"
        " cp Makefile sub/package.json; git add -f .; git commit -qm more; git worktree add -q ../v;"
        " cp -r ../v ../copy; rm ../copy/.git"
    )
    report = findings(ground, script)
    reported = {line.split(": ")[1] for line in report.splitlines() if " obeys it: " in line}
    changed = {"sub/.envrc", "sub/Makefile", "sub/package.json"}
    expected = {"v": changed, "w": changed, "copy": changed | files}
    folder = f"{ground.project}/.claude/worktrees"
    assert reported == {f"{folder}/{name}/{path}" for name, paths in expected.items() for path in paths}, report


def test_a_new_worktree_brings_nothing_into_other_places(ground: Ground) -> None:
    """A file of a worktree that an agent adds is reported where programs obey it by the worktree's place alone, where
    it can be executed since, and where the commit has a link."""
    ground.renew("plain")
    files = "for f in tasks.json pre-commit Makefile .husky/pre-push; do echo true > $f; done; ln -s setup .envrc"
    ground.person(f"mkdir .husky; {files}; git add -f .; git commit -qm x", check=True)
    added = "for w in .vscode .githooks w; do git worktree add -q --detach $w; done"
    changed = "cd w; rm .envrc; printf setup > .envrc; chmod +x .husky/pre-push"
    report = findings(ground, f"{added}; {changed}")
    for path in (".vscode/tasks.json", ".githooks/pre-commit", "w/.envrc", "w/.husky/pre-push"):
        assert f"{ground.project}/{path}: is new or changed" in report
    assert "Makefile" not in report


def test_a_new_worktree_brings_scripts_that_settings_name(ground: Ground) -> None:
    """A script that settings of the project name is reported in a worktree that an agent adds, where it differs from
    the project's commit: in that worktree the same settings name it."""
    ground.renew("plain")
    hooks = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "scripts/check"}]}]}}'
    files = f"mkdir .claude scripts; printf %s '{hooks}' > .claude/settings.json; echo true > scripts/check"
    ground.person(f"{files}; git add -f .; git commit -qm x", check=True)
    report = findings(ground, "git worktree add -q --detach v; git worktree add -q --detach w; echo >> w/scripts/check")
    assert f"{ground.project}/w/scripts/check: is new or changed" in report
    assert "/v/" not in report
    assert "settings.json" not in report
