"""Options of the verbs, shared ones (`advisor.config`) and their own; the values that the shell completes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from advisor.cli import messages
from advisor.config import CHOICES, FLAGS, SETTINGS, checked
from advisor.errors import AdvisorError
from advisor.model.options import Flag, Setting, declared


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
    from advisor.knowledge.capture_goals import capture_goals

    return capture_goals().engine_names()


def goal_names() -> list[str]:
    """Goals of a capture."""
    from advisor.knowledge.capture_goals import capture_goals

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
