"""``advisor diagnose`` and ``demo`` (the bundled capture); ``show``: one finding in full;
``explain``: a rule, or why it fired or not; ``rules``: list, check, test and document rules."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.completion import offer, rule_names, trace_or_rule
from advisor.cli.deliver import (
    Progress,
    check_files,
    check_traces,
    deliver,
    deliver_one,
    formats,
    with_pair,
    write_bytes,
)
from advisor.cli.messages import say
from advisor.cli.options import COMMON, NAME_OR_FILE, PATH, Several, Verb, Verbs, takes, typed
from advisor.config import Settings
from advisor.errors import InputError, RuleError, near
from advisor.reading import STDIN

if TYPE_CHECKING:
    from advisor.model.rules import RuleSpec


@click.command(cls=Verb, common=COMMON)
@click.argument("traces", metavar="TRACE...", nargs=-1, type=PATH)
@takes(
    "format output html xlsx force window nvtx phase weight_bytes unprofiled_step acceptance gpu_metrics "
    "gpu_metrics_offset log serving_engine together rules select ignore param engine baseline folder "
    "sensitivity redact explain_ranking fail_on fail_on_new fail_on_worse ranks independent jobs dask top "
    "for quiet verbose"
)
@click.option(
    "--review", type=PATH, metavar="FILE", help="Start from an earlier one, or a folder with a history."
)
def diagnose(settings: Settings, traces: Sequence[Path], review: Path | None) -> int:
    """Find out what holds the GPU back in one or more captures.

    TRACE is an Nsight Systems export (.sqlite, also .xz or .gz; a Parquet or Arrow folder), a
    report (.nsys-rep, where nsys is installed), a PyTorch profiler trace (.json, .json.gz), tables
    that `nsys stats` or `key_averages()` printed (text, CSV, JSON, several in one), a folder of
    these, or a diagnosis saved with --format json, to show it in another format; - reads standard input.

    Captures whose names (rank3.sqlite) or metadata say that they are ranks of one job get one
    diagnosis: who comes late, who waits. With --together an nsys capture gives the times, and a
    PyTorch trace of the same model the operators, sizes, modules and lines.

    Options may also stand in advisor.toml, or in pyproject.toml under [tool.advisor].
    """
    from advisor.cli.diagnosis import diagnose as run

    return run(settings, traces, review)


@click.command(cls=Verb)
@takes("format output engine force quiet verbose")
def demo(settings: Settings) -> int:
    """Diagnose the capture that ships with advisor."""
    from advisor.cli.diagnosis import report
    from advisor.knowledge.package_data import demo_capture
    from advisor.pipeline.inputs import Capture, Given

    # The shorter of both: the path is the title of the report, and part of the next command.
    path = str(demo_capture())
    return report(Given((Capture(Path(min(os.path.relpath(path), path, key=len))),)), settings)


@click.group(cls=Verbs)
def rules() -> None:
    """List, check, test and document rules."""


directories = click.argument("directories", metavar="[DIR...]", nargs=-1, type=PATH)


@rules.command("list")
@takes("rules format output force", files=(), format=formats("Kind of list."))
def list_(settings: Settings) -> None:
    """One line a rule: code, cause, title, kind."""
    from advisor.engine.load import builtin_dir, load_rules

    check_files(settings)
    deliver_list(load_rules(builtin_dir(), *settings.rules).active, settings)


def deliver_list(rules: Sequence[RuleSpec], settings: Settings) -> None:
    """One line a rule, in the requested format; JSON has each in full."""
    from advisor.reports.blocks import Report
    from advisor.reports.rule_blocks import lines

    deliver(Report(rules, lambda _: lines(rules), "Rules", many=True), settings)


@rules.command()
@directories
def check(directories: Sequence[Path]) -> None:
    """Check our rules, and those in DIR, against the catalogues; all problems at once."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.engine.cases import scaffold_texts
    from advisor.engine.lint import check_rules
    from advisor.engine.lint_names import Catalogues
    from advisor.engine.load import builtin_dir
    from advisor.engine.remarks import remarks
    from advisor.gain.whatifs import catalogue
    from advisor.knowledge.engine_signs import recommendation_ids
    from advisor.knowledge.facts import evidence_tables, impact_parts, joined_fields
    from advisor.knowledge.files import evidence, references
    from advisor.model.numbers import amount

    known = Catalogues(
        facts=EVERY_FACT,
        entities=joined_fields(),
        tables=evidence_tables(),
        what_ifs={n: {k: p.choices for k, p in w.params.items()} for n, w in catalogue().whatifs.items()},
        actions=recommendation_ids(),
        parts=impact_parts(),
        references=references(),
        evidence=evidence(),
    )
    found = check_rules(known, builtin_dir(), *directories)
    noted = remarks(found, recommendation_ids(), scaffold_texts())
    for remark in noted:
        say(str(remark))
    also = f", {amount(len(noted), 'remark')}" if noted else ""
    say(f"{amount(len(found), 'rule')} checked, no problem found{also}")


@rules.command()
@click.argument("code", metavar="CODE")
@click.option(
    "--into",
    "directory",
    type=PATH,
    default=Path("rules/own"),
    metavar="DIR",
    help="Folder of the two files (default rules/own).",
)
@click.option(
    "--fact",
    default="launch.idle_ratio",
    metavar="NAME",
    help="The number that it asks for (default launch.idle_ratio); see advisor facts.",
)
@click.option("--cause", metavar="NAME", help="Name of the cause, such as queue-full.")
@takes("force", files=())
def new(settings: Settings, code: str, directory: Path, fact: str, cause: str | None) -> None:
    """Write a rule and its cases, which pass check and test, as a start."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.engine.cases import new_rule
    from advisor.engine.load import load_rules
    from advisor.knowledge.package_data import CASES_SUFFIX
    from advisor.model.facts import subject_of
    from advisor.model.rules import CODE_PATTERN

    if not re.match(CODE_PATTERN, code):
        raise InputError(f"invalid code '{code}'; expected three to eight capitals and three digits")
    name = cause or f"found-by-{code.lower()}"
    if not re.match(r"^[a-z0-9]+(-[a-z0-9]+)*$", name):
        raise InputError(
            f"--cause: invalid value '{name}'; expected words of small letters joined by hyphens"
        )
    known = load_rules()
    for taken, what in ((known.by_code.get(code), code), (known.by_cause.get(name), name)):
        if taken is not None:
            raise InputError(f"{what} belongs to our rule {taken.code} ({taken.title})")
    spec = EVERY_FACT.get(fact)
    if spec is None:
        raise InputError(f"--fact: unknown fact '{fact}'; {near(fact, EVERY_FACT, 'correct the name')}")
    if spec.unit in ("text", "flag") or subject_of(fact) != "trace":
        raise InputError(f"--fact: invalid value '{fact}'; expected a fact that is a number of one trace")
    directory.mkdir(parents=True, exist_ok=True)
    texts = new_rule(code, name, fact, spec)
    paths = [directory / f"{code}.yaml", directory / f"{code}{CASES_SUFFIX}"]
    for path, text in zip(paths, texts, strict=True):
        write_bytes(text.encode(), path, settings.force)
    say(f"{paths[0]}\n{paths[1]}")
    say(f"Next: advisor rules check {directory}; advisor rules test {directory}")


@rules.command("test")
@directories
@takes("engine", files=(), engine="Inference engine (default python).")
def run_cases(settings: Settings, directories: Sequence[Path]) -> None:
    """Run the cases beside our rules, and beside those in DIR."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.engine.cases import run_all
    from advisor.engine.load import builtin_dir, load_rules, refuse
    from advisor.model.numbers import amount

    loaded = load_rules(builtin_dir(), *directories)
    units = {name: spec.unit for name, spec in EVERY_FACT.items()}
    runs = run_all(loaded, engine=settings.engine or "python", units=units)
    refuse(problem for run in runs for problem in run.all_problems)
    cases = amount(sum(len(run.results) for run in runs), "case")
    say(f"{cases} of {amount(len(runs), 'rule')} passed")


@rules.command()
@takes("output force", files=())
def schema(settings: Settings) -> None:
    """The JSON Schema of a rule file, for editors."""
    from advisor.model.file_schema import schema_model
    from advisor.model.rules import RuleSpec

    text = json.dumps(schema_model(RuleSpec).model_json_schema(), indent=2)
    write_bytes(f"{text}\n".encode(), settings.output, settings.force)


@rules.command()
@takes("rules output force", files=())
def docs(settings: Settings) -> None:
    """The documentation of all rules in Markdown."""
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.markdown import write
    from advisor.reports.rule_blocks import index, page

    found = load_rules(builtin_dir(), *settings.rules).active
    pages = (write(page(rule, references()), 2) for rule in sorted(found, key=lambda r: r.code))
    write_bytes("\n".join([write(index(found), 1), *pages]).encode(), settings.output, settings.force)


@click.command(cls=Verb)
@click.argument("code", metavar="[CODE]", required=False, shell_complete=offer(rule_names))
@click.option("--trace", "-t", "traces", cls=Several, metavar="TRACE...", help="Why it fired there.")
@takes(
    "together jobs window nvtx phase weight_bytes serving_engine rules param engine redact format output "
    "force verbose",
    format=formats("Kind of answer."),
    verbose="Every place, branch and number.",
)
def explain(settings: Settings, code: str | None, traces: Sequence[str]) -> None:
    """Explain a rule, by CODE, cause or words of its title: what, why, when harmless, how to fix, how
    to verify. Without CODE: list the rules.

    With --trace: why it fired in that capture, down to the facts with both numbers and where they
    come from; or why not and how far it missed; or what is missing and what would supply it.
    """
    if traces:
        given = list(traces)
        if code is None and len(given) > 1 and not _is_there(given[-1]):
            code = given.pop()
        if code is None:
            raise InputError("--trace needs a CODE; 'advisor explain' lists them")
        _answer(code, list(map(Path, given)), settings)
        return
    if needing := typed("rules", "verbose", "format", "output", "force", "together", "jobs"):
        raise InputError(f"{needing[0]} asks about a capture; add --trace TRACE")
    _page(code, settings)


def _page(code: str | None, settings: Settings) -> None:
    """The rule in words, which reads one file only; or the list of rules to choose from."""
    from advisor.engine.load import builtin_dir, load_rule, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.rule_blocks import explain as blocks

    places = (builtin_dir(), *settings.rules)
    check_files(settings)
    try:
        found = [load_rule(code, *places)] if code else load_rules(*places).active
    except RuleError:
        if not (found := load_rules(*places).with_words(code or "")):
            raise
    if not code or len(found) > 1:
        deliver_list(found, settings)
    else:
        (rule,) = found
        deliver_one(rule, blocks, rule.code, settings, references())


@click.command(cls=Verb)
@click.argument(
    "words", metavar="[TRACE...] [N|CODE]", nargs=-1, type=NAME_OR_FILE, shell_complete=trace_or_rule
)
@takes(
    "window nvtx phase weight_bytes unprofiled_step acceptance serving_engine rules param engine redact "
    "together jobs format output force verbose",
    format=formats("Kind of answer."),
    verbose="How sure, and why, as well.",
)
def show(settings: Settings, words: Sequence[str]) -> None:
    """Show one finding of a capture in full: its numbers, what proves it, where it is, what to do
    about it and how to verify that.

    N is the number of the finding in the diagnosis (1 without it), CODE a rule or cause; of one
    that found nothing the answer says why not, as `advisor explain CODE --trace TRACE`. TRACE is a
    capture, the ranks of a job or a saved diagnosis; without it, those of the last report.
    """
    from advisor.cli import last

    traces, code = list(map(Path, words)), None
    if words and (len(words) > 1 or _may_be_rule(words[0])) and not _is_there(words[-1]):
        traces, code = traces[:-1], words[-1]
    if not traces:
        recalled = last.recall(settings)
        traces, settings = list(recalled.traces), recalled.settings
    _answer(code or "1", traces, settings, full=True)


def _may_be_rule(word: str) -> bool:
    """Whether it has the form of a number, a code or a cause."""
    return re.fullmatch(r"\d+|[A-Za-z]{3,8}\d{3}|[a-z0-9]+(-[a-z0-9]+)+", word) is not None


def _is_there(word: str) -> bool:
    return Path(word) == STDIN or Path(word).exists()


def _answer(code: str, traces: Sequence[Path], settings: Settings, full: bool = False) -> None:
    """The outcome of a rule for a capture, two recordings of one program, the ranks of a job or a saved
    diagnosis; in `full` with its findings."""
    from advisor.pipeline.explain import explain
    from advisor.reports.explanation_blocks import explanation

    check_traces(settings, traces)
    given, settings = with_pair(settings, traces)
    with Progress(traces[0].name) as progress:
        found = explain(given, code, settings, progress, settings.jobs)
    title = f"{found.code} {found.cause}"
    deliver_one(found, explanation, title, settings, settings.verbosity, full)
