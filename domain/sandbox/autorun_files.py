"""Files of a project that programs of the host obey: what an agent writes there, a person's next command runs.

A pattern is the end of a path, at any depth: `name`, `folder/name`, `folder/` for all that lies below such a folder,
`name*` and `*.ending` for the last part. Harmless twins (`.env.example`) are patterns of nobody's.
"""

from __future__ import annotations

from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import named

FINDING_CHARS_MAX = 400
OF_OTHERS = frozenset(("node_modules", "site-packages", "dist-packages", "__pycache__"))
OF_JUPYTER = "/share/jupyter/labextensions"  # where pip installs extensions, each with its package.json

NOBODY = ""
ANY_CASE = ("justfile", ".justfile", "gruntfile.", "gulpfile.")  # just, grunt and gulp look for these in any case
GIVEN_ALL = "a command that is given *"  # as `tar cf x *`: it takes such names for options; some run things
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@()+-")
_AGENTS = """
    .adal/ .agent/ .agents/ .aider-desk/ .aider.conf.yaml .aider.conf.yml .amazonq/ .amp/ .augment/ .autohand/ .bob/
    .cline/ .clinerules .clinerules/ .codebuddy/ .codewhale/ .commandcode/ .continue/ .cortex/ .crush.json .crush/
    .cursor-plugin/ .cursor/ .cursorrules .devin/ .factory/ .forge/ .gemini/ .goose/ .goosehints .grok/ .hermes/
    .iflow/ .junie/ .kilocode/ .kiro/ .kode/ .lingma/ .minimax/ .mux/ .neovate/ .ona/ .openhands/ .pochi/ .posit/
    .qoder/ .qwen/ .roo/ .roomodes .roorules* .rovodev/ .rules .tabnine/ .trae/ .vibe/ .warp/ .windsurf/
    .windsurfrules .zcode/ .zencoder/ AGENT.md AGENTS.md CONVENTIONS.md GEMINI.md QWEN.md SKILL.md WARP.md
    crush.json mcp.json
    .aiassistant/ .aider.model.* .augment-guidelines .beads/config* .beads/hooks/ .conductor/ .container-use/
    .entire/settings* .firebender/ .kilocodemodes .kilocoderules* .kimi/ .letta/ .pr_agent.toml .qodo/ .ruler/ .serena/
    .superset/ .voidrules conductor.json firebender.json gptme.toml replit.md
    .specify/
"""  # of agents that are no harness, and of any
_OF_HARNESSES = [pattern for harness in HARNESSES for pattern in harness.autorun_files]
OBEYED = {
    NOBODY: ".env.dist .env.example .env.sample .env.template",
    GIVEN_ALL: "-*",
    "direnv, or what else loads an environment,": """
        .autoenv .autoenv.zsh .autoenv_leave.zsh .direnv/ .env .env.* .envrc .envrc.* .mise.toml .mise.*.toml .mise/
        .prototools .rbenv-vars .rtx.toml .rvmrc .tool-versions mise.toml mise.*.toml mise/conf.d/ mise/config*
        devbox.json devenv.nix devenv.yaml devenv.local.* flake.nix default.nix pixi.toml shell.nix .flox/ .sdkmanrc
        .shadowenv.d/ bin/activate-hermit .mise-tasks/ mise-tasks/ mise/tasks/
        .aqua.y* .corepack.env .fvm/ .fvmrc .pkgx.y* .vfox.toml aqua.y* bin/hermit fnox.toml guix.scm
        manifest.scm pkgx.y* vfox.toml
        .flaskenv .miserc.toml .overmind.env .quartenv .sops.y* pitchfork.toml
        devbox.lock flake.lock pixi.lock
    """,
    "an agent": " ".join(dict.fromkeys((*_AGENTS.split(), *_OF_HARNESSES))),
    "an editor": """
        *.code-workspace *.sublime-project .ccls .clangd .classpath .dir-locals.el .dir-locals-2.el .exrc
        .externalToolBuilders/ .factorypath .fleet/ .helix/ .idea/ .kakrc.local .kateconfig .kateproject .lapce/
        .lazy.lua .lite_project.lua .local.vimrc .luarc.json .lvimrc .metals/ .neoconf.json .nova/ .nvim.lua .nvim/
        .nvimrc .phpactor.json .phpactor.yml .project .projectile .run/ .settings/ .solargraph.yml
        .theia/ .vim/ .vimrc .vimspector.json .vs/ .vscode/c_cpp_properties* .vscode/cmake* .vscode/extensions*
        .vscode/launch* .vscode/mcp* .vscode/settings* .vscode/tasks* .ycm_extra_conf.py .zed/ _vimrc nbproject/
        .devcontainer/ .devcontainer.json devcontainer.json .gitpod.yml .gitpod.Dockerfile .replit replit.nix .bsp/
        .clj-kondo/ .lsp/config.edn .merlin .ruby-lsp/ .tern-project hie.yaml rust-analyzer.toml
        .elp.toml .emacs.desktop .idx/ .luarc.jsonc .nlsp-settings/ .sourcekit-lsp/ .vscode-test.* .vscode/sftp* *.Rproj
        Session.vim Steepfile analysis_options.yaml buildServer.json erlang_ls.* graphql.config.* .graphqlrc* ols.json
        *.geany *.iml *.ipr *.iws *.kdev4 *.uproject *.user .cproject .kdev4/ .obsidian/community-plugins.json
        .obsidian/plugins/ .pydevproject Packages/manifest.json Properties/launchSettings.json logseq/config.edn
        logseq/custom.js platformio.ini project.godot
        .gvimrc .vscode/arduino.json *.Build.cs *.Target.cs *.uplugin rust-project.json
        .mc.menu .projections.json .ropeproject/config.py .yarn/sdks/ PSScriptAnalyzerSettings.psd1 gtags.conf
        omnisharp.json
    """,
    "git, or what runs its hooks,": """
        .gitattributes .githooks/ .git-hooks/ .gitmodules .husky/ .huskyrc* .lefthook.* .lfsconfig .lintstagedrc*
        .overcommit.yml .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml commitlint.config.*
        .commitlintrc* hk.pkl lefthook.* lefthook-local.* lint-staged.config.* .simple-git-hooks.* simple-git-hooks.*
        captainhook.json grumphp.yml grumphp.yml.dist prek.toml
        .bumpversion.* .changeset/config.json .cz.* .cz-config.* .czrc .gitlint .hooks/ .mrconfig .trunk/ .versionrc*
        cliff.toml cz.json cz.toml githooks/
        .arcconfig .arclint .arcunit .gitman.yml .gitreview .lazygit.yml .mailmap .reviewboardrc gitman.yml
        .blackbox/ .gitsecret/ .jira.d/
    """,
    "another version control system": """
        .bzr/branch/branch.conf .hg/hgrc .hg/hgrc-not-shared .hg/requires .hg/sharedpath .jj/repo .jj/repo/config-id
        .jj/repo/config.toml .jj/repo/store/git_target .jj/workspace-config-id .jj/workspace-config.toml .p4config
        .pijul/config .sl/config .sl/sharedpath _darcs/prefs/
        .fossil-settings/ .fslckout CVS/Root _FOSSIL_
        .datalad/ .dvc/config* .repo/local_manifests/ .repo/manifest.xml .repo/repo/
    """,
    "a debugger or an interpreter": """
        .RData .Renviron .Rprofile .gdbinit .ghci .iex.exs .irbrc .jupyter/ .lldbinit .ocamlinit .octaverc .pdbrc
        .pdbrc.py .pryrc .rdebugrc .rspec *.pth sitecustomize.py startup.m usercustomize.py .byebugrc .perldb
        .radian_profile .rdbgrc .user.ini ipython_config.py jupyter_*_config.json jupyter_*_config.py
        .erlang .ghcid .htaccess .psysh.php renv/activate.R renv/settings*
        .config/irb/irbrc .ghc.environment.* .jupytext.py .luarocks/config* .nrepl.edn _irbrc irb.rc user.clj
        .valgrindrc login.sql
    """,
    "a package manager": """
        *.gemspec *.nimble *.podspec .bundle/config .cargo/config .cargo/config.toml .npmrc .pnpmfile.cjs .pnpmfile.mjs
        .yarn/plugins/ .yarn/releases/ .yarnrc .yarnrc.yml Brewfile Cargo.toml Gemfile NuGet.config Package.swift
        Pipfile Podfile bb.edn build.rs bunfig.toml composer.json conanfile.py config.nims deno.json deno.jsonc deps.edn
        dub.json dub.sdl gems.rb hatch.toml mix.exs nim.cfg nuget.config package.json pip.conf pnpm-workspace.yaml
        poetry.toml project.clj pyproject.toml rebar.config rebar.config.script rust-toolchain rust-toolchain.toml
        setup.cfg setup.py shadow-cljs.edn shard.yml uv.toml .pnp.cjs .pnp.loader.mjs environment.yml requirements*.txt
        .pdm-python .pdm.toml .python-version .python-versions package.json5 package.yaml pdm.toml
        *.asd *.gyp *.gypi *.opam *.rockspec *.sln *.slnx .ncurc* .pixi/config.toml Cartfile Mintfile Project.toml
        cabal.project* constraints*.txt dotnet-tools.json environment.yaml global.json gradle/libs.versions.toml
        melos.yaml profiles.clj pubspec.yaml pubspec_overrides.yaml requirements*.in requirements/base*
        requirements/dev* requirements/prod* requirements/test* vcpkg*.json vlt.json
        alire.toml
        *.cabal .bowerrc .bundle/plugin/ .chezmoiexternal* .chezmoiscripts/ .stowrc Cask Eask Easkfile Eldev Eldev-local
        JuliaProject.toml NuGet.Config buildout.cfg go.mod go.work
        .paket/ jbang-catalog.json paket.dependencies yarn.config.cjs
    """,
    "a build": """
        *.bzl *.cmake *.csproj *.fsproj *.gradle *.gradle.kts *.mk *.pri *.props *.sbt *.targets *.tf *.tofu *.vbproj
        *.vcxproj .air.toml .bazelrc .bazeliskrc .goreleaser.* .jvmopts .latexmkrc .mvn/ .sbtopts BUCK BUILD BUILD.bazel
        CMakeLists.txt CMakePresets.json CMakeUserPresets.json Capfile Containerfile Dangerfile Directory.Build.*
        Dockerfile Dockerfile.* Earthfile GNUmakefile Guardfile MODULE.bazel Makefile Makefile.*
        Procfile Rakefile SConstruct SConscript Setup.hs Snakefile Taskfile.* Thorfile Tiltfile Trunk.toml Vagrantfile
        WORKSPACE WORKSPACE.bazel angular.json ansible.cfg autogen.sh build.cake build.mill build.sc build.xml
        cdk.json compose.yaml compose.yml compose.*.yaml compose.*.yml configure configure.ac
        docker-bake.* docker-compose.* dodo.py fabfile.py fastlane/ firebase.json gradle.properties gradlew gradlew.bat
        gulpfile.* justfile .justfile latexmkrc magefile.go makefile meson.build mvnw mvnw.cmd netlify.toml noxfile.py
        nx.json pom.xml premake5.lua project.json serverless.* skaffold.yaml stack.yaml taskfile.* tasks.py
        tools/bazel turbo.json wrangler.* wscript xmake.lua *.gni .bazelversion .buckconfig* .ddev/
        .gclient .gn .lando.* .mill-jvm-opts .mill-opts .nodemonrc .pants.rc .plzconfig* .sbtrc .tmuxinator.yml .tmuxp.*
        BUILD.gn DEPS Procfile.* Pulumi.yaml Tupfile gradle/wrapper/ lakefile.* mill mkdocs.yml mprocs.yaml nodemon.json
        pants.toml pleasew process-compose.* .actrc .moon/ Build.PL Cross.toml Tauri.toml bacon.toml cpanfile dune
        dune-project dune-workspace dvc.yaml helmfile.* lage.config.* lerna.json magefiles/ moon.yml nextflow.config
        rush.json tauri.conf.json tauri.*.conf.json
        *.gpr *.hcl *.hxml *.just *.nix *.pro *.prf *.qbs *.runsettings *.spec *.wrap Cakefile Envoy.blade.php Jakefile*
        Pulumi.*.yaml RoboFile.php _config.yml _quarto.y* alchemy.run.* book.toml build-logic/ buildSrc/
        capacitor.config.* castor.php .castor/ cdktf.json doc/conf.py docs/conf.py docs/source/conf.py dbt_project.yml
        deploy.php devspace.yaml dist.ini
        ecosystem.config.* garden.y* gradle/gradle-daemon-jvm.properties gradle/verification-metadata.xml hugo.json
        hugo.toml hugo.yaml
        kitchen.y* .kitchen.* local.properties mkdocs.yaml okteto.y* pavement.py pelicanconf.py plopfile.*
        podman-compose.* profiles.yml project/build.properties react-native.config.* sst.config.* vercel.json vercel.ts
        zensical.toml build.zig*
        .arararc.yaml .llmk.toml .west/config Tectonic.toml arararc.yaml llmk.toml west.yml
        *.Dockerfile *.dockerfile *.jam *.ninja *.nim.cfg *.nims *.prisma *.proj *.rake *.tf.json *.tofu.json
        .adonisrc* .aspect/ .chef/ .dumirc* .fatherrc* .gradle/config.properties .hygen.js .ko.y*
        .pants.bootstrap .projen/ .projenrc* .smug.yml .umirc* .vitepress/config* .vitepress/theme/ .vuepress/
        Containerfile.* Emakefile Jamfile* Jamroot* Kbuild Kconfig* MLproject PKGBUILD Rakefile.rb
        SConstruct.py Saltfile Sconstruct* Setup.lhs Tupfile.lua Tuprules.* _targets.R adonisrc.*
        antora-playbook.* azure.yaml buf.gen.* build.boot build.config.* build.lua build.yaml codegen.js
        codegen.json codegen.ts codegen.y* config.ld config.ru config/config.exs config/runtime.exs dagger.json
        debian/rules dockerfile flyway.conf flyway.toml gruntfile.* install.conf.yaml invoke.json invoke.py
        invoke.y* jakefile* just.config.* liquibase.properties mkosi.* modd.conf myocamlbuild.ml myst.yml
        nbb.edn nest-cli.json observablehq.config.* openocd.cfg premake4.lua project.scala rakefile rakefile.rb
        sconstruct* site_scons/ snakefile snapcraft.y* sqitch.conf sqlc.* supervisord.conf tsconfig*.json
        turbo.jsonc vagrantfile wscript_*
        *.build.ps1 *.esproj *.mak *.mill *.pyproj *.shproj *.sqlproj *.wixproj .bloop/ .depend .electron-builder.*
        .foreman .qmake.conf .realize.y* Anchor.toml BSDmakefile aclocal.m4 alembic.ini bleep.yaml
        bsconfig.json config-overrides.js configure.in dist-workspace.toml electron-builder.* fabric.y* foundry.toml
        hardhat.config.* maskfile.md phinx.* ponder.config.* project/*.scala psakefile.ps1 release.toml rescript.json
        snowpack.config.* stencil.config.* truffle-config.* wagmi.config.* webpack.mix.js
    """,
    "a linter or a test runner": """
        .babelrc* .coveragerc .credo.exs .erb_lint.yml .eslintrc* .flake8 .formatter.exs .golangci.* .luacheckrc
        .mocharc* .mypy.ini .nycrc* .php-cs-fixer.php .php-cs-fixer.dist.php .prettierrc* .proverc .pylintrc .releaserc*
        .rubocop.yml .stylelintrc* .swcrc astro.config.* ava.config.* babel.config.* conftest.py craco.config.*
        cypress.config.* drizzle.config.* eslint.config.* jest.config.* karma.conf.* knexfile.* metro.config.* mypy.ini
        next.config.* nuxt.config.* phpstan.neon phpstan.neon.dist phpunit.xml playwright.config.* postcss.config.*
        prettier.config.* pylintrc pytest.ini release.config.* rollup.config.* rspack.config.* stylelint.config.*
        svelte.config.* tailwind.config.* tox.ini tsup.config.* vite.config.* vitest.config.* vue.config.* wdio.conf.*
        webpack.config.* .lintr .phan/ .pylintrc.toml .simplecov ecs.php gunicorn.conf.py phpcs.xml phpcs.xml.dist
        psalm.xml psalm.xml.dist pylintrc.toml rector.php .eleventy.js docusaurus.config.* electron.vite.config.*
        eleventy.config.* ember-cli-build.js forge.config.* gatsby-*.js quasar.config.* remix.config.* rsbuild.config.*
        uno.config.* wxt.config.*
        .config/nextest.toml .cspell.config.* .markdownlint-cli2.* .oxlintrc.json .pytest.ini .pytest.toml
        .storybook/ cspell.config.* oxlint.config.* pytest.toml tox.toml vitest.workspace.*
        .ansible-lint .checkov.y* .dependency-cruiser.* .dprint.json* .haml-lint.yml .knip.* .lighthouserc* .nuxtrc
        .parcelrc .php_cs .php_cs.dist .postcssrc* .pyre_configuration .release-it.* .remarkrc* .sequelizerc
        .size-limit.* .slim-lint.yml .sqlfluff .standard.yml .svgrrc* .testcaferc* .textlintrc* .yardopts
        babel-plugin-macros.config.* behat.yml behat.yml.dist codecept.conf.* codeception.yml contentlayer.config.*
        dprint.json* esbuild.config.* farm.config.* knip.* kysely.config.* lighthouserc.* lingui.config.* locustfile.py
        mikro-orm.config.* modern.config.* nightwatch.conf.* nitro.config.* nyc.config.* openapi-ts.config.* ormconfig.*
        orval.config.* panda.config.* payload.config.* phpstan.dist.neon playwright-ct.config.* prisma.config.*
        pyrefly.toml react-router.config.* robot.toml rolldown.config.* rslib.config.* rspress.config.* sanity.cli.*
        sanity.config.* svgo.config.* tsdown.config.* typedoc.* unocss.config.* velite.config.* web-test-runner.config.*
        .busted .detoxrc* .ember-cli* .htmlvalidate* .luacov .markdownlint.* .phpcs.xml .phpcs.xml.dist .rspec-local
        .scalafix.conf .syncpackrc* .taprc .template-lintrc.* .xo-config* apollo.config.* asv.conf.json cucumber.*
        dart_test.yaml infection.json* phpbench.json* phpspec.y* phpunit.dist.xml phpunit.xml.dist relay.config.*
        testem.* tests.edn tslint.json wallaby.* xo.config.*
        .autotest .check.exs .dialyzer_ignore.exs .jsdoc.* .mutant.yml .noserc .prospector.y* .rubocop
        .rubocop_todo.yml .solcover.js jest-preset.* jest-puppeteer.config.* jsdoc.json mutant.yml nose.cfg nose2.cfg
        prospector.y* protractor.conf.* unittest.cfg
    """,
    "continuous integration": """
        .buildkite/ .circleci/ .drone.yml .github/actions/ .github/workflows/ .gitlab-ci.yml .travis.yml .woodpecker/
        .woodpecker.yml Jenkinsfile azure-pipelines* bitbucket-pipelines.yml
        .appveyor.yml .build.yml .builds/ .cirrus.star .cirrus.yml .drone.jsonnet .drone.star .forgejo/workflows/
        .gitea/workflows/ .gitlab/ .harness/ .mergify.yml .readthedocs.y* .renovaterc* .semaphore/ .teamcity/ .tekton/
        appveyor.yml bitrise.yml buildspec.y* cloudbuild.y* codemagic.yaml renovate.json*
        .azure-pipelines/ .copr/ .packit.y* .taskcluster.yml .vela.y* .zuul.y* Jenkinsfile.* action.y* zuul.d/
    """,
}


class _Table:
    """The patterns by what is looked up: most files of a project are in none, and cost a few lookups."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.endings: dict[str, str] = {}
        self.folders: dict[str, list[tuple[str, str]]] = {}  # by the last part: the folder's path, who
        self.paths: list[tuple[str, str]] = []  # the end of a path with folders, "*" in its name for any
        self.beginnings: dict[str, list[tuple[str, str]]] = {}  # by the first two characters, or the only one
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
        if is_option(name):
            return GIVEN_ALL
        if name.lower().startswith(ANY_CASE):
            name = name.lower()
        who = self.names.get(name)
        return who if who is not None else self._by_part(name)

    def _by_part(self, name: str) -> str | None:
        for start in (name[:2], name[:1]):
            for pattern, who in self.beginnings.get(start, ()):
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


def is_option(name: str) -> bool:
    """Return whether a command that is given `*` takes a name for an option.

    Most take one that begins with a hyphen; less and vim take what follows a plus sign for a command of theirs, which
    runs others by `!` (`+!sh x`). A word alone (`+page.svelte`) does not.
    """
    return name[:1] == "-" or (name[:1] == "+" and not _WORD.issuperset(name))


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
    beginning, star, ending = pattern.partition("*")
    return name.startswith(beginning) and name.endswith(ending) if star else name == pattern


def described(project: str, path: str, who: str, *, since: str = "", is_forged: bool = False) -> str:
    """Return what a finding says of a new or changed file that `who` obeys, with the command that shows the difference.

    `path` is relative to `project`. `since` is the object that git had for it at launch, by its whole name: an agent
    may have committed it since, and may call a branch like the beginning of an object's name. It is compared with the
    file itself, and not by git: the index may say of a changed file that it is not, and by attributes (`ident`, `-diff`
    or `filter`) git compares something else. Empty: git did not know it, or its object is not what its name says
    (`is_forged`), and the command shows the content. There is no command where the line of the finding, which begins
    with the path, would be longer than FINDING_CHARS_MAX.
    """
    text = f"is new or changed, and {who} obeys it"
    text += "; git's copy of it was changed, too, or cannot be read (git fsck)" if is_forged else ""
    file = f"{project}/{path}"
    diff = f"git -C {quoted(project)} show {since} | diff -u - {quoted(file)} | cat -v"
    shows = diff if since else f"cat -v {quoted(file)}"
    whole = f"{text}: {shows}"
    return whole if len(f"{named(file)}: {whole}") <= FINDING_CHARS_MAX else text


def describe_group(folder: str, files: int, who: str) -> str:
    """Return what is said of many new files of a folder that `who` obeys, with the command that shows all files of it,
    as `described` has one."""
    text = f"{files} files are new or changed, and {who} obeys them"
    whole = f"{text}: find {quoted(folder)} -maxdepth 1 -ls -type f -exec grep -aH '' {{}} + | cat -v"
    return whole if len(f"{named(folder)}: {whole}") <= FINDING_CHARS_MAX else text


def describe_build(files: int, who: str) -> str:
    """Return what is said of new files all over a build folder that `who` obeys. No command shows as much."""
    return f"{files} files of this build folder are new or changed, and {who} obeys them"
