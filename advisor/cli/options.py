"""What verbs take: the options of the settings as one decorator, those of a plan, kinds of values, and the
command that all verbs are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from advisor.cli import completion, messages
from advisor.config import CHOICES, FLAGS, SETTINGS, checked
from advisor.errors import near
from advisor.model.options import Flag, PlanRequest, Setting, declared
from advisor.numerals import read_int

HELP = {"help_option_names": ["-h", "--help"]}
#: A file or folder. Who opens it says what is wrong with it.
PATH = click.Path(path_type=Path, readable=False)
#: A name, or else a file, which the shell completes.
NAME_OR_FILE = click.Path(readable=False)

#: The options of a diagnosis that most people use.
COMMON = "format output html xlsx phase unprofiled_step gpu_metrics log baseline fail_on quiet verbose"

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class WholeNumber(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """An integer, from `at_least` on if that is given."""

    name = "n"

    def __init__(self, at_least: int | None = None) -> None:
        self.at_least = at_least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = value if isinstance(value, int) else read_int(value, commas=False)
        if number is None:
            self.fail("expected a whole number", param, ctx)
        if self.at_least is not None and number < self.at_least:
            self.fail(f"expected a number greater than or equal to {self.at_least}", param, ctx)
        return number


class OneOf(click.Choice[str]):
    """One of a few words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(f"invalid value '{value}'; expected one of {', '.join(self.choices)}", param, ctx)
        return str(value)


class Several(click.Option):
    """An option that takes all words up to the next option, `--before A B`; of type text."""

    def __init__(self, names: Sequence[str], **attributes: Any) -> None:
        super().__init__(names, **{**attributes, "multiple": True, "type": NAME_OR_FILE})


#: In the context of a command: whether its help lists every option.
ALL_OPTIONS = "advisor.all_options"


class Verb(click.Command):
    """One verb. Of many options `--help` lists the `common` ones, by parameter, and `--help-all` all."""

    def __init__(self, name: str | None, common: str = "", **attributes: Any) -> None:
        # `parse_args` refuses words that are too many, in our words.
        super().__init__(name, **{**attributes, "context_settings": {**HELP, "allow_extra_args": True}})
        self.common = frozenset(common.split())
        self.params.append(help_all(hidden=not common))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.hidden]
        always = {"--help", "--help-all"}
        shown = [
            p
            for p in listed
            if not self.common or ctx.meta.get(ALL_OPTIONS) or p.name in self.common or always & {*p.opts}
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for p in shown if (record := p.get_help_record(ctx))])
        if more := len(listed) - len(shown):
            formatter.write_paragraph()
            formatter.write_text(f"{more} more options: {ctx.command_path} --help-all")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # the shell completes an unfinished line
            return super().parse_args(ctx, args)
        several = {name for p in self.params if isinstance(p, Several) for name in p.opts}
        try:
            super().parse_args(ctx, one_value_each(args, several))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # for a value that is missing click does not say where
            raise
        if ctx.args:
            raise click.UsageError(f"too many arguments: {' '.join(ctx.args)}", ctx)
        return ctx.args

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return help_option(super().get_help_option(ctx))


class Verbs(click.Group):
    """A verb with verbs of its own."""

    command_class = Verb

    def __init__(self, name: str | None, **attributes: Any) -> None:
        more = {"subcommand_metavar": "VERB ...", **attributes, "context_settings": HELP}
        super().__init__(name, **more)
        self.params.append(help_all(hidden=True))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)  # in our order

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            hint = near(args[0], self.list_commands(ctx), "", most=3)
            raise click.UsageError(f"'{args[0]}' is not a verb" + (f"; {hint}" if hint else ""), ctx)
        return super().resolve_command(ctx, args)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return help_option(super().get_help_option(ctx))


def help_option(option: click.Option | None) -> click.Option | None:
    """The option of click; where its text cannot be written, that is an error."""
    if option is not None:
        option.callback = _show_help
    return option


def help_all(hidden: bool) -> click.Option:
    """`--help-all`: the help of a verb with all its options."""
    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, hidden=hidden, callback=_show_help,
        help="Show all options and exit.",
    )  # fmt: skip


def _show_help(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    """The callback of `--help` and `--help-all`."""
    if wanted and not ctx.resilient_parsing:
        ctx.meta[ALL_OPTIONS] = "--help-all" in option.opts
        messages.say(ctx.get_help())
        ctx.exit()


def one_value_each(args: Sequence[str], several: Collection[str]) -> list[str]:
    """``--before A B`` as ``--before A --before B``, the form that click knows, for the options `several`."""
    out: list[str] = []
    current = ""
    for i, word in enumerate(args):
        if word == "--":
            return [*out, *args[i:]]
        if _is_option(word):
            current = word if word in several else ""
            if not current:
                out.append(word)
            elif all(map(_is_option, args[i + 1 : i + 2])):  # also the last word
                raise click.BadOptionUsage(word, "no value")
        else:
            out += [current, word] if current else [word]
    return out


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


# --- decorators -----------------------------------------------------------------------------------


def takes(names: str, *, files: Collection[str] = tuple(SETTINGS), **own: str | Flag) -> Decorator:
    """Give a verb options of the settings, by the keys in `names`, and call it with `settings`.

    `own`: another help text or other choices of an option; configuration files do not set one with
    other choices. `files`: keys of configuration files that apply, for which there is --config as well.
    With --debug a disagreement of the engines is an error.
    """
    flags = {name: FLAGS[name].flag for name in (*names.split(), *(["config"] if files else ()))}
    for name, changed in own.items():
        flags[name] = changed if isinstance(changed, Flag) else flags[name]._replace(help=changed)
    choices = {name: flag.choices for name, flag in flags.items()}
    keys = [key for key in files if key not in flags or flags[key].choices == CHOICES.get(key, ())]

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def settled(**values: Any) -> Any:
            from advisor.cli.deliver import settings_of  # `--help` needs no reports

            settings = settings_of({name: values.pop(name) for name in flags}, flags, keys, choices)
            return verb(settings=replace(settings, strict=messages.debug), **values)

        return _with_options(settled, flags, FLAGS)

    return decorate


def asks(names: str = "") -> Decorator:
    """Give a verb the options of a plan, all or those of these `names`, and call it with those given as
    `request`, by field."""
    known = declared(PlanRequest)
    flags = {name: known[name].flag for name in names.split() or known}

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def settled(**values: Any) -> Any:
            typed = {name: values.pop(name) for name in flags}
            request = {
                known[name].name: checked(known[name], value, dashed(name), flags[name].choices)
                for name, value in typed.items()
                if value is not None and value is not False
            }
            return verb(request=request, **values)

        return _with_options(settled, flags, known)

    return decorate


def _with_options(
    verb: Callable[..., Any], flags: dict[str, Flag], known: Mapping[str, Setting]
) -> Callable[..., Any]:
    for name, flag in reversed(flags.items()):
        verb = _option(name, known[name], flag)(verb)
    return verb


def _option(key: str, setting: Setting, flag: Flag) -> Decorator:
    """One option. One that was not given is None, False or ()."""
    names = (dashed(key), *flag.short, key)
    stated = f" (default {setting.default})." if flag.choices and setting.default else "."
    text = flag.help.removesuffix(".") + stated
    if setting.kind == "bool":
        return click.option(*names, is_flag=True, help=text)
    if flag.counted:
        return click.option(*names, count=True, callback=lambda _, __, n: n or None, help=text)
    kind: Any = WholeNumber(flag.at_least) if setting.kind == "int" else PATH if setting.paths else str
    offered = completion.of_option(key, flag)
    return click.option(
        *names,
        type=kind,
        multiple=setting.kind == "list",
        metavar=flag.metavar or None,
        help=text,
        shell_complete=offered,
    )


def dashed(key: str) -> str:
    """`fail_on` -> `--fail-on`"""
    return f"--{key.replace('_', '-')}"


def typed(*others: str) -> list[str]:
    """The options on the command line that is being run, but for `others`."""
    ctx = click.get_current_context()
    names = [p.name for p in ctx.command.params if isinstance(p, click.Option) and p.name not in others]
    return [dashed(n) for n in names if n and ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
