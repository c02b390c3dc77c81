"""Text as a terminal, a log or a model may be given it: what is not printable is escaped, and so obeyed by none."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with \x1b, \n, \udc80 and the like written out, the last being bytes of a path that are no text."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])
