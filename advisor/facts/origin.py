"""Columns that many facts are made of, by table."""

from __future__ import annotations

SPAN = "start end device"
JOIN = "process correlation"
CALLS = "start end process thread correlation call"
SHAPE = "grid_x grid_y grid_z threads"
RANGES = "start end thread text_id"
OPS = {
    "kernels": f"{SPAN} {JOIN}", "copies": f"{SPAN} {JOIN} kind",
    "memsets": f"{SPAN} {JOIN}", "graph_runs": f"{SPAN} {JOIN}",
}  # fmt: skip
GAPS = {**OPS, "api_calls": CALLS}
STEPS = {
    "kernels": f"{SPAN} {JOIN} stream name_id graph_node", "ranges": RANGES, "api_calls": CALLS,
}  # fmt: skip
DRAM = {"samples": "time device dram_read dram_write", "kernels": f"{SPAN} name_id {SHAPE}"}
