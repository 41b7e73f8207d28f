"""What the shell completes, and the script that makes it ask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from advisor.cli.messages import say
from advisor.errors import AdvisorError, InputError
from advisor.model.options import Flag
from advisor.writing import replace_file

#: Set by the script of the shell when it asks.
VARIABLE = "_ADVISOR_COMPLETE"

Offer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]


def offer(names: Callable[[], Iterable[str]]) -> Offer:
    """Completes with those of the names that begin as what is typed."""

    def offered(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]

    return offered


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leaves it to the shell to complete a name of a file."""
    return [CompletionItem(incomplete, type="file")]


def rule_names() -> list[str]:
    """Codes and causes of the built-in rules."""
    from advisor.engine.load import load_rules

    known = load_rules().active
    return [r.code for r in known] + [r.cause for r in known]


def trace_or_rule(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Completes with rules where they begin as what is typed after a capture, else with files."""
    there = bool(ctx.params.get("words"))
    names = [name for name in rule_names() if there and incomplete and name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def rule_codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Rule codes for the last entry of a comma-separated list."""
    done = incomplete[: incomplete.rfind(",") + 1]
    codes = (f"{done}{name}" for name in rule_names() if name.isupper())
    return [CompletionItem(each) for each in codes if each.startswith(incomplete)]


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


def range_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of the NVTX ranges of the captures on the line, as far as these can be read."""
    from advisor.metrics.loaded.host import Ranges
    from advisor.sources.open import open_trace

    names: dict[str, None] = {}
    # Words before an option that has no value yet are not taken as arguments.
    for path in [*ctx.args, *(ctx.params.get("traces") or [ctx.params.get("trace")])]:
        try:
            with open_trace(path or "") as trace:
                names.update(dict.fromkeys(Ranges(trace).texts))
        except AdvisorError:
            continue  # no capture; the verb itself reports what is wrong with it
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


_OFFERED: Mapping[str, Offer] = {
    "nvtx": range_names,
    "serving_engine": offer(engine_names),
    "select": rule_codes,
    "ignore": rule_codes,
    "baseline": files,
    "weight_bytes": files,
}


def of_option(key: str, flag: Flag) -> Offer | None:
    """What completes the value of a shared option; None leaves that to its type."""
    names = (key, *(name[2:].replace("-", "_") for name in flag.short))
    listed = offer(lambda: flag.choices) if flag.choices else None
    return next((_OFFERED[name] for name in names if name in _OFFERED), listed)


def answer(command: click.Command) -> int | None:
    """Print what a shell asks for; the exit code, or None if none asks."""
    asked = os.environ.get(VARIABLE)
    return shell_complete(command, {}, "advisor", VARIABLE, asked) if asked else None


# --- the script -----------------------------------------------------------------------------------

#: Where a script goes, the file that loads it, and its lines there.
_PLACES = {
    "bash": (".bash_completions/advisor.sh", ".bashrc", "source '{}'"),
    "zsh": (".zfunc/_advisor", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/advisor.fish", None, ""),
}


def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """`--show-completion`: print the script for the shell of the user."""
    if wanted and not ctx.resilient_parsing:
        say(_script(ctx, _shell()).rstrip("\n"))
        ctx.exit()


def install(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """`--install-completion`: write the script to the home folder, and load it from there."""
    if wanted and not ctx.resilient_parsing:
        shell = _shell()
        place, loader, line = _PLACES[shell]
        path = Path.home() / place
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (_script(ctx, shell).encode(),))
        if loader is not None:
            _append(Path.home() / loader, line.format(path))
        say(f"{shell} completion installed in {path}; it takes effect in a new terminal")
        ctx.exit()


def _shell() -> str:
    """Raises InputError for a shell without completion."""
    path = os.environ.get("SHELL", "")
    name = Path(path).name
    if name not in _PLACES:
        raise InputError(f"SHELL={path}: no completion for this shell; expected {', '.join(_PLACES)}")
    return name


def _script(ctx: click.Context, shell: str) -> str:
    made: Any = get_completion_class(shell)
    return str(made(ctx.command, {}, "advisor", VARIABLE).source())


def _append(file: Path, line: str) -> None:
    """Add a line to a file that does not have it."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text:
        # It may be a link, as those who keep such files together have it.
        replace_file(Path(os.path.realpath(file)), ((f"{text}\n{line}\n" if text else f"{line}\n").encode(),))
