"""Names, contents and objects for the program that plants by chance (plants.py). This module needs Python alone."""

import hashlib
import os
import random
import shutil
import stat
import subprocess
import zlib
from typing import Any

IDENTITY = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
UNARMED = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.file.allow=always")


class Ground:
    """The folders to plant in, and the material for it.

    `project` is the folder; `gits` are (git folder, names in it that can be written, none for all); `patterns` are
    those of the grammar; `victim` is outside; `evil` is a command that must never run; `tables` are those of
    dangers.py.
    """

    def __init__(self, words: dict[str, Any]) -> None:
        self.project = str(words["project"])
        self.gits: list[tuple[str, list[str]]] = words["gits"]
        self.patterns: list[str] = words["patterns"]
        self.tables: dict[str, list[str]] = words["tables"]
        self.operations: list[tuple[str, str]] = words["tables"]["OPERATIONS"]
        self.victim = str(words["victim"])
        self.evil = str(words["evil"])
        self.seed = words["seed"]


class Planter:
    """A maker of random names, contents and objects."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.chance = random.Random(str(ground.seed))
        self._nested: list[str] = []

    def _outfit(self) -> None:
        """Write programs and settings that other files can lead to, and changes that commands can work on."""
        project, evil = self.ground.project, self.ground.evil
        for path in ("evil", *(f"evil-hooks/{name}" for name in self.ground.tables["HOOKS"])):
            os.makedirs(os.path.dirname(f"{project}/{path}"), exist_ok=True)
            write(f"{project}/{path}", self._script())
            os.chmod(f"{project}/{path}", 0o755)
        write(f"{project}/included", f'[core]\n\tfsmonitor = "{evil}"\n\tpager = "{evil}"\n'.encode())
        if self.chance.random() < 0.5:
            write(f"{project}/.gitattributes", b"* filter=x diff=x merge=x\n")
        if self.chance.random() < 0.7:
            write(f"{project}/{self.chance.choice(('a', 'b', 'new'))}", b"changed\n")

    def _script(self) -> bytes:
        return f"#!/bin/sh\n{self.ground.evil}\ncat\n".encode()

    def _pick(self, table: str) -> str:
        return self._text(self.chance.choice(self.ground.tables[table]))

    def _text(self, text: str) -> str:
        ground = self.ground
        text = text.replace("{evil}", ground.evil).replace("{project}", ground.project)
        return text.replace("{victim}", ground.victim).replace("{oid}", self._oid())

    def _oid(self) -> str:
        """Return the id of an object that exists, or a random id if none is found."""
        for git, _only in self.chance.sample(self.ground.gits, len(self.ground.gits)):
            for name in ("ORIG_HEAD", "refs/heads/main", "refs/heads/topic", "refs/heads/work"):
                content = read(f"{git}/{name}").strip()
                if len(content) >= 40:
                    return content.decode(errors="replace")
        return self.chance.choice("0123456789abcdef") * 40

    def _git(self) -> tuple[str, list[str]]:
        if self._nested and self.chance.random() < 0.3:
            return self.chance.choice(self._nested), []
        return self.chance.choice(self.ground.gits)

    def _place(self) -> str:
        """Return a path at which the grammar has a file, in some git folder."""
        git, only = self._git()
        patterns = [pattern for pattern in self.ground.patterns if not only or pattern.partition("/")[0] in only]
        return f"{git}/{self._named(self.chance.choice(patterns or ['refs/**']))}"

    def _named(self, pattern: str) -> str:
        oid = f"{self.chance.getrandbits(160):040x}"
        names = {
            "{oid2}": oid[:2],
            "{rest}": oid[2:],
            "{oid}": oid,
            "{number}": str(self.chance.randrange(5)),
            "{pack}": f"pack-{oid}.{self.chance.choice(('pack', 'idx', 'keep', 'promisor', 'mtimes'))}",
            "{oid.map}": f"{oid}.bitmap",
            "{tmp}": f"tmp_obj_{oid[:6]}",
            "{sample}": "x.sample",
            "{image}": "preimage",
            "{table}": f"0x{oid[:12]}-0x{oid[:12]}-{oid[:8]}.ref",
            "{omac}": "omac-refs-7",
            "**{HEAD .git}": self.chance.choice(("x", "HEAD", "a/.git/config", "a/HEAD", "objects/ab/cd/x")),
            "**{objects commondir .git}": self.chance.choice(("packed-refs", "refs/heads/x", "objects/x", "commondir")),
            "**": self._pick("REF_NAMES").removeprefix("refs/"),
            "*": self.chance.choice(("x", "pre-commit", "origin", "a/b", "post-checkout", oid)),
        }
        for kind, name in names.items():
            pattern = pattern.replace(kind, name)
        return pattern + (".lock" if self.chance.random() < 0.03 else "")

    def _anywhere(self) -> str:
        """Return a path in the project or in a git folder, existing or not."""
        if self.chance.random() < 0.4:
            return self._place()
        git, only = self._git()
        top = self.chance.choice((git, self.ground.project)) if not only else f"{git}/{self.chance.choice(only)}"
        paths = [top]
        for folder, folders, files in os.walk(top):
            folders.sort()
            paths += [f"{folder}/{name}" for name in sorted(files) + folders]
            if len(paths) > 400:
                break
        path = self.chance.choice(paths)
        if path == top or self.chance.random() < 0.3:
            path = f"{path if os.path.isdir(path) else os.path.dirname(path)}/{self._pick('NAMES')}"
        return path

    def _content(self, path: str) -> bytes:
        """Return content that a file of this name may hold, or must not hold."""
        name, kind = os.path.basename(path), self.chance.random()
        if kind < 0.15:
            return self.chance.randbytes(self.chance.randrange(200))
        if kind < 0.25:
            return self._script()
        if name in ("config", "config.worktree", "opts"):
            return self._settings()
        if name in ("git-rebase-todo", "todo", "git-rebase-todo.backup", "done"):
            return self._todo()
        if name == "index" or name.startswith("sharedindex"):
            return self._index()
        if kind < 0.5:
            target = self._pick("TARGETS")
            forms = (f"{target}\n", f"gitdir: {target}\n", f"ref: {target}\n", f"{target}/objects\n")
            return self.chance.choice(forms).encode()
        if kind < 0.7:
            return f"ref: {self._pick('REF_NAMES')}\n".encode()
        return self._text(self.chance.choice(("{oid}\n", "{oid} {oid} x\n", "evil\n", "../../x\n", "1\n", ""))).encode()

    def _settings(self) -> bytes:
        lines = []
        for number in range(self.chance.randrange(1, 4)):
            table = "RUNNING" if number == 0 and self.chance.random() < 0.6 else "SETTINGS"
            key, _, value = self._pick(table).partition("=")
            section, _, rest = key.partition(".")
            sub, _, name = rest.rpartition(".")
            head = f'[{section} "{sub}"]' if sub else f"[{section}]"
            shout = head if sub else head.upper()
            forms = (
                f"{head}\n\t{name} = {value}\n",
                f"{head} {name} = {value}\n",
                f"{head}\n{name}=\\\n{value}\n",
                f'{head}{name} = "{value}"\n',
                f"{shout}\n\t{name.upper()}={value}\n",
            )
            lines.append(self.chance.choice(forms))
        return "".join(lines).encode()

    def _todo(self) -> bytes:
        return "".join(f"{self._pick('STEPS')}\n" for _ in range(self.chance.randrange(1, 5))).encode()

    def _index(self) -> bytes:
        """Return an index of version 2 with odd names, whose objects exist."""
        blob = self._object(b"blob", self._script())
        names = sorted({self._pick("INDEX_NAMES").encode() for _ in range(self.chance.randrange(1, 4))} | {b"zz"})
        content = b"DIRC" + (2).to_bytes(4, "big") + len(names).to_bytes(4, "big")
        for name in names:
            mode = self.chance.choice((0o100755, 0o100644, 0o100755, 0o120000, 0o160000))
            entry = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + blob + min(len(name), 0xFFF).to_bytes(2, "big")
            entry += name
            content += entry + bytes(8 - len(entry) % 8)
        return content + hashlib.sha1(content).digest()

    def _object(self, kind: bytes, content: bytes) -> bytes:
        """Write a loose object into every repository; return its id."""
        content = kind + b" " + str(len(content)).encode() + b"\0" + content
        oid = hashlib.sha1(content).hexdigest()
        for git in [path for path, _only in self.ground.gits] + self._nested:
            try:
                os.makedirs(f"{git}/objects/{oid[:2]}", exist_ok=True)
                write(f"{git}/objects/{oid[:2]}/{oid[2:]}", zlib.compress(content))
            except OSError:
                continue
        return bytes.fromhex(oid)

    def _run(self, *words: str) -> None:
        """Run git as an agent does."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "GIT_EDITOR": "true", **IDENTITY}
        subprocess.run(
            ["git", *UNARMED, *words], cwd=self.ground.project, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=10, check=False,
        )  # fmt: skip


def read(path: str) -> bytes:
    """Return the content of a regular file; empty for anything else."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def replace(path: str, content: bytes) -> None:
    """Write a new file, in place of any file or folder at this path."""
    clear(path)
    write(path, content)


def clear(path: str) -> None:
    """Remove the file or folder at this path, and make the folders above it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)


def damaged(content: bytes, chance: random.Random, *, sealed: bool = False) -> bytes:
    """Return content with some bytes changed, left out or doubled; with `sealed`, the checksum at its end is right."""
    body = bytearray(content[:-20] if sealed else content)
    for _ in range(chance.randrange(1, 6)):
        at, size = chance.randrange(len(body) + 1), chance.randrange(1, 12)
        kind = chance.randrange(4)
        if kind == 0:
            body[at : at + size] = chance.randbytes(size)
        elif kind == 1:
            del body[at : at + size]
        elif kind == 2:
            body[at:at] = body[at : at + size]
        elif at < len(body):
            body[at] ^= 1 << chance.randrange(8)
    return bytes(body) + (hashlib.sha1(body).digest() if sealed else b"")
