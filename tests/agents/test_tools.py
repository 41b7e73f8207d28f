"""What the tools answer: bounded, by page, only from given folders, redacted on request."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from advisor.agents.tools import LETTERS, Tools, bounded, size
from advisor.errors import InputError
from tests.builder import Export
from tests.captures import EXAMPLES

CAPTURE = "decode_h2d_pageable.sqlite.xz"


@pytest.fixture(scope="module")
def tools() -> Tools:
    return Tools([EXAMPLES])


def test_each_answer_fits(tools: Tools) -> None:
    found = tools.diagnose(CAPTURE)
    answers = [found, *(tools.show(CAPTURE, f["code"]) for f in found["findings"]["rows"])]
    answers += [
        tools.explain("LCH101"),
        tools.stats(CAPTURE, "trace", limit=100),
        tools.plan(),
        tools.whatif(),
    ]
    assert len(answers) > 6
    assert max(map(size, answers)) <= LETTERS


def test_findings_come_by_page(tools: Tools) -> None:
    whole = tools.diagnose(CAPTURE, limit=100)["findings"]
    first = tools.diagnose(CAPTURE, limit=2)["findings"]
    assert first["of"] == whole["of"] > 2
    second = tools.diagnose(CAPTURE, offset=first["next_offset"], limit=2)["findings"]
    codes = [f["code"] for f in first["rows"] + second["rows"]]
    assert codes == [f["code"] for f in whole["rows"]][: len(codes)]


def test_a_finding_is_shown_by_code_cause_and_rank(tools: Tools) -> None:
    first = tools.diagnose(CAPTURE)["findings"]["rows"][0]
    shown = tools.show(CAPTURE, first["code"])
    assert shown["message"] == first["message"]
    assert shown["recommendations"]
    assert shown == tools.show(CAPTURE, first["cause"]) == tools.show(CAPTURE, "1")
    with pytest.raises(InputError, match="not a finding of this capture, which has"):
        tools.show(CAPTURE, "SYN999")


def test_rows_of_a_table_come_by_page(tools: Tools) -> None:
    found = tools.stats(CAPTURE, "kernels", limit=3)
    assert len(found["rows"]) == 3
    assert found["next_offset"] == 3
    assert tools.stats(CAPTURE, "kernels", offset=3, limit=3)["rows"][0] != found["rows"][0]


@pytest.mark.parametrize("report", ["kernels", "trace", "histogram"])
def test_pages_that_had_to_be_shortened_leave_no_row_out(tools: Tools, report: str) -> None:
    found = tools.stats(CAPTURE, report, limit=100)
    seen = 0
    while "next_offset" in found and seen < 100:
        assert found["offset"] == seen
        assert size(found) <= LETTERS
        assert "left_out" not in found
        seen += len(found["rows"])
        assert found["next_offset"] == seen
        found = tools.stats(CAPTURE, report, offset=seen, limit=100)
    assert seen + len(found["rows"]) == found["of"] or seen >= 100


def test_what_is_too_long_is_cut_no_further_than_needed() -> None:
    assert size(bounded({"text": "x" * 400}, 300)) > 250
    assert size(bounded({"texts": ["x" * 20] * 20}, 300)) > 250


def test_a_relative_path_is_looked_for_below_every_root(tmp_path: Path) -> None:
    assert Tools([tmp_path, EXAMPLES]).doctor(CAPTURE)["sentence"]
    with pytest.raises(InputError, match=f"none.sqlite: no such file below {tmp_path}, {EXAMPLES}"):
        Tools([tmp_path, EXAMPLES]).doctor("none.sqlite")


@pytest.mark.parametrize("path", ["../../README.md", "/etc/passwd", "link"])
def test_what_lies_outside_the_roots_is_not_read(path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="outside the folders that this server may read"):
        Tools([tmp_path]).doctor(path)


def test_an_export_whose_files_lie_elsewhere_is_not_read(tmp_path: Path) -> None:
    """Below a root is the folder, and each file that is read of it."""
    pytest.importorskip("pyarrow", reason="the extra [arrow] is not installed")
    from tests.sources.test_nsys_columnar import exported

    (tmp_path / "root").mkdir()
    sqlite = Export().gpu().process(100).launch(0).write(tmp_path / "a.sqlite")
    own = exported(sqlite, tmp_path / "root" / "own")
    tools = Tools([tmp_path / "root"])
    assert tools.doctor("own")["sentence"]
    apart = exported(sqlite, tmp_path / "apart")
    (tmp_path / "root" / "links").mkdir()
    for file in apart.iterdir():
        (tmp_path / "root" / "links" / file.name).symlink_to(file)
    with pytest.raises(
        InputError, match=r"^links: with \w+.parquet, a link out of the folders that this server"
    ):
        tools.doctor("links")
    kernels = own / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels.unlink()
    kernels.symlink_to(apart / kernels.name)
    with pytest.raises(InputError, match=f"^own: with {kernels.name}, a link out of"):
        tools.doctor("own")
    assert Tools([tmp_path / "root", apart]).doctor("links")["sentence"]  # another root has them


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_journal_that_lies_elsewhere_is_not_read(end: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "other").write_bytes(b"elsewhere")
    Export().gpu().process(100).launch(0).write(tmp_path / "root" / "a.sqlite")
    (tmp_path / "root" / f"a.sqlite{end}").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match=f"^a.sqlite: with a.sqlite{end}, a link out of the folders"):
        Tools([tmp_path / "root"]).doctor("a.sqlite")


def test_errors_are_bounded_like_answers(tools: Tools) -> None:
    for words in ("x" * 50_000, '"' * 50_000, "\n" * 50_000, "\0" * 50_000, "é" * 50_000, "short"):
        found = tools.error_text(InputError(words), False)
        assert size(found) <= LETTERS
        assert found == words or (found.endswith("…") and size(found) > LETTERS - 20)


@pytest.mark.parametrize("path", ["x" * 5_000, "nul\0.sqlite", "half a character \ud800"])
def test_what_cannot_be_a_name_is_refused_in_one_line(path: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be the name of a file here") as raised:
        Tools([tmp_path]).doctor(path)
    assert len(str(raised.value)) < 250
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("report", ["", "kernels,api"])
def test_one_table_at_a_time(tools: Tools, report: str) -> None:
    with pytest.raises(InputError, match=f"report: '{report}' names [02] reports"):
        tools.stats(CAPTURE, report)


def test_a_changed_file_is_diagnosed_again(tmp_path: Path) -> None:
    target = tmp_path / "capture.sqlite.xz"
    target.write_bytes((EXAMPLES / CAPTURE).read_bytes())
    tools = Tools([tmp_path])
    one = tools.diagnose("capture.sqlite.xz")
    target.write_bytes((EXAMPLES / "decode_graph_bs1.sqlite.xz").read_bytes())
    assert tools.diagnose("capture.sqlite.xz")["verdict"] != one["verdict"]


def test_redaction_is_of_every_text(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = f"{Path.home()}/models/x.safetensors of {getpass.getuser()}@example.org"
    document: dict[str, Any] = {"findings": [{"message": secret}]}
    monkeypatch.setattr(tools, "_redact", True)
    text = json.dumps(tools._answer(document, False))
    assert "example.org" not in text
    assert str(Path.home() / "models") not in text


def test_what_is_cut_is_counted_by_place() -> None:
    document = {"rows": list(range(100)), "deep": {"texts": ["x" * 90] * 3}, "none": None, "short": "kept"}
    found = bounded(document, 300)
    assert size(found) <= 300
    assert found["short"] == "kept"
    assert "none" not in found
    assert found["left_out"]["rows"] == 100 - len(found["rows"])
    assert found["left_out"]["deep.texts"] >= 2
    assert bounded({"rows": [1, 2]}) == {"rows": [1, 2]}
