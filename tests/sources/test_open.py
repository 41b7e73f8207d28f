"""What `open_trace` takes, and the one line it says about everything else."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.errors import InputError
from advisor.pipeline.inputs import expand
from advisor.reading import READING
from advisor.sources import packed
from advisor.sources.open import RECOGNISERS, Recogniser, as_captures, open_trace
from advisor.sources.schema import TABLES
from advisor.sources.sqlite.file import SqliteFile
from advisor.sources.trace import Source, rows_of
from tests.builder import Export


def simple() -> Export:
    return Export().gpu().process(100).launch(at=0, kernel="gemm").sync(at=6_000)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return simple().write(tmp_path / "trace.sqlite")


def refused(path: Path | str) -> str:
    with pytest.raises(InputError) as raised:
        open_trace(path)
    message = str(raised.value)
    assert "\n" not in message
    assert str(path) in message
    return message


# ------------------------------------------------------------------ what opens


def test_opens_a_path_or_a_string(capture: Path) -> None:
    for given in (capture, str(capture)):
        with open_trace(given) as trace:
            assert trace.has("kernels")
            assert trace.rows("kernels") == 1
            assert trace.capture.path == str(given)
            assert trace.capture.format == "nsys-sqlite"
            assert trace.capture.size_bytes == capture.stat().st_size


@pytest.mark.parametrize("name", ["a?b.sqlite", "a#b", "100%25 new.sqlite", "sp ace é.db", "&;='"])
def test_odd_characters_in_the_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with open_trace(simple().write(folder / name)) as trace:
        assert trace.rows("kernels") == 1


def test_an_extension_is_not_needed(capture: Path, tmp_path: Path) -> None:
    other = capture.rename(tmp_path / "capture")
    with open_trace(other) as trace:
        assert trace.rows("kernels") == 1


def test_an_export_without_rows_is_an_empty_trace(tmp_path: Path) -> None:
    with open_trace(Export().write(tmp_path / "none.sqlite")) as trace:
        assert trace.tables == frozenset()
        assert trace.rows("kernels") == 0
        assert trace.columns("kernels", ["start"])["start"].tolist() == []


@pytest.mark.parametrize(("ending", "module"), [("gz", gzip), ("xz", lzma)])
def test_a_compressed_file_is_read_through_a_copy_that_goes(
    capture: Path, tmp_path: Path, ending: str, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    packed = tmp_path / f"trace.sqlite.{ending}"
    packed.write_bytes(module.compress(capture.read_bytes()))  # type: ignore[attr-defined]
    with open_trace(packed) as trace:
        assert trace.rows("kernels") == 1
        assert trace.capture.path == str(packed)
        assert trace.capture.size_bytes == packed.stat().st_size
        assert trace.text(int(trace.columns("kernels", ["name_id"])["name_id"][0])) == "gemm"
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())


def test_the_copy_goes_also_when_nobody_closes(capture: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    packed = tmp_path / "trace.sqlite.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    code = f"from advisor.sources.open import open_trace; t = open_trace({str(packed)!r})"
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert not list(scratch.iterdir())


def test_nothing_is_written_to_the_file_or_beside_it(capture: Path) -> None:
    before = capture.read_bytes(), capture.stat().st_mtime_ns
    with open_trace(capture) as trace:
        for table in trace.tables:
            trace.rows(table)
        assert [p.name for p in capture.parent.iterdir()] == [capture.name]
    assert (capture.read_bytes(), capture.stat().st_mtime_ns) == before
    assert [p.name for p in capture.parent.iterdir()] == [capture.name]


def test_a_file_left_in_wal_mode_opens_without_a_trace(tmp_path: Path) -> None:
    path = simple().write(tmp_path / "wal.sqlite", journal="wal")
    assert path.read_bytes()[18:20] == b"\x02\x02"
    with open_trace(path) as trace:
        assert trace.rows("kernels") == 1
        assert [p.name for p in tmp_path.iterdir()] == ["wal.sqlite"]


def test_rows_that_sit_in_a_write_ahead_log_are_read_and_the_log_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    path = simple().write(folder / "t.sqlite", journal="wal")
    writer = sqlite3.connect(path)
    writer.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL select * from CUPTI_ACTIVITY_KIND_KERNEL")
    writer.commit()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ("t.sqlite", "t.sqlite-wal"):  # as if the writer had been killed
        shutil.copy(folder / file, copy / file)
    writer.close()
    before = {p.name: p.read_bytes() for p in copy.iterdir()}
    with open_trace(copy / "t.sqlite") as trace:
        assert trace.rows("kernels") == 2
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_capture_in_a_folder_that_cannot_be_written(capture: Path) -> None:
    capture.parent.chmod(0o555)
    try:
        with open_trace(capture) as trace:
            assert trace.rows("kernels") == 1
    finally:
        capture.parent.chmod(0o755)


def test_a_link_to_a_capture(capture: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(capture)
    with open_trace(link) as trace:
        assert trace.rows("kernels") == 1


def test_importing_is_light() -> None:
    code = "import sys, advisor.sources.open; print(*sys.modules)"
    root = str(Path(__file__).parents[2])
    output = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    loaded = set(output.stdout.split())
    assert not loaded & {"pandas", "rich", "yaml", "openpyxl", "click", "dask", "pyarrow"}


# ------------------------------------------------------------------ what does not


def test_no_such_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.sqlite").endswith("no such file")


def test_a_folder(tmp_path: Path) -> None:
    assert "a folder" in refused(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read")
def test_a_file_without_permission(capture: Path) -> None:
    capture.chmod(0)
    assert "permission denied" in refused(capture)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    message = refused(path)
    assert "empty file" in message
    assert "nsys export" in message
    trace = tmp_path / "trace.json"
    trace.touch()
    assert "prof.export_chrome_trace" in refused(trace)


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    message = refused(path)
    assert "Git LFS pointer" in message
    assert "git lfs pull --include=trace.sqlite" in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.nsys-rep", b"\x00\x01anything"),
        ("r.qdrep", b"\x00\x01anything"),
        ("report", b"\x10\x00NVIDIA Nsight Systems 2025.1"),
    ],
)
def test_an_nsys_report_without_nsys(
    tmp_path: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / name
    path.write_bytes(content)
    message = refused(path)
    assert f"nsys export --type=sqlite -o {path.with_suffix('.sqlite').name} {path}" in message


def test_an_unfinished_recording(tmp_path: Path) -> None:
    path = tmp_path / "r.qdstrm"
    path.write_bytes(b"stream")
    message = refused(path)
    assert "QdstrmImporter" in message
    assert "nsys export --type=sqlite" in message


@pytest.mark.parametrize("content", [b"hello\n", b"<html>", b"\x7fELF" + bytes(4000)])
def test_not_a_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(content)
    assert "not a SQLite database" in refused(path)


def test_a_database_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table kernels (start integer)")
    message = refused(path)
    assert "not an Nsight Systems export" in message


def test_a_database_cut_short(capture: Path, tmp_path: Path) -> None:
    whole = capture.read_bytes()
    path = tmp_path / "cut.sqlite"
    for length in (16, 60, 100, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "cut short" in refused(path)


def test_a_damaged_header(capture: Path, tmp_path: Path) -> None:
    raw = bytearray(capture.read_bytes())
    raw[100:200] = bytes(100)
    path = tmp_path / "bad.sqlite"
    path.write_bytes(raw)
    assert "damaged" in refused(path)


def test_damage_found_only_while_reading(tmp_path: Path) -> None:
    export = Export().gpu().process(100)
    for i in range(3000):
        export.launch(at=i * 10_000)
    path = export.write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        (root,) = db.execute(
            "select rootpage from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchone()
    raw = bytearray(path.read_bytes())
    # The first child of the root: small enough a hole that opening does not see it.
    cell = (root - 1) * 4096 + int.from_bytes(raw[(root - 1) * 4096 + 14 :][:2], "big")
    child = int.from_bytes(raw[cell : cell + 4], "big")
    raw[(child - 1) * 4096 : child * 4096] = b"\xee" * 4096
    path.write_bytes(raw)
    with open_trace(path) as trace, pytest.raises(InputError, match="damaged") as raised:
        trace.columns("kernels", ["start", "end"])
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_file_cut_short(capture: Path, tmp_path: Path, compress: object) -> None:
    packed = compress(capture.read_bytes())  # type: ignore[operator]
    path = tmp_path / "trace.sqlite.packed"
    for length in (20, len(packed) // 2, len(packed) - 5):
        path.write_bytes(packed[:length])
        assert "cut short or damaged" in refused(path)


def test_a_compressed_file_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nsys
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert "a PyTorch profiler trace without content" in refused(path)
    path = tmp_path / "report.nsys-rep.gz"
    path.write_bytes(gzip.compress(b"\x00\x01\x02"))
    assert "Nsight Systems report" in refused(path)
    path = tmp_path / "captures.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    assert "a tar archive; unpack it (tar xf)" in refused(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.json", b'  {"schemaVersion": 1}', "not a PyTorch profiler trace"),
        ("t.json", b"[1]", "a Chrome trace"),
        ("t.parquet", b"PAR1....", "name the folder"),
        ("t.sqlite.zst", b"(\xb5/\xfd....", "zstd -d"),
        ("t.zip", b"PK\x03\x04....", "unzip"),
        (
            "saved.json",
            b'{"schema_version": 1, "findings": []}',
            "advisor wrote, not a capture; name the capture",
        ),
        ("smi.csv", b"timestamp, power.draw [W]\n", "without a single sample"),
        ("other.csv", b"a,b\n1,2\n", "log or table that is known"),
    ],
)
def test_other_formats(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said in refused(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "not a regular file" in refused(path)


def test_a_folder_is_searched_for_packed_captures_and_not_for_pipes(capture: Path) -> None:
    folder = capture.parent
    for name, compress in (("b.sqlite.xz", lzma.compress), ("c.sqlite.gz", gzip.compress)):
        (folder / name).write_bytes(compress(capture.read_bytes()))
    (folder / "gone.sqlite").symlink_to(folder / "absent")
    (folder / "link.sqlite").symlink_to(capture)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")
        (folder / "piped.sqlite").symlink_to(folder / "pipe")
    found = {p.name for p in expand([folder])}
    assert found - {"link.sqlite"} == {"trace.sqlite", "b.sqlite.xz", "c.sqlite.gz", "gone.sqlite"}


def test_two_captures_are_no_parts_of_one(capture: Path) -> None:
    other = Path(shutil.copyfile(capture, capture.with_name("other.sqlite")))
    assert as_captures([capture, other], together=False) == [capture, other]


def test_tables_printed_into_several_files_are_one_capture(tmp_path: Path) -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,1000,2,500.0,"
    kernels, calls = tmp_path / "a_cuda_gpu_kern_sum.csv", tmp_path / "a_cuda_api_sum.csv"
    kernels.write_text(f'[cuda_gpu_kern_sum]\n{head}"gemm"\n')
    calls.write_text(f'[cuda_api_sum]\n{head}"cudaLaunchKernel"\n')
    assert len(as_captures([kernels, calls], together=False)) == 1


def test_a_new_format_is_one_line_in_the_registry(
    tmp_path: Path, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fixed:
        def __init__(self, source: Source) -> None:
            self.capture, self.devices = source.capture, source.devices
            self.tables, self.read_columns = source.tables, source.read_columns
            self.ledger = source.ledger
            self.text, self.close = source.text, source.close

    nsys = next(kind for kind in RECOGNISERS if kind.name == "nsys-sqlite")
    kind = Recogniser(
        "dump",
        lambda found: found.head.startswith(b"DUMP"),
        lambda found: Fixed(nsys.open(found._replace(path=capture))),
        suffixes=(".dump",),
    )
    monkeypatch.setattr("advisor.sources.open.RECOGNISERS", [kind, *RECOGNISERS])
    path = tmp_path / "captures" / "x.dump"
    path.parent.mkdir()
    path.write_bytes(b"DUMP")
    with open_trace(path) as trace:
        assert trace.rows("kernels") == 1
    assert expand([path.parent]) == [path]


def test_damage_anywhere_ends_in_one_line_or_in_a_trace(tmp_path: Path) -> None:
    """Random bytes over a real layout: never a traceback, whatever they hit."""
    export = simple().range_inline("step", 0, 9).gpu_metrics({"SM Active": [1, 2]})
    for i in range(400):
        export.launch(at=i * 10_000, kernel=f"kernel {i % 50}").osrt("poll", i, 1)
    whole = export.write(tmp_path / "whole.sqlite").read_bytes()
    rng = random.Random(7)
    path = tmp_path / "damaged.sqlite"
    messages = []
    for _ in range(120):
        raw = bytearray(whole)
        for _ in range(rng.choice([1, 5, 50])):
            page = rng.randrange(len(raw) // 4096) * 4096
            raw[page + rng.randrange(rng.choice([12, 200, 4096]))] = rng.randrange(256)
        path.write_bytes(raw)
        try:
            with open_trace(path) as trace:
                for table in trace.tables:
                    trace.columns(table, TABLES[table])
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert not [message for message in messages if "\n" in message]


@pytest.mark.parametrize(("beyond", "too_much"), [(packed.HEAD_BYTES, False), (3 << 20, True)])
def test_a_capture_that_unpacks_beyond_its_header_is_refused(
    capture: Path, tmp_path: Path, beyond: int, too_much: bool
) -> None:
    """A little more than the header says is left to SQLite; what fills the disk is not."""
    content, copy = capture.read_bytes(), tmp_path / "copy"
    before = READING.count
    if too_much:
        with pytest.raises(InputError, match="which its header or its size does not allow"):
            packed.unpack(capture, io.BytesIO(content + bytes(beyond)), copy)
        assert copy.stat().st_size < len(content) + beyond
    else:
        packed.unpack(capture, io.BytesIO(content + bytes(beyond)), copy)
        assert copy.stat().st_size == len(content) + beyond
    assert READING.count > before


@pytest.mark.parametrize(("free", "fits"), [(64 << 20, False), ((64 << 20) + (1 << 20), True)])
def test_room_is_left_where_a_capture_is_unpacked(
    capture: Path, tmp_path: Path, free: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    content = io.BytesIO(capture.read_bytes())
    if fits:
        packed.unpack(capture, content, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == capture.read_bytes()
    else:
        with pytest.raises(InputError, match="no room to unpack it in"):
            packed.unpack(capture, content, tmp_path / "copy")


@pytest.mark.parametrize(
    ("record", "rows"),
    [
        ({"id": 3, "name": "a", "data": b"x"}, [(3, "a", b"x")]),
        ({"id": 3, "name": None, "data": None}, [(3, "", None)]),
        ({"id": 3, "name": 7}, [(3, "7", None)]),
        ({"id": "3", "name": "a"}, []),
        ({"name": "a"}, []),
        ({"other": 1}, []),
    ],
    ids=str,
)
def test_a_record_is_a_row_if_it_has_its_numbers(
    tmp_path: Path, record: dict[str, object], rows: list[object]
) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as db:
        db.execute(f"create table t ({', '.join(record)})")
        db.execute(f"insert into t values ({', '.join('?' * len(record))})", tuple(record.values()))
    file = SqliteFile(path)
    found = list(rows_of(file, "t", id=int, name=str, data=object))
    file.close()
    assert found == rows


@pytest.mark.parametrize("ending", ["tar", "tar.xz", "tar.gz"])
def test_a_tar_archive_is_refused_with_what_to_do(tmp_path: Path, ending: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/rank0.sqlite").write_bytes(b"x" * 100)
    kind = {"tar": "tar", "tar.xz": "xztar", "tar.gz": "gztar"}[ending]
    path = Path(shutil.make_archive(str(tmp_path / "ranks"), kind, tmp_path, "job"))
    assert "a tar archive; unpack it (tar xf) and give the capture or folder in it" in refused(path)
