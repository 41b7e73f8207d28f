"""The pages that are generated whole or in large part: rules, facts, command line."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from headings import anchor, linked, row

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 80
#: A rule's cases are shown on its page where there are at most this many, each with few facts.
FEW_CASES, FEW_FACTS = 12, 4
GENERATED = "<!-- Written by docs/build.py from {source}; do not edit. -->"

FACT_GROUPS = {
    "capture": "What the capture holds, what it lost, what the profiler did to it",
    "budget": "The window of a device in exclusive parts",
    "launch": "From launch call to kernel",
    "graph": "CUDA graphs",
    "kernel": "Kernels of a device",
    "sync": "Waiting calls and read-backs",
    "copy": "Copies",
    "alloc": "Allocation and free calls",
    "memory": "Device memory in use",
    "host": "What the feeding thread does while the device waits",
    "activity": "Sampled GPU metrics",
    "bandwidth": "Bandwidth from a given size of the weights",
    "step": "Steps",
    "phase": "Prefill, decode and mixed steps",
    "operation": "The largest operations, one by one",
    "comm": "Collectives of one device",
    "ranks": "All ranks of a job together",
    "rank": "One rank beside the others",
    "recording": "How a capture was recorded (rules of subject `recording`)",
    "input": "The captures given to the checklist (rules of subject `checklist`)",
    "compare": "Two sides of a comparison (rules of subject `comparison`)",
    "context": "Two context lengths (rules of subject `context`)",
    "moe": "Learned against perfect routing (rules of subject `router`)",
}


# --- folders ---------------------------------------------------------------------------------


def folders() -> str:
    """The packages of `advisor`, from the command line down as the contract on imports lists them, in their
    own words."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    order = [name for layer in layers for name in layer.split(" | ")]
    found = []
    for package in (ROOT / "advisor").glob("*/__init__.py"):
        words = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
        name = package.parent.name
        found.append((order.index(name), row((f"`{name}/`", " ".join(words.split("\n\n")[0].split())))))
    return "\n".join(["| folder | what it does |", "|---|---|", *(text for _, text in sorted(found))])


#: Where a limit comes from, as its comment says.
_ORIGIN = re.compile(r"\b(?:Measured|Documented|Computed|Judged)\b")


def limits() -> str:
    """docs/limits.md: the numbers of `limits.py` and `limits/` of each package, in their own words."""
    out = [
        "# Limits",
        "",
        GENERATED.format(source="the modules `limits` of advisor/metrics, advisor/facts and advisor/gain"),
        "",
        "For anyone who asks where a constant of the analysis comes from.",
        "",
        "Numbers that decide what a pause, a step, a slow call or lost work is. Units are in names: `_NS`,",
        "`_BYTES`, `_RATIO` (a share, 0 to 1), `_FACTOR` (how many times as much); others are counts.",
        "The origin is *measured* (the number, or a section of",
        "[calibration.md](../knowledge/calibration.md) that names captures), *documented* by those named,",
        "*computed* from other numbers, or *judged*: a convention that no measurement gives. Thresholds of",
        "rules are on their own [pages](rules.md) and can be changed;",
        "these cannot.",
    ]
    for place in ("metrics/limits/*.py", "facts/limits.py", "gain/limits.py"):
        for path in sorted((ROOT / "advisor").glob(place)):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if path.stem != "__init__":
                out += _limits_of(module, path.read_text(encoding="utf-8"))
    return "\n".join(out) + "\n"


def _limits_of(module: str, text: str) -> Iterator[str]:
    words = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    yield from ("", f"## {module}", "", words)
    values = import_module(module)
    for part in re.split(r"^# --- ", text, flags=re.MULTILINE)[1:]:
        yield from ("", "### " + part.splitlines()[0].rstrip("- "), "")
        yield from ("| limit | value | origin | what it is |", "|---|---|---|---|")
        for comment, name in re.findall(r"((?:^#: .*\n)+)([A-Z_]+) =", part, flags=re.MULTILINE):
            meaning = " ".join(line.removeprefix("#: ") for line in comment.splitlines())
            meaning = re.sub(
                r"calibration#([\w-]+)", r"[calibration](../knowledge/calibration.md#\1)", meaning
            )
            value = getattr(values, name)
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            origin = _ORIGIN.search(meaning)
            yield row((f"`{name}`", shown, origin[0].lower() if origin else "", meaning))


def releases() -> str:
    """What was looked for in which releases of engines."""
    from benchmarks.verification import releases_table

    return releases_table()


# --- rules -----------------------------------------------------------------------------------


def rule_pages() -> dict[Path, str]:
    """docs/rules.md and docs/rules/CODE.md."""
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.markdown import write
    from advisor.reports.rule_blocks import index, page

    loaded = load_rules(builtin_dir())
    rules, known = loaded.active, references()
    codes = {r.code: f"rules/{r.code}.md" for r in rules}
    intro = (
        f"{len(rules)} rules. A *cause* is a finding; a *symptom* is folded into the cause that "
        "explains it and is a finding only where none does; a *note* is listed as healthy. "
        "[confidence.md](confidence.md) says how severity, confidence and order come about, "
        "[facts.md](facts.md) what the facts mean, [own_rules.md](own_rules.md) how to write a "
        "rule."
    )
    listed = linked(write(index(rules), 1), codes).split("\n", 1)
    files = {
        ROOT / "docs/rules.md": "\n".join(
            [GENERATED.format(source="rules/"), "", listed[0], "", intro, listed[1]]
        )
    }
    links = {r.cause: f"{r.code}.md" for r in rules if "-" in r.cause}
    sources = {p.source for r in rules for p in r.params.values() if p.source}
    for source in sorted(s for s in sources if s.startswith("calibration#")):
        links[source] = f"../../knowledge/calibration.md#{anchor(source.partition('#')[2])}"
    for rule in rules:
        path = loaded.path(rule.code)
        assert path is not None
        place = path.relative_to(ROOT).as_posix()
        over = sorted(r.cause for r in rules if rule.cause in r.then.overrules)
        blocks = page(rule, known, over, _examples(rule, path), _checked(rule))
        text = linked(write(blocks, 1), links, rule.cause)
        cases = place.replace(".yaml", ".cases.yaml")
        ends = [f"[All rules](../rules.md) · [the rule file](../../{place}) · [its cases](../../{cases})", ""]
        head = GENERATED.format(source=place)
        files[ROOT / f"docs/rules/{rule.code}.md"] = "\n".join([head, "", text, *ends])
    return files


def _checked(rule: Any) -> list[str]:
    """Engines whose options carry out a recommendation, with the release they were looked for in."""
    from advisor.knowledge.engine_signs import engines
    from benchmarks.verification import checked_against

    ids = {advice.id for advice in rule.recommendations}
    using = [(e.title, checked_against(name)) for name, e in engines().items() if e.options.keys() & ids]
    return [f"{title} {version}" for title, version in using if version]


def _examples(rule: Any, rule_path: Path) -> list[Any]:
    """The cases beside a rule, in words, where they are few and short: only facts that decide."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.engine.cases import CaseFile
    from advisor.engine.compile import conditions
    from advisor.engine.parse import validate
    from advisor.knowledge.yaml_files import read
    from advisor.model.numbers import fact_unit
    from advisor.reports.rule_blocks import Example

    path = rule_path.with_name(f"{rule_path.stem}.cases.yaml")
    found = validate(read(path), CaseFile) if path.is_file() else None
    if found is None or len(found.cases) > FEW_CASES:
        return []
    judged = {getattr(c, "fact", "") for _, c in conditions(rule)}
    judged.add(getattr(rule.invalidates, "fact", ""))
    if rule.impact is not None and rule.severity.levels:
        judged.add(rule.impact.fact)
    examples = []
    for case in found.cases:
        if case.entities:
            return []
        known = [
            f"`{name}` {_exact(value, fact_unit(name, EVERY_FACT[name].unit))}"
            for name, value in case.facts.items()
            if name in judged and name in EVERY_FACT
        ]
        if len(known) > FEW_FACTS:
            return []
        known += [f"{name} found" for name in (*case.symptoms, *case.causes)]
        known += [f"{name} not judged" for name in case.unknown]
        outcome = case.expect.outcome.replace("_", " ")
        if case.expect.severity and outcome == "fired":
            outcome += f", {case.expect.severity}"
        examples.append(Example(case.name, "; ".join(known) or "nothing", outcome))
    return examples


def _exact(value: Any, unit: str) -> str:
    """A value with as many digits as it was given: 0.4999 must not read as 0.500."""
    from advisor.model.numbers import value_text

    texts = [value_text(value, unit, digits) for digits in range(3, 12)]
    return next(t for t in texts if _number(t) == _number(texts[-1]))


def _number(text: str) -> float | str:
    found = re.match(r"-?[\d,]+(?:\.\d+)?", text)
    return text if found is None else float(found[0].replace(",", ""))


# --- facts -----------------------------------------------------------------------------------


def facts() -> str:
    """docs/facts.md: the catalogue, one table a group, and the tables that rules may join."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.knowledge.facts import joined_tables

    lines = [
        GENERATED.format(source="knowledge/facts/"),
        "",
        "# Facts",
        "",
        f"{len(EVERY_FACT)} facts: all that rules can use. `advisor facts TRACE` prints their "
        "values in a capture with where each came from. A fact without a value is missing, never "
        "zero: a rule that needs it is then not evaluated. *Tables* are those of the capture "
        "without which a fact has no value, *flag* the nsys option that records them. Ratios are "
        "0 to 1 here and percent in reports; a name with `_over_` is a quotient of two like "
        "amounts and may exceed 1. How they are computed: [definitions.md](definitions.md).",
    ]
    groups: dict[str, list[Any]] = {}
    for spec in EVERY_FACT.values():
        groups.setdefault(spec.name.split(".")[0], []).append(spec)
    for name, specs in groups.items():
        lines += ["", f"## {name}", "", f"{FACT_GROUPS.get(name, name)}.", ""]
        lines += ["| fact | unit | scope | meaning | how | tables | flag |", "|---|" + "---|" * 6]
        lines += [
            row(
                (
                    f"`{s.name}`",
                    s.unit,
                    s.level,
                    s.meaning,
                    s.how,
                    ", ".join(s.tables),
                    f"`{s.flag}`" if s.flag else "",
                )
            )
            for s in specs
        ]
    lines += ["", "## Tables that rules may join", "", "| table | scope | rows | fields |"]
    lines += ["|---|---|---|---|"]
    for name, table in joined_tables().items():
        columns = ", ".join(f"`{n}` ({t})" for n, t in table.fields.items())
        lines.append(row((f"`{name}`", table.scope, table.meaning, columns)))
    return "\n".join([*lines, ""])


# --- the command line ------------------------------------------------------------------------


def cli() -> str:
    """docs/cli.md: what every verb says of itself, and what may stand in a file."""
    lines = [
        GENERATED.format(source="advisor/cli"),
        "",
        "# Command line",
        "",
        "What every verb prints with `--help-all`, and the keys of the "
        "[configuration file](#configuration-file).",
        "",
    ]
    lines += ["## advisor", "", *_block(help_of())]
    for words in verbs():
        lines += [f"{'#' * (1 + len(words))} advisor {' '.join(words)}", "", *_block(help_of(words))]
    lines += ["## Configuration file", "", *_configuration()]
    return "\n".join([*lines, ""])


def verbs() -> list[tuple[str, ...]]:
    """Every verb, and the verbs of verbs, as words."""
    from advisor.cli.app import VERBS, app

    group: Any = app
    found: list[tuple[str, ...]] = []
    for name in VERBS:
        found.append((name,))
        found += [(name, sub) for sub in getattr(group.get_command(None, name), "commands", ())]
    return found


def help_of(words: Sequence[str] = ()) -> str:
    """The help of a verb with all its options, 80 columns wide."""
    from advisor.cli.main import main

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            main([*words, "--help-all"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return text.getvalue()


def _block(text: str) -> list[str]:
    return ["```text", *(line.rstrip() for line in text.strip().splitlines()), "```", ""]


def _configuration() -> Iterator[str]:
    """The keys that `advisor.toml` or `[tool.advisor]` may hold."""
    from advisor.config import SETTINGS

    yield "Options of `diagnose` may stand in `advisor.toml`, or in `pyproject.toml` under"
    yield "`[tool.advisor]`; `advisor.toml` wins over `pyproject.toml`, and a flag over both. `--config FILE`"
    yield "takes another file instead. What a file may name: [security](security.md#options-from-files)."
    yield from ("", "| key | value | default | meaning |", "|---|---|---|---|")
    kinds = {"list": "list of texts", "bool": "true or false", "int": "whole number"}
    for key, setting in SETTINGS.items():
        value = ", ".join(setting.flag.choices) or kinds.get(setting.kind, "text")
        default = setting.default if setting.default not in (None, ()) else ""
        default = str(default).lower() if isinstance(default, bool) else str(default)
        yield row((f"`{key.replace('_', '-')}`", value, default, setting.flag.help))


def reaches() -> str:
    """What each option could do if a stranger had chosen its value, and whether files may set it."""
    from advisor.config import REACHES

    lines = ["| option | what it does | found file | `--config FILE` |", "|---|---|---|---|"]
    for reach in REACHES:
        names = ", ".join(f"`{key.replace('_', '-')}`" for key in reach.keys.split())
        found = "below its folder" if reach.paths else "yes"
        named = "anywhere" if reach.paths else "yes"
        lines.append(row((names, reach.effect, *((found, named) if reach.in_files else ("no", "no")))))
    return "\n".join(lines)
