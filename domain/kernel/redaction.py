"""Redaction: a command line as it may be recorded, without the secrets that are written in it.

Rules

1. Hidden is: the value of an option, variable, header or field whose name speaks of a secret; user and password in a
   URL; the password after `--user`; what follows Bearer; and whatever has the form of a well-known token.
2. In doubt more is hidden than needed. What has no such name and no such form is not recognised.
3. The result is printable and bounded, whatever was given: what is long is cut, and says so.
"""

from __future__ import annotations

from omac.domain.kernel.terminal_escaping import printable

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HIDDEN = "<hidden>"
ERASED = "(erased)"  # what a text is read as whose key is destroyed
WORD_MAX = 256  # characters shown of a word
LOOKED_AT_MAX = 1_024  # characters of a word that are looked at: what is shown is judged by what comes after it, too
TOTAL_MAX = 4_096  # characters shown in all

_PARTS = (  # of a name, its case and separators aside
    "token", "passw", "passphrase", "secret", "apikey", "accesskey", "privatekey", "credential", "authorization",
    "bearer", "cookie",
)  # fmt: skip
_WORDS = frozenset({"pass", "pwd", "auth", "key", "keys", "pat", "pin", "otp", "jwt", "sig", "signature", "creds"})
_ORDINARY = frozenset({"PWD", "OLDPWD"})
_WITH_PASSWORD = frozenset({"-u", "-U", "--user", "--proxy-user"})  # user:password comes next
_TOKENS = {  # how tokens begin, and how many characters follow at least
    "sk-": 8, "sk_": 12, "rk_": 12, "ghp_": 8, "gho_": 8, "ghu_": 8, "ghs_": 8, "ghr_": 8, "github_pat_": 8,
    "glpat-": 8, "xoxb-": 8, "xoxp-": 8, "xoxa-": 8, "xoxr-": 8, "xoxs-": 8, "xoxe-": 8, "xapp-": 8, "AKIA": 12,
    "ASIA": 12, "AIza": 20, "eyJ": 8, "npm_": 30, "pypi-": 16, "hf_": 16, "ya29.": 8, "SG.": 16, "dop_v1_": 16,
    "AGE-SECRET-KEY-": 8,
}  # fmt: skip
PORT_DIGITS_MAX = 5
_PEM = "-----BEGIN"
_QUOTES = "\"'`\\"
_BLANKS = " \t\r\n"


def redacted(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, as they may be recorded."""
    shown_words: list[str] = []
    shown, awaited = 0, ""
    for number, word in enumerate(argv):
        looked_at = word[:LOOKED_AT_MAX]
        text, awaited = _word(looked_at, awaited, len(word) > LOOKED_AT_MAX)
        text = printable(text)
        if len(text) > WORD_MAX or len(word) > LOOKED_AT_MAX:
            text = f"{text[:WORD_MAX]}... ({len(word)} characters)"
        if shown + len(text) > TOTAL_MAX:
            shown_words.append(f"... ({len(argv) - number} more)")
            break
        shown_words.append(text)
        shown += len(text)
    return tuple(shown_words)


def speaks_of_secret(name: str) -> bool:
    """Return whether the name of an option, a variable, a header or a field says that its value is secret."""
    if name in _ORDINARY:
        return False
    words = name.replace("-", " ").replace("_", " ").replace(".", " ").lower().split()
    flat = "".join(words)
    return any(part in flat for part in _PARTS) or not _WORDS.isdisjoint(words)


def _word(text: str, awaited: str, cut: bool) -> tuple[str, str]:
    """A word without its secrets, given what the word before it `asked` for, and what it asks of the next one."""
    look = _Redaction(text, cut)
    look.by_name()
    look.in_urls()
    look.by_form()
    if awaited == "value":
        return (text, awaited) if text in ("=", ":") else (HIDDEN, look.asks)
    if awaited == "password" and ":" in text:
        look.hide(text.index(":") + 1, len(text))
    return look.shown(), look.asks


class _Redaction:
    """One text with the parts of it that are to be hidden. `asks` is how the next word is hidden: "" for not, "value"
    or "password"."""

    def __init__(self, text: str, cut: bool) -> None:
        self._text = text
        self._cut = cut
        self._hidden: list[tuple[int, int]] = []
        self.asks = ""

    def hide(self, start: int, end: int) -> None:
        self._hidden.append((start, end))

    def shown(self) -> str:
        """The text, each stretch that is to be hidden replaced."""
        text_shown, at = "", 0
        for start, end in sorted(self._hidden):
            if end > at or start == end:
                text_shown += self._text[at:start] + HIDDEN if start >= at else ""
                at = max(at, end)
        return text_shown + self._text[at:]

    def by_name(self) -> None:
        """Hide values of `--name value`, `name=value`, `name: value`, quoted or not, on their own or in the middle of a
        script."""
        text = self._text
        for start, end in self._names():
            name = text[start:end]
            if name in _WITH_PASSWORD:
                self._hide_password(end)
            elif name.lower() == "bearer":
                self._hide_next(end)
            elif speaks_of_secret(name.lstrip("-")):
                after = _skip(text, end, _QUOTES + _BLANKS)
                if after < len(text) and text[after] in "=:":
                    first = not text[:start].strip(_QUOTES + _BLANKS)
                    value = _skip(text, after, "=:>")
                    whole = text[after] == ":" or first
                    if text[after] == ":" and not text[value:].strip(_QUOTES + _BLANKS):
                        self.asks = "value"
                    self.hide(value, len(text) if whole else self._end_of_value(_skip(text, value, _BLANKS)))
                elif name.startswith("-"):
                    self._hide_next(end)

    def in_urls(self) -> None:
        """Hide the text before the @ of an authority (RFC 3986 section 3.2), slashes in a password included."""
        text, at = self._text, -1
        while (at := text.find("://", at + 1)) >= 0:
            start = at + 3
            end = start
            while end < len(text) and not text[end].isspace():
                end += 1
            slash = min([offset for sign in "/?#" if (offset := text.find(sign, start, end)) >= 0], default=end)
            last = text.rfind("@", start, slash)
            _, colon, port = text[start:slash].partition(":")
            if last < 0 and colon and not (port.isdigit() and len(port) <= PORT_DIGITS_MAX):
                last = text.rfind("@", start, end)
                if last < 0 and self._cut and end == len(text):
                    last = end
            if last >= 0:
                self.hide(start, last)

    def by_form(self) -> None:
        """Tokens that show what they are, wherever they stand; a private key to the end of the text."""
        text = self._text
        if _PEM in text:
            self.hide(text.index(_PEM), len(text))
        for beginning, rest in _TOKENS.items():
            at = -1
            while (at := text.find(beginning, at + 1)) >= 0:
                if at and text[at - 1].isalnum():
                    continue
                end = at + len(beginning)
                while end < len(text) and (text[end].isalnum() or text[end] in "_-.+/="):
                    end += 1
                if end - at >= len(beginning) + rest:
                    self.hide(at, end)

    def _names(self) -> Iterator[tuple[int, int]]:
        text, at = self._text, 0
        while at < len(text):
            start = at
            while at < len(text) and (text[at].isalnum() or text[at] in "_-."):
                at += 1
            if at > start:
                yield start, at
            at += 1

    def _hide_next(self, at: int) -> None:
        """The next stretch of this text; at its end, the whole next word."""
        text = self._text
        at = _skip(text, at, _QUOTES)
        if at < len(text) and not text[at].isspace():
            return
        value = _skip(text, at, _BLANKS)
        if value >= len(text):
            self.asks = "value"
        else:
            self.hide(value, self._end_of_value(value))

    def _hide_password(self, at: int) -> None:
        value = _skip(self._text, at, _QUOTES + _BLANKS + "=")
        if value >= len(self._text):
            self.asks = "password"
            return
        end = self._end_of_value(value)
        colon = self._text.find(":", value, end)
        if colon >= 0:
            self.hide(colon + 1, end)

    def _end_of_value(self, at: int) -> int:
        """Return where a shell ends a value: at the next blank that is not quoted. A value that the shell would
        substitute or escape goes on to the end of the text."""
        text, quote = self._text, ""
        while at < len(text):
            char = text[at]
            if char in "\\(`":
                break
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char.isspace():
                return at
            at += 1
        return len(text)


def _skip(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] in chars:
        at += 1
    return at
