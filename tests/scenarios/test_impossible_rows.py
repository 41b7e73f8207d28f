"""Rows that cannot be true are not believed, and what looks odd but may happen is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.builder import KERNEL, RUNTIME, Export
from tests.scenarios.support import fact, ranked

US = 1_000
DAY = 86_400 * 10**9


def eager(broken: int = 0, **how: int) -> Export:
    """Two hundred launches of ordinary kernels, the first `broken` of them changed as `how` says:
    `early` us before the call, lasting `call` us of the host, or `length` us on the device."""
    e = Export().gpu().process(100)
    for i in range(200):
        at, odd = i * 40 * US, i < broken
        e.call("cudaLaunchKernel_v7000", at, how.get("call", 5) * US if odd else 5 * US)
        start = at - how["early"] * US if odd and "early" in how else at + 7 * US
        e.kernel(start, how.get("length", 20) * US if odd else 20 * US, f"k{i % 5}")
    return e


def edited(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    return path


def judged(export: Export, folder: Path, *statements: str) -> Diagnosis:
    return advisor.diagnose(edited(export.write(folder / "trace.sqlite"), *statements))


def assert_withheld(d: Diagnosis, said: str) -> None:
    """The counts come first, and only what is said of the capture stands beside them."""
    assert ranked(d)[0] == "damaged-capture"
    assert said in d.findings[0].message
    assert {f.code[:3] for f in d.findings} == {"CAP"}
    assert {h.code[:3] for h in d.healthy} <= {"CAP"}


BROKEN: dict[str, tuple[Callable[[], Export], tuple[str, ...], str]] = {
    "kernels before their launch": (
        lambda: eager(10, early=30), (),
        "10 of 200 kernels start before the call that issued them"),
    "calls of -1 us": (
        lambda: eager(200, call=-1), (), "200 of 200 API calls end before they start"),
    "kernels of -1 us": (
        lambda: eager(5, length=-1), (), "5 of 200 kernels end before they start"),
    "kernels on top of each other": (
        lambda: eager(9, length=70), (), "kernels overlap the one ahead on their stream"),
    "doubled kernels": (
        eager, (f"insert into {KERNEL} select * from {KERNEL}",),
        "200 of 400 kernels are recorded twice"),
    "doubled calls": (
        eager, (f"insert into {RUNTIME} select * from {RUNTIME}",),
        "200 of 400 API calls are recorded twice"),
    "one correlation id for all": (
        eager, (f"update {RUNTIME} set correlationId = 1",),
        "199 of 200 API calls carry the correlation id of another"),
    "kernels years later": (
        eager, (f"update {KERNEL} set start = start + {900 * DAY}, end = end + {900 * DAY} "
                "where rowid < 4",), "3 of 200 kernels lie months from the others"),
    "no strings": (
        eager, ("delete from StringIds",), "200 of 200 kernels have a name without text"),
    "kernels named like a call": (
        eager, (f"update {KERNEL} set shortName = (select max(nameId) from {RUNTIME}), "
                f"demangledName = (select max(nameId) from {RUNTIME})",),
        "200 of 200 kernels have the name of a call"),
    "calls named like a kernel": (
        eager, ("update StringIds set value = 'void gemm<float>(float*)' "
                f"where id in (select nameId from {RUNTIME})",),
        "200 of 200 API calls have the name of a kernel"),
    "a view": (
        eager, (f"create table copied as select * from {KERNEL}", f"drop table {KERNEL}",
                f"create view {KERNEL} as select * from copied"),
        f"{KERNEL} is a view, not a table"),
    "samples above 100 %": (
        lambda: eager().gpu_metrics({"SMs Active": [40, 250] * 40}), (),
        "40 of 80 samples show a share above 100 %"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_impossible_rows_are_not_believed(tmp_path: Path, name: str) -> None:
    export, statements, said = BROKEN[name]
    assert_withheld(judged(export(), tmp_path, *statements), said)


@pytest.mark.parametrize("table", [KERNEL, RUNTIME])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_a_single_row_years_away_is_left_out_and_named(tmp_path: Path, table: str, sign: str) -> None:
    sound = judged(eager(), tmp_path)
    far = f"update {table} set start = start {sign} {900 * DAY}, end = end {sign} {900 * DAY} where rowid = 7"
    d = advisor.diagnose(edited(tmp_path / "trace.sqlite", far))
    assert ranked(d) == ranked(sound)
    assert d.inputs[0].window_ms == pytest.approx(sound.inputs[0].window_ms, rel=0.02)
    assert d.inputs[0].warnings[-1].endswith("months from the others, left out: 1")
    assert fact(d, "capture.far_time_count", None) == 1


def test_what_would_have_been_said_is_named(tmp_path: Path) -> None:
    """Uploads hold most of the window by their rows; nothing of that is advice any more."""
    e = eager()
    for i in range(200):
        e.copy(i * 40 * US + 28 * US, 1 * US, copy_start=i * 40 * US + 28 * US, copy_dur=10 * US)
    sound = judged(e, tmp_path)
    assert "transfer-bound" in {f.cause for f in sound.findings}
    doubled = edited(tmp_path / "trace.sqlite", f"insert into {KERNEL} select * from {KERNEL}")
    d = advisor.diagnose(doubled)
    assert ("transfer-bound", "damaged-capture") in {(o.cause, o.by) for o in d.overruled}
    assert "transfer" not in d.verdict


def test_the_doctor_says_so_too(tmp_path: Path) -> None:
    found = advisor.doctor(eager(10, early=30).write(tmp_path / "t.sqlite")).findings[0]
    assert found.cause == "damaged-capture"
    assert "10 of 200 kernels start before" in found.message


def test_one_row_in_a_hundred_is_no_damage(tmp_path: Path) -> None:
    d = judged(eager(2, early=30), tmp_path)
    assert fact(d, "capture.before_launch_count", None) == 2
    assert "damaged-capture" not in {f.cause for f in d.findings}


def two_processes() -> Export:
    """Correlation ids repeat between processes."""
    e = Export().gpu()
    for pid in (100, 200):
        e.process(pid)
        for i in range(50):
            e.launch(i * 50 * US, kernel=f"k{i % 3}")
    return e


def replays() -> Export:
    """The nodes of a graph carry one id, and run beside each other under one stream."""
    e = Export().gpu().process(100)
    for i in range(20):
        at = i * 100 * US
        nodes = [(f"k{n}", at + 30 * US + n * 5 * US, 20 * US) for n in range(8)]
        e.graph_launch(at, 20 * US, nodes)
    return e


def dependent_launches() -> Export:
    e = Export().gpu().process(100)
    for i in range(50):
        at = i * 40 * US
        e.launch(at, api="cudaLaunchKernelExC_v11060", kernel_start=at + 7 * US, kernel_dur=60 * US)
    return e


def skewed_clocks() -> Export:
    return eager(200, early=3)


def two_streams() -> Export:
    e = Export().gpu().process(100)
    for i in range(60):
        e.launch(i * 20 * US, kernel_dur=35 * US, stream=7 + i % 2)
    return e


@pytest.mark.parametrize("export", [two_processes, replays, dependent_launches, skewed_clocks, two_streams])
def test_what_may_happen_is_believed(tmp_path: Path, export: Callable[[], Export]) -> None:
    d = judged(export(), tmp_path)
    assert fact(d, "capture.invalid_row_ratio", None) == 0.0
    assert fact(d, "capture.invalid_rows", None) == "none"
    assert "damaged-capture" not in {f.cause for f in d.findings}
