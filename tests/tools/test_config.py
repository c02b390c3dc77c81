"""tools/cli/config.py prints the settings of a skill with the source of each, and changes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_omac import Omac, Serving
from valued_skill import everywhere, pid_of, piped, told, typed, valued, waiting

from omac.domain.credentials.credential import ConfigRemoved, ConfigWritten, DefaultMirrored
from omac.domain.skills.registration import Registered

SOON_S = 1.0  # a change from another terminal, until omac acts on it
START_S = 5.0  # a small Python server, until it answers
PLAIN = """\
name: slack
sidecar:
  command: [python3, -I, -S, sidecar.py]
  mount: chat
  health: {path: /status}
  config:
    - {name: REGION, pattern: '^[a-z]+$'}
    - {name: LIMIT, type: int, default: "10"}
    - {name: MODE, type: enum, choices: [fast, slow], required: false}
"""


@pytest.fixture(scope="module")
def shared(house: Omac) -> tuple[Omac, Path]:
    """Return an omac and a project with a skill whose settings no test changes."""
    return house, valued(house)


def shown(omac: Omac, project: Path, **extra: str) -> dict[str, Any]:
    """Return the document that `omac config show --json` prints."""
    done = omac.run("config", "show", "slack", "--json", "--workdir", str(project), extra=extra)
    assert (done.status, done.err) == (0, "")
    document: dict[str, Any] = json.loads(done.out)
    return document


def sources(omac: Omac, project: Path, **extra: str) -> dict[str, tuple[str | None, str]]:
    """Return the value of each setting and its source."""
    return {row["name"]: (row["value"], row["source"]) for row in shown(omac, project, **extra)["config"]}


def test_the_journey_of_a_setting(omac: Omac) -> None:
    """A setting goes from its default to a stored value and back; each step prints that, and the journal records it."""
    project = valued(omac)
    where = ("--workdir", str(project))
    before = shown(omac, project)
    assert list(before) == ["skill", "mount", "workdir", "config", "secrets"]
    assert (before["skill"], before["mount"], before["workdir"]) == ("slack", "chat", str(project))
    assert before["config"][0] == {
        "name": "REGION", "type": "string", "value": "eu", "source": "default", "required": True,
        "description": "where it is",
    }  # fmt: skip
    assert before["secrets"][0] == {
        "name": "TOKEN", "fingerprint": "<missing>", "source": "missing-required", "required": True,
        "description": "opens the door",
    }  # fmt: skip
    done = omac.run("config", "set", "slack", "REGION", "us", *where)
    assert (done.status, done.out) == (0, f"REGION of slack for {project} is 'us'\n")
    assert "try: omac approve slack" in done.err
    assert omac.ok("config", "get", "slack", "REGION", *where) == "us\n"
    assert sources(omac, project)["REGION"] == ("us", "stored")
    done = omac.run("config", "unset", "slack", "REGION", "LIMIT", "REGION", *where)
    assert done.out.splitlines() == [
        f"REGION is revoked from slack for {project}",
        f"LIMIT was not given to slack for {project}",
    ]
    assert sources(omac, project)["REGION"] == ("eu", "default")
    registered, *changes = [record.event for record in omac.events()]
    assert isinstance(registered, Registered)
    assert registered.workdir == str(project)
    assert changes == [
        ConfigWritten("REGION", "us", "agents"),
        DefaultMirrored("REGION", omac.events(DefaultMirrored)[0].event.code, "us"),
        ConfigRemoved("REGION"),
    ]


def test_where_values_come_from(shared: tuple[Omac, Path], omac: Omac) -> None:
    """A setting's value is the stored one, the default, or that of the host's variable; an empty variable is none."""
    quiet, project = shared
    assert sources(quiet, project, SLACK_HOST_SIDE="") == {
        "REGION": ("eu", "default"),
        "LIMIT": (None, "missing-optional"),
        "MODE": (None, "missing-optional"),
        "HOST_SIDE": (None, "missing-optional"),
        "NOTE": (None, "missing-optional"),
    }
    assert sources(quiet, project, SLACK_HOST_SIDE="x")["HOST_SIDE"] == ("x", "default_from_env:SLACK_HOST_SIDE")
    plain = valued(omac, meta=PLAIN)
    assert sources(omac, plain)["REGION"] == (None, "missing-required")
    omac.ok("config", "set", "slack", "MODE", "slow", "--workdir", str(plain))
    assert sources(omac, plain)["MODE"] == ("slow", "stored")
    assert sources(omac, plain)["LIMIT"] == ("10", "default")


def test_as_text(shared: tuple[Omac, Path]) -> None:
    """`omac config show` prints a line for each value, in columns."""
    omac, project = shared
    lines = omac.ok("config", "show", "slack", "--workdir", str(project)).splitlines()
    assert lines[0] == f"slack at /chat for {project}"
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["name", "type", "value", "source"],
        ["REGION", "string", "'eu'", "default"],
        ["LIMIT", "int", "-", "missing-optional"],
    ]
    assert lines[-1].split() == ["SPARE", "secret", "<missing>", "missing-optional"]


def test_one_setting(shared: tuple[Omac, Path]) -> None:
    """`omac config get` prints the value alone; without one it fails and suggests a command, or prints null as data."""
    omac, project = shared
    where = ("--workdir", str(project))
    assert omac.ok("config", "get", "slack", "REGION", *where) == "eu\n"
    done = omac.run("config", "get", "slack", "NOTE", *where)
    assert (done.status, done.out) == (1, "")
    assert f"try: omac config set slack NOTE --workdir {project}" in done.err
    assert json.loads(omac.ok("config", "get", "slack", "NOTE", "--json", *where))["value"] is None


def test_values_are_taken(omac: Omac) -> None:
    """A value is stored as the sidecar sees it, even if it looks like an option (after two dashes)."""
    project = valued(omac)
    journal = str(omac.folder / "another.db")
    for field, value, becomes in (
        ("LIMIT", "-5", "-5"),
        ("LIMIT", " +007 ", "7"),
        ("MODE", "fast", "fast"),
        ("NOTE", "", ""),
        ("NOTE", "--json", "--json"),
        ("NOTE", "a\nb \u00e9 $(id)", "a\nb \u00e9 $(id)"),
    ):
        words = ("--json", "--journal", journal, "--workdir", str(project), "slack", field)
        done = omac.run("config", "set", *words, *(("--", value) if value.startswith("--") else (value,)))
        assert json.loads(done.out)["value"] == becomes, done
    stored = omac.ok("config", "get", "slack", "NOTE", "--journal", journal, "--workdir", str(project))
    assert stored == "a\nb \u00e9 $(id)\n"
    assert sources(omac, project)["NOTE"] == (None, "missing-optional"), "in this omac's own journal"


def test_by_a_pipe(omac: Omac) -> None:
    """A dash takes the value from stdin without its last newline; with --json the command prints the new setting."""
    project = valued(omac)
    done = piped(omac, b"a\nb\n", "config", "set", "slack", "NOTE", "-", "--workdir", str(project), "--json")
    row = {"name": "NOTE", "type": "string", "value": "a\nb", "source": "stored", "required": False, "description": ""}
    assert json.loads(done.out) == {"skill": "slack", "workdir": str(project), **row}
    done = piped(omac, b"\x1b]0;x\x07", "config", "set", "slack", "NOTE", "-", "--workdir", str(project))
    assert done.status == 0
    assert "\x1b" not in done.out
    printed = typed(omac, [], "config", "get", "slack", "NOTE", "--workdir", str(project))
    assert (printed.status, printed.out) == (0, "\\x1b]0;x\\x07\r\n"), "a terminal obeys no value"


@pytest.mark.parametrize(
    ("field", "value", "message", "fix"),
    [
        ("LIMIT", b"many", "must be a whole number", "omac config set slack LIMIT"),
        ("LIMIT", b"9" * 30, "beyond 64 bits", "omac config set slack LIMIT"),
        ("MODE", b"Fast", "one of the choices: 'fast', 'slow'", "omac config set slack MODE"),
        ("NOTE", b"\xff", "is not UTF-8", "omac config set slack NOTE"),
        ("NOTE", b"a\0b", "holds NUL", "omac config set slack NOTE"),
        ("NOTE", b"n" * 130_000, "is too long", "omac config set slack NOTE"),
        ("TOKEN", b"xoxb-zq91", "it declares: REGION, LIMIT, MODE, HOST_SIDE, NOTE", "omac secrets set slack TOKEN"),
        ("NOPE", b"zq91", "it declares: REGION, LIMIT, MODE, HOST_SIDE, NOTE", "omac config show slack"),
    ],
)
def test_bad_values(shared: tuple[Omac, Path], field: str, value: bytes, message: str, fix: str) -> None:
    """A bad value is refused with the reason and a command, and nothing is recorded."""
    omac, project = shared
    done = piped(omac, value, "config", "set", "slack", field, "-", "--workdir", str(project))
    assert (done.status, done.out) == (9, ""), done
    assert message in done.err
    assert f"  try: {fix}" in done.err
    assert omac.events(ConfigWritten) == []
    assert b"zq91" not in everywhere(omac, done)


def test_a_secret_typed_as_a_setting(shared: tuple[Omac, Path]) -> None:
    """A secret that is typed as a setting is refused, and no message or file repeats it."""
    omac, project = shared
    done = omac.run("config", "set", "slack", "TOKEN", "xoxb-zq91", "--workdir", str(project))
    assert done.status == 9
    assert b"zq91" not in everywhere(omac, done)


@pytest.mark.parametrize("arguments", [("get", "slack", "NOPE"), ("unset", "slack", "REGION", "NOPE")])
def test_names_that_are_not_declared(shared: tuple[Omac, Path], arguments: tuple[str, ...]) -> None:
    """A setting that the skill does not declare is refused with the names of those that it does."""
    omac, project = shared
    done = omac.run("config", *arguments, "--workdir", str(project))
    assert (done.status, done.out) == (9, "")
    assert "declares no setting 'NOPE'; it declares: REGION" in done.err


def test_a_name_that_is_no_longer_declared(omac: Omac) -> None:
    """A setting that is no longer declared can still be unset."""
    project = valued(omac)
    omac.ok("config", "set", "slack", "NOTE", "x", "--workdir", str(project))
    meta = project / ".agents" / "skills" / "slack" / "omac.yaml"
    meta.write_text(meta.read_text().replace("    - {name: NOTE, required: false}\n", ""))
    omac.ok("config", "unset", "slack", "NOTE", "--workdir", str(project))
    assert [record.event for record in omac.events(ConfigRemoved)] == [ConfigRemoved("NOTE")]


@pytest.mark.full
def test_while_a_server_runs(omac: Omac) -> None:
    """A skill starts once a missing setting is set, restarts when it changes, and waits again once it is unset."""
    project = valued(omac, meta=PLAIN)
    where = ("--workdir", str(project))
    omac.approve(project, "slack")
    serving = omac.serve()
    options = f"--workdir {project} --harness opencode"
    assert waiting(serving, project)["fix"] == [f"omac config set slack REGION {options}"]
    token = serving.activate(project)["dir_token"]

    omac.ok("config", "set", "slack", "REGION", "eu", *where)
    base = _base(serving, project)
    assert token in base
    assert _values(base, REGION="eu")["LIMIT"] == "10"
    first = pid_of(omac)

    omac.ok("config", "set", "slack", "LIMIT", "11", *where)
    _values(base, LIMIT="11")
    assert pid_of(omac) not in (None, first)

    omac.ok("config", "unset", "slack", "REGION", *where)
    eventually(lambda: serving.skill(project, "slack")["state"] == "pending_credentials", SOON_S, "that it waits")
    assert waiting(serving, project)["missing"] == ["REGION"]


def _base(serving: Serving, project: Path) -> str:
    base: str = eventually(lambda: serving.skill(project, "slack").get("base"), SOON_S, "a base for the skill")
    return base


def _values(base: str, **wanted: str) -> dict[str, str | None]:
    def look() -> dict[str, str | None] | None:
        answer = told({"base": base})
        return answer if answer and answer == answer | wanted else None

    values: dict[str, str | None] = eventually(look, START_S, f"a sidecar with {wanted}")
    return values


def test_help_has_examples(shared: tuple[Omac, Path]) -> None:
    """The help of every command has an example."""
    omac, _ = shared
    for group, commands in (
        ("config", ("show", "get", "set", "unset")),
        ("secrets", ("set", "list", "unset", "import")),
    ):
        for command in commands:
            assert f"omac {group} {command} slack" in omac.ok(group, command, "--help")
