"""domain/git/operations.py: files of an unfinished operation may say what git writes there, and nothing else."""

from collections.abc import Callable

import pytest

from omac.domain.git import operations

OID = b"a" * 40
HOOK = b"""#!/bin/sh
command -v git-lfs >/dev/null 2>&1 || { echo >&2 "%b"; exit 2; }
git lfs pre-push "$@"
"""
TODO = b"""pick abcd a commit
fixup -C abcd
label onto
reset [new root]
merge -C abcd onto # merged
update-ref refs/heads/x
break

# pick abcd
"""
OPTIONS = (
    b"[options]\n\tno-commit = true\n\tmainline = 1\n\tstrategy = ort\n\tstrategy-option = ours\n\tgpg-sign = AB12\n"
)

FINE = {
    operations.todo_problem: [b"", TODO],
    operations.author_problem: [
        b"", b"GIT_AUTHOR_NAME='O'\\''Brien'\nGIT_AUTHOR_EMAIL='a@b'\nGIT_AUTHOR_DATE='@1 +0000'\n",
    ],
    operations.signing_problem: [b"", b"-S\n", b"-SAB12\n", b"--gpg-sign=Ann <a@b.c>"],
    operations.hook_problem: [HOOK % b"git-lfs is missing"],
    operations.terms_problem: [b"bad\ngood\n", b"new-one\nold"],
    operations.quoted_problem: [b"\n", b" 'a' 'O'\\''Brien'\n"],
    operations.strategy_problem: [b"ort\n", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"],
    operations.strategy_options_problem: [b"", b"'--ours' '--find-renames=50%'\n", b"theirs"],
    operations.apply_problem: [b"", b"'-3' '-p1' '--whitespace=fix'\n"],
    operations.options_problem: [b"", OPTIONS],
    operations.conflicts_problem: [b"", OID + b"\ta\0" + OID + b".1\tb/c\0"],
    operations.name_problem: [b"", b"detached HEAD\n", b"refs/heads/x\n", OID],
    operations.names_problem: [b"", OID + b" " + OID + b"\nrefs/heads/x\n"],
    operations.number_problem: [b"3\n"],
}  # fmt: skip
WRONG = {
    operations.todo_problem: [b"exec touch x\n", b" x touch x\n", b"pick abcd\nexec\n", b"update-ref HEAD\n", b"run\n"],
    operations.author_problem: [
        b"GIT_AUTHOR_NAME='a'; touch x\n", b"GIT_AUTHOR_NAME=$(touch x)\n", b"PATH='x'\n", b"GIT_AUTHOR_NAME='a\n",
    ],
    operations.signing_problem: [b"-S$(touch x)", b"-S/a/key", b"-S --program=x"],
    operations.hook_problem: [b"", b"#!/bin/sh\ntouch x\n", HOOK % b"$(touch x)", HOOK % b"a" + b"touch x\n"],
    operations.terms_problem: [b"bad\n", b"a b\nc\n", b"bad\ngood\nmore\n", b"$x\ngood\n"],
    operations.quoted_problem: [b"$(touch x)\n", b"'a' b\n", b"'a'$(touch x)", b"'a' 'b\n"],
    operations.strategy_problem: [b"", b"x/y\n", b"ort x"],
    operations.strategy_options_problem: [b"subtree=../x", b"--ours --program=x"],
    operations.apply_problem: [b"'--directory=../x'\n", b"-3 --build-fake-ancestor=x"],
    operations.options_problem: [
        b"[options", b"[core]\n\tedit = x\n", b"[options]\n\teditor = x\n", OPTIONS + b"\tstrategy = x/y\n",
        OPTIONS + b"\tstrategy-option = subtree=../x\n", OPTIONS + b"\tgpg-sign = $(touch x)\n",
    ],
    operations.conflicts_problem: [OID + b"\ta", b"ab\ta\0", OID + b" a\0", OID + b"\t\0"],
    operations.name_problem: [b"a b\n", b"a\nb\n", b"$x^\n", b"-f\n"],
    operations.names_problem: [b"a b c\n", b"a\tb\n", b"a -b\n"],
    operations.number_problem: [b"", b"x\n", b"-1\n"],
}  # fmt: skip
Problem = Callable[[bytes, bytes], str]


def pairs(contents: dict[Problem, list[bytes]]) -> list[tuple[Problem, bytes]]:
    return [(problem, content) for problem, each in contents.items() for content in each]


@pytest.mark.parametrize(("problem", "content"), pairs(FINE))
def test_what_git_writes_is_fine(problem: Problem, content: bytes) -> None:
    assert problem(content, b"") == ""


@pytest.mark.parametrize(("problem", "content"), pairs(WRONG))
def test_another_content_is_a_problem(problem: Problem, content: bytes) -> None:
    """A command, a program or a place that an operation would use is a problem, unless the host had it there."""
    assert problem(content, b"before")
    if problem is not operations.todo_problem:
        assert problem(content, content) == ""


def test_commands_that_were_there_may_stay() -> None:
    """A list of steps may have the commands that the host gave it, in any order; others become comments."""
    content, had = b"exec new\nexec old\npick abcd\n", b"pick abcd\nexec old\n"
    assert operations.todo_problem(had, had) == ""
    assert operations.todo_problem(content, had)
    assert operations.without_commands(content, had) == b"# exec new\nexec old\npick abcd\n"
