"""The inputs of the fuzzer: small valid ones of every kind, and how each kind is damaged."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisor.cli.main import main as advisor
from benchmarks.fuzz_mutations import (
    NUMBERS,
    TEXTS,
    apply_sql,
    bytes_mutated,
    columns_mutated,
    json_mutated,
    json_varied,
    numbers_mutated,
    sql_mutations,
    text_mutated,
)
from benchmarks.fuzz_texts import SMI, SMI_DMON, texts
from tests.builder import Export
from tests.kineto_builder import Profile

ROOT = Path(__file__).resolve().parents[1]
#: Verbs that read a capture, as chances.
VERBS = (
    "diagnose {}",
    "diagnose {} --format json",
    "diagnose {} -v",
    "diagnose {} --html out.html",
    "diagnose {} --xlsx out.xlsx",
    "diagnose {} --sensitivity",
    "checklist {} --no-input",
    "compare {} good.sqlite",
    *("doctor {}", "facts {}", "explain {} LCH101") * 2,
    *(
        "whatif {} --fix SYN101",
        "redact {} out.sqlite",
        "stats {} -r kernels,api,tail,nvtx",
        "stats {} -r trace,histogram,copies --format csv",
        "export perfetto {} -o out.json",
        "export perfetto {} --with-trace -o out.perfetto-trace",
    )
    * 5,
)


class Case(NamedTuple):
    """A command line, with the files that it needs in the folder where it runs."""

    kind: str
    args: list[str]
    #: What holds the numbers of which facts are made; none for inputs that hold none.
    capture: str | None = None


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
    (folder / "seed.csv").write_text(SMI)
    (folder / "seed.dmon").write_text(SMI_DMON)
    (folder / "bench.json").write_text(
        json.dumps({"output_throughput": 123.4, "mean_tpot_ms": 9.1, "a": [1]})
    )
    (folder / "bench.csv").write_text("output_throughput,mean_tpot_ms\n123.4,9.1\n120,9.2\n")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "vocab_size": 128256,
                "intermediate_size": 14336,
                "num_key_value_heads": 8,
                "torch_dtype": "bfloat16",
            }
        )
    )
    (folder / "advisor.toml").write_text('top = 3\nignore = ["MOE"]\n')
    (folder / "answers.yaml").write_text("capture-steady: yes\nother: {answer: no, note: x}\n")
    (folder / "rule.yaml").write_text((ROOT / "rules/launch/LCH101.yaml").read_text())
    if not slow:
        return
    for line in (
        "good.sqlite --format json -o saved.json",
        "good.sqlite --xlsx review.xlsx",
        "review import review.xlsx --format json -o review.json",
        "review record saved.json --folder .",
    ):
        if (done := quietly(args := line.split(), folder))[0]:
            raise SystemExit(f"{args}: {done[2]}")
    from tests.sources.test_nsys_columnar import exported

    for kind in ("parquet", "arrow"):
        exported(nsys, folder / kind, kind)


def quietly(args: list[str], folder: Path) -> tuple[int, str, str]:
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


# ------------------------------------------------------------------ cases by kind


def _verb(name: str, rng: random.Random) -> list[str]:
    return [name if part == "{}" else part for part in rng.choice(VERBS).split()]


def _nsys_cells(folder: Path, rng: random.Random) -> Case:
    statements = sql_mutations(folder / "good.sqlite", rng)
    shutil.copy(folder / "good.sqlite", folder / "t.sqlite")
    apply_sql(folder / "t.sqlite", statements)
    (folder / "t.sql").write_text(";\n".join(statements), "utf-8")
    return Case("nsys cells", _verb("t.sqlite", rng), "t.sqlite")


def _bytes_of(kind: str, seed: str, name: str) -> Callable[[Path, random.Random], Case]:
    def make(folder: Path, rng: random.Random) -> Case:
        (folder / name).write_bytes(bytes_mutated((folder / seed).read_bytes(), rng))
        return Case(kind, _verb(name, rng), name)

    return make


def _packed(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(("seed.sqlite.xz", "seed.sqlite.gz"))
    return _bytes_of("packed bytes", name, f"t{name.removeprefix('seed')}")(folder, rng)


def _kineto_values(folder: Path, rng: random.Random) -> Case:
    document = json_mutated(json.loads((folder / "seed.json").read_bytes()), rng)
    (folder / "t.json").write_text(json.dumps(document))
    return Case("kineto values", _verb("t.json", rng), "t.json")


def _columnar(folder: Path, rng: random.Random) -> Case:
    kind = rng.choice(("parquet", "arrow"))
    shutil.copytree(folder / kind, folder / "t")
    columns_mutated(folder / "t", rng)
    return Case(f"{kind} folder", _verb("t", rng), "t")


def _text_of(kind: str, option: str | None) -> Callable[[Path, random.Random], Case]:
    """A text of this kind with changed lines or numbers: alone, or given with `option`, where it has one."""

    def make(folder: Path, rng: random.Random) -> Case:
        text = rng.choice(texts()[kind])
        change = numbers_mutated if rng.random() < 0.5 else text_mutated
        write(folder / "t.txt", change(text, rng))
        alone = option is None or rng.random() < 0.5
        args = _verb("t.txt", rng) if alone else ["good.sqlite", str(option), "t.txt"]
        return Case(kind, args, "t.txt")

    return make


#: Documents that advisor saves, with the verbs that read them.
SAVED = {
    "saved.json": (
        "good.sqlite --baseline {}",
        "compare {} saved.json",
        "compare saved.json {} --format json",
        "compare --context {} saved.json --tokens 1,2",
        "compare {} saved.json --xlsx o.xlsx",
        "good.sqlite --review {}",
        "review record {} --folder h",
        "baseline save b {} --folder h",
        "checklist {} --no-input",
        "{} -v",
        "{} --html o.html",
        "{} --xlsx o.xlsx",
        "{} --format sarif",
    ),
    "review.json": (
        "good.sqlite --review {}",
        "saved.json --review {} --xlsx o.xlsx",
        "checklist --answers {} --no-input",
        "review record saved.json --review {} --folder h",
    ),
    "history/findings.json": (
        "review status",
        "review record saved.json",
        "good.sqlite",
        "review status --format html -o o.html",
    ),
}


def _saved(folder: Path, rng: random.Random) -> Case:
    seed = rng.choices(list(SAVED), (4, 1, 1))[0]
    change = json_varied if rng.random() < 0.5 else json_mutated
    document = json.dumps(change(json.loads((folder / seed).read_bytes()), rng))
    args = rng.choice(SAVED[seed]).format("t.json").split()
    if seed == "history/findings.json":
        args += ["--folder", "kept"]
        (folder / "kept/history").mkdir(parents=True)
        (folder / "kept" / seed).write_text(document)
    else:
        (folder / "t.json").write_text(document)
    return Case("saved document", args)


def _bench(folder: Path, rng: random.Random) -> Case:
    if (chance := rng.random()) < 0.6:
        return _text_of("benchmark report", "--log")(folder, rng)
    if chance < 0.8:
        document = json_mutated(json.loads((folder / "bench.json").read_bytes()), rng)
        (folder / "t.json").write_text(json.dumps(document))
        return Case("benchmark report", ["moe", "t.json", "bench.json"])
    write(folder / "t.csv", text_mutated((folder / "bench.csv").read_text(), rng))
    return Case("benchmark report", ["moe", "bench.csv", "t.csv"])


def _rule(folder: Path, rng: random.Random) -> Case:
    (folder / "own").mkdir()
    write(folder / "own" / "rule.yaml", text_mutated((folder / "rule.yaml").read_text(), rng))
    lines = ("rules check own", "whatif good.sqlite --fix SYN101 --rules own", "good.sqlite --rules own")
    return Case("rule file", rng.choice(lines).split())


def _config(folder: Path, rng: random.Random) -> Case:
    document = json_mutated(json.loads((folder / "config.json").read_bytes()), rng)
    (folder / "t.json").write_text(json.dumps(document))
    return Case("model config", ["whatif", "good.sqlite", "--fix", "SYN101", "--weight-bytes", "t.json"])


def _settings(folder: Path, rng: random.Random) -> Case:
    write(folder / "advisor.toml", text_mutated((folder / "advisor.toml").read_text(), rng))
    return Case("settings", ["doctor", "good.sqlite"] if rng.random() < 0.5 else ["good.sqlite"])


def _answers(folder: Path, rng: random.Random) -> Case:
    name = rng.choice(("answers.yaml", "review.json"))
    write(folder / f"t{Path(name).suffix}", text_mutated((folder / name).read_text(), rng))
    return Case("answers", ["checklist", "--answers", f"t{Path(name).suffix}", "--no-input"])


def _workbook(folder: Path, rng: random.Random) -> Case:
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
    "--window": ("5s/7s", "1ms/2ms", "0/", "1s2ms/"),
    "--nvtx": ("iteration*", "iteration 3@NVTX/2", "[a"),
    "--weight-bytes": ("16GB", "1e9"),
    "--unprofiled-step": ("9.9",),
    "--gpu-metrics-offset": ("1.5s",),
    "--param": ("LCH101.x=1", "LCH101=3"),
    "--select": ("SYN101,LCH",),
    "--top": ("5",),
    "--phase": ("decode",),
    "--serving-engine": ("vllm@0.9",),
    "--fail-on": ("high",),
    "--baseline": ("name",),
    "--folder": ("x",),
    "--jobs": ("2",),
    "--format": ("json",),
}


def _option(folder: Path, rng: random.Random) -> Case:
    args = ["good.sqlite"]
    for name in rng.sample(list(OPTIONS), rng.choice((1, 1, 2))):
        value = rng.choice(OPTIONS[name])
        value = str(rng.choice((*NUMBERS, *TEXTS))) if rng.random() < 0.3 else text_mutated(value, rng)
        args += [name, value.replace("\0", "")]
    del folder
    return Case("options", args)


def write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # it may be a link to the seed
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


KINDS: dict[str, tuple[int, Callable[[Path, random.Random], Case]]] = {
    "nsys cells": (6, _nsys_cells),
    "nsys bytes": (4, _bytes_of("nsys bytes", "good.sqlite", "t.sqlite")),
    "packed bytes": (2, _packed),
    "kineto values": (4, _kineto_values),
    "kineto bytes": (3, _bytes_of("kineto bytes", "seed.json", "t.json")),
    "columnar": (3, _columnar),
    "sampler log": (4, _text_of("sampler log", "--gpu-metrics")),
    "server log": (4, _text_of("server log", "--log")),
    "server metrics": (3, _text_of("server metrics", "--log")),
    "pasted table": (4, _text_of("pasted table", None)),
    "saved document": (5, _saved),
    "benchmark report": (3, _bench),
    "rule file": (3, _rule),
    "model config": (2, _config),
    "settings": (2, _settings),
    "answers": (2, _answers),
    "workbook": (1, _workbook),
    "options": (4, _option),
}
