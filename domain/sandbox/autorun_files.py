"""Files of a project that programs of the host obey: what an agent writes there, a person's next command runs.

A pattern is the end of a path, at any depth: `name`, `folder/name`, `folder/` for all that lies below such a folder,
`name*` and `*.ending` for the last part. Harmless twins (`.env.example`) are patterns of nobody's.
"""

from __future__ import annotations

from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import named

FINDING_CHARS_MAX = 300
OF_OTHERS = frozenset(("node_modules", "site-packages", "dist-packages", "__pycache__"))

NOBODY = ""
_AGENTS = """
    .agents/ .aider.conf.yml .aider.conf.yaml .amazonq/ .augment/ .clinerules .clinerules/ .continue/ .crush.json
    .cursor/ .cursorrules .factory/ .gemini/ .goose/ .goosehints .junie/ .kilocode/ .kiro/ .qwen/ .roo/ .roomodes
    .roorules* .rules .trae/ .windsurf/ .windsurfrules AGENT.md AGENTS.md CONVENTIONS.md GEMINI.md QWEN.md crush.json
    mcp.json
"""  # of agents that are no harness, and of any
_OF_HARNESSES = [pattern for harness in HARNESSES for pattern in harness.autorun_files]
OBEYED = {
    NOBODY: ".env.dist .env.example .env.sample .env.template",
    "direnv, or what else loads an environment,": """
        .autoenv .autoenv.zsh .direnv/ .env .env.* .envrc .envrc.* .mise.toml .mise.*.toml .mise/ .rtx.toml
        .tool-versions mise.toml mise.*.toml mise/config.toml devbox.json devenv.nix devenv.yaml flake.nix default.nix
        shell.nix
    """,
    "an agent": " ".join(dict.fromkeys((*_AGENTS.split(), *_OF_HARNESSES))),
    "an editor": """
        *.code-workspace *.sublime-project .ccls .clangd .dir-locals.el .dir-locals-2.el .exrc .fleet/ .helix/ .idea/
        .kakrc.local .lazy.lua .local.vimrc .luarc.json .lvimrc .metals/ .nova/ .nvim.lua .nvim/ .nvimrc
        .phpactor.json .phpactor.yml .projectile .run/ .solargraph.yml .sublime-project .theia/ .vim/ .vimrc .vs/
        .vscode/extensions* .vscode/launch* .vscode/mcp* .vscode/settings* .vscode/tasks* .zed/ _vimrc .devcontainer/
        .devcontainer.json devcontainer.json .gitpod.yml .replit
    """,
    "git, or what runs its hooks,": """
        .gitattributes .githooks/ .git-hooks/ .gitmodules .husky/ .huskyrc* .lefthook.* .lfsconfig .lintstagedrc*
        .overcommit.yml .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml commitlint.config.*
        .commitlintrc* hk.pkl lefthook.* lefthook-local.* lint-staged.config.*
    """,
    "a debugger or an interpreter": """
        .Rprofile .gdbinit .ghci .iex.exs .irbrc .jupyter/ .lldbinit .ocamlinit .pdbrc .pdbrc.py .pryrc .rdebugrc
        .rspec *.pth sitecustomize.py usercustomize.py
    """,
    "a package manager": """
        .bundle/config .cargo/config .cargo/config.toml .npmrc .pnpmfile.cjs .pnpmfile.mjs .yarn/plugins/
        .yarn/releases/ .yarnrc .yarnrc.yml Cargo.toml Gemfile NuGet.config Package.swift Pipfile Podfile build.rs
        bunfig.toml composer.json deno.json deno.jsonc gems.rb mix.exs nuget.config package.json pip.conf
        pnpm-workspace.yaml poetry.toml pyproject.toml rust-toolchain rust-toolchain.toml setup.cfg setup.py uv.toml
    """,
    "a build": """
        *.cmake *.gradle *.gradle.kts *.mk *.props *.sbt *.targets .bazelrc .bazeliskrc .jvmopts .mvn/ .sbtopts
        BUILD.bazel CMakeLists.txt CMakePresets.json CMakeUserPresets.json Directory.Build.* Earthfile GNUmakefile
        Gruntfile.* Justfile MODULE.bazel Makefile Makefile.* Procfile Rakefile SConstruct SConscript Taskfile.*
        Tiltfile Vagrantfile WORKSPACE ansible.cfg build.zig cabal.project.local configure dodo.py fabfile.py
        fastlane/ gradle.properties gradlew gradlew.bat gulpfile.* justfile .justfile magefile.go makefile meson.build
        mvnw mvnw.cmd noxfile.py pom.xml stack.yaml taskfile.* tasks.py tools/bazel wscript
    """,
    "a linter or a test runner": """
        .babelrc* .credo.exs .erb_lint.yml .eslintrc* .flake8 .formatter.exs .luacheckrc .mocharc* .mypy.ini
        .php-cs-fixer.php .php-cs-fixer.dist.php .prettierrc* .proverc .pylintrc .rubocop.yml .stylelintrc*
        babel.config.* conftest.py eslint.config.* jest.config.* karma.conf.* mypy.ini next.config.* phpstan.neon
        phpstan.neon.dist phpunit.xml playwright.config.* postcss.config.* prettier.config.* pylintrc pytest.ini
        rollup.config.* stylelint.config.* svelte.config.* tailwind.config.* tox.ini vite.config.* vitest.config.*
        webpack.config.*
    """,
    "continuous integration": """
        .buildkite/ .circleci/ .drone.yml .github/actions/ .github/workflows/ .gitlab-ci.yml .travis.yml .woodpecker/
        .woodpecker.yml Jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml
    """,
}


class _Table:
    """The patterns by what is looked up: most files of a project are in none, and cost a few lookups."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.endings: dict[str, str] = {}
        self.folders: dict[str, list[tuple[str, str]]] = {}  # by the last part: the folder's path, who
        self.paths: list[tuple[str, str]] = []  # the end of a path with folders, "*" at its end for any
        self.beginnings: dict[str, list[tuple[str, str]]] = {}  # by the first two characters
        self.ways: dict[str, list[tuple[str, str]]] = {}  # as `folders`, of folders with one of those below them, too
        for who, patterns in OBEYED.items():
            for pattern in patterns.split():
                self._add(pattern, who)
        self.path_folders = frozenset(path.rpartition("/")[0].rpartition("/")[2] for path, _ in self.paths)

    def _add(self, pattern: str, who: str) -> None:
        parts = pattern.split("/")[:-1]
        for number, part in enumerate(parts):
            self.ways.setdefault(part, []).append(("/".join(parts[: number + 1]), who))
        if pattern.endswith("/"):
            folder = pattern[:-1]
            self.folders.setdefault(folder.rpartition("/")[2], []).append((folder, who))
        elif "/" in pattern:
            self.paths.append((pattern, who))
        elif pattern.startswith("*"):
            self.endings[pattern[1:]] = who
        elif "*" in pattern:
            beginning, _, ending = pattern.partition("*")
            self.beginnings.setdefault(beginning[:2], []).append((f"{beginning}\0{ending}", who))
        else:
            self.names[pattern] = who

    def of_name(self, name: str) -> str | None:
        """Return who obeys a file of this name in any folder; empty: nobody, whatever the folder."""
        who = self.names.get(name)
        return who if who is not None else self._by_part(name)

    def _by_part(self, name: str) -> str | None:
        for pattern, who in self.beginnings.get(name[:2], ()):
            beginning, _, ending = pattern.partition("\0")
            if name.startswith(beginning) and name.endswith(ending) and len(name) >= len(beginning) + len(ending):
                return who
        dot = name.find(".")
        while dot >= 0:
            ending = name[dot:]
            if ending in self.endings:
                return self.endings[ending]
            dot = name.find(".", dot + 1)
        return None


_TABLE = _Table()


class Obeyed:
    """The files of one folder that programs obey; `folder` is relative to the project, and empty for the project."""

    __slots__ = ("_folder", "_others", "_whole")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        parts = folder.split("/")
        self._whole: str | None = None  # who obeys every file in it
        self._others: list[tuple[str, str]] = []  # names, "*" at the end for any that begin so, and who
        for number, part in enumerate(parts):
            for pattern, who in _TABLE.folders.get(part, ()):
                if self._whole is None and f"/{'/'.join(parts[: number + 1])}".endswith(f"/{pattern}"):
                    self._whole = who
        if parts[-1] in _TABLE.path_folders:
            for path, who in _TABLE.paths:
                above, _, name = path.rpartition("/")
                if f"/{folder}".endswith(f"/{above}"):
                    self._others.append((name, who))

    def by(self, name: str) -> str | None:
        """Return which program obeys a file; None: none that is known.

        It is the subject of a sentence: "an editor", "git, or what runs its hooks,".
        """
        who = _TABLE.of_name(name)
        if who is None:
            who = self._whole
        if who is None and self._others:
            fits = (who for other, who in self._others if _fits(name, other))
            who = next(fits, None)
        return who or None

    def through(self, name: str) -> str | None:
        """Return which program obeys what a link of this name leads to, as `by`: a file, or a folder with files that it
        obeys."""
        if who := self.by(name):
            return who
        path = f"/{self._folder}/{name}"
        return next((who for way, who in _TABLE.ways.get(name, ()) if path.endswith(f"/{way}")), None)


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def described(project: str, path: str, who: str, *, since: str = "") -> str:
    """Return what a finding says of a new or changed file that `who` obeys, with the command that shows the difference.

    `path` is relative to `project`. `since` is the commit at launch, where git knew the file: an agent may have
    committed it since. It is compared with the file itself, since the index may say of a changed file that it is not.
    Empty: git did not know it, and the command shows the content. There is no command where the line of the finding,
    which begins with the path, would be longer than FINDING_CHARS_MAX or could not be printed as it is.
    """
    text = f"is new or changed, and {who} obeys it"
    file = f"{project}/{path}"
    diff = f"git -C {quoted(project)} diff {quoted(f'{since}:{path}')} -- {quoted(path)}"
    shows = diff if since else f"cat -v {quoted(file)}"
    whole = f"{text}: {shows}"
    is_whole = shows.isprintable() and len(f"{named(file)}: {whole}") <= FINDING_CHARS_MAX
    return whole if is_whole else text
