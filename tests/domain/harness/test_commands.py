"""The programs that an agent's settings name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.harness.commands import command_words, expanded, is_script

VARIABLES = {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/h/.claude"}


def paths(settings: object) -> list[str]:
    """Return the paths that the commands name, with programs marked."""
    programs: dict[str, bool] = {}
    for word in command_words(settings):
        path = expanded(word.text, VARIABLES)
        if path:
            programs[path] = programs.get(path, False) or word.is_program
    return [f"{path}*" if is_program else path for path, is_program in programs.items()]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"statusLine": {"type": "command", "command": "~/.claude/s.sh"}}, ["/h/.claude/s.sh*"]),
        ({"statusLine": {"command": "$HOME/s.sh --width 5"}}, ["/h/s.sh*"]),
        ({"statusLine": {"command": "\"${CLAUDE_CONFIG_DIR}/a b.sh\""}}, ["/h/.claude/a", "/h/.claude/a b.sh*"]),
        ({"hooks": {"Stop": [{"matcher": "*", "hooks": [{"command": "python3 /h/x.py"}]}]}}, ["/h/x.py"]),
        ({"hooks": {"Stop": [{"hooks": [{"command": "A=/h/a bash -c 'cd /h/b && /h/c.sh | tee /h/d'"}]}]}},
         ["/h/a", "/h/b", "/h/c.sh", "/h/d"]),
        ({"apiKeyHelper": "/h/key"}, ["/h/key*"]),
        ({"otelHeadersHelper": "/h/otel"}, ["/h/otel*"]),
        ({"fileSuggestion": {"command": "/h/f"}}, ["/h/f*"]),
        ({"awsAuthRefresh": "/h/aws login"}, ["/h/aws*"]),
        ({"mcpServers": {"a": {"command": "node", "args": ["--require=/h/r.js", "/h/s.js"], "env": {"X": "/h/data"}}}},
         ["/h/r.js", "/h/s.js"]),
        ({"projects": {"/w": {"mcpServers": {"a": {"command": "/h/s"}}}}}, ["/h/s*"]),
        ({"mcp": {"a": {"command": ["/h/s", "/h/x"], "environment": {"A": "/h/y"}}}}, ["/h/s*", "/h/x"]),
        ({"mcpServers": {"a": {"args": ["/h/a b.js"]}}}, ["/h/a", "/h/a b.js"]),
        ({"notify": ["python3", "/h/n.py"]}, ["/h/n.py"]),
        ({"providers": {"p": {"apiKey": "!/h/pass show x"}}}, ["/h/pass*"]),
        ({"command": "unclosed ' /h/x"}, ["/h/x"]),
        ({"permissions": {"allow": ["Read(/h/x)"], "additionalDirectories": ["/h/y"]}, "model": "/h/z"}, []),
        ({"command": {"description": "/h/x"}}, []),
        ([], []),
    ],
)  # fmt: skip
def test_what_settings_name(settings: object, expected: list[str]) -> None:
    """Settings name commands at any level. The first word of a command is its program; other settings name nothing."""
    assert sorted(paths(settings)) == sorted(expected)


def test_names_of_scripts() -> None:
    """A name with a script's ending is that of a script; the name of a log is not."""
    assert [is_script(name) for name in ("a.sh", "A.PY", "x.mjs", "a.log", "py", "a.json")] == [True] * 3 + [False] * 3


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["command", "args", "hooks"]), inner),
)


@pytest.mark.full
@given(_JSON)
def test_any_settings(settings: object) -> None:
    """The search for commands ends, whatever an agent wrote into its settings."""
    assert all(word.text is not None for word in command_words(settings))


def test_settings_without_bottom() -> None:
    """The search stops at a depth in deep settings, and at a length in long ones."""
    deep: object = "/h/x"
    for _ in range(500):
        deep = {"command": deep}
    assert paths(deep) == []
    assert len(list(command_words({"command": "a " * 50_000}))) == 10_000
