"""Large traces are read in pieces: the same columns, description and faults as of the file read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.reading import READING
from advisor.sources.kineto import pieces, reader
from advisor.sources.kineto.reader import KinetoJson
from advisor.sources.schema import TABLES
from tests.kineto_builder import Profile, decode

#: Cut all over: some events are longer than a piece of the shortest.
SIZES = (200, 700, 1 << 12, 1 << 16)


def _profile(**head: object) -> Profile:
    """Steps with names, arguments and keys that look like the ends of events."""
    profile = decode(profile=Profile().gpu().gpu(1).head(**head))
    profile.annotation('}, {"ph": "X"}, {', 1_000, 2_000)
    profile.annotation('quote \\" }]}, {"traceEvents": [', 4_000, 2_000)
    profile.event(
        ph="i", cat="user_annotation", name="lists", ts=1.0, args={"of": [{"a": 1}, {"b": [{}, {}]}]}
    )
    return profile.annotation("ä 漢 🂡", 9_000, 2_000)


def _written(path: Path, document: object, **form: object) -> Path:
    path.write_text(json.dumps(document, ensure_ascii=False, **form))  # type: ignore[arg-type]
    return path


def _document(profile: Profile, tmp_path: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(profile.write(tmp_path / "plain.json").read_text())
    return loaded


def _read(path: Path, large: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """All that the reader gives, or its refusal."""
    monkeypatch.setattr(reader, "LARGE", large)
    monkeypatch.setattr(pieces, "_PIECE", piece)
    monkeypatch.setattr(READING, "count", 0)
    try:
        source = KinetoJson(path)
    except InputError as error:
        return (str(error),)
    columns = {t: source.read_columns(t, TABLES[t]) for t in sorted(source.tables())}
    values = {t: {n: np.asarray(c).tolist() for n, c in found.items()} for t, found in columns.items()}
    texts = source.text(range(10_000))
    return values, texts, source.capture, source.devices, dict(source.ledger), READING.count


def _same(path: Path, monkeypatch: pytest.MonkeyPatch, in_pieces: bool | None = True) -> None:
    """Both ways give the same; with `in_pieces` whether the pieces were enough (None: either)."""
    whole = _read(path, 1 << 40, 1 << 20, monkeypatch)
    taken: list[bool] = []
    original: Callable[..., object] = pieces.InPieces._events

    def events(self: pieces.InPieces) -> object:
        yield from original(self)  # type: ignore[misc]
        taken.append(True)

    monkeypatch.setattr(pieces.InPieces, "_events", events)
    for size in SIZES:
        taken.clear()
        assert _read(path, 0, size, monkeypatch) == whole
        if in_pieces is not None and size == SIZES[-1]:
            assert bool(taken) == in_pieces
    monkeypatch.setattr(pieces.InPieces, "_events", original)


@pytest.mark.parametrize(
    "form", [{}, {"indent": 1}, {"separators": (",", ":")}], ids=["plain", "lines", "dense"]
)
def test_forms(form: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = _document(_profile(), tmp_path)
    _same(_written(tmp_path / "a.json", document, **form), monkeypatch)


def test_keys_behind_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = _document(_profile(distributedInfo={"rank": 3, "world_size": 8}), tmp_path)
    events = {"traceEvents": document.pop("traceEvents")}
    path = _written(tmp_path / "a.json", events | document)
    _same(path, monkeypatch)
    monkeypatch.setattr(reader, "LARGE", 0)
    source = KinetoJson(path)
    assert source.capture.rank == 3
    assert len(source.devices) == 2


def test_what_a_gpu_of_amd_changes_is_known_from_behind_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = decode(profile=Profile(amd=True).gpu(name="AMD Instinct MI210"))
    document = _document(profile, tmp_path)
    events = {"traceEvents": document.pop("traceEvents")}
    _same(_written(tmp_path / "a.json", events | document), monkeypatch)


@pytest.mark.parametrize("style", ["epoch", "whole", "old"])
def test_generations(style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = decode(profile=Profile(style))  # type: ignore[arg-type]
    _same(profile.write(tmp_path / "a.json"), monkeypatch)


def test_a_bare_list_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = _document(_profile(), tmp_path)["traceEvents"]
    _same(_written(tmp_path / "a.json", events), monkeypatch, in_pieces=False)


FAULTS: dict[str, Callable[[str], str]] = {
    "cut short": lambda text: text[: len(text) // 2],
    "more behind it": lambda text: text + " x",
    "a comma too many": lambda text: text.replace("}, {", "},, {", 40),
    "no number": lambda text: text.replace('"dur": ', '"dur": NaN, "was": ', 3),
    "a last comma": lambda text: text.replace("}]", "},]"),
    "twice": lambda text: text[:-1] + ', "traceEvents": []}',
    "a number for a name": lambda text: text.replace('"name": "', '"name": 7, "was": "', 9),
    "no event": lambda text: text.replace('"traceEvents": [{', '"traceEvents": [null, 5, {'),
}


@pytest.mark.parametrize("harm", FAULTS.values(), ids=FAULTS)
def test_faults(harm: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(_document(_profile(), tmp_path))
    assert harm(text) != text
    path = tmp_path / "a.json"
    path.write_text(harm(text))
    _same(path, monkeypatch, in_pieces=None)


def test_a_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(_document(_profile(), tmp_path))
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    _same(path, monkeypatch)


def test_a_trace_of_another_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"ph": "X", "cat": "other", "name": str(i), "ts": i, "dur": 1} for i in range(500)]
    path = _written(tmp_path / "a.json", {"traceEvents": events})
    monkeypatch.setattr(reader, "LARGE", 0)
    with pytest.raises(InputError, match="a Chrome trace"):
        KinetoJson(path)
    _same(path, monkeypatch)
