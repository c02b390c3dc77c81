"""Settings that a user passes to an agent reach it together with omac's own."""

import json
import re
from pathlib import Path

import pytest
from real_omac import Omac
from tiers import spread

SECRET = "a-key-of-the-person"
CLAUDE = '#!/bin/sh\nprintf "%s\\n" "$#" "$1" "$2" "$3"\ntest -f "$2" && stat -c %a "$2" && cat "$2"\nexit 0\n'


@pytest.fixture
def claude(omac: Omac) -> Path:
    """Put a program called claude on PATH that prints its arguments and the file that the second one names."""
    return omac.program("claude", CLAUDE)


@pytest.mark.parametrize(("options", "size"), spread([(), ("--no-sandbox",)], [0, 300_000]))
def test_a_file_of_settings_stays_one(omac: Omac, claude: Path, options: tuple[str, ...], size: int) -> None:
    """Settings from a file become neither an argument, which every user of the machine can read, nor a record."""
    project = omac.project("p")
    settings = omac.folder / "mine.json"
    settings.write_text(json.dumps({"env": {"KEY": SECRET}, "pad": "x" * size}))
    done = omac.run("start", "claude", "--workdir", str(project), *options, "--", "--settings", str(settings), "-p")
    assert done.status == 0, done
    count, option, path, word, mode, content = done.out.splitlines()
    assert (count, option, word, mode) == ("3", "--settings", "-p", "600")
    merged = json.loads(content)
    assert (merged["env"]["KEY"], len(merged["pad"])) == (SECRET, size)
    assert set(merged["hooks"]) == {"PreToolUse", "SessionStart", "SessionEnd"}
    assert (path == "/run/omac/settings.json") == (not options)
    leaks = [file for file in omac.state.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    assert leaks == []


def test_settings_among_the_words_stay_there(omac: Omac, claude: Path) -> None:
    """Settings that the command line spells out stay an argument."""
    done = omac.run("start", "claude", "--no-sandbox", "--", "--settings", '{"model":"m"}')
    assert json.loads(done.out.splitlines()[2])["model"] == "m"


def test_variables_of_the_hooks_are_stated(omac: Omac, claude: Path) -> None:
    """omac passes its hooks' variables in settings that precede those of the project, which an agent can write."""
    project = omac.project("p")
    stated = json.dumps({"env": {"OMAC_WORKDIR": "/elsewhere", "MINE": "m"}})
    done = omac.run("start", "claude", "--workdir", str(project), "--", "--settings", stated)
    variables = json.loads(done.out.splitlines()[2])["env"]
    assert re.fullmatch("http://127.0.0.1:[0-9]+", variables.pop("OMAC_CONTROL_BASE"))
    assert variables == {
        "MINE": "m",
        "OMAC_CONTROL_SOCKET": "/run/omac/bridge.sock",
        "OMAC_CONTROL_TOKEN_FILE": "/run/omac/bridge.token",
        "OMAC_HARNESS": "claude",
        "OMAC_WORKDIR": str(project),
        "OMAC_SANDBOX": "1",
        "OMAC_GUARD_SCRATCH": "",
    }
