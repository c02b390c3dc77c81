"""Lines that fit a terminal: what is too long is elided at its end or, like a path, in its middle.

A width is in columns of a terminal, not in letters: some take two (Unicode's East_Asian_Width). A line that is wider
than the terminal goes on at its left edge, where an agent's words could pass for a line of omac's.
"""

from omac.domain.kernel.terminal_escaping import named

ELLIPSIS = "..."
QUOTED = "| "
TWO_COLUMNS = ("W", "F")


def columns(text: str) -> int:
    """Return how many columns a text takes at most; a mark that a terminal may put over a letter counts as one."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width  # late: few texts have such letters

    return sum(2 if east_asian_width(letter) in TWO_COLUMNS else 1 for letter in text)


def cell(text: str | None) -> str:
    """Return a name as it stands in a table, "-" for none; between quotes where it could pass for none, or for two."""
    return "'-'" if text == "-" else named(text) if text else "-"


def padded(text: str, width: int) -> str:
    """Return a text with blanks behind it up to a width."""
    return text + " " * (width - columns(text))


def elided(text: str, width: int) -> str:
    """Return a text of at most `width` columns, its end left out where it is longer."""
    return text if columns(text) <= width else _beginning(text, width - len(ELLIPSIS)) + ELLIPSIS


def elided_middle(text: str, width: int) -> str:
    """Return a text of at most `width` columns, its middle left out where it is longer: both ends tell most."""
    if columns(text) <= width:
        return text
    room = max(width - len(ELLIPSIS), 2)
    end = _beginning(text[::-1], room * 2 // 3)[::-1]
    return _beginning(text, room - room * 2 // 3) + ELLIPSIS + end


def folded(text: str, width: int, hang: int) -> list[str]:
    """Return a line in lines of at most `width` columns, each but the first indented by `hang`, and with QUOTED before
    its words: an agent may have chosen them, as the name of a file, and they could pass for a line of omac's.

    It breaks between words only: a path or a command that is longer stays whole, so that it can be copied.
    """
    if columns(text) <= width:
        return [text]
    lines, taken = [""], 0
    for word, blanks in _words(text):
        needs = columns(word)
        if lines[-1] and taken + blanks + needs > width:
            lines.append(" " * hang + QUOTED + word)
            taken = hang + len(QUOTED) + needs
        else:
            lines[-1] += " " * blanks + word
            taken += blanks + needs
    return lines


def cut(text: str, width: int, mark: str) -> list[str]:
    """Return a line of a file in lines of at most `width` columns, each but the first behind `mark`. No blank of it is
    lost, and none of it begins a line: it could pass for one of omac's."""
    width = max(width, columns(mark) + 2)
    lines, begin, taken = [], 0, 0
    for at, letter in enumerate(text):
        taken += 1 if letter.isascii() else columns(letter)
        if taken > width:
            lines.append(text[begin:at])
            begin, taken = at, columns(mark) + columns(letter)
    return [line if not number else mark + line for number, line in enumerate((*lines, text[begin:]))]


def _words(text: str) -> list[tuple[str, int]]:
    """The words of a line, each with the number of blanks before it."""
    words, blanks = [], 0
    for word in text.split(" "):
        if word:
            words.append((word, blanks))
            blanks = 0
        blanks += 1
    return words


def _beginning(text: str, width: int) -> str:
    """Return the longest beginning of a text that takes at most `width` columns."""
    taken = 0
    for at, letter in enumerate(text):
        taken += columns(letter)
        if taken > width:
            return text[:at]
    return text
