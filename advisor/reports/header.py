"""Head of the report: which capture, which machine, which window, how many steps."""

from __future__ import annotations

from collections import Counter

from advisor.model.findings import Diagnosis, Input, StepSummary
from advisor.reports import ranks_text
from advisor.reports.layout import GLUE, Page, cut_middle
from advisor.reports.numbers import grouped, milliseconds, session_time, value_text
from advisor.reports.phrases import devices, machine, untraced, workload

SHOWN_INPUTS = 4


def header(page: Page, diagnosis: Diagnosis, verbosity: int) -> None:
    """One block per input; the ranks of one job share what is equal."""
    if len(diagnosis.inputs) > 1 and all(i.rank is not None for i in diagnosis.inputs):
        ranks_text.job(page, diagnosis, verbosity)
        if verbosity <= 0:
            _steps(page, diagnosis.main_steps, None)
            return
    shown = diagnosis.inputs if verbosity > 0 else diagnosis.inputs[:SHOWN_INPUTS]
    for entry in shown:
        _input(page, entry, diagnosis.main_steps if len(diagnosis.inputs) == 1 else (), verbosity)
    if len(shown) < len(diagnosis.inputs):
        page.line(f"... and {len(diagnosis.inputs) - len(shown)} more captures")
    if len(diagnosis.inputs) != 1:
        _steps(page, diagnosis.main_steps, None)
    if verbosity > 0:
        tool = diagnosis.tool
        page.labelled("analysed", f"by {tool.name} {tool.version}, engine {tool.engine}")


def header_input(page: Page, entry: Input, verbosity: int = 0) -> None:
    """One capture without its steps."""
    _input(page, entry, (), verbosity)


def _input(page: Page, entry: Input, steps: tuple[StepSummary, ...], verbosity: int) -> None:
    page.line((cut_middle(entry.path, page.width, page.glyphs.ellipsis), "bold"))
    known = machine(entry)
    if known:
        page.labelled("captured", f"{GLUE}{page.glyphs.dot} ".join(known))
    if numbers := devices(entry, always=verbosity > 0):
        page.labelled("devices", numbers)
    if verbosity > 0 and entry.serving_evidence:
        page.labelled("engine", f"told by {'; '.join(entry.serving_evidence)}")
    page.labelled("workload", workload(entry))
    _steps(page, steps, entry)
    _window(page, entry)
    warnings = Counter(entry.warnings)
    for text, times in list(warnings.items())[: None if verbosity > 0 else 3]:
        page.labelled("warning", f"{text} ({times} times)" if times > 1 else text)


def _steps(page: Page, steps: tuple[StepSummary, ...], entry: Input | None) -> None:
    if steps:
        mix = ", ".join(f"{s.count} {s.phase}" for s in steps)
        page.labelled("steps", mix + _method(entry))
        times = "; ".join(
            f"{s.phase} {milliseconds(s.median_ms)} ms median, {milliseconds(s.mean_ms)} ms mean"
            for s in steps
        )
        page.labelled("step time", f"{times} (profiled)")
        if entry is not None and (both := untraced(entry)):
            page.labelled("mean step", both)
    elif entry is not None and entry.steps == 0:
        page.labelled("steps", "none found")
    load = []
    if entry is not None and entry.kernels_per_step is not None:
        load.append(f"{grouped(round(entry.kernels_per_step, 1))} kernels per step")
    if entry is not None:
        load += [f"{count} {what}" for what, count in entry.step_levels.items()]
    if entry is not None and entry.busy_share is not None:
        load.append(f"GPU busy {value_text(entry.busy_share, 'ratio')} of the window")
    if load:
        page.labelled("load", ", ".join(load))
    if entry is not None and (delivered := rates(entry)):
        page.labelled("delivers", ", ".join(delivered))


def rates(entry: Input) -> list[str]:
    """Tokens a second and how much of the device's peaks that takes, as far as known."""
    told = [] if entry.tokens_per_s is None else [f"{grouped(round(entry.tokens_per_s))} tokens/s (profiled)"]
    for what, ratio in (("bandwidth", entry.model_bandwidth_ratio), ("FLOP", entry.model_flop_ratio)):
        if ratio is not None:
            told.append(f"model-{what} utilisation {value_text(ratio, 'ratio')}")
    return told


def _method(entry: Input | None) -> str:
    """How steps were found, and how sure that is."""
    if entry is None or not entry.step_method:
        return ""
    if entry.step_confidence is None:
        return f" (from {entry.step_method})"
    return f" (from {entry.step_method}, confidence {value_text(entry.step_confidence, 'ratio')})"


def _window(page: Page, entry: Input) -> None:
    parts = []
    if entry.window_ns is not None and entry.window_ns[1] > entry.window_ns[0]:
        lo, hi = entry.window_ns
        parts.append(f"{session_time(lo)} to {session_time(hi)}")
        length = value_text(hi - lo, "ns")
        parts[-1] += f" ({length}{', ' + entry.window_method if entry.window_method else ''})"
    elif entry.window_ms:
        parts.append(value_text(entry.window_ms, "ms"))
    if entry.startup_ms:
        parts.append(f"start-up of {value_text(entry.startup_ms, 'ms')} set aside")
    if parts:
        page.labelled("window", "; ".join(parts))
