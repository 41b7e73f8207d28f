"""Where facts come from: the columns that are declared exist and are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from advisor.facts.catalog import CATALOGUE, build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import Scope
from advisor.sources.open import open_trace
from advisor.sources.schema import TABLES
from advisor.sources.trace import Trace
from tests.captures import DATA, EXAMPLES

#: These come from the metadata of a capture, or from several captures together.
NO_TABLE = ("ranks.", "rank.", "compare.", "moe.", "gpu.")
METADATA = {
    "capture.size_bytes",
    "capture.event_count",
    "capture.secret_name_count",
    "capture.debug_build",
    "capture.client_command",
    "capture.schema_known",
    "capture.cuda_traced",
    "capture.view_count",
    "capture.stack_recorded",
    "capture.stack_option",
    "capture.window_chosen",
    "capture.nsys_recorded",
    "capture.compute_capability",
    "capture.platform",
    "capture.serving_side",
    "capture.sums_only",
    "bandwidth.peak_rate",
    "load.logged",
    "memory.reserved_at_start",
}


def of_tables(name: str) -> bool:
    return name not in METADATA and not name.startswith(NO_TABLE)


def test_columns_are_declared_and_exist() -> None:
    for name in filter(of_tables, CATALOGUE):
        found = CATALOGUE[name].columns
        assert found, f"declare the columns of {name}"
        assert set(CATALOGUE[name].tables) <= set(found), name
        for table, names in found.items():
            assert names, name
            assert set(names) <= set(TABLES[table]), name


def test_metadata_has_no_columns() -> None:
    assert not any(CATALOGUE[name].columns for name in METADATA)


def test_what_is_declared_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all captures: a fact's columns are among those that the analysis asked for."""
    asked: set[str] = set()
    real = Trace.columns

    def spy(self: Trace, table: str, names: Iterable[str], *more: Any) -> Any:
        wanted = list(names)
        asked.update(f"{table}.{n}" for n in wanted)
        return real(self, table, wanted, *more)

    monkeypatch.setattr(Trace, "columns", spy)
    for path in [*sorted(EXAMPLES.glob("*.xz")), *sorted(DATA.glob("*.xz"))]:
        before = set(asked)
        asked.clear()
        with open_trace(path) as trace:
            base = build_facts(measure(trace), 16 * 10**9)
            for fact in base:
                present = {c for c in fact.columns if c.split(".")[0] in trace.tables}
                assert present <= asked, f"{fact.name} of {path.name}"
        asked |= before


def test_a_window_is_named_only_where_the_fact_is_over_it() -> None:
    with open_trace(EXAMPLES / "decode_eager_bs1.sqlite.xz") as trace:
        analysis = measure(trace)
        base = build_facts(analysis)
        window = (analysis.window.start, analysis.window.end)
    idle, count = base.get("launch.idle_ratio", Scope(device=0)), base.get("capture.kernel_count")
    assert idle is not None
    assert count is not None
    assert idle.window == window
    assert not count.window
    assert CATALOGUE["capture.overhead_idle_ratio"].windowed


def test_absent_tables_are_left_out() -> None:
    tables, names = CATALOGUE["budget.idle_ratio"].sources({"kernels", "api_calls"})
    assert tables == ("kernels", "api_calls")
    assert {n.split(".")[0] for n in names} == {"kernels", "api_calls"}
