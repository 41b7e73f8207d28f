"""The capture as a Perfetto trace: what is read back is what the capture holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cli.main import main
from advisor.export import trace_file
from advisor.export.capture_tracks import trace_packets
from advisor.export.trace_file import lanes
from advisor.pipeline.diagnose import analyse, assemble
from tests.builder import Export
from tests.captures import committed

CAPTURES = ("decode_gc", "two_processes", "decode_graph_opaque", "whole_run_no_capture_range")
#: Category -> table.
TABLES = {
    "kernel": "kernels",
    "copy": "copies",
    "memset": "memsets",
    "graph": "graph_runs",
    "call": "api_calls",
    "range": "ranges",
    "host call": "host_calls",
    "python": "python_calls",
    "overhead": "overheads",
}
BEGIN, END, INSTANT, COUNTER = range(1, 5)


@dataclass
class Read:
    """A trace as Perfetto's own classes parse it. Slices are [track, name, start, end]."""

    tracks: dict[int, Any] = field(default_factory=dict)
    slices: dict[str, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    flows: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    details: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def path(self, track: int) -> str:
        """Names of a track and of those above it."""
        own = self.tracks[track]
        name = own.name or own.process.process_name or f"thread {own.thread.tid}"
        return f"{self.path(own.parent_uuid)}/{name}" if own.parent_uuid else name


def read(data: bytes) -> Read:
    """Raises where a track, a name or the end of a slice is missing, or slices do not nest."""
    module = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = module.Trace.FromString(data)
    found = Read()
    texts: dict[str, dict[int, str]] = defaultdict(dict)
    open_: dict[int, list[list[Any]]] = defaultdict(list)
    for packet in trace.packet:
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            texts[kind].update({e.iid: e.name for e in getattr(packet.interned_data, kind)})
        values = packet.interned_data.debug_annotation_string_values
        texts["values"].update({e.iid: e.str.decode() for e in values})
        if packet.HasField("track_descriptor"):
            found.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event, time = packet.track_event, packet.timestamp
        assert event.track_uuid in found.tracks
        if event.type == COUNTER:
            found.counters[found.path(event.track_uuid)].append((time, event.double_counter_value))
        elif event.type == END:
            begun = open_[event.track_uuid].pop()
            begun[-1] = time
            assert begun[2] < time
        else:
            category = texts["event_categories"][event.category_iids[0]]
            slice_ = [event.track_uuid, texts["event_names"][event.name_iid], time, time]
            found.slices[category].append(slice_)
            found.details[category].append(
                {
                    texts["debug_annotation_names"][n.name_iid]: texts["values"][n.string_value_iid]
                    if n.string_value_iid
                    else n.int_value
                    for n in event.debug_annotations
                }
            )
            for flow in event.flow_ids:
                found.flows[flow].append(category)
            if event.type == BEGIN:
                open_[event.track_uuid].append(slice_)
    assert not any(open_.values())
    return found


@cache
def capture(name: str) -> tuple[Read, Any, Any]:
    with analyse(committed(name)) as done:
        diagnosis = assemble(done)
        return read(b"".join(trace_packets(done.analysis, diagnosis))), done.analysis, diagnosis


@pytest.mark.parametrize("name", CAPTURES)
def test_every_row_of_the_capture_is_a_slice_with_its_times(name: str) -> None:
    found, analysis, _ = capture(name)
    trace = analysis.trace
    for category, table in TABLES.items():
        assert len(found.slices[category]) == trace.rows(table), category
        if trace.rows(table):
            rows = trace.columns(table, ("start", "end"))
            spans = zip(rows["start"].tolist(), rows["end"].tolist(), strict=True)
            zero = trace.capture.zero_ns
            assert Counter((s, e) for _, _, s, e in found.slices[category]) == Counter(
                (s + zero, max(s, e) + zero) for s, e in spans
            )


def test_a_large_capture_is_written_in_parts_without_a_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of each three kernels overlap on one stream, so that some lie on a further lane."""
    export = Export().gpu().process(100)
    for i in range(60):
        begin = i * 1_000 + (i % 3 == 1) * -600
        export.launch(i * 1_000, 100, kernel_start=begin + 300, kernel_dur=500)
    path = export.write(tmp_path / "x.sqlite")
    written = []
    for rows in (1 << 17, 10):
        monkeypatch.setattr(trace_file, "_ROWS", rows)
        with analyse(path) as done:
            written.append(b"".join(trace_packets(done.analysis, assemble(done))))
    whole, parts = map(read, written)
    assert len({track for track, *_ in whole.slices["kernel"]}) == 2
    assert parts.slices == whole.slices
    assert parts.flows == whole.flows


@pytest.mark.parametrize("name", CAPTURES)
def test_an_arrow_leads_from_each_call_to_all_that_it_issued(name: str) -> None:
    found, analysis, _ = capture(name)
    issued = Counter(analysis.ops.api[analysis.ops.api >= 0].tolist())
    assert {flow - 1: len(ends) - 1 for flow, ends in found.flows.items()} == issued
    assert all(ends.count("call") == 1 for ends in found.flows.values())


@pytest.mark.parametrize("name", CAPTURES)
def test_findings_steps_and_gaps_lie_on_tracks_of_their_own(name: str) -> None:
    found, analysis, diagnosis = capture(name)
    on = Counter(found.path(track).split("/")[0] for track, *_ in found.slices["advisor"])
    assert on["advisor: findings"] == sum(len(f.time_ranges) for f in diagnosis.findings)
    steps = [s for s in found.slices["advisor"] if found.path(s[0]).endswith("/steps")]
    assert len(steps) == analysis.step_count
    gaps = [s for s in found.slices["advisor"] if s[1] == "GPU idle"]
    assert len(gaps) == sum(min(len(b.gaps), 1000) for b in analysis.budgets.values())


def test_counters_hold_every_sample_that_is_known() -> None:
    found, analysis, _ = capture("decode_graph_opaque")
    rows = analysis.trace.columns("samples", ("time", "sm_active"))
    known = ~np.isnan(rows["sm_active"])
    expected = dict(zip(rows["time"][known].tolist(), rows["sm_active"][known].tolist(), strict=True))
    (drawn,) = (v for k, v in found.counters.items() if k.endswith("/SM Active"))
    assert dict(drawn) == pytest.approx({t: 100 * v for t, v in expected.items()})


def test_streams_threads_and_ranges_have_their_tracks(tmp_path: Path) -> None:
    export = Export().gpu(name="NVIDIA H200").process(100)
    export.range("step 0", 0, 90_000).launch(1_000, kernel="gemm", stream=7, grid=(4, 2, 1))
    export.launch(20_000, kernel="copy", stream=9)
    path = export.write(tmp_path / "two.sqlite")
    target = tmp_path / "two.perfetto-trace"
    assert main(["export", "perfetto", str(path), "--with-trace", "-o", str(target)]) == 0
    found = read(target.read_bytes())
    kernels = {name: found.path(track) for track, name, *_ in found.slices["kernel"]}
    assert kernels == {"gemm": "GPU 0, NVIDIA H200/stream 7", "copy": "GPU 0, NVIDIA H200/stream 9"}
    (nvtx,) = found.slices["range"]
    assert nvtx[1:] == ["step 0", 0, 90_000]
    assert found.path(nvtx[0]).endswith("/thread 100/NVTX")
    assert found.details["kernel"][0]["grid"] == "4 x 2 x 1"
    assert found.details["kernel"][0]["correlation"] == 1


def test_kernels_that_overlap_on_a_stream_keep_their_times(tmp_path: Path) -> None:
    export = Export().gpu().process(100)
    spans = [(10_000, 30_000), (20_000, 40_000), (25_000, 26_000), (40_000, 41_000)]
    for at, (start, end) in enumerate(spans):
        export.launch(at * 1_000, 500, kernel_start=start, kernel_dur=end - start)
    path, target = export.write(tmp_path / "x.sqlite"), tmp_path / "x.pftrace"
    assert main(["export", "perfetto", str(path), "--with-trace", "-o", str(target)]) == 0
    found = read(target.read_bytes())
    assert sorted((s, e) for _, _, s, e in found.slices["kernel"]) == sorted(spans)
    assert len({track for track, *_ in found.slices["kernel"]}) == 2
    assert len({found.path(track) for track, *_ in found.slices["kernel"]}) == 1


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2)), max_size=14))
def test_intervals_of_a_lane_nest(rows: list[tuple[int, int, int]]) -> None:
    start = np.array([s for s, _, _ in rows], np.int64)
    end = start + np.array([d for _, d, _ in rows], np.int64)
    track = np.array([t for _, _, t in rows], np.int64)
    lane = lanes(start, end, track)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if (track[i], lane[i]) == (track[j], lane[j]):
                assert not start[i] < start[j] < end[i] < end[j]
    for name in set(track.tolist()):
        mine = track == name
        crossing = any(
            a < c < b < d
            for a, b in zip(start[mine], end[mine], strict=True)
            for c, d in zip(start[mine], end[mine], strict=True)
        )
        assert bool(lane[mine].any()) == crossing


def test_where_to_open_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "gc.perfetto-trace"
    args = ["export", "perfetto", str(committed("decode_gc")), "--with-trace", "-o", str(target)]
    assert main(args) == 0
    assert "https://ui.perfetto.dev" in capsys.readouterr().err
    assert main(args) == 2
    assert "add --force" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--with-trace"]])
def test_a_terminal_is_not_flooded(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["export", "perfetto", str(committed("decode_gc")), *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "-o decode_gc." in err


def test_the_trace_processor_reads_it(tmp_path: Path) -> None:
    shell = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if shell is None:
        pytest.skip("no trace_processor on PATH")
    _, analysis, _ = capture("decode_gc")
    target = tmp_path / "gc.perfetto-trace"
    assert main(["export", "perfetto", str(committed("decode_gc")), "--with-trace", "-o", str(target)]) == 0
    query = "select count(*) as n from slice where category = 'kernel'"
    done = subprocess.run([shell, "-Q", query, str(target)], capture_output=True, text=True, check=True)
    assert str(analysis.trace.rows("kernels")) in done.stdout.split()
