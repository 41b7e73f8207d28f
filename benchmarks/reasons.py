"""What was not judged in each capture, why, and whether the table or column named is really absent.

    python benchmarks/reasons.py [CAPTURE|FOLDER...]      (default: the captures of this repository)

Prints a table of the reasons with their outcomes and captures, then every reason that names what is
there, or what the facts that are missing are not made of; the exit code is 1 where there is one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from mapped import COMMITTED

from advisor.errors import InputError
from advisor.facts.catalog import CATALOGUE
from advisor.model.findings import NotEvaluated
from advisor.pipeline.diagnose import Options, diagnose, open_trace
from advisor.pipeline.inputs import expand
from advisor.sources.schema import MISSING, TABLES
from advisor.sources.trace import Trace

#: Where neither a table nor a column nor anything else that was looked for is absent.
NOTHING = {"the window holds nothing of the kind", "no GPU work to judge"}
_ABSENT = re.compile("the capture (holds|has) no |the samples do not hold ")


def reasons(path: Path) -> tuple[Counter[str], list[str]]:
    """How many outcomes of a capture have each reason, and what is wrong with some of them."""
    d = diagnose(path, Options(engine="python"))
    entries = [e for e in d.not_evaluated if not e.stopped_by]
    with open_trace(path) as trace:
        wrong = [f"{e.code}: {text}" for e in entries for text in _wrong(e, trace)]
    return Counter(part for e in entries for part in (e.why or "no reason").split("; ")), wrong


def _wrong(entry: NotEvaluated, trace: Trace) -> Iterator[str]:
    if not entry.why:
        yield f"no reason for {', '.join(entry.missing)}"
        return
    specs = [CATALOGUE[n] for n in entry.missing]
    made_of = {t for s in specs for t in (*s.tables, *s.columns)}
    known = {need.lack for s in specs for need in s.needs} | NOTHING
    for why in entry.why.split("; "):
        if not _ABSENT.match(why) and why not in known and "knowledge/kernel_families.yaml" not in why:
            yield f"{why!r} is no need of {entry.missing}"
    for names in re.findall(r"the capture holds no ([a-z_, ]+)", entry.why):
        for table in names.split(", "):
            if table in trace.tables or table not in made_of or table not in TABLES:
                yield f"{table} is no reason for {entry.missing}"
    for column in re.findall(r"\b[a-z_]+\.[a-z_]+\b", entry.why):
        table, _, name = column.partition(".")
        declared = {c for s in specs for c in s.columns.get(table, ())}
        if table in TABLES and (name not in declared or _has_values(trace, table, name)):
            yield f"{column} is no reason for {entry.missing}"


def _has_values(trace: Trace, table: str, column: str) -> bool:
    values = trace.columns(table, (column,))[column]
    known = ~np.isnan(values) if values.dtype.kind == "f" else values != MISSING
    return bool(known.any())


def main(argv: Sequence[str]) -> int:
    outcomes, captures, wrong = Counter[str](), Counter[str](), []
    for path in expand([Path(a) for a in argv] or COMMITTED):
        try:
            found, bad = reasons(path)
        except InputError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        outcomes += found
        captures += Counter(found.keys())
        wrong += [f"{path.name}: {text}" for text in bad]
    print("| not judged because | outcomes | captures |\n|---|--:|--:|")
    for why, count in outcomes.most_common():
        print(f"| {why} | {count} | {captures[why]} |")
    print("\n" + ("\n".join(wrong) or "No reason names what is there."))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
