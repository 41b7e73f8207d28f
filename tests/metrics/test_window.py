"""Windows, start-up and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.loaded.selection import parse_time, parse_window
from advisor.metrics.stepped.damage import Damage
from tests.builder import Export
from tests.metrics.support import analysis

US, MS = 1_000, 1_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [("5s", 5_000_000_000), ("1s2ms3us4ns", 1_002_003_004), ("250ms", 250_000_000), ("0.5", 5 * 10**8)],
)
def test_times_are_written_as_nsys_writes_them(text: str, ns: int) -> None:
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "5x", "s5", "1s 2q", "9" * 400, "9" * 400 + "s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--window"):
        parse_time(text)


def test_open_windows_reach_to_the_ends() -> None:
    span = (1_000_000_000, 9_000_000_000)
    assert parse_window("2s/", span) == (2_000_000_000, 9_000_000_000)
    assert parse_window("/2s", span) == (1_000_000_000, 2_000_000_000)


@pytest.mark.parametrize("text", ["5s", "7s/5s", "20s/30s"])
def test_windows_that_select_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--window"):
        parse_window(text, (0, 9_000_000_000))


def small() -> Export:
    return Export().process(1).range("decode_step", 0, 90 * US).launch(at=10 * US)


def test_an_unknown_range_names_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nearest: decode_step"):
        _ = analysis(small(), tmp_path, nvtx="decode_stp").window


def test_a_range_like_no_other_lists_those_with_most_time(tmp_path: Path) -> None:
    export = small().range("load", 0, 95 * US)
    with pytest.raises(InputError, match=r"no range is named 'xyz'; there are: load, decode_step$"):
        _ = analysis(export, tmp_path, nvtx="xyz").window


def test_an_index_beyond_the_occurrences_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="occurs 1 times"):
        _ = analysis(small(), tmp_path, nvtx="decode_step/3").window


def test_an_unknown_phase_names_the_known_ones(tmp_path: Path) -> None:
    export = small().range("decode_step", 100 * US, 190 * US).launch(at=110 * US)
    with pytest.raises(InputError, match="the capture has decode"):
        _ = analysis(export, tmp_path, phase="prefill").window


def whole_process() -> Export:
    """2 s of loading, an upload of 1 GB, then ten kernels of 10 ms."""
    export = Export().process(1)
    export.call("cuLibraryLoadData", 0, 50 * MS)
    export.copy(1000 * MS, 900 * MS, "HtoD", bytes=10**9, copy_start=1001 * MS, copy_dur=899 * MS)
    for i in range(10):
        at = (2000 + 12 * i) * MS
        export.launch(at=at, kernel=f"gemm{i}", kernel_start=at + MS, kernel_dur=10 * MS)
    return export


def test_loading_and_upload_are_set_aside(tmp_path: Path) -> None:
    a = analysis(whole_process(), tmp_path)
    assert {e.kind: (e.end - e.start) // MS for e in a.startup.events} == {"modules": 50, "upload": 899}
    assert a.startup.events[1].what.startswith("upload of 1.00 GB at 1.11 GB/s")
    assert a.startup.end == 1900 * MS
    assert a.window.start == 2001 * MS
    assert a.budgets[0].ns["htod"] == 0


def test_copies_between_kernels_are_no_upload(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(6):
        at = i * 50 * MS
        export.copy(at, 20 * MS, "HtoD", bytes=10**8, copy_start=at + MS, copy_dur=19 * MS)
        export.launch(at=at + 21 * MS, kernel=f"k{i}", kernel_start=at + 22 * MS, kernel_dur=20 * MS)
    a = analysis(export, tmp_path)
    assert a.startup.length == 0
    assert a.budgets[0].ns["htod"] == 6 * 19 * MS


def test_a_range_that_names_itself_loading_is_start_up(tmp_path: Path) -> None:
    export = whole_process().range("load_model", 0, 1950 * MS)
    assert analysis(export, tmp_path).startup.end == 1950 * MS


def test_a_jump_of_correlation_ids_is_a_hole(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(20):
        export.launch(at=i * 100 * US, kernel=f"k{i}", kernel_start=i * 100 * US + 20 * US)
    export.correlation += 500_000
    export._correlations[1] = export.correlation  # what loss looks like: ids that nobody holds
    for i in range(20, 40):
        at = i * 100 * US + 50 * MS
        export.launch(at=at, kernel=f"k{i}", kernel_start=at + 20 * US)
    a = analysis(export, tmp_path)
    assert a.damage.jump > 400_000
    assert a.damage.holes.total == pytest.approx(50 * MS, rel=0.01)
    idle = sum(a.budgets[0].ns.values()) - a.budgets[0].busy_ns
    assert idle < 5 * MS


def test_a_jump_is_judged_within_its_process(tmp_path: Path) -> None:
    """Two processes whose calls alternate and whose ids are far apart: no jump, no hole; then one
    of them loses 500,000 ids."""

    def damage(lost: int) -> Damage:
        folder = tmp_path / str(lost)
        folder.mkdir()
        e = Export().gpu()
        for i in range(40):
            for pid, first in ((100, 1), (200, 900_000)):
                at = i * 20_000 + (pid == 200) * 10_000
                e.process(pid).call(
                    "cudaLaunchKernel_v7000",
                    at,
                    1_000,
                    correlation=first + i + lost * (i >= 20 and pid == 200),
                )
                e.kernel(at + 2_000, 5_000)
        return analysis(e, folder).damage

    whole = damage(lost=0)
    assert (whole.jump, len(whole.holes)) == (0, 0)
    cut = damage(lost=500_000)
    assert cut.jump == 500_001
    assert damage(lost=2**62).jump == 0  # no id of CUPTI has more than 32 bits
    assert (cut.holes.start.tolist(), cut.holes.end.tolist()) == ([391_000], [410_000])


def test_time_between_capture_ranges_is_not_idle(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(3):
        at = i * 1000 * MS
        export.call("cudaProfilerStart", at, US)
        for k in range(4):
            begin = at + (1 + k) * MS
            export.launch(at=begin, kernel=f"k{i}{k}", kernel_start=begin + 10 * US, kernel_dur=900 * US)
        export.call("cudaProfilerStop", at + 6 * MS, US)
    a = analysis(export, tmp_path)
    assert len(a.pauses) == 2
    assert a.window.length < 20 * MS


def work_and_pause(*bursts: tuple[int, int]) -> Export:
    """Kernels of 10 us of changing names in bursts: (start, kernels)."""
    export = Export().gpu().process(1)
    for at, count in bursts:
        for i in range(count):
            export.launch(at=at + i * 15 * US, kernel=f"k{i % 7}_{i % 11}_{i}", kernel_dur=10 * US)
    return export


@pytest.mark.parametrize(
    ("bursts", "main"),
    [
        (((0, 2), (20_000 * MS, 400)), 1),  # a trial run, checked by the host
        (((0, 400), (20_000 * MS, 2)), 0),
    ],
)
def test_little_work_beyond_a_long_pause_is_not_the_steady_state(
    tmp_path: Path, bursts: tuple[tuple[int, int], ...], main: int
) -> None:
    window = analysis(work_and_pause(*bursts), tmp_path).window
    begin, count = bursts[main]
    assert begin <= window.start < window.end <= begin + (count + 1) * 15 * US
    assert window.method == "GPU activity beside a pause of 20 s"


@pytest.mark.parametrize(
    "bursts",
    [
        ((0, 20), (20_000 * MS, 400)),  # five percent of the work
        ((0, 2), (5 * MS, 400)),  # a pause of less than half of the time
    ],
)
def test_other_pauses_are_idle_time(tmp_path: Path, bursts: tuple[tuple[int, int], ...]) -> None:
    window = analysis(work_and_pause(*bursts), tmp_path).window
    assert window.start < bursts[0][0] + MS
    assert window.end > bursts[1][0] + MS


@pytest.mark.parametrize(("cold", "begin"), [(0, 1), (30, 31)], ids=["warm", "after a context"])
def test_the_only_iteration_is_whole_from_the_begin_of_its_range(
    cold: int, begin: int, tmp_path: Path
) -> None:
    """[1, 101) ms: 60 ms of host code, of which a context may take 30, then 40 kernels of 1 ms."""
    ms = 1_000_000
    export = Export().process(1).range("iteration 0", 1 * ms, 100 * ms)
    if cold:
        export.call("cudaFree_v3020", 1 * ms, cold * ms)
    for i in range(40):
        at = 61 * ms + i * 50_000
        export.launch(at=at, kernel="gemm", kernel_start=(61 + i) * ms + 20_000, kernel_dur=ms)
    a = analysis(export, tmp_path)
    assert (a.window.method, a.window.start) == ("the one step", begin * ms)
    assert step_times(a).tolist() == [pytest.approx((101 - begin) * ms, abs=50_000)]
