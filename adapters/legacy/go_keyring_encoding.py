"""The encoding of the old omac's keychain library, which on macOS does not store a value as it is."""

import base64
import binascii

from omac.domain.kernel.hidden import Hidden

HEX, BASE64 = "go-keyring-encoded:", "go-keyring-base64:"


def plain(value: Hidden) -> Hidden:
    """The value that was meant; itself, where it is not encoded."""
    text = value.reveal()
    try:
        if text.startswith(BASE64):
            return Hidden(base64.b64decode(text[len(BASE64) :], validate=True).decode())
        if text.startswith(HEX):
            return Hidden(bytes.fromhex(text[len(HEX) :]).decode())
    except (binascii.Error, ValueError):
        pass  # it only begins like that
    return value
