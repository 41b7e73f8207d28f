"""What the tool concludes of every labelled capture, and how sure it may be of it.

usage: python benchmarks/judgement.py [--traces DIR] [--saved DIR] [--write]

DIR holds labels.yaml and the captures (default ../shared/traces). Prints a line for each capture
(headline, severity, share of the step saved, what to do first), what breaks a promise (a finding that
is high and saves less than 20 %, high findings on a capture labelled healthy), and the Brier score of
the confidence by family of captures: as judged, corrected by the answers of all other families, and
of all (`right` and `wrong` of the rules). `--saved` keeps the diagnoses as JSON and reads those that
are there; `--write` writes benchmarks/captures.md, the table in docs/confidence.md, and the
counts into the rules.

An answer is known where labels.yaml says `include` or `top` (the cause is right) or `never` (it is
wrong), and where an edit of tests/metamorphic brings the cause about. Captures of one family are
alike: at most three answers a family count for a cause.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from advisor.engine.judge import calibrated
from advisor.engine.load import builtin_dir, load_rules
from advisor.model.findings import Diagnosis, Finding
from advisor.model.rules import RuleSpec
from advisor.pipeline.diagnose import diagnose

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("h200", "kineto", "public", "wild")
#: Answers of one family that count for one cause.
MOST = 3
HIGH = 0.20
RULES = load_rules(builtin_dir()).by_code
Answers = dict[str, Counter[tuple[str, bool]]]


class Sample(NamedTuple):
    """A finding with a known answer."""

    family: str
    code: str
    right: bool
    confidence: float


def family(section: str, name: str) -> str:
    """Captures that resemble each other: made on one machine, or in one way."""
    if section != "h200":
        return section
    return "h200 8b, 70b" if re.search("8b|70b", name) else "h200 small"


def samples(group: str, label: dict[str, Any], d: Diagnosis) -> Iterator[Sample]:
    """The findings that the label calls right or wrong."""
    right = {c for entry in (*label.get("include", ()), *label.get("top", ())) for c in entry.split("|")}
    wrong = set(label.get("never", ()))
    for f in d.findings:
        if {f.cause, *(s.cause for s in f.explains)} & right:
            yield Sample(group, f.code, True, f.confidence)
        elif f.cause in wrong:
            yield Sample(group, f.code, False, f.confidence)


def metamorphic() -> Iterator[Sample]:
    """What edits with a known effect bring about."""
    sys.path.insert(0, str(ROOT))
    from tests.metamorphic.captures import after, after_events
    from tests.metamorphic.test_edits import CASES, EVENT_CASES

    with tempfile.TemporaryDirectory() as folder:
        for cases, run, ending in ((CASES, after, "sqlite"), (EVENT_CASES, after_events, "json")):
            for i, case in enumerate(c for c in cases if c.appears):
                d = run(case.capture, case.edit, Path(folder) / f"{i}.{ending}")
                yield from samples("metamorphic", {"include": case.appears.split()}, d)


def counted(found: Iterable[Sample], without: str = "") -> Counter[tuple[str, bool]]:
    """Answers by rule, at most `MOST` a family; those of one family left out."""
    by_family = Counter((s.family, s.code, s.right) for s in found if s.family != without)
    total: Counter[tuple[str, bool]] = Counter()
    for (_, code, right), n in by_family.items():
        total[code, right] += min(n, MOST)
    return total


def with_answers(s: Sample, spec: RuleSpec, answers: Counter[tuple[str, bool]]) -> float:
    """The confidence of a finding, its base corrected by these answers in place of those in its rule."""
    own = spec.confidence
    now = calibrated(own.base, own.right, own.right + own.wrong)
    right, wrong = answers[s.code, True], answers[s.code, False]
    return min(1.0, s.confidence / now * calibrated(own.base, right, right + wrong))


def brier(pairs: Iterable[tuple[bool, float]]) -> float:
    errors = [(right - said) ** 2 for right, said in pairs]
    return sum(errors) / max(len(errors), 1)


def scores(found: list[Sample]) -> str:
    """The Brier score by family, and how often findings of each confidence are right."""
    none: Counter[tuple[str, bool]] = Counter()
    heads = ("family", "findings", "right", "mean confidence", "Brier as judged", "others", "all")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    everything = counted(found)
    for name in [*dict.fromkeys(s.family for s in found), "all"]:
        mine = [s for s in found if name in (s.family, "all")]
        kinds = (
            lambda s: with_answers(s, RULES[s.code], none),
            lambda s: with_answers(s, RULES[s.code], counted(found, s.family)),
            lambda s: with_answers(s, RULES[s.code], everything),
        )
        brier_of = [brier((s.right, kind(s)) for s in mine) for kind in kinds]
        mean = sum(kinds[2](s) for s in mine) / len(mine)
        cells = (name, len(mine), sum(s.right for s in mine), f"{mean:.2f}", *(f"{b:.3f}" for b in brier_of))
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    rows += ["", "| confidence | findings | right |", "|---|---|---|"]
    for low in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        inside = [s for s in found if low <= with_answers(s, RULES[s.code], everything) < low + 0.1]
        if inside:
            rows.append(f"| {low:.1f} to {low + 0.1:.1f} | {len(inside)} | {sum(s.right for s in inside)} |")
    return "\n".join(rows)


def line(name: str, d: Diagnosis) -> str:
    first = next((f for f in d.findings if f.severity != "info" or f.invalidates), None)
    cells = [name, "-", "", "", ""]
    if first is not None:
        kind = "limit, " if first.kind == "limit" else ""
        do = d.do[0].id if d.do else ""
        cells = [name, first.cause, kind + first.severity, saved(first), do]
    return "| " + " | ".join(cells) + " |"


def short(name: str) -> str:
    """The name of a capture without the folders between its collection and the end of its file name."""
    return name if len(name) <= 70 else f"{'/'.join(name.split('/')[:2])}/...{name[-30:]}"


def saved(f: Finding) -> str:
    share = f.ranking.saved if f.ranking is not None else None
    if share is None:
        return "not estimated"
    return f"{share:.0%}" + (" (throughput)" if f.ranking is not None and f.ranking.throughput else "")


def broken(name: str, label: dict[str, Any], d: Diagnosis) -> Iterator[str]:
    """Promises about severity that a diagnosis breaks."""
    for f in d.findings:
        terms = RULES[f.code].severity
        own = terms.levels or terms.lost or f.invalidates  # what is lost is graded by what it holds
        share = f.ranking.saved if f.ranking is not None else None
        if f.severity == "high" and not own and (share is None or share < HIGH):
            yield f"{name}: {f.cause} is high and saves {saved(f)}"
    high = sum(f.severity == "high" and f.kind != "limit" for f in d.findings)
    if high > label.get("max_high", high):
        yield f"{name}: {high} high findings, labelled with at most {label['max_high']}"


def path_of(traces: Path, section: str, name: str, folder: Path) -> Path | None:
    base = traces / section / name
    for ending in ("", ".xz", ".sqlite.xz", ".json.gz"):
        path = Path(f"{base}{ending}")
        if not path.is_file() and not (path.is_dir() and not ending):
            continue
        if path.suffix != ".xz":
            return path
        out = folder / path.with_suffix("").name
        with lzma.open(path) as packed, out.open("wb") as file:
            shutil.copyfileobj(packed, file)
        return out
    return None


def captures(traces: Path, kept: Path | None) -> Iterator[tuple[str, str, dict[str, Any], Diagnosis]]:
    """Section, name, label and diagnosis of every capture with a label that one capture can meet."""
    labels = yaml.safe_load((traces / "labels.yaml").read_text(encoding="utf-8"))
    for section in SECTIONS:
        for name, label in labels[section].items():
            if "straggler_rank" in label or not {"top", "include", "never", "max_high"} & set(label):
                continue
            known = kept and kept / f"{section}__{name.replace('/', '+')}.json"
            if known and known.is_file():
                yield section, name, label, Diagnosis.model_validate_json(known.read_text(encoding="utf-8"))
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = path_of(traces, section, name, Path(folder))
                if path is None:
                    continue
                d = diagnose(path)
            if known:
                known.parent.mkdir(parents=True, exist_ok=True)
                known.write_text(d.model_dump_json(), encoding="utf-8")
            yield section, name, label, d


def put_into(path: Path, block: str, text: str) -> None:
    """Replace what lies between `<!-- block -->` and `<!-- /block -->`."""
    old = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {block} -->", f"<!-- /{block} -->"
    assert begin in old, f"{path}: no {begin}"
    path.write_text(old[: old.index(begin)] + f"{begin}\n{text}\n" + old[old.index(end) :], encoding="utf-8")


def put_into_rules(answers: Counter[tuple[str, bool]]) -> None:
    """The counts of each rule into its file."""
    for path in builtin_dir().rglob("*.yaml"):
        if path.name.endswith(".cases.yaml"):
            continue
        text = path.read_text(encoding="utf-8")
        counts = "".join(
            f", {word}: {answers[path.stem, right]}"
            for word, right in (("right", True), ("wrong", False))
            if answers[path.stem, right]
        )
        pattern = r"(?m)^(confidence: \{method: \w+, base: [\d.]+)[^}]*\}"
        # A file that stays as it is keeps its time: what is built of it stays valid.
        if (new := re.sub(pattern, rf"\1{counts}}}", text)) != text:
            path.write_text(new, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--saved", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows = ["| capture | headline | severity | saved | first |", "|---|---|---|---|---|"]
    found: list[Sample] = []
    wrong: list[str] = []
    for section, name, label, d in captures(args.traces, args.saved):
        rows.append(line(short(f"{section}/{name}"), d))
        wrong += broken(f"{section}/{name}", label, d)
        found += samples(family(section, name), label, d)
    found += metamorphic()
    table, confidence = "\n".join(rows), scores(found)
    print(table, "", confidence, "", *wrong, f"{len(wrong)} broken promises", sep="\n")
    if args.write:
        head = "# Every labelled capture\n\nWritten by `python benchmarks/judgement.py --write`.\n\n"
        (ROOT / "benchmarks" / "captures.md").write_text(f"{head}{table}\n", encoding="utf-8")
        put_into(ROOT / "docs" / "confidence.md", "calibration", confidence)
        put_into_rules(counted(found))


if __name__ == "__main__":
    main()
