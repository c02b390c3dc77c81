"""Patterns that skills put on values: regular expressions of RE2, searched for anywhere in a value.

It is the dialect of Go's regexp, which skills are written for: no look-around, no back-references, and `$` is the very
end. A pattern comes from whoever wrote the skill: matching takes time linear in the value, and memory and work are
bounded (https://github.com/google/re2/wiki/Syntax).
"""

from typing import Any

PATTERN_CHARS_MAX = 512
DETAIL_CHARS_MAX = 80
MEMORY_BYTES_MAX = 8 * 2**20
WORK_MAX = 2**27  # bytes of the value times steps of the compiled pattern: a second at the very worst


class PatternError(Exception):
    """The pattern cannot be used; the text goes on after its name and says why."""


class TextTooLong(Exception):
    """The text is too long for a pattern of this size, and is not tried."""


def check_pattern(pattern: str) -> None:
    """Return if `pattern` can be used. Raises PatternError."""
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether `pattern` is found in `text`, which must be encodable as UTF-8. Raises PatternError,
    TextTooLong."""
    compiled = _compiled(pattern)
    content = text.encode()
    if compiled.programsize * len(content) > WORK_MAX:
        raise TextTooLong
    return compiled.search(content) is not None


def _compiled(pattern: str) -> Any:  # Any: re2 has no types
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError(f"is {len(pattern)} characters long, at most {PATTERN_CHARS_MAX} may be")
    import re2  # type: ignore[import-untyped]  # here, for it takes longer to load than most commands run

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True  # groups group, and cost nothing
    options.log_errors = False
    try:
        return re2.compile(pattern, options)  # remembers the latest ones
    except re2.error as error:
        detail = error.args[0].decode(errors="replace") if error.args else ""
        raise PatternError(f"is not a regular expression ({detail[:DETAIL_CHARS_MAX]!r})") from None
    except UnicodeEncodeError:
        raise PatternError("is not a regular expression (it holds an incomplete surrogate pair)") from None
