"""tools/terminal/typed_command.py: the command line as it was typed, with other options."""

from io import StringIO

import pytest

from omac.tools.terminal.invocation import Invocation, typed_with, working_for


@pytest.mark.parametrize(
    ("typed", "options", "whole"),
    [
        (["audit"], "--after c.1", "omac audit --after c.1"),
        (["audit", "--after", "start", "--json"], "--after c.1", "omac audit --after c.1 --json"),
        (["audit", "--after=start"], "--after c.1", "omac audit --after=c.1"),
        (["audit", "--to", "3", "--from", "9"], "--from 3 --to 9", "omac audit --to 9 --from 3"),
        (["start", "--audit", "x", "--", "sh", "--audit", "x"], "--audit strict",
         "omac start --audit strict -- sh --audit x"),
        (["start", "--", "sh"], "--audit strict", "omac start --audit strict -- sh"),
        (["audit", "--text", "a b;c", "-n", "x"], "--lines 20", "omac audit --text 'a b;c' -n 20"),
        (["export", "--out", "a b"], "--out NEW  # say why --not", "omac export --out NEW  # say why --not"),
        (["audit", "verify"], """--key "$(cat 'a b')\"""", """omac audit verify --key "$(cat 'a b')\""""),
    ],
)  # fmt: skip
def test_options_in_their_places(typed: list[str], options: str, whole: str) -> None:
    """New options replace the typed ones, come before the words of a program, and are quoted for a shell."""
    with working_for(Invocation({}, None, StringIO(), StringIO(), words=tuple(typed))):
        assert typed_with(options) == whole
