"""tools/hotpath/guard_hook.py compared with an independent judge: the kernel, which shows where a write lands."""

import json
import os
import random
import shutil
import subprocess
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from posixpath import join, normpath

import pytest
from nested_worktree import Ground, ground
from real_sandbox import SYSTEM_PYTHON
from tiers import examples

from omac.domain.guard.guard import Unclear
from omac.tools.hotpath.guard_hook import decide

EXAMPLES = int(os.environ.get("OMAC_SOAK_EXAMPLES", examples(5000)))
SEED = int(os.environ.get("OMAC_SOAK_SEED", time.time_ns()))  # a failure says it, and is the same again with it

# Opens what it is told for writing, as a tool would, making the folders that are missing, and says where it landed. It
# runs where nothing but the ground and its own /tmp can be written.
JUDGE = r"""
import json, os, shutil, sys

def landed(cwd, path):
    made = ""
    try:
        os.chdir(cwd)
        folder = os.path.dirname(path)
        while folder and not os.path.lexists(folder):
            made, folder = folder, os.path.dirname(folder)
        if made:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        new = not os.path.exists(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)
        said = os.readlink(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        if new:
            os.unlink(said)
        return said
    except OSError as error:
        return "refused" if error.errno in (1, 13, 30) else ""  # EPERM, EACCES, EROFS: it would have been outside
    except ValueError:
        return ""
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)

for line in sys.stdin:
    print(json.dumps([landed(cwd, path) for cwd, path in json.loads(line)]), flush=True)
"""


class Judge:
    """A process that returns where a write lands, or "" for one that fails."""

    def __init__(self, place: Ground) -> None:
        self._process = subprocess.Popen(
            ["bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc", "--unshare-pid",
             "--die-with-parent", "--bind", str(place.folder), str(place.folder), SYSTEM_PYTHON, "-c", JUDGE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def landed(self, writes: list[tuple[str, str]]) -> list[str]:
        """Return where writes by (cwd, path) land, and undo each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(writes) + "\n")
        self._process.stdin.flush()
        targets: list[str] = json.loads(self._process.stdout.readline())
        return targets

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    """Yield the ground of all examples; each adds links of its own and removes them. It is not in /var/tmp, which
    another test grants to a sandbox, whose end sets aside links into /proc."""
    with ground(str(Path.home())) as made:
        (made.worktree / "src" / "deep").mkdir()
        (made.worktree / "own").mkdir()
        made.git("init", "-q", cwd=made.worktree / "own")
        yield made


@pytest.fixture(scope="module")
def judge(place: Ground) -> Iterator[Judge]:
    """Yield a judge that distinguishes writes inside, beside and outside the ground."""
    process = Judge(place)
    try:
        tries = [
            ("/", f"{place.worktree}/src/../new/x"),
            (str(place.main), "src/a.py"),
            ("/", "/etc/passwd"),
            ("/", "/tmp/x"),
        ]
        assert process.landed(tries) == [f"{place.worktree}/new/x", f"{place.main}/src/a.py", "refused", "/tmp/x"]
        yield process
    finally:
        process.close()


LINKS = ("l0", "l1", "é")
PARTS = (
    "..", "..", ".", "", "src", "src", "deep", "a.py", "new", "new", "own", ".git", ".GIT", "hooks", ".builders", "one",
    "two", "outside", "repo", "there", *LINKS, *LINKS, "e\u0301", "~", " ", "a b", "tmp", "config", "x\u2028y", "\\",
)  # fmt: skip
STARTS = (
    "", "", "", "", *["{tree}"] * 6, "{tree}/l0", "{tree}/l1", "l0", "l1/..",
    "{main}", "{sibling}", "{folder}", "/", "//", "/tmp", "/tmp", "/proc/self/cwd",
    "/proc/self/root", "~", "~root", " ", "\ufeff", "\u3000", "file://", "/dev/fd", "/etc",
)  # fmt: skip
ENDS = (*[""] * 12, "/", " ", "\n", "\0", "/.")
FOLDERS = ("{tree}", "{tree}", "{tree}/src", "{tree}/l0", "{main}", "{main}/.builders", "{folder}", "/")
KINDS = ("Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch", "move", "Bash", "cd")


def path_of(chance: random.Random) -> str:
    """Return any path, with the folders of the ground still to be filled in."""
    start = chance.choice(STARTS)
    parts = chance.choices(PARTS, k=chance.randrange(6))
    return "/".join([*([start] if start else []), *parts]) + chance.choice(ENDS)


def payload_of(kind: str, path: str, cwd: str, folder: str) -> dict[str, object]:
    """Return a call that writes to `path`."""
    common = {"session_id": "s", "hook_event_name": "PreToolUse", "cwd": cwd}
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    match kind:
        case "NotebookEdit":
            return {**common, "tool_name": kind, "tool_input": {"notebook_path": path, "new_source": ""}}
        case "apply_patch":
            return {**common, "tool_name": kind, "tool_input": {"command": patch}}
        case "move":
            moved = f"*** Begin Patch\n*** Update File: {{tree}}/src/a.py\n*** Move to: {path}\n@@\n+x\n*** End Patch"
            return {**common, "tool_name": "apply_patch", "tool_input": {"command": moved}}
        case "Bash":
            return {**common, "tool_name": kind, "tool_input": {"command": f"apply_patch <<'EOF'\n{patch}\nEOF"}}
        case "cd":
            command = f"cd {folder} && apply_patch <<'EOF'\n{patch}\nEOF"
            return {**common, "tool_name": "Bash", "tool_input": {"command": command}}
        case _:
            return {**common, "tool_name": kind, "tool_input": {"file_path": path, "content": "x"}}


def writes_of(kind: str, path: str, cwd: str, folder: str, home: str) -> set[tuple[str, str]]:
    """Return each (cwd, path) that tools of this kind could make of a path."""
    if "\n" in path and kind not in ("Write", "Edit", "MultiEdit", "NotebookEdit"):
        path = path.partition("\n")[0]
    base = join(cwd, folder) if kind == "cd" else cwd
    marks = "\ufeff \u3000\n\u2028"
    ways = {path, path.strip(), path.strip(marks), path.lstrip(marks), path.rstrip(marks), path.lstrip(), path.rstrip()}
    ways |= {home + way[1:] for way in ways if way == "~" or way.startswith("~/")}
    ways |= {unicodedata.normalize(form, way) for form in ("NFC", "NFD") for way in ways}
    return {(base, each) for way in ways if way for each in (way, normpath(join(base, way)))}


def is_fine(landed: str, place: Ground) -> bool:
    """Return whether an agent may write there."""
    tree = str(place.worktree) + "/"
    if landed.startswith(tree):
        return ".git" not in landed[len(tree) :].split("/")
    return landed == "" or landed.startswith("/tmp/")


@pytest.mark.full
def test_no_write_lands_outside(place: Ground, judge: Judge) -> None:
    """A write that the guard lets pass lands in the worktree or in /tmp, for any path, cwd and links."""
    counts: Counter[str] = Counter()
    names = {"tree": place.worktree, "main": place.main, "sibling": place.sibling, "folder": place.folder}

    def filled(text: str) -> str:
        for name, root in names.items():
            text = text.replace("{" + name + "}", str(root))
        return text

    environment = {os.fsencode(name): os.fsencode(value) for name, value in place.environment.items()}
    chance = random.Random(SEED)
    for number in range(EXAMPLES):
        kind, path = chance.choice(KINDS), filled(path_of(chance))
        cwd, folder = filled(chance.choice(FOLDERS)), filled(chance.choice(FOLDERS))
        links = {name: filled(path_of(chance)) for name in chance.sample(LINKS, chance.randrange(len(LINKS) + 1))}
        made = [place.worktree / name for name, target in links.items() if _link(place.worktree / name, target)]
        document = json.dumps(payload_of(kind, path, cwd, folder)).replace("{tree}", str(place.worktree)).encode()
        if _denied(document, environment):
            counts["denied"] += 1
        else:
            counts["allowed"] += 1
            writes = sorted(writes_of(kind, path, cwd, folder, str(place.home)))
            for write, landed in zip(writes, judge.landed(writes), strict=True):
                assert is_fine(landed, place), f"OMAC_SOAK_SEED={SEED}, {number}: {document!r} {links} {write} {landed}"
                counts["landed"] += bool(landed)
        for link in made:
            assert link.is_symlink(), f"OMAC_SOAK_SEED={SEED}, {number}: {document!r} {links}: {link} is gone"
            link.unlink()
    assert min(counts["allowed"], counts["denied"], counts["landed"]) > EXAMPLES / 20, counts


@pytest.mark.full
def test_git_files_that_mean_nothing(place: Ground) -> None:
    """A `.git` below the worktree, with any content, opens no path that the guard denies."""
    chance = random.Random(SEED)
    environment = {os.fsencode(name): os.fsencode(value) for name, value in place.environment.items()}
    nested = place.worktree / "nested"
    words = [
        b"gitdir: ",
        b"..",
        b"/",
        b"store",
        b".git",
        b"worktrees",
        b"one",
        b"\0",
        b"\n",
        b"\xff",
        b" ",
        bytes(place.main),
    ]
    for number in range(EXAMPLES // 5):
        (nested / "store").mkdir(parents=True)
        content, commondir = (b"".join(chance.choices(words, k=chance.randrange(6))) for _ in range(2))
        (nested / "store" / "commondir").write_bytes(commondir)
        (nested / ".git").write_bytes(chance.choice([b"gitdir: store", b"gitdir: " + content, content]))
        message = f"OMAC_SOAK_SEED={SEED}, {number}: {content!r} {commondir!r}"
        for path in (place.main / "src" / "a.py", place.sibling / "x", nested / ".git", place.worktree / ".git" / "x"):
            assert _denied(json.dumps(payload_of("Write", str(path), str(nested), "")).encode(), environment), message
        narrowed = {**environment, b"CLAUDE_PROJECT_DIR": os.fsencode(nested)}
        document = json.dumps(payload_of("Write", str(place.worktree / "src" / "a.py"), "/", "")).encode()
        assert _denied(document, narrowed), message
        shutil.rmtree(nested)


def _denied(document: bytes, environment: dict[bytes, bytes]) -> bool:
    try:
        return decide(document, environment) is not None
    except (Unclear, OSError, ValueError):
        return True


def _link(path: Path, target: str) -> bool:
    try:
        path.symlink_to(target)
    except (OSError, ValueError):  # a target that is empty, or has NUL in it
        return False
    return True
