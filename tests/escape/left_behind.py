"""Deeds of an agent in a project where a person then goes on working, and a check that they run nothing on the host.

A deed is a shell script. Done inside `omac sandbox run`, it must have no effect when the person afterwards types the
commands in HOST; done on the host without omac (the twin), it must have one, or the deed shows nothing. An effect is a
mark (which the planted program makes), a changed file outside the project, or the deed's own condition `wrong`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from real_sandbox import Box, Done, box

WITHIN_S = 60  # the longest that anything here takes
FINDINGS_MAX = 20  # that a launch prints
DATES = {"GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}

# What a person types after a session, each command on its own, in an order in which the one does not hinder the other.
HOST = {
    "prompt": "git rev-parse --git-dir --is-inside-git-dir --is-bare-repository --is-inside-work-tree --short HEAD;"
    " git symbolic-ref HEAD; git diff --no-ext-diff --quiet; git diff --no-ext-diff --cached --quiet;"
    " git rev-list --count --left-right @{upstream}...HEAD; git status --porcelain=v2 --branch",
    "status": "git status",
    "diff": "git diff",
    "log": "git log -3 --stat; git stash list",
    "rebase": "git rebase --continue",
    "cherry-pick": "git cherry-pick --continue",
    "checkout": "git checkout .",
    "restore": "git restore .",
    "stash": "echo more >> README; git stash; git stash pop",
    "commit": "git commit -qm 'by the host' --allow-empty",
    "fetch": "git fetch",
    "submodule": "git submodule update --init",
    "worktrees": "git worktree list; git worktree prune",
    "gc": "git gc -q",
    "maintenance": "git maintenance run; git maintenance run --task=incremental-repack",
}
OFTEN = ("status", "diff", "rebase", "checkout", "stash", "commit", "fetch", "submodule")

# What every deed begins with. MARK: what the planted program makes; H: the home; W: the project.
PRELUDE = r"""
evil() { # an executable file that makes the mark
    mkdir -p "$(dirname "$1")"; printf '#!/bin/sh\ntouch "%s"\n%s\n' "$MARK" "${2:-}" > "$1"; chmod +x "$1"; }
skeleton() { # a git folder $1 as written by hand, whose settings run the program $2 in the worktree $3
    mkdir -p "$1"; echo 'ref: refs/heads/main' > "$1/HEAD"
    printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = %s\n' "$2" > "$1/config"
    [ -z "${3:-}" ] || git config -f "$1/config" core.worktree "$3"; }
gitlink() { # have git go into the folder $1, as into a submodule
    git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),$1"; }
index() { # add PATH=FILE[:x] to the index without a check of the path
    python3 -I -c "$INDEX" "$@"; }
"""
INDEX = """\
import hashlib, struct, subprocess, sys
def git(*words): return subprocess.run(("git", *words), capture_output=True, check=True).stdout
entries = []
for line in git("ls-files", "-s", "-z").split(b"\\0")[:-1]:
    head, path = line.split(b"\\t", 1)
    mode, oid, _stage = head.split()
    entries.append((path, int(mode, 8), bytes.fromhex(oid.decode())))
for word in sys.argv[1:]:
    path, _, file = word.rpartition("=")
    oid = git("hash-object", "-w", file.removesuffix(":x")).decode().strip()
    entries.append((path.encode(), 0o100755 if file.endswith(":x") else 0o100644, bytes.fromhex(oid)))
out = b"DIRC" + struct.pack(">II", 2, len(entries))
for path, mode, oid in sorted(entries):
    entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + oid + struct.pack(">H", min(len(path), 0xfff)) + path
    out += entry + bytes(8 - len(entry) % 8)
with open(git("rev-parse", "--git-path", "index").decode().strip(), "wb") as file:
    file.write(out + hashlib.sha1(out).digest())
"""


class Deed(NamedTuple):
    """A deed of an agent, and the places where it takes effect.

    `does`: a script, or one for each of several launches. `layout`: of LAYOUTS. `where`: the folders in which the
    person then uses git. `commands`: names in HOST. `wrong`: a condition in the project that only the attack makes
    true. `stays`: paths that the end of a launch has no reason to remove. `reported`: omac's report on a deed that it
    leaves in place.
    """

    does: str | tuple[str, ...]
    layout: str = "plain"
    where: tuple[str, ...] = (".",)
    commands: tuple[str, ...] = tuple(HOST)
    wrong: str = "false"
    stays: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    reported: str = ""


class Outcome(NamedTuple):
    """The outcome of a deed; `output` is that of omac, `shown` that of the person's commands."""

    ran: bool
    changed: list[str]
    went_wrong: bool
    missing: list[str]
    output: str
    shown: str

    @property
    def succeeded(self) -> bool:
        """Return whether the attack had any effect."""
        return self.ran or bool(self.changed) or self.went_wrong


class Ground:
    """A person's home with projects in each layout; one for many deeds, renewed for each."""

    def __init__(self, world: Box) -> None:
        self.world = world
        self.home = world.home
        self.project = world.workdir
        self.victim = self.home / "victim"
        self.marks = world.top / "marks"
        self.give_folder(self.marks)
        self.temporary = self.give_folder(world.top / "tmp")

    def give_folder(self, path: Path) -> Path:
        """Create a folder of this user's, with those above it, and return it."""
        path.mkdir(parents=True, exist_ok=True)
        for part in (path, *path.parents):
            if part == self.world.top:
                break
            os.chown(part, self.world.uid, self.world.uid)
        return path

    def renew(self, layout: str) -> None:
        """Restore home, project, marks and state to what they were before anything happened."""
        template = self.world.top / f"template-{layout}"
        if not template.exists():
            self._empty(self.home)
            self.give_folder(self.project)
            self._furnish()
            LAYOUTS[layout](self)
            subprocess.run(["cp", "-a", str(self.home), str(template)], check=True)
        self._empty(self.home, self.marks, self.world.state)
        subprocess.run(["cp", "-a", f"{template}/.", str(self.home)], check=True)

    def _furnish(self) -> None:
        world = self.world
        world.give(self.home / ".gitconfig", '[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n')
        for name in (".profile", ".bashrc"):
            world.give(self.home / name, "# mine\n")
        world.give(self.home / ".ssh" / "config", "Host *\n  ServerAliveInterval 30\n")
        for name in ("package/__init__.py", "package/py.typed"):
            world.give(self.victim / name)
        world.give(self.victim / "package" / "module.py", "keep\n")
        self.give_folder(self.victim / "package" / "empty")
        self.repository(self.victim)
        self.person("git config core.hooksPath .husky", cwd=self.victim, check=True)

    @staticmethod
    def _empty(*folders: Path) -> None:
        for folder in folders:
            subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, stderr=subprocess.DEVNULL)
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    subprocess.run(["rm", "-rf", str(path)], check=True)
                else:
                    path.unlink()

    def repository(self, where: Path, *options: str) -> None:
        """Create a repository with four commits on main."""
        self.give_folder(where)
        script = (
            f"git init -q {' '.join(options)} .; mkdir -p src; echo hi > README; echo x > src/a; git add -A; git commit"
            " -qm first; for i in 2 3 4; do echo $i > f$i; git add f$i; git commit -qm c$i; done"
        )
        self.person(script, cwd=where, check=True)

    def person(
        self, script: str, cwd: Path | None = None, *, check: bool = False, extra: Mapping[str, str] | None = None
    ) -> Done:
        """Run a script that a person types in a shell."""
        environment = DATES | {"GIT_EDITOR": "true", "TMPDIR": str(self.temporary)} | dict(extra or {})
        done = self.world.host("bash", "-c", script, cwd=cwd or self.project, extra=environment, seconds=120)
        assert not check or done.status == 0, done
        return done

    def told(self) -> dict[str, str]:
        """Return the environment variables of a deed."""
        return {
            **DATES,
            "MARK": str(self.marks / "mark"),
            "H": str(self.home),
            "W": str(self.project),
            "INDEX": INDEX,
            "GIT_EDITOR": "true",
        }

    def agent(self, script: str, *, options: Sequence[str] = ()) -> Done:
        """Run a script of the agent's in a sandbox; it may fail in any way but by hanging."""
        words = [word for pair in self.told().items() for word in ("--env", "=".join(pair))]
        try:
            return self.world.run(
                "bash", "-c", PRELUDE + script, options=(*words, *options), workdir=self.project, seconds=60
            )
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"omac hangs: {late.timeout} s") from None

    def without_omac(self, script: str) -> Done:
        """Run the same script on the host."""
        return self.person(PRELUDE + script, extra=self.told())

    def goes_on(self, where: Sequence[str], commands: Sequence[str]) -> Done:
        """Run each command in each folder, as the person goes on working; none of them may hang."""
        lines = [
            f"(cd {folder!r} 2>/dev/null && echo '$ {name} in {folder}' && timeout 20 sh -c {HOST[name]!r})"
            for folder in where
            for name in commands
        ]
        return self.person("exec 2>&1 < /dev/null; " + "; ".join(lines))

    def outside(self) -> dict[str, object]:
        """Return kind, mode and content of every file in the home outside the project and its repository."""
        contents: dict[str, object] = {}
        for folder, folders, files in os.walk(self.home):
            if folder == str(self.home):
                folders[:] = [
                    name for name in folders if name not in ("project", "main", "store", ".cache", ".claude", ".gnupg")
                ]
            for name in (*folders, *files):
                path = Path(folder, name)
                mode = path.lstat().st_mode
                content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
                contents[str(path.relative_to(self.home))] = (mode, content)
        return contents

    def set_aside(self) -> list[str]:
        """Return the files that the ends of launches have set aside."""
        return sorted(
            str(path.relative_to(self.world.state)) for path in (self.world.state / "set-aside").glob("*/*")
        ) + sorted(str(path) for path in self.home.rglob("*omac-disarmed*"))


def judged(ground: Ground, deed: Deed, *, guarded: bool) -> Outcome:
    """Do a deed, inside or (its twin) without omac, then run the person's commands; return the outcome."""
    ground.renew(deed.layout)
    before = ground.outside()
    output = ""
    for script in (deed.does,) if isinstance(deed.does, str) else deed.does:
        done = ground.agent(script, options=deed.options) if guarded else ground.without_omac(script)
        output += f"{done.out}{done.err}"
    missing = [path for path in deed.stays if not os.path.lexists(ground.project / path)]
    shutil.rmtree(ground.marks / "mark", ignore_errors=True)
    (ground.marks / "mark").unlink(missing_ok=True)
    printed = ground.goes_on(deed.where, deed.commands).out
    if guarded:
        again = ground.world.run("true", options=deed.options)
        output += again.out + again.err
        printed += ground.goes_on(deed.where, ("status", "checkout", "commit")).out
    after = ground.outside()
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    went_wrong = ground.person(deed.wrong, extra=ground.told()).status == 0
    went_wrong = went_wrong and not (deed.reported and deed.reported in output)
    return Outcome((ground.marks / "mark").exists(), changed, went_wrong, missing, output, printed[-4000:])


@contextmanager
def ground_of(uid: int) -> Iterator[Ground]:
    """Yield a ground of a user's own, and remove it in the end."""
    with box(uid) as world:
        try:
            yield Ground(world)
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", str(world.top)], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", str(world.top / "home")], check=False)


def _plain(ground: Ground) -> None:
    ground.repository(ground.project)


def _linked(ground: Ground) -> None:
    main = ground.home / "main"
    ground.repository(main)
    ground.project.rmdir()
    ground.person(f"git worktree add -q {ground.project} -b feat", cwd=main, check=True)


def _submodule(ground: Ground) -> None:
    _plain(ground)
    ground.person(f"git submodule --quiet add {ground.victim} lib; git commit -qm sub", check=True)


def _objects_elsewhere(ground: Ground) -> None:
    _plain(ground)
    ground.person(
        "mkdir ../store; mv .git/objects ../store/objects; ln -s ../../store/objects .git/objects", check=True
    )


def _clone(ground: Ground) -> None:
    ground.person(f"git clone -q {ground.victim} .", check=True)


def _helper_in_git(ground: Ground) -> None:
    _plain(ground)
    ground.world.give(ground.home / ".claude" / "settings.json", "{}")
    ground.person("git init -q; git add -A; git commit -qm mine", cwd=ground.home / ".claude", check=True)


def _nested(ground: Ground) -> None:
    _plain(ground)
    ground.person("git clone -q . dep; git worktree add -q .worktrees/feat -b feat", check=True)


def _everything(ground: Ground) -> None:
    _plain(ground)
    ground.person(
        "git init -q sub; git init -q --bare bare; git worktree add -q w; git init -q --bare .git/modules/m;"
        " mkdir -p .agents/skills/s; printf 'name: s\\nsidecar:\\n  command: [python3, s.py]\\n' >"
        " .agents/skills/s/omac.yaml; printf -- '---\\nname: s\\ndescription: d\\n---\\n' > .agents/skills/s/SKILL.md",
        check=True,
    )


def _apart_inside(ground: Ground) -> None:
    _plain(ground)
    ground.person("mv .git gitdir; echo gitdir: $PWD/gitdir > .git; git config core.worktree $PWD", check=True)


def _bare_inside(ground: Ground) -> None:
    _plain(ground)
    ground.person(
        "git init -q --bare mirror.git; echo mirror.git > .gitignore; git add .; git commit -qm i", check=True
    )


def _hooks_inside(ground: Ground) -> None:
    _plain(ground)
    script = "mkdir .githooks; printf '#!/bin/sh\\n' > .githooks/post-checkout; chmod +x .githooks/post-checkout"
    script += "; git add .; git commit -qm hooks; git worktree add -q w -b w; git config core.hooksPath"
    ground.person(f"{script} .githooks", check=True)


def _hooks_deep_inside(ground: Ground) -> None:
    _plain(ground)
    script = (
        "mkdir -p tools/hooks; printf '#!/bin/sh\\n' > tools/hooks/post-checkout; chmod +x tools/hooks/post-checkout"
    )
    ground.person(f"{script}; git add .; git commit -qm hooks; git config core.hooksPath tools/hooks", check=True)


LAYOUTS: dict[str, Callable[[Ground], None]] = {
    "plain": _plain,
    "linked": _linked,
    "submodule": _submodule,
    "objects elsewhere": _objects_elsewhere,
    "clone": _clone,
    "folder of a harness in git": _helper_in_git,
    "nested": _nested,
    "everything": _everything,
    "git folder in its worktree": _apart_inside,
    "bare one inside": _bare_inside,
    "hooks in the worktree": _hooks_inside,
    "hooks deep in the worktree": _hooks_deep_inside,
}
