"""Damaged inputs, thousands of them: is every answer a report or one clear line?

usage: python benchmarks/fuzz.py [--count N] [--kind KIND] [--seed N] [--save DIR] [--jobs N]
       python benchmarks/fuzz.py --replay FILE...

Each input is made by mutating a small valid one: cells of an nsys export by SQL, its bytes and those
of its packed and columnar forms, events of a PyTorch trace, lines of a sampler's log, saved
diagnoses, benchmark reports, rules, settings, reviews and options of the command line. A process of
its own runs each, with 10 s of processor time and 1 GB beyond what the interpreter has. A failure is
an internal error or traceback, another exit code than 0, 1 and 2, silence about an error, a hang, more
memory, a changed input, or a file left behind. Prints a table by kind; `--save` keeps the inputs that
failed, and `--replay` runs saved ones (tests/fuzz/ holds those of the past).
"""

from __future__ import annotations

import argparse
import gc
import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from advisor.cli.main import main as advisor  # noqa: E402
from tests.builder import Export  # noqa: E402
from tests.kineto_builder import Profile  # noqa: E402

LIMIT_S = 10
LIMIT_BYTES = 1 << 30
#: Verbs that read a capture, as chances.
VERBS = (
    "diagnose {}", "diagnose {} --format json", "diagnose {} -v", "diagnose {} --html out.html",
    "diagnose {} --xlsx out.xlsx", "diagnose {} --sensitivity", "checklist {} --no-input",
    "compare {} good.sqlite",
    *("doctor {}", "facts {}", "explain {} LCH101") * 2,
    *("whatif {} --fix SYN101", "redact {} out.sqlite", "stats {} -r kernels,api,tail,nvtx",
      "stats {} -r trace,histogram,copies --format csv", "export perfetto {} -o out.json",
      "export perfetto {} --with-trace -o out.perfetto-trace") * 5,
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 10**18)
TEXTS = (
    "", "\0", "nan", "1e999", "-1e999", "\xe9" * 9, "\ud7ff", "\ufffe\uffff", "\x1b[31m", "\u202ex", "=1+1",
    "{", "a" * 5_000, "/" * 300, "%s%n", "<b>&", "'; drop table x", "0x10", "9" * 400, "-", "[" * 60,
)  # fmt: skip


class Case(NamedTuple):
    """A command line, with the files that it needs in the folder where it runs."""

    kind: str
    args: list[str]


# ------------------------------------------------------------------ valid inputs


def make_seeds(folder: Path, slow: bool = True) -> None:
    """Small valid inputs of every kind; those that take long to make only on request."""
    export = Export("3.17").gpu().system(NvDriverVersion="580.1", CudaDriverVersion="13000")
    export.command("/opt/venv/bin/vllm", "serve", "--model", "m").environment("RANK", "0")
    export.traced("Cuda", "NvtxEvents").process(100).thread(100, "python3")
    for i in range(24):
        at = i * 100_000
        export.range(f"iteration {i}", at, at + 90_000).range_inline("inner", at, at + 50_000)
        export.launch(at, 5_000, "gemm<float>(int)").launch(at + 12_000, 4_000, "softmax")
        export.copy(at + 32_000).sync(at + 50_000, 20_000)
    export.memset(at=2_410_000).graph_launch(at=2_420_000, nodes=[("a", 2_430_000, 10)], mode="graph")
    export.gpu_metrics({"SMs Active [Throughput %]": [50] * 20}).overhead(1, 2).osrt("poll", 1, 2)
    export.diagnostic("a message").callchain(1, [("inner", "lib")]).host_sample(
        at=5, frames=[("main", "app")]
    )
    nsys = export.write(folder / "good.sqlite")
    raw = nsys.read_bytes()
    (folder / "seed.sqlite.xz").write_bytes(lzma.compress(raw, preset=0))
    (folder / "seed.sqlite.gz").write_bytes(gzip.compress(raw, 1))
    profile = Profile().gpu().process(100)
    for i in range(12):
        at = i * 100_000
        profile.annotation(f"ProfilerStep#{i}", at, 90_000)
        profile.launch(at=at, dur=5_000, kernel="gemm", kernel_start=at + 7_000, kernel_dur=10_000)
        profile.sync(at=at + 6_000, dur=12_000)
    profile.write(folder / "seed.json")
    (folder / "seed.csv").write_text(
        "timestamp, index, name, utilization.gpu [%], clocks.current.sm [MHz], power.draw [W]\n"
        + "".join(
            f"2024/05/01 10:00:{i:02}.000, 0, NVIDIA H200, {i} %, 1980 MHz, 300.1 W\n" for i in range(30)
        )
    )
    (folder / "seed.dmon").write_text(
        "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk\n"
        "# Idx      W      C      C      %      %      %      %    MHz    MHz\n"
        + "    0    300     40     45     50     20      0      0   3201   1980\n"
        * 20
    )
    (folder / "bench.json").write_text(
        json.dumps({"output_throughput": 123.4, "mean_tpot_ms": 9.1, "a": [1]})
    )
    (folder / "bench.csv").write_text("output_throughput,mean_tpot_ms\n123.4,9.1\n120,9.2\n")
    (folder / "config.json").write_text(json.dumps(
        {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256,
         "intermediate_size": 14336, "num_key_value_heads": 8, "torch_dtype": "bfloat16"}))  # fmt: skip
    (folder / "advisor.toml").write_text('top = 3\nignore = ["MOE"]\n')
    (folder / "answers.yaml").write_text("capture-steady: yes\nother: {answer: no, note: x}\n")
    (folder / "rule.yaml").write_text((ROOT / "rules/launch/LCH101.yaml").read_text())
    if not slow:
        return
    for line in ("good.sqlite --format json -o saved.json", "good.sqlite --xlsx review.xlsx",
                 "review import review.xlsx -o review.json"):  # fmt: skip
        if (done := _quietly(args := line.split(), folder))[0]:
            raise SystemExit(f"{args}: {done[2]}")
    from tests.sources.test_nsys_columnar import exported

    for kind in ("parquet", "arrow"):
        exported(nsys, folder / kind, kind)


def _quietly(args: list[str], folder: Path) -> tuple[int, str, str]:
    """Runs one command line here; returns the exit code and both outputs."""
    kept = sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    sys.stdout, sys.stderr = out, err
    before = Path.cwd()
    os.chdir(folder)
    try:
        code = advisor(args)
    finally:
        sys.stdout, sys.stderr = kept
        os.chdir(before)
    told = []
    for stream in (out, err):
        stream.flush()
        told.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return code, told[0], told[1]


# ------------------------------------------------------------------ mutations


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


def json_mutated(document: Any, rng: random.Random) -> Any:
    """Values and keys anywhere in a document replaced, doubled, removed or nested."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2, 6))):
        holder, key = None, None
        at = document
        while isinstance(at, dict | list) and at and (holder is None or rng.random() < 0.8):
            holder, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = at[key]
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
            (str(number), f"'{number}x'", "null", "1e308", "-0.5", "9e999", "x'00ff'", f"{column} + {number}",
             f"-{column}", f"{column} * 1000", f"cast({column} as text)", f"zeroblob({rng.randrange(9)})",
             other, "'" + rng.choice(TEXTS).replace("'", "''").replace("\0", "") + "'")
        )  # fmt: skip
        rows = rng.choice(("", f" where rowid % {rng.randrange(1, 9)} = 0", " where rowid = 1"))
        found.append(
            rng.choice(
                (f"update or ignore {table} set {column} = {value}{rows}",) * 6
                + (f"insert or ignore into {table} select * from {table} limit {rng.randrange(99)}",
                   f"delete from {table}{rows}", f"drop table {table}",
                   f"alter table {table} rename to {table}X", f"alter table {table} drop column {column}",
                   f"alter table {table} rename column {column} to {column}X",
                   f"create table other as select * from {table}; drop table {table}; "
                   f"create view {table} as select * from other",
                   f"create table other as select * from {table}; drop table {table}; "
                   f"alter table other rename to {table}; update {table} set {column} = {value}{rows}")
            )
        )  # fmt: skip
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
        (pa.array([[1]] * rows), pa.array(["x"] * rows), pa.array([None] * rows), pa.array([1.5] * rows),
         pa.array([b"\xff"] * rows), pa.array([True] * rows), pa.array([{"a": 1}] * rows),
         pa.array([2**64 - 1] * rows, pa.uint64()), pa.array([float("nan")] * rows),
         pa.array([2**63 - 1] * rows))
    )  # fmt: skip
    pq.write_table(table.set_column(at, table.column_names[at], odd), path)


# ------------------------------------------------------------------ cases by kind


def _verb(name: str, rng: random.Random) -> list[str]:
    return [name if part == "{}" else part for part in rng.choice(VERBS).split()]


def _nsys_cells(folder: Path, rng: random.Random) -> Case:
    statements = sql_mutations(folder / "good.sqlite", rng)
    shutil.copy(folder / "good.sqlite", folder / "t.sqlite")
    apply_sql(folder / "t.sqlite", statements)
    (folder / "t.sql").write_text(";\n".join(statements), "utf-8")
    return Case("nsys cells", _verb("t.sqlite", rng))


def _bytes_of(kind: str, seed: str, name: str) -> Callable[[Path, random.Random], Case]:
    def make(folder: Path, rng: random.Random) -> Case:
        (folder / name).write_bytes(bytes_mutated((folder / seed).read_bytes(), rng))
        return Case(kind, _verb(name, rng))

    return make


def _packed(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(("seed.sqlite.xz", "seed.sqlite.gz"))
    return _bytes_of("packed bytes", name, f"t{name.removeprefix('seed')}")(folder, rng)


def _kineto_values(folder: Path, rng: random.Random) -> Case:
    document = json_mutated(json.loads((folder / "seed.json").read_bytes()), rng)
    (folder / "t.json").write_text(json.dumps(document))
    return Case("kineto values", _verb("t.json", rng))


def _columnar(folder: Path, rng: random.Random) -> Case:
    kind = rng.choice(("parquet", "arrow"))
    shutil.copytree(folder / kind, folder / "t")
    columns_mutated(folder / "t", rng)
    return Case(f"{kind} folder", _verb("t", rng))


def _sampler(folder: Path, rng: random.Random) -> Case:
    seed = rng.choice(("seed.csv", "seed.dmon"))
    _write(folder / "t.csv", text_mutated((folder / seed).read_text(), rng))
    alone = rng.random() < 0.5
    return Case("sampler log", _verb("t.csv", rng) if alone else ["good.sqlite", "--gpu-metrics", "t.csv"])


def _saved(folder: Path, rng: random.Random) -> Case:
    document = json_mutated(json.loads((folder / "saved.json").read_bytes()), rng)
    (folder / "t.json").write_text(json.dumps(document))
    return Case("saved diagnosis", rng.choice((
        ["good.sqlite", "--baseline", "t.json"], ["compare", "t.json", "saved.json"],
        ["compare", "saved.json", "t.json", "--format", "json"], ["good.sqlite", "--review", "t.json"],
        ["review", "record", "t.json", "--into", "h.json"], ["show", "SYN", "t.json"],
        ["compare", "t.json", "saved.json", "--xlsx", "o.xlsx"])))  # fmt: skip


def _bench(folder: Path, rng: random.Random) -> Case:
    if rng.random() < 0.5:
        document = json_mutated(json.loads((folder / "bench.json").read_bytes()), rng)
        (folder / "t.json").write_text(json.dumps(document))
        return Case("benchmark report", ["moe", "t.json", "bench.json"])
    _write(folder / "t.csv", text_mutated((folder / "bench.csv").read_text(), rng))
    return Case("benchmark report", ["moe", "bench.csv", "t.csv"])


def _rule(folder: Path, rng: random.Random) -> Case:
    (folder / "own").mkdir()
    _write(folder / "own" / "rule.yaml", text_mutated((folder / "rule.yaml").read_text(), rng))
    lines = ("rules check own", "whatif good.sqlite --fix SYN101 --rules own", "good.sqlite --rules own")
    return Case("rule file", rng.choice(lines).split())


def _config(folder: Path, rng: random.Random) -> Case:
    document = json_mutated(json.loads((folder / "config.json").read_bytes()), rng)
    (folder / "t.json").write_text(json.dumps(document))
    return Case("model config", ["whatif", "good.sqlite", "--fix", "SYN101", "--weight-bytes", "t.json"])


def _settings(folder: Path, rng: random.Random) -> Case:
    _write(folder / "advisor.toml", text_mutated((folder / "advisor.toml").read_text(), rng))
    return Case("settings", ["doctor", "good.sqlite"] if rng.random() < 0.5 else ["good.sqlite"])


def _answers(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(("answers.yaml", "review.json"))
    _write(folder / f"t{Path(name).suffix}", text_mutated((folder / name).read_text(), rng))
    return Case("answers", ["checklist", "--answers", f"t{Path(name).suffix}", "--no-input"])


def _workbook(folder: Path, rng: random.Random) -> Case:
    import zipfile

    source = zipfile.ZipFile(folder / "review.xlsx")
    hit = rng.choice([n for n in source.namelist() if n.endswith((".xml", ".rels"))])
    with zipfile.ZipFile(folder / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        for name in source.namelist():
            data = source.read(name)
            book.writestr(name, bytes_mutated(data, rng) if name == hit else data)
    if rng.random() < 0.3:
        (folder / "t.xlsx").write_bytes(bytes_mutated((folder / "t.xlsx").read_bytes(), rng))
    return Case(
        "workbook", rng.choice((["review", "import", "t.xlsx"], ["good.sqlite", "--review", "t.xlsx"]))
    )


OPTIONS = {
    "--window": ("5s/7s", "1ms/2ms", "0/", "1s2ms/"), "--nvtx": ("iteration*", "iteration 3@NVTX/2", "[a"),
    "--weight-bytes": ("16GB", "1e9"), "--unprofiled-step": ("9.9",), "--gpu-metrics-offset": ("1.5s",),
    "--param": ("LCH101.x=1", "LCH101=3"), "--select": ("SYN101,LCH",), "--top": ("5",),
    "--phase": ("decode",), "--serving-engine": ("vllm@0.9",), "--fail-on": ("high",),
    "--baseline": ("name",), "--folder": ("x",),
    "--jobs": ("2",), "--format": ("json",),
}  # fmt: skip


def _option(folder: Path, rng: random.Random) -> Case:
    args = ["good.sqlite"]
    for name in rng.sample(list(OPTIONS), rng.choice((1, 1, 2))):
        value = rng.choice(OPTIONS[name])
        value = str(rng.choice((*NUMBERS, *TEXTS))) if rng.random() < 0.3 else text_mutated(value, rng)
        args += [name, value.replace("\0", "")]
    del folder
    return Case("options", args)


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # it may be a link to the seed
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


KINDS: dict[str, tuple[int, Callable[[Path, random.Random], Case]]] = {
    "nsys cells": (6, _nsys_cells),
    "nsys bytes": (4, _bytes_of("nsys bytes", "good.sqlite", "t.sqlite")),
    "packed bytes": (2, _packed),
    "kineto values": (4, _kineto_values),
    "kineto bytes": (3, _bytes_of("kineto bytes", "seed.json", "t.json")),
    "columnar": (3, _columnar),
    "sampler log": (4, _sampler),
    "saved diagnosis": (5, _saved),
    "benchmark report": (3, _bench),
    "rule file": (3, _rule),
    "model config": (2, _config),
    "settings": (2, _settings),
    "answers": (2, _answers),
    "workbook": (1, _workbook),
    "options": (4, _option),
}


# ------------------------------------------------------------------ one run


def judged(code: int, out: str, err: str) -> str:
    """What is wrong with an answer; nothing where all is well."""
    if "Traceback" in err or "internal error" in err:
        return "internal error: " + err.strip().splitlines()[-1][:160]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and not err.strip() and not out.strip():
        return "no word on what is wrong"
    if any(c in err for c in "\x1b\u202e"):
        return "control characters in a message"
    return ""


def run_case(case: Case, folder: Path, temporary: Path) -> str:
    """Runs a case in a process of its own; returns what went wrong."""
    before = {p: _state(p) for p in folder.rglob("*") if p.is_file()}
    told = folder.parent / "told.json"
    told.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        tempfile.tempdir = str(temporary)
        signal.alarm(12 * LIMIT_S)  # other programs run here, too
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
        started = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (started + 3 * LIMIT_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            wrong = judged(*_quietly(case.args, folder))
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss) << 10
            if not wrong and grown > LIMIT_BYTES:
                wrong = f"{grown >> 20} MB"
        except BaseException as error:
            wrong = f"traceback: {type(error).__name__}: {error}"[:200]
        told.write_text(json.dumps(wrong))
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return (
            "hang"
            if number in (signal.SIGALRM, signal.SIGXCPU)
            else f"killed by {signal.Signals(number).name}"
        )
    wrong = str(json.loads(told.read_text()))
    if not wrong and (changed := [p.name for p, d in before.items() if not p.exists() or _state(p) != d]):
        wrong = f"changed: {changed}"
    left = [p.name for p in temporary.iterdir()] + [p.name for p in folder.iterdir() if p.name[:1] == "."]
    return wrong or (f"left behind: {left}" if left else "")


def _state(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def replay(lines: Iterable[str], seeds: Path) -> list[str]:
    """Runs saved cases: lines of JSON with `args`, and `sql` (statements upon good.sqlite) or `files`
    (name: text). Returns what went wrong."""
    failures = []
    for line in filter(None, map(str.strip, lines)):
        entry = json.loads(line)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for seed in seeds.iterdir():
                (folder / seed.name).symlink_to(seed)
            if "sql" in entry:
                shutil.copyfile(seeds / "good.sqlite", folder / "t.sqlite")
                apply_sql(folder / "t.sqlite", entry["sql"])
            for file, text in entry.get("files", {}).items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).unlink(missing_ok=True)
                _write(folder / file, text)
            if wrong := judged(*_quietly(entry["args"], folder)):
                failures.append(f"{line[:200]}: {wrong}")
    return failures


def fuzz(count: int, seed: int, kinds: list[str], save: Path | None) -> int:
    """Runs `count` cases and prints the table; returns how many failed."""
    done: Counter[str] = Counter()
    failed: dict[str, Counter[str]] = defaultdict(Counter)
    slowest: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        seeds, temporary = Path(name, "seeds"), Path(name, "tmp")
        seeds.mkdir()
        temporary.mkdir()
        make_seeds(seeds)
        for verb in dict.fromkeys(VERBS):  # what is imported and cached now need not be in each process
            _quietly(
                verb.format("good.sqlite").split(),
                shutil.copytree(seeds, Path(name, "warm"), dirs_exist_ok=True),
            )
        gc.freeze()
        weights = [KINDS[k][0] for k in kinds]
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            folder = Path(name, "run")
            shutil.copytree(seeds, folder, copy_function=os.link)
            case = KINDS[rng.choices(kinds, weights)[0]][1](folder, rng)
            start = time.monotonic()
            wrong = run_case(case, folder, temporary)
            slowest[case.kind] = max(slowest[case.kind], time.monotonic() - start)
            done[case.kind] += 1
            if wrong:
                failed[case.kind][wrong] += 1
                print(f"{seed}/{number} {' '.join(case.args)}: {wrong}", flush=True)
                if save is not None:
                    shutil.copytree(folder, save / f"{seed}-{number}", dirs_exist_ok=True)
                    (save / f"{seed}-{number}" / "args.json").write_text(json.dumps(case.args))
            shutil.rmtree(folder)
            for left in temporary.iterdir():
                shutil.rmtree(left, ignore_errors=True)
                left.unlink(missing_ok=True) if left.is_file() else None
    print(f"\n{'kind':20} {'inputs':>7} {'failed':>7} {'slowest':>8}")
    for kind in sorted(done):
        print(f"{kind:20} {done[kind]:7} {failed[kind].total():7} {slowest[kind]:7.1f}s")
    total = sum(c.total() for c in failed.values())
    print(f"{'all':20} {done.total():7} {total:7} {max(slowest.values()):7.1f}s")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--save", type=Path)
    parser.add_argument("--replay", type=Path, nargs="+")
    options = parser.parse_args()
    if options.replay:
        with tempfile.TemporaryDirectory() as name:
            make_seeds(Path(name))
            failures = replay((n for p in options.replay for n in p.read_text().splitlines()), Path(name))
        print("\n".join(failures) or "all is well")
        return bool(failures)
    return bool(fuzz(options.count, options.seed, options.kind or list(KINDS), options.save))


if __name__ == "__main__":
    sys.exit(main())
