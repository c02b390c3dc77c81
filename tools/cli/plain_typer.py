"""Typer as omac uses it: words are taken as they were typed, and help is printed where the caller wants it.

Every option and argument of omac is a text, a list of texts or a flag. Typer would load pydantic to turn a text into
that text, which takes longer than most commands.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from omac.domain.harness.names import NAMES
from omac.domain.kernel.refusal import Refusal, quoted
from omac.tools.cli.host_only import require_host
from omac.tools.terminal.invocation import current, print_data

Json = Annotated[bool, typer.Option("--json", help="Print data for programs.")]
DIRECTORY_HELP = "The directory; the project around the current one, if not named."
Workdir = Annotated[str | None, typer.Option("--workdir", metavar="DIR", help=DIRECTORY_HELP)]
JournalPath = Annotated[str | None, typer.Option("--journal", metavar="PATH", help="The journal's file.")]

CONVERTER = "_runtime_param"  # of typer's parameters: what converts a value, made when first needed
# What may be empty: data, a setting, and the filters of audit that then choose the rows without one. A skill's name
# is left to the command, which lists the names that are known.
MAY_BE_EMPTY = frozenset(
    {"SKILL", "VALUE", "--client", "--data", "--method", "--path", "--run", "--session", "--skill"}
)


class _AsTyped:
    """A converter that leaves every value as it is, and refuses an empty one, as of a variable that was never set."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; a list for a parameter that may be repeated. Raises Refusal (misuse)."""
        repeated = param.multiple or param.nargs == -1
        if value is None:
            return () if repeated else None
        values = list(value) if repeated else [value]
        name = max(param.opts, key=len) if param.param_type_name == "option" else _shown(param).split()[-1]
        if "" in values and name not in MAY_BE_EMPTY and not ctx.resilient_parsing:
            raise Refusal("misuse", f"{name} needs a value that is not empty", fix=[f"{ctx.command_path} --help"])
        return values if repeated else value


_AS_TYPED = _AsTyped()


def _show_help(ctx: Any, _param: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print_data(ctx.get_help())
        ctx.exit()


class _PlainHelp:
    """Help without types of values and without cut lines: a first sentence that is too long goes on below."""

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Return what stands behind the command in its usage: NAME, [NAME] where it may be left out, and NAME..."""
        pieces = ["[OPTIONS]"]
        for argument in _arguments(self.get_params(ctx)):
            word = _shown(argument) + ("..." if argument.nargs == -1 else "")
            pieces.append(word if argument.required else f"[{word}]")
        return pieces

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options."""
        for heading, entries in (("Arguments", rows_of_arguments(self, ctx)), ("Options", option_rows(self, ctx))):
            if entries:
                with formatter.section(heading):
                    formatter.write_dl(entries)

    def get_params(self, ctx: Any) -> list[Any]:
        return _lean(super().get_params(ctx))  # type: ignore[misc]  # of the class that it is mixed into

    def get_help_option(self, ctx: Any) -> Any:
        return _helpful(super().get_help_option(ctx))  # type: ignore[misc]


def rows_of_arguments(command: Any, context: Any = None) -> list[tuple[str, str]]:
    """Return each argument of a command and its help."""
    context = context or _context(command)
    arguments = _arguments(command.get_params(context))
    return [
        (_shown(argument), argument.get_help_record(context)[1].removesuffix("  [required]")) for argument in arguments
    ]


def option_rows(command: Any, context: Any = None) -> list[tuple[str, str]]:
    """Return each option of a command, with its other names and what it takes, and its help."""
    context = context or _context(command)
    options = [param for param in command.get_params(context) if param.param_type_name == "option"]
    rows = [(option, option.get_help_record(context)) for option in options]
    return [(row[0].replace("<str>", option.name.upper()), row[1]) for option, row in rows if row]


def usage_pieces(command: Any) -> list[str]:
    """Return what stands behind the command in its usage."""
    pieces: list[str] = command.collect_usage_pieces(_context(command))
    return pieces


def _context(command: Any) -> Any:
    return command.context_class(command, info_name=command.name)


def _arguments(params: list[Any]) -> list[Any]:
    return [param for param in params if param.param_type_name == "argument"]


def _shown(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


class Command(_PlainHelp, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words apart; a folder that is no argument of the command is to follow its --workdir, and one that
        is needs none. The example of an option that lacks is for what was typed.
        The agent of `continue` and `resume` is the last one: its name leads to them, and to a start of it."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            takes_folder = any("--workdir" in param.opts for param in self.params)
            takes_folder = takes_folder and not {"--workdir", "--global"}.intersection(words)
            is_extra = bool(words) and "unexpected extra" in str(error)
            if is_extra and words[-1] in NAMES and self.name in ("continue", "resume"):
                without = " ".join((ctx.command_path, *map(quoted, words[:-1])))
                error.fix = [f"{without}  # the agent that ran last here", f"omac start {words[-1]}"]  # type: ignore[attr-defined]
            elif is_extra and takes_folder and os.path.isdir(words[-1]):
                line = (ctx.command_path, *map(quoted, words[:-1]), "--workdir", quoted(words[-1]))
                error.fix = [" ".join(line)]  # type: ignore[attr-defined]
            elif getattr(error, "option_name", "") == "--workdir" and any(
                param.name == "directory" for param in _arguments(self.params)
            ):
                rest = [word.removeprefix("--workdir=") for word in words if word != "--workdir"]
                error.fix = [" ".join((ctx.command_path, *map(quoted, rest)))]  # type: ignore[attr-defined]
            elif getattr(error, "option_name", "") == "--global" and self.name == "trust":
                error.fix = [f"{ctx.command_path} ~"]  # type: ignore[attr-defined]
            elif type(error).__name__ == "MissingParameter":
                error.fix = [*self._with_missing(ctx, words, error)]  # type: ignore[attr-defined]
            raise

    def _with_missing(self, ctx: Any, words: list[str], error: Any) -> Iterator[str]:
        """Yield the option that lacks as the first example of the help has it, unless a word too many was typed, too:
        that is not repeated."""
        _, extra, _ = self.make_parser(ctx).parse_args(words)
        if error.param.param_type_name == "option" and not extra:
            name = max(error.param.opts, key=len)
            yield from [name + line.rpartition(name)[2] for line in (self.help or "").splitlines() if name in line][:1]

    def invoke(self, ctx: Any) -> Any:
        require_host(ctx.command_path, first_sentence(self.help or ""), current().environment)
        return super().invoke(ctx)


class CommandGroup(_PlainHelp, TyperGroup):
    sections: ClassVar[Sequence[tuple[str, Sequence[str]]]] = ()  # headings and commands; none: all under one heading
    usage = "COMMAND ..."  # what may stand behind it

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.usage]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options."""
        sections = self.sections or ((("Commands", tuple(self.commands)),) if self.commands else ())
        width = max((len(name) for _, names in sections for name in names), default=0)
        for heading, names in sections:
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", first_sentence(self._below(name).help or "")) for name in names]
                )
        super().format_options(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words begin with, as typer does; where none is, one may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if "Did you mean" not in str(error):
                error.fix = [*self._meant(ctx, args)]  # type: ignore[attr-defined]
            raise

    def _meant(self, ctx: Any, args: list[str]) -> Iterator[str]:
        """Yield the commands that may be meant by words that begin with no command: an agent's name, the name of a
        command in a group, the words of a program in a sandbox, a skill. Behind the latter a secret may stand."""
        words, first = " ".join(map(quoted, args)), quoted(args[0])
        if ctx.parent is not None:
            meant = {
                "sandbox": f"omac sandbox run -- {words}", "audit": f"omac audit --skill {words}",
                "secrets": f"omac secrets list {first}", "config": f"omac config show {first}",
                "settings": "omac settings show",
            }  # fmt: skip
            if args[0] in NAMES:
                meant |= {group: f"omac {group} install {first}" for group in ("bridge", "hook")}
            yield from [meant[ctx.info_name]] if ctx.info_name in meant else ()
        elif args[0] in NAMES:
            yield f"omac start {args[0]}"
        else:
            groups = [name for name, group in self.commands.items() if args[0] in getattr(group, "commands", ())]
            yield from (f"omac {name} {words}" for name in groups)

    def _below(self, name: str) -> Any:
        """Return a command by its words, such as "sandbox run"."""
        command: Any = self
        for word in name.split():
            command = command.commands[word]
        return command


class Commands(typer.Typer):
    """A place for commands, all of which are Command."""

    def __init__(self, cls: type[CommandGroup] = CommandGroup, **settings: Any) -> None:
        super().__init__(cls=cls, **{"no_args_is_help": True} | settings)

    def command(self, *names: str, cls: type[TyperCommand] = Command, **settings: Any) -> Callable[..., Any]:  # type: ignore[override]  # typer lists each setting
        return super().command(*names, cls=cls, **settings)


def taking(name: str, make: Callable[..., object]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator of commands that share options: in the place of its parameter `name` a command takes the
    parameters of `make`, and gets what that makes of them."""
    parameters = inspect.signature(make).parameters

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_options(**arguments: Any) -> int:
            made = make(**{option: arguments.pop(option) for option in parameters})
            return command(**{name: made}, **arguments)

        own = inspect.signature(command).parameters.values()
        taken = [option for one in own for option in (parameters.values() if one.name == name else (one,))]
        named = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in taken]
        with_options.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # what typer reads
        with_options.__annotations__ = {}  # and what it would ask first
        return with_options

    return decorated


def first_sentence(text: str) -> str:
    """Return the first sentence of a help, in one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".") + "."


def _lean(params: list[Any]) -> list[Any]:
    for param in params:
        if vars(param).get(CONVERTER, param) is None:
            setattr(param, CONVERTER, _AS_TYPED)
    return params


def _helpful(option: Any) -> Any:
    if option is not None:
        option.callback = _show_help
    return option
