"""tools/cli/register.py: a user approves a skill and gives it values; omac records all of it, or nothing."""

import json
import os
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from programs import program_at
from real_keyring import PrivateKeyring
from real_omac import ECHO_SKILL, Done, Omac
from valued_skill import PROGRAM, alone, everywhere, told, typed, valued, with_vault

from omac.adapters.credentials.keys import key_at_hand
from omac.adapters.credentials.vault import Vault
from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, DefaultAdopted
from omac.domain.kernel import ids
from omac.domain.skills.registration import Approved

SECRET = "xoxb-7f3a9c"
OTHER = "xoxb-e81d22"
META = """\
name: slack
sidecar:
  command: [python3, -I, -S, sidecar.py]
  mount: chat
  health: {path: /status}
  secrets:
    - {name: TOKEN, description: opens the door, pattern: '^xoxb-[a-z0-9]+$'}
    - {name: SPARE, required: false}
    - {name: PEM, required: false, multiline: true}
  config:
    - {name: REGION, description: where it is, type: enum, choices: [eu, us]}
    - {name: LIMIT, type: int, default: 3}
    - {name: NOTE, required: false}
"""
ALL = {"OMAC_SECRET_TOKEN": SECRET, "OMAC_CONFIG_REGION": "eu"}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project whose skill wants values, with a vault for secrets."""
    with_vault(omac)
    return valued(omac, "shop", META)


@pytest.fixture(scope="module")
def shared(house: Omac) -> tuple[Omac, Path]:
    """Return a host and such a project, for tests that change nothing."""
    with_vault(house)
    return house, valued(house, "shop", META)


def register(omac: Omac, project: Path, *flags: str, **extra: str) -> Done:
    """Run `omac register slack` without a terminal."""
    return alone(omac, "register", "slack", "--workdir", str(project), *flags, extra=extra)


def register_from(stdin: bytes, omac: Omac, project: Path, **extra: str) -> Done:
    """Run `omac register slack` with secrets on stdin."""
    where = ("--workdir", str(project))
    return alone(omac, "register", "slack", *where, "--secrets-from", "-", stdin=stdin, extra=extra)


def taken(done: Done) -> dict[str, Any]:
    """Return the JSON of a registration, which must succeed."""
    assert done.status == 0, done
    report: dict[str, Any] = json.loads(done.out)
    return report


def stored(omac: Omac, scope: str, name: str = "TOKEN") -> str | None:
    """Return a secret from the vault; `scope` is a project's path, "" for global skills, or DEFAULTS."""
    credential_scope = scope if scope == DEFAULTS else ids.scope_of(scope)
    service = credential.service(credential_scope, "slack")
    secrets = Vault(str(omac.state / "vault")).read(key_at_hand(omac.environment, None), service, [name])
    return secrets[name].reveal() if secrets else None


def values(omac: Omac, project: Path) -> dict[str, Any]:
    """Return what the journal has for a skill: names of its secrets, and its settings."""
    (row,) = [row for row in status(omac)["registry"] if row["dir"] == str(project)]
    return {"secrets": row["secrets"], "config": row["config"]}


def status(omac: Omac) -> dict[str, Any]:
    """Return the projected state."""
    state: dict[str, Any] = json.loads(omac.ok("status", "--json"))
    return state


def nothing_recorded(omac: Omac) -> None:
    """Assert that neither an approval nor a value is recorded."""
    assert not (omac.state / "journal.db").exists() or not omac.events(), omac.events()


# The table of remembered values


def test_the_first_project_asks_and_the_second_need_not(omac: Omac, shop: Path) -> None:
    """A user answers once. In the next project `--defaults` takes all values over without a terminal."""
    answers = [
        ("TOKEN (secret, required): opens the door", b"wrong\n"),
        ("2 more tries", SECRET.encode() + b"\n"),
        ("SPARE (secret, optional)", b"\n"),
        ("PEM (secret, optional)", b"\n"),
        ("REGION (enum, required): where it is", b"asia\n"),
        ("must be one of the choices: 'eu', 'us'", b"us\n"),
        ("Enter takes 3", b"\n"),
        ("Enter leaves it out", b"\n"),
    ]
    first = typed(omac, answers, "register", "slack", "--workdir", str(shop))
    assert first.status == 0, first
    assert "secrets kept in the vault" in first.out
    expected = {"secrets": ["TOKEN"], "config": {"REGION": "us"}}
    assert values(omac, shop) == expected  # what was left out stays unset
    assert status(omac)["defaults"] == {"slack": ["REGION", "TOKEN"]}
    assert (stored(omac, str(shop)), stored(omac, DEFAULTS)) == (SECRET, SECRET)

    market = valued(omac, "market", META)
    refused = register(omac, market)  # without --defaults nothing is taken over
    assert refused.status == 9
    assert "try: omac register slack --workdir" in refused.err.splitlines()[-4]
    assert refused.err.splitlines()[-4].endswith("--defaults")
    second = taken(register(omac, market, "--defaults", "--json"))
    assert second["secrets"] == [{"name": "TOKEN", "store": "vault", "from": "default"}]
    assert second["config"] == [{"name": "REGION", "value": "us", "from": "default"}]
    assert (second["adopted"], second["missing"]) == (["TOKEN", "REGION"], [])
    assert values(omac, market) == expected
    assert stored(omac, str(market)) == SECRET
    assert {record.event.name for record in omac.events(DefaultAdopted)} == {"TOKEN", "REGION"}
    assert SECRET.encode() not in everywhere(omac, first, refused)


def test_the_newest_value_is_remembered(omac: Omac, shop: Path) -> None:
    """Every value that is used refreshes the defaults; the values of other projects stay."""
    taken(register(omac, shop, "--json", **ALL))
    market, fair = valued(omac, "market", META), valued(omac, "fair", META)
    taken(register(omac, market, "--defaults", "--json", OMAC_SECRET_TOKEN=OTHER))
    report = taken(register(omac, fair, "--defaults", "--json"))
    assert [item["from"] for item in (*report["secrets"], *report["config"])] == ["default", "default"]
    assert [stored(omac, str(item)) for item in (shop, market, fair)] == [SECRET, OTHER, OTHER]
    assert stored(omac, DEFAULTS) == OTHER


def test_with_defaults_only_what_is_required_and_new_is_asked_for(omac: Omac, shop: Path) -> None:
    """The very first `--defaults` asks for values too, but for no optional one."""
    answers = [("TOKEN (secret, required)", SECRET.encode() + b"\n"), ("REGION (enum, required)", b"eu\n")]
    done = typed(omac, answers, "register", "slack", "--workdir", str(shop), "--defaults")
    assert done.status == 0, done
    for name in ("SPARE", "LIMIT", "NOTE"):
        assert f"{name} (" not in done.out
    assert values(omac, shop) == {"secrets": ["TOKEN"], "config": {"REGION": "eu"}}


def test_a_default_without_a_character_is_shown(omac: Omac) -> None:
    """A prompt names what Enter takes, also where that is the empty string."""
    with_vault(omac)
    plain = META.partition("  secrets:")[0] + "  config:\n    - {name: WORD, default: ''}\n"
    done = typed(omac, [("Enter takes ''", b"\n")], "register", "slack", "--workdir", str(valued(omac, "fair", plain)))
    assert done.status == 0, done


def test_what_was_given_here_is_kept(omac: Omac, shop: Path) -> None:
    """A second registration needs no value, with or without `--defaults`. With --reprompt flags it asks again, and
    Enter keeps a value."""
    taken(register(omac, shop, "--json", **ALL))
    again = taken(register(omac, shop, "--json"))
    assert (again["new"], again["secrets"][0]["from"], again["config"][0]["from"]) == (False, "keep", "keep")
    assert register(omac, shop, "--reprompt-secrets").status == 9
    flags = ("--reprompt-secrets", "--reprompt-fields", "--defaults")
    again_with_flags = taken(register(omac, shop, "--json", *flags))
    assert again_with_flags["adopted"] == ["TOKEN", "REGION"]
    answers = [
        ("TOKEN", b"\n"), ("SPARE", b"\n"), ("PEM", b"\n"), ("Enter keeps eu", b"us\n"), ("LIMIT", b"7\n"),
        ("NOTE", b"\n"),
    ]  # fmt: skip
    reprompted = typed(omac, answers, "register", "slack", "--workdir", str(shop), *flags[:2])
    assert reprompted.status == 0, reprompted
    assert "keeps the value it has" in reprompted.out
    assert values(omac, shop) == {"secrets": ["TOKEN"], "config": {"LIMIT": "7", "REGION": "us"}}
    assert stored(omac, str(shop)) == SECRET


def test_a_remembered_value_that_no_longer_fits(omac: Omac, shop: Path) -> None:
    """A default that breaks a later version's rule is not used; omac reports this without the value."""
    taken(register(omac, shop, "--json", **ALL))
    strict = valued(omac, "strict", META.replace("^xoxb-[a-z0-9]+$", "^xapp-"))
    done = register(omac, strict, "--defaults")
    assert (done.status, "TOKEN: the saved default cannot be used" in done.err) == (9, True)
    assert "refused: TOKEN" in done.err
    assert "refused: REGION" not in done.err
    assert SECRET not in done.out + done.err


def test_what_all_projects_share_has_no_defaults(omac: Omac, shop: Path) -> None:
    """A global skill already shares its values with all projects: omac neither saves nor takes over defaults for it."""
    home = Path(omac.environment["HOME"]) / ".agents" / "skills"
    home.mkdir(parents=True)
    shutil.copytree(shop / ".agents" / "skills" / "slack", home / "slack")
    taken(register(omac, shop, "--json", **ALL))
    shutil.rmtree(shop / ".agents")
    command = ("register", "slack", "--global", "--json")
    assert alone(omac, *command, "--defaults").status == 9
    done = taken(alone(omac, *command, extra=ALL | {"OMAC_SECRET_TOKEN": OTHER}))
    assert (done["dir"], done["secrets"][0]["from"]) == ("", "given")
    assert (stored(omac, ""), stored(omac, DEFAULTS)) == (OTHER, SECRET)


# Values that come with the command


def test_files_and_the_standard_input(omac: Omac, shop: Path) -> None:
    """Files and stdin hold NAME=value lines, also with a carriage return at their end. Files take precedence over the
    environment."""
    secrets, fields = omac.folder / "secrets", omac.folder / "fields"
    secrets.write_bytes(f"# mine\r\nTOKEN={SECRET}\r\n\r\n".encode())
    fields.write_bytes(b"REGION=eu\r\nLIMIT=+07\r\nNOTE='a note'\r\n")
    secrets.chmod(0o600)
    flags = ("--secrets-from", str(secrets), "--fields-from", str(fields))
    done = register(omac, shop, *flags, "--json", OMAC_SECRET_TOKEN=OTHER)
    assert [field["from"] for field in taken(done)["config"]] == ["given"] * 3
    assert values(omac, shop)["config"] == {"LIMIT": "7", "NOTE": "a note", "REGION": "eu"}
    assert stored(omac, str(shop)) == SECRET
    assert "readable by other users" not in done.err
    secrets.chmod(0o644)
    assert f"{secrets} holds secrets, but is readable by other users" in register(omac, shop, *flags).err
    done = register_from(f"TOKEN={OTHER}\nSPARE=b=c\n".encode(), omac, shop)
    assert done.status == 0, done
    assert (stored(omac, str(shop)), stored(omac, str(shop), "SPARE")) == (OTHER, "b=c")


def test_a_secret_of_many_lines_by_the_environment(omac: Omac, shop: Path) -> None:
    """A secret of several lines arrives unchanged. Variables for other skills are reported, and are no reason to
    refuse."""
    pem = "-----BEGIN-----\nbGluZQ==\n-----END-----\n"
    extra = ALL | {"OMAC_SECRET_PEM": pem, "OMAC_SECRET_ELSE": "foreign-value", "OMAC_CONFIG_TOKEN": "foreign-value"}
    done = register(omac, shop, **extra)
    assert done.status == 0, done
    assert stored(omac, str(shop), "PEM") == pem
    for variable in ("OMAC_SECRET_ELSE", "OMAC_CONFIG_TOKEN"):
        assert f"{variable} is in the environment, and no " in done.err
    assert b"foreign-value" not in everywhere(omac, done)


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (b"TOKEN=hunter2-hunter2\n", "refused: TOKEN: does not match the pattern"),
        (b"TOKEN=xoxb-a\0hunter2\n", "refused: TOKEN: holds NUL"),
        (b"TOKEN=\n", "refused: TOKEN: is empty"),
        (b"TOKEN=xoxb-" + b"hunter2" * 150_000 + b"\n", "refused: TOKEN: is too long"),
        (b"TOKEN=xoxb-hunter2\n" + b"#" * (4 << 20), "holds more than 4194304 bytes"),
        (b"TOKEN=xoxb-\xff\xfehunter2\n", "the standard input is not UTF-8 text"),
        (b"TOKEN=xoxb-1\nTOKEM=hunter2\n", "TOKEM in the standard input: no such secret is declared"),
        (b"TOKEN=xoxb-1\nREGION=hunter2\n", "REGION in the standard input: no such secret is declared"),
        (b"TOKEN=xoxb-1\nTOKEN=hunter2\n", "line 2: sets the variable of line 1 again"),
        (b"TOKEN=xoxb-1\nhunter2\n", 'line 2: has no "="'),
        (b"export TOKEN=hunter2\n", 'line 1: begins with "export"'),
        (b"hunter2=x\n", "line 1: the text before"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value.partition(":")[2].strip()[:20] or "large",
)
def test_secrets_that_are_refused(shared: tuple[Omac, Path], stdin: bytes, told: str) -> None:
    """A refused secret gives exit 9; its value appears nowhere, and neither it nor the approval is recorded."""
    omac, project = shared
    done = register_from(stdin, omac, project, OMAC_CONFIG_REGION="eu")
    assert (done.status, done.out) == (9, ""), done
    assert told in done.err
    assert b"hunter2" not in everywhere(omac, done)
    nothing_recorded(omac)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"OMAC_SECRET_TOKEN": "hunter2"}, ["refused: TOKEN: does not match"]),
        ({"OMAC_SECRET_SPARE": "hunter2\nhunter2"}, ["refused: SPARE: has a line break"]),
        ({"OMAC_SECRET_SPARE": "hunter2\udcff"}, ["refused: SPARE: holds NUL or an incomplete surrogate"]),
        ({"OMAC_CONFIG_REGION": "asia"}, ["refused: REGION: 'asia' must be one of the choices"]),
        (
            {"OMAC_SECRET_TOKEN": "hunter2", "OMAC_CONFIG_LIMIT": "many", "OMAC_CONFIG_REGION": "x\x1b[2J"},
            ["refused: TOKEN", "refused: LIMIT: 'many' must be a whole number", "refused: REGION: 'x\\x1b[2J'"],
        ),
    ],
    ids=["pattern", "line break", "no text", "choice", "many"],
)
def test_values_of_the_environment_that_are_refused(
    shared: tuple[Omac, Path], extra: dict[str, str], told: list[str]
) -> None:
    """All faulty values are reported at once."""
    omac, project = shared
    done = register(omac, project, **(ALL | extra))
    assert (done.status, done.out) == (9, "")
    assert all(line in done.err for line in told), done
    assert "\x1b" not in done.err
    assert "hunter2" not in done.err
    nothing_recorded(omac)


def test_everything_that_is_missing_is_said_at_once(shared: tuple[Omac, Path]) -> None:
    """All missing values are reported with the ways to give them, and nothing is recorded. With `--no-input` omac asks
    no one, even at a terminal."""
    omac, project = shared
    done = register(omac, project)
    assert (done.status, done.out) == (9, "")
    assert (
        "refused: TOKEN (secret, required): opens the door\nrefused: REGION (enum, required): where it is\n" in done.err
    )
    again = f"try: omac register slack --workdir {project} --harness opencode"
    assert f"{again}  # at a terminal" in done.err
    assert f"{again} --secrets-from FILE  # with TOKEN=...; or in OMAC_SECRET_TOKEN" in done.err
    assert f"{again} --fields-from FILE  # with REGION=...; or in OMAC_CONFIG_REGION" in done.err
    partly = register(omac, project, OMAC_SECRET_TOKEN=SECRET)
    assert partly.status == 9
    assert "TOKEN" not in partly.err
    short = omac.run("register", "slack", "--workdir", str(project), "--fields-from", "/dev/null")
    assert f"{again} --fields-from /dev/null  # with REGION=...; or in OMAC_CONFIG_REGION" in short.err, "given once"
    silent = typed(omac, [], "register", "slack", "--workdir", str(project), "--no-input")
    assert silent.status == 9
    nothing_recorded(omac)


@pytest.mark.full
def test_three_tries(shared: tuple[Omac, Path]) -> None:
    """The third wrong answer is refused, and earlier answers are not kept either. ^D ends the questions at once."""
    omac, project = shared
    answers = [("TOKEN", b"hunter2\n"), ("2 more tries", b"hunter2\n"), ("1 more try", b"hunter2\n")]
    for typing in (answers, [("TOKEN", SECRET.encode() + b"\n"), ("SPARE", b"\x04")]):
        done = typed(omac, typing, "register", "slack", "--workdir", str(project))
        assert done.status == 9, done
        assert ("refused: TOKEN: does not match" in done.out) == (typing is answers)
        assert b"hunter2" not in everywhere(omac, done)
        assert SECRET.encode() not in everywhere(omac, done)
    nothing_recorded(omac)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--no-secrets", "--secrets-from", "-"], "--no-secrets and --secrets-from contradict"),
        (["--no-fields", "--fields-from", "-"], "--no-fields and --fields-from contradict"),
        (["--secrets-from", "-", "--fields-from", "-"], "can be read once"),
        (["--secrets-from", "/nonexistent"], "/nonexistent cannot be read: No such file"),
        (["--secrets-from", "/"], "/ cannot be read: Is a directory"),
        (["--harness", "emacs"], "unknown harness 'emacs'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_flags_that_make_no_sense(shared: tuple[Omac, Path], flags: list[str], told: str) -> None:
    """Contradictory or unusable flags are misuse."""
    done = register(shared[0], shared[1], *flags)
    assert (done.status, told in done.err) == (2, True), done


def test_values_can_be_left_for_later(omac: Omac, shop: Path) -> None:
    """`--no-secrets` and `--no-fields` register the skill all the same, and report the values that it waits for."""
    done = register(omac, shop, "--no-secrets", "--no-fields")
    assert done.status == 0, done
    assert "it does not start without: TOKEN, REGION" in done.err
    assert taken(register(omac, shop, "--no-secrets", "--json", OMAC_CONFIG_REGION="eu"))["missing"] == ["TOKEN"]
    assert values(omac, shop) == {"secrets": [], "config": {"REGION": "eu"}}


def test_a_store_that_is_locked(omac: Omac, shop: Path) -> None:
    """A locked vault gives exit 8, and nothing is approved. A skill that gets no secret needs no store."""
    locked = {"OMAC_VAULT_KEY_FILE": ""}
    done = register(omac, shop, **(ALL | locked))
    assert (done.status, "the vault is locked" in done.err, "&& omac unlock" in done.err) == (8, True, True)
    nothing_recorded(omac)
    assert register(omac, shop, "--no-secrets", OMAC_CONFIG_REGION="eu", **locked).status == 0


def test_a_keychain(omac: Omac, keyring: PrivateKeyring) -> None:
    """A secret is kept in the keychain and taken over from there. Once the keychain is locked, nothing more is
    approved."""
    shop, market, fair = (valued(omac, name, META) for name in ("shop", "market", "fair"))
    omac.environment["OMAC_SECRETS_STORE"] = "keychain"
    assert "secrets kept in the system's keychain: TOKEN" in register(omac, shop, **ALL).out
    assert taken(register(omac, market, "--defaults", "--json"))["secrets"][0]["store"] == "keychain"
    keyring.lock()
    for done in (register(omac, fair, **ALL), register(omac, fair, "--defaults")):
        assert (done.status, "keychain is locked" in done.err) == (8, True), done
    assert len(omac.events(Approved)) == 2


def test_a_keychain_that_ended(omac: Omac, keyring: PrivateKeyring) -> None:
    """An earlier value and an earlier default that cannot be deleted, for one reason, are reported in one line."""
    shop = valued(omac, "shop", META)
    register(omac, shop, **ALL)
    keyring.stop()
    with_vault(omac)
    done = register(omac, shop, "--reprompt-secrets", **ALL)
    assert (done.status, done.err.count("deleting an earlier value failed: the system's keychain")) == (0, 1), done


def test_saved_values_out_of_reach(omac: Omac, keyring: PrivateKeyring) -> None:
    """A keychain whose saved values cannot be reached is refused, with the command that asks for other values."""
    shop, market = (valued(omac, name, META) for name in ("shop", "market"))
    register(omac, shop, **ALL)
    for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        del omac.environment[name]
    with_vault(omac)
    done = register(omac, market, "--defaults")
    assert (done.status, done.err.count("try: ")) == (8, 1), done
    command = done.err.partition("try: omac ")[2]
    assert (
        taken(alone(omac, *shlex.split(command, comments=True), "--json", extra=ALL))["secrets"][0]["store"] == "vault"
    )


# Which skill


def test_names_that_mean_no_skill(shared: tuple[Omac, Path]) -> None:
    """An unknown name, even one like a path, is looked up and printed escaped; it never leads to a folder. The skill
    that a slip or a path means is proposed, and no other."""
    omac, project = shared
    for name in ("../slack", "slack/", "/etc", "sl\x1b[2Jack", "Slack", "slcak", "stick"):
        done = alone(omac, "register", name, "--workdir", str(project), extra=ALL)
        assert (done.status, done.out) == (4, ""), done
        assert "known: slack" in done.err
        assert ("try: omac register slack" in done.err) == (name not in ("/etc", "sl\x1b[2Jack", "stick")), done
        assert "\x1b" not in done.err
    nothing_recorded(omac)


def test_skills_that_cannot_be_registered(omac: Omac, shop: Path) -> None:
    """A skill without a sidecar, a broken one, and one whose name differs only in case are refused."""
    skills = shop / ".agents" / "skills"
    (skills / "words").mkdir()
    (skills / "words" / "SKILL.md").write_text("---\nname: words\ndescription: only words\n---\n")
    omac.skill(shop, "zlack", META.replace("name: slack", "name: Slack").replace("chat", "chat2"))
    omac.skill(shop, "up", META.replace("slack", "up") + "  install_scripts: {linux: ../evil.sh}\n")
    for name, code, problem in (
        ("words", 2, "no sidecar"),
        ("Slack", 3, "differs only in case from slack"),
        ("up", 3, "must be a path inside the skill folder"),
    ):
        done = alone(omac, "register", name, "--workdir", str(shop), extra=ALL)
        assert (done.status, problem in done.err) == (code, True), done


def test_a_name_that_means_several_skills(omac: Omac, shop: Path) -> None:
    """An ambiguous name is narrowed by harness, scope or the hash of the code; the proposed commands can be pasted."""
    source = shop / ".agents" / "skills" / "slack"
    home = Path(omac.environment["HOME"]) / ".claude" / "skills" / "slack"
    sources = [shop / ".opencode" / "skills" / "slack", shop / ".claude" / "skills" / "slack", home]
    for number, copy_folder in enumerate(sources):
        shutil.copytree(source, copy_folder)
        (copy_folder / "extra.py").write_text(f"{number}\n")
    done = omac.run("register", "slack", "--no-secrets", "--no-fields", "--no-input", cwd=shop)
    assert done.status == 2, done
    assert "slack is ambiguous: 4 skills have this name" in done.err
    commands = [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")]
    registered = [taken(alone(omac, *shlex.split(line)[1:], "--json")) for line in commands]
    assert {report["source"] for report in registered} == {str(source), *map(str, sources)}
    (claude,) = [report for report in registered if report["source"] == str(sources[1])]
    by_hash = register(omac, shop, "--hash", claude["bundle_hash"], "--no-secrets", "--no-fields", "--json")
    assert taken(by_hash)["source"] == str(sources[1])
    shutil.rmtree(sources[0])
    (sources[1] / "omac.yaml").unlink()  # without a sidecar it cannot be meant
    (sources[1] / "SKILL.md").write_text("---\nname: slack\ndescription: words\n---\n")
    assert register(omac, shop, "--no-secrets", "--no-fields").status == 0


# Which code


def test_code_that_changed(omac: Omac, shop: Path) -> None:
    """Changed code is registered again only with `--force`; `--hash` limits this to the code that was shown."""
    first = taken(register(omac, shop, "--json", **ALL))
    (shop / ".agents" / "skills" / "slack" / "sidecar.py").write_text(PROGRAM + "# more\n")
    done = register(omac, shop)
    assert done.status == 9
    assert f"approved {first['digest']}, found sha256:" in done.err
    (compare, fix) = [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")]
    assert compare.startswith("omac diff slack --workdir ")
    assert f" --force --hash {done.err.partition('found ')[2][:71]}" in fix
    (shop / ".agents" / "skills" / "slack" / "sidecar.py").write_text(PROGRAM + "# still more\n")
    assert "does not match --hash" in alone(omac, *shlex.split(fix)[1:]).err
    assert len(omac.events(Approved)) == 1
    second = taken(register(omac, shop, "--force", "--json"))
    assert (second["new"], second["bundle_hash"] != first["bundle_hash"]) == (True, True)
    assert second["digest"] != first["digest"]


def test_it_says_what_was_vouched_for(omac: Omac, shop: Path) -> None:
    """The report has the code's hash, what the skill may do, its values and the next command, but no secret."""
    done = register(omac, shop, **ALL)
    source = shop / ".agents" / "skills" / "slack"
    lines = done.out.splitlines()
    assert lines[0] == f"registered: slack in {source}"
    assert lines[1].startswith("  sha256:")
    assert lines[2:] == [
        "  it runs as you: python3 -I -S sidecar.py",
        f"  secrets kept in the vault {omac.state}/vault: TOKEN",
        "  REGION is eu",
        f"next: omac serve --no-inner --workdir {shop}",
        f"  or, where a server runs: omac activate {shop}",
    ]
    assert done.err == "note: slack: it has no SKILL.md, so agents cannot discover it\n"
    assert SECRET.encode() not in everywhere(omac, done)


@pytest.mark.parametrize("kind", ["plain", "long", "link", "fifo", "folder", "absent", "linked folder"])
def test_the_install_script_is_shown_and_not_run(omac: Omac, kind: str) -> None:
    """An install script that is a regular file of the skill is printed in a box, with control characters escaped."""
    with_vault(omac)
    project = valued(omac, "shop", META + "  install_scripts: {linux: scripts/install.sh, macos: scripts/install.sh}\n")
    folder = project / ".agents" / "skills" / "slack" / "scripts"
    script, mark, secret = folder / "install.sh", omac.folder / "ran", omac.folder / "secret"
    secret.write_text("not for the screen\n")
    if kind == "linked folder":
        (omac.folder / "install.sh").write_text("not for the screen\n")
        folder.symlink_to(omac.folder)
    else:
        folder.mkdir()
    match kind:
        case "plain":
            program_at(script, f"#!/bin/sh\n\ttouch {mark}\x1b]0;x\x07\u202e\n")
        case "long":
            script.write_text("".join(f"echo {number}\n" for number in range(500)))
        case "link":
            script.symlink_to("../sidecar.py")
        case "fifo":
            os.mkfifo(script)
        case "folder":
            script.mkdir()
        case _:
            pass
    if kind == "plain":
        shown = omac.ok("show", "slack", "--workdir", str(project))
        assert f"its install script is {script}, which omac does not run: read it, and run it before you" in shown
    done = register(omac, project, **ALL)
    assert not mark.exists()
    assert "not for the screen" not in done.out + done.err
    assert "\x1b" not in done.out + done.err
    if kind in ("fifo", "linked folder"):
        assert (done.status, "scripts" in done.err) == (3, True), done  # it cannot be copied, so it is not approved
        return
    assert done.status == 0, done
    if kind in ("plain", "long"):
        assert f": {script}\n|   omac does not run it." in done.out
        assert "|   The files that it changes need another approval: omac trust\n" in done.out
    else:
        assert f"{script}, cannot be shown: " in done.out
    if kind == "plain":
        assert f"|         touch {mark}\\x1b]0;x\\x07\\u202e\n" in done.out
    if kind == "long":
        assert "| echo 199\n+-- the file has more of it" in done.out


# Many at once, and servers


@pytest.mark.full
def test_many_at_once(omac: Omac, shop: Path) -> None:
    """Twelve registrations of other skills and of the same one at once: each is recorded, or reports that others were
    first."""
    projects = [valued(omac, f"p{number}", META) for number in range(6)] + [shop] * 6

    def one(number: int) -> Done:
        extra = ALL | {"OMAC_SECRET_TOKEN": f"{SECRET}{number}"}
        return omac.process("register", "slack", "--workdir", str(projects[number]), extra=extra)

    with ThreadPoolExecutor(12) as pool:
        ended = list(pool.map(one, range(12)))
    for done in ended:
        assert done.status == 0 or "other processes keep changing" in done.err, done
    assert sum(done.status == 0 for done in ended) >= 7
    registry = status(omac)["registry"]
    assert {row["dir"] for row in registry} == {str(project) for project in projects}
    assert all(row["approved"] and row["secrets"] == ["TOKEN"] for row in registry)
    for number in range(6):
        assert stored(omac, str(projects[number])) == f"{SECRET}{number}"
    assert stored(omac, str(shop)) in {f"{SECRET}{number}" for number in range(6, 12)}
    assert SECRET.encode() not in everywhere(omac, *ended)


def test_a_server_that_runs_takes_it_up(omac: Omac, shop: Path) -> None:
    """A registration makes the skill ready with its values if its directory is online; it proposes no next step
    then."""
    server = omac.serve()
    assert server.skill(shop, "slack")["state"] == "broken"
    assert taken(register(omac, shop, "--json", OMAC_CONFIG_NOTE="hi", **ALL))["next"] == []

    def ready() -> Any:
        skill = server.skill(shop, "slack")
        return skill["state"] == "ready" and told(skill)

    answer = eventually(ready, 10.0, "the skill with its values")
    assert (answer["TOKEN"], answer["REGION"], answer["NOTE"], answer["LIMIT"]) == (SECRET, "eu", "hi", "3")
    assert SECRET.encode() not in everywhere(omac)


def test_a_journal_that_cannot_be_written(omac: Omac, shop: Path) -> None:
    """An unusable journal gives exit 5 and no traceback; no secret is stored."""
    done = register(omac, shop, "--journal", str(omac.folder), **ALL)
    assert (done.status, "Traceback" in done.err) == (5, False), done
    assert stored(omac, str(shop)) is None


def test_the_example_skill(omac: Omac) -> None:
    """The example skill needs no value, so one command registers it without any store for secrets."""
    project = omac.root / "plain"
    shutil.copytree(ECHO_SKILL, project / ".agents" / "skills" / "echo")
    done = alone(omac, "register", "echo", "--workdir", "plain", extra={"OMAC_SECRETS_STORE": "keychain"})
    assert (done.status, done.err) == (0, ""), done
    assert "and may read these variables of yours: ECHO_PASSTHROUGH" in done.out
