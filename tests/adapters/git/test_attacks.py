"""Files that a program leaves in a repository for the host's git to run, read or write through have no effect.

Every attack works where nothing protects the host, so that its failure means something.
"""

import os
import subprocess
from pathlib import Path

import pytest
from adapters.git.boxed import host, run_inside
from tiers import spread

from adapters.git import layouts
from omac.adapters.git.layout import GitChoices

# In the scripts: $W the workdir, $G its git folder, $C the common folder, $EVIL a command that the host must not run,
# $VICTIM a file of the host that must not change. What a script cannot do it does not do.
EVIL_CONFIG = 'git config -f {0} core.repositoryformatversion 0; git config -f {0} core.fsmonitor "$EVIL"'
EVIL_FOLDER = (
    'git init -q --bare {0}; git config -f {0}/config core.bare false; git config -f {0}/config core.fsmonitor "$EVIL"'
)
GITLINK = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),{0}"

EXECUTING = {
    "hook": "mkdir -p $C/hooks; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > $C/hooks/pre-commit; "
    "chmod +x $C/hooks/pre-commit",
    "hooks-moved": "mv $C/hooks $C/h2; mkdir $C/hooks; printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > $C/hooks/post-commit;"
    " chmod +x $C/hooks/post-commit",
    "config": 'git config core.fsmonitor "$EVIL"; git -C $C config core.fsmonitor "$EVIL"; '
    + EVIL_CONFIG.format("$C/config"),
    "config-moved": "cp $C/config $C/c2; " + EVIL_CONFIG.format("$C/c2") + "; mv -f $C/c2 $C/config",
    "config-linked": "cp $C/config $W/c2; " + EVIL_CONFIG.format("$W/c2") + "; ln -sf $W/c2 $C/config",
    "config-include": "rm -f $C/config; printf '[include]\\npath = %s\\n' $W/evil >> $C/config; "
    + EVIL_CONFIG.format("$W/evil"),
    "worktree-config": 'git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$EVIL"; '
    + EVIL_CONFIG.format("$G/config.worktree"),
    "dot-replaced": EVIL_FOLDER.format("$W/e") + "; mv $W/.git $W/.g2 || rm -f $W/.git; mv $W/e $W/.git",
    "dot-redirected": EVIL_FOLDER.format("$W/e") + "; mv $W/.git $W/.g2; echo gitdir: $W/e > $W/.git",
    "commondir": EVIL_FOLDER.format("$W/e") + "; cp -r $C/refs $C/objects $W/e/; echo $W/e > $G/commondir",
    "commondir-moved": EVIL_FOLDER.format("$W/e") + "; echo $W/e > $G/cd; mv -f $G/cd $G/commondir",
    "nested": 'git init -q n; git -C n commit -q --allow-empty -m x; git -C n config core.fsmonitor "$EVIL"; '
    + GITLINK.format("n"),
    "nested-deep": "mkdir -p a1/b/c; git init -q a1/b/c/n; git -C a1/b/c/n commit -q --allow-empty -m x;"
    ' git -C a1/b/c/n config core.fsmonitor "$EVIL"',
    "nested-pointer": EVIL_FOLDER.format("$W/e")
    + "; mkdir n; echo gitdir: ../e > n/.git; git -C n config core.worktree $W/n",
    "nested-link": EVIL_FOLDER.format("$W/e") + "; mkdir n; ln -s ../e n/.git",
    "nested-hook": "git init -q n; mkdir -p n/.git/hooks; "
    "printf '#!/bin/sh\\n%s\\n' \"$EVIL\" > n/.git/hooks/pre-commit;"
    " chmod +x n/.git/hooks/pre-commit",
    "nested-include": "git init -q n; " + EVIL_CONFIG.format("n/evil") + "; git -C n config include.path ../evil",
    "nested-filter": "git init -q n; cd n; echo '* filter=f' > .gitattributes; echo x > x; git add .; "
    "git commit -q -m x; touch -d 2001-01-01 x;"
    ' git config filter.f.clean "$EVIL; cat"',
    "nested-alias": 'git init -q n; git -C n config alias.canary "!$EVIL"',
    "nested-commondir": EVIL_FOLDER.format("$W/e") + "; git init -q n; echo ../../e > n/.git/commondir",
    "bare": 'git init -q --bare n; git -C n config core.fsmonitor "$EVIL"; git -C n config core.bare false;'
    " git -C n config core.worktree $W/n",
    "bare-redirected": EVIL_FOLDER.format("$W/e") + "; git -C e config core.worktree $W/n; mkdir n;"
    " echo ref: refs/heads/x > n/HEAD; echo ../e > n/commondir",
    "rebase-todo": "mkdir $G/rebase-merge; cd $G/rebase-merge; "
    "git rev-parse HEAD | tee onto orig-head > stopped-sha; echo refs/heads/x > head-name;"
    ' touch interactive done; echo 1 > msgnum; echo 1 > end; echo "exec $EVIL" > git-rebase-todo',
}
LAYOUTS = {
    "plain": layouts.plain,
    "linked": layouts.linked,
    "separate": layouts.separate,
    "bare-main": layouts.bare_main,
}
RARER = ("separate", "bare-main")


class Scene:
    """A layout with a victim beside it."""

    def __init__(self, base: Path, builder: layouts.Builder) -> None:
        self.base = base
        self.home = base / "home"
        self.home.mkdir()
        self.workdir = builder(base, self.home)
        self.canary = base / "canary"
        self.victim = base / "victim"
        self.victim.write_text("precious\n")
        self.git = Path(self._say("--absolute-git-dir"))
        self.common = Path(os.path.normpath(self.workdir / self._say("--git-common-dir")))
        self.environment = {
            "EVIL": f"touch {self.canary}",
            "VICTIM": str(self.victim),
            "W": str(self.workdir),
            "G": str(self.git),
            "C": str(self.common),
        }

    def attack(self, script: str, *, protected: bool = True, choices: GitChoices | None = None) -> list[str]:
        """Run an attack, protected or with everything writable; return the paths of files that were set aside."""
        outcome = run_inside(
            self.workdir,
            script,
            home=self.home,
            choices=choices,
            swept=protected,
            instead=None if protected else self.base,
            environment=self.environment,
        )
        self.canary.unlink(missing_ok=True)
        return outcome.moved()

    def use(self) -> None:
        """Run the commands of a person after the attack, in the worktree and in every folder of it."""
        for path, folders, _files in os.walk(self.workdir):
            folders[:] = [name for name in folders if name not in (".git", "objects", "refs", ".g2")]
            self.run("status", cwd=Path(path))
        for argv in (
            ("log", "-1"),
            ("diff",),
            ("canary",),
            ("add", "-A"),
            ("commit", "--allow-empty", "-m", "x"),
            ("tag", "-f", "z"),
        ):
            for folder in (self.workdir, self.workdir / "n"):
                if folder.is_dir():
                    self.run(*argv, cwd=folder)
        self.run("rebase", "--continue", cwd=self.workdir)
        self.run("status", cwd=self.workdir)

    def run(self, *argv: str, cwd: Path, seconds: float = 60.0) -> str:
        try:
            return host("git", *argv, cwd=cwd, home=self.home, check=False, seconds=seconds)
        except subprocess.TimeoutExpired:
            return "hangs"

    def _say(self, what: str) -> str:
        return host("git", "rev-parse", what, cwd=self.workdir, home=self.home).strip()


@pytest.mark.parametrize(("name", "layout"), spread(EXECUTING, ["plain", "linked", *RARER]))
def test_nothing_runs_on_the_host(name: str, layout: str, tmp_path: Path) -> None:
    """The host's git does not run the attacker's command, wherever it is used after the attack."""
    scene = Scene(tmp_path, LAYOUTS[layout])
    scene.attack(EXECUTING[name])
    scene.use()
    assert not scene.canary.exists()
    assert "third" in scene.run("log", "--format=%s", cwd=scene.workdir)


@pytest.mark.full
@pytest.mark.parametrize("name", EXECUTING)
def test_what_would_run_without(name: str, tmp_path: Path) -> None:
    """Each attack has the host's git run the attacker's command where nothing protects the host."""
    linked_only = name in ("dot-redirected",)
    scene = Scene(tmp_path, layouts.linked if linked_only else layouts.plain)
    scene.attack(EXECUTING[name], protected=False)
    scene.use()
    assert scene.canary.exists()


WRITING = {
    "message": "ln -sf $VICTIM $G/COMMIT_EDITMSG",
    "message-hard": "ln -f $VICTIM $G/COMMIT_EDITMSG",
    "log": "ln -sf $VICTIM $G/logs/HEAD",
    "log-of-branch": "for f in $C/logs/refs/heads/*; do ln -sf $VICTIM $f; done",
    "tags": "rm -rf $C/refs/tags; ln -s $(dirname $VICTIM) $C/refs/tags",
    "logs-folder": "rm -rf $G/logs; ln -s $(dirname $VICTIM) $G/logs",
    "fifo": "rm -f $G/COMMIT_EDITMSG; mkfifo $G/COMMIT_EDITMSG",
}


HANGS_AFTER_S = 3.0  # where it is expected to


@pytest.mark.parametrize("layout", ["plain", "linked"])
@pytest.mark.parametrize("name", WRITING)
def test_the_host_writes_through_no_link(name: str, layout: str, tmp_path: Path) -> None:
    """The host's next commit and tag write through no link or FIFO among git's files, and do not hang."""
    scene = Scene(tmp_path, LAYOUTS[layout])
    before = sorted(os.listdir(tmp_path))
    scene.attack(WRITING[name])
    assert not _harmed(scene, before)


@pytest.mark.full
@pytest.mark.parametrize("name", WRITING)
def test_the_host_would_write_through_them(name: str, tmp_path: Path) -> None:
    """The host's next commit and tag change other files, or hang, where nothing protects it from links and FIFOs."""
    scene = Scene(tmp_path, layouts.plain)
    before = sorted(os.listdir(tmp_path))
    scene.attack(WRITING[name], protected=False)
    assert _harmed(scene, before, HANGS_AFTER_S)


def _harmed(scene: Scene, before: list[str], seconds: float = 60.0) -> bool:
    output = scene.run("commit", "--allow-empty", "-m", "x", cwd=scene.workdir, seconds=seconds)
    output += scene.run("tag", "z", cwd=scene.workdir, seconds=seconds)
    now = sorted(os.listdir(scene.base))
    return "hangs" in output or scene.victim.read_text() != "precious\n" or now != before


SHOWING = {
    "alternates": "mkdir -p $C/objects/info; echo $W/o > $C/objects/info/alternates; mkdir o; "
    "cp -r $C/objects/?? o/; rm -rf $C/objects/??",
    "attributes": "mkdir -p $C/info; echo '* -diff' > $C/info/attributes; echo '* -diff' > $C/info/a; "
    "mv -f $C/info/a $C/info/attributes",
    "replace": "git replace HEAD HEAD~1; mkdir -p $C/refs/replace; "
    "git rev-parse HEAD~1 > $C/refs/replace/$(git rev-parse HEAD)",
}


@pytest.mark.parametrize("layout", ["plain", "linked", "separate"])
@pytest.mark.parametrize("name", ["attributes", "replace"])
@pytest.mark.parametrize("protected", [True, False])
def test_the_host_sees_what_is_there(name: str, layout: str, protected: bool, tmp_path: Path) -> None:
    """Attributes beside the tree and replaced objects cannot hide changes from the host's git."""
    scene = Scene(tmp_path, LAYOUTS[layout])
    before = scene.run("show", "HEAD", cwd=scene.workdir)
    scene.attack(SHOWING[name], protected=protected)
    assert (scene.run("show", "HEAD", cwd=scene.workdir) == before) is protected


@pytest.mark.parametrize("layout", ["plain", "linked", "separate"])
@pytest.mark.parametrize("protected", [True, False])
def test_objects_come_from_nowhere_else(layout: str, protected: bool, tmp_path: Path) -> None:
    """A program cannot name another folder for objects: the host's git fails on objects that were moved there."""
    scene = Scene(tmp_path, LAYOUTS[layout])
    scene.attack(SHOWING["alternates"], protected=protected)
    assert ("fatal" in scene.run("show", "HEAD", cwd=scene.workdir)) is protected


@pytest.mark.parametrize(
    "command", ["ln -s x {}", "mkfifo {}", "python3 -c 'import socket; socket.socket(1).bind(\"{}\")'"]
)
def test_the_fence(command: str, tmp_path: Path) -> None:
    """A program can make links, FIFOs and sockets in the tree of a linked worktree, but not in git's folders."""
    scene = Scene(tmp_path, layouts.linked)
    for folder in (scene.git, scene.common / "refs", scene.common / "logs", scene.common / "objects"):
        inside = run_inside(
            scene.workdir, f"cd {folder}; {command.format('x9')}; mkdir -p d; mv d d2; rmdir d2", home=scene.home
        )
        assert not os.path.lexists(folder / "x9")
        assert inside.moved() == []
    run_inside(scene.workdir, command.format("x9"), home=scene.home)
    assert os.path.lexists(scene.workdir / "x9")
