"""Help fits a terminal of 80 columns for every command, and a mistyped name is answered with the near one."""

import pytest
from command_walk import ALL, GROUPS
from real_omac import Omac
from tiers import some

COLUMNS = 80


@pytest.mark.parametrize(
    "words", some([(words,) for words in (*ALL, *GROUPS)], of=4), ids=lambda words: " ".join(words) or "omac"
)
def test_help_fits_a_terminal(house: Omac, words: tuple[str, ...]) -> None:
    """The help has no line that is wider than 80 columns or ends in the middle of a sentence, and names no type."""
    if words == ("hook", "pre-tool-use"):  # agents alone call it; it has no options
        return
    lines = house.run(*words, "--help", extra={"COLUMNS": "200"}).out.splitlines()
    assert lines[0].startswith(" ".join(("Usage: omac", *words)))
    assert "[[" not in lines[0]
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert [line for line in lines[1:] if line.endswith("...") or "<str>" in line or "<list" in line] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_help_is_a_command(house: Omac) -> None:
    """`omac help` prints the help of `--help`, also for a command in a group."""
    assert house.ok("help") == house.ok("--help")
    assert house.ok("help", "secrets", "set") == house.ok("secrets", "set", "--help")
    done = house.run("help", "nosuch")
    assert (done.status, done.out) == (2, "")


def test_the_version_is_an_option(house: Omac) -> None:
    """`omac --version` prints the same as `omac version`, by the quick way and by the long one."""
    assert house.ok("--version") == house.process("--version").out == house.process("version").out


@pytest.mark.parametrize(
    ("typed", "status", "meant"),
    [
        (("start", "claud"), 2, "  try: omac start claude\n"),
        (("serve", "opencod"), 2, "did you mean opencode?"),
        (("list", "--harness", "codx"), 2, "did you mean codex?"),
        (("aprove", "echo"), 2, "Did you mean 'approve'"),
        (("secrets", "sett"), 2, "Did you mean 'set'"),
        (("approve", "echo", "--workdri", "."), 2, "--workdir"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistyped_name_is_answered_with_the_near_one(
    house: Omac, typed: tuple[str, ...], status: int, meant: str
) -> None:
    """omac suggests the near name of a harness, also in a command to paste, of a command, of a command of a group or of
    an option."""
    done = house.run(*typed)
    assert done.status == status
    assert meant in done.err, done
