"""``advisor compare``, before against after or engines side by side; ``moe``, learned against perfect
routing; ``baseline``, diagnoses kept by name to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from advisor.cli import deliver
from advisor.cli.app import HELP, GreedyCommand, argument, option, switch, takes, verb_group
from advisor.cli.messages import message
from advisor.cli.paths import hold_pipes
from advisor.config import Settings
from advisor.errors import InputError, invalid_choice
from advisor.model.options import format_names, one_of
from advisor.reports.output_file import STDOUT, write_into_folder

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.pipeline.compare import CompareOptions
    from advisor.reports.experiment_blocks import Document

Texts = list[str] | None


class _Sides(GreedyCommand):
    greedy: ClassVar[frozenset[str]] = frozenset(("--before", "--after", "--learned", "--perfect"))


compare_app = typer.Typer(add_completion=False, rich_markup_mode=None)
moe_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@compare_app.command("compare", cls=_Sides, context_settings=HELP)
@takes(
    "sources before after context tokens frameworks throughput batch gate noise_floor fail_on folder "
    "window nvtx phase rules param engine redact format output html xlsx force quiet verbose",
    files=("folder",),
    fail_on=one_of("Exit 1 for it, and for not-comparable.", "regression"),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def compare(
    settings: Settings,
    sources: Texts = argument("BEFORE AFTER", None),
    before: Texts = option("TRACE...", "Several captures of the one side."),
    after: Texts = option("TRACE...", "Several captures of the other side."),
    context: bool = switch("--context", "SHORT LONG: which operations grow with the context."),
    tokens: str | None = option("SHORT,LONG", "Context lengths, for --context."),
    frameworks: bool = switch("--frameworks", "[NAME=]TRACE...: serving engines side by side."),
    throughput: Texts = option("NAME=TOK_S", "Measured throughput, for --frameworks."),
    batch: Texts = option("NAME=N", "Sequences a step, for --frameworks."),
    gate: str | None = option("PCT", "Slow-down that is a regression (5 %)."),
    noise_floor: str | None = option("PCT", "What must be certain of it (2 %)."),
) -> None:
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
    named = [*(sources or ()), *(before or ()), *(after or ())]
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
    _deliver(document, settings)
    if document.kind == "comparison":
        raise typer.Exit(_gate(document, settings.fail_on))


@moe_app.command("moe", cls=_Sides, context_settings=HELP)
@takes(
    "runs learned perfect unit metric traces param redact format output html xlsx force quiet verbose",
    files=("folder",),
    format=deliver.formats("Kind of report."),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def moe(
    settings: Settings,
    runs: Texts = argument("[LEARNED PERFECT]", None),
    learned: Texts = option("RUN...", "Several runs with the learned router."),
    perfect: Texts = option("RUN...", "Several runs with perfect routing."),
    unit: str | None = option("tok/s|req/s|ms", "What bare numbers are."),
    metric: str | None = option("NAME", "Compare this number of the reports."),
    traces: tuple[str, str] | None = option("LEARNED PERFECT", "Captures of both: expert kernels, balance."),
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

        deliver.show(router_help(moe_router().model_dump()))
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
    _deliver(document, settings)


def _deliver(document: Document, settings: Settings) -> None:
    """Print a document of this family, or write it to its files."""
    from advisor.reports.experiment_blocks import report, workbook

    made = report(document, settings.verbosity)
    deliver.save(made, "html", settings.html, settings.force)
    if settings.xlsx is not None:
        deliver.write_bytes(workbook(document), settings.xlsx, settings.force)
    if STDOUT not in (settings.html, settings.xlsx):
        deliver.deliver(made, settings)


def _gate(document: Comparison, fail_on: str | None) -> int:
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
    try:
        value = float(plain)
    except ValueError:
        raise InputError(f"{option}: invalid percentage '{text}'; expected 5% or 0.05") from None
    share = value / 100 if "%" in text or value >= 1 else value
    if not 0 <= share < 10:
        raise InputError(f"{option}: {text} is out of range; write 5% or 0.05")
    return share


def sides(
    sources: Texts, before: Texts, after: Texts, names: str = "BEFORE AFTER"
) -> tuple[list[str], list[str]]:
    """The two sides: two sources, or the words after --before and --after."""
    given, left, right = list(sources or ()), list(before or ()), list(after or ())
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
    given = list(sources or ())
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
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            out[name] = float(value)
        except ValueError:
            out[name] = 0.0
        if not name or out[name] <= 0:
            raise InputError(f"{option} {text}: write NAME=NUMBER")
    return out


def lengths(text: str | None) -> tuple[int, int] | None:
    """``1,2048`` -> (1, 2048)"""
    if text is None:
        return None
    parts = text.replace(" ", "").split(",")
    if len(parts) != 2 or not all(p.isdigit() for p in parts) or int(parts[0]) >= int(parts[1]):
        raise InputError(f"--tokens: '{text}' is not SHORT,LONG in tokens, such as 1,2048")
    return int(parts[0]), int(parts[1])


# --- kept diagnoses -----------------------------------------------------------------------------

baseline_app = verb_group("Keep diagnoses by name.")


@baseline_app.command("save")
@takes(
    "name source folder window nvtx phase redact force",
    files=("folder",),
    force="Replace what has this name.",
)
def save_baseline(settings: Settings, name: str = argument("NAME"), source: str = argument("TRACE")) -> None:
    """Save the diagnosis of TRACE (a capture, or a diagnosis saved before) under NAME."""
    from advisor.compare import store
    from advisor.pipeline.compare import CompareOptions, load
    from advisor.reports import json_report
    from advisor.reports.listings import baseline

    folder, force = settings.folder, settings.force
    path = store.path_of(name, folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; expected a folder of baselines")
    if path.is_file() and not force:
        raise InputError(f"{path} exists; add --force to replace it")
    hold_pipes([source])
    with deliver.Progress(name) as progress:
        found = load(source, CompareOptions(settings, folder), progress)
    write_into_folder(path, json_report.render(found), force)
    deliver.show(baseline(f"{name}, saved as {path}", found))


@baseline_app.command("list")
@takes("folder format output force", files=("folder",), format=deliver.formats("Kind of list."))
def list_baselines(settings: Settings) -> None:
    """One line a baseline: name, capture, steps, verdict."""
    from advisor.compare import store
    from advisor.reports.listings import BaselineList, SavedBaseline, baselines

    deliver.check_files(settings)
    entries = store.entries(settings.folder)
    found = tuple(SavedBaseline(name=name, diagnoses=done, fault=fault) for name, done, fault in entries)
    listed = BaselineList(folder=str(settings.folder), baselines=found)
    deliver.deliver_one(listed, baselines, "Baselines", settings)


@baseline_app.command("show")
@takes(
    "name folder format output force verbose",
    files=("folder",),
    format=deliver.formats("Kind of report.", "findings"),
)
def show_baseline(settings: Settings, name: str = argument("NAME")) -> None:
    """Print the diagnosis that is saved under NAME."""
    from advisor.compare import store
    from advisor.reports.diagnosis_blocks import TextOptions, report

    deliver.check_files(settings)
    found = store.named(name, settings.folder)
    deliver.deliver(report(found, TextOptions(verbosity=settings.verbosity)), settings)
