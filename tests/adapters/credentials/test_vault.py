"""The vault's file: the faults that it survives, the keys that open it, and the refusals when it cannot be used."""

import errno
import hashlib
import hmac
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from omac.adapters.credentials.keys import KeyAtHand
from omac.adapters.credentials.vault import Vault
from omac.adapters.credentials.vault_format import (
    BYTES_MAX,
    Damaged,
    Newer,
    Scrypt,
    VaultKey,
    WrongKey,
    open_header,
    unseal,
)
from omac.adapters.files import lock
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal

SERVICE = "omac/slack"
NAME = "SLACK_TOKEN"
SECRET = "xoxb-only-for-the-skill"
KEY = KeyAtHand(VaultKey(bytes(range(32))), "this key")
OTHER_KEY = KeyAtHand(VaultKey(bytes(32)), "the key file /k")
CHEAP = Scrypt(10, 8, 1)
PASSPHRASE = Hidden("Grüße an Zoë")


@pytest.fixture
def vault(state: Path) -> Vault:
    """Return a vault with one value."""
    new_vault = Vault(str(state / "vault"), lock_wait_s=5.0)
    new_vault.create_with_key(KEY.key)
    new_vault.write(KEY, SERVICE, {NAME: Hidden(SECRET)})
    return new_vault


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal of a call; its traceback shows no value and no key."""
    with pytest.raises(Refusal) as caught:
        call()
    trace = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert not any(text in trace for text in (SECRET, repr(bytes(KEY.key)), KEY.key.hex(), PASSPHRASE.reveal()))
    return caught.value


def whole(body: bytes) -> bytes:
    """Return a vault with a checksum that fits, as an attacker who changes a vault would make it."""
    return body + hashlib.sha256(body).digest()


def child(program: str, *arguments: str, cwd: Path, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Start a program that has the `vault` of the folder, and its `KEY`."""
    begin = (
        "import os, signal, sys\nfrom omac.adapters.credentials.keys import KeyAtHand\n"
        "from omac.adapters.credentials.vault_format import VaultKey\n"
        "from omac.adapters.credentials.vault import Vault\n"
        "from omac.domain.kernel.hidden import Hidden\nfrom omac.domain.kernel.refusal import Refusal\n"
        "KEY = KeyAtHand(VaultKey(bytes(range(32))), 'this key')\nvault = Vault('vault')\n"
    )
    return subprocess.Popen([sys.executable, "-c", begin + program, *arguments], cwd=cwd, stdout=stdout)


def test_values_come_back_as_they_were(vault: Vault) -> None:
    """Values of any Unicode read back unchanged. Services are separate, and absent names are left out."""
    values = {"a": "x\r\ny\n", "b": "Zürich 東京 🗝 \0", "c": "é" * 60_000, "d": ""}
    vault.write(KEY, "omac/other", {name: Hidden(value) for name, value in values.items()})
    stored = Vault(vault.path).read(KEY, "omac/other", [*values, NAME])
    assert {name: value.reveal() for name, value in stored.items()} == values
    assert vault.read(KEY, SERVICE, [NAME, "a"]) == {NAME: Hidden(SECRET)}


def test_removed_values_are_gone(vault: Vault) -> None:
    """Removing a value leaves the others. Removing an absent name is no error."""
    vault.write(KEY, SERVICE, {"a": Hidden("1"), "b": Hidden("2")})
    vault.remove(KEY, SERVICE, ["a", "absent"])
    vault.remove(KEY, "omac/absent", ["a"])
    assert vault.read(KEY, SERVICE, ["a", "b", NAME]) == {"b": Hidden("2"), NAME: Hidden(SECRET)}


def test_nothing_can_be_read_off_the_file(vault: Vault) -> None:
    """The file shows neither values nor names, and never holds the same bytes twice. Its mode is 0600 whatever the
    umask is."""
    first = Path(vault.path).read_bytes()
    before = os.umask(0)
    vault.write(KEY, SERVICE, {NAME: Hidden(SECRET)})
    os.umask(before)
    second = Path(vault.path).read_bytes()
    for content in (first, second):
        assert not any(text.encode() in content for text in (SECRET, NAME, SERVICE))
    assert first[48:60] != second[48:60]
    assert first[64:] != second[64:]
    assert stat.S_IMODE(os.stat(vault.path).st_mode) == 0o600


def test_the_form_is_the_documented_one(state: Path) -> None:
    """A vault made by hand, from the description alone, opens."""
    salt, nonce, sealed_bytes = b"s" * 16, b"n" * 12, msgspec.msgpack.encode({SERVICE: {NAME: SECRET}})
    key = hashlib.scrypt("Grüße an Zoë".encode(), salt=salt, n=1024, r=8, p=1, dklen=32)
    check = hmac.digest(key, b"omac vault 1 check" + salt, "sha256")[:16]
    head = b"omacvlt\n" + struct.pack(">HBBHH", 1, 1, 10, 8, 1) + salt + check + nonce
    head += struct.pack(">I", len(sealed_bytes) + 16)
    body = head + AESGCM(hmac.digest(key, b"omac vault 1 seal" + salt, "sha256")).encrypt(nonce, sealed_bytes, head)
    path = state / "vault"
    path.touch(mode=0o600)
    path.write_bytes(body + hashlib.sha256(body).digest())
    vault = Vault(str(path))
    assert vault.read(KeyAtHand(vault.key_from_passphrase(PASSPHRASE), "it"), SERVICE, [NAME]) == {NAME: Hidden(SECRET)}


def test_a_vault_is_made_once(vault: Vault) -> None:
    """Creating a vault where one exists is refused, and leaves the first unchanged."""
    before = Path(vault.path).read_bytes()
    for make in (
        lambda: vault.create_with_key(OTHER_KEY.key),
        lambda: vault.create_with_passphrase(PASSPHRASE, CHEAP),
    ):
        assert refused(make).reason == "vault-exists"
    assert Path(vault.path).read_bytes() == before


def test_a_vault_that_is_not_there(state: Path) -> None:
    """Writing to an absent vault is refused with the command that creates one, and leaves nothing behind."""
    refusal = refused(lambda: Vault(str(state / "vault")).write(KEY, SERVICE, {NAME: Hidden("x")}))
    assert (refusal.reason, refusal.fix) == ("vault-unusable", ("omac vault init",))
    assert os.listdir(state) == []


def test_a_passphrase(state: Path) -> None:
    """The right passphrase makes the key, composed or decomposed. A wrong one is refused."""
    vault = Vault(str(state / "vault"))
    made = vault.create_with_passphrase(PASSPHRASE, CHEAP)
    assert vault.has_passphrase()
    vault.write(KeyAtHand(made, "it"), SERVICE, {NAME: Hidden(SECRET)})
    decomposed = Hidden("Gru\u0308ße an Zoe\u0308")
    assert Vault(vault.path).key_from_passphrase(decomposed) == made
    refusal = refused(lambda: vault.key_from_passphrase(Hidden("wrong")))
    assert (refusal.reason, refusal.exit_code) == ("vault-key-wrong", 8)


def test_the_cost_of_a_passphrase(state: Path) -> None:
    """Each guess of a passphrase costs a good part of a second. An empty passphrase is refused."""
    vault = Vault(str(state / "vault"))
    assert refused(lambda: vault.create_with_passphrase(Hidden(""))).reason == "value-refused"
    begun = time.process_time()
    vault.create_with_passphrase(PASSPHRASE)
    assert time.process_time() - begun > 0.1
    assert open_header(Path(vault.path).read_bytes()).cost == Scrypt(17, 8, 1)


def test_a_passphrase_for_a_vault_without(vault: Vault) -> None:
    """The refusal of a passphrase names the key file that this vault needs."""
    assert not vault.has_passphrase()
    refusal = refused(lambda: vault.key_from_passphrase(PASSPHRASE))
    assert (refusal.reason, refusal.fix) == ("vault-key-wrong", ("export OMAC_VAULT_KEY_FILE=PATH",))


def test_a_wrong_key(vault: Vault) -> None:
    """A wrong key is not reported as damage: the refusal names the key's origin. The vault is unchanged."""
    before = Path(vault.path).read_bytes()
    for call in (
        lambda: vault.read(OTHER_KEY, SERVICE, [NAME]),
        lambda: vault.write(OTHER_KEY, SERVICE, {"a": Hidden("b")}),
        lambda: vault.check(OTHER_KEY),
    ):
        refusal = refused(call)
        assert refusal.reason == "vault-key-wrong"
        assert "the key file /k" in refusal.message
        assert "OMAC_VAULT_KEY_FILE" in refusal.fix[0]
    assert Path(vault.path).read_bytes() == before


def test_every_flipped_bit_shows(vault: Vault) -> None:
    """A disk that changes a bit or truncates the file damages the vault. The refusal never blames the key."""
    sound = Path(vault.path).read_bytes()
    assert unseal(sound, KEY.key)
    changed = [
        sound[:at] + bytes([sound[at] ^ 1 << bit]) + sound[at + 1 :] for at in range(len(sound)) for bit in (0, 7)
    ]
    cut = [sound[:length] for length in range(len(sound))]
    for content in [*changed, *cut, sound + b"\0"]:
        with pytest.raises(Damaged):
            unseal(content, KEY.key)
    for content in (changed[0], changed[130], cut[0], cut[50]):
        Path(vault.path).write_bytes(content)
        refusal = refused(lambda: vault.write(KEY, SERVICE, {"a": Hidden("b")}))
        assert (refusal.reason, refusal.exit_code) == ("vault-damaged", 10)
        assert vault.path in refusal.message
        assert "is unchanged" in refusal.message
        assert Path(vault.path).read_bytes() == content


def test_every_change_on_purpose_shows(vault: Vault) -> None:
    """An attacker who can fix the checksum but has no key cannot change anything that omac accepts."""
    body = Path(vault.path).read_bytes()[:-32]
    errors = []
    for at in range(len(body)):
        with pytest.raises((Damaged, Newer, WrongKey)) as caught:
            unseal(whole(body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :]), KEY.key)
        errors.append(caught.type)
    version, salt_and_check = slice(8, 10), slice(16, 48)
    assert set(errors[version]) == {Newer}
    assert set(errors[salt_and_check]) == {WrongKey}
    assert set(errors[:8] + errors[10:16] + errors[48:]) == {Damaged}
    for at in range(64, len(body)):
        with pytest.raises(Damaged):
            unseal(whole(body[:60] + (at - 64).to_bytes(4, "big") + body[64:at]), KEY.key)


@pytest.mark.parametrize(
    "cost", [(24, 8, 1), (22, 1, 1), (1, 65535, 65535), (17, 8, 5), (255, 8, 1), (0, 8, 1), (17, 0, 1)]
)
def test_a_header_that_would_eat_the_machine(state: Path, cost: tuple[int, int, int]) -> None:
    """A header with excessive costs is damage: omac spends bounded time and memory on a passphrase."""
    vault = Vault(str(state / "vault"))
    vault.create_with_passphrase(PASSPHRASE, CHEAP)
    body = Path(vault.path).read_bytes()[:-32]
    hostile = (
        body[:11] + cost[0].to_bytes(1, "big") + cost[1].to_bytes(2, "big") + cost[2].to_bytes(2, "big") + body[16:]
    )
    Path(vault.path).write_bytes(whole(hostile))
    begun, before_kib = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refused(lambda: vault.key_from_passphrase(PASSPHRASE)).reason == "vault-damaged"
    assert time.process_time() - begun < 0.1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


def test_a_later_version(vault: Vault) -> None:
    """A vault of a newer omac is not reported as damaged."""
    body = Path(vault.path).read_bytes()[:-32]
    Path(vault.path).write_bytes(whole(body[:8] + b"\0\2" + b"anything"))
    refusal = refused(lambda: vault.read(KEY, SERVICE, [NAME]))
    assert refusal.reason == "vault-unusable"
    assert "newer omac" in refusal.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_vault_that_others_may_use(vault: Vault, mode: int) -> None:
    """A vault that other users may use is refused with the command that mends it."""
    os.chmod(vault.path, mode)
    refusal = refused(lambda: vault.read(KEY, SERVICE, [NAME]))
    assert (refusal.reason, refusal.fix) == ("vault-unusable", (f"chmod 600 {vault.path}",))
    subprocess.run(refusal.fix[0], shell=True, check=True)
    assert vault.read(KEY, SERVICE, [NAME]) == {NAME: Hidden(SECRET)}


def test_a_folder_that_others_may_write_to(vault: Vault, state: Path) -> None:
    """A folder that other users may write to is refused: they could replace the vault's file."""
    state.chmod(0o777)
    refusal = refused(lambda: vault.read(KEY, SERVICE, [NAME]))
    assert (refusal.reason, refusal.fix) == ("vault-unusable", (f"chmod 700 {state}",))


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "socket"])
def test_what_is_no_file(vault: Vault, state: Path, kind: str) -> None:
    """Anything at the vault's path that is no file is refused at once, and still counts as an existing vault."""
    os.rename(vault.path, state / "elsewhere")
    match kind:
        case "link":
            os.symlink("elsewhere", vault.path)
        case "fifo":
            os.mkfifo(vault.path, 0o600)
        case "folder":
            os.mkdir(vault.path)
        case _:
            os.mknod(vault.path, 0o600 | stat.S_IFSOCK)
    assert vault.exists()
    for call in (lambda: vault.read(KEY, SERVICE, [NAME]), lambda: vault.write(KEY, SERVICE, {"a": Hidden("b")})):
        assert refused(call).reason == "vault-unusable"
    assert refused(lambda: vault.create_with_key(KEY.key)).reason == "vault-exists"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_vault_that_is_another_users(vault: Vault) -> None:
    """A vault that belongs to another user is refused."""
    os.chown(vault.path, 12_345, 12_345)
    refusal = refused(lambda: vault.read(KEY, SERVICE, [NAME]))
    assert refusal.reason == "vault-unusable"
    assert "12345" in refusal.message


def test_a_vault_that_is_too_large(vault: Vault) -> None:
    """A vault that is too large is neither read nor written."""
    values = {f"N{number}": Hidden("x" * 128 * 1024) for number in range(129)}
    assert refused(lambda: vault.write(KEY, SERVICE, values)).reason == "value-refused"
    assert vault.read(KEY, SERVICE, [NAME]) == {NAME: Hidden(SECRET)}
    with open(vault.path, "ab") as file:
        file.truncate(BYTES_MAX + 1)
    assert refused(lambda: vault.read(KEY, SERVICE, [NAME])).reason == "vault-unusable"


@pytest.mark.full
def test_many_writers_lose_nothing(vault: Vault, state: Path) -> None:
    """Eight processes write ten values each at once, and no value is lost. A reader finds a whole vault at any time."""
    program = "for n in range(10): vault.write(KEY, 'omac/slack', {f'{sys.argv[1]}_{n}': Hidden(f'{sys.argv[1]} {n}')})"
    writers = [child(program, f"W{number}", cwd=state) for number in range(8)]
    while any(writer.poll() is None for writer in writers):
        assert vault.read(KEY, SERVICE, [NAME]) == {NAME: Hidden(SECRET)}
    assert [writer.wait() for writer in writers] == [0] * 8
    expected = {f"W{writer}_{number}": Hidden(f"W{writer} {number}") for writer in range(8) for number in range(10)}
    assert vault.read(KEY, SERVICE, list(expected)) == expected


def test_a_writer_that_does_not_end(vault: Vault) -> None:
    """A writer that holds the lock too long is named in the next writer's refusal. Readers do not wait for it."""
    held = lock.hold(vault.path + ".lock")
    impatient = Vault(vault.path, lock_wait_s=0.05)
    refusal = refused(lambda: impatient.write(KEY, SERVICE, {"a": Hidden("b")}))
    assert refusal.reason == "vault-unusable"
    assert f"process {os.getpid()}" in refusal.message
    assert impatient.read(KEY, SERVICE, [NAME]) == {NAME: Hidden(SECRET)}
    os.close(held)
    impatient.write(KEY, SERVICE, {"a": Hidden("b")})


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_a_writer_that_is_killed(vault: Vault, state: Path, step: str) -> None:
    """A killed writer leaves the earlier vault, and no other file unless it is killed just before its last step. The
    next writer removes that."""
    before = Path(vault.path).read_bytes()
    program = (
        "setattr(os, sys.argv[1], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))\n"
        "vault.write(KEY, 'omac/slack', {'a': Hidden('b')})\n"
    )
    assert child(program, step, cwd=state).wait() == -signal.SIGKILL
    assert Path(vault.path).read_bytes() == before
    assert len(os.listdir(state)) == (3 if step == "replace" else 2)
    vault.write(KEY, SERVICE, {"c": Hidden("d")})
    assert sorted(os.listdir(state)) == ["vault", "vault.lock"]
    assert vault.read(KEY, SERVICE, [NAME, "a", "c"]) == {NAME: Hidden(SECRET), "c": Hidden("d")}


def test_writers_killed_at_any_moment(vault: Vault, state: Path) -> None:
    """The vault is whole after a kill, with either the earlier values or the later ones."""
    program = (
        "for n in range(10**9):\n    vault.write(KEY, 'omac/slack', {'a': Hidden(str(n)), 'b': Hidden(str(n))})\n"
        "    if not n: os.write(1, b'x')\n"
    )
    for delay_ms in range(1, 17, 3):
        with child(program, cwd=state, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.read(1)
            time.sleep(delay_ms / 1000)
            writer.kill()
        values = vault.read(KEY, SERVICE, [NAME, "a", "b"])
        assert values[NAME] == Hidden(SECRET)
        assert values.get("a") == values.get("b")


def test_a_file_that_may_not_grow(vault: Vault, state: Path) -> None:
    """A writer that reaches the file size limit leaves the earlier vault, and only its lock beside it."""
    before = Path(vault.path).read_bytes()
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: vault.write(KEY, 'omac/slack', {'a': Hidden('b' * 50_000)})\n"
        "except Refusal as refusal: sys.exit(refusal.exit_code if refusal.reason == 'vault-unusable' else 99)\n"
    )
    assert child(program, cwd=state).wait() == 8
    assert Path(vault.path).read_bytes() == before
    assert sorted(os.listdir(state)) == ["vault", "vault.lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk(state: Path) -> None:
    """A writer on a full disk leaves the earlier vault, and only its lock beside it."""
    disk = state / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        vault = Vault(str(disk / "vault"))
        vault.create_with_key(KEY.key)
        vault.write(KEY, SERVICE, {NAME: Hidden(SECRET)})
        refusal = refused(lambda: vault.write(KEY, SERVICE, {"a": Hidden("b" * 100_000)}))
        assert refusal.reason == "vault-unusable"
        assert os.strerror(errno.ENOSPC) in refusal.message
        assert refusal.fix == (f"df -h {disk}",)
        assert vault.read(KEY, SERVICE, [NAME, "a"]) == {NAME: Hidden(SECRET)}
        assert sorted(os.listdir(disk)) == ["vault", "vault.lock"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
