"""Sizes as people write and read them; K, M, G and T are powers of 1024."""

import re

from omac.domain.refusal import Refusal

_WRITTEN = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_UNITS = "KMGT"


def parse_size(text: str) -> int:
    """Bytes, from 20G, 1.5 GiB, 500M, 4096. Raises Refusal (misuse)."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise Refusal("misuse", f"{text!r} is no size: write 20G, 1.5G, 500M, or a number of bytes")
    power = _UNITS.index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * 1024**power)


def shown_size(size: int) -> str:
    """With three digits or so: 0 B, 999 B, 1.2 KiB, 35 MiB."""
    amount, unit = float(size), "B"
    for letter in _UNITS:
        if amount < 1000:
            break
        amount, unit = amount / 1024, f"{letter}iB"
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 9.95 else f"{amount:.1f} {unit}"
