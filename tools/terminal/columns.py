"""Lines that fit a terminal: what is too long is elided at its end or, like a path, in its middle."""

ELLIPSIS = "..."


def elided(text: str, width: int) -> str:
    """Return a text of at most `width` characters, its end left out where it is longer."""
    return text if len(text) <= width else text[: max(width - len(ELLIPSIS), 0)] + ELLIPSIS


def elided_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters, its middle left out where it is longer: both ends tell most."""
    if len(text) <= width:
        return text
    room = max(width - len(ELLIPSIS), 2)
    return text[: room - room * 2 // 3] + ELLIPSIS + text[len(text) - room * 2 // 3 :]


def folded(text: str, width: int, hang: int) -> list[str]:
    """Return a line in lines of at most `width` characters, each but the first indented by `hang`.

    It breaks between words only: a path or a command that is longer stays whole, so that it can be copied.
    """
    if len(text) <= width:
        return [text]
    from textwrap import wrap  # late: only on a narrow terminal

    indent = " " * hang
    return wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [text]
