"""Reading an omac.yaml: a small regular file of plain YAML, whoever wrote it.

What YAML can do beyond plain data is refused: tags, several documents in one file, directives, deep nesting, and the
same key twice, where readers disagree on which one counts. An alias counts as all that it stands for (a few lines of
them can expand to gigabytes), and none stands for what it is part of.
"""

import os
import re
import stat
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from omac.adapters.files import bounded

if TYPE_CHECKING:
    from ruamel.yaml import YAML

BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
NODES_MAX = 5_000  # a file of BYTES_MAX can hold enough of them to keep the parser busy for seconds
PROBLEM_CHARS_MAX = 200
REMEMBERED_FILES = 256
REMEMBERED_BYTES_MAX = 16 * 1024
NOT_UTF8 = "is not UTF-8 text; save it as UTF-8"
NOT_PLAIN = "not plain: "  # begins those of ruamel's errors that this module raises itself


class YamlFileError(Exception):
    """`path` cannot be read as YAML; `problem` says why and what to change, `line` (from 1) where, if that is known."""

    def __init__(self, path: str, problem: str, line: int | None = None) -> None:
        super().__init__(f"{path}: {problem}" if line is None else f"{path}, line {line}: {problem}")
        self.path = path
        self.problem = problem
        self.line = line

    def again(self) -> "YamlFileError":
        """Return an error that says the same and was not raised."""
        return YamlFileError(self.path, self.problem, self.line)


def read_yaml_bytes(name: str, folder_fd: int, shown: str) -> bytes:
    """The content of the regular file `name` in the open folder; `shown` is the path that errors print.

    Never follows a link, and never waits for a FIFO or a device. Raises YamlFileError.
    """
    try:
        _check_regular(os.stat(name, dir_fd=folder_fd, follow_symlinks=False), shown)
        return bounded.read(name, BYTES_MAX, dir_fd=folder_fd)  # it may have become something else since
    except bounded.TooLarge:
        raise YamlFileError(shown, f"is larger than {BYTES_MAX // 1024} KiB; shorten it") from None
    except OSError as error:
        raise YamlFileError(shown, f"cannot be read ({error.strerror}); make it a readable file") from error


def parse_yaml(content: bytes, shown: str) -> object:
    """The one document in `content`; None if it is empty. Raises YamlFileError.

    Holds dicts, lists, strings, numbers, truth values, dates and None, as YAML 1.2 reads plain scalars. Callers share
    it and must not change it: a file of ordinary size is parsed once, however often its directory is looked at.
    """
    document, _ = parse_counted(content, shown)
    if isinstance(document, YamlFileError):
        raise document
    return document


def parse_counted(content: bytes, shown: str) -> tuple[object, int]:
    """Return what `parse_yaml` returns, or the YamlFileError that it raises, and the number of values that were
    read."""
    document, nodes = (_parse_once if len(content) <= REMEMBERED_BYTES_MAX else _parse)(content, shown)
    if isinstance(document, YamlFileError):  # a fresh one: a raised one keeps its traceback
        document = document.again()
    return document, nodes


def _parse(content: bytes, shown: str) -> tuple[object, int]:
    loader = _loader()
    try:
        document = _loaded(loader, content, shown)
    except YamlFileError as error:
        document = error.again()
    return document, loader.composer.expansion.nodes


def _loaded(loader: "YAML", content: bytes, shown: str) -> object:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise YamlFileError(shown, NOT_UTF8, line) from None
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    loaded: object
    try:
        loaded = loader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and not text[mark.index :].strip():  # at the end is nothing to mend
            mark = error.context_mark
        raise YamlFileError(shown, _advice(error), None if mark is None else mark.line + 1) from None
    except YAMLError as error:
        raise YamlFileError(shown, f"is not valid YAML: {_one_line(str(error))}") from None
    except Exception as error:
        # Scalars such as 2024-99-99 escape ruamel's own errors as whatever the conversion raised.
        raise YamlFileError(shown, f"holds a value that cannot be read: {_one_line(str(error))}") from None
    return loaded


def line_of(content: bytes, field: str) -> int | None:
    """The line (from 1) of a field such as `sidecar.secrets[1].name`; where it is missing, that of what should hold it.

    For telling where a document that was read breaks a contract: None if that cannot be told. Raises nothing.
    """
    try:
        return _line_below(_composed(content), re.findall(r"([^.\[\]]+)|\[([0-9]+)\]", field))
    except Exception:
        return None  # it is an error's text that is being made: whatever goes wrong must not hide that error


@lru_cache(maxsize=1)  # a document with a thousand problems is composed once for all of their lines
def _composed(content: bytes) -> Any:
    return _loader().compose(content.decode())


def _line_below(node: Any, path: list[tuple[str, str]]) -> int:
    """The line of the last part of `path`, a list of keys and indices, that is there."""
    line: int = node.start_mark.line + 1
    for key, index in path:
        if index and isinstance(node.value, list) and int(index) < len(node.value) and node.id == "sequence":
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        elif key and node.id == "mapping" and (pairs := [pair for pair in node.value if pair[0].value == key]):
            line = pairs[0][0].start_mark.line + 1
            node = pairs[0][1]
        else:
            break
    return line


def scalar_texts(content: bytes, field: str) -> list[str | None] | None:
    """The items of the list `field`, each as its text is written in a document that was read, None for what is no
    scalar or is null; None if there is no such list. So 1.50 is "1.50", whatever number it means. Raises nothing."""
    try:
        node = _composed(content)
        for key in field.split("."):
            node = next(value for name, value in node.value if name.value == key)
        return [_text_of(item) for item in node.value] if node.id == "sequence" else None
    except Exception:
        return None  # behind a merge key, say: then numbers stay numbers, and the contract refuses them


def _text_of(node: Any) -> str | None:
    is_text = node.id == "scalar" and not str(node.ctag).endswith(":null")
    return str(node.value) if is_text else None


_parse_once = lru_cache(maxsize=REMEMBERED_FILES)(_parse)


def _check_regular(status: os.stat_result, shown: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise YamlFileError(shown, "is a symbolic link, and omac follows none here; put the file itself in its place")
    if not stat.S_ISREG(status.st_mode):
        raise YamlFileError(shown, "is not a regular file; put a text file in its place")


def _loader() -> "YAML":
    """A fresh loader: they hold the state of one parse."""
    from ruamel.yaml import YAML

    loader = YAML(typ="safe", pure=True)
    loader.Composer = _plain_composer()
    loader.max_depth = DEPTH_MAX
    return loader


class _Expansion:
    """The size of a document in which each alias is replaced by its value. `alias` and `begin` return a problem, or an
    empty text."""

    def __init__(self) -> None:
        self.nodes = 0
        self._open: list[tuple[int, int]] = []  # nodes before each that is being composed, and the height below it
        self._anchored: dict[str, tuple[int, int] | None] = {}  # nodes and height; None: it is being composed

    def alias(self, anchor: str) -> str:
        extent = self._anchored.get(anchor, (1, 1))
        if extent is None:
            return f"has the alias *{anchor} inside its own value; write the value out"
        return self._add(*extent)

    def begin(self, anchor: str | None) -> str:
        if anchor is not None:
            self._anchored[anchor] = None
        problem = self._add(1, 1)
        self._open.append((self.nodes - 1, 0))
        return problem

    def end(self, anchor: str | None) -> None:
        before, below = self._open.pop()
        if anchor is not None:
            self._anchored[anchor] = (self.nodes - before, below + 1)
        self._raise(below + 1)

    def _add(self, nodes: int, height: int) -> str:
        self.nodes += nodes
        if self.nodes > NODES_MAX:
            return f"holds more than {NODES_MAX} values; shorten it"
        if len(self._open) + height > DEPTH_MAX + 1:  # values in the deepest list are on no level of their own
            return f"is nested more than {DEPTH_MAX} levels deep; flatten it"
        self._raise(height)
        return ""

    def _raise(self, height: int) -> None:
        if self._open:
            before, below = self._open[-1]
            self._open[-1] = (before, max(below, height))


@cache
def _plain_composer() -> type[Any]:  # Any: ruamel's loader takes whatever has a composer's methods
    """Made on first use: importing ruamel takes a tenth of a second, which most commands need not spend."""
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.events import AliasEvent

    class PlainComposer(Composer):
        """Composes nodes of events that are plain data, and refuses the others before they cost anything."""

        def __init__(self, loader: Any = None) -> None:
            super().__init__(loader)
            self.expansion = _Expansion()

        def compose_document(self) -> Any:
            event = self.parser.peek_event()
            if event.version is not None or event.tags:
                refuse("uses directives (%), which omac does not read; remove them", event)
            return super().compose_document()

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.parser.peek_event()
            is_alias = self.parser.check_event(AliasEvent)
            if getattr(event, "ctag", None) is not None:
                refuse("uses a tag (!), which omac does not read; remove it, or quote the text", event)
            if problem := self.expansion.alias(event.anchor) if is_alias else self.expansion.begin(event.anchor):
                refuse(problem, event)
            if is_alias:
                return super().compose_node(parent, index)
            if event.anchor is not None:
                self.anchors.pop(event.anchor, None)  # the later of two counts
            node = super().compose_node(parent, index)
            self.expansion.end(event.anchor)
            return node

    def refuse(advice: str, event: Any) -> NoReturn:
        raise ComposerError(None, None, NOT_PLAIN + advice, event.start_mark)

    return PlainComposer


def _advice(error: Any) -> str:
    from ruamel.yaml.composer import ComposerError, MaxDepthExceededError
    from ruamel.yaml.constructor import DuplicateKeyError

    problem = str(error.problem)
    match error:
        case MaxDepthExceededError():
            return f"is nested more than {DEPTH_MAX} levels deep; flatten it"
        case DuplicateKeyError():
            return "this key is repeated; remove one of the two"
        case ComposerError() if problem.startswith(NOT_PLAIN):
            return problem.removeprefix(NOT_PLAIN)
        case ComposerError() if "another document" in problem:
            return 'holds more than one document; remove everything from the second "---" on'
        case _:
            return f"is not valid YAML: {_one_line(problem)}; mend this line"


def _one_line(text: str) -> str:
    """`text` in one line that a terminal can show safely."""
    text = text.partition("\n")[0]
    shown = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return shown if len(shown) <= PROBLEM_CHARS_MAX else shown[: PROBLEM_CHARS_MAX - 3] + "..."
