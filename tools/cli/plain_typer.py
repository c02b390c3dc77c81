"""Typer as omac uses it: words are taken as they were typed, and help is printed where the caller wants it.

Every option and argument of omac is a text, a list of texts or a flag. Typer would load pydantic to turn a text into
that text, which takes longer than most commands.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from omac.tools.cli.host_only import require_host
from omac.tools.terminal.invocation import current, print_data

Json = Annotated[bool, typer.Option("--json", help="Print data for programs.")]
JournalPath = Annotated[str | None, typer.Option("--journal", metavar="PATH", help="The journal's file.")]

CONVERTER = "_runtime_param"  # of typer's parameters: what converts a value, made when first needed


class _AsTyped:
    """A converter that leaves every value as it is."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; a list for a parameter that may be repeated."""
        repeated = param.multiple or param.nargs == -1
        if value is None:
            return () if repeated else None
        return list(value) if repeated else value


_AS_TYPED = _AsTyped()


def _show_help(ctx: Any, _param: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print_data(ctx.get_help())
        ctx.exit()


class Command(TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        require_host(ctx.command_path, first_sentence(self.help or ""), current().environment)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return _lean(super().get_params(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        return _helpful(super().get_help_option(ctx))


class CommandGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _lean(super().get_params(ctx))

    def get_help_option(self, ctx: Any) -> Any:
        return _helpful(super().get_help_option(ctx))


class Commands(typer.Typer):
    """A place for commands, all of which are Command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=CommandGroup, no_args_is_help=True, **settings)

    def command(self, *names: str, cls: type[TyperCommand] = Command, **settings: Any) -> Callable[..., Any]:  # type: ignore[override]  # typer lists each setting
        return super().command(*names, cls=cls, **settings)


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
