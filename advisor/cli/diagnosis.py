"""``advisor diagnose``: captures in, ranked advice out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.cli.deliver import Progress, check_files, deliver, name_files, save, write_bytes
from advisor.cli.messages import errors, exit_code, message
from advisor.cli.paths import hold_pipes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.pipeline import gate
from advisor.pipeline.captures import diagnose_all
from advisor.pipeline.inputs import Given, How, several
from advisor.reading import parse_saved, read_text, similar
from advisor.reports.blocks import Report
from advisor.reports.output_file import STDOUT

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis
    from advisor.model.review import History, Review


def diagnose(settings: Settings, traces: Sequence[Path], review: Path | None = None) -> int:
    """Captures and folders of captures in, the report on stdout or in a file; the exit code."""
    if not traces and settings.gpu_metrics:  # only the log is judged
        traces = [settings.gpu_metrics]
        settings = replace(settings, gpu_metrics=None)
    if not traces:
        raise InputError("no TRACE was given; see 'advisor diagnose --help'")
    hold_pipes(traces)
    return report(several(traces, settings.pair), settings, review, words=traces)


def report(
    given: Given,
    settings: Settings,
    review: Path | None = None,
    keep: Callable[[Sequence[Diagnosis]], None] | None = None,
    words: Sequence[Path] = (),
) -> int:
    """Diagnose every capture, print or write the reports; returns the exit code. `keep` is given the
    diagnoses before any is printed; `words` are the captures as typed, if not as read."""
    saved = _baseline(settings)
    html, xlsx, force = settings.html, settings.xlsx, settings.force
    check_files(settings, given.paths)
    before = _read_review(review, xlsx)
    chosen = settings.select or settings.ignore
    rules = gate.known_rules(settings.rules) if chosen else {}
    if chosen:
        gate.check_codes(settings.select, rules, "--select")
        gate.check_codes(settings.ignore, rules, "--ignore")
    how = how_of(settings, html is not None or settings.format == "html")
    found = diagnose_all(given.inputs, how, settings.ranks, settings.independent)
    errors(found.errors)
    done = found.diagnoses
    if not done:
        return 2
    if keep is not None:
        keep(done)
    if saved:
        from advisor.comparison.baseline import mark_all

        done = list(mark_all(done, saved, Path(settings.baseline or "")))
    done = [gate.select(d, settings.select, settings.ignore, rules) for d in done]
    shown_in_text = settings.format == "text" and settings.output in (None, STDOUT)
    again = _again(given, words, settings) if shown_in_text else ()
    made = _report(done, settings, (given.many or len(done) > 1) and not found.job, again)
    save(made, "html", html, force)
    if xlsx is not None:
        _write_workbook(done, xlsx, before, force)
    if STDOUT not in (html, xlsx):
        deliver(made, settings)
    name_files(settings)
    if found.errors:
        return 2
    new, worse = settings.fail_on_new, settings.fail_on_worse
    return exit_code(gate.failure(done, settings.fail_on, new, worse, folder=settings.folder))


def how_of(settings: Settings, drawn: bool = False) -> How:
    """How the captures are read, with the progress on stderr."""
    return How(settings, drawn, settings.jobs, settings.dask, Progress)


def _again(given: Given, typed: Sequence[Path], settings: Settings) -> tuple[str, ...]:
    """The commands that show a finding of this report, but for its number: with the captures as typed, and
    alone, which means the last report, where that can be kept."""
    from advisor.cli import last

    alone = ("advisor show",) if last.keep(given, settings) else ()
    if alone and last.chosen(settings):  # only that one has the options
        return alone
    pair = ["--together"] * settings.pair
    words = list(map(str, typed or given.paths))
    return (shlex.join(["advisor", "show", *pair, *words]), *alone)


def _report(done: Sequence[Diagnosis], settings: Settings, many: bool, again: tuple[str, ...] = ()) -> Report:
    if settings.format == "json" and settings.html is None:
        return Report(done, lambda _: (), many=many)  # JSON has no blocks, whose modules take time to import
    from advisor.reports.diagnosis_blocks import TextOptions, report

    ranking = settings.explain_ranking
    options = TextOptions(
        top=settings.top,
        verbosity=settings.verbosity,
        ranking=ranking,
        named=many,
        reader=settings.reader,
        show=again,
    )
    return report(done, options, many)


def _baseline(settings: Settings) -> tuple[Diagnosis, ...]:
    """The saved diagnoses to compare with, loaded first so that a bad path fails early."""
    if settings.baseline is None:
        if settings.fail_on_new or settings.fail_on_worse:
            flag = "--fail-on-new" if settings.fail_on_new else "--fail-on-worse"
            raise InputError(f"{flag} needs a --baseline FILE to tell what is {flag.rpartition('-')[2]}")
        return ()
    hold_pipes([settings.baseline])
    return gate.baseline(settings.baseline, settings.folder)


def _read_review(path: Path | None, xlsx: Path | None) -> Review | History | None:
    """Decisions of an earlier review: from its workbook or JSON, or a folder with a history of reviews."""
    if path is None:
        return None
    if xlsx is None:
        raise InputError("--review fills in a workbook; add --xlsx FILE")
    if not path.is_dir():
        return earlier_review(path)
    from advisor.comparison import baseline

    if not (found := baseline.read_history(path)).meetings:
        raise InputError(f"{path}: holds no history of reviews; see 'advisor review record'")
    return found


def earlier_review(path: Path) -> Review:
    """Decisions of a review: from its workbook, or the JSON of `advisor review import`."""
    from advisor.model.review import Review

    if path.suffix.lower() != ".json":
        from advisor.reports.workbook.review_sheet import read

        review = read(path, __version__)
        for problem in review.problems:
            message(f"note: {path}: {problem.cell}: {problem.text}")
        return review
    try:
        return Review.model_validate(parse_saved(read_text(path)))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{similar(path)}") from None
    except (OSError, ValueError) as fault:
        what = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: not what 'advisor review import' writes ({what})") from fault


def _write_workbook(
    done: Sequence[Diagnosis], xlsx: Path, before: Review | History | None, force: bool
) -> None:
    """The workbook with the checklist; after an earlier review it begins with what became of the findings."""
    from advisor.checklist.items import capture_facts, checklist
    from advisor.model.review import Review
    from advisor.reports.workbook import book

    listed = checklist(capture_facts(done))
    review = before if isinstance(before, Review) else None
    history = None if before is None else gate.since(before, done)
    write_bytes(book.render(done, listed, review, history, date.today().isoformat()), xlsx, force)
