"""The write guard: which files a tool call of an agent would write, and what it is told when it may not.

Rules

1. A file tool names its file; a patch tool names files in the patch's text, as does a shell call that applies a patch
   (`domain/guard/shell.py`). Other shell commands are not understood, and pass: what they write is the sandbox's
   business. The module of each harness names these tools.
2. A path can be read in several ways (trimmed or not, `..` before links or after them, ...). Each must stay inside.
3. What cannot be understood is denied.
4. Where the person declared a scratch folder, that counts. The folders for everybody's temporary files do not count
   where another checkout of the same repository lies in them.
"""

from __future__ import annotations

from posixpath import join, normpath

from omac.domain.harness.names import GUARDED, hooked
from omac.domain.kernel import PlainData

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omac.domain.harness.harness import GuardTools, Harness, Hook

SCRATCH = (b"/tmp", b"/private/tmp")  # and what the person declares

PATH_ARGUMENTS = ("path", "filename", "file", "target_file", "absolute_path", "relative_path")  # of any tool
PATCH_BEGINS = "*** begin patch"
PATCH_PATHS = ("*** add file:", "*** update file:", "*** delete file:", "*** move to:", "*** move file to:")
PATCH_OTHERS = (PATCH_BEGINS, "*** end patch", "*** end of file", "*** environment id:")

DEPTH_MAX = 32  # of values in a tool's input
SHOWN_CHARS_MAX = 1000


class Unclear(Exception):
    """The target of this write cannot be determined; the text is the reason."""


class Call(PlainData):
    """A tool call that writes files. `bases` are the folders its relative paths may start from, relative to `cwd`."""

    harness: str  # the name of the first that has this tool
    hook: Hook
    tool: str
    session: str
    cwd: str  # "" where the payload has none
    bases: tuple[str, ...]
    paths: tuple[str, ...]


class Denial(PlainData):
    """A call that is denied. What is unknown is empty.

    `path` is where it would have written, `named` how the call said it; `checkout` is the wrong root, `sibling` whether
    that is another checkout of the same repository; `probable` is the path that was probably meant.
    """

    why: str
    call: Call | None = None
    named: str = ""
    path: str = ""
    root: str = ""
    checkout: str = ""
    sibling: bool = False
    probable: str = ""

    def fields(self) -> dict[str, object]:
        call = self.call
        return {
            "harness": call.harness if call else "",
            "tool": _recordable(call.tool) if call else "",
            "path": _recordable(self.path or self.named),
            "root": _recordable(self.root),
            "probable": _recordable(self.probable),
            "session": (_recordable(call.session) or None) if call else None,
        }

    def text(self) -> str:
        """Return the message for the agent, with lines ended."""
        lines = [f"omac: {shown(self.call.tool) if self.call else 'this call'} is denied: {self.why}"]
        if self.named and self.path and self.named != self.path:
            lines.append(f"  {shown(self.named)} leads to {shown(self.path)}")
        if self.checkout and self.sibling:
            lines.append(
                f"  Wrong root: {shown(self.checkout)} is another checkout of the same repository. Its files look "
                "the same, so reading there shows no mistake."
            )
        elif self.checkout:
            lines.append(f"  Wrong root: {shown(self.checkout)}")
        if self.probable:
            lines.append(f"  Probably meant: {shown(self.probable)}")
        if self.root:
            lines.append(
                f"  The worktree is {shown(self.root)}: absolute paths begin with it. Temporary files may go to /tmp."
            )
        return "\n".join(lines) + "\n"


def call_of(payload: object) -> Call | None:
    """The call that a decoded PreToolUse payload announces; None if it writes no files. Raises Unclear."""
    if not isinstance(payload, dict):
        raise Unclear("the hook's input is no JSON object")
    if payload.get("hook_event_name", GUARDED) != GUARDED:
        raise Unclear(f"this hook is for {GUARDED}, and was called for something else")
    tool = payload.get("tool_name")
    if not isinstance(tool, str) or not tool.strip():
        raise Unclear("the hook's input names no tool")
    kind = tool.strip().lower()
    owner = _owner(kind)
    if owner is None:
        return None
    harness, hook = owner
    written = _written(kind, payload.get("tool_input"), hook.tools)
    if written is None:
        return None
    paths, bases = written
    if not paths:
        raise Unclear(f"the input of {shown(tool)} names no file")
    cwd, session = payload.get("cwd", ""), payload.get("session_id", "")
    if not isinstance(cwd, str):
        raise Unclear("the hook's input has a cwd that is no text")
    return Call(harness.name, hook, tool, session if isinstance(session, str) else "", cwd, bases, tuple(paths))


def _trimmed(text: str) -> str:
    """Without spaces and byte order marks at its ends, in whatever order these are."""
    while (shorter := text.strip().strip("\ufeff")) != text:
        text = shorter
    return text


def readings(path: str, folder: str, home: str) -> tuple[bytes, ...]:
    """Every absolute path that a tool could take `path` for, when it stands in `folder` (absolute). Raises Unclear."""
    trimmed = _trimmed(path)
    if not trimmed:
        raise Unclear("a path is empty")
    _require_plain(path)
    if "://" in path or trimmed[:5].lower() == "file:":
        raise Unclear("a path is written as a URL")
    start = path.index(trimmed)
    starts = (0, len(path) - len(path.lstrip()), start)  # a tool may trim either end, with or without byte order marks
    ends = (len(path), len(path.rstrip()), start + len(trimmed))
    ways = {path[first:last]: None for first in starts for last in ends}
    for way in tuple(ways):
        if way == "~" or way.startswith("~/"):
            if not home.startswith("/"):
                raise Unclear("a path begins with ~, and there is no home folder")
            ways[home + way[1:]] = None
        elif way.startswith("~") and "/" in way:
            raise Unclear("a path begins with another user's ~")
    if not path.isascii():
        from unicodedata import normalize

        for way in tuple(ways):
            ways[normalize("NFC", way)] = None
            ways[normalize("NFD", way)] = None
    words: dict[bytes, None] = {}
    for way in ways:
        absolute = join(folder, way)
        for each in (absolute, normpath(absolute)):
            try:
                words[each.encode()] = None
            except UnicodeEncodeError:
                raise Unclear("a path is no valid text") from None
    return tuple(words)


def shown(text: str) -> str:
    """`text` as a terminal and a model can take it: bounded, and with what cannot be printed escaped."""
    from omac.domain.kernel.terminal_escaping import printable  # a call that passes is not told of

    return printable(text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "...")


def _recordable(text: str) -> str:
    return text[:SHOWN_CHARS_MAX].encode("utf-8", "backslashreplace").decode()


def _owner(tool: str) -> tuple[Harness, Hook] | None:
    """Return the first harness with a tool of that name in lower case, and its hook; None: no tool that is read."""
    for harness, hook in hooked():
        tools = hook.tools
        if tool in tools.files or tool in tools.patches or tool in tools.shells:
            return harness, hook
    return None


def _written(tool: str, tool_input: object, tools: GuardTools) -> tuple[list[str], tuple[str, ...]] | None:
    """Return the paths that a tool's input names and their bases; None if it writes no files. Raises Unclear."""
    if tool in tools.files:
        return list(_named(tool_input, tools.paths)), ("",)
    if tool in tools.patches:
        paths = [*_named(tool_input, tools.paths), *_patched(_texts(tool_input), strict=True)]
        return paths, (_folder(tool_input, tools.folders),)
    texts = tuple(_texts(tool_input))
    if not _is_patch_command(texts, tools.patches):
        return None
    paths = list(_patched(("\n".join(texts),), strict=False))
    if not paths:
        return None  # it speaks of patches, and holds none
    return paths, _bases(texts, paths, _folder(tool_input, tools.folders), tools.patches)


def _named(value: object, arguments: tuple[str, ...]) -> Iterator[str]:
    """The paths under keys that say so, at any depth; `arguments` are such keys beside PATH_ARGUMENTS."""
    keys = [_key(name) for name in (*PATH_ARGUMENTS, *arguments)]
    for key, member in _members(value, 0):
        if key not in keys:
            continue
        for path in member if isinstance(member, list) else [member]:
            if not isinstance(path, str):
                raise Unclear("a path is no text")
            yield path


def _folder(value: object, arguments: tuple[str, ...]) -> str:
    """The folder that a tool's input says it runs in, under one of the keys `arguments`, or nothing."""
    keys = [_key(name) for name in arguments]
    folders = [member for key, member in _members(value, 0) if key in keys]
    if len(folders) > 1 or not all(isinstance(folder, str) for folder in folders):
        raise Unclear("the folder to run in is not one text")
    return str(folders[0]) if folders else "."


def _members(value: object, depth: int) -> Iterator[tuple[str, object]]:
    """Every key in a value with what is under it; keys are as `_key` makes them."""
    if depth > DEPTH_MAX:
        raise Unclear("the input is nested too deep")
    if isinstance(value, dict):
        for key, member in value.items():
            yield _key(str(key)), member
            yield from _members(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            yield from _members(member, depth + 1)


def _key(name: str) -> str:
    """A key without case, `_` and `-`."""
    return name.lower().replace("_", "").replace("-", "")


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Every text in a value, in order."""
    if depth > DEPTH_MAX:
        raise Unclear("the input is nested too deep")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member, depth + 1)


def _patched(texts: Iterable[str], *, strict: bool) -> Iterator[str]:
    """The paths in the headers of patches. `strict`: a header that is not known could name one, too. Raises Unclear."""
    for text in texts:
        for line in text.split("\n"):  # no other character ends a line of a patch
            if "***" not in line:
                continue
            header = line.lstrip()
            lower = header.lower()
            marker = next((marker for marker in PATCH_PATHS if lower.startswith(marker)), None)
            if marker is not None:
                yield header[len(marker) :].removeprefix(" ").removesuffix("\r")
            elif strict and line.startswith("***") and not lower.startswith(PATCH_OTHERS):
                raise Unclear(f"the patch has a header that is not known: {shown(header[:80])}")


def _is_patch_command(texts: tuple[str, ...], tools: tuple[str, ...]) -> bool:
    """Return whether a shell command has both a patch and one of the `tools` that apply one."""
    whole = "\n".join(texts).lower()
    return PATCH_BEGINS in whole and any(tool in whole for tool in tools)


def _bases(texts: tuple[str, ...], paths: Iterable[str], folder: str, tools: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that the paths of a shell command's patches may start from. Raises Unclear."""
    from omac.domain.guard.shell import EXPANDED, is_expanded, patch_bases  # few commands hold a patch

    whole = "\n".join(texts)
    if any(char in path for path in paths for char in EXPANDED) and is_expanded(whole, texts):
        raise Unclear("the shell would expand a path of the patch; quote the delimiter, as in <<'EOF'")
    bases = patch_bases(whole, folder, tools)
    if not bases and not all(path.strip().startswith("/") for path in paths):
        raise Unclear("cannot determine the patch's base folder; use absolute paths")
    return bases or ("",)


def _require_plain(text: str) -> None:
    if any(char < " " or char == "\x7f" for char in text):
        raise Unclear("a path has a control character in it")
