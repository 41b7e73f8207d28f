"""Columns decoded from pages are those that SQL gives, or the pages are declined."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.model.arrays import is_narrow
from advisor.reading import READING
from advisor.sources.sqlite import pages as sqlite_pages
from advisor.sources.sqlite.file import SqliteFile, stated_size
from advisor.sources.sqlite.leaf_pages import NotPlain
from advisor.sources.sqlite.pages import PageReader
from advisor.sources.trace import Keep

#: Every size that SQLite stores integers in, with its limits, and NULL.
EDGES: list[int | None] = [
    None, 0, 1, -1, 2, 127, -128, 128, 32767, -32768, 32768, 2**23 - 1, -(2**23), 2**23,
    2**31 - 1, -(2**31), 2**31, 2**47 - 1, -(2**47), 2**47, 2**63 - 1, -(2**63),
]  # fmt: skip


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test holds for both decoders; the compiled one may not be there."""
    if request.param == "numpy":
        monkeypatch.setattr(sqlite_pages, "compiled", None)
    elif sqlite_pages.compiled is None:
        pytest.skip("installed without a C compiler")
    return str(request.param)


def fill(path: Path, declared: str, rows: Sequence[tuple[Any, ...]], page_size: int = 4096) -> Path:
    db = sqlite3.connect(path)
    db.execute(f"pragma page_size = {page_size}")
    db.execute(f"create table t ({declared})")
    if rows:
        db.executemany(f"insert into t values ({', '.join('?' * len(rows[0]))})", rows)
    db.commit()
    db.close()
    return path


def both(
    path: Path, columns: list[str], keep: Keep | None = None
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """By pages, through SQL, and by pages in 32 bits where they fit."""
    db = sqlite3.connect(path)
    reader = PageReader(path)
    try:
        return (
            reader.read_columns(db, "t", columns, keep),
            sqlite_pages.read_columns(db, "t", columns, keep),
            reader.read_columns(db, "t", columns, keep, narrow=columns),
        )
    finally:
        reader.close()
        db.close()


def assert_same(path: Path, columns: list[str], keep: Keep | None = None) -> list[np.ndarray]:
    pages, sql, narrow = both(path, columns, keep)
    for column, one, other, small in zip(columns, pages, sql, narrow, strict=True):
        assert small.dtype == (np.int32 if is_narrow(other) or not len(other) else np.int64)
        np.testing.assert_array_equal(small, other, err_msg=column)
        assert one.dtype == other.dtype == np.int64
        assert one.flags.c_contiguous
        assert one.flags.writeable
        np.testing.assert_array_equal(one, other, err_msg=column)
    return pages


def random_value(rng: random.Random, kind: str) -> Any:
    if rng.random() < 0.1:
        return None
    if kind == "edge":
        return rng.choice(EDGES)
    if kind == "small":
        return rng.randrange(-3, 300)
    if kind == "text":
        return "x" * rng.choice([0, 1, 5, 57, 58, 200])
    if kind == "real":
        return rng.choice([0.5, 1e300, -2.0])
    if kind == "blob":
        return bytes(rng.randrange(90))
    return rng.randrange(-(2**63), 2**63)


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 65536])
@pytest.mark.parametrize("seed", range(12))
def test_random_tables_read_the_same_both_ways(tmp_path: Path, seed: int, page_size: int) -> None:
    rng = random.Random(seed * 7919 + page_size)
    kinds = [rng.choice(["edge", "small", "wide", "text", "real", "blob"]) for _ in range(9)]
    kinds[rng.randrange(9)] = "edge"
    # Untyped columns keep what they are given; a row of 9 x 200 bytes would spill from 512.
    rows: list[tuple[Any, ...]] = [
        tuple(
            random_value(rng, kind) if page_size > 512 or kind not in ("text", "blob") else None
            for kind in kinds
        )
        for _ in range(rng.choice([1, 50, 3000]))
    ]
    path = fill(tmp_path / "t.db", ", ".join(f"c{i}" for i in range(9)), rows, page_size)
    wanted = [f"c{i}" for i, kind in enumerate(kinds) if kind in ("edge", "small", "wide")]
    rng.shuffle(wanted)
    assert_same(path, wanted)
    numbers: list[int] = sorted({row[int(wanted[0][1:])] for row in rows[:5]} - {None, -1})
    assert_same(path, wanted, Keep(wanted[0], tuple(numbers) or (4711,)))
    if len(wanted) > 1:
        assert_same(path, wanted[1:], Keep(wanted[0], tuple(numbers) or (4711,)))


def test_columns_of_a_key_of_several_columns(tmp_path: Path) -> None:
    """Call chains: the order of the file is that of the rows, not that of the key."""
    path = tmp_path / "t.db"
    db = sqlite3.connect(path)
    db.execute("create table t (a integer not null, b integer, primary key (a, b))")
    db.executemany("insert into t values (?, ?)", [(5_000 - i // 9, i % 9) for i in range(20_000)])
    db.commit()
    db.close()
    a, _ = assert_same(path, ["a", "b"])
    assert a[0] == 5_000


def test_rows_come_in_the_order_of_the_file_whatever_was_deleted(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b integer", [(i, -i) for i in range(20_000)])
    db = sqlite3.connect(path)
    db.execute("delete from t where a % 3 = 0")
    db.executemany("insert into t (rowid, a, b) values (?, ?, ?)", [(-5, 1, 2), (10**15, 3, 4)])
    db.execute("create index somebody on t (b, a)")
    db.commit()
    db.close()
    a, _ = assert_same(path, ["a", "b"])
    assert a[0] == 1
    assert a[-1] == 3


def test_many_blocks_and_threads_give_one_column(tmp_path: Path) -> None:
    rows = [(i, i * 1000, None if i % 7 else i, "pad" * 20) for i in range(40_000)]
    path = fill(tmp_path / "t.db", "a integer, b integer, c integer, d text", rows, 512)
    a, b, c = assert_same(path, ["a", "b", "c"])
    assert (len(a), a[-1], b[-1]) == (40_000, 39_999, 39_999_000)
    assert c[1] == -1
    assert_same(path, ["b"], Keep("a", (5, 39_999)))


def test_an_empty_table_and_a_filter_that_keeps_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b integer", [])
    assert [len(column) for column in assert_same(path, ["a", "b"])] == [0, 0]
    path = fill(tmp_path / "u.db", "a integer, b integer", [(1, 2)] * 5000)
    assert len(assert_same(path, ["b"], Keep("a", (7,)))[0]) == 0


def test_columns_added_by_a_user_do_not_shift_the_others(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b integer", [(i, 2 * i) for i in range(5000)])
    db = sqlite3.connect(path)
    db.execute("alter table t add column name text")
    db.execute("update t set name = 'n' || a where a % 2")
    db.commit()
    db.close()
    assert_same(path, ["b", "a"])


def test_more_kinds_of_rows_than_numpy_pays_for(tmp_path: Path, decoder: str) -> None:
    rng = random.Random(5)
    rows = [tuple(rng.choice(EDGES) for _ in range(30)) for _ in range(9000)]
    declared = ", ".join(f"c{i}" for i in range(30))
    path = fill(tmp_path / "t.db", declared, rows, 65536)
    if decoder == "compiled":
        assert_same(path, ["c3", "c29"])
        return
    with pytest.raises(NotPlain):
        both(path, ["c0"])


def test_a_filter_never_takes_null_for_a_number(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b integer", [(None, 1), (-1, 2)] * 2000)
    file = SqliteFile(path)
    assert set(file.read("t", ["b"], Keep("a", (-1,)))[0].tolist()) == {2}
    file.close()


NOT_PLAIN: dict[str, tuple[str, list[Any], str]] = {
    "text": ("a integer, b", [(1, "x")] * 3000, "b"),
    "real": ("a integer, b", [(1, 0.5)] * 3000, "b"),
    "blob": ("a integer, b", [(1, b"x")] * 3000, "b"),
    "rowid alias": ("b integer primary key, a integer", [(i, 1) for i in range(3000)], "b"),
    "overflow pages": ("a integer, b integer, c text", [(1, 2, "x" * 5000)] * 50, "b"),
    "rows of many kilobytes": ("a integer, b integer, c text", [(1, 2, "x" * 40000)] * 9, "b"),
    "a long header": (
        ", ".join(["b integer", *(f"c{i} integer" for i in range(130))]),
        [tuple(range(131))] * 500,
        "b",
    ),
}


@pytest.mark.parametrize("case", NOT_PLAIN)
def test_what_is_not_plain_is_declined_and_read_by_sql(tmp_path: Path, case: str) -> None:
    declared, rows, column = NOT_PLAIN[case]
    path = tmp_path / "t.db"
    db = sqlite3.connect(path)
    db.execute(f"create table t ({declared}\n)")
    db.executemany(f"insert into t values ({', '.join('?' * len(rows[0]))})", rows)
    db.commit()
    db.close()
    with pytest.raises(NotPlain):
        both(path, [column])
    file = SqliteFile(path)
    assert len(file.read("t", [column])[0]) == len(rows)
    file.close()


@pytest.mark.parametrize("key", ["a", "a, b"])
def test_tables_without_rowid_are_declined(tmp_path: Path, key: str) -> None:
    path = tmp_path / "t.db"
    db = sqlite3.connect(path)
    db.execute(f"create table t (a integer, b integer, primary key ({key})) without rowid")
    db.executemany("insert into t values (?, ?)", [(i, 3 * i) for i in range(3000)])
    db.commit()
    db.close()
    with pytest.raises(NotPlain):
        both(path, ["b"])
    file = SqliteFile(path)
    assert file.read("t", ["b"])[0][2] == 6
    file.close()


def test_generated_columns_are_declined(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    db = sqlite3.connect(path)
    db.execute("create table t (a integer, g integer as (a * 2) virtual, b integer)")
    db.executemany("insert into t (a, b) values (?, ?)", [(i, 3 * i) for i in range(3000)])
    db.commit()
    db.close()
    with pytest.raises(NotPlain):
        both(path, ["b"])
    file = SqliteFile(path)
    assert file.read("t", ["g", "b"])[0][2] == 4
    file.close()


def test_a_wanted_column_that_was_added_later_is_declined(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b integer", [(i, i) for i in range(3000)])
    db = sqlite3.connect(path)
    db.execute("alter table t add column c integer default 5")
    db.commit()
    db.close()
    with pytest.raises(NotPlain):
        both(path, ["c"])
    file = SqliteFile(path)
    assert set(file.read("t", ["c"])[0].tolist()) == {5}
    file.close()


def test_reserved_bytes_are_declined(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(3000)])
    raw = bytearray(path.read_bytes())
    raw[20] = 8
    path.write_bytes(raw)
    reader = PageReader(path)
    with pytest.raises(NotPlain), sqlite3.connect(path) as db:
        reader.read_columns(db, "t", ["a"])
    reader.close()


def test_small_tables_are_left_to_sql(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(10)])
    reader = PageReader(path)
    with pytest.raises(NotPlain), sqlite3.connect(path) as db:
        reader.read_columns(db, "t", ["a"], None, 2)
    reader.close()


def test_a_table_of_just_enough_pages_is_decoded(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(600)])
    reader, before = PageReader(path), READING.count
    with sqlite3.connect(path) as db:
        (column,) = reader.read_columns(db, "t", ["a"], None, 2)
        assert column.tolist() == list(range(600))
        assert READING.count - before >= 2 * 4096  # what was read moves the bar
        with pytest.raises(NotPlain):
            reader.read_columns(db, "t", ["a"], None, 3)
    reader.close()


@pytest.mark.parametrize("count", [0, 3, 4, 5, 9])
def test_sql_gives_all_rows_whatever_their_number(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_pages, "_CHUNK", 4)
    path = fill(tmp_path / "t.db", "a integer, b integer", [(i, -i) for i in range(count)])
    with sqlite3.connect(path) as db:
        a, b = sqlite_pages.read_columns(db, "t", ["a", "b"])
    assert (a.tolist(), b.tolist()) == (list(range(count)), [-i for i in range(count)])


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_a_file_says_how_long_it_is(tmp_path: Path, page_size: int) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(600)], page_size)
    head = path.read_bytes()[:100]
    assert stated_size(head) == path.stat().st_size
    assert stated_size(head[:99]) == 0
    # Written last by a program that leaves the count of pages alone.
    assert stated_size(head[:92] + bytes(4) + head[96:]) == 0


def test_a_file_that_lacks_its_last_byte_is_refused(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(600)])
    SqliteFile(path).close()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="cut short"):
        SqliteFile(path)


def test_text_and_reals_in_an_integer_column_read_as_sql_casts_them(tmp_path: Path) -> None:
    """What is no number at all reads as an absent one: 0 would be a time."""
    rows = [(1,), (2.9,), ("17",), ("abc",), (None,), (b"5",), ("4 at last",), ("",), ("-6.5",), (b"\0",)]
    path = fill(tmp_path / "t.db", "a", rows)
    file = SqliteFile(path)
    assert file.read("t", ["a"])[0].tolist() == [1, 2, 17, -1, -1, 5, -1, -1, -6, -1]
    file.close()


@pytest.mark.parametrize("child", ["none", "the schema", "itself", "beyond the file"])
@pytest.mark.parametrize("first", [True, False], ids=["all children", "the last child"])
def test_a_tree_that_leads_nowhere_is_declined(tmp_path: Path, child: str, first: bool) -> None:
    """Round in circles it would grow without end."""
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(1500)], 512)
    raw, root = bytearray(path.read_bytes()), 2
    page = memoryview(raw)[(root - 1) * 512 : root * 512]
    cells = int.from_bytes(page[3:5], "big")
    assert (page[0], cells > 1) == (5, True)  # an interior page of a table
    number = {"none": 0, "the schema": 1, "itself": root, "beyond the file": len(raw) // 512 + 1}[child]
    places = [int.from_bytes(page[12 + 2 * i :][:2], "big") for i in range(cells)] if first else []
    for at in (*places, 8):
        page[at : at + 4] = number.to_bytes(4, "big")
    path.write_bytes(raw)
    db = sqlite3.connect(path)
    reader = PageReader(path)
    try:
        with pytest.raises(NotPlain):
            reader.read_columns(db, "t", ["a"])
    finally:
        reader.close()
        db.close()


def test_damaged_pages_never_pass_for_data_in_silence(tmp_path: Path) -> None:
    """Random bytes over a page: the same arrays as SQL, or one of them says so."""
    rows = [(i, i * 10**9, i % 5) for i in range(6000)]
    path = fill(tmp_path / "t.db", "a integer, b integer, c integer", rows)
    whole = path.read_bytes()
    rng = random.Random(1)
    for _ in range(80):
        raw = bytearray(whole)
        page = rng.randrange(1, len(raw) // 4096)
        at = page * 4096 + rng.choice([0, 3, 8, 100, 3000])
        raw[at : at + 8] = rng.randbytes(8)
        path.write_bytes(raw)
        db = sqlite3.connect(path)
        try:
            expected = sqlite_pages.read_columns(db, "t", ["a", "c"])
        except sqlite3.DatabaseError:
            expected = None
        reader = PageReader(path)
        try:
            got = reader.read_columns(db, "t", ["a", "c"])
        except NotPlain:
            continue
        finally:
            reader.close()
            db.close()
        if expected is not None and all(map(len, expected)):
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_pages_that_the_compiled_decoder_declines_are_counted(tmp_path: Path, decoder: str) -> None:
    """A text where integers are wanted: neither decoder reads it, and SQL casts it."""
    path = fill(tmp_path / "t.db", "a", [(i,) for i in range(3000)] + [("17",)])
    reader = PageReader(path)
    with pytest.raises(NotPlain), sqlite3.connect(path) as db:
        reader.read_columns(db, "t", ["a"])
    reader.close()
    assert (reader.declined > 0) == (decoder == "compiled")


def test_more_columns_than_the_compiled_decoder_takes(tmp_path: Path) -> None:
    """Headers of 128 bytes and more are longer than either decoder reads."""
    rows = [tuple(range(100)) for _ in range(500)]
    path = fill(tmp_path / "t.db", ", ".join(f"c{i}" for i in range(100)), rows)
    assert_same(path, [f"c{i}" for i in range(100)])
    rows = [tuple(range(130)) for _ in range(500)]
    path = fill(tmp_path / "u.db", ", ".join(f"c{i}" for i in range(130)), rows)
    with pytest.raises(NotPlain):
        both(path, ["c129", "c0"])


def test_arguments_out_of_range_are_refused(decoder: str) -> None:
    if decoder != "compiled":
        return
    page, place, none = np.zeros(512, np.uint8), np.zeros(1, np.int32), np.empty(0, np.int64)
    for size, row, keep in ((100, 0, -1), (512, -1, -1), (512, 0, 1)):
        with pytest.raises(ValueError, match="out of range"):
            sqlite_pages.compiled.decode(page, size, place, [none], row, -1, keep, none)
    assert sqlite_pages.compiled.decode(page, 512, place, [none], 0, -1, -1, none) == -1
