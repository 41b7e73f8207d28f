"""The real captures in ../shared/traces, where that folder is there: totals against nsys stats."""

from __future__ import annotations

import csv
import lzma
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from advisor.sources.open import open_trace
from advisor.sources.schema import COPY_KIND_NAMES, TABLES, Call, base_name
from advisor.sources.sqlite import pages as sqlite_pages
from advisor.sources.sqlite.leaf_pages import NotPlain
from advisor.sources.sqlite.pages import PageReader

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
PACKED = sorted([*SHARED.glob("h200/*.sqlite.xz"), *SHARED.glob("public/*/*.sqlite*")])
ORACLE = sorted({path.name.split(".")[0] for path in SHARED.glob("oracle/*.csv")})

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PACKED, reason=f"no captures in {SHARED}")]


def oracle(capture: str, report: str) -> list[dict[str, str]]:
    with (SHARED / "oracle" / f"{capture}.{report}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name.split(".")[0])
def test_every_capture_reads_whole(packed: Path) -> None:
    with open_trace(packed) as trace:
        for table, columns in TABLES.items():
            read = trace.columns(table, columns)
            assert len({len(values) for values in read.values()}) == 1
            assert trace.has(table) == (len(read[columns[0]]) > 0)
        for device in trace.devices:
            assert device.id >= 0
        assert "ENVIRONMENT" not in str(trace.capture.options)


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.name.split(".")[0])
def test_pages_and_sql_agree(packed: Path, tmp_path: Path) -> None:
    path = packed
    if packed.suffix == ".xz":
        path = tmp_path / "t.sqlite"
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    reader = PageReader(path)
    compared = 0
    for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        info = db.execute(f'pragma table_info("{table}")').fetchall()
        columns = [row[1] for row in info if row[2] == "INTEGER" and not row[5]]
        try:
            pages = reader.read_columns(db, table, columns) if columns else []
        except NotPlain:
            continue
        sql = sqlite_pages.read_columns(db, table, columns) if columns else []
        for one, other in zip(pages, sql, strict=True):
            np.testing.assert_array_equal(one, other)
        compared += 1
    assert compared > 5
    reader.close()
    db.close()


@pytest.mark.parametrize("capture", ORACLE)
def test_totals_are_those_of_nsys_stats(capture: str) -> None:
    with open_trace(SHARED / "h200" / f"{capture}.sqlite.xz") as trace:
        for report, table, name_column, name in (
            ("cuda_gpu_kern_sum", "kernels", "name_id", str),
            ("cuda_api_sum", "api_calls", "name_id", base_name),
            ("nvtx_sum", "ranges", "text_id", str),
        ):
            read = trace.columns(table, ["start", "end", name_column])
            names = trace.texts(read[name_column])
            total: Counter[str] = Counter()
            count: Counter[str] = Counter(map(name, names))
            for text, length in zip(names, (read["end"] - read["start"]).tolist(), strict=True):
                total[name(text)] += length
            key = "Range" if table == "ranges" else "Name"
            number = "Num Calls" if table == "api_calls" else "Instances"
            expected = oracle(capture, report)
            assert len(expected) == len(count)
            for row in expected:
                text = name(row[key].removeprefix(":"))
                assert total[text] == int(row["Total Time (ns)"]), (report, text)
                assert count[text] == int(row[number])


@pytest.mark.parametrize("capture", ORACLE)
def test_memory_operations_are_those_of_nsys_stats(capture: str) -> None:
    words = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device"}
    with open_trace(SHARED / "h200" / f"{capture}.sqlite.xz") as trace:
        total: Counter[str] = Counter()
        copies = trace.columns("copies", ["start", "end", "kind"])
        for start, end, kind in zip(*(copies[c].tolist() for c in copies), strict=True):
            total[f"[CUDA memcpy {words[COPY_KIND_NAMES[kind]]}]"] += end - start
        sets = trace.columns("memsets", ["start", "end"])
        if len(sets["start"]):
            total["[CUDA memset]"] = int((sets["end"] - sets["start"]).sum())
        expected = oracle(capture, "cuda_gpu_mem_time_sum")
        assert total == {row["Operation"]: int(row["Total Time (ns)"]) for row in expected}


def test_two_layers_of_a_2022_capture_count_once() -> None:
    (packed,) = SHARED.glob("public/hpcgroup+pipit/*.sqlite*")
    with open_trace(packed) as trace:
        calls = trace.columns("api_calls", ["start", "end", "call"])
        copies = calls["call"] == Call.COPY
        assert int(copies.sum()) == 15
        assert round(int((calls["end"] - calls["start"])[copies].sum()) / 1e6) == 374
        assert trace.capture.schema_version == "2.9.1"
