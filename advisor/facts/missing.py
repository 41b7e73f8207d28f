"""Why a fact has no value, and what would supply it: an option of the capture, or a better run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from advisor.facts.catalog import CATALOGUE, CUDA, FAULTS, GIL, SAMPLES
from advisor.facts.origins import columns
from advisor.knowledge.files import engines
from advisor.sources.schema import TABLES

_FASTER = "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"
_LONGER = "a longer capture (10 to 50 steps)"
_SECONDS = "a capture of several seconds"
_STEP_RANGES = "an NVTX range around each step"
OWNER = "GPU work in the captured process"
LOSSLESS = "a capture that loses no kernels"
_RANKS = "the captures of all ranks"
_WEIGHTS = "--weight-bytes"
_SMI_LOG = "a log of nvidia-smi, laid over the capture as its GPU metrics"
_SIZES = "an nsys of 2026 or a PyTorch profiler trace, which record the arguments of NCCL"
NODES = "--cuda-graph-trace=node"

#: What fills a table; CUDA fills the others.
_TABLES = {
    "samples": SAMPLES,
    "allocations": "--cuda-memory-usage=true",
    "host_calls": "--trace=cuda,nvtx,osrt",
    "host_samples": "--sample=process-tree",
    "collectives": _SIZES,
    "page_faults": FAULTS,
}
#: Columns of `samples` that not every sampler fills, in words. GPU utilisation, as nvidia-smi has
#: it, is GR Active: it says that some kernel ran, and nothing of SMs or memory.
_MEASURES = {
    "sm_active": "SM Active", "dram_read": "DRAM activity", "tensor_active": "Tensor Active",
    "sm_clock_hz": "the SM clock",
}  # fmt: skip
#: Names that begin so -> (reason, what would help), where the tables themselves are there.
_REASONS: tuple[tuple[str, str, str | None], ...] = (
    ("bandwidth.", "no size of the weights was given that a step can have read", _WEIGHTS),
    ("host.gc_", "no garbage-collection ranges are recorded", "NVTX ranges from gc.callbacks"),
    ("host.gil_", "waiting for the GIL is not recorded", GIL),
    ("host.gap_range", "no range lies in the gaps", "NVTX ranges around the host's work"),
    ("host.data_loading", "no step structure was found", _STEP_RANGES),
    ("host.gap_", "no step structure was found", _STEP_RANGES),
    ("host.step_", "fewer than three steps of one phase", _LONGER),
    ("host.preparation", "no range names input preparation", "NVTX ranges of input preparation"),
    ("activity.burst", "the window is shorter than ten bins of 100 ms", _SECONDS),
    ("activity.", "the samples do not resolve the kernels", _FASTER),
    ("workload.", "no kernels and no steps to tell it by", CUDA),
    ("capture.sample_", "no GPU metrics are sampled", SAMPLES),
    ("phase.gemm_", "the samples do not resolve the kernels of one phase", _FASTER),
    ("phase.attention_dram", "the samples do not resolve the kernels of one phase", _FASTER),
    ("phase.", "no phases were found", _STEP_RANGES),
    ("operation.", "fewer than 20 like calls of any operation", _LONGER),
    ("memory.used", "the absolute use of device memory is not recorded", _SMI_LOG),
    (
        "memory.least",
        "neither the use of device memory nor its size is recorded",
        "--cuda-memory-usage=true",
    ),
    ("memory.peak", "the use of device memory is not recorded", "--cuda-memory-usage=true"),
    ("memory.growth", "too few steps with allocation events", _LONGER),
    ("clock.limit", "no sample of a busy device shows a limit", None),
    ("clock.", "too few samples of a busy device", _SMI_LOG),
    ("ranks.world", "the capture does not tell how many ranks the job has", _RANKS),
    ("ranks.missing", "the capture does not tell how many ranks the job has", _RANKS),
    ("ranks.", "the captures of the other ranks were not given", _RANKS),
    ("rank.", "the captures of the other ranks were not given", _RANKS),
    ("copy.link_rate", "no large pinned copies, or a GPU that is not in knowledge/gpus.yaml", None),
    ("unified.", "the profiler records no migrations of unified memory", None),
    ("kernel.old_arch", "the capture does not describe the GPU", None),
    ("kernel.small_grid", "the capture does not describe the GPU", None),
    ("kernel.several_waves", "the capture does not describe the GPU", None),
    ("kernel.varying", "fewer than two steps", _LONGER),
    ("launch.queue", "no kernel was launched by itself", None),
    ("comm.small", "the sizes of collectives are not recorded", _SIZES),
    ("comm.max", "fewer than 8 collectives of one kind", _LONGER),
    ("comm.excess", "fewer than 8 collectives of one kind", _LONGER),
    ("capture.refusal_text", "the tool reports no trouble with CUDA", None),
    ("capture.debug_build", "the command line is not in the export", None),
    ("capture.client_command", "the command line is not in the export", None),
    ("capture.stack", "no option recorded Python calls", None),
    ("capture.schema", "the export does not tell its schema version", None),
)
#: What a serving engine can record by itself: facts -> the key in its list of capture variables.
_BY_ENGINE = (("host.gc_", "gc"), ("host.preparation", "preparation"))


#: Columns that a capture may hold without a value in any row.
_OPTIONAL = {"api_calls": {"result"}, "collectives": {"bytes"},
             "samples": set(TABLES["samples"]) - {"time", "device"}}  # fmt: skip
#: Columns that decide which samples count, whatever is measured with these samples.
_SELECTING = {"sm_active", "gr_active"}
#: What CUDA tracing records of a process; a table of these that is absent beside kernels is empty.
_WORK = ("kernels", "copies", "memsets", "graph_runs")

#: Facts that come of other captures.
_ELSEWHERE = ("ranks.", "rank.")

#: True for a column of a table that no row has a value of.
Empty = Callable[[str, str], bool]


def absent_tables(name: str, tables: frozenset[str]) -> list[str]:
    """The tables that a fact was looked for in and that the capture does not hold: those it cannot
    do without, else all that it is made of where none of them is there."""
    needed = CATALOGUE[name].tables
    if needed:
        return [t for t in needed if t not in tables]
    made_of = [] if name.startswith(_ELSEWHERE) else list(columns(name))
    work = [t for t in made_of if t in _WORK]
    if len(work) > 1 and not any(t in tables for t in work):
        return work
    return [] if any(t in tables for t in made_of) else made_of


def empty_columns(name: str, tables: frozenset[str], empty: Empty) -> list[str]:
    """Columns of a fact, as ``table.column``, that may be without values and have none in this
    capture."""
    found = []
    for table, made_of in columns(name).items():
        optional = [c for c in made_of if c in _OPTIONAL.get(table, ())]
        told = [c for c in optional if c not in _SELECTING] or optional
        if table in tables and told and all(empty(table, c) for c in told):
            found += [f"{table}.{c}" for c in told]
    return found


def reason(name: str, tables: frozenset[str], empty: Empty | None = None) -> str:
    """Why a catalogue entry has no value in a capture that holds `tables`: the tables or columns
    that are not there, else what was too little of."""
    absent = absent_tables(name, tables)
    if absent:
        return f"the capture holds no {', '.join(absent)}"
    lacking = empty_columns(name, tables, empty) if empty else []
    if words := [w for c, w in _MEASURES.items() if f"samples.{c}" in lacking]:
        return f"the samples do not hold {' and '.join(words)}"
    if lacking:
        return f"the capture has no value of {', '.join(lacking)}"
    if name.endswith("_per_step"):
        return "no step structure was found"
    return next(
        (why for start, why, _ in _REASONS if name.startswith(start)),
        "the window holds nothing of the kind" if tables & set(_WORK) else "no GPU work to judge",
    )


def remedy(
    name: str,
    tables: frozenset[str],
    *,
    hidden_graphs: bool = False,
    no_gpu_work: bool = False,
    lost_work: bool = False,
    nvtx: bool = False,
    serving: str | None = None,
) -> str | None:
    """What would supply it: options of the capture, an option of this command or a better run;
    None where nothing does.

    `hidden_graphs`: CUDA graphs were replayed whose kernels are not in the capture; `no_gpu_work`:
    CUDA was traced and the process never used the GPU; `lost_work`: it launched kernels and none
    was recorded; `nvtx`: ranges were traced, so that none means that the program pushes none;
    `serving`: the serving engine, which may have a switch of its own.
    """
    spec = CATALOGUE[name]
    if nvtx:
        tables |= {"ranges"}
    absent = [t for t in spec.tables if t not in tables]
    if hidden_graphs and (spec.flag == CUDA or "kernels" in absent):
        # CUDA was traced: what is missing are the kernels inside the graphs.
        return combine([NODES, _besides(name, absent, serving)])
    if (no_gpu_work or lost_work) and (spec.flag == CUDA or "kernels" in absent):
        return combine([_besides(name, absent, serving), LOSSLESS if lost_work else OWNER])
    if switch := _switch(name, serving):
        return combine([switch, CUDA if "ranges" in absent else ""])
    if "kernels" in tables and any(t in _WORK for t in absent):
        return None  # CUDA was traced, and there was nothing of the kind
    if absent:
        return _of_tables(name, absent)
    if name.endswith("_per_step"):
        return _STEP_RANGES if "ranges" in tables else CUDA
    hit = _fix(name)
    if hit == _STEP_RANGES and "ranges" not in tables:
        return CUDA
    return hit or None


def _besides(name: str, absent: list[str], serving: str | None) -> str:
    """What a fact needs besides the kernels themselves."""
    others = [t for t in absent if t != "kernels"]
    if others:
        flag = _of_tables(name, others)
        return flag if flag and flag != CUDA else ""
    fix = _switch(name, serving) or _fix(name)
    return fix if fix and fix not in (CUDA, _LONGER, _STEP_RANGES, _FASTER) else ""


def _of_tables(name: str, absent: list[str]) -> str | None:
    """What fills the absent tables; the GIL has ranges of its own."""
    gil = [GIL] if CATALOGUE[name].flag == GIL else []
    return combine([*(_TABLES.get(t, CUDA) for t in absent), *gil])


def _fix(name: str) -> str | None:
    """What would help where the tables themselves are there."""
    found = (fix for start, _, fix in _REASONS if name.startswith(start))
    return next(found, CATALOGUE[name].flag)


def _switch(name: str, serving: str | None) -> str | None:
    """The environment variable by which a serving engine records this fact."""
    data = engines().get(serving or "")
    key = next((k for start, k in _BY_ENGINE if name.startswith(start)), None)
    lines = () if data is None else (v for v in data.capture if key in v.supplies)
    return next((f"{v.variable}={v.value}" for v in lines), None)


def options_of(fix: str) -> tuple[str, ...]:
    """The options and variables that a remedy names; none where it is a better run."""
    return tuple(w for w in fix.split() if re.match(r"--?[a-z]|[A-Z][A-Z0-9_]*=", w))


def combine(fixes: Iterable[str]) -> str | None:
    """Several remedies as one: trace lists merged, nothing twice, words after options.

    The size of the weights is only the second best way to what samples tell.
    """
    wanted = [f for f in dict.fromkeys(fixes) if f]
    if any(f != _WEIGHTS for f in wanted):
        wanted = [f for f in wanted if f != _WEIGHTS]
    options = [o for fix in wanted for o in options_of(fix)]
    traced = [s for o in options if o.startswith("--trace=") for s in o[8:].split(",")]
    merged = [f"--trace={','.join(dict.fromkeys(traced))}"] if traced else []
    rest = [o for o in options if not o.startswith("--trace=")]
    variables = [o for o in rest if not o.startswith("-")]
    ordered = [*variables, *merged, *(o for o in rest if o.startswith("-"))]
    words = [f for f in wanted if not options_of(f)]
    text = " ".join(dict.fromkeys(ordered))
    return " and ".join(t for t in (text, *words) if t) or None
