"""The command line of `omac sandbox run`: options that are accepted, and refusals that explain the right form."""

import pytest
import typer

from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.cli.running_group import sandboxed
from omac.tools.hotpath.sandbox_options import OPTIONS, parse


def test_everything_at_once() -> None:
    """Options come in any order, with or without `=`. All words after `--` are the command, its own options
    included."""
    request = parse(
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
    assert (request.workdir, request.allow, request.network, request.json) == ("/w", ["/a", "/b"], "none", True)
    assert request.command == ["ls", "--json", "--"]


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
        (["--open-port", "8010-8000", "--", "ls"], "or a range such as 8000-8010"),
        (["--open-port", "1-65536", "--", "ls"], "or a range such as 8000-8010"),
        (["--open-port", "8000-", "--", "ls"], "or a range such as 8000-8010"),
        (["--open-port", "80", "--network", "none", "--", "ls"], "no effect with --network none"),
    ],
)
def test_misuse(words: list[str], said: str) -> None:
    """A meaningless option is refused, and the refusal names what is wrong with it."""
    with pytest.raises(Refusal, match=said.replace("?", r"\?")) as refused:
        parse(words)
    assert refused.value.exit_code == 2
    assert refused.value.fix


def test_help_needs_nothing_else() -> None:
    """The option --help is recognized beside any other option."""
    assert parse(["--workdir", "/w", "--help"]).help


def test_every_option_fills_a_field() -> None:
    empty = SandboxRequest()
    for option in OPTIONS:
        kinds = (list, dict) if option.repeats else (str,) if option.takes else (bool,)
        assert type(getattr(empty, option.field)) in kinds, option.name
    of_profiles = {"git_hooks", "git_refs", "redirect_xdg", "guard_scratch", "omac_files", "warnings"}
    of_servers = {"bridge_socket", "bridge_token", "facade_socket", "agent_settings", "run"}
    of_options = {option.field for option in OPTIONS} | {"command", "help"}
    assert of_options | of_profiles | of_servers == set(vars(SandboxRequest()))


def test_start_and_serve_take_every_shared_option() -> None:
    requests: list[SandboxRequest] = []

    def command(sandbox: SandboxRequest) -> int:
        requests.append(sandbox)
        return 0

    app = typer.Typer()
    app.command()(sandboxed(command))
    shared = [option for option in OPTIONS if option.shared]
    values = {"limits": "pids=9", "network": "host", "backend": "auto"}
    words = [[flag.name, values.get(flag.field, "1")] if flag.takes else [flag.name] for flag in shared]
    assert len(shared) > 10
    app([word for pair in words for word in pair], standalone_mode=False)
    (request,) = requests
    assert set(request.fields()) == {option.field for option in shared}
