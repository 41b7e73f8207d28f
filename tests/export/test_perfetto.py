"""The overlay for Perfetto: valid, exact to the nanosecond, and true to the budget."""

from __future__ import annotations

import json
import lzma
import shutil
import sqlite3
from collections import defaultdict
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.export import overlay as perfetto
from advisor.export import overlay as tracks
from advisor.export.overlay import largest_gaps
from advisor.model.parts import IDLE
from advisor.pipeline.diagnose import analyse, assemble
from tests.builder import Export
from tests.captures import committed
from tests.kineto_builder import Profile, Style, decode

CAPTURES = ("decode_eager_bs1", "decode_h2d_pageable", "decode_gc", "two_processes")
Event = dict[str, Any]


@cache
def overlay(name: str) -> tuple[Event, ...]:
    with analyse(committed(name)) as done:
        return events(perfetto.render(done.analysis, assemble(done)))


def events(data: bytes) -> tuple[Event, ...]:
    return tuple(json.loads(data, parse_float=Decimal)["traceEvents"])


def ns(value: Decimal) -> int:
    whole = value * 1000
    assert whole == int(whole), "not a whole number of nanoseconds"
    return int(whole)


def span(event: Event) -> tuple[int, int]:
    start = ns(event["ts"])
    return start, start + ns(event["dur"])


def slices(name: str, process: int, track: int) -> list[Event]:
    return [e for e in overlay(name) if e["ph"] == "X" and (e["pid"], e["tid"]) == (process, track)]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_track_is_named_and_slices_nest(name: str) -> None:
    named = {(e["pid"], e["tid"]) for e in overlay(name) if e["ph"] == "M"}
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in overlay(name):
        assert e["ph"] in "MXC"
        if e["ph"] == "X":
            assert (e["pid"], e["tid"]) in named
            tracks[e["pid"], e["tid"]].append(span(e))
    assert tracks
    for spans in tracks.values():
        open_: list[int] = []
        for start, end in spans:  # in the order of the file, which is that of time
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


@pytest.mark.parametrize("name", CAPTURES)
def test_findings_are_the_places_of_the_diagnosis(name: str) -> None:
    with analyse(committed(name)) as done:
        diagnosis = assemble(done)
    drawn = {(e["name"], *span(e)) for e in overlay(name) if e["ph"] == "X" and e["pid"] == tracks.FINDINGS}
    assert drawn == {
        (f"{f.code} {f.cause}", r.start_ns, r.end_ns) for f in diagnosis.findings for r in f.time_ranges
    }


@pytest.mark.parametrize("name", CAPTURES)
def test_gaps_begin_and_end_with_operations_of_the_capture(name: str, tmp_path: Path) -> None:
    path = tmp_path / "capture.sqlite"
    with lzma.open(committed(name)) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    db = sqlite3.connect(path)
    tables = [t for (t,) in db.execute("select name from sqlite_master where type = 'table'")]
    starts, ends = set(), set()
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
            for start, end in db.execute(f'select start, "end" from CUPTI_ACTIVITY_KIND_{table}'):
                starts.add(start)
                ends.add(end)
    db.close()
    gaps = [e for e in slices(name, tracks.BUDGET, tracks.GAPS_TRACK) if e["name"] == "GPU idle"]
    assert len(gaps) > 10
    # The first and last gap may lie at the edge of the window.
    for event in sorted(gaps, key=span)[1:-1]:
        start, end = span(event)
        assert start in ends
        assert end in starts


@pytest.mark.parametrize("style", ["new", "epoch", "whole"])
def test_beside_a_trace_of_pytorch_times_are_those_of_its_file(style: Style, tmp_path: Path) -> None:
    path = decode(profile=Profile(style).gpu().process(100)).write(tmp_path / "trace.json")
    own = json.loads(path.read_bytes(), parse_float=Decimal)["traceEvents"]
    work = [e for e in own if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    starts = {ns(Decimal(e["ts"])) for e in work}
    ends = {ns(Decimal(e["ts"]) + Decimal(e["dur"])) for e in work}
    # Since 1970 a time in nanoseconds is beyond what a float tells apart.
    assert style == "new" or min(starts) > 2**53
    assert main(["export", "perfetto", str(path), "-o", str(tmp_path / "o.json")]) == 0
    drawn = events((tmp_path / "o.json").read_bytes())
    gaps = sorted(span(e) for e in drawn if e["name"] == "GPU idle")
    assert len(gaps) > 10
    for start, end in gaps[1:-1]:
        assert start in ends
        assert end in starts


def test_samples_and_steps_of_graphs_that_hide_their_kernels() -> None:
    drawn = overlay("decode_graph_opaque")
    assert sum(e["ph"] == "C" for e in drawn) > 1_000
    steps = [span(e) for e in drawn if e["ph"] == "X" and e["tid"] == tracks.STEPS_TRACK]
    with analyse(committed("decode_graph_opaque")) as done:
        a = done.analysis
        assert [end for _, end in steps] == a.steps.gpu_end[a.window_steps].tolist()


@pytest.mark.parametrize("name", [*CAPTURES, "decode8b_graph_bs1", "decode_cpu_gap"])
def test_slices_of_a_gap_add_up_to_its_budget(name: str) -> None:
    drawn = {e["name"] for e in slices(name, tracks.BUDGET, tracks.GAPS_TRACK)}
    assert "GPU idle" in drawn
    assert drawn <= {"GPU idle", *(spec.words for spec in IDLE.values())}
    with analyse(committed(name)) as done:
        a = done.analysis
        for device, budget in a.budgets.items():
            found = largest_gaps(a, device, 400)
            at = {int(s): i for i, s in enumerate(budget.gaps.start)}
            for gap in found:
                edges = [gap.start, *(e for _, _, e in gap.parts)]
                assert edges == [*(s for _, s, _ in gap.parts), gap.end]
                sums: dict[str, int] = defaultdict(int)
                for part, start, end in gap.parts:
                    sums[part] += end - start
                i = at[gap.start]
                booked = {p: int(v[i]) for p, v in budget.gap_parts.items() if int(v[i])}
                assert sums == booked


def test_the_largest_gaps_are_chosen() -> None:
    with analyse(committed("decode_eager_bs1")) as done:
        lengths = sorted(done.analysis.budgets[0].gaps.length.tolist(), reverse=True)
        found = largest_gaps(done.analysis, 0, 25)
    assert sorted((g.end - g.start for g in found), reverse=True) == lengths[:25]
    assert [g.start for g in found] == sorted(g.start for g in found)


def test_samples_are_counters_at_their_stamps() -> None:
    with analyse(committed("decode_eager_bs1")) as done:
        samples = done.analysis.samples(0)
        assert samples is not None
        drawn = {
            ns(e["ts"]): e["args"]["value"]
            for e in overlay("decode_eager_bs1")
            if e["ph"] == "C" and e["name"] == "SM Active %"
        }
        known = dict(zip(samples.time.tolist(), samples.values["sm_active"].tolist(), strict=True))
    assert set(drawn) <= set(known)
    assert len(drawn) > 1_000
    for time, value in drawn.items():
        assert float(value) == pytest.approx(100 * known[time], rel=1e-3)


def test_many_samples_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "SAMPLES", 500)
    with analyse(committed("decode_eager_bs1")) as done:
        drawn = events(perfetto.render(done.analysis, assemble(done)))
    counters = [e for e in drawn if e["ph"] == "C"]
    assert 0 < len(counters) <= 520
    assert any("mean of" in e["args"]["name"] for e in drawn if e["name"] == "process_name")


def test_a_name_of_a_capture_is_a_string(tmp_path: Path) -> None:
    export = Export().gpu().process(100)
    for i in range(30):
        export.range(f'iteration {i} "</script>\\', i * 100_000, 90_000)
        export.launch(i * 100_000 + 1_000, kernel='k"\\\u2028<b>')
    path = export.write(tmp_path / "odd.sqlite")
    assert main(["export", "perfetto", str(path), "-o", str(tmp_path / "o.json")]) == 0
    assert events((tmp_path / "o.json").read_bytes())


def test_a_capture_without_gpu_work(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", "perfetto", str(committed("no_gpu_work"))]) == 0
    assert [e["ph"] for e in events(capsysbinary.readouterr().out)] == ["M"]


def test_an_existing_file_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "o.json"
    target.write_text("mine")
    capture = str(committed("decode_gc"))
    assert main(["export", "perfetto", capture, "-o", str(target)]) == 2
    assert "add --force" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert main(["export", "perfetto", capture, "-o", str(target), "--force"]) == 0
    assert events(target.read_bytes())
