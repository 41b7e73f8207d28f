"""What-if estimates against step times measured without a profiler.

usage: python benchmarks/gains.py [--traces DIR] [--public DIR ...] [--write] [--quick]

DIR holds labels.yaml and the captures (h200/*.sqlite.xz, default ../shared/traces). Prints, for
every labelled pair, the predicted low, mid and high against the measured times, the share of pairs
whose ranges meet, and the error of `step_after_ms.mid`; then the error of the unchanged replay, the
`batch` entries, how much each constant matters, and what `recorded.py` prints of the captures in
tests/data/pairs and of the public ones that are at hand (`--public`, default DIR/wild). `--write`
writes docs/gain_calibration.md; `--quick` leaves the constants out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec.structs import replace

from advisor.facts import limits as fact_limits
from advisor.gain import limits as gain_limits
from advisor.gain import whatifs
from advisor.gain.estimate import Estimate, Replayer
from advisor.gain.excerpt import NoReplay, recorded_times
from advisor.gain.inputs import Inputs
from advisor.gain.whatifs import Fix, make_fix
from advisor.metrics import limits as metric_limits
from advisor.metrics.profiled.stage import Profiled, measure
from advisor.pipeline.diagnose import diagnose, open_trace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks import recorded  # noqa: E402

DOCUMENT = ROOT / "docs" / "gain_calibration.md"
#: What the project set itself: ranges that meet, error of the middle, width of the speed-up range.
MEET, MEDIAN, WORST = 0.90, 0.05, 0.15
WIDTH = {True: 2.7, False: 1.25}  # by: the host's launching limits


@dataclass(frozen=True)
class Pair:
    """One measured change. Bands are (low, high) of repeated runs, the value itself without."""

    capture: str
    causes: tuple[str, ...]
    change: str
    before: float
    before_band: tuple[float, float]
    after: float
    after_band: tuple[float, float]
    note: str

    @property
    def measured(self) -> tuple[float, float]:
        """Band of the measured speed-up."""
        return self.before_band[0] / self.after_band[1], self.before_band[1] / self.after_band[0]


@dataclass(frozen=True)
class Row:
    pair: Pair
    fix: Fix
    found: Estimate

    @property
    def meets(self) -> bool:
        low, high = self.pair.measured
        return self.found.speedup.low <= high and self.found.speedup.high >= low

    @property
    def error(self) -> float:
        return self.found.after.mid / self.pair.after - 1.0

    @property
    def width(self) -> float:
        return self.found.speedup.high / self.found.speedup.low

    @property
    def launching(self) -> bool:
        """The host's launching limits the step, before or after."""
        return self.fix.what_if in ("cuda_graphs", "remove_allocations")


def pairs(labels: dict[str, Any]) -> Iterator[Pair]:
    for capture, entry in labels["h200"].items():
        for causes, g in (entry.get("gains") or {}).items():
            before, after = g["before_ms"], g["after_ms"]
            yield Pair(
                capture,
                tuple(causes.split("|")),
                g["change"],
                before,
                tuple(g.get("band", (before, before))),
                after,
                tuple(g.get("after_band", (after, after))),
                g.get("note", ""),
            )


class Captures:
    """Captures of a folder, each opened once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Profiled] = {}
        self._fixes: dict[tuple[str, str], Fix] = {}

    def path(self, name: str) -> Path:
        for suffix in (".sqlite", ".sqlite.xz"):
            if (path := self._folder / f"{name}{suffix}").exists():
                return path
        raise FileNotFoundError(f"{self._folder / name}.sqlite.xz")

    def __getitem__(self, name: str) -> Profiled:
        if name not in self._known:
            self._known[name] = measure(open_trace(self.path(name)))
        return self._known[name]

    def fix_of(self, pair: Pair) -> Fix:
        """What the finding of the pair's cause is estimated with."""
        if not any((pair.capture, cause) in self._fixes for cause in pair.causes):
            for finding in diagnose(self.path(pair.capture)).findings:
                if (gain := finding.gain) is not None and gain.what_if is not None:
                    fix = make_fix(gain.what_if, gain.params)
                    self._fixes.setdefault((pair.capture, finding.cause), fix)
        return next(f for c in pair.causes if (f := self._fixes.get((pair.capture, c))) is not None)

    def names(self) -> list[str]:
        return sorted({p.name.split(".")[0] for p in self._folder.glob("*.sqlite*")})


def rows_of(captures: Captures, wanted: list[Pair], known: bool = False) -> list[Row]:
    """Estimates by the fix of the finding; `known`: with the measured step before the fix given."""
    out = []
    for pair in wanted:
        fix = captures.fix_of(pair)
        given = pair.before * 1e6 if known else None
        replayer = Replayer(captures[pair.capture], unprofiled_ns=given)
        out.append(Row(pair, fix, replayer.estimate([fix])))
    return out


def summary(rows: list[Row]) -> dict[str, float]:
    errors = [abs(r.error) for r in rows]
    return {
        "inside": sum(r.meets for r in rows) / len(rows),
        "median": statistics.median(errors),
        "worst": max(errors),
        "wide": max(r.width for r in rows if not r.launching),
        "wide_launching": max(r.width for r in rows if r.launching),
    }


# ---------------------------------------------------------------- tables


def span(s: Any, digits: int = 2) -> str:
    return f"{s.low:.{digits}f} / {s.mid:.{digits}f} / {s.high:.{digits}f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(r) + " |" for r in rows)])


def pair_table(rows: list[Row]) -> str:
    out = []
    for r in rows:
        low, high = r.pair.measured
        measured = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
        out.append(
            [
                r.pair.capture,
                f"{'/'.join(r.pair.causes)}: {r.pair.change}",
                r.fix.what_if,
                span(r.found.before),
                f"{r.pair.before:.2f}",
                span(r.found.after),
                f"{r.pair.after:.2f}",
                f"{r.error:+.1%}",
                span(r.found.speedup),
                measured,
                "yes" if r.meets else "**no**",
                f"{r.width:.2f}",
            ]
        )
    head = [
        "capture",
        "change",
        "what-if",
        "before, ms (low / mid / high)",
        "measured",
        "after, ms (low / mid / high)",
        "measured",
        "error of mid",
        "speed-up (low / mid / high)",
        "measured",
        "meet",
        "high/low",
    ]
    return table(head, out)


def batch_table(captures: Captures, labels: dict[str, Any]) -> str:
    """The labelled entries, each followed by other captures of the same step (NAME_...)."""
    entries = [
        (name, n, measured)
        for capture, entry in labels["h200"].items()
        for name in captures.names()
        if name == capture or name.startswith(f"{capture}_")
        for n, measured in (entry.get("batch") or {}).items()
    ]
    out = []
    for capture, n, measured in entries:
        found = Replayer(captures[capture]).estimate([make_fix("batch", {"n": n})])
        error = found.after.mid / measured - 1.0
        inside = found.after.low <= measured <= found.after.high
        out.append(
            [
                capture,
                str(n),
                span(found.after),
                f"{measured:.2f}",
                f"{error:+.1%}",
                "yes" if inside else "no",
                span(found.speedup, 1),
            ]
        )
    head = [
        "capture",
        "n",
        "step, ms (low / mid / high)",
        "measured",
        "error of mid",
        "inside",
        "tokens/s, x (low / mid / high)",
    ]
    return table(head, out)


def usual(inputs: Inputs) -> Inputs:
    """The inputs with medians in place of every captured delay: what the model itself explains."""
    ops, waits = inputs.ops, inputs.waits
    late = np.isfinite(ops.latency) & ~ops.node
    latency, gap = ops.latency.copy(), ops.gap.copy()
    for by_start in (False, True):
        mine = late & (ops.by_start == by_start)
        if mine.any():
            latency[mine] = np.median(ops.latency[mine])
    for node in (False, True):
        mine = ops.node == node
        if mine.any():
            gap[mine] = np.median(ops.gap[mine])
    lag = np.full(len(waits), np.median(waits.lag)) if len(waits) else waits.lag
    return replace(inputs.with_ops(latency=latency, gap=gap), waits=replace(waits, lag=lag))


def replay_table(captures: Captures) -> str:
    out = []
    for name in captures.names():
        try:
            replayer = Replayer(captures[name])
        except NoReplay as reason:
            out.append([name, "-", "-", "-", "-", str(reason)])
            continue
        at = replayer.excerpt.measured
        captured = float(recorded_times(replayer.a, replayer.excerpt).mean())
        changed = usual(replayer.taken.inputs)
        coarse = replayer.times.mean(changed)
        out.append(
            [
                name,
                f"{len(at)} of {replayer.excerpt.whole}",
                f"{captured / 1e6:.3f}",
                f"{replayer.captured_ns / captured - 1:+.4%}",
                f"{coarse / captured - 1:+.2%}",
                "",
            ]
        )
    head = [
        "capture",
        "steps",
        "captured, ms a step",
        "error of the unchanged replay",
        "error with medians for all delays",
        "",
    ]
    return table(head, out)


# ---------------------------------------------------------------- what the constants matter


@contextmanager
def changed_constant(name: str, times: float) -> Iterator[None]:
    """A constant of knowledge/whatifs.yaml or of the code, multiplied."""
    if name in whatifs.catalogue().constants:
        real = whatifs.catalogue
        known = dict(real().constants)
        known[name] = known[name].replaced(value=known[name].value * times)
        patched = real().replaced(constants=known)
        whatifs.catalogue = lambda: patched  # type: ignore[assignment]
        whatifs.constant.cache_clear()
        try:
            yield
        finally:
            whatifs.catalogue = real
            whatifs.constant.cache_clear()
        return
    place = next(m for m in (metric_limits.host, fact_limits) if hasattr(m, name))
    before = getattr(place, name)
    setattr(place, name, before * times)
    try:
        yield
    finally:
        setattr(place, name, before)


def constant_table(captures: Captures, wanted: list[Pair]) -> str:
    trials = [(name, (0.5, 2.0)) for name in whatifs.catalogue().constants]
    trials += [("UNTRACED_GRAPH_LAUNCH_NS", (0.5, 2.0)), ("ACHIEVABLE_RATIO", (0.95, 1.05))]
    out = []
    for name, factors in trials:
        for times in factors:
            with changed_constant(name, times):
                s = summary(rows_of(captures, wanted))
            out.append(
                [
                    name,
                    f"x {times:g}",
                    f"{s['inside']:.0%}",
                    f"{s['median']:.1%}",
                    f"{s['worst']:.1%}",
                    f"{s['wide']:.2f}",
                    f"{s['wide_launching']:.2f}",
                ]
            )
    head = ["constant", "changed", "meet", "median error", "worst error", "widest", "widest (launching)"]
    return table(head, out)


def left_out(rows: list[Row]) -> str:
    out = []
    for i, row in enumerate(rows):
        s = summary_without(rows, i)
        out.append(
            [
                f"{row.pair.capture}: {row.fix.what_if}",
                f"{s['inside']:.0%}",
                f"{s['median']:.1%}",
                f"{s['worst']:.1%}",
            ]
        )
    return table(["pair left out", "meet", "median error", "worst error"], out)


def summary_without(rows: list[Row], i: int) -> dict[str, float]:
    rest = [r for k, r in enumerate(rows) if k != i]
    errors = [abs(r.error) for r in rest]
    return {
        "inside": sum(r.meets for r in rest) / len(rest),
        "median": statistics.median(errors),
        "worst": max(errors),
    }


# ---------------------------------------------------------------- the document


def in_diagnosis(captures: Captures, rows: list[Row]) -> list[str]:
    """Captures whose diagnosis does not carry the estimate of this page."""
    odd = []
    for row in rows:
        found = diagnose(captures.path(row.pair.capture)).findings
        gains = [f.gain for f in found if f.cause in row.pair.causes and f.gain is not None]
        same = [
            g
            for g in gains
            if g.speedup is not None and abs(g.speedup.mid / row.found.speedup.mid - 1) < 1e-9
        ]
        if not same:
            odd.append(f"{row.pair.capture}: {'/'.join(row.pair.causes)}")
    return odd


def verdicts(rows: list[Row]) -> str:
    s = summary(rows)
    lines = [
        ("speed-up ranges that meet the measured band", f"{s['inside']:.0%}", f">= {MEET:.0%}"),
        ("error of step_after_ms.mid, median", f"{s['median']:.1%}", f"<= {MEDIAN:.0%}"),
        ("error of step_after_ms.mid, worst", f"{s['worst']:.1%}", f"<= {WORST:.0%}"),
        ("widest speed-up range, GPU or host gap", f"{s['wide']:.2f}", f"<= {WIDTH[False]}"),
        ("widest speed-up range, host launching", f"{s['wide_launching']:.2f}", f"<= {WIDTH[True]}"),
    ]
    return table(["measure", "reached", "wanted"], [list(line) for line in lines])


def widths(rows: list[Row], known: list[Row]) -> str:
    """How wide the speed-up ranges are without and with the step of an unprofiled run."""
    kinds = (("GPU or host gap", False), ("host launching", True))
    lines = []
    for name, launching in kinds:
        mine = [[r.width for r in some if r.launching == launching] for some in (rows, known)]
        lines.append(
            [name, str(len(mine[0])), *(f"{f(w):.2f}" for w in mine for f in (statistics.median, max))]
        )
    head = ["limited by", "pairs", "median, high/low", "widest", "with the step given: median", "widest"]
    return table(head, lines)


def as_recorded(row: Row) -> recorded.Recorded:
    """A labelled pair as a row of the table by GPU, recorder and family."""
    pair, found = row.pair, row.found
    what = f"{' or '.join(pair.causes)}: {pair.change}"
    return recorded.Recorded(
        name=pair.capture,
        gpu="NVIDIA H200",
        recorder="nsys",
        family=f"what-if {row.fix.what_if}",
        top=(),
        never=(),
        said=(),
        step=recorded.Held(pair.capture, "the step itself", pair.before, pair.before_band, found.before),
        mends=(recorded.Held(pair.capture, what, pair.after, pair.after_band, found.after),),
    )


def document(captures: Captures, labels: dict[str, Any], quick: bool, places: list[recorded.Set]) -> str:
    wanted = list(pairs(labels))
    rows, known = rows_of(captures, wanted), rows_of(captures, wanted, known=True)
    firm = [r for r in rows if not r.pair.note]
    noted = [r for r in rows if r.pair.note]
    text = (ROOT / "benchmarks" / "gains.md").read_text(encoding="utf-8")
    odd = in_diagnosis(captures, firm)
    held = [r for place in places for r in recorded.recorded(place)]
    parts: dict[str, Callable[[], str]] = {
        "verdicts": lambda: verdicts(firm),
        "pairs": lambda: pair_table(firm),
        "noted": lambda: (
            pair_table(noted) + "\n\n" + "\n".join(f"- {r.pair.capture}: {r.pair.note}." for r in noted)
        ),
        "unprofiled": lambda: pair_table(known),
        "widths": lambda: widths(rows, known),
        "narrowed": lambda: recorded.by_step([n for place in places for n in recorded.narrowed(place)]),
        "odd": lambda: (
            "All of them are what `advisor diagnose` prints with the finding."
            if not odd
            else f"`advisor diagnose` says otherwise for: {', '.join(odd)}."
        ),
        "replay": lambda: replay_table(captures),
        "batch": lambda: batch_table(captures, labels),
        "left_out": lambda: left_out(firm),
        "constants": lambda: (
            "(left out)" if quick else constant_table(captures, [p for p in wanted if not p.note])
        ),
        "origins": lambda: table(
            ["constant", "value", "what", "origin"],
            [
                [k, f"{c.value:g} {c.unit}", c.meaning, c.origin]
                for k, c in whatifs.catalogue().constants.items()
            ],
        ),
        "classes": lambda: recorded.by_class([*(as_recorded(r) for r in rows), *held]),
        "causes": lambda: recorded.every_cause(held),
        "times": lambda: recorded.every_time(held),
        "absent": lambda: recorded.absent(places) or "None.",
        "operations": lambda: f"{gain_limits.DIAGNOSIS_OPS:,}",
    }
    for name, make in parts.items():
        if f"{{{{{name}}}}}" in text:
            text = text.replace(f"{{{{{name}}}}}", make())
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--public", type=Path, nargs="*", help="default: DIR/wild")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if not (args.traces / "labels.yaml").exists():
        sys.exit(f"{args.traces / 'labels.yaml'} not found; say where with --traces")
    begin = time.perf_counter()
    labels = yaml.safe_load((args.traces / "labels.yaml").read_text(encoding="utf-8"))
    public = args.public if args.public is not None else [args.traces / "wild"]
    places = [*recorded.sets(recorded.COMMITTED), *recorded.public_sets(public)]
    text = document(Captures(args.traces / "h200"), labels, args.quick, places)
    if args.write:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
