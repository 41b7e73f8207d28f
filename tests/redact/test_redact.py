"""A capture full of what is private: none of it is left, and the diagnosis is the same."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.capture import redact as module
from advisor.capture.redact import redact
from advisor.cli.main import main
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose
from tests.builder import Export
from tests.captures import SHARED, committed

#: Each planted in another place; none may be left anywhere in the file.
PRIVATE = (
    "jdoe",
    "gpu-node-17",
    "acme-llm",
    "hf_Tok3nValue12345",
    "hunter2hunter2",
    "corp.example",
    "other-tool",
    "/home/",
    "ssh-agent.sock",
    "stdout says",
    "customer-data",
    "10.20.30.40",
    "AKIAABCDEFGHIJKLMNOP",
    "deleted-row-secret",
    "nsys-config",
    "PLAINPASSWORD",
)


def capture(tmp_path: Path, schema: str = "3.7") -> Path:
    """Sixty decode steps with one readback each, and private texts wherever exports keep them."""
    export = (
        Export(schema)
        .gpu()
        .system(
            NvDriverVersion="580.159.04",
            Hostname="gpu-node-17.corp.example",
            DeviceEnvironment="USER=jdoe\0HF_TOKEN=hf_Tok3nValue12345\0HOME=/home/jdoe\0",
            TargetInstallDir="/home/jdoe/nsight",
            CpuInfo='{"items": [{"maxfreqhz": 3400000000}]}',
        )
    )
    export.row(
        "TARGET_INFO_SYSTEM_ENV",
        name="EventLib",
        value='{"cwd": "/home/jdoe/acme-llm", "host": "gpu-node-17"}',
    )
    export.row("META_DATA_EXPORT", name="EXPORT_HOST", value="gpu-node-17")
    export.row("META_DATA_EXPORT", name="EXPORT_USER", value="jdoe")
    export.row(
        "META_DATA_EXPORT", name="EXPORT_PARAM_INPUT_FILE", value="/home/jdoe/acme-llm/customer-data.nsys-rep"
    )
    export.command(
        "/home/jdoe/acme-llm/venv/bin/vllm",
        "serve",
        "meta-llama/Llama-3.1-8B",
        "--api-key",
        "PLAINPASSWORD",
        "--download-dir",
        "/home/jdoe/acme-llm/customer-data",
        "--otlp=https://jdoe:pw@corp.example/x",
    )
    export.option("PROCESS_0:WORKING_DIRECTORY", "/home/jdoe/acme-llm")
    export.option("DEVICE_DISPLAY_NAME", "gpu-node-17")
    export.option("PROCESS_0:USER_NAME", "jdoe")
    export.environment("HF_TOKEN", "hf_Tok3nValue12345")
    export.environment("DB_PASSWORD", "hunter2hunter2")
    export.environment("AWS_ACCESS_KEY_ID", "AKIAABCDEFGHIJKLMNOP")
    export.environment("SSH_AUTH_SOCK", "/tmp/ssh-agent.sock")
    export.environment("RANK", "3").environment("WORLD_SIZE", "8")
    export.traced("Cuda", "NvtxEvents")
    export.process(200, "other-tool").thread(201, "other-tool worker")
    export.process(100, "/home/jdoe/acme-llm/venv/bin/python3").thread(100, "jdoe main")
    at = 0
    for step in range(60):
        start = at
        for k in range(20):
            export.launch(at, 4_000, f"gemm_{k}<float>", at + 6_000, 9_000)
            at += 16_000
        export.copy(at, 5_000, "DtoH", 4, copy_start=at + 6_000, copy_dur=2_000)
        export.sync(at + 6_000, 9_000)
        at += 40_000
        export.range(f"iteration {step}", start, at - start)
    export.range("load /home/jdoe/acme-llm/weights.bin", 0, 1_000)
    export.range("with hunter2hunter2 inside", 0, 1_000)
    for text in (
        "jdoe@corp.example",
        "SHELL=/bin/sh\0USER=jdoe\0DB_PASSWORD=hunter2hunter2\0X=1",
        "[Unknown]",
        "customer-data of nobody",
    ):
        export.string(text)
    content, name = export.string("stdout says hello jdoe"), export.string("/tmp/q/out.log")
    export.row("ProcessStreams", globalPid=export.global_pid, filenameId=name, contentId=content)
    return export.write(tmp_path / "capture.sqlite")


def add_by_hand(path: Path) -> None:
    """Tables that the builder does not know, and a row whose bytes stay in a free page."""
    with sqlite3.connect(path) as db:
        db.execute("create table ANALYSIS_FILE (id integer, filename text, content blob)")
        db.execute("insert into ANALYSIS_FILE values (0, '/root/nsys-config.ini', x'00')")
        db.execute(
            "create table DIAGNOSTIC_EVENT (timestamp integer, timestampType integer,"
            " source integer, severity integer, text text, globalPid integer)"
        )
        db.execute(
            "insert into DIAGNOSTIC_EVENT values (0, 1, 1, 1,"
            " 'see /home/jdoe/x/stdout.log on gpu-node-17 at 10.20.30.40', 1)"
        )
        db.execute("create table GENERIC_EVENTS (id integer, data text, extra blob)")
        db.execute(
            "insert into GENERIC_EVENTS values (1, ?, ?)",
            ('{"hostname": "gpu-node-17", "path": "/home/jdoe/y.bin", "n": 1}', b"\xff jdoe \xfe"),
        )
        db.execute("pragma secure_delete = off")
        db.execute("create table user_notes (note text)")
        db.execute("insert into user_notes values (?)", ("deleted-row-secret " * 3_000,))
        db.commit()
        db.execute("delete from user_notes")
    assert b"deleted-row-secret" in path.read_bytes()


def told(diagnosis: Diagnosis) -> Any:
    """What a diagnosis says, but for the file it is about and what redaction is to change."""
    gone = {"capture.size_bytes", "capture.secret_name_count"}
    left_out = ("inputs", "verdict", "headline")
    document = {k: v for k, v in diagnosis.model_dump().items() if k not in left_out}
    document["facts"] = [f for f in document["facts"] if f["name"] not in gone]
    for section in ("findings", "healthy", "do"):
        document[section] = [
            {k: v for k, v in e.items() if k != "rank"} for e in document[section] if e["code"] != "CAP112"
        ]
    return document


def test_nothing_private_is_left(tmp_path: Path) -> None:
    path = capture(tmp_path)
    add_by_hand(path)
    raw = path.read_bytes()
    for text in PRIVATE:
        assert text.encode() in raw, f"{text} was not planted"
    redact(path, tmp_path / "out.sqlite")
    copy = (tmp_path / "out.sqlite").read_bytes()
    assert [text for text in PRIVATE if text.encode() in copy] == []
    assert path.read_bytes() == raw
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("pragma freelist_count").fetchone() == (0,)


def test_the_diagnosis_is_the_same_but_for_the_warning_of_secrets(tmp_path: Path) -> None:
    path = capture(tmp_path)
    before = diagnose(path)
    assert "CAP112" in [f.code for f in before.findings]
    redact(path, tmp_path / "out.sqlite")
    after = diagnose(tmp_path / "out.sqlite")
    assert told(after) == told(before)
    assert "CAP112" not in [f.code for f in after.findings]
    assert after.inputs[0].serving_engine == before.inputs[0].serving_engine == "vllm"


def test_the_rank_stays(tmp_path: Path) -> None:
    from advisor.sources.open import open_trace

    done = redact(capture(tmp_path), tmp_path / "out.sqlite")
    assert set(done.kept[0].shown) == {"RANK", "WORLD_SIZE"}
    with open_trace(tmp_path / "out.sqlite") as trace:
        assert (trace.capture.rank, trace.capture.world_size) == (3, 8)
        assert trace.capture.command[:3] == ("/redacted/vllm", "serve", "meta-llama/Llama-3.1-8B")
        assert trace.capture.processes == ((100, "/redacted/python3"),)


@pytest.mark.parametrize("name", ["decode_eager_bs1", "two_processes"])
def test_ids_of_gpus_become_others(name: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.sqlite"
    with lzma.open(committed(name)) as packed, plain.open("wb") as file:
        shutil.copyfileobj(packed, file)
    redact(plain, tmp_path / "out.sqlite")
    serials = []
    for path in (plain, tmp_path / "out.sqlite"):
        with sqlite3.connect(path) as db:
            serials.append(db.execute("select uuid from TARGET_INFO_GPU").fetchall())
    ((before,),), ((after,),) = serials
    raw = (tmp_path / "out.sqlite").read_bytes()
    assert before.encode() in plain.read_bytes()
    assert before.encode() not in raw
    # In the table and in what describes the machine: the same one.
    assert raw.count(after.encode()) == plain.read_bytes().count(before.encode()) >= 2


@pytest.mark.parametrize(
    "name", ["decode_eager_bs1", "decode_gc", "two_processes", "no_gpu_work", "decode_graph_opaque"]
)
def test_real_captures_are_diagnosed_alike(name: str, tmp_path: Path) -> None:
    redact(committed(name), tmp_path / "out.sqlite")
    assert told(diagnose(tmp_path / "out.sqlite")) == told(diagnose(committed(name)))


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="other people's captures are not on this machine")
@pytest.mark.parametrize("path", sorted(SHARED.glob("public/*/*.sqlite.xz")), ids=lambda p: p.stem)
def test_other_peoples_captures(path: Path, tmp_path: Path) -> None:
    redact(path, tmp_path / "out.sqlite")
    raw = (tmp_path / "out.sqlite").read_bytes()
    assert told(diagnose(tmp_path / "out.sqlite")) == told(diagnose(path))
    for text in (b"/root", b"/home/", b"SSH_", b"PATH=", b"/global/", b"HOSTNAME"):
        assert text not in raw


def test_packed_in_and_out(tmp_path: Path) -> None:
    path = capture(tmp_path)
    packed = tmp_path / "capture.sqlite.xz"
    with path.open("rb") as plain, lzma.open(packed, "wb") as out:
        shutil.copyfileobj(plain, out)
    redact(packed, tmp_path / "out.sqlite.gz")
    with gzip.open(tmp_path / "out.sqlite.gz") as file:
        assert file.read(16) == b"SQLite format 3\0"
    assert told(diagnose(tmp_path / "out.sqlite.gz")) == told(diagnose(path))


def test_what_a_journal_beside_the_capture_holds(tmp_path: Path) -> None:
    path = capture(tmp_path)
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode = wal")
    db.execute(
        "update META_DATA_CAPTURE set value = 'LATE=\"jdoe-late-value\"' where name like '%ENVIRONMENT%'"
    )
    db.commit()
    before = {
        p.name: hashlib.sha256(p.read_bytes()).digest()
        for p in tmp_path.iterdir()
        if not p.name.endswith("-shm")
    }
    assert "capture.sqlite-wal" in before
    redact(path, tmp_path / "out.sqlite")
    raw = (tmp_path / "out.sqlite").read_bytes()
    assert b"jdoe-late-value" not in raw
    for name, digest in before.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).digest() == digest
    db.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("place", ["take_out", "_search", "_packed"])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], place: str
) -> None:
    path = capture(tmp_path)
    (tmp_path / "old.sqlite").write_bytes(b"old")

    def stop(*_: Any) -> None:
        raise error

    monkeypatch.setattr(module, place, stop)
    for target in ("old.sqlite", "new.sqlite"):
        with pytest.raises(error):
            redact(path, tmp_path / target, force=True)
    assert {p.name for p in tmp_path.iterdir()} == {"capture.sqlite", "old.sqlite"}
    assert (tmp_path / "old.sqlite").read_bytes() == b"old"


#: `advisor redact` that says when its copies lie beside the target, and waits there.
WAITING = """
import sys, time
from advisor.capture import redact
from advisor.cli.main import run

def wait(*_):
    print("searching", flush=True)
    time.sleep(60)

redact._search = wait
sys.argv = ["advisor", "redact", *sys.argv[1:]]
run()
"""


@pytest.mark.parametrize(
    ("number", "code", "left"),
    [(signal.SIGHUP, 129, 0), (signal.SIGTERM, 143, 0), (signal.SIGKILL, -9, 1)],
    ids=["hangup", "terminated", "killed"],
)
def test_copies_of_a_run_that_a_signal_ends_go_with_it_or_with_the_next(
    tmp_path: Path, number: int, code: int, left: int
) -> None:
    path = capture(tmp_path)
    before = path.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(path), str(tmp_path / "out.sqlite")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup has it ignored
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"searching\n"
        (copy,) = set(tmp_path.iterdir()) - {path}
        assert copy.stat().st_mode & 0o077 == 0  # nobody else can read it
        process.send_signal(number)
        assert process.wait() == code
    assert len(set(tmp_path.iterdir()) - {path}) == left
    redact(path, tmp_path / "next.sqlite")
    assert {p.name for p in tmp_path.iterdir()} == {"capture.sqlite", "next.sqlite"}
    assert path.read_bytes() == before


def test_a_string_that_must_be_gone_and_stays_stops_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = capture(tmp_path), tmp_path / "out.sqlite"
    (tmp_path / "gone").write_text("jdoe\ngemm_7\n")
    assert main(["redact", str(path), str(out), "--check", str(tmp_path / "gone")]) == 2
    assert "string 2 of --check is still in the copy" in capsys.readouterr().err
    assert not out.exists()
    (tmp_path / "gone").write_text("jdoe\n\nacme-llm\n")
    assert main(["redact", str(path), str(out), "--check", str(tmp_path / "gone"), "-q"]) == 0


def test_what_users_added_is_dropped_and_counted(tmp_path: Path) -> None:
    path = capture(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute('create table "hunter2hunter2" (a integer)')
        db.execute("create table my_notes (a text default 'hunter2hunter2')")
        db.execute("create view v as select 'hunter2hunter2' as x")
        db.execute('alter table PROCESSES add column "by hunter2hunter2" text')
        db.execute("alter table PROCESSES add column note text default 'hunter2hunter2' /* hunter2hunter2 */")
    done = redact(path, tmp_path / "out.sqlite")
    counted = {(r.what, r.table): r.count for r in done.removed}
    assert counted["tables that no export has", "my_notes"] == 1
    assert counted["tables that no export has", "redacted"] == 1
    assert counted["views that no export has", ""] == 1
    assert counted["columns that no export has", "PROCESSES"] == 1
    assert b"hunter2" not in (tmp_path / "out.sqlite").read_bytes()


def test_what_was_replaced_is_counted_by_kind_and_table(tmp_path: Path) -> None:
    done = redact(capture(tmp_path), tmp_path / "out.sqlite")
    assert {(r.what, r.table): r.count for r in done.removed} == {
        ("command arguments", "META_DATA_CAPTURE"): 4,
        ("environment variables", "META_DATA_CAPTURE"): 4,
        ("environments", "StringIds"): 1,
        ("environments", "TARGET_INFO_SYSTEM_ENV"): 1,
        ("folders", "META_DATA_CAPTURE"): 1,
        ("names of hosts and users", "META_DATA_CAPTURE"): 2,
        ("names of hosts, users and files", "META_DATA_EXPORT"): 3,
        ("names of hosts, users and folders", "TARGET_INFO_SYSTEM_ENV"): 2,
        ("names of other processes' threads", "ThreadNames"): 1,
        ("output of the program", "ProcessStreams"): 1,
        ("paths, names and secrets in texts", "PROCESSES"): 1,
        ("paths, names and secrets in texts", "StringIds"): 3,
        ("paths, names and secrets in texts", "TARGET_INFO_SYSTEM_ENV"): 1,
        ("process list", "PROCESSES"): 1,
        ("strings that no event refers to", "StringIds"): 6,
    }


def test_a_process_that_only_called_the_runtime_stays(tmp_path: Path) -> None:
    export = Export("3.7").gpu().process(200, "other").process(100, "caller")
    export.sync(0, 1_000)
    redact(export.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        assert db.execute("select name from PROCESSES").fetchall() == [("caller",)]


def test_a_version_of_four_numbers_is_no_address(tmp_path: Path) -> None:
    export = Export("3.7").gpu()
    export.row("META_DATA_EXPORT", name="EXPORT_PRODUCT", value="10.20.30.40")
    export.row("META_DATA_EXPORT", name="EXPORT_NOTE", value="of 10.20.30.40")
    export.range("10.20.30.40", 0, 1_000)
    redact(export.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        told = dict(db.execute("select name, value from META_DATA_EXPORT where name like 'EXPORT_%'"))
        texts = db.execute("select text from NVTX_EVENTS").fetchall()
    assert told["EXPORT_PRODUCT"] == "10.20.30.40"
    assert "10.20.30.40" not in told["EXPORT_NOTE"]
    assert texts
    assert ("10.20.30.40",) not in texts


@pytest.mark.parametrize(("serial", "goes"), [("GPU-1234", True), ("GPU-123", False)])
def test_an_id_of_a_gpu_has_eight_characters_at_least(serial: str, goes: bool, tmp_path: Path) -> None:
    path = Export("3.7").gpu().write(tmp_path / "in.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("update TARGET_INFO_GPU set uuid = ?", (serial,))
    redact(path, tmp_path / "out.sqlite")
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        ((after,),) = db.execute("select uuid from TARGET_INFO_GPU").fetchall()
    assert (after != serial) is goes
    assert len(after) == len(serial)


def test_a_capture_that_is_written_to_is_said_to_be(tmp_path: Path) -> None:
    path = capture(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute("begin exclusive")
        with pytest.raises(InputError, match="close the program that writes to it"):
            redact(path, tmp_path / "out.sqlite")
    assert [p.name for p in tmp_path.iterdir()] == ["capture.sqlite"]


def test_the_string_that_is_still_there_is_named_by_its_number(tmp_path: Path) -> None:
    """Not by itself: messages go into logs."""
    with pytest.raises(InputError, match="string 2 of --check is still in the copy"):
        redact(capture(tmp_path), tmp_path / "out.sqlite", check=("not there", "gemm_1", "nor this"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = capture(tmp_path), tmp_path / "out.sqlite"
    assert main(["redact", str(path), str(target)]) == 0
    shown = capsys.readouterr().out
    for line in (
        "which is unchanged",
        "environment variables",
        "process list",
        "output of the program",
        "command arguments",
        "Next: advisor",
    ):
        assert line in " ".join(shown.split())
    assert not any(text in shown for text in PRIVATE)
    assert main(["redact", str(path), str(target)]) == 2
    assert "add --force" in capsys.readouterr().err
    assert main(["redact", str(path), str(target), "--force", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["redact", str(path), str(path), "--force"]) == 2
    assert "is the capture itself" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{}", b"SQLite format 3\0 but no more", b"\xfd7zXZ\0x"])
def test_what_is_no_export(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    assert main(["redact", str(path), str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert {p.name for p in tmp_path.iterdir()} == {"odd"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_device_is_not_replaced_by_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, pipe = Export().gpu().write(tmp_path / "a.sqlite"), tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["redact", str(source), str(pipe), "--force"]) == 2
    assert "pipe: not a regular file; name another for the copy" in capsys.readouterr().err
    assert pipe.is_fifo()


def test_another_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("create table t (a text)")
    assert main(["redact", str(tmp_path / "other.sqlite"), str(tmp_path / "out")]) == 2
    assert "not an Nsight Systems export" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("HOSTNAME", "box17.lan"), ("SLURMD_NODENAME", "box17")])
def test_a_host_that_a_variable_names_goes_from_every_text(name: str, value: str, tmp_path: Path) -> None:
    e = Export().gpu().process(100).environment(name, value).environment("MODE", "fast")
    e.launch(0, 3_000, "k", 5_000, 9_000)
    e.range_inline("fast step on box17", 0, 9)
    redact(e.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        texts = [text for (text,) in db.execute("select text from NVTX_EVENTS")]
    assert texts == ["fast step on redacted"]


@pytest.mark.parametrize("name", ["{folder}/in.sqlite", "in.sqlite", "link.sqlite"])
def test_nothing_appears_beside_an_export_in_write_ahead_mode(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Export().gpu().process(100).launch(0).write(tmp_path / "in.sqlite", journal="wal")
    (tmp_path / "link.sqlite").symlink_to(path)
    assert path.read_bytes()[18:20] == b"\2\2"
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    redact(Path(name.format(folder=tmp_path)), tmp_path / "out.sqlite")
    assert {p.name for p in tmp_path.iterdir()} == {"in.sqlite", "link.sqlite", "out.sqlite"}
    assert path.read_bytes() == before
