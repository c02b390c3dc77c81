"""omac completion: what a shell asks for to complete a command line, and the answer while a person types.

The scripts call `omac __complete SHELL`, the omac of PATH, with the words typed so far. No word is evaluated, by omac
or by them, and the first is not run: it may be a file of the project. No variable asks for it: a project's settings can
set those of omac's hooks. An answer is read from files alone: nothing is written, started or asked for.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.plain_typer import first_sentence
from omac.tools.terminal.invocation import expanded, print_data

BASH = """\
_omac() {
    mapfile -t COMPREPLY < <(command omac __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _omac omac
"""
# As a file of $fpath, zsh runs the whole script in the place of the function, at the first Tab.
ZSH = """\
#compdef omac
_omac() {
    local -a offered
    offered=("${(@f)$(command omac __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${offered[1]}" ]]; then _describe -V omac offered; else _files; fi
}
if [[ $funcstack[1] == _omac ]]; then _omac "$@"; else compdef _omac omac; fi
"""
FISH = """\
function __omac
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l offered (command omac __complete fish $words[2..-1] "$typed" 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c omac -f -a '(__omac)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
SEPARATORS = {"zsh": ":", "fish": "\t"}  # between a value and what it is; bash shows values only


class Offer(NamedTuple):
    """A word that may come next, and what it is."""

    word: str
    text: str = ""


class Line(NamedTuple):
    """A command line up to the word that is being typed: the `command` below `root`, and what it was given so far."""

    root: Any
    command: Any
    arguments: list[str]
    options: dict[str, str]
    pending: str  # the option whose value comes next, if one does
    is_foreign: bool  # behind --, where another program's words are


def script(shell: str) -> int:
    """Print the script for a shell. Raises Refusal (misuse)."""
    if shell not in SCRIPTS:
        fix = [f"omac completion {known}" for known in SCRIPTS]
        raise Refusal("misuse", f"omac has no completions for {shell!r}", fix=fix)
    print_data(SCRIPTS[shell].rstrip("\n"))
    return 0


def answer(root: Any, shell: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return what may stand in place of the last of `words`, a line each."""
    *before, typed = words or [""]
    line = _line(root, before)
    separator = SEPARATORS.get(shell)
    rows = [offer for offer in _offers(line, typed, environment) if offer.word.startswith(typed)]
    if separator is None:
        return [offer.word for offer in rows]
    return [offer.word + (separator + offer.text if offer.text else "") for offer in rows]


def _line(root: Any, words: Sequence[str]) -> Line:
    command, arguments, options, pending = root, list[str](), dict[str, str](), ""
    for word in words:
        if pending:
            options[pending], pending = word, ""
        elif word == "--":
            return Line(root, command, arguments, options, "", True)
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                options[name] = value
            elif name in _valued(command):
                pending = name
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
        else:
            arguments.append(word)
    return Line(root, command, arguments, options, pending, False)


def _offers(line: Line, typed: str, environment: Mapping[str, str]) -> Iterator[Offer]:
    if line.is_foreign:
        return
    if line.pending:
        param = next((param for param in line.command.params if line.pending in param.opts), None)
        yield from _values(line.pending.lstrip("-") if param is None else str(param.name), line, environment)
    elif typed.startswith("-"):
        yield from _options(line.command)
    elif hasattr(line.command, "commands"):
        for name, command in line.command.commands.items():
            yield Offer(name, first_sentence(command.help or ""))
    else:
        positionals = [param for param in line.command.params if param.param_type_name == "argument"]
        at = min(len(line.arguments), len(positionals) - 1)
        if positionals and (at == len(line.arguments) or positionals[at].nargs == -1):
            yield from _values(str(positionals[at].name), line, environment)


def _options(command: Any) -> Iterator[Offer]:
    if _is_sandbox_run(command):
        from omac.tools.hotpath.sandbox_options import OPTIONS

        yield from (Offer(option.name, option.takes) for option in OPTIONS)
        return
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            text = (param.help or "").partition(". ")[0]
            yield from (Offer(name, text) for name in param.opts if name.startswith("--"))
    yield Offer("--help", "Show what the command does")


def _valued(command: Any) -> set[str]:
    """Return the options that take a value."""
    if _is_sandbox_run(command):
        from omac.tools.hotpath.sandbox_options import OPTIONS

        return {option.name for option in OPTIONS if option.takes}
    options = [param for param in command.params if param.param_type_name == "option" and not param.is_flag]
    return {name for option in options for name in option.opts}


def _is_sandbox_run(command: Any) -> bool:
    return bool(command.name == "run" and not hasattr(command, "commands") and not command.params)


def _values(name: str, line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    """Yield values of the argument or option `name`."""
    offering = VALUES.get(name)
    if offering is not None:
        yield from (offer for offer in offering(line, environment) if offer.word not in line.arguments)


def _skills(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    yield from map(Offer, _sources(line, environment))


def _secrets(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    yield from _declared("secrets", line, environment)


def _settings_of_skill(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    yield from _declared("config", line, environment)


def _declared(section: str, line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.tools.compose.completion_values import names_of

    source = _sources(line, environment).get(line.arguments[0]) if line.arguments else None
    if source is not None:
        yield from map(Offer, names_of(source, section))


def _sources(line: Line, environment: Mapping[str, str]) -> dict[str, str]:
    from omac.tools.compose.completion_values import skills_of

    return skills_of(expanded(line.options.get("--workdir", ".")), os.path.realpath(expanded("~")))


def _runs(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.tools.compose.completion_values import runs_of

    yield from map(Offer, runs_of(environment))


def _harnesses(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.domain.harness.table import HARNESSES

    yield from (Offer(harness.name) for harness in HARNESSES)


def _settings(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.domain.settings.settings import SETTINGS

    yield from (Offer(setting.name, setting.meaning) for setting in SETTINGS.values())


def _setting_words(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.domain.settings.settings import SETTINGS

    known = SETTINGS.get(line.arguments[0]) if line.arguments else None
    yield from map(Offer, known.offered if known else ())


def _counted(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    from omac.projections.evidence.audit_query import COUNTABLE

    yield from map(Offer, COUNTABLE)


def _commands(line: Line, environment: Mapping[str, str]) -> Iterator[Offer]:
    """Yield the commands below those that were typed, as `omac help` takes them."""
    command = line.root
    for word in line.arguments if line.command.name == "help" else ():
        command = getattr(command, "commands", {}).get(word)
    for name, subcommand in getattr(command, "commands", {}).items():
        yield Offer(name, first_sentence(subcommand.help or ""))


def _words(*words: str) -> Callable[[Line, Mapping[str, str]], Iterator[Offer]]:
    return lambda _line, _environment: map(Offer, words)


VALUES: Mapping[str, Callable[[Line, Mapping[str, str]], Iterator[Offer]]] = {  # by the name of a parameter
    "skill": _skills,
    "skills": _skills,
    "restart": _skills,
    "name": _secrets,
    "names": _secrets,
    "field": _settings_of_skill,
    "fields": _settings_of_skill,
    "harness": _harnesses,
    "agent": _harnesses,
    "client": _harnesses,
    "run": _runs,
    "setting": _settings,
    "value": _setting_words,
    "network": _words("host", "none"),
    "backend": _words("auto", "bubblewrap", "landlock"),
    "unapproved": _words("refuse", "allow"),
    "audit": _words("strict", "buffered"),
    "actor": _words("person", "bridge", "agent", "omac"),
    "after": _words("start"),
    "count_by": _counted,
    "form": _words("jsonl", "csv", "cloudevents", "ocsf", "parquet"),
    "method": _words("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
    "to": _words("vault", "keychain", "file"),
    "outcome": _words("completed", "aborted", "refused", "open", "done"),
    "kind": _words(
        "access", "sandbox", "run", "guard", "skill", "secret", "config", "setting", "bridge", "export", "control"
    ),
    "words": _commands,
    "shell": _words(*SCRIPTS),
}
