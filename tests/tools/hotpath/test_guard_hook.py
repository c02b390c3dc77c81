"""tools/hotpath/guard_hook.py: the real process, called as agents call it. Status 2 alone is a denial."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nested_worktree import Ground, ground
from polling import eventually

from omac.adapters.files.journal_in_use import SPOOL
from omac.domain.guard.denial import GuardDenied

HOOK = (sys.executable, "-c", "from omac.tools.entry import main; main()", "hook", "pre-tool-use")
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


class Answer(NamedTuple):
    """The answer of the process: status 0 lets the call pass, 2 denies it."""

    status: int
    out: str
    err: str

    @property
    def allowed(self) -> bool:
        """Return whether the call passes. A third status is a defect: agents take it for consent."""
        assert self.status in (0, 2), self
        assert self.out == "", self
        assert bool(self.err) == (self.status == 2), self
        return self.status == 0


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    """Yield a nested worktree with links of every kind, which the tests of this module share."""
    with ground() as made:
        tree = made.worktree
        targets: dict[str, Path | str] = {
            "out": made.outside, "out-relative": "../../../../outside", "dangling": made.outside / "new", "mine": "src",
            "chain": "out", "main": made.main, "loop": "loop", "top": "/", "self": ".", "up": "..",
            "proc": "/proc/self/cwd",
            "temporary": "/tmp", "file": made.outside / "there", "deep": "src/../out/sub",
        }  # fmt: skip
        for name, target in targets.items():
            (tree / name).symlink_to(target)
        (tree / "é").symlink_to(made.outside)
        os.mkfifo(tree / "pipe")
        (tree / "vendored").mkdir()
        made.git("init", "-q", cwd=tree / "vendored")
        (made.folder / "elsewhere" / "src").mkdir(parents=True)
        made.git("init", "-q", cwd=made.folder / "elsewhere")
        (made.folder / "repo-two").mkdir()
        yield made


def ask(
    payload: object, environment: Mapping[str, str], *, cwd: Path | str = "/", argv: tuple[str, ...] = HOOK
) -> Answer:
    """Run the hook with a payload: bytes, or a value that becomes JSON."""
    document = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    done = subprocess.run(argv, input=document, env=dict(environment), cwd=cwd, capture_output=True, timeout=30)
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def writing(path: object, cwd: Path | str | None = None, tool: str = "Write", key: str = "file_path") -> dict[str, Any]:
    """Return a payload as Claude Code sends it."""
    payload = {
        "session_id": "s-1", "transcript_path": "/x", "hook_event_name": "PreToolUse", "permission_mode": "default",
        "tool_name": tool, "tool_input": {key: path, "content": "x"}, "tool_use_id": "t-1",
    }  # fmt: skip
    return payload if cwd is None else payload | {"cwd": str(cwd)}


def patching(patch: str, cwd: Path | str, tool: str = "apply_patch", key: str = "command") -> dict[str, Any]:
    """Return a payload as Codex sends it."""
    return {
        "session_id": "s-2", "turn_id": "1", "cwd": str(cwd), "hook_event_name": "PreToolUse", "model": "m",
        "tool_name": tool, "tool_input": {key: patch}, "tool_use_id": "c-1",
    }  # fmt: skip


def patch(*headers: str) -> str:
    """Return a patch with these headers, each with a line below it."""
    return "\n".join(["*** Begin Patch", *(f"{header}\n+x" for header in headers), "*** End Patch"])


INSIDE = [
    "{tree}/src/a.py",
    "{tree}/new/folders/below/it",
    "{tree}/src/../src/./a.py",
    "{tree}//src///a.py",
    "{tree}/mine/a.py",
    "{tree}/self/self/src/a.py",
    "{tree}/vendored/file",
    "{tree}/.gitignore",
    "{tree}/.github/workflows/x.yml",
    "{tree}/naïve/файл",
    "{tree}/a b/c'd\"e",
    "src/a.py",
    "./src/../new",
    "{tree}/~",
    "~backup",
    "/tmp/omac-scratch",
    "{tree}/temporary/omac-scratch",
    "/../tmp/omac-scratch",
]
OUTSIDE = [
    "{main}/src/a.py",
    "{main}/new",
    "{main}",
    "../../src/a.py",
    "{tree}/../../src/a.py",
    "{tree}/src/../../../x",
    "{sibling}/src/a.py",
    "{tree}-two/x",
    "{tree}x",
    "{outside}/there",
    "/etc/passwd",
    "/etc//../etc/./passwd",
    "/tmpx",
    "/tmp/../etc/passwd",
    "//etc/passwd",
    "{tree}/out/x",
    "{tree}/out-relative/x",
    "{tree}/chain/x",
    "{tree}/deep/x",
    "{tree}/dangling",
    "{tree}/dangling/x",
    "{tree}/file",
    "{tree}/main/src/a.py",
    "{tree}/top/etc/passwd",
    "{tree}/up/x",
    "{tree}/out/../x",  # the kernel goes up from where the link leads
    "{tree}/mine/../../x/y",  # a tool that takes .. by the text alone leaves
    "{tree}/loop",
    "{tree}/proc/x",
    "{tree}/pipe",
    "{tree}/\u00e9/x",
    "{tree}/e\u0301/x",  # the same name, composed otherwise
    "/proc/self/cwd/x",
    "/proc/self/root{tree}/x",
    "/proc/1/root/etc/passwd",
    "/dev/fd/1",
    "/dev/stdout",
    "/dev/null",
    "~",
    "~/x",
    "~root/x",
    " /etc/passwd",
    "\u00a0/etc/passwd",
    "\ufeff/etc/passwd",
    "/etc/passwd ",
    "file:///etc/passwd",
    "FILE:/etc/passwd",
    "vscode-remote://x/etc/passwd",
    "{tree}/.git",
    "{tree}/.git/hooks/pre-commit",
    "{tree}/.GIT/x",
    "{tree}/vendored/.git/config",
    "{main}/.git/hooks/pre-commit",
    "{state}/journal.db",
    "{tree}/a\nb",
    "{tree}/a\x00b",
    "{tree}/a\x7f",
    "{tree}/\udc80",
    "{tree}/" + "a" * 300,
    "{tree}/" + "a/" * 3000,
    "",
    " ",
]


def named(path: str, place: Ground) -> str:
    """Return the path with the folders of this ground filled in."""
    names = {"tree": place.worktree, "main": place.main, "sibling": place.sibling, "outside": place.outside}
    for name, folder in {**names, "state": place.state}.items():
        path = path.replace("{" + name + "}", str(folder))
    return path


@pytest.mark.parametrize("path", INSIDE)
def test_inside(place: Ground, path: str) -> None:
    """A write to the worktree, or to a folder for temporary files, passes without a message."""
    assert ask(writing(named(path, place), place.worktree), place.environment).allowed


@pytest.mark.parametrize("path", OUTSIDE)
def test_outside(place: Ground, path: str) -> None:
    """A write that ends anywhere else, or could, is denied."""
    assert not ask(writing(named(path, place), place.worktree), place.environment).allowed


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Write", {"file_path": "{}", "content": ""}),
        ("Edit", {"file_path": "{}", "old_string": "a", "new_string": "b"}),
        ("MultiEdit", {"file_path": "{}", "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("MultiEdit", {"edits": [{"file_path": "{}"}]}),
        ("NotebookEdit", {"notebook_path": "{}", "new_source": ""}),
        ("write", {"filePath": "{}"}),
        ("apply_patch", {"command": "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: {}\n@@\n-a\n+b\n*** End Patch\n"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: {}\n*** End Patch"}),
        (
            "apply_patch",
            {"command": "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: {}\n@@\n+b\n*** End Patch"},
        ),
        ("apply_patch", {"command": "*** Begin Patch\n*** Add File: src/n\n+x\n*** Add File: {}\n+x\n*** End Patch"}),
        (
            "apply_patch",
            {"command": "<<'EOF'\n*** Begin Patch\r\n  *** add file:   {}  \r\n+x\r\n*** End Patch\r\nEOF"},
        ),
        ("apply_patch", {"command": ["apply_patch", "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"]}),
        ("apply_patch", "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"),
        ("apply_patch", {"operation": {"type": "update_file", "path": "{}", "diff": "@@\n+x"}}),
        ("Bash", {"command": "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\nEOF"}),
        (
            "Bash",
            {"command": "cd src && applypatch <<'EOF'\n*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\nEOF"},
        ),
        ("Bash", {"command": "printf '*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch' | apply_patch"}),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"]}),
        (
            "shell",
            {"command": ["bash", "-lc", "apply_patch <<E\n*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\nE"]},
        ),
        ("exec_command", {"cmd": "apply_patch <<E\n*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\nE"}),
    ],
)
def test_every_tool(place: Ground, tool: str, given: object) -> None:
    """Each way to name a file counts, and the same call with a path in the worktree passes."""
    environment = place.environment | {"OMAC_WORKDIR": str(place.worktree)}
    for path, passes in ((place.worktree / "new", True), (place.main / "new", False), (place.outside / "new", False)):
        tool_input = json.loads(json.dumps(given).replace("{}", str(path)))
        payload = writing("x", place.worktree) | {"tool_name": tool, "tool_input": tool_input}
        assert ask(payload, environment).allowed == passes, path


@pytest.mark.parametrize(
    ("folder", "before", "path", "passes"),
    [
        (".", "", "new", True),
        (".", "", "../new", False),
        ("src", "", "../new", True),
        ("src", "", "../../new", False),
        ("src", "cd .. && ", "new", True),
        ("src", "cd .. && cd .. && ", "new", False),
        (".", "cd ../.. && ", "src/a.py", False),
        (".", "cd '{main}' && ", "src/a.py", False),
        (".", 'cd "{tree}/src" && ', "a.py", True),
        (".", "cd out && ", "x", False),
        (".", "cd $SOMEWHERE && ", "src/a.py", False),
        (".", "cd $SOMEWHERE && ", "{tree}/src/a.py", True),
        (".", "cd && ", "src/a.py", False),
        ("../..", "", "src/a.py", False),
        (".", "pushd {main}; ", "src/a.py", False),
        (".", "(cd {main}; ", "src/a.py", False),
        (".", "cd\t{main}; ", "src/a.py", False),
        (".", "if cd {main}; then ", "src/a.py", False),
        (".", "cd src; ", "a.py", True),
        ("src", "cd ..; ", "../x", False),
        (".", "", "$HOME/x", True),
    ],
)
def test_where_a_patch_begins(place: Ground, folder: str, before: str, path: str, passes: bool) -> None:
    """A patch's relative paths start from the payload's cwd, and from the folder that a `cd` before it enters."""
    command = f"{before}apply_patch <<'EOF'\n{patch(f'*** Add File: {path}')}\nEOF"
    payload = patching(named(command, place), place.worktree / folder, tool="Bash")
    assert ask(payload, place.environment).allowed == passes


@pytest.mark.parametrize(("delimiter", "passes"), [("EOF", False), ("'EOF'", True)])
def test_a_shell_expands_a_patch(place: Ground, delimiter: str, passes: bool) -> None:
    """A path with `$` is denied in a patch that the shell expands. In a quoted patch it is a name, and passes."""
    command = f"apply_patch <<{delimiter}\n{patch('*** Add File: src/$HOME/x')}\nEOF"
    assert ask(patching(command, place.worktree, tool="Bash"), place.environment).allowed == passes


@pytest.mark.parametrize(
    "payload",
    [
        {"tool_name": "Read", "tool_input": {"file_path": "/etc/passwd"}},
        {"tool_name": "Bash", "tool_input": {"command": "echo x > /etc/passwd"}},
        {"tool_name": "Bash", "tool_input": {"command": "grep -r '*** Begin Patch' apply_patch.md"}},
        {"tool_name": "Bash", "tool_input": {"command": "cat apply_patch.md; echo '*** Add File: /etc/passwd'"}},
        {"tool_name": "Glob", "tool_input": {"path": "/"}},
        {"tool_name": "mcp__x__y"},
        {"tool_name": "Task", "tool_input": None, "cwd": 5},
    ],
    ids=str,
)
def test_other_tools(place: Ground, payload: object) -> None:
    """A tool that writes no files by itself passes, even if the worktree is unknown."""
    assert ask(payload, {"PATH": os.environ["PATH"]}).allowed


GOOD = {"tool_name": "Write", "tool_input": {"file_path": "{tree}/new"}, "cwd": "{tree}"}
WEIRD: list[Any] = [
    b"",
    b" \n",
    b"{",
    b"nonsense",
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b"5",
    b'"Write"',
    b"{} {}",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"tool_name":"Read","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"tool_name":"Read","a":' + b"9" * 5000 + b"}",
    b'{"tool_name":"Read","tool_name":"Write","tool_input":{"file_path":"{tree}/new"}}',
    b'{"tool_name":"Write","tool_input":{"file_path":"/etc/passwd","file_path":"{tree}/new"}}',
    b'{"tool_name":"Write","tool_input":{"file_path":"{tree}/new"},"tool_input":{"file_path":"{tree}/new"}}',
    b'{"tool_name":"Write","tool_input":{"file_path":"{tree}/new"}}\0',
    b'{"tool_name":"Write","tool_input":{"file_path":"{tree}/\xff"}}',
    b'{"tool_name":"Write","tool_input":{"file_path":"{tree}/\\ud800"}}',
    b"\0" * 100,
    {},
    {"tool_name": None},
    {"tool_name": ""},
    {"tool_name": " "},
    {"tool_name": 5},
    {"tool_name": ["Write"]},
    {"tool_input": {"file_path": "{tree}/new"}},
    GOOD | {"tool_input": None},
    GOOD | {"tool_input": []},
    GOOD | {"tool_input": "{tree}/new"},
    GOOD | {"tool_input": {}},
    GOOD | {"tool_input": {"content": "x"}},
    GOOD | {"tool_input": {"file_path": None}},
    GOOD | {"tool_input": {"file_path": 5}},
    GOOD | {"tool_input": {"file_path": True}},
    GOOD | {"tool_input": {"file_path": {"path": "{tree}/new"}}},
    GOOD | {"tool_input": {"file_path": []}},
    GOOD | {"tool_input": {"file_path": ["{tree}/new", 5]}},
    GOOD | {"tool_input": {"file_path": ["{tree}/new", "/etc/passwd"]}},
    GOOD | {"tool_input": {"file_path": "{tree}/new", "path": "/etc/passwd"}},
    GOOD | {"tool_input": {"file_path": "{tree}/new", "notebook_path": 5}},
    GOOD | {"tool_input": {"file_path": "{tree}/new", "edits": [{"file_path": "/etc/passwd"}]}},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": "relative"},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": 5},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": None},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": "{tree}/\0"},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": "{main}"},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": "{tree}/out"},
    GOOD | {"tool_input": {"file_path": "new"}, "cwd": "/proc/self/cwd"},
    GOOD | {"hook_event_name": "PostToolUse"},
    GOOD | {"hook_event_name": 5},
    GOOD | {"tool_name": "WRITE", "tool_input": {"file_path": "/etc/passwd"}},
    GOOD | {"tool_name": " Write ", "tool_input": {"file_path": "/etc/passwd"}},
    {"tool_name": "apply_patch", "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": ""}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Begin Patch\n*** End Patch"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "--- a/x\n+++ b/x\n"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: \n*** End Patch"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: x\n*** Link File: /e"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: x\x1f"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: x\ry"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: x", "workdir": "/etc"}, "cwd": "{tree}"},
    {"tool_name": "apply_patch", "tool_input": {"command": "*** Add File: x", "workdir": 5}, "cwd": "{tree}"},
]  # fmt: skip


def test_the_good_twin(place: Ground) -> None:
    """The sound payload from which the weird ones are made passes."""
    assert ask(json.loads(named(json.dumps(GOOD), place)), place.environment).allowed


@pytest.mark.parametrize("payload", WEIRD, ids=lambda payload: str(payload)[:60])
def test_weird_payloads(place: Ground, payload: object) -> None:
    """A payload that omac cannot understand is denied with a message, never with a traceback."""
    if isinstance(payload, bytes):
        document = payload.replace(b"{tree}", os.fsencode(place.worktree))
    else:
        document = named(json.dumps(payload), place).encode()
    answer = ask(document, place.environment)
    assert not answer.allowed
    assert "Traceback" not in answer.err
    assert answer.err.startswith("omac: ")


def test_too_much(place: Ground) -> None:
    """A payload over the limit is read to its end, so that the agent is not cut off, and denied. Big files pass."""
    payload = writing(str(place.worktree / "big"), place.worktree)
    payload["tool_input"]["content"] = "x" * (8 << 20)
    assert ask(payload, place.environment).allowed
    payload["tool_input"]["content"] = "x" * (33 << 20)
    answer = ask(payload, place.environment)
    assert not answer.allowed
    assert "32 MiB" in answer.err


def test_the_message(place: Ground) -> None:
    """A denial names the wrong root and the path that was probably meant."""
    cases = {
        place.main / "docs" / "plan.md": (place.main, place.worktree / "docs" / "plan.md"),
        place.sibling / "docs" / "plan.md": (place.sibling, place.worktree / "docs" / "plan.md"),
        place.folder / "elsewhere" / "src" / "b.py": (place.folder / "elsewhere", place.worktree / "src" / "b.py"),
    }
    for path, (root, probable) in cases.items():
        answer = ask(writing(str(path), place.worktree), place.environment)
        assert f"{path} is outside the worktree\n" in answer.err
        assert f"Wrong root: {root}" in answer.err
        assert f"Probably meant: {probable}\n" in answer.err
        assert f"The worktree is {place.worktree}:" in answer.err
    for path in (place.outside / "x", place.folder / "elsewhere" / "nowhere" / "x"):
        assert "Probably" not in ask(writing(str(path), place.worktree), place.environment).err
    link = ask(writing(str(place.worktree / "main" / "src" / "a.py"), place.worktree), place.environment).err
    assert f"{place.worktree}/main/src/a.py leads to {place.main}/src/a.py\n" in link
    assert f"Probably meant: {place.worktree}/src/a.py\n" in link
    odd = ask(writing("/etc/\u202e\u009b[31m", place.worktree), place.environment).err
    assert "/etc/\\u202e\\x9b[31m" in odd


@pytest.mark.parametrize(
    ("workdir", "project", "cwd", "root"),
    [
        ("{tree}", "{main}", "{main}", "{tree}"),
        ("{tree}/src", "", "{main}", "{tree}"),
        ("{tree}/mine", "", "{main}", "{tree}"),
        ("", "{tree}/src", "{main}", "{tree}"),
        ("", "{tree}", "{outside}", "{tree}"),
        ("", "{main}", "{tree}", "{main}"),
        ("{outside}", "{tree}", "{tree}", "{outside}"),
        ("{main}/src", "{tree}", "{tree}", "{main}"),
    ],
)
def test_which_worktree(place: Ground, workdir: str, project: str, cwd: str, root: str) -> None:
    """The launch workdir takes precedence over the agent's project, and its top level counts. The payload's cwd decides
    nothing."""
    environment = place.environment | {
        "OMAC_WORKDIR": named(workdir, place),
        "CLAUDE_PROJECT_DIR": named(project, place),
    }
    for candidate in ("{tree}", "{main}", "{outside}"):
        payload = writing(named(candidate, place) + "/landed", named(cwd, place))
        assert ask(payload, environment, cwd=named(cwd, place)).allowed == (candidate == root), candidate


@pytest.mark.parametrize("workdir", ["relative", "{folder}/missing", "{outside}/there", "{tree}/loop", "\udcff", "~"])
def test_no_worktree(place: Ground, workdir: str) -> None:
    """An unusable workdir denies the write, and omac does not fall back on another one."""
    environment = place.environment | {"OMAC_WORKDIR": named(workdir.replace("{folder}", str(place.folder)), place)}
    assert not ask(writing(str(place.worktree / "x"), place.worktree), environment).allowed


def test_nobody_says_which_worktree(place: Ground) -> None:
    """Without a named worktree, the hook uses the folder where Codex runs it. Claude Code's cwd drifts, so its writes
    are denied then."""
    environment = {name: value for name, value in place.environment.items() if name != "CLAUDE_PROJECT_DIR"}
    inside, outside = (patching(patch(f"*** Add File: {tree}/x"), place.main) for tree in (place.worktree, place.main))
    assert ask(inside, environment, cwd=place.worktree / "src").allowed
    assert not ask(outside, environment, cwd=place.worktree / "src").allowed
    assert not ask(writing(str(place.worktree / "x"), place.worktree), environment, cwd=place.worktree).allowed


def test_relative_without_cwd(place: Ground) -> None:
    """A relative path without a cwd in the payload must be inside from wherever it could start."""
    assert ask(writing("src/a.py"), place.environment, cwd=place.worktree).allowed
    assert not ask(writing("src/a.py"), place.environment, cwd=place.main).allowed


def test_worktrees_below(place: Ground) -> None:
    """Worktrees below the main checkout are not part of it; submodules and other repositories are."""
    environment = place.environment | {"CLAUDE_PROJECT_DIR": str(place.main)}
    assert ask(writing(str(place.main / "src" / "b.py"), place.main), environment).allowed
    assert ask(writing(str(place.main / ".builders" / "new"), place.main), environment).allowed
    answer = ask(writing(str(place.worktree / "src" / "b.py"), place.main), environment)
    assert not answer.allowed
    assert f"Probably meant: {place.main}/src/b.py" in answer.err
    declared = environment | {"OMAC_GUARD_SCRATCH": str(place.main / ".builders")}
    assert ask(writing(str(place.worktree / "src" / "b.py"), place.main), declared).allowed
    shutil.copytree(place.main / "src", place.main / "copy")
    place.git("init", "-q", cwd=place.main / "copy")
    place.git("add", ".", cwd=place.main / "copy")
    place.git("commit", "-q", "-m", "x", cwd=place.main / "copy")
    source = str(place.main / "copy")
    place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", source, "module", cwd=place.main)
    assert (place.main / "module" / ".git").is_file()
    for inner in ("module", "copy"):
        assert ask(writing(str(place.main / inner / "a.py"), place.main), environment).allowed


def test_other_layouts(place: Ground) -> None:
    """The git folder stays out of reach, even if it is elsewhere or bare."""
    apart = place.folder / "apart"
    place.git("init", "-q", "--separate-git-dir", str(apart / "store"), str(apart), cwd=place.folder)
    environment = place.environment | {"CLAUDE_PROJECT_DIR": str(apart)}
    assert ask(writing(str(apart / "file"), apart), environment).allowed
    assert not ask(writing(str(apart / "store" / "config"), apart), environment).allowed
    bare = place.folder / "bare"
    place.git("clone", "-q", "--bare", str(place.main), str(bare / ".bare"), cwd=place.folder)
    for name in ("first", "second"):
        place.git("worktree", "add", "-q", "-b", name, str(bare / name), cwd=bare / ".bare")
    environment = place.environment | {"CLAUDE_PROJECT_DIR": str(bare / "first")}
    assert ask(writing(str(bare / "first" / "file"), bare), environment).allowed
    answer = ask(writing(str(bare / "second" / "file"), bare), environment)
    assert not answer.allowed
    assert f"Probably meant: {bare}/first/file" in answer.err
    assert not ask(writing(str(bare / ".bare" / "hooks" / "x"), bare), environment).allowed


def test_everything_below_tmp() -> None:
    """Temporary folders are for scratch, but other checkouts of the same repository are denied there, too."""
    with ground("/tmp") as grounds:
        for path, passes in {
            grounds.worktree / "x": True,
            grounds.outside / "x": True,
            grounds.main / "src" / "a.py": False,
            grounds.sibling / "src" / "a.py": False,
            grounds.main / ".git" / "hooks" / "x": False,
            grounds.state / "journal.db": False,
        }.items():
            assert ask(writing(str(path), grounds.worktree), grounds.environment).allowed == passes, path


def test_scratch(place: Ground) -> None:
    """The user declares scratch folders by the environment or the user's own settings file; a project cannot."""
    payload = writing(str(place.outside / "x"), place.worktree)
    assert not ask(payload, place.environment).allowed
    declared = f"/nowhere:{place.worktree}/out:relative:/"
    assert ask(payload, place.environment | {"OMAC_GUARD_SCRATCH": declared}).allowed
    assert not ask(writing("/etc/x", "/"), place.environment | {"OMAC_GUARD_SCRATCH": declared}).allowed
    project = place.worktree / ".omac" / "settings.toml"
    project.parent.mkdir()
    project.write_text(f'[guard]\nscratch = "{place.outside}"\n')
    assert not ask(payload, place.environment).allowed
    settings = place.home / ".config" / "omac" / "settings.toml"
    settings.parent.mkdir(parents=True)
    for text, passes in {
        f'[guard]\nscratch = "/nowhere:{place.outside}"\n': True,
        f'[guard]\nscratch = ["{place.outside}"]\n': True,
        '[guard]\nscratch = "/nowhere"\n': False,
        "[guard]\nscratch = 5\n": False,
        "guard = 5\n": False,
        "not toml": False,
    }.items():
        settings.write_text(text)
        assert ask(payload, place.environment).allowed == passes, text
        assert ask(writing(str(place.worktree / "x"), "/"), place.environment).allowed
    settings.write_text(f'[guard]\nscratch = "{place.outside}"\n')
    settings.chmod(0o666)
    assert not ask(payload, place.environment).allowed
    shutil.rmtree(settings.parent)


def spooled(place: Ground) -> list[dict[str, Any]]:
    """Remove all records from the spool, and return them, oldest first."""
    folder = place.state / SPOOL
    files = sorted(folder.iterdir()) if folder.exists() else []
    records = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return records


def test_a_denial_is_recorded(place: Ground) -> None:
    """The record of a denial has the agent, the path and the path that was probably meant. A call that passes is not
    recorded."""
    spooled(place)
    assert ask(writing(str(place.worktree / "x"), place.worktree), place.environment).allowed
    assert spooled(place) == []
    ask(writing("../../src/a.py", place.worktree), place.environment)
    ask(patching(patch("*** Add File: /etc/x"), place.worktree), place.environment)
    first, second = spooled(place)
    assert (first["kind"], first["stream"], first["version"], first["actor"]) == (
        "guard.denied",
        "guard",
        None,
        "agent",
    )
    assert first["fields"] == {
        "harness": "claude",
        "tool": "Write",
        "path": str(place.main / "src" / "a.py"),
        "root": str(place.worktree),
        "probable": str(place.worktree / "src" / "a.py"),
        "session": "s-1",
    }
    assert GuardDenied(**first["fields"]).origin == "spool"
    assert abs(first["at"] - time.time_ns()) < 60 * 10**9
    assert (second["fields"]["harness"], second["fields"]["path"], second["fields"]["session"]) == (
        "codex",
        "/etc/x",
        "s-2",
    )


@pytest.mark.parametrize(
    "payload", [b"", b"{", writing("\u009b\udc80" * 5000, tool="Write"), writing(5), writing("/etc/x")]
)
def test_what_is_recorded_is_bounded(place: Ground, payload: object) -> None:
    """The record of a denial is readable and small for any payload."""
    spooled(place)
    ask(payload, place.environment)
    (record,) = spooled(place)
    assert GuardDenied(**record["fields"]).origin == "spool"
    assert len(json.dumps(record)) < 20_000


def test_a_denial_stands_unrecorded(place: Ground) -> None:
    """A denial that cannot be recorded is reported, and stands. A denial in a sandbox needs no record."""
    payload = writing("/etc/x", place.worktree)
    for state in (place.outside / "there", Path("/proc/nothing"), Path("/dev/full")):
        answer = ask(payload, place.environment | {"OMAC_STATE_DIR": str(state)})
        assert not answer.allowed
        assert "could not be recorded: " in answer.err
        assert "Traceback" not in answer.err
    spooled(place)
    answer = ask(payload, place.environment | {"OMAC_SANDBOX": "1"})
    assert not answer.allowed
    assert "recorded" not in answer.err
    assert spooled(place) == []


def shell(script: str, place: Ground, payload: object) -> int:
    """Return the status of the hook, called in a shell as $HOOK with a file $PAYLOAD."""
    file = place.folder / "payload"
    file.write_text(json.dumps(payload))
    environment = place.environment | {"PAYLOAD": str(file), "PYTHON": sys.executable, "CODE": HOOK[2]}
    script = script.replace("HOOK", '"$PYTHON" -c "$CODE" hook pre-tool-use')
    return subprocess.run(["sh", "-c", script], env=environment, stderr=subprocess.DEVNULL, timeout=30).returncode


@pytest.mark.parametrize(
    "script",
    [
        "HOOK <&-",
        "HOOK < /dev/null",
        'HOOK < "$PAYLOAD" 2>&-',
        'HOOK < "$PAYLOAD" >&- 2>&-',
        'HOOK < "$PAYLOAD" >/dev/full 2>/dev/full',
        'HOOK < "$PAYLOAD" 2>&1 | true; (HOOK < "$PAYLOAD" 2>&1; echo $? >&3) 3>&1 >/dev/full | { read s; exit $s; }',
        'ulimit -n 3; HOOK < "$PAYLOAD"',
        'ulimit -f 0; HOOK < "$PAYLOAD"',
        'HOOK --unknown < "$PAYLOAD"',
        'cd "$OMAC_STATE_DIR" && HOOK < "$PAYLOAD"',
    ],
)
def test_bad_surroundings(place: Ground, script: str) -> None:
    """A denial stands without a descriptor, with a full device, and if no file can be opened or written."""
    place.state.mkdir(exist_ok=True)
    assert shell(script, place, writing("/etc/x", place.worktree)) == 2


def test_good_surroundings(place: Ground) -> None:
    """A write to the worktree passes with closed and full descriptors, too."""
    payload = writing(str(place.worktree / "x"), place.worktree)
    for script in ('HOOK < "$PAYLOAD"', 'HOOK < "$PAYLOAD" >&- 2>&-', 'HOOK < "$PAYLOAD" >/dev/full'):
        assert shell(script, place, payload) == 0


def test_the_folder_is_gone(place: Ground) -> None:
    """A write is denied if the shell's folder or the payload's cwd does not exist."""
    payload = writing("/etc/x", place.worktree)
    assert shell('mkdir gone; cd gone; rmdir ../gone; HOOK < "$PAYLOAD"', place, payload) == 2
    assert shell('cd /; HOOK < "$PAYLOAD"', place, writing("x", place.folder / "missing")) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM])
def test_interrupted(place: Ground, number: signal.Signals) -> None:
    """A hook that is asked to end before it has an answer denies."""
    process = subprocess.Popen(HOOK, env=place.environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        status = Path(f"/proc/{process.pid}/status")

        def catches() -> bool:
            return bool(int(_field(status.read_text(), "SigCgt"), 16) & 1 << (number - 1)) and _waits(process.pid)

        eventually(catches, 10, "the hook to wait with its handlers")
        process.send_signal(number)
        _, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 2
    assert b"Traceback" not in err


def _waits(pid: int) -> bool:
    return (
        "SigCgt" in Path(f"/proc/{pid}/status").read_text() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "S"
    )


def _field(status: str, name: str) -> str:
    return next(line.split()[1] for line in status.splitlines() if line.startswith(name))


def test_stdin_that_does_not_block(place: Ground) -> None:
    """The hook reads a pipe that does not block, as an agent's runtime may hand over."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    process = subprocess.Popen(HOOK, env=place.environment, stdin=read, stderr=subprocess.PIPE)
    os.close(read)
    eventually(lambda: _waits(process.pid), 10, "the hook to wait")
    os.write(write, json.dumps(writing(str(place.worktree / "x"), place.worktree)).encode())
    os.close(write)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, b"")


def test_as_somebody(place: Ground) -> None:
    """A folder that an unprivileged user cannot enter is denied; all else is answered as for root."""
    package = place.folder / "package"
    shutil.copytree(
        Path(__file__).parents[3] / "src" / "omac", package / "omac", ignore=shutil.ignore_patterns("__pycache__")
    )
    closed = place.worktree / "closed"
    closed.mkdir()
    place.folder.chmod(0o755)
    closed.chmod(0)
    python = (*NOBODY, "/usr/bin/python3", "-c", "from omac.tools.entry import main; main()", "hook", "pre-tool-use")
    environment = place.environment | {"PYTHONPATH": str(package), "OMAC_STATE_DIR": str(place.folder / "nobodys")}
    assert ask(writing(str(place.worktree / "src" / "x"), "/"), environment, argv=python).allowed
    answer = ask(writing(str(closed / "x"), "/"), environment, argv=python)
    assert not answer.allowed
    assert "Permission denied" in answer.err
    assert "could not be recorded" in answer.err
    assert ask(writing(str(closed / "x"), "/"), place.environment).allowed  # root may look


def test_no_variable_turns_it_off(place: Ground) -> None:
    """No variable of a project's settings turns a denial into consent, as one that asked for completions did."""
    for name in ("_OMAC_COMPLETE", "_TYPER_COMPLETE", "COMP_WORDS", "OMAC_BRIDGE", "PYTHONINSPECT", "NO_COLOR"):
        for value in ("bash", "launch", "complete_bash", "1"):
            assert not ask(writing("/etc/passwd", "/"), place.environment | {name: value}).allowed, (name, value)


def test_other_locale(place: Ground) -> None:
    """A link with a UTF-8 name is found in any locale, because agents write names in UTF-8."""
    for locale in ("C", "POSIX", "en_US.ISO-8859-1", "nonsense"):
        environment = place.environment | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        assert not ask(writing(f"{place.worktree}/\u00e9/x", "/"), environment).allowed
        assert ask(writing(f"{place.worktree}/\u00e8/x", "/"), environment).allowed


def test_nothing_heavy_is_loaded(place: Ground) -> None:
    """An answer loads none of the modules that take longer to load than all the rest."""
    code = (
        "import sys; from omac.tools.hotpath.guard_hook import main; status = main([]); "
        "print(status, *sorted(set(sys.modules) & {'json', 're', 'enum', 'typing', 'subprocess', 'pathlib', 'ctypes', "
        "'msgspec', 'shutil', 'dataclasses', 'collections', 'signal', 'typer'}))"
    )
    for path, status in ((place.worktree / "x", 0), (place.main / "x", 2)):
        document = json.dumps(writing(str(path), place.worktree)).encode()
        argv = [sys.executable, "-I", "-c", code]
        done = subprocess.run(argv, input=document, env=place.environment, capture_output=True, timeout=30)
        assert done.stdout.decode().split() == [str(status)]


def test_help() -> None:
    """The option --help prints the usage."""
    done = subprocess.run([*HOOK, "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: omac hook pre-tool-use")
