"""domain/skills/values.py: values that a variable may have, and refusals that give no secret away."""

from collections.abc import Callable
from contextlib import suppress
from time import process_time
from typing import TypeVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.hidden import Hidden
from omac.domain.skills.meta import Config, ConfigType, Secret
from omac.domain.skills.patterns import PatternError, TextTooLong, check_pattern, matches
from omac.domain.skills.values import VALUE_BYTES_MAX, ValueRefused, check_config, check_secret, parse_lines

Field = TypeVar("Field")
Answer = TypeVar("Answer")

PEM = "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"


def config(kind: ConfigType = "string", pattern: str | None = None, choices: tuple[str, ...] = ("a", "B")) -> Config:
    """Return a setting of that type."""
    return Config("X", type=kind, pattern=pattern, choices=choices if kind == "enum" else ())


def problem_of(field: Config | Secret, text: str) -> str:
    """Return the problem in the refusal of a value; the refusal's name is always that of the field."""
    with pytest.raises(ValueRefused) as caught:
        check_secret(field, text) if isinstance(field, Secret) else check_config(field, text)
    assert caught.value.name == field.name
    assert str(caught.value) == f"{field.name}: {caught.value.problem}"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    return caught.value.problem


# ---- settings of a skill ----


@pytest.mark.parametrize(
    ("field", "text", "seen"),
    [
        *((config("bool"), word, "true") for word in ("true", "T", "Yes", "y", "1", " ON\n")),
        *((config("bool"), word, "false") for word in ("false", "F", "no", "N", "0", "off")),
        (config("int"), "007", "7"),
        (config("int"), " +7 ", "7"),
        (config("int"), "-0", "0"),
        (config("int"), str(-(2**63)), str(-(2**63))),
        (config("int"), str(2**63 - 1), str(2**63 - 1)),
        (config("enum"), "B", "B"),
        (config(), "", ""),
        (config(), " as it stands\n", " as it stands\n"),
        (config(), "é" * (VALUE_BYTES_MAX // 2), "é" * (VALUE_BYTES_MAX // 2)),
        (config(pattern="b"), "abc", "abc"),
        (config(pattern="^.$"), "😀", "😀"),
    ],
)
def test_a_value_has_one_spelling(field: Config, text: str, seen: str) -> None:
    """A value has one spelling for the sidecar, however it is written; patterns are searched for, as in Go."""
    assert check_config(field, text) == seen
    assert check_config(field, seen) == seen


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        (config("bool"), "maybe", "'maybe' must be true or false"),
        (config("bool"), "", "true or false"),
        (config("int"), "1_000", "base 10"),
        (config("int"), "0x10", "base 10"),
        (config("int"), "\u0663", "base 10"),
        (config("int"), "9" * 5000, "base 10"),
        (config("int"), str(2**63), "64 bits"),
        (config("enum"), "b", "'b' must be one of the choices: 'a', 'B'"),
        (config("enum", choices=tuple(map(str, range(99)))), "x", "'9', ..."),
        (config(pattern="^a+$"), "a\n", r"'a\n' does not match the pattern that the skill gives, '^a+$'"),
        (config(pattern="^a"), "\x1b[2J" + "b" * 500, "..."),
        (config(pattern="("), "a", "pattern that cannot be used"),
        (config(pattern="\ud800"), "a", "pattern that cannot be used"),
        (config(), "a\0b", "NUL"),
        (config(), "\ud800", "surrogate"),
        (config(), "a" * (VALUE_BYTES_MAX + 1), "too long: at most 120 KiB"),
        (config(), "é" * (VALUE_BYTES_MAX // 2 + 1), "too long: at most 120 KiB"),
    ],
)
def test_values_that_are_refused(field: Config, text: str, expected: str) -> None:
    """A refusal describes the problem and shows the value shortened, and no terminal obeys its text."""
    assert expected in problem_of(field, text)


# ---- secrets ----


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (Secret("X"), " spaces stay "),
        (Secret("X"), "s" * VALUE_BYTES_MAX),
        (Secret("X", multiline=True), PEM),
        (Secret("X", multiline=True, pattern="^-----BEGIN"), PEM),
        (Secret("X", pattern="^ghp_[a-z]{4}$"), "ghp_abcd"),
    ],
)
def test_secrets_are_not_trimmed(field: Secret, text: str) -> None:
    """A secret is neither trimmed nor respelled, and the result hides it."""
    assert check_secret(field, text) == Hidden(text)


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        (Secret("X"), "", "is empty"),
        (Secret("X", multiline=True), "", "is empty"),
        (Secret("X"), "QQQQ\n", "line break"),
        (Secret("X"), "QQQQ\rQQQQ", "line break"),
        (Secret("X"), "QQQQ\0", "NUL"),
        (Secret("X"), "QQQQ\udcff", "surrogate"),
        (Secret("X"), "Q" * (VALUE_BYTES_MAX + 1), "too long"),
        (Secret("X", pattern="^ghp_"), "QQQQ", "does not match the pattern that the skill gives, '^ghp_'"),
        (Secret("X", pattern="("), "QQQQ", "pattern that cannot be used"),
        (Secret("X", pattern="a.{900}b"), "Q" * 100_000, "too long for the pattern"),
    ],
)
def test_secrets_that_are_refused(field: Secret, text: str, expected: str) -> None:
    """A refusal describes the problem, and shows nothing of the value."""
    problem = problem_of(field, text)
    assert expected in problem
    assert "QQ" not in problem


def outcome(check: Callable[[Field, str], Answer], field: Field, text: str) -> Answer | ValueRefused:
    """Return the answer of a check, or its refusal; any other error is raised."""
    try:
        return check(field, text)
    except ValueRefused as refused:
        return refused


anything = st.text(st.characters(exclude_categories=()), max_size=40)
patterns = st.none() | anything | st.from_regex(r"[\^]?[a-c.\\(\[*+?{}1-9,|)\]]{0,12}[$]?", fullmatch=True)


@given(anything, st.sampled_from(get_args(ConfigType)), patterns, st.lists(anything, max_size=3))
def test_any_value_of_a_setting_is_taken_or_refused(
    text: str, kind: ConfigType, pattern: str | None, choices: list[str]
) -> None:
    """Any value gives a spelling that is accepted again as it is, or a refusal that can be shown."""
    field = Config("X", type=kind, pattern=pattern, choices=tuple(choices))
    answer = outcome(check_config, field, text)
    if isinstance(answer, ValueRefused):
        assert str(answer).isprintable()
    else:
        assert check_config(field, answer) == answer


@given(anything, patterns, st.booleans())
def test_the_refusal_of_any_secret_reveals_nothing(text: str, pattern: str | None, multiline: bool) -> None:
    """Four characters of a secret are in its refusal only if they are in refusals of other values as well."""
    field = Secret("X", pattern=pattern, multiline=multiline)
    answer = outcome(check_secret, field, text)
    if isinstance(answer, Hidden):
        assert answer.reveal() == text
        return
    assert str(answer).isprintable()
    pieces = {text[start : start + 4] for start in range(len(text) - 3)}
    repeated = {piece for piece in pieces if piece in str(answer)}
    assert all(piece in refusals_of_others(field, text) for piece in repeated)


def refusals_of_others(field: Secret, text: str) -> str:
    """Return the text of refusals of values that have no character of `text`."""
    letter = next(chr(code) for code in range(0x4E00, 0x9FFF) if chr(code) not in text)
    values = ("", letter, letter + "\n", letter + "\0", letter * VALUE_BYTES_MAX)
    return "\n".join(str(outcome(check_secret, field, value)) for value in values)


# ---- patterns ----


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 100_000 + "b"),
        ("^(a|aa)+$", "a" * 100_000 + "b"),
        ("(x+x+)+y", "x" * 100_000),
        ("a[ab]{900}c", "abbabaab" * 12_500),
        ("((a?b?){30}){33}c", "abbabaab" * 12_500),
        (r"(\pL|.){0,90}(.|\pL|\pN){0,60}z$", "é" * 50_000),
    ],
)
def test_hostile_patterns_are_answered_soon(pattern: str, text: str) -> None:
    """A pattern that keeps a backtracking matcher busy for years takes a moment, or is not tried."""
    begun = process_time()
    with suppress(TextTooLong):
        assert not matches(pattern, text)
    assert process_time() - begun < 5


@given(patterns.filter(lambda pattern: pattern is not None), anything)
def test_any_pattern_can_be_used_or_has_a_problem(pattern: str, text: str) -> None:
    """A pattern that check_pattern accepts can be matched; the problem of any other is short and can be shown."""
    problem = pattern_problem(pattern)
    if problem is None:
        matches(pattern, text.encode(errors="replace").decode())
    else:
        assert problem.isprintable()
        assert len(problem) < 400


def pattern_problem(pattern: str) -> str | None:
    """Return the problem that check_pattern reports, or None."""
    try:
        check_pattern(pattern)
    except PatternError as error:
        return str(error)
    return None


def test_patterns_leave_the_terminal_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """A bad pattern prints nothing on standard error, where the library would report it."""
    with pytest.raises(PatternError):
        check_pattern("(")
    assert capfd.readouterr() == ("", "")


# ---- files of values ----


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("\n  \n# A=1\n  # B=2\n", {}),
        ("A=1\nB_2=x=y", {"A": "1", "B_2": "x=y"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=", {"A": ""}),
        ("A=  as it stands # too ", {"A": "  as it stands # too "}),
        ("A=\"a 'b' c\"\nB='x\"'", {"A": "a 'b' c", "B": 'x"'}),
        ('A="x\'\nB=\'\nC=""\nD=a"b"', {"A": "\"x'", "B": "'", "C": "", "D": 'a"b"'}),
        (r"A=$HOME\n", {"A": r"$HOME\n"}),
    ],
)
def test_lines_of_values(text: str, values: dict[str, str]) -> None:
    """Values are taken literally; one pair of quotes around a whole value belongs to the file."""
    assert parse_lines(text) == values


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("A=1\nSECRET", 2, 'no "="'),
        ("export SECRET=x", 1, "export"),
        (" export SECRET", 1, "export"),
        ("# c\n\nSECRET =x", 3, "name of a variable"),
        (" SECRET=x", 1, "name of a variable"),
        ("=SECRET", 1, "name of a variable"),
        ("SEcRET=x", 1, "name of a variable"),
        ("1SECRET=x", 1, "name of a variable"),
        ("SECRET\udcff=x", 1, "name of a variable"),
        ("SECRET=1\nB=2\r\nSECRET=1", 3, "variable of line 1 again"),
    ],
)
def test_lines_that_are_refused(text: str, line: int, expected: str) -> None:
    """A refusal names the line, and shows nothing of it."""
    with pytest.raises(ValueRefused) as caught:
        parse_lines(text)
    assert caught.value.name == f"line {line}"
    assert expected in caught.value.problem
    assert "SECRET" not in str(caught.value)


@given(anything | st.from_regex(r"([A-B#' \"]?[A-C]=?.?[\r\n]*){0,6}"))
def test_any_text_is_lines_or_is_refused(text: str) -> None:
    """A text that is not in the form is refused, and raises no other error."""
    read = outcome(lambda _, lines: parse_lines(lines), None, text)
    if isinstance(read, ValueRefused):
        assert read.name.startswith("line ")
