"""What is known stays: a missing fact that becomes known never flips a known outcome."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.infer import infer
from advisor.model.facts import Fact, FactBase
from tests.engine.engine_support import FLAGS, NUMBERS, SCOPES, TEXTS, because, random_facts, random_rules

NAMES = (*NUMBERS, *TEXTS, *FLAGS)


def _with_scopes(facts: FactBase) -> FactBase:
    """Scopes are no facts: those of the test exist whatever is known about them."""
    for scope in SCOPES:
        facts.add(Fact("case.scope", True, "flag", scope))
    return facts


def _without(facts: FactBase, names: set[str], tables: set[str]) -> FactBase:
    """The same capture with some facts not known anywhere, and some tables absent."""
    return FactBase(
        facts={k: f for k, f in facts.facts.items() if k[0] not in names},
        entities={n: rows for n, rows in facts.entities.items() if n not in tables},
    )


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    names=st.sets(st.sampled_from(NAMES)),
    tables=st.sets(st.sampled_from(("e0", "e1"))),
)
def test_more_facts_never_flip_an_outcome(seed: int, names: set[str], tables: set[str]) -> None:
    rng = random.Random(seed)
    # Guards that pass on unknown and overruling act on what is not known, by design.
    chosen = random_rules(rng, passing=False, overrules=False, known=False)
    full = _with_scopes(random_facts(rng))
    before = infer(_without(full, names, tables), chosen, engine="python").log.outcomes
    after = infer(full, chosen, engine="python").log.outcomes
    assert before.keys() == after.keys()
    for key, outcome in before.items():
        if outcome.state != "unknown":
            assert after[key].state == outcome.state


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_what_is_unknown_names_what_is_missing(seed: int) -> None:
    rng = random.Random(seed)
    chosen = random_rules(rng, known=False)
    for outcome in infer(_with_scopes(random_facts(rng)), chosen, engine="python").outcomes:
        assert (outcome.state == "unknown") == bool(outcome.missing)
        assert bool(outcome.overruled_by) == (outcome.state == "overruled")
        if outcome.state in ("fired", "overruled"):
            assert because(outcome)
