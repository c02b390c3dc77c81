"""The TCP ports that a program may listen on: single ones are numbers, and ranges are texts such as "8000-8010".

Loaded by programs whose whole start is a few milliseconds, so it imports nothing that costs one.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PORT_MAX = 65_535


def port_or_range(text: str) -> int | str:
    """Return the port or the range that a person typed. Raises ValueError for what is neither."""
    first, dash, last = text.partition("-")
    if not dash:
        return _port(first)
    if _port(first) >= _port(last):
        raise ValueError(text)
    return f"{_port(first)}-{_port(last)}"


def numbers(ports: Iterable[int | str]) -> Iterator[int]:
    """Return each port of these, ranges included."""
    for port in ports:
        first, _, last = str(port).partition("-")
        yield from range(int(first), int(last or first) + 1)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= PORT_MAX):
        raise ValueError(text)
    return int(text)
