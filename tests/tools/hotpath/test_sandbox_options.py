"""The command line of `omac sandbox run`: what is taken, and what is refused with a word on how to say it."""

from pathlib import Path

import pytest
import typer

from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.running_group import sandboxed
from omac.tools.hotpath.sandbox_options import OPTIONS, SandboxRequest, absolute, parse


def test_everything_at_once() -> None:
    """Options come in any order, with or without `=`; all after `--` is the command, options of its own included."""
    asked = parse(
        [
            "--workdir",
            "/w",
            "--allow=/a",
            "--allow",
            "/b",
            "--network=none",
            "--json",
            "--explain",
            "--",
            "ls",
            "--json",
            "--",
        ]
    )
    assert (asked.workdir, asked.allow, asked.network, asked.json) == ("/w", ["/a", "/b"], "none", True)
    assert asked.command == ["ls", "--json", "--"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the command is missing"),
        (["--"], "the command is missing"),
        (["ls"], "write the command after --"),
        (["--allow"], "needs a value"),
        (["--allow", "--", "ls"], "needs a value"),
        (["--allow=", "--", "ls"], "not empty"),
        (["--allow", "a\0b", "--", "ls"], "not empty"),
        (["--alow", "/a", "--", "ls"], "did you mean --allow?"),
        (["--workdir", "/a", "--workdir", "/b", "--", "ls"], "twice"),
        (["--json", "--", "ls"], "--explain"),
        (["--backend", "docker", "--", "ls"], "auto, bubblewrap or landlock"),
        (["--network", "isolated", "--", "ls"], "host or none"),
        (["--open-port", "0", "--", "ls"], "1 to 65535"),
        (["--open-port", "²", "--", "ls"], "1 to 65535"),
        (["--open-port", "80", "--network", "none", "--", "ls"], "no effect with --network none"),
    ],
)
def test_misuse(words: list[str], said: str) -> None:
    """What cannot be meant is refused, and the refusal says what was wrong with it."""
    with pytest.raises(Refusal, match=said.replace("?", r"\?")) as refused:
        parse(words)
    assert refused.value.exit_code == 2
    assert refused.value.fix


def test_help_needs_nothing_else() -> None:
    """--help is answered whatever stands around it."""
    assert parse(["--workdir", "/w", "--help"]).help


def test_paths_are_canonical(tmp_path: object) -> None:
    """`~` is the home that counts, and `..` is gone."""
    assert absolute("~", "/home/me") == "/home/me"
    assert absolute("~/a/../b", "/home/me") == "/home/me/b"
    assert absolute("~other", "/home/me").endswith("/~other")


def test_a_current_directory_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused by name where a path begins in it; absolute paths do not need it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(Refusal, match="current directory was removed") as refused:
        absolute(".", "/home/me")
    assert (refused.value.reason, list(refused.value.fix)) == ("directory-missing", ["cd"])
    assert absolute("/usr/../etc", "/home/me") == "/etc"
    assert absolute("~/a", "/home/me") == "/home/me/a"


def test_every_option_fills_a_field() -> None:
    fields = vars(SandboxRequest())
    for option in OPTIONS:
        kind = list if option.repeats else str if option.takes else bool
        assert type(fields[option.field]) is kind, option.name
    assert {option.field for option in OPTIONS} | {"command", "help"} == set(fields)


def test_start_and_serve_hand_on_every_shared_option() -> None:
    typed: list[str] = []

    def command(sandbox: list[str]) -> int:
        typed.extend(sandbox)
        return 0

    app = typer.Typer()
    app.command()(sandboxed(command))
    shared = [option for option in OPTIONS if option.shared]
    words = [word for option in shared for word in ([option.name, "1"] if option.takes else [option.name])]
    assert len(shared) > 10
    app(words, standalone_mode=False)
    assert typed == words
