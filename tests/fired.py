"""Which rules fire and which are quiet while something runs, and which parameters let them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from unittest import mock

from advisor.engine import infer, reasons
from advisor.engine.compile import CompiledRule, Test
from advisor.engine.interpret import Outcome, OutcomeLog
from advisor.model.facts import Scope


class Fired:
    """By code of a rule: the parameters whose comparison let it fire, in any of the captures; and the codes
    of rules that were judged in a scope and did not fire in it, or that another cause overruled."""

    def __init__(self) -> None:
        self.params: dict[str, set[str]] = {}
        self.quiet: set[str] = set()

    def add(self, rule: CompiledRule, outcome: Outcome, log: OutcomeLog) -> None:
        if outcome.state == "fired":
            self.params.setdefault(outcome.code, set()).update(_letting(rule, outcome, log))
        elif outcome.state in ("quiet", "overruled"):
            self.quiet.add(outcome.code)


def _letting(rule: CompiledRule, outcome: Outcome, log: OutcomeLog) -> Iterator[str]:
    """Parameters of conditions that hold and of guards that do not, and of what else holds of the finding."""
    for branch in outcome.branches:
        yield from _named(c.condition for c in branch.conditions if branch.truth)
    yield from _named(g.checked.condition for g in outcome.guards if g.checked.truth is False)
    flags = (rule.invalidates, rule.withholds, rule.withholds_health, rule.lost, rule.aside)
    groups = (rule.applies, rule.alternatives, rule.doubts, rule.same_as, rule.gain)
    further = chain(rule.looks_at, flags, *(chain(*group) for group in groups))
    tests = (t for t in further if isinstance(t, Test))
    yield from _named(t for t in tests if log.view.look(t, outcome.scope)[0] is True)


def _named(conditions: Any) -> Iterator[str]:
    yield from (c.param for c in conditions if isinstance(c, Test) and c.param is not None)


@contextmanager
def fired() -> Iterator[Fired]:
    """What is judged inside, but for judgements with other thresholds, which the margins of rules ask for."""
    seen, judged, asked = Fired(), infer.evaluate, reasons.infer
    recording = [True]

    def evaluate(rule: CompiledRule, scope: Scope, log: OutcomeLog) -> Outcome:
        outcome = judged(rule, scope, log)
        if recording[0]:
            seen.add(rule, outcome, log)
        return outcome

    def unrecorded(*args: Any, **options: Any) -> Any:
        recording[0] = False
        try:
            return asked(*args, **options)
        finally:
            recording[0] = True

    with mock.patch.object(infer, "evaluate", evaluate), mock.patch.object(reasons, "infer", unrecorded):
        yield seen


def missing(node: str, seen: Fired, fires: Sequence[str], quiet: Sequence[str]) -> list[str]:
    """What the evidence says of a scene and is not so."""
    return [
        *(f"{code} does not fire in {node}" for code in fires if code not in seen.params),
        *(f"{code} is not quiet in {node}" for code in quiet if code not in seen.quiet),
    ]
