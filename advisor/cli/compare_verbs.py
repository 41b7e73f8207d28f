"""``advisor compare``, before against after or engines side by side; ``moe``, learned against perfect
routing; ``baseline``, diagnoses kept by name to compare with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from advisor.cli import deliver
from advisor.cli.messages import message
from advisor.cli.options import COMMON, NAME_OR_FILE, Several, Verb, Verbs, takes
from advisor.cli.paths import hold_pipes
from advisor.config import Settings
from advisor.errors import InputError, invalid_choice
from advisor.model.options import format_names, one_of
from advisor.numerals import read_float, read_int
from advisor.reports.output_file import STDOUT, write_into_folder

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.pipeline.compare import CompareOptions
    from advisor.reports.experiment_blocks import Document

Texts = Sequence[str]


@click.command(cls=Verb, common=f"before after context frameworks gate {COMMON}")
@click.argument("sources", metavar="BEFORE AFTER", nargs=-1, type=NAME_OR_FILE)
@click.option("--before", cls=Several, metavar="TRACE...", help="Several captures of the one side.")
@click.option("--after", cls=Several, metavar="TRACE...", help="Several captures of the other side.")
@click.option("--context", is_flag=True, help="SHORT LONG: which operations grow with the context.")
@click.option("--tokens", metavar="SHORT,LONG", help="Context lengths, for --context.")
@click.option("--frameworks", is_flag=True, help="[NAME=]TRACE...: serving engines side by side.")
@click.option(
    "--throughput", multiple=True, metavar="NAME=TOK_S", help="Measured throughput, for --frameworks."
)
@click.option("--batch", multiple=True, metavar="NAME=N", help="Sequences a step, for --frameworks.")
@click.option("--gate", metavar="PCT", help="Slow-down that is a regression (5 %).")
@click.option("--noise-floor", metavar="PCT", help="Part of it that must be certain (2 %).")
@takes(
    "fail_on folder window nvtx phase rules param engine redact format output html xlsx force quiet verbose",
    files=("folder",),
    fail_on=one_of("Exit 1 for it, and for not-comparable.", "regression"),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def compare(
    settings: Settings,
    sources: Texts,
    before: Texts,
    after: Texts,
    context: bool,
    tokens: str | None,
    frameworks: bool,
    throughput: Texts,
    batch: Texts,
    gate: str | None,
    noise_floor: str | None,
) -> int:
    """Compare two sides: what changed, by how much, and is it more than noise?

    Each source is a capture (any format that advisor reads), a diagnosis saved with --format json,
    or the name of a baseline. Several captures a side show the real noise:
    --before A1 A2 --after B1 B2.
    """
    from advisor.pipeline import compare as run

    plain = not (context or frameworks)
    if context and frameworks:
        raise InputError("--context and --frameworks answer different questions; give one")
    if settings.fail_on and not plain:
        raise InputError("--fail-on regression judges before against after; nothing else")
    named = [*sources, *before, *after]
    formats = format_names("findings" if plain else "document")
    if settings.format not in formats:
        raise invalid_choice("--format", settings.format, formats)
    deliver.check_files(settings, list(map(Path, named)))
    drawn = plain and (settings.html is not None or settings.format == "html")
    options = _options(settings, gate, noise_floor, drawn)
    document: Document
    with deliver.Progress("compare") as progress:
        if frameworks:
            columns = engines(sources, before, after)
            hold_pipes(source for _, source in columns)
            rates, batches = numbers(throughput, "--throughput"), numbers(batch, "--batch")
            document = run.frameworks(columns, rates, batches, settings.phase, options, progress)
        else:
            both = sides(sources, before, after, "SHORT LONG" if context else "BEFORE AFTER")
            hold_pipes(both[0] + both[1])
            if context:
                document = run.context(*both, lengths(tokens), options, progress)
            else:
                document = run.compare(*both, options, progress)
    deliver_document(document, settings)
    return gate_code(document, settings.fail_on) if document.kind == "comparison" else 0


@click.command(cls=Verb)
@click.argument("runs", metavar="[LEARNED PERFECT]", nargs=-1, type=NAME_OR_FILE)
@click.option("--learned", cls=Several, metavar="RUN...", help="Several runs with the learned router.")
@click.option("--perfect", cls=Several, metavar="RUN...", help="Several runs with perfect routing.")
@click.option("--unit", metavar="tok/s|req/s|ms", help="Unit of plain numbers.")
@click.option("--metric", metavar="NAME", help="Compare this number of the reports.")
@click.option(
    "--traces",
    nargs=2,
    type=NAME_OR_FILE,
    metavar="LEARNED PERFECT",
    help="Captures of both: expert kernels, balance.",
)
@takes(
    "param redact format output html xlsx force quiet verbose",
    files=("folder",),
    format=deliver.formats("Kind of report."),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def moe(
    settings: Settings,
    runs: Texts,
    learned: Texts,
    perfect: Texts,
    unit: str | None,
    metric: str | None,
    traces: tuple[str, str] | None,
) -> None:
    """Does uneven routing hold a mixture of experts back?

    LEARNED and PERFECT are reports of trtllm-bench (JSON or text), vllm bench, sglang, genai-perf
    or CSV, several of a side with commas between, or numbers with --unit. Without them it prints
    the two commands to run.
    """
    from advisor.pipeline import compare as run

    if not (runs or learned or perfect):
        if traces:
            raise InputError(
                "--traces shows the experts beside the throughput of both runs; give their reports "
                "as well: advisor moe LEARNED PERFECT --traces A B"
            )
        from advisor.knowledge.verb_files import moe_router
        from advisor.reports.experiment_blocks import router_help

        deliver.show(router_help(to_builtins(moe_router())))
        return
    try:
        left, right = sides(runs, learned, perfect)
    except InputError:
        raise InputError(
            "give LEARNED and PERFECT, or --learned RUN... --perfect RUN...; without any of them "
            "the commands to run are printed"
        ) from None
    deliver.check_files(settings, list(map(Path, left + right)))
    hold_pipes([*(part.strip() for side in left + right for part in side.split(",")), *(traces or ())])
    with deliver.Progress("moe") as progress:
        document = run.router(left, right, unit, metric, traces, _options(settings), progress)
    deliver_document(document, settings)


def deliver_document(document: Document, settings: Settings) -> None:
    """Print a document of this family, or write it to its files."""
    from advisor.reports.experiment_blocks import report

    made = report(document, settings.verbosity)
    deliver.save(made, "html", settings.html, settings.force)
    if settings.xlsx is not None:
        from advisor.reports.workbook.experiments import render

        deliver.write_bytes(render(document), settings.xlsx, settings.force)
    if STDOUT not in (settings.html, settings.xlsx):
        deliver.deliver(made, settings)
    deliver.name_files(settings, review=False)


def gate_code(document: Comparison, fail_on: str | None) -> int:
    """1 for a regression, and if nothing can be concluded: a gate never passes silently."""
    if fail_on is None:
        return 0
    if document.verdict in ("regression", "not-comparable"):
        message(f"gate failed: {document.summary}")
        return 1
    for doubt in document.doubts:
        message(f"gate passed, but weakly: {doubt}")
    return 0


# --- what was typed, as the sides and options of a comparison ------------------------------------

#: Rules that have a gate and a noise floor.
_GATED = ("CMP101", "CMP104", "CMP105")


def _options(
    settings: Settings, gate: str | None = None, noise_floor: str | None = None, drawn: bool = False
) -> CompareOptions:
    """Raises InputError for a gate or noise floor that is not a percentage."""
    from advisor.pipeline.compare import CompareOptions

    thresholds: dict[tuple[str, str], Any] = {}
    for name, text in (("gate", gate), ("noise_floor", noise_floor)):
        if text is not None:
            share = percent(text, f"--{name.replace('_', '-')}")
            thresholds.update({(code, name): share for code in _GATED})
    return CompareOptions(settings, settings.folder, thresholds, drawn=drawn)


def percent(text: str, option: str) -> float:
    """``5``, ``5%`` and ``0.05`` are all five per cent."""
    plain = text.strip().removesuffix("%").strip()
    if (value := read_float(plain, commas=False)) is None:
        raise InputError(f"{option}: invalid percentage '{text}'; expected 5% or 0.05")
    share = value / 100 if "%" in text or value >= 1 else value
    if not 0 <= share < 10:
        raise InputError(f"{option}: {text} is out of range; write 5% or 0.05")
    return share


def sides(
    sources: Texts, before: Texts, after: Texts, names: str = "BEFORE AFTER"
) -> tuple[list[str], list[str]]:
    """The two sides: two sources, or the words after --before and --after."""
    given, left, right = list(sources), list(before), list(after)
    if left or right:
        # One side by option, the other as a plain argument.
        if len(given) == 1 and not left:
            left, given = given, []
        elif len(given) == 1 and not right:
            right, given = given, []
        if given or not left or not right:
            raise InputError("give both --before and --after, and no source besides")
        return left, right
    if len(given) != 2:
        hint = "" if len(given) < 2 else "; several captures a side: --before A1 A2 --after B1 B2"
        raise InputError(f"expected two captures ({names}), got {len(given)}{hint}")
    return [given[0]], [given[1]]


def engines(sources: Texts, before: Texts, after: Texts) -> list[tuple[str | None, str]]:
    """``NAME=TRACE`` or ``TRACE`` for each column."""
    if before or after:
        raise InputError("--frameworks takes captures side by side, not --before and --after")
    given = list(sources)
    if len(given) < 2:
        raise InputError("--frameworks: give two or more captures, [NAME=]TRACE each")
    out: list[tuple[str | None, str]] = []
    for text in given:
        name, _, source = text.partition("=")
        named = name and source and not Path(text).exists()
        out.append((name, source) if named else (None, text))
    return out


def numbers(texts: Texts, option: str) -> dict[str, float]:
    """``NAME=31.7`` -> {"NAME": 31.7}"""
    out = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        out[name] = read_float(value, commas=False) or 0.0
        if not name or not out[name] > 0:
            raise InputError(f"{option} {text}: write NAME=NUMBER")
    return out


def lengths(text: str | None) -> tuple[int, int] | None:
    """``1,2048`` -> (1, 2048)"""
    if text is None:
        return None
    short, _, long = (part.strip() for part in text.partition(","))
    low, high = (read_int(part) if part.isdecimal() else None for part in (short, long))
    if low is None or high is None or low >= high:
        raise InputError(f"--tokens: '{text}' is not SHORT,LONG in tokens, such as 1,2048")
    return low, high


# --- kept diagnoses -----------------------------------------------------------------------------


@click.group(cls=Verbs)
def baseline() -> None:
    """Keep diagnoses by name."""


@baseline.command("save")
@click.argument("name", metavar="NAME")
@click.argument("sources", metavar="TRACE...", nargs=-1, type=NAME_OR_FILE)
@takes("folder window nvtx phase redact force", files=("folder",), force="Replace what has this name.")
def save_baseline(settings: Settings, name: str, sources: Texts) -> None:
    """Save the diagnosis of TRACE (a capture, the ranks of a job or their folder, or a diagnosis saved
    before) under NAME."""
    from advisor.comparison import store
    from advisor.pipeline.compare import CompareOptions, load
    from advisor.pipeline.inputs import as_job, quietly, several
    from advisor.reports import json_report, listings

    folder, force = settings.folder, settings.force
    source = sources[0] if sources else None
    there = source is not None and (Path(source).exists() or store.find(source, folder) is not None)
    if Path(name).exists() and not there and source != "-":
        right = shlex.join([source or "NAME", name])
        raise InputError(f"the name comes first, then the capture: advisor baseline save {right}")
    if source is None:
        raise InputError(f"TRACE is missing: advisor baseline save {shlex.quote(name)} TRACE")
    path = store.path_of(name, folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; expected a folder of baselines")
    if path.is_file() and not force:
        raise InputError(f"{path} exists; add --force to replace it")
    hold_pipes(sources)
    ranks = as_job(several(list(map(Path, sources))).inputs) if len(sources) > 1 else None
    if len(sources) > 1 and ranks is None:
        raise InputError(f"takes one capture, or the ranks of one job, not {len(sources)} captures")
    with deliver.Progress(name) as progress:
        if ranks is not None:
            found = tuple(ranks.read(quietly(settings, progress)).diagnoses)
        else:
            found = load(source, CompareOptions(settings, folder), progress)
    write_into_folder(path, json_report.render(found), force)
    deliver.show(listings.baseline(f"{name}, saved as {path}", tuple(map(listings.in_short, found))))


@baseline.command("list")
@takes("folder format output force", files=("folder",), format=deliver.formats("Kind of list."))
def list_baselines(settings: Settings) -> None:
    """One line a baseline: name, capture, steps, verdict."""
    from advisor.comparison import store
    from advisor.reports.listings import BaselineList, SavedBaseline, baselines, in_short

    deliver.check_files(settings)
    entries = store.entries(settings.folder)
    found = tuple(
        SavedBaseline(name=n, entries=tuple(map(in_short, done)), fault=f) for n, done, f in entries
    )
    listed = BaselineList(folder=str(settings.folder), baselines=found)
    deliver.deliver_one(listed, baselines, "Baselines", settings)


@baseline.command("show")
@click.argument("name", metavar="NAME")
@takes(
    "folder format output force verbose",
    files=("folder",),
    format=deliver.formats("Kind of report.", "findings"),
)
def show_baseline(settings: Settings, name: str) -> None:
    """Print the diagnosis that is saved under NAME."""
    from advisor.comparison import store
    from advisor.reports.diagnosis_blocks import TextOptions, report

    deliver.check_files(settings)
    found = store.named(name, settings.folder)
    deliver.deliver(report(found, TextOptions(verbosity=settings.verbosity)), settings)
