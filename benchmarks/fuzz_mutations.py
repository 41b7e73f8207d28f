"""How the fuzzer damages bytes, text, JSON, SQLite databases and columnar files."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 10**18)
TEXTS = (
    "",
    "\0",
    "nan",
    "1e999",
    "-1e999",
    "\xe9" * 9,
    "\ud7ff",
    "\ufffe\uffff",
    "\x1b[31m",
    "\u202ex",
    "=1+1",
    "{",
    "a" * 5_000,
    "/" * 300,
    "%s%n",
    "<b>&",
    "'; drop table x",
    "0x10",
    "9" * 400,
    "-",
    "[" * 60,
)


def bytes_mutated(data: bytes, rng: random.Random) -> bytes:
    """One to eight flips, cuts, doublings, insertions or overwritten runs."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 2, 4, 8, 100, 4096)), len(out) - at)
        way = rng.randrange(6)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del out[at : at + length]
        elif way == 2:
            out[at:at] = out[at : at + length]
        elif way == 3:
            out[at : at + length] = rng.randbytes(length)
        elif way == 4:
            out[at : at + length] = rng.choice((b"\0", b"\xff", b"\x7f", b'"', b"\n")) * length
        elif way == 5 and rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def text_mutated(text: str, rng: random.Random) -> str:
    """Lines and words replaced, doubled, swapped, removed, or bytes."""
    if rng.random() < 0.3:
        return bytes_mutated(text.encode(), rng).decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        words = lines[at].split(" ")
        way = rng.randrange(6)
        if way == 0:
            words[rng.randrange(len(words))] = str(rng.choice(NUMBERS + TEXTS))
            lines[at] = " ".join(words)
        elif way == 1:
            lines.insert(at, rng.choice(lines))
        elif way == 2 and len(lines) > 1:
            del lines[at]
        elif way == 3:
            lines[at] = " " * rng.randrange(9) + lines[at].strip()
        elif way == 4:
            head, sign, _ = lines[at].partition(rng.choice(":=,"))
            lines[at] = head + sign + str(rng.choice(NUMBERS + TEXTS))
        else:
            lines[at] = lines[at].replace(rng.choice(lines[at] or " "), rng.choice(",:{}[]\"'&*!|>%@`0-"), 1)
    return "\n".join(lines)


#: Numbers that no tool means, as tools, torn lines and other programs write them.
_ODD = (
    "-5",
    "-0.1",
    "7700",
    "101",
    "1e308",
    "-1e308",
    "nan",
    "inf",
    "NaN",
    "-Inf",
    ",,,",
    "1,2,3",
    "1.2.3",
    "9" * 4_301,
    "1 2",
    "[1 2]",
    "None",
    "N/A",
    "0x7f",
    "\u0663",
    "\u00b2",
    "1e5",
    "1_000",
    "99999999999999999999",
    "0",
    "",
)


def numbers_mutated(text: str, rng: random.Random) -> str:
    """Numbers of a text replaced by ones that cannot be or that do not parse: one, some, or those at the same
    place of each line; now and then a line that goes on without end."""
    numbers = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
    if not numbers:
        return text
    value = rng.choice(_ODD)
    way = rng.randrange(4)
    chosen = rng.sample(numbers, min(rng.choice((1, 1, 2, 5)), len(numbers)))
    if way == 1:  # a column: the numbers behind the same word
        words = {text[max(hit.start() - 6, 0) : hit.start()] for hit in chosen}
        chosen = [hit for hit in numbers if text[max(hit.start() - 6, 0) : hit.start()] in words]
    out, at = [], 0
    for hit in sorted(chosen, key=re.Match.start):
        new = value if way < 2 else rng.choice(_ODD)
        if rng.random() < 0.03:
            new = rng.choice((" ", "(", "<", "a", "1", "|", "[1 2]", "eyJ-")) * 60_000
        out += [text[at : hit.start()], new]
        at = hit.end()
    return "".join(out) + text[at:]


def _chosen(document: Any, rng: random.Random, deeper: float) -> tuple[Any, Any, Any]:
    """A random place of a document (holder, key, value); `deeper` is the chance to go on from each level."""
    holder, key = None, None
    at = document
    while isinstance(at, dict | list) and at and (holder is None or rng.random() < deeper):
        holder, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = at[key]
    return holder, key, at


def json_mutated(document: Any, rng: random.Random) -> Any:
    """Values and keys anywhere in a document replaced, doubled, removed or nested."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 6))):
        holder, key = _chosen(document, rng, 0.8)[:2]
        if holder is None:
            break
        way = rng.randrange(8)
        if way < 4:
            holder[key] = rng.choice((*NUMBERS, *TEXTS, None, True, [], {}, [[]], 1e308, -0.0, float("inf")))
        elif way == 4:
            del holder[key]
        elif way == 5 and isinstance(holder, dict):
            holder[str(rng.choice(TEXTS))] = holder.pop(key)
        elif way == 6 and isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            for _ in range(rng.choice((1, 3, 200))):
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
    return document


def json_varied(document: Any, rng: random.Random) -> Any:
    """Values of a document replaced by others of their type, mostly by those that stand under the same key
    elsewhere; items of lists dropped, doubled and put in another order, keys left out."""
    document = json.loads(json.dumps(document))
    alike: dict[Any, list[Any]] = {}
    todo = [document]
    while todo:
        at = todo.pop()
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            if isinstance(value, dict | list):
                todo.append(value)
            else:
                alike.setdefault(key if isinstance(at, dict) else type(value), []).append(value)
                alike.setdefault(type(value), []).append(value)
    for _ in range(rng.choice((1, 1, 2, 6))):
        holder, key, at = _chosen(document, rng, 0.9)
        if isinstance(at, bool):
            holder[key] = not at
        elif isinstance(at, int | float):
            others = [v for v in alike.get(key, alike[type(at)]) if type(v) is type(at)]
            holder[key] = rng.choice(
                (-at, 0 * at, at + 1, at * 10, at * 1_000_000, *rng.choices(others, k=5))
            )
        elif isinstance(at, str):
            others = [v for v in alike.get(key, alike[str]) if type(v) is str]
            holder[key] = rng.choice((rng.choice(others), rng.choice(alike[str]), "", at[::-1]))
        elif isinstance(at, list) and at and rng.random() < 0.7:
            one = rng.randrange(len(at))
            way = rng.randrange(4)
            holder[key] = [at[:one] + at[one + 1 :], at[:one] + at[one:][:1] + at[one:], at[::-1], []][way]
        elif rng.random() < 0.5:
            del holder[key]
    return document


def sql_mutations(path: Path, rng: random.Random) -> list[str]:
    """Statements that damage an nsys export: values, rows, columns, tables and their kinds."""
    db = sqlite3.connect(path)
    tables = [t for (t,) in db.execute("select name from sqlite_master where type = 'table'")]
    found = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        table = rng.choice(tables)
        column = rng.choice([r[1] for r in db.execute(f"pragma table_info({table})")])
        other = rng.choice([r[1] for r in db.execute(f"pragma table_info({table})")])
        number = rng.choice(NUMBERS)
        value = rng.choice(
            (
                str(number),
                f"'{number}x'",
                "null",
                "1e308",
                "-0.5",
                "9e999",
                "x'00ff'",
                f"{column} + {number}",
                f"-{column}",
                f"{column} * 1000",
                f"cast({column} as text)",
                f"zeroblob({rng.randrange(9)})",
                other,
                "'" + rng.choice(TEXTS).replace("'", "''").replace("\0", "") + "'",
            )
        )
        rows = rng.choice(("", f" where rowid % {rng.randrange(1, 9)} = 0", " where rowid = 1"))
        found.append(
            rng.choice(
                (f"update or ignore {table} set {column} = {value}{rows}",) * 6
                + (
                    f"insert or ignore into {table} select * from {table} limit {rng.randrange(99)}",
                    f"delete from {table}{rows}",
                    f"drop table {table}",
                    f"alter table {table} rename to {table}X",
                    f"alter table {table} drop column {column}",
                    f"alter table {table} rename column {column} to {column}X",
                    f"create table other as select * from {table}; drop table {table}; "
                    f"create view {table} as select * from other",
                    f"create table other as select * from {table}; drop table {table}; "
                    f"alter table other rename to {table}; update {table} set {column} = {value}{rows}",
                )
            )
        )
    db.close()
    return found


def apply_sql(path: Path, statements: Iterable[str]) -> None:
    """Runs statements as far as they go."""
    db = sqlite3.connect(path)
    for statement in statements:
        try:
            db.executescript(statement)
        except sqlite3.Error:
            continue
    db.close()


def columns_mutated(folder: Path, rng: random.Random) -> None:
    """A column of one table of a columnar export gets another type, or its file is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = rng.choice(sorted(folder.iterdir()))
    if path.suffix == ".arrow" or rng.random() < 0.5:
        path.write_bytes(bytes_mutated(path.read_bytes(), rng))
        return
    table = pq.read_table(path)
    at = rng.randrange(table.num_columns)
    rows = table.num_rows
    odd = rng.choice(
        (
            pa.array([[1]] * rows),
            pa.array(["x"] * rows),
            pa.array([None] * rows),
            pa.array([1.5] * rows),
            pa.array([b"\xff"] * rows),
            pa.array([True] * rows),
            pa.array([{"a": 1}] * rows),
            pa.array([2**64 - 1] * rows, pa.uint64()),
            pa.array([float("nan")] * rows),
            pa.array([2**63 - 1] * rows),
        )
    )
    pq.write_table(table.set_column(at, table.column_names[at], odd), path)
