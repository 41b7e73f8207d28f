"""Nsight Systems as the tool that recorded a capture."""

from __future__ import annotations

from advisor.model.capture import Recorder
from advisor.sources.nsys.tables import DIAGNOSTICS, GPU_METRICS, JOINED_TABLES, NVTX, ROW_TABLES

NSYS = Recorder(
    nsys_options=True,
    clock="session times, as the Nsight Systems GUI shows them",
    tables={
        **{table: raw for table, (raw, _) in ROW_TABLES.items()},
        **{table: parts[0][0] for table, parts in JOINED_TABLES.items()},
        "ranges": NVTX,
        "samples": GPU_METRICS,
        "diagnostics": DIAGNOSTICS,
    },
    # Calls under the threshold of 80 us have no backtrace by default; launches last 5 us.
    backtraces="--cudabacktrace=kernel:1000,sync:1000,memory:1000 --sample=process-tree",
    ranges="--trace=cuda,nvtx",
    migrations=True,
)
