"""Passes of ``advisor run``: what a recording cannot answer becomes the plan of the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from advisor.capture.nsys_options import apart, joined, merged, name_of
from advisor.model.capture_plan import Checkup
from advisor.model.findings import Diagnosis
from advisor.model.numbers import first_few
from advisor.model.run import Pass, Run
from advisor.recording import store
from advisor.recording.record import COUNTERS, OUTPUT

#: Rules that are named, and things that no pass could supply.
_FEW = 8
_NEEDS = 3


class Next(NamedTuple):
    """The plan of another pass: all options, further variables, and what it is kept as."""

    options: tuple[str, ...]
    variables: dict[str, str]
    kept: Pass
    why: str


def next_plan(run: Run, checkup: Checkup) -> Next | None:
    """The remedies of a checkup as options of the next pass, without counters where they were refused; None
    if there are none that nsys could carry out."""
    plan = checkup.plan
    wanted = [o.option for o in plan.options if o.new]
    if "counters" in run.refused:
        wanted = [o for o in wanted if name_of(o) not in COUNTERS]
    have = [one for option in run.options for one in apart(option)]
    added = [o for o in wanted if o.startswith("-") and o not in have]
    given = [o.split("=", 1) for o in wanted if not o.startswith("-")]
    variables = {name: value for name, value in given if run.variables.get(name) != value}
    if not (added or variables) or not (plan.enables or plan.addresses):
        return None
    enabled = f"so that {len(plan.enables)} more rules can be judged" if plan.enables else ""
    addressed = f"against {', '.join(plan.addresses)}" if plan.addresses else ""
    return Next(
        options=tuple(merged(have, added)),
        variables=variables,
        kept=Pass(
            added=(*(f"{k}={v}" for k, v in variables.items()), *joined(added)),
            waiting=tuple(sorted({r.code for b in checkup.blocked for r in b.rules})),
        ),
        why=", ".join(filter(None, (enabled, addressed))),
    )


def put_aside(folder: Path, number: int) -> Path:
    """Move the captures of a pass into a folder of their own, in which they can be found later."""
    aside = folder / f"pass-{number}"
    aside.mkdir()
    for path in folder.glob(f"{OUTPUT}*"):
        path.rename(aside / path.name)
    return aside


def put_back(folder: Path, aside: Path, run: Run) -> None:
    """Undo that: the pass after it recorded nothing, or only a part."""
    for path in folder.glob(f"{OUTPUT}*"):
        path.unlink()
    for path in aside.iterdir():
        path.rename(folder / path.name)
    aside.rmdir()
    store.save(folder, run)


def judged(run: Run, found: Diagnosis) -> tuple[Run, list[str]]:
    """The run with what its last pass decided, and that in words; and what no pass could answer."""
    lacking = {n.code for n in found.lacking}
    notes = []
    if run.passes:
        last = run.passes[-1]
        decided = tuple(code for code in last.waiting if code not in lacking)
        number = len(run.passes) + 1
        text = f"pass {number} judged {len(decided)} of {len(last.waiting)} rules that waited"
        notes.append(f"{text}: {first_few(decided, _FEW)}" if decided else text)
        run = run.replaced(passes=(*run.passes[:-1], last.replaced(decided=decided)))
    if run.passes and lacking:
        needs = ", ".join(_needs(found, lacking))
        notes.append(f"no pass could answer {len(lacking)} rules{f'; most need {needs}' if needs else ''}")
    return run.replaced(notes=(*run.notes, *notes)), notes


def _needs(found: Diagnosis, lacking: Collection[str]) -> Iterator[str]:
    """What most of the rules lack, the most first."""
    flags = Counter({n.code: n.flag for n in found.lacking if n.code in lacking and n.flag}.values())
    for flag, count in flags.most_common(_NEEDS):
        yield f"{flag} ({count})"
