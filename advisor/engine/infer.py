"""Runs a rule set over a fact base, stratum by stratum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.engine.compile import Program, compile_rules
from advisor.engine.durable import EngineError, Matcher, available
from advisor.engine.interpret import Board, Outcome, OutcomeState, Sight, evaluate
from advisor.engine.load import RuleSet
from advisor.engine.params import ParamKey
from advisor.errors import InputError
from advisor.model.facts import FactBase, Scope

Engine = Literal["durable", "python"]
MAX_FACTS = 5_000
MAX_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Inference:
    """Every outcome of a run, in order of code and scope, with all that explains it."""

    engine: Engine
    program: Program
    facts: FactBase
    board: Board = field(repr=False)
    outcomes: tuple[Outcome, ...] = ()
    by_code: Mapping[str, tuple[Outcome, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        grouped: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            grouped.setdefault(outcome.code, []).append(outcome)
        object.__setattr__(self, "by_code", {c: tuple(o) for c, o in grouped.items()})

    @property
    def sight(self) -> Sight:
        return self.board.sight

    def in_state(self, *states: OutcomeState) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.state in states)

    def outcome(self, code: str, scope: Scope) -> Outcome | None:
        return next((o for o in self.by_code.get(code, ()) if o.scope == scope), None)


def default_engine() -> Engine:
    """durable-rules where it imports, else the interpreter; the results are the same."""
    return "durable" if available()[0] else "python"


def infer(
    facts: FactBase,
    rules: RuleSet | Program,
    *,
    engine: Engine = "durable",
    params: Mapping[ParamKey, Any] | None = None,
    given: Mapping[str, OutcomeState] | None = None,
) -> Inference:
    """The outcome of every active rule in every scope of its level.

    A rule whose level has no scope is evaluated in the next wider one that exists, at last once
    for the whole trace. `given` fixes outcomes of symptoms and causes by name (cases of one rule).
    Raises RuleError for rules that do not compile, EngineError where durable-rules is asked for
    and cannot run, InputError above 5,000 facts.
    """
    if len(facts) > MAX_FACTS:
        raise InputError(
            f"the trace gives {len(facts)} facts, more than {MAX_FACTS}; narrow the window or "
            "keep fewer operations"
        )
    rows = sum(len(r) for r in facts.entities.values())
    if rows > MAX_ROWS:
        raise InputError(f"{rows} entity rows, more than {MAX_ROWS}; keep only the largest")
    if isinstance(rules, Program):
        if params:
            raise ValueError("a compiled program has its parameters; compile with them")
        program = rules
    else:
        program = compile_rules(rules, params)
    board = Board(Sight(facts), given)
    with Matcher(program, board) if engine == "durable" else nullcontext() as matcher:
        for number, stratum in enumerate(program.strata):
            found = [
                evaluate(rule, scope, board)
                for rule in stratum
                for scope in board.sight.scopes(rule.spec.scope)
            ]
            if matcher is not None:
                _agree(matcher.fire(number), found)
            for outcome in found:
                board.post(outcome)
    ordered = sorted(board.outcomes.values(), key=lambda o: (o.code, o.scope.sort_key()))
    return Inference(engine, program, facts, board, tuple(ordered))


def _agree(fired: set[tuple[str, Scope]], found: Iterable[Outcome]) -> None:
    """durable-rules decides what fires and the interpreter the rest; they must not contradict."""
    defined = {(o.code, o.scope) for o in found if o.state == "fired"}
    if fired != defined:
        odd = sorted(fired ^ defined, key=lambda f: (f[0], f[1].sort_key()))
        named = ", ".join(f"{code} ({scope.label() or 'trace'})" for code, scope in odd[:5])
        raise EngineError(
            f"durable-rules and the interpreter disagree on {named}; use --engine python and "
            "report this"
        )
