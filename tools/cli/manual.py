"""omac man: manual pages in roff, of the same text as the help."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.plain_typer import first_sentence, option_rows, rows_of_arguments, usage_pieces
from omac.tools.terminal.invocation import print_data
from omac.tools.terminal.version import VERSION

SECTION = "1"


def run(root: Any, words: Sequence[str]) -> int:
    """Print the page of a command. Raises Refusal (misuse)."""
    command = root
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            raise Refusal("misuse", f"omac has no command {' '.join(words)!r}", fix=["omac help"])
    print_data(page(command, words))
    return 0


def pages(command: Any, *words: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the content of the page of a command, and of each below it."""
    yield f"{'-'.join(('omac', *words))}.{SECTION}", page(command, words) + "\n"
    for name, below in getattr(command, "commands", {}).items():
        yield from pages(below, *words, name)


def page(command: Any, words: Sequence[str]) -> str:
    """Return the page of the command that these words name, none for omac itself."""
    name = "-".join(("omac", *words))
    whole = " ".join(("omac", *words))
    sentence, text, examples = _parts(command.help or "")
    lines = [
        f'.TH "{_escaped(name.upper())}" "{SECTION}" "" "omac {VERSION}" "omac"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(sentence.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(whole)}",
        *_line(_usage(command, words)),
        ".SH DESCRIPTION",
        *_line(text),
    ]
    below = getattr(command, "commands", {})
    if below:
        lines += [".SH COMMANDS"]
        for word, subcommand in below.items():
            lines += [".TP", f".B {_escaped(word)}", *_line(first_sentence(subcommand.help or ""))]
    for heading, rows in (("ARGUMENTS", rows_of_arguments(command)), ("OPTIONS", _options(command, words))):
        if rows:
            lines += [f".SH {heading}"]
            for left, right in rows:
                lines += [".TP", f".B {_escaped(left)}", *_line(right)]
    if examples:
        lines += [".SH EXAMPLES", ".nf", *_line(*examples), ".fi"]
    lines += [".SH SEE ALSO", *_line(_see_also(words, list(below)))]
    return "\n".join(lines)


def _parts(help_text: str) -> tuple[str, str, list[str]]:
    """Return the first sentence of a help, its text, and the lines of its examples."""
    paragraphs = [paragraph.strip("\n") for paragraph in re.split(r"\n\s*\n", help_text.strip())]
    shown = [paragraph for paragraph in paragraphs if "\b" not in paragraph]
    examples = [
        line.strip()
        for paragraph in paragraphs
        if "\b" in paragraph
        for line in paragraph.replace("\b", "").splitlines()
    ]
    text = " ".join(" ".join(shown).split())
    return first_sentence(help_text), text, [line for line in examples if line and line != "Examples:"]


def _usage(command: Any, words: Sequence[str]) -> str:
    if tuple(words) == ("sandbox", "run"):
        return "[OPTIONS] -- COMMAND..."
    return " ".join(usage_pieces(command))


def _options(command: Any, words: Sequence[str]) -> list[tuple[str, str]]:
    if tuple(words) != ("sandbox", "run"):
        return option_rows(command)
    from omac.domain.harness.names import NAMES, listed
    from omac.tools.hotpath.sandbox_options import OPTIONS

    names = listed(NAMES, "or")
    return [(f"{option.name} {option.takes}".rstrip(), option.text.format(names=names)) for option in OPTIONS]


def _see_also(words: Sequence[str], below: Sequence[str]) -> str:
    above = [] if not words else ["-".join(("omac", *words[:-1]))]
    named = [*above, *("-".join(("omac", *words, word)) for word in below)]
    return ", ".join(f"{name}({SECTION})" for name in named) or "omac(1)"


def _line(*texts: str) -> list[str]:
    """Return lines of text, none of which roff takes for a request."""
    escaped = [_escaped(text) for text in texts]
    return [rf"\&{text}" if text[:1] in (".", "'") else text for text in escaped if text]


def _escaped(text: str) -> str:
    """Return text in which roff finds nothing to obey, and whose dashes, quotes and carets can be pasted."""
    made = text.replace("\\", r"\e")
    for plain, name in (("-", r"\-"), ("'", r"\(aq"), ('"', r"\(dq"), ("^", r"\(ha"), ("~", r"\(ti"), ("`", r"\(ga")):
        made = made.replace(plain, name)
    return made
