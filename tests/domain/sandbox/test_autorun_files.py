"""Files that programs of the host obey, and the line that reports one."""

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.refusal import quoted
from omac.domain.sandbox.autorun_files import FINDING_CHARS_MAX, GIVEN_ALL, NOBODY, OBEYED, Obeyed, described

KNOWN = {
    GIVEN_ALL: "-e --checkpoint-action=exec=x -oProxyCommand=x.mk +!x.mk +x|!y +:so%",
    "direnv, or what else loads an environment,": """
        .envrc .env .env.local .envrc.local mise.toml mise/config.toml .direnv/x
        .config/mise/conf.d/x.toml .config/mise/config.local.toml mise-tasks/x devenv.local.nix .corepack.env
        .fvm/flutter_sdk aqua.yaml fnox.toml
        .flaskenv .overmind.env pitchfork.toml flake.lock
    """,
    "an agent": """
        .mcp.json .gemini/settings.json .claude/commands/x.md .claude/settings.local.json .pi/a/b AGENTS.md
        CLAUDE.md .cline/skills/x/y.md .crush/x skills/x/SKILL.md
        .serena/project.yml gptme.toml conductor.json .kilocodemodes
    """,
    "an editor": """
        ws.code-workspace .vscode/tasks.json .idea/workspace.xml .zed/tasks.json .nvim.lua .vim/x devcontainer.json
        .bsp/x.json hie.yaml
        .ycm_extra_conf.py .factorypath .vscode/c_cpp_properties.json .externalToolBuilders/x.launch
        buildServer.json analysis_options.yaml .graphqlrc.ts .vscode/sftp.json x.Rproj
        .obsidian/plugins/x/main.js platformio.ini .cproject App.csproj.user project.godot x.iml
        rust-project.json .vscode/arduino.json Game.Build.cs
        .ropeproject/config.py omnisharp.json
    """,
    "git, or what runs its hooks,": """
        .husky/pre-commit .gitattributes lefthook.yml lefthook-local.toml .lfsconfig prek.toml
        .trunk/trunk.yaml .gitlint cliff.toml
        .lazygit.yml .reviewboardrc .arcconfig .mailmap
        .jira.d/config.yml .gitsecret/keys/gpg.conf
    """,
    "another version control system": """
        .hg/hgrc .jj/repo/config.toml _darcs/prefs/defaults .fslckout .repo/repo/main.py
    """,
    "a debugger or an interpreter": """
        .gdbinit .rdbgrc jupyter_lab_config.py sitecustomize.py x.pth .pdbrc .Rprofile renv/activate.R
        .erlang
        .ghc.environment.x86_64-linux-9.4.7 .luarocks/config-5.4.lua user.clj .jupytext.py
        .valgrindrc login.sql
    """,
    "a package manager": """
        .npmrc .pnpmfile.cjs .cargo/config.toml .yarnrc.yml .yarn/releases/yarn.cjs setup.py package.json
        requirements.txt requirements-dev.txt .pnp.cjs .python-version .pdm-python package.yaml
        binding.gyp x.gypi global.json .config/dotnet-tools.json gradle/libs.versions.toml requirements/dev.txt
        NuGet.Config go.mod go.work .bundle/plugin/index .bowerrc x.cabal .stowrc
        .paket/paket.exe yarn.config.cjs
    """,
    "a build": """
        Makefile Makefile.am rules.mk build.gradle.kts a.b.cmake justfile Taskfile.yml tools/bazel
        Directory.Build.props Dockerfile Dockerfile.dev compose.yml compose.override.yaml docker-compose.dev.yml
        x.csproj gradle/wrapper/gradle-wrapper.properties .gn main.tf .latexmkrc rules.bzl src-tauri/tauri.conf.json
        src/dune app.pro prod.hcl nix/module.nix buildSrc/src/main/java/x.java
        gradle/gradle-daemon-jvm.properties book.toml
        docs/conf.py _quarto.yml local.properties
        Gulpfile.js lib/tasks/x.rake rakefile site_scons/site_init.py main.tf.json x.proj docs/.vitepress/config.ts
        x.nims build.ninja debian/rules tsconfig.json openocd.cfg JUSTFILE .JustFile gRuntfile.coffee GulpFile.js
        project/Build.scala hardhat.config.ts electron-builder.json5 alembic.ini
    """,
    "a linter or a test runner": """
        .eslintrc.js .eslintrc conftest.py tox.ini vite.config.mts .prettierrc.js .pylintrc pytest.toml .oxlintrc.json
        .storybook/main.ts .config/nextest.toml cspell.config.mjs
        dprint.json .postcssrc.js prisma.config.ts pyrefly.toml .sqlfluff tsdown.config.ts
        phpunit.xml.dist .rspec-local .busted .markdownlint.cjs testem.js dart_test.yaml
        .rubocop .rubocop_todo.yml
    """,
    "continuous integration": """
        .github/workflows/x.yml .gitlab-ci.yml .circleci/config.yml .forgejo/workflows/x.yml renovate.json
        azure-pipelines-release.yml action.yml Jenkinsfile.release .zuul.yaml
    """,
}
OTHERS = """
    src/main.py README.md gradle/x requirements.md app.config.ts jupyter.py
    package-lock.json uv.lock .gitignore .editorconfig .env.example environment.py env envrc
    vscode/tasks.json .vscode/cspell.json .claude/todos/x.json .claude/worktrees/a/src/x.py claude/settings.json
    .github/ISSUE_TEMPLATE/bug.md workflows/x.yml .cargo/registry cargo/config.toml Makefiled NotMakefile
    config.toml settings.json docs/mk eslint.config a.mk.txt .npmrcs tools/bazels .idea .husky mise/other.toml
    xvite.config.ts hgrc .hg/store/x .hg/dirstate compose.go docker main.tfstate Dockerfiles
    requirements/login.md src/conf.py
    x.tf.json.bak action.ts config/x.exs debian/changelog go.sum main.rs
    kitchen.tsx project/x .obsidian/app.json logseq/pages.md x.csproj.bak latexmk
"""


def obeys(path: str) -> str | None:
    """Return the program that obeys the file at a path relative to the project, None if none does."""
    folder, _, name = path.rpartition("/")
    return Obeyed(folder).by(name)


@pytest.mark.parametrize(("who", "path"), [(who, path) for who, paths in KNOWN.items() for path in paths.split()])
def test_files_that_programs_obey(who: str, path: str) -> None:
    """A program obeys its files at the top of a project and below."""
    assert obeys(path) == obeys(f"packages/a b/{path}") == who


@pytest.mark.parametrize("path", OTHERS.split())
def test_other_files(path: str) -> None:
    """No program obeys a file with a similar name, nor a folder itself."""
    assert obeys(path) is None
    assert obeys(f"packages/{path}") is None


def test_every_pattern_of_the_table() -> None:
    """Each pattern is listed once, and leads to the program that it is listed for, so that no earlier one hides it;
    harmless ones lead to none."""
    table = [(pattern, who) for who, patterns in OBEYED.items() for pattern in patterns.split()]
    paths = {
        pattern: f"{pattern}inside/x" if pattern.endswith("/") else pattern.replace("*", "x") for pattern, _ in table
    }
    assert [(pattern, obeys(path) or NOBODY) for pattern, path in paths.items()] == table


@pytest.mark.parametrize(
    ("who", "path"), [(who, path) for who, paths in KNOWN.items() for path in paths.split() if "/" in path]
)
def test_links_to_what_is_obeyed(who: str, path: str) -> None:
    """An obeyed file, or a folder above it, may be a link to a target of any name."""
    parts = path.split("/")
    ways = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    through = [Obeyed(way.rpartition("/")[0]).through(way.rpartition("/")[2]) for way in ways]
    assert who in through
    assert through[-1] == who
    assert Obeyed("src").through("main") is Obeyed("workflows").through(".github.x") is None


@given(st.text(min_size=1).filter(lambda path: not path.startswith("/")))
def test_any_path(path: str) -> None:
    """Any path has an answer: a program of the table, or none."""
    assert obeys(path) is None or obeys(path) in OBEYED


HOSTILE = (
    "Makefile",
    "x;>pwned;/Makefile",
    "-rf/Makefile",
    "$(>pwned)/a 'b\".mk",
    "é/Makefile",
    "a\x1b[2J\n'/Makefile",
)
COMMIT = ("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield a folder whose path leaves room for a command in a line."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("committed", [False, True])
def test_the_command_shows_the_difference(short_path: Path, name: str, committed: bool) -> None:
    """The command, pasted into a shell, shows git's difference, also of an agent's commits, or else the content. A name
    is one word."""
    project = short_path / "it's; here"
    file = project / name
    file.parent.mkdir(parents=True)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    file.write_text("all: old\n")
    git("add", "-A")
    git(*COMMIT, "one")
    launched = git("rev-parse", f"HEAD:{name}")
    file.write_text("all: new\n")
    if committed:
        git(*COMMIT, "two", "-a")
        git("update-index", "--assume-unchanged", "--", name)  # what follows is hidden from git status
        file.write_text("all: new\nall: newer\n")
    for since in (launched, ""):
        finding = described(str(project), name, "a build", since=since)
        text, _, command = finding.partition(" obeys it: ")
        assert text == "is new or changed, and a build"
        stdout = subprocess.run(
            ["bash", "-c", command], cwd=short_path, capture_output=True, text=True, check=True
        ).stdout
        added = "".join(f"+{line}" for line in file.read_text().splitlines(keepends=True))
        assert (added in stdout and "-all: old" in stdout) if since else stdout == file.read_text()
    assert not list(short_path.rglob("pwned"))


@pytest.mark.parametrize("attribute", ["ident", "-diff", "diff=image", "filter=tidy"])
def test_the_command_shows_the_file_whatever_attributes_say(short_path: Path, attribute: str) -> None:
    """The command shows the file as programs read it, whatever attributes have git convert or hide, and whatever a
    terminal would not show."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=short_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("config", "diff.image.textconv", "true")
    git("config", "filter.tidy.clean", "echo all: # $Id$")
    file = short_path / "Makefile"
    file.write_text("all: # $Id$\n")
    git("add", "-A")
    git(*COMMIT, "one")
    since = git("rev-parse", "HEAD:Makefile")
    (short_path / ".gitattributes").write_text(f"Makefile {attribute}\n")
    file.write_text("all: # $Id: \x1b[8m ; touch pwned $\n")
    _, _, command = described(str(short_path), "Makefile", "a build", since=since).partition(" obeys it: ")
    shown = subprocess.run(["bash", "-c", command], cwd="/", capture_output=True, text=True, check=True).stdout
    assert "\n-all: # $Id$\n+all: # $Id: ^[[8m ; touch pwned $\n" in shown


@given(st.text(), st.text(min_size=1), st.sampled_from(["", "HEAD", "0" * 40]))
def test_a_finding_is_one_bounded_line(project: str, path: str, since: str) -> None:
    """A finding is one bounded line that a terminal shows as it is. A command in it is whole and names that file
    only."""
    finding = described(project, path, "an editor", since=since)
    assert finding.isprintable()
    text, _, command = finding.partition(" obeys it: ")
    assert text.startswith("is new or changed, and an editor")
    if command:
        assert len(f"{project}/{path}: {finding}") <= FINDING_CHARS_MAX
        end = " | cat -v" if since else ""
        assert command.endswith(f" {quoted(f'{project}/{path}')}{end}")
        assert "$'" in command or shlex.split(command.removesuffix(end))[-1] == f"{project}/{path}"


def test_a_finding_without_a_command() -> None:
    """A finding has no command if the name is too long: the command would name another file."""
    path = "a" * 5000 + "/Makefile"
    assert described("/w", path, "a build", since="HEAD") == "is new or changed, and a build obeys it"
