"""adapters/legacy/go_keyring_encoding.py: values of a macOS keychain are decoded, and all others stay as they are."""

import base64

import pytest

from omac.adapters.legacy.go_keyring_encoding import plain
from omac.domain.kernel.hidden import Hidden

VALUE = "Zürich\n🗝"


@pytest.mark.parametrize(
    ("held", "meant"),
    [
        (VALUE, VALUE),
        ("", ""),
        ("go-keyring-base64:" + base64.b64encode(VALUE.encode()).decode(), VALUE),
        ("go-keyring-encoded:" + VALUE.encode().hex(), VALUE),
        ("go-keyring-base64:not base64", "go-keyring-base64:not base64"),
        ("go-keyring-encoded:zz", "go-keyring-encoded:zz"),
        ("go-keyring-encoded:ff", "go-keyring-encoded:ff"),
    ],
)
def test_what_was_meant(held: str, meant: str) -> None:
    """An encoded value is decoded; a text that only begins like one is a plain value."""
    assert plain(Hidden(held)).reveal() == meant
