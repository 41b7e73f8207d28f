"""What once ended in an internal error, a hang or a crash does so no more."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import zipfile
from pathlib import Path

import pytest

from advisor.capture.redact_text import Scrubber
from advisor.cli.main import main
from advisor.sources.kineto.reader import short_name
from benchmarks.fuzz import make_seeds, replay

CORPUS = Path(__file__).with_name("corpus.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    make_seeds(folder, slow=False)
    return folder


@pytest.mark.parametrize("line", CORPUS, ids=lambda line: " ".join(json.loads(line)["args"])[:40])
def test_what_failed_once(line: str, seeds: Path) -> None:
    assert replay([line], seeds) == []


def refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(args) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


@pytest.mark.parametrize(
    "line",
    [
        "{good} --baseline {pipe}",
        "moe {pipe} {pipe}",
        "checklist --no-input --answers {pipe}",
        "redact {pipe} {out}",
        "rules check {folder}",
        "{good} --rules {folder}",
        "compare {pipe} {good}",
    ],
)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_only_regular_files_are_read(
    line: str, seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    names = {"good": seeds / "good.sqlite", "pipe": pipe, "folder": tmp_path, "out": tmp_path / "out"}
    assert "not a regular file" in refused(line.format(**names).split(), capsys)


@pytest.mark.parametrize("fault", ["damaged", "misnamed", "locked"])
def test_redact_of_what_sqlite_cannot_copy(
    fault: str, seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.sqlite"
    raw = bytearray((seeds / "good.sqlite").read_bytes())
    if fault == "damaged":
        raw[5 * 4096 : 6 * 4096] = b"\xff" * 4096
    if fault == "misnamed":
        raw = raw.replace(b'"greenContextId"', b'"greenC\xffntextId"')
    path.write_bytes(raw)
    with sqlite3.connect(path) as db:
        if fault == "locked":
            db.execute("begin exclusive")
        said = refused(["redact", str(path), str(tmp_path / "out")], capsys)
    said_of = {
        "damaged": "export it again",
        "misnamed": "not UTF-8",
        "locked": "close the program that writes",
    }
    assert said_of[fault] in said
    assert [p.name for p in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_workbook_that_unpacks_to_more_than_any_review(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        book.writestr("xl/workbook.xml", bytes(65 << 20))
    assert "65 MB when unpacked, at most 64" in refused(
        ["review", "import", str(tmp_path / "t.xlsx")], capsys
    )


@pytest.mark.parametrize("text", ["a.", "1.", "a-", "a@a.", "/a ", "<", "eyJaaaaaaaaaa."])
def test_long_texts_take_no_longer_than_their_length(text: str) -> None:
    """Each hung for minutes where a pattern searched to the end from every place."""
    long = text * (80_000 // len(text))
    assert len(Scrubber(words=("alice",)).text(long)) > 0
    assert short_name(long + ">" * 50_000)


def test_what_unpacks_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A database of one page, with another 4 MB behind it."""
    path = tmp_path / "small.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table StringIds (id integer, value text)")
    packed = tmp_path / "large.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes() + bytes(4 << 20)))
    for verb in ("diagnose", "redact"):
        args = [verb, str(packed), *([str(tmp_path / "out")] if verb == "redact" else [])]
        assert "which its header or its size does not allow" in refused(args, capsys)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large.sqlite.gz", "small.sqlite"]


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("t.json", "moe {} {}", "[" * 100_000),
        ("t.csv", "moe {} {}", "output_throughput\n" + '"' * 200_000),
        ("t.csv", "{}", "timestamp, index, utilization.gpu [%]\n2024/05/01 10:00:00, 0, " + "x" * 200_000),
        ("t.json", "compare {} {}", '{"schema_version": 1, "a": ' + "[" * 100_000),
        (
            "t.yaml",
            "checklist --no-input --answers {}",
            "a: &a0 [x, x]\n" + "".join(f"b{i}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60)),
        ),
        ("t.yaml", "checklist --no-input --answers {}", "? " * 10_000),
        ("t.json", "good.sqlite --weight-bytes {}", '{"a":' * 100_000),
    ],
    ids=["report", "cell", "sample", "baseline", "aliases", "answers", "config"],
)
def test_deep_and_wide_side_inputs(
    name: str,
    line: str,
    text: str,
    seeds: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.chdir(seeds)
    refused(line.format(path, path).split(), capsys)
