"""The exceptions that msgspec raises for bytes of a file or a request that it cannot decode."""

import msgspec

# It checks UTF-8 only where it makes a text, and raises Python's own error for that.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
