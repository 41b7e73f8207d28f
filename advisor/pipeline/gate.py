"""Which findings are shown, and which fail a gate: codes, a baseline, the history of a folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from advisor.engine.load import builtin_dir, load_rules
from advisor.engine.rank import graded
from advisor.errors import InputError, near
from advisor.model.findings import SEVERITIES, Diagnosis, Finding, Part
from advisor.model.numbers import first_few
from advisor.model.review import History, Review
from advisor.model.rules import RuleSpec
from advisor.pipeline.inputs import located


def baseline(text: str, folder: Path) -> tuple[Diagnosis, ...]:
    """The saved diagnoses of a file, or of the baseline of this name. Raises InputError."""
    from advisor.comparison.baseline import read

    return read(located(text, folder, "--baseline "))


def known_rules(folders: Sequence[Path]) -> Mapping[str, RuleSpec]:
    """The built-in rules and the user's, by code."""
    return load_rules(builtin_dir(), *folders).by_code


def select(
    diagnosis: Diagnosis, selected: Sequence[str], ignored: Sequence[str], rules: Mapping[str, RuleSpec]
) -> Diagnosis:
    """The diagnosis with only the selected codes, without the ignored ones, and with the headline, verdict
    and plan that follow from what is left.

    A code is exact (``SYN101``) or a prefix (``SYN``). Numbers and severities of the findings and the facts
    stay as inferred, but for a part of a finding that is left out: that is graded by itself.
    """
    wanted, unwanted = codes(selected), codes(ignored)
    if not wanted and not unwanted:
        return diagnosis

    def keep(items: Iterable[Any]) -> tuple[Any, ...]:
        chosen = (i for i in items if not wanted or i.code.startswith(wanted))
        return tuple(i for i in chosen if not i.code.startswith(unwanted))

    coded = ("findings", "overruled", "healthy", "observed", "not_applicable", "not_evaluated")
    whole = diagnosis
    diagnosis = diagnosis.replaced(**{name: keep(getattr(diagnosis, name)) for name in coded})
    if len(diagnosis.findings) < len(whole.findings):
        diagnosis = _derived_again(diagnosis, whole.findings, rules)
    there = {h.code for h in (*diagnosis.healthy, *diagnosis.observed)}
    away = {h.code for h in diagnosis.not_applicable}
    diagnosis = diagnosis.replaced(does_not_apply=len(away - there))
    if (marked := diagnosis.baseline) is None:
        return diagnosis
    new = sum(f.baseline == "new" for f in diagnosis.findings)
    counts = {"gone": keep(marked.gone), "new": new, "known": len(diagnosis.findings) - new}
    return diagnosis.replaced(baseline=marked.replaced(**counts))


def _derived_again(
    diagnosis: Diagnosis, all_findings: Sequence[Finding], rules: Mapping[str, RuleSpec]
) -> Diagnosis:
    """The diagnosis with headline, verdict, plan and budget of its findings, which are some of
    `all_findings`."""
    from advisor.pipeline import verdict

    left = {f.code for f in diagnosis.findings}
    causes = {f.cause for f in all_findings if f.code not in left}
    findings = tuple(_behind_those_left(f, left) for f in diagnosis.findings)
    plan, first = diagnosis.combined, diagnosis.headline
    if plan is not None and any(step.code not in left for step in plan.steps):
        plan = None  # an estimate with a fix that is left out
    if first is None or first.code not in left or plan is None:
        first = verdict.headline(findings, rules)
    text = verdict.of_findings(diagnosis.inputs[0].workload or "", findings)
    hidden = ", ".join(dict.fromkeys(f.code for f in all_findings if f.code not in left))
    return diagnosis.replaced(
        findings=findings,
        headline=first,
        do=verdict.to_do(findings, rules, plan),
        combined=plan,
        verdict=text or f"No finding above info is left: --select or --ignore leaves out {hidden}.",
        budget=tuple(b.replaced(parts=tuple(_without(p, causes) for p in b.parts)) for b in diagnosis.budget),
    )


def _behind_those_left(finding: Finding, left: Collection[str]) -> Finding:
    """The finding, on its own if the one is left out that it is a part of."""
    gain = finding.gain
    if gain is None or gain.part_of is None or gain.part_of in left:
        return finding
    return graded(finding.replaced(gain=gain.replaced(after_first=None, part_of=None)))


def _without(part: Part, causes: Collection[str]) -> Part:
    """A part of the budget without the causes that are left out."""
    return part.replaced(findings=tuple(c for c in part.findings if c not in causes))


def codes(given: Sequence[str]) -> tuple[str, ...]:
    """Codes or prefixes from ``A,B C`` lists, in capitals."""
    return tuple(c.upper() for text in given for c in text.replace(",", " ").split())


def check_codes(given: Sequence[str], known: Collection[str], option: str) -> None:
    """Raise for a code or prefix that no known rule has."""
    for code in codes(given):
        if not any(k.startswith(code) for k in known):
            hint = near(code, sorted(known), "see 'advisor rules list'", most=3, cutoff=0.5)
            raise InputError(f"{option}: no rule has the code {code}; {hint}")


#: Findings that a failed gate names.
_NAMED = 3


def failure(
    done: Sequence[Diagnosis], fail_on: str | None, new: bool = False, worse: bool = False, *, folder: Path
) -> str:
    """Which findings reach the severity `fail_on`, in one line; empty if none does. With `new` or `worse`
    only new ones count, or those worse than in the baseline, by default from medium on; with `worse` a slower
    step fails the gate, too. Findings that the history of the folder keeps from failing a gate today do not
    count."""
    against = new or worse
    least = fail_on or ("medium" if against else None)
    if least is None:
        return ""
    from advisor.comparison.baseline import read_history

    hidden = read_history(folder).hidden(date.today().isoformat())
    enough = set(list(SEVERITIES)[[*map(str, SEVERITIES)].index(least) :])

    def counts(f: Finding) -> bool:
        chosen = (new and f.baseline == "new") or (worse and f.changed == "worse") or not against
        return f.kind != "limit" and f.identity not in hidden and chosen

    found = [(d, f) for d in done for f in d.findings if counts(f) and f.severity in enough]
    asked = [f"--fail-on-{name}" for name, given in (("new", new), ("worse", worse)) if given]
    asked.append(f"--fail-on {least}" if fail_on else f"from {least} on")
    slower = [(d, slower_step(d)) for d in done if worse]
    failing = [*((d, text) for d, text in slower if text), *((d, named(f)) for d, f in found)]
    texts = [f"{d.inputs[0].path}: {text}" if len(done) > 1 else text for d, text in failing]
    return failed(texts, ", ".join(asked))


def slower_step(diagnosis: Diagnosis) -> str:
    """How the step changed, if it is certainly slower than in the baseline; empty otherwise."""
    step = diagnosis.baseline.step if diagnosis.baseline is not None else None
    return step.summary.rstrip(".") if step is not None and step.verdict == "regression" else ""


def named(finding: Finding) -> str:
    """``LCH101 launch-bound (device 0): high``, with its state where there is a baseline."""
    state = finding.changed or finding.baseline
    level = f"{state}, {finding.severity}" if state else finding.severity
    return f"{finding.code} {finding.cause}{finding.scope.aside()}: {level}"


def failed(found: Sequence[str], asked: str) -> str:
    """Why a gate fails, in one line, with what was `asked` for; empty if nothing was `found`."""
    if not found:
        return ""
    return f"gate failed: {first_few(found, _NAMED)} ({asked})"


def since(before: Review | History, done: Sequence[Diagnosis]) -> History:
    """What became of the findings of earlier reviews in the captures of today."""
    from advisor.comparison.baseline import of_review, recorded

    past = of_review(before) if isinstance(before, Review) else before
    return recorded(past, done[0], date.today().isoformat(), others=done[1:])
