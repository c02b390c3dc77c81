"""Text as a terminal, a log or a model may be given it: what is not printable is escaped, and so obeyed by none."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with \x1b, \n, \udc80 and the like written out, the last being bytes of a path that are no text."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])


def printable_json(text: str) -> str:
    r"""Return a JSON text of one line that means the same, with \u009b, \u202e and the like written out."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else _json_escape(one) for one in text])


def _json_escape(char: str) -> str:
    """Escape a character of a JSON string: its UTF-16 code units (RFC 8259 section 7)."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
