"""SHA-256 without hashlib, which loads OpenSSL: for programs whose whole start is a few milliseconds."""

from __future__ import annotations

try:
    from _sha2 import sha256 as sha256  # type: ignore[import-not-found]  # CPython 3.12 and later; not in typeshed
except ImportError:
    try:
        from _sha256 import sha256 as sha256  # type: ignore[import-not-found]  # CPython 3.11; not in typeshed
    except ImportError:  # an interpreter that was built without either
        from hashlib import sha256 as sha256


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of `data` (FIPS 180-4): 64 hex digits, lower case."""
    digest: str = sha256(data).hexdigest()
    return digest
