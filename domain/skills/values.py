"""Values for the variables that a skill declares: what may be given, in the one spelling that its sidecar sees.

A refusal of a secret's value shows nothing of it, so that the text can go to a terminal, a log or the journal.
"""

import re

from omac.domain.kernel.hidden import Hidden
from omac.domain.skills.meta import VARIABLE, Config, Secret
from omac.domain.skills.patterns import PatternError, TextTooLong, matches

VALUE_BYTES_MAX = 120 * 1024  # Linux takes 128 KiB for one variable, its name included (MAX_ARG_STRLEN, execve(2))
INTEGER_MAX = 2**63 - 1  # values are read back by programs in any language: 64 bits, signed
SHOWN_CHARS_MAX = 80
BOOL_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1", "on"), "true"),
    **dict.fromkeys(("false", "f", "no", "n", "0", "off"), "false"),
}


class ValueRefused(Exception):
    """`name` cannot have this value: `problem` says why. `name` is a variable's, or "line 3" of what was read."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


def check_config(field: Config, text: str) -> str:
    """The value that `text` states, as the sidecar will see it. Raises ValueRefused, which may show the value."""
    _check_size_and_form(field.name, text)
    match field.type:
        case "string":
            _check_pattern(field.name, field.pattern, text, f"{shown(text)} ")
            return text
        case "bool":
            word = BOOL_WORDS.get(text.strip().lower())
            if word is None:
                raise ValueRefused(field.name, f"{shown(text)} must be true or false")
            return word
        case "int":
            digits = text.strip()
            if not re.fullmatch(r"[+-]?[0-9]{1,40}", digits):
                raise ValueRefused(field.name, f"{shown(text)} must be a whole number in base 10")
            if not has_64_bits(int(digits)):
                raise ValueRefused(field.name, "is a number beyond 64 bits")
            return str(int(digits))
        case "enum":
            if text not in field.choices:
                choices = ", ".join(shown(choice) for choice in field.choices[:10])
                more = ", ..." if len(field.choices) > 10 else ""
                raise ValueRefused(field.name, f"{shown(text)} must be one of the choices: {choices}{more}")
            return text


def check_secret(field: Secret, text: str) -> Hidden:
    """The secret that `text` is. Raises ValueRefused, whose text is the same for all values with the same fault."""
    if not text:
        raise ValueRefused(field.name, "is empty")
    _check_size_and_form(field.name, text)
    if not field.multiline and ("\n" in text or "\r" in text):
        raise ValueRefused(field.name, "has a line break, but the skill allows only one line")
    _check_pattern(field.name, field.pattern, text, "")
    return Hidden(text)


def parse_lines(text: str) -> dict[str, str]:
    """The values in a file of NAME=value lines; blank lines and those that begin with "#" are skipped.

    A value is taken as it stands, but for one pair of quotes around all of it. Raises ValueRefused, which names the
    line and shows nothing of it.
    """
    values: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        where = f"line {number}"
        if re.match(r"\s*export\s", name):
            raise ValueRefused(where, 'begins with "export", which only a shell reads: write NAME=value')
        if not equals:
            raise ValueRefused(where, 'has no "=": write NAME=value')
        if not VARIABLE.fullmatch(name):
            rule = "1 to 128 of A-Z 0-9 _, no digit first, no spaces around it"
            raise ValueRefused(where, f'the text before "=" must be the name of a variable: {rule}')
        if name in seen:
            raise ValueRefused(where, f"sets the variable of line {seen[name]} again: remove one of the two")
        seen[name] = number
        values[name] = _unquoted(value)
    return values


def is_text(text: str) -> bool:
    """Return whether the operating system accepts a text: no NUL, which ends a string there, and encodable as UTF-8."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def decoded(content: bytes) -> str | None:
    """The text of a value as it was read; None for what is not UTF-8, since an error would hold it."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def has_64_bits(number: int) -> bool:
    """Return whether a signed 64-bit integer holds a number."""
    return -INTEGER_MAX - 1 <= number <= INTEGER_MAX


def shown(text: str) -> str:
    """`text` as an error may print it: short, and without control characters. Not for secrets."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 3] + "...")


def _check_size_and_form(name: str, text: str) -> None:
    if len(text) > VALUE_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > VALUE_BYTES_MAX:
        raise ValueRefused(name, f"is too long: at most {VALUE_BYTES_MAX // 1024} KiB fit into a variable")
    if not is_text(text):
        raise ValueRefused(name, "holds NUL or an incomplete surrogate pair: remove it")


def _check_pattern(name: str, pattern: str | None, text: str, value: str) -> None:
    """`value` shows the text, if it may be shown."""
    if pattern is None:
        return
    try:
        if not matches(pattern, text):
            raise ValueRefused(name, f"{value}does not match the pattern that the skill gives, {shown(pattern)}")
    except TextTooLong:
        raise ValueRefused(name, f"is too long for the pattern that the skill gives, {shown(pattern)}") from None
    except PatternError:
        raise ValueRefused(name, "has a pattern that cannot be used: mend omac.yaml") from None


def _unquoted(value: str) -> str:
    whole = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if whole else value
