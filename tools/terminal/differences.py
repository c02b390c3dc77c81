"""A unified difference between two files, bounded, and printed so that no terminal obeys what is in them."""

from collections.abc import Iterator

from omac.domain.kernel.terminal_escaping import printable

LINES_MAX = 3_000  # of a file that is compared line by line: more of them can take minutes
CONTEXT = 3
TAB = 8


def text_of(content: bytes) -> list[str] | None:
    """Return the lines of a text file, without their ends; None for a binary file."""
    if b"\0" in content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "  <- no newline at the end"]


def unified(name: str, old: list[str], new: list[str]) -> Iterator[str]:
    """Yield a unified difference, escaped. Tabs are spaces unless they are what changed."""
    from difflib import unified_diff  # late: few commands compare files

    yield f"--- approved/{printable(name)}"
    yield f"+++ now/{printable(name)}"
    start = _common(old, new)
    tail = _common(old[start:][::-1], new[start:][::-1])
    first, last = max(start - CONTEXT, 0), max(tail - CONTEXT, 0)
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(before), len(after)) > LINES_MAX:
        yield f"@@ from line {first + 1} on, {len(before)} lines became {len(after)}: too many to compare @@"
        return
    lines = list(unified_diff(before, after, lineterm="", n=CONTEXT))[2:]
    expand = _needs_detail(lines)
    for line in lines:
        if line.startswith("@@"):
            yield _shifted(line, first)
        else:
            yield line[0] + printable(line[1:].expandtabs(TAB) if expand else line[1:])


def _common(old: list[str], new: list[str]) -> int:
    """Return how many lines both begin with."""
    count = 0
    for old_line, new_line in zip(old, new, strict=False):
        if old_line != new_line:
            break
        count += 1
    return count


def _needs_detail(lines: list[str]) -> bool:
    """Return whether no removed line looks like an added one once tabs are spaces."""
    gone = {line[1:].expandtabs(TAB) for line in lines if line[0] == "-"}
    return not any(line[0] == "+" and line[1:].expandtabs(TAB) in gone for line in lines)


def _shifted(header: str, by: int) -> str:
    """Return a header such as "@@ -1,3 +1,4 @@" with its line numbers moved on."""
    parts = header.split()
    for index in (1, 2):
        start, comma, length = parts[index][1:].partition(",")
        parts[index] = f"{parts[index][0]}{int(start) + by}{comma}{length}"
    return " ".join(parts)
