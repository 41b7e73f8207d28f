"""The verbs as one typer application, which imports the module of a verb when it is used: importing
all of them would cost more than everything else that `advisor --help` does. And the options of the verbs,
shared ones (`advisor.config`) and their own, with the values that the shell completes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from advisor import __version__
from advisor.cli import messages
from advisor.cli.main import VERBS, help_text
from advisor.cli.messages import message
from advisor.config import CHOICES, FLAGS, SETTINGS, checked
from advisor.errors import AdvisorError, InputError, near
from advisor.model.options import Flag, Setting, declared

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
    if hint := near(word, VERBS, "", cutoff=0.7):
        raise InputError(f"'{word}' is neither a file nor a verb; {hint}")


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


# --- options --------------------------------------------------------------------------------------


def rule_names() -> list[str]:
    """Codes and causes of the built-in rules."""
    from advisor.engine.load import load_rules

    known = load_rules().active
    return [r.code for r in known] + [r.cause for r in known]


def rule_codes(incomplete: str) -> list[str]:
    """Rule codes for the last entry of a comma-separated list."""
    done = incomplete[: incomplete.rfind(",") + 1]
    return [f"{done}{name}" for name in rule_names() if name.isupper()]


def fix_names() -> list[str]:
    """What-ifs, and the codes and causes that have one."""
    from advisor.gain.whatifs import catalogue

    return [*catalogue().whatifs, *rule_names()]


def engine_names() -> list[str]:
    """Serving engines."""
    from advisor.knowledge.verb_files import capture_goals

    return capture_goals().engine_names()


def goal_names() -> list[str]:
    """Goals of a capture."""
    from advisor.knowledge.verb_files import capture_goals

    return [goal.id for goal in capture_goals().goals]


def range_names(ctx: typer.Context) -> list[str]:
    """Names of the NVTX ranges of the captures on the line, as far as these can be read."""
    from advisor.metrics.host import Ranges
    from advisor.sources.open import open_trace

    names: dict[str, None] = {}
    for word in [*ctx.args, ctx.params.get("trace")]:  # words are not parsed yet while one is completed
        try:
            with open_trace(word or "") as trace:
                names.update(dict.fromkeys(Ranges(trace).texts))
        except AdvisorError:
            continue  # no capture; the verb itself reports what is wrong with it
    return list(names)


_COMPLETIONS: Mapping[str, Callable[..., list[str]]] = {
    "nvtx": range_names,
    "serving_engine": engine_names,
    "select": rule_codes,
    "ignore": rule_codes,
}


def argument(metavar: str, default: Any = ..., **more: Any) -> Any:
    """An argument of a verb, which only its usage line and text name."""
    return typer.Argument(default, metavar=metavar, hidden=True, **more)


def option(metavar: str | None, help: str, default: Any = None, *names: str, **more: Any) -> Any:
    """An option of one verb that takes a value; `names` if the parameter does not name it."""
    return typer.Option(default, *names, metavar=metavar, help=help, **more)


def switch(name: str, help: str) -> Any:
    """An option of one verb without a value."""
    return typer.Option(False, name, help=help)


def takes(
    order: str, *, files: Collection[str] = tuple(SETTINGS), record: type | None = None, **own: str | Flag
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flags of settings to a verb.

    `order`: names of flags and of the verb's own parameters, in the order of --help. `own`: another
    help text or other choices of a flag; configuration files do not set a flag with other choices.
    `files`: keys of configuration files that apply. `record`: a class whose options are flags, too,
    and win over settings of the same name.

    The verb is called with `settings`; with `given`, the names of the flags on the command line, if
    it has that parameter; and with `request`, the given fields of `record`. With --debug a
    disagreement of the engines is an error.
    """
    names = order.split()
    more = declared(record) if record else {}
    known = FLAGS | more
    flags = {name: known[name].flag for name in names if name in known}
    for name, changed in own.items():
        flags[name] = changed if isinstance(changed, Flag) else flags[name]._replace(help=changed)
    choices = {name: flag.choices for name, flag in flags.items()}
    keys = [key for key in files if key not in flags or flags[key].choices == CHOICES.get(key, ())]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        taken = inspect.signature(verb, eval_str=True).parameters
        parameters = [
            taken[name].replace(kind=inspect.Parameter.KEYWORD_ONLY)
            if name in taken
            else _parameter(name, known[name], flags[name])
            for name in names
        ]

        def settled(**values: Any) -> None:
            typed = {name: values.pop(name) for name in names if name not in taken}
            if "given" in taken:
                values["given"] = [name for name, value in typed.items() if value]
            if record:
                values["request"] = {
                    one.name: checked(one, value, f"--{name.replace('_', '-')}", one.flag.choices)
                    for name, one in more.items()
                    if (value := typed.pop(name)) is not None and value is not False
                }
            from advisor.cli.deliver import settings_of

            settings = settings_of(typed, names, keys, choices)
            verb(settings=replace(settings, strict=messages.debug), **values)

        settled.__name__, settled.__doc__ = verb.__name__, verb.__doc__
        settled.__annotations__ = {p.name: p.annotation for p in parameters}
        settled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return settled

    return decorate


def _parameter(key: str, setting: Setting, flag: Flag) -> inspect.Parameter:
    """One flag for typer. One that was not given is None, False or an empty list."""
    kind, default = setting.kind, setting.default
    stated = f" (default {default})." if flag.choices and default else "."
    kinds: dict[str, Any] = {"bool": bool, "int": int | None, "list": list[str] | None}
    names = (key, *(name[2:].replace("-", "_") for name in flag.short))
    listed = (lambda: list(flag.choices)) if flag.choices else None
    completion = next((_COMPLETIONS[n] for n in names if n in _COMPLETIONS), listed)
    made = typer.Option(
        f"--{key.replace('_', '-')}",
        *flag.short,
        metavar=flag.metavar or None,
        help=flag.help.removesuffix(".") + stated,
        min=flag.at_least,
        autocompletion=completion,
    )
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind == "bool" else None,
        annotation=Annotated[kinds.get(kind, str | None), made],
    )


class GreedyCommand(TyperCommand):
    """A command some of whose list options take all words up to the next option."""

    greedy: ClassVar[frozenset[str]] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, self.greedy))


def spread(args: Sequence[str], greedy: Iterable[str]) -> list[str]:
    """``--before A B`` as ``--before A --before B``, the form that the parser knows."""
    wanted = frozenset(greedy)
    out: list[str] = []
    current = ""
    waits = False  # the option has no value yet; if none follows, the parser reports it
    for i, word in enumerate(args):
        if word in wanted or word == "--" or (word.startswith("-") and word != "-"):
            if waits:
                out.append(current)
            current, waits = (word, True) if word in wanted else ("", False)
            if word == "--":
                return [*out, *args[i:]]
            if not current:
                out.append(word)
        else:
            out += [current, word] if current else [word]
            waits = False
    return [*out, current] if waits else out
