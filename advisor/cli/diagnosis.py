"""``advisor diagnose``: captures in, ranked advice out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import MISSING, fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.deliver import Progress, check_files, deliver, save, write_bytes
from advisor.cli.messages import errors, message
from advisor.config import Settings
from advisor.errors import AdvisorError, InputError, near
from advisor.reading import held, parse_saved, read_text, similar
from advisor.reports.output_file import STDOUT

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis, Finding
    from advisor.model.review import History, Review
    from advisor.reports.blocks import Report


def diagnose(settings: Settings, traces: Sequence[Path], review: Path | None = None) -> int:
    """Captures and folders of captures in, the report on stdout or in a file; the exit code."""
    from advisor.cli.paths import as_pair, expand

    if not traces and settings.gpu_metrics:  # only the log is judged
        traces = [settings.gpu_metrics]
        settings = replace(settings, gpu_metrics=None)
    if not traces:
        raise InputError("no TRACE was given; see 'advisor diagnose --help'")
    files = expand(traces, settings.pair)
    if settings.pair and not (len(files) == 1 < len(traces)):
        first, settings = as_pair(files, settings)
        files = [first]
    # A folder exported by nsys is one capture; any other one stands for those in it.
    many = len(files) > 1 or any(t.is_dir() and t not in files for t in traces)
    return report(files, settings, many, review)


def report(
    paths: Sequence[Path],
    settings: Settings,
    many: bool = False,
    review: Path | None = None,
    keep: Callable[[Sequence[Diagnosis]], None] | None = None,
) -> int:
    """Diagnose every capture, print or write the reports; returns the exit code. `keep` is given the
    diagnoses before any is printed."""
    saved = _baseline(settings)
    html, xlsx, force = settings.html, settings.xlsx, settings.force
    check_files(settings, paths)
    before = _read_review(review, xlsx)
    if settings.select or settings.ignore:
        known = known_codes(settings)
        check_codes(settings.select, known, "--select")
        check_codes(settings.ignore, known, "--ignore")
    done, failed, job = diagnosed(paths, settings, html is not None or settings.format == "html")
    if not done:
        return 2
    if keep is not None:
        keep(done)
    many = (many or len(done) > 1) and not job
    if saved:
        from advisor.compare.baseline import mark_all

        done = list(mark_all(done, saved, Path(settings.baseline or "")))
    done = [select(d, settings.select, settings.ignore) for d in done]
    made = _report(done, settings, many)
    save(made, "html", html, force)
    if xlsx is not None:
        _write_workbook(done, xlsx, before, force)
    if STDOUT not in (html, xlsx):
        deliver(made, settings)
    return 2 if failed else _verdict(done, settings)


def _report(done: Sequence[Diagnosis], settings: Settings, many: bool) -> Report:
    from advisor.reports.blocks import Report

    if settings.format == "json" and settings.html is None:
        return Report(done, lambda _: (), many=many)  # JSON has no blocks, whose modules take time to import
    from advisor.reports.diagnosis_blocks import TextOptions, report

    ranking = settings.explain_ranking
    options = TextOptions(top=settings.top, verbosity=settings.verbosity, ranking=ranking, named=many)
    return report(done, options, many)


def diagnosed(
    paths: Sequence[Path], settings: Settings, drawn: bool = False
) -> tuple[list[Diagnosis], bool, bool]:
    """A diagnosis of each capture, or one of the job whose ranks they are (then the last is true); the
    second is true if a capture could not be read. Saved diagnoses are read as they are. With `drawn` the
    diagnoses hold the events that a page shows."""
    saved = [path for path in paths if _is_saved(path)]
    if not saved and (found := _as_job(paths, settings)) is not None:
        return [found[0]], found[1], True
    done: list[Diagnosis] = []
    unread: list[str] = []
    for path in paths:
        try:
            done += _read(path, settings) if path in saved else [_one(path, settings, drawn)]
        except AdvisorError as error:
            if len(paths) == 1:
                raise
            unread.append(str(error))  # one bad file must not hide the results of the others
    errors(unread)
    return done, bool(unread), False


def _as_job(paths: Sequence[Path], settings: Settings) -> tuple[Diagnosis, bool] | None:
    """The diagnosis of a job, and whether a rank could not be read; None for independent captures."""
    if settings.ranks and settings.independent:
        raise InputError("--ranks and --independent contradict each other; give one of them")
    plan = None
    if len(paths) > 1:
        from advisor.ranks.reduction import recognise
        from advisor.sources.open import peek

        forced = True if settings.ranks else False if settings.independent else None
        plan, hint = recognise(paths, peek, forced)
        if hint is not None:
            message(f"note: {hint}")
    if plan is None:
        if settings.dask is not None:
            message("note: --dask reads the ranks of one job; these captures are read here")
        return None
    from advisor.pipeline.ranks import diagnose_ranks
    from advisor.pipeline.workers import runner

    if settings.sensitivity:
        message("note: --sensitivity looks at one capture at a time; it is left out here")
    lost: list[str] = []
    with Progress(f"{len(paths)} ranks") as progress:
        run = runner(settings.jobs, settings.dask, lambda n, of: progress(f"{n} of {of} read"))
        diagnosis = diagnose_ranks(plan.files, settings, run, lost.append)
    errors(lost)
    return diagnosis, bool(lost)


def _baseline(settings: Settings) -> tuple[Diagnosis, ...]:
    """The saved diagnoses to compare with, loaded first so that a bad path fails early."""
    if settings.baseline is None:
        if settings.fail_on_new or settings.fail_on_worse:
            flag = "--fail-on-new" if settings.fail_on_new else "--fail-on-worse"
            raise InputError(f"{flag} needs a --baseline FILE to tell what is {flag.rpartition('-')[2]}")
        return ()
    from advisor.cli.paths import hold_pipes
    from advisor.compare.baseline import read
    from advisor.compare.store import locate

    hold_pipes([settings.baseline])
    return read(locate(settings.baseline, settings.folder, "--baseline "))


def _is_saved(path: Path) -> bool:
    if path.suffix != ".json" and held(path) is None:
        return False
    from advisor.compare.store import is_saved

    return is_saved(path)


def _read(path: Path, settings: Settings) -> tuple[Diagnosis, ...]:
    """Diagnoses written by `--format json`."""
    from advisor.compare.store import read
    from advisor.model.options import Options

    found = read(path, settings.redact)
    if any(getattr(settings, f.name) != f.default for f in fields(Options) if f.default is not MISSING):
        message(f"note: {path}: a saved diagnosis; options of the analysis do not change it")
    return found


def _one(path: Path, settings: Settings, drawn: bool) -> Diagnosis:
    from advisor.pipeline.diagnose import diagnose

    with Progress(path.name) as progress:
        return diagnose(path, settings, progress, drawn)


def known_codes(settings: Settings) -> Collection[str]:
    """The codes of the built-in rules and of the user's."""
    from advisor.engine.load import builtin_dir, load_rules

    return load_rules(builtin_dir(), *settings.rules).by_code


def _verdict(done: Sequence[Diagnosis], settings: Settings) -> int:
    """1 if a shown finding reaches `--fail-on`; with `--fail-on-new` or `--fail-on-worse` only new ones
    count, or those worse than in the baseline."""
    against = settings.fail_on_new or settings.fail_on_worse
    least = settings.fail_on or ("medium" if against else None)
    if least is None:
        return 0
    from advisor.compare.baseline import read_history
    from advisor.compare.store import FOLDER
    from advisor.model.findings import SEVERITIES

    # Findings that the history of the folder keeps from failing a gate today.
    hidden = read_history(Path(settings.folder or FOLDER)).hidden(date.today().isoformat())
    enough = set(list(SEVERITIES)[[*map(str, SEVERITIES)].index(least) :])

    def counts(f: Finding) -> bool:
        new = settings.fail_on_new and f.baseline == "new"
        worse = settings.fail_on_worse and f.changed == "worse"
        return f.kind != "limit" and f.identity not in hidden and bool(new or worse or not against)

    return int(any(counts(f) and f.severity in enough for d in done for f in d.findings))


def _read_review(path: Path | None, xlsx: Path | None) -> Review | History | None:
    """Decisions of an earlier review: from its workbook or JSON, or a folder with a history of reviews."""
    if path is None:
        return None
    if xlsx is None:
        raise InputError("--review fills in a workbook; add --xlsx FILE")
    if not path.is_dir():
        return earlier_review(path)
    from advisor.compare import baseline

    if not (found := baseline.read_history(path)).meetings:
        raise InputError(f"{path}: holds no history of reviews; see 'advisor review record'")
    return found


def earlier_review(path: Path) -> Review:
    """Decisions of a review: from its workbook, or the JSON of `advisor review import`."""
    from advisor import __version__
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
    from advisor.reports.workbook import book as workbook

    listed, since, day = checklist(capture_facts(done)), None, date.today().isoformat()
    review = before if isinstance(before, Review) else None
    if before is not None:
        from advisor.compare import baseline

        past = baseline.of_review(before) if isinstance(before, Review) else before
        since = baseline.recorded(past, done[0], day, others=done[1:])
    write_bytes(workbook.render(done, listed, review, since, day), xlsx, force)


def select(diagnosis: Diagnosis, selected: Sequence[str], ignored: Sequence[str]) -> Diagnosis:
    """The diagnosis with only the selected codes, without the ignored ones.

    A code is exact (``SYN101``) or a prefix (``SYN``). Ranks, verdict and facts stay as inferred.
    """
    wanted, unwanted = codes(selected), codes(ignored)
    if not wanted and not unwanted:
        return diagnosis

    def keep(items: Iterable[Any]) -> tuple[Any, ...]:
        chosen = (i for i in items if not wanted or i.code.startswith(wanted))
        return tuple(i for i in chosen if not i.code.startswith(unwanted))

    coded = ("findings", "overruled", "healthy", "observed", "not_applicable", "not_evaluated")
    diagnosis = diagnosis.replaced(**{name: keep(getattr(diagnosis, name)) for name in coded})
    there = {h.code for h in (*diagnosis.healthy, *diagnosis.observed)}
    away = {h.code for h in diagnosis.not_applicable}
    diagnosis = diagnosis.replaced(does_not_apply=len(away - there))
    if (baseline := diagnosis.baseline) is None:
        return diagnosis
    new = sum(f.baseline == "new" for f in diagnosis.findings)
    counts = {"gone": keep(baseline.gone), "new": new, "known": len(diagnosis.findings) - new}
    return diagnosis.replaced(baseline=baseline.replaced(**counts))


def codes(given: Sequence[str]) -> tuple[str, ...]:
    """Codes or prefixes from ``A,B C`` lists, in capitals."""
    return tuple(c.upper() for text in given for c in text.replace(",", " ").split())


def check_codes(given: Sequence[str], known: Collection[str], option: str) -> None:
    """Raise for a code or prefix that no known rule has."""
    for code in codes(given):
        if not any(k.startswith(code) for k in known):
            hint = near(code, sorted(known), "see 'advisor rules list'", most=3, cutoff=0.5)
            raise InputError(f"{option}: no rule has the code {code}; {hint}")
