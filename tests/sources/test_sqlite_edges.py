"""Tables at the limits of what is decoded from pages, and the file that they lie in."""

from __future__ import annotations

import os
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.reading import READING
from advisor.sources.sqlite.file import SqliteFile, stated_size
from advisor.sources.sqlite.leaf_pages import NotPlain
from advisor.sources.sqlite.pages import PageReader
from advisor.sources.trace import Keep
from tests.sources.test_sqlite_pages import assert_same, both, decoder, fill

__all__ = ["decoder"]  # a fixture: every test holds for both decoders


@pytest.mark.parametrize(("length", "plain"), [(984, True), (985, False)])
def test_a_row_of_the_most_bytes_that_a_page_keeps(tmp_path: Path, length: int, plain: bool) -> None:
    """The size of a page less 35 bytes; the rest of a longer row lies on other pages."""
    path = fill(tmp_path / "t.db", "a integer, b text", [(i, "x" * length) for i in range(2, 99)], 1024)
    if plain:
        assert_same(path, ["a"])
        return
    with pytest.raises(NotPlain):
        both(path, ["a"])


@pytest.mark.parametrize(("columns", "plain"), [(126, True), (127, False)])
def test_a_header_of_127_bytes_is_the_longest(tmp_path: Path, columns: int, plain: bool) -> None:
    names = [f"c{i}" for i in range(columns)]
    path = fill(tmp_path / "t.db", ", ".join(names), [tuple(range(columns))] * 500)
    if plain:
        assert_same(path, ["c0", names[-1]])
        return
    with pytest.raises(NotPlain):
        both(path, ["c0"])


@pytest.mark.parametrize("length", [57, 58, 8_185, 8_186, 8_192])
def test_texts_whose_kind_takes_one_byte_or_more(tmp_path: Path, length: int) -> None:
    rows = [(i, "x" * length, 1_000 + i) for i in range(2, 60)]
    path = fill(tmp_path / "t.db", "a integer, b text, c integer", rows, 65536)
    assert_same(path, ["a", "c"])


def test_a_page_that_leads_to_more_than_255_others(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer, b text", [(i, "x" * 1_000) for i in range(1_200)])
    root = path.read_bytes()[4096:8192]
    assert (root[0], root[3] > 0) == (5, True)  # an interior page, its cells counted in two bytes
    assert_same(path, ["a"])


def test_pages_beyond_eight_gigabytes(tmp_path: Path) -> None:
    """The leaves of a table moved there; what lies between takes no room on the disk."""
    path = fill(tmp_path / "t.db", "a integer", [(i,) for i in range(1_500)], 512)
    raw, far = path.read_bytes(), (1 << 24) + (1 << 16)
    root = bytearray(raw[512:1024])
    cells = int.from_bytes(root[3:5], "big")
    for at in (8, *(int.from_bytes(root[12 + 2 * i :][:2], "big") for i in range(cells))):
        root[at : at + 4] = (int.from_bytes(root[at : at + 4], "big") + far).to_bytes(4, "big")
    with (tmp_path / "large.db").open("wb") as large:
        large.write(raw[:512] + root)
        large.seek((far + 2) * 512)
        large.write(raw[1024:])
    with closing(PageReader(tmp_path / "large.db")) as reader, closing(sqlite3.connect(path)) as db:
        assert reader.read_columns(db, "t", ["a"])[0].tolist() == list(range(1_500))


def test_a_filter_that_keeps_nothing_is_no_reason_to_decode_twice(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)] * 5_000)
    with closing(PageReader(path)) as reader, closing(sqlite3.connect(path)) as db:
        assert reader.read_columns(db, "t", ["a"], Keep("a", (7,)))[0].tolist() == []
        assert reader.declined == 0


def test_a_column_behind_one_that_is_computed(tmp_path: Path) -> None:
    """No record holds the value of that one, so the others lie one place further to the left."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table t (a integer, g integer as (a * 2) virtual, b integer, c integer)")
        db.executemany("insert into t (a, b, c) values (?, ?, ?)", [(i, 3 * i, 5 * i) for i in range(3_000)])
        db.commit()
    with closing(SqliteFile(path)) as file:
        assert file.read("t", ["b"])[0][2] == 6


def test_a_table_that_is_not_there_has_no_pages(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)])
    with closing(PageReader(path)) as reader, closing(sqlite3.connect(path)) as db, pytest.raises(NotPlain):
        reader.read_columns(db, "absent", ["a"])


# ------------------------------------------------------------------ the file


def test_pages_are_counted_in_four_bytes() -> None:
    head = bytearray(100)
    head[16:18], head[28:32] = (4096).to_bytes(2, "big"), (1 << 24).to_bytes(4, "big")
    assert stated_size(bytes(head)) == 4096 << 24


@pytest.mark.parametrize(("rows", "from_pages"), [(2_000, True), (100, False)])
def test_large_tables_are_read_from_their_pages_and_small_ones_by_sql(
    tmp_path: Path, rows: int, from_pages: bool
) -> None:
    path = fill(tmp_path / "t.db", "a integer, b text", [(i, "x" * 100) for i in range(rows)])
    before = READING.count
    with closing(SqliteFile(path)) as file:
        file.read("t", ["a"])
    assert (READING.count - before >= 0.9 * path.stat().st_size) is from_pages


def test_a_file_of_a_later_format_is_refused_in_one_line(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)])
    raw = bytearray(path.read_bytes())
    raw[44:48] = (9).to_bytes(4, "big")  # the format of the schema
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"t\.db: the database is damaged \(unsupported file format\)"):
        SqliteFile(path)


def test_a_file_is_read_in_any_thread(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a", [("17",)] * 3)
    with closing(SqliteFile(path)) as file, ThreadPoolExecutor(1) as other:
        assert other.submit(file.read, "t", ["a"]).result()[0].tolist() == [17] * 3


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="open files are not listed here")
def test_a_closed_file_is_not_held(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)])
    before = len(os.listdir("/dev/fd"))
    file = SqliteFile(path)
    assert len(os.listdir("/dev/fd")) > before
    file.close()
    assert len(os.listdir("/dev/fd")) == before


def test_a_path_that_is_too_long_for_sqlite_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 200] * 3)
    folder.mkdir(parents=True)
    path = fill(tmp_path / "t.db", "a integer", [(1,)]).rename(folder / "t.db")
    with pytest.raises(
        InputError, match=r"SQLite cannot open it \(its path has more than 500 bytes\); move it"
    ):
        SqliteFile(path)


def test_a_file_that_cannot_be_opened_later_is_no_damage(tmp_path: Path) -> None:
    """As where SQLite finds no place for a temporary file. It gives the kind in the lowest byte of a code."""
    with closing(SqliteFile(fill(tmp_path / "t.db", "a integer", [(1,)]))) as file:
        error = sqlite3.OperationalError("unable to\nopen database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN | 3 << 8
        with (
            pytest.raises(InputError, match=r"SQLite cannot open it \(unable to open database file\)$"),
            file._damage_reported(),
        ):
            raise error


@pytest.mark.parametrize(
    ("ids", "last"), [([3, 7, 5], 7), ([3, "9"], 3), ([], 0), (["9"], 0), ([-4], 0)], ids=str
)
def test_the_last_id_is_the_largest_number_or_none(tmp_path: Path, ids: list[object], last: int) -> None:
    with closing(SqliteFile(fill(tmp_path / "t.db", "id", [(i,) for i in ids]))) as file:
        assert file.last_id("t") == last


def test_tables_views_and_indexes_are_told_apart(tmp_path: Path) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)])
    with closing(sqlite3.connect(path)) as db:
        db.executescript("create view v as select a from t; create index i on t (a)")
    with closing(SqliteFile(path)) as file:
        assert (set(file.tables), set(file.views)) == ({"t"}, {"v"})


@pytest.mark.parametrize(
    ("hint", "end"),
    [("nsys export", "copy it again, or export it again: nsys export"), ("", "copy it again")],
)
def test_a_file_cut_short_is_made_again_by_the_command_for_it(tmp_path: Path, hint: str, end: str) -> None:
    path = fill(tmp_path / "t.db", "a integer", [(1,)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=f"bytes\\); {end}$"):
        SqliteFile(path, hint=hint)


# ------------------------------------------------------------------ headers of records, by NumPy


def test_headers_of_several_lengths_are_kinds_of_their_own(tmp_path: Path) -> None:
    """What follows a shorter header is data: rows that differ there alone are of one kind. As many kinds as
    rows would be declined."""
    rng = random.Random(3)
    numbers = [tuple(rng.randrange(2**40, 2**62) for _ in range(4)) for _ in range(6_000)]
    rows = [(*four, *(("" if i % 6 else "x" * 60) for _ in range(14))) for i, four in enumerate(numbers)]
    names = [*"abcd", *(f"t{i}" for i in range(14))]
    assert_same(fill(tmp_path / "t.db", ", ".join(names), rows, 65536), ["a", "d"])
    # Nineteen bytes and thirty-three here; three and nine there.
    rows = [(four[0], *(("" if i % 6 else "x" * 60) for _ in range(6))) for i, four in enumerate(numbers)]
    names = ["a", *(f"t{i}" for i in range(6))]
    assert_same(fill(tmp_path / "u.db", ", ".join(names), rows, 65536), ["a"])


def test_rows_from_before_a_column_was_added_differ_from_rows_without_a_value(tmp_path: Path) -> None:
    """A header of the types (1) and one of (1, NULL): equal but for their lengths."""
    path = fill(tmp_path / "t.db", "a integer", [(i % 99,) for i in range(2, 3_000)])
    with closing(sqlite3.connect(path)) as db:
        db.execute("alter table t add column b integer")
        db.executemany("insert into t values (?, null)", [(i % 99,) for i in range(2, 3_000)])
        db.commit()
    assert_same(path, ["a"])
