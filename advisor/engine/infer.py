"""Runs a rule set over a fact base, stratum by stratum.

durable-rules decides what fires; the interpreter explains why, distinguishes quiet from unknown, and
takes over if durable-rules does not import or cannot hold the facts.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from advisor.engine.compile import Program, Test, compile_rules
from advisor.engine.durable import EngineError, Matcher, available, require
from advisor.engine.interpret import FactView, Outcome, OutcomeLog, OutcomeState, evaluate
from advisor.engine.load import RuleSet
from advisor.engine.values import ParamKey, atom
from advisor.model.facts import FactBase, Scope
from advisor.model.numbers import percent
from advisor.model.rules import Answer

Engine = Literal["durable", "python"]
MAX_FACTS = 5_000
MAX_ROWS = 20_000
_log = logging.getLogger(__name__)


class Disagreement(RuntimeError):
    """durable-rules fired something else than the interpreter explains: a bug."""


class Inference(Struct, frozen=True, dict=True):
    """Every outcome of a run, in order of code and scope, with all that explains it."""

    engine: Engine
    program: Program
    facts: FactBase
    log: OutcomeLog
    outcomes: tuple[Outcome, ...] = ()
    #: Why the interpreter judged although durable-rules was requested, or a firing that it cannot
    #: explain.
    notes: tuple[str, ...] = ()

    @cached_property
    def by_code(self) -> Mapping[str, tuple[Outcome, ...]]:
        return {code: tuple(found) for code, found in groupby(self.outcomes, key=lambda o: o.code)}

    @property
    def view(self) -> FactView:
        return self.log.view

    def truth(self, test: Test, scope: Scope) -> bool | None:
        """Whether a test of a fact holds as seen from a scope; None if that is unknown."""
        return self.view.look(test, scope)[0]

    def in_state(self, *states: OutcomeState) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.state in states)

    def answer(self, outcome: Outcome) -> Answer | None:
        """The answer to a question: of the first branch that holds, else `otherwise`, in the checklist only
        if every branch is false (except one about not being applicable); None if a person has to answer."""
        spec = self.program.by_code[outcome.code].spec
        if outcome.first < len(outcome.branches):
            return spec.answers[outcome.first] if spec.answers else None
        pairs = zip(outcome.branches, spec.answers, strict=False)
        judged = all(b.truth is False for b, a in pairs if a.reply != "not_applicable")
        return spec.otherwise if judged or spec.subject == "recording" else None

    def outcome(self, code: str, scope: Scope) -> Outcome | None:
        return next((o for o in self.by_code.get(code, ()) if o.scope == scope), None)


def default_engine() -> Engine:
    """durable-rules if it imports, else the interpreter; the results are the same."""
    return "durable" if available()[0] else "python"


def infer(
    facts: FactBase,
    rules: RuleSet | Program,
    *,
    engine: Engine = "durable",
    params: Mapping[ParamKey, Any] | None = None,
    given: Mapping[str, OutcomeState] | None = None,
    strict: bool = False,
) -> Inference:
    """The outcome of every active rule in every scope of its level, or where a level has none in the next
    wider one, at last the whole trace. `given` fixes outcomes of symptoms and causes by name (cases of one
    rule).

    With `engine="durable"` durable-rules decides what fires; the interpreter explains it and distinguishes
    quiet, overruled and unknown. It judges alone, and `notes` says why, if durable-rules fails or cannot hold
    the facts or the rules. A disagreement stands and is named in `notes`. `strict` raises instead:
    EngineError for a failure, Disagreement otherwise. Raises RuleError for rules that do not compile,
    EngineError if durable-rules is requested and does not import."""
    if isinstance(rules, Program):
        if params:
            raise ValueError("a compiled program has its parameters; compile with them")
        program = rules
    else:
        program = compile_rules(rules, params)
    if engine == "python":
        return _judged("python", facts, program, given)
    if (why := _limit(facts, program)) is None:
        require()
        try:
            return _judged("durable", facts, program, given, strict=strict)
        except EngineError as error:
            if strict:
                raise
            why = str(error)
    return _judged("python", facts, program, given, f"the built-in interpreter judges: {why}")


def _limit(facts: FactBase, program: Program) -> str | None:
    """Why durable-rules cannot hold this; None if it can."""
    if len(facts) > MAX_FACTS:
        return f"{len(facts)} facts are more than the {MAX_FACTS} that durable-rules is given"
    rows = sum(len(r) for r in facts.entities.values())
    if rows > MAX_ROWS:
        return f"{rows} entity rows are more than the {MAX_ROWS} that durable-rules is given"
    return program.too_large()


def _judged(
    engine: Engine,
    facts: FactBase,
    program: Program,
    given: Mapping[str, OutcomeState] | None,
    *notes: str,
    strict: bool = False,
) -> Inference:
    """By the interpreter alone, or durable-rules decides what fires and the interpreter explains it.

    Explaining costs no second inference: it happens once, after the stratum has been decided."""
    log, odd = OutcomeLog(FactView(facts), given), list[Outcome]()
    with Matcher(program, log) if engine == "durable" else nullcontext() as matcher:
        for number, stratum in enumerate(program.strata):
            fired = None if matcher is None else matcher.fire(number)
            explained = [evaluate(rule, s, log) for rule in stratum for s in log.view.scopes(rule.level)]
            for at, outcome in enumerate(explained):
                fires = outcome.state == "fired" if fired is None else (outcome.code, outcome.scope) in fired
                if fires != (outcome.state == "fired"):
                    odd.append(outcome)
                    explained[at] = replace(outcome, state="fired" if fires else "quiet")
            if odd and strict:
                raise Disagreement(_disagreement(odd))
            for outcome in explained:
                log.post(outcome)
    notes += (f"{_disagreement(odd)}: durable-rules is followed",) if odd else ()
    for note in notes:
        _log.warning(note)
    outcomes = sorted(log.outcomes.values(), key=lambda o: (o.code, o.scope.sort_key()))
    return Inference(engine, program, facts, log, tuple(outcomes), notes)


def _disagreement(odd: Sequence[Outcome]) -> str:
    named = ", ".join(f"{o.code} ({o.scope.label() or 'trace'})" for o in odd[:5])
    return f"durable-rules and the interpreter disagree on {named}; please report this"


# --- what part of a capture leaves open -----------------------------------------------------------

#: If no rule compares a share with a threshold: the unknown part may be at most as large as the known
#: one, above this share (the least other time that rules call notable, calibration#krn111).
NOTABLE = 0.05


def take_out_undecided(facts: FactBase, program: Program) -> None:
    """Make a value unknown if its least and its most possible value decide a condition differently."""
    tests: dict[str, list[Test]] = defaultdict(list)
    for rule in program.by_code.values():
        for test in rule.tests():
            tests[test.fact].append(test)
    for (name, scope), (least, most) in facts.ranges.items():
        low, high = atom(least), atom(most)
        if any(test.holds(low) != test.holds(high) for test in tests[name]) or (
            not tests[name] and most - least > max(least, NOTABLE)
        ):
            what = facts.unknown.get(name, "kernels that no entry of knowledge/kernel_families.yaml names")
            why = f"{what} hold {percent(most - least, 2)} of the time, enough to change the verdict"
            facts.take_out(name, scope, why)
