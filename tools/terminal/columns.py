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
