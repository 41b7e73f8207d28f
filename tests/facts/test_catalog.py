"""The catalogue is the single source: complete, consistent, and what is built agrees with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.comparison.change_facts import EVERY_FACT
from advisor.engine.compile import Test as Comparison
from advisor.engine.compile import compile_rules
from advisor.engine.values import placeholders
from advisor.facts.catalog import CATALOGUE, build_facts
from advisor.facts.needs import remedy
from advisor.facts.writer import FactWriter
from advisor.knowledge.facts import joined_tables, need, part_meanings
from advisor.metrics.budgeted import budget
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import TRACE, FactBase, Scope
from advisor.sources.open import open_trace
from advisor.sources.schema import TABLES
from tests.builder import Export
from tests.for_each import for_each
from tests.shipped import shipped_rules

ROOT = Path(__file__).resolve().parents[2]
SUFFIX_UNITS = {
    "_ratio": "ratio",
    "_ns": "ns",
    "_ms": "ms",
    "_bytes": "bytes",
    "_count": "count",
    "_per_s": "count_per_s",
}


def facts(export: Export, folder: Path) -> FactBase:
    with open_trace(export.write(folder / "t.sqlite")) as trace:
        return build_facts(measure(trace))


def test_every_entry_says_what_it_is() -> None:
    for name, spec in CATALOGUE.items():
        assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", name)
        assert len(spec.meaning) >= 10, name
        assert set(spec.tables) <= set(TABLES), name
        assert all(set(columns) <= set(TABLES[table]) for table, columns in spec.columns.items()), name
        for suffix, unit in SUFFIX_UNITS.items():
            if name.endswith(suffix):
                assert spec.unit == unit, name


def test_parts_of_the_budget_are_facts() -> None:
    assert tuple(part_meanings()) == budget.PARTS
    assert all(part_meanings().values())


def test_entities_name_their_scope() -> None:
    assert all(table.scope in table.fields for table in joined_tables().values())


def test_an_unknown_name_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        FactWriter(CATALOGUE).put("launch.no_such_thing", 1)


def test_a_fact_belongs_to_the_level_of_its_entry() -> None:
    with pytest.raises(ValueError, match="about a device"):
        FactWriter(CATALOGUE).put("budget.idle_ratio", 0.5)


def test_what_cannot_be_known_is_missing_not_zero() -> None:
    writer = FactWriter(CATALOGUE).at(Scope(device=0))
    writer.put("budget.idle_ratio", float("nan"))
    writer.put("budget.busy_ratio", None)
    assert len(writer.base) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("load.slot_prompt_per_s", 1e308), ("load.requests_a_batch", 5e304), ("memory.peak_bytes", 2**61)],
)
def test_more_than_any_capture_holds_is_missing(name: str, value: float) -> None:
    level = CATALOGUE[name].level
    writer = FactWriter(CATALOGUE).at(TRACE if level == "trace" else Scope(device=0))
    writer.put(name, value)
    assert len(writer.base) == 0


def test_a_missing_table_makes_a_fact_missing(tmp_path: Path) -> None:
    base = facts(Export().process(1).launch(at=0).launch(at=50_000), tmp_path)
    assert base.value("activity.sm_ratio", Scope(device=0)) is None
    assert base.missing["activity.sm_ratio"] == "the capture holds no samples"
    assert base.missing["host.os_idle_ratio"] == "the capture holds no host_calls"
    assert base.missing["sync.calls_per_step"] == need("steps").lack
    assert remedy(CATALOGUE["activity.sm_ratio"], frozenset({"kernels"})) == "--gpu-metrics-devices=all"


def test_values_carry_their_provenance(tmp_path: Path) -> None:
    base = facts(Export().process(1).launch(at=0).launch(at=50_000), tmp_path)
    fact = base.get("launch.idle_ratio", Scope(device=0))
    assert fact is not None
    assert fact.tables == ("kernels", "api_calls")
    assert fact.window is not None
    assert fact.method


def test_every_fact_is_built_from_some_real_capture() -> None:
    """An entry that nothing ever fills would silence the rules that ask for it."""
    seen: set[str] = set()
    for path in sorted((ROOT / "examples" / "captures").glob("*.sqlite.xz")) + sorted(
        (ROOT / "tests" / "data" / "captures").glob("*.sqlite.xz")
    ):
        with open_trace(path) as trace:
            seen |= {name for name, _ in build_facts(measure(trace), 16 * 10**9).facts}
    only_elsewhere = {
        # command lines, memory events, OS calls, GIL and long captures: see tests/scenarios
        "capture.error_text",
        # what the serving engine is, is handed in: see tests/scenarios/test_samples_alone.py
        "memory.reserved_at_start",
        # convolutions that libraries fall back to: see tests/scenarios/test_slow_convolutions.py
        "kernel.slow_convolution_name",
        # operators with recorded sizes: see tests/scenarios/test_slow_operators.py
        "operator.sized_ratio",
        "operator.impossible_ratio",
        "operator.roofline_ratio",
        "operator.judged_ratio",
        "operator.healthy_ratio",
        "operator.slow_window_ratio",
        "operator.slow_family",
        "operator.slow_name",
        "operator.slow_reach_ratio",
        "operator.slow_healthy_ratio",
        "operator.slow_source",
        # blocks of a few threads: see tests/scenarios/test_kernels.py
        "kernel.sub_warp_threads",
        "drift.slow_alike_ratio",
        "drift.slow_kernel_change",
        "drift.slow_kernels_ratio",
        "drift.slow_step_ratio",
        "drift.slow_steps",
        "drift.slow_time_ratio",
        # a stage of a pipeline that waits for its host and for others: see tests/ranks/test_pipeline.py
        "host.gap_staged_ratio",
        # stacks of launches: see tests/scenarios/test_profilers_part.py
        "capture.stacks_ratio",
        "host.step_outlier_part",
        "host.step_outlier_part_ratio",
        "capture.ran_on",
        "capture.ran_on_signs",
        "host.gil_wait_ratio",
        "call.others_per_100_kernels",
        "memory.tensors_ratio",
        "host.gil_idle_ratio",
        "host.os_idle_ratio",
        "host.os_call",
        "host.os_call_ratio",
        "host.os_loading_ratio",
        "host.os_event_wait_ratio",
        "host.os_sleep_ratio",
        "host.os_lock_ratio",
        "host.os_io_ratio",
        "host.preparation_ratio",
        "memory.growth_ratio",
        "memory.used_ratio",
        "memory.peak_bytes",
        "memory.least_used_ratio",
        "activity.burst_low_ratio",
        "activity.burst_high_ratio",
        "activity.burst_count",
        "copy.link_rate_ratio",
        # captures without CUDA calls: see tests/facts/test_values.py
        "idle.short_unexplained_ratio",
        # what the tool says of missing events: see tests/scenarios/test_damage.py
        "capture.refusal_text",
        "capture.platform",
        # profilers that record stacks: see tests/scenarios/test_capture.py
        "capture.stack_option",
        "capture.stack_cost_ratio",
        "capture.python_call_count",
        "capture.python_calls_per_operator",
        # stacks and shapes of a PyTorch trace: see tests/metrics/test_pairing.py
        *(name for name in CATALOGUE if name.startswith("origin.")),
        "kernel.matmul_sized_ratio",
        "kernel.matmul_flop_ratio",
        "kernel.misaligned_window_ratio",
        "kernel.attention_flop_ratio",
        "kernel.attention_bandwidth_ratio",
        # captures without steps: see tests/scenarios/test_without_steps.py
        "alloc.calls_per_100_kernels",
        "embedding.lookups_per_100_kernels",
        "kernel.attention_pieces_per_100_kernels",
        # uploads in many pieces: see tests/scenarios/test_transfer.py
        "copy.small_runs",
        # 8-bit caches and weights: see tests/scenarios/test_eager.py
        "kernel.widened_operands",
        "copy.pageable_large_per_100_kernels",
        "copy.tiny_per_100_kernels",
        "sync.device_wide_per_100_kernels",
        "sync.implicit_calls_per_100_kernels",
        "sync.memset_per_100_kernels",
        "sync.calls_per_100_kernels",
        "sync.readbacks_per_100_kernels",
        # waits beside other streams' work: see tests/facts/test_values.py
        "sync.context_wait_streams",
        "sync.over_waited_stream",
        # speculative decoding and transfers of the KV cache: see tests/facts/test_serving.py
        *(name for name in CATALOGUE if name.startswith(("speculation.", "kv."))),
        "serving.decode_batch",
        "serving.batch_fill_ratio",
        # work of the host between two copies: see tests/scenarios/test_host.py
        "host.gap_exchange_ratio",
        # long stretches without a kernel: see tests/metrics/test_interruptions.py
        "interruption.longest_ms",
        "interruption.copy_ratio",
        "interruption.range",
        "interruption.os_call",
        "host.scheduler_ratio",
        "host.scheduler_range",
        # the phase in which launching waits: see tests/scenarios/test_serving.py
        "launch.idle_phase",
        "launch.idle_phase_ratio",
        "launch.idle_phase_steps",
        "launch.idle_phase_eager_ratio",
        # waits before host gaps: see tests/scenarios/test_ties.py
        "sync.tie",
        "sync.tie_ms",
        "sync.held_copies_per_100_kernels",
        "host.gap_step",
        "host.gap_step_ratio",
        # those inside a step, and waits inside one: see tests/scenarios/test_inside_steps.py
        "interruption.other_range",
        "interruption.inside_count",
        "interruption.inside_ms",
        "interruption.inside_step",
        "interruption.inside_range",
        "interruption.inside_load",
        "interruption.inside_os_call",
        "host.os_range",
        "host.os_in_step_ratio",
        # causes that few captures record: see tests/scenarios/test_recorded_causes.py
        "host.os_polling_ratio",
        "host.os_tick_ratio",
        "host.off_cpu_quota_ratio",
        "host.gap_other_range",
        "graph.eager_steps",
        "alloc.retry_count",
        # waits between passes: see tests/scenarios/test_requests.py
        "requests.wait_median_ms",
        "requests.wait_longest_ms",
        "requests.wait_spread_ratio",
        "requests.wait_alike_ratio",
        "requests.passes_per_s",
        "requests.period_ms",
        "requests.rate_per_s",
        "requests.busy_ratio",
        "requests.os_call",
        # kernels with clusters or local memory, which no capture here has: see tests/facts/test_values.py
        "kernel.cluster_ratio",
        "kernel.register_limit_ratio",
        # tables of nsys stats: see tests/facts/test_sums.py
        *(name for name in CATALOGUE if name.startswith("sums.")),
        # logs of servers: see tests/facts/test_load.py
        *(name for name in CATALOGUE if name.startswith("load.")),
        # unified memory: see tests/scenarios/test_transfer.py and tests/facts/test_values.py
        "host.gap_on_pages_ratio",
        "unified.unasked_ratio",
        "unified.thrash_ratio",
        "unified.gpu_fault_count",
        "unified.host_fault_count",
        # compilation that comes back: see tests/scenarios/test_capture.py
        "startup.late_ratio",
        # host functions in a stream: see tests/scenarios/test_launching.py
        "launch.behind_function_ratio",
        # processes beside each other: see tests/scenarios/test_tails.py
        "launch.process_slowed_ratio",
        # a server's steps: see tests/scenarios/test_serving.py
        "serving.stall_ms",
        "serving.stall_decode_steps",
        "serving.token_p99_ms",
        "serving.decode_step_ms",
        "serving.mixed_step_ms",
        "serving.mixed_over_decode",
        "serving.held_window_ratio",
        # work besides that of the other steps: see tests/scenarios/test_encoders.py
        "besides.ms",
        "serving.stall_encoder",
        "serving.stall_encoder_ratio",
        # graphs on a GPU of AMD: see tests/scenarios/test_graph_nodes.py
        "graph.node_time_over",
        "besides.usual_steps",
        "besides.window_ratio",
        "besides.operations",
        # sizes that only the user knows, and batches that miss a graph: see tests/facts/test_given.py
        "serving.tokens_per_s",
        "serving.prompt_tokens_per_s",
        "serving.written_tokens_per_s",
        "serving.model_flop_ratio",
        "phase.slowest_product",
        "phase.product_headroom_window_ratio",
        "kernel.joined_products",
        "graph.padded_ratio",
        "graph.padded_window_ratio",
        # experts of single operators: see tests/scenarios/test_experts.py
        "experts.kernels_per_layer",
        "experts.layers_per_100_kernels",
        "experts.topk_per_100_kernels",
        "experts.grouping_per_100_kernels",
        "experts.combine_per_100_kernels",
        # logs of other samplers: see tests/facts/test_clocks.py
        "clock.power_limited_ratio",
        "clock.held_back_ratio",
        "clock.temperature_max_c",
        "clock.limit",
        "clock.limited_ratio",
        "clock.unexplained_ratio",
        # performance states: see tests/scenarios/test_performance_state.py
        "clock.low_state_ratio",
        "clock.low_state_window_ratio",
        "clock.performance_state",
        "clock.power_over_limit",
        # samples of several devices: see tests/scenarios/test_samples_alone.py
        "activity.unused",
        # device memory that grows: see tests/scenarios/test_host.py
        "memory.full_in_ns",
        "memory.growth_device_ratio",
        "memory.growth_bytes",
        # switches of threads and contexts: see tests/scenarios/test_host.py and test_launching.py
        "host.off_cpu_idle_ratio",
        "host.off_cpu_of_gap_ratio",
        "host.gap_asleep_ratio",
        "launch.held_by_others_ratio",
        # network cards: see tests/scenarios/test_kernels.py
        "network.card_count",
        "network.peak_rate",
        "network.waits_ratio",
    }
    # several GPUs: see tests/ranks
    several = {n for n in CATALOGUE if n.startswith(("comm.", "rank.", "ranks.", "gpus."))}
    assert set(CATALOGUE) - seen <= only_elsewhere | several


def test_wider_facts_are_seen_from_narrower_scopes(tmp_path: Path) -> None:
    base = facts(Export().process(1).launch(at=0).launch(at=50_000), tmp_path)
    phase = Scope(device=0, phase="decode")
    assert base.value("capture.kernel_count", phase) == 2
    assert base.value("budget.idle_ratio", phase) == base.value("budget.idle_ratio", Scope(device=0))
    assert base.value("budget.idle_ratio", TRACE) is None


#: Tables that many captures go without.
OFTEN_ABSENT = {"samples", "ranges", "allocations", "host_calls", "collectives"}


BUILTIN = compile_rules(shipped_rules()).by_code


@for_each(sorted(BUILTIN))
def test_a_message_asks_for_no_number_that_its_branch_can_be_without(code: str) -> None:
    """What it can be without stands in [[...]], and is left out with it."""
    rule = BUILTIN[code]
    shown = {
        p.name
        for p in placeholders(re.sub(r"\[\[.*?\]\]", "", rule.spec.message, flags=re.DOTALL))
        if not p.is_param
    }
    for branch in rule.branches:
        facts_ = {c.fact for c in branch if isinstance(c, Comparison)}
        tables = {t for f in facts_ for t in EVERY_FACT[f].tables}
        steps = any(f.endswith("_per_step") for f in facts_)
        for name in shown - facts_:
            assert not OFTEN_ABSENT & (set(EVERY_FACT[name].tables) - tables), name
            assert steps or not name.endswith("_per_step"), name
