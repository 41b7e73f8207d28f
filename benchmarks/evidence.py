"""Which rule fires in which capture and scene of known cause, and what the rules say of it.

    python benchmarks/evidence.py [--traces DIR] [--all] [--saved FILE] [--write]

DIR holds labels.yaml and the captures (default ../shared/traces); what is not there is left out. Prints a
line a rule: in how many captures it fires, in how many of these the label names its cause (`right`) or
forbids it (`never`), in how many scenes it fires and is quiet, and what the rule is `shown_by`; then the
rules that fire nowhere, and those without evidence with what could show them. Scenes are the tests that
rules name, with `--all` every test of tests/scenarios, tests/ranks and tests/compare, some minutes of them.
`--saved` keeps the result as JSON and reads it if it is there. `--write` writes knowledge/evidence.yaml:
which rules fire, by which parameters, in the captures and scenes that rules name. `advisor rules check` holds
the rules against it, and each scene checks its part of it whenever it is run (tests/conftest.py). Exit code 1
if a rule names what does not show it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from judgement import ROOT, path_of

sys.path.insert(0, str(ROOT))
from advisor.engine.load import builtin_dir, load_rules
from advisor.model.rules import RuleSpec
from advisor.pipeline.diagnose import diagnose
from tests.fired import Fired, fired

SECTIONS = ("h200", "kineto", "public", "wild", "practice")
FOLDERS = ("tests/scenarios", "tests/ranks", "tests/compare")
RULES = {r.code: r for r in load_rules(builtin_dir()).active if r.kind != "question"}
HEAD = """\
# Written by benchmarks/evidence.py: in which captures and scenes the rules fire that name them, each with the
# parameters that let it, and in which scenes they are quiet.
schema: 1
"""


class Seen(NamedTuple):
    """One capture or scene: the rules that fire with the parameters that let them, those that are quiet, and
    the causes that its label calls right and wrong."""

    fires: dict[str, list[str]]
    quiet: list[str]
    right: list[str] = []  # noqa: RUF012
    wrong: list[str] = []  # noqa: RUF012


def _seen(one: Fired, label: dict[str, Any] | None = None) -> Seen:
    label = label or {}
    named = (*label.get("include", ()), *label.get("top", ()), *label.get("loud", ()))
    right = sorted({c for entry in named for c in entry.split("|")})
    fires = {code: sorted(params) for code, params in sorted(one.params.items())}
    return Seen(fires, sorted(one.quiet), right, sorted(label.get("never", ())))


def captures(traces: Path) -> Iterator[tuple[str, Seen]]:
    """Every labelled capture that is there."""
    labels = yaml.safe_load((traces / "labels.yaml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for section in SECTIONS:
            for name, label in labels[section].items():
                path = path_of(traces, section, name, Path(folder)) if isinstance(label, dict) else None
                if path is None or path.is_dir():
                    continue
                with fired() as one:
                    diagnose(path)
                yield f"{section}/{name}", _seen(one, label)


class Recorder:
    """A plugin of pytest that keeps what fires in each test."""

    def __init__(self) -> None:
        self.scenes: dict[str, Seen] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with fired() as one:
            yield
        self.scenes[item.nodeid] = _seen(one)


def scenes(every: bool) -> dict[str, Seen]:
    """What fires in the tests that rules name, or in every one of the folders of scenes."""
    named = {n for r in RULES.values() if r.shown_by for s in r.shown_by.scenes for n in (s.cause, s.partner)}
    recorder = Recorder()
    os.chdir(ROOT)
    pytest.main(
        ["-q", "-n", "0", "-m", "", "-p", "no:cacheprovider", *(FOLDERS if every else sorted(named))],
        [recorder],
    )
    return recorder.scenes


def firing(rule: RuleSpec) -> set[str]:
    """The captures and scenes in which a rule says that it fires."""
    shown = rule.shown_by
    names = {c for p in rule.params.values() for c in p.captures}
    return names | ({*shown.captures, *(s.cause for s in shown.scenes)} if shown else set())


def faults(seen: dict[str, Seen]) -> Iterator[str]:
    """What rules name and what does not show them, of all that was run."""
    for rule in RULES.values():
        for name in sorted(firing(rule) & set(seen)):
            if rule.code not in seen[name].fires:
                yield f"{rule.code} does not fire in {name}"
        for scene in rule.shown_by.scenes if rule.shown_by else ():
            if scene.partner in seen and rule.code not in seen[scene.partner].quiet:
                yield f"{rule.code} is not quiet in {scene.partner}"


def recorded(seen: dict[str, Seen]) -> str:
    """The contents of knowledge/evidence.yaml."""
    fires: dict[str, dict[str, list[str]]] = defaultdict(dict)
    quiet: dict[str, set[str]] = defaultdict(set)
    for rule in RULES.values():
        shown = rule.shown_by
        for name in firing(rule):
            if name in seen and rule.code in seen[name].fires:
                fires[name][rule.code] = [p for p in seen[name].fires[rule.code] if p in rule.params]
        for scene in shown.scenes if shown else ():
            if scene.partner in seen and rule.code in seen[scene.partner].quiet:
                quiet[scene.partner].add(rule.code)
    lines = [HEAD, "fires:"]
    for name, rules in sorted(fires.items()):
        lines.append(f"  {json.dumps(name)}:")
        lines += [f"    {code}: [{', '.join(params)}]" for code, params in sorted(rules.items())]
    lines += ["", "quiet:"]
    lines += [f"  {json.dumps(name)}: [{', '.join(sorted(codes))}]" for name, codes in sorted(quiet.items())]
    return "\n".join(lines) + "\n"


def line(rule: RuleSpec, seen: dict[str, Seen]) -> str:
    """A rule: where it fires, and what it is shown by."""
    taken = [one for name, one in seen.items() if "::" not in name and rule.code in one.fires]
    made = [(one.fires, one.quiet) for name, one in seen.items() if "::" in name]
    right = sum(rule.cause in one.right for one in taken)
    never = sum(rule.cause in one.wrong for one in taken)
    fires, quiet = (sum(rule.code in one[side] for one in made) for side in (0, 1))
    counts = f"{len(taken):8} {right:5} {never:5} {fires:6} {quiet:6}"
    shown = rule.shown_by
    by = f"{len(shown.captures)} captures, {len(shown.scenes)} scenes" if shown else "preview: nothing"
    return f"{rule.code:8}{rule.cause:32}{counts}  {by}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--saved", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.saved and args.saved.is_file():
        seen = {k: Seen(**v) for k, v in json.loads(args.saved.read_text(encoding="utf-8")).items()}
    else:
        seen = {**dict(captures(args.traces)), **scenes(args.all)}
        if args.saved:
            args.saved.write_text(json.dumps({k: v._asdict() for k, v in seen.items()}), encoding="utf-8")
    print(f"{'code':8}{'cause':32}captures right never scenes  quiet  shown by")
    for rule in RULES.values():
        print(line(rule, seen))
    fires = {code for one in seen.values() for code in one.fires}
    print("fire nowhere:", ", ".join(sorted(set(RULES) - fires)) or "none")
    for rule in (r for r in RULES.values() if r.shown_by is None):
        where = [n for n, one in seen.items() if rule.code in one.fires]
        print(
            f"{rule.code} {rule.cause} is shown by nothing; it fires in {', '.join(where[:3]) or 'nothing'}"
        )
    origins = Counter(p.origin for r in RULES.values() for p in r.params.values())
    known = sum(r.shown_by is not None for r in RULES.values())
    print(f"{known} of {len(RULES)} rules are shown by something")
    print("thresholds: " + ", ".join(f"{n} {origin}" for origin, n in origins.most_common()))
    wrong = list(faults(seen))
    print(*wrong, sep="\n")
    if args.write:
        (ROOT / "knowledge" / "evidence.yaml").write_text(recorded(seen), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
