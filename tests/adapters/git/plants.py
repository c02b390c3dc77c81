"""A program that plants content by chance that git's own files must not hold: it knows the grammar, and breaks it.

The program runs inside a sandbox as well: `command` has all of it, and its only argument is a JSON text (see `Ground`).
Steps that the sandbox, the file system or an earlier step forbids are not done.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from adapters.git.planting import Ground, Planter, clear, damaged, read, replace

DEPTH = 230  # folders, more than are inspected
STEPS_MAX = 9
STEPS = """
    any_file attributes bare bytes bytes closed conflict copy deep grammar_file grammar_file hard_link hook hook index
    index leading leading link link modules move nested nested nested operation operation real real ref ref reftable
    remove settings settings settings settings special tree way_out way_out way_out worktree
"""
LOADER = """
import json, sys, types
for name, text in json.loads(sys.argv.pop(1)).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(text, module.__dict__)
module.print_planted()
"""


class Plants(Planter):
    """A planter that takes random steps; each step returns a description of itself."""

    def plant(self) -> list[str]:
        """Take some steps; return a description of each."""
        self._outfit()
        done = []
        for _ in range(self.chance.choice((1, 1, 2, 2, 3, STEPS_MAX))):
            name = self.chance.choice(STEPS.split())
            try:
                done.append(f"{name}: {getattr(self, name)()}")
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                done.append(f"{name}: not done, {error}")
        return done

    def grammar_file(self) -> str:
        """Write a file where the grammar has one."""
        path = self._place()
        content = self._content(path)
        replace(path, content)
        if self.chance.random() < 0.3:
            os.chmod(path, 0o755)
        return f"{path}: {content[:80]!r}"

    def any_file(self) -> str:
        path = self._anywhere()
        replace(path, self._content(path))
        return path

    def link(self) -> str:
        """Make a link anywhere."""
        path, target = self._anywhere(), self._pick("TARGETS")
        clear(path)
        os.symlink(target, path)
        return f"{path} -> {target}"

    def way_out(self) -> str:
        """Make a link from a path that git writes to, to a path where it must not write."""
        git, only = self._git()
        names = [name for name in self.ground.tables["WRITTEN"] if not only or name.partition("/")[0] in only]
        path = f"{git}/{self.chance.choice(names)}"
        inside = os.path.relpath(path, git)
        target = self.chance.choice(("/folder", "/file", "/new", f"/repository/.git/{inside}"))
        clear(path)
        os.symlink(self.ground.victim + target, path)
        return f"{path} -> {target}"

    def special(self) -> str:
        """Make a FIFO or a socket among git's files."""
        path = self._place()
        clear(path)
        if self.chance.random() < 0.5:
            os.mkfifo(path)
        else:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path)
        return path

    def settings(self) -> str:
        """Add settings, or replace them."""
        path = f"{self._git()[0]}/{self.chance.choice(('config', 'config', 'config', 'config.worktree'))}"
        before = read(path) if self.chance.random() < 0.8 else b""
        content = self._settings()
        replace(path, before + content)
        return f"{path}: {content!r}"

    def attributes(self) -> str:
        """Write attributes that name drivers, and settings that may define them."""
        replace(f"{self.ground.project}/.gitattributes", b"* filter=x diff=x merge=x ident export-subst\n")
        return self.settings()

    def index(self) -> str:
        """Write an index with odd names, or a damaged copy of a real one with the right checksum."""
        path = f"{self._git()[0]}/index"
        is_odd = self.chance.random() < 0.6
        replace(path, self._index() if is_odd else damaged(read(path), self.chance, sealed=True))
        return path

    def hook(self) -> str:
        path = f"{self._git()[0]}/hooks/{self._pick('HOOKS')}"
        replace(path, self._script())
        os.chmod(path, 0o755)
        return path

    def leading(self) -> str:
        """Write a file that leads elsewhere."""
        git, name = self._git()[0], self._pick("LEADING")
        content = self._pick("TARGETS") + self.chance.choice(("\n", "/objects\n", "/.git\n", ""))
        if name.startswith("remotes"):
            content = self._text("URL: ext::{evil}\nPull: main\n")
        if name == "info/attributes":
            content = "* filter=x diff=x merge=x\n"
        replace(f"{git}/{name}", content.encode())
        if name.startswith("worktrees"):
            replace(f"{git}/worktrees/x/HEAD", b"ref: refs/heads/main\n")
        return f"{git}/{name}: {content!r}"

    def operation(self) -> str:
        """Write the files of an operation that was begun."""
        git, oid = self._git()[0], self._oid()
        kind = self.chance.choice(("rebase-merge", "rebase-merge", "sequencer", "rebase-apply"))
        texts = {"onto": oid, "orig-head": oid, "head-name": "refs/heads/main", "head": oid, "abort-safety": oid}
        texts |= dict.fromkeys(("msgnum", "end", "next", "last"), "1") | dict.fromkeys(("interactive", "applying"), "")
        texts |= dict.fromkeys(("message", "0001", "patch", "final-commit", "info"), "x")
        contents = {f"{kind}/{name}": text.encode() for name, text in texts.items()}
        contents[f"{kind}/{'todo' if kind == 'sequencer' else 'git-rebase-todo'}"] = self._todo()
        if self.chance.random() < 0.5:
            name, text = self.chance.choice(self.ground.operations)
            contents[name] = self._text(text).encode()
        for name, content in contents.items():
            replace(f"{git}/{name}", content)
        if kind == "sequencer":
            replace(f"{git}/{self.chance.choice(('CHERRY_PICK_HEAD', 'REVERT_HEAD'))}", oid.encode() + b"\n")
        return f"{git}: {contents!r}"

    def conflict(self) -> str:
        """Write a record of conflicts, and their resolutions."""
        git, oid = self._git()[0], self._oid()
        name = self.chance.choice((b"a", b"../out", b"link/out", b".git/config", b"/tmp/out", b"a/../.git/config"))
        replace(f"{git}/MERGE_RR", oid[:40].encode() + b"\t" + name + b"\0")
        for image in ("preimage", "postimage"):
            replace(f"{git}/rr-cache/{oid[:40]}/{image}", b"<<<<<<<\nx\n=======\ny\n>>>>>>>\n")
        replace(f"{git}/MERGE_HEAD", oid.encode() + b"\n")
        return f"{git}/MERGE_RR {name!r}"

    def ref(self) -> str:
        """Write a ref, its log, or packed refs."""
        git, only = self._git()
        name = self._pick("REF_NAMES")
        value = self._text(self.chance.choice(("{oid}", "ref: refs/heads/../../x", "ref: ../x", "{oid}x")))
        where = self.chance.choice(("", "logs/", "packed"))
        if where == "packed" and not only:
            lines = f"# pack-refs with: peeled fully-peeled sorted \n{value} {name}\n"
            replace(f"{git}/packed-refs", lines.encode())
        else:
            replace(f"{git}/{where.replace('packed', '')}{name}", value.encode() + b"\n")
        return f"{git}/{where}{name}: {value}"

    def reftable(self) -> str:
        """Write refs in another format."""
        git = self._git()[0]
        tables = self._text(self.chance.choice(("../../x\n", "{victim}/file\n", "x.ref\n")))
        replace(f"{git}/reftable/tables.list", tables.encode())
        added = b"[core]repositoryformatversion=1\n[extensions]refstorage=reftable\n"
        replace(f"{git}/config", read(f"{git}/config") + added)
        return git

    def nested(self) -> str:
        """Make a `.git` of some kind somewhere in the worktree."""
        folder = f"{self.ground.project}/{self._pick('NESTED')}"
        dot = f"{folder}/{self.chance.choice(('.git', '.git', '.git', '.git', '.GIT', 'git~1', '.git '))}"
        kind = self.chance.randrange(5)
        os.makedirs(folder, exist_ok=True)
        if kind == 0:
            replace(dot, f"gitdir: {self._pick('TARGETS')}\n".encode())
        elif kind == 1:
            clear(dot)
            os.symlink(self._pick("TARGETS"), dot)
        else:
            self._repository(dot)
        if kind == 2:
            replace(f"{folder}/x/.git", f"gitdir: {dot}\n".encode())
        if kind == 3:
            inside = os.path.relpath(folder, self.ground.project)
            self._run("update-index", "--add", "--cacheinfo", f"160000,{self._oid()},{inside}")
        return f"{dot}, {kind}"

    def bare(self) -> str:
        """Make a bare repository in the worktree."""
        folder = f"{self.ground.project}/{self.chance.choice(('n', 'n.git', 'a1/bare', '.', 'libs', 'objects'))}"
        self._repository(folder)
        return folder

    def _repository(self, git: str) -> None:
        for name in ("objects/info", "refs/heads", "hooks"):
            if self.chance.random() < 0.9:
                os.makedirs(f"{git}/{name}", exist_ok=True)
        if self.chance.random() < 0.15:
            replace(f"{git}/commondir", f"{self._pick('TARGETS')}\n".encode())
        replace(f"{git}/HEAD", b"ref: refs/heads/main\n")
        replace(f"{git}/config", b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n" + self._settings())
        self._nested.append(git)

    def worktree(self) -> str:
        """Make the admin folder of a worktree that git did not add."""
        admin = f"{self._git()[0]}/worktrees/{self.chance.choice(('x', 'y', 'wt'))}"
        wheres = ("{project}/w", "{victim}/w", "{victim}/repository", "{project}")
        where = self._text(self.chance.choice(wheres))
        common = self._text(self.chance.choice(("../..\n", "../..\n", "{victim}/repository/.git\n")))
        replace(f"{admin}/HEAD", b"ref: refs/heads/topic\n")
        replace(f"{admin}/commondir", common.encode())
        replace(f"{admin}/gitdir", f"{where}/.git\n".encode())
        if where == f"{self.ground.project}/w":
            replace(f"{where}/.git", f"gitdir: {admin}\n".encode())
        if self.chance.random() < 0.4:
            os.symlink(self.ground.victim, f"{admin}/{self.chance.choice(('refs', 'logs', 'index', 'x', 'modules'))}")
        return f"{admin} of {where}"

    def closed(self) -> str:
        """Make a folder that cannot be listed."""
        git, only = self._git()
        path = f"{git}/{self.chance.choice(only or ['objects', 'refs', 'hooks', 'logs', 'rebase-merge', 'x'])}"
        if self.chance.random() < 0.5:
            replace(f"{path}/x/evil", self._script())
        os.chmod(path, self.chance.choice((0, 0o300, 0o600)))
        return path

    def deep(self) -> str:
        """Make a nested repository deeper than folders are inspected, or a deep path among git's files."""
        top = self.chance.choice((f"{self.ground.project}/deep", f"{self._git()[0]}/refs/heads/deep"))
        path = top + "/d" * DEPTH
        os.makedirs(path)
        if top == f"{self.ground.project}/deep":
            self._repository(f"{path}/.git")
            self._nested.pop()
        return top

    def hard_link(self) -> str:
        """Give a file a second name."""
        source, path = self._anywhere(), self._anywhere()
        if not os.path.isfile(source):
            source = f"{self.ground.project}/evil"
        clear(path)
        os.link(source, path, follow_symlinks=False)
        return f"{path} = {source}"

    def bytes(self) -> str:
        """Change some bytes of a file."""
        path = self._anywhere()
        replace(path, damaged(read(path), self.chance))
        return path

    def move(self) -> str:
        """Move a file or folder to another path."""
        source, path = self._anywhere(), self._anywhere()
        if source in (self.ground.project, *(git for git, _only in self.ground.gits)):
            return "nothing"
        clear(path)
        os.rename(source, path)
        return f"{source} to {path}"

    def copy(self) -> str:
        """Copy a git folder to another path, and add settings to the copy."""
        git, only = self._git()
        path = f"{self.ground.project}/{self.chance.choice(('copy/.git', 'n/.git', 'copy.git'))}"
        if only or os.path.lexists(path):
            return "nothing"
        shutil.copytree(git, path, symlinks=True)
        self._nested.append(path)
        replace(f"{path}/config", read(f"{path}/config") + self._settings())
        return f"{git} to {path}"

    def remove(self) -> str:
        path = self._anywhere()
        clear(path)
        return path

    def tree(self) -> str:
        """Write a commit whose tree has names that no tree may have."""
        blob = self._object(b"blob", self._script())
        names = sorted(name.encode() for name in self.chance.sample(self.ground.tables["TREE_NAMES"], 3))
        modes = (b"100755 ", b"120000 ", b"100644 ")
        entries = b"".join(self.chance.choice(modes) + name + b"\0" + blob for name in names)
        inner = self._object(b"tree", entries)
        top = self._object(b"tree", entries + b"40000 " + self._pick("TREE_NAMES").encode() + b"\0" + inner)
        who = b"A <a@example.org> 1 +0000"
        commit = self._object(b"commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (top.hex().encode(), who, who))
        branches = ("refs/heads/main", "refs/heads/work", "refs/stash", "refs/heads/topic", "ORIG_HEAD")
        path = f"{self._git()[0]}/{self.chance.choice(branches)}"
        replace(path, commit.hex().encode() + b"\n")
        return path

    def modules(self) -> str:
        """Add a submodule with a name and an address that may be malicious."""
        name = self.chance.choice(("sub", "../sub", "libs/sub", "-x", "a/../../x", "sub\n", ".git"))
        text = f'[submodule "{name}"]\n\tpath = sub\n\turl = ./n\n\t{self._pick("ADDRESSES")}\n'
        replace(f"{self.ground.project}/.gitmodules", text.encode())
        os.makedirs(f"{self.ground.project}/sub", exist_ok=True)
        self._run("update-index", "--add", "--cacheinfo", f"160000,{self._oid()},sub")
        self._run("add", ".gitmodules")
        return repr(text)

    def real(self) -> str:
        """Run a command of git itself."""
        words = self._pick("OWN")
        self._run(*words.split())
        return words


def swap(ground: Ground, seconds: float) -> int:
    """Exchange folders, links and files for each other as fast as possible for some seconds; return the count."""
    chance, end, count = random.Random(str(ground.seed)), time.monotonic() + seconds, 0
    names = ["objects", "refs", "refs/heads", "hooks", "logs", "config", "index", "objects/pack"]
    paths = [f"{git}/{name}" for git, only in ground.gits for name in only or names]
    paths += [f"{ground.project}/{name}" for name in ("n", "n/.git", "libs", "a", ".git")]
    aside = f"{ground.project}/away-{os.getpid()}"
    while time.monotonic() < end:
        path = chance.choice(paths)
        try:
            os.rename(path, aside)
            os.symlink(chance.choice((ground.victim, f"{ground.victim}/folder", aside, ".")), path)
            count += 1
        except OSError:
            pass
        try:
            if os.path.islink(path):
                os.unlink(path)
            os.rename(aside, path)
        except OSError:
            pass
    return count


def main(words: dict[str, object]) -> list[str]:
    """Plant, then exchange files for `swap` seconds; return a description of each step."""
    ground = Ground(words)
    done = Plants(ground).plant()
    seconds = float(str(words.get("swap", 0)))
    return [*done, f"swapped {swap(ground, seconds)} times"] if seconds else done


def print_planted() -> None:
    """Run `main` with the JSON text of the argument, and print its result."""
    print(json.dumps(main(json.loads(sys.argv[1]))))


def command(words: dict[str, object], python: str = "/usr/bin/python3") -> list[str]:
    """Return the program as an argument vector."""
    here = Path(__file__).parent
    sources = {"adapters": "", "adapters.git": ""}
    sources |= {f"adapters.git.{name}": (here / f"{name}.py").read_text() for name in ("planting", "plants")}
    return [python, "-ISc", LOADER, json.dumps(sources), json.dumps(words)]
