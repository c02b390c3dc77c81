"""Sizes and counts as people write and read them; K, M, G and T are powers of 1024."""

from __future__ import annotations

from omac.domain.kernel.refusal import Refusal

DIGITS_MAX = 15
FRACTION_DIGITS_MAX = 6
_UNITS = "KMGT"


def parse_size(text: str, flag: str = "") -> int:
    """Bytes, from 20G, 1.5 GiB, 500M, 4096; `flag` is the option that it was given with. Raises Refusal (misuse)."""
    amount = text.strip().upper()
    amount = amount.removesuffix("IB" if amount.endswith("IB") else "B")
    power = _UNITS.find(amount[-1]) + 1 if amount else 0
    amount = (amount[:-1] if power else amount).removesuffix(" ")
    whole, dot, fraction = amount.partition(".")
    if not _digits(whole, DIGITS_MAX) or (dot and not _digits(fraction, FRACTION_DIGITS_MAX)):
        message = f"{text!r} is not a size: write 20G, 1.5G, 500M, or a number of bytes"
        raise Refusal("misuse", message, fix=[f"{flag} 20G"] if flag else ())
    return int(float(amount) * 1024**power)


def shown_size(size: int) -> str:
    """Return a size for people, with about three digits: 0 B, 999 B, 1.2 KiB, 35 MiB."""
    amount, unit = float(size), "B"
    for letter in _UNITS:
        if amount < 1000:
            break
        amount, unit = amount / 1024, f"{letter}iB"
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 9.95 else f"{amount:.1f} {unit}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count with what it counts: 1 call, 2 calls. An empty `plural` is `singular` with an s."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def _digits(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= most
