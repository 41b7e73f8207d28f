"""``advisor explain CODE``: what a rule looks at and what to do; with --trace, why it fired there
or why not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli import flags
from advisor.cli.flags import Text
from advisor.config import CHOICES


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", hidden=True)],
    trace: Annotated[
        Path | None, typer.Option("--trace", "-t", metavar="TRACE", help="Why it fired there.")
    ] = None,
    window: Annotated[Text, _text("FROM/TO", "As for diagnose, with --trace.")] = None,
    nvtx: Annotated[Text, _text("RANGE[@DOMAIN][/N]", "As for diagnose.")] = None,
    phase: Annotated[Text, _text("|".join(CHOICES["phase"]), "As for diagnose.")] = None,
    weight_bytes: Annotated[Text, _text("N|config.json", "As for diagnose.")] = None,
    serving_engine: Annotated[Text, _text("NAME", "As for diagnose.")] = None,
    rules: flags.Rules = None,
    param: flags.Params = None,
    engine: Annotated[Text, _text("|".join(CHOICES["engine"]), "As for diagnose.")] = None,
    format: Annotated[Text, _text("text|json", "Kind of answer, with --trace.")] = None,
    output: flags.Output = None,
    force: flags.Force = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every place, branch and number.")
    ] = False,
) -> None:
    """Explain a rule, by CODE or cause: what, why, when harmless, how to fix, how to verify.

    With --trace: why it fired in that capture, down to the facts with both numbers and where they
    come from; or why not and how far it missed; or what is missing and what would supply it.
    """
    given = {
        "window": window,
        "nvtx": nvtx,
        "phase": phase,
        "weight_bytes": weight_bytes,
        "serving_engine": serving_engine,
        "rules": rules,
        "param": param,
        "engine": engine,
    }
    if trace is None:
        needing = {**given, "format": format, "output": output, "rules": None}
        _page(code, [Path(r) for r in rules or ()], [n for n, v in needing.items() if v])
        return
    _answer(code, trace, given, format or "text", output, force, int(verbose))


def _page(code: str, rules: list[Path], needing: list[str]) -> None:
    """The rule in words; reads one file and nothing else."""
    from advisor.cli.output import make_page, print_page
    from advisor.engine.load import builtin_dir, load_rule
    from advisor.errors import InputError
    from advisor.knowledge.files import references
    from advisor.reports.rule_text import explain as write

    if needing:
        raise InputError(
            f"--{needing[0].replace('_', '-')} asks about a capture; add --trace TRACE"
        )
    rule = load_rule(code, builtin_dir(), *rules)
    page = make_page()
    write(page, rule, references())
    print_page(page)


def _answer(
    code: str,
    trace: Path,
    given: dict[str, Any],
    format: str,
    output: Path | None,
    force: bool,
    verbosity: int,
) -> None:
    from advisor.cli.deliver import check_output, deliver
    from advisor.cli.progress import Progress
    from advisor.cli.report import options_of
    from advisor.config import settle
    from advisor.pipeline.explain import explain
    from advisor.reports.explanation_text import explanation

    output = check_output(format, output, force, trace)
    options = options_of(settle(given))
    with Progress(trace.name) as progress:
        found = explain(trace, code, options, progress)
    deliver(found, lambda page: explanation(page, found, verbosity), format, output, force)
