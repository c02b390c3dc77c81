"""domain/git/config.py: configuration files, compared with the git of this machine."""

import functools
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.git.config import parse, render

FOLDER = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path("/tmp")
ACCEPTED = [
    "",
    "\n\n  # nothing\n; at all",
    "[core]\n\tbare = false\n",
    "\ufeff[core]\nbare = false",
    "[core]\r\n\tbare = false\r\n",
    "[Core]\n\tIgnoreCase = True\n\teditor = Vi -R\n",
    "[core] bare = false\n",
    "[a][b] [C] key = value ; note",
    "[core]\nbare",
    '[core]\nbare =\nbare = \nbare = ""\n',
    "[core] bare # no note here is possible\n",
    '[remote "Ori.gin"]\n\turl = https://example.org/a.git\n',
    '[remote   "with \\"quotes\\" and \\\\ and \\x"]\n\turl = x\n',
    "[branch.Main.X]\n\tmerge = y\n",
    '[a.B "c.D"]\nk = v\n',
    '[a ""]\nk = v\n',
    '[ "b"]\nk = v\n',
    "[alias]\n\tlg = log --graph \\\n\t\t--oneline ; a note\n",
    '[alias]\n\tx = "!f() { echo \\"$1\\"; }; f"  # a note\n',
    '[a]\n k = one "two  # three" four   \n',
    "[a]\n k = a\\tb\\nc\\bd\\\\e\n",
    "[a]\n k = ends in\\",
    "[a]\n k = ends in \\\n",
    '[a]\n k = "spaces kept  "  \n',
    '[a]\n k = "over \\\n two lines"\n',
    "[a]\n k = \\\n\\\n x\n",
    "[a]\n k = x;y#z\n k2 = x ;y\n",
    "[a]\n k = 'single'\n k-2 = =\n k3 = [b]\n",
    "[a]k=v\n[include]\npath = ~/x\n",
    "[a]\n k = caf\u00e9 \udcff\n",
    "[user]\n\tname = A U Thor\n[user]\n\tname = Another\n",
]
REFUSED = [
    "[]\nk = v\n",
    "[core",
    "[core\n]",
    "[co_re]\nk = v",
    "[core] bare false\n",
    "[core]\n1k = v\n",
    "[core]\n_ = v\n",
    "[core]\nk: v\n",
    "[core]\nk\r",
    '[a "b]\nk = v\n',
    '[a "b" ]\nk = v\n',
    '[a"b"]\nk = v\n',
    '[a "b\\\n"]\nk = v\n',
    "[a b]\nk = v\n",
    '[a]\n k = "open\n',
    '[a]\n k = "open \\\n',
    "[a]\n k = \\x\n",
    "] = x",
    "<<<<<<< HEAD\n[a]\nk = v\n",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_file_means_what_git_reads_in_it(text: str) -> None:
    """omac reads every setting of a file as git does: in order, with the same name and value."""
    assert _seen(text) == _by_git(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_git_does_not_accept_is_refused(text: str) -> None:
    """A file that git does not accept is refused with the number of the line, so that a person finds it."""
    assert _by_git(text) is None
    with pytest.raises(ValueError, match=r"^line [1-4]: "):
        parse(text)


def test_a_nul_is_refused() -> None:
    """A value with a NUL is refused, since git would cut it there and read another value."""
    with pytest.raises(ValueError, match="line 2: a NUL"):
        parse("[a]\nk = v\0w\n")


PIECES = st.sampled_from(
    [*"[]\"\\=#;\n\r .-aB9_'é", "\r\n", "\\\n", "\\n", '\\"', "= ", "key", "k = v\n", "[a]\n", "[x.y]", '[a "b"]']
)


@given(st.lists(PIECES, max_size=16).map("".join))
@settings(max_examples=examples(150))
def test_no_text_means_something_else_than_to_git(text: str) -> None:
    """Any text has the same settings for omac as for git, or both refuse it."""
    assert _seen(text) == _by_git(text)


TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
KEYS = st.tuples(
    st.from_regex(r"[a-z0-9-]{1,6}", fullmatch=True),
    st.one_of(st.just(""), TEXTS.filter(lambda label: "\n" not in label).map(lambda label: "." + label)),
    st.from_regex(r"\.[a-z][a-z0-9-]{0,5}", fullmatch=True),
).map("".join)


@pytest.mark.full
@given(st.lists(st.tuples(KEYS, TEXTS), max_size=6))
@settings(max_examples=examples(100))
def test_what_is_written_is_read_back(pairs: list[tuple[str, str]]) -> None:
    """git and omac read back every setting that omac writes, so no value can begin a setting of its own."""
    text = render(pairs)
    assert parse(text) == pairs
    assert _by_git(text) == [(key, _even(value)) for key, value in pairs]


@pytest.mark.parametrize(
    "pair",
    [
        ("a.k\nb", "v"),
        ("a.k]", "v"),
        ("a]\n[b.k", "v"),
        ("a.x\n]\n[b.k", "v"),
        ("a.k", "v\0"),
        ("a b.k", "v"),
        ("a.1", "v"),
        ("a.", "v"),
        ("", "v"),
    ],
)
def test_what_no_file_can_say_is_not_written(pair: tuple[str, str]) -> None:
    """A setting that would break out of its line is refused; its valid twin is written."""
    with pytest.raises(ValueError, match="cannot be"):
        render([("a.k", "v"), pair])
    assert _by_git(render([("a.k", "v"), ("a.x.k", "v")])) == [("a.k", "v"), ("a.x.k", "v")]


def _seen(text: str) -> list[tuple[str, str]] | None:
    try:
        return [(key, _even(value)) for key, value in parse(text)]
    except ValueError:
        return None


def _by_git(text: str) -> list[tuple[str, str]] | None:
    """Return the settings that `git config --list` prints, or None where it fails."""
    path = FOLDER / f"omac-test-config-{os.getpid()}"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    try:
        argv = ["git", "config", "--file", str(path), "--null", "--list"]
        done = subprocess.run(argv, capture_output=True, check=False, cwd="/", timeout=20)
    finally:
        path.unlink()
    if done.returncode:
        return None
    pairs = []
    for item in done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        key, newline, value = item.partition("\n")
        pairs.append((key, _even(value) if newline else "true"))
    return pairs


def _even(value: str) -> str:
    """Return a value as this git reads it: gits before 2.45 turn white space inside it into spaces."""
    return value if _keeps_tabs() else value.replace("\t", " ").replace("\r", " ")


@functools.cache
def _keeps_tabs() -> bool:
    version = subprocess.run(["git", "--version"], capture_output=True, check=True, text=True).stdout.split()[2]
    return tuple(int(part) for part in version.split(".")[:2]) >= (2, 45)
