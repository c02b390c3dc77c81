"""Loopback: the only place omac is spoken to, by whatever name a client calls it."""

import re

# No name but localhost is sure to be loopback: any other may be rebound.
NAME = r"(?:127(?:\.[0-9]{1,3}){3}|localhost|\[::1\])(?::[0-9]{1,5})?"
HOST = re.compile(NAME, re.IGNORECASE | re.ASCII)
ORIGIN = re.compile(f"https?://{NAME}", re.IGNORECASE | re.ASCII)
