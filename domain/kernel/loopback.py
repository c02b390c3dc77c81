"""Loopback: the only place omac is spoken to, by whatever name a client calls it."""

import ipaddress
import re

from omac.domain.kernel.refusal import Refusal

# No name but localhost is sure to be loopback: any other may be rebound.
NAME = r"(?:127(?:\.[0-9]{1,3}){3}|localhost|\[::1\])(?::[0-9]{1,5})?"
ANY = "127.0.0.1:0"
HOST = re.compile(NAME, re.IGNORECASE | re.ASCII)
ORIGIN = re.compile(f"https?://{NAME}", re.IGNORECASE | re.ASCII)


def loopback_address(host: str, port: int, flag: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the loopback address that `host` is; `flag` is what a person gave it with. Raises Refusal (misuse)."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise Refusal(
            "misuse", f"{flag} takes a loopback address, and {host!r} is not one", fix=[f"{flag} {ANY}"]
        ) from None
    if not address.is_loopback or not 0 <= port <= 65535:
        raise Refusal("misuse", f"{flag} takes a loopback address only, not {host}:{port}", fix=[f"{flag} {ANY}"])
    return address
