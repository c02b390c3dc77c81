"""tools/cli/secrets.py: a secret goes from the user to a store and to the sidecar, and appears nowhere else."""

import io
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from polling import eventually, stays
from real_keyring import PrivateKeyring
from real_omac import Done, Omac, Serving, curl
from valued_skill import META, PROGRAM, everywhere, pid_of, piped, told, typed, valued, waiting, with_vault

from omac.domain.credentials.credential import (
    Credential,
    SecretErased,
    SecretRemoved,
    SecretWriteRequested,
    SecretWritten,
)
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import FoundSkill
from omac.domain.skills.scope import SkillScope
from omac.services.credentials.values import Values
from omac.services.skills.resolution import Candidate
from omac.tools.cli.secrets import set_
from omac.tools.cli.skill_argument import SkillArgument, report_besides
from omac.tools.compose.scope_options import Where
from omac.tools.terminal.invocation import Invocation, working_for
from omac.tools.terminal.prompts import BYTES_MAX

SECRET = "xoxb-7f3a9c"
OTHER = "xoxb-e81d22"
PEM = "-----BEGIN KEY-----\nc2VjcmV0LWxpbmU\n-----END KEY-----"
SOON_S = 1.0  # a change from another terminal, until agents see it
START_S = 5.0  # a small Python server, until it answers


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project whose skill wants values, with a vault for secrets."""
    with_vault(omac)
    return valued(omac)


@pytest.fixture(scope="module")
def shared(house: Omac) -> tuple[Omac, Path]:
    """Return a host and such a project, for tests that change nothing: every value that they give is refused."""
    with_vault(house)
    return house, valued(house)


def set_token(omac: Omac, project: Path, value: str = SECRET) -> None:
    """Give a secret by a pipe, and assert that it was accepted."""
    done = piped(omac, value.encode() + b"\n", "secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    assert done.status == 0, done


def test_a_value_is_replaced_while_a_server_is_suspended(omac: Omac, shop: Path) -> None:
    """A command that replaces a secret reports a run whose sidecars go on with the one of before."""
    server = omac.serve()
    line = ("secrets", "set", "slack", "TOKEN", "--workdir", str(shop))
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        first, same, other = (piped(omac, value.encode(), *line).err for value in (SECRET, SECRET, OTHER))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert ("suspended" in first, "suspended" in same) == (False, False)
    assert f"the run with pid {server.process.pid} is suspended" in other
    assert f"try: kill -CONT {server.process.pid}" in other


def listed(omac: Omac, project: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of `omac secrets list --json`, by name."""
    out = omac.ok("secrets", "list", "slack", "--json", "--workdir", str(project))
    return {row["name"]: row for row in map(json.loads, out.splitlines())}


def ready(serving: Serving, project: Path, **wanted: str | None) -> dict[str, Any]:
    """Return the skill, once its sidecar runs with these values."""

    def look() -> dict[str, Any] | None:
        skill = serving.skill(project, "slack")
        values = told(skill) if skill["state"] == "ready" else None
        return skill if values and values == values | wanted else None

    skill: dict[str, Any] = eventually(look, START_S, f"a sidecar with {wanted}")
    return skill


class Slow(io.RawIOBase):
    """A standard input that calls a function before the value comes."""

    def __init__(self, first: Callable[[], object], value: bytes) -> None:
        self._first = first
        self._value = io.BytesIO(value)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._first()
        self._first = lambda: None
        return self._value.readinto(buffer)


def test_the_store_that_is_reported_has_the_secret(
    omac: Omac, keyring: PrivateKeyring, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reported store has the secret, even if a vault that would now be chosen is made while omac waits for the
    value."""
    project = valued(omac)
    key = str(omac.folder / "vault.key")
    slow = Slow(lambda: omac.ok("vault", "init", "--key-file", key), SECRET.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(slow)))
    environment = omac.environment | {"OMAC_VAULT_KEY_FILE": key}
    with working_for(Invocation(environment, sys.stdin, sys.stdout, sys.stderr)):
        set_(SkillArgument("slack", Where(str(project))), "TOKEN", [], True)
    reported = json.loads(capsys.readouterr().out)["store"]
    assert (omac.state / "vault").exists()
    assert reported == listed(omac, project)["TOKEN"]["store"] == "keychain"
    assert [record.event.store for record in omac.events(SecretWritten)] == [reported]


# ---- the journey of a secret ----


def test_set_list_show_unset(omac: Omac, shop: Path) -> None:
    """Each step reports the secret's state, and never its value."""
    where = ("--workdir", str(shop))
    done = piped(omac, SECRET.encode() + b"\n", "secrets", "set", "slack", "TOKEN", *where)
    assert (done.status, done.out) == (0, f"TOKEN of slack for {shop}: kept in the vault {omac.state / 'vault'}\n")
    reason, command = done.err.splitlines()
    assert reason == "slack is not approved: it receives its values after approval"
    shown = omac.ok("show", "slack", *where)
    digest = shown.partition("not approved: ")[2].split()[0]  # over every file, not the code alone
    assert command == f"  try: omac approve slack --workdir {shop} --harness opencode --hash {digest}"
    row = listed(omac, shop)["TOKEN"]
    fingerprint = row.pop("fingerprint")
    origin = {"given": "yes", "store": "vault", "source": "stored"}
    assert row == {"name": "TOKEN", "required": True, "description": "opens the door", **origin}
    assert fingerprint.startswith("hmac:")
    config = json.loads(omac.ok("config", "show", "slack", "--json", *where))
    assert [secret["fingerprint"] for secret in config["secrets"]] == [fingerprint, "<missing>", "<missing>"]
    text = omac.ok("secrets", "list", "slack", *where)
    assert [line.split()[:5] for line in text.splitlines()[1:3]] == [
        ["TOKEN", "yes", "yes", "vault", fingerprint],
        ["PEM", "no", "no", "-", "<missing>"],
    ]
    unset = omac.run("secrets", "unset", "slack", "TOKEN", "SPARE", *where)
    assert unset.out.splitlines() == [
        f"TOKEN is revoked from slack for {shop}",
        f"SPARE was not given to slack for {shop}",
    ]
    assert f"try: omac secrets set slack TOKEN --workdir {shop} --harness opencode" in unset.err
    assert "still a saved default" in unset.err
    assert "--purge-defaults" in unset.err
    assert listed(omac, shop)["TOKEN"]["given"] == "remembered"
    assert listed(omac, shop)["TOKEN"]["fingerprint"] == "<missing>"
    assert SECRET.encode() not in everywhere(omac, done, unset)


def test_the_audit_of_a_project_has_its_first_secret(omac: Omac, shop: Path) -> None:
    """A secret given to a skill that is not registered yet is recorded with its directory, too."""
    set_token(omac, shop)
    rows = [json.loads(line) for line in omac.ok("audit", "--dir", str(shop), "--json").splitlines()]
    assert [row["kind"] for row in rows] == ["skill.registered", "secret.written"]


def test_as_data(omac: Omac, shop: Path) -> None:
    """Programs get the changes to secrets as JSON."""
    where = ("--workdir", str(shop), "--json")
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", *where)
    report = json.loads(done.out)
    assert report == {
        "skill": "slack", "workdir": str(shop), "name": "TOKEN", "store": "vault",
        "fingerprint": listed(omac, shop)["TOKEN"]["fingerprint"],
    }  # fmt: skip
    done = omac.run("secrets", "unset", "slack", "SPARE", "TOKEN", "TOKEN", *where)
    assert json.loads(done.out) == {"skill": "slack", "workdir": str(shop), "unset": ["TOKEN"]}
    assert len(omac.events(SecretRemoved)) == 1


@pytest.mark.full
def test_what_is_piped_arrives(omac: Omac, shop: Path) -> None:
    """A piped value arrives unchanged but for one newline at its end. A running sidecar is restarted with it."""
    set_token(omac, shop)
    omac.approve(shop, "slack")
    serving = omac.serve()
    for name, sent, arrives in (
        ("TOKEN", SECRET.encode() + b"\r\n", SECRET),
        ("TOKEN", b"xoxb- with spaces ", "xoxb- with spaces "),
        ("TOKEN", "xoxb-\u00e9\U0001f511$(id)'\"\\".encode(), "xoxb-\u00e9\U0001f511$(id)'\"\\"),
        ("TOKEN", b"xoxb-" + b"k" * 100_000, "xoxb-" + "k" * 100_000),
        ("PEM", PEM.encode() + b"\n", PEM),
        ("PEM", PEM.encode() + b"\n\n", PEM + "\n"),
    ):
        done = piped(omac, sent, "secrets", "set", "slack", name, "--workdir", str(shop))
        assert done.status == 0, done
        ready(serving, shop, **{name: arrives})


def test_at_a_terminal(omac: Omac, shop: Path) -> None:
    """A secret is asked for once, and not shown while it is typed."""
    answers = [("value (not shown)", SECRET.encode() + b"\r")]
    done = typed(omac, answers, "secrets", "set", "slack", "TOKEN", "--workdir", str(shop))
    assert done.status == 0, done
    assert "opens the door" in done.out
    assert done.out.count("value (not shown)") == 1
    assert SECRET not in done.out
    assert "*" not in done.out
    assert SECRET.encode() not in everywhere(omac, done)
    assert listed(omac, shop)["TOKEN"]["given"] == "yes"


# ---- what is refused ----

BAD: dict[str, tuple[str, bytes, str]] = {
    "empty": ("TOKEN", b"", "is empty"),
    "only a newline": ("TOKEN", b"\n", "is empty"),
    "pattern": ("TOKEN", b"bad-zq91", "does not match the pattern"),
    "line break": ("TOKEN", b"xoxb-zq91\nzq92", "has a line break"),
    "carriage return": ("TOKEN", b"xoxb-zq91\rzq92", "has a line break"),
    "two newlines": ("TOKEN", b"xoxb-zq91\n\n", "has a line break"),
    "NUL": ("TOKEN", b"xoxb-zq91\0", "NUL"),
    "NUL in several lines": ("PEM", b"zq91\n\0\n", "NUL"),
    "not UTF-8": ("TOKEN", b"xoxb-zq91\xff", "is not UTF-8"),
    "UTF-16": ("SPARE", "zq91".encode("utf-16"), "is not UTF-8"),
    "too long": ("SPARE", b"zq91" * 32_000, "is too long"),
    "far too long": ("SPARE", b"zq91" * 100_000, "more than"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_values_by_a_pipe(shared: tuple[Omac, Path], bad: str) -> None:
    """A bad value is refused before anything is recorded, and no part of it remains anywhere."""
    omac, project = shared
    name, sent, problem = BAD[bad]
    done = piped(omac, sent, "secrets", "set", "slack", name, "--workdir", str(project))
    assert (done.status, done.out) == (9, ""), done
    assert problem in done.err
    assert "UTF-8" not in problem or f"  try: omac secrets set slack {name} --workdir {project} " in done.err
    traces = everywhere(omac, done)
    assert b"zq91" not in traces
    assert b"zq92" not in traces
    assert omac.events(SecretWriteRequested) == []


@pytest.mark.parametrize(
    ("name", "typing", "problem"),
    [
        ("TOKEN", b"bad-zq91\r", "does not match the pattern"),
        ("TOKEN", b"\r", "is empty"),
        ("TOKEN", b"xoxb-zq91\xff\r", "is not UTF-8"),
        ("TOKEN", b"xoxb-zq91\x1b[A\r", "control characters"),
    ],
)
def test_bad_values_at_a_terminal(shared: tuple[Omac, Path], name: str, typing: bytes, problem: str) -> None:
    """Bad values at a terminal are refused after three tries, and none is shown."""
    omac, project = shared
    answers = [("value (not shown)", typing)] * 3
    done = typed(omac, answers, "secrets", "set", "slack", name, "--workdir", str(project))
    assert done.status == 9, done
    assert problem in done.out
    assert b"zq91" not in everywhere(omac, done)
    assert omac.events(SecretWriteRequested) == []


@pytest.mark.full
def test_giving_up_at_a_terminal(shared: tuple[Omac, Path]) -> None:
    """The keys ^D and ^C end the question without a value."""
    omac, project = shared
    command = ("secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    assert typed(omac, [("value (not shown)", b"\x04")], *command).status == 9
    assert typed(omac, [("value (not shown)", b"xoxb-zq91\x03")], *command).status in (130, -2)
    assert b"zq91" not in everywhere(omac)
    assert omac.events(SecretWriteRequested) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message", "fix"),
    [
        (("set", "slack", "REGION"), 9, "it declares: TOKEN, PEM, SPARE", "omac config set slack REGION --wor"),
        (("set", "slack", "TOKNE"), 9, "it declares: TOKEN, PEM, SPARE", "omac config show slack --workdir"),
        (("set", "slack", "a\x1b[2J"), 9, "it declares", "omac config show"),
        (("unset", "slack", "TOKEN", "NOPE"), 9, "declares no secret 'NOPE'", "omac config show slack"),
        (("set", "slac", "TOKEN"), 4, "known: slack", "omac secrets set slack"),
        (("list", "slac"), 4, "known: slack", "omac secrets list slack"),
        (("import", "slack", "--from", "/nowhere"), 2, "No such file", "ls -ld /"),
        (("import", "slack", "--from", "/"), 2, "directory", "ls -ld /"),
    ],
)
def test_slips(shared: tuple[Omac, Path], arguments: tuple[str, ...], status: int, message: str, fix: str) -> None:
    """The error for a slip lists the known names, and proposes the next command."""
    omac, project = shared
    done = piped(omac, b"xoxb-zq91", "secrets", *arguments, "--workdir", str(project))
    assert (done.status, done.out) == (status, ""), done
    assert message in done.err
    assert f"  try: {fix}" in done.err
    assert "\x1b" not in done.err
    assert b"zq91" not in everywhere(omac, done)


@pytest.mark.parametrize(
    "extra", [("TOKEN", "xoxb-zq91"), ("TOKEN=xoxb-zq91",), ("TOKEN", "--xoxb-zq91"), ("TOKEN", "-zq91")]
)
def test_a_secret_on_the_command_line(shared: tuple[Omac, Path], extra: tuple[str, ...]) -> None:
    """A secret on the command line is neither accepted nor repeated."""
    omac, project = shared
    done = piped(omac, b"", "secrets", "set", "slack", *extra, "--workdir", str(project))
    assert (done.status, done.out) == (2, "")
    assert f"  try: omac secrets set slack TOKEN --workdir {project}\n" in done.err
    assert b"zq91" not in everywhere(omac, done)


def test_a_closed_stdin(shared: tuple[Omac, Path]) -> None:
    """A closed standard input is reported as closed."""
    omac, project = shared
    done = omac.run(
        "secrets", "set", "slack", "TOKEN", "--workdir", str(project), within=("sh", "-c", '"$@" <&-', "sh")
    )
    assert done.status == 2, done
    assert "the standard input is closed" in done.err


# ---- a file of them ----


@pytest.mark.full
def test_import(omac: Omac, shop: Path) -> None:
    """An import takes all lines of a file, or of a pipe, each as `set` would take it."""
    file = omac.folder / "slack.env"
    file.write_text(f"# from the safe\n\nTOKEN={SECRET}\r\nSPARE='with spaces'\n")
    done = omac.run("secrets", "import", "slack", "--from", str(file), "--workdir", str(shop), "--json")
    assert [json.loads(line)["name"] for line in done.out.splitlines()] == ["TOKEN", "SPARE"]
    piped(omac, f"TOKEN={OTHER}".encode(), "secrets", "import", "slack", "--from", "-", "--workdir", str(shop))
    omac.approve(shop, "slack")
    ready(omac.serve(), shop, TOKEN=OTHER, SPARE="with spaces", PEM=None)
    file.unlink()
    assert SECRET.encode() not in everywhere(omac, done)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"TOKEN=xoxb-zq91\nREGION=zq92\n", "declares no secret 'REGION'"),
        (b"TOKEN=xoxb-zq91\nSPARE=\n", "SPARE: is empty"),
        (b"SPARE=zq92\nTOKEN=bad-zq91\n", "TOKEN: does not match"),
        (b"TOKEN=xoxb-zq91\nzq92\n", 'line 2: has no "="'),
        (b"TOKEN=xoxb-zq91\nTOKEN=xoxb-zq92\n", "line 2: sets the variable of line 1 again"),
        (b"export TOKEN=xoxb-zq91\n", "line 1: begins with"),
        (b"TOKEN=xoxb-zq91\nSPARE=\xff", "is not UTF-8"),
        (b"TOKEN=xoxb-zq91\nSPARE=a\0b", "NUL"),
        (b"# nothing\n", "holds no NAME=value line"),
        (b"TOKEN=xoxb-zq91\nSPARE=" + b"k" * 300_000, "SPARE: is too long"),
        (b"TOKEN=xoxb-zq91\nSPARE=" + b"k" * BYTES_MAX, "more than"),
    ],
)
def test_imports_are_all_or_nothing(shared: tuple[Omac, Path], content: bytes, problem: str) -> None:
    """A bad line makes an import give no secret at all, and no part of any value is shown."""
    omac, project = shared
    done = piped(omac, content, "secrets", "import", "slack", "--from", "-", "--workdir", str(project))
    assert (done.status, done.out) == (9, ""), done
    assert problem in done.err
    traces = everywhere(omac, done)
    assert b"zq91" not in traces
    assert b"zq92" not in traces
    assert omac.events(SecretWriteRequested) == []


# ---- while a server runs ----


def test_a_pending_skill_comes_alive(omac: Omac, shop: Path) -> None:
    """A secret makes a pending skill ready without a reload, with the same token. A new value restarts the sidecar;
    unset stops it."""
    omac.approve(shop, "slack")
    serving = omac.serve()
    pending = waiting(serving, shop)
    assert pending["missing"] == ["TOKEN"]
    assert pending["fix"] == [f"omac secrets set slack TOKEN --workdir {shop} --harness opencode"]
    token = serving.activate(shop)["dir_token"]

    set_token(omac, shop)
    base = eventually(lambda: serving.skill(shop, "slack").get("base"), SOON_S, "a base for the skill")
    assert token in base
    assert eventually(lambda: told({"base": base}), SOON_S, "an answer")["TOKEN"] == SECRET
    first = pid_of(omac)

    set_token(omac, shop, OTHER)
    ready(serving, shop, TOKEN=OTHER)
    assert pid_of(omac) not in (None, first)
    assert serving.skill(shop, "slack")["base"] == base

    second = pid_of(omac)
    assert omac.run("secrets", "unset", "slack", "TOKEN", "--workdir", str(shop)).status == 0
    answer = eventually(lambda: (a := curl(f"{base}/")).status == 409 and a, SOON_S, "a 409")
    assert answer.headers["x-omac-reason"] == "pending-credentials"
    assert answer.json()["missing"] == ["TOKEN"]
    assert answer.json()["fix"] == [f"omac secrets set slack TOKEN --workdir {shop} --harness opencode"]
    eventually(lambda: not Path(f"/proc/{second}").exists(), START_S, "the end of the sidecar")
    traces = everywhere(omac)
    assert SECRET.encode() not in traces
    assert OTHER.encode() not in traces


@pytest.mark.full
def test_a_call_is_traced_to_its_secret(omac: Omac, shop: Path) -> None:
    """The audit has which secrets each sidecar was given, by their fingerprints, and the explanation of a call those of
    the sidecar that it was forwarded to, also where the secret has changed since."""
    set_token(omac, shop)
    first = listed(omac, shop)["TOKEN"]["fingerprint"]
    omac.approve(shop, "slack")
    serving = omac.serve()
    base = ready(serving, shop, TOKEN=SECRET)["base"]
    assert curl(f"{base}/").status == 200
    set_token(omac, shop, OTHER)
    ready(serving, shop, TOKEN=OTHER)
    second = listed(omac, shop)["TOKEN"]["fingerprint"]
    starts = [json.loads(line) for line in omac.ok("audit", "--kind", "sidecar", "--json").splitlines()]
    assert [(row["kind"], row["skill"], row["dir"]) for row in starts] == [("sidecar.started", "slack", str(shop))] * 2
    assert [row["detail"].partition(", given to ")[0] for row in starts] == [
        f"TOKEN ({fingerprint}) of the vault" for fingerprint in (first, second)
    ]
    calls = omac.audit("--dir", str(shop))
    for call, start, fingerprint in ((calls[0], starts[0], first), (calls[-1], starts[1], second)):
        explained = omac.ok("audit", "explain", str(call["position"]))
        detail = start["detail"]
        assert f"\nforwarded to the sidecar slack of position {start['position']}, with {detail}\n" in explained
        (sidecar,) = json.loads(omac.ok("audit", "explain", str(call["position"]), "--json"))["sidecars"]
        secret = {"name": "TOKEN", "fingerprint": fingerprint, "store": "vault", "from_env": None}
        assert sidecar == {
            "position": start["position"], "skill": "slack", "digest": detail.partition(", given to ")[2],
            "secrets": [secret],
        }  # fmt: skip
    assert json.loads(omac.ok("audit", "explain", "1", "--json"))["sidecars"] == []
    omac.ok("export", "--out", str(omac.root / "evidence"), "--kind", "sidecar")
    exported = (omac.root / "evidence" / "events.jsonl").read_text()
    assert all(fingerprint in exported for fingerprint in (first, second)), "the events that have the secrets"


@pytest.mark.full
def test_an_unapproved_skill_gets_nothing(omac: Omac, shop: Path) -> None:
    """A secret waits for the approval of its skill; the proposed command approves it."""
    serving = omac.serve()
    assert serving.skill(shop, "slack")["state"] == "broken"
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", "--workdir", str(shop))
    stays(lambda: serving.skill(shop, "slack")["state"] == "broken", 0.5, "it waits for the approval")
    (command,) = [line.partition("try: ")[2] for line in done.err.splitlines() if "try: " in line]
    omac.ok(*command.split()[1:])
    ready(serving, shop, TOKEN=SECRET)


@pytest.mark.full
def test_giving_the_same_changes_nothing(omac: Omac, shop: Path) -> None:
    """A value that a sidecar already has does not restart it."""
    set_token(omac, shop)
    omac.approve(shop, "slack")
    serving = omac.serve()
    ready(serving, shop, TOKEN=SECRET)
    before = pid_of(omac)
    set_token(omac, shop)
    stays(lambda: pid_of(omac) == before, 0.7, "the same sidecar")


def test_a_skill_that_all_share(omac: Omac, shop: Path) -> None:
    """The flag --global selects the global skill, gives the secret to it alone, and saves no default."""
    source = Path(omac.environment["HOME"]) / ".agents" / "skills" / "slack"
    source.mkdir(parents=True)
    (source / "omac.yaml").write_text(META)
    (source / "sidecar.py").write_text(PROGRAM)
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", cwd=shop)
    assert done.status == 2
    assert "  try: omac secrets set slack --global --harness opencode TOKEN\n" in done.err
    assert piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", "--global").status == 0
    assert listed(omac, shop)["TOKEN"]["given"] == "no"
    assert [record.stream.split("/")[2] for record in omac.events(SecretWritten)] == ["global"]


def in_claude(shop: Path) -> tuple[str, ...]:
    """Make a second skill of that name in the project; return the flags that select it."""
    shutil.copytree(shop / ".agents" / "skills" / "slack", shop / ".claude" / "skills" / "slack")
    return ("--workdir", str(shop), "--harness", "claude")


@pytest.mark.full
def test_a_skill_of_the_same_name(omac: Omac, shop: Path) -> None:
    """Values of the skill in one base folder do not reach its namesake in another one, approved or not."""
    claude, agents = in_claude(shop), ("--workdir", str(shop), "--harness", "opencode")
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", *claude)
    assert (done.status, "is no longer set for" in done.err) == (0, False), done
    assert omac.ok("config", "set", "slack", "NOTE", "mine", *claude)
    omac.ok("approve", "slack", *agents)
    serving = omac.serve()
    assert waiting(serving, shop)["missing"] == ["TOKEN"]
    rows = [json.loads(line) for line in omac.ok("secrets", "list", "slack", "--json", *agents).splitlines()]
    assert [row["given"] for row in rows] == ["remembered", "no", "no"]
    settings = json.loads(omac.ok("config", "show", "slack", "--json", *agents))["config"]
    assert [row["source"] for row in settings if row["name"] == "NOTE"] == ["missing-optional"]
    status = {row["harness"]: row["secrets"] for row in json.loads(omac.ok("status", "--json"))["registry"]}
    assert status == {"agents": [], "claude": ["TOKEN"]}
    omac.ok("secrets", "unset", "slack", "TOKEN", *agents)
    assert omac.events(SecretRemoved) == []
    done = piped(omac, OTHER.encode(), "secrets", "set", "slack", "TOKEN", *agents)
    assert "TOKEN is no longer set for slack in .claude/skills" in done.err
    assert ready(serving, shop, TOKEN=OTHER, NOTE=None)
    assert SECRET.encode() not in everywhere(omac, done)


def test_an_approval_says_what_the_code_gets(omac: Omac, shop: Path) -> None:
    """An approval lists the names of the declared values that this very skill was given before."""
    claude, agents = in_claude(shop), ("--workdir", str(shop), "--harness", "opencode")
    assert piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", *agents).status == 0
    omac.ok("config", "set", "slack", "NOTE", "a note", *agents)
    approval = json.loads(omac.ok("approve", "slack", "--json", *agents))
    assert approval["gets"] == ["TOKEN", "NOTE"]
    again = omac.run("approve", "slack", *agents)
    assert again.out.endswith("  it receives values set before: TOKEN, NOTE\n")
    assert json.loads(omac.ok("approve", "slack", "--json", *claude))["gets"] == []
    assert "gets" not in omac.ok("approve", "slack", *claude)
    assert SECRET.encode() not in everywhere(omac, again)


def test_what_is_told_besides(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure after a value has come into effect is a warning, with the command that mends it."""
    candidate = Candidate(SkillScope("/w/shop"), FoundSkill("slack", "agents", "/s", "/s/slack", "sha256:1"))
    before = Credential(config={"A": "1", "B": "2"}, bases={"A": "claude", "B": "agents"})
    problem = Refusal("vault-locked", "stored, but saving it as a default failed: it is locked", fix=["omac unlock"])
    report_besides(candidate, Values({"T": Hidden(SECRET)}, {"A": "3", "B": "3"}), before, [problem])
    assert capsys.readouterr() == (
        "",
        "A is no longer set for slack in .claude/skills: a name has one value\n"
        "T, A, B: stored, but saving it as a default failed: it is locked\n"
        "  try: omac unlock\n",
    )


# ---- stores that are locked, or not there ----


def test_a_locked_vault(omac: Omac, shop: Path) -> None:
    """A secret for a locked vault is refused, and nothing is recorded. A revocation holds all the same, and its
    deletion can be finished later."""
    set_token(omac, shop)
    before = len(omac.events())
    key = omac.environment.pop("OMAC_VAULT_KEY_FILE")
    done = piped(omac, OTHER.encode(), "secrets", "set", "slack", "TOKEN", "--workdir", str(shop))
    assert (done.status, done.out) == (8, "")
    assert "the vault is locked" in done.err
    assert f"try: export OMAC_VAULT_KEY_FILE={key} && omac unlock" in done.err
    assert len(omac.events()) == before
    assert listed(omac, shop)["TOKEN"]["given"] == "yes", "no store is asked for that"
    unset = ("secrets", "unset", "slack", "TOKEN", "--workdir", str(shop))
    done = piped(omac, b"", *unset)
    assert done.status == 8
    assert "revoked from slack, but deleting it from the vault failed" in done.err
    assert listed(omac, shop)["TOKEN"]["given"] == "remembered"
    omac.environment["OMAC_VAULT_KEY_FILE"] = key
    assert json.loads(omac.ok("vault", "status", "--json"))["names"] == 2
    done = piped(omac, b"", *unset)
    assert done.out == f"TOKEN is deleted from the vault, and was revoked before from slack for {shop}\n", done
    assert piped(omac, b"", *unset).out == f"TOKEN was not given to slack for {shop}\n"
    assert json.loads(omac.ok("vault", "status", "--json"))["names"] == 1, "only what is remembered"
    assert [record.event for record in omac.events(SecretErased)] == [SecretErased("TOKEN", "vault")]


def test_no_store_at_all(omac: Omac) -> None:
    """A host without a store refuses the value, and proposes the command that makes one."""
    project = valued(omac)
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    assert done.status == 8, done
    assert "try: omac vault init" in done.err
    assert SECRET.encode() not in everywhere(omac, done)


@pytest.mark.parametrize("choice", ["auto", "keychain"])
@pytest.mark.parametrize("has_vault", [True, False])
@pytest.mark.full
def test_a_keychain_that_is_gone(omac: Omac, keyring: PrivateKeyring, choice: str, has_vault: bool) -> None:
    """A keychain that has the secret and cannot be reached, as over SSH, is replaced by the vault: the commands that
    omac proposes, typed one after the other, make the skill ready."""
    project = valued(omac)
    omac.approve(project, "slack")
    set_token(omac, project)
    for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        del omac.environment[name]
    omac.ok("settings", "set", "secrets.store", choice)
    vault = with_vault(omac)
    del omac.environment["OMAC_SECRETS_STORE"]
    if not has_vault:
        vault.unlink()
    serving = omac.serve()
    skill = serving.skill(project, "slack")
    assert "keychain cannot be used" in skill["detail"]
    for command in skill["fix"]:
        done = piped(omac, OTHER.encode(), *shlex.split(command)[1:])
        assert done.status == 0, (command, done)
    ready(serving, project, TOKEN=OTHER)


def test_a_secret_in_a_keychain_that_is_gone(omac: Omac, keyring: PrivateKeyring) -> None:
    """A secret is revoked where its keychain cannot be reached; no vault helps to delete it, and none is proposed."""
    project = valued(omac)
    set_token(omac, project)
    for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        del omac.environment[name]
    omac.ok("settings", "set", "secrets.store", "keychain")
    done = piped(omac, b"", "secrets", "unset", "slack", "TOKEN", "--workdir", str(project))
    assert (done.status, "revoked from slack, but deleting it" in done.err) == (8, True), done
    (fix,) = [line for line in done.err.splitlines() if "try: " in line]
    assert fix.startswith(f"  try: omac secrets unset slack TOKEN --workdir {project}")


@pytest.mark.full
def test_with_a_real_keyring(omac: Omac, keyring: PrivateKeyring) -> None:
    """A keyring keeps a secret on its whole journey. A locked one refuses new secrets, and sidecars keep their
    values."""
    project = valued(omac)
    where = ("--workdir", str(project))
    done = piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", *where)
    assert (done.status, done.out) == (0, f"TOKEN of slack for {project}: kept in the system's keychain\n"), done
    row = listed(omac, project)["TOKEN"]
    assert (row["given"], row["store"]) == ("yes", "keychain")
    config = json.loads(omac.ok("config", "show", "slack", "--json", *where))
    assert config["secrets"][0]["fingerprint"] == row["fingerprint"]
    omac.approve(project, "slack")
    serving = omac.serve()
    ready(serving, project, TOKEN=SECRET)

    keyring.lock()
    locked: Done = piped(omac, OTHER.encode(), "secrets", "set", "slack", "TOKEN", *where)
    assert (locked.status, locked.out) == (8, "")
    assert "keychain is locked" in locked.err
    assert "  try: omac unlock" in locked.err
    assert listed(omac, project)["TOKEN"] == row
    assert ready(serving, project, TOKEN=SECRET), "it goes on with what it has"
    unset = piped(omac, b"", "secrets", "unset", "slack", "TOKEN", *where)
    assert unset.status == 8
    waiting(serving, project)
    traces = everywhere(omac, done, locked, unset)
    assert SECRET.encode() not in traces
    assert OTHER.encode() not in traces
