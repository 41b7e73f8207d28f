"""Diagnoses of captures whose steps were timed without a profiler, against what was timed.

usage: python benchmarks/recorded.py [FOLDER ...] [--public DIR ...]

A FOLDER holds labels.json, as `benchmarks/pairs/record.py` writes it, and the captures it names, beside
it or in traces/. `--public` looks below DIR for the captures of benchmarks/pairs/public.yaml. Prints, by
GPU, recorder and family: how often the first cause is one of those expected, how often the range of the
untraced step and that of the step after a mend meet what was timed, and how wide these ranges are; then
every capture and every mend. A mend that no finding has an estimate for is listed as not said, a capture
that is not at hand as such; nothing is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from advisor.gain.estimate import Replayer
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import Span
from advisor.model.options import Options
from advisor.pipeline.diagnose import diagnose, open_trace
from advisor.pipeline.explain import parse_fixes

ROOT = Path(__file__).resolve().parents[1]
#: The pairs that the tests hold the predictions to.
COMMITTED = ROOT / "tests" / "data" / "pairs"
#: Labels of captures that lie in public repositories.
PUBLIC = ROOT / "benchmarks" / "pairs" / "public.yaml"
Band = tuple[float, float]
#: A speed-up range from here on (high/low) is wide.
WIDE = 1.5


@dataclass(frozen=True)
class Held:
    """A predicted time against the band of what was timed, ms. No `predicted`: nothing was said."""

    capture: str
    what: str
    timed: float
    band: Band
    predicted: Span | None

    @property
    def meets(self) -> bool:
        p = self.predicted
        return p is not None and p.low <= self.band[1] and p.high >= self.band[0]

    @property
    def width(self) -> float | None:
        return self.predicted.high / self.predicted.low if self.predicted else None


@dataclass(frozen=True)
class Recorded:
    """One capture: what its label expects, and what the diagnosis says."""

    name: str
    gpu: str
    recorder: str
    family: str
    top: tuple[str, ...]
    never: tuple[str, ...]
    said: tuple[str, ...]
    step: Held
    mends: tuple[Held, ...]

    @property
    def right(self) -> bool | None:
        """None where the label expects no cause."""
        if set(self.never) & set(self.said):
            return False
        if not self.top:
            return True if self.never else None
        return bool(self.said) and self.said[0] in self.top


@dataclass(frozen=True)
class Set:
    """Labelled captures of one GPU and one recorder, and the folder they lie in."""

    about: dict[str, Any]
    captures: dict[str, dict[str, Any]]
    failed: dict[str, str]
    folder: Path

    def path(self, name: str) -> Path | None:
        """None: not at hand, or a run that was timed alone."""
        label = self.captures[name]
        if "trace" in label:
            return ROOT / label["trace"]
        files = (
            [label["file"]] if "file" in label else [f"traces/{name}.json", f"{name}.json", f"{name}.sqlite"]
        )
        packed = (self.folder / f"{file}{ending}" for file in files for ending in ("", ".gz", ".xz"))
        return next((path for path in packed if path.is_file()), None)

    @property
    def missing(self) -> list[str]:
        """Captures that the labels name and that are not at hand."""
        return [n for n, label in self.captures.items() if "file" in label and self.path(n) is None]


def sets(root: Path) -> list[Set]:
    """All that is recorded below `root`."""
    found = []
    for path in sorted(root.rglob("labels.json")):
        labels = json.loads(path.read_text(encoding="utf-8"))
        found.append(Set(labels["about"], labels["captures"], labels["failed"], path.parent))
    return found


def public_sets(roots: Sequence[Path]) -> list[Set]:
    """Those of public.yaml, each in the first of `roots` that has a capture of it."""
    found = []
    for labels in yaml.safe_load(PUBLIC.read_text(encoding="utf-8")):
        name = labels["about"]["repository"].replace("/", "+")
        files = {n: label for n, label in labels["captures"].items() if "file" in label}
        for capture, label in files.items():
            places = [Set(labels["about"], {capture: label}, {}, root / name) for root in roots]
            place = next((p.folder for p in places if p.path(capture)), None)
            if place is not None:
                label["file"] = str(place / label["file"])
        found.append(Set(labels["about"], labels["captures"], {}, Path()))
    return found


def estimate(d: Diagnosis, causes: str) -> Span | None:
    """The step after the mend of the first finding of one of `causes` that has an estimate of it."""
    wanted = causes.split("|")
    for f in d.findings:
        if f.cause in wanted and f.gain is not None and f.gain.step_after_ms is not None:
            return f.gain.step_after_ms
    return None


def whatif(path: Path, fix: str) -> Span:
    """The step after a mend that the label names: what `advisor whatif --fix` says."""
    return Replayer(measure(open_trace(path))).estimate(parse_fixes([fix], {})).after


def held(found: Set, name: str, path: Path) -> Recorded:
    label, about = found.captures[name], found.about
    d = diagnose(path)
    mends = []
    for gain in label.get("gains", ()):
        after = found.captures.get(gain["after"])
        if after is None:  # its run failed
            continue
        what = f"{gain['causes'].replace('|', ' or ')}: {gain['change']}"
        said = whatif(path, gain["fix"]) if "fix" in gain else estimate(d, gain["causes"])
        mends.append(Held(name, what, after["step_ms"], tuple(after["band"]), said))
    recorder = about.get("recorder", "PyTorch profiler")
    if (options := label.get("recorder", "default")) != "default":
        recorder += f" ({options})"
    step = Held(name, "the step itself", label["step_ms"], tuple(label["band"]), d.inputs[0].untraced_step_ms)
    return Recorded(
        name=name,
        gpu=about["gpu"],
        recorder=recorder,
        family=label["family"],
        top=tuple(label.get("top", ())),
        never=tuple(label.get("never", ())),
        said=tuple(f.cause for f in d.findings if loud(f)),
        step=step,
        mends=tuple(mends),
    )


def loud(f: Finding) -> bool:
    return f.severity != "info"


def recorded(found: Set) -> Iterator[Recorded]:
    for name in found.captures:
        if (path := found.path(name)) is not None:
            yield held(found, name, path)


class Narrowed(NamedTuple):
    """How wide the speed-up range of the first finding with an estimate is (high/low), without and with the
    step measured without the profiler, and whether each holds what its fix won; None if that was not
    measured."""

    wide: float
    narrow: float
    wide_meets: bool | None
    narrow_meets: bool | None


def narrowed(found: Set) -> Iterator[Narrowed]:
    """Captures whose step was measured without the profiler, each diagnosed without and with it."""
    for name, label in found.captures.items():
        if (path := found.path(name)) is None or not label.get("step_ms"):
            continue
        alone, given = diagnose(path), diagnose(path, Options(unprofiled_step=str(label["step_ms"])))
        first = next((f for f in alone.findings if f.gain is not None and f.gain.speedup is not None), None)
        if first is None:
            continue
        again = next((f for f in given.findings if f.cause == first.cause), None)
        if again is None or again.gain is None or again.gain.speedup is None or first.gain is None:
            continue
        after = [
            found.captures[gain["after"]]
            for gain in label.get("gains", ())
            if first.cause in gain["causes"].split("|") and gain["after"] in found.captures
        ]
        meets = [
            Held(name, "", after[0]["step_ms"], tuple(after[0]["band"]), gain.step_after_ms).meets
            if after and gain.step_after_ms is not None
            else None
            for gain in (first.gain, again.gain)
        ]
        wide, narrow = (s.high / s.low for s in (first.gain.speedup, again.gain.speedup) if s is not None)
        yield Narrowed(wide, narrow, meets[0], meets[1])


# ---------------------------------------------------------------- tables


def by_step(found: Sequence[Narrowed]) -> str:
    """How wide ranges are without and with the step of an unprofiled run, and how many hold what was
    timed."""
    head = ["without the step", "captures", "high/low: median", "widest", "met", "with it: median"]
    rows = []
    for name, is_wide in ((f"{WIDE} and wider", True), ("narrower", False)):
        some = [n for n in found if (n.wide >= WIDE) == is_wide]
        cells = [name, str(len(some))]
        for widths, met in (
            ([n.wide for n in some], [n.wide_meets for n in some if n.wide_meets is not None]),
            ([n.narrow for n in some], [n.narrow_meets for n in some if n.narrow_meets is not None]),
        ):
            shown = (f"{statistics.median(widths):.2f}", f"{max(widths):.2f}") if widths else ("-", "-")
            cells += [*shown, of(sum(met), len(met))]
        rows.append(cells)
    return table([*head, "widest", "met"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def of(count: int, all_of_them: int) -> str:
    return f"{count} of {all_of_them}" if all_of_them else "-"


def cover(some: Sequence[Held]) -> list[str]:
    """How many of the ranges meet, the median width of those that were said, how many were not."""
    said = [h for h in some if h.predicted is not None]
    widths = [h.width for h in said if h.width is not None]
    return [
        of(sum(h.meets for h in said), len(said)),
        f"{statistics.median(widths):.2f}" if widths else "-",
        str(len(some) - len(said)),
    ]


def by_class(found: Sequence[Recorded]) -> str:
    """The table by GPU, recorder and family."""
    head = ["GPU", "recorder", "family", "captures", "right"]
    head += ["untraced step met", "high/low", "not said", "step after met", "high/low", "not said"]
    rows = []
    for key in sorted({(r.gpu, r.recorder, r.family) for r in found}):
        mine = [r for r in found if (r.gpu, r.recorder, r.family) == key]
        rows.append([*key, *counts(mine)])
    return table(head, [*rows, ["all", "", "", *counts(found)]])


def counts(mine: Sequence[Recorded]) -> list[str]:
    judged = [r.right for r in mine if r.right is not None]
    right = of(sum(judged), len(judged))
    mends = [m for r in mine for m in r.mends]
    return [str(len(mine)), right, *cover([r.step for r in mine]), *cover(mends)]


def line(r: Recorded, h: Held) -> list[str]:
    p = h.predicted
    said = f"{p.low:.2f} / {p.mid:.2f} / {p.high:.2f}" if p else "not said"
    low, high = h.band
    timed = f"{h.timed:.2f}" if low == high else f"{h.timed:.2f} ({low:.2f} to {high:.2f})"
    meets = "yes" if h.meets else "**no**" if p else "-"
    return [r.gpu, r.name, h.what, said, timed, meets]


def every_time(found: Sequence[Recorded]) -> str:
    rows = [line(r, h) for r in found for h in (r.step, *r.mends)]
    return table(["GPU", "capture", "what", "predicted, ms (low / mid / high)", "timed", "meet"], rows)


def every_cause(found: Sequence[Recorded]) -> str:
    words = {True: "yes", False: "**no**", None: "-"}
    rows = []
    for r in found:
        said = ", ".join(r.said[:3]) or "nothing above info"
        rows.append([r.gpu, r.name, " or ".join(r.top) or "-", said, words[r.right]])
    return table(["GPU", "capture", "expected first", "said", "right"], rows)


def absent(places: Sequence[Set]) -> str:
    """What is labelled and could not be held: recordings that failed, captures not at hand."""
    lines = [f"- {name}: not recorded: {why}" for place in places for name, why in place.failed.items()]
    lines += [f"- {name}: not at hand here" for place in places for name in place.missing]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="*", default=[COMMITTED])
    parser.add_argument("--public", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    places = [place for folder in args.folder for place in sets(folder)]
    places += public_sets(args.public) if args.public else []
    if not places:
        sys.exit(f"no labels.json below {', '.join(map(str, args.folder))}")
    found = [r for place in places for r in recorded(place)]
    print(by_class(found), every_cause(found), every_time(found), absent(places), sep="\n\n")


if __name__ == "__main__":
    main()
