"""``advisor explain CODE``: what a rule looks at and what to do; with --trace, why it fired there
or why not. ``advisor show TRACE N|CODE``: one finding in full."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from advisor.cli import complete
from advisor.cli.deliver import check_one, check_output, deliver_one, formats
from advisor.cli.settings import argument, option, takes
from advisor.config import Settings
from advisor.errors import InputError, RuleError


@takes(
    "code trace together window nvtx phase weight_bytes serving_engine rules param engine redact format "
    "output force verbose",
    format=formats("Kind of answer."),
    verbose="Every place, branch and number.",
)
def explain(
    settings: Settings,
    given: list[str],
    code: str | None = argument("[CODE]", None, autocompletion=complete.rules),
    trace: list[Path] | None = option("TRACE", "Why it fired there.", None, "--trace", "-t"),
) -> None:
    """Explain a rule, by CODE, cause or words of its title: what, why, when harmless, how to fix, how
    to verify. Without CODE: list the rules.

    With --trace: why it fired in that capture, down to the facts with both numbers and where they
    come from; or why not and how far it missed; or what is missing and what would supply it.
    """
    if trace and code is None:
        raise InputError("--trace needs a CODE; 'advisor explain' lists them")
    if trace and code is not None:
        _answer(code, trace, settings)
        return
    about = ("rules", "verbose", "format", "output", "force", "together")
    if needing := [n for n in given if n not in about]:
        raise InputError(f"--{needing[0].replace('_', '-')} asks about a capture; add --trace TRACE")
    _page(code, settings)


def _page(code: str | None, settings: Settings) -> None:
    """The rule in words, which reads one file and nothing else; or the list of rules to choose from."""
    from advisor.cli.rules import deliver_list
    from advisor.engine.load import builtin_dir, load_rule, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.rule import explain as blocks

    places = (builtin_dir(), *settings.rules)
    check_output(settings)
    if not code:
        deliver_list(load_rules(*places).active, settings)
        return
    try:
        rule = load_rule(code, *places)
    except RuleError:
        found = load_rules(*places).with_words(code)
        if not found:
            raise
        if len(found) > 1:
            deliver_list(found, settings)
            return
        rule = found[0]
    deliver_one(rule, partial(blocks, rule, references()), rule.code, settings)


@takes(
    "trace code last window nvtx phase weight_bytes unprofiled_step acceptance serving_engine "
    "rules param engine redact together format output force verbose",
    format=formats("Kind of answer."),
    verbose="How sure, and why, as well.",
)
def show(
    settings: Settings,
    trace: Path = argument("TRACE"),
    code: str | None = argument("[N|CODE]", None, autocompletion=complete.rules),
    last: str | None = argument("", None, autocompletion=complete.rules),
) -> None:
    """Show one finding of a capture in full: its numbers, what proves it, where it is, what to do
    about it and how to verify that.

    N is the number of the finding in the diagnosis (1 without it), CODE a rule or cause; of one
    that found nothing the answer says why not, as `advisor explain CODE --trace TRACE`.
    """
    if last is not None and not settings.pair:
        raise InputError(
            "takes one capture and one N or CODE; for two recordings of one program add --together"
        )
    traces = [trace, *map(Path, [code] if settings.pair and code else [])]
    _answer((last if settings.pair else code) or "1", traces, settings, full=True)


def _answer(code: str, traces: list[Path], settings: Settings, full: bool = False) -> None:
    """What a rule makes of a capture, or of two recordings of one program; in `full` with its findings."""
    from advisor.cli.inputs import as_pair
    from advisor.cli.progress import Progress
    from advisor.pipeline.explain import explain
    from advisor.reports.explanation import explanation

    trace, settings = as_pair(traces, settings)
    check_one(settings, trace)
    with Progress(trace.name) as progress:
        found = explain(trace, code, settings, progress)
    blocks = partial(explanation, found, settings.verbosity, full)
    deliver_one(found, blocks, f"{found.code} {found.cause}", settings)
