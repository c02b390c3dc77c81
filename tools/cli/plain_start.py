"""The command line of `omac start` where it is plain: known options that have their values, then `--` and more words.

Typer takes as long to load as the skills take to start, and has nothing to say about such a line. It takes apart what
is not plain: a request for help, a word that is not known, a value that is missing, an option that was given twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from omac.domain.sandbox.request import SandboxRequest
from omac.tools.compose.waiting_sandbox import WaitingSandbox
from omac.tools.hotpath import code_cache
from omac.tools.hotpath.sandbox_options import OPTIONS, parse_options

FLAGS = {  # of a start, beside those of its sandbox; by what they are for a StartRequest
    "--no-sandbox": "no_sandbox",
    "--accept-skill-changes": "accept_changes",
    "--bridge-compat": "bridge_compat",
}
VALUES = {"--workdir": "workdir", "--unapproved": "unapproved", "--journal": "journal", "--audit": "audit"}
SHARED = {option.name: option for option in OPTIONS if option.shared}


class PlainStart:
    """A plain command line: the `harness`, if one is named, the `words` after `--`, None where nothing is, the `fields`
    of a start that were given, and the words of the options of its `sandbox`."""

    def __init__(self, words: list[str] | None) -> None:
        self.harness: str | None = None
        self.words = words
        self.fields: dict[str, str | bool] = {}
        self.sandbox: list[str] = []

    def run(self, environment: Mapping[str, str]) -> int:
        """Start what the line asks for; its exit status. Raises Refusal."""
        sandbox_request = SandboxRequest() if not self.sandbox else parse_options(self.sandbox, "omac start")
        waiting = None if FLAGS["--no-sandbox"] in self.fields else WaitingSandbox(environment)
        try:
            code_cache.load("start", libraries=True)
            from omac.tools.cli.start import StartRequest, run  # late: it takes most of a start to load

            code_cache.stop()
            without: dict[str, Any] = dict.fromkeys(FLAGS.values(), False) | dict.fromkeys(VALUES.values())
            request = StartRequest(self.harness, self.words, sandbox=sandbox_request, **(without | self.fields))
            status = run(request, environment, waiting)
            code_cache.keep()
            return status
        finally:
            if waiting is not None:
                waiting.give_up()


def plain_start(words: Sequence[str], environment: Mapping[str, str]) -> PlainStart | None:
    """Return what the words of a command line ask, which begin with `start`; None where it is not plain."""
    if list(words[:1]) != ["start"] or environment.get("OMAC_SANDBOX") == "1":  # inside a sandbox, a refusal explains
        return None
    end = words.index("--") if "--" in words else len(words)
    line = PlainStart(list(words[end + 1 :]) if end < len(words) else None)
    rest, seen = iter(words[1:end]), set()
    for word in rest:
        if not word.startswith("-"):
            if line.harness is not None or not word:
                return None
            line.harness = word
            continue
        name, equals, value = word.partition("=")
        option = SHARED.get(name)
        takes = name in VALUES or (option is not None and option.takes != "")
        if takes and not equals:
            value = next(rest, "")
        is_known = takes or name in FLAGS or option is not None
        is_repeated = name in seen and not (option is not None and option.repeats)
        if not is_known or is_repeated or takes != bool(value) or value.startswith("-") or (equals and not takes):
            return None
        seen.add(name)
        if option is not None:
            line.sandbox += [name, value] if takes else [name]
        else:
            line.fields[VALUES[name] if takes else FLAGS[name]] = value if takes else True
    return line
