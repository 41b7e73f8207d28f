"""What facts need besides tables, as predicates that their declarations name: steps, samples, collectives, a
known GPU; why a fact has no value, and what would supply it: an option of the capture, or a better run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.facts import FactSpec, Need, shared
from advisor.knowledge.gpus import dram_peak
from advisor.metrics import limits as metric_limits
from advisor.model.facts import FactBase, Scope
from advisor.sources.schema import MISSING, TABLES

if TYPE_CHECKING:
    from advisor.metrics.budgeted.stage import Budgeted
    from advisor.metrics.loaded.stage import Loaded
    from advisor.metrics.profiled.stage import Profiled
    from advisor.metrics.stepped.recording import Recording
    from advisor.metrics.stepped.stage import Stepped

CUDA = "--trace=cuda,nvtx"
GIL = "--trace=cuda,nvtx,python-gil"
NODES = "--cuda-graph-trace=node"
FASTER = "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"
WEIGHTS = "--weight-bytes"
LONGER = "a longer capture (10 to 50 steps)"
STEP_RANGES = "an NVTX range around each step"
OWNER = "GPU work in the captured process"
DEVICE_LOG = "a log of nvidia-smi, laid over the capture as its GPU metrics"
MORE_COLUMNS = "the columns that the log lacks (see its warning)"
LOSSLESS = "a capture that loses no kernels"
SUMMED = "the capture that was summed up (advisor REPORT.sqlite)"


#: By name, what looks in a capture, seen from one device, for something that facts need (see `Need`).
PREDICATES: dict[str, Callable[..., bool]] = {}

_Predicate = TypeVar("_Predicate", bound=Callable[..., bool])


def predicate(look: _Predicate) -> _Predicate:
    """Let the files of facts name this function as what tells whether a need is met."""
    PREDICATES[look.__name__] = look
    return look


@predicate
def steps(a: Stepped) -> bool:
    return a.step_count > 0


@predicate
def no_steps(a: Stepped) -> bool:
    return not a.step_count


@predicate
def feeder(a: Budgeted) -> bool:
    return a.feeder(a.main_device) is not None


@predicate
def kernels(a: Budgeted) -> bool:
    return len(a.device_kernels(a.main_device)) > 0


@predicate
def kernels_for_a_rate(a: Budgeted) -> bool:
    return len(a.device_kernels(a.main_device)) >= metric_limits.host.RATE_KERNELS


@predicate
def peak_bandwidth(a: Recording) -> bool:
    return dram_peak(a.device(a.main_device)) is not None


@predicate
def capability(a: Recording) -> bool:
    return bool(a.device(a.main_device).compute_capability)


@predicate
def collectives(a: Budgeted) -> bool:
    return bool(a.communication[a.device_ops(a.main_device)].any())


@predicate
def samples(a: Profiled) -> bool:
    return a.samples(a.main_device) is not None


@predicate
def launch_shapes(a: Budgeted) -> bool:
    return a.trace.has("kernels") and bool(
        (
            a.trace.columns("kernels", ("blocks",))["blocks"][a.ops.row[a.device_kernels(a.main_device)]] > 0
        ).all()
    )


@predicate
def steps_at_least(a: Stepped, least: int) -> bool:
    return a.step_count >= least


# --- why a fact has no value, and what would supply it --------------------------------------------


#: Columns that a capture may hold without a value in any row.
_OPTIONAL = {
    "api_calls": {"result"},
    "collectives": {"bytes"},
    "samples": set(TABLES["samples"]) - {"time", "device"},
}
#: Columns that select samples, whatever is measured with these samples.
_SELECTING = {"sm_active", "gr_active"}
#: What CUDA tracing records of a process; a table of these that is absent beside kernels is empty.
_WORK = ("kernels", "copies", "memsets", "graph_runs")
#: Remedies that add nothing if the kernels themselves are missing.
_OF_KERNELS = (CUDA, LONGER, STEP_RANGES, FASTER)
NOT_IN_SUMS = "sums do not say it"
_NOTHING = "the window holds nothing of the kind"

#: True for a column of a table without a value in any row.
Empty = Callable[[str, str], bool]
#: Whether something that facts need is there.
Met = Callable[[Need, "Profiled"], bool]


def explain_missing(a: Profiled, base: FactBase, catalogue: Mapping[str, FactSpec]) -> None:
    """Record why each catalogue entry without a value has none, in all scopes or in some."""

    @cache
    def empty(table: str, column: str) -> bool:
        values = a.trace.columns(table, (column,))[column]
        return not np.any(~np.isnan(values) if values.dtype.kind == "f" else values != MISSING)

    met, view = cache(is_met), cache(a.seen_from)
    present = {name for name, _ in base.facts}
    sampled = sorted({s.device for _, s in base.facts if s.device is not None})
    for name, spec in catalogue.items():
        lacking = [] if name in present else [a]
        if spec.level not in ("trace", "rank"):
            devices = a.devices or (sampled if "samples" in spec.columns else [])
            devices = devices or ([a.main_device] if "sums" in spec.columns else [])
            known = {d for d in devices if spec.level == "device" and (name, Scope(device=d)) in base.facts}
            lacking = [view(d) for d in devices if d not in known]
        if name not in present or spec.level != "trace":
            base.missing[name] = reason(spec, a.trace.tables, empty, lacking, met)


def _absent_tables(spec: FactSpec, tables: frozenset[str]) -> list[str]:
    """Those that a fact requires, else all of its tables if none of them is there."""
    if spec.tables:
        return [t for t in spec.tables if t not in tables]
    made_of = [] if spec.over_ranks == "joint" else list(spec.columns)
    work = [t for t in made_of if t in _WORK]
    if len(work) > 1 and not any(t in tables for t in work):
        return work
    return [] if any(t in tables for t in made_of) else made_of


def _empty_columns(spec: FactSpec, tables: frozenset[str], empty: Empty) -> list[str]:
    """Columns of a fact, as ``table.column``, that may be without values and have none in this capture."""
    found = []
    for table, made_of in spec.columns.items():
        optional = [c for c in made_of if c in _OPTIONAL.get(table, ())]
        decisive = [c for c in optional if c not in _SELECTING] or optional
        if table in tables and decisive and all(empty(table, c) for c in decisive):
            found += [f"{table}.{c}" for c in decisive]
    return found


def reason(
    spec: FactSpec,
    tables: frozenset[str],
    empty: Empty | None = None,
    lacking: Sequence[Profiled] | None = None,
    met: Met | None = None,
) -> str:
    """Why a fact has no value in a capture that holds `tables`: the absent tables or columns, else the
    first of its needs that is not met on one of the devices without a value (`lacking`; None if they
    cannot be examined; `met` as `is_met`, which may keep its answers)."""
    absent = _absent_tables(spec, tables)
    if "sums" in tables and (absent or (spec.columns and "sums" not in spec.columns)):
        return NOT_IN_SUMS
    if absent:
        return f"the capture holds no {', '.join(shared().words.get(t, t) for t in absent)}"
    columns = _empty_columns(spec, tables, empty) if empty else []
    if words := [w for c, w in shared().measures.items() if f"samples.{c}" in columns]:
        return f"the samples do not hold {' and '.join(words)}"
    if columns:
        return f"the capture has no value of {', '.join(columns)}"
    for need in spec.needs:
        if lacking is None or not all((met or is_met)(need, a) for a in lacking):
            return need.lack
    return _NOTHING if tables & set(_WORK) else "no GPU work to judge"


def is_met(need: Need, a: Loaded) -> bool:
    """Whether something that facts need is there."""
    if need.met is None:
        return False
    argument = () if need.argument is None else (need.argument,)
    return bool(PREDICATES[need.met](a, *argument))


def remedy(
    spec: FactSpec,
    tables: frozenset[str],
    why: str | None = None,
    *,
    hidden_graphs: bool = False,
    no_gpu_work: bool = False,
    lost_work: bool = False,
    nvtx: bool = False,
    serving: str | None = None,
) -> str | None:
    """What would supply a fact that has no value for the reason `why`: options of the capture, an option
    of this command or a better run; None if nothing does.

    `hidden_graphs`: CUDA graphs were replayed whose kernels are not in the capture; `no_gpu_work`: CUDA
    was traced and the process never used the GPU; `lost_work`: it launched kernels and none was recorded;
    `nvtx`: ranges were traced, so their absence means that the program pushes none; `serving`: the
    serving engine, which may have a switch of its own.
    """
    unmet = [n.supply for n in spec.needs if n.lack == why]
    if "sums" in tables and "sums" not in spec.tables:
        return SUMMED if spec.flag == CUDA else combine([CUDA, spec.flag])
    if nvtx and "ranges" not in tables:
        tables |= {"ranges"}
        if "ranges" in spec.tables:  # the program has to push them
            unmet = [n.supply for n in spec.needs if n.supply and not options_of(n.supply)]
    absent = [t for t in spec.tables if t not in tables]
    made_of = {*_WORK, *absent} & {*_WORK, "api_calls"}
    of_work = spec.flag == CUDA and (spec.level != "trace" or not spec.columns.keys().isdisjoint(made_of))
    if (hidden_graphs or no_gpu_work or lost_work) and (of_work or "kernels" in absent):
        besides = _besides(spec, absent, unmet[0] if unmet else None, serving)
        # CUDA was traced: the kernels inside the graphs are missing.
        if hidden_graphs:
            return combine([NODES, besides])
        return combine([besides, LOSSLESS if lost_work else OWNER])
    if switch := _switch(spec, serving):
        return combine([switch, CUDA if "ranges" in absent else ""])
    if "kernels" in tables and any(t in _WORK for t in absent):
        return None  # CUDA was traced, and there was nothing of the kind
    if absent:
        return _of_tables(spec, absent)
    if unmet:
        pushed = unmet[0] != STEP_RANGES or "ranges" in tables
        return unmet[0] if pushed else CUDA
    return None if why == _NOTHING else spec.supply or spec.flag or None


def _besides(spec: FactSpec, absent: list[str], fix: str | None, serving: str | None) -> str:
    """What a fact needs besides the kernels themselves."""
    others = [t for t in absent if t != "kernels"]
    if others:
        flag = _of_tables(spec, others)
        return flag if flag and flag != CUDA else ""
    fix = _switch(spec, serving) or fix
    return "" if fix in _OF_KERNELS else fix or ""


def _of_tables(spec: FactSpec, absent: list[str]) -> str | None:
    """The options that fill the absent tables; the GIL has ranges of its own."""
    gil = [GIL] if spec.flag == GIL else []
    return combine([*(shared().fills.get(t, CUDA) for t in absent), *gil])


def _switch(spec: FactSpec, serving: str | None) -> str | None:
    """The environment variable by which a serving engine records this fact."""
    data = engines().get(serving or "")
    kinds = {need.switch for need in spec.needs if need.switch}
    known = () if data is None else (v for v in data.capture if v.known_in(None))
    lines = (v for v in known if kinds & set(v.supplies))
    return next((v.setting for v in lines), None)


def options_of(fix: str) -> tuple[str, ...]:
    """The options and variables that a remedy names; none where it is a better run."""
    return tuple(w for w in fix.split() if re.match(r"--?[a-z]|[A-Z][A-Z0-9_]*=", w))


def combine(fixes: Iterable[str]) -> str | None:
    """Several remedies as one: trace lists merged, no duplicates, words after options.

    The size of the weights is only the second-best substitute for samples.
    """
    wanted = list(dict.fromkeys(part for fix in fixes for part in fix.split(" and ") if part))
    if any(f != WEIGHTS for f in wanted):
        wanted = [f for f in wanted if f != WEIGHTS]
    options = [o for fix in wanted for o in options_of(fix)]
    traced = [s for o in options if o.startswith("--trace=") for s in o[8:].split(",")]
    merged = [f"--trace={','.join(dict.fromkeys(traced))}"] if traced else []
    merged += [o for o in options if not o.startswith("--trace=")]
    words = [f for f in wanted if not options_of(f)]
    text = " ".join(sorted(dict.fromkeys(merged), key=lambda o: o.startswith("-")))  # variables first
    return " and ".join(t for t in (text, *words) if t) or None


def lacks(fix: str) -> str | None:
    """What a recording lacks that such a remedy supplies, in two or three words; None if no fact needs it."""
    given = _parts(fix)
    return next((words for supply, words in shared().supplies.items() if _parts(supply) <= given), None)


@cache
def _parts(fix: str) -> frozenset[str]:
    """The sources, other options and words of a remedy."""
    options = options_of(fix)
    traced = (f"--trace={s}" for o in options if o.startswith("--trace=") for s in o[8:].split(","))
    others = (o for o in options if not o.startswith("--trace="))
    return frozenset((*traced, *others, *(w for w in fix.split(" and ") if not options_of(w))))
