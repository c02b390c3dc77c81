"""domain/guard/guard.py: the paths that a call names, the ways to read them, and the text of a denial."""

import pytest

from omac.domain.guard.guard import SHOWN_CHARS_MAX, Call, Denial, Unclear, call_of, readings, shown


def call(tool: str, tool_input: object, **more: object) -> Call | None:
    """Return the call of a payload."""
    return call_of({"tool_name": tool, "tool_input": tool_input, "cwd": "/w", "session_id": "s", **more})


@pytest.mark.parametrize(
    ("tool", "tool_input", "paths"),
    [
        ("Write", {"file_path": "a", "content": "file_path"}, ("a",)),
        ("Edit", {"file_path": "a", "path": "b"}, ("a", "b")),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "", "File-Path": "b"}]}, ("a", "b")),
        ("NotebookEdit", {"notebook_path": "a"}, ("a",)),
        ("apply_patch", {"command": "*** Add File: a\n+*** Add File: content\n*** Delete File: b"}, ("a", "b")),
        ("apply_patch", {"command": "*** Update File: a\r\n*** Move to: b\r\n"}, ("a", "b")),
        ("apply_patch", {"command": "\t *** ADD FILE:a b "}, ("a b ",)),
        ("apply_patch", {"command": "*** Add File: a\n-*** Add File: b\n+ *** F: c\n *** n\n*** End of File"}, ("a",)),
        ("apply_patch", {"command": "*** Add File: a\u2028*** Add File: b"}, ("a\u2028*** Add File: b",)),
        ("Bash", {"command": "apply_patch '*** Begin Patch\n*** Add File: a\n'"}, ("a",)),
        ("Bash", {"command": "apply_patch '*** Begin Patch\n*** Add File: a\n*** odd'"}, ("a",)),
    ],
)  # fmt: skip
def test_paths(tool: str, tool_input: object, paths: tuple[str, ...]) -> None:
    """The paths of a call are those that its tool's input names, and never text that is only content."""
    parsed = call(tool, tool_input)
    assert parsed is not None
    assert (parsed.paths, parsed.tool, parsed.session, parsed.cwd) == (paths, tool, "s", "/w")
    assert parsed.harness == ("codex" if tool in ("apply_patch", "Bash") else "claude")


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Read", {"file_path": "a"}),
        ("Bash", {"command": "rm -rf /"}),
        ("Bash", {"command": "apply_patch < patch"}),
        ("Bash", {"command": "*** Begin Patch\n*** Add File: a"}),
        ("Bash", {"command": "apply_patch '*** Begin Patch'"}),
        ("Bash", None),
    ],
)
def test_no_write(tool: str, tool_input: object) -> None:
    """The guard ignores a call that names no file by itself."""
    assert call(tool, tool_input) is None


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Write", {}),
        ("Write", None),
        ("Write", {"file_path": 1}),
        ("Write", {"file_path": ["a", None]}),
        ("apply_patch", {"command": "nothing"}),
        ("apply_patch", {"command": "*** Add File: a\n*** Chmod File: b"}),
        ("apply_patch", {"command": "*** Add File: a", "cwd": "x", "workdir": "y"}),
        ("Bash", {"command": "cd ~ && apply_patch '*** Begin Patch\n*** Add File: a'"}),
    ],
)
def test_unclear(tool: str, tool_input: object) -> None:
    """A call that the guard cannot understand is refused; its paths are not guessed."""
    with pytest.raises(Unclear):
        call(tool, tool_input)


def test_depth() -> None:
    """Values nested deeper than any tool's are refused before the interpreter gives up."""
    deep: object = "a"
    for _ in range(100):
        deep = [deep]
    for tool in ("Write", "apply_patch", "Bash"):
        with pytest.raises(Unclear):
            call(tool, {"file_path": "a", "x": deep})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", {"/a/b"}),
        ("b", {"/w/b"}),
        ("l/../b", {"/w/l/../b", "/w/b"}),
        (" /a ", {"/w/ /a ", "/w/ /a", "/a ", "/a"}),
        ("\ufeff/.git ", {"/w/\ufeff/.git ", "/w/\ufeff/.git", "/.git ", "/.git"}),
        ("~/b", {"/w/~/b", "/h/b"}),
        ("~", {"/w/~", "/h"}),
        ("~b", {"/w/~b"}),
        ("\u00e9", {"/w/\u00e9", "/w/e\u0301"}),
        ("e\u0301", {"/w/\u00e9", "/w/e\u0301"}),
        ("a/", {"/w/a/", "/w/a"}),
    ],
)
def test_readings(path: str, expected: set[str]) -> None:
    """The readings of a path are all paths that some tool could take it for."""
    assert set(readings(path, "/w", "/h")) == {each.encode() for each in expected}


@pytest.mark.parametrize("path", ["", " ", "a\0", "\na", "a\x7f", "a\t", "\ud800", "file:a", "http://a", "~root/a"])
def test_no_reading(path: str) -> None:
    """A path that no two tools read alike is refused."""
    with pytest.raises(Unclear):
        readings(path, "/w", "/h")


def test_no_home() -> None:
    """Without a home, a path in ~ is refused; other paths do not need a home."""
    with pytest.raises(Unclear):
        readings("~/a", "/w", "")
    assert readings("a", "/w", "") == (b"/w/a",)


def test_shown() -> None:
    """The shown text has no characters that a terminal acts on, and a bounded length."""
    assert shown("a\x1b[31m\u202e\n") == "a\\x1b[31m\\u202e\\n"
    assert len(shown("x" * 10_000)) == SHOWN_CHARS_MAX + 3


def test_denial() -> None:
    """The text of a denial has each detail that is known, and only the reason if none is."""
    denial = Denial("it is outside", call=call("Write", {"file_path": "a"}), named="a", path="/m/a", root="/m/w")
    denial.checkout, denial.sibling, denial.probable = "/m", True, "/m/w/a"
    assert denial.text().splitlines() == [
        "omac: Write is denied: it is outside",
        "  a leads to /m/a",
        "  Wrong root: /m is another checkout of the same repository. Its files look the same, so reading there shows "
        "no mistake.",
        "  Probably meant: /m/w/a",
        "  The worktree is /m/w: absolute paths begin with it. Temporary files may go to /tmp.",
    ]
    assert Denial("it is odd").text() == "omac: this call is denied: it is odd\n"
    assert set(Denial("it is odd").fields().values()) == {"", None}
