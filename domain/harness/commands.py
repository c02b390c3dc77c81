"""The programs that a coding agent's settings name: hooks, status lines, helpers, servers of tools.

Settings are looked through without knowing their form: whatever text stands below a key that is one of a command's,
taken apart as a shell would.
"""

from __future__ import annotations

from omac.domain.kernel import PlainData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEPTH_MAX = 64  # of values in settings
WORDS_MAX = 10_000
COMMAND_KEYS = frozenset((
    "apikeyhelper", "args", "argv", "awsauthrefresh", "awscredentialexport", "bash", "cmd", "command", "commands",
    "exec", "gcpauthrefresh", "notify", "powershell", "program", "run", "script",
))  # fmt: skip
COMMAND_ENDINGS = ("command", "helper")  # of other keys: tokenCommand, otelHeadersHelper
ARGUMENT_KEYS = ("args", "argv")  # what stands there is no program itself
SCRIPTS = (
    ".bash", ".bat", ".cjs", ".cmd", ".dll", ".exe", ".fish", ".jar", ".js", ".jsx", ".lua", ".mjs", ".mts", ".nu",
    ".php", ".pl", ".ps1", ".py", ".pyz", ".rb", ".sh", ".so", ".ts", ".tsx", ".wasm", ".zsh",
)  # fmt: skip
_SHELL = str.maketrans(dict.fromkeys(";|&()<>`\n\t", " "))


class Word(PlainData):
    """A word of a command: as it is written, and whether it is the program itself."""

    text: str
    is_program: bool


def command_words(settings: object) -> Iterator[Word]:
    """Yield the words of all commands in decoded settings, the first WORDS_MAX."""
    for count, word in enumerate(_walk(settings, "", 0)):
        if count == WORDS_MAX:
            return
        yield word


def is_script(name: str) -> bool:
    """Return whether a file of this name is run, by any program, rather than read or written."""
    return name.lower().endswith(SCRIPTS)


def expanded(word: str, variables: Mapping[str, str]) -> str:
    """Return the absolute path that a word of a command means, or nothing; `variables` hold paths, HOME among them.

    Of `--option=PATH` and `NAME=PATH` it is what stands behind the sign.
    """
    for text in (word, word.partition("=")[2]):
        if text.startswith("/"):
            return text
        if text == "~" or text.startswith("~/"):
            return variables["HOME"] + text[1:]
        name, slash, rest = text.partition("/")
        if slash and name.startswith("$"):
            value = variables.get(name[1:].removeprefix("{").removesuffix("}"), "")
            if value.startswith("/"):
                return f"{value}/{rest}"
    return ""


def _walk(value: object, key: str, depth: int) -> Iterator[Word]:
    """`key`: the innermost one of a command's that the value stands below, in lower case."""
    if depth > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            lower = str(name).lower().replace("_", "").replace("-", "")
            is_command = lower in COMMAND_KEYS or lower.endswith(COMMAND_ENDINGS)
            yield from _walk(inner, lower if is_command else key if isinstance(inner, list) else "", depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, str) and key:
                yield Word(inner, is_program=False)  # blanks in it are its own
                yield from _split(inner, is_program=index == 0 and key not in ARGUMENT_KEYS)
            else:
                yield from _walk(inner, key, depth + 1)
    elif isinstance(value, str) and value.startswith("!"):  # a value that is a command's output
        yield from _split(value[1:], is_program=True)
    elif isinstance(value, str) and key:
        yield from _split(value, is_program=key not in ARGUMENT_KEYS)


def _split(text: str, *, is_program: bool) -> Iterator[Word]:
    """Yield the words of one text: as a shell takes them, and without quotes, since a part may be another command."""
    first = is_program
    for word in _shell_words(text):
        is_variable = first and "=" in word.partition("/")[0]
        yield Word(word, is_program=first and not is_variable)
        first = first and is_variable
    for word in text.translate(_SHELL).replace('"', " ").replace("'", " ").split():
        yield Word(word, is_program=False)


def _shell_words(text: str) -> list[str]:
    import shlex  # only where a harness has commands

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
