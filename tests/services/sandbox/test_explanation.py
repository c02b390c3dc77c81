"""services/sandbox/explanation.py: the explanation of a policy, for people and for programs."""

import json
from collections.abc import Iterator

import pytest
from real_sandbox import Box, box


@pytest.fixture
def mine() -> Iterator[Box]:
    with box() as made:
        yield made


def explained(mine: Box, *words: str, extra: dict[str, str] | None = None) -> str:
    done = mine.host(*mine.omac("sandbox", "run", "--explain", *words), extra=extra)
    assert (done.status, done.err) == (0, "")
    return done.out


def test_a_hostile_name_is_shown_and_not_obeyed(mine: Box) -> None:
    """A name with line ends and escape characters makes no line of its own and reaches no terminal."""
    hostile = mine.home / "a\nread     /etc/shadow\x1b[2J"
    hostile.mkdir(parents=True)
    text = explained(mine, "--workdir", str(hostile), "--", "echo", "two words", "\x1b[31m")
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if line.startswith("read     /etc/shadow")]
    assert f"workdir  {mine.home}/a\\nread     /etc/shadow\\x1b[2J\n" in text
    assert "command  /usr/bin/echo 'two words' '\\x1b[31m'\n" in text
    document = json.loads(explained(mine, "--workdir", str(hostile), "--json"))
    assert document["workdir"] == str(hostile)


def test_a_locale_without_its_letters(mine: Box) -> None:
    """A text with letters that the locale does not have is printed all the same, and programs get it whole."""
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert "command  /usr/bin/echo '\\udcc3\\udca9'\n" in explained(mine, "--", "echo", "é", extra=plain)
    assert json.loads(explained(mine, "--json", "--", "echo", "é", extra=plain))["command"][1] == "é"


def test_limits_are_printed_exactly(mine: Box) -> None:
    """Limits are printed to the byte: two limits that differ are two policies."""
    text = explained(mine, "--limit", "memory=4294967297,files=500", "--", "true")
    assert "memory=4294967297 by" in text
    assert "files=500 by" in text
    document = json.loads(explained(mine, "--limit", "memory=4294967297", "--json", "--", "true"))
    assert document["limits"]["memory"]["value"] == "4294967297"
