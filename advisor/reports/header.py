"""Head of the report: which capture, which machine, which window, how many steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from advisor.model.findings import UNREADABLE, Diagnosis, Input, StepSummary
from advisor.model.numbers import digits, milliseconds, value_text
from advisor.reports import phrases
from advisor.reports.blocks import Block, Labelled, Title
from advisor.reports.layout import GLUE
from advisor.reports.ranks_text import job

#: Captures that are described one by one, unless all are asked for.
INPUTS = 4


def header(d: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """A block an input, at most `limit`; before them what the ranks of one job share."""
    ranks = len(d.inputs) > 1 and all(i.rank is not None for i in d.inputs)
    if ranks:
        yield from job(d)
        yield from _steps(d.main_steps, None)
    for entry in d.inputs[:limit] if limit is None or not ranks else ():
        yield from header_input(entry, d.main_steps if len(d.inputs) == 1 else ())
    if limit is not None and not ranks and len(d.inputs) > limit:
        yield Labelled("", f"and {len(d.inputs) - limit} more captures")
    if not ranks and len(d.inputs) != 1:
        yield from _steps(d.main_steps, None)
    yield Labelled("analysed", f"by {d.tool.name} {d.tool.version}, engine {d.tool.engine}")


def header_input(entry: Input, steps: tuple[StepSummary, ...] = ()) -> Iterator[Block]:
    """One capture."""
    yield Title(entry.path)
    if entry.format != UNREADABLE:
        if known := phrases.machine(entry):
            yield Labelled("captured", f"{GLUE}· ".join(known))
        if numbers := phrases.devices(entry, always=True):
            yield Labelled("devices", numbers)
        if entry.serving_evidence:
            yield Labelled("engine", f"evidence: {'; '.join(entry.serving_evidence)}")
        yield Labelled("workload", phrases.workload(entry))
        yield from _steps(steps, entry)
        if window := phrases.window(entry):
            yield Labelled("window", window)
        if entry.startup_ms:
            yield Labelled("start-up", f"{value_text(entry.startup_ms, 'ms')} set aside")
        if entry.together:
            yield Labelled("together", f"with {entry.together}")
    for text, times in Counter(entry.warnings).items():
        yield Labelled("warning", f"{text} ({times} times)" if times > 1 else text)
    for row in (r for r in entry.ledger if str(r) not in entry.warnings):
        yield Labelled("import", f"{row.severity}: {row}")


def _steps(steps: tuple[StepSummary, ...], entry: Input | None) -> Iterator[Block]:
    if steps:
        yield Labelled("steps", ", ".join(f"{s.count} {s.phase}" for s in steps) + _method(entry))
        times = "; ".join(
            f"{s.phase} {milliseconds(s.median_ms)} ms median, {milliseconds(s.mean_ms)} ms mean"
            for s in steps
        )
        yield Labelled("step time", f"{times} (profiled)")
        if entry is not None and (both := phrases.untraced(entry)):
            yield Labelled("mean step", both)
    elif entry is not None and entry.steps:
        yield Labelled("steps", f"not found; {entry.steps} parts that repeat may be layers{_method(entry)}")
    elif entry is not None and entry.busy_share is not None:
        yield Labelled("steps", "none found")
    if entry is None:
        return
    load = [f"{count} {what}" for what, count in entry.step_levels.items()]
    if entry.kernels_per_step is not None:
        load.insert(0, f"{digits(round(entry.kernels_per_step, 1))} kernels per step")
    if entry.busy_share is not None:
        load.append(f"GPU busy {value_text(entry.busy_share, 'ratio')} of the window")
    if load:
        yield Labelled("load", ", ".join(load))
    if delivered := rates(entry):
        yield Labelled("delivers", ", ".join(delivered))


def rates(entry: Input) -> list[str]:
    """Tokens a second and how much of the device's peaks that takes, as far as known."""
    parts = [] if entry.tokens_per_s is None else [f"{digits(round(entry.tokens_per_s))} tokens/s (profiled)"]
    for what, ratio in (("bandwidth", entry.model_bandwidth_ratio), ("FLOP", entry.model_flop_ratio)):
        if ratio is not None:
            parts.append(f"model-{what} utilisation {value_text(ratio, 'ratio')}")
    return parts


def _method(entry: Input | None) -> str:
    """How steps were found, and how sure that is."""
    if entry is None or not entry.step_method:
        return ""
    if entry.step_confidence is None:
        return f" (from {entry.step_method})"
    return f" (from {entry.step_method}, confidence {value_text(entry.step_confidence, 'ratio')})"
