"""The two stores behind the port: which one is chosen, which key opens the vault, what text a failure shows."""

import hashlib
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

import pytest
import trio
from real_keyring import PrivateKeyring

from omac.adapters.credentials import vault_format
from omac.adapters.credentials.keychain import Keychain
from omac.adapters.credentials.stores import Choice, SecretStores
from omac.adapters.credentials.vault import Vault
from omac.adapters.credentials.vault_format import VaultKey
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal
from omac.services.ports import Secrets

SERVICE = "omac/slack"
NAME = "SLACK_TOKEN"
SECRET = "xoxb-only-for-the-skill"
KEY = VaultKey(bytes(range(32)))
OTHER_KEY = VaultKey(bytes(32))
Refused = Callable[[Awaitable[object]], Awaitable[Refusal]]


@pytest.fixture
def vault(state: Path) -> Vault:
    """Return an empty vault in the state directory."""
    empty_vault = Vault(str(state / "vault"))
    empty_vault.create_with_key(KEY)
    return empty_vault


def key_file(path: Path, content: bytes = KEY.hex().encode() + b"\n", mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


async def test_the_vault_goes_before_the_keychain(stores: SecretStores, state: Path) -> None:
    """New values go to the vault if anything is at its path, even a broken link, and otherwise to the keychain."""
    port: Secrets = stores
    assert await port.chosen() == "keychain"
    Vault(str(state / "vault")).create_with_key(KEY)
    assert await port.chosen() == "vault"
    (state / "vault").unlink()
    (state / "vault").symlink_to("nowhere")
    assert await port.chosen() == "vault"


async def test_a_command_chooses_once(keyring: PrivateKeyring, state: Path) -> None:
    """A vault that appears while a user types a value does not get it: the value goes to the store that was opened."""
    stores = SecretStores(str(state), keyring, choose_once=True)
    assert await stores.chosen() == "keychain"
    Vault(str(state / "vault")).create_with_key(KEY)
    assert await stores.chosen() == "keychain"
    assert await SecretStores(str(state), keyring, choose_once=True).chosen() == "vault"


@pytest.mark.parametrize("choice", ["vault", "keychain"])
async def test_a_choice_is_final(keyring: PrivateKeyring, vault: Vault, state: Path, choice: Choice) -> None:
    """An explicit choice of a store is final, even if that store does not exist."""
    assert await SecretStores(str(state), keyring, choice).chosen() == choice
    assert await SecretStores(str(state / "empty"), {}, choice).chosen() == choice


async def test_one_store_does_not_see_the_other(keyring: PrivateKeyring, vault: Vault, state: Path) -> None:
    """A value is only in the store that it was written to."""
    stores = SecretStores(str(state), keyring)
    stores.give_vault_key(KEY)
    await stores.write("vault", SERVICE, {NAME: Hidden(SECRET)})
    assert await stores.read("vault", SERVICE, [NAME]) == {NAME: Hidden(SECRET)}
    assert await stores.read("keychain", SERVICE, [NAME]) == {}
    await stores.remove("vault", SERVICE, [NAME])
    assert await stores.read("vault", SERVICE, [NAME]) == {}


async def test_a_locked_vault(vault: Vault, state: Path, tmp_path: Path, refused: Refused) -> None:
    """A call to a vault without a key is refused with the command that gets one. A key in memory opens the vault."""
    for environment in (
        {},
        {"CREDENTIALS_DIRECTORY": str(tmp_path)},
        {"OMAC_VAULT_KEY_FILE": str(tmp_path / "absent")},
    ):
        stores = SecretStores(str(state), environment)
        for call in (
            stores.read("vault", SERVICE, [NAME]),
            stores.write("vault", SERVICE, {NAME: Hidden(SECRET)}),
            stores.remove("vault", SERVICE, [NAME]),
            stores.unlock("vault"),
        ):
            refusal = await refused(call)
            assert refusal.reason == "vault-locked"
            assert refusal.fix == ("export OMAC_VAULT_KEY_FILE=PATH && omac unlock",)
        stores.give_vault_key(bytes(KEY))
        await stores.unlock("vault")
        assert await stores.read("vault", SERVICE, [NAME]) == {}


async def test_a_key_that_was_given_and_is_wrong(vault: Vault, state: Path, refused: Refused) -> None:
    """A wrong key in memory is refused, and unlocking discards it. Bytes of a wrong length are no key."""
    stores = SecretStores(str(state), {})
    stores.give_vault_key(OTHER_KEY)
    assert (await refused(stores.read("vault", SERVICE, [NAME]))).reason == "vault-key-wrong"
    assert (await refused(stores.unlock("vault"))).reason == "vault-key-wrong"
    assert (await refused(stores.unlock("vault"))).reason == "vault-locked"
    with pytest.raises(Refusal) as caught:
        stores.give_vault_key(b"xoxb")
    assert caught.value.reason == "vault-key-wrong"


@pytest.mark.parametrize(
    "content", [bytes(KEY), KEY.hex().encode(), KEY.hex().encode() + b"\n", KEY.hex().upper().encode() + b"\r\n"]
)
async def test_what_a_key_file_holds(vault: Vault, state: Path, tmp_path: Path, content: bytes) -> None:
    """A key file holds hexadecimal digits, with or without a line end, or the bytes themselves. The user or systemd
    names the file."""
    path = key_file(tmp_path / "omac-key", content, 0o400)
    await SecretStores(str(state), {"OMAC_VAULT_KEY_FILE": path}).unlock("vault")
    await SecretStores(str(state), {"CREDENTIALS_DIRECTORY": str(tmp_path)}).unlock("vault")


async def test_the_order_of_keys(vault: Vault, state: Path, tmp_path: Path, refused: Refused) -> None:
    """systemd's key comes before the key file's, and that one before the key in memory. A wrong key is not skipped."""
    environment = {"OMAC_VAULT_KEY_FILE": key_file(tmp_path / "file", OTHER_KEY)}
    stores = SecretStores(str(state), environment)
    stores.give_vault_key(KEY)
    refusal = await refused(stores.unlock("vault"))
    assert refusal.reason == "vault-key-wrong"
    assert str(tmp_path / "file") in refusal.message
    key_file(tmp_path / "omac-key")
    await SecretStores(str(state), {**environment, "CREDENTIALS_DIRECTORY": str(tmp_path)}).unlock("vault")


@pytest.mark.parametrize(
    "content", [b"", b"xoxb", KEY[:31], KEY + b"\n", b"g" * 64, KEY.hex().encode() + b"\n\n", b"x" * 9999]
)
async def test_a_file_that_holds_no_key(
    vault: Vault, state: Path, tmp_path: Path, content: bytes, refused: Refused
) -> None:
    """The refusal names a file that holds no key, and does not show its content."""
    path = key_file(tmp_path / "key", content)
    refusal = await refused(SecretStores(str(state), {"OMAC_VAULT_KEY_FILE": path}).unlock("vault"))
    assert refusal.reason == "vault-unusable"
    assert path in refusal.message


async def test_a_key_file_that_others_may_read(vault: Vault, state: Path, tmp_path: Path, refused: Refused) -> None:
    """A key file that others may read is refused with the command that mends it. So are a link, and a FIFO without
    waiting."""
    path = key_file(tmp_path / "key", mode=0o640)
    stores = SecretStores(str(state), {"OMAC_VAULT_KEY_FILE": path})
    refusal = await refused(stores.unlock("vault"))
    assert (refusal.reason, refusal.fix) == ("vault-unusable", (f"chmod 600 {path}",))
    os.rename(path, tmp_path / "elsewhere")
    os.symlink("elsewhere", path)
    assert "symbolic link" in (await refused(stores.unlock("vault"))).message
    os.unlink(path)
    os.mkfifo(path, 0o600)
    assert (await refused(stores.unlock("vault"))).reason == "vault-unusable"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of root's")
async def test_a_credential_behind_an_access_list(vault: Vault, state: Path, tmp_path: Path, refused: Refused) -> None:
    """systemd keeps root as the owner, and its access list's mask shows as rights of the group: such a file opens the
    vault. A file that all users may read is refused."""
    key_file(tmp_path / "omac-key", mode=0o440)
    stores = SecretStores(str(state), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    await stores.unlock("vault")
    (tmp_path / "omac-key").chmod(0o444)
    assert (await refused(stores.unlock("vault"))).reason == "vault-unusable"


async def test_a_vault_opens_without_a_key_derivation(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vault derives a key from a passphrase once. Reading and writing need no derivation."""
    stores = SecretStores(str(state), {})
    stores.give_vault_key(stores.vault.create_with_passphrase(Hidden("a passphrase"), vault_format.Scrypt(10, 8, 1)))
    monkeypatch.delattr(hashlib, "scrypt")
    await stores.write("vault", SERVICE, {NAME: Hidden(SECRET)})
    assert await stores.read("vault", SERVICE, [NAME]) == {NAME: Hidden(SECRET)}


async def test_a_damaged_vault_shows_nothing(vault: Vault, state: Path, refused: Refused) -> None:
    """Neither the values nor the key of a damaged vault are in the error, nor in the locals of the functions behind
    it."""
    stores = SecretStores(str(state), {})
    stores.give_vault_key(KEY)
    await stores.write("vault", SERVICE, {NAME: Hidden(SECRET)})
    content = (state / "vault").read_bytes()
    (state / "vault").write_bytes(content[:-1])
    refusal = await refused(stores.write("vault", SERVICE, {NAME: Hidden(SECRET)}))
    assert (refusal.reason, refusal.exit_code) == ("vault-damaged", 10)


class Broken(Keychain):
    """A keychain that fails with an error of its own, or never answers."""

    def __init__(self, hangs: threading.Event | None = None) -> None:
        self.hangs = hangs

    def read(self, service: str, names: object) -> dict[str, Hidden]:
        """Raise an error that quotes a value, from a frame that holds the value."""
        held = SECRET
        if self.hangs:
            self.hangs.wait(5)
        raise RuntimeError(held) from ValueError(held)

    def check(self) -> None:
        """Pass the check."""

    def write(self, service: str, values: object) -> None:
        """Store nothing."""

    def remove(self, service: str, names: object) -> None:
        """Remove nothing."""

    def unlock(self) -> None:
        """Succeed without a prompt."""


async def test_errors_that_nobody_expected(state: Path, refused: Refused) -> None:
    """An unexpected error becomes a refusal that names its type and quotes nothing of it."""
    refusal = await refused(SecretStores(str(state), {}, keychain=Broken()).read("keychain", SERVICE, [NAME]))
    assert refusal.reason == "keychain-failed"
    assert "RuntimeError" in refusal.message


@pytest.mark.parametrize("error", [MemoryError(SECRET), ImportError("x.so: failed to map segment from shared object")])
async def test_a_store_without_memory(state: Path, refused: Refused, error: Exception) -> None:
    """A store that gets no memory, for a value or for its library, is refused as that, and not as a defect."""
    keychain = Broken()
    keychain.read = mock.Mock(side_effect=error)  # type: ignore[method-assign]
    refusal = await refused(SecretStores(str(state), {}, keychain=keychain).read("keychain", SERVICE, [NAME]))
    assert (refusal.reason, refusal.fix) == ("keychain-failed", ("ulimit -a  # the limits of this shell",))
    assert refusal.message == "the keychain needs memory, and the system has none left for omac"


async def test_a_keychain_that_hangs_holds_up_nothing_else(vault: Vault, state: Path, refused: Refused) -> None:
    """A call to a keychain that hangs times out, even when all its threads hang. The vault still answers."""
    never = threading.Event()
    stores = SecretStores(str(state), {}, keychain=Broken(never), timeout_s=0.5)
    stores.give_vault_key(KEY)
    with trio.fail_after(3):
        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(refused, stores.read("keychain", SERVICE, [NAME]))
        assert await stores.read("vault", SERVICE, [NAME]) == {}
        refusal = await refused(stores.read("keychain", SERVICE, [NAME]))
        assert refusal.reason == "keychain-timeout"
    never.set()


async def test_nothing_to_do_asks_nobody(state: Path) -> None:
    """A call without names or values needs no store."""
    stores = SecretStores(str(state), {})
    for store in ("keychain", "vault"):
        assert await stores.read(store, SERVICE, []) == {}
        await stores.write(store, SERVICE, {})
        await stores.remove(store, SERVICE, [])
