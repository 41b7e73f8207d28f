"""Flags of settings on a verb: declared by `advisor.config`, placed and reworded by the verb."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from advisor.config import SETTINGS, Setting, of_flags, settle


def takes(
    *order: str, files: bool = True, **helps: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the flags of settings: `order` names them among the parameters of its own, as
    --help lists them; `helps` words some for this verb.

    The verb gets `settings`, in which configuration files count unless `files` is false, and, if it
    asks for that, `given`: the names of the flags that were typed.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb, eval_str=True).parameters
        parameters = [
            own[name].replace(kind=inspect.Parameter.KEYWORD_ONLY)
            if name in own
            else _parameter(name, SETTINGS[name], helps.get(name))
            for name in order
        ]

        def settled(**values: Any) -> None:
            flags = {name: values.pop(name) for name in order if name not in own}
            if "given" in own:
                values["given"] = [name for name, value in flags.items() if value]
            verb(settings=settle(flags) if files else of_flags(flags), **values)

        settled.__name__, settled.__doc__ = verb.__name__, verb.__doc__
        settled.__annotations__ = {p.name: p.annotation for p in parameters}
        settled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return settled

    return decorate


def _parameter(key: str, setting: Setting, help: str | None) -> inspect.Parameter:
    """One flag as typer wants it. One that was not given is None, False or an empty list."""
    flag = setting.flag
    kinds: dict[str, Any] = {"bool": bool, "int": int | None, "list": list[str] | None}
    option = typer.Option(
        f"--{key.replace('_', '-')}",
        *flag.short,
        metavar=flag.metavar or None,
        help=help or flag.help,
        min=flag.at_least,
        autocompletion=(lambda: list(flag.choices)) if flag.choices else None,
    )
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if setting.kind == "bool" else None,
        annotation=Annotated[kinds.get(setting.kind, str | None), option],
    )
