"""JSON that is damaged, cut short, no trace, or a little out of line: one line, or the trace."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.sources.open import open_trace
from advisor.sources.schema import MISSING, TABLES
from tests.kineto_builder import EPOCH_NS, Profile, decode


def refused(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        open_trace(path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message


def starts(path: Path, table: str = "kernels") -> list[int]:
    with open_trace(path) as trace:
        found: list[int] = trace.columns(table, ["start"])["start"].tolist()
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


# ------------------------------------------------------------------ refused


def test_json_cut_short(path: Path) -> None:
    whole = decode(steps=2).write(path).read_bytes()
    for length in (1, 30, len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:length])
        message = refused(path)
        assert f"the JSON is cut short ({length:,} bytes)" in message
        assert "export_chrome_trace" in message


def test_repair_takes_linear_time(path: Path) -> None:
    """A text of escaped quotes that never ends: looked through once, not once a quote."""
    path.write_bytes(b'{"traceEvents": [,]} ' + rb"\"" * 2_000_000)
    assert "not valid JSON" in refused(path)


def test_gzip_cut_short_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    whole = decode(steps=2).write(path).read_bytes()
    for data in (whole[:40], whole[: len(whole) // 2], whole[:-5]):
        path.write_bytes(data)
        assert "cut short or damaged" in refused(path)
    path.write_bytes(whole[:50] + bytes(50) + whole[100:])
    assert "cut short or damaged" in refused(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [}',
        '{"traceEvents": [{"ph": "X" "cat": "kernel"}]}',
        '{"traceEvents": [{"ph": "X"}]} x',
        "{traceEvents: []}",
        "[" * 100_000,
    ],
)
def test_invalid_json(path: Path, text: str) -> None:
    path.write_text(text)
    message = refused(path)
    assert "JSON" in message
    assert "export_chrome_trace" in message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "no traceEvents"),
        ('{"model_type": "llama", "hidden_size": 4096}', "no traceEvents"),
        ('{"traceEvents": null}', "no traceEvents"),
        ('{"traceEvents": {"a": 1}}', "not a list"),
        ('{"traceEvents": "x"}', "not a list"),
        ('{"traceEvents": []}', "no event in it"),
        ("[]", "no event in it"),
        ("[1, 2, 3]", "no event of the PyTorch profiler"),
        (
            '[{"ph": "X", "cat": "blink", "name": "Paint", "ts": 1, "dur": 2}]',
            "no event of the PyTorch profiler",
        ),
    ],
)
def test_json_that_is_no_trace(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    message = refused(path)
    assert why in message
    assert "export_chrome_trace" in message


# ------------------------------------------------------------------ read all the same


def test_a_byte_order_mark(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + Profile().launch(at=0).text().encode())
    assert starts(path) == [7_000]


@pytest.mark.parametrize("number", ["N/A", "inf", "-inf", "nan", "NaN", "Infinity"])
def test_numbers_that_are_none(path: Path, number: str) -> None:
    path.write_text(Profile().copy(at=0).text().replace("1.5", number))
    assert f": {number}" in path.read_text()
    assert starts(path, "copies") == [6_000]


@pytest.mark.parametrize("end", [",]", " , \n ]", ",\n]"])
def test_a_comma_after_the_last_event(path: Path, end: str) -> None:
    """As scripts leave it that cut events out; commas inside names stay."""
    text = Profile().launch(at=0, kernel="k<int,]>, }").text()
    head, _, rest = text.rpartition("]")
    path.write_text(head + end + rest)
    with open_trace(path) as trace:
        assert trace.texts(trace.columns("kernels", ["name_id"])["name_id"]) == ["k<int,]>, }"]


def test_a_trace_that_was_still_being_written(path: Path) -> None:
    """Events come in no order of time: a part of them would show idle GPUs that were busy."""
    text = decode(steps=2).text()
    whole = text[: text.rindex("}", 0, len(text) // 2) + 1]
    for cut in (whole, whole + ",", whole + ",\n"):
        path.write_text(cut)
        assert "cut short" in refused(path)


def test_control_characters_and_lone_backslashes(path: Path) -> None:
    text = Profile().annotation('C:@temp^x "y"', 0, 9).launch(at=0).text()
    path.write_text(text.replace("@", "\\d").replace("^", "\n"))
    with open_trace(path) as trace:
        assert trace.texts(trace.columns("ranges", ["text_id"])["text_id"]) == ['C:\\dtemp x "y"']


def test_text_that_is_not_utf8(path: Path) -> None:
    text = Profile().launch(at=0, kernel="k@").text().encode().replace(b"@", b"\xe9\xff")
    path.write_bytes(text)
    with open_trace(path) as trace:
        (name,) = trace.texts(trace.columns("kernels", ["name_id"])["name_id"])
    assert name == "k��"


def test_operators_that_use_our_names_for_their_own_arguments(path: Path) -> None:
    profile = Profile().launch(at=0)
    for value in ("grid(4096,)", [1, 2], {"a": 1}, None, 1.5, 1 << 70, "cuda:0", True):
        profile.op(
            "triton_",
            0,
            9,
            grid=value,
            stream=value,
            device=value,
            bytes=value,
            correlation=value,
            kind=value,
            dtype=value,
        )
    profile.write(path)
    assert starts(path) == [7_000]


@pytest.mark.parametrize("value", ["x", [1, 2], {"a": 1}, None, 1.5, 1 << 70, True, "12"])
def test_arguments_of_any_type(path: Path, value: Any) -> None:
    names = (
        "grid",
        "block",
        "stream",
        "device",
        "context",
        "correlation",
        "bytes",
        "registers per thread",
        "shared memory",
        "kind",
        "Collective name",
        "dtype",
        "In msg nelems",
        "Seq",
        "Process Group Name",
    )
    profile = Profile().launch(at=0).copy(at=20_000).memory(5, 9)
    for event in profile.events:
        if event["ph"] == "X":
            event["args"] = dict.fromkeys(names, value)
        elif event["ph"] == "i":
            event["args"] = {"Total Reserved": value, "Device Type": 1, "Device Id": value}
    profile.write(path)
    with open_trace(path) as trace:
        for table in trace.tables:
            trace.columns(table, TABLES[table])
        assert starts(path) == [7_000]
        assert trace.columns("kernels", ["blocks"])["blocks"].tolist() == [MISSING]


def test_events_of_any_shape(path: Path) -> None:
    profile = Profile().launch(at=0)
    kernel = next(e for e in profile.events if e["cat"] == "kernel")
    for key, value in (
        ("ts", None),
        ("ts", "soon"),
        ("ts", [1]),
        ("ts", 1e300),
        ("ts", True),
        ("dur", "x"),
        ("dur", None),
        ("name", 5),
        ("name", None),
        ("pid", "Spans"),
        ("tid", {"a": 1}),
        ("args", []),
        ("args", "x"),
        ("ph", 1),
    ):
        profile.events.append(kernel | {key: value})
    profile.events += [1, "x", None, [], {}, {"ph": "X"}, {"cat": ["kernel"]}]
    profile.write(path)
    with open_trace(path) as trace:
        assert trace.rows("kernels") == 9  # all but the five timeless and the one of phase 1
        assert trace.capture.warnings == ("events without a time or of no known shape, left out: 4",)
        assert [(r.count, r.rows) for r in trace.ledger.rows() if r.table == "kernels"] == [(5, 14)]
        assert set(trace.columns("kernels", ["start"])["start"].tolist()) == {7_000}


def test_times_as_text(path: Path) -> None:
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": "1713478953123456.789", '
        '"dur": "2.5"}, {"ph": "X", "cat": "cpu_op", "name": "o", "ts": 1713478953123456, "dur": 1}'
        "]}"
    )
    with open_trace(path) as trace:
        read = trace.columns("kernels", ["start", "end"])
        assert (int(read["start"][0]), int(read["end"][0])) == (789, 3_289)
        assert trace.capture.start_utc_ns == EPOCH_NS


def test_damage_anywhere_ends_in_one_line_or_in_a_trace(path: Path) -> None:
    """Random bytes over a real layout: never a traceback, whatever they hit."""
    whole = decode(steps=1, kernels=8).memory(5, 9).overhead("Buffer Flush", 3, 4).text().encode()
    rng = random.Random(7)
    messages = []
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(rng.choice([1, 3, 20])):
            raw[rng.randrange(len(raw))] = rng.choice(b'{}[]",:0.9-eE\\\x00\xffnx')
        path.write_bytes(raw)
        try:
            with open_trace(path) as trace:
                for table in trace.tables:
                    read = trace.columns(table, TABLES[table])
                    assert len({len(values) for values in read.values()}) == 1
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert not [message for message in messages if "\n" in message]


def test_a_compressed_trace_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    packed = tmp_path / "t.pt.trace.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(json.loads(Profile().launch(at=0).text())).encode()))
    with open_trace(packed) as trace:
        assert trace.capture.path == str(packed)
        assert trace.capture.size_bytes == packed.stat().st_size
    assert not list(scratch.iterdir())
