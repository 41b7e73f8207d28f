"""The captures that are edited: real ones of this repository, and scripts of known content."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options, diagnose
from tests.captures import DATA, EXAMPLES, committed
from tests.kineto_builder import decode
from tests.metamorphic.edits import cut_to
from tests.metamorphic.events import Change
from tests.scenarios.machine import ADD, Machine

Edit = Callable[[sqlite3.Connection], object]

#: Real captures by a short name; with `-u` behind it, it is without its GPU metrics.
REAL = {
    "eager": "decode_eager_bs1",
    "graph": "decode_graph_bs1",
    "gap": "decode_cpu_gap",
    "pageable": "decode_h2d_pageable",
    "opaque": "decode_graph_opaque",
    "gc": "decode_gc",
    "two": "two_processes",
    "bound": "decode8b_graph_bs1",
    "whole": "whole_run_no_capture_range",
}
#: Those of which half is as good as all.
LONG = {"eager", "gap"}


def served() -> Machine:
    """Sixteen steps of one millisecond of replayed graph that the host waits for: healthy."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(22, call=20)
            m.wait()
    return m


def eager() -> Machine:
    """Sixteen steps of short kernels that are launched one by one."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.layers(8)
            m.wait()
    return m


def cold() -> Machine:
    """A program that ends soon: a context in 60 ms, four modules, twenty kernels of 100 us."""
    m = Machine()
    m.call("cudaFree_v3020", 60_000)
    for i in range(20):
        if i < 4:
            m.call("cuModuleLoadData", 2_000)
        m.launch(ADD, 100)
        m.wait()
    return m


SCRIPTS = {"served": served, "launched": eager, "cold": cold}


@cache
def folder() -> Path:
    return Path(mkdtemp(prefix="metamorphic-"))


@cache
def unedited(name: str) -> Path:
    """The file of a capture, unpacked once."""
    path = folder() / f"{name}.sqlite"
    if name in SCRIPTS:
        return SCRIPTS[name]().write(folder(), path.name)
    real, _, without = name.partition("-")
    with lzma.open(committed(REAL[real])) as packed, path.open("wb") as out:
        shutil.copyfileobj(packed, out)
    db = sqlite3.connect(path)
    with db:
        if real in LONG:
            cut_to(0.5)(db)
        if without:
            db.execute("DROP TABLE GPU_METRICS")
    db.execute("VACUUM")
    db.close()
    return path


@cache
def before(name: str) -> Diagnosis:
    return diagnosed(unedited(name))


def after(name: str, edit: Edit, path: Path) -> Diagnosis:
    """The diagnosis of an edited copy."""
    shutil.copyfile(unedited(name), path)
    db = sqlite3.connect(path)
    db.execute("pragma synchronous = off")  # no test survives a loss of power
    with db:
        edit(db)
    db.close()
    return diagnosed(path)


#: Edits that another one of the same kind stands for.
MUCH_LIKE_OTHERS = frozenset(
    (
        "a process that only pushes ranges",
        "two thirds of it",
        "longer host gaps",
        "pooled allocation in each step",
        "pageable downloads in each step",
        "waits for nothing in each step",
        "other host code in a range",
        "blocking memsets in each step",
        "one slow allocation",
        "no ranges, and a kernel in 100 lost",
        "no ranges, and half of the kernels lost",
        "doubled calls",
        "calls of -1 us",
        "half of the calls lost",
        "half of the nodes of each replay lost",
        "a clock of 32 ns",
        "the last two thirds",
        "one call years away",
        "one of 32 calls years away",
        "ranges by start and end",
        "every second step range lost",
        "two threads in turns",
        "a small process beside",
        "one call in 500 twice",
        "a memset on an idle GPU",
    )
)


def of_each_first(cases: Sequence[Any]) -> list[Any]:
    """The cases (with a name and a capture) as parameters: further captures for one edit are slow tests, and
    so are edits of real captures that change nothing, and what differs little from another edit."""
    first = {
        case.name: case
        for case in reversed(cases)
        if getattr(case, "same", "") != "all" or case.capture in SCRIPTS
    }
    return [
        pytest.param(
            case,
            id=f"{case.name}, {case.capture}",
            marks=[]
            if case is first.get(case.name) and case.name not in MUCH_LIKE_OTHERS
            else pytest.mark.slow,
        )
        for case in cases
    ]


def diagnosed(path: Path) -> Diagnosis:
    return diagnose(path, Options(engine="python"))


@cache
def unedited_events(name: str) -> str:
    """The JSON of a PyTorch profiler trace: `kineto` is a real one, `script` a known one."""
    if name == "script":
        return decode().text()
    path = next(p for p in (*DATA.glob("*.json.gz"), *EXAMPLES.glob("*.json.gz")))
    return gzip.decompress(path.read_bytes()).decode()


@cache
def before_events(name: str) -> Diagnosis:
    return after_events(name, lambda _: None, folder() / f"{name}.json")


def after_events(name: str, change: Change, path: Path) -> Diagnosis:
    document = json.loads(unedited_events(name))
    change(document)
    path.write_text(json.dumps(document))
    return diagnosed(path)
