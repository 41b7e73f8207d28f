"""Groups of facts run at the same time for a large capture, so none may need what another one found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from advisor.facts import catalog
from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import FactBase
from advisor.pipeline.diagnose import open_trace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "captures"


def built(name: str) -> FactBase:
    with open_trace(EXAMPLES / name) as trace:
        return build_facts(measure(trace))


def last_first(_threads: object, tasks: Mapping[str, Callable[[], FactBase]]) -> dict[str, FactBase]:
    return {name: task() for name, task in reversed(tasks.items())}


@pytest.mark.parametrize(
    "name", ["decode8b_graph_bs1.sqlite.xz", "decode_h2d_pageable.sqlite.xz", "kineto_decode_graph.json.gz"]
)
def test_facts_do_not_depend_on_the_order_of_their_groups(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = built(name)
    monkeypatch.setattr(catalog, "run_tasks", last_first)
    found = built(name)
    assert {(f.name, f.scope): f.value for f in found} == {(f.name, f.scope): f.value for f in usual}
    assert found.tables == usual.tables
