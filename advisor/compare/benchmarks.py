"""Numbers of benchmark reports: trtllm-bench, vllm bench, sglang, genai-perf, CSV, or bare ones."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from advisor.errors import InputError, invalid_choice
from advisor.knowledge.verb_files import BenchmarkMetric, benchmark_metrics
from advisor.reading import parse_json, read_bytes

#: Kinds of bare numbers, and whether more is better.
UNITS: Mapping[str, bool] = {"tok/s": True, "req/s": True, "ms": False}
#: Metric of bare numbers, before their unit.
GIVEN = "given "
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Runs(Struct, frozen=True):
    """One number a run, all of one metric. `better_high` says which way is good."""

    metric: str
    unit: str
    better_high: bool
    values: tuple[float, ...]
    sources: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        """Whether the numbers were given directly, not read from reports."""
        return self.metric.startswith(GIVEN)

    @property
    def rates(self) -> tuple[float, ...]:
        """The values as throughput: times are inverted."""
        return self.values if self.better_high else tuple(1e3 / v for v in self.values)


#: A run: where it was read, and its value by metric.
Run = tuple[str, dict[str, float]]


def read_sides(
    learned: Sequence[str], perfect: Sequence[str], unit: str | None, metric: str | None
) -> tuple[Runs, Runs]:
    """The runs of both sides by the first metric that all of them report, or the requested one. Raises
    InputError for files without numbers, bare numbers without a unit, and sides without a common metric."""
    if unit is not None and unit not in UNITS:
        raise invalid_choice("--unit", unit, UNITS)
    if metric is not None and metric not in benchmark_metrics():
        raise invalid_choice("--metric", metric, benchmark_metrics())
    sides = [list(_runs(side, unit)) for side in (learned, perfect)]
    for name, runs in zip(("LEARNED", "PERFECT"), sides, strict=True):
        if not runs:
            raise InputError(f"{name}: no run is given")
    order = [metric] if metric else [*([f"{GIVEN}{unit}"] if unit else []), *benchmark_metrics()]
    chosen = next((m for m in order if all(m in v for runs in sides for _, v in runs)), None)
    if chosen is None:
        metrics = [sorted({m for _, v in runs for m in v}) for runs in sides]
        raise InputError(
            f"the two sides have no metric in common: {', '.join(metrics[0]) or 'none'} against "
            f"{', '.join(metrics[1]) or 'none'}"
        )
    known = benchmark_metrics().get(chosen)
    shown = known.unit if known is not None else unit or ""
    better = known.better == "higher" if known is not None else UNITS[shown]
    found = [
        Runs(chosen, shown, better, tuple(v[chosen] for _, v in runs), tuple(s for s, _ in runs))
        for runs in sides
    ]
    return found[0], found[1]


def _runs(sources: Sequence[str], unit: str | None) -> Iterator[Run]:
    """The runs of reports and bare numbers, several of them separated by commas."""
    for text in (part.strip() for s in sources for part in s.split(",") if part.strip()):
        number = _number(text)
        if number is None:
            yield from _read(Path(text))
        elif unit is None:
            raise InputError(
                f"{text}: say what the numbers are: --unit tok/s (more is better) or "
                "--unit ms (less is better)"
            )
        else:
            yield text, {f"{GIVEN}{unit}": number}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{text}: a throughput or time is a positive number")
    return value


def _read(path: Path) -> list[Run]:
    """The runs of one report."""
    try:
        text = read_bytes(path).decode("utf-8-sig", "replace")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    runs = _from_json(text)
    if runs is None:
        runs = _from_table(text) or [_from_labels(text)]
    found = [{m: v for m, v in run.items() if math.isfinite(v) and v > 0} for run in runs]
    runs = [run for run in found if run]
    if not runs:
        raise InputError(
            f"{path}: no throughput or time of trtllm-bench, vllm bench, sglang or genai-perf is "
            "found in it, nor a CSV column such as output_throughput; give the number itself, with "
            "--unit (captures go with --traces)"
        )
    many = len(runs) > 1
    return [(f"{path} ({i})" if many else str(path), run) for i, run in enumerate(runs, 1)]


def _from_json(text: str) -> list[dict[str, float]] | None:
    """Runs of a JSON report, of a list of them, or of JSON lines; None if it is not JSON."""
    try:
        try:
            document = parse_json(text)
        except ValueError:
            if not text.lstrip().startswith("{"):
                return None
            document = [parse_json(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None
    entries = document if isinstance(document, list) else [document]
    return [_by_key(e) for e in entries if isinstance(e, dict)]


def _by_key(report: dict[str, Any]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, metric in benchmark_metrics().items():
        for path in metric.keys:
            value: Any = report
            for part in path.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                out[name] = float(value) * metric.scale
                break
    return out


def _from_table(text: str) -> list[dict[str, float]]:
    """Runs of a CSV with a head: one a row, in columns named like the keys of reports."""
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error:
        return []
    if len(rows) < 2:
        return []
    heads = {_plain(cell): i for i, cell in enumerate(rows[0])}
    columns: dict[str, tuple[int, BenchmarkMetric]] = {}
    for name, metric in benchmark_metrics().items():
        wanted = [_plain(p.removesuffix(".avg").rpartition(".")[2]) for p in metric.keys]
        at = next((heads[w] for w in wanted if w in heads), None)
        if at is not None:
            columns[name] = (at, metric)
    cells = (
        [(n, m.scale, _cell(row[at])) for n, (at, m) in columns.items() if at < len(row)] for row in rows[1:]
    )
    runs = ({n: value * scale for n, scale, value in run if value is not None} for run in cells)
    return [run for run in runs if run]


def _plain(text: str) -> str:
    """``Output Throughput (tok/s)`` -> ``output_throughput_tok_s``"""
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def _from_labels(text: str) -> dict[str, float]:
    """Numbers after known labels, as in text reports and genai-perf's CSV."""
    out: dict[str, float] = {}
    for line in text.splitlines():
        clean = line.strip().lstrip("#").strip()
        for name, metric in benchmark_metrics().items():
            hit = None if name in out else _behind(clean, metric.labels)
            if hit is not None:
                out[name] = hit * metric.scale
    return out


def _behind(line: str, labels: Iterable[str]) -> float | None:
    for label in labels:
        if found := re.match(label, line):
            rest = line[found.end() :].lstrip(' ":,\t')
            number = _NUMBER.match(rest)
            # In CSV a number with a thousands comma is quoted, so a bare comma ends a cell.
            if number is not None:
                quoted = line[found.end() :].lstrip(" ,:\t").startswith('"')
                csv_row = line[found.end() :].lstrip('" ').startswith(",")
                text = number[0] if quoted or not csv_row else number[0].partition(",")[0]
                return _cell(text)
    return None


def _cell(text: str) -> float | None:
    try:
        return float(text.strip().strip('"').replace(",", ""))
    except ValueError:
        return None
