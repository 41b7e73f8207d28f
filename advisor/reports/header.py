"""Head of the report: which captures, which machine, which window, how many steps; the ranks of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.model.facts import Cell
from advisor.model.findings import UNREADABLE, Diagnosis, Input, StepSummary
from advisor.model.numbers import column, digits, milliseconds, percent_range, value_text
from advisor.reports.blocks import Block, Grid, Heading, Labelled, Title, first, labelled
from advisor.reports.layout import GLUE
from advisor.reports.phrases import devices, machine, missing, step_time, window, workload

#: Number of captures described one by one, unless all are requested.
INPUTS = 4


def header(d: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """A block an input, at most `limit`; before them what the ranks of one job have in common."""
    ranks = len(d.inputs) > 1 and all(i.rank is not None for i in d.inputs)
    if ranks:
        yield from job(d)
        yield from _steps(d.main_steps, None)
    for entry in d.inputs[:limit] if limit is None or not ranks else ():
        yield from header_input(entry, d.main_steps if len(d.inputs) == 1 else None)
    if limit is not None and not ranks and len(d.inputs) > limit:
        yield Labelled("", f"and {len(d.inputs) - limit} more captures")
    if not ranks and len(d.inputs) != 1:
        yield from _steps(d.main_steps, None)
    yield Labelled("analysed", f"by {d.tool.name} {d.tool.version}, engine {d.tool.engine}")


def header_input(entry: Input, steps: tuple[StepSummary, ...] | None = None) -> Iterator[Block]:
    """One capture, with its steps unless they are those of a whole job (None)."""
    yield Title(entry.path)
    if entry.format != UNREADABLE:
        evidence, startup = "; ".join(entry.serving_evidence), entry.startup_ms
        yield from labelled(
            ("captured", f"{GLUE}· ".join(machine(entry))),
            ("devices", devices(entry, always=True)),
            ("engine", evidence and f"evidence: {evidence}"),
            ("workload", workload(entry)),
        )
        yield from _steps(steps, entry)
        yield from labelled(
            ("window", window(entry)),
            ("start-up", f"{value_text(startup, 'ms')} set aside" if startup else ""),
            ("together", entry.together and f"with {entry.together}"),
        )
    for text, times in Counter(entry.warnings).items():
        yield Labelled("warning", f"{text} ({times} times)" if times > 1 else text)
    rows = (r for r in entry.ledger if str(r) not in entry.warnings)
    yield from (Labelled("import", f"{row.severity}: {row}") for row in rows)


def _steps(steps: tuple[StepSummary, ...] | None, entry: Input | None) -> Iterator[Block]:
    if steps:
        yield Labelled("steps", ", ".join(f"{s.count} {s.phase}" for s in steps) + _method(entry))
        times = "; ".join(
            f"{s.phase} {milliseconds(s.median_ms)} ms median, {milliseconds(s.mean_ms)} ms mean"
            for s in steps
        )
        yield Labelled("step time", f"{times} (profiled)")
        if entry is not None and entry.untraced_step_ms is not None:
            yield Labelled("mean step", step_time([entry]))
    if entry is None:
        return
    if not steps and entry.steps:
        layers = f"not found; {entry.steps} parts that repeat may be layers"
        yield Labelled("steps", (str(entry.steps) if steps is None else layers) + _method(entry))
    elif not steps and entry.busy_share is not None:
        yield Labelled("steps", "none found")
    load = [f"{count} {what}" for what, count in entry.step_levels.items()]
    if entry.kernels_per_step is not None:
        load.insert(0, f"{digits(round(entry.kernels_per_step, 1))} kernels per step")
    if entry.busy_share is not None:
        load.append(f"GPU busy {value_text(entry.busy_share, 'ratio')} of the window")
    yield from labelled(("load", ", ".join(load)), ("delivers", ", ".join(rates(entry))))


def rates(entry: Input) -> list[str]:
    """Tokens a second and how much of the device's peaks that takes, as far as known."""
    parts = [] if entry.tokens_per_s is None else [f"{digits(round(entry.tokens_per_s))} tokens/s (profiled)"]
    used = (("bandwidth", entry.model_bandwidth_ratio), ("FLOP", entry.model_flop_ratio))
    known = ((what, value_text(ratio, "ratio")) for what, ratio in used if ratio is not None)
    return parts + [f"model-{what} utilisation {text}" for what, text in known]


def _method(entry: Input | None) -> str:
    """How steps were found, and how certain they are."""
    if entry is None or not entry.step_method:
        return ""
    sure = entry.step_confidence
    confidence = "" if sure is None else f", confidence {value_text(sure, 'ratio')}"
    return f" (from {entry.step_method}{confidence})"


SHOWN = 16
CAPTION = "shares of each rank's window; last and causes: of all collectives"
#: Columns of the table of ranks shown here, and shorter heads for some; all are in the document.
_HEADS = (
    "rank", "busy:ratio", "exposed_collectives:ratio", "overlap:ratio", "waits:ratio", "comes_last:ratio",
    "causes:ratio", "clock_offset:us",
)  # fmt: skip
_SHORT = {"exposed_collectives": "exposed", "comes_last": "last", "clock_offset": "clock"}


def job(diagnosis: Diagnosis) -> Iterator[Block]:
    """The captures of one job in a few lines: what they have in common, then the warnings of each."""
    read = [i for i in diagnosis.inputs if i.format != UNREADABLE]
    yield Title(diagnosis.inputs[0].path)
    if diagnosis.inputs[0].path != diagnosis.inputs[-1].path:
        yield Title(f"to {diagnosis.inputs[-1].path}")
    yield Labelled("ranks", f"{ranks_read(diagnosis)} read")
    if read:
        names = ("device", "producer", "driver")
        shared = read[0].replaced(**{n: _same([getattr(i, n) for i in read]) for n in names})
        yield Labelled("captured", f"{GLUE}· ".join(machine(shared)))
        yield Labelled("workload", workload(read[0]))
        if busy := [i.busy_share for i in read if i.busy_share is not None]:
            yield Labelled("load", f"GPUs busy {percent_range(busy)} of their windows")
    yield from (Labelled("missing", text) for text in missing(diagnosis))
    yield from (Labelled("warning", f"rank {i.rank}: {text}") for i in read for text in i.warnings)


def ranks_read(diagnosis: Diagnosis) -> str:
    """``2 of 3`` were read: of the ranks of the job, if its captures state their number."""
    read = sum(i.format != UNREADABLE for i in diagnosis.inputs)
    sizes = (f.value for f in diagnosis.facts if f.name == "ranks.world_size")
    world = max([len(diagnosis.inputs), *(v for v in sizes if isinstance(v, int))])
    return f"{read} of {world}" if world > read else str(read)


def _same(texts: Sequence[str | None]) -> str | None:
    """The common text, or the most frequent one with ``and others``."""
    known = Counter(t for t in texts if t)
    if not known:
        return None
    text, _ = min(known.items(), key=lambda item: (-item[1], item[0]))
    return text if len(known) == 1 else f"{text} and others"


def ranks(diagnosis: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """The table of ranks, of many those that cause most waiting; empty for a single one."""
    table = diagnosis.tables.get("ranks")
    if table is None or len(table.rows) < 2:
        return
    at = {head: i for i, head in enumerate(table.columns)}

    def order(row: Sequence[Cell]) -> list[float]:
        """The ranks that cause most waiting first, then those that wait most."""
        cells = (row[at[name]] for name in ("causes:ratio", "waits:ratio"))
        return [-float(cell) if isinstance(cell, int | float) else 0.0 for cell in cells]

    many = limit is not None and len(table.rows) > limit
    rows, hidden = first(sorted(table.rows, key=order) if many else table.rows, limit)
    heads, cells = [], []
    for head in _HEADS:
        values = [row[at[head]] for row in rows]
        if any(v is not None for v in values):
            name, colon, unit = head.partition(":")
            shown, texts, _ = column(f"{_SHORT.get(name, name)}{colon}{unit}", values)
            heads.append(shown)
            cells.append(texts)
    yield Heading("Ranks", CAPTION)
    yield Grid(tuple(heads), tuple(zip(*cells, strict=True)), hidden)


def path_of(diagnosis: Diagnosis, rank: int | None) -> str:
    """The file of this rank, else the first one."""
    own = next((i.path for i in diagnosis.inputs if rank is not None and i.rank == rank), None)
    return own or (diagnosis.inputs[0].path if diagnosis.inputs else "")
