"""tools/cli/vault.py: making the vault, its status, and opening locked stores for the running server."""

import errno
import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from polling import eventually
from real_keyring import PrivateKeyring
from real_omac import Done, Omac, Serving
from valued_skill import everywhere, piped, told, typed, valued, waiting, with_vault

PASSPHRASE = "korrekt-pferd-9"
SECRET = "xoxb-7f3a9c"
SOON_S = 1.0  # after the store was opened, until agents have the skill
START_S = 5.0
NEW, AGAIN, ASKED = "8 characters or more", "the same again", "passphrase (secret"


@pytest.fixture
def key(omac: Omac) -> Path:
    """Return the path of a key file that does not exist yet."""
    return omac.folder / "my keys" / "vault.key"


@pytest.fixture
def passphrase(omac: Omac) -> Omac:
    """Return an omac whose vault is under PASSPHRASE."""
    done = typed(omac, [(NEW, line(PASSPHRASE)), (AGAIN, line(PASSPHRASE))], "vault", "init")
    assert done.status == 0, done
    return omac


def line(text: str) -> bytes:
    """Return the text as it is typed."""
    return text.encode() + b"\r"


def status(omac: Omac) -> dict[str, Any]:
    """Return the JSON of `omac vault status`."""
    report: dict[str, Any] = json.loads(omac.ok("vault", "status", "--json"))
    return report


def given_at_a_terminal(omac: Omac, project: Path) -> Done:
    """Give a secret while the vault is locked: omac asks for the passphrase, then for the secret, each once."""
    answers = [(ASKED, line(PASSPHRASE)), ("opens the door", line(SECRET))]
    done = typed(omac, answers, "secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    assert done.status == 0, done
    return done


def runs(serving: Serving, project: Path, seconds: float) -> dict[str, Any]:
    """Return the skill, once its sidecar has the secret."""

    def look() -> dict[str, Any] | None:
        skill = serving.skill(project, "slack")
        values = told(skill) if skill["state"] == "ready" else None
        return skill if values and values["TOKEN"] == SECRET else None

    skill: dict[str, Any] = eventually(look, seconds, "a sidecar with its secret")
    return skill


def offered(done: Done) -> list[str]:
    """Return the commands that omac proposes."""
    assert done.status in (0, 8), done
    return [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")]


# ---- making it ----


def test_with_a_new_key_file(omac: Omac, key: Path) -> None:
    """The output of vault init is a line for a shell. Other users can read neither file, and a second init changes
    nothing."""
    key.parent.mkdir()
    done = omac.run("vault", "init", "--key-file", str(key))
    assert (done.status, done.out) == (0, f"export OMAC_VAULT_KEY_FILE={shlex.quote(str(key))}\n"), done
    vault = omac.state / "vault"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, vault)] == [0o600, 0o600]
    digits = key.read_text().strip()
    assert len(bytes.fromhex(digits)) == 32
    assert digits not in done.out + done.err
    assert status(omac) == {
        "path": str(vault), "exists": True, "key": "key file", "locked": True, "services": None, "names": None,
    }  # fmt: skip
    omac.environment["OMAC_VAULT_KEY_FILE"] = str(key)
    assert status(omac) | {"locked": False, "services": 0, "names": 0} == status(omac)
    before = vault.read_bytes(), key.read_bytes()
    again = omac.run("vault", "init", "--key-file", str(key))
    assert (again.status, again.out) == (2, "")
    assert "  try: omac vault status" in again.err
    assert (vault.read_bytes(), key.read_bytes()) == before


def test_a_key_file_in_a_project(omac: Omac) -> None:
    """A program in the project's sandbox runs, and cannot read the key: it is hidden once, though it is found twice, by
    the variable and by the note of what opened the vault last."""
    project = omac.project("shop")
    key = project / "vault.key"
    omac.ok("vault", "init", "--key-file", str(key))
    words = ("sandbox", "run", "--workdir", str(project), "--", "sh", "-c", "cat vault.key; echo ran")
    done = omac.run(*words, extra={"OMAC_VAULT_KEY_FILE": str(key)})
    assert (done.status, done.out) == (0, "ran\n"), done


def test_without_a_place_for_the_key(omac: Omac, key: Path) -> None:
    """A key file needs a folder that can be made, for its owner alone, and is not written over an existing file."""
    done = omac.run("vault", "init", "--key-file", "/proc/nobody/here/key")
    assert (done.status, done.out) == (5, ""), done
    assert "cannot be made" in done.err
    key.parent.mkdir()
    key.write_text("mine")
    done = omac.run("vault", "init", "--key-file", str(key))
    assert (done.status, key.read_text()) == (2, "mine")
    assert not status(omac)["exists"]
    missing = key.parent / "deep" / "new.key"
    omac.ok("vault", "init", "--key-file", str(missing))
    assert stat.S_IMODE(missing.parent.stat().st_mode) == 0o700


def test_without_a_place_for_the_vault(omac: Omac, key: Path) -> None:
    """A new key file is removed if the vault cannot be made."""
    key.parent.mkdir()
    os.chmod(omac.state, 0o777)
    try:
        done = omac.run("vault", "init", "--key-file", str(key))
    finally:
        os.chmod(omac.state, 0o700)
    assert done.status == 8, done
    assert "chmod 700" in done.err
    assert list(key.parent.iterdir()) == []


def test_a_vault_that_is_not_on_the_disk(omac: Omac, key: Path) -> None:
    """A vault that exists keeps its key file, even if the folder of the vault could not be flushed."""
    flushed, fsync = list[int](), os.fsync

    def failing(descriptor: int) -> None:
        flushed.append(descriptor)
        if len(flushed) == 4:  # the key and its folder come before the vault
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with mock.patch("omac.adapters.files.atomic.os.fsync", failing):
        done = omac.run("vault", "init", "--key-file", str(key))
    assert (done.status, "Input/output error" in done.err) == (8, True), done
    opened = json.loads(omac.ok("vault", "status", "--json", extra={"OMAC_VAULT_KEY_FILE": str(key)}))
    assert (opened["exists"], opened["locked"]) == (True, False)


def test_a_key_file_without_a_vault(omac: Omac, key: Path) -> None:
    """A key file that an init left, which was killed before it made the vault, makes one by the command that the next
    init names."""
    key.parent.mkdir(mode=0o700)
    key.write_text("ab" * 32)
    key.chmod(0o600)
    done = omac.run("vault", "init", "--key-file", str(key))
    named = f"OMAC_VAULT_KEY_FILE={shlex.quote(str(key))}"
    assert (done.status, f"try: {named} omac vault init " in done.err) == (2, True), done
    omac.ok("vault", "init", extra={"OMAC_VAULT_KEY_FILE": str(key)})
    assert status(omac)["exists"]


def test_with_the_key_at_hand(omac: Omac, key: Path) -> None:
    """A vault can use a key file made by others, such as a systemd credential. The status reports a wrong key."""
    key.parent.mkdir(mode=0o700)
    omac.environment["OMAC_VAULT_KEY_FILE"] = str(key)
    done = omac.run("vault", "init")
    assert (done.status, done.out) == (2, "")
    assert f"try: omac vault init --key-file {shlex.quote(str(key))}" in done.err
    key.write_text("ab" * 32)
    key.chmod(0o600)
    done = omac.run("vault", "init")
    assert done.status == 0, done
    assert str(key) in done.out
    assert status(omac)["locked"] is False
    key.write_text("cd" * 32)
    text = omac.run("vault", "status")
    assert text.status == 0
    assert "locked here: the key file" in text.out
    assert "is not the key of the vault" in text.out


def test_where_nobody_can_type(omac: Omac) -> None:
    """A passphrase is not read from a pipe; omac proposes the way without one."""
    done = piped(omac, line(PASSPHRASE) * 2, "vault", "init")
    assert (done.status, done.out) == (2, "")
    assert "  try: omac vault init --key-file ~/.config/omac/vault.key" in done.err
    missing = omac.run("vault", "status")
    assert (missing.status, missing.out) == (0, f"no vault exists at {omac.state / 'vault'}\n")
    assert "  try: omac vault init" in missing.err


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([("", line("short-7"))] * 3, "no passphrase was accepted; no vault was created"),
        ([(NEW, line(PASSPHRASE)), (AGAIN, line(PASSPHRASE + "!"))] * 3, "passphrases differ; no vault was created"),
        ([(NEW, line(PASSPHRASE)), (AGAIN, b"\x04")], "the input ended"),
    ],
)
def test_slips_at_a_terminal(omac: Omac, answers: list[tuple[str, bytes]], problem: str) -> None:
    """A refused passphrase makes no vault, and is not shown."""
    done = typed(omac, answers, "vault", "init")
    assert done.status == 9
    assert problem in done.out
    assert "short-7" not in done.out
    assert PASSPHRASE not in done.out
    assert not (omac.state / "vault").exists()


@pytest.mark.full
def test_a_slip_is_typed_again(omac: Omac) -> None:
    """A short passphrase and two that differ are asked for again, like values of secrets."""
    answers = [
        (NEW, line("short-7")), ("has fewer than 8 characters; 2 more tries", line(PASSPHRASE)),
        (AGAIN, line("wrong-wrong")), ("the two passphrases differ; 2 more tries", line(PASSPHRASE)),
        (AGAIN, line(PASSPHRASE)),
    ]  # fmt: skip
    done = typed(omac, answers, "vault", "init")
    assert (done.status, "made the vault" in done.out, "short-7" in done.out) == (0, True, False), done


def test_damaged(omac: Omac, passphrase: Omac) -> None:
    """A damaged vault is reported with an exit code of its own by every command, and is not overwritten."""
    vault = omac.state / "vault"
    vault.write_bytes(vault.read_bytes()[:-1])
    for command in (("vault", "status"), ("unlock",)):
        done = piped(omac, line(PASSPHRASE), *command)
        assert (done.status, done.out) == (10, ""), done
        assert "is damaged" in done.err
    assert omac.run("vault", "init").status == 2


@pytest.mark.full
def test_a_key_file_that_is_not_named(omac: Omac) -> None:
    """The only command proposed for a locked vault is the one that opens it, with the key file's path as long as the
    file is there."""
    with_vault(omac)
    project = valued(omac)
    command = ("secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    assert piped(omac, SECRET.encode(), *command).status == 0
    omac.approve(project, "slack")
    key = Path(omac.environment.pop("OMAC_VAULT_KEY_FILE"))
    moved = key.rename(key.with_name("it's moved"))
    assert offered(omac.run("vault", "status")) == ["export OMAC_VAULT_KEY_FILE=PATH"]
    omac.ok("vault", "status", extra={"OMAC_VAULT_KEY_FILE": str(moved)})
    names = f"export OMAC_VAULT_KEY_FILE={shlex.quote(str(moved))}"
    assert offered(omac.run("vault", "status")) == [names]
    serving = omac.serve()
    opens = [f"{names} && omac unlock"]
    assert waiting(serving, project)["fix"] == opens
    for refused in (piped(omac, SECRET.encode(), *command), omac.run("vault", "status"), omac.run("unlock")):
        assert offered(refused) == opens


# ---- a passphrase ----


@pytest.mark.full
def test_a_passphrase_opens_it(passphrase: Omac) -> None:
    """A command that needs the passphrase asks for it once, and it is stored nowhere."""
    omac = passphrase
    project = valued(omac)
    assert status(omac)["key"] == "passphrase"
    assert status(omac)["locked"] is True
    done = given_at_a_terminal(omac, project)
    assert done.out.count(ASKED) == 1
    assert done.out.index(ASKED) < done.out.index("opens the door")
    traces = everywhere(omac, done)
    assert PASSPHRASE.encode() not in traces
    assert SECRET.encode() not in traces
    command = ("secrets", "set", "slack", "TOKEN", "--workdir", str(project))
    wrong = typed(omac, [(ASKED, line("wrong-wrong"))] * 3, *command)
    assert wrong.status == 8
    assert "this is not the passphrase" in wrong.out
    alone = piped(omac, SECRET.encode(), *command)
    assert (alone.status, alone.out) == (8, "")
    assert "omac unlock gives to servers alone" in alone.err
    assert offered(alone) == [f"omac {shlex.join(command)}  # at a terminal, where it asks"]
    registered = piped(
        omac, b"TOKEN=" + SECRET.encode(), "register", *command[2:3], *command[4:], "--secrets-from", "-"
    )
    assert registered.status == 8
    assert offered(registered)[-1].endswith("--secrets-from -  # at a terminal, where it asks")
    omac.approve(project, "slack")
    assert offered(omac.run("start", "--workdir", str(project), "--", "true")) == ["omac unlock"]
    assert offered(omac.run("vault", "status")) == [], "no run lives that omac unlock could open it for"


@pytest.mark.full
def test_a_launch_asks_before_anything_starts(passphrase: Omac) -> None:
    """`omac start` asks for the passphrase and runs the skill with its secret; Enter goes on without it. A run whose
    skills have no secret, or whose vault is damaged, asks nothing."""
    omac = passphrase
    project, plain = valued(omac), omac.project("other")
    given_at_a_terminal(omac, project)
    omac.approve(project, "slack")
    command = ("start", "--workdir", str(project), "--", "sh", "-c", 'curl -s "$OMAC_CHAT_BASE/"')
    done = typed(omac, [(ASKED, line(PASSPHRASE))], *command)
    assert (done.status, SECRET in done.out) == (0, True), done
    without = typed(omac, [(ASKED, line(""))], *command)
    assert "pending-credentials" in without.out
    vault = omac.state / "vault"
    content, _ = vault.read_bytes(), vault.write_bytes(b"damaged")
    damaged = typed(omac, [], *command)
    vault.write_bytes(content)
    assert "pending-credentials" in damaged.out or "skill-broken" in damaged.out, damaged
    quiet = typed(omac, [], "start", "--workdir", str(plain), "--", "true")
    assert (quiet.status, ASKED in quiet.out) == (0, False), quiet


@pytest.mark.full
def test_unlock_makes_a_waiting_skill_ready(passphrase: Omac) -> None:
    """`omac unlock` gives a server the key in memory only. With a wrong passphrase the skill still waits."""
    omac = passphrase
    project = valued(omac)
    given_at_a_terminal(omac, project)
    omac.approve(project, "slack")
    serving = omac.serve()
    eventually(lambda: serving.skill(project, "slack")["state"] == "pending_credentials", START_S, "that it waits")
    assert "omac unlock" in waiting(serving, project)["fix"]
    before = serving.activate(project)["dir_token"]

    wrong = piped(omac, b"wrong-wrong\n", "unlock")
    assert (wrong.status, wrong.out) == (8, "")
    assert "this is not the passphrase" in wrong.err
    empty = piped(omac, b"", "unlock")
    assert (empty.status, empty.out) == (9, "")
    waiting(serving, project)

    done = piped(omac, PASSPHRASE.encode() + b"\n", "unlock", "--json")
    assert json.loads(done.out) == {"stores": ["vault"], "server": True, "dirs": [str(project)]}
    afterwards = omac.run("vault", "status")
    assert "commands that need it ask for the passphrase\n" in afterwards.err
    assert offered(afterwards) == ["omac unlock  # where omac status has a skill that waits for it"]
    assert before in runs(serving, project, SOON_S)["base"]
    at_terminal = typed(omac, [(ASKED, line(PASSPHRASE))], "unlock")
    assert at_terminal.status == 0
    assert f"the vault {omac.state / 'vault'}: open" in at_terminal.out
    traces = everywhere(omac, wrong, empty, done, at_terminal)
    assert PASSPHRASE.encode() not in traces
    assert SECRET.encode() not in traces


def started(omac: Omac, project: Path, *answers: tuple[str, bytes]) -> Done:
    """Run `omac start` at a terminal, with a command that asks the skill for its values."""
    command = 'curl -sS --unix-socket "$OMAC_SOCKET" http://x/chat/; echo; echo ended'
    return typed(omac, answers, "start", "--workdir", str(project), "--", "sh", "-c", command)


@pytest.mark.full
def test_start_asks_before_anything_runs(passphrase: Omac) -> None:
    """The skill is ready when the command begins, after one question. A wrong passphrase may be typed again; with Enter
    the skill waits."""
    omac = passphrase
    project = valued(omac)
    given_at_a_terminal(omac, project)
    assert ASKED not in started(omac, project).out, "nothing is approved, so nothing needs it"
    omac.approve(project, "slack")
    done = started(omac, project, (ASKED, line("wrong-wrong")), (ASKED, line(PASSPHRASE)))
    assert done.status == 0, done
    assert "for slack" in done.out
    assert done.out.index("2 more tries") < done.out.index(SECRET)
    skipped = started(omac, project, (ASKED, b"\r"))
    assert "slack is pending credentials" in skipped.out
    assert "ended" in skipped.out
    before = len(omac.events())
    refused = started(omac, project, *[(ASKED, line("wrong-wrong"))] * 3)
    assert refused.status == 8
    assert "\nended" not in refused.out
    assert len(omac.events()) == before, "nothing was started"
    (again,) = [line for line in refused.out.splitlines() if line.startswith("  try: ")]
    assert again.startswith(f"  try: omac start --workdir {project} -- sh -c 'curl ")
    assert again.endswith("  # Enter instead of a passphrase leaves the vault locked")
    passwd = typed(omac, [(ASKED, line("wrong-wrong"))] * 3, "vault", "passwd")
    assert "  try: omac vault passwd  # asks again" in passwd.out
    serve = ("serve", "--no-inner", "--json", "--workdir", str(project))  # JSON on stdout, the question on the terminal
    unserved = typed(omac, [(ASKED, line("wrong-wrong"))] * 3, *serve)
    assert (unserved.status, f"  try: omac {' '.join(serve)}  # Enter" in unserved.out) == (8, True), unserved
    assert PASSPHRASE.encode() not in everywhere(omac, done, skipped, refused)


def test_a_file_that_is_refused_asks_for_no_passphrase(passphrase: Omac) -> None:
    """A fault of the file is said before anybody types."""
    omac = passphrase
    project = valued(omac)
    values = omac.folder / "values"
    values.write_text("TOKN=abcd-1\n")
    done = typed(omac, (), "secrets", "import", "slack", "--from", str(values), "--workdir", str(project))
    assert "declares no secret 'TOKN'" in done.out, done
    assert (done.status, ASKED in done.out) == (9, False), done


@pytest.mark.full
def test_a_second_server_asks_for_no_passphrase(passphrase: Omac) -> None:
    """A server that cannot begin beside the one that has the journal says so before anybody types."""
    omac = passphrase
    project = valued(omac)
    given_at_a_terminal(omac, project)
    omac.approve(project, "slack")
    omac.serve()
    second = typed(omac, (), "serve", "--no-inner", "--workdir", str(project))
    assert second.status == 5, second
    assert "another omac serve" in second.out
    assert ASKED not in second.out
    beside = started(omac, project, (ASKED, line(PASSPHRASE)))
    assert beside.status == 0, beside


@pytest.mark.full
def test_another_passphrase(passphrase: Omac) -> None:
    """The old passphrase is needed to change it. An unlocked server keeps running; the old passphrase no longer unlocks
    one."""
    omac, changed = passphrase, "pferd-korrekt-8"
    project, second = valued(omac), valued(omac, "second")
    given_at_a_terminal(omac, project)
    omac.approve(project, "slack")
    serving = omac.serve()
    assert piped(omac, PASSPHRASE.encode() + b"\n", "unlock").status == 0
    runs(serving, project, START_S)
    vault = omac.state / "vault"
    before = vault.read_bytes()
    wrong = typed(omac, [(ASKED, line("wrong-wrong"))] * 3, "vault", "passwd")
    slips = [(NEW, line("short-7")), *[("more tr", line("short-7"))] * 2]
    short = typed(omac, [(ASKED, line(PASSPHRASE)), *slips], "vault", "passwd")
    assert (wrong.status, short.status) == (8, 9)
    assert "no passphrase was accepted; nothing was changed" in short.out
    assert omac.run("vault", "passwd").status == 2, "nobody can type"
    assert vault.read_bytes() == before
    done = typed(omac, [(ASKED, line(PASSPHRASE)), (NEW, line(changed)), (AGAIN, line(changed))], "vault", "passwd")
    assert done.status == 0, done
    assert f"changed the passphrase of the vault {vault}" in done.out
    omac.approve(second, "slack")
    command = ("secrets", "set", "slack", "TOKEN", "--workdir", str(second))
    stored = typed(omac, [(ASKED, line(changed)), ("opens the door", line(SECRET))], *command)
    assert stored.status == 0, stored
    runs(serving, second, START_S)
    assert piped(omac, PASSPHRASE.encode() + b"\n", "unlock").status == 8
    traces = everywhere(omac, done, stored)
    assert not any(secret.encode() in traces for secret in (PASSPHRASE, changed, SECRET))
    assert [path for path in omac.state.iterdir() if path.name.startswith("vault.draft")] == []


@pytest.mark.full
def test_a_locked_server_stays_locked(passphrase: Omac) -> None:
    """`vault lock` makes the server forget the key at once, and is recorded. A new passphrase does not unlock it
    again."""
    omac, changed = passphrase, "pferd-korrekt-8"
    project, second = valued(omac), valued(omac, "second")
    given_at_a_terminal(omac, project)
    omac.approve(project, "slack")
    serving = omac.serve()
    assert json.loads(omac.ok("vault", "lock", "--json"))["forgotten"] == 0
    assert piped(omac, PASSPHRASE.encode() + b"\n", "unlock").status == 0
    runs(serving, project, START_S)
    assert "1 of 1 run had the key of the vault" in omac.ok("vault", "lock")
    assert serving.skill(project, "slack")["state"] == "ready", "what runs keeps its values"
    done = typed(omac, [(ASKED, line(PASSPHRASE)), (NEW, line(changed)), (AGAIN, line(changed))], "vault", "passwd")
    assert done.status == 0, done
    command = ("secrets", "set", "slack", "TOKEN", "--workdir", str(second))
    assert typed(omac, [(ASKED, line(changed)), ("opens the door", line(SECRET))], *command).status == 0
    omac.approve(second, "slack")
    waiting(serving, second)
    rows = [json.loads(row) for row in omac.ok("audit", "--kind", "control", "--json").splitlines()]
    assert [row["kind"] for row in rows].count("control.vault-locked") == 1
    assert serving.call_tcp("lock", "-X", "POST", "-H", f"Authorization: Bearer {serving.token}").status == 401


@pytest.mark.full
def test_lock_without_a_server_or_a_passphrase(omac: Omac, key: Path) -> None:
    """`vault lock` without a server finds no key to forget. A vault with a key file has no passphrase to change, and a
    server opens it again."""
    assert "no run lives that could have the key" in omac.ok("vault", "lock")
    key.parent.mkdir(mode=0o700)
    omac.ok("vault", "init", "--key-file", str(key))
    assert omac.run("vault", "passwd").status == 2
    omac.environment["OMAC_VAULT_KEY_FILE"] = str(key)
    omac.serve()
    done = omac.run("vault", "lock")
    assert done.status == 0
    assert f"a run still opens the vault by the key file {key}" in done.err


@pytest.mark.full
def test_unlock_hands_over_the_key_at_hand(omac: Omac, key: Path) -> None:
    """A server started without the key file gets its key from a shell that has it."""
    key.parent.mkdir(mode=0o700)
    omac.ok("vault", "init", "--key-file", str(key))
    project = valued(omac)
    omac.environment["OMAC_VAULT_KEY_FILE"] = str(key)
    assert piped(omac, SECRET.encode(), "secrets", "set", "slack", "TOKEN", "--workdir", str(project)).status == 0
    omac.approve(project, "slack")
    del omac.environment["OMAC_VAULT_KEY_FILE"]
    serving = omac.serve()
    eventually(lambda: serving.skill(project, "slack")["state"] == "pending_credentials", START_S, "that it waits")
    locked = omac.run("unlock")
    assert (locked.status, locked.out) == (8, "")
    assert "OMAC_VAULT_KEY_FILE does not name it" in locked.err
    omac.environment["OMAC_VAULT_KEY_FILE"] = str(key)
    out = omac.ok("unlock")
    assert out.splitlines() == [f"the vault {omac.state / 'vault'}: open", f"the server reloads {project}"]
    runs(serving, project, SOON_S)
    assert key.read_bytes().strip() not in everywhere(omac, locked)


@pytest.mark.full
def test_unlock_without_a_server(passphrase: Omac) -> None:
    """`omac unlock` without a server asks for no passphrase, and proposes the command that helps."""
    done = typed(passphrase, [], "unlock")
    assert done.status == 1
    assert "no omac serve is running here" in done.out
    assert "OMAC_VAULT_KEY_FILE" in done.out
    assert "try: omac serve --no-inner --root .\r\n" in done.out
    assert "try: omac vault init" not in done.out, "there is a vault"


def test_unlock_without_any_store(omac: Omac) -> None:
    """`omac unlock` without a store proposes how to make one."""
    done = omac.run("unlock")
    assert (done.status, done.out) == (8, "")
    assert "  try: omac vault init" in done.err


# ---- a keychain ----


def test_unlock_of_a_keyring(omac: Omac, keyring: PrivateKeyring) -> None:
    """An open keyring needs no passphrase, and the server reloads. A keyring that stays locked is reported as
    locked."""
    project = valued(omac)
    omac.approve(project, "slack")
    serving = omac.serve()
    waiting(serving, project)
    assert json.loads(omac.ok("unlock", "--json")) == {"stores": ["keychain"], "server": True, "dirs": [str(project)]}
    keyring.lock()
    done = omac.run("unlock", seconds=90.0)
    assert (done.status, done.out) == (8, ""), done
    assert "keychain" in done.err


# ---- omac's own settings, at the command line ----


def test_settings(omac: Omac) -> None:
    """Settings are shown and changed, and a slip is refused."""
    omac.ok("settings", "set", "secrets.store", "vault")
    rows = {row["name"]: row for row in map(json.loads, omac.ok("settings", "show", "--json").splitlines())}
    assert rows["secrets.store"]["value"] == "vault"
    assert "user " in omac.ok("settings", "show", "--show-origin")
    omac.ok("settings", "unset", "secrets.store")
    assert "secrets.store auto" in " ".join(omac.ok("settings", "show").split())
    slip = omac.run("settings", "set", "secrets.stor", "vault")
    assert (slip.status, slip.out) == (2, "")
    assert omac.run("status").status == 0, "the journal with such events is read"


def test_no_sandbox_shows_the_key_file(omac: Omac, key: Path) -> None:
    """A key file in a granted folder is hidden where no variable names it: from its making on, and after it was moved,
    once it has opened the vault."""
    omac.ok("vault", "init", "--key-file", str(key))
    (key.parent / "note").write_text("note")
    project = omac.project("shop")
    read = ("sandbox", "run", "--read", str(key.parent), "--workdir", str(project), "--", "sh", "-c")
    done = omac.run(*read, f"cat {shlex.quote(str(key))} {shlex.quote(str(key.parent / 'note'))}")
    assert (done.out, done.status) == ("note", 1), done
    moved = key.rename(key.with_name("moved"))
    omac.ok("vault", "status", extra={"OMAC_VAULT_KEY_FILE": str(moved)})
    done = omac.run(*read, f"cat {shlex.quote(str(moved))}")
    assert (done.out, done.status) == ("", 1), done
    refused = omac.run("sandbox", "run", "--read", str(moved), "--", "true")
    assert "omac's own and in no sandbox" in refused.err
    assert omac.run("doctor").status == 0
