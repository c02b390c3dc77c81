"""System calls of the host's git in a folder: programs that it runs, files that it writes, sockets that it reaches.

The commands run under strace(1) in a file system that is read-only but for `base`, without a network, so that a
defect harms nothing; a call that fails counts as much as one that succeeds.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

COMMANDS_SECONDS_MAX = 10
SECONDS_MAX = 240
PROMPT = (
    "git rev-parse --git-dir --is-inside-git-dir --is-bare-repository --is-inside-work-tree --short HEAD",
    "git status --porcelain=v2 --branch",
)
COMMANDS = (
    "git status", "git diff", "git diff --cached --stat", "git checkout .", "git restore .",
    "git restore --staged --worktree .", "git stash", "git stash pop", "git stash list", "git commit -q -a -m x",
    "git commit -q --allow-empty -m x", "git commit -q --amend", "git gc -q", "git gc -q --prune=now",
    "git maintenance run", "git fetch -q", "git fetch -q --all --recurse-submodules", "git pull -q",
    "git maintenance run --task=prefetch --task=commit-graph --task=pack-refs",
    "git maintenance run --task=loose-objects --task=incremental-repack",
    "git rebase --continue", "git rebase --skip", "git rebase --abort", "git cherry-pick --continue",
    "git cherry-pick --abort", "git revert --continue", "git am --continue", "git am --abort", "git merge --continue",
    "git merge --abort", "git bisect log", "git bisect reset", "git submodule update --init",
    "git submodule update --init --recursive", "git submodule status", "git submodule foreach true",
    "git worktree list", "git worktree prune", "git log -2 -p", "git log --oneline --graph --all", "git branch -avv",
    "git reset -q --hard", "git add -A", "git switch -q -c zz", "git merge -q topic", "git describe --always",
    "git rerere", "git fsck --no-progress", "git tag -l", "git show --stat", "git rebase -q topic",
    "git cherry-pick topic", "git checkout -q topic", "git checkout -q -", "git clean -n -d", "git ls-files -s",
    "git remote -v", "git notes list", "git z", "git diff --quiet", "git diff --cached --quiet",
    "git rev-parse --verify --quiet refs/stash", "git blame a", "git grep -c 1",
    "git rev-list --count --left-right @{u}...HEAD", "git ls-files --others --exclude-standard --directory",
    "git push -q --dry-run", "git repack -q -a -d", "git prune", "git pack-refs --all",
    "git reflog expire --expire=now --all", "git update-index --refresh", "git checkout --merge .",
    "git archive -o /dev/null HEAD", "git config --list", "git var GIT_EDITOR", "git sparse-checkout list",
)  # fmt: skip
SETTINGS = """\
[user]
    name = A
    email = a@example.org
[core]
    editor = true
    pager = cat
[gpg]
    program = true
[rerere]
    enabled = true
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
"""
_SYSCALLS = (
    "execve,execveat,connect,bind,chdir,fchdir,clone,clone3,fork,vfork,open,openat,openat2,creat,rename,renameat,renameat2,unlink"
    ",unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,truncate,chmod,fchmodat,chown,lchown,fchownat,mknod,mknodat,utimensat"
)
_CALL = re.compile(r"(?m)^(\w+)\((.*)\)\s+= (-?\d+|\?)(<(?P<path>[^>\n]*)>)?")
_TEXT = re.compile(r'(?:AT_FDCWD(?:<(?P<cwd>[^>]*)>)?, |\d+<(?P<folder>[^>]*)>, |)"(?P<text>(?:[^"\\]|\\.)*)"')
_CHILD = ("clone", "clone3", "fork", "vfork")
_OPENING = ("open", "openat", "openat2", "creat")
_WRITING = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC")
_LINKING = ("symlink", "symlinkat", "link", "linkat")  # whose first text is what the link leads to, and is left alone
_TOOLS = frozenset(  # of git's own scripts, and what the settings of this host name
    {"true", "cat", "basename", "dirname", "sed", "uname", "tr", "grep", "expr", "rm", "mkdir", "wc", "sort", "cut"}
    | {"sleep", "git", "sh", "timeout", "env", "id", "gettext", "envsubst"}
)
_SHELL = re.compile(  # what git has a shell run by itself
    r"git-(upload|receive)-pack '[^']*'|git maintenance run --auto --quiet( --(no-)?detach)?"
    r"|path='(?:[^']|'\\'')*'; true|true"
)
_LAST = "trap '' TERM; kill -TERM -1"  # ends daemons of git's, and the trace
_HARMLESS = ("/dev/null", "/dev/tty", "/dev/urandom", "/proc/self/")
_NAME_SERVICE = os.path.realpath("/var/run/nscd/socket")


class Host:
    """A person's machine. `base` holds its `home`, its temporary files and the traces.

    `git` is a folder with a git of another version. `uid` is the person; 0 is the user who runs the tests.
    """

    def __init__(self, base: Path, home: Path, git: str = "", uid: int = 0) -> None:
        self.base = base
        self.home = home
        self._git = git
        self._who: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if uid != os.geteuid() else {}
        self._uid = uid
        self._temporary = base / "temporary"
        self._traces = base / "traces"
        self._settings = base / "host-settings"
        self._settings.write_text(SETTINGS)
        exec_path = subprocess.run(
            ["git", "--exec-path"], capture_output=True, text=True, check=True, env=self.environment
        ).stdout.strip()
        self._own = (f"{os.path.realpath(exec_path)}/", *([f"{git}/"] if git else []))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of the machine's programs."""
        path = "/usr/local/bin:/usr/bin:/bin"
        return {
            "HOME": str(self.home),
            "PATH": f"{self._git}/bin:{path}" if self._git else path,
            "LC_ALL": "C",
            "TERM": "dumb",
            "TMPDIR": str(self._temporary),
            "GIT_CONFIG_GLOBAL": str(self._settings),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TEST_FSYNC": "0",
        }

    def violations(self, folders: Sequence[Path], commands: Sequence[str], allowed: Sequence[str]) -> list[str]:
        """Run the commands in each folder; return programs that are not git's own, and accesses outside `allowed`."""
        shutil.rmtree(self._traces, ignore_errors=True)
        for folder in (self._traces, self._temporary):
            folder.mkdir(exist_ok=True)
            if self._uid:
                os.chown(folder, self._uid, self._uid)
        lines = [
            f"timeout {COMMANDS_SECONDS_MAX} {command} </dev/null >/dev/null 2>&1" for command in (*PROMPT, *commands)
        ]
        body = "\n".join(lines)
        script = "\n".join([*(f'cd "$1" && {{\n{body}\n}}\nshift' for _ in folders), _LAST])
        base, traces = str(self.base), f"{self._traces}/t"
        line = [
            "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", base, base,
            "--unshare-net", "--unshare-pid", "--die-with-parent", "--",
            "strace", "-ff", "--seccomp-bpf", "-qq", "-y", "-s", "4096", "-e", "signal=none",
            "-e", f"trace={_SYSCALLS}", "-o", traces, "sh", "-c", script, "sh", *map(str, folders),
        ]  # fmt: skip
        process = subprocess.Popen(
            line, cwd=self.base, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True, **self._who,
        )  # fmt: skip
        try:
            stderr = process.communicate(timeout=SECONDS_MAX)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            stderr = b"git did not end"
        assert any(self._traces.iterdir()), stderr
        return sorted({*self._judged((*allowed, str(self._temporary)), script)})

    def _judged(self, allowed: Sequence[str], script: str) -> Iterator[str]:
        """Yield the violations of each process, which begins in the folder where its parent was when it was made."""
        lines = {int(path.suffix[1:]): path.read_text(errors="replace") for path in self._traces.iterdir()}
        calls = {pid: list(_CALL.finditer(text)) for pid, text in lines.items()}
        made = {int(call[3]) for each in calls.values() for call in each if call[1] in _CHILD and call[3].isdigit()}
        waiting = [(pid, str(self.base)) for pid in calls if pid not in made]
        while waiting:
            pid, folder = waiting.pop()
            for call in calls.pop(pid, ()):
                name, arguments, result = call[1], call[2], call[3]
                if name in _CHILD and result.isdigit():
                    waiting.append((int(result), folder))
                elif name in ("chdir", "fchdir") and result == "0":
                    text = _TEXT.match(arguments)
                    to = _unescaped(text["text"]) if text else arguments.partition("<")[2][:-1]
                    folder = os.path.join(folder, to)
                elif name.startswith("exec"):
                    yield from self._run(arguments, folder, script)
                elif name in ("connect", "bind"):
                    yield from self._reached(name, arguments, folder, allowed)
                elif name not in _OPENING:
                    yield from self._written(name, arguments, "", folder, allowed)
                elif name == "creat" or any(flag in arguments for flag in _WRITING):
                    yield from self._written(name, arguments, call["path"], folder, allowed)

    def _run(self, arguments: str, folder: str, script: str) -> Iterator[str]:
        """Yield a program that git does not run by itself."""
        words = [_unescaped(word) for word in re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)]
        program, name = os.path.realpath(os.path.join(folder, words[0])), os.path.basename(words[0])
        if program.startswith(self._own) or name == "strace":
            return
        is_system = program.startswith(("/usr/bin/", "/bin/", "/usr/local/bin/"))
        if (
            not is_system
            or (name not in _TOOLS and os.path.exists(program))
            or (name == "sh" and words[2:3] == ["-c"] and words[3] != script and not _SHELL.fullmatch(words[3]))
        ):
            yield f"ran {arguments[:300]}"

    def _reached(self, name: str, arguments: str, folder: str, allowed: Sequence[str]) -> Iterator[str]:
        """Yield a socket that is not git's own; git's fsmonitor--daemon has one beside its files."""
        family, path = re.search(r"sa_family=AF_\w+", arguments), re.search(r'sun_path="([^"]*)"', arguments)
        if family and not (path and _is_in(os.path.realpath(os.path.join(folder, path[1])), (*allowed, _NAME_SERVICE))):
            yield f"{name}: {arguments}"

    def _written(
        self, name: str, arguments: str, opened: str | None, folder: str, allowed: Sequence[str]
    ) -> Iterator[str]:
        matches = list(_TEXT.finditer(arguments))
        if name in _LINKING:
            matches = matches[1:]
        for match in matches:
            top = match["cwd"] or match["folder"] or folder
            path = os.path.join(top, _unescaped(match["text"]))
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if name in (*_OPENING, "truncate", "chmod", "chown", "utimensat"):
                real = opened.removesuffix(" (deleted)") if opened else os.path.realpath(path)
            if real.startswith(_HARMLESS) or "(deleted)" in top:
                continue
            if not _is_in(real, allowed):
                yield f"{name}: {real}"


def _is_in(path: str, places: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in places)


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape").encode("latin-1", errors="replace").decode(errors="surrogateescape")
