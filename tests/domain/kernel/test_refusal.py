"""domain/kernel/refusal.py: one decision, rendered as HTTP status and as exit code."""

import ast
import inspect
import re
from pathlib import Path
from typing import cast

import pytest
from pasting import words_of
from tables import failing

from omac.domain.kernel.refusal import REASONS, Reason, Refusal, quoted


def test_every_reason_can_leave_omac() -> None:
    """Every reason has an HTTP error, an exit code of the contract, and only letters and hyphens, as `X-Omac-Reason`
    requires."""

    def check(reason: Reason) -> None:
        refusal = Refusal(reason, "what happened")
        assert 400 <= refusal.status <= 599
        assert 1 <= refusal.exit_code <= 10 or (refusal.exit_code in (126, 127) and reason.startswith("command-"))
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason)

    assert failing(check, ((reason,) for reason in REASONS)) == []


def test_a_refusal_carries_what_a_person_needs() -> None:
    """A refusal carries the message, commands to paste, and the skill it is about."""
    refusal = Refusal("skill-broken", "echo: it fell", fix=["omac reload /w"], skill="echo")
    assert str(refusal) == refusal.message == "echo: it fell"
    assert (refusal.fix, refusal.skill) == (("omac reload /w",), "echo")
    assert (Refusal("misuse", "no").fix, Refusal("misuse", "no").skill) == ((), None)


def test_an_unknown_reason_is_a_fault() -> None:
    """An unknown reason raises an error where it is rendered, and is not sent out."""
    with pytest.raises(KeyError):
        _ = Refusal(cast(Reason, "because"), "no").status  # a mistake that a type checker would find


def test_the_type_of_reasons_lists_them_all() -> None:
    """The type lists exactly the reasons that have an outcome, so that a misspelt one is a type error."""
    tree = ast.parse(Path(inspect.getfile(Refusal)).read_text())
    (listed,) = [
        node.value.slice
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Subscript)
        and ast.unparse(node.targets[0]) == "Reason"
    ]
    assert list(ast.literal_eval(listed)) == list(REASONS)


def test_a_quoted_word_can_be_pasted() -> None:
    """A shell reads from what is shown exactly the bytes of a word, whatever its characters; a plain word stays so."""
    words = ["plain", "a b", "it's", "new\nline", "tab\t'\\ and \x1b[2J", "\u202eübel", "byte \udcff", "$(id)\x07", ""]
    assert all(quoted(word).isprintable() for word in words)
    assert words_of(" ".join(map(quoted, words))) == words
    assert quoted("plain") == "plain"
    assert quoted("it's") == "'it'\"'\"'s'"
