"""The tests of llama-bench (as a table, CSV, SQL or JSON) and the batches of llama-batched-bench -> rows of
the load, and which models they were of."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from advisor.numerals import finite, read_float
from advisor.reading import LONGEST_LINE
from advisor.sources.schema import LOAD_DECODE, LOAD_PREFILL

Row = dict[str, float]

#: Headings of llama-bench and llama-batched-bench.
_HEADING = re.compile(r"\|\s*test\s*\|\s*t/s\s*\||S_PP t/s\s*\|\s*T_TG s\s*\|\s*S_TG t/s")
_KEYS = ('"n_prompt"', '"n_gen"', '"avg_ts"')
#: The same columns of its CSV, and of its SQL behind the name of the table.
_COLUMNS = ("n_prompt", "n_gen", "avg_ts")
_INSERTED = re.compile(r"^INSERT INTO \w{1,80} \(([^()]{1,4000})\) VALUES \((.{1,8000})\);?\s*$")
#: Columns of the table, by the names of the other forms.
_HEADS = {
    "model": "model_type",
    "params": "model_n_params",
    "backend": "backends",
    "ngl": "n_gpu_layers",
    "n_cpu_moe": "n_cpu_moe",
    "ot": "tensor_buft_overrides",
}
#: Tensors of experts that are kept on the CPU by their names.
_EXPERTS_ON_CPU = re.compile(r"exps[^;,=]{0,80}=CPU", re.IGNORECASE)
_SCALES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
#: Backends without a GPU, and how releases of 2023 tell of one.
_NO_GPU = {"CPU", "BLAS", "AMX"}
_FLAGS = ("cuda", "opencl", "vulkan", "kompute", "metal", "sycl", "gpu_blas")


class Tested(NamedTuple):
    """A model as it was tested: its name and number of parameters, and how many of its layers the GPU was
    allowed to have, None if that is not told. `on_cpu` without a GPU. `expert_layers`: of how many layers the
    experts stay on the CPU, infinite where only their names show that they do."""

    model: str
    parameters: float | None
    gpu_layers: float | None
    on_cpu: bool
    expert_layers: float | None = None


def is_llama_bench(text: str) -> bool:
    """True for a report of either tool."""
    return _HEADING.search(text) is not None or all(key in text for key in _KEYS) or any(_records(text))


def llama_rows(text: str, documents: Iterable[Any]) -> Iterator[Row]:
    """Of llama-bench each test, of one sequence; of llama-batched-bench each batch. `documents`: what the
    text holds as JSON."""
    for test in _tests(text, documents):
        yield from _rate(*(_number(test.get(name)) for name in _COLUMNS))
    for cells in _table(text):
        if "S_TG t/s" in cells:
            yield from _batch({name: _number(cell) for name, cell in cells.items()})


def models(text: str, documents: Iterable[Any]) -> Iterator[Tested]:
    """Each model that was tested, with the most layers on the GPU of all tests of it."""
    most: dict[tuple[str, float | None], Tested] = {}
    for test in _tests(text, documents):
        if not (model := str(test.get("model_type") or "").strip()):
            continue
        found = Tested(
            model, _parameters(test), _number(test.get("n_gpu_layers")), _on_cpu(test), _experts(test)
        )
        known = most.get(found[:2])
        if known is None or known.on_cpu or _on_gpu(found) > _on_gpu(known):
            most[found[:2]] = found
    yield from most.values()


def _on_gpu(tested: Tested) -> tuple[float, float]:
    """More of a model is on the GPU by what stands first."""
    return tested.gpu_layers or 0.0, -(tested.expert_layers or 0.0)


def _experts(test: Mapping[str, Any]) -> float | None:
    if _EXPERTS_ON_CPU.search(str(test.get("tensor_buft_overrides") or "")):
        return math.inf
    return _number(test.get("n_cpu_moe"))


def _parameters(test: Mapping[str, Any]) -> float | None:
    """``8.03 B`` of the table, or the number of the other forms."""
    hit = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([MBT]?)", str(test.get("model_n_params", "")).strip())
    value = read_float(hit[1]) if hit else None
    return None if hit is None or value is None else value * _SCALES[hit[2]]


def _on_cpu(test: Mapping[str, Any]) -> bool:
    if named := str(test.get("backends") or ""):
        return {part.strip() for part in named.split(",")} <= _NO_GPU
    flags = [str(test[name]).casefold() for name in _FLAGS if name in test]
    return bool(flags) and all(flag in ("0", "false") for flag in flags)


def _tests(text: str, documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """The tests by the names of the CSV, in whichever form they are."""
    yield from (entry for entry in documents if isinstance(entry, dict))
    yield from _records(text)
    for cells in _table(text):
        if hit := re.match(r"(pp|tg)(\d{1,9})", cells.get("test", "")):
            prompt, made = (hit[2], "0") if hit[1] == "pp" else ("0", hit[2])
            named = {_HEADS[head]: cell for head, cell in cells.items() if head in _HEADS}
            rate = re.split(r"[±\s]", cells["t/s"])[0]
            yield {**named, "n_prompt": prompt, "n_gen": made, "avg_ts": rate}


def _table(text: str) -> Iterator[dict[str, str]]:
    """Rows of the tables, by their headings."""
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if _HEADING.search(line):
            heads = cells
        elif heads and len(cells) == len(heads):
            yield dict(zip(heads, cells, strict=True))


def _records(text: str) -> Iterator[dict[str, str]]:
    """The tests that llama-bench wrote as CSV or SQL."""
    if not all(name in text for name in _COLUMNS):
        return
    names: list[str] = []
    for line in text.splitlines():
        if len(line) > LONGEST_LINE:
            continue
        if hit := _INSERTED.match(line):
            names, values = _cells(hit[1]), _cells(hit[2].replace("'", '"'))
        elif set(_COLUMNS) <= set(found := _cells(line)):
            names = found
            continue
        else:
            values = found
        if set(_COLUMNS) <= set(names) and len(values) == len(names):
            yield dict(zip(names, values, strict=True))


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _number(value: Any) -> float | None:
    return read_float(value.strip().strip('"')) if isinstance(value, str) else finite(value)


def _rate(prompt: float | None, made: float | None, rate: float | None) -> Iterator[Row]:
    """A test of one kind; those of both give a rate that says nothing about either."""
    if rate and rate > 0 and bool(prompt) != bool(made):
        if made:
            yield _one("output_per_s", LOAD_DECODE, 1.0, rate)
        else:
            yield _one("prompt_per_s", LOAD_PREFILL, 1.0, rate)


def _batch(cells: Mapping[str, float | None]) -> Iterator[Row]:
    batch, read, made = cells.get("B", 1.0), cells.get("S_PP t/s"), cells.get("S_TG t/s")
    if batch and read:
        yield _one("prompt_per_s", LOAD_PREFILL, batch, read)
    if batch and made:
        yield _one("output_per_s", LOAD_DECODE, batch, made)


def _one(column: str, kind: int, batch: float, rate: float) -> Row:
    row = {"kind": float(kind), "running": batch, column: rate}
    if kind == LOAD_DECODE:
        row |= {"in_flight": batch, "step_ms": batch / rate * 1e3, "token_ms": batch / rate * 1e3}
    return row
