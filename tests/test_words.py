"""Messages use plain words: no user-visible text contains a private word of the project."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("domain", "journal", "projections", "services", "adapters", "tools")
PLAIN = {  # a word or phrase (a regular expression) that no message may contain, and what to write instead
    r"vouch(es|ed|ing)?": "approve",
    r"(un)?told|tell(s|ing)? (you|them|omac|it) (that|what)": "report, print",
    r"(take|takes|took|taken) (\w+ ){0,2}back": "revoke, remove",
    r"no longer given to|not given to it any more": "revoked from",
    r"(what|everything|all) (that )?(is|was|has been) given( \w+)*": "its values, values set before",
    r"out of the way": "set aside",
    r"(is|was|are|were) meant|if (that|this) is what you mean": "name the thing: --hash, the target, the path",
    r"anew": "again, restarted",
    r"(comes?|came|coming|brings?|brought|bringing) home": "copied back",
    r"stands? (in|here|there|at|before|after|for|beside)|stands in (its|the) way": "is, has, exists",
    r"goes by": "uses",
    r"who(so)?ever": "name who: any user, any process, an agent",
    r"nobody|somebody": "name who, or say it of the thing: unapproved, disabled, another process, no terminal",
    r"others (than you )?(may|can) (write|read|use)": "X is writable (readable, accessible to) other users",
    r"(written|read|changed) by others": "writable (readable, changeable) by other users",
    r"what is denied must": "--deny works only on paths that exist at launch",
    r"(not )?removed from where it is kept|where it (is|was) kept": "deleting it from the keychain failed",
    r"still where it was": "deleting it failed",
    r"(is|be|still|what is|longer|a value is) remembered( for)?|remembered values? (is|can|was)": "saved as a default",
    r"look(s|ed|ing)? (again )?(at|for|in|through)": "read, inspect, discover, search, review",
    r"what becomes of": "whether, how",
    r"make no sense": "cannot be combined, has no effect",
    r"(was|were) not heard": "ignored",
    r"there is nothing (there|yet)|: there is nothing$": "no such file or directory",
    r"there (is|are) no (setting|table|profile|option|journal|vault|store|key file)": "unknown X, no X exists",
    r"(file|folder)s? of yours": "your own file, a file you own",
    r"(is|are) to be (forgotten|hidden|inspected|found)": "this deregisters X, files to hide, files to inspect",
    r"taken over|take over (what|settings|values|the skills)": "import, imported",
    r"(as|than) omac does not know": "unexpected",
}
WRONG = {re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE): plain for pattern, plain in PLAIN.items()}
OPENINGS = re.compile(  # a docstring opens with a verb or a noun, and says what it says itself
    r"(All of|All that|As|Everything|How|If|Its?|Nobody|Nothing|One (can|is|may|of|that|who|whose)|Raises|See|That"
    r"|The same|There|These|This|Those|What(ever)?|When|Where|Whether|Which|Who(ever)?|Why)\b"
)
MAY_OPEN = re.compile(rf"[\"'](?:\\?\s)*{OPENINGS.pattern}")  # a source without this has no such docstring
FALSE_FRIENDS = {  # (file, words of the text): why it may stay
    ("tools/cli/hook.py", "Nothing tells you that the path was wrong"): "prose for an agent's role document",
}


def is_log_call(node: ast.AST) -> bool:
    """Return whether this logs: a log message is stable, since people search their logs for it."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and bool(re.fullmatch(r"_?log|logging", ast.unparse(node.func.value), re.IGNORECASE))
    )


def is_command(node: ast.AST) -> bool:
    """Return whether this function's docstring becomes the help of a command."""
    return isinstance(node, ast.FunctionDef) and any(
        "command(" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def has_docstring(node: ast.AST) -> TypeGuard[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return whether the first statement below `node` is a docstring."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each text with a blank that a user can see below `node`, with its line; an f-string's fields become {}.

    Left out are docstrings that are no help of a command, log messages, and messages of assertions.
    """
    if isinstance(node, ast.Assert) or is_log_call(node):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if " " in node.value:
            yield node.lineno, node.value
        return
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
        yield node.lineno, "".join(map(str, parts))
        children: list[ast.AST] = [part for part in node.values if not isinstance(part, ast.Constant)]
    else:
        children = list(ast.iter_child_nodes(node))
    if has_docstring(node) and not is_command(node):
        children.remove(node.body[0])
    for child in children:
        yield from texts(child)


def findings(source: str, file: str) -> list[str]:
    """Return a line for each private word in a user-visible text of this source."""
    return private_words(texts(ast.parse(source)), file)


@functools.cache
def texts_of(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a module, which several tests read."""
    return list(texts(ast.parse(path.read_text())))


def private_words(shown: Iterable[tuple[int, str]], file: str) -> list[str]:
    """Return a line for each private word in these texts of a file."""
    found = []
    for line, text in shown:
        for pattern, plain in WRONG.items():
            match = pattern.search(text)
            if match and not any(file == path and words in text for path, words in FALSE_FRIENDS):
                found.append(f"{file}:{line}: {text!r}: instead of {match[0]!r} write: {plain}")
    return found


def openings(source: str, file: str) -> list[str]:
    """Return a line for each docstring of this source that opens with neither a verb nor a noun."""
    if not MAY_OPEN.search(source):
        return []
    return [
        f"{file}: {getattr(node, 'name', 'the module')}: {docstring.splitlines()[0]!r}"
        for node in ast.walk(ast.parse(source))
        if has_docstring(node)
        and OPENINGS.match(docstring := ast.get_docstring(node) or "")
        and not re.match(r"This (?!is|was|has|must|cannot)", docstring)  # "This process", a noun
    ]


@pytest.mark.parametrize("folder", [*LAYERS, "tests"])
def test_docstrings_open_with_a_verb_or_a_noun(folder: str) -> None:
    """A reader knows from the first word whether a docstring is about an act or a thing."""
    found = [
        opening
        for path in sorted((ROOT / folder).rglob("*.py"))
        for opening in openings(path.read_text(), path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n" + "\n".join(found)


def test_openings_are_found() -> None:
    """Wrong openings are found in docstrings of modules, classes and functions, however those begin."""
    source = '"""What is there."""\nclass One:\n    """It ended."""\n    def one(self) -> None:\n        """See Two."""'
    assert len(openings(source, "one.py")) == 3
    for opening in ("These end.", "One of them ends.", "\n    It ended.", "\\\n  It ended.", " It ended."):
        assert openings(f'"""{opening}"""', "one.py")
        assert openings(f'r"""{opening.lstrip(chr(92))}"""', "one.py")
    for opening in ("Return whether it is there.", "One line of a table.", "This process."):
        assert not openings(f'"""{opening}"""', "one.py")


@pytest.mark.parametrize("layer", LAYERS)
def test_messages_use_plain_words(layer: str) -> None:
    """Messages contain no word that only this project uses in that sense."""
    found = [
        finding
        for path in sorted((ROOT / layer).rglob("*.py"))
        for finding in private_words(texts_of(path), path.relative_to(ROOT).as_posix())
    ]
    assert not found, "\n" + "\n".join(found)


def test_enough_is_read() -> None:
    """The texts of all layers are collected, so an empty list of findings means something."""
    counts: Mapping[str, int] = {
        layer: sum(len(texts_of(path)) for path in (ROOT / layer).rglob("*.py")) for layer in LAYERS
    }
    assert sum(counts.values()) > 2_000, counts
    assert all(counts.values()), counts


@pytest.mark.parametrize(
    "source",
    [
        'raise Refusal("misuse", f"nobody vouches for {name}")',
        'raise Refusal("misuse", message=f"{name} " f"was started anew")',
        'message = "others may write to it"\nraise Refusal("misuse", message)',
        'say("forgotten, but not removed from where it is kept" if gone else "")',
        'warnings.append(f"--deny {path}: there is nothing")',
        'findings += [f"{count} were put out of the way"]',
        'print_data("its skills could not be looked at")',
        'option = typer.Option("--force", help="Whoever wrote it.")',
        '@app.command("list")\ndef list_() -> int:\n    """Take secrets back."""',
        "print(f\"{'what is remembered' if known else name}\")",
    ],
)
def test_private_words_are_found(source: str) -> None:
    """Texts are found as arguments, by keyword, in variables, in parts, in f-strings and in help."""
    assert len(findings(source, "tools/cli/example.py")) >= 1


@pytest.mark.parametrize(
    "source",
    [
        'def approve() -> None:\n    """Vouch for it anew."""',
        '_LOG.warning("%s cannot be looked at", path)',
        'assert ready, "nobody asks before"',
        'told = {"told": 1}',
        'say(f"retold {name} for the standard input")  # anew',
    ],
)
def test_what_no_user_reads_is_free(source: str) -> None:
    """Ordinary docstrings, names, keys, comments, logs and assertions are not messages."""
    assert findings(source, "tools/cli/example.py") == []
