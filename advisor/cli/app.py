"""The verbs as one typer application, which imports the module of a verb when it is used: importing
all of them would cost more than everything else that `advisor --help` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from advisor import __version__
from advisor.cli.main import VERBS, help_text
from advisor.cli.messages import message
from advisor.errors import InputError

HELP = {"help_option_names": ["-h", "--help"]}


class Stopped(Exception):
    """The run ended early for a reason outside the program; the argument is the exit code."""


@contextmanager
def _stops() -> Iterator[None]:
    """Raise `Stopped` for Ctrl-C and a closed pipe: typer's exit code for them, 1, means a finding here."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(130) from None
    except BrokenPipeError:
        raise Stopped(0) from None


class Advisor(TyperGroup):
    """The verbs of `VERBS`; other words are arguments of `diagnose`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _check_given_only(self)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_help(self, ctx: Any) -> str:  # noqa: ARG002
        return help_text()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            only = typer.Typer(add_completion=False, rich_markup_mode=None)
            only.command(cmd_name, context_settings=HELP)(target)
            target = only
        command = typer.main.get_command(target)
        command.name = cmd_name
        for each in (command, *getattr(command, "commands", {}).values()):
            _check_given_only(each)
            if not hasattr(each, "commands"):
                # As the verb declares them: typer turns `[[TRACE]...]...` into one.
                arguments = (p.metavar for p in each.params if p.param_type_name == "argument")
                usage = ["[OPTIONS]", *arguments]
                each.collect_usage_pieces = lambda _ctx, usage=usage: usage
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default verb in front of anything that is neither a verb nor our own option."""
        own = {o for p in self.get_params(ctx) for o in (*p.opts, *p.secondary_opts)}
        if args and args[0] not in VERBS and args[0] not in own:
            _refuse_mistyped(args[0])
            args = ["diagnose", *args]
        with _stops():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        from advisor.cli.deliver import notes_printed  # `advisor --help` needs no logging

        with _stops(), notes_printed():
            return super().invoke(ctx)


def _check_given_only(command: Any) -> None:
    """Keep typer from building a pydantic check for options not given, most of the time of `--help`."""
    listed = command.get_params

    def checked(parameter: Any, check: Any, ctx: Any, value: Any) -> Any:
        if value is not None or parameter.required:
            return check(ctx, value)
        absent = () if parameter.multiple or parameter.nargs == -1 else None
        return parameter.callback(ctx, parameter, absent) if parameter.callback else absent

    def get_params(ctx: Any) -> list[Any]:
        parameters: list[Any] = listed(ctx)
        for each in parameters:
            if "process_value" not in vars(each):
                each.process_value = partial(checked, each, each.process_value)
        return parameters

    command.get_params = get_params


def verb_group(help: str) -> typer.Typer:
    """A verb with verbs of its own; without one it prints its help and ends with exit code 2."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings=HELP, subcommand_metavar="VERB ..."
    )

    @app.callback(invoke_without_command=True, help=help)
    def _group(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)

    return app


def _refuse_mistyped(word: str) -> None:
    """Raise InputError for a misspelled verb, such as `advisor explian`."""
    if "." in word or os.sep in word or os.path.exists(word):
        return
    from difflib import get_close_matches

    if near := get_close_matches(word, VERBS, 1, 0.7):
        raise InputError(f"'{word}' is neither a file nor a verb; did you mean '{near[0]}'?")


app = typer.Typer(
    cls=Advisor, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP,
    subcommand_metavar="[VERB] TRACE...",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"advisor {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _group(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,  # noqa: ARG001
    debug: Annotated[bool, typer.Option("--debug")] = False,  # noqa: ARG001
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


def run_verb(words: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    try:
        result = app(words, "advisor", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except Stopped as stopped:
        if code := int(stopped.args[0]):
            message("interrupted")
        return code
    except typer.Abort:
        return 130
