"""domain/kernel/digest.py: the same SHA-256 as everywhere, without loading another module for it."""

import hashlib
import subprocess
import sys

import pytest

from omac.domain.kernel.digest import sha256_hex

KNOWN = {  # FIPS 180-4, examples
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
}


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 1_000_003])
def test_it_is_sha_256(data: bytes) -> None:
    """A digest equals the examples of the standard and that of hashlib."""
    assert sha256_hex(data) == hashlib.sha256(data).hexdigest() == KNOWN.get(data, sha256_hex(data))


def test_neither_hashlib_nor_openssl_is_loaded() -> None:
    """A program that has to start within milliseconds can use the digest, which loads neither hashlib nor OpenSSL."""
    imported = "from omac.domain.kernel.digest import sha256_hex"
    look = f"import sys; {imported}; print({{'hashlib', '_hashlib'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
