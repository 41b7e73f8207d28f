"""What the first screen shows of tables that hold sums, and of a server's log: the largest rows with our
names for what they do; the load in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.model.capture import LOAD, SUMS
from advisor.model.facts import Cell, Value
from advisor.model.findings import Diagnosis
from advisor.model.numbers import heading_parts, value_text
from advisor.reports import blocks as b

#: What stands in for the method of steps -> what a share is a share of.
_OF = {SUMS: "by the sums alone", LOAD: "by the load alone"}
#: Tables of the document -> the columns shown, in this order; of the first that has rows.
_SHOWN = {
    "kernels": ("share", "total", "calls", "operation", "kernel"),
    "operators": ("share", "time", "calls", "name"),
    "api": ("share", "total", "count", "call"),
}
#: The table of samples: its columns on the first screen.
_SAMPLED = ("GPU", "what", "mean", "first quarter", "last quarter", "limit", "of the limit")
_ROWS = 5
_SAMPLED_ROWS = 12
#: Log and capture are of one load if a token and a step take as long, up to this factor.
_LIKE = 2.0
#: Facts of the load: name, unit, words around the value.
_LOAD = (
    ("load.running", "count", "{} requests running"),
    ("load.waiting", "count", "{} waiting"),
    ("load.in_flight", "count", "{} sent and not answered"),
    ("load.output_per_s", "count", "{} tokens/s"),
    ("load.token_ms", "ms", "{} a token"),
    ("load.first_token_ms", "ms", "{} to the first one"),
    ("load.prompt_ms", "ms", "{} to read a prompt"),
    ("load.queue_ms", "ms", "{} in the queue"),
    ("load.failed", "count", "{} requests failed"),
    ("load.aborted", "count", "{} requests aborted or failed"),
    ("load.cache_used", "ratio", "KV cache {} full"),
    ("load.slots_busy", "count", "{} slots busy"),
    ("load.slot_output_per_s", "count", "{} tokens/s a slot"),
    ("load.slot_prompt_per_s", "count", "prompts at {} tokens/s"),
    ("load.host_step_ms", "ms", "host step {}"),
    ("load.device_step_ms", "ms", "device step {}"),
)
#: The same of servers that read prompts for others.
_PROMPT_SERVERS = (
    ("load.prompt_servers_waiting", "waiting for their prompts to be read:", ""),
    ("load.prompt_per_s", "prompts at", " tokens/s"),
)


def share_of(d: Diagnosis) -> str | None:
    """What shares are shares of where no time was recorded; None for captures."""
    return _OF.get(d.inputs[0].step_method or "") if len(d.inputs) == 1 else None


def _since(known: Mapping[str, object]) -> str:
    """What the values of one scrape are of: what counts requests is of its moment."""
    if not known.get("load.since_start"):
        return ""
    if known.get("load.slots_busy") is not None:  # llama.cpp begins its rates anew with each scrape
        return " (requests now; slots: means since its start; rates: since then or the scrape before)"
    aborted = "" if known.get("load.aborted") is None else "; aborted or failed: since then"
    return f" (requests and cache now; times: means since its start{aborted})"


def summed(d: Diagnosis) -> Iterator[b.Block]:
    """The largest rows of a printed table, and the load of a server; nothing for other captures."""
    known = {f.name: f.value for f in d.facts if f.name.startswith("load.")}
    load = [
        (words.replace("requests", "request") if v == 1 else words).format(value_text(v, unit))
        for name, unit, words in _LOAD
        if (v := known.get(name)) is not None
    ]
    if known.get("load.prompt_servers"):
        load += [
            f"{words} {value_text(v, 'count')}{unit}"
            for name, words, unit in _PROMPT_SERVERS
            if (v := known.get(name)) is not None
        ]
    if known.get("load.on_cpu"):
        load.append("on a CPU")
    parts = d.tables.get("load")
    if load and (parts is None or parts.columns[0] != "run"):  # runs of a benchmark have no common load
        since = _since(known)
        yield b.Labelled("load", ", ".join(load) + since)
    if parts is not None:
        yield b.Gap()
        yield b.Grid(parts.columns, *b.first(parts.rows, _ROWS))
    yield from _tokens(d, known)
    yield from _sampled(d)
    if share_of(d) is None:
        return
    for name, columns in _SHOWN.items():
        table = d.tables.get(name)
        if table is None or not table.rows:
            continue
        at = {heading_parts(heading)[0]: i for i, heading in enumerate(table.columns)}
        shown = [at[column] for column in columns if column in at]
        cells = tuple(tuple(row[i] for i in shown) for row in table.rows[:_ROWS])
        yield b.Gap()
        yield b.Grid(tuple(table.columns[i] for i in shown), cells, len(table.rows) - len(cells))
        return


def _sampled(d: Diagnosis) -> Iterator[b.Block]:
    """What samples alone hold over time; nothing where a trace says what ran."""
    table = d.tables.get("samples")
    if table is None:
        return
    at = {heading_parts(heading)[0]: i for i, heading in enumerate(table.columns)}
    share = at["of the limit"]

    def cell(row: tuple[Cell, ...], i: int) -> Cell:
        return "-" if row[i] is None else value_text(row[i], "ratio") if i == share else row[i]

    shown = [at[name] for name in _SAMPLED]
    cells = tuple(tuple(cell(row, i) for i in shown) for row in table.rows[:_SAMPLED_ROWS])
    yield b.Gap()
    yield b.Grid(_SAMPLED, cells, len(table.rows) - len(cells))


def _tokens(d: Diagnosis, known: Mapping[str, Value]) -> Iterator[b.Block]:
    """What a shorter step means in tokens a second at the load of the log; nothing without an estimate, or
    with fixes that let more requests into a step, which is another load."""
    now, token = known.get("load.output_per_s"), known.get("load.token_ms")
    if d.combined is None or d.combined.of != "step" or not isinstance(now, float | int):
        return
    if not isinstance(token, float | int) or any(s.measure != "latency" for s in d.combined.steps):
        return
    step = d.combined.step_before_ms.mid
    if not step / _LIKE <= token <= step * _LIKE:
        text = f"a token takes {token:.1f} ms by the log, a step {step:.1f} ms in the capture: not one load"
    else:
        times = d.combined.speedup
        low, high = value_text(now * times.low, "count"), value_text(now * times.high, "count")
        text = f"{value_text(now, 'count')} → {low} to {high} a second at this load, if it only decodes"
    yield b.Labelled("tokens", text)
