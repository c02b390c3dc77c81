"""The sources of the vault's key, and the files that hold keys.

The sources are, in this order: the credential "omac-key" that systemd hands over ($CREDENTIALS_DIRECTORY), the file
that $OMAC_VAULT_KEY_FILE names, the key that this process was given. The first that exists counts: if it is the wrong
one, no other is tried. A file holds 64 hexadecimal digits and perhaps a line's end, or 32 bytes.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from omac.adapters.credentials.private_file import read_private
from omac.adapters.credentials.vault_format import KEY_BYTES, HiddenBytes, VaultKey
from omac.adapters.files import atomic
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.unflushed import Unflushed
from omac.journal.folders import write_command

CREDENTIAL = "omac-key"
FILE_VARIABLE = "OMAC_VAULT_KEY_FILE"
FILE_BYTES_MAX = 1024
DRAFT_PREFIX = ".omac-key."


class KeyAtHand(NamedTuple):
    """A key, and where it came from, in words; `file` is the path of its key file, "" for a key from elsewhere."""

    key: VaultKey
    origin: str
    file: str = ""


def key_at_hand(environment: Mapping[str, str], unlocked: VaultKey | None) -> KeyAtHand:
    """The key of the vault, whether it is the right one or not. Raises Refusal (vault-locked, vault-unusable)."""
    folder, named = environment.get("CREDENTIALS_DIRECTORY"), environment.get(FILE_VARIABLE)
    credential = os.path.join(folder, CREDENTIAL) if folder else ""
    if credential and (key := _from_file(credential, "the systemd credential", handed_over=True)):
        return key
    if named and (key := _from_file(os.path.abspath(named), "the key file")):
        return key
    if unlocked is not None:
        return KeyAtHand(unlocked, "the key from omac unlock")
    missing = f": key file {named} does not exist" if named else ""
    raise Refusal("vault-locked", f"the vault is locked{missing}")


def key_of(key: bytes) -> VaultKey:
    """A key from bytes that somebody else made. Raises Refusal (vault-key-wrong) for a wrong length."""
    length, vault_key = len(key), VaultKey(key) if len(key) == KEY_BYTES else None
    del key  # a traceback shows what a function held
    if vault_key is None:
        raise Refusal("vault-key-wrong", f"a key of the vault has {KEY_BYTES} bytes, not {length}")
    return vault_key


def make_key_file(path: str) -> VaultKey:
    """Make a random key and keep it in a new file, mode 0600. Raises Refusal (vault-exists, vault-unusable)."""
    key = VaultKey(os.urandom(KEY_BYTES))
    path = os.path.abspath(path)
    try:
        atomic.publish(path, HiddenBytes(key.hex().encode() + b"\n"), prefix=DRAFT_PREFIX)
    except FileExistsError:
        message = f"{path} exists already; omac never overwrites a key"
        init_command = f"{FILE_VARIABLE}={quoted(path)} omac vault init  # under the key that it has"
        raise Refusal("vault-exists", message, fix=[init_command, f"ls -l {quoted(path)}"]) from None
    except Unflushed as problem:
        raise problem.refusal("vault-unusable", f"the key file {path}", os.path.dirname(path)) from None
    except OSError as error:
        fix = [write_command(error, os.path.dirname(path))]
        raise Refusal("vault-unusable", f"the key file {path} cannot be written: {error.strerror}", fix=fix) from None
    return key


def _from_file(path: str, label: str, *, handed_over: bool = False) -> KeyAtHand | None:
    try:
        content = read_private(path, label, FILE_BYTES_MAX, handed_over=handed_over)
    except FileNotFoundError:
        return None
    key = _parsed(content)
    if key is None:
        message = f"{label} {path} is not a key: a key is 64 hexadecimal digits, or exactly {KEY_BYTES} bytes"
        raise Refusal("vault-unusable", message, fix=[f"wc -c {quoted(path)}"])
    return KeyAtHand(key, f"{label} {path}", "" if handed_over else path)


def _parsed(content: HiddenBytes) -> VaultKey | None:
    """Return the key in a file's content; None for anything else, as an error would show the content."""
    if len(content) == KEY_BYTES:
        return VaultKey(content)
    try:
        digits = content.removesuffix(b"\n").removesuffix(b"\r").decode("ascii")
        return VaultKey(bytes.fromhex(digits)) if len(digits) == 2 * KEY_BYTES else None
    except ValueError:
        return None
