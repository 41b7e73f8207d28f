"""Folders of Parquet and Arrow files say what the SQLite export of the same run says."""

from __future__ import annotations

import builtins
import json
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.cli.main import main
from advisor.errors import InputError
from advisor.pipeline.diagnose import diagnose
from advisor.pipeline.inputs import expand
from advisor.sources.open import open_trace
from advisor.sources.schema import MISSING, TABLES
from advisor.sources.trace import Trace
from tests.builder import Export

pa = pytest.importorskip("pyarrow", reason="the extra [arrow] is not installed")
pq = pytest.importorskip("pyarrow.parquet")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces" / "h200"
SAMPLE = SHARED / "decode_graph_bs1.parquetdir.tar.xz"
#: Facts that need META_DATA_CAPTURE (command line, options), and the size of the files themselves.
OF_METADATA = {
    "capture.client_command",
    "capture.cuda_traced",
    "capture.debug_build",
    "capture.size_bytes",
    "workload.confidence",
}
KINDS = ("parquet", "arrow", "arrow-stream")


def exported(sqlite: Path, folder: Path, kind: str = "parquet") -> Path:
    """The tables of an SQLite export as one file each."""
    folder.mkdir()
    db = sqlite3.connect(sqlite)
    db.text_factory = bytes
    for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        table = name.decode()
        info = db.execute(f'pragma table_info("{table}")').fetchall()
        columns = {}
        for number, (_, column, declared, *_rest) in enumerate(info):
            values = [r[number] for r in db.execute(f'select * from "{table}"')]
            columns[column.decode()] = _array(values, declared.decode())
        _write(pa.table(columns), folder / table, kind)
    return folder


def _array(values: list[Any], declared: str) -> Any:
    if declared == "TEXT" or any(isinstance(value, bytes) for value in values):
        return pa.array(values, pa.binary()).view(pa.string())
    if declared == "REAL":
        return pa.array(values, pa.float64())
    return pa.array(values, pa.int64())


def _write(table: Any, stem: Path, kind: str) -> None:
    if kind == "parquet":
        pq.write_table(table, stem.with_name(f"{stem.name}.parquet"))
        return
    path = stem.with_name(f"{stem.name}.arrow")
    new = pa.ipc.new_stream if kind == "arrow-stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)


def everything(schema: str = "3.7") -> Export:
    return (
        Export(schema)
        .gpu(id=1, cuda=0)
        .gpu(id=0, cuda=1, name="NVIDIA A40", sm_count=84)
        .system(NvDriverVersion="580.1", CudaDriverVersion="13000")
        .process(100)
        .range("iteration 0", 0, 50_000)
        .range_inline("inline", 10, 20_000)
        .range_inline("iteration 0", 30, 40_000)
        .mark("now", 5)
        .nvtx(39, 0, text="a thread's name")
        .nvtx(59, 60_000, None, text="never closed")
        .launch(at=0, kernel="gemm<int>(int*)")
        .copy(at=10_000)
        .memset(at=20_000)
        .sync(at=30_000)
        .event(at=31_000)
        .alloc(at=100, bytes=4096)
        .graph_launch(at=40_000, nodes=[("a", 60_000, 10), ("b", 60_020, 10)], mode="graph")
        .gpu_metrics({"SM Active": [10, None, 20], "DRAM Read Bandwidth": [1, 2, 3]}, gpu=1)
        .overhead(1, 2)
        .osrt("poll", 1, 2)
        .diagnostic("a message")
        .callchain(1, [("inner", "lib"), ("outer", "lib")])
        .host_sample(at=5, frames=[("main", "app")])
    )


def same(one: Trace, other: Trace) -> None:
    """Every table and text of the two; ids may differ where texts stand in the rows."""
    assert one.tables == other.tables
    for table in one.tables:
        a, b = one.columns(table, TABLES[table]), other.columns(table, TABLES[table])
        for column in TABLES[table]:
            if column.endswith("_id"):
                assert one.texts(a[column]) == other.texts(b[column]), (table, column)
            else:
                np.testing.assert_array_equal(a[column], b[column], f"{table}.{column}")
                assert b[column].dtype == a[column].dtype
    assert one.devices == other.devices


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", ["2.9", "3.7", "3.17", "3.25", "3.28"])
def test_the_same_tables(tmp_path: Path, schema: str, kind: str) -> None:
    sqlite = everything(schema).write(tmp_path / "t.sqlite")
    folder = exported(sqlite, tmp_path / "folder", kind)
    with open_trace(sqlite) as one, open_trace(folder) as other:
        same(one, other)
        changed = {
            "path": str(folder),
            "format": f"nsys-{kind.partition('-')[0]}",
            "size_bytes": other.capture.size_bytes,
        }
        assert other.capture == one.capture.replaced(**changed)
        assert other.capture.size_bytes == sum(p.stat().st_size for p in folder.iterdir())
        assert other.capture.warnings == ("NVTX ranges without an end, left out: 1",)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    export = Export().process(1).launch(at=0, kernel=b"k\xe9").range_inline(b"r\xff", 0, 9)
    sqlite = export.write(tmp_path / "t.sqlite")
    with open_trace(sqlite) as one, open_trace(exported(sqlite, tmp_path / "f")) as other:
        same(one, other)
        (name,) = other.texts(other.columns("kernels", ["name_id"])["name_id"])
        assert name == "k�"


def test_columns_that_an_export_lacks_read_missing(tmp_path: Path) -> None:
    table = pa.table({"start": [5], "end": [9], "globalPid": pa.array([2**48], pa.uint64())})
    _write(table, tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL", "parquet")
    with open_trace(tmp_path) as trace:
        read = trace.columns("kernels", TABLES["kernels"])
        assert read["start"].tolist() == [5]
        assert read["correlation"].tolist() == read["name_id"].tolist() == [MISSING]
        assert trace.text(3) == ""


def test_ids_beyond_63_bits_and_null(tmp_path: Path) -> None:
    columns = {
        "start": [5, 7],
        "end": [9, 8],
        "correlationId": pa.array([2**64 - 9, None], pa.uint64()),
        "streamId": pa.array([7, None], pa.int32()).dictionary_encode(),
    }
    _write(pa.table(columns), tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL", "parquet")
    with open_trace(tmp_path) as trace:
        read = trace.columns("kernels", ["correlation", "stream"])
        assert read["correlation"].tolist() == [-9, MISSING]
        assert read["stream"].tolist() == [7, MISSING]


@pytest.mark.parametrize("cell", [{"a": 1}, [1]])
def test_lists_and_records_where_a_number_belongs_read_as_nothing(tmp_path: Path, cell: object) -> None:
    folder = exported(everything().write(tmp_path / "t.sqlite"), tmp_path / "folder")
    path = folder / "ENUM_CUDA_MEM_KIND.parquet"
    table = pq.read_table(path)
    ids = pa.array([cell] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index("id"), "id", ids), path)
    with open_trace(folder) as trace:
        assert trace.columns("copies", ["src_memory"])["src_memory"].size == 1


def test_truth_values_where_a_number_belongs_are_not_numbers(tmp_path: Path) -> None:
    folder = exported(everything().write(tmp_path / "t.sqlite"), tmp_path / "folder")
    path = folder / "TARGET_INFO_GPU.parquet"
    table = pq.read_table(path)
    for name in ("computeMajor", "smCount"):
        table = table.set_column(table.column_names.index(name), name, pa.array([True] * table.num_rows))
    pq.write_table(table, path)
    with open_trace(folder) as trace:
        assert (trace.devices[0].compute_capability, trace.devices[0].sm_count) == (None, None)
    assert diagnose(folder).findings


def test_damaged_files(tmp_path: Path) -> None:
    sqlite = everything().write(tmp_path / "t.sqlite")
    for kind in KINDS:
        folder = exported(sqlite, tmp_path / kind, kind)
        (kernels,) = folder.glob("CUPTI_ACTIVITY_KIND_KERNEL.*")
        whole = kernels.read_bytes()
        for data in (b"", b"PAR1", whole[: len(whole) // 2], b"version https://git-lfs"):
            kernels.write_bytes(data)
            with pytest.raises(InputError) as raised, open_trace(folder) as trace:
                trace.columns("kernels", TABLES["kernels"])
            message = str(raised.value)
            assert message.startswith(f"{kernels}: the file is damaged")
            assert "\n" not in message
            assert f"nsys export --type={kind.partition('-')[0]}dir" in message


def test_without_strings_threads_have_no_name(tmp_path: Path) -> None:
    export = Export().process(1).thread(2, "worker").call("cudaMalloc", 0).without_tables("StringIds")
    folder = exported(export.write(tmp_path / "t.sqlite"), tmp_path / "folder")
    with open_trace(folder) as trace:
        assert trace.capture.threads == ()


def test_a_column_name_that_is_not_utf_8(tmp_path: Path) -> None:
    folder = exported(everything().write(tmp_path / "t.sqlite"), tmp_path / "folder")
    path = folder / "StringIds.parquet"
    path.write_bytes(path.read_bytes().replace(b"value", b"val\x8ae"))
    with pytest.raises(InputError, match="the file is damaged") as raised, open_trace(folder) as trace:
        trace.texts([1])
    assert str(raised.value).startswith(str(path))


def test_a_folder_of_other_files(tmp_path: Path) -> None:
    _write(pa.table({"a": [1]}), tmp_path / "nvtx_gpu_proj_trace", "parquet")
    with pytest.raises(InputError, match="a folder, not a capture"):
        open_trace(tmp_path)


def test_without_pyarrow_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "StringIds.parquet").write_bytes(b"PAR1")
    known = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return known(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError) as raised:
        open_trace(tmp_path)
    message = str(raised.value)
    assert "pip install 'pyarrow>=15'" in message
    assert "\n" not in message


def test_an_export_folder_is_one_capture_and_other_folders_hold_captures(tmp_path: Path) -> None:
    sqlite = everything().write(tmp_path / "t.sqlite")
    folder = exported(sqlite, tmp_path / "report_pqtdir")
    (tmp_path / "notes").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    trace = tmp_path / "rank0.pt.trace.json"
    trace.write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert expand([folder]) == [folder]
    assert expand([tmp_path]) == [trace, folder, sqlite]
    assert expand([tmp_path, folder]) == [trace, folder, sqlite]


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLE.is_file(), reason=f"no {SAMPLE}")
def test_the_real_export_gives_the_facts_of_the_sqlite_export(tmp_path: Path) -> None:
    with tarfile.open(SAMPLE) as packed:
        packed.extractall(tmp_path, filter="data")
    sqlite, folder = SHARED / "decode_graph_bs1.sqlite.xz", tmp_path / "decode_graph_bs1"
    with open_trace(sqlite) as one, open_trace(folder) as other:
        same(one, other)
    a, b = diagnose(sqlite), diagnose(folder)
    facts = [{(f.name, f.scope): f.value for f in d.facts if f.name not in OF_METADATA} for d in (a, b)]
    assert facts[0] == facts[1]
    # How it was recorded is a table of some findings, and not in the folder.
    bare = [[f.replaced(evidence=()) for f in d.findings] for d in (a, b)]
    assert bare[0] == bare[1]
    assert (a.budget, a.steps, a.tables) == (b.budget, b.steps, b.tables)
    unknown = {n for e in b.not_evaluated for n in e.missing}
    assert {"capture.debug_build"} <= unknown - {n for e in a.not_evaluated for n in e.missing}


def test_one_document_of_an_exported_folder_and_a_list_of_one_that_holds_captures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    folder = exported(everything().write(tmp_path / "t.sqlite"), tmp_path / "runs" / "one")
    assert main(["diagnose", str(folder), "--format", "json"]) == 0
    assert "findings" in json.loads(capsys.readouterr().out)
    assert main(["diagnose", str(folder.parent), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["diagnoses"]) == 1
