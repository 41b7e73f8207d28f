"""From the named sources (captures, saved diagnoses, baselines) to comparisons of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, field

from advisor.comparison.before_after import compare as build
from advisor.comparison.change_facts import RuleOptions
from advisor.comparison.context import scaling
from advisor.comparison.frameworks import table
from advisor.comparison.router import experiment
from advisor.comparison.sides import Side, same_steps, sketch
from advisor.comparison.store import FOLDER
from advisor.errors import InputError
from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable, RouterExperiment
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from advisor.pipeline.diagnose import Progress
from advisor.pipeline.inputs import How, as_job, named, quietly, several

#: One side of a comparison.
Sources = str | Path | Sequence[str | Path]


class CompareOptions(Struct, frozen=True):
    """Options of a comparison. `folder` holds named baselines; `drawn` keeps events of typical steps."""

    diagnose: Options = field(default_factory=Options)
    folder: Path | None = None
    settings: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    drawn: bool = False


_PLAIN = CompareOptions()


def load(
    source: str, options: CompareOptions = _PLAIN, progress: Progress | None = None
) -> tuple[Diagnosis, ...]:
    """The diagnosis of a capture, or the saved one of a file or a baseline's name."""
    how = How(options.diagnose, options.drawn)
    if progress is not None:
        how = how._replace(watch=lambda _: nullcontext(progress))
    return tuple(named(source, options.folder or FOLDER).read(how).diagnoses)


def _loaded(
    sources: Sequence[str], options: CompareOptions, progress: Progress | None
) -> Iterator[tuple[str, Sequence[Diagnosis]]]:
    """The diagnoses of each source; of several that are the ranks of one job, that of the job."""
    paths = [Path(source) for source in sources]
    if len(sources) > 1 and all(path.is_file() for path in paths):
        job = as_job(several(paths).inputs)
        if job is not None:
            yield (
                sources[0],
                job.read(quietly(options.diagnose, progress)._replace(drawn=options.drawn)).diagnoses,
            )
            return
    for source in sources:
        yield source, load(source, options, progress)


def side(name: str, sources: Sequence[str], options: CompareOptions, progress: Progress | None) -> Side:
    """One side of a comparison; each source is a capture of the same thing."""
    found: list[tuple[str, Diagnosis]] = []
    for source, read in _loaded(sources, options, progress):
        for diagnosis in read:
            # The same steps twice would pass for a repeat that agrees perfectly.
            twin = next((s for s, d in found if same_steps(d, diagnosis)), None)
            if twin is not None:
                raise InputError(
                    f"{name}: {source} holds the same steps as {twin}; repeats must be captures of their own"
                )
            found.append((source, diagnosis))
    return Side(name, [d for _, d in found])


def compare(
    before: Sources,
    after: Sources,
    options: CompareOptions | Options | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Before against after: captures, saved diagnoses or names of baselines, one or several a side.

    Raises InputError for unreadable sources, RuleError for bad rules.
    """
    chosen = CompareOptions(options) if isinstance(options, Options) else options or _PLAIN
    one, other = (
        side(name, [str(s) for s in ([given] if isinstance(given, str | Path) else given)], chosen, progress)
        for name, given in (("before", before), ("after", after))
    )
    made = build(one, other, _rules(chosen))
    return made.replaced(sketch=sketch(one, other) or UNSET) if chosen.drawn else made


def context(
    short: Sequence[str],
    long: Sequence[str],
    tokens: tuple[int, int] | None = None,
    options: CompareOptions = _PLAIN,
    progress: Progress | None = None,
) -> ContextScaling:
    """Which operations grow with the context."""
    sides = side("short", short, options, progress), side("long", long, options, progress)
    return scaling(*sides, tokens, _rules(options))


def frameworks(
    engines: Sequence[tuple[str | None, str]],
    throughput: Mapping[str, float] | None = None,
    batch: Mapping[str, float] | None = None,
    phase: str | None = None,
    options: CompareOptions = _PLAIN,
    progress: Progress | None = None,
) -> FrameworkTable:
    """Serving engines side by side; (name, source) each, named by their kernels if None."""
    columns = [(name, side(name or source, [source], options, progress)) for name, source in engines]
    return table(columns, throughput or {}, batch or {}, phase)


def router(
    learned: Sequence[str],
    perfect: Sequence[str],
    unit: str | None = None,
    metric: str | None = None,
    traces: tuple[str, str] | None = None,
    options: CompareOptions = _PLAIN,
    progress: Progress | None = None,
) -> RouterExperiment:
    """The perfect-router experiment from benchmark reports or bare numbers."""
    named = zip(("learned", "perfect"), traces or (), strict=False)
    sides = [side(name, [trace], options, progress) for name, trace in named]
    return experiment(learned, perfect, unit, metric, sides, _rules(options))


def _rules(options: CompareOptions) -> Any:
    own = options.diagnose
    return RuleOptions(own.rules, own.params, options.settings, own.engine)
