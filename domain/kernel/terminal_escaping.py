"""Text as a terminal, a log or a model may be given it: what is not printable is escaped, and so obeyed by none.

Letters and marks that no reader sees are escaped as well (Unicode's Default_Ignorable_Code_Point, and what is blank: in
Braille, musical notes, hieroglyphs and Khitan letters): code that a person reviews, or a name in the audit, has nothing
in it that is not shown.
"""

from __future__ import annotations

UNSEEN = frozenset(
    map(
        chr,
        (
            0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10),
            0xFFA0, 0x13441, 0x13442, 0x16FE4, 0x1D159, *range(0xE0100, 0xE01F0),
        ),
    )
)  # fmt: skip
# Neither margins, in which lines would replace each other, nor colours and signs that a program left set: letters are
# seen, as they are, and stay. A long line goes on in the next row, and moves no other letters (ECMA-48; DECSC, DECSTBM
# and DECRC, DECAWM and IRM as all terminals since the VT102 know them; DECLRMM as those know it that have it).
SHOWN = "\x1b7\x1b[?69l\x1b[r\x1b8\x1b[?7h\x1b[4l\x1b[0m\x1b(B\x0f"
_PLAIN = frozenset("_@%+=:,./~-")  # beside letters and digits


def is_plain(text: str) -> bool:
    """Return whether a person sees all of a text, and a terminal obeys none of it."""
    return text.isprintable() and (text.isascii() or UNSEEN.isdisjoint(text))


def printable(text: str) -> str:
    r"""`text` with \x1b, \n, \udc80 and the like written out, the last being bytes of a path that are no text."""
    if is_plain(text):
        return text
    return "".join([char if is_plain(char) else ascii(char)[1:-1] for char in text])


def named(text: str) -> str:
    """Return a name as it stands among other words: between quotes, as a shell would read it, where it is not one plain
    word. A folder `a by person: approved` says nothing of who approved what."""
    if text and all(char in _PLAIN or char.isalnum() for char in text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def printable_json(text: str) -> str:
    r"""Return a JSON text of one line that means the same, with \u009b, \u202e and the like written out."""
    if is_plain(text):
        return text
    return "".join([char if is_plain(char) else _json_escape(char) for char in text])


def _json_escape(char: str) -> str:
    """Escape a character of a JSON string: its UTF-16 code units (RFC 8259 section 7)."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
